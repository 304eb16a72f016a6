//! Shapes of tenants and of trouble: components, the outside, hosts, survival, failed links.

use weir_core::ledger::{
    Attachment, Class, Config, Direction, Floors, LeafSpineShape, Ledger, Link, LinkId, Node,
    Refusal, Routing, Survival, SwitchId, TenantRequest, Topology, VmRequest,
};
use weir_units::{HostId, Rate, TenantId, VmId};

fn mbps(rate: u64) -> Rate {
    Rate::from_mbps(rate)
}

/// Two racks of two hosts with eight slots; 1 Gb/s everywhere, no headroom. Hosts' links are 2, 3, 4
/// and 5 with the host as `a`; racks' uplinks are 0 and 1 with the rack as `a`.
fn racks() -> Ledger {
    let topology = Topology::two_tier(2, 2, 8, mbps(1_000), mbps(1_000));
    Ledger::new(topology, Config { headroom: 0.0, ..Config::default() }).expect("a topology")
}

fn leaf_spine() -> Topology {
    Topology::leaf_spine(LeafSpineShape {
        leaves: 2,
        spines: 2,
        hosts_per_leaf: 2,
        slots: 8,
        host_rate: mbps(1_000),
        uplink_rate: mbps(1_000),
        spread: false,
    })
}

fn without(failed: &[LinkId], topology: Topology) -> Ledger {
    let config = Config { headroom: 0.0, ..Config::default() };
    Ledger::without(failed, &[], topology, config).expect("a topology")
}

fn on(vm: u32, class: u16, host: u32) -> VmRequest {
    VmRequest { vm: VmId(vm), class, host: Some(HostId(host)) }
}

fn both(ledger: &Ledger, link: u32) -> [u64; 2] {
    let of = |direction| ledger.link(LinkId(link), direction).1.as_bps() / 1_000_000;
    [of(Direction::Forward), of(Direction::Backward)]
}

fn pair(tenant: u32, rate: u64, hosts: [u32; 2]) -> TenantRequest {
    let mut request = TenantRequest::uniform(TenantId(tenant), 2, mbps(rate));
    request.vms = vec![on(0, 0, hosts[0]), on(1, 0, hosts[1])];
    request
}

#[test]
fn floors_between_components_count_in_their_direction_alone() {
    let mut ledger = racks();
    // Three web VMs send 100 each to two databases, which take 120 each; databases talk at 50.
    let send = Attachment { hose: 0, floors: Floors { out: mbps(100), into: Rate::ZERO } };
    let take = Attachment { hose: 0, floors: Floors { out: Rate::ZERO, into: mbps(120) } };
    let own = Attachment { hose: 1, floors: Floors::both(mbps(50)) };
    let class = |hoses: Vec<Attachment>| Class { slots: 1, hoses, external: Floors::default() };
    let request = TenantRequest {
        classes: vec![class(vec![send]), class(vec![take, own])],
        vms: vec![on(0, 0, 0), on(1, 0, 0), on(2, 0, 0), on(3, 1, 2), on(4, 1, 3)],
        ..TenantRequest::uniform(TenantId(1), 0, Rate::ZERO)
    };
    ledger.place(&request).expect("fits");
    // 300 may be sent, 240 taken.
    assert_eq!(both(&ledger, 2), [240, 0]);
    assert_eq!(both(&ledger, 0), [240, 0]);
    assert_eq!(both(&ledger, 4), [50, 120 + 50]);
    ledger.audit().expect("sums");
}

#[test]
fn floors_to_the_outside_count_on_all_links_up_to_the_gateway() {
    let mut ledger = racks();
    let mut request = TenantRequest::uniform(TenantId(1), 1, mbps(10));
    request.classes[0].external = Floors { out: mbps(70), into: mbps(30) };
    request.vms = vec![on(0, 0, 3)];
    ledger.place(&request).expect("fits");
    assert_eq!(both(&ledger, 5), [70, 30]);
    assert_eq!(both(&ledger, 1), [70, 30]);
    assert_eq!(both(&ledger, 0), [0, 0]);
    assert_eq!(ledger.gateway_of(TenantId(1)), Some(SwitchId(0)));
}

#[test]
fn a_host_is_an_endpoint_that_takes_no_slot() {
    let mut ledger = racks();
    let mut storage = TenantRequest::uniform(TenantId(0), 0, mbps(200));
    storage.classes[0].slots = 0;
    storage.vms = (0..4).map(|host| on(host, 0, host)).collect();
    ledger.place(&storage).expect("fits");
    assert!((0..4).all(|host| ledger.slots(HostId(host)).1 == 0));
    assert!((2..6).all(|link| both(&ledger, link) == [200, 200]));
    assert_eq!(both(&ledger, 0), [400, 400]);
    let refusal = ledger.place(&pair(1, 900, [0, 2])).expect_err("no room");
    let Refusal::Link(full) = refusal else { panic!("{refusal}") };
    assert!(full.in_the_way.iter().any(|(tenant, _)| *tenant == TenantId(0)));
}

#[test]
fn survival_spreads_a_tenant_over_hosts_and_racks() {
    let mut ledger = racks();
    let mut request = TenantRequest::uniform(TenantId(1), 8, mbps(10));
    request.survival = Survival { host_permille: 500, rack_permille: 0 };
    let placed = ledger.place(&request).expect("two hosts");
    let count = |host: u32| placed.vms.iter().filter(|(_, at)| at.0 == host).count();
    assert_eq!([0, 1, 2, 3].map(count), [4, 4, 0, 0]);
    request.tenant = TenantId(2);
    request.survival = Survival { host_permille: 500, rack_permille: 500 };
    let placed = ledger.place(&request).expect("two racks");
    let racks = placed.vms.iter().filter(|(_, at)| at.0 < 2).count();
    assert_eq!(racks, 4);
    request.tenant = TenantId(3);
    request.survival = Survival { host_permille: 900, rack_permille: 0 };
    assert_eq!(ledger.place(&request), Err(Refusal::Survival));
    ledger.audit().expect("sums");
}

