use super::periods::next_period;
use super::*;
use crate::host::{Location, Pairs, ReceiveCount, SendCount};
use crate::mechanism::Law;
use crate::message::{Backlog, Offer};
use weir_units::{SortedMap, Span, TenantId};

const A: VmId = VmId(0);
const B: VmId = VmId(1);
const STRANGER: VmId = VmId(2);
const PAIR: PairId = PairId::new(A, B);
const BACK: PairId = PairId::new(B, A);

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Host 0 has VM A, host 1 has VM B of the same tenant, host 2 a stranger.
fn agent(host: u32) -> Machine {
    let tenant = |t| TenantId(t);
    let directory = SortedMap::from([
        (A, Location { tenant: tenant(0), host: HostId(0) }),
        (B, Location { tenant: tenant(0), host: HostId(1) }),
        (STRANGER, Location { tenant: tenant(1), host: HostId(2) }),
    ]);
    let hose = Hose::of(mbps(400), mbps(300));
    let config = Policy::new(HostId(host), mbps(1000), Law::ElasticSwitch(Box::default()))
        .with_vms(SortedMap::from([(VmId(host), hose)]))
        .with_directory(directory);
    Machine::of(config, Time::ZERO)
}

fn sample(octets: u64, lost: u64) -> Observed {
    let count = ReceiveCount { octets, segments: octets / 1514, lost, ..ReceiveCount::default() };
    Observed { receive: vec![(PAIR, count)], ..Observed::default() }
}

#[test]
fn a_new_pair_starts_small_and_takes_what_the_receiver_offers() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    let start = agent.orders(ms(0)).pairs.get(PAIR).expect("a setting at once");
    assert_eq!(start.floor, mbps(400).split(64));

    let offer = Offer {
        pair: PAIR,
        serial: 1,
        floor: mbps(2),
        unbounded: true,
        confirm: true,
        round_trip: None,
    };
    agent.handle(ms(1), Input::Message(HostId(1), Message::Offer(offer)), &mut out);
    assert_eq!(agent.orders(ms(1)).pairs.get(PAIR).map(|s| s.floor), Some(mbps(2)));
    let echo =
        Echo { pair: PAIR, serial: 1, floor: mbps(2), most: None, backlog: Backlog::Unknown };
    assert_eq!(out.take(), vec![(HostId(1), Message::Echo(echo))]);
}

#[test]
fn a_receiver_offers_at_the_first_packet_and_again_every_period() {
    let mut agent = agent(1);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Receive), &mut out);
    let offers = |messages: Vec<(HostId, Message)>| {
        messages.iter().filter(|(to, m)| *to == HostId(0) && matches!(m, Message::Offer(_))).count()
    };
    assert_eq!(offers(out.take()), 1);
    let mut sent = 0;
    for i in 1..=200 {
        agent.handle(ms(i * 5), Input::Observed(&sample(i * 100_000, 0)), &mut out);
        agent.handle(ms(i * 5), Input::Tick, &mut out);
        sent += offers(out.take());
    }
    // One second: 16.7 per second and pair (ElasticSwitch §7.3), and a few as the estimate doubles.
    assert!((16..=26).contains(&sent), "{sent} offers in a second");
}

#[test]
fn losses_are_reported_at_once_and_once() {
    let mut agent = agent(1);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Receive), &mut out);
    agent.handle(ms(5), Input::Observed(&sample(15_140, 0)), &mut out);
    out.take();
    agent.handle(ms(10), Input::Observed(&sample(30_280, 4)), &mut out);
    let report = Congestion { pair: PAIR, lost: 4, marked: 0, received: 20 };
    let reported = Message::Congestion(Congestion { received: 10, ..report });
    assert_eq!(out.take(), vec![(HostId(0), reported)]);
    agent.handle(ms(15), Input::Observed(&sample(45_420, 4)), &mut out);
    assert_eq!(out.take(), vec![]);
}

#[test]
fn reports_keep_their_distance_and_lose_nothing() {
    let mut agent = agent(1);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Receive), &mut out);
    let mut reported = 0;
    let mut messages = 0;
    for i in 0..100u64 {
        let now = Time::from_nanos(1_000_000 + i * 100_000);
        agent.handle(now, Input::Observed(&sample(i * 1514, i)), &mut out);
        for (_, message) in out.take() {
            if let Message::Congestion(c) = message {
                reported += c.lost;
                messages += 1;
            }
        }
    }
    assert!(messages <= 20, "at most one per 0.5 ms in 10 ms");
    assert!(reported >= 95, "{reported} of 99 losses reported");
}

