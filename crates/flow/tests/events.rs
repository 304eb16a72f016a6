//! A solver that follows events has the rates of one that starts from scratch.

use crate::common::{Promise, case, near, widened};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_flow::{AllocationError, Floor, Flow, FlowId, Solver, Tolerance, World, allocate};
use weir_units::Rate;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next flow of the list comes.
    Come,
    /// One of those that are there goes.
    Go(usize),
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Come),
        3 => any::<usize>().prop_map(Step::Go),
        3 => Just(Step::Settle),
    ];
    vec(step, 1..60)
}

/// Plays `steps`; `at_rest` sees the solver each time it has settled.
fn follow(
    world: &World,
    flows: &[Flow],
    steps: &[Step],
    tolerance: Tolerance,
    mut at_rest: impl FnMut(&Solver) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut solver = Solver::new(world.clone(), tolerance);
    let mut there: Vec<FlowId> = Vec::new();
    let mut next = flows.iter().cycle().take(if flows.is_empty() { 0 } else { 1000 });
    for step in steps.iter().chain([&Step::Settle]) {
        match step {
            Step::Come => {
                there.extend(next.next().map(|flow| solver.insert(flow).expect("makes sense")));
            }
            Step::Go(_) if there.is_empty() => {}
            Step::Go(which) => solver.remove(there.swap_remove(which % there.len())),
            Step::Settle => {
                let before: Vec<_> = solver.changed().to_vec();
                prop_assert!(before.is_sorted());
                solver.settle();
                prop_assert_eq!(solver.len(), there.len());
                at_rest(&solver)?;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn after_any_events_the_rates_are_those_from_scratch(
        (world, flows) in case(Promise::Both, true),
        steps in steps(),
        wide in prop::bool::weighted(0.8),
    ) {
        // Flows come again when the list ends: five times the floors at most.
        let many: Vec<Flow> = flows.iter().cycle().take(flows.len() * 60).cloned().collect();
        let world = if wide { widened(world, &many) } else { world };
        follow(&world, &flows, &steps, Tolerance::LEAST, |solver| {
            let (ids, flows, now) = solver.snapshot();
            match allocate(&world, &flows) {
                Ok(ideal) => {
                    prop_assert_eq!(solver.overbooked(), 0);
                    prop_assert_eq!(solver.check(), Ok(()));
                    for (at, id) in ids.iter().enumerate() {
                        let (ours, ideal) = (now.rates[at], ideal.rates[at]);
                        prop_assert!(near(ours, ideal, 60.0), "{id:?}: {ours} and {ideal}");
                    }
                }
                Err(AllocationError::FloorsExceedLink { .. }) => {
                    prop_assert!(solver.overbooked() > 0);
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_tolerance_costs_no_floor_and_no_more_of_a_link_than_it_says(
        (world, flows) in case(Promise::Fixed, true),
        steps in steps(),
        part in prop_oneof![Just(1e-6), Just(1e-3), Just(0.1)],
    ) {
        let many: Vec<Flow> = flows.iter().cycle().take(flows.len() * 60).cloned().collect();
        let world = widened(world, &many);
        let tolerance = Tolerance::from_fraction(part).expect("in range");
        follow(&world, &flows, &steps, tolerance, |solver| {
            prop_assert_eq!(solver.check(), Ok(()));
            Ok(())
        })?;
    }

    #[test]
    fn whose_rate_changed_is_told(
        (world, flows) in case(Promise::Both, true),
        steps in steps(),
    ) {
        let mut known: Vec<f64> = Vec::new();
        follow(&world, &flows, &steps, Tolerance::default(), |solver| {
            known.resize(1000, 0.0);
            let told = solver.changed();
            prop_assert!(told.windows(2).all(|pair| pair[0] < pair[1]));
            for &id in told {
                known[id.0 as usize] = solver.rate(id);
            }
            for id in solver.snapshot().0 {
                prop_assert_eq!(known[id.0 as usize], solver.rate(id));
            }
            Ok(())
        })?;
    }
}

fn world(links: &[u64], hoses: &[u64]) -> World {
    let rates = |all: &[u64]| all.iter().map(|&bps| Rate::from_bps(bps)).collect();
    World { links: rates(links), hoses: rates(hoses) }
}

#[test]
fn a_hose_is_split_anew_when_a_pair_comes_or_goes() {
    let mut solver = Solver::new(world(&[1000], &[300, 500]), Tolerance::LEAST);
    let pair = Flow { floor: Floor::Hose { out: 0, into: 1 }, ..Flow::greedy(vec![0]) };
    let a = solver.insert(&pair).expect("right");
    let rest = solver.insert(&Flow { weight: 5, ..Flow::greedy(vec![0]) }).expect("right");
    assert_eq!(solver.settle(), [a, rest]);
    // Surplus belongs to flows with a floor; the others get what these leave: nothing.
    assert_eq!([solver.rate(a), solver.rate(rest)], [1000.0, 0.0]);
    let limited = Flow { demand: Some(Rate::from_bps(100)), ..pair.clone() };
    let b = solver.insert(&limited).expect("right");
    solver.settle();
    assert_eq!(solver.snapshot().2.floors, [200.0, 0.0, 100.0]);
    solver.remove(a);
    solver.settle();
    assert_eq!([solver.rate(b), solver.rate(rest)], [100.0, 900.0]);
}

#[test]
fn floors_that_do_not_fit_are_counted_and_cut_in_proportion() {
    let mut solver = Solver::new(world(&[1000, 1000], &[]), Tolerance::LEAST);
    let of = |bps| Flow { floor: Floor::Fixed(Rate::from_bps(bps)), ..Flow::greedy(vec![0]) };
    let ids = [900, 300].map(|bps| solver.insert(&of(bps)).expect("right"));
    solver.settle();
    assert_eq!(solver.overbooked(), 1);
    assert_eq!(ids.map(|id| solver.rate(id)), [750.0, 250.0]);
    solver.remove(ids[1]);
    solver.settle();
    assert_eq!((solver.overbooked(), solver.rate(ids[0])), (0, 1000.0));
}

#[test]
fn a_flow_that_makes_no_sense_is_refused_and_not_there() {
    let mut solver = Solver::new(world(&[1000], &[]), Tolerance::default());
    let refused = solver.insert(&Flow::greedy(vec![1]));
    assert_eq!(refused, Err(AllocationError::NoSuchLink { flow: 0, link: 1 }));
    assert!(solver.is_empty());
}

#[test]
fn filling_anew_changes_no_rate_beyond_the_tolerance() {
    let mut solver = Solver::new(world(&[1000, 700], &[]), Tolerance::LEAST);
    let paths = [vec![0], vec![0, 1], vec![1]];
    let ids = paths.map(|path| solver.insert(&Flow::greedy(path)).expect("right"));
    solver.settle();
    let before = ids.map(|id| solver.rate(id));
    solver.refill();
    assert_eq!((before, before), (ids.map(|id| solver.rate(id)), [650.0, 350.0, 350.0]));
    assert_eq!(solver.work().fillings, 3);
}

#[test]
fn an_absurd_rate_on_the_way_leaves_no_trace_in_a_load() {
    // Alone on link 0, a floor of 1 bit/s has a level of 10¹⁰. A floor of 1 Gbit/s at that level
    // would be 10¹⁹ bit/s on link 1, too, until link 0 is worked on.
    let of = |bps, path| Flow { floor: Floor::Fixed(Rate::from_bps(bps)), ..Flow::greedy(path) };
    for odd in 0..20 {
        let mut solver =
            Solver::new(world(&[10_000_000_000, 12_000_000_000], &[]), Tolerance::LEAST);
        let limited = Flow { demand: Some(Rate::from_bps(98_765 * odd)), ..of(1, vec![1]) };
        for flow in [of(1, vec![0]), limited, Flow::greedy(vec![1]), of(1_000_000_000, vec![0, 1])]
        {
            solver.insert(&flow).expect("right");
            solver.settle();
            assert_eq!(solver.check(), Ok(()), "{odd}");
        }
    }
}
