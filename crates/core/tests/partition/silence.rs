//! What a sender does when the receiver says nothing.

use super::examples::offer;
use weir_core::partition::{Borrowing, PartitionConfig, SendHose};
use weir_units::{Rate, Span, Time, VmId};

const PEER: VmId = VmId(1);
const HOSE: Rate = Rate::from_mbps(640);

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn greedy(_: VmId) -> Rate {
    Rate::from_mbps(1000)
}

/// Confirmed with `floor` at 1 s, with its full share at the sender.
fn confirmed(floor: Rate) -> SendHose {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(Time::ZERO, PEER);
    for n in 1..=10u32 {
        hose.offer(at(100 * u64::from(n)), PEER, offer(1, n, floor));
        hose.step(at(100 * u64::from(n)), greedy);
    }
    assert_eq!(hose.floor(at(1000), PEER), floor);
    hose
}

#[test]
fn an_unconfirmed_pair_holds_the_small_start_however_much_it_uses() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(Time::ZERO, PEER);
    for n in 1..20 {
        assert_eq!(hose.floor(at(60 * n), PEER), Rate::from_mbps(10));
        hose.step(at(60 * n), greedy);
    }
}

#[test]
fn the_small_start_is_at_least_1_mbps_and_at_most_the_hose() {
    let config = PartitionConfig::default();
    assert_eq!(config.small_start_of(Rate::from_mbps(640)), Rate::from_mbps(10));
    assert_eq!(config.small_start_of(Rate::from_mbps(10)), Rate::from_mbps(1));
    assert_eq!(config.small_start_of(Rate::from_bps(7)), Rate::from_bps(7));
}

#[test]
fn the_first_offer_is_in_force_at_once() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(Time::ZERO, PEER);
    hose.offer(at(1), PEER, offer(1, 1, Rate::from_mbps(4)));
    assert_eq!(hose.floor(at(1), PEER), Rate::from_mbps(4));
}

#[test]
fn a_silent_receivers_offer_stays_for_the_hold_and_then_falls_to_the_small_start() {
    let mut hose = confirmed(Rate::from_mbps(300));
    assert_eq!(hose.floor(at(1000 + 5600), PEER), Rate::from_mbps(300));
    assert_eq!(hose.floor(at(1000 + 5601), PEER), Rate::from_mbps(10));
    hose.offer(at(8000), PEER, offer(1, 11, Rate::from_mbps(200)));
    assert_eq!(hose.floor(at(8000), PEER), Rate::from_mbps(200), "back at once");
}

#[test]
fn an_offer_below_the_small_start_never_rises_by_silence() {
    let mut hose = confirmed(Rate::from_mbps(3));
    assert_eq!(hose.floor(at(20_000), PEER), Rate::from_mbps(3));
}

#[test]
fn what_a_silent_receiver_was_given_goes_to_others_after_the_hold() {
    let mut hose = confirmed(Rate::from_mbps(640));
    let other = VmId(2);
    hose.see(at(1000), other);
    for n in 0..70u64 {
        let now = at(1060 + 100 * n);
        hose.offer(now, other, offer(2, n as u32, HOSE));
        hose.step(now, greedy);
        if now < at(6600) && now > at(2000) {
            assert_eq!(hose.floor(now, other), Rate::from_mbps(320));
        }
    }
    assert_eq!(hose.floor(at(8000), other), Rate::from_mbps(630));
}

#[test]
fn borrowing_decays_from_silent_after_on() {
    let hose = confirmed(Rate::from_mbps(300));
    assert_eq!(hose.borrowing(at(1600), PEER), Borrowing::Allowed);
    let silent_for = Span::from_millis(601);
    assert_eq!(hose.borrowing(at(1601), PEER), Borrowing::Decaying { silent_for });
}

#[test]
fn a_pair_that_never_heard_anything_borrows_for_silent_after_only() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(at(100), PEER);
    assert_eq!(hose.borrowing(at(700), PEER), Borrowing::Allowed);
    let silent_for = Span::from_millis(700);
    assert_eq!(hose.borrowing(at(800), PEER), Borrowing::Decaying { silent_for });
}

#[test]
fn a_receiver_that_starts_anew_is_believed_after_a_silence() {
    let mut hose = confirmed(Rate::from_mbps(300));
    // Another clock than before: its serials have nothing to do with the former ones.
    let anew = |serial: u32| 0u32.wrapping_sub(10_000) + serial;
    hose.offer(at(1100), PEER, offer(1, anew(1), Rate::from_mbps(500)));
    assert_eq!(hose.floor(at(1100), PEER), Rate::from_mbps(300), "an old message");
    hose.offer(at(1700), PEER, offer(1, anew(2), Rate::from_mbps(500)));
    assert_eq!(hose.floor(at(1700), PEER), Rate::from_mbps(500), "a new receiver");
}

/// A host that stood still, or whose clock jumped, has heard nothing for a while by its clock. What comes next
/// may be an offer that was overtaken (swarm seeds 2073 and 4265).
#[test]
fn a_letter_that_was_overtaken_is_not_believed_after_a_silence_within_the_hold() {
    let mut hose = confirmed(Rate::from_mbps(300));
    for ms in [1100, 1700, 6600] {
        hose.offer(at(ms), PEER, offer(1, 9, Rate::from_mbps(500)));
        assert_eq!(hose.floor(at(ms), PEER), Rate::from_mbps(300), "at {ms} ms");
    }
    hose.offer(at(6601), PEER, offer(1, 9, Rate::from_mbps(500)));
    assert_eq!(hose.floor(at(6601), PEER), Rate::from_mbps(500), "nothing is held any more");
}

#[test]
fn an_idle_pair_is_over_and_returned_once() {
    let mut hose = confirmed(Rate::from_mbps(300));
    assert!(hose.step(at(2500), |_| Rate::ZERO).is_empty());
    assert_eq!(hose.step(at(2600), |_| Rate::ZERO), [PEER]);
    assert!(hose.step(at(2700), |_| Rate::ZERO).is_empty());
    assert_eq!(hose.floor(at(2700), PEER), Rate::ZERO);
    assert_eq!(hose.peers().count(), 0);
}
