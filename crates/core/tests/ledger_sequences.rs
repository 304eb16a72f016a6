//! The ledger after any calls: sums, keys, and nothing changed by what was refused.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ledger::{
    Config, Direction, Element, HostState, Key, KeyState, Ledger, LinkId, Placement, Quota,
    QuotaKind, Refusal, SwitchId, TenantRequest, Topology, VmRequest,
};
use weir_units::{HostId, Rate, TenantId, Time, VmId};

const GBIT: Rate = Rate::from_mbps(1_000);

/// Two racks of two hosts, links and uplinks of 1 Gb/s, no headroom.
fn ledger(slots: u32) -> Ledger {
    let topology = Topology::two_tier(2, 2, slots, GBIT, GBIT);
    Ledger::new(topology, Config { headroom: 0.0, ..Config::default() }).expect("a topology")
}

fn on(vm: u32, host: u32) -> VmRequest {
    VmRequest { vm: VmId(vm), class: 0, host: Some(HostId(host)) }
}

/// A tenant whose VMs are on these hosts.
fn tenant(id: u32, floor: u64, hosts: &[u32]) -> TenantRequest {
    let vms = (0..).zip(hosts).map(|(vm, host)| on(vm, *host)).collect();
    TenantRequest { vms, ..TenantRequest::uniform(TenantId(id), 0, Rate::from_mbps(floor)) }
}

/// Placements, and whether floors hold; sums of links; slots of hosts.
type State = (Vec<(TenantId, Option<Placement>, bool)>, Vec<[(Rate, Rate); 2]>, Vec<(u32, u32)>);

/// All that a caller can see of tenants, links and hosts.
fn state(ledger: &Ledger) -> State {
    let ids: Vec<TenantId> = ledger.tenants().collect();
    let tenants = ids.iter().map(|id| (*id, ledger.placement(*id), ledger.fallen(*id).is_none()));
    let links = 0..ledger.topology().links.len() as u32;
    let both = |l| [Direction::Forward, Direction::Backward].map(|d| ledger.link(LinkId(l), d));
    let hosts = 0..ledger.topology().hosts.len() as u32;
    (tenants.collect(), links.map(both).collect(), hosts.map(|h| ledger.slots(HostId(h))).collect())
}

#[test]
fn a_reservation_that_loses_a_vm_with_its_host_is_given_up_whole() {
    let mut ledger = ledger(4);
    ledger.place(&tenant(1, 100, &[])).expect("empty");
    let key = "a".to_owned();
    ledger.reserve(&key, TenantId(1), &[on(0, 0), on(1, 2)], None).expect("fits");
    let said = ledger.set_host(HostId(0), HostState::Dead).expect("a host");
    assert_eq!(said.lost, [(TenantId(1), VmId(0))]);
    assert_eq!(said.ended, [key.as_str()]);
    assert_eq!(ledger.key(&key), Some(KeyState::Aborted));
    assert_eq!(ledger.placement(TenantId(1)).expect("there").vms, []);
    ledger.audit().expect("sums");
}

#[test]
fn a_key_that_lost_its_vm_never_touches_a_later_vm_of_that_number() {
    let mut ledger = ledger(4);
    ledger.place(&tenant(1, 100, &[])).expect("empty");
    let (old, new) = ("old".to_owned(), "new".to_owned());
    ledger.reserve(&old, TenantId(1), &[on(0, 0), on(1, 2)], None).expect("fits");
    ledger.set_host(HostId(0), HostState::Dead).expect("a host");
    ledger.reserve(&new, TenantId(1), &[on(0, 3)], None).expect("fits");
    let before = state(&ledger);
    assert_eq!(ledger.confirm(&old, Time::from_nanos(1)), Err(Refusal::Aborted));
    ledger.abort(&old).expect("a repetition");
    assert_eq!(state(&ledger), before);
    assert_eq!(ledger.key(&new), Some(KeyState::Held { until: None }));
    let after = ledger.confirm(&new, Time::from_nanos(1)).expect("held");
    assert_eq!(after.vms, [(VmId(0), HostId(3))]);
}

