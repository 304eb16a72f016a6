//! EyeQ's meter in C (`bpf/eyeq_count.h`), as the kernel runs it for each packet, against the one in Rust
//! (`weir_core::eyeq::RateMeter`), which the simulator runs. Needs root, and fails without.

use crate::law::{Aligned, Law, STEPS};
use crate::random::Random;
use weir_core::eyeq::{Asked, Heeder, IDLE_PERIODS, MeterRules, MeterShare, Packets, RateMeter};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/eyeq_count_law.bpf.o")));

const INPUT: usize = 216;
const OUTPUT: usize = 120;
const CALLS: u64 = 8;

/// Everything that one packet meets.
#[derive(Clone, Copy, Debug)]
struct Case {
    rules: MeterRules,
    share: MeterShare,
    meter: RateMeter,
    source: Heeder,
    packets: Packets,
    now_ns: u64,
}

fn sums(m: &RateMeter) -> [u64; 11] {
    [
        m.octets, m.since_ns, m.arrived, m.segments, m.marked, m.rate_bps, m.load, m.steps,
        m.untold, m.sent, m.heard,
    ]
}

impl Case {
    fn octets(&self) -> Vec<u8> {
        let Self { rules: r, share, meter, source: s, packets: p, now_ns } = self;
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut words = vec![r.period_ns, r.feedback_octets, 0, 0];
        words.extend([halves(r.alpha, r.least_factor), halves(r.queue_octets, 0)]);
        words.push(halves(0, r.told_part));
        words.extend([share.capacity_bps, share.floor_bps]);
        words.extend(sums(meter));
        words.extend([s.round, s.octets, s.is_told, p.octets, p.segments, p.marked, *now_ns]);
        assert_eq!(words.len() * 8, INPUT);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// What Rust makes of it: meter, source, and what is asked for.
    fn expected(mut self) -> Vec<u64> {
        let Self { rules, share, now_ns, packets, .. } = self;
        let asked = self.meter.count(&rules, share, &mut self.source, now_ns, packets);
        let Asked { tells, begins } = asked;
        let source = [self.source.round, self.source.octets, self.source.is_told];
        let asked = u64::from(tells) | u64::from(begins) << 1;
        sums(&self.meter).into_iter().chain(source).chain([asked]).collect()
    }
}

impl Random {
    /// Small numbers, corners, and anything.
    fn corner(&mut self) -> u64 {
        match self.below(3) {
            0 => self.below(3),
            1 => 1u64.wrapping_shl(self.below(64) as u32).wrapping_sub(self.below(2)),
            _ => {
                let size = self.below(64);
                self.next() >> size
            }
        }
    }

    fn any_case(&mut self) -> Case {
        let mut n = || self.corner();
        Case {
            rules: MeterRules {
                period_ns: n().max(1),
                feedback_octets: n(),
                alpha: n() as u32,
                least_factor: n() as u32,
                queue_octets: n() as u32,
                told_part: n() as u32,
            },
            share: MeterShare { capacity_bps: n(), floor_bps: n() },
            meter: RateMeter {
                octets: n(),
                since_ns: n(),
                arrived: n(),
                segments: n(),
                marked: n(),
                rate_bps: n(),
                load: n(),
                steps: n(),
                untold: n(),
                sent: n(),
                heard: n(),
            },
            source: Heeder { round: n(), octets: n(), is_told: n() % 2 },
            packets: Packets { octets: n(), segments: n(), marked: n() },
            now_ns: n(),
        }
    }

    /// What a meter really meets: a link of 1 Mb/s to 400 Gb/s, a packet in this period, at its end, or later.
    fn plausible_case(&mut self) -> Case {
        let capacity = 1_000_000 + self.below(400_000_000_000);
        let period_ns = 200_000 + self.below(20_000_000);
        let fits = (u128::from(capacity) * u128::from(period_ns) / 8_000_000_000) as u64;
        let since_ns = self.below(1 << 50);
        let passed = [0, 1, 1, 1, 2, self.below(IDLE_PERIODS + 3)][self.below(6) as usize];
        let sent = self.below(3 * fits + 1);
        let steps = self.below(1 << 40);
        let segments = 1 + self.below(40);
        let octets = segments * (64 + self.below(1_451));
        Case {
            rules: MeterRules {
                period_ns,
                feedback_octets: 10_000,
                alpha: self.below(1 << 17) as u32,
                least_factor: 6_554,
                queue_octets: if self.below(2) == 0 { 0 } else { 45_000 },
                told_part: [0, 1 << 15, 57_344, 1 << 16][self.below(4) as usize],
            },
            share: MeterShare { capacity_bps: capacity, floor_bps: capacity / 10_000 },
            meter: RateMeter {
                octets: self.below(1 << 50),
                since_ns,
                arrived: self.below(2 * fits + 1),
                segments: self.below(2_000),
                marked: self.below(500),
                rate_bps: self.below(capacity + 1),
                load: self.below(3 << 16),
                steps,
                untold: self.below(20_000),
                sent,
                heard: self.below(sent + 1),
            },
            source: Heeder {
                round: if self.below(4) == 0 { self.below(1 << 40) } else { steps },
                octets: self.below(sent + 1),
                is_told: self.below(2),
            },
            packets: Packets { octets, segments, marked: self.below(2) * segments },
            now_ns: since_ns + passed * period_ns + self.below(period_ns),
        }
    }
}

#[test]
fn half_a_million_packets_are_metered_alike_in_c_and_in_rust() {
    let kernel = Law::load(&OBJECT.0);
    let (mut told, mut waited, mut stepped) = (0, 0, 0);
    for seed in 0..CALLS {
        let mut random = Random(seed);
        let case = |random: &mut Random| match random.below(2) {
            0 => random.any_case(),
            _ => random.plausible_case(),
        };
        let cases: Vec<Case> = (0..STEPS).map(|_| case(&mut random)).collect();
        let inputs: Vec<u8> = cases.iter().flat_map(Case::octets).collect();
        let (outputs, _) = kernel.run(cases.len(), &inputs);
        for (n, (case, output)) in cases.iter().zip(outputs).enumerate() {
            assert_eq!(output.len(), OUTPUT);
            let word = |chunk: &[u8]| u64::from_ne_bytes(chunk.try_into().unwrap());
            let got: Vec<u64> = output.chunks_exact(8).map(word).collect();
            assert_eq!(got, case.expected(), "seed {seed}, input {n}: {case:?}");
            told += got[14] & 1;
            stepped += u64::from(got[7] == case.meter.steps.wrapping_add(1));
            waited += u64::from(got[7] == case.meter.steps && got[1] != case.meter.since_ns);
        }
    }
    let least = CALLS * STEPS as u64 / 100;
    assert!(told > least && waited > least && stepped > least, "{told} {waited} {stepped}");
}
