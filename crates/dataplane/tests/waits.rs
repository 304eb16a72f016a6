//! The levels by which the classifier bounds queues in time, against a real kernel: they follow the
//! classes, and are never below them. Needs root, and fails without.

use crate::shaper_world::*;
use weir_dataplane::intf::{FIRST_PAIR, Level, NODES};
use weir_dataplane::nl::{Socket, htb, tc};
use weir_dataplane::programs::{Programs, Sizes};
use weir_dataplane::shaper::{
    ClassId, Error, Htb, MIN_RATE, PairRate, Shaper, ShaperConfig, longest_wait, reclaim,
};
use weir_dataplane::table::CounterArray;
use weir_units::{Bytes, Rate};

const MBIT: u64 = 1_000_000;

/// The maps of an agent, which outlive it.
struct Maps {
    programs: Programs,
    levels: CounterArray<Level>,
}

impl Maps {
    fn new() -> Self {
        let sizes = Sizes { pairs: 16, endpoints: 16, nodes: NODES, queues: 1, hosts: 1 };
        let programs = Programs::load(sizes, None).unwrap();
        Self { levels: programs.levels().unwrap(), programs }
    }

    fn open(&self, instance: &str) -> Htb {
        let config = ShaperConfig::new(instance, Rate::from_mbps(200));
        let levels = self.programs.levels().unwrap();
        Htb::open(config).unwrap().bounded_in_time(levels).unwrap()
    }

    fn level(&self, class: ClassId) -> Level {
        self.levels.get((FIRST_PAIR + class.0 - 0x1_4000) as usize)
    }

    fn ceilings<const N: usize>(&self, classes: [ClassId; N]) -> [u64; N] {
        classes.map(|class| self.level(class).ceiling)
    }
}

/// The ceilings that the kernel has.
fn kernels<const N: usize>(shaper: &Htb, classes: [ClassId; N]) -> [u64; N] {
    let there = htb::classes(&mut Socket::open().unwrap(), shaper.device(), 0x1_0000).unwrap();
    classes.map(|class| {
        let entry = there.iter().find(|entry| entry.id == class.0);
        entry.map_or(0, |entry| htb::rate(entry.class.ceil).as_bps())
    })
}

#[test]
fn a_level_is_its_classs_ceiling_from_the_first_rate_to_the_pairs_end() {
    two_ports();
    let maps = Maps::new();
    let mut shaper = maps.open("follow");
    shaper.apply_vms(&[vm(VM_A, "pa", 90), vm(VM_B, "pb", 60)]).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_A, 11), pair(VM_B, 10)];
    let ids: [ClassId; 3] = shaper.add_pairs(&pairs).unwrap().try_into().unwrap();
    assert_eq!(maps.ceilings(ids), [0; 3], "no bound before there is a rate");

    let slow = PairRate { floor: Rate::from_bps(64_000), ceiling: Rate::from_bps(400_000) };
    // The smallest rate is that of the pool: the class stays as it is.
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], slow), (pairs[2], PairRate::default())];
    assert_eq!(shaper.set(&rates).unwrap(), 2);
    assert_eq!(maps.ceilings(ids), [200 * MBIT, 400_000, MIN_RATE.as_bps()]);
    assert_eq!(maps.ceilings(ids), kernels(&shaper, ids));
    let level = maps.level(ids[1]);
    let usual = ShaperConfig::new("", Rate::ZERO).queue;
    assert_eq!(level.limit_ns, longest_wait(slow.ceiling, usual).unwrap().as_nanos());
    // HTB sends two frames ahead, to a tick of 64 ns.
    assert_eq!((level.limit, level.ahead), (131_072, 3028), "{level:?}");

    shaper.set(&[(pairs[0], mbit(60, 70))]).unwrap();
    assert_eq!(maps.level(ids[0]).ceiling, 70 * MBIT);
    // A VM that changes changes its pairs' classes, and one that leaves takes them along.
    let capped =
        weir_dataplane::shaper::VmShare { cap: Some(Rate::from_mbps(65)), ..vm(VM_A, "pa", 60) };
    shaper.apply_vms(&[capped]).unwrap();
    assert_eq!(maps.ceilings(ids), [65 * MBIT, 400_000, 0]);
    assert_eq!(maps.ceilings(ids), kernels(&shaper, ids));

    shaper.remove(&pairs[..2]).unwrap();
    assert_eq!(maps.ceilings(ids), [0; 3]);
    let again = shaper.add_pairs(&[pair(VM_A, 12), pair(VM_A, 13)]).unwrap();
    assert!(again.iter().all(|id| ids.contains(id)), "used again");
    assert_eq!(maps.ceilings(ids), [0; 3], "and no bound before there is a rate");
    Box::new(shaper).close().unwrap();
}

