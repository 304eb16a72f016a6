//! The table of levels without a kernel: memory instead of the map.

use super::*;
use crate::shaper::{External, LONGEST_WAIT, MAX_PAIRS, MIN_RATE, Overbooking};
use weir_units::Span;

const A: VmId = VmId(1);
const B: VmId = VmId(2);

fn vm(vm: VmId, floor: u64) -> VmShare {
    VmShare {
        vm,
        port: format!("p{vm}"),
        floor: Rate::from_mbps(floor),
        cap: None,
        external: External::default(),
    }
}

fn mbit(floor: u64, ceiling: u64) -> PairRate {
    PairRate { floor: Rate::from_mbps(floor), ceiling: Rate::from_mbps(ceiling) }
}

fn pair(src: VmId, dst: u32) -> PairId {
    PairId::new(src, VmId(dst))
}

fn tree() -> Tree {
    let config = ShaperConfig::new("t", Rate::from_mbps(200));
    Tree::new(config, CounterArray::in_memory(NODES as usize), &[]).unwrap()
}

/// What a successor finds.
fn succeed(tree: Tree) -> Tree {
    let classes: Vec<_> =
        tree.vms.keys().map(|vm| (*vm, tree.vm_classes(*vm).unwrap().default)).collect();
    Tree::new(tree.config, tree.map, &classes).unwrap()
}

#[test]
fn the_levels_are_the_desired_ones_and_a_second_pass_writes_nothing() {
    let mut tree = tree();
    let vms = [vm(A, 90), vm(B, 60)];
    let changes = tree.apply_vms(&vms).unwrap();
    assert_eq!(changes, Changes { created: 10, ..Changes::default() });
    assert!(tree.apply_vms(&vms).unwrap().is_empty());

    let pairs = [pair(A, 10), pair(A, 11), pair(B, 10)];
    let ids = tree.add_pairs(&pairs).unwrap();
    assert_eq!(tree.add_pairs(&pairs).unwrap(), ids, "a pair keeps its queue");
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], mbit(30, 40)), (pairs[2], mbit(50, 50))];
    assert_eq!(tree.set(&rates).unwrap(), 3);
    assert_eq!(tree.set(&rates).unwrap(), 0, "the same levels again");
    assert_eq!(tree.read_back(), rates);
    let first = tree.found(nodes::node(ids[0]).unwrap());
    assert_eq!((first.floor, first.ceiling, first.fallback), (60_000_000, 200_000_000, 60_000_000));
    assert_eq!(first.parent, u64::from(nodes::share(0)));

    // A change by another process is repaired.
    tree.map.put(1024, Level::default());
    let mended = tree.apply_vms(&vms).unwrap();
    assert_eq!(mended, Changes { created: 1, ..Changes::default() });
    assert!(tree.apply_vms(&vms).unwrap().is_empty());

    // A VM that is gone takes all of its nodes along.
    let changes = tree.apply_vms(&vms[..1]).unwrap();
    assert_eq!(changes.deleted, 5, "{changes:?}");
    assert_eq!(tree.read_back().len(), 2);
}

#[test]
fn pairs_depart_no_further_ahead_than_is_asked_and_other_queues_wait_as_ever() {
    let config = ShaperConfig {
        departs_within: Span::from_micros(1_200),
        ..ShaperConfig::new("t", Rate::from_mbps(10_000))
    };
    let mut tree = Tree::new(config, CounterArray::in_memory(NODES as usize), &[]).unwrap();
    tree.apply_vms(&[vm(A, 90)]).unwrap();
    let id = pair(A, 10);
    let node = nodes::node(tree.add_pairs(&[id]).unwrap()[0]).unwrap();
    for rate in [mbit(0, 100), mbit(60, 9_000)] {
        tree.set(&[(id, rate)]).unwrap();
        assert_eq!(tree.found(node).limit_ns, 1_200_000);
    }
    let default = nodes::node(tree.vm_classes(A).unwrap().default).unwrap();
    assert_eq!(tree.found(default).limit_ns, LONGEST_WAIT.as_nanos());
    assert_eq!(tree.apply_vms(&[vm(A, 90)]).unwrap(), Changes::default(), "a second pass");
}

