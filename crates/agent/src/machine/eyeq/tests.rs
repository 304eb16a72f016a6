use super::*;
use weir_core::eyeq::{Backend, EyeQ as Law, VmBounds};
use weir_core::host::Location;
use weir_units::{HostId, Span, TenantId};

const LINE: Rate = Rate::from_mbps(200);
const OTHER: Rate = Rate::from_mbps(1);

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

/// VMs 0 (60 Mb/s) and 1 (no floor) are here, 2 and 3 elsewhere.
fn config() -> HostConfig {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    HostConfig {
        host: HostId(0),
        line: LINE,
        fastest_line: LINE,
        eyeq: Law::default().for_link(LINE, Span::from_millis(1), Backend::Agent),
        vms: [(VmId(0), VmBounds::both(mbps(60))), (VmId(1), VmBounds::both(Rate::ZERO))].into(),
        directory: [(VmId(0), at(0)), (VmId(1), at(0)), (VmId(2), at(1)), (VmId(3), at(1))].into(),
    }
}

fn machine() -> EyeQ {
    EyeQ::new(config(), OTHER, Time::ZERO).expect("sound")
}

fn pair(src: u32, dst: u32) -> PairId {
    PairId::new(VmId(src), VmId(dst))
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn told(rate: Rate, told: u64) -> intf::Limit {
    intf::Limit { rate_bps: rate.as_bps(), told, ..intf::Limit::default() }
}

fn seen(eyeq: &mut EyeQ, now: Time, pair: PairId) {
    eyeq.handle(now, host::Input::Seen(pair, Direction::Send));
}

/// What was sent in all, a tick.
fn sent(eyeq: &mut EyeQ, now: Time, counts: &[(PairId, u64)]) {
    let count = |octets| SendCount { octets, numbered: octets, ..SendCount::default() };
    let send = counts.iter().map(|(pair, octets)| (*pair, count(*octets))).collect();
    let sample = host::Sample { send, receive: Vec::new() };
    eyeq.handle(now, host::Input::Sample(&sample));
    eyeq.handle(now, host::Input::Tick);
}

fn setting(eyeq: &mut EyeQ, pair: PairId) -> Setting {
    eyeq.desired().get(pair).expect("it has levels")
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
    eyeq.hear(at(2), pair(0, 2), &told(mbps(45), 1));
    eyeq.hear(at(2), pair(0, 3), &told(mbps(20), 1));
    let want = Setting { floor: mbps(30), ceiling: mbps(45) };
    assert_eq!(setting(&mut eyeq, pair(0, 2)), want);
    let want = Setting { floor: mbps(20), ceiling: mbps(20) };
    assert_eq!(setting(&mut eyeq, pair(0, 3)), want, "no floor above the limit");
}

#[test]
fn a_receiver_that_is_silent_while_octets_flow_halves_the_limit() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(0, 2));
    eyeq.hear(at(0), pair(0, 2), &told(mbps(40), 1));
    for n in 1..=12 {
        sent(&mut eyeq, at(n * 10), &[(pair(0, 2), n * 50_000)]);
        // The same word again is no news.
        eyeq.hear(at(n * 10), pair(0, 2), &told(mbps(40), 1));
    }
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(20));
    eyeq.hear(at(130), pair(0, 2), &told(mbps(40), 2));
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(40));
}

