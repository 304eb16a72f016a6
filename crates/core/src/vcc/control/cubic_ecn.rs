//! CUBIC with ECN: to 0.7 for marks, then a cube of time that is flat where W was.
//!
//! Words of [`Flow::law`]: 0 where W was, 1 ticks until it is there again (K), 2 when growth began, 3 what Reno
//! would have, 4 whether growth began.
//!
//! Source    RFC 9438 §4.2 (eq. 1, 2), §4.3 (Reno-friendly region), §4.6 (β = 0.7, also for ECN), §4.7 (fast
//!           convergence); C = 0.4 segments/s³. Departs: the target is that of now, not of a round trip later, for
//!           no round trip is measured; W and time in whole octets and ticks, as Linux does in its units.

use super::{Control, has_grown};
use crate::vcc::flow::{Flow, WINDOW_MOST};

const ORIGIN: usize = 0;
const K: usize = 1;
const EPOCH: usize = 2;
const RENO: usize = 3;
const BEGAN: usize = 4;

/// Longer times count as this, ticks: 137 s.
const TIME_MOST: u32 = 1 << 17;
/// C in segments per tick³, times 2⁴¹: 0.4 × (2²⁰ × 10⁻⁹)³.
const C: u64 = 1014;
/// Bits of K.
const ROOT_BITS: u32 = 18;

pub(super) struct CubicEcn;

impl Control for CubicEcn {
    fn after_mark(&self, flow: &mut Flow) -> u32 {
        let window = u64::from(flow.window);
        // One that fell twice makes room: × (1 + β)/2.
        let fell_twice = flow.window < flow.law[ORIGIN];
        flow.law[ORIGIN] = if fell_twice { (window * 17 / 20) as u32 } else { flow.window };
        flow.law[BEGAN] = 0;
        flow.whole((window * 7 / 10) as u32)
    }

    fn after_loss(&self, flow: &mut Flow) -> u32 {
        self.after_mark(flow)
    }

    fn grow(&self, flow: &mut Flow, acked: u32, at: u32) {
        let segment = flow.segment();
        if flow.law[BEGAN] == 0 {
            begin(flow, segment, at);
        }
        let time = at.wrapping_sub(flow.law[EPOCH]).min(TIME_MOST);
        let (k, origin) = (flow.law[K], u64::from(flow.law[ORIGIN]));
        let way = cube(time.abs_diff(k), segment);
        let cubic = if time < k { origin.saturating_sub(way) } else { origin + way };
        let cubic = cubic.min(WINDOW_MOST.into()) as u32;
        if has_grown(flow, acked) {
            // 3·(1 − β)/(1 + β) segments until W is where it was, then one (§4.3).
            let step = if flow.law[RENO] < flow.law[ORIGIN] { segment * 9 / 17 } else { segment };
            flow.law[RENO] = (flow.law[RENO] + step).min(WINDOW_MOST);
        }
        if flow.law[RENO] > cubic {
            flow.window = flow.window.max(flow.law[RENO]);
        } else if cubic > flow.window {
            // All of it in a window's time, and at most half of W (§4.5).
            let missing = u64::from((cubic - flow.window).min(flow.window / 2));
            let more = missing * u64::from(acked) / u64::from(flow.window.max(1));
            flow.window += more.min(missing) as u32;
        }
    }
}

/// Growth begins at `at`, from W.
fn begin(flow: &mut Flow, segment: u32, at: u32) {
    let missing = flow.law[ORIGIN].saturating_sub(flow.window);
    flow.law[ORIGIN] = flow.law[ORIGIN].max(flow.window);
    flow.law[K] = root((u64::from(missing) << 31) / u64::from(segment) * 1024 / C);
    flow.law[EPOCH] = at;
    flow.law[RENO] = flow.window;
    flow.law[BEGAN] = 1;
    flow.acked = 0;
}

/// C·t³ in octets. The cube is below 2⁵⁵, times C 2⁶¹; what is left of it, times a segment, 2⁵⁷.
fn cube(ticks: u32, segment: u32) -> u64 {
    let t = u64::from(ticks.min(TIME_MOST));
    (((t * t * t * C) >> 20) * u64::from(segment)) >> 21
}

/// The cube root, rounded down, bit by bit: as the kernel does it, without a branch.
fn root(x: u64) -> u32 {
    let x = x.min((1 << (3 * (ROOT_BITS - 1) + 2)) - 1);
    let (mut root, mut bit) = (0u64, 1u64 << (ROOT_BITS - 1));
    for _ in 0..ROOT_BITS {
        let next = root | bit;
        let left = x as i64 - (next * next * next) as i64;
        root |= bit & !(left >> 63) as u64;
        bit >>= 1;
    }
    root as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_460;

    #[test]
    fn roots_are_rounded_down() {
        for n in [0u64, 1, 2, 3, 10, 99, 1_000, 65_535, 131_072, 200_000] {
            assert_eq!(u64::from(root(n * n * n)), n);
            assert_eq!(u64::from(root((n + 1) * (n + 1) * (n + 1) - 1)), n);
        }
        assert!(root(u64::MAX) < 1 << ROOT_BITS);
    }

    #[test]
    fn the_cube_is_that_of_the_reals() {
        for ticks in [500, 1_000, 5_000, 20_000, 131_072] {
            let seconds = f64::from(ticks) * f64::from(1 << 20) / 1e9;
            let want = 0.4 * seconds * seconds * seconds * f64::from(MSS);
            let got = cube(ticks, MSS) as f64;
            assert!((got - want).abs() <= want * 2e-3 + 2.0, "{ticks}: {got}, not {want}");
        }
    }

    /// A window acknowledged every 100 ms, in ten parts, from `from` to `to` seconds.
    fn play(flow: &mut Flow, from: u32, to: u32) {
        for step in from * 100..to * 100 {
            let at = ((u64::from(step) * 10_000_000) >> 20) as u32;
            let acked = flow.window / 10;
            CubicEcn.grow(flow, acked, at);
        }
    }

    #[test]
    fn it_is_back_where_the_mark_was_after_k_seconds() {
        let window = 1_000 * MSS;
        let mut flow = Flow { window, mss: MSS as u16, ..Flow::default() };
        flow.window = CubicEcn.after_mark(&mut flow);
        assert_eq!(flow.window, 700 * MSS);
        // K = cbrt(1000·0.3/0.4) = 9.09 s (eq. 2).
        play(&mut flow, 0, 4);
        assert!((900 * MSS..960 * MSS).contains(&flow.window), "concave: {}", flow.window / MSS);
        play(&mut flow, 4, 9);
        assert!((985 * MSS..=1_001 * MSS).contains(&flow.window), "{}", flow.window / MSS);
        play(&mut flow, 9, 19);
        assert!(flow.window > 1_200 * MSS, "convex: {}", flow.window / MSS);
    }

    #[test]
    fn one_that_fell_twice_makes_room() {
        let mut flow = Flow { window: 1_000_000, mss: 1_000, ..Flow::default() };
        flow.window = CubicEcn.after_mark(&mut flow);
        assert_eq!((flow.window, flow.law[ORIGIN]), (700_000, 1_000_000));
        flow.window = CubicEcn.after_mark(&mut flow);
        assert_eq!((flow.window, flow.law[ORIGIN]), (490_000, 595_000));
    }
}
