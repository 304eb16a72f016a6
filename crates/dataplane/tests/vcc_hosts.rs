//! vCC as a part of the datapath: where its programs stand, what outlives an agent, what ends when,
//! and what is refused. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

use crate::net::{World, now_ns};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapHandle, MapType};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use weir_dataplane::vcc::Law;
use weir_dataplane::vcc::intf::Counters;
use weir_dataplane::{Config, Dataplane, Mode, Outside, Translated};
use weir_units::{TenantId, VmId};

const VM: VmId = VmId(1);

fn with(config: Config, law: Option<Law>) -> Config {
    let translations: BTreeMap<VmId, Law> = law.map(|law| (VM, law)).into_iter().collect();
    Config { translations, ..config }
}

fn open(world: &World, config: Config) -> Dataplane {
    world.inside("host1", || Dataplane::open(config)).unwrap()
}

fn apply(world: &World, host: &mut Dataplane, config: Config) {
    world.inside("host1", || host.apply(config, &BTreeSet::new())).unwrap();
}

fn tend(world: &World, host: &mut Dataplane, now_ns: u64) {
    world.inside("host1", || host.tend_translations(now_ns));
}

/// Names of the programs on the VM's port by TCX, in the order in which they run.
fn on_port(world: &World) -> [Vec<String>; 2] {
    world.inside("host1", || {
        // SAFETY: a terminated string.
        let index = unsafe { libc::if_nametoindex(c"port".as_ptr()) };
        [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS].map(|hook| {
            let mut ids = [0u32; 16];
            let mut options = libbpf_sys::bpf_prog_query_opts {
                sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
                prog_ids: ids.as_mut_ptr(),
                ..Default::default()
            };
            options.__bindgen_anon_1.count = ids.len() as u32;
            // SAFETY: the struct carries its size, the array has as many elements as said; both
            // outlive the call.
            let ret =
                unsafe { libbpf_sys::bpf_prog_query_opts(index as i32, hook, &raw mut options) };
            assert_eq!(ret, 0, "a kernel with TCX");
            // SAFETY: both variants of the union are the same u32.
            let count = unsafe { options.__bindgen_anon_1.count } as usize;
            let name = |id: &u32| {
                let found = ProgInfoIter::default().find(|program| program.id == *id);
                found.map_or_else(String::new, |p| p.name.to_string_lossy().into_owned())
            };
            ids[..count].iter().map(name).collect()
        })
    })
}

const BOTH: [&[&str]; 2] = [&["weir_classify", "weir_vcc_from"], &["weir_meter", "weir_vcc_to"]];
const BARE: [&[&str]; 2] = [&["weir_classify"], &["weir_meter"]];

fn told(host: &Dataplane) -> Translated {
    let mut all = host.translations();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn counters(host: &Dataplane) -> Counters {
    told(host).counters.expect("it has programs")
}

/// Octets there and back.
fn speak(from: &TcpStream, to: &TcpStream) {
    for (mut a, mut b) in [(from, to), (to, from)] {
        a.write_all(&[7; 20_000]).unwrap();
        let mut octets = [0; 20_000];
        b.read_exact(&mut octets).unwrap();
        assert_eq!(octets, [7; 20_000]);
    }
}

fn without_ecn(world: &World) {
    for vm in ["vm1", "vm2"] {
        world.inside(vm, || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "0").unwrap());
    }
}

/// The kernel's clock, as much later as a table is looked at again.
fn later() -> u64 {
    now_ns() + 6_000_000_000
}

fn a_port_translates_behind_the_rest_through_deaths_and_until_nobody_needs_it(mode: Mode) {
    let world = World::new();
    without_ecn(&world);
    let bare = world.snapshot("host1");
    let config = |law| with(world.config(1, mode), law);
    let mut host = open(&world, config(Some(Law::VirtualEcn)));
    assert_eq!(told(&host).refused, None);
    if mode == Mode::Tcx {
        assert_eq!(on_port(&world), BOTH);
    }
    let (from, to) = world.tcp();
    speak(&from, &to);
    let first = counters(&host);
    // The other end's host translates nothing, and its guest knows no ECN.
    assert_eq!((first.begun, first.deaf, first.unknown), (1, 1, 0), "{first:?}");

    drop(host);
    speak(&from, &to);
    host = open(&world, config(Some(Law::VirtualEcn)));
    assert!(host.adopted() && host.replaced_translations().is_none());
    speak(&from, &to);
    let second = counters(&host);
    assert!(second.segments > first.segments + 4, "it went on, and goes on: {second:?}");
    assert_eq!((second.begun, second.unknown), (1, 0), "nothing was forgotten: {second:?}");
    if mode == Mode::Tcx {
        assert_eq!(on_port(&world), BOTH, "nothing is there twice");
    }

    // Not asked for any more: the connection keeps it, through a death, too; another one has none.
    apply(&world, &mut host, config(None));
    drop(host);
    host = open(&world, config(None));
    tend(&world, &mut host, later());
    let (other, there) = world.tcp_at(9002);
    speak(&from, &to);
    speak(&other, &there);
    let third = counters(&host);
    assert_eq!((told(&host).asked, told(&host).refused), (None, None));
    assert!(third.segments > second.segments && third.begun == 1, "{third:?}");
    assert!(third.unknown > 4, "the other one: {third:?}");

    // Both ends are through: after some seconds nothing is left of it.
    drop((from, to, other, there));
    std::thread::sleep(std::time::Duration::from_millis(100));
    tend(&world, &mut host, later() + 6_000_000_000);
    assert_eq!(host.translations(), []);
    if mode == Mode::Tcx {
        assert_eq!(on_port(&world), BARE);
    }
    let pins = || std::fs::read_dir(world.bpffs().join("weir/host1/links")).unwrap().count();
    assert_eq!(pins(), if mode == Mode::Tcx { 3 } else { 0 });

    // And on again, at run time, until the end.
    apply(&world, &mut host, config(Some(Law::CubicEcn)));
    assert_eq!(counters(&host), Counters::default());
    world.inside("host1", || host.close()).unwrap();
    world.assert_restored("host1", &bare);
}

