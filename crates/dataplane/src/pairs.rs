//! Views of counted pairs: some are forgotten, some have losses that were corrected.
//!
//! Problem   A pair that pauses must give back its class. If its kernel entry were deleted, too,
//!           its sequence would begin at zero again, and the receiver could take the jump for a
//!           loss.
//! Approach  A forgotten sending pair keeps its entry and is hidden from readings until it sends
//!           again. Then it appears as new, counting from zero. Only when entries become scarce,
//!           the pairs forgotten longest are deleted; by then the receiver has forgotten them, too.
//! Promises  Forgotten pairs occupy at most half of a VM's places.
//! Not here  The kernel's table itself, and the queues.

use crate::config::TxCounters;
use std::collections::BTreeMap;
use weir_units::{PairId, VmId};

/// State of sending pairs in user space.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Forgotten pairs: the time, and the counters at that time.
    idle: BTreeMap<PairId, (u64, TxCounters)>,
    /// Origin of the counters of pairs that came back.
    base: BTreeMap<PairId, TxCounters>,
    /// Losses that were reported, of receiving pairs with losses.
    lost: BTreeMap<PairId, u64>,
    /// Orders forgetting.
    serial: u64,
}

impl Pairs {
    /// Hides a pair that has counted `now` so far.
    pub(crate) fn forget(&mut self, pair: PairId, now: TxCounters) {
        self.serial += 1;
        self.base.remove(&pair);
        self.idle.insert(pair, (self.serial, now));
    }

    /// The pair is in use, whether or not it has counted since.
    pub(crate) fn revive(&mut self, pair: PairId) {
        if let Some((_, then)) = self.idle.remove(&pair) {
            self.base.insert(pair, then);
        }
    }

    /// View of a pair that has counted `now`; `None` while it is forgotten.
    pub(crate) fn show(&mut self, pair: PairId, now: TxCounters) -> Option<TxCounters> {
        if let Some((_, then)) = self.idle.get(&pair) {
            // What still waits in a queue may leave after the pair fell silent.
            if then.segments == now.segments {
                return None;
            }
            self.revive(pair);
        }
        let base = self.base.get(&pair).copied().unwrap_or_default();
        Some(TxCounters {
            octets: now.octets.saturating_sub(base.octets),
            acks: now.acks.saturating_sub(base.acks),
            segments: now.segments.saturating_sub(base.segments),
            numbered: now.numbered.saturating_sub(base.numbered),
            unnumbered: now.unnumbered.saturating_sub(base.unnumbered),
            // The kernel counts these in 32 bits, which are full after an hour and a half at 10 Gb/s.
            left: u64::from((now.left as u32).wrapping_sub(base.left as u32)),
            waiting: now.waiting,
            waiting_acks: now.waiting_acks,
        })
    }

    /// Losses of a receiving pair: counted ones, and segments that are overdue although no packet
    /// came since. An overdue segment that does come is never counted; what was reported stays.
    pub(crate) fn show_lost(&mut self, pair: PairId, counted: u64, overdue: u64) -> u64 {
        if counted + overdue == 0 {
            return self.lost.get(&pair).copied().unwrap_or_default();
        }
        let shown = self.lost.entry(pair).or_default();
        *shown = (*shown).max(counted + overdue);
        *shown
    }

    /// A receiving pair is counted anew.
    pub(crate) fn forget_lost(&mut self, pair: PairId) {
        self.lost.remove(&pair);
    }

    /// The pair's entries are gone, at both ends.
    pub(crate) fn drop_pair(&mut self, pair: PairId) {
        self.idle.remove(&pair);
        self.base.remove(&pair);
        self.lost.remove(&pair);
    }

    /// Pairs to delete where VMs use so many of their `places` each: the longest forgotten first.
    pub(crate) fn evict(
        &mut self,
        used: impl Iterator<Item = (VmId, usize)>,
        places: usize,
    ) -> Vec<PairId> {
        let most = places - places / 2;
        let mut excess: BTreeMap<VmId, usize> =
            used.filter(|(_, used)| *used > most).map(|(vm, used)| (vm, used - most)).collect();
        if excess.is_empty() {
            return Vec::new();
        }
        let mut victims: Vec<_> = self.idle.iter().map(|(p, (at, _))| (*at, *p)).collect();
        victims.sort_unstable();
        victims.retain(|(_, pair)| match excess.get_mut(&pair.src) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        });
        for (_, pair) in &victims {
            self.idle.remove(pair);
        }
        victims.into_iter().map(|(_, pair)| pair).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Bytes;

    fn pair(dst: u32) -> PairId {
        PairId::new(VmId(1), VmId(dst))
    }

    fn counted(segments: u64) -> TxCounters {
        TxCounters { octets: Bytes::new(segments * 100), segments, ..TxCounters::default() }
    }

    #[test]
    fn a_forgotten_pair_is_hidden_until_it_speaks_and_then_counts_from_zero() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.show(pair(2), counted(5)), Some(counted(5)));
        pairs.forget(pair(2), counted(5));
        assert_eq!(pairs.show(pair(2), counted(5)), None);
        assert_eq!(pairs.show(pair(2), counted(7)), Some(counted(2)));
        assert_eq!(pairs.show(pair(2), counted(9)), Some(counted(4)));
        pairs.forget(pair(2), counted(9));
        pairs.revive(pair(2));
        assert_eq!(pairs.show(pair(2), counted(9)), Some(counted(0)));
    }

    #[test]
    fn segments_that_left_count_on_when_the_kernels_32_bits_are_full() {
        let left = |left: u32, segments| TxCounters { left: left.into(), ..counted(segments) };
        let mut pairs = Pairs::default();
        pairs.forget(pair(2), left(u32::MAX - 9, 5));
        let shown = pairs.show(pair(2), left(u32::MAX, 6)).expect("it speaks again");
        assert_eq!(shown.left, 9);
        let shown = pairs.show(pair(2), left(20, 7)).expect("it speaks");
        assert_eq!(shown.left, 30);
    }

    #[test]
    fn what_is_overdue_is_shown_as_lost_once() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.show_lost(pair(2), 0, 0), 0);
        assert_eq!(pairs.show_lost(pair(2), 0, 2), 2, "nothing came since");
        assert_eq!(pairs.show_lost(pair(2), 2, 0), 2, "the next one came, and now it is counted");
        assert_eq!(pairs.show_lost(pair(2), 2, 1), 3);
        assert_eq!(pairs.show_lost(pair(2), 2, 0), 3, "it came after all; what is said is said");
        assert_eq!(pairs.show_lost(pair(2), 3, 0), 3, "the next is said already");
        pairs.forget_lost(pair(2));
        assert_eq!(pairs.show_lost(pair(2), 2, 0), 2);
        assert_eq!(pairs.show_lost(pair(3), 0, 1), 1);
        assert_eq!(pairs.show_lost(pair(3), 0, 0), 1, "it came, and none was ever counted");
    }

    #[test]
    fn the_longest_forgotten_pairs_make_room() {
        let mut pairs = Pairs::default();
        for dst in [4, 3, 2] {
            pairs.forget(pair(dst), counted(1));
        }
        let mut evict = |vm, used| pairs.evict([(VmId(vm), used)].into_iter(), 8);
        assert_eq!(evict(1, 4), []);
        assert_eq!(evict(2, 8), [], "another VM's places are its own");
        assert_eq!(evict(1, 6), [pair(4), pair(3)]);
        assert_eq!(evict(1, 8), [pair(2)], "what is in use stays");
    }
}
