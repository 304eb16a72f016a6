//! Promises of the colours and of the constants.

use super::{Colour, Colours, Trinity};
use crate::rate::HoldForm;
use weir_units::{Bytes, Rate, Span, Time};

const FRAME: Bytes = Bytes::new(1514);
const BURST: Bytes = Bytes::new(15_140);

/// Octets of each colour that a pair with this floor has in a second at this rate.
fn second(rate: Rate, floor: Rate) -> (u64, u64) {
    let (mut colours, mut now) = (Colours::default(), Time::ZERO);
    let (mut promised, mut borrowed) = (0, 0);
    while now < Time::ZERO + Span::from_secs(1) {
        match colours.of(now, FRAME, floor, BURST) {
            Colour::Promised => promised += FRAME.get(),
            Colour::Borrowed => borrowed += FRAME.get(),
        }
        now += rate.time_for(FRAME);
    }
    (promised, borrowed)
}

#[test]
fn all_packets_within_the_floor_have_the_first_priority() {
    let floor = Rate::from_mbps(94);
    let (promised, borrowed) = second(Rate::from_mbps(90), floor);
    assert!(promised > 11_000_000, "{promised}");
    assert_eq!(borrowed, 0);
}

#[test]
fn a_pair_that_floods_has_its_floor_and_one_burst_with_the_first_priority() {
    for mbps in [1, 19, 94, 700] {
        let floor = Rate::from_mbps(mbps);
        let (promised, borrowed) = second(Rate::from_mbps(1000), floor);
        let owed = floor.bytes_in(Span::from_secs(1)).get();
        assert!(promised <= owed + BURST.get() + FRAME.get(), "{mbps}: {promised} of {owed}");
        assert!(promised + 2 * FRAME.get() >= owed, "{mbps}: {promised} of {owed}");
        assert!(borrowed > 0, "{mbps}");
    }
}

#[test]
fn a_pair_without_a_floor_has_the_second_priority() {
    assert_eq!(second(Rate::from_mbps(10), Rate::ZERO).0, 0);
}

#[test]
fn a_floor_that_changes_takes_effect_at_the_next_packet() {
    let mut colours = Colours::default();
    let now = Time::ZERO;
    let small = Rate::from_mbps(1);
    while colours.of(now, FRAME, small, BURST) == Colour::Promised {}
    // A slow bucket takes 121 ms to be full again, a fast one has room for a frame in 15 µs.
    let large = Rate::from_mbps(1000);
    assert_eq!(colours.of(now, FRAME, large, BURST), Colour::Borrowed);
    assert_eq!(colours.of(now + large.time_for(FRAME), FRAME, large, BURST), Colour::Promised);
}

#[test]
fn rate_allocation_is_aggressive_and_a_burst_is_a_frame_at_least() {
    let law = Trinity::default();
    assert_eq!((law.pairs.rate.hold, law.pairs.rate.caution), (HoldForm::None, 0.0));
    assert_eq!(law.check(), Ok(()));
    assert_eq!(law.scaled(0.2).burst, law.burst);
    let less = Trinity { burst: Bytes::new(1000), ..law };
    assert!(less.check().expect_err("less than a frame").contains("burst"));
}
