//! The ledger's promises on drawn datacenters: sums, soundness, completeness, all or nothing.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_core::ledger::{
    Attachment, Class, Config, Direction, Exploration, FatTreeShape, Floors, Host, LeafSpineShape,
    Ledger, Link, LinkId, Node, Placement, Refusal, Routing, Survival, Switch, SwitchId,
    TenantRequest, Topology, VmRequest,
};
use weir_core::placement::{Policy, Weight};
use weir_units::{HostId, Rate, TenantId, VmId};

/// Rates are in units of 1 Mb/s.
pub(crate) fn mbps(rate: u64) -> Rate {
    Rate::from_mbps(rate)
}

/// A small datacenter of each kind, with links of about 100 to 200.
pub(crate) fn topology(kind: u8, slots: u32, wide: u64) -> Topology {
    match kind % 5 {
        0 => Topology::two_tier(2, 2, slots, mbps(100), mbps(wide)),
        1 => Topology::tree(&[2, 2, 2], slots, &[mbps(wide), mbps(wide), mbps(100)]),
        2 => Topology::leaf_spine(LeafSpineShape {
            leaves: 3,
            spines: 2,
            hosts_per_leaf: 2,
            slots,
            host_rate: mbps(100),
            uplink_rate: mbps(wide),
            spread: false,
        }),
        3 => Topology::fat_tree(FatTreeShape {
            k: 4,
            slots,
            host_rate: mbps(100),
            port_rate: mbps(wide),
            edge_uplinks: 2,
            aggregation_uplinks: 1 + wide as u32 % 2,
            spread: wide.is_multiple_of(3),
        }),
        _ => ring(slots, wide),
    }
}

/// Four switches in a ring with a chord, two hosts each: found by paths.
fn ring(slots: u32, wide: u64) -> Topology {
    let switches = (0..4).map(|s| Switch { name: format!("s{s}"), layer: 0 }).collect();
    let hosts = (0..8).map(|h| Host { name: format!("h{h}"), slots }).collect();
    let mut links = Vec::new();
    let mut link = |a: Node, b: Node, rate: u64| {
        links.push(Link { name: format!("l{}", links.len()), a, b, rate: mbps(rate), members: 1 });
    };
    for host in 0..8u32 {
        let (host, switch) = (Node::Host(HostId(host)), Node::Switch(SwitchId(host / 2)));
        if host == Node::Host(HostId(3)) {
            link(switch, host, 100)
        } else {
            link(host, switch, 100)
        }
    }
    for [a, b] in [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]] {
        link(Node::Switch(SwitchId(a)), Node::Switch(SwitchId(b)), wide);
    }
    let exploration = Exploration::Paths { k: 2 };
    Topology { hosts, switches, links, gateways: vec![SwitchId(1)], exploration }
}

/// Floors of a class: in hose 0, in hose 1, to the outside; out and in.
pub(crate) type Drawn = [[u64; 2]; 3];

fn class(drawn: &Drawn) -> Class {
    let floors = |of: [u64; 2]| Floors { out: mbps(of[0]), into: mbps(of[1]) };
    let hoses = (0..2).map(|h| Attachment { hose: h, floors: floors(drawn[usize::from(h)]) });
    Class { slots: 1, hoses: hoses.collect(), external: floors(drawn[2]) }
}

pub(crate) fn request(tenant: u32, classes: &[Drawn], vms: &[(u16, Option<u32>)]) -> TenantRequest {
    let vm = |(n, (class, host)): (u32, &(u16, Option<u32>))| VmRequest {
        vm: VmId(n),
        class: class % classes.len() as u16,
        host: host.map(HostId),
    };
    TenantRequest {
        tenant: TenantId(tenant),
        survival: Survival::default(),
        classes: classes.iter().map(class).collect(),
        vms: (0..).zip(vms).map(vm).collect(),
    }
}

