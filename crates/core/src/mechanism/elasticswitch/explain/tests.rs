//! Golden chains: what a person reads, letter by letter.

use super::*;
use crate::classes::Overbooked;
use crate::host::Setting;
use crate::message::Offer;
use crate::partition::{Heard, Spent};
use weir_units::{PairId, Span, Time, VmId};

const PAIR: PairId = PairId::new(VmId(0), VmId(1));
const NOW: Time = Time::from_nanos(100_000_000_000);

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

fn ago(ms: u64) -> Time {
    Time::from_nanos(NOW.as_nanos() - ms * 1_000_000)
}

const NAMED: Named<'_> = Named { src: "web", dst: "db", hose: None };

fn facts(kernel: Option<Setting>) -> Facts {
    let (renewed, lease) = (ago(120), Span::from_secs(1));
    let (overbooked, changed, next) = (None, None, None);
    Facts { now: NOW, cap: None, kernel, renewed, lease, overbooked, changed, next }
}

fn offer(floor: Rate, unbounded: bool, confirm: bool) -> Offer {
    Offer { pair: PAIR, serial: 4711, floor, unbounded, confirm, round_trip: None }
}

fn heard(offer: Offer) -> Option<Heard> {
    Some(Heard { offer, at: ago(40), is_adopted: false })
}

/// A pair that borrows, cut a while ago.
fn sending() -> SendView {
    let setting = Setting { floor: mbps(45), ceiling: mbps(63) };
    SendView {
        setting,
        hose: mbps(90),
        peers: 2,
        wants: Some((Want::Unbounded, mbps(90))),
        waited: Backlog::Unknown,
        share: mbps(45),
        heard: heard(offer(mbps(60), false, false)),
        held_for: Span::from_millis(5600),
        borrowing: Borrowing::Allowed,
        line: mbps(200),
        measured: mbps(62),
        law: RateView {
            phase: Phase::Holding,
            rate: mbps(63),
            goal: Some(mbps(100)),
            congested_at: Some(ago(300)),
            congestion: 3,
            held_until: Some(NOW + Span::from_millis(700)),
            steps: 0,
            weight: 0.5,
            caution: 0.8,
            cuts: 9,
        },
        lost: 31,
        marked: 7,
        signal: Signal::Loss,
        blind: None,
        hidden: 0,
        unfounded: 0,
        is_weighted: false,
    }
}

#[test]
fn a_pair_of_a_further_hose_names_it_first() {
    let hose = HoseKey::Further(weir_units::HoseId(3));
    let view = PairView { pair: PAIR, hose, send: Some(sending()), receive: None };
    let first = |named| reasons(&view, named, &facts(None)).remove(0);
    let named = first(Named { hose: Some("web-db"), ..NAMED });
    assert!(named.starts_with("web sends and db receives in the hose `web-db`: "), "{named}");
    let unnamed = first(NAMED);
    assert!(unnamed.contains("in the hose hose3: "), "without a name its number: {unnamed}");
    assert_eq!(summary(&view).hose, Some(weir_units::HoseId(3)));
}

fn told(send: Option<SendView>, receive: Option<ReceiveView>, facts: &Facts) -> Vec<String> {
    let view = PairView { pair: PAIR, hose: HoseKey::Tenant, send, receive };
    reasons(&view, NAMED, facts)
}

#[test]
fn a_held_pair_is_explained_from_its_demand_to_the_kernel() {
    let kernel = Some(Setting { floor: mbps(45), ceiling: mbps(63) });
    let wanted = [
        "web sent 62 Mb/s in the last period, all it could, and that is its fair share: it wants all \
         there is.",
        "web is promised 90 Mb/s out, divided over 2 active pairs; this pair's part is 45 Mb/s.",
        "db's host offers 60 Mb/s (offer 4711, 0.04 s ago): no less than web's own part.",
        "So the floor is 45 Mb/s, the smaller of both: it holds whatever the neighbours do.",
        "0.30 s ago, at 100 Mb/s, 3 segments got lost. The rate was cut and is held before it may \
         grow, 0.70 s more if nothing is lost.",
        "So far 31 segments were lost and 7 marked; the rate was cut 9 times.",
        "Now it may send 63 Mb/s: its floor and 18 Mb/s borrowed.",
        "What is borrowed is a lease, renewed 0.12 s ago: the guardian takes it back after 1.0 s \
         without.",
        "The kernel has just that.",
    ];
    assert_eq!(told(Some(sending()), None, &facts(kernel)), wanted);
}

#[test]
fn what_waits_is_said_after_what_left() {
    let second = |waited| {
        let send = SendView { waited, ..sending() };
        told(Some(send), None, &facts(None)).remove(1)
    };
    assert!(second(Backlog::Always).starts_with("Packets waited in its queue all the time"));
    assert!(second(Backlog::Sometimes).starts_with("At times packets waited in its queue"));
    let part = "web is promised 90 Mb/s out";
    assert!([Backlog::Free, Backlog::Unknown].into_iter().all(|w| second(w).starts_with(part)));
}