/// What both fifos of a pair's queue may hold.
fn rooms(shaper: &Htb, class: ClassId) -> [Option<u32>; 2] {
    let found = tc::qdiscs(&mut Socket::open().unwrap(), Some(shaper.device())).unwrap();
    let queue = found.iter().find(|qdisc| qdisc.parent == class.0).expect("a queue").handle;
    [1, 2].map(|minor| found.iter().find(|qdisc| qdisc.parent == queue | minor)?.limit)
}

#[test]
fn a_pairs_queue_holds_more_while_it_is_told_so_and_its_bound_in_time_follows() {
    two_ports();
    let maps = Maps::new();
    let mut shaper = maps.open("rooms");
    let vms = [vm(VM_A, "pa", 90)];
    shaper.apply_vms(&vms).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_A, 11)];
    let ids: [ClassId; 2] = shaper.add_pairs(&pairs).unwrap().try_into().unwrap();
    shaper.set(&[(pairs[0], mbit(60, 180)), (pairs[1], mbit(20, 180))]).unwrap();
    let usual = Bytes::new(128 * 1024);
    let is = |shaper: &Htb, room: Bytes| {
        let level = maps.level(ids[0]);
        assert_eq!(rooms(shaper, ids[0]), [Some(room.get() as u32); 2]);
        let wait = longest_wait(Rate::from_mbps(180), room).unwrap().as_nanos();
        assert_eq!((level.limit, level.limit_ns), (room.get(), wait), "{level:?}");
        // What HTB sends ahead: 1 ms at the ceiling.
        assert!((22_400..22_600).contains(&level.ahead), "{level:?}");
        assert_eq!(shaper.sends_ahead(pairs[0]), Some(Bytes::new(level.ahead)));
        assert_eq!(rooms(shaper, ids[1]), [Some(128 * 1024); 2], "the other's stays");
    };
    is(&shaper, usual);
    let more = Bytes::new(512 * 1024);
    shaper.set_room(pairs[0], Some(more)).unwrap();
    is(&shaper, more);
    let before = shaper.written();
    shaper.set_room(pairs[0], Some(more)).unwrap();
    assert_eq!(shaper.written(), before, "nothing to do");
    // It outlasts what else changes.
    shaper.set(&[(pairs[0], mbit(50, 180))]).unwrap();
    shaper.apply_vms(&vms).unwrap();
    is(&shaper, more);
    shaper.set_room(pairs[0], None).unwrap();
    is(&shaper, usual);
    // The next pair with the class has no more than others.
    shaper.set_room(pairs[0], Some(more)).unwrap();
    shaper.remove(&pairs[..1]).unwrap();
    shaper.set_room(pairs[0], Some(more)).unwrap();
    assert_eq!(rooms(&shaper, ids[0]), [Some(128 * 1024); 2]);
    assert_eq!(shaper.add_pairs(&[pair(VM_A, 12)]).unwrap(), [ids[0]]);
    shaper.set(&[(pair(VM_A, 12), mbit(60, 180))]).unwrap();
    assert_eq!(rooms(&shaper, ids[0]), [Some(128 * 1024); 2]);
    assert_eq!(maps.level(ids[0]).limit, 131_072);
    Box::new(shaper).close().unwrap();
}

