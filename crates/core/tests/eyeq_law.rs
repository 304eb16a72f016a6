//! EyeQ's rate control law by itself: golden steps, iterations to its fixed point (EyeQ §3.4), and what
//! late feedback does to it.

use weir_core::eyeq::{EyeQ, ONE, RcpInput, bound, rcp_step};

const C: u64 = 9_000_000_000;
const PERIOD_NS: u64 = 200_000;

#[test]
fn each_golden_step_comes_out_to_the_bit() {
    let text = include_str!("golden/rcp.txt");
    let mut steps = 0;
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (inputs, outputs) = line.split_once("->").expect("inputs -> outputs");
        let numbers = |text: &str| -> Vec<u64> {
            text.split_whitespace().map(|n| n.parse().expect("a number")).collect()
        };
        let (i, want) = (numbers(inputs), numbers(outputs));
        let small = |n: u64| u32::try_from(n).expect("32 bits");
        let out = rcp_step(RcpInput {
            rate_bps: i[0],
            capacity_bps: i[1],
            floor_bps: i[2],
            elapsed_ns: i[3],
            received_octets: i[4],
            segments: i[5],
            marked: i[6],
            alpha: small(i[7]),
            least_factor: small(i[8]),
            queue_octets: small(i[9]),
            spare: 0,
        });
        assert_eq!([out.rate_bps, out.load][..], want[..], "{line}");
        steps += 1;
    }
    assert_eq!(steps, 16);
}

/// `n` senders that always send what they were told, `delay` periods late.
struct Senders {
    n: u64,
    alpha: f64,
    delay: usize,
    least_divisor: u64,
    least_factor: u32,
    /// R, one per iteration, the newest last.
    told: Vec<u64>,
}

impl Senders {
    fn new(n: u64, start_bps: u64) -> Self {
        let eyeq = EyeQ::default();
        Self {
            n,
            alpha: eyeq.alpha,
            delay: 0,
            least_divisor: eyeq.least_divisor.into(),
            least_factor: (eyeq.least_factor * f64::from(ONE)).round() as u32,
            told: vec![start_bps],
        }
    }

    fn fair(&self) -> f64 {
        C as f64 / self.n as f64
    }

    fn iterate(&mut self, times: usize) {
        for _ in 0..times {
            let newest = self.told.len() - 1;
            let in_force = u128::from(self.told[newest.saturating_sub(self.delay)]);
            let octets = u128::from(self.n) * in_force * u128::from(PERIOD_NS) / 8_000_000_000;
            let out = rcp_step(RcpInput {
                rate_bps: self.told[newest],
                capacity_bps: C,
                floor_bps: C / self.least_divisor,
                elapsed_ns: PERIOD_NS,
                received_octets: u64::try_from(octets).expect("a few gigabytes"),
                alpha: (self.alpha * f64::from(ONE)).round() as u32,
                least_factor: self.least_factor,
                ..RcpInput::default()
            });
            self.told.push(out.rate_bps);
        }
    }

    /// Iterations until R is within 0.01 % of the fair share, and stays there.
    fn settles_after(&mut self) -> usize {
        self.iterate(200);
        let fair = self.fair();
        let off = |r: &u64| (*r as f64 - fair).abs() > 1e-4 * fair;
        self.told.iter().rposition(off).map_or(0, |last| last + 1)
    }

    /// How far R still swings after thousands of iterations, as a part of the fair share.
    fn swing(&mut self) -> f64 {
        self.iterate(6_000);
        let late = &self.told[self.told.len() - 500..];
        let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
        (most - least) as f64 / self.fair()
    }
}

/// R(0) in Mb/s.
const STARTS: [u64; 6] = [1, 10, 100, 1_000, 9_000, 10_000];

/// The table of docs/algorithms/eyeq.md.
#[test]
fn the_rate_is_within_a_ten_thousandth_after_these_iterations() {
    let table = [
        (1, [37, 31, 25, 19, 0, 11]),
        (2, [35, 29, 24, 17, 1, 14]),
        (5, [33, 27, 21, 14, 16, 16]),
        (10, [31, 25, 19, 10, 1, 1]),
        (14, [30, 25, 19, 11, 12, 12]),
        (20, [29, 24, 17, 12, 2, 2]),
        (50, [27, 21, 14, 16, 17, 17]),
        (100, [25, 19, 10, 11, 3, 3]),
    ];
    for (n, want) in table {
        let got = STARTS.map(|mbps| Senders::new(n, mbps * 1_000_000).settles_after());
        assert_eq!(got, want, "N = {n}, R(0) = {STARTS:?} Mb/s");
    }
}

#[test]
fn with_the_authors_least_rate_none_takes_more_than_31() {
    for n in 1..=100 {
        for mbps in STARTS {
            let mut senders = Senders::new(n, mbps * 1_000_000);
            // 10 Mb/s at 10 Gb/s.
            senders.least_divisor = 1_000;
            let took = senders.settles_after();
            assert!(took <= 31, "N = {n}, R(0) = {mbps} Mb/s: {took}");
        }
    }
}

#[test]
fn the_law_swings_for_ever_above_the_bound_and_rests_below_it() {
    for delay in 0..=5u32 {
        let swing = |of_bound: f64| {
            let mut senders = Senders::new(10, C / 10 * 11 / 10);
            senders.alpha = bound(delay.into()) * of_bound;
            senders.delay = delay as usize;
            senders.swing()
        };
        let (below, above) = (swing(0.9), swing(1.05));
        assert!(below < 0.001, "d = {delay}: {below:.4} of the fair share");
        assert!(above > 0.2, "d = {delay}: {above:.4} of the fair share");
    }
}

#[test]
fn the_papers_gain_rests_two_periods_late_and_not_three() {
    let swing = |delay| Senders { delay, ..Senders::new(10, C / 10 * 11 / 10) }.swing();
    for delay in 0..=2 {
        assert!(swing(delay) < 0.001, "d = {delay}");
    }
    for delay in 3..=5 {
        assert!(swing(delay) > 1.0, "d = {delay}: {}", swing(delay));
    }
    let gentle =
        |delay| Senders { alpha: 0.2, delay, ..Senders::new(10, C / 10 * 11 / 10) }.swing();
    assert!(gentle(5) < 0.001, "{}", gentle(5));
}
