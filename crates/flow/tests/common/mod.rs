//! Generated worlds.

#![allow(dead_code)]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_flow::{Floor, Flow, World};
use weir_units::Rate;

/// Round numbers, where ties abound, and odd ones, where nothing divides.
pub(crate) fn rate(max: u64) -> impl Strategy<Value = Rate> {
    prop_oneof![
        1 => Just(Rate::ZERO),
        4 => (1..=10u64).prop_map(move |tenths| Rate::from_bps(max / 10 * tenths)),
        4 => (1..=max).prop_map(Rate::from_bps),
        1 => (1..=9u64).prop_map(Rate::from_bps),
    ]
}

/// How floors are promised.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Promise {
    Fixed,
    Hoses,
    Both,
}

/// Links and paths at random: loops, empty paths, links without capacity; hoses at random.
/// `weighted`: whether weights differ from 1.
pub(crate) fn case(promise: Promise, weighted: bool) -> impl Strategy<Value = (World, Vec<Flow>)> {
    let links = vec(rate(1_000_000_000), 1..8);
    let hoses = vec(rate(90_000_000), 1..6);
    let floor = (rate(90_000_000), 0..64u32, 0..64u32, any::<bool>());
    let paths = vec(0..64u32, 0..5);
    let flow = (paths, option::of(rate(1_200_000_000)), floor, 1..20u32);
    (links, hoses, vec(flow, 0..40)).prop_map(move |(links, hoses, flows)| {
        let world = World { links, hoses };
        type Plan = (Vec<u32>, Option<Rate>, (Rate, u32, u32, bool), u32);
        let flow = |(path, demand, (fixed, out, into, by_hose), weight): Plan| {
            let path: Vec<u32> = path.iter().map(|link| link % world.links.len() as u32).collect();
            let of = |hose| hose % world.hoses.len() as u32;
            let floor = match promise {
                Promise::Fixed => Floor::Fixed(fixed),
                Promise::Both if !by_hose => Floor::Fixed(fixed),
                _ => Floor::Hose { out: of(out), into: of(into) },
            };
            let demand = demand.or(path.is_empty().then_some(fixed));
            Flow { path, floor, weight: if weighted { weight } else { 1 }, demand }
        };
        let flows = flows.into_iter().map(flow).collect();
        (world, flows)
    })
}

/// Makes links large enough for any floors of these flows: most of them just so.
pub(crate) fn widened(mut world: World, flows: &[Flow]) -> World {
    let promised = |flow: &Flow| {
        let most = match flow.floor {
            Floor::Fixed(rate) => rate,
            Floor::Hose { out, into } => world.hoses[out as usize].min(world.hoses[into as usize]),
        };
        flow.demand.map_or(most, |demand| demand.min(most))
    };
    let mut owed = vec![Rate::ZERO; world.links.len()];
    for flow in flows {
        flow.path.iter().for_each(|&link| owed[link as usize] += promised(flow));
    }
    world.links.iter_mut().zip(owed).for_each(|(link, owed)| *link = (*link).max(owed));
    world
}

/// Whether two rates are the same to a millionth, and `least` bit/s.
pub(crate) fn near(a: f64, b: f64, least: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.max(b) + least
}
