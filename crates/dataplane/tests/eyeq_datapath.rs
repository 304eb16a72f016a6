//! EyeQ as a part of a whole datapath: a VM that gets another's slot, and programs that are
//! detached. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::eyeq_bench as bench;

use crate::net::{VM2, World, modes};
use bench::{UNIT, key, settings};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_dataplane::eyeq::intf::{Meter, Share};
use weir_dataplane::{Config, Dataplane, EyeQ, Mode};
use weir_units::VmId;

const HOST1: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PERIOD: Duration = Duration::from_millis(2);
/// What VM 2 may receive.
const SHARE: Share = Share { capacity_bps: 90 * UNIT, floor_bps: UNIT };

/// Host 2, where `vm` has the port and the address of VM 2; VM 1 is elsewhere.
fn config(world: &World, mode: Mode, vm: VmId) -> Config {
    let mut config = world.config(2, mode);
    config.ports[0].vm = vm;
    config.endpoints[1].vm = vm;
    let settings =
        weir_dataplane::eyeq::intf::Settings { period_ns: PERIOD.as_nanos() as u64, ..settings() };
    let hosts = [(VmId(1), HOST1), (vm, HOST2)].into();
    config.eyeq = Some(EyeQ { address: HOST2, settings, departs_within: None, hosts });
    config
}

fn open(world: &World, mode: Mode) -> Dataplane {
    for (ns, address) in [("host1", HOST1), ("host2", HOST2)] {
        world.ip(ns, &format!("addr add {address}/24 dev br"));
    }
    let mut host = world.inside("host2", || Dataplane::open(config(world, mode, VmId(2)))).unwrap();
    host.set_share(VmId(2), false, SHARE);
    let key = key(HOST2, HOST1, 0);
    host.speak_to(HOST1, Some((key.id().0, key.halves()))).unwrap();
    host
}

fn close(world: &World, host: Dataplane) {
    world.inside("host2", || host.close()).unwrap();
}

/// VM 1 sends 200 full datagrams over some periods.
fn send(world: &World) {
    let sender = world.udp(1);
    for n in 0..200 {
        sender.send_to(&[7; 1472], (VM2, 9000)).unwrap();
        if n % 10 == 9 {
            std::thread::sleep(PERIOD);
        }
    }
}

/// Waits until `done`, and fails if it never is.
#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn meter(host: &Dataplane, vm: VmId) -> Meter {
    let meters = host.meters().unwrap();
    assert_eq!(meters.len(), 1, "{meters:?}");
    assert_eq!(meters[0].0, vm);
    meters[0].1[0]
}

#[test]
fn who_gets_the_slot_of_a_vm_that_left_has_neither_its_share_nor_its_meter() {
    for mode in modes() {
        let world = World::new();
        world.without_super_packets();
        let _receiver = world.udp(2);
        let mut host = open(&world, mode);
        send(&world);
        until("it is metered", || meter(&host, VmId(2)).octets >= 200 * 1514);
        let before = meter(&host, VmId(2));
        assert!(before.steps > 5 && before.rate_bps > 0, "{before:?}");
        // A VM that stays keeps both.
        let same = config(&world, mode, VmId(2));
        world.inside("host2", || host.apply(same, &BTreeSet::new())).unwrap();
        assert!(meter(&host, VmId(2)).octets >= before.octets);
        send(&world);
        until("its share is there", || meter(&host, VmId(2)).steps > before.steps);
        // One change takes it away and gives its place to another.
        let next = config(&world, mode, VmId(4));
        world.inside("host2", || host.apply(next, &BTreeSet::new())).unwrap();
        assert_eq!(meter(&host, VmId(4)), Meter::default(), "{mode:?}");
        send(&world);
        until("it is metered", || meter(&host, VmId(4)).octets >= 200 * 1514);
        let meter = meter(&host, VmId(4));
        assert_eq!((meter.steps, meter.rate_bps), (0, 0), "without a share it stands still");
        close(&world, host);
    }
}

/// Detaches a program of host 2, as any process with root's rights could.
fn take_off(world: &World, mode: Mode, program: &str, place: &str) {
    if mode == Mode::Clsact {
        world.tc("host2", &format!("filter del dev {place}"));
        return;
    }
    let links = world.bpffs().join("weir/host2/links");
    let pins: Vec<PathBuf> = std::fs::read_dir(links).unwrap().map(|e| e.unwrap().path()).collect();
    let pin = pins.iter().find(|pin| pin.to_string_lossy().contains(program));
    std::fs::remove_file(pin.unwrap_or_else(|| panic!("{program} among {pins:?}"))).unwrap();
}

#[test]
fn programs_of_all_ports_that_somebody_took_off_are_missed_and_put_back() {
    for mode in modes() {
        let world = World::new();
        world.without_super_packets();
        let before = world.snapshot("host2");
        let _receiver = world.udp(2);
        let mut host = open(&world, mode);
        let lost = |host: &mut Dataplane| world.inside("host2", move || host.lost_programs());
        let told = |host: &Dataplane| host.feedback().expect("EyeQ's programs").told;
        send(&world);
        assert!(told(&host) > 5, "{:?}", host.feedback());
        assert_eq!(lost(&mut host), [""; 0]);
        let places = [
            ("weir_stamp", "uplink egress pref 1"),
            ("weir_eyeq_heed", "uplink ingress pref 1"),
            ("weir_eyeq_tell", "br egress pref 2"),
        ];
        for (program, place) in places {
            take_off(&world, mode, program, place);
            until("it is missed", || lost(&mut host) == [program]);
            // The kernel takes the program of a removed pin off a moment later. Until then it is refused
            // as another's, and an agent tries again.
            until("it is put back", || world.inside("host2", || host.mend()).is_ok());
            assert_eq!(lost(&mut host), [""; 0], "{mode:?}, {program}");
            let messages = told(&host);
            send(&world);
            assert!(told(&host) > messages + 5, "{mode:?}, {program}: {:?}", host.feedback());
        }
        // An uplink that cannot be found is no reason to send feedback without `tell`.
        take_off(&world, mode, "weir_eyeq_tell", "br egress pref 2");
        until("it is missed", || lost(&mut host) == ["weir_eyeq_tell"]);
        world.ip("host2", &format!("addr del {HOST2}/24 dev br"));
        let error = world.inside("host2", || host.mend()).unwrap_err();
        assert!(error.to_string().contains("no interface"), "{error}");
        let (sampled, messages) = (host.feedback().unwrap().sampled, told(&host));
        send(&world);
        assert_eq!(host.feedback().unwrap().sampled, sampled, "no clone leaves as it is");
        world.ip("host2", &format!("addr add {HOST2}/24 dev br"));
        world.inside("host2", || host.mend()).unwrap();
        send(&world);
        assert!(told(&host) > messages + 5, "{:?}", host.feedback());
        close(&world, host);
        world.ip("host2", &format!("addr del {HOST2}/24 dev br"));
        world.assert_restored("host2", &before);
    }
}
