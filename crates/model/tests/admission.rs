//! What scenarios' admission accepts can be kept, and what it refuses some traffic would exceed:
//! against the oracle, on drawn trees and leaf-spines.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_core::oracle::{AllocationError, Flow, Hose, PairDemand, World, allocate, hose_max_min};
use weir_model::scenario::{File, Scenario};
use weir_units::{PairId, Rate, VmId};

/// A tenant, its floors out and in, its host.
type VmPlan = (u32, u64, u64, usize);

/// Two racks of two hosts, or two leaves and three spines, with links of `edge` and uplinks of `up`
/// kbit/s.
fn text(is_tree: bool, edge: u64, up: u64, vms: &[VmPlan]) -> String {
    let topology = if is_tree {
        format!("two-tier: {{racks: 2, hosts_per_rack: 2, link: {edge}kbit, uplink: {up}kbit}}")
    } else {
        format!(
            "leaf-spine: {{leaves: 2, spines: 3, hosts_per_leaf: 2, link: {edge}kbit, uplink: {up}kbit}}"
        )
    };
    let mut tenants = String::new();
    for tenant in 0..3 {
        let own: Vec<String> = (0..)
            .zip(vms)
            .filter(|(_, vm)| vm.0 == tenant)
            .map(|(n, (_, out, into, host))| {
                let host = format!("host-{}-{}", host / 2 % 2, host % 2);
                format!(
                    "        - {{name: v{n}, host: {host}, floor_out: {out}kbit, floor_in: {into}kbit}}\n"
                )
            })
            .collect();
        if !own.is_empty() {
            tenants += &format!("    - name: t{tenant}\n      vms:\n{}", own.concat());
        }
    }
    format!(
        "apiVersion: weir/v1alpha1\nkind: Scenario\nmetadata: {{name: drawn}}\nspec:\n  duration: 30s\n  \
         headroom: 0\n  topology:\n    {topology}\n  tenants:\n{tenants}  traffic: []\n  mechanisms: [none]\n"
    )
}

fn read(text: &str) -> Result<Scenario, String> {
    let file = File::parse("drawn.yaml", text, &[]).map_err(|e| e.to_string())?;
    file.points().map(|mut points| points.remove(0)).map_err(|e| e.to_string())
}

/// The floors of these demands on links of the scenario's shape, each pair's spread over its ways
/// as packets are. A part of a bit/s is rounded up, so each link has room for one bit/s of each
/// flow.
fn owed(shape: &Scenario, rates: &[Rate], demands: &[PairDemand]) -> World {
    let hose =
        |vm: &weir_model::scenario::Vm| Hose { floor_out: vm.floor_out, floor_in: vm.floor_in };
    let hoses: Vec<Hose> = shape.vms.iter().map(hose).collect();
    let mut flows = Vec::new();
    for (demand, floor) in demands.iter().zip(hose_max_min(&hoses, demands)) {
        let [from, to] = [demand.pair.src, demand.pair.dst].map(|vm| shape.vms[vm.0 as usize].host);
        let routes = shape.topology.forwarding_to(to);
        for (link, part) in shape.topology.stages(&routes, from).into_iter().flatten() {
            let floor = floor.scale(part);
            flows.push(Flow { path: vec![link.index()], demand: Some(floor), floor });
        }
    }
    let room = Rate::from_bps(flows.len() as u64);
    World { links: rates.iter().map(|rate| *rate + room).collect(), flows }
}

/// Every pair of VMs of one tenant.
fn pairs(shape: &Scenario) -> Vec<PairId> {
    let vms = 0..shape.vms.len();
    let all = vms.clone().flat_map(|a| vms.clone().map(move |b| (a, b)));
    let alike = all.filter(|&(a, b)| a != b && shape.vms[a].tenant == shape.vms[b].tenant);
    alike.map(|(a, b)| PairId::new(VmId(a as u32), VmId(b as u32))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_admission_accepts_the_oracle_can_keep_and_what_it_refuses_some_traffic_exceeds(
        is_tree in any::<bool>(),
        (edge, up) in (1_000u64..3_000, 1_000u64..4_000),
        vms in vec((0..3u32, 0u64..900, 0u64..900, 0..4usize), 2..12),
        demands in vec(option::of(0u64..1_000), 132),
    ) {
        // The same with links that carry anything, for its shape.
        let shape = read(&text(is_tree, 1_000_000, 1_000_000, &vms)).expect("room for all");
        let links = |wide: Rate| {
            let hosts = shape.topology.hosts.len();
            let is_edge = shape.topology.links.iter().map(move |link| link.a.min(link.b) < hosts);
            is_edge.flat_map(move |is| [if is { Rate::from_bps(edge * 1_000) } else { wide }; 2])
        };
        let rates: Vec<Rate> = links(Rate::from_bps(up * 1_000)).collect();
        let wants = |pair: &PairId, demand: Option<u64>| {
            let demand = demand.map(|kbps| Rate::from_bps(kbps * 1_000));
            PairDemand::of_vms(*pair, demand, true)
        };
        let all = pairs(&shape);
        match read(&text(is_tree, edge, up, &vms)) {
            Ok(_) => {
                let drawn: Vec<_> = all.iter().zip(&demands).map(|(p, d)| wants(p, *d)).collect();
                let world = owed(&shape, &rates, &drawn);
                prop_assert!(allocate(&world).is_ok(), "{:?}", allocate(&world));
            }
            Err(said) => {
                // The traffic that needs most of a link: all that may cross it, and nothing else.
                let exceeded = (0..rates.len()).filter(|&link| {
                    let crosses = |pair: &&PairId| {
                        let [from, to] = [pair.src, pair.dst].map(|vm| shape.vms[vm.0 as usize].host);
                        let routes = shape.topology.forwarding_to(to);
                        let steps = shape.topology.stages(&routes, from);
                        steps.iter().flatten().any(|(step, _)| step.index() == link)
                    };
                    let most: Vec<_> = all.iter().filter(crosses).map(|pair| wants(pair, None)).collect();
                    let mut world = owed(&shape, &rates, &most);
                    world.links = rates.clone();
                    matches!(allocate(&world), Err(AllocationError::FloorsExceedLink { .. }))
                });
                prop_assert!(exceeded.count() > 0, "refused for nothing: {said}");
            }
        }
    }
}
