//! The oracle's promises on generated networks, and the oracle against a slow one.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_core::oracle::{
    Allocation, AllocationError, Bottleneck, Flow, Hose, PairDemand, World, allocate, hose_max_min,
};
use weir_units::{PairId, Rate, VmId};

/// Round numbers, where ties abound, and odd ones, where nothing divides.
fn rate(max: u64) -> impl Strategy<Value = Rate> {
    prop_oneof![
        1 => Just(Rate::ZERO),
        4 => (1..=10u64).prop_map(move |tenths| Rate::from_bps(max / 10 * tenths)),
        4 => (1..=max).prop_map(Rate::from_bps),
        1 => (1..=9u64).prop_map(Rate::from_bps),
    ]
}

/// Links and paths at random: loops, empty paths, links without capacity. Mostly the floors fit,
/// many of them just so.
fn any_world() -> impl Strategy<Value = World> {
    let links = vec(rate(1_000_000_000), 1..8);
    let flow = (vec(0..64usize, 0..5), option::of(rate(1_200_000_000)), rate(90_000_000));
    (links, vec(flow, 0..40), prop::bool::weighted(0.9)).prop_map(|(links, flows, fit)| {
        let flows = flows.into_iter().map(|(path, demand, floor)| {
            let path: Vec<usize> = path.into_iter().map(|link| link % links.len()).collect();
            let demand = demand.or(path.is_empty().then_some(floor));
            Flow { path, demand, floor }
        });
        let flows: Vec<Flow> = flows.collect();
        let owed =
            |link| -> Rate { flows.iter().map(|flow| flow.owed() * crossings(flow, link)).sum() };
        let fitting =
            |(link, capacity): (usize, Rate)| if fit { capacity.max(owed(link)) } else { capacity };
        let links = links.into_iter().enumerate().map(fitting).collect();
        World { links, flows }
    })
}

fn crossings(flow: &Flow, link: usize) -> u64 {
    flow.path.iter().filter(|&&l| l == link).count() as u64
}

/// Two tiers of switches, tenants with hoses, and links that carry just what the cuts need, or
/// more.
#[derive(Clone, Debug)]
struct Tree {
    hosts_per_rack: usize,
    tenants: Vec<u32>,
    hoses: Vec<Hose>,
    host_of: Vec<usize>,
    pairs: Vec<PairDemand>,
    world: World,
}

/// Of a tree: a tenant, its floors out and in, the host.
type VmPlan = (u32, Rate, Rate, usize);

fn tree() -> impl Strategy<Value = Tree> {
    let floor = || rate(500_000_000);
    let vm = (0..3u32, floor(), floor(), 0..9usize);
    let pair = (0..64usize, 0..64usize, option::of(rate(1_000_000_000)));
    let slack = prop_oneof![Just(Rate::ZERO), rate(1_000_000_000)];
    (1..4usize, 1..4usize, vec(vm, 2..14), vec(pair, 0..40), vec(slack, 24..25)).prop_map(
        |(racks, hosts_per_rack, vms, pairs, slack)| {
            build_tree(racks, hosts_per_rack, &vms, &pairs, &slack)
        },
    )
}

fn build_tree(
    racks: usize,
    hosts_per_rack: usize,
    vms: &[VmPlan],
    pairs: &[(usize, usize, Option<Rate>)],
    slack: &[Rate],
) -> Tree {
    let hosts = racks * hosts_per_rack;
    let tenants: Vec<u32> = vms.iter().map(|vm| vm.0).collect();
    let hoses =
        vms.iter().map(|&(_, floor_out, floor_in, _)| Hose { floor_out, floor_in }).collect();
    let host_of: Vec<usize> = vms.iter().map(|&(_, _, _, host)| host % hosts).collect();

    let mut named: Vec<PairDemand> = Vec::new();
    for &(src, dst, demand) in pairs {
        let (src, dst) = (src % vms.len(), dst % vms.len());
        let pair = PairId::new(VmId(src as u32), VmId(dst as u32));
        if src != dst && named.iter().all(|known| known.pair != pair) {
            // Nothing but the demand limits two VMs of one host here.
            let demand = demand.or((host_of[src] == host_of[dst]).then_some(Rate::from_bps(7)));
            let shares_hose = tenants[src] == tenants[dst];
            named.push(PairDemand::of_vms(pair, demand, shares_hose));
        }
    }

    let mut tree =
        Tree { hosts_per_rack, tenants, hoses, host_of, pairs: named, world: World::default() };
    let ways = tree.needed(hosts, racks).into_iter().zip(slack.iter().flat_map(|more| [more; 2]));
    tree.world.links = ways.map(|(needed, more)| needed + *more).collect();
    tree.world.flows = tree.flows(hosts);
    tree
}

