//! Which sequences were seen: the highest, and each of the 63 below it.
//!
//! Problem   Networks reorder and repeat; a message must be taken once, late or not.
//! Approach  A bit per sequence below the highest, as IPsec does (RFC 4303 §3.4.3).
//! Promises  No sequence is admitted twice. A sequence below the window is refused, seen or not.

/// How far below the highest sequence a late datagram is still taken.
const WIDTH: u64 = u64::BITS as u64;

/// Sequences seen since an incarnation was confirmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    highest: u64,
    // Bit `i` stands for `highest - i`.
    seen: u64,
}

impl Window {
    /// A window that has seen `first` only.
    pub(crate) const fn new(first: u64) -> Self {
        Self { highest: first, seen: 1 }
    }

    /// The highest sequence seen.
    pub(crate) const fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether `sequence` is new, and how it came; it is not new from now on.
    pub(crate) fn admit(&mut self, sequence: u64) -> Option<Came> {
        if let Some(ahead) = sequence.checked_sub(self.highest).filter(|ahead| *ahead > 0) {
            self.seen = if ahead < WIDTH { self.seen << ahead | 1 } else { 1 };
            self.highest = sequence;
            return Some(Came::Ahead { skipped: ahead - 1 });
        }
        let behind = self.highest - sequence;
        if behind >= WIDTH || self.seen & 1 << behind != 0 {
            return None;
        }
        self.seen |= 1 << behind;
        Some(Came::Late)
    }
}

/// How a new sequence came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// Above all before.
    Ahead {
        /// Sequences between it and the highest before it: lost, or late.
        skipped: u64,
    },
    /// After a higher one.
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_late_sequence_is_admitted_once_within_sixty_four() {
        let mut window = Window::new(100);
        assert_eq!(window.admit(100), None);
        assert_eq!(window.admit(37), Some(Came::Late), "63 below");
        assert_eq!(window.admit(37), None);
        assert_eq!(window.admit(36), None, "64 below");
        assert_eq!(window.admit(101), Some(Came::Ahead { skipped: 0 }));
        assert_eq!(window.admit(37), None, "has left the window");
    }

    #[test]
    fn a_leap_forgets_what_it_leaves_behind() {
        let mut window = Window::new(1);
        assert_eq!(window.admit(65), Some(Came::Ahead { skipped: 63 }));
        assert_eq!(window.admit(1), None);
        assert_eq!(window.admit(2), Some(Came::Late), "never seen, 63 below");
        assert!(window.admit(u64::MAX).is_some());
        assert_eq!(window.admit(65), None);
    }

    proptest! {
        #[test]
        fn a_window_is_a_set_with_a_lower_edge(
            first in 1..200_u64,
            rest in prop::collection::vec(1..200_u64, 0..200),
        ) {
            let mut window = Window::new(first);
            let mut seen = BTreeSet::from([first]);
            for sequence in rest {
                let highest = *seen.last().unwrap();
                let expected = sequence + 64 > highest && seen.insert(sequence);
                prop_assert_eq!(window.admit(sequence).is_some(), expected);
            }
        }
    }
}