#[test]
fn a_loss_cuts_what_is_borrowed_and_never_the_floor() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    let mut octets = 0;
    let mut serial = 0;
    let mut play = |agent: &mut Machine, from: u64, lost: u32| {
        for i in 1..=60 {
            let now = ms(from + i * 5);
            let ceiling = agent.orders(now).pairs.get(PAIR).expect("active").ceiling;
            octets += ceiling.bytes_in(Span::from_millis(5)).get();
            let send = vec![(PAIR, SendCount { octets, numbered: octets, ..SendCount::default() })];
            serial += 1;
            let offer = Offer {
                pair: PAIR,
                serial,
                floor: mbps(300),
                unbounded: true,
                confirm: false,
                round_trip: None,
            };
            agent.handle(now, Input::Message(HostId(1), Message::Offer(offer)), &mut out);
            if lost > 0 {
                let c = Congestion { pair: PAIR, lost, marked: 0, received: 100 };
                agent.handle(now, Input::Message(HostId(1), Message::Congestion(c)), &mut out);
            }
            agent.handle(now, Input::Observed(&Observed { send, ..Observed::default() }), &mut out);
            agent.handle(now, Input::Tick, &mut out);
            let setting = agent.orders(now).pairs.get(PAIR).expect("active");
            assert!(setting.ceiling >= setting.floor);
        }
        agent.orders(ms(from + 300)).pairs.get(PAIR).expect("active")
    };
    for i in 0..8 {
        play(&mut agent, i * 300, 0);
    }
    let grown = play(&mut agent, 2400, 0);
    assert!(grown.ceiling > mbps(500), "{grown:?}");
    let cut = play(&mut agent, 2700, 5);
    assert_eq!(cut.ceiling, cut.floor);
    assert_eq!(cut.floor, mbps(300));
}

#[test]
fn messages_from_the_wrong_host_or_about_nothing_are_counted_and_ignored() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    let offer = Offer {
        pair: PAIR,
        serial: 1,
        floor: mbps(9),
        unbounded: true,
        confirm: false,
        round_trip: None,
    };
    agent.handle(ms(0), Input::Message(HostId(1), Message::Offer(offer)), &mut out);
    assert_eq!(agent.counters().strayed, 1, "no such pair yet");
    agent.handle(ms(1), Input::Seen(PAIR, Direction::Send), &mut out);
    let before = agent.orders(ms(1)).pairs.get(PAIR);
    agent.handle(ms(2), Input::Message(HostId(2), Message::Offer(offer)), &mut out);
    let echo = Message::Echo(Echo {
        pair: PAIR,
        serial: 1,
        floor: mbps(9),
        most: None,
        backlog: Backlog::Unknown,
    });
    agent.handle(ms(2), Input::Message(HostId(1), echo), &mut out);
    assert_eq!(agent.counters().misdirected, 2);
    assert_eq!(agent.orders(ms(2)).pairs.get(PAIR), before);
}

#[test]
fn traffic_to_another_tenant_lives_on_the_small_default_hose() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    let pair = PairId::new(A, STRANGER);
    agent.handle(ms(0), Input::Seen(pair, Direction::Send), &mut out);
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    assert!(agent.orders(ms(0)).pairs.get(pair).expect("active").floor <= mbps(1));
    assert_eq!(agent.pair(ms(0), pair).expect("active").hose, HoseKey::Default);
    // It takes nothing of the tenant's hose.
    assert_eq!(agent.orders(ms(0)).pairs.get(PAIR).expect("active").floor, mbps(400).split(64));
}

#[test]
fn counters_are_wanted_when_they_are_needed_and_not_more_often() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    let both = Wanted { send: true, receive: true };
    let send = Wanted { send: true, receive: false };
    let mut wanted = Vec::new();
    let mut now = ms(0);
    while now < ms(240) {
        let (at, _) = agent.next_deadline().expect("a pair");
        now = now.max(at);
        wanted.push((now, agent.wants(now)));
        let counts = vec![(
            PAIR,
            SendCount { octets: now.as_nanos(), numbered: now.as_nanos(), ..SendCount::default() },
        )];
        let sample = Observed { send: counts, ..Observed::default() };
        agent.handle(now, Input::Observed(&sample), &mut out);
        agent.handle(now, Input::Tick, &mut out);
    }
    assert_eq!(wanted.iter().filter(|(_, w)| *w == both).count(), 4, "60 ms: {wanted:?}");
    assert_eq!(wanted.iter().filter(|(_, w)| *w == send).count(), 13, "15 ms: {wanted:?}");

    // Losses are looked for every 5 ms once something is received.
    agent.handle(now, Input::Seen(BACK, Direction::Receive), &mut out);
    let looked: Vec<bool> =
        (1..=12).map(|i| agent_wants(&mut agent, now + Span::from_millis(5 * i)).receive).collect();
    assert_eq!(looked, [true; 12]);
}

