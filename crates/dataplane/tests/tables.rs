//! Tables that are nearly empty are read by their keys, others whole. Needs root, and fails
//! without.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_dataplane::eyeq::{self, intf::Limit};
use weir_dataplane::intf::{Address, Endpoint, Pair, Rx, Tx};
use weir_dataplane::programs::{Programs, Sizes};
use weir_dataplane::table::{Reading, Table};

const MS: u64 = 1_000_000;

type Directory = Table<Address, Endpoint>;

fn programs() -> Programs {
    Programs::load(Sizes { pairs: 64, endpoints: 1024, nodes: 1, queues: 1, hosts: 1 }, None)
        .expect("these tests load BPF programs: run them as root")
}

fn address(vm: u32) -> Address {
    IpAddr::V4(vm.into()).into()
}

fn put(table: &Directory, vm: u32) {
    table.put(address(vm), Endpoint { vm, tenant: 1, flags: 0, ..Endpoint::default() }).unwrap();
}

fn vms(table: &mut Directory, reading: Reading) -> BTreeSet<u32> {
    let read = table.read_as(reading).unwrap();
    read.map(|(key, value)| {
        assert_eq!(key, address(value.vm), "each key has its own value");
        value.vm
    })
    .collect()
}

#[test]
fn a_reading_of_what_is_known_has_what_is_expected_and_not_what_is_gone() {
    let mut programs = programs();
    let table = &mut programs.endpoints;
    (1..=3).for_each(|vm| put(table, vm));
    assert_eq!(vms(table, Reading::Known), [].into(), "nothing was read, nothing is known");
    assert_eq!(vms(table, Reading::Whole), [1, 2, 3].into());
    put(table, 4);
    put(table, 5);
    assert_eq!(vms(table, Reading::Known), [1, 2, 3].into());
    table.expect(address(4));
    table.expect(address(4));
    table.expect(address(6));
    assert_eq!(table.read_as(Reading::Known).unwrap().len(), 4, "once each, and what is there");
    table.delete(address(1)).unwrap();
    assert_eq!(vms(table, Reading::Known), [2, 3, 4].into());
    put(table, 2);
    assert_eq!(vms(table, Reading::Known), [2, 3, 4].into());
    assert_eq!(vms(table, Reading::Whole), [2, 3, 4, 5].into());
}

#[test]
fn a_table_is_read_whole_every_60_ms_and_always_once_it_fills() {
    let mut programs = programs();
    let table = &mut programs.endpoints;
    put(table, 1);
    let due = |now_ms: u64, table: &mut Directory| {
        let reading = table.due(now_ms * MS);
        vms(table, reading);
        reading
    };
    assert_eq!(due(1000, table), Reading::Whole, "the first");
    assert_eq!(due(1000, table), Reading::Known);
    assert_eq!(due(1059, table), Reading::Known);
    assert_eq!(due(1060, table), Reading::Whole);
    assert_eq!(due(1061, table), Reading::Known);
    (2..=16).for_each(|vm| put(table, vm));
    assert_eq!(due(1120, table), Reading::Whole);
    assert_eq!(due(1121, table), Reading::Whole, "16 calls cost as much as 1024 buckets");
    assert!((5..=16).all(|vm| table.delete(address(vm)).unwrap()));
    assert_eq!(due(1122, table), Reading::Whole);
    assert_eq!(due(1123, table), Reading::Known);
}

/// `number` pairs that send and receive, each with counters of its own.
fn pairs(programs: &Programs, number: u32) {
    for dst in 1..=number {
        let (pair, count) = (Pair { src: 7, dst }, u64::from(dst));
        let tx = Tx {
            octets: count * 1000,
            segments: count,
            sequence: dst,
            numbered: count * 900,
            unnumbered: count * 100,
            stray_ns: count + 5,
            ..Tx::default()
        };
        let holes = std::array::from_fn(|row| std::array::from_fn(|i| count << (row + i)));
        let rx = Rx {
            octets: count,
            lost: count * 2,
            ce: count * 3,
            holes,
            missing: 1,
            strange: count * 4,
            doubts: dst + 1,
            synced: dst,
            ..Rx::default()
        };
        programs.tx.put(pair, tx).unwrap();
        programs.rx.put(pair, rx).unwrap();
    }
}

