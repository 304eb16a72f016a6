//! What a host's agent makes of losses, of marks, and of traffic in which neither shows.

use super::*;
use crate::host::{Location, ReceiveCount, SendCount};
use crate::mechanism::Law;
use crate::message::Backlog;
use crate::rate::Signal;
use weir_units::{Bytes, SortedMap, Span, TenantId};

const A: VmId = VmId(0);
const B: VmId = VmId(1);
const PAIR: PairId = PairId::new(A, B);
const FLOOR: Rate = Rate::from_mbps(300);
/// Between two readings, and two reports.
const STEP: Span = Span::from_millis(5);

/// What a VM does for a while: how much of it is numbered, and what the receiver reports of it every
/// 5 ms.
#[derive(Clone, Copy, Default)]
struct Traffic {
    /// Parts in a hundred that leave without a number.
    unnumbered: u64,
    lost: u32,
    marked: u32,
    /// Nothing of it passes the uplink, where numbers are given.
    no_number: bool,
    /// Parts in a hundred of what has a number that arrive where they are addressed.
    arrives: u64,
}

/// Host 0 with VM A, which sends all it may to VM B elsewhere.
struct Sender {
    agent: Machine,
    now: Time,
    count: SendCount,
    serial: u32,
    arrived: u64,
    round_trip: Option<Span>,
}

impl Sender {
    fn new(es: ElasticSwitch) -> Self {
        let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
        let hose = Hose::of(Rate::from_mbps(400), FLOOR);
        let config =
            Policy::new(HostId(0), Rate::from_mbps(1000), Law::ElasticSwitch(Box::new(es)))
                .with_vms(SortedMap::from([(A, hose)]))
                .with_directory(SortedMap::from([(A, at(0)), (B, at(1))]));
        let mut agent = Machine::of(config, Time::ZERO);
        let mut out = Outbox::default();
        agent.handle(Time::ZERO, Input::Seen(PAIR, Direction::Send), &mut out);
        let (count, round_trip) = (SendCount::default(), None);
        Self { agent, now: Time::ZERO, count, serial: 0, arrived: 0, round_trip }
    }

    fn with(signal: Signal) -> Self {
        let mut es = ElasticSwitch::default();
        es.rate.signal = signal;
        Self::new(es)
    }

    /// Goes on for `span`; returns the setting at its end.
    fn play(&mut self, span: Span, traffic: Traffic) -> Setting {
        let mut out = Outbox::default();
        for _ in 0..span.div_span(STEP) {
            self.now += STEP;
            let sent = self.setting().ceiling.bytes_in(STEP);
            self.count.octets += sent.get();
            if !traffic.no_number {
                let without = sent.get() * traffic.unnumbered / 100;
                self.count.unnumbered += without;
                self.count.numbered += sent.get() - without;
                self.count.segments = self.count.numbered / 1514;
            }
            let arrived = self.count.segments * traffic.arrives / 100;
            let received = (arrived - self.arrived.min(arrived)) as u32;
            self.arrived = arrived;
            let sample = Observed { send: vec![(PAIR, self.count)], ..Observed::default() };
            self.serial += 1;
            let offer = Offer {
                pair: PAIR,
                serial: self.serial,
                floor: FLOOR,
                unbounded: true,
                confirm: false,
                round_trip: self.round_trip,
            };
            let Traffic { lost, marked, .. } = traffic;
            let congestion = Congestion { pair: PAIR, lost, marked, received };
            for message in [Message::Offer(offer), Message::Congestion(congestion)] {
                self.agent.handle(self.now, Input::Message(HostId(1), message), &mut out);
            }
            self.agent.handle(self.now, Input::Observed(&sample), &mut out);
            self.agent.handle(self.now, Input::Tick, &mut out);
        }
        self.setting()
    }

    fn setting(&mut self) -> Setting {
        self.agent.orders(self.now).pairs.get(PAIR).expect("active")
    }

    fn view(&mut self) -> SendView {
        self.agent.pair(self.now, PAIR).and_then(|v| v.send).expect("active")
    }
}

const WHILE: Span = Span::from_secs(3);
const QUIET: Traffic =
    Traffic { unnumbered: 0, lost: 0, marked: 0, no_number: false, arrives: 100 };