impl Tree {
    /// What links owe: up (2h) and down (2h+1) of each host, then of each rack. For each tenant the
    /// smaller of what its VMs on one side may send and what those on the other may receive (the
    /// hose cut, Oktopus §4).
    fn needed(&self, hosts: usize, racks: usize) -> Vec<Rate> {
        let below = |unit: usize, of: &dyn Fn(usize) -> usize| {
            let mut sides: BTreeMap<u32, [Rate; 4]> = BTreeMap::new();
            for (vm, hose) in self.hoses.iter().enumerate() {
                let own = sides.entry(self.tenants[vm]).or_default();
                let at = if of(self.host_of[vm]) == unit { 0 } else { 2 };
                own[at] += hose.floor_out;
                own[at + 1] += hose.floor_in;
            }
            let up = sides.values().map(|s| s[0].min(s[3])).sum();
            [up, sides.values().map(|s| s[2].min(s[1])).sum()]
        };
        let hosts = (0..hosts).flat_map(|h| below(h, &|host| host));
        let racks = (0..racks).flat_map(|r| below(r, &|host| host / self.hosts_per_rack));
        hosts.chain(racks).collect()
    }

    fn flows(&self, hosts: usize) -> Vec<Flow> {
        let floors = hose_max_min(&self.hoses, &self.pairs);
        let flow = |(pair, floor): (&PairDemand, Rate)| {
            let host = |vm: VmId| self.host_of[vm.0 as usize];
            let (a, b) = (host(pair.pair.src), host(pair.pair.dst));
            let (rack_a, rack_b) = (a / self.hosts_per_rack, b / self.hosts_per_rack);
            let mut path = if a == b { vec![] } else { vec![2 * a, 2 * b + 1] };
            if rack_a != rack_b {
                path.extend([2 * (hosts + rack_a), 2 * (hosts + rack_b) + 1]);
            }
            Flow { path, demand: pair.demand, floor }
        };
        self.pairs.iter().zip(floors).map(flow).collect()
    }
}

/// Progressive filling as the textbook tells it: all grow by one step; those that are stopped stay.
fn slow(world: &World) -> Vec<f64> {
    const NOTHING: f64 = 1e-3; // bit/s; a thousand times what an f64 loses here
    let mut rates = vec![0.0; world.flows.len()];
    let mut room: Vec<f64> = world.links.iter().map(|link| link.as_f64()).collect();
    let with = |flow: &Flow| flow.owed().as_f64();
    let without = |flow: &Flow| if flow.owed().is_zero() { 1.0 } else { 0.0 };
    for weight in [&with as &dyn Fn(&Flow) -> f64, &without] {
        let weights: Vec<f64> = world.flows.iter().map(weight).collect();
        let mut grows: Vec<bool> = weights.iter().map(|&w| w > 0.0).collect();
        while grows.contains(&true) {
            let mut speed = vec![0.0; room.len()];
            let mut step = f64::INFINITY;
            for i in (0..grows.len()).filter(|&i| grows[i]) {
                world.flows[i].path.iter().for_each(|&link| speed[link] += weights[i]);
                if let Some(demand) = world.flows[i].demand {
                    step = step.min((demand.as_f64() - rates[i]) / weights[i]);
                }
            }
            for link in (0..room.len()).filter(|&link| speed[link] > 0.0) {
                step = step.min(room[link] / speed[link]);
            }
            let step = step.max(0.0);
            room.iter_mut().zip(speed).for_each(|(room, speed)| *room -= step * speed);
            for i in (0..grows.len()).filter(|&i| grows[i]).collect::<Vec<_>>() {
                rates[i] += step * weights[i];
                let flow = &world.flows[i];
                let met = flow.demand.is_some_and(|d| d.as_f64() - rates[i] < NOTHING);
                grows[i] = !met && flow.path.iter().all(|&link| room[link] >= NOTHING);
            }
        }
    }
    rates
}

/// The smallest rate / F as (rate, F), if any pair has a floor.
fn least_share(world: &World, ideal: &Allocation) -> Option<(u128, u128)> {
    let shares = world.flows.iter().zip(&ideal.rates).filter(|(flow, _)| !flow.owed().is_zero());
    shares
        .map(|(flow, rate)| (u128::from(rate.as_bps()), u128::from(flow.owed().as_bps())))
        .min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)))
}

/// The promises in words of their own, not by `check`.
fn assert_promises(world: &World, ideal: &Allocation) -> Result<(), TestCaseError> {
    for (link, capacity) in world.links.iter().enumerate() {
        let load: u64 = world
            .flows
            .iter()
            .zip(&ideal.rates)
            .map(|(f, r)| crossings(f, link) * r.as_bps())
            .sum();
        prop_assert!(load <= capacity.as_bps(), "link {link} carries {load} of {capacity}");
        prop_assert_eq!(load, ideal.loads[link].as_bps());
        let all: u64 = world.flows.iter().map(|flow| crossings(flow, link)).sum();
        let named = ideal.bottlenecks.contains(&Bottleneck::Link(link));
        prop_assert!(!named || load + all >= capacity.as_bps(), "link {link} is not full");
    }
    for (i, (flow, &rate)) in world.flows.iter().zip(&ideal.rates).enumerate() {
        prop_assert!(rate >= flow.owed(), "flow {i} has {rate}, is owed {}", flow.owed());
        prop_assert!(flow.demand.is_none_or(|demand| rate <= demand));
        match ideal.bottlenecks[i] {
            Bottleneck::Demand => prop_assert_eq!(flow.demand, Some(rate)),
            Bottleneck::Link(link) => prop_assert!(flow.path.contains(&link)),
        }
    }
    Ok(())
}

