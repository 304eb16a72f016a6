//! Meters by other laws, to compare with EyeQ's: how long until senders fill an endpoint and no more.
//!
//! Problem   The authors tried meters like DCTCP's and QCN's (EyeQ §3.4) and give one time for each.
//! Approach  One endpoint, N senders that always send what they were told, one period late. Each law turns
//!           y and C into R once per period. R is cut to \[1 Mb/s, C\] for all of them.
//! Not here  Queues and packets: DCTCP and QCN proper react to a queue; these react to y − C, which is
//!           what a meter at the receiver sees. Hosts and sampling: see [`crate::eyeq`].
//! Source    EyeQ §3.4. DCTCP: Alizadeh et al., SIGCOMM 2010, §3. QCN: Alizadeh et al., Allerton 2008.
//!           What a meter of either kind was in the paper is not said: times differ with its constants.

use weir_core::eyeq::{EyeQ, ONE, RcpInput, rcp_step};
use weir_units::{Rate, Span};

/// How R follows from y and C.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Law {
    /// EyeQ's own.
    Rcp {
        /// α.
        alpha: f64,
    },
    /// A period in which y > C counts as marked. a ← a + g·(marked − a); marked: R ← R·(1 − a/2), else
    /// R += `step`.
    Dctcp {
        /// g. DCTCP: 1/16.
        gain: f64,
        /// One segment per round trip more, in bit/s: 1514 octets per period squared.
        step: f64,
    },
    /// Fb = (y − C)/C. Fb > 0: the target is R, and R ← R·(1 − min(½, Gd·Fb)). Else, after each cycle of octets
    /// from one sender or of time, R ← (R + target)/2; from the sixth cycle on the target grows first.
    Qcn {
        /// Gd. QCN: a cut of ½ at the largest Fb; here at Fb = 1.
        gain: f64,
        /// Octets of a cycle. QCN: 150 kB.
        cycle_octets: f64,
        /// Or this long, in periods. QCN: 15 ms.
        cycle_periods: u32,
        /// What the target grows by, bit/s. QCN: 5 Mb/s.
        step: f64,
    },
}

impl Law {
    /// EyeQ's law with the paper's gain.
    pub fn rcp() -> Self {
        Self::Rcp { alpha: EyeQ::default().alpha }
    }

    /// DCTCP's constants, with a round trip of `period`.
    pub fn dctcp(period: Span) -> Self {
        let t = period.as_secs_f64();
        Self::Dctcp { gain: 1.0 / 16.0, step: 1514.0 * 8.0 / t }
    }

    /// QCN's constants.
    pub fn qcn(period: Span) -> Self {
        let cycle_periods = Span::from_millis(15).div_span(period) as u32;
        Self::Qcn { gain: 0.5, cycle_octets: 150_000.0, cycle_periods, step: 5e6 }
    }
}

/// One endpoint and those that send to it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// What R follows from.
    pub law: Law,
    /// C.
    pub capacity: Rate,
    /// How many send.
    pub senders: u64,
    /// R at the beginning.
    pub start: Rate,
    /// How often R is computed.
    pub period: Span,
}

/// What a law remembers.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// DCTCP's a.
    marked: f64,
    /// QCN's target rate, bit/s.
    target: f64,
    /// QCN's octets and periods of this cycle, and the cycles since the last cut.
    octets: f64,
    periods: u32,
    cycles: u32,
}

impl Endpoint {
    /// y / C in each of `periods` periods.
    pub fn play(&self, periods: usize) -> Vec<f64> {
        let capacity = self.capacity.as_f64();
        let mut memory = Memory { target: self.start.as_f64(), ..Memory::default() };
        let (mut told, mut rate) = (self.start.as_f64(), self.start.as_f64());
        (0..periods)
            .map(|_| {
                let y = self.senders as f64 * told;
                told = rate;
                rate = self.step(&mut memory, rate, y).clamp(1e6, capacity);
                y / capacity
            })
            .collect()
    }

    /// After how long y is within `slack` of C, and stays there for all of `periods`.
    pub fn settles_after(&self, slack: f64, periods: usize) -> Option<Span> {
        let loads = self.play(periods);
        let last = loads.iter().rposition(|load| (load - 1.0).abs() > slack);
        let after = last.map_or(0, |last| last + 1);
        // Some tail has to show that it stays.
        (after < periods * 9 / 10).then(|| self.period * after as u64)
    }

    fn step(&self, memory: &mut Memory, rate: f64, y: f64) -> f64 {
        let capacity = self.capacity.as_f64();
        let t = self.period.as_secs_f64();
        match self.law {
            Law::Rcp { alpha } => {
                let eyeq = EyeQ::default();
                let out = rcp_step(RcpInput {
                    rate_bps: rate as u64,
                    capacity_bps: self.capacity.as_bps(),
                    floor_bps: self.capacity.as_bps() / u64::from(eyeq.least_divisor),
                    elapsed_ns: self.period.as_nanos(),
                    received_octets: (y * t / 8.0) as u64,
                    alpha: (alpha * f64::from(ONE)).round() as u32,
                    least_factor: (eyeq.least_factor * f64::from(ONE)).round() as u32,
                    ..RcpInput::default()
                });
                out.rate_bps as f64
            }
            Law::Dctcp { gain, step } => {
                let is_marked = y > capacity;
                memory.marked += gain * (f64::from(u8::from(is_marked)) - memory.marked);
                if is_marked { rate * (1.0 - memory.marked / 2.0) } else { rate + step }
            }
            Law::Qcn { gain, cycle_octets, cycle_periods, step } => {
                let fb = (y - capacity) / capacity;
                if fb > 0.0 {
                    *memory = Memory { target: rate, ..Memory::default() };
                    return rate * (1.0 - (gain * fb).min(0.5));
                }
                memory.octets += rate * t / 8.0;
                memory.periods += 1;
                if memory.octets < cycle_octets && memory.periods < cycle_periods {
                    return rate;
                }
                (memory.octets, memory.periods) = (0.0, 0);
                memory.cycles += 1;
                if memory.cycles > 5 {
                    memory.target += step;
                }
                f64::midpoint(rate, memory.target)
            }
        }
    }
}