/// Maximum flow by augmenting paths, over a matrix of capacities.
fn max_flow(mut capacity: Vec<Vec<u64>>, source: usize, sink: usize) -> u64 {
    let mut total = 0;
    loop {
        let mut from = vec![usize::MAX; capacity.len()];
        let mut stack = vec![source];
        from[source] = source;
        while let Some(here) = stack.pop() {
            for there in 0..capacity.len() {
                if from[there] == usize::MAX && capacity[here][there] > 0 {
                    from[there] = here;
                    stack.push(there);
                }
            }
        }
        if from[sink] == usize::MAX {
            return total;
        }
        let mut room = u64::MAX;
        let mut here = sink;
        while here != source {
            room = room.min(capacity[from[here]][here]);
            here = from[here];
        }
        here = sink;
        while here != source {
            capacity[from[here]][here] -= room;
            capacity[here][from[here]] += room;
            here = from[here];
        }
        total += room;
    }
}

/// The nodes on one side of a link of a tenant's tree: those that `from` reaches without the link.
fn side(topology: &Topology, tree: &[LinkId], without: LinkId, from: Node) -> Vec<Node> {
    let mut seen = vec![from];
    let mut at = 0;
    while at < seen.len() {
        for id in tree.iter().filter(|id| **id != without) {
            let link = &topology.links[id.0 as usize];
            for (here, there) in [(link.a, link.b), (link.b, link.a)] {
                if seen[at] == here && !seen.contains(&there) {
                    seen.push(there);
                }
            }
        }
        at += 1;
    }
    seen
}

/// The most that any traffic within the hoses sends over each link and direction, by maximum flows
/// over pairs of VMs: the ledger's sums must be no less, and no link may carry more.
fn worst_case(ledger: &Ledger, requests: &BTreeMap<TenantId, TenantRequest>) -> Result<(), String> {
    let topology = ledger.topology();
    let mut worst = vec![[0u64; 2]; topology.links.len()];
    for (id, request) in requests {
        let Some(placement) = ledger.placement(*id) else { continue };
        let Some(Routing::Tree { .. }) = placement.routing else { continue };
        let tree = ledger.tree_links(*id);
        for &id in &tree {
            let link = &topology.links[id.0 as usize];
            for (d, from) in [link.a, link.b].into_iter().enumerate() {
                let near = side(topology, &tree, id, from);
                let is_near = |host: HostId| near.contains(&Node::Host(host));
                // Gateway of the tree: the far end of traffic to the outside.
                let gateway = ledger.gateway_of(request.tenant);
                let gateway_near = gateway.is_some_and(|g| near.contains(&Node::Switch(g)));
                for hose in 0..3usize {
                    let floors = |vm: VmId| {
                        let at = request.vms.iter().find(|w| w.vm == vm).expect("listed");
                        let class = &request.classes[usize::from(at.class)];
                        if hose == 2 { class.external } else { class.hoses[hose].floors }
                    };
                    let n = placement.vms.len();
                    // Senders, receivers, then the outside as both, then source and sink.
                    let (source, sink) = (2 * n + 2, 2 * n + 3);
                    let mut capacity = vec![vec![0; 2 * n + 4]; 2 * n + 4];
                    for (i, (vm, host)) in placement.vms.iter().enumerate() {
                        capacity[source][i] = floors(*vm).out.as_bps();
                        capacity[n + i][sink] = floors(*vm).into.as_bps();
                        for (j, (_, other)) in placement.vms.iter().enumerate() {
                            if hose < 2 && i != j && is_near(*host) && !is_near(*other) {
                                capacity[i][n + j] = u64::MAX / 4;
                            }
                        }
                        if hose == 2 && is_near(*host) && !gateway_near {
                            capacity[i][2 * n] = u64::MAX / 4;
                        }
                        if hose == 2 && !is_near(*host) && gateway_near {
                            capacity[2 * n + 1][n + i] = u64::MAX / 4;
                        }
                    }
                    capacity[2 * n][sink] = u64::MAX / 4;
                    capacity[source][2 * n + 1] = u64::MAX / 4;
                    worst[id.0 as usize][d] += max_flow(capacity, source, sink);
                }
            }
        }
    }
    for (link, worst) in (0..).zip(&worst) {
        for (direction, worst) in [Direction::Forward, Direction::Backward].into_iter().zip(worst) {
            let (capacity, reserved) = ledger.link(LinkId(link), direction);
            if *worst > reserved.as_bps() || reserved > capacity {
                return Err(format!(
                    "link {link} {direction:?}: {worst} of {reserved} of {capacity}"
                ));
            }
            if *worst < reserved.as_bps() {
                return Err(format!("link {link} {direction:?} has {reserved} for {worst}"));
            }
        }
    }
    Ok(())
}