#[test]
fn a_receiver_that_cannot_give_more_is_named_and_so_is_what_the_kernel_lacks() {
    let setting = Setting { floor: mbps(9), ceiling: mbps(200) };
    let law = RateView { phase: Phase::Probing, steps: 6, caution: 0.3, ..sending().law };
    let send = SendView {
        setting,
        heard: heard(offer(mbps(9), true, true)),
        wants: Some((Want::Bounded, mbps(50))),
        law,
        ..sending()
    };
    let facts = Facts { cap: Some(mbps(300)), ..facts(None) };
    let got = told(Some(send), None, &facts);
    assert_eq!(
        got[0],
        "web sent 62 Mb/s in the last period, less than it could: it is taken to want 50 Mb/s and no \
         more."
    );
    assert_eq!(
        got[2],
        "db's host offers 9 Mb/s (offer 4711, 0.04 s ago, which was echoed): its full fair share \
         there, and less than web's part: the rest goes to web's other pairs."
    );
    assert_eq!(
        got[4],
        "0.30 s ago, at 100 Mb/s, 3 segments got lost. The rate is still below that and probes for more \
         (steps of 6 by now, weight 0.500, slowed to 30 % by caution)."
    );
    assert_eq!(
        got[6],
        "Now it may send 200 Mb/s: its floor and 191 Mb/s borrowed; no more than the uplink's line \
         rate; all pairs of the VM together no more than its cap of 300 Mb/s."
    );
    assert_eq!(got[8], "The kernel has no queue for this pair: it shares its VM's default one.");
}

#[test]
fn silence_and_a_restart_are_told_as_what_they_are() {
    let silent_for = Span::from_millis(2500);
    let law = RateView { phase: Phase::Decaying, ..sending().law };
    let send = SendView { borrowing: Borrowing::Decaying { silent_for }, law, ..sending() };
    let got = told(Some(send), None, &facts(None));
    assert_eq!(
        got[4],
        "db's host has been silent for 2.5 s: what was borrowed is given back, and after 5.6 s of \
         silence the floor falls to the small start."
    );
    assert_eq!(got[5], "The rate falls toward the floor.");

    let found = Heard { offer: offer(mbps(45), false, false), at: ago(900), is_adopted: true };
    let got = told(Some(SendView { heard: Some(found), ..sending() }), None, &facts(None));
    assert_eq!(
        got[2],
        "db's host was not heard since this agent started 0.90 s ago: the 45 Mb/s that was found in \
         force counts as its part, for 5.6 s."
    );
    let got = told(Some(SendView { heard: None, ..sending() }), None, &facts(None));
    assert_eq!(
        got[2],
        "db's host has not offered its part yet: until it does the floor is the small start."
    );
}

#[test]
fn the_receiving_end_tells_its_division_and_what_is_not_confirmed() {
    let receive = ReceiveView {
        hose: mbps(90),
        spent: mbps(88),
        peers: 10,
        wants: Some((Want::Growing, mbps(12))),
        offered: Some(offer(mbps(9), true, true)),
        held: Some(Spent { most: mbps(20), awaits_echo: true }),
        measured: mbps(10),
        lost: 2,
        unfounded: 40,
        marked: 0,
    };
    let wanted = [
        "web reached us with 10 Mb/s in the last period, all it could: it is taken to want 12 Mb/s, \
         and more each period.",
        "db is promised 90 Mb/s in, divided over 10 active pairs; senders hold 88 Mb/s of it.",
        "web is offered 9 Mb/s (offer 4711), its full fair share.",
        "web has not confirmed the smaller offer: 20 Mb/s counts as spent until it does.",
        "On the way 2 segments were lost so far, and 0 marked.",
        "40 more seemed to be: the host of web knows of no such pair, so its packets have no number of \
         ours (an address that is translated on the way), and losses do not show.",
    ];
    assert_eq!(told(None, Some(receive), &facts(None)), wanted);
}

#[test]
fn floors_beyond_the_uplink_are_among_the_reasons_with_the_factor() {
    let over = Overbooked { floors: mbps(300), budget: mbps(195) };
    let kernel = Some(Setting { floor: Rate::from_bps(29_250_000), ceiling: mbps(63) });
    let facts = Facts { overbooked: Some(over), ..facts(kernel) };
    let got = told(Some(sending()), None, &facts);
    assert_eq!(
        got[8],
        "Overbooked: the floors of this host's pairs sum to 300 Mb/s, and its uplink holds 195 Mb/s of \
         floors: each is scaled to 65.0 %. Here the floor of 45 Mb/s is worth 29.25 Mb/s."
    );
    let tail = "small rises wait, and what HTB cannot express is rounded.";
    assert!(got[9].contains("a floor of 29.25 Mb/s") && got[9].ends_with(tail), "{}", got[9]);
}

#[test]
fn a_round_trip_beyond_the_promise_is_a_condition_with_what_the_pair_has_of_its_floor() {
    let over =
        |ms| Offer { round_trip: Some(Span::from_millis(ms)), ..offer(mbps(60), false, false) };
    let at = |ms| SendView { heard: heard(over(ms)), measured: mbps(36), ..sending() };
    let view =
        |ms| PairView { pair: PAIR, hose: HoseKey::Tenant, send: Some(at(ms)), receive: None };
    assert_eq!(summary(&view(10)).long_path, None, "promised");
    let long = summary(&view(40)).long_path.expect("a condition");
    assert_eq!(long.to_string(), "LongPath (40.0 ms, 0.80 of its floor)");
    let got = told(Some(at(40)), None, &facts(None));
    let said = got.iter().find(|r| r.starts_with("LongPath")).expect("among the reasons");
    assert!(said.contains("longer than the 10 ms for which floors are promised"), "{said}");
}