#[test]
fn what_a_new_pair_sends_counts_from_the_next_look_not_the_next_period() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    agent.handle(ms(0), Input::Observed(&Observed::default()), &mut out);
    agent.handle(ms(0), Input::Tick, &mut out);
    assert!(agent.wants(ms(5)).send, "it was not in the last reading");
    assert!(agent.next_deadline().is_some_and(|(at, _)| at <= ms(5)));
}

fn agent_wants(agent: &mut Machine, now: Time) -> Wanted {
    let wanted = agent.wants(now);
    agent.handle(now, Input::Tick, &mut Outbox::default());
    wanted
}

#[test]
fn an_idle_pair_is_forgotten_and_its_class_given_back() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    let mut forgotten = Vec::new();
    for i in 1..2000 {
        let now = ms(i * 5);
        agent.handle(now, Input::Tick, &mut out);
        forgotten.extend(agent.orders(now).pairs.take_forgotten());
    }
    assert_eq!(forgotten, vec![(PAIR, Direction::Send)]);
    assert_eq!(agent.next_deadline(), None);
    assert!(agent.orders(ms(10_000)).pairs.get(PAIR).is_none());
}

#[test]
fn a_late_driver_skips_periods_and_does_not_catch_up() {
    let period = Span::from_millis(15);
    assert_eq!(next_period(ms(15), period, ms(15)), ms(30));
    assert_eq!(next_period(ms(15), period, ms(100)), ms(105));
}

#[test]
fn a_ceiling_that_grows_a_little_is_written_once_it_has_grown_by_a_64th() {
    let mut desired = Pairs::default();
    let at = |ceiling| Setting { floor: mbps(1), ceiling: Rate::from_bps(ceiling) };
    desired.grow(PAIR, at(64_000_000));
    assert_eq!(desired.take_changed().len(), 1);
    desired.grow(PAIR, at(64_999_999));
    assert_eq!(desired.take_changed(), vec![]);
    desired.grow(PAIR, at(65_000_000));
    assert_eq!(desired.take_changed(), vec![(PAIR, at(65_000_000))]);
    desired.grow(PAIR, at(64_999_999));
    assert_eq!(desired.take_changed(), vec![(PAIR, at(64_999_999))], "a cut is never too small");
}

#[test]
fn an_adopted_pair_keeps_its_floor_until_the_receiver_speaks() {
    let mut agent = agent(0);
    let mut out = Outbox::default();
    let found = Setting { floor: mbps(250), ceiling: mbps(300) };
    agent.handle(ms(10_000), Input::Adopt(PAIR, found), &mut out);
    assert_eq!(agent.orders(ms(10_000)).pairs.get(PAIR), Some(found));
    agent.handle(ms(10_001), Input::Seen(PAIR, Direction::Send), &mut out);
    assert_eq!(agent.orders(ms(10_001)).pairs.get(PAIR), Some(found), "seen again is no news");

    // Any serial of the receiver is newer than what was found.
    let offer = Offer {
        pair: PAIR,
        serial: 7,
        floor: mbps(100),
        unbounded: true,
        confirm: false,
        round_trip: None,
    };
    agent.handle(ms(10_002), Input::Message(HostId(1), Message::Offer(offer)), &mut out);
    assert_eq!(agent.orders(ms(10_002)).pairs.get(PAIR).map(|s| s.floor), Some(mbps(100)));
}

#[test]
fn a_vm_that_talks_to_thousands_gets_no_thousand_least_rates() {
    let mut config = agent(0).policy;
    for i in 10..5000 {
        config.directory.insert(VmId(i), Location { tenant: TenantId(0), host: HostId(1) });
    }
    let mut agent = Machine::of(config, Time::ZERO);
    let mut out = Outbox::default();
    for i in 10..5000 {
        agent.handle(ms(1), Input::Seen(PairId::new(A, VmId(i)), Direction::Send), &mut out);
    }
    let queues = agent.orders(ms(1)).pairs.iter().count() as u64;
    assert!(queues <= 4096 && queues * 64_000 <= mbps(400).as_bps(), "{queues} queues");
    assert_eq!(agent.counters().refused_pairs, 4990 - queues);
}

