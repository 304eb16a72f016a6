//! docs/how-to-add-a-mechanism.md, compiled: Seawall again, step by step.

use weir_core::elasticswitch::{ElasticSwitch, Promise};
use weir_core::host::{Direction, Hose, HostMachine, Input, Location, Outbox, Policy};
use weir_core::mechanism::registry::{self, Floors, Row};
use weir_core::mechanism::{Draft, Law};
use weir_core::rate::RateConfig;
use weir_units::{HostId, PairId, Rate, TenantId, Time, VmId};

/// Constants of Seawall on links of 1 Gb/s.
fn law() -> ElasticSwitch {
    ElasticSwitch {
        rate: RateConfig::default().without_hold_and_caution(),
        promise: Promise::Weight(Rate::from_mbps(45)),
        ..ElasticSwitch::default()
    }
}

const ROW: Row = Row {
    name: "seawall",
    title: "Seawall",
    about: "equal weights per sending VM, no floors",
    presets: &[],
    usual: "paper",
    agents: "paper",
    draft: |_| Some(Draft::ElasticSwitch(Box::new(law()))),
    constants: || ElasticSwitch::CONSTANTS.iter().map(|entry| entry.name).collect(),
    agents_own: &[],
    floors: |_| Floors::Nowhere,
    reserves: false,
    returns: true,
    own_code_points: false,
};

/// A host with VM 0, which sends to VMs 1 and 2 elsewhere.
fn machine() -> HostMachine {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let policy = Policy::new(HostId(0), Rate::from_mbps(1000), Law::ElasticSwitch(Box::new(law())))
        .with_vms([(VmId(0), Hose::both(Rate::from_mbps(450)))])
        .with_directory([(VmId(0), at(0)), (VmId(1), at(1)), (VmId(2), at(2))]);
    HostMachine::new(policy, Time::ZERO).expect("Seawall refuses nothing")
}

#[test]
fn a_pair_has_a_trickle_for_a_floor_however_large_its_vms_hose() {
    let (mut machine, mut out) = (machine(), Outbox::default());
    for dst in [1, 2] {
        let pair = PairId::new(VmId(0), VmId(dst));
        machine.handle(Time::ZERO, Input::Seen(pair, Direction::Send), &mut out);
        let setting = machine.orders(Time::ZERO).pairs.get(pair).expect("a pair at once");
        assert_eq!(setting.floor, Rate::from_bps(64_000));
    }
}

#[test]
fn what_the_page_builds_is_the_seawall_that_ships() {
    assert_eq!(law(), ElasticSwitch::seawall());
    let row = registry::row("seawall").expect("listed");
    assert_eq!((ROW.name, ROW.about, ROW.presets), (row.name, row.about, row.presets));
    assert_eq!((ROW.usual, ROW.agents, ROW.sample()), (row.usual, row.agents, row.sample()));
    assert_eq!(
        (ROW.title, ROW.agents_own, ROW.reserves),
        (row.title, row.agents_own, row.reserves)
    );
    assert_eq!(((ROW.floors)("paper"), ROW.returns), ((row.floors)("paper"), row.returns));
}

#[test]
fn every_block_of_the_page_is_in_this_file() {
    let (page, here) = (
        include_str!("../../../docs/how-to-add-a-mechanism.md"),
        include_str!("how_to_add_a_mechanism.rs"),
    );
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        assert!(here.contains(block), "not here:\n{block}");
    }
}