#[test]
fn a_migration_is_confirmed_by_its_sources_death_and_ended_by_its_targets() {
    let cases = [(0, KeyState::Confirmed, 2), (2, KeyState::Aborted, 0)];
    for (dead, state, host) in cases {
        let mut ledger = ledger(4);
        ledger.place(&tenant(1, 100, &[0, 1])).expect("fits");
        let key = "m".to_owned();
        ledger.migrate(&key, TenantId(1), VmId(0), HostId(2)).expect("fits");
        let said = ledger.set_host(HostId(dead), HostState::Dead).expect("a host");
        assert_eq!(said.lost, [], "host {dead}");
        assert_eq!(ledger.key(&key), Some(state), "host {dead}");
        let vms = ledger.placement(TenantId(1)).expect("there").vms;
        assert_eq!(vms[0], (VmId(0), HostId(host)), "host {dead}");
        ledger.audit().expect("sums");
    }
}

#[test]
fn a_silent_host_keeps_its_reservations() {
    let mut ledger = ledger(4);
    ledger.place(&tenant(1, 100, &[0, 1])).expect("fits");
    let before = state(&ledger);
    ledger.set_host(HostId(0), HostState::Silent).expect("a host");
    assert_eq!(state(&ledger), before);
    let refused = ledger.place(&tenant(2, 100, &[0]));
    assert_eq!(refused, Err(Refusal::HostClosed(HostId(0))));
}

#[test]
fn floors_fall_by_priority_and_return_when_asked_after_a_removal() {
    let mut ledger = ledger(4);
    let place = |ledger: &mut Ledger, id: u32, priority: u8| {
        let request = TenantRequest { priority, ..tenant(id, 400, &[0, 2]) };
        ledger.place(&request).expect("fits");
    };
    place(&mut ledger, 1, 1);
    place(&mut ledger, 2, 5);
    let rack = ledger.topology().links.iter().position(|link| {
        let names = [link.a, link.b];
        names.iter().all(|node| matches!(node, weir_core::ledger::Node::Switch(_)))
    });
    let uplink = Element::Link(LinkId(rack.expect("an uplink") as u32));
    let plan = ledger.without(&[uplink]);
    let before = state(&ledger);
    let said = ledger.fail(&[uplink]);
    assert_eq!(said, plan, "a plan says what happens");
    let fallen: Vec<TenantId> = said.fallen.iter().map(|(id, _)| *id).collect();
    assert_eq!(fallen, [TenantId(2), TenantId(1)]);
    let said = ledger.repair(&[uplink]);
    assert_eq!(said.returned, [TenantId(2), TenantId(1)]);
    assert_eq!(state(&ledger), before);
    assert_eq!(ledger.retry(), weir_core::ledger::Consequence::default());
    // While both are down, a third takes the host's link; its removal lets both return.
    ledger.fail(&[uplink]);
    let third = TenantRequest { priority: 9, ..tenant(3, 900, &[0, 1]) };
    ledger.place(&third).expect("fits");
    assert_eq!(ledger.repair(&[uplink]).returned, []);
    assert!(ledger.remove(TenantId(3)));
    assert_eq!(ledger.retry().returned, [TenantId(2), TenantId(1)]);
    assert_eq!(state(&ledger), before);
    ledger.audit().expect("sums");
}

/// A drawn call: kind, tenant, VM, host, number, floor.
type Call = (u8, u32, u32, u32, u32, u64);

/// Keys' wishes that the ledger has taken, by key.
type Wishes = BTreeMap<Key, (TenantId, Vec<VmRequest>, Option<Time>)>;