#[test]
fn many_pairs_that_are_gathered_in_one_call_are_what_a_look_up_of_each_would_say() {
    let sizes = Sizes { pairs: 4096, endpoints: 64, nodes: 1, queues: 1, hosts: 1 };
    let mut programs = Programs::load(sizes, None).expect("run it as root");
    // More than one run can be asked for.
    pairs(&programs, 1500);
    let whole: BTreeMap<Pair, Tx> = programs.tx.read().unwrap().collect();
    let known: BTreeMap<Pair, Tx> = programs.tx.read_as(Reading::Known).unwrap().collect();
    assert_eq!((whole.len(), &known), (1500, &whole));
    let whole: BTreeMap<Pair, Rx> = programs.rx.read().unwrap().collect();
    let known: BTreeMap<Pair, Rx> = programs.rx.read_as(Reading::Known).unwrap().collect();
    assert_eq!((whole.len(), &known), (1500, &whole));
    assert_eq!(known[&Pair { src: 7, dst: 3 }].word(2), 12);

    // What changed is told anew, and what is gone is not, also where all of a run's end is gone.
    let gone = |dst: &u32| dst.is_multiple_of(3) || (1000..=1100).contains(dst) || *dst > 1490;
    for dst in (1..=1500).filter(gone) {
        assert!(programs.tx.delete(Pair { src: 7, dst }).unwrap());
    }
    programs.tx.put(Pair { src: 7, dst: 1 }, Tx { octets: 5, ..Tx::default() }).unwrap();
    let known: BTreeMap<Pair, Tx> = programs.tx.read_as(Reading::Known).unwrap().collect();
    let left: BTreeSet<u32> = (1..=1500).filter(|dst| !gone(dst)).collect();
    assert_eq!(known.keys().map(|pair| pair.dst).collect::<BTreeSet<_>>(), left);
    assert_eq!(known[&Pair { src: 7, dst: 1 }].octets, 5);
    let whole: BTreeMap<Pair, Tx> = programs.tx.read().unwrap().collect();
    assert_eq!(known, whole);
}

#[test]
fn limits_that_are_gathered_in_one_call_are_what_a_look_up_of_each_would_say() {
    let sizes = eyeq::Sizes { pairs: 4096, endpoints: 64, hosts: 4 };
    let mut programs = eyeq::Programs::load(sizes).expect("run it as root");
    let limit = |dst: u32| {
        let (n, by) = (u64::from(dst), dst + 4);
        let (rate_bps, heard_ns, sequence, told) = (n * 1000, n + 1, n + 2, n + 3);
        Limit { rate_bps, heard_ns, sequence, told, rung_bps: n * 999, by, lock: 0 }
    };
    let pair = |dst| Pair { src: 7, dst };
    for dst in (1..=1500).filter(|dst: &u32| !dst.is_multiple_of(3)) {
        programs.limits.put(pair(dst), limit(dst)).unwrap();
    }
    // More than one run, some that are allowed nothing, and one alone, which is no run.
    for asked in [(1..=1500).map(pair).collect::<Vec<_>>(), vec![pair(4)], vec![pair(3)], vec![]] {
        let mut got = BTreeMap::new();
        programs.limits.get_each(&asked, |pair, limit| _ = got.insert(pair, limit)).unwrap();
        let want: BTreeMap<Pair, Limit> = asked
            .iter()
            .filter_map(|pair| Some((*pair, programs.limits.get(*pair).unwrap()?)))
            .collect();
        assert_eq!(got, want);
        assert!(got.iter().all(|(pair, got)| *got == limit(pair.dst)), "nothing is left out");
    }
}
