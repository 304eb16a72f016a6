//! What pairs without a queue of their own may send.
//!
//! Problem   No receiver reports their losses, so no law slows them down. In a queue that may
//!           borrow they would take other pairs' floors wherever the network is full.
//! Approach  The kernel program's rule: after a moment, all such pairs of a VM get the VM's part of
//!           the default rate together, and what is beyond is dropped before the queue.
//!           What pairs send within their first moment is bounded in the same way, further ahead.
//! Promises  A pair's first moment costs it nothing, unless the VM's pairs have one after the other.
//! Source    `bpf/stray.h`.

use super::classes::FRAME;

/// An octet in bit/s times nanoseconds.
const OCTET: u64 = 8_000_000_000;
/// Nanoseconds for which a pair may wait for a queue of its own.
const MOMENT: u64 = 250_000_000;
/// What a VM may send ahead: for so long, or so many octets if that is more.
const AHEAD: u64 = 250_000_000;
const AHEAD_OCTETS: u64 = 12 * FRAME;

/// Whether a pair that has had no queue since `since`, and maybe will have none, counts as stray.
pub(super) fn is_stray(since: &mut Option<u64>, now: u64) -> bool {
    now - *since.get_or_insert(now) >= MOMENT
}

/// One VM's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stray {
    /// When what was sent would have left at the VM's rate, ns.
    empty: u64,
    /// The same of what was sent within moments.
    moments: u64,
}

/// Whether a packet is beyond what may be sent at `bps` and so many octets ahead; if not, it is counted.
fn is_ahead(clock: &mut u64, now: u64, size: u64, bps: u64, octets: u64) -> bool {
    let ahead = AHEAD.max((u128::from(octets) * u128::from(OCTET)).div_ceil(bps.into()) as u64);
    let from = now.max(*clock);
    // A small packet finds room where a full one does not.
    if from - now > ahead + FRAME.saturating_sub(size) * OCTET / bps {
        return true;
    }
    *clock = from + (size * OCTET).div_ceil(bps);
    false
}

impl Stray {
    /// Whether a packet is beyond what the VM may send at `bps`; if not, it is counted.
    pub(super) fn is_beyond(&mut self, now: u64, size: u64, bps: u64) -> bool {
        is_ahead(&mut self.empty, now, size, bps, AHEAD_OCTETS)
    }

    /// The same of a packet whose pair may get a queue any moment, `ahead` octets ahead.
    pub(super) fn is_beyond_moment(&mut self, now: u64, size: u64, bps: u64, ahead: u64) -> bool {
        is_ahead(&mut self.moments, now, size, bps, ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_kernel_has_the_same_numbers() {
        let kernel = include_str!("../../../../bpf/stray.h");
        assert!(kernel.contains(&format!("#define STRAY_NS {MOMENT}ull\n")));
        assert!(kernel.contains(&format!("#define STRAY_AHEAD_NS {AHEAD}ull\n")));
        assert!(kernel.contains("#define STRAY_AHEAD (12 * FRAME)\n"));
    }

    #[test]
    fn a_pair_is_stray_after_a_moment_without_a_queue() {
        let mut since = None;
        let mut at = |now| is_stray(&mut since, now);
        assert_eq!([at(7), at(7 + MOMENT - 1), at(7 + MOMENT)], [false, false, true]);
    }

    #[test]
    fn a_vm_sends_at_its_rate_after_what_it_may_send_ahead() {
        let mut stray = Stray::default();
        // A full frame lasts 12.1 ms at 1 Mbit/s: 250 ms, and the frame after.
        let mut passed = |now| (0..100).filter(|_| !stray.is_beyond(now, FRAME, 1_000_000)).count();
        assert_eq!(passed(0), 21);
        assert_eq!(passed(1000 * MS), 21, "it does not save up for more");
        let passed: usize = (1..=1000).map(|n| passed((1000 + n) * MS)).sum();
        assert!((82..=83).contains(&passed), "{passed} in a second");
    }

    #[test]
    fn moments_are_bounded_together_and_apart_from_strays() {
        let mut stray = Stray::default();
        let mut moment = |now| {
            (0..100).filter(|_| !stray.is_beyond_moment(now, FRAME, 1_000_000, 30 * FRAME)).count()
        };
        assert_eq!((moment(0), moment(MS)), (31, 0));
        // 30 frames last 363 ms.
        assert_eq!(moment(364 * MS), 30);
        assert!(!stray.is_beyond(0, FRAME, 1_000_000), "strays have a clock of their own");
    }

    #[test]
    fn a_slow_vm_may_send_a_few_frames_ahead_and_what_is_small_finds_room() {
        let mut stray = Stray::default();
        let mut passed =
            |now, size| (0..100).filter(|_| !stray.is_beyond(now, size, 64_000)).count();
        assert_eq!(passed(0, FRAME), 13);
        // A full frame lasts 189 ms: half of the thirteenth has left.
        assert_eq!(passed(100 * MS, FRAME), 0);
        assert_eq!(passed(100 * MS, 60), 13);
        assert_eq!(passed(100 * MS, 60), 0);
    }
}
