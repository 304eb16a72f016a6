//! Tables that are nearly empty are read by their keys, others whole. Needs root, and fails without.

use std::collections::BTreeSet;
use std::net::IpAddr;
use weir_dataplane::intf::{Address, Endpoint};
use weir_dataplane::programs::{Programs, Sizes};
use weir_dataplane::table::{Reading, Table};

const MS: u64 = 1_000_000;

type Directory = Table<Address, Endpoint>;

fn programs() -> Programs {
    Programs::load(Sizes { pairs: 64, endpoints: 1024, nodes: 1, queues: 1 }, None)
        .expect("these tests load BPF programs: run them as root")
}

fn address(vm: u32) -> Address {
    IpAddr::V4(vm.into()).into()
}

fn put(table: &Directory, vm: u32) {
    table.put(address(vm), Endpoint { vm, tenant: 1, flags: 0 }).unwrap();
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
