//! A receiver spends a part only once.

use super::examples::offer;
use weir_core::message::{Backlog, Echo, Offer};
use weir_core::partition::{PartitionConfig, ReceiveHose, SendHose};
use weir_units::{Rate, Span, Time, VmId};

const HOSE: Rate = Rate::from_mbps(90);
const A: VmId = VmId(1);
const B: VmId = VmId(2);

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn echo(offer: Offer) -> Echo {
    Echo {
        pair: offer.pair,
        serial: offer.serial,
        floor: offer.floor,
        most: None,
        backlog: Backlog::Unknown,
    }
}

fn greedy(_: VmId) -> Rate {
    Rate::from_mbps(1000)
}

/// `A` alone, with the whole hose.
fn alone() -> ReceiveHose {
    let mut hose = ReceiveHose::new(PartitionConfig::default(), VmId(0), HOSE);
    hose.see(Time::ZERO, A);
    for n in 1..=10 {
        hose.step(at(60 * n), greedy);
    }
    assert_eq!(hose.offer(at(600), A).floor, HOSE);
    hose
}

/// The same a moment later, when `B` has grown to its fair share.
fn pressed() -> ReceiveHose {
    let mut hose = alone();
    hose.see(at(600), B);
    for n in 11..20 {
        hose.step(at(60 * n), greedy);
    }
    hose
}

#[test]
fn a_new_pair_gets_nothing_that_another_may_still_hold() {
    let mut hose = alone();
    hose.see(at(600), B);
    assert_eq!(hose.offer(at(600), B).floor, Rate::ZERO);
    assert_eq!(hose.spent(), HOSE);
}

#[test]
fn what_an_echo_frees_goes_to_those_that_wait() {
    let mut hose = pressed();
    let smaller = hose.offer(at(1200), A);
    assert_eq!(smaller.floor, Rate::from_mbps(45));
    assert!(smaller.confirm);
    assert_eq!(hose.offered(B), Rate::ZERO);
    assert!(hose.echo(at(1201), A, echo(smaller)), "worth telling the others");
    assert_eq!(hose.offer(at(1201), B).floor, Rate::from_mbps(45));
    assert!(!hose.offer(at(1201), A).confirm);
    assert_eq!(hose.missing(), Rate::ZERO);
}

#[test]
fn an_echo_of_an_older_offer_of_the_same_value_confirms_nothing() {
    // 45 was offered and echoed once, then 90, then 45 again: the first echo, repeated, comes late.
    let mut hose = pressed();
    let first = hose.offer(at(1200), A);
    let late = echo(first);
    hose.echo(at(0), A, late);
    for n in 20..60 {
        hose.step(at(60 * n), |p| if p == A { Rate::from_mbps(1000) } else { Rate::ZERO });
        let b = hose.offer(at(60 * n), B);
        hose.echo(at(0), B, echo(b));
    }
    assert_eq!(hose.offer(at(3600), A).floor, HOSE);
    hose.see(at(3600), B);
    for n in 61..70 {
        hose.step(at(60 * n), greedy);
    }
    assert_eq!(hose.offer(at(4200), A).floor, first.floor);
    assert!(!hose.echo(at(0), A, late));
    assert_eq!(hose.offer(at(4200), B).floor, Rate::ZERO);
}

#[test]
fn forged_and_foreign_echoes_are_harmless() {
    let mut hose = pressed();
    let smaller = hose.offer(at(1200), A);
    let future = Echo { serial: smaller.serial.wrapping_add(5), ..echo(smaller) };
    assert!(!hose.echo(at(0), A, future));
    assert!(!hose.echo(at(0), VmId(77), echo(smaller)));
    assert_eq!(hose.offer(at(1200), B).floor, Rate::ZERO);
}

#[test]
fn without_an_echo_the_part_is_free_only_when_the_sender_must_have_let_go() {
    let mut hose = pressed();
    let lowered = 660;
    let mut freed = None;
    for n in 20..200u64 {
        hose.step(at(60 * n), greedy);
        if freed.is_none() && hose.offered(B) > Rate::ZERO {
            freed = Some(60 * n - lowered);
        }
    }
    // The sender's 0.6 s + 5 s, and 0.6 s for a message on its way.
    assert!(freed.is_some_and(|ms| (6200..6300).contains(&ms)), "{freed:?}");
}

#[test]
fn an_idle_pair_is_over_when_its_sender_has_confirmed_the_small_start() {
    let mut hose = alone();
    let quiet = |_| Rate::ZERO;
    for n in 11..26 {
        assert!(hose.step(at(60 * n), quiet).is_empty());
    }
    let last = loop_until_small(&mut hose);
    assert!(last.confirm);
    assert!(hose.step(at(1800), quiet).is_empty(), "not confirmed");
    hose.echo(at(0), A, echo(last));
    assert_eq!(hose.step(at(1860), quiet), [A]);
    assert_eq!(hose.spent(), Rate::ZERO);
}