pub(crate) fn drawn_class() -> impl Strategy<Value = Drawn> {
    let floor = || [0..40u64, 0..40u64];
    (floor(), floor(), prop_oneof![3 => Just([0, 0]), 1 => [0..20u64, 0..20u64]])
        .prop_map(|(a, b, outside)| [a, b, outside])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_accepted_set_exceeds_a_link_under_any_traffic_that_the_hoses_allow(
        kind in 0..5u8,
        wide in 60..200u64,
        policy in 0..3u8,
        effort in prop_oneof![Just(0u64), Just(100_000)],
        tenants in vec((vec(drawn_class(), 1..3), vec((0..2u16, proptest::option::of(0..8u32)), 1..7)), 1..7),
    ) {
        let policy = [Policy::Balanced(Weight::Load), Policy::Oktopus, Policy::FirstFit][usize::from(policy)];
        let config = Config { headroom: 0.0, policy, effort };
        let mut ledger = Ledger::new(topology(kind, 3, wide), config).expect("a topology");
        let mut accepted = BTreeMap::new();
        for (n, (classes, vms)) in (0..).zip(&tenants) {
            let mut vms = vms.clone();
            let hosts = ledger.topology().hosts.len() as u32;
            vms.iter_mut().for_each(|vm| vm.1 = vm.1.map(|host| host % hosts));
            let request = request(n, classes, &vms);
            if ledger.place(&request).is_ok() {
                accepted.insert(request.tenant, request);
            }
            prop_assert_eq!(ledger.audit(), Ok(()));
        }
        prop_assert_eq!(worst_case(&ledger, &accepted), Ok(()));
    }
}

/// All that a ledger says about itself.
fn seen(ledger: &Ledger) -> String {
    let tenants: Vec<_> = ledger.tenants().map(|id| (id, ledger.placement(id))).collect();
    let links = 0..ledger.topology().links.len() as u32;
    let of = |l| [Direction::Forward, Direction::Backward].map(|d| ledger.link(LinkId(l), d));
    let hosts = 0..ledger.topology().hosts.len() as u32;
    let links: Vec<_> = links.map(of).collect();
    let hosts: Vec<_> = hosts.map(|h| ledger.slots(HostId(h))).collect();
    format!("{tenants:?} {links:?} {hosts:?}")
}

/// Adds VMs to a tenant that is there.
pub(crate) fn grow(
    ledger: &mut Ledger,
    tenant: TenantId,
    vms: &[VmRequest],
) -> Result<Placement, Refusal> {
    let mut request = ledger.request(tenant).ok_or(Refusal::NoSuchTenant(tenant))?;
    request.vms.extend(vms);
    ledger.resize(&request)
}

/// One call, drawn as numbers.
type Call = (u8, u32, u32, u32, Vec<Drawn>, Vec<(u16, Option<u32>)>);

