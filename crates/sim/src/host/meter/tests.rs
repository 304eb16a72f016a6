//! Gaps against a model that knows what was sent.

use super::*;
use proptest::prelude::*;

const WINDOW_NS: u64 = 1_000_000;
/// Between two packets.
const GAP: u64 = 20_000;
const SECOND: u64 = 1_000_000_000;

/// Feeds numbers, one per `GAP`; returns the meter and the time after.
fn feed(ids: impl IntoIterator<Item = u32>) -> (Meter, u64) {
    let mut meter = Meter::default();
    let mut now = 0;
    for id in ids {
        now += GAP;
        meter.arrive(now, id as u16, 1000, false, WINDOW_NS);
    }
    (meter, now)
}

#[test]
fn a_hole_is_a_loss_after_the_window_and_three_later_segments() {
    let mut meter = Meter::default();
    let mut at = |us: u64, id: u16| {
        meter.arrive(us * 1000, id, 1000, false, WINDOW_NS);
        meter.lost(us * 1000, WINDOW_NS)
    };
    assert_eq!([at(0, 0), at(10, 2), at(20, 3)], [0, 0, 0]);
    assert_eq!(at(1005, 4), 0, "not open for a millisecond");
    assert_eq!(at(1011, 5), 0, "only two came after the one that showed it");
    assert_eq!([at(1020, 6), at(1030, 7)], [1, 1], "once");
}

#[test]
fn a_hole_that_few_follow_waits_longer_and_nobody_need_come() {
    let mut meter = Meter::default();
    meter.arrive(0, 0, 1000, false, WINDOW_NS);
    meter.arrive(10_000, 2, 1000, false, WINDOW_NS);
    meter.arrive(2_000_000, 3, 1000, false, WINDOW_NS);
    assert_eq!(meter.lost(2_000_000, WINDOW_NS), 0, "two came since");
    assert_eq!(meter.lost(8_009_999, WINDOW_NS), 0);
    assert_eq!(meter.lost(8_010_000, WINDOW_NS), 1);
}

#[test]
fn what_comes_late_was_not_lost() {
    let (meter, now) = feed([0, 1, 4, 5, 2, 3, 6]);
    assert_eq!(meter.lost(now + SECOND, WINDOW_NS), 0);
    assert_eq!((meter.segments, meter.octets), (7, 7000));
}

#[test]
fn what_was_told_as_lost_and_comes_after_all_is_not_told_again() {
    let mut meter = Meter::default();
    let mut told = |ms: u64, id: Option<u16>| {
        let now = ms * WINDOW_NS;
        if let Some(id) = id {
            meter.arrive(now, id, 1000, false, WINDOW_NS);
        }
        (meter.tell_lost(now, WINDOW_NS), meter.lost(now, WINDOW_NS))
    };
    // 1 to 4 are lost; 6 and 7 are late by more than eight windows.
    assert_eq!([(0, 0), (1, 5), (2, 8)].map(|(ms, id)| told(ms, Some(id))), [(0, 0); 3]);
    assert_eq!(told(12, None), (6, 6), "all are overdue");
    assert_eq!(told(13, Some(6)), (6, 5));
    assert_eq!(told(13, Some(7)), (6, 4), "what was told does not fall");
    assert_eq!(told(14, Some(9)), (6, 4));
}

#[test]
fn numbers_that_begin_anew_are_no_losses() {
    let (meter, now) = feed((30_000..30_010).chain(0..10));
    assert_eq!(meter.lost(now + SECOND, WINDOW_NS), 0);
}

proptest! {
    #[test]
    fn without_reordering_what_did_not_come_is_lost_once(
        first in 0u32..100_000,
        came in prop::collection::vec(prop::bool::weighted(0.7), 1..3000),
        burst in 0u32..2000,
    ) {
        let ids = (first..).zip(&came).filter(|(_, came)| **came).map(|(id, _)| id);
        let last = first + came.len() as u32 + burst;
        let ids: Vec<u32> = [first].into_iter().chain(ids.filter(|id| *id != first)).chain([last]).collect();
        let missing = u64::from(last - first + 1) - ids.len() as u64;
        let (meter, now) = feed(ids);
        prop_assert_eq!(meter.lost(now + SECOND, WINDOW_NS), missing);
    }

    #[test]
    fn what_is_overtaken_within_the_window_is_not_lost(
        // Each segment is late by so many others' time, at most 24. What comes between one that overtook it
        // and itself are less than twice as many, for those before it may be late, too: 0.96 ms.
        late in prop::collection::vec(0u64..25, 1..2000),
    ) {
        let mut order: Vec<(u64, u32)> = (0u32..).zip(&late).map(|(id, late)| (u64::from(id) + late, id)).collect();
        order.sort_unstable();
        let (meter, now) = feed(order.iter().map(|(_, id)| *id));
        prop_assert_eq!(meter.lost(now + SECOND, WINDOW_NS), 0);
    }
}
