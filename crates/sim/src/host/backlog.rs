//! How long a pair's queue is, in time: a bound before the queue.
//!
//! Problem   128 kB are seconds at a low rate, and the real shaper does not let that much wait.
//! Approach  The kernel program's rule: what would have left if the class had always got its ceiling does
//!           not wait, and what finds the rest lasting for too long is dropped. Octets wait, so that
//!           another ceiling changes how long they last. What the queue has no room for does not wait.
//! Promises  While a class gets its ceiling, nothing is dropped that would have left in time.
//! Not here  The queue itself: see `htb`. A guardian that lowers a ceiling leaves the real rule with the
//!           higher one, until an agent looks; here the rule sees it at once.
//! Source    `bpf/backlog.h`; limits: `weir-dataplane`'s `waits.rs`.

use super::classes::{FRAME, QUEUE};
use super::htb::Class;

/// An octet in bit/s times nanoseconds.
const OCTET: u64 = 8_000_000_000;

/// For so long a pair is new: it has its small start, and its floor after the first partitioning. What comes
/// meanwhile may wait for that.
const YOUTH: u64 = 120_000_000;

/// What waits, by the clock of its class's ceiling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// When nothing waits any more, ns.
    empty: u64,
    /// The ceiling that this was computed by, bit/s.
    bps: u64,
    /// Since when the pair sends, ns.
    since: Option<u64>,
}

impl Backlog {
    /// Whether what waits would keep a packet waiting for too long; if not, it waits, too.
    pub(super) fn is_long(&mut self, now: u64, size: u64, class: &Class) -> bool {
        let since = *self.since.get_or_insert(now);
        let Some(longest) = class.wait else {
            (self.empty, self.bps) = (0, 0);
            return false;
        };
        let ahead = class.cburst.max(0).unsigned_abs();
        let mut wait = self.empty.saturating_sub(now);
        if self.bps != class.ceil {
            wait = wait * self.bps / class.ceil;
            (self.empty, self.bps) = (now + wait, class.ceil);
        }
        // What is sent ahead does not wait; and a small packet finds room where a full one does not.
        let spare = FRAME.saturating_sub(size) * OCTET / class.ceil;
        if now - since >= YOUTH && wait > longest + ahead + spare {
            return true;
        }
        let after = wait + (size * OCTET).div_ceil(class.ceil);
        if after * class.ceil <= QUEUE * OCTET + ahead * class.ceil {
            self.empty = now + after;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Without a burst; a frame lasts 34.6 ms at 350 kbit/s.
    fn class(ceil: u64) -> Class {
        Class { rate: 64_000, ceil, burst: 0, cburst: 0, quantum: 1514, wait: Some(250 * MS) }
    }

    /// Of a pair that is no longer new, at 0.
    fn old() -> Backlog {
        Backlog { since: Some(0), ..Backlog::default() }
    }

    fn is_long(backlog: &mut Backlog, now: u64, size: u64, class: &Class) -> bool {
        backlog.is_long(YOUTH + now, size, class)
    }

    /// How many of so many frames are let in at once.
    fn let_in(backlog: &mut Backlog, now: u64, n: usize, class: &Class) -> usize {
        (0..n).filter(|_| !is_long(backlog, now, FRAME, class)).count()
    }

    #[test]
    fn a_pair_is_new_for_as_long_as_in_the_kernel() {
        let kernel = include_str!("../../../../bpf/backlog.h");
        assert!(kernel.contains(&format!("#define YOUTH_NS {YOUTH}ull\n")));
    }

    #[test]
    fn what_comes_while_a_pair_is_new_may_wait() {
        let (mut backlog, class) = (Backlog::default(), class(350_000));
        let mut let_in = |now| (0..20).filter(|_| !backlog.is_long(now, FRAME, &class)).count();
        assert_eq!((let_in(MS), let_in(YOUTH), let_in(YOUTH + MS)), (20, 20, 0));
    }

    #[test]
    fn what_would_wait_for_too_long_is_not_let_in() {
        let (mut backlog, class) = (old(), class(350_000));
        assert_eq!(let_in(&mut backlog, 0, 20, &class), 8, "the eighth finds 242 ms");
        assert_eq!(let_in(&mut backlog, 26 * MS, 20, &class), 0, "251 ms wait");
        assert_eq!(let_in(&mut backlog, 27 * MS, 20, &class), 1);
        assert_eq!(let_in(&mut backlog, 10_000 * MS, 20, &class), 8, "nothing was saved");
        let unbounded = Class { wait: None, ..class };
        assert_eq!(let_in(&mut backlog, 10_000 * MS, 200, &unbounded), 200);
        assert_eq!(let_in(&mut backlog, 10_000 * MS, 20, &class), 8, "and nothing of it is known");
    }

    #[test]
    fn full_frames_leave_room_for_the_acknowledgements_beside_them() {
        let (mut backlog, class) = (old(), class(350_000));
        let_in(&mut backlog, 0, 20, &class);
        assert!(is_long(&mut backlog, 0, FRAME, &class));
        // 277 ms wait, and a small packet may find 283.
        let small = (0..20).filter(|_| !is_long(&mut backlog, 0, 66, &class)).count();
        assert_eq!(small, 5);
        assert!(!is_long(&mut backlog, 30 * MS, 66, &class));
        assert!(is_long(&mut backlog, 30 * MS, FRAME, &class));
    }

    #[test]
    fn what_is_sent_ahead_does_not_wait() {
        let (mut backlog, class) = (old(), class(350_000));
        let two = (2 * FRAME * OCTET / class.ceil) as i64;
        let ahead = Class { cburst: two, ..class };
        assert_eq!(let_in(&mut backlog, 0, 20, &ahead), 8 + 2);
    }

    #[test]
    fn octets_wait_and_last_as_long_as_the_ceiling_of_the_moment_says() {
        let mut backlog = old();
        assert_eq!(let_in(&mut backlog, 0, 60, &class(10_000_000)), 60);
        assert_eq!(let_in(&mut backlog, MS, 5, &class(350_000)), 0);
        // 72.7 ms at the former rate, but two seconds now.
        assert_eq!(let_in(&mut backlog, 100 * MS, 5, &class(350_000)), 0);
        assert_eq!(let_in(&mut backlog, 100 * MS, 5, &class(10_000_000)), 5);
    }

    #[test]
    fn what_the_queue_has_no_room_for_does_not_wait() {
        let (mut backlog, patient) = (old(), Class { wait: Some(60_000 * MS), ..class(350_000) });
        assert_eq!(let_in(&mut backlog, 0, 200, &patient), 200, "the queue drops them");
        // 86 frames, 2.98 s.
        let room = (QUEUE / FRAME) * FRAME * OCTET / 350_000;
        assert!(backlog.empty.abs_diff(YOUTH + room) < 1000, "{} ns", backlog.empty);
    }
}