#[test]
fn serials_of_a_second_life_are_newer() {
    let offer_of = |start: Time| {
        let mut config = agent(1).policy;
        config.host = HostId(1);
        let mut agent = Machine::of(config, start);
        let mut out = Outbox::default();
        agent.handle(start, Input::Seen(PAIR, Direction::Receive), &mut out);
        match out.take()[..] {
            [(_, Message::Offer(offer))] => offer.serial,
            ref other => panic!("{other:?}"),
        }
    };
    assert!(offer_of(ms(60_000)) > offer_of(ms(1_000)) + 50_000);
}

#[test]
fn a_restarted_receiver_goes_on_with_what_its_senders_tell() {
    let (mut sender, mut out) = (agent(0), Outbox::default());
    sender.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    let offer = Offer {
        pair: PAIR,
        serial: 90,
        floor: mbps(250),
        unbounded: true,
        confirm: false,
        round_trip: None,
    };
    sender.handle(ms(100), Input::Message(HostId(1), Message::Offer(offer)), &mut out);
    sender.orders(ms(100)).pairs.take_changed();

    // Its receiver dies and returns 4 s later; the sender has held its offer meanwhile.
    let now = ms(4_100);
    let mut config = agent(1).policy;
    config.host = HostId(1);
    let mut receiver = Machine::of(config, now);
    receiver.handle(now, Input::Found(PAIR, HostId(1)), &mut out);
    receiver.handle(now, Input::Observed(&sample(1_000_000, 0)), &mut out);
    assert!(out.is_empty(), "it listens before it offers");
    sender.handle(now, Input::PeerRestarted(HostId(2)), &mut out);
    assert!(out.is_empty(), "not its receiver's host");
    sender.handle(now, Input::PeerRestarted(HostId(1)), &mut out);
    let told = out.take();
    assert_eq!(
        told,
        vec![(
            HostId(1),
            Message::Echo(Echo {
                pair: PAIR,
                serial: 90,
                floor: mbps(250),
                most: None,
                backlog: Backlog::Unknown
            })
        )]
    );
    receiver.handle(ms(4_102), Input::Message(HostId(0), told[0].1), &mut out);
    // What arrives in the next period is what the pair is promised.
    receiver.handle(ms(4_160), Input::Observed(&sample(1_000_000 + 1_875_000, 0)), &mut out);
    receiver.handle(ms(4_160), Input::Tick, &mut out);
    let offers: Vec<Rate> = out
        .take()
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::Offer(offer) => Some(offer.floor),
            _ => None,
        })
        .collect();
    assert!(offers.len() == 1 && offers[0] >= mbps(250), "{offers:?}");
}

#[test]
fn what_was_held_too_long_is_not_told() {
    let (mut sender, mut out) = (agent(0), Outbox::default());
    sender.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    let offer = Offer {
        pair: PAIR,
        serial: 90,
        floor: mbps(250),
        unbounded: true,
        confirm: false,
        round_trip: None,
    };
    sender.handle(ms(100), Input::Message(HostId(1), Message::Offer(offer)), &mut out);
    sender.handle(ms(6_000), Input::PeerRestarted(HostId(1)), &mut out);
    assert!(out.is_empty(), "the receiver may have given it to others");
}

#[test]
fn counters_that_jump_and_fall_are_no_panic_and_no_rate_for_ever() {
    let (mut agent, mut out) = (agent(0), Outbox::default());
    agent.handle(ms(0), Input::Seen(PAIR, Direction::Send), &mut out);
    for (i, octets) in [0, u64::MAX, 7, u64::MAX - 1, 3, u64::MAX].into_iter().enumerate() {
        let (numbered, unnumbered, segments) = (octets, octets, octets);
        let (acks, waiting, waiting_acks) = (octets, Some(octets), octets);
        let count =
            SendCount { octets, acks, numbered, unnumbered, segments, waiting, waiting_acks };
        let sample = Observed { send: vec![(PAIR, count)], ..Observed::default() };
        agent.handle(ms(60 * i as u64), Input::Observed(&sample), &mut out);
        agent.handle(ms(60 * i as u64), Input::Tick, &mut out);
    }
    let quiet = SendCount {
        octets: u64::MAX,
        acks: u64::MAX,
        numbered: u64::MAX,
        unnumbered: u64::MAX,
        segments: u64::MAX,
        waiting: None,
        waiting_acks: 0,
    };
    let sample = Observed { send: vec![(PAIR, quiet)], ..Observed::default() };
    for i in 6..9 {
        agent.handle(ms(60 * i), Input::Observed(&sample), &mut out);
        agent.handle(ms(60 * i), Input::Tick, &mut out);
    }
    let view = agent.pair(ms(540), PAIR).and_then(|view| view.send).expect("it is active");
    assert_eq!(view.measured, Rate::ZERO, "nothing was sent since");
    assert!(view.setting.floor <= mbps(400) && view.setting.ceiling >= view.setting.floor);
}

