//! The queue of events: a timing wheel with a total order.
//!
//! Problem   A heap costs log n compares and cache misses per event; a wheel costs a store, but
//!           says nothing of the order inside a slot, and a run must be the same to the octet.
//! Approach  A ring of slots, each a list through the cells themselves, and a bitmap of those that
//!           hold something. New events go to the list's front: one store, no other cell touched.
//!           Before a slot is played its list is turned round, which is the order of scheduling,
//!           and sorted by time, stably. What is too far for the ring waits in [`far`], and comes
//!           in before anything can be scheduled into its place. The width of a slot follows the
//!           density of events: about one slot in three is used, the ring stays in the cache.
//! Promises  Events come in the order of (time, scheduling). Nothing is lost, and the width of
//!           slots changes the speed only.
//! Not here  Cancelling: a timer that moved is found out when it fires.
//! Source    Varghese and Lauck 1987 (hierarchical wheels); Brown 1988 (calendar queues: the
//!           width).

mod far;
#[cfg(test)]
mod tests;

use crate::packet::{NIL, Packet};
use far::Far;

/// The ring is brought forward by an eighth at a time.
const BLOCKS: u64 = 8;
/// Slots of the smallest and of the largest ring, as powers of two.
const RING: std::ops::RangeInclusive<u32> = 12..=15;
/// Slots are wider than this only if nearly nothing happens.
const WIDEST: u32 = 24;
/// Events played before the width of slots is judged.
const PATIENCE: u64 = 4096;

/// The events of a run that are yet to come. `cells` is in all calls the slab they live in.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// Heads of lists, the event scheduled last first.
    slots: Vec<u32>,
    /// A bit per slot, and a bit per 64 slots.
    words: Vec<u64>,
    sums: Vec<u64>,
    /// ns per slot, and slots per block, as powers of two.
    width: u32,
    block: u32,
    /// The slot that plays, counted from instant 0.
    cursor: u64,
    /// Events before this instant are in the ring, others are far.
    horizon: u64,
    far: Far,
    /// What is left to play of the slot at the cursor.
    batch: Vec<u32>,
    played: usize,
    /// How far ahead, in ns, most events are scheduled.
    reach: u64,
    census: Census,
}

/// What was seen since the width of slots was chosen.
#[derive(Debug, Default)]
struct Census {
    since: u64,
    events: u64,
    patience: u64,
}

impl Wheel {
    /// A wheel at instant 0. Most events are scheduled less than `reach` ns ahead.
    pub(crate) fn new(reach: u64) -> Self {
        let mut wheel = Self {
            slots: Vec::new(),
            words: Vec::new(),
            sums: Vec::new(),
            width: 0,
            block: 0,
            cursor: 0,
            horizon: 0,
            far: Far::new(0),
            batch: Vec::new(),
            played: 0,
            reach: reach.clamp(1, 1 << 40),
            census: Census { patience: PATIENCE, ..Census::default() },
        };
        wheel.lay_out(0, 4);
        wheel
    }

    /// `id`, whose instant is `cells[id].at` and not past, is to happen.
    #[inline]
    pub(crate) fn schedule(&mut self, cells: &mut [Packet], id: u32) {
        let cell = &mut cells[id as usize];
        if cell.at < self.horizon {
            let place = (cell.at >> self.width) as usize & (self.slots.len() - 1);
            let slot = &mut self.slots[place];
            cell.next = *slot;
            *slot = id;
            self.words[place >> 6] |= 1 << (place & 63);
            self.sums[place >> 12] |= 1 << ((place >> 6) & 63);
        } else {
            self.far.schedule(cell, id, self.width + self.block);
        }
    }

    /// The next event, or `None` if there is none.
    #[inline]
    pub(crate) fn pop(&mut self, cells: &mut [Packet]) -> Option<u32> {
        if self.played < self.batch.len() {
            let here = self.cursor as usize & (self.slots.len() - 1);
            if self.slots[here] != NIL {
                self.join(here, cells);
            }
            let id = self.batch[self.played];
            self.played += 1;
            return Some(id);
        }
        self.turn(cells)
    }

    /// The event that comes after the one popped last, if it is known already.
    #[inline]
    pub(crate) fn ahead(&self) -> Option<u32> {
        self.batch.get(self.played).copied()
    }

    /// Moves the cursor to the next slot in use and takes its list.
    #[inline]
    fn turn(&mut self, cells: &mut [Packet]) -> Option<u32> {
        loop {
            let Some(place) = self.find() else {
                if !self.jump(cells) {
                    return None;
                }
                continue;
            };
            let here = self.cursor as usize;
            self.cursor += (place.wrapping_sub(here) & (self.slots.len() - 1)) as u64;
            if (self.cursor >> self.block) + BLOCKS > self.far.base() {
                self.bring_forward(cells);
                if self.census.events >= self.census.patience && self.judge(cells) {
                    continue;
                }
            }
            let head = self.take(place);
            self.census.events += 1;
            if cells[head as usize].next == NIL {
                return Some(head);
            }
            self.batch.clear();
            self.append(head, cells);
            self.census.events += self.batch.len() as u64 - 1;
            self.played = 1;
            return Some(self.batch[0]);
        }
    }

