//! Path partitioning on generated networks: parts are safe, floors that fit come to fit, no pair
//! starves.

use proptest::prelude::*;
use weir_core::partition::PartitionConfig;
use weir_core::path::{MAX_PATHS, PathConfig, PathPartition, Seen, place, point};
use weir_units::{PairId, PathId, Rate, VmId};

fn step(partition: &mut PathPartition, parts: &[Rate], seen: &[Seen]) {
    partition.step(&PathConfig::default(), &PartitionConfig::default(), parts, seen);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..100, 0u64..1_000_000_000, any::<u64>(), Just(u64::MAX)]
}

fn seen() -> impl Strategy<Value = Seen> {
    (number(), number(), number()).prop_map(|(used, lost, arrived)| Seen {
        used: Rate::from_bps(used),
        lost,
        arrived,
    })
}

/// Paths in bit/s, floors as weights, and which part of all paths the floors are in percent.
fn network() -> impl Strategy<Value = (Vec<u64>, Vec<u64>, u64)> {
    let paths = prop::collection::vec(5_000_000u64..100_000_000, 2..6);
    (paths, prop::collection::vec(1u64..100, 1..8), 10u64..96)
}

proptest! {
    #[test]
    fn parts_sum_to_the_floor_and_leave_no_path_out_whatever_is_seen(
        paths in 1..=MAX_PATHS,
        steps in prop::collection::vec((number(), prop::collection::vec(seen(), MAX_PATHS)), 0..60),
    ) {
        let mut partition = PathPartition::new(paths);
        let least = PathConfig::default().least_divisor * 2;
        for (floor, seen) in &steps {
            let parts = partition.parts(Rate::from_bps(*floor));
            let sum: u128 = parts.iter().map(|part| u128::from(part.as_bps())).sum();
            prop_assert_eq!(sum, u128::from(*floor));
            for part in &parts {
                let even = *floor / paths as u64;
                prop_assert!(part.as_bps() >= (even / least).saturating_sub(1), "{part} of an even {even}");
            }
            step(&mut partition, &parts, &seen[..paths]);
        }
    }

    #[test]
    fn what_is_too_much_on_a_path_shrinks_to_nothing_if_all_paths_together_hold_the_floors(
        (paths, weights, percent) in network(),
    ) {
        let whole = u128::from(paths.iter().sum::<u64>()) * u128::from(percent) / 100;
        let weight: u128 = weights.iter().map(|w| u128::from(*w)).sum();
        let floor = |w: &u64| Rate::from_bps((whole * u128::from(*w) / weight) as u64);
        let mut pairs: Vec<(Rate, PathPartition)> =
            weights.iter().map(|w| (floor(w), PathPartition::new(paths.len()))).collect();
        let mut excess = 1.0;
        // 30 s.
        for _ in 0..500 {
            let parts: Vec<Vec<Rate>> = pairs.iter().map(|(floor, p)| p.parts(*floor)).collect();
            let sums: Vec<u64> =
                (0..paths.len()).map(|p| parts.iter().map(|of| of[p].as_bps()).sum()).collect();
            let over = sums.iter().zip(&paths).map(|(s, c)| *s as f64 / *c as f64 - 1.0);
            excess = over.fold(f64::MIN, f64::max);
            for ((_, partition), parts) in pairs.iter_mut().zip(&parts) {
                let seen: Vec<Seen> = sums.iter().zip(&paths).zip(parts).map(|((sum, capacity), part)| {
                    let lost = sum.saturating_sub(*capacity) / 100;
                    Seen { used: *part, lost, arrived: sum / 100 - lost }
                }).collect();
                step(partition, parts, &seen);
            }
        }
        prop_assert!(excess < 0.001, "{excess} too much on a path");
    }

    #[test]
    fn flows_are_spread_to_within_the_logarithm_of_their_number(
        parts in prop::collection::vec(0u64..1_000_000_000, 1..MAX_PATHS),
        flows in 1u32..500,
        vms in any::<(u32, u32)>(),
    ) {
        let pair = PairId::new(VmId(vms.0), VmId(vms.1));
        let parts: Vec<Rate> = parts.into_iter().map(Rate::from_bps).collect();
        let sum: f64 = parts.iter().map(|part| part.as_f64()).sum();
        let mut counts = vec![0.0; parts.len()];
        for n in 0..flows {
            counts[place(&parts, point(pair, n), None).0 as usize] += 1.0;
        }
        let slack = f64::from(flows).log2() + 2.0;
        for (count, part) in counts.iter().zip(&parts) {
            let share = if sum > 0.0 { part.as_f64() / sum } else { 1.0 / parts.len() as f64 };
            prop_assert!((count - share * f64::from(flows)).abs() <= slack, "{counts:?} of {parts:?}");
        }
    }

    #[test]
    fn a_flow_has_a_path_and_what_moved_once_stays(
        parts in prop::collection::vec(number(), 1..MAX_PATHS),
        point in any::<u32>(),
        before in prop::option::of(0u32..20),
    ) {
        let parts: Vec<Rate> = parts.into_iter().map(Rate::from_bps).collect();
        let path = place(&parts, point, before.map(PathId));
        prop_assert!((path.0 as usize) < parts.len());
        prop_assert_eq!(place(&parts, point, Some(path)), path);
    }
}
