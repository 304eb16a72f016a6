//! Events too far in the future for the ring: a wheel of wheels.
//!
//! Approach  Time beyond the ring is counted in blocks. Level 0 has a slot for each of 64 blocks,
//!           level 1 for each of 64 times 64, and so on; an event waits on the level of the highest
//!           six bits in which its block differs from the next one due. When a wheel has gone
//!           round, the next slot of the one above is dealt out over it, before anything can be
//!           scheduled there directly: so each list stays in the order of scheduling.
//! Source    Varghese and Lauck 1987, scheme 7.

use super::in_order;
use crate::packet::{NIL, Packet};

const LEVELS: usize = 11;

#[derive(Debug)]
pub(super) struct Far {
    /// Heads of lists, the event scheduled last first.
    heads: [[u32; 64]; LEVELS],
    used: [u64; LEVELS],
    /// The first block that is not in the ring.
    base: u64,
}

impl Far {
    pub(super) fn new(base: u64) -> Self {
        Self { heads: [[NIL; 64]; LEVELS], used: [0; LEVELS], base }
    }

    /// The first block that is not in the ring.
    #[inline]
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == [0; LEVELS]
    }

    /// Goes on to `base` while nothing waits.
    pub(super) fn rebase(&mut self, base: u64) {
        debug_assert!(self.is_empty());
        self.base = self.base.max(base);
    }

    /// `shift`: a block is 2^shift ns.
    #[inline]
    pub(super) fn schedule(&mut self, cell: &mut Packet, id: u32, shift: u32) {
        let block = cell.at >> shift;
        debug_assert!(block >= self.base);
        let level = ((block ^ self.base) | 1).ilog2() as usize / 6;
        let slot = (block >> (6 * level)) as usize & 63;
        cell.next = self.heads[level][slot];
        self.heads[level][slot] = id;
        self.used[level] |= 1 << slot;
    }

    /// Takes the list of the first block, and goes on to the next one.
    pub(super) fn take(&mut self, cells: &mut [Packet], shift: u32) -> u32 {
        let list = self.clear(0, self.base as usize & 63);
        self.base += 1;
        self.deal(cells, shift);
        list
    }

    /// Goes on to the first block with an event. False if there is none.
    pub(super) fn skip(&mut self, cells: &mut [Packet], shift: u32) -> bool {
        // Within each level what waits is ahead of the base, and lower levels come before higher.
        while let Some(level) = self.used.iter().position(|used| *used != 0) {
            let slot = u64::from(self.used[level].trailing_zeros());
            if level == 0 {
                self.base = self.base & !63 | slot;
                return true;
            }
            let bits = 6 * level as u32;
            let above = self.base.checked_shr(bits + 6).unwrap_or(0);
            self.base = (above << 6 | slot) << bits;
            self.deal(cells, shift);
        }
        false
    }

    /// All that waits; those of one instant in the order of their scheduling.
    pub(super) fn empty(&mut self, cells: &mut [Packet], all: &mut Vec<u32>) {
        for level in 0..LEVELS {
            for slot in 0..64 {
                let list = self.clear(level, slot);
                all.extend(in_order(list, cells));
            }
        }
    }

    /// The base is new: deals out the slots that begin with it, the highest level first.
    fn deal(&mut self, cells: &mut [Packet], shift: u32) {
        let highest = (self.base.trailing_zeros() as usize / 6).min(LEVELS - 1);
        for level in (1..=highest).rev() {
            let slot = (self.base >> (6 * level)) as usize & 63;
            let list = self.clear(level, slot);
            for id in in_order(list, cells) {
                self.schedule(&mut cells[id as usize], id, shift);
            }
        }
    }

    fn clear(&mut self, level: usize, slot: usize) -> u32 {
        self.used[level] &= !(1 << slot);
        std::mem::replace(&mut self.heads[level][slot], NIL)
    }
}
