//! The time at which each segment in flight was last sent.
//!
//! Approach  A ring of instants, at least as long as what is in flight, doubled when it is too
//!           short; a segment's place is its number modulo the ring.
//! Promises  What was sent later has the larger order, also of what left in one instant. A store
//!           per segment sent. No allocation once as much was in flight as ever will be.

/// The shortest ring.
const LEAST: usize = 16;

/// Bits of an order below the instant: so many segments leave in one nanosecond, and few more.
const WITHIN: u32 = 10;

/// The instant of an order, ns.
pub(super) const fn instant(order: u64) -> u64 {
    order >> WITHIN
}

/// By segment, the order of their sending: the instant, and the turn within it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stamps {
    /// As many as a power of two, or none.
    orders: Vec<u64>,
    /// The youngest.
    last: u64,
}

impl Stamps {
    /// Segment `seq` is sent, for the first time or again; `una` is the first not acknowledged.
    #[inline]
    pub(super) fn put(&mut self, una: u32, seq: u32, now: u64) {
        if (seq - una) as usize >= self.orders.len() {
            self.grow(una, seq);
        }
        let place = self.place(seq);
        self.last = (now << WITHIN).max(self.last + 1);
        self.orders[place] = self.last;
    }

    /// When `seq`, which is in flight, was sent last, ns.
    #[inline]
    pub(super) fn get(&self, seq: u32) -> u64 {
        instant(self.order(seq))
    }

    /// The same, as comparable with others of the same instant.
    #[inline]
    pub(super) fn order(&self, seq: u32) -> u64 {
        self.orders[self.place(seq)]
    }

    /// Whether it holds memory.
    #[cfg(test)]
    pub(super) fn keeps(&self) -> bool {
        self.orders.capacity() > 0
    }

    #[inline]
    fn place(&self, seq: u32) -> usize {
        seq as usize & (self.orders.len() - 1)
    }

    /// All before `seq` have their place already: segments are sent in their order first.
    #[cold]
    fn grow(&mut self, una: u32, seq: u32) {
        let length = ((seq - una) as usize + 1).next_power_of_two().max(LEAST);
        let mut longer = Self { orders: vec![0; length], last: self.last };
        for old in una..seq {
            let place = longer.place(old);
            longer.orders[place] = self.order(old);
        }
        *self = longer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_keeps_its_stamp_however_much_that_becomes() {
        let mut stamps = Stamps::default();
        let mut una = 0;
        for seq in 0..500 {
            stamps.put(una, seq, u64::from(seq) * 10);
            if seq % 3 == 0 {
                una += 1;
            }
            let kept = |old: u32| stamps.get(old) == u64::from(old) * 10;
            assert!((una..=seq).all(kept), "{una}..={seq}");
        }
        assert_eq!(stamps.orders.len(), 512);
        stamps.put(una, una, 6000);
        assert_eq!((stamps.get(una), stamps.get(una + 1)), (6000, u64::from(una + 1) * 10));
        stamps.put(una, una + 2, 6000);
        assert_eq!(stamps.get(una + 2), 6000);
        assert!(stamps.order(una + 2) > stamps.order(una), "sent behind it in the same instant");
    }
}