fn loop_until_small(hose: &mut ReceiveHose) -> Offer {
    for n in 26..30 {
        hose.step(at(60 * n), |_| Rate::ZERO);
    }
    let last = hose.offer(at(1740), A);
    assert_eq!(last.floor, PartitionConfig::default().small_start_of(HOSE));
    last
}

#[test]
fn a_smaller_hose_is_never_promised_more_than_is_left() {
    let mut hose = alone();
    hose.set_hose(Rate::from_mbps(30));
    let smaller = hose.offer(at(660), A);
    assert_eq!((smaller.floor, smaller.confirm), (Rate::from_mbps(30), true));
    assert_eq!(hose.spent(), HOSE);
    hose.echo(at(0), A, echo(smaller));
    assert_eq!(hose.spent(), Rate::from_mbps(30));
}

#[test]
fn a_sender_echoes_what_it_holds_not_what_it_was_told_late() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(Time::ZERO, A);
    let newer = Offer { confirm: true, ..offer(1, 8, Rate::from_mbps(10)) };
    let older = Offer { confirm: true, ..offer(1, 7, Rate::from_mbps(30)) };
    assert_eq!(hose.offer(at(1), A, newer), Some(echo(newer)));
    assert_eq!(hose.offer(at(2), A, older), Some(echo(newer)));
    assert_eq!(hose.offered(A), Some(newer));
    assert_eq!(hose.offer(at(3), A, offer(1, 9, HOSE)), None, "no echo was asked for");
}

#[test]
fn a_sender_without_the_pair_says_that_it_holds_nothing() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    let asked = Offer { confirm: true, ..offer(1, 8, Rate::from_mbps(10)) };
    let nothing = Echo { floor: Rate::ZERO, most: Some(Rate::ZERO), ..echo(asked) };
    assert_eq!(hose.offer(at(1), A, asked), Some(nothing));
}

#[test]
fn an_offer_that_was_overtaken_by_one_that_is_not_held_is_not_believed() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    let asked = |serial, floor| Offer { confirm: true, ..offer(1, serial, floor) };
    let (newer, older) = (asked(8, Rate::from_mbps(10)), asked(7, Rate::from_mbps(30)));
    assert_eq!(hose.offer(at(1), A, newer).map(|echo| echo.floor), Some(Rate::ZERO));
    // Its part may be another's by now.
    hose.see(at(2), A);
    let held = hose.offer(at(3), A, older).map(|echo| (echo.serial, echo.floor));
    assert_eq!(held, Some((8, Rate::ZERO)));
    let small_start = HOSE.mul_ratio(1, 64);
    assert_eq!((hose.offered(A), hose.floor(at(3), A)), (None, small_start));
    // What is as new, and what comes when no message of then is under way.
    hose.offer(at(4), A, newer);
    assert_eq!(hose.offered(A), Some(newer));
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.offer(at(1), A, newer);
    hose.see(at(2), A);
    hose.offer(at(602), A, older);
    assert_eq!(hose.offered(A), Some(older));
}

#[test]
fn an_offer_that_was_overtaken_is_not_believed_when_its_pair_has_ended_and_begun() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(at(0), A);
    for n in 1..=40 {
        hose.offer(at(60 * n - 1), A, offer(1, 100 + n as u32, Rate::from_mbps(10)));
        hose.step(at(60 * n), |_| Rate::ZERO);
    }
    assert!(hose.is_empty(), "it is over, and its receiver goes on");
    hose.see(at(2401), A);
    hose.offer(at(2402), A, offer(1, 90, HOSE));
    assert_eq!(hose.offered(A), None);
    hose.offer(at(2403), A, offer(1, 141, HOSE));
    assert_eq!(hose.offered(A).map(|offer| offer.serial), Some(141));
}

#[test]
fn serials_wrap_without_harm() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(Time::ZERO, A);
    hose.offer(at(1), A, offer(1, u32::MAX, Rate::from_mbps(30)));
    hose.offer(at(2), A, offer(1, 0, Rate::from_mbps(1)));
    hose.offer(at(3), A, offer(1, u32::MAX, Rate::from_mbps(30)));
    assert_eq!(hose.offered(A).map(|o| o.floor), Some(Rate::from_mbps(1)));
}

