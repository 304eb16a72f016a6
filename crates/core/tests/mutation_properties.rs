//! Code points that ports change, on generated networks: no two tenants on a link have the same, and a
//! packet arrives with its tenant's value at every port.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::binding::SHARED;
use weir_core::binding::mutation::{Mutation, Sender};
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_units::{SortedMap, SplitMix64, TenantId};

const WAYS: [Direction; 2] = [Direction::Forward, Direction::Backward];

type Tenants = Vec<(TenantId, Vec<LinkId>)>;

/// Ends of links: switches, or a host where there is none.
type Links = Vec<[Option<u32>; 2]>;

fn switches(links: &Links) -> SortedMap<(LinkId, Direction), SwitchId> {
    let mut switches = SortedMap::new();
    for (link, ends) in links.iter().enumerate() {
        for (way, end) in WAYS.into_iter().zip(ends) {
            if let Some(switch) = end {
                switches.insert((LinkId(link as u32), way), SwitchId(*switch));
            }
        }
    }
    switches
}

/// Up to 5 switches, with links between them and to hosts.
fn links() -> impl Strategy<Value = Links> {
    let end = prop_oneof![4 => (0u32..5).prop_map(Some), 1 => Just(None)];
    prop::collection::vec((0u32..5, end).prop_map(|(a, b)| [Some(a), b]), 1..14)
}

/// Tenants, each with some of the links.
fn tenants(links: usize) -> impl Strategy<Value = Tenants> {
    let some = prop::collection::btree_set(0..links as u32, 1..=links.min(6));
    let all = prop::collection::btree_map(0u32..12, some, 0..10);
    all.prop_map(|all| {
        let of = |links: BTreeSet<u32>| links.into_iter().map(LinkId).collect();
        all.into_iter().map(|(tenant, links)| (TenantId(tenant), of(links))).collect()
    })
}

/// A network, its tenants in one interval and in the next, and how many values there are.
fn networks() -> impl Strategy<Value = (Links, Tenants, Tenants, u8)> {
    links().prop_flat_map(|links| {
        let n = links.len();
        (Just(links), tenants(n), tenants(n), 1u8..9)
    })
}

/// What must hold between calls. `without` are those of the tenants that have no values.
fn check(mutation: &Mutation, links: &Links, tenants: &Tenants, without: &[TenantId]) {
    for (at, ends) in links.iter().enumerate() {
        let link = LinkId(at as u32);
        let on =
            || tenants.iter().filter(|(t, links)| links.contains(&link) && !without.contains(t));
        for (way, back) in [(WAYS[0], WAYS[1]), (WAYS[1], WAYS[0])] {
            let (from, to) = (mutation.sender(link, way), mutation.sender(link, back));
            let port = mutation.port(link, way);
            let mut owners = BTreeMap::new();
            for (tenant, _) in on() {
                let value = mutation.value(*tenant, from).expect("a value at all of its nodes");
                assert_ne!(value, SHARED);
                assert_eq!(
                    owners.insert(value, *tenant),
                    None,
                    "{value} twice on {link:?} {way:?}"
                );
            }
            if ends[1 - way as usize].is_none() {
                assert!(port.is_empty(), "a host changes nothing");
                continue;
            }
            for (value, next) in port {
                let wanted = owners.get(&value).and_then(|tenant| mutation.value(*tenant, to));
                assert_eq!(
                    next,
                    wanted.unwrap_or(SHARED),
                    "{value} at the end of {link:?} {way:?}"
                );
            }
        }
    }
    for tenant in without {
        let all = (0..links.len()).flat_map(|l| WAYS.map(|way| (LinkId(l as u32), way)));
        let mut values = all.map(|(l, way)| mutation.value(*tenant, mutation.sender(l, way)));
        assert!(values.all(|value| value.is_none()), "{tenant:?} has a value somewhere");
    }
}

