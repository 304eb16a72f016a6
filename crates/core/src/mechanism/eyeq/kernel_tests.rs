//! A host whose data plane meters, tells and hears by itself, and shares the uplink by the floors of pairs.

use super::*;
use crate::host::{SendCount, Told};
use crate::mechanism::Law;
use weir_units::{Bytes, TenantId};

const LINE: Rate = Rate::from_mbps(200);
const OTHER: Rate = Rate::from_mbps(1);

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

/// VMs 0 (60 Mb/s) and 1 (no floor) are here, 2 and 3 elsewhere.
fn policy() -> Policy {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let eyeq = EyeQ::default().for_link(LINE, Span::from_millis(1), Backend::Agent);
    let eyeq = EyeQ { default_floor: OTHER, ..eyeq };
    let mut policy = Policy::new(HostId(0), LINE, Law::EyeQ(Box::new(eyeq)))
        .with_vms([(VmId(0), Hose::both(mbps(60))), (VmId(1), Hose::both(Rate::ZERO))])
        .with_directory([0, 0, 1, 1].into_iter().zip(0..).map(|(host, vm)| (VmId(vm), at(host))));
    policy.can.meters = true;
    policy
}

fn machine() -> Host {
    super::tests::host(&policy()).expect("sound")
}

fn handle(host: &mut Host, now: Time, input: Input<'_>) {
    let mut out = Outbox::default();
    host.handle(now, input, &mut out);
    assert!(out.is_empty(), "the data plane tells");
}

fn pair(src: u32, dst: u32) -> PairId {
    PairId::new(VmId(src), VmId(dst))
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn hear(eyeq: &mut Host, now: Time, pair: PairId, rate: Rate, times: u64) {
    let limits = vec![(pair, Told { rate, times })];
    handle(eyeq, now, Input::Observed(&Observed { limits, ..Observed::default() }));
}

fn seen(eyeq: &mut Host, now: Time, pair: PairId) {
    handle(eyeq, now, Input::Seen(pair, Direction::Send));
}

/// What was sent in all, a tick.
fn sent(eyeq: &mut Host, now: Time, counts: &[(PairId, u64)]) {
    let count = |octets| SendCount { octets, numbered: octets, ..SendCount::default() };
    let send = counts.iter().map(|(pair, octets)| (*pair, count(*octets))).collect();
    let sample = Observed { send, ..Observed::default() };
    handle(eyeq, now, Input::Observed(&sample));
    handle(eyeq, now, Input::Tick);
}

fn setting(eyeq: &mut Host, pair: PairId) -> Setting {
    eyeq.orders().pairs.get(pair).expect("it has levels")
}

#[test]
fn a_new_pair_has_the_line_and_its_part_of_the_floor_until_its_receiver_speaks() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(0, 2));
    assert_eq!(setting(&mut eyeq, pair(0, 2)), Setting { floor: mbps(60), ceiling: LINE });
    seen(&mut eyeq, at(1), pair(0, 3));
    for dst in [2, 3] {
        let want = Setting { floor: mbps(30), ceiling: LINE };
        assert_eq!(setting(&mut eyeq, pair(0, dst)), want);
    }
    hear(&mut eyeq, at(2), pair(0, 2), mbps(45), 1);
    hear(&mut eyeq, at(2), pair(0, 3), mbps(20), 1);
    let want = Setting { floor: mbps(30), ceiling: mbps(45) };
    assert_eq!(setting(&mut eyeq, pair(0, 2)), want);
    let want = Setting { floor: mbps(20), ceiling: mbps(20) };
    assert_eq!(setting(&mut eyeq, pair(0, 3)), want, "no floor above the limit");
}

#[test]
fn a_receiver_that_is_silent_while_octets_flow_halves_the_limit() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(0, 2));
    hear(&mut eyeq, at(0), pair(0, 2), mbps(40), 1);
    for n in 1..=12 {
        sent(&mut eyeq, at(n * 10), &[(pair(0, 2), n * 50_000)]);
        // The same word again is no news.
        hear(&mut eyeq, at(n * 10), pair(0, 2), mbps(40), 1);
    }
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(20));
    hear(&mut eyeq, at(130), pair(0, 2), mbps(40), 2);
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(40));
}

#[test]
fn what_an_adopted_pair_sent_before_did_not_go_unanswered() {
    let mut eyeq = machine();
    let left = Setting { floor: mbps(20), ceiling: mbps(40) };
    handle(&mut eyeq, at(0), Input::Adopt(pair(0, 2), left));
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(40), "the earlier life's word");
    // It had sent 9 MB, and goes on slowly: no 20 kB within 200 ms.
    for n in 1..=20 {
        sent(&mut eyeq, at(n * 10), &[(pair(0, 2), 9_000_000 + n * 900)]);
    }
    assert_eq!(eyeq.counters().halved, 0);
    let view = eyeq.pair(pair(0, 2)).and_then(|view| view.send).expect("it sends from here");
    assert_eq!(view.measured, Rate::of(Bytes::new(900), Span::from_millis(10)));
    // Silence while it does send is silence, as for any other.
    for n in 21..=25 {
        sent(&mut eyeq, at(n * 10), &[(pair(0, 2), 9_018_000 + (n - 20) * 50_000)]);
    }
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(20));
}

