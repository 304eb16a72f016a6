//! The same worlds, solved in floating point and exactly.

use crate::common::{Promise, case, near, widened};
use proptest::prelude::*;
use weir_core::oracle;
use weir_flow::{AllocationError, Bottleneck, FatTree, Floor, Flow, Flows, World, allocate};
use weir_units::{PairId, Rate, VmId};

/// The oracle's world, with F as given (bit/s per flow).
fn exact(world: &World, flows: &[Flow], floors: &[f64]) -> oracle::World {
    let flow = |(flow, floor): (&Flow, &f64)| oracle::Flow {
        path: flow.path.iter().map(|&link| link as usize).collect(),
        demand: flow.demand,
        floor: Rate::from_bps_f64(*floor),
    };
    let flows = flows.iter().zip(floors).map(flow).collect();
    oracle::World { links: world.links.clone(), flows }
}

/// Ours and the oracle's rates agree; the oracle rounds down to whole bit/s.
fn assert_same(world: &World, flows: &[Flow], floors: &[f64]) -> Result<(), TestCaseError> {
    let ours = allocate(world, &flows.iter().collect());
    match (ours, oracle::allocate(&exact(world, flows, floors))) {
        (Ok(ours), Ok(exact)) => {
            for (at, (ours, exact)) in ours.rates.iter().zip(&exact.rates).enumerate() {
                let (low, high) = (exact.as_f64(), exact.as_f64() + 1.0);
                let within = (low..=high).contains(ours);
                let close = near(*ours, low, 1e-3) || near(*ours, high, 1e-3);
                prop_assert!(within || close, "flow {at}: {ours} and {low}");
            }
        }
        (
            Err(AllocationError::FloorsExceedLink { link, owed, capacity }),
            Err(oracle::AllocationError::FloorsExceedLink { link: l, owed: o, capacity: c }),
        ) => prop_assert_eq!((link as usize, owed, capacity), (l, o, c)),
        (ours, exact) => prop_assert!(false, "{ours:?} and {exact:?}"),
    }
    Ok(())
}

fn fixed(flows: &[Flow]) -> Vec<f64> {
    let floor = |flow: &Flow| match flow.floor {
        Floor::Fixed(rate) => rate.as_f64(),
        Floor::Hose { .. } => unreachable!("only fixed floors here"),
    };
    flows.iter().map(floor).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn admissible_worlds_have_the_oracles_rates((world, flows) in case(Promise::Fixed, false)) {
        let world = widened(world, &flows);
        assert_same(&world, &flows, &fixed(&flows))?;
    }

    #[test]
    fn floors_that_do_not_fit_are_refused_with_the_oracles_link(
        (world, flows) in case(Promise::Fixed, false),
    ) {
        assert_same(&world, &flows, &fixed(&flows))?;
    }

    #[test]
    fn hoses_give_the_oracles_parts_and_rates((world, flows) in case(Promise::Hoses, false)) {
        let world = widened(world, &flows);
        let pair = |flow: &Flow| {
            let Floor::Hose { out, into } = flow.floor else { unreachable!("only hoses here") };
            let pair = PairId::new(VmId(out), VmId(into));
            oracle::PairDemand::of_vms(pair, flow.demand, true)
        };
        let pairs: Vec<_> = flows.iter().map(pair).collect();
        // The oracle's hoses have two directions; ours are one list, so a VM's two are different here.
        let hose = |rate: &Rate| oracle::Hose { floor_out: *rate, floor_in: *rate };
        let hoses: Vec<_> = world.hoses.iter().map(hose).collect();
        let count = world.hoses.len() as u32;
        let both = World { hoses: world.hoses.repeat(2), ..world };
        let flows: Vec<Flow> = flows
            .into_iter()
            .map(|flow| match flow.floor {
                Floor::Hose { out, into } => {
                    Flow { floor: Floor::Hose { out, into: count + into }, ..flow }
                }
                Floor::Fixed(_) => flow,
            })
            .collect();
        let parts = oracle::hose_max_min(&hoses, &pairs);
        let ours = allocate(&both, &flows.iter().collect()).expect("wide enough");
        for (ours, exact) in ours.floors.iter().zip(&parts) {
            prop_assert!((ours - exact.as_f64()).abs() <= 1.0, "{ours} and {exact:?}");
        }
        assert_same(&both, &flows, &ours.floors)?;
    }

    #[test]
    fn weights_and_all_kinds_of_floors_pass_the_check((world, flows) in case(Promise::Both, true)) {
        let world = widened(world, &flows);
        // Ends in its check, which panics.
        prop_assert!(allocate(&world, &flows.iter().collect()).is_ok());
    }
}

#[test]
fn a_fat_tree_has_the_oracles_rates() {
    let tree = FatTree::new(8).expect("even");
    let world = tree.world(Rate::from_mbps(10_000), Rate::from_mbps(9_000));
    let flows: Vec<Flow> = (0..3000u32)
        .map(|n| {
            let (src, dst) = (n * 7919 % 128, n * 104_729 % 127);
            let dst = dst + u32::from(dst >= src);
            let floor = Floor::Fixed(Rate::from_bps(u64::from(n % 3) * 1_000_003));
            Flow { floor, ..Flow::greedy(tree.path(src, dst, n / 5)) }
        })
        .collect();
    let columns: Flows = flows.iter().collect();
    let ours = allocate(&world, &columns).expect("admissible");
    let exact = oracle::allocate(&exact(&world, &flows, &fixed(&flows))).expect("admissible");
    let off = ours.rates.iter().zip(&exact.rates).filter(|(a, b)| !near(**a, b.as_f64(), 1.0));
    assert_eq!(off.count(), 0);
    let held = |b: &&Bottleneck| matches!(b, Bottleneck::Link(_));
    assert_eq!(ours.bottlenecks.iter().filter(held).count(), 3000);
}
