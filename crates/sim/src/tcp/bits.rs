//! A set of sequence numbers inside a window that moves forward.
//!
//! Approach  A ring of bits, as large as the window; a number's place is the number modulo the
//!           ring. The caller that moves the window clears the bits behind it. All work goes by
//!           words of 64.
//! Promises  Memory is bounded by the window, not by what the network does to it.

/// Numbers that differ by less than the ring is long.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Box<[u64]>,
}

impl Bits {
    /// For windows of up to `window` numbers.
    pub(super) fn new(window: u32) -> Self {
        let words = (u64::from(window) + 1).div_ceil(64).next_power_of_two();
        Self { words: vec![0; words as usize].into() }
    }

    fn place(&self, seq: u32) -> usize {
        (seq >> 6) as usize & (self.words.len() - 1)
    }

    pub(super) fn get(&self, seq: u32) -> bool {
        self.words[self.place(seq)] >> (seq & 63) & 1 == 1
    }

    /// True if it was not there.
    pub(super) fn insert(&mut self, seq: u32) -> bool {
        let (place, bit) = (self.place(seq), 1 << (seq & 63));
        let fresh = self.words[place] & bit == 0;
        self.words[place] |= bit;
        fresh
    }

    /// Inserts `from..to`; returns how many were not there.
    pub(super) fn insert_range(&mut self, from: u32, to: u32) -> u32 {
        let mut fresh = 0;
        for (word, mask) in spans(from, to) {
            let place = word as usize & (self.words.len() - 1);
            fresh += (mask & !self.words[place]).count_ones();
            self.words[place] |= mask;
        }
        fresh
    }

    /// Removes `from..to`; returns how many were there.
    pub(super) fn remove_range(&mut self, from: u32, to: u32) -> u32 {
        let mut gone = 0;
        for (word, mask) in spans(from, to) {
            let place = word as usize & (self.words.len() - 1);
            gone += (mask & self.words[place]).count_ones();
            self.words[place] &= !mask;
        }
        gone
    }

    /// The first of `from..to` that is not there; `to` if all are.
    pub(super) fn first_absent(&self, from: u32, to: u32) -> u32 {
        self.first(from, to, |word| !word)
    }

    fn first(&self, from: u32, to: u32, of: impl Fn(u64) -> u64) -> u32 {
        for (word, mask) in spans(from, to) {
            let hits = of(self.words[word as usize & (self.words.len() - 1)]) & mask;
            if hits != 0 {
                return word << 6 | hits.trailing_zeros();
            }
        }
        to
    }

    /// Where the run that ends before `to` begins, but not before `from`.
    pub(super) fn run_before(&self, from: u32, to: u32) -> u32 {
        let mut begin = to;
        while begin > from && self.get(begin - 1) {
            begin -= 1;
        }
        begin
    }

    /// The `nth` (1: the last) of `from..to` that is there, counted from the end.
    pub(super) fn nth_last(&self, from: u32, to: u32, mut nth: u32) -> Option<u32> {
        if from >= to {
            return None;
        }
        for word in (from >> 6..=(to - 1) >> 6).rev() {
            let mut hits =
                self.words[word as usize & (self.words.len() - 1)] & mask(word, from, to);
            if hits.count_ones() < nth {
                nth -= hits.count_ones();
                continue;
            }
            for _ in 1..nth {
                hits &= !(1 << hits.ilog2());
            }
            return Some(word << 6 | hits.ilog2());
        }
        None
    }
}

/// How many of `from..to` are in neither set.
pub(super) fn count_neither(a: &Bits, b: &Bits, from: u32, to: u32) -> u32 {
    let both = |word: u32| {
        let place = word as usize & (a.words.len() - 1);
        !(a.words[place] | b.words[place])
    };
    spans(from, to).map(|(word, mask)| (both(word) & mask).count_ones()).sum()
}

/// The first of `from..to` that is in neither set.
pub(super) fn first_neither(a: &Bits, b: &Bits, from: u32, to: u32) -> Option<u32> {
    spans(from, to).find_map(|(word, mask)| {
        let place = word as usize & (a.words.len() - 1);
        let hits = !(a.words[place] | b.words[place]) & mask;
        (hits != 0).then(|| word << 6 | hits.trailing_zeros())
    })
}

/// The words that `from..to` touches, with the bits of it in each.
fn spans(from: u32, to: u32) -> impl Iterator<Item = (u32, u64)> {
    let words = if from < to { from >> 6..((to - 1) >> 6) + 1 } else { 0..0 };
    words.map(move |word| (word, mask(word, from, to)))
}

/// The bits of `from..to` in `word`.
fn mask(word: u32, from: u32, to: u32) -> u64 {
    let begin = if word == from >> 6 { !0 << (from & 63) } else { !0 };
    let end = if word == (to - 1) >> 6 { !0 >> (63 - ((to - 1) & 63)) } else { !0 };
    begin & end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_and_ranks_are_found_across_words() {
        let mut bits = Bits::new(300);
        assert_eq!(bits.insert_range(1000, 1130), 130);
        assert_eq!(bits.run_before(900, 1130), 1000);
        assert_eq!(bits.first_absent(1000, 1200), 1130);
        assert_eq!(bits.nth_last(900, 1200, 1), Some(1129));
        assert_eq!(bits.nth_last(900, 1200, 130), Some(1000));
        assert_eq!(bits.nth_last(900, 1200, 131), None);
    }

    proptest! {
        #[test]
        fn it_does_what_a_set_does(base in 0u32..100_000, steps in prop::collection::vec((0u8..4, 0u32..500, 0u32..200), 1..60)) {
            let window = 700;
            let (mut bits, mut other, mut model) = (Bits::new(window), Bits::new(window), BTreeSet::new());
            other.insert_range(base + 100, base + 140);
            for (what, from, len) in steps {
                let (from, to) = (base + from, base + from + len);
                match what {
                    0 => prop_assert_eq!(bits.insert(from), model.insert(from)),
                    1 => {
                        let fresh = (from..to).filter(|seq| model.insert(*seq)).count();
                        prop_assert_eq!(bits.insert_range(from, to) as usize, fresh);
                    }
                    2 => {
                        let gone = (from..to).filter(|seq| model.remove(seq)).count();
                        prop_assert_eq!(bits.remove_range(from, to) as usize, gone);
                    }
                    _ => {
                        let neither = |seq: &u32| !model.contains(seq) && !other.get(*seq);
                        prop_assert_eq!(count_neither(&bits, &other, from, to) as usize, (from..to).filter(neither).count());
                        prop_assert_eq!(first_neither(&bits, &other, from, to), (from..to).find(neither));
                        prop_assert_eq!(bits.first_absent(from, to), (from..to).find(|seq| !model.contains(seq)).unwrap_or(to));
                        for nth in 1..4 {
                            let expected = (from..to).rev().filter(|seq| model.contains(seq)).nth(nth - 1);
                            prop_assert_eq!(bits.nth_last(from, to, nth as u32), expected);
                        }
                    }
                }
            }
            for seq in base..base + window {
                prop_assert_eq!(bits.get(seq), model.contains(&seq));
            }
        }
    }
}
