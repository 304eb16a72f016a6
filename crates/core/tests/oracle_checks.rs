//! The oracle's check can fail: one corrupted allocation per promise.

use weir_core::oracle::{Allocation, Bottleneck, Flow, Violation, World, allocate};
use weir_units::Rate;

fn m(mbps: u64) -> Rate {
    Rate::from_mbps(mbps)
}

/// Two links of 100 and 90. Flows 0 and 1 have floors 10 and 20 on link 0, flow 2 wants 10 of it;
/// 3 and 4 have no floor, on link 1; 5 has, on both, and wants little.
fn world() -> World {
    let flow = |path: &[usize], demand, floor| Flow { path: path.to_vec(), demand, floor };
    World {
        links: vec![m(100), m(90)],
        flows: vec![
            flow(&[0], None, m(10)),
            flow(&[0], None, m(20)),
            flow(&[0], Some(m(9)), m(9)),
            flow(&[1], None, m(0)),
            flow(&[1], None, m(0)),
            flow(&[0, 1], Some(m(10)), m(5)),
        ],
    }
}

fn ideal() -> Allocation {
    allocate(&world()).expect("44 on 100, 5 on 90")
}

/// What `check` says after `corrupt`.
fn found(corrupt: impl FnOnce(&mut Allocation)) -> Option<Violation> {
    let mut allocation = ideal();
    corrupt(&mut allocation);
    allocation.check(&world()).err()
}

/// Moves `rate` between two flows that cross the same links.
fn shift(allocation: &mut Allocation, from: usize, to: usize, rate: Rate) {
    allocation.rates[from] = allocation.rates[from] - rate;
    allocation.rates[to] += rate;
}

#[test]
fn what_the_oracle_gives_passes() {
    assert_eq!(found(|_| {}), None);
    assert_eq!(ideal().rates, [m(27), m(54), m(9), m(40), m(40), m(10)]);
    assert_eq!(ideal().bottleneck_links(), [0, 1]);
}

#[test]
fn an_allocation_of_another_world_is_found() {
    assert_eq!(found(|a| a.rates.truncate(5)), Some(Violation::Shape));
    assert_eq!(found(|a| a.bottlenecks.truncate(5)), Some(Violation::Shape));
    assert_eq!(found(|a| a.loads.push(m(0))), Some(Violation::Shape));
    let mut world = world();
    world.flows[0].path = vec![2];
    assert_eq!(ideal().check(&world), Err(Violation::Shape));
}

#[test]
fn an_overloaded_link_is_found_by_a_single_bit() {
    let load = Rate::from_bps(100_000_001);
    let expected = Violation::Overload { link: 0, load, capacity: m(100) };
    assert_eq!(found(|a| a.rates[0] += Rate::from_bps(1)), Some(expected));
}

#[test]
fn a_load_that_is_not_the_sum_of_the_rates_is_found() {
    let expected = Violation::WrongLoad { link: 1, noted: m(80), actual: m(90) };
    assert_eq!(found(|a| a.loads[1] = m(80)), Some(expected));
}

#[test]
fn a_broken_floor_is_found() {
    let expected = Violation::BelowFloor { flow: 0, rate: m(9), owed: m(10) };
    assert_eq!(found(|a| shift(a, 0, 1, m(18))), Some(expected));
}

#[test]
fn more_than_the_demand_is_found() {
    let expected = Violation::AboveDemand { flow: 2, rate: m(10), demand: m(9) };
    assert_eq!(found(|a| shift(a, 1, 2, m(1))), Some(expected));
}

#[test]
fn a_demand_said_to_be_met_that_is_not_is_found() {
    let none = |a: &mut Allocation| a.bottlenecks[0] = Bottleneck::Demand;
    assert_eq!(found(none), Some(Violation::DemandUnmet { flow: 0, rate: m(27) }));
    let flow = Flow { path: vec![0], demand: Some(m(10)), floor: m(5) };
    let world = World { links: vec![m(100)], flows: vec![flow] };
    let mut less = allocate(&world).expect("5 on 100");
    less.rates[0] = m(6);
    less.loads[0] = m(6);
    assert_eq!(less.check(&world), Err(Violation::DemandUnmet { flow: 0, rate: m(6) }));
}

#[test]
fn a_bottleneck_that_the_flow_never_crosses_is_found() {
    let elsewhere = |a: &mut Allocation| a.bottlenecks[0] = Bottleneck::Link(1);
    assert_eq!(found(elsewhere), Some(Violation::NotOnPath { flow: 0, link: 1 }));
}

#[test]
fn a_bottleneck_with_room_is_found() {
    let idle = |a: &mut Allocation| {
        a.rates[3] = m(30);
        a.loads[1] = m(80);
    };
    let expected = Violation::NotFull { flow: 3, link: 1, taken: m(80), capacity: m(90) };
    assert_eq!(found(idle), Some(expected));
}

#[test]
fn a_link_filled_by_flows_without_a_floor_is_no_bottleneck_for_one_with_a_floor() {
    let flow = |floor| Flow { path: vec![0], demand: None, floor };
    let world = World { links: vec![m(100)], flows: vec![flow(m(10)), flow(m(0))] };
    let allocation = Allocation {
        rates: vec![m(60), m(40)],
        bottlenecks: vec![Bottleneck::Link(0); 2],
        loads: vec![m(100)],
    };
    let expected = Violation::NotFull { flow: 0, link: 0, taken: m(60), capacity: m(100) };
    assert_eq!(allocation.check(&world), Err(expected));
}

#[test]
fn an_unequal_division_of_the_surplus_is_found() {
    let expected = Violation::NotGreatest { flow: 0, link: 0, other: 1 };
    assert_eq!(found(|a| shift(a, 0, 1, Rate::from_bps(2))), Some(expected));
    let expected = Violation::NotGreatest { flow: 4, link: 1, other: 3 };
    assert_eq!(found(|a| shift(a, 4, 3, Rate::from_bps(2))), Some(expected));
}

#[test]
fn floors_that_do_not_fit_cannot_be_kept_by_anybody() {
    let flow = Flow { path: vec![0], demand: None, floor: m(60) };
    let world = World { links: vec![m(100)], flows: vec![flow.clone(), flow] };
    let allocation = Allocation {
        rates: vec![m(50); 2],
        bottlenecks: vec![Bottleneck::Link(0); 2],
        loads: vec![m(100)],
    };
    let expected = Violation::BelowFloor { flow: 0, rate: m(50), owed: m(60) };
    assert_eq!(allocation.check(&world), Err(expected));
}

#[test]
fn every_violation_says_where_and_how_much() {
    let said = |violation: Violation| violation.to_string();
    let full = Violation::Overload { link: 3, load: m(101), capacity: m(100) };
    assert_eq!(said(full), "link 3 carries 101 Mb/s, more than its 100 Mb/s");
    let broken = Violation::BelowFloor { flow: 7, rate: m(9), owed: m(10) };
    assert_eq!(said(broken), "flow 7 has 9 Mb/s, less than the 10 Mb/s it was promised");
}