#[test]
fn what_an_adopted_pair_sent_before_did_not_go_unanswered() {
    let mut eyeq = machine();
    let left = Setting { floor: mbps(20), ceiling: mbps(40) };
    eyeq.handle(at(0), host::Input::Adopt(pair(0, 2), left));
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, mbps(40), "the earlier life's word");
    // It had sent 9 MB, and goes on slowly: no 20 kB within 200 ms.
    for n in 1..=20 {
        sent(&mut eyeq, at(n * 10), &[(pair(0, 2), 9_000_000 + n * 900)]);
    }
    assert_eq!(eyeq.host.counters().halved, 0);
    let view = eyeq.view(pair(0, 2)).and_then(|view| view.send).expect("it sends from here");
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
        eyeq.hear(at(0), pair(0, dst), &told(mbps(40), 1));
    }
    let counts = [(pair(0, 2), 15_000), (pair(0, 3), 30_000)];
    for n in 1..=9 {
        sent(&mut eyeq, at(n * 10), &counts);
        let read = |dst: u32, eyeq: &mut EyeQ| eyeq.view(pair(0, dst))?.send;
        let measured = read(3, &mut eyeq).expect("it sends").measured;
        assert_eq!(measured.is_zero(), n > 1, "period {n}: {measured}");
    }
    // A reading between two ticks is not lost with the next one.
    let count = |octets| SendCount { octets, numbered: octets, ..SendCount::default() };
    let between = [(pair(0, 2), count(25_000)), (pair(0, 3), count(30_000))];
    let sample = host::Sample { send: between.to_vec(), receive: Vec::new() };
    eyeq.handle(at(95), host::Input::Sample(&sample));
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
    assert_eq!(eyeq.take_asked(), [pair(0, 2), pair(0, 3)], "they may have spoken before");
    assert_eq!(eyeq.take_asked(), []);
    eyeq.hear(at(1), pair(0, 3), &told(mbps(40), 1));
    assert_eq!(eyeq.take_asked(), [pair(0, 3)]);
    assert_eq!(eyeq.take_asked(), [pair(0, 3)], "whether it speaks again is asked each time");
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
    assert_eq!(eyeq.desired().take_forgotten(), [(pair(0, 3), Direction::Send)]);
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
    assert_eq!(eyeq.unknown_pairs, 2);
}

#[test]
fn shares_are_written_when_they_change_and_all_again_after_a_change_of_vms() {
    let mut eyeq = machine();
    let parts = |shares: Vec<(VmId, Part, intf::Share)>| -> Vec<(u32, Part)> {
        shares.into_iter().map(|(vm, part, _)| (vm.0, part)).collect()
    };
    let (own, strangers) = (Part::Own, Part::Strangers);
    let first = eyeq.take_shares();
    for (_, _, share) in &first[..2] {
        assert_eq!(share.capacity_bps, 180_000_000, "an idle link, less its headroom");
    }
    assert_eq!(parts(first), [(0, own), (0, strangers), (1, own), (1, strangers)]);
    assert!(eyeq.take_shares().is_empty());
    let hose = |floor| host::Hose { floor_out: floor, floor_in: floor };
    let next = host::HostConfig {
        host: HostId(0),
        line: LINE,
        mechanism: host::Mechanism::Reservation { rates: BTreeMap::new(), other: OTHER },
        vms: [(VmId(0), hose(mbps(60)))].into(),
        directory: config().directory,
    };
    eyeq.handle(at(5), host::Input::Population(&next));
    assert_eq!(parts(eyeq.take_shares()), [(0, own), (0, strangers)]);
}

#[test]
fn a_vm_that_moves_takes_its_pairs_limit_with_it() {
    let mut eyeq = machine();
    seen(&mut eyeq, at(0), pair(0, 2));
    eyeq.hear(at(0), pair(0, 2), &told(mbps(40), 1));
    let mut directory = config().directory;
    directory.insert(VmId(2), Location { tenant: TenantId(0), host: HostId(7) });
    let hose = |floor| host::Hose { floor_out: floor, floor_in: floor };
    let next = host::HostConfig {
        host: HostId(0),
        line: LINE,
        mechanism: host::Mechanism::Reservation { rates: BTreeMap::new(), other: OTHER },
        vms: [(VmId(0), hose(mbps(60)))].into(),
        directory,
    };
    eyeq.handle(at(5), host::Input::Population(&next));
    assert!(!eyeq.knows(pair(0, 2)));
    seen(&mut eyeq, at(6), pair(0, 2));
    assert_eq!(setting(&mut eyeq, pair(0, 2)).ceiling, LINE);
}

#[test]
fn it_ticks_while_something_is_sent_or_received_and_sleeps_else() {
    let mut eyeq = machine();
    assert_eq!(eyeq.next_deadline(), None);
    eyeq.handle(at(1000), host::Input::Seen(pair(2, 0), Direction::Receive));
    assert!(eyeq.next_deadline().is_some_and(|due| due <= at(1000)));
    eyeq.handle(at(1000), host::Input::Tick);
    assert!(eyeq.next_deadline().is_some_and(|due| due > at(1000)));
    let mut now = at(1000);
    while let Some(due) = eyeq.next_deadline() {
        now = due;
        eyeq.handle(now, host::Input::Tick);
    }
    let quiet = now.since(at(1000));
    assert!(
        quiet >= Span::from_millis(640),
        "longer than its meter takes to say so again: {quiet}"
    );
}