/// Plays a call; whether the ledger refused it.
fn play(ledger: &mut Ledger, call: &Call) -> bool {
    let (kind, tenant, a, b, classes, vms) = call;
    let id = TenantId(tenant % 4);
    let hosts = ledger.topology().hosts.len() as u32;
    let mut request = request(id.0, classes, vms);
    for vm in &mut request.vms {
        vm.host = vm.host.map(|host| HostId(host.0 % hosts));
    }
    match kind % 8 {
        0 | 1 => ledger.place(&request).is_err(),
        2 | 3 => ledger.resize(&request).is_err(),
        4 => {
            ledger.remove(id);
            false
        }
        5 => ledger.release(id, &[VmId(a % 8), VmId(b % 8)]).is_err(),
        6 => {
            let vm = VmRequest { vm: VmId(100 + a % 12), class: 0, host: Some(HostId(b % hosts)) };
            grow(ledger, id, &[vm]).is_err()
        }
        _ => {
            ledger.close(HostId(a % hosts), b % 2 == 0);
            false
        }
    }
}

/// A ledger with some links out of service.
fn damaged(topology: Topology, config: Config, failed: &[u32]) -> Ledger {
    let links = topology.links.len() as u32;
    let failed: Vec<LinkId> = failed.iter().map(|link| LinkId(link % links)).collect();
    Ledger::without(&failed, &[], topology, config).expect("a topology")
}

fn drawn_call() -> impl Strategy<Value = Call> {
    let vms = vec((0..2u16, proptest::option::weighted(0.3, 0..8u32)), 0..7);
    (any::<u8>(), 0..4u32, 0..1000u32, 0..1000u32, vec(drawn_class(), 1..3), vms)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_calls_the_sums_are_those_of_the_tenants_and_a_refusal_changes_nothing(
        kind in 0..5u8,
        wide in 60..200u64,
        effort in prop_oneof![Just(0u64), Just(20_000)],
        failed in vec(any::<u32>(), 0..3),
        calls in vec(drawn_call(), 1..40),
    ) {
        let config = Config { headroom: 0.0, effort, ..Config::default() };
        let mut ledger = damaged(topology(kind, 3, wide), config, &failed);
        for call in &calls {
            let before = seen(&ledger);
            let mut again = ledger.clone();
            let refused = play(&mut ledger, call);
            prop_assert_eq!(ledger.audit(), Ok(()), "after {:?}", call);
            if refused {
                prop_assert_eq!(seen(&ledger), before);
            }
            // The same call on the same ledger gives the same.
            play(&mut again, call);
            prop_assert_eq!(seen(&again), seen(&ledger));
        }
        for id in 0..4 {
            ledger.remove(TenantId(id));
        }
        let idle = |l| [Direction::Forward, Direction::Backward].iter().all(|d| ledger.link(LinkId(l), *d).1.is_zero());
        prop_assert!((0..ledger.topology().links.len() as u32).all(idle));
        prop_assert!((0..ledger.topology().hosts.len() as u32).all(|h| ledger.slots(HostId(h)).1 == 0));
    }

    #[test]
    fn what_fits_the_additive_room_of_all_its_places_is_accepted(
        kind in 0..4u8,
        wide in 60..200u64,
        arrivals in vec((0..4u32, 0..16u32, 0..2u16), 1..40),
        classes in vec(drawn_class(), 2),
        gateway in proptest::option::of(any::<u32>()),
    ) {
        let config = Config { headroom: 0.0, ..Config::default() };
        let mut network = topology(kind, 3, wide);
        if let Some(gateway) = gateway {
            network.gateways = vec![SwitchId(gateway % network.switches.len() as u32)];
        }
        let mut ledger = Ledger::new(network, config).expect("a topology");
        let classes: Vec<Drawn> =
            classes.iter().map(|c| c.map(|floors| floors.map(|f| f / 4))).collect();
        for tenant in 0..4 {
            ledger.place(&request(tenant, &classes, &[])).expect("empty");
        }
        let hosts = ledger.topology().hosts.len() as u32;
        for (n, (tenant, host, class)) in (0u32..).zip(&arrivals) {
            let host = HostId(host % hosts);
            let of = classes[usize::from(*class)];
            let out: u64 = of.iter().map(|f| f[0]).sum();
            let into: u64 = of.iter().map(|f| f[1]).sum();
            let fits = ledger.additive().expect("layers").iter().all(|room| {
                !ledger.hosts_in(room.domain).contains(&host)
                    || (room.floors.out >= mbps(out) && room.floors.into >= mbps(into) && room.slots >= 1)
            });
            let vms = [VmRequest { vm: VmId(n), class: *class, host: Some(host) }];
            let answer = grow(&mut ledger, TenantId(*tenant), &vms);
            if fits {
                prop_assert!(answer.is_ok(), "{:?}", answer);
            }
            prop_assert_eq!(ledger.audit(), Ok(()));
        }
    }
}