#[test]
fn who_sends_nothing_in_a_period_is_counted_as_before_and_silence_is_seen_while_nobody_sends() {
    let mut eyeq = machine();
    for dst in [2, 3] {
        seen(&mut eyeq, at(0), pair(0, dst));
        hear(&mut eyeq, at(0), pair(0, dst), mbps(40), 1);
    }
    let counts = [(pair(0, 2), 15_000), (pair(0, 3), 30_000)];
    for n in 1..=9 {
        sent(&mut eyeq, at(n * 10), &counts);
        let read = |dst: u32, eyeq: &mut Host| eyeq.pair(pair(0, dst))?.send;
        let measured = read(3, &mut eyeq).expect("it sends").measured;
        assert_eq!(measured.is_zero(), n > 1, "period {n}: {measured}");
    }
    // A reading between two ticks is not lost with the next one.
    let count = |octets| SendCount { octets, numbered: octets, ..SendCount::default() };
    let between = [(pair(0, 2), count(25_000)), (pair(0, 3), count(30_000))];
    let sample = Observed { send: between.to_vec(), ..Observed::default() };
    handle(&mut eyeq, at(95), Input::Observed(&sample));
    for n in 10..=11 {
        sent(&mut eyeq, at(n * 10), &[(pair(0, 2), 25_000), (pair(0, 3), 30_000)]);
    }
    for dst in [2, 3] {
        assert_eq!(setting(&mut eyeq, pair(0, dst)).ceiling, mbps(20), "to {dst}: 100 ms, 20 kB");
    }
}

#[test]
fn limits_of_who_spoke_and_of_new_pairs_are_read_and_no_others() {
    let mut eyeq = machine();
    for dst in [2, 3] {
        seen(&mut eyeq, at(0), pair(0, dst));
    }
    let both = [pair(0, 2), pair(0, 3)];
    assert_eq!(eyeq.limits_wanted(), both, "they may have spoken before");
    assert_eq!(eyeq.limits_wanted(), both, "to ask changes nothing");
    for pair in both {
        hear(&mut eyeq, at(0), pair, Rate::ZERO, 0);
    }
    assert_eq!(eyeq.limits_wanted(), []);
    hear(&mut eyeq, at(1), pair(0, 3), mbps(40), 1);
    assert_eq!(eyeq.limits_wanted(), [pair(0, 3)], "whether it speaks again is asked each time");
}

#[test]
fn a_pair_that_is_idle_goes_and_leaves_its_part_to_the_others() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(0, 2));
    seen(&mut eyeq, at(0), pair(0, 3));
    for n in 1..=320 {
        let counts = [(pair(0, 2), n * 50_000), (pair(0, 3), 1)];
        // What was forgotten is not shown until it speaks again.
        let shown = if n <= 300 { 2 } else { 1 };
        sent(&mut eyeq, at(n * 10), &counts[..shown]);
    }
    assert_eq!(eyeq.orders().pairs.take_forgotten(), [(pair(0, 3), Direction::Send)]);
    assert_eq!(setting(&mut eyeq, pair(0, 2)).floor, mbps(60));
    assert!(!eyeq.knows(pair(0, 3)));
}

#[test]
fn a_vm_without_a_floor_has_a_small_one_and_who_is_nobody_has_none() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(1, 2));
    assert_eq!(setting(&mut eyeq, pair(1, 2)), Setting { floor: OTHER, ceiling: LINE });
    seen(&mut eyeq, at(0), pair(9, 2));
    seen(&mut eyeq, at(0), pair(1, 9));
    assert_eq!(eyeq.counters().unknown_pairs, 2);
}

#[test]
fn shares_are_written_when_they_change_and_all_again_after_a_change_of_vms() {
    let mut eyeq = machine();
    let both = eyeq.orders().meters.take_changed();
    let idle = Receive { capacity: mbps(180), least: Rate::from_bps(18_000) };
    assert_eq!(both, [(VmId(0), Some(idle)), (VmId(1), Some(idle))], "less its headroom");
    assert!(eyeq.orders().meters.take_changed().is_empty());
    let mut next = policy();
    next.retain_vms(|vm| vm == VmId(0));
    handle(&mut eyeq, at(5), Input::Policy(&next));
    let changed = eyeq.orders().meters.take_changed();
    assert_eq!(changed, [(VmId(0), Some(idle)), (VmId(1), None)]);
}

#[test]
fn a_vm_that_moves_takes_its_pairs_limit_with_it() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(0, 2));
    hear(&mut eyeq, at(0), pair(0, 2), mbps(40), 1);
    let mut next = policy();
    next.directory.insert(VmId(2), Location { tenant: TenantId(0), host: HostId(7) });
    handle(&mut eyeq, at(5), Input::Policy(&next));
    assert!(!eyeq.knows(pair(0, 2)));
    seen(&mut eyeq, at(6), pair(0, 2));
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, LINE);
}

#[test]
fn it_ticks_while_something_is_sent_or_received_and_sleeps_else() {
    let mut eyeq = machine();
    assert_eq!(eyeq.next_deadline(), None);
    handle(&mut eyeq, at(1000), Input::Seen(pair(2, 0), Direction::Receive));
    assert!(eyeq.next_deadline().is_some_and(|(due, _)| due <= at(1000)));
    handle(&mut eyeq, at(1000), Input::Tick);
    assert!(eyeq.next_deadline().is_some_and(|(due, _)| due > at(1000)));
    let mut now = at(1000);
    while let Some((due, _)) = eyeq.next_deadline() {
        now = due;
        handle(&mut eyeq, now, Input::Tick);
    }
    let quiet = now.since(at(1000));
    assert!(
        quiet >= Span::from_millis(640),
        "longer than its meter takes to say so again: {quiet}"
    );
}