#[test]
fn marks_cut_where_they_are_the_signal_and_mean_nothing_where_they_are_not() {
    let marked = Traffic { marked: 50, ..QUIET };
    for (signal, heeds) in [(Signal::Loss, false), (Signal::Ecn, true)] {
        let mut sender = Sender::with(signal);
        assert!(sender.play(WHILE, QUIET).ceiling > Rate::from_mbps(500));
        let after = sender.play(Span::from_millis(300), marked);
        assert_eq!(after.ceiling == FLOOR, heeds, "{signal:?}: {after:?}");
        assert_eq!(after.floor, FLOOR);
        let view = sender.view();
        assert_eq!((view.marked > 0, view.lost, view.law.cuts > 0), (true, 0, heeds), "{signal:?}");
    }
}

#[test]
fn a_loss_is_congestion_whatever_the_signal() {
    for signal in [Signal::Loss, Signal::Ecn] {
        let mut sender = Sender::with(signal);
        sender.play(WHILE, QUIET);
        let after = sender.play(Span::from_millis(300), Traffic { lost: 5, ..QUIET });
        assert_eq!(after.ceiling, FLOOR, "{signal:?}");
    }
}

#[test]
fn a_loss_takes_more_than_marks_where_the_preset_says_so() {
    let after = |traffic| {
        let mut sender = Sender::new(ElasticSwitch::preset("steady-ecn").expect("listed"));
        sender.play(WHILE, QUIET);
        sender.play(Span::from_millis(15), traffic).ceiling
    };
    let (marked, lost) =
        (after(Traffic { marked: 9, ..QUIET }), after(Traffic { lost: 1, marked: 9, ..QUIET }));
    assert!(lost < marked.scale(0.8), "{lost} after a loss, {marked} after marks");
}

#[test]
fn a_pair_in_which_losses_do_not_show_may_not_borrow_on_their_absence() {
    for (unnumbered, borrows) in [(100, false), (50, false), (20, false), (10, true), (0, true)] {
        let mut sender = Sender::with(Signal::Loss);
        let setting = sender.play(WHILE, Traffic { unnumbered, ..QUIET });
        assert_eq!(setting.ceiling > FLOOR, borrows, "{unnumbered} % without numbers: {setting:?}");
        assert_eq!(sender.view().blind, (!borrows).then_some(Blind::Unnumbered));
    }
}

#[test]
fn where_marks_are_the_signal_a_pair_without_numbers_borrows_like_any_other() {
    let mut sender = Sender::with(Signal::Ecn);
    let setting = sender.play(WHILE, Traffic { unnumbered: 100, ..QUIET });
    assert!(setting.ceiling > Rate::from_mbps(500), "{setting:?}");
    assert_eq!(sender.view().blind, None);
}

#[test]
fn what_was_borrowed_goes_back_when_losses_stop_to_show_and_comes_again_with_them() {
    let mut sender = Sender::with(Signal::Loss);
    assert!(sender.play(WHILE, QUIET).ceiling > Rate::from_mbps(500));
    let blind = sender.play(Span::from_millis(500), Traffic { unnumbered: 100, ..QUIET });
    assert!(blind.ceiling < FLOOR.scale(1.01), "{blind:?}");
    assert!(sender.play(WHILE, QUIET).ceiling > Rate::from_mbps(400));
}

#[test]
fn a_pair_within_the_host_has_no_network_and_borrows() {
    let mut pair = SendPair::new(Time::ZERO, HoseKey::Tenant, FLOOR);
    for octets in [0, 10_000_000] {
        pair.count(Time::ZERO, SendCount { octets, ..SendCount::default() });
    }
    let long = Span::from_secs(60);
    pair.look_for_blindness(long, true);
    assert!(!pair.is_blind(Signal::Loss));
    pair.look_for_blindness(Span::from_millis(10), false);
    assert!(!pair.is_blind(Signal::Loss), "what waits in its queue may leave yet");
    pair.look_for_blindness(long, false);
    assert_eq!(pair.blind, Some(Blind::Unseen), "between hosts it would not be seen");
}

#[test]
fn a_pair_that_leaves_where_nothing_numbers_it_does_not_borrow() {
    let mut sender = Sender::with(Signal::Loss);
    assert!(sender.play(WHILE, QUIET).ceiling > Rate::from_mbps(500));
    let unseen = Traffic { no_number: true, ..QUIET };
    let setting = sender.play(WHILE, unseen);
    assert_eq!((setting.ceiling, sender.view().blind), (FLOOR, Some(Blind::Unseen)));
    assert!(sender.play(WHILE, QUIET).ceiling > Rate::from_mbps(400), "and again when it is seen");
    let mut sender = Sender::with(Signal::Ecn);
    assert!(sender.play(WHILE, unseen).ceiling > Rate::from_mbps(500), "marks show anywhere");
}