/// Every way to put `vms` on the hosts of a fresh copy; whether one fits.
fn any_fits(ledger: &Ledger, request: &TenantRequest, from: usize) -> bool {
    let Some(vm) = request.vms.get(from) else {
        return ledger.clone().place(request).is_ok();
    };
    // Those before of the same class are on hosts that are not higher: they are alike.
    let before = request.vms[..from].iter().rfind(|other| other.class == vm.class);
    let lowest = before.and_then(|vm| vm.host).map_or(0, |host| host.0);
    (lowest..ledger.topology().hosts.len() as u32).any(|host| {
        let mut request = request.clone();
        request.vms[from].host = Some(HostId(host));
        any_fits(ledger, &request, from + 1)
    })
}

#[test]
fn the_exhaustive_search_refuses_nothing_that_fits() {
    let mut state = 7u64;
    let mut next = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    // One class, then two classes with hoses of their own.
    for (classes, greedy_at_most) in [(1usize, 5), (2, 30)] {
        let (mut feasible, mut greedy, mut asked) = (0u32, 0u32, 0);
        while asked < 250 {
            let slots = 4 + next(3) as u32;
            let topology = Topology::two_tier(2, 2, slots, mbps(100), mbps(60 + next(140)));
            let config = Config { headroom: 0.0, ..Config::default() };
            let mut ledger = Ledger::new(topology, config).expect("a topology");
            let mut drawn = |most: u64| -> Drawn {
                let floor = 5 + next(most);
                if classes == 1 {
                    [[floor; 2], [0; 2], [0; 2]]
                } else {
                    [[floor, next(40)], [next(40), 5], [0; 2]]
                }
            };
            for tenant in 0..3 {
                let set: Vec<Drawn> = (0..classes).map(|_| drawn(25)).collect();
                let vms: Vec<(u16, Option<u32>)> =
                    (0..3).map(|n| (n, Some(u32::from(n) + tenant))).collect();
                let mut first = request(tenant, &set, &vms);
                first.vms.iter_mut().for_each(|vm| vm.host = vm.host.map(|h| HostId(h.0 % 4)));
                let _ = ledger.place(&first);
            }
            let set: Vec<Drawn> = (0..classes).map(|_| drawn(50)).collect();
            let vms: Vec<(u16, Option<u32>)> = (0..6).map(|n| (n, None)).collect();
            let wanted = request(9, &set, &vms);
            asked += 1;
            let does = any_fits(&ledger, &wanted, 0);
            let mut exact =
                Ledger::new(ledger.topology().clone(), Config { effort: 1_000_000, ..config })
                    .expect("same");
            for tenant in 0..3 {
                if let Some(placement) = ledger.placement(TenantId(tenant)) {
                    let mut same = ledger.request(TenantId(tenant)).expect("there");
                    same.vms
                        .iter_mut()
                        .zip(&placement.vms)
                        .for_each(|(vm, at)| vm.host = Some(at.1));
                    exact.restore(&same, placement.routing).expect("as before");
                }
            }
            assert_eq!(exact.place(&wanted).is_ok(), does, "{wanted:?}");
            feasible += u32::from(does);
            greedy += u32::from(does && ledger.place(&wanted).is_err());
        }
        println!(
            "{classes} classes: greedy refuses {greedy} of {feasible} feasible, {asked} asked"
        );
        assert!(feasible > 50, "{feasible} of {asked} are feasible");
        assert!(greedy * 100 <= feasible * greedy_at_most, "greedy refuses {greedy} of {feasible}");
    }
}