/// The same flows in another order, and where each went.
fn turned(world: &World, by: usize) -> World {
    let mut other = world.clone();
    if !other.flows.is_empty() {
        let by = by % other.flows.len();
        other.flows.rotate_left(by);
        other.flows.reverse();
    }
    other
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn in_an_admitted_tree_every_floor_holds_and_every_flow_has_a_bottleneck(tree in tree()) {
        let ideal = allocate(&tree.world);
        prop_assert!(ideal.is_ok(), "{ideal:?}");
        assert_promises(&tree.world, &ideal.unwrap())?;
    }

    #[test]
    fn any_world_is_allocated_or_its_floors_do_exceed_a_link(world in any_world()) {
        match allocate(&world) {
            Ok(ideal) => assert_promises(&world, &ideal)?,
            Err(AllocationError::FloorsExceedLink { link, owed, capacity }) => {
                let on = world.flows.iter().flat_map(|flow| {
                    flow.path.iter().filter(|&&l| l == link).map(|_| flow.owed())
                });
                prop_assert_eq!(on.sum::<Rate>(), owed);
                prop_assert!(owed > capacity && capacity == world.links[link]);
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn fast_and_slow_filling_agree_within_a_bit_per_second(world in prop_oneof![any_world(), tree().prop_map(|t| t.world)]) {
        let Ok(ideal) = allocate(&world) else { return Ok(()) };
        for (i, (fast, slow)) in ideal.rates.iter().zip(slow(&world)).enumerate() {
            prop_assert!((fast.as_f64() - slow).abs() < 1.1, "flow {i}: {} and {slow}", fast.as_bps());
        }
    }

    #[test]
    fn more_capacity_never_lowers_the_smallest_share(
        world in prop_oneof![any_world(), tree().prop_map(|t| t.world)],
        more in vec(rate(1_000_000_000), 24),
    ) {
        let mut wider = world.clone();
        wider.links.iter_mut().zip(more).for_each(|(link, more)| *link += more);
        let (Ok(before), Ok(after)) = (allocate(&world), allocate(&wider)) else { return Ok(()) };
        if let Some((had, of)) = least_share(&world, &before) {
            let (has, per) = least_share(&wider, &after).expect("the same flows");
            prop_assert!((has + 1) * of > had * per, "{has}/{per} after {had}/{of}");
        }
    }

    #[test]
    fn the_order_of_the_flows_changes_nothing(world in any_world(), by in 0..40usize) {
        let sorted = |world: &World, ideal: Allocation| {
            let mut all: Vec<_> = world.flows.iter().zip(ideal.rates)
                .map(|(f, r)| (f.path.clone(), f.demand, f.floor, r)).collect();
            all.sort();
            all
        };
        let other = turned(&world, by);
        if let (Ok(a), Ok(b)) = (allocate(&world), allocate(&other)) {
            prop_assert_eq!(sorted(&world, a), sorted(&other, b));
        }
    }

    #[test]
    fn no_hose_is_promised_twice(tree in tree()) {
        for (vm, hose) in tree.hoses.iter().enumerate() {
            let sum = |of: &dyn Fn(PairId) -> VmId| -> Rate {
                let with_floor = tree.pairs.iter().zip(&tree.world.flows);
                with_floor.filter(|(p, _)| of(p.pair).0 as usize == vm).map(|(_, f)| f.floor).sum()
            };
            prop_assert!(sum(&|pair| pair.src) <= hose.floor_out);
            prop_assert!(sum(&|pair| pair.dst) <= hose.floor_in);
        }
        for (pair, flow) in tree.pairs.iter().zip(&tree.world.flows) {
            prop_assert!(pair.hoses.is_some() || flow.floor.is_zero());
            prop_assert!(pair.demand.is_none_or(|demand| flow.floor <= demand));
        }
    }

    #[test]
    fn a_rate_changed_by_more_than_rounding_is_found(
        world in prop_oneof![any_world(), tree().prop_map(|t| t.world)],
        whose in 0..40usize,
        by in 0..1_000_000u64,
        up in any::<bool>(),
    ) {
        let Ok(mut ideal) = allocate(&world) else { return Ok(()) };
        prop_assume!(!world.flows.is_empty());
        let whose = whose % world.flows.len();
        let rounding: usize = world.flows.iter().map(|flow| flow.path.len()).sum();
        let by = Rate::from_bps(by + rounding as u64 + 1);
        let rate = ideal.rates[whose];
        prop_assume!(up || rate >= by);
        ideal.rates[whose] = if up { rate + by } else { rate - by };
        prop_assert!(ideal.check(&world).is_err(), "with the loads as they were");
        for (link, load) in ideal.loads.iter_mut().enumerate() {
            let times = crossings(&world.flows[whose], link);
            *load = if up { *load + by * times } else { *load - by * times };
        }
        prop_assert!(ideal.check(&world).is_err(), "with the loads that follow");
    }
}