/// A receiver takes any identification for a number of ours.
#[test]
fn a_pair_whose_packets_were_never_numbered_does_not_borrow_and_loses_nothing() {
    let mut sender = Sender::with(Signal::Loss);
    let unseen = Traffic { no_number: true, lost: 3, ..QUIET };
    let setting = sender.play(WHILE, unseen);
    assert_eq!((setting.ceiling, sender.view().blind), (FLOOR, Some(Blind::Unseen)));
    assert_eq!((sender.view().lost, sender.view().unfounded), (0, 3 * WHILE.div_span(STEP)));
    // Once numbered, what is reported lost is.
    sender.play(WHILE, QUIET);
    sender.play(STEP * 2, Traffic { lost: 3, ..QUIET });
    assert_eq!(sender.view().lost, 6);
}

/// The receiver's side, where the pair's packets have the identification that the guest gave them.
#[test]
fn what_seems_lost_of_a_pair_that_its_source_knows_nothing_of_is_not_told_as_lost() {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let config = Policy::new(HostId(1), Rate::from_mbps(1000), Law::ElasticSwitch(Box::default()))
        .with_vms(SortedMap::from([(B, Hose::of(FLOOR, FLOOR))]))
        .with_directory(SortedMap::from([(A, at(0)), (B, at(1))]));
    let mut agent = Machine::of(config, Time::ZERO);
    let (mut out, mut count) = (Outbox::default(), ReceiveCount::default());
    let mut receive = |agent: &mut Machine, ms: u64| {
        let now = Time::ZERO + Span::from_millis(ms);
        (count.octets, count.lost) = (count.octets + 15_140, count.lost + 10);
        let sample = Observed { receive: vec![(PAIR, count)], ..Observed::default() };
        agent.handle(now, Input::Observed(&sample), &mut Outbox::default());
        agent.handle(now, Input::Tick, &mut Outbox::default());
    };
    let told = |agent: &mut Machine, ms| {
        let view = agent.pair(Time::ZERO + Span::from_millis(ms), PAIR);
        let view = view.and_then(|v| v.receive).expect("active");
        (view.lost, view.unfounded)
    };
    agent.handle(Time::ZERO, Input::Seen(PAIR, Direction::Receive), &mut out);
    (1..=3).for_each(|n| receive(&mut agent, n * 20));
    assert_eq!(told(&mut agent, 60), (20, 0), "nobody has said anything yet");
    let answer = |agent: &mut Machine, holds: bool| {
        let now = Time::ZERO + Span::from_millis(60);
        let offer = agent.pair(now, PAIR).and_then(|v| v.receive?.offered).expect("offered");
        let (floor, most) = if holds { (offer.floor, Some(FLOOR)) } else { (Rate::ZERO, None) };
        let echo =
            Echo { pair: PAIR, serial: offer.serial, floor, most, backlog: Backlog::Unknown };
        agent.handle(now, Input::Message(HostId(0), Message::Echo(echo)), &mut Outbox::default());
    };
    answer(&mut agent, false);
    receive(&mut agent, 80);
    assert_eq!(told(&mut agent, 80), (0, 30));
    answer(&mut agent, true);
    receive(&mut agent, 100);
    assert_eq!(told(&mut agent, 100), (10, 30), "it is numbered by now");
}

#[test]
fn a_pair_whose_packets_do_not_arrive_where_they_are_addressed_does_not_borrow() {
    let mut sender = Sender::with(Signal::Loss);
    assert!(sender.play(WHILE, QUIET).ceiling > Rate::from_mbps(500));
    let misdirected = Traffic { arrives: 1, ..QUIET };
    let setting = sender.play(Span::from_secs(10), misdirected);
    assert_eq!((setting.ceiling, sender.view().blind), (FLOOR, Some(Blind::Hidden)));
    assert!(sender.view().hidden > 100_000);
    let setting = sender.play(Span::from_secs(20), QUIET);
    assert!(setting.ceiling > Rate::from_mbps(400), "believed again: {setting:?}");
}

