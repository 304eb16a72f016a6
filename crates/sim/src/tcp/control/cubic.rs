//! CUBIC: grows as the cube of the time since the last loss, flat where that loss was.
//!
//! Source    RFC 9438 §4.2 (eq. 1, 2), §4.3 (Reno-friendly region, eq. 4), §4.4, §4.5 (target
//!           within [cwnd, 1.5·cwnd]), §4.6 (β = 0.7, also for ECN), §4.7 (fast convergence). C =
//!           0.4. Departs: HyStart (§4.10) is Linux's, if it is on: see `hystart`.

use super::hystart::HyStart;
use super::{Acked, Window, seconds};

const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Time after the start of congestion avoidance in which round trips say nothing about the path,
/// ns.
const STIRRED: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(in crate::tcp) struct Cubic {
    /// The window before the last loss, in segments; less if it is to make room for others.
    w_max: f64,
    /// The window when the last loss was found.
    prior: f64,
    /// When congestion avoidance began, ns, and what it began with.
    epoch: Option<Epoch>,
    /// Part of a segment by which cwnd should be greater.
    fraction: f64,
    hystart: Option<Box<HyStart>>,
}

#[derive(Clone, Debug)]
struct Epoch {
    start: u64,
    /// Seconds until the window is `origin` again.
    k: f64,
    origin: f64,
    /// What Reno would have.
    reno: f64,
}

impl Cubic {
    pub(super) fn new(hystart: bool) -> Self {
        Self { hystart: hystart.then(Box::default), ..Self::default() }
    }

    /// Slow start may have to end.
    #[inline]
    pub(super) fn watch(&mut self, window: &mut Window, ack: &Acked) {
        let Some(hystart) = &mut self.hystart else { return };
        if self.epoch.as_ref().is_none_or(|epoch| ack.now - epoch.start >= STIRRED) {
            hystart.watch(window, ack);
        }
    }

    /// A timeout: slow start begins anew.
    pub(super) fn restart(&mut self) {
        self.forget_epoch();
        if let Some(hystart) = &mut self.hystart {
            **hystart = HyStart::default();
        }
    }

    pub(super) fn grow(&mut self, window: &mut Window, acked: u32, now: u64, rtt: u64) {
        let cwnd = f64::from(window.cwnd) + self.fraction;
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| {
            let missing = (w_max - cwnd).max(0.0);
            Epoch { start: now, k: cube_root(missing / C), origin: w_max.max(cwnd), reno: cwnd }
        });
        let passed = seconds(now - epoch.start);
        let cubic = |t: f64| epoch.origin + C * (t - epoch.k) * (t - epoch.k) * (t - epoch.k);
        let target = cubic(passed + seconds(rtt)).clamp(cwnd, 1.5 * cwnd);
        let without_rtt = cubic(passed);
        let alpha = if epoch.reno < self.prior { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        epoch.reno += alpha * f64::from(acked) / cwnd;
        let grown = if without_rtt < epoch.reno {
            cwnd.max(epoch.reno)
        } else {
            cwnd + (target - cwnd) / cwnd * f64::from(acked)
        };
        window.cwnd = grown as u32;
        self.fraction = grown - f64::from(window.cwnd);
    }

    pub(super) fn fall(&mut self, window: &mut Window) {
        let cwnd = f64::from(window.cwnd);
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.forget_epoch();
        window.fall((cwnd * BETA) as u32);
    }

    fn forget_epoch(&mut self) {
        self.epoch = None;
        self.fraction = 0.0;
    }
}

/// By Newton's method, from + − × ÷ alone: the same on every machine, which a library's need not
/// be.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = if x > 1.0 { x } else { 1.0 };
    loop {
        let better = (2.0 * root + x / (root * root)) / 3.0;
        if better >= root {
            return root;
        }
        root = better;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_right_and_always_found() {
        for x in [0.0, 1e-12, 0.001, 0.5, 1.0, 27.0, 1e6, 1e15] {
            let root = cube_root(x);
            assert!((root * root * root - x).abs() <= 1e-9 * x.max(1e-12), "{x}: {root}");
        }
    }

    /// Plays `seconds` without loss at a round-trip time of 100 ms.
    fn play(cubic: &mut Cubic, window: &mut Window, from: f64, to: f64) {
        for step in (from * 10.0) as u64..(to * 10.0) as u64 {
            for _ in 0..window.cwnd {
                cubic.grow(window, 1, step * 100_000_000, 100_000_000);
            }
        }
    }

    #[test]
    fn it_is_back_where_the_loss_was_after_k_seconds() {
        let (mut cubic, mut window) = (Cubic::default(), Window::new(1000));
        cubic.fall(&mut window);
        assert_eq!(window.cwnd, 700);
        // K = cbrt(1000·0.3/0.4) = 9.09 s (eq. 2).
        play(&mut cubic, &mut window, 0.0, 4.5);
        assert!((930..965).contains(&window.cwnd), "concave: {}", window.cwnd);
        play(&mut cubic, &mut window, 4.5, 9.1);
        assert!((990..=1001).contains(&window.cwnd), "{}", window.cwnd);
        play(&mut cubic, &mut window, 9.1, 19.0);
        assert!(window.cwnd > 1250, "convex: {}", window.cwnd);
    }

    #[test]
    fn where_cubic_is_slow_it_grows_as_reno_would() {
        let (mut cubic, mut window) = (Cubic::default(), Window::new(20));
        cubic.fall(&mut window);
        // RTT of 1 ms: for 50 ms the cube adds nothing, Reno's share 0.53 segments per RTT.
        for step in 0..50 {
            for _ in 0..window.cwnd {
                cubic.grow(&mut window, 1, step * 1_000_000, 1_000_000);
            }
        }
        assert!((34..60).contains(&window.cwnd), "{}", window.cwnd);
    }

    #[test]
    fn one_that_fell_twice_makes_room() {
        let (mut cubic, mut window) = (Cubic::default(), Window::new(1000));
        cubic.fall(&mut window);
        cubic.fall(&mut window);
        assert!((cubic.w_max - 700.0 * 0.85).abs() < 1e-9);
    }
}
