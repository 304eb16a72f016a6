use super::*;
use crate::packet::{Kind, Slab};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A wheel and the slowest thing that does the same.
struct Twins {
    slab: Slab,
    wheel: Wheel,
    model: BinaryHeap<Reverse<(u64, u32)>>,
    now: u64,
    serial: u32,
}

impl Twins {
    fn new(reach: u64) -> Self {
        let (slab, model) = (Slab::default(), BinaryHeap::new());
        Self { slab, wheel: Wheel::new(reach), model, now: 0, serial: 0 }
    }

    fn schedule(&mut self, at: u64) {
        let id = self.slab.put(Packet { at, ..Packet::wake(Kind::Emit, self.serial) });
        self.wheel.schedule(&mut self.slab.cells, id);
        self.model.push(Reverse((at, self.serial)));
        self.serial += 1;
    }

    /// Both must name the same event.
    fn pop(&mut self) -> Option<(u64, u32)> {
        let expected = self.model.pop().map(|Reverse(key)| key);
        let id = self.wheel.pop(&mut self.slab.cells);
        let got = id.map(|id| {
            let cell = self.slab.cells[id as usize];
            self.slab.free(id);
            (cell.at, cell.flow)
        });
        assert_eq!(got, expected);
        self.now = got.map_or(self.now, |(at, _)| at);
        got
    }
}

#[test]
fn events_of_one_instant_come_in_the_order_of_scheduling() {
    let mut twins = Twins::new(100_000);
    for at in [500, 70, 500, 3_000_000, 500, 70, 3_000_000, 0] {
        twins.schedule(at);
    }
    let mut order = Vec::new();
    while let Some((_, serial)) = twins.pop() {
        order.push(serial);
    }
    assert_eq!(order, [7, 1, 5, 0, 2, 4, 3, 6]);
}

#[test]
fn an_event_may_be_scheduled_into_the_instant_that_plays() {
    let mut twins = Twins::new(100_000);
    twins.schedule(40);
    twins.schedule(40);
    twins.schedule(41);
    assert_eq!(twins.pop(), Some((40, 0)));
    twins.schedule(40);
    twins.schedule(41);
    let rest: Vec<_> = std::iter::from_fn(|| twins.pop()).collect();
    assert_eq!(rest, [(40, 1), (40, 3), (41, 2), (41, 4)]);
}

#[test]
fn the_width_of_slots_follows_the_density_and_order_survives() {
    let mut twins = Twins::new(100_000);
    let (mut state, mut widths) = (1u64, Vec::new());
    for (events, gap) in [(40_000, 1), (40_000, 2_000), (40_000, 40)] {
        for _ in 0..200 {
            twins.schedule(twins.now + 50 * gap);
        }
        for _ in 0..events {
            twins.pop();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            twins.schedule(twins.now + 1 + (state >> 40) % (200 * gap));
        }
        widths.push(twins.wheel.width);
    }
    assert!(widths[0] < widths[1] && widths[1] > widths[2], "{widths:?}");
}

/// What to do: a number of pops, then an event so far ahead.
fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
    let near = 0u64..3;
    let ahead = prop_oneof![
        near,
        0u64..200,
        1_000u64..20_000,
        100_000u64..2_000_000,
        0u64..40_000_000_000,
        Just(1u64 << 55),
    ];
    prop::collection::vec((0u8..3, ahead), 1..600)
}

proptest! {
    #[test]
    fn it_does_what_a_heap_does(reach in 1u64..10_000_000, steps in steps()) {
        let mut twins = Twins::new(reach);
        for (pops, ahead) in steps {
            for _ in 0..pops {
                twins.pop();
            }
            twins.schedule(twins.now + ahead);
        }
        while twins.pop().is_some() {}
        prop_assert_eq!(twins.slab.live(), 0);
    }

    #[test]
    fn it_does_so_while_its_slots_change_their_width(seed in any::<u64>(), gap in 1u64..5_000) {
        let mut twins = Twins::new(50_000);
        let mut rng = crate::rng::Rng::new(seed, 0);
        for _ in 0..300 {
            twins.schedule(rng.next() % (gap * 300));
        }
        for i in 0..30_000u64 {
            twins.pop();
            // Dense, then sparse, then dense; one in a hundred is a timer.
            let gap = if i / 10_000 == 1 { gap * 64 } else { gap };
            let ahead = if rng.next().is_multiple_of(100) { gap * 1_000_000 } else { gap * 300 };
            twins.schedule(twins.now + rng.next() % ahead);
        }
        while twins.pop().is_some() {}
    }
}
