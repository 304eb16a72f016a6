//! The rooms of tenants on drawn datacenters: what keeps to them is accepted, in any order.

use crate::ledger_properties::{Drawn, drawn_class, grow, mbps, request, topology};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_core::ledger::{
    AdditiveRoom, Config, Domain, Floors, Ledger, LinkId, SwitchId, TenantRoom, Topology, VmRequest,
};
use weir_units::{HostId, Rate, TenantId, VmId};

/// What a scheduler of others keeps: a room as it read it, and what it has added since.
struct Scheduler {
    room: TenantRoom,
    /// Per place.
    taken: Vec<(Floors, u64)>,
}

fn plus(a: Floors, b: Floors) -> Floors {
    Floors { out: a.out + b.out, into: a.into + b.into }
}

impl Scheduler {
    fn new(room: TenantRoom) -> Self {
        let taken = vec![(Floors::default(), 0); room.places.len()];
        Self { room, taken }
    }

    /// Counts a VM, if it keeps to all places.
    fn add(&mut self, host: HostId, centre: Domain, internal: Floors, external: Floors) -> bool {
        let has_outside = external != Floors::default();
        if has_outside && self.room.gateway.is_none() {
            return false;
        }
        let gateway = self.room.gateway.unwrap_or(Domain::Network);
        let mut next = self.taken.clone();
        let mut is_there = false;
        for (place, taken) in self.room.places.iter().zip(&mut next) {
            let inside = place.takes(host, centre, internal);
            let outside =
                if has_outside { place.takes(host, gateway, external) } else { Floors::default() };
            taken.0 = plus(taken.0, plus(inside, outside));
            taken.1 += u64::from(place.contains(Domain::Host(host)));
            is_there |= place.room.domain == Domain::Host(host);
            let room = place.room;
            if taken.0.out > room.floors.out
                || taken.0.into > room.floors.into
                || taken.1 > room.slots
            {
                return false;
            }
        }
        if is_there {
            self.taken = next;
        }
        is_there
    }
}

/// The floors of a class, in its hoses and to the outside.
fn floors(of: &Drawn) -> [Floors; 2] {
    let sum = |d: usize| mbps(of[0][d] + of[1][d]);
    let internal = Floors { out: sum(0), into: sum(1) };
    [internal, Floors { out: mbps(of[2][0]), into: mbps(of[2][1]) }]
}

/// A place of the room, or its root.
fn some_place(room: &TenantRoom, number: u32) -> Domain {
    let at = number as usize % (room.places.len() + 1);
    room.places.get(at).map_or(Domain::Switch(room.root), |place| place.room.domain)
}

/// One round: whether a tenant that is there grows (which one), whether VMs come in reverse order, and the
/// VMs: which new tenant, host, class, centre.
type Round = (Option<u32>, bool, Vec<(u32, u32, u16, u32)>);

/// A drawn datacenter.
#[derive(Clone, Debug)]
struct Case {
    kind: u8,
    wide: u64,
    classes: Vec<Drawn>,
    gateway: Option<u32>,
    failed: Option<u32>,
    rounds: Vec<Round>,
}

/// Schedulers read rooms and add VMs that keep to them; the ledger accepts all of these.
fn play(case: Case) {
    let Case { kind, wide, classes, gateway, failed, rounds } = case;
    let config = Config { headroom: 0.0, ..Config::default() };
    let mut network = topology(kind, 6, wide);
    if let Some(gateway) = gateway {
        network.gateways = vec![SwitchId(gateway % network.switches.len() as u32)];
    }
    let links = network.links.len() as u32;
    let failed: Vec<LinkId> = failed.iter().map(|link| LinkId(link % links)).collect();
    let mut ledger = Ledger::without(&failed, &[], network, config).expect("a topology");
    let classes: Vec<Drawn> =
        classes.iter().map(|c| c.map(|floors| floors.map(|f| f / 3))).collect();
    let hosts = ledger.topology().hosts.len() as u32;
    let (mut next_vm, mut next_tenant) = (0, 0);
    for (grown, is_backwards, vms) in rounds {
        // One tenant that is there grows, or up to three new ones come.
        let grown = grown.map(TenantId).filter(|id| ledger.request(*id).is_some());
        let Some(room) = ledger.tenant_room(grown) else { continue };
        let mut centres = BTreeMap::new();
        let mut scheduler = Scheduler::new(room);
        let mut promised = Vec::new();
        for (which, host, class, centre) in vms {
            let host = HostId(host % hosts);
            let tenant = grown.unwrap_or(TenantId(next_tenant + which));
            let of_room = scheduler.room.centre;
            let chosen = some_place(&scheduler.room, centre);
            let centre = if grown.is_some() { of_room } else { chosen };
            let centre = *centres.entry(tenant).or_insert(centre);
            let [internal, external] = floors(&classes[usize::from(class)]);
            if scheduler.add(host, centre, internal, external) {
                next_vm += 1;
                let vm = VmRequest { vm: VmId(next_vm), class, host: Some(host) };
                promised.push((tenant, vm));
            }
        }
        if grown.is_none() {
            for which in 0..3 {
                ledger.place(&request(next_tenant + which, &classes, &[])).expect("empty");
            }
            next_tenant += 3;
        }
        if is_backwards {
            promised.reverse();
        }
        for (tenant, vm) in promised {
            let answer = grow(&mut ledger, tenant, &[vm]);
            assert!(answer.is_ok(), "{vm:?} on {:?}: {answer:?}", scheduler.room);
        }
        assert_eq!(ledger.audit(), Ok(()));
    }
}

