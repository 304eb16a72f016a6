//! The ledger's answers in worked cases.

use weir_core::ledger::{
    Config, Direction, Ledger, LinkId, Refusal, Routing, TenantRequest, Topology, VmRequest,
};
use weir_units::{HostId, Rate, TenantId, VmId};

/// Two racks of two hosts with four slots each; links of 1 Gb/s, uplinks of 1 Gb/s, no headroom.
fn ledger() -> Ledger {
    let gbit = Rate::from_mbps(1_000);
    let topology = Topology::two_tier(2, 2, 4, gbit, gbit);
    Ledger::new(topology, Config { headroom: 0.0, ..Config::default() }).expect("a topology")
}

fn on(vm: u32, host: u32) -> VmRequest {
    VmRequest { vm: VmId(vm), class: 0, host: Some(HostId(host)) }
}

fn sums(ledger: &Ledger) -> Vec<[Rate; 2]> {
    let links = 0..ledger.topology().links.len() as u32;
    let of = |l| [Direction::Forward, Direction::Backward].map(|d| ledger.link(LinkId(l), d).1);
    links.map(of).collect()
}

#[test]
fn a_tenant_that_fits_one_host_reserves_no_link() {
    let mut ledger = ledger();
    let placement = ledger.place(&TenantRequest::uniform(TenantId(1), 4, Rate::from_mbps(900)));
    let placement = placement.expect("fits");
    assert_eq!(placement.routing, Some(Routing::Host(HostId(0))));
    assert_eq!(placement.links, []);
    assert!(placement.vms.iter().all(|(_, host)| *host == HostId(0)));
    ledger.audit().expect("sums");
}

#[test]
fn a_link_has_the_smaller_side_of_the_hose() {
    let mut ledger = ledger();
    let placement = ledger.place(&TenantRequest::uniform(TenantId(1), 5, Rate::from_mbps(100)));
    let placement = placement.expect("fits");
    // Four on one host and one on its neighbour: each link carries one VM's floor.
    assert_eq!(placement.links.len(), 2);
    for need in &placement.links {
        assert_eq!(need.forward, Rate::from_mbps(100));
        assert_eq!(need.backward, Rate::from_mbps(100));
    }
    assert!(ledger.remove(TenantId(1)));
    assert!(sums(&ledger).iter().flatten().all(|sum| sum.is_zero()));
    ledger.audit().expect("sums");
}

#[test]
fn a_refusal_names_link_missing_rate_and_the_tenants_in_the_way() {
    let mut ledger = ledger();
    let mut request = TenantRequest::uniform(TenantId(1), 2, Rate::from_mbps(700));
    request.vms = vec![on(0, 0), on(1, 2)];
    ledger.place(&request).expect("fits");
    request.tenant = TenantId(2);
    let before = sums(&ledger);
    let Err(Refusal::Link(full)) = ledger.place(&request) else { panic!("must not fit") };
    assert_eq!(full.missing(), Rate::from_mbps(400));
    assert_eq!(full.in_the_way, [(TenantId(1), Rate::from_mbps(700))]);
    assert_eq!(sums(&ledger), before);
    ledger.audit().expect("sums");
}

#[test]
fn a_resize_that_does_not_fit_leaves_the_old_state() {
    let mut ledger = ledger();
    let mut request = TenantRequest::uniform(TenantId(1), 6, Rate::from_mbps(100));
    let placed = ledger.place(&request).expect("fits");
    request.classes[0].hoses[0].floors.out = Rate::from_mbps(2_000);
    request.classes[0].hoses[0].floors.into = Rate::from_mbps(2_000);
    assert!(matches!(ledger.resize(&request), Err(Refusal::Link(_))));
    assert_eq!(ledger.placement(TenantId(1)), Some(placed.clone()));
    let request = TenantRequest::uniform(TenantId(1), 8, Rate::from_mbps(150));
    let now = ledger.resize(&request).expect("fits").vms;
    assert_eq!(now[..6], placed.vms);
    ledger.audit().expect("sums");
}

#[test]
fn a_tenant_is_put_back_as_it_was_saved_even_if_it_would_not_be_admitted_again() {
    let mut ledger = ledger();
    let empty = ledger.save(TenantId(1));
    let mut request = TenantRequest::uniform(TenantId(1), 2, Rate::from_mbps(100));
    request.survival.host_permille = 500;
    request.vms = vec![on(0, 0), on(1, 2)];
    ledger.place(&request).expect("half of it survives each host");
    // One VM alone survives nothing, but its owner chose which goes.
    ledger.release(TenantId(1), &[VmId(1)]).expect("less always fits");
    let (saved, before) = (ledger.save(TenantId(1)), sums(&ledger));
    request.vms = vec![on(0, 0), on(1, 3)];
    ledger.resize(&request).expect("fits");
    ledger.reset(saved);
    ledger.audit().expect("sums");
    assert_eq!(sums(&ledger), before);
    assert_eq!(ledger.placement(TenantId(1)).expect("there").vms, [(VmId(0), HostId(0))]);
    ledger.reset(empty);
    assert_eq!(ledger.tenants().count(), 0);
    assert!(sums(&ledger).iter().flatten().all(|sum| sum.is_zero()));
    ledger.audit().expect("sums");
}

#[test]
fn what_is_restored_with_its_hosts_stays_there_whatever_survives() {
    let mut ledger = ledger();
    let mut request = TenantRequest::uniform(TenantId(1), 2, Rate::from_mbps(100));
    request.survival.host_permille = 500;
    request.vms = vec![on(0, 0), on(1, 0)];
    assert_eq!(ledger.place(&request), Err(Refusal::Survival));
    let placement = ledger.restore(&request, None).expect("it was admitted once");
    assert!(placement.vms.iter().all(|(_, host)| *host == HostId(0)));
    assert_eq!(ledger.routing(TenantId(1)), Some(Routing::Host(HostId(0))));
    // Its survival is asked for again when it changes.
    assert_eq!(ledger.resize(&request), Err(Refusal::Survival));
    request.vms = vec![on(0, 0), on(1, 2)];
    ledger.resize(&request).expect("it survives");
    ledger.audit().expect("sums");
}