#[test]
fn a_receiver_that_restarts_learns_what_its_senders_hold() {
    let born = 1_000;
    let config = PartitionConfig::default();
    let mut hose = ReceiveHose::starting_at(config, VmId(0), HOSE, born);
    let held = |peer, mbps| Echo {
        pair: weir_units::PairId::new(peer, VmId(0)),
        serial: born - 7,
        floor: Rate::from_mbps(mbps),
        most: None,
        backlog: Backlog::Unknown,
    };
    assert!(!hose.learn(at(0), A, held(A, 60)), "not a pair yet");
    for peer in [A, B] {
        hose.see(at(0), peer);
    }
    assert!(hose.learn(at(1), A, held(A, 60)));
    assert_eq!(hose.offered(A), Rate::from_mbps(60));
    // Whatever it is told: never more than the hose.
    assert!(hose.learn(at(1), B, held(B, 60)));
    assert_eq!((hose.offered(B), hose.spent()), (Rate::from_mbps(30), HOSE));

    hose.step(at(60), greedy);
    let offer_to_a = hose.offer(at(60), A);
    assert!(offer_to_a.floor >= Rate::from_mbps(45), "the division goes on from there");
    assert!(hose.spent() <= HOSE);
    // Once this life has spoken, what the former one said is history.
    assert!(!hose.learn(at(61), A, held(A, 1)));
    let ours = Echo { serial: born, ..held(B, 80) };
    assert!(!hose.learn(at(61), B, ours), "of this life");
}

/// A host that lives for weeks divides its hose some ten times a second, and is then restarted.
#[test]
fn after_any_time_a_new_life_begins_with_serials_that_are_younger_than_all_of_the_old_one() {
    let config = || PartitionConfig::default();
    let day = |n: u64| Time::ZERO + Span::from_secs(n * 24 * 3600);
    let mut hose = ReceiveHose::starting_at(config(), VmId(0), HOSE, 0);
    assert!(hose.see(Time::ZERO, VmId(1)));
    let mut before = hose.offer(Time::ZERO, VmId(1)).serial;
    for n in 1..=200 {
        // One division a day stands for all that were made: fewer are worse.
        hose.step(day(n), |_| Rate::from_mbps(1));
        let serial = hose.offer(day(n), VmId(1)).serial;
        assert!(is_younger(serial, before), "day {n}: {serial} after {before}");
        let clock = (day(n).as_nanos() / 1_000_000) as u32;
        let mut next = ReceiveHose::starting_at(config(), VmId(0), HOSE, clock);
        assert!(next.see(day(n), VmId(1)));
        let first = next.offer(day(n), VmId(1)).serial;
        assert!(
            is_younger(first, serial),
            "day {n}: a new life begins with {first}, after {serial}"
        );
        before = serial;
    }
}

/// As senders compare serials.
fn is_younger(serial: u32, before: u32) -> bool {
    (serial.wrapping_sub(before) as i32) > 0
}

#[test]
fn a_sender_that_has_no_part_of_its_hose_for_a_pair_gets_none_of_its_receivers() {
    let mut refused = SendHose::new(PartitionConfig::default(), Rate::ZERO);
    let mut hose = alone();
    hose.see(at(600), B);
    for n in 11..40 {
        hose.step(at(60 * n), greedy);
        for (peer, knows) in [(A, true), (B, false)] {
            let offered = hose.offer(at(60 * n), peer);
            let answer = if knows {
                Some(echo(offered))
            } else {
                refused.offer(at(60 * n), VmId(0), offered)
            };
            if let Some(answer) = answer {
                hose.echo(at(60 * n), peer, answer);
            }
        }
    }
    assert_eq!((hose.offered(A), hose.offered(B)), (HOSE, Rate::ZERO));
}

#[test]
fn a_sender_tells_what_waits_when_it_changes_and_repeats_it_once() {
    let mut hose = SendHose::new(PartitionConfig::default(), HOSE);
    hose.see(at(0), A);
    hose.offer(at(1), A, offer(1, 1, HOSE));
    let mut told = Vec::new();
    let says = [Backlog::Always, Backlog::Always, Backlog::Always, Backlog::Free];
    // The hose's most for its only pair is all of it, in each period.
    for (n, backlog) in (1..).zip([says, [Backlog::Free; 4]].concat()) {
        hose.waited(A, backlog);
        hose.step(at(60 * n), greedy);
        let notes: Vec<Backlog> = hose.notes().map(|echo| echo.backlog).collect();
        told.push(notes);
    }
    let (always, free) = (vec![Backlog::Always], vec![Backlog::Free]);
    let none = Vec::new;
    let expected = [&always, &always, &none(), &free, &free, &none(), &none(), &none()];
    assert!(told.iter().eq(expected), "{told:?}");
}