/// What sixty pairs of VM A, which an earlier life left at the line's rate, may borrow together after a
/// second in which each offers so many octets per 15 ms.
fn lent_to_sixty(preset: &str, octets: u64) -> Rate {
    let mut config = agent(0).policy;
    config.law = Law::ElasticSwitch(Box::new(ElasticSwitch::preset(preset).expect("known")));
    let pairs: Vec<PairId> = (10..70).map(|n| PairId::new(A, VmId(n))).collect();
    let theirs = Location { tenant: TenantId(0), host: HostId(1) };
    config.directory.extend(pairs.iter().map(|pair| (pair.dst, theirs)));
    let (mut agent, mut out) = (Machine::of(config, Time::ZERO), Outbox::default());
    for pair in &pairs {
        let setting = Setting { floor: mbps(5), ceiling: mbps(1000) };
        agent.handle(ms(0), Input::Adopt(*pair, setting), &mut out);
    }
    for step in 0..66 {
        let now = ms(15 * step);
        let sent = (step + 1) * octets;
        let count =
            SendCount { octets: sent, numbered: sent, unnumbered: 0, ..SendCount::default() };
        let send = pairs.iter().map(|pair| (*pair, count)).collect();
        agent.handle(now, Input::Observed(&Observed { send, ..Observed::default() }), &mut out);
        for pair in &pairs {
            let (pair, serial, floor) = (*pair, step as u32, mbps(5));
            let offer =
                Offer { pair, serial, floor, unbounded: true, confirm: false, round_trip: None };
            agent.handle(now, Input::Message(HostId(1), Message::Offer(offer)), &mut out);
        }
        agent.handle(now, Input::Tick, &mut out);
        out.take();
    }
    agent.orders(ms(990)).pairs.iter().map(|(_, s)| s.ceiling.saturating_sub(s.floor)).sum()
}

#[test]
fn in_operation_a_vm_keeps_no_ceilings_that_it_does_not_use_and_not_many_that_it_does() {
    for preset in ["steady", "steady-ecn"] {
        // All of them offer half of the line, which is thirty times of it.
        let lent = lent_to_sixty(preset, 937_500);
        assert!(
            lent <= mbps(2001) && lent >= mbps(1500),
            "{preset}: {lent:?} of a line of 1 Gbit/s"
        );
        // A frame per period each: 0.8 Mbit/s, which its floor covers.
        assert_eq!(lent_to_sixty(preset, 1514), Rate::ZERO, "{preset}");
    }
    for octets in [937_500, 1514] {
        assert!(lent_to_sixty("paper", octets) >= mbps(59_000), "the paper's law keeps them");
    }
}

#[test]
fn acknowledgements_are_wanted_as_far_as_they_serve_what_is_promised() {
    let used = |octets, acks, waiting: (u64, u64), promised: Option<Rate>| {
        let mut pair = SendPair::new(ms(0), HoseKey::Tenant, mbps(1));
        let (waiting, waiting_acks) = (Some(waiting.0), waiting.1);
        let before = SendCount { waiting, waiting_acks, ..SendCount::default() };
        pair.count(ms(0), before);
        pair.count(ms(0), SendCount { octets, acks, ..before });
        let used = pair.used_since_partition(ms(1000).since(ms(0)), promised);
        assert_eq!(pair.measured, Rate::from_bps(8 * octets), "for people, all that it sent");
        (used.rate.as_bps(), used.backlog, used.exceeds)
    };
    let (always, free) = (Backlog::Always, Backlog::Free);
    // 8 Mb/s of acknowledgements, of data that is promised 32 Mb/s.
    assert_eq!(used(1_000_000, 1_000_000, (66, 66), Some(mbps(32))), (1_000_000, free, true));
    assert_eq!(used(1_000_000, 100_000, (66, 66), Some(mbps(32))), (8_000_000, always, false));
    // Data counts whole, and so does what waits of it.
    assert_eq!(used(2_000_000, 1_000_000, (1580, 66), Some(mbps(32))), (9_000_000, always, true));
    assert_eq!(used(1_000_000, 1_000_000, (66, 66), Some(Rate::ZERO)), (0, free, true));
    // What acknowledges nothing that came, or more than was sent, is no acknowledgement.
    assert_eq!(used(1_000_000, 1_000_000, (66, 66), None), (8_000_000, always, false));
    assert_eq!(used(1_000_000, u64::MAX, (0, u64::MAX), Some(mbps(32))), (1_000_000, free, true));
}

