//! The ledger's promises on drawn datacenters: sums, soundness, completeness, all or nothing.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_core::ledger::{
    Attachment, Class, Config, Direction, Element, Exploration, FatTreeShape, Floors, Host,
    HostState, LeafSpineShape, Ledger, Link, LinkId, Node, Refusal, Routing, Survival, Switch,
    SwitchId, TenantRequest, Topology, VmRequest,
};
use weir_core::placement::{Policy, Weight};
use weir_units::{HostId, Rate, TenantId, Time, VmId};

/// Rates are in units of 1 Mb/s.
fn mbps(rate: u64) -> Rate {
    Rate::from_mbps(rate)
}

/// A small datacenter of each kind, with links of about 100 to 200.
fn topology(kind: u8, slots: u32, wide: u64) -> Topology {
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
type Drawn = [[u64; 2]; 3];

fn class(drawn: &Drawn) -> Class {
    let floors = |of: [u64; 2]| Floors { out: mbps(of[0]), into: mbps(of[1]) };
    let hoses = (0..2).map(|h| Attachment { hose: h, floors: floors(drawn[usize::from(h)]) });
    Class { slots: 1, hoses: hoses.collect(), external: floors(drawn[2]) }
}

fn request(
    tenant: u32,
    priority: u8,
    classes: &[Drawn],
    vms: &[(u16, Option<u32>)],
) -> TenantRequest {
    let vm = |(n, (class, host)): (u32, &(u16, Option<u32>))| VmRequest {
        vm: VmId(n),
        class: class % classes.len() as u16,
        host: host.map(HostId),
    };
    TenantRequest {
        tenant: TenantId(tenant),
        priority,
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
        if ledger.fallen(*id).is_some() {
            continue;
        }
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

fn drawn_class() -> impl Strategy<Value = Drawn> {
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
        let config = Config { headroom: 0.0, policy, effort, ..Config::default() };
        let mut ledger = Ledger::new(topology(kind, 3, wide), config).expect("a topology");
        let mut accepted = BTreeMap::new();
        for (n, (classes, vms)) in (0..).zip(&tenants) {
            let mut vms = vms.clone();
            let hosts = ledger.topology().hosts.len() as u32;
            vms.iter_mut().for_each(|vm| vm.1 = vm.1.map(|host| host % hosts));
            let request = request(n, 0, classes, &vms);
            if ledger.place(&request).is_ok() {
                accepted.insert(request.tenant, request);
            }
            prop_assert_eq!(ledger.audit(), Ok(()));
        }
        prop_assert_eq!(worst_case(&ledger, &accepted), Ok(()));
    }
}
