//! The worked example of docs/algorithms/elasticswitch.md, and the law's cases one by one.

use super::*;
use weir_units::{PairId, PathId, VmId};

fn m(mbps: u64) -> Rate {
    Rate::from_mbps(mbps)
}

fn step(partition: &mut PathPartition, floor: Rate, seen: &[Seen]) -> Vec<f64> {
    let parts = partition.parts(floor);
    partition.step(&PathConfig::default(), &PartitionConfig::default(), &parts, seen);
    partition.parts(floor).iter().map(|part| part.as_f64() / 1e6).collect()
}

fn close(have: &[f64], want: &[f64]) {
    let all = have.iter().zip(want).all(|(a, b)| (a - b).abs() < 0.01);
    assert!(have.len() == want.len() && all, "{have:?}, not {want:?}");
}

/// Two paths of 160 and 40 Mb/s, floors of 140 and 40: evenly 70 + 20 on each. The wide path loses
/// nothing, of what is sent on the narrow one 50 of 90 parts are lost.
#[test]
fn two_pairs_leave_the_narrow_path_until_their_floors_fit() {
    let mut pairs = [(m(140), PathPartition::new(2)), (m(40), PathPartition::new(2))];
    let mut narrow = Vec::new();
    for _ in 0..4 {
        let parts: Vec<Vec<Rate>> = pairs.iter().map(|(floor, p)| p.parts(*floor)).collect();
        let sum: u64 = parts.iter().map(|parts| parts[1].as_bps()).sum();
        narrow.push(sum as f64 / 1e6);
        let lost = sum.saturating_sub(40_000_000);
        for ((floor, partition), parts) in pairs.iter_mut().zip(&parts) {
            let wide = Seen { used: parts[0], ..Seen::default() };
            let short = Seen { used: parts[1], lost, arrived: sum - lost };
            step(partition, *floor, &[wide, short]);
        }
    }
    // S' = 180·40/(40 + T): 180·40/130, then 180·40/164.6, …
    close(&narrow, &[90.0, 55.385, 43.738, 40.848]);
    let [x, z] = pairs.each_ref().map(|(floor, p)| p.parts(*floor)[1].as_f64() / floor.as_f64());
    assert!((x - z).abs() < 1e-6, "in proportion to floors: {x} and {z}");
}

#[test]
fn what_is_used_beyond_a_part_draws_floor_there_slowly() {
    let mut partition = PathPartition::new(2);
    let free = Seen { used: m(75), ..Seen::default() };
    let full = Seen { used: m(50), ..Seen::default() };
    // A room of 1 + 0.5/16 beside one of 1.
    close(&step(&mut partition, m(100), &[free, full]), &[50.769, 49.231]);
}

#[test]
fn what_is_not_used_of_a_part_is_used_elsewhere_but_not_while_the_pair_is_short() {
    let mut partition = PathPartition::new(2);
    let idle = Seen { used: m(0), ..Seen::default() };
    let full = Seen { used: m(50), ..Seen::default() };
    close(&step(&mut partition, m(100), &[idle, full]), &[48.387, 51.613]);
    // Its one flow is on the path that is short: it is to go to the other.
    let full = Seen { used: m(48), ..Seen::default() };
    let mut partition = PathPartition::new(2);
    let short = Seen { used: m(20), lost: 1, arrived: 99 };
    let after = step(&mut partition, m(100), &[idle, short]);
    assert!(after[0] > 50.5, "{after:?}");
    let again = step(&mut partition, m(100), &[idle, full]);
    close(&again, &after);
    for _ in 0..PathConfig::default().patience {
        step(&mut partition, m(100), &[idle, full]);
    }
    assert!(partition.parts(m(100))[0] < m(50), "and not used for long, it is");
}

#[test]
fn losses_that_all_paths_have_alike_change_nothing() {
    let mut partition = PathPartition::new(3);
    let seen = [Seen { used: m(30), lost: 30, arrived: 70 }; 3];
    close(&step(&mut partition, m(90), &seen), &[30.0; 3]);
}

#[test]
fn a_path_that_holds_nothing_keeps_a_part_and_gets_more_when_it_is_free() {
    let mut partition = PathPartition::new(2);
    let floor = m(640);
    for _ in 0..100 {
        let parts = partition.parts(floor);
        let seen = [
            Seen { used: parts[0], ..Seen::default() },
            Seen { used: parts[1], lost: 9, arrived: 0 },
        ];
        step(&mut partition, floor, &seen);
    }
    let least = partition.parts(floor)[1];
    assert!((2_500_000..=5_000_000).contains(&least.as_bps()), "{least} of an even 320 Mb/s");
    for _ in 0..100 {
        let parts = partition.parts(floor);
        let seen =
            parts.iter().zip([1, 2]).map(|(part, n)| Seen { used: *part * n, ..Seen::default() });
        step(&mut partition, floor, &seen.collect::<Vec<_>>());
    }
    assert!(partition.parts(floor)[1] > m(320));
}

#[test]
fn without_a_floor_nothing_is_learned() {
    let mut partition = PathPartition::new(2);
    let seen = [Seen { used: m(5), lost: 9, arrived: 1 }, Seen::default()];
    assert_eq!(step(&mut partition, Rate::ZERO, &seen), [0.0, 0.0]);
    assert_eq!(partition.parts(m(10)), [m(5); 2]);
}

fn on_each(parts: &[Rate], flows: u32, pair: PairId) -> Vec<u32> {
    let mut counts = vec![0; parts.len()];
    for n in 0..flows {
        counts[place(parts, point(pair, n), None).0 as usize] += 1;
    }
    counts
}

#[test]
fn flows_are_spread_by_the_parts() {
    let pair = PairId::new(VmId(3), VmId(8));
    assert_eq!(on_each(&[m(60), m(60)], 16, pair), [8, 8]);
    let counts = on_each(&[m(112), m(28)], 40, pair);
    assert!((31..=33).contains(&counts[0]), "{counts:?}");
    assert_eq!(on_each(&[Rate::ZERO; 4], 32, pair), [8; 4], "without parts all are alike");
    assert_eq!(on_each(&[Rate::ZERO, m(1), Rate::ZERO], 9, pair), [0, 9, 0]);
}

#[test]
fn pairs_of_one_flow_are_spread_too() {
    let first = |vm: u32| place(&[m(1), m(1)], point(PairId::new(VmId(vm), VmId(40)), 0), None).0;
    let on_one: u32 = (0..16).map(first).sum();
    assert!((6..=10).contains(&on_one), "{on_one} of 16");
}

#[test]
fn a_flow_at_an_end_stays_and_one_far_beyond_it_goes() {
    let half = 1u32 << 31;
    let [zero, one] = [PathId(0), PathId(1)];
    let even = [m(50), m(50)];
    assert_eq!(place(&even, half, None), one);
    assert_eq!(place(&even, half - 1, None), zero);
    assert_eq!(place(&[m(52), m(48)], half, Some(one)), one, "two hundredths beyond");
    assert_eq!(place(&[m(48), m(52)], half, Some(zero)), zero);
    assert_eq!(place(&[m(60), m(40)], half, Some(one)), zero);
    assert_eq!(place(&even, half, Some(PathId(7))), one, "a path that is no more");
    assert_eq!(place(&[Rate::MAX, Rate::MAX], u32::MAX, None), one);
}