/// The most tenants that a tenant meets on links that one node sends into, itself included.
fn most_met(mutation: &Mutation, links: &[LinkId], tenants: &Tenants) -> usize {
    let mut met: BTreeMap<Sender, BTreeSet<TenantId>> = BTreeMap::new();
    for link in links {
        for way in WAYS {
            let on = tenants.iter().filter(|(_, links)| links.contains(link));
            met.entry(mutation.sender(*link, way))
                .or_default()
                .extend(on.map(|(tenant, _)| *tenant));
        }
    }
    met.values().map(BTreeSet::len).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn no_two_tenants_on_a_link_have_one_value_and_ports_lead_each_to_its_next(
        (links, first, second, values) in networks(),
    ) {
        let mut mutation = Mutation::new(switches(&links), (1..=values).collect());
        for tenants in [&first, &second] {
            let without = mutation.assign(tenants);
            check(&mutation, &links, tenants, &without);
        }
    }

    #[test]
    fn a_tenant_that_stays_on_its_tree_keeps_its_values(
        (links, first, second, values) in networks(),
    ) {
        let mut mutation = Mutation::new(switches(&links), (1..=values).collect());
        let without = mutation.assign(&first);
        let before = mutation.clone();
        // Every other one goes, or gets another tree. Others come. All of these are named before those
        // that stay.
        let stays = |tenant: &TenantId| tenant.0.is_multiple_of(2) && !without.contains(tenant);
        let known: BTreeSet<TenantId> = first.iter().map(|(t, _)| *t).filter(stays).collect();
        let is_other = |(t, _): &&(TenantId, Vec<LinkId>)| !known.contains(t);
        let mut next: Tenants = second.iter().filter(is_other).cloned().collect();
        next.extend(first.iter().filter(|(t, _)| known.contains(t)).cloned());
        let refused = mutation.assign(&next);
        for (tenant, links) in first.iter().filter(|(t, _)| known.contains(t)) {
            prop_assert!(!refused.contains(tenant));
            for sender in links.iter().flat_map(|link| WAYS.map(|way| before.sender(*link, way))) {
                prop_assert_eq!(mutation.value(*tenant, sender), before.value(*tenant, sender));
            }
        }
    }

    #[test]
    fn as_many_values_as_tenants_meet_at_a_node_are_enough((links, tenants, _, values) in networks()) {
        let mut mutation = Mutation::new(switches(&links), (1..=values).collect());
        for tenant in mutation.assign(&tenants) {
            let links = &tenants.iter().find(|(t, _)| *t == tenant).expect("one of them").1;
            let most = most_met(&mutation, links, &tenants);
            prop_assert!(most > usize::from(values), "{most} at most, and {values} values");
        }
    }
}

#[test]
fn three_tenants_of_which_each_meets_both_others_need_two_values_where_ports_change_them() {
    // A ring of three switches; each tenant has two of the three links.
    let ring: Links = vec![[Some(0), Some(1)], [Some(1), Some(2)], [Some(2), Some(0)]];
    let on = |links: [u32; 2]| links.map(LinkId).to_vec();
    let tenants: Tenants =
        [[0, 1], [1, 2], [2, 0]].into_iter().zip(0..).map(|(l, t)| (TenantId(t), on(l))).collect();
    let mut mutation = Mutation::new(switches(&ring), vec![SHARED, 10, 12]);
    assert_eq!(mutation.assign(&tenants), []);
    check(&mutation, &ring, &tenants, &[]);
    let mut few = Mutation::new(switches(&ring), vec![10]);
    assert_eq!(few.assign(&tenants), [TenantId(1), TenantId(2)], "on each link there are two");
}

