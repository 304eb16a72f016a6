//! What stays and what goes when VMs come, go and move.

use super::*;
use crate::host::{Location, ReceiveCount, SendCount};
use crate::mechanism::Law;
use crate::message::Offer;
use weir_units::{Span, TenantId};

const A: VmId = VmId(0);
const B: VmId = VmId(1);
const C: VmId = VmId(2);
const TO_B: PairId = PairId::new(A, B);
const TO_C: PairId = PairId::new(A, C);

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Host 0 has A, host 1 has B and C, all of one tenant.
fn config(vms: &[(VmId, u64)], directory: &[(VmId, u32)]) -> Policy {
    let hose = |m| Hose::of(mbps(m), mbps(m));
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    Policy::new(HostId(0), mbps(1000), Law::ElasticSwitch(Box::default()))
        .with_vms(vms.iter().map(|(vm, m)| (*vm, hose(*m))))
        .with_directory(directory.iter().map(|(vm, host)| (*vm, at(*host))))
}

const ALL: [(VmId, u32); 3] = [(A, 0), (B, 1), (C, 1)];

/// A sends to B and to C, both of which have offered all they have.
fn busy() -> (Machine, Outbox) {
    let mut agent = Machine::of(config(&[(A, 400)], &ALL), ms(0));
    let mut out = Outbox::default();
    for pair in [TO_B, TO_C] {
        agent.handle(ms(0), Input::Seen(pair, Direction::Send), &mut out);
        let offer = Offer {
            pair,
            serial: 1,
            floor: mbps(300),
            unbounded: true,
            confirm: false,
            round_trip: None,
        };
        agent.handle(ms(1), Input::Message(HostId(1), Message::Offer(offer)), &mut out);
    }
    let mut octets = 0;
    for i in 1..=20 {
        octets += 2_000_000;
        let count = SendCount { octets, numbered: octets, ..SendCount::default() };
        let send = vec![(TO_B, count), (TO_C, count)];
        let sample = Observed { send, ..Observed::default() };
        agent.handle(ms(i * 15), Input::Observed(&sample), &mut out);
        agent.handle(ms(i * 15), Input::Tick, &mut out);
    }
    agent.orders(ms(300)).pairs.take_changed();
    (agent, out)
}

fn floors(agent: &mut Machine, now: Time) -> Vec<(PairId, u64)> {
    let desired = &agent.orders(now).pairs;
    desired.iter().map(|(pair, s)| (pair, s.floor.as_bps() / 1_000_000)).collect()
}

#[test]
fn the_same_population_changes_nothing() {
    let (mut agent, mut out) = busy();
    let before = floors(&mut agent, ms(300));
    assert_eq!(before, [(TO_B, 200), (TO_C, 200)]);
    let same = config(&[(A, 400)], &ALL);
    agent.handle(ms(301), Input::Policy(&same), &mut out);
    assert_eq!(floors(&mut agent, ms(301)), before);
    assert_eq!(agent.orders(ms(301)).pairs.take_changed(), []);
    assert_eq!(agent.orders(ms(301)).pairs.take_forgotten(), []);
}

#[test]
fn what_a_peer_had_goes_to_the_others_when_it_leaves_or_moves() {
    for directory in [vec![(A, 0), (B, 1)], vec![(A, 0), (B, 1), (C, 2)]] {
        let (mut agent, mut out) = busy();
        agent.handle(ms(301), Input::Policy(&config(&[(A, 400)], &directory)), &mut out);
        // Both offered 300: that much of a hose of 400 is B's alone now.
        assert_eq!(floors(&mut agent, ms(301)), [(TO_B, 300)]);
        assert_eq!(agent.orders(ms(301)).pairs.take_forgotten(), [(TO_C, Direction::Send)]);
        assert!(agent.pair(ms(301), TO_C).is_none());
    }
}

#[test]
fn a_vm_that_leaves_takes_all_its_pairs_and_one_that_comes_begins_anew() {
    let (mut agent, mut out) = busy();
    let without = config(&[], &ALL);
    agent.handle(ms(301), Input::Policy(&without), &mut out);
    assert_eq!(floors(&mut agent, ms(301)), []);
    assert_eq!(agent.orders(ms(301)).pairs.take_forgotten().len(), 2);
    assert_eq!(agent.next_deadline(), None, "nothing is left to look after");
    agent.handle(ms(302), Input::Seen(TO_B, Direction::Send), &mut out);
    assert_eq!(floors(&mut agent, ms(302)), [], "it is not here");
    agent.handle(ms(303), Input::Policy(&config(&[(A, 400)], &ALL)), &mut out);
    agent.handle(ms(304), Input::Seen(TO_B, Direction::Send), &mut out);
    let floor = agent.orders(ms(304)).pairs.get(TO_B).expect("a pair").floor;
    assert_eq!(floor, mbps(400).split(64), "the small start");
}

#[test]
fn a_hose_that_changes_holds_at_once() {
    let (mut agent, mut out) = busy();
    agent.handle(ms(301), Input::Policy(&config(&[(A, 100)], &ALL)), &mut out);
    assert_eq!(floors(&mut agent, ms(301)), [(TO_B, 50), (TO_C, 50)]);
    agent.handle(ms(302), Input::Policy(&config(&[(A, 600)], &ALL)), &mut out);
    assert_eq!(floors(&mut agent, ms(302)), [(TO_B, 300), (TO_C, 300)]);
}

#[test]
fn what_a_sender_that_left_held_of_a_receivers_hose_is_free_at_once() {
    let mut agent = Machine::of(config(&[(A, 400)], &ALL), ms(0));
    let mut out = Outbox::default();
    let (from_b, from_c) = (PairId::new(B, A), PairId::new(C, A));
    let mut octets = 0;
    for i in 1..=20 {
        octets += 3_000_000;
        let count = ReceiveCount { octets, segments: octets / 1514, ..ReceiveCount::default() };
        let sample =
            Observed { receive: vec![(from_b, count), (from_c, count)], ..Observed::default() };
        agent.handle(ms(i * 15), Input::Observed(&sample), &mut out);
        agent.handle(ms(i * 15), Input::Tick, &mut out);
    }
    out.take();
    agent.handle(ms(301), Input::Policy(&config(&[(A, 400)], &ALL[..2])), &mut out);
    agent.handle(ms(310), Input::Tick, &mut out);
    let offers: Vec<Offer> = out
        .take()
        .into_iter()
        .filter_map(|(_, m)| match m {
            Message::Offer(offer) => Some(offer),
            _ => None,
        })
        .collect();
    assert!(offers.iter().all(|o| o.pair == from_b) && !offers.is_empty(), "{offers:?}");
    let last = offers.last().expect("an offer").floor;
    assert!(last > mbps(350), "{last} of a hose of 400 Mbit/s that is its alone");
}