fn case() -> impl Strategy<Value = Case> {
    let vm = (0..3u32, 0..16u32, 0..2u16, any::<u32>());
    let round = (proptest::option::of(0..6u32), any::<bool>(), vec(vm, 1..12));
    let any_number = || proptest::option::of(any::<u32>());
    let drawn =
        (0..5u8, 60..200u64, vec(drawn_class(), 2), any_number(), any_number(), vec(round, 1..8));
    drawn.prop_map(|(kind, wide, classes, gateway, failed, rounds)| Case {
        kind,
        wide,
        classes,
        gateway,
        failed,
        rounds,
    })
}

proptest! {
    // 256 cases, or PROPTEST_CASES.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_keeps_to_the_room_of_its_tenant_is_accepted_in_any_order(case in case()) {
        play(case);
    }
}

/// Found by 30,000 cases. The floors of the VMs on one side of a link exceed the link, and those of the
/// other side do not: a VM at the centre takes no floors of any place, and raises what the link needs.
#[test]
fn a_tenant_whose_link_rests_on_its_smaller_side_has_no_room_at_its_centre_either() {
    play(Case {
        kind: 1,
        wide: 60,
        classes: vec![[[15, 21], [6, 30], [0, 15]], [[9, 24], [12, 15], [0, 0]]],
        gateway: None,
        failed: None,
        rounds: vec![
            (None, false, vec![(0, 0, 0, 0); 2]),
            (
                None,
                false,
                vec![
                    (1, 12, 0, 0),
                    (0, 6, 1, 1_625_900_897),
                    (2, 3, 0, 300_319),
                    (0, 0, 0, 0),
                    (2, 6, 1, 0),
                    (0, 8, 1, 0),
                ],
            ),
            (
                Some(4),
                false,
                vec![
                    (0, 6, 1, 0),
                    (0, 6, 0, 0),
                    (0, 4, 1, 0),
                    (0, 4, 0, 0),
                    (0, 0, 1, 0),
                    (0, 0, 1, 0),
                ],
            ),
            (Some(5), false, vec![(0, 3, 1, 0)]),
        ],
    });
}

#[test]
fn a_tenant_within_a_rack_takes_nothing_of_the_racks_uplink() {
    let mut ledger = Ledger::new(
        Topology::two_tier(2, 2, 50, mbps(100), mbps(10)),
        Config { headroom: 0.0, ..Config::default() },
    )
    .expect("a topology");
    let one: Drawn = [[30, 30], [0, 0], [0, 0]];
    // Three VMs on each host of a rack: 90 Mb/s on each host's link, and nothing above the rack.
    let vms: Vec<_> = (0..6).map(|n| (0, Some(n % 2))).collect();
    ledger.place(&request(1, &[one], &vms)).expect("it fits");
    let room = ledger.tenant_room(None).expect("there is a tree");
    for place in &room.places {
        let wanted = match place.room.domain {
            Domain::Host(host) if host.0 < 2 => 10,
            Domain::Host(_) => 100,
            _ => 10,
        };
        assert_eq!(place.room.floors, Floors::both(mbps(wanted)), "{:?}", place.room.domain);
    }
    assert_eq!(room.places.len(), 6, "four hosts and two racks");
    // Most of it is on no host, so its centre is the rack's switch. It may grow by 10 Mb/s per host.
    let own = ledger.tenant_room(Some(TenantId(1))).expect("it has a tree");
    let host = HostId(0);
    let rack = own.centre;
    assert!(matches!(rack, Domain::Switch(_)), "{rack:?}");
    for place in &own.places {
        let takes = place.takes(host, rack, Floors { out: mbps(7), into: mbps(5) });
        let is_host = place.room.domain == Domain::Host(host);
        assert_eq!(takes.out, if is_host { mbps(7) } else { Rate::ZERO });
    }
    // The old room promises nothing below this rack: its VMs may have peers elsewhere.
    let old = ledger.additive().expect("layers");
    let below = |room: &&AdditiveRoom| {
        matches!(room.domain, Domain::Switch(_)) && ledger.hosts_in(room.domain).contains(&host)
    };
    assert_eq!(old.iter().find(below).expect("the rack").floors.out, Rate::ZERO);
}