#[test]
fn a_packet_has_its_tenants_value_at_every_port_and_a_strangers_has_none() {
    // host - 0 - 1 - 2 - host; the second tenant is on the middle, the third at the end.
    let line: Links =
        vec![[None, Some(0)], [Some(0), Some(1)], [Some(1), Some(2)], [Some(2), None]];
    let tenants: Tenants = [vec![1, 2], vec![2, 3], vec![0, 1, 2, 3]]
        .into_iter()
        .zip(0..)
        .map(|(links, t)| (TenantId(t), links.into_iter().map(LinkId).collect()))
        .collect();
    let mut mutation = Mutation::new(switches(&line), (1..8).collect());
    assert_eq!(mutation.assign(&tenants), []);
    let last = TenantId(2);
    let mut carried = mutation.value(last, Sender::Host(LinkId(0))).expect("its host tags it");
    for link in (0..3).map(LinkId) {
        carried = mutation.port(link, Direction::Forward)[&carried];
        let next = mutation.sender(LinkId(link.0 + 1), Direction::Forward);
        assert_eq!(Some(carried), mutation.value(last, next));
        let others =
            tenants.iter().filter(|(t, links)| *t != last && links.contains(&LinkId(link.0 + 1)));
        assert!(others.clone().all(|(t, _)| mutation.value(*t, next) != Some(carried)));
    }
    assert_eq!(mutation.port(LinkId(0), Direction::Forward)[&7], SHARED, "nobody has 7 there");
}

/// Leaves, spines and hosts below each leaf.
const FABRIC: [u64; 3] = [32, 16, 16];

/// The links of a fabric: of hosts first, then of leaves.
fn fabric() -> Links {
    let [leaves, spines, hosts] = FABRIC.map(|n| n as u32);
    let of_hosts = (0..leaves * hosts).map(|host| [None, Some(host / hosts)]);
    let up = (0..leaves * spines).map(|at| [Some(at / spines), Some(leaves + at % spines)]);
    of_hosts.chain(up).collect()
}

/// Tenants with two to nine hosts, each on the tree of one spine, as long as links have no more than
/// seven of them.
fn filled() -> Tenants {
    let [leaves, spines, hosts] = FABRIC;
    let mut random = {
        let mut at = 0;
        move |below: u64| {
            at += 1;
            SplitMix64::mix(at) % below
        }
    };
    let mut on: BTreeMap<LinkId, usize> = BTreeMap::new();
    let mut tenants = Tenants::new();
    for _ in 0..5_000 {
        let (first, spine, size) = (random(leaves * hosts), random(spines), 2 + random(8));
        let its: BTreeSet<u64> =
            (0..size).map(|_| (first + random(leaves * hosts)) % (leaves * hosts)).collect();
        let below: BTreeSet<u64> = its.iter().map(|host| host / hosts).collect();
        let up = below.iter().map(|leaf| leaves * hosts + leaf * spines + spine);
        let links = its.iter().copied().chain(up.filter(|_| below.len() > 1));
        let links: Vec<LinkId> = links.map(|link| LinkId(link as u32)).collect();
        if links.iter().all(|link| on.get(link).is_none_or(|tenants| *tenants < 7)) {
            links.iter().for_each(|link| *on.entry(*link).or_default() += 1);
            tenants.push((TenantId(tenants.len() as u32), links));
        }
    }
    tenants
}

#[test]
fn on_a_full_fabric_ports_that_change_values_need_two_thirds_of_them() {
    let (links, tenants) = (fabric(), filled());
    // One value for a whole tree: the first that no tenant on its links has.
    let mut alone: BTreeMap<LinkId, BTreeSet<u8>> = BTreeMap::new();
    let mut most = 0;
    for (_, links) in &tenants {
        let taken =
            |value: &u8| links.iter().any(|l| alone.get(l).is_some_and(|v| v.contains(value)));
        let value = (1..64).find(|value| !taken(value)).expect("one of 63");
        links.iter().for_each(|link| _ = alone.entry(*link).or_default().insert(value));
        most = most.max(value);
    }
    let needed = (7..most).find(|values| {
        let mut mutation = Mutation::new(switches(&links), (1..=*values).collect());
        mutation.assign(&tenants).is_empty()
    });
    assert_eq!((tenants.len(), most, needed), (660, 20, Some(13)));
}