#[test]
fn without_a_spine_the_first_tenant_takes_the_other_and_the_second_is_refused() {
    let topology = leaf_spine();
    for spine in [2, 3].map(|spine| Node::Switch(SwitchId(spine))) {
        let links = (0..).zip(&topology.links);
        let of_spine = links.filter(|(_, link)| link.a == spine || link.b == spine);
        let failed: Vec<LinkId> = of_spine.map(|(n, _)| LinkId(n)).collect();
        let mut ledger = without(&failed, topology.clone());
        let placed = ledger.place(&pair(1, 600, [0, 2])).expect("the other spine");
        assert!(placed.links.iter().all(|need| !failed.contains(&need.link)), "{placed:?}");
        let refused = ledger.place(&pair(2, 600, [1, 3])).expect_err("no room");
        let Refusal::Link(full) = refused else { panic!("{refused}") };
        assert_eq!(full.in_the_way, [(TenantId(1), mbps(600))]);
        ledger.audit().expect("sums");
    }
}

#[test]
fn a_closed_host_keeps_what_it_has_and_takes_nothing_new() {
    let mut ledger = racks();
    ledger.place(&pair(1, 300, [0, 2])).expect("fits");
    ledger.close(HostId(2), true);
    assert_eq!(both(&ledger, 4), [300, 300]);
    assert_eq!(ledger.place(&pair(2, 10, [0, 2])), Err(Refusal::HostClosed(HostId(2))));
    ledger.resize(&pair(1, 400, [0, 2])).expect("it is there already");
    ledger.close(HostId(2), false);
    ledger.place(&pair(2, 10, [0, 2])).expect("open again");
    ledger.audit().expect("sums");
}

#[test]
fn what_a_ledger_says_of_its_tenants_builds_it_again() {
    let mut ledger = without(&[], leaf_spine());
    for tenant in 0..6 {
        let size = 3 + tenant % 3;
        ledger.place(&TenantRequest::uniform(TenantId(tenant), size, mbps(60))).expect("fits");
    }
    let mut again = without(&[], leaf_spine());
    for id in ledger.tenants() {
        let request = ledger.request(id).expect("there");
        let placement = ledger.placement(id).expect("there");
        assert_eq!(again.restore(&request, placement.routing), Ok(placement));
    }
    again.audit().expect("sums");
}

#[test]
fn a_link_that_drains_keeps_what_it_has_and_gets_nothing_more() {
    let mut topology = leaf_spine();
    topology.links.iter_mut().filter(|link| matches!(link.a, Node::Host(_))).for_each(|nic| {
        nic.rate = mbps(10_000);
    });
    let mut before = without(&[], topology.clone());
    // The third shares a spine with the first, beside whom the second did not fit.
    for (tenant, rate) in [(1, 300), (2, 800), (3, 600)] {
        before.place(&pair(tenant, rate, [0, 2])).expect("two spines hold all");
    }
    before.resize(&pair(2, 600, [0, 2])).expect("it is less");
    let tree = |ledger: &Ledger, n: u32| ledger.routing(TenantId(n)).expect("it is there");
    let root = |ledger: &Ledger, n: u32| match tree(ledger, n) {
        Routing::Tree { root, .. } => root,
        other => panic!("{other:?} is no tree"),
    };
    assert_eq!([1, 2].map(|n| root(&before, n) == root(&before, 3)), [true, false]);
    let spine = root(&before, 3);
    let is_of_root = |link: &Link| [link.a, link.b].contains(&Node::Switch(spine));
    let link = topology.links.iter().position(is_of_root).expect("a spine has links");
    let link = LinkId(link as u32);
    let config = Config { headroom: 0.0, ..Config::default() };
    let mut ledger = Ledger::without(&[], &[link], topology, config).expect("a topology");
    ledger.keep(true);
    for n in 1..4 {
        let request = before.request(TenantId(n)).expect("it is there");
        ledger.restore(&request, Some(tree(&before, n))).expect("it had room");
        assert_eq!(tree(&ledger, n), tree(&before, n), "draining takes no floor away");
    }
    ledger.keep(false);
    assert_eq!(ledger.draining_of(TenantId(3)), [link]);
    assert_eq!(ledger.draining_of(TenantId(2)), []);
    // More is refused, less is not, and what was given up does not come back.
    for (rate, fits) in [(601, false), (600, true), (350, true), (600, false)] {
        assert_eq!(ledger.resize(&pair(3, rate, [0, 2])).is_ok(), fits, "{rate}");
        ledger.audit().expect("sums");
    }
    ledger.place(&pair(4, 0, [1, 3])).expect("the other spine joins them");
    assert_eq!(root(&ledger, 4), root(&ledger, 2));
    let refusal = ledger.place(&pair(5, 401, [1, 3])).expect_err("no room on the other spine");
    let Refusal::Link(full) = refusal else { panic!("{refusal}") };
    assert!(!ledger.is_draining(full.link), "a link that is full tells more than one that drains");
    // The first fits beside 600, and then the third does not.
    assert!(ledger.leave(TenantId(1)));
    assert_eq!(root(&ledger, 1), root(&ledger, 2));
    assert!(!ledger.leave(TenantId(3)) && !ledger.leave(TenantId(1)));
    assert!(ledger.remove(TenantId(1)));
    assert!(ledger.leave(TenantId(3)), "350 beside 600");
    assert_eq!(ledger.tenants_on(link), []);
    ledger.audit().expect("sums");
}
