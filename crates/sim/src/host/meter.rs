//! What arrives of a pair, and what the network lost of it: gaps in the sequence.
//!
//! Problem   A host must learn of losses as a real one does. The simulator knows each drop; the
//!           receiver only sees which numbers came, in which order, and when.
//! Approach  The rules of `bpf/sequence.h`, state by state: a missing segment is a hole in a ring
//!           of bits; it is a loss when it has been open for the reorder window and three later
//!           segments came, or for eight windows, or when the sequence is a whole ring further.
//! Promises  Without reordering, each segment that is missing before one that comes is counted
//!           once.
//! Not here  Whose numbers these are: see `shim`.
//! Source    `bpf/sequence.h`, and `overdue` in the data plane's reader.

/// Segments that are remembered as missing.
pub(super) const WINDOW: u32 = 512;
const WORDS: usize = WINDOW as usize / 64;
const FAR: u16 = 0x4000;
const NEAR: u16 = 0x400;
/// Later segments that make an old hole a loss.
const ENOUGH: u16 = 3;
/// Windows after which a hole is a loss although few came; and after which none need come.
const PATIENCE: u64 = 8;

/// The receiving end of a pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    pub(crate) octets: u64,
    pub(crate) segments: u64,
    pub(crate) marked: u64,
    lost: u64,
    /// What was told of losses so far.
    told: u64,
    holes: [u64; WORDS],
    missing: u32,
    expected: u16,
    /// How many segments came since the first, as far as it matters.
    synced: u16,
    /// All holes before `aged` had appeared by `aged_at`; the last one at `gap_at`. In ns.
    aged: u16,
    aged_at: u64,
    gap_at: u64,
}

impl Meter {
    /// A segment with number `id` arrives. Returns whether a later one came before it.
    pub(crate) fn arrive(
        &mut self,
        now: u64,
        id: u16,
        size: u16,
        marked: bool,
        window: u64,
    ) -> bool {
        self.octets += u64::from(size);
        self.segments += 1;
        self.marked += u64::from(marked);
        let gap = id.wrapping_sub(self.expected);
        let late = gap.wrapping_neg();
        if self.synced > 0 && late > 0 && late <= NEAR {
            if self.missing > 0 && u32::from(late) <= WINDOW {
                self.close(id, 1);
            }
            return true;
        }
        if self.missing > 0 {
            self.age(now, window);
        }
        let mut gap = gap;
        if self.synced == 0 || gap >= FAR {
            if self.synced > 0 && id >= NEAR {
                self.lost += u64::from(gap) + u64::from(self.missing);
            }
            self.holes = [0; WORDS];
            self.missing = 0;
            self.expected = id;
            self.synced = 1;
            gap = 0;
        }
        self.synced = (u32::from(self.synced) + u32::from(gap) + 1).min(u32::from(NEAR) + 1) as u16;
        self.go_on(now, gap);
        false
    }

    /// As [`Meter::lost`], when an agent reads. What was told stays: an overdue segment that comes
    /// after all is no reason to count all losses again, as of a pair that was forgotten.
    pub(crate) fn tell_lost(&mut self, now: u64, window: u64) -> u64 {
        self.told = self.told.max(self.lost(now, window));
        self.told
    }

    /// Segments lost so far; what is overdue at `now` is among them.
    fn lost(&self, now: u64, window: u64) -> u64 {
        self.lost + self.overdue(now, PATIENCE * window)
    }

    fn overdue(&self, now: u64, silence: u64) -> u64 {
        let over = |since: u64| now.checked_sub(since).is_some_and(|age| age >= silence);
        if self.missing == 0 || !over(self.aged_at) {
            return 0;
        }
        if over(self.gap_at) {
            return self.missing.into();
        }
        let young = u32::from(self.expected.wrapping_sub(self.aged));
        let old = WINDOW.saturating_sub(young);
        (0..old).map(|n| u64::from(self.is_hole(self.expected.wrapping_add(n as u16)))).sum()
    }

    /// The sequence goes on to `gap` segments further, and one.
    fn go_on(&mut self, now: u64, gap: u16) {
        let way = u32::from(gap) + 1;
        let mut over = way.saturating_sub(WINDOW);
        if self.missing > 0 {
            // Their places are taken again: they have been open for a whole ring.
            self.lost += u64::from(self.close(self.expected, way - over));
        }
        let next = self.expected.wrapping_add(way as u16);
        if gap > 0 {
            over = over.min(gap.into());
            self.lost += u64::from(over);
            if self.missing == 0 {
                self.aged = next;
                self.aged_at = now;
            }
            self.gap_at = now;
            for n in over..u32::from(gap) {
                self.open(self.expected.wrapping_add(n as u16));
            }
        }
        self.expected = next;
    }

    /// Holes that were open for too long are losses.
    fn age(&mut self, now: u64, window: u64) {
        let over = |since: u64, span: u64| now.checked_sub(since).is_some_and(|age| age >= span);
        let past = self.expected.wrapping_sub(self.aged);
        let mut count = WINDOW;
        if !over(self.gap_at, PATIENCE * window) {
            let span = if past >= ENOUGH { window } else { PATIENCE * window };
            if !over(self.aged_at, span) {
                return;
            }
            count = WINDOW.saturating_sub(past.into());
        }
        // The oldest place is that of the next segment.
        self.lost += u64::from(self.close(self.expected, count));
        self.aged = self.expected;
        self.aged_at = self.gap_at;
    }

    fn is_hole(&self, id: u16) -> bool {
        let place = u32::from(id) % WINDOW;
        self.holes[place as usize / 64] >> (place % 64) & 1 == 1
    }

    fn open(&mut self, id: u16) {
        let place = u32::from(id) % WINDOW;
        self.holes[place as usize / 64] |= 1 << (place % 64);
        self.missing += 1;
    }

    /// Closes the holes in `count` places from `id` on; says how many there were.
    fn close(&mut self, id: u16, count: u32) -> u32 {
        let mut closed = 0;
        for n in 0..count {
            if self.missing == 0 {
                break;
            }
            let place = u32::from(id.wrapping_add(n as u16)) % WINDOW;
            let bit = 1 << (place % 64);
            if self.holes[place as usize / 64] & bit != 0 {
                self.holes[place as usize / 64] &= !bit;
                self.missing -= 1;
                closed += 1;
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests;