#[test]
fn what_waits_is_told_as_far_as_all_readings_say_it() {
    let says = |readings: &[Option<u64>]| {
        let mut pair = SendPair::new(ms(0), HoseKey::Tenant, mbps(1));
        for waiting in readings {
            pair.count(ms(0), SendCount { waiting: *waiting, ..SendCount::default() });
        }
        let mut said = || pair.used_since_partition(ms(60).since(ms(0)), None).backlog;
        let first = said();
        assert_eq!(said(), Backlog::Unknown, "nothing was read since");
        first
    };
    assert_eq!(says(&[]), Backlog::Unknown);
    assert_eq!(says(&[Some(1), Some(66)]), Backlog::Always);
    assert_eq!(says(&[Some(0), Some(3028)]), Backlog::Sometimes);
    assert_eq!(says(&[Some(0), Some(1514)]), Backlog::Free, "its turn was next");
    // A data plane that knows only of what certainly waits.
    assert_eq!(says(&[None, Some(3028)]), Backlog::Sometimes);
    assert_eq!(says(&[None, Some(1514)]), Backlog::Unknown);
    assert_eq!(says(&[Some(0), None]), Backlog::Unknown);
}

/// Host 0 has VMs A and C of a tenant with hoses of 39 and 27 Mbit/s, under a link of 50. A sends to
/// B on another host all it can, and to C, which only acknowledges.
#[test]
fn a_hose_that_hardly_anything_uses_scales_no_floor_of_its_host() {
    const C: VmId = VmId(3);
    let place = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let policy = Policy::new(HostId(0), mbps(50), Law::ElasticSwitch(Box::default()))
        .with_vms([(A, Hose::both(mbps(39))), (C, Hose::both(mbps(27)))])
        .with_directory([(A, place(0)), (B, place(1)), (C, place(0))]);
    let (mut agent, mut out) = (Machine::of(policy, ms(0)), Outbox::default());
    let pairs = [(PAIR, 60_000), (PairId::new(A, C), 60_000), (PairId::new(C, A), 1_250)];
    let mut floors = 0;
    for n in 1..=200 {
        let now = ms(n * 5);
        let send = pairs.map(|(pair, each)| {
            (pair, SendCount { octets: each * n, numbered: each * n, ..SendCount::default() })
        });
        let receive = pairs[1..].iter().map(|(pair, each)| {
            (*pair, ReceiveCount { octets: each * n, ..ReceiveCount::default() })
        });
        let (send, receive) = (send.into(), receive.collect());
        let observed = Observed { send, receive, ..Observed::default() };
        agent.handle(now, Input::Observed(&observed), &mut out);
        let offer = Offer {
            pair: PAIR,
            serial: n as u32,
            floor: mbps(39),
            unbounded: false,
            confirm: false,
            round_trip: None,
        };
        agent.handle(now, Input::Message(HostId(1), Message::Offer(offer)), &mut out);
        agent.handle(now, Input::Tick, &mut out);
        floors = agent.orders(now).pairs.floors().as_bps();
    }
    let of = |pair| agent.orders.pairs.get(pair).map_or(0, |s| s.floor.as_bps()) / 1000;
    // The 2 Mbit/s of acknowledgements have room for more, and all that is in use keeps its floor.
    assert!(of(PAIR) >= 19_000, "{}", of(PAIR));
    assert!(of(PairId::new(C, A)) >= 2_000, "{}", of(PairId::new(C, A)));
    // 0.95 of 49 Mbit/s: the default hose has one.
    assert!(floors <= 46_550_000 + 100_000, "{floors}");
}