#[test]
fn what_contradicts_itself_is_refused_and_changes_nothing() {
    let mut tree = tree();
    tree.apply_vms(&[vm(A, 50)]).unwrap();
    let id = pair(A, 10);
    assert!(matches!(tree.set(&[(id, mbit(1, 1))]), Err(Error::UnknownPair(_))));
    tree.add_pairs(&[id]).unwrap();
    tree.set(&[(id, mbit(40, 50))]).unwrap();
    assert!(matches!(tree.set(&[(id, mbit(5, 4))]), Err(Error::Ceiling { .. })));
    assert!(matches!(tree.set(&[(id, mbit(51, 60))]), Err(Error::Floors { .. })));
    assert!(matches!(tree.add_pairs(&[pair(B, 1)]), Err(Error::UnknownVm(B))));
    assert!(matches!(tree.apply_vms(&[vm(A, 201)]), Err(Error::Ceiling { .. })));
    assert_eq!(tree.read_back(), [(id, mbit(40, 50))]);
    tree.config.overbooking = Overbooking::Refuse;
    assert!(matches!(tree.apply_vms(&[vm(A, 150), vm(B, 150)]), Err(Error::Floors { .. })));
    let small = CounterArray::in_memory(1);
    let error = Tree::new(ShaperConfig::new("t", Rate::from_mbps(200)), small, &[]).err().unwrap();
    assert!(matches!(error, Error::Config(_)));
}

#[test]
fn nodes_are_bounded_and_used_again_at_the_smallest_rate() {
    let mut tree = tree();
    tree.apply_vms(&[vm(A, 90)]).unwrap();
    let all: Vec<PairId> = (0..MAX_PAIRS as u32).map(|n| pair(A, n + 10)).collect();
    let ids = tree.add_pairs(&all).unwrap();
    assert!(matches!(tree.add_pairs(&[pair(A, 1)]), Err(Error::Full { .. })));
    tree.set(&[(all[7], mbit(10, 50))]).unwrap();
    tree.remove(&all[7..8]);
    assert_eq!(tree.found(nodes::node(ids[7]).unwrap()), Level::default());
    assert_eq!(tree.add_pairs(&[pair(A, 1)]).unwrap(), [ids[7]]);
    let least = tree.found(nodes::node(ids[7]).unwrap());
    assert_eq!((least.floor, least.ceiling), (MIN_RATE.as_bps(), MIN_RATE.as_bps()));
}

#[test]
fn a_successor_claims_what_it_finds_and_gives_up_the_rest() {
    let mut first = tree();
    first.apply_vms(&[vm(A, 90), vm(B, 60)]).unwrap();
    let pairs = [pair(A, 10), pair(A, 11), pair(B, 10)];
    let ids = first.add_pairs(&pairs).unwrap();
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], mbit(0, 40)), (pairs[2], mbit(50, 50))];
    first.set(&rates).unwrap();
    let classes = first.vm_classes(B);

    // The VMs come in another order, and keep their places.
    let mut second = succeed(first);
    assert!(second.apply_vms(&[vm(B, 60), vm(A, 90)]).unwrap().is_empty());
    assert_eq!(second.vm_classes(B), classes);
    let claims = [(pairs[0], ids[0]), (pairs[1], ids[1]), (pair(A, 99), ids[2])];
    assert_eq!(second.claim(&claims), [pair(A, 99)]);
    assert_eq!(second.set(&rates[..1]).unwrap(), 0, "levels stayed as found");
    assert_eq!(second.set(&[(pairs[1], mbit(0, 40))]).unwrap(), 0, "zero is the smallest rate");
    assert_eq!(second.found(nodes::node(ids[2]).unwrap()), Level::default(), "given up");
    assert!(second.apply_vms(&[vm(B, 60), vm(A, 90)]).unwrap().is_empty());
}

#[test]
fn an_overbooked_uplink_scales_floors_to_fit() {
    let mut tree = tree();
    let vms: Vec<_> = (1..=4).map(|n| vm(VmId(n), 90)).collect();
    tree.apply_vms(&vms).unwrap();
    let pairs: Vec<_> = (1..=4).map(|n| pair(VmId(n), 10)).collect();
    tree.add_pairs(&pairs).unwrap();
    let full: Vec<_> = pairs.iter().map(|id| (*id, mbit(90, 90))).collect();
    assert_eq!(tree.set(&full[..2]).unwrap(), 2);
    assert_eq!(tree.overbooked(), None);
    assert_eq!(tree.set(&full[2..]).unwrap(), 4, "every pair's part has changed");
    let sum: Rate = tree.read_back().iter().map(|(_, rate)| rate.floor).sum();
    assert!(sum <= Rate::from_mbps(195) && sum > Rate::from_mbps(194), "{sum}");
    tree.remove(&pairs[2..]);
    assert_eq!(tree.read_back(), full[..2]);
}
