//! Nothing makes an agent remember more than its bounds: not a VM that talks to all others, not a
//! peer that sends all messages there are.

use weir_core::host::{
    Direction, Hose, HostMachine, Input, Location, Observed, Outbox, Policy, SendCount,
};
use weir_core::mechanism::Law;
use weir_core::message::{Backlog, Congestion, Echo, Message, Offer};
use weir_core::reservation::Reservation;
use weir_units::{HostId, PairId, Rate, SortedMap, Span, TenantId, Time, VmId};

/// VMs of one tenant, dealt to two hosts in turn.
const VMS: u32 = 20_000;

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

/// Host 0, with one of its VMs enforced.
fn agent(law: Law) -> HostMachine {
    let location = |vm: u32| Location { tenant: TenantId(0), host: HostId(vm % 2) };
    let hose = Hose::of(mbps(400), mbps(400));
    let config = Policy::new(HostId(0), mbps(10_000), law)
        .with_vms(SortedMap::from([(VmId(0), hose)]))
        .with_directory((0..VMS).map(|vm| (VmId(vm), location(vm))));
    HostMachine::new(config, Time::ZERO).expect("nothing speaks against it")
}

fn elastic() -> Law {
    Law::ElasticSwitch(Box::default())
}

fn ms(n: u64) -> Time {
    Time::ZERO + Span::from_millis(n)
}

#[test]
fn a_vm_that_talks_to_everybody_gets_a_bounded_number_of_pairs_and_the_rest_is_counted() {
    let reservation = Law::Reservation(Reservation { rates: SortedMap::new(), other: mbps(1) });
    for mechanism in [elastic(), reservation] {
        let mut agent = agent(mechanism);
        let mut out = Outbox::new(1000);
        for n in 1..VMS {
            let (to, from) = (PairId::new(VmId(0), VmId(n)), PairId::new(VmId(n), VmId(0)));
            agent.handle(ms(1), Input::Seen(to, Direction::Send), &mut out);
            agent.handle(ms(1), Input::Seen(from, Direction::Receive), &mut out);
        }
        let all = (1..VMS).map(|n| {
            (PairId::new(VmId(0), VmId(n)), SendCount { octets: 1, ..SendCount::default() })
        });
        let sample = Observed { send: all.collect(), ..Observed::default() };
        agent.handle(ms(2), Input::Observed(&sample), &mut out);
        agent.handle(ms(60), Input::Tick, &mut out);
        let known = agent.pairs(ms(60)).len();
        assert!(known <= 2 * 4096, "{known} pairs");
        let refused = agent.counters().refused_pairs;
        assert!(refused >= u64::from(VMS) - 1 - 4096, "{refused} refused");
    }
}

#[test]
fn a_peer_that_speaks_of_pairs_that_nobody_saw_makes_none_and_is_counted() {
    let mut agent = agent(elastic());
    let mut out = Outbox::new(1000);
    let floor = mbps(1);
    let mut said = 0;
    for n in (1..VMS).step_by(2) {
        let (to, from) = (PairId::new(VmId(0), VmId(n)), PairId::new(VmId(n), VmId(0)));
        let offer =
            Offer { pair: to, serial: n, floor, unbounded: false, confirm: true, round_trip: None };
        let about = [
            Message::Offer(offer),
            Message::Echo(Echo {
                pair: from,
                serial: n,
                floor,
                most: None,
                backlog: Backlog::Unknown,
            }),
            Message::Congestion(Congestion { pair: to, lost: 9, marked: 0, received: 10 }),
            // Of VMs that no tenant has.
            Message::Echo(Echo {
                pair: PairId::new(VmId(VMS + n), VmId(0)),
                serial: n,
                floor,
                most: None,
                backlog: Backlog::Unknown,
            }),
        ];
        for message in about {
            agent.handle(ms(1), Input::Message(HostId(1), message), &mut out);
            said += 1;
        }
    }
    let counters = agent.counters();
    assert_eq!(agent.pairs(ms(2)).len(), 0);
    assert_eq!(agent.orders(ms(2)).pairs.iter().count(), 0);
    assert_eq!(counters.strayed + counters.misdirected, said, "{counters:?}");
    // Each offer asks for an echo: what finds no room is counted, not kept.
    assert_eq!(out.take().len(), 1000);
    assert_eq!(out.dropped, said / 4 - 1000);
}