#[test]
fn a_port_translates_through_deaths_and_until_nobody_needs_it_by_tcx() {
    a_port_translates_behind_the_rest_through_deaths_and_until_nobody_needs_it(Mode::Tcx);
}

#[test]
fn a_port_translates_through_deaths_and_until_nobody_needs_it_by_clsact() {
    a_port_translates_behind_the_rest_through_deaths_and_until_nobody_needs_it(Mode::Clsact);
}

#[test]
fn programs_that_somebody_takes_off_come_back_behind_the_datapaths_own() {
    let world = World::new();
    let mut host = open(&world, with(world.config(1, Mode::Tcx), Some(Law::Dctcp)));
    let take_off = |prefix: &str| {
        for entry in std::fs::read_dir(world.bpffs().join("weir/host1/links")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        // The kernel detaches some time later.
        std::thread::sleep(std::time::Duration::from_millis(300));
    };
    take_off("weir_vcc_to");
    assert_eq!(on_port(&world)[1], ["weir_meter"]);
    tend(&world, &mut host, now_ns());
    assert_eq!(on_port(&world), BOTH);
    // The datapath's own are the agent's to mend: it is told which VMs are not guarded, and
    // applies.
    take_off("weir_meter");
    assert_eq!(on_port(&world)[1], ["weir_vcc_to"]);
    let config = with(world.config(1, Mode::Tcx), Some(Law::Dctcp));
    apply(&world, &mut host, config.clone());
    assert_eq!(on_port(&world), BOTH);
    // The same while no agent runs.
    drop(host);
    take_off("weir_classify");
    let host = open(&world, config);
    assert!(host.adopted());
    assert_eq!(on_port(&world), BOTH);
    world.inside("host1", || host.close()).unwrap();
}

#[test]
fn what_cannot_be_translated_is_refused_by_name_and_the_host_goes_on() {
    let world = World::new();
    let marks = Config { ecn: true, ..world.config(1, Mode::Tcx) };
    let mut host = open(&world, with(marks, Some(Law::VirtualEcn)));
    let why = told(&host).refused.expect("refused");
    assert!(why.contains("marks are the mechanism's own signal here"), "{why}");
    assert_eq!((told(&host).asked, told(&host).counters), (Some(Law::VirtualEcn), None));
    assert_eq!(on_port(&world), BARE);
    let guarded = &mut host;
    assert!(world.inside("host1", move || guarded.guarded()).contains(&VM));
    world.inside("host1", || host.close()).unwrap();

    let mut outward = world.config(1, Mode::Tcx);
    outward.endpoints.retain(|endpoint| endpoint.vm != VM);
    let address = "0.0.0.0".parse().unwrap();
    outward.outside.push(Outside { address, length: 0, vm: VM, tenant: TenantId(1) });
    let host = open(&world, with(outward, Some(Law::VirtualEcn)));
    let why = told(&host).refused.expect("refused");
    assert!(why.contains("its port leads outside"), "{why}");
    world.inside("host1", || host.close()).unwrap();
}

#[test]
fn what_an_earlier_agent_left_in_another_layout_is_given_up_and_told() {
    let world = World::new();
    let config = || with(world.config(1, Mode::Tcx), Some(Law::VirtualEcn));
    drop(open(&world, config()));
    // A map of another size in the place of one of theirs, as another version may have it.
    let pin = world
        .bpffs()
        .join(format!("weir/host1/maps-{}/vcc_counters", weir_dataplane::instance::LAYOUT));
    std::fs::remove_file(&pin).unwrap();
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let mut other = MapHandle::create(MapType::Array, Some("other"), 4, 64, 16, &options).unwrap();
    other.pin(&pin).unwrap();
    let host = open(&world, config());
    let why = host.replaced_translations().expect("told");
    assert!(why.contains("vcc_counters has another layout"), "{why}");
    assert!(host.adopted(), "the rest is");
    assert_eq!(on_port(&world), BOTH);
    world.inside("host1", || host.close()).unwrap();
}