#[test]
fn an_agent_that_comes_back_gives_a_queue_the_usual_room_without_making_it_anew() {
    two_ports();
    let maps = Maps::new();
    let mut shaper = maps.open("again");
    let vms = [vm(VM_A, "pa", 90)];
    shaper.apply_vms(&vms).unwrap();
    let id = shaper.add_pairs(&[pair(VM_A, 10)]).unwrap()[0];
    shaper.set(&[(pair(VM_A, 10), mbit(60, 180))]).unwrap();
    let come_back = |former: Htb| {
        drop(former);
        let mut shaper = maps.open("again");
        let before = shaper.written();
        shaper.apply_vms(&vms).unwrap();
        assert_eq!(shaper.claim(&[(pair(VM_A, 10), id)]).unwrap(), []);
        assert_eq!(rooms(&shaper, id), [Some(128 * 1024); 2]);
        let written = shaper.written() - before;
        (shaper, written)
    };
    let (mut shaper, usually) = come_back(shaper);
    shaper.set_room(pair(VM_A, 10), Some(Bytes::new(512 * 1024))).unwrap();
    let (shaper, written) = come_back(shaper);
    assert_eq!(written, usually + 2, "one word to each fifo: what waits stays");
    Box::new(shaper).close().unwrap();
}

#[test]
fn what_the_guardian_takes_back_leaves_levels_too_high_until_an_agent_looks() {
    two_ports();
    let maps = Maps::new();
    let mut shaper = maps.open("guard");
    let vms = [vm(VM_A, "pa", 90)];
    shaper.apply_vms(&vms).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_A, 11)];
    let ids: [ClassId; 2] = shaper.add_pairs(&pairs).unwrap().try_into().unwrap();
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], mbit(10, 40))];
    shaper.set(&rates).unwrap();
    let take_back = |shaper: &Htb| assert_eq!(reclaim(&shaper.device().name).unwrap(), 2);

    take_back(&shaper);
    assert_eq!(kernels(&shaper, ids), [60 * MBIT, 10 * MBIT]);
    assert_eq!(maps.ceilings(ids), [200 * MBIT, 40 * MBIT]);
    shaper.refresh().unwrap();
    assert_eq!(maps.ceilings(ids), [60 * MBIT, 10 * MBIT]);
    shaper.set(&rates).unwrap();
    assert_eq!(maps.ceilings(ids), [200 * MBIT, 40 * MBIT]);

    // The agent dies, and its successor knows one of the pairs.
    take_back(&shaper);
    drop(shaper);
    let mut second = maps.open("guard");
    assert!(second.apply_vms(&vms).unwrap().is_empty());
    assert_eq!(maps.ceilings(ids), [60 * MBIT, 10 * MBIT]);
    assert_eq!(second.claim(&[(pairs[0], ids[0])]).unwrap(), []);
    assert_eq!(maps.ceilings(ids), [60 * MBIT, 0]);
    Box::new(second).close().unwrap();
}

#[test]
fn no_level_is_below_its_class_when_the_kernel_refuses() {
    two_ports();
    let maps = Maps::new();
    let mut shaper = maps.open("refuse");
    shaper.apply_vms(&[vm(VM_A, "pa", 90)]).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_A, 11), pair(VM_A, 12)];
    let ids: [ClassId; 3] = shaper.add_pairs(&pairs).unwrap().try_into().unwrap();
    let all = |ceilings: [u64; 3]| pairs.into_iter().zip(ceilings.map(|c| mbit(1, c)));
    shaper.set(&all([20, 20, 20]).collect::<Vec<_>>()).unwrap();
    let device = shaper.device().name.to_string();
    sh(&format!("tc class del dev {device} classid 1:{:x}", ids[2].0 & 0xffff));
    let error = shaper.set(&all([40, 10, 30]).collect::<Vec<_>>()).unwrap_err();
    assert!(matches!(error, Error::Kernel(_)), "{error}");
    let (levels, classes) = (maps.ceilings(ids), kernels(&shaper, ids));
    assert!(levels.iter().zip(&classes).all(|(level, class)| level >= class), "{levels:?}");
    assert!(levels[1] == 20 * MBIT, "lowered only when the class is");
    // At the next look all is as the kernel has it.
    shaper.refresh().unwrap();
    assert_eq!(maps.ceilings(ids), kernels(&shaper, ids));
    Box::new(shaper).close().unwrap();
}