#[test]
fn seawall_takes_no_notice_of_floors_and_divides_a_vms_weight_over_its_pairs() {
    let mut sender = Sender::new(ElasticSwitch::seawall());
    let alone = sender.play(Span::from_millis(600), QUIET);
    assert_eq!(alone.floor, LEAST_PAIR_RATE, "offered 300 Mb/s, promised nothing");
    assert!(sender.view().is_weighted);
    let low = sender.play(WHILE, Traffic { lost: 1, ..QUIET });
    assert_eq!(low.ceiling, LEAST_PAIR_RATE, "nothing keeps a rate up");

    // A second destination takes half of the weight, and so half of the growth.
    let mut shared = Sender::new(ElasticSwitch::seawall());
    let second = PairId::new(A, VmId(2));
    let at = Location { tenant: TenantId(0), host: HostId(1) };
    shared.agent.policy.directory.insert(second.dst, at);
    shared.agent.handle(Time::ZERO, Input::Seen(second, Direction::Send), &mut Outbox::default());
    let half = shared.play(Span::from_millis(600), QUIET);
    let start = Rate::from_mbps(400).split(64);
    let growth = |s: Setting| s.ceiling.saturating_sub(start).as_f64();
    let ratio = growth(half) / growth(alone);
    assert!((0.4..0.6).contains(&ratio), "{half:?} where a pair alone has {alone:?}");
}

/// Plays the receiver of a pair that is marked from the second reading on; returns what its data plane is told
/// of it.
fn offer_of_marked(es: ElasticSwitch) -> Option<Rate> {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let config = Policy::new(HostId(1), Rate::from_mbps(1000), Law::ElasticSwitch(Box::new(es)))
        .with_vms(SortedMap::from([(B, Hose::of(Rate::from_mbps(400), FLOOR))]))
        .with_directory(SortedMap::from([(A, at(0)), (B, at(1))]));
    let mut agent = Machine::of(config, Time::ZERO);
    let (mut out, mut now, mut count) = (Outbox::default(), Time::ZERO, ReceiveCount::default());
    agent.handle(now, Input::Seen(PAIR, Direction::Receive), &mut out);
    for n in 0..100 {
        now += STEP;
        count.octets += 100_000;
        count.segments += 70;
        count.marked += if n > 0 { 10 } else { 0 };
        let sample = Observed { receive: vec![(PAIR, count)], ..Observed::default() };
        agent.handle(now, Input::Observed(&sample), &mut out);
        if n == 0 {
            assert_eq!(agent.orders(now).offers.get(PAIR), None, "it shows no mark yet");
        }
        agent.handle(now, Input::Tick, &mut out);
    }
    let offered = agent.receive[&PAIR].offered.expect("it was offered something").floor;
    let told = agent.orders(now).offers.get(PAIR);
    assert!(told.is_none_or(|told| told == offered), "{told:?}, offered {offered}");
    agent.forget(PAIR, Direction::Receive);
    assert_eq!(agent.orders(now).offers.get(PAIR), None, "over");
    told
}

#[test]
fn the_offer_of_a_pair_that_shows_marks_is_told_where_guests_answer_marks() {
    let with = |signal| {
        let mut es = ElasticSwitch::default();
        es.rate.signal = signal;
        offer_of_marked(es)
    };
    assert!(with(Signal::Loss).is_some_and(|offer| offer > Rate::from_mbps(100)));
    assert_eq!(with(Signal::Ecn), None, "no guest sees any");
    assert_eq!(offer_of_marked(ElasticSwitch::seawall()), None, "no floors");
}

#[test]
fn the_queue_of_a_large_floor_holds_more_while_its_path_is_long_and_it_does_not_borrow() {
    let mut sender = Sender::new(ElasticSwitch::preset("steady").expect("listed"));
    let mut room = |ms: Option<u64>| {
        sender.round_trip = ms.map(Span::from_millis);
        sender.play(Span::from_millis(100), Traffic { lost: 1, ..QUIET });
        sender.agent.orders(sender.now).rooms.get(PAIR)
    };
    assert_eq!([room(None), room(Some(5))], [None; 2]);
    // 20 ms of 300 Mbit/s are 5.7 times 128 KiB.
    assert_eq!(room(Some(10)), Some(Bytes::new(5 * 128 * 1024)));
    assert_eq!(room(Some(1)), None);

    room(Some(10));
    let setting = sender.play(Span::from_secs(200), QUIET);
    assert!(setting.ceiling > FLOOR.scale(1.1));
    assert_eq!(sender.agent.orders(sender.now).rooms.get(PAIR), None, "it borrows");

    sender.play(Span::from_millis(100), Traffic { lost: 1, ..QUIET });
    sender.agent.orders(sender.now).rooms.take_changed();
    let mut without = sender.agent.policy.clone();
    without.retain_vms(|_| false);
    sender.agent.handle(sender.now, Input::Policy(&without), &mut Outbox::default());
    let changed = sender.agent.orders(sender.now).rooms.take_changed();
    assert_eq!(changed, [(PAIR, None)], "a pair that is over has none");
}