    /// The first slot in use from the cursor on, round the ring.
    #[inline]
    fn find(&self) -> Option<usize> {
        let start = self.cursor as usize & (self.slots.len() - 1);
        let word = start >> 6;
        let bits = self.words[word] & (!0 << (start & 63));
        if bits != 0 {
            return Some(word << 6 | bits.trailing_zeros() as usize);
        }
        let first = |word: usize| word << 6 | self.words[word].trailing_zeros() as usize;
        let group = word >> 6;
        let later = self.sums[group] & ((!0 << (word & 63)) << 1);
        if later != 0 {
            return Some(first(group << 6 | later.trailing_zeros() as usize));
        }
        let groups = self.sums.len();
        (1..=groups).map(|i| (group + i) & (groups - 1)).find_map(|group| {
            let sum = self.sums[group];
            (sum != 0).then(|| first(group << 6 | sum.trailing_zeros() as usize))
        })
    }

    /// Empties a slot; returns its list.
    #[inline]
    fn take(&mut self, place: usize) -> u32 {
        let word = place >> 6;
        self.words[word] &= !(1 << (place & 63));
        if self.words[word] == 0 {
            self.sums[word >> 6] &= !(1 << (word & 63));
        }
        std::mem::replace(&mut self.slots[place], NIL)
    }

    /// Events were scheduled into the slot that plays: they join those that are left.
    #[cold]
    fn join(&mut self, place: usize, cells: &mut [Packet]) {
        let head = self.take(place);
        self.batch.drain(..self.played);
        self.played = 0;
        self.append(head, cells);
    }

    /// Appends a list, oldest first, and sorts. What was there was scheduled before the list.
    #[inline]
    fn append(&mut self, head: u32, cells: &[Packet]) {
        let old = self.batch.len();
        let mut id = head;
        while id != NIL {
            self.batch.push(id);
            id = cells[id as usize].next;
        }
        self.batch[old..].reverse();
        if self.width > 0 {
            sort_by_time(&mut self.batch, cells);
        }
    }

    /// The cursor is in a new block: the ring takes in what may now be scheduled directly.
    fn bring_forward(&mut self, cells: &mut [Packet]) {
        while (self.cursor >> self.block) + BLOCKS > self.far.base() {
            if self.far.is_empty() {
                self.far.rebase((self.cursor >> self.block) + BLOCKS);
                break;
            }
            self.take_in(cells);
        }
        self.horizon = self.far.base() << (self.block + self.width);
    }

    /// Moves the far events of the next block into the ring.
    fn take_in(&mut self, cells: &mut [Packet]) {
        let head = self.far.take(cells, self.width + self.block);
        self.horizon = self.far.base() << (self.block + self.width);
        for id in in_order(head, cells) {
            self.schedule(cells, id);
        }
    }

    /// The ring is empty: on to the first block that is not. False if there is nothing far, either.
    fn jump(&mut self, cells: &mut [Packet]) -> bool {
        if !self.far.skip(cells, self.width + self.block) {
            return false;
        }
        self.cursor = self.cursor.max(self.far.base() << self.block);
        self.take_in(cells);
        true
    }

    /// Chooses another width if too many or too few slots are in use. True if it did.
    #[cold]
    fn judge(&mut self, cells: &mut [Packet]) -> bool {
        let seen = std::mem::take(&mut self.census);
        let passed = self.cursor.saturating_sub(seen.since).max(1);
        self.census = Census { since: self.cursor, patience: PATIENCE, ..Census::default() };
        // Slots per event: about three is right, between one and eight is left alone.
        let (now, width) = (self.cursor << self.width, i64::from(self.width));
        let better = if passed < seen.events {
            width - i64::from((3 * seen.events / passed).ilog2())
        } else if passed > 8 * seen.events {
            width + i64::from((passed / (3 * seen.events)).ilog2())
        } else {
            return false;
        };
        let better = better.clamp(0, WIDEST.into()) as u32;
        if better == self.width {
            return false;
        }
        let all = self.empty(cells);
        self.census.patience = PATIENCE.max(8 * all.len() as u64);
        self.lay_out(now, better);
        self.census.since = self.cursor;
        for id in all {
            self.schedule(cells, id);
        }
        true
    }

    /// All events; those of one instant in the order of their scheduling.
    fn empty(&mut self, cells: &mut [Packet]) -> Vec<u32> {
        let mut all = Vec::new();
        for place in 0..self.slots.len() {
            let head = self.take(place);
            all.extend(in_order(head, cells));
        }
        self.far.empty(cells, &mut all);
        all
    }

    /// An empty ring at instant `now` with slots of 2^`width` ns.
    fn lay_out(&mut self, now: u64, width: u32) {
        let slots = (self.reach >> width).max(1).next_power_of_two().ilog2();
        let slots = slots.clamp(*RING.start(), *RING.end());
        self.width = width;
        self.block = slots - BLOCKS.ilog2();
        self.slots = vec![NIL; 1 << slots];
        self.words = vec![0; 1 << (slots - 6)];
        self.sums = vec![0; 1 << (slots - 12)];
        self.cursor = now >> width;
        self.far = Far::new((self.cursor >> self.block) + BLOCKS);
        self.horizon = self.far.base() << (self.block + self.width);
    }
}

/// The events of a list, the one scheduled first first.
fn in_order(head: u32, cells: &[Packet]) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut id = head;
    while id != NIL {
        ids.push(id);
        id = cells[id as usize].next;
    }
    ids.reverse();
    ids
}

/// Stable: those of one instant keep their order.
#[inline]
fn sort_by_time(ids: &mut [u32], cells: &[Packet]) {
    let at = |id: u32| cells[id as usize].at;
    if ids.len() > 24 {
        ids.sort_by_key(|&id| at(id));
        return;
    }
    for i in 1..ids.len() {
        let (id, mut j) = (ids[i], i);
        while j > 0 && at(ids[j - 1]) > at(id) {
            ids[j] = ids[j - 1];
            j -= 1;
        }
        ids[j] = id;
    }
}
