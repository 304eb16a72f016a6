//! How long packets may wait in a pair's class of HTB.
//!
//! Problem   A queue that is bounded in octets alone lasts seconds at a low rate, and one that is
//!           short enough there would drop every super-packet.
//! Approach  `bpf/backlog.h` drops packets that would wait for too long at the class's ceiling,
//!           before the queue. It uses the class's level, kept here: an entry of the array that
//!           departure times use, too. A change is a store.
//! Promises  No level stays below its class's ceiling, whatever the kernel refuses and whichever
//!           process dies: a level is raised before the class and lowered after it. A process that
//!           lowers ceilings alone (the guardian) leaves levels too high, so the queue's own bound
//!           in octets remains. No packet is dropped that HTB would have sent in time.
//! Not here  Queues that belong to no pair, and levels of departure times: see `departure`.

use super::layout;
use super::tree::Nodes;
use crate::intf::{FIRST_EXTERNAL, FIRST_PAIR, Level, NODES};
use crate::nl::htb::{self, Class};
use crate::table::CounterArray;
use std::collections::BTreeMap;
use weir_core::classes::longest_wait;
use weir_units::{Bytes, Span};

/// Upper bound of a queue's length in time, so that the kernel's products fit 64 bits.
const MOST: Bytes = Bytes::new(1 << 30);

/// The level of a pair's class with a queue of `queue` octets. HTB runs ahead by its burst.
fn level(class: &Class, queue: Bytes) -> Level {
    let ceiling = htb::rate(class.ceil);
    let ahead = htb::burst_octets(class.cburst, class.ceil);
    Level {
        floor: htb::rate(class.rate).as_bps(),
        ceiling: ceiling.as_bps(),
        limit_ns: longest_wait(ceiling, queue).map_or(0, Span::as_nanos),
        limit: queue.min(MOST).get(),
        ahead: ahead.min(MOST).get(),
        ..Level::default()
    }
}

/// Levels of pairs' classes; of none if no program reads them.
pub(super) struct Waits {
    levels: Option<CounterArray<Level>>,
    queue: Bytes,
    /// Room of the classes with a deep queue.
    rooms: BTreeMap<u16, Bytes>,
}

impl Waits {
    /// For a shaper whose packets pass no program.
    pub(super) const fn unbounded(queue: Bytes) -> Self {
        Self { levels: None, queue, rooms: BTreeMap::new() }
    }

    /// `None` if the array was loaded too small.
    pub(super) fn new(levels: CounterArray<Level>, queue: Bytes) -> Option<Self> {
        let whole = levels.len() == NODES as usize;
        whole.then_some(Self { levels: Some(levels), queue, rooms: BTreeMap::new() })
    }

    /// What the queue of a class may hold.
    pub(super) fn room(&self, minor: u16) -> Bytes {
        self.rooms.get(&minor).copied().unwrap_or(self.queue)
    }

    /// The queue of a class holds this now; `None`: what all hold.
    pub(super) fn set_room(&mut self, minor: u16, room: Option<Bytes>) {
        match room {
            Some(room) => self.rooms.insert(minor, room),
            None => self.rooms.remove(&minor),
        };
    }

    /// The array and a class's place in it. The first classes are the first used: there are as many
    /// places as classes.
    fn place(&self, minor: u16) -> Option<(&CounterArray<Level>, usize)> {
        let place = FIRST_PAIR as usize + usize::from(minor - layout::pairs().start());
        let is_there = place < FIRST_EXTERNAL as usize;
        self.levels.as_ref().filter(|_| is_there).map(|levels| (levels, place))
    }

    /// A class is about to get these parameters, or to keep its own if the kernel refuses.
    pub(super) fn before(&self, minor: u16, class: &Class) {
        let Some((levels, place)) = self.place(minor) else { return };
        let wanted = level(class, self.room(minor));
        // None is no bound at all.
        if (1..wanted.ceiling).contains(&levels.get(place).ceiling) {
            levels.put(place, wanted);
        }
    }

    /// A class has these parameters.
    pub(super) fn after(&self, minor: u16, class: &Class) {
        let Some((levels, place)) = self.place(minor) else { return };
        let wanted = level(class, self.room(minor));
        if levels.get(place) != wanted {
            levels.put(place, wanted);
        }
    }

    /// A class has no pair any more.
    pub(super) fn retire(&mut self, minor: u16) {
        self.set_room(minor, None);
        self.lift(minor);
    }

    fn lift(&self, minor: u16) {
        let Some((levels, place)) = self.place(minor) else { return };
        if levels.get(place) != Level::default() {
            levels.put(place, Level::default());
        }
    }

    /// Octets by which a class may run ahead of its ceiling; `None` if its queue has no bound in
    /// time.
    pub(super) fn ahead(&self, minor: u16) -> Option<Bytes> {
        let (levels, place) = self.place(minor)?;
        let level = levels.get(place);
        let has_bound = level.ceiling > 0 && level.limit_ns > 0;
        has_bound.then(|| Bytes::new(level.ahead))
    }