/// Makes a call; whether it was refused. Refusals that end a reservation count as done.
fn play(
    ledger: &mut Ledger,
    wishes: &mut Wishes,
    now: Time,
    (kind, id, vm, host, number, floor): Call,
) -> Result<bool, TestCaseError> {
    let key = format!("k{number}");
    let tenant_id = TenantId(id);
    let until = (number % 2 == 0).then(|| Time::from_nanos(now.as_nanos() + 5));
    let element = match vm % 3 {
        0 => Element::Switch(SwitchId(host % 3)),
        _ => Element::Link(LinkId(host % ledger.topology().links.len() as u32)),
    };
    let mut request = TenantRequest::uniform(tenant_id, number, Rate::from_mbps(floor));
    request.priority = (floor % 3) as u8;
    Ok(match kind {
        0 => ledger.place(&request).is_err(),
        1 | 2 => {
            let planned = ledger.plan(&request);
            let answer = ledger.resize(&request);
            if !matches!(answer, Err(Refusal::NoSuchTenant(_))) {
                prop_assert_eq!(&answer, &planned, "a plan says what happens");
            }
            answer.is_err()
        }
        3 => !ledger.remove(tenant_id),
        4 => ledger.release(tenant_id, &[VmId(vm), VmId(vm + 1)]).is_err(),
        5..=7 => {
            let vms = [on(vm + 10, host), on(vm + 11, (host + number) % 4)];
            let answer = ledger.reserve(&key, tenant_id, &vms, until);
            if answer.is_ok() && !wishes.contains_key(&key) {
                wishes.insert(key.clone(), (tenant_id, vms.to_vec(), until));
            }
            if answer.is_ok() {
                let before = state(ledger);
                prop_assert_eq!(ledger.reserve(&key, tenant_id, &vms, until), answer);
                prop_assert_eq!(state(ledger), before, "a repetition takes nothing");
            }
            false
        }
        8 => ledger.migrate(&format!("m{number}"), tenant_id, VmId(vm), HostId(host)).is_err(),
        9 | 10 => {
            let key = if vm % 2 == 0 { key } else { format!("m{number}") };
            match ledger.confirm(&key, now) {
                Err(Refusal::Expired { .. }) => false,
                answer => answer.is_err(),
            }
        }
        11 => {
            let key = if vm % 2 == 0 { key } else { format!("m{number}") };
            ledger.abort(&key).is_err()
        }
        12 => {
            ledger.expire(now);
            prop_assert!(ledger.next_expiry().is_none_or(|next| next > now));
            false
        }
        13 => {
            let plan = ledger.without(&[element]);
            prop_assert_eq!(ledger.fail(&[element]), plan, "a plan says what happens");
            false
        }
        14 => {
            ledger.repair(&[element]);
            false
        }
        15 => {
            ledger.retry();
            false
        }
        _ => {
            let states = [HostState::Open, HostState::Drained, HostState::Silent, HostState::Dead];
            ledger.set_host(HostId(host), states[vm as usize % 4]).is_err()
        }
    })
}

/// Held keys have all of their VMs, each VM has at most one, and the next deadline is the first.
fn check_keys(ledger: &Ledger, wishes: &Wishes) -> Result<(), TestCaseError> {
    let mut seen = BTreeSet::new();
    let mut first = None;
    for (key, (tenant, vms, until)) in wishes {
        let Some(KeyState::Held { until: now_until }) = ledger.key(key) else { continue };
        prop_assert_eq!(now_until, *until);
        first = [first, *until].into_iter().flatten().min();
        let placement = ledger.placement(*tenant);
        for wanted in vms {
            prop_assert!(seen.insert((*tenant, wanted.vm)), "{} has a second key", wanted.vm);
            let there = placement.iter().flat_map(|p| &p.vms).find(|(vm, _)| *vm == wanted.vm);
            prop_assert_eq!(there.map(|(_, host)| Some(*host)), Some(wanted.host), "{}", key);
        }
    }
    prop_assert_eq!(ledger.next_expiry(), first);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_and_keys_hold_after_any_calls_and_a_refusal_changes_nothing(
        calls in vec((0..17u8, 0..3u32, 0..4u32, 0..4u32, 0..6u32, 20..400u64), 1..60),
    ) {
        let mut ledger = ledger(3);
        ledger.set_quota(TenantId(2), Quota { vms: Some(4), ..Quota::default() });
        let mut wishes = Wishes::new();
        for (at, call) in (0..).zip(calls) {
            let before = state(&ledger);
            let was_refused = play(&mut ledger, &mut wishes, Time::from_nanos(at), call)?;
            if was_refused {
                prop_assert_eq!(state(&ledger), before, "call {} {:?}", at, call);
            }
            prop_assert_eq!(ledger.audit(), Ok(()), "call {} {:?}", at, call);
            check_keys(&ledger, &wishes)?;
        }
    }
}

#[test]
fn a_quota_refuses_growth_and_allows_a_smaller_tenant() {
    let mut ledger = ledger(4);
    ledger.place(&tenant(1, 100, &[0, 1, 2])).expect("fits");
    ledger.set_quota(TenantId(1), Quota { vms: Some(1), ..Quota::default() });
    let refused = ledger.resize(&tenant(1, 100, &[0, 1, 2, 3]));
    assert_eq!(refused, Err(Refusal::Quota { kind: QuotaKind::Vms, wanted: 4, limit: 1 }));
    ledger.resize(&tenant(1, 100, &[0, 1])).expect("smaller");
}