    /// The kernel has these classes; those that are not `owned` have no pair.
    pub(super) fn follow(&self, nodes: &Nodes, owned: impl Fn(u16) -> bool) {
        let minors = layout::pairs().take((FIRST_EXTERNAL - FIRST_PAIR) as usize);
        for minor in minors {
            match nodes.get(&minor).filter(|_| owned(minor)) {
                Some(node) => self.after(minor, &node.class),
                None => self.lift(minor),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shaper::tree::Node;
    use weir_units::Rate;

    const QUEUE: Bytes = Bytes::new(128 * 1024);
    const A: u16 = 0x4000;
    const B: u16 = 0x4fff;

    /// A class with the burst of a slow one, 3028 octets.
    fn class(kbit: u64) -> Class {
        let ceil = kbit * 125;
        let cburst = htb::ticks(htb::rate(ceil).time_for(Bytes::new(3028)));
        Class { rate: 8000, ceil, cburst, ..Class::default() }
    }

    fn waits() -> Waits {
        Waits::new(CounterArray::in_memory(NODES as usize), QUEUE).unwrap()
    }

    fn kbit(waits: &Waits, minor: u16) -> u64 {
        let (levels, place) = waits.place(minor).unwrap();
        levels.get(place).ceiling / 1000
    }

    #[test]
    fn a_queue_lasts_ten_milliseconds_but_holds_ten_to_fifteen_frames() {
        let wait = |kbit: u64| {
            let longest = longest_wait(Rate::from_bps(kbit * 1000), QUEUE);
            longest.map(|longest| longest.as_nanos() / 10_000)
        };
        assert_eq!([14_534, 50_000, 78_643].map(wait), [Some(1000); 3]);
        // Ten frames of 1514 octets, and nearly fifteen.
        assert_eq!([10_000, 350, 64].map(wait), [Some(1211), Some(51_305), Some(283_275)]);
        assert_eq!(wait(1_000_000), Some(1000), "if there is room");
        assert_eq!([1_049_000, 10_000_000].map(wait), [None; 2], "128 kB last less than 1 ms");
    }

    #[test]
    fn a_fast_class_has_a_level_that_bounds_nothing() {
        let fast = level(&class(2_000_000), QUEUE);
        assert_eq!((fast.ceiling, fast.limit_ns), (2_000_000_000, 0));
    }

    #[test]
    fn what_is_sent_ahead_does_not_count_as_waiting() {
        let slow = level(&class(352), QUEUE);
        assert_eq!(slow.ceiling, 352_000);
        // Nearly fifteen frames.
        assert_eq!(slow.limit_ns / 100_000, 5100);
        assert_eq!((slow.limit, slow.ahead), (131_072, 3028));
        let waits = waits();
        assert_eq!(waits.ahead(A), None, "no pair");
        waits.after(A, &class(352));
        assert_eq!(waits.ahead(A), Some(Bytes::new(3028)));
        waits.after(A, &class(2_000_000));
        assert_eq!(waits.ahead(A), None, "a fast class");
        assert_eq!((slow.floor, slow.fallback, slow.parent), (64_000, 0, 0));
        let huge = level(&class(352), Bytes::new(u64::from(u32::MAX)));
        assert!(huge.limit.checked_mul(8_000_000_000).is_some(), "the kernel multiplies so");
    }

    #[test]
    fn a_level_is_raised_before_its_class_and_lowered_after_it() {
        let waits = waits();
        waits.before(A, &class(400));
        assert_eq!(kbit(&waits, A), 0, "no bound until the class is set");
        waits.after(A, &class(400));
        waits.before(A, &class(800));
        assert_eq!(kbit(&waits, A), 800);
        waits.after(A, &class(800));
        waits.before(A, &class(400));
        assert_eq!(kbit(&waits, A), 800, "the class may stay as it is");
        waits.after(A, &class(400));
        assert_eq!((kbit(&waits, A), kbit(&waits, B)), (400, 0));
    }

    #[test]
    fn levels_follow_what_the_kernel_has_and_only_pairs_have_some() {
        let waits = waits();
        for minor in [A, B] {
            waits.after(minor, &class(400));
        }
        let node = |kbit| Node { parent: 0x1000, class: class(kbit) };
        let nodes: Nodes = [(A, node(200)), (A + 1, node(300)), (A + 2, node(64))].into();
        waits.follow(&nodes, |minor| minor < A + 2);
        let found = [A, A + 1, A + 2, B].map(|minor| kbit(&waits, minor));
        assert_eq!(found, [200, 300, 0, 0]);
        waits.lift(A);
        assert_eq!(kbit(&waits, A), 0);
    }

    #[test]
    fn classes_beyond_the_array_and_shapers_without_one_have_no_bound() {
        let waits = waits();
        assert!(waits.place(B + 1).is_none());
        waits.after(B + 1, &class(400));
        let without = Waits::unbounded(QUEUE);
        without.after(A, &class(400));
        assert!(without.place(A).is_none());
        assert!(Waits::new(CounterArray::in_memory(1), QUEUE).is_none());
    }
}
