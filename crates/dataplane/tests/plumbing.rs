//! What another program may do to the datapath of a living agent, and that it is noticed and
//! mended. On hosts made of network namespaces. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::net::{self, PAIR, World, modes, now_ns, sh};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;
use weir_dataplane::{Config, Dataplane, Mode, PairRate, Tended};
use weir_units::{Rate, VmId};

const VM: VmId = VmId(1);

fn open(world: &World, config: Config) -> Dataplane {
    let mut host = world.inside("host1", || Dataplane::open(config)).unwrap();
    let (floor, ceiling) = (Rate::from_mbps(10), Rate::from_mbps(50));
    host.set(&[PairRate { pair: PAIR, floor, ceiling }]).unwrap();
    host.renew_lease(now_ns()).unwrap();
    host
}

fn tend(world: &World, host: &mut Dataplane) -> Tended {
    world.inside("host1", || host.tend(true)).unwrap()
}

/// The shaper's device on host 1.
fn device(world: &World) -> String {
    let links = world.ip("host1", "-o link show type ifb");
    links.split(": ").nth(1).expect("the shaper's device").to_owned()
}

/// Sends some packets and says how many of them passed the pair's class.
fn shaped(world: &World, host: &mut Dataplane, n: usize) -> u64 {
    let packets = |host: &mut Dataplane| {
        let queues = world.inside("host1", || host.queues()).unwrap();
        queues.iter().find(|queue| queue.pair == Some(PAIR)).map_or(0, |queue| queue.packets)
    };
    let before = packets(host);
    let from = world.udp(1);
    for _ in 0..n {
        from.send_to(&[0; 500], (net::VM2, 9000)).unwrap();
    }
    let end = Instant::now() + std::time::Duration::from_secs(3);
    while packets(host) - before < n as u64 && Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    packets(host) - before
}

/// What is done to the host, by words of `ip` or `tc`, and a part of what the look says of it.
/// `DEV` stands for the shaper's device.
const MENDABLE: [(&str, &str, &str); 8] = [
    ("tc", "filter del dev port ingress pref 4000", "the redirection to the shaper is gone"),
    ("ip", "link set DEV down", "was set down"),
    ("ip", "link del DEV", "was deleted"),
    ("tc", "qdisc del dev DEV root", "the root qdisc of the shaper's device"),
    ("tc", "qdisc replace dev DEV root handle 7: pfifo", "the root qdisc of the shaper's device"),
    ("tc", "class change dev DEV parent 1:1 classid 1:1000 htb rate 1mbit", "was changed"),
    (
        "tc",
        "qdisc replace dev DEV parent 1:2000 handle 9: pfifo limit 5",
        "the queue of class 1:2000",
    ),
    ("tc", "class add dev DEV parent 1:1 classid 1:fff htb rate 1mbit", "class 1:fff too many"),
];

#[test]
fn whatever_is_done_to_the_shapers_plumbing_is_mended_with_the_next_look() {
    for mode in modes() {
        let world = World::new();
        let _sink = world.udp(2);
        let mut host = open(&world, world.config(1, mode));
        assert_eq!(tend(&world, &mut host), Tended::default(), "{mode:?}: nothing was done yet");
        assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}");
        for (tool, line, said) in MENDABLE {
            let line = line.replace("DEV", &device(&world));
            if tool == "ip" {
                world.ip("host1", &line)
            } else {
                world.tc("host1", &line)
            };
            // Every second look reads the classes.
            let mut mended = tend(&world, &mut host).mended;
            mended.extend(tend(&world, &mut host).mended);
            assert!(mended.iter().any(|what| what.contains(said)), "{mode:?} {line}: {mended:?}");
            for _ in 0..2 {
                assert_eq!(tend(&world, &mut host), Tended::default(), "{mode:?}: after {line}");
            }
            assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}: after {line}");
        }
        world.inside("host1", || host.close()).unwrap();
    }
}

#[test]
fn an_application_of_the_same_configuration_mends_what_was_done_to_the_plumbing() {
    for mode in modes() {
        let world = World::new();
        let _sink = world.udp(2);
        let mut host = open(&world, world.config(1, mode));
        for (tool, line, _) in MENDABLE {
            let line = line.replace("DEV", &device(&world));
            if tool == "ip" {
                world.ip("host1", &line)
            } else {
                world.tc("host1", &line)
            };
            let config = world.config(1, mode);
            world.inside("host1", || host.apply(config, &BTreeSet::new())).unwrap();
            for _ in 0..2 {
                assert_eq!(tend(&world, &mut host), Tended::default(), "{mode:?}: after {line}");
            }
        }
        world.inside("host1", || host.close()).unwrap();
    }
}

#[test]
fn a_strangers_filter_before_the_redirection_makes_its_vm_unenforced_until_it_is_gone() {
    let world = World::new();
    let mut host = open(&world, world.config(1, modes()[0]));
    let place = "dev port ingress pref 10 protocol all";
    world.tc("host1", &format!("filter add {place} u32 match u32 0 0 flowid 1:1"));
    for _ in 0..2 {
        let tended = tend(&world, &mut host);
        let why = &tended.unenforced()[&VM];
        assert!(why.contains("u32 filter with preference 10 on port port"), "{why}");
        assert_eq!(tended.mended, [""; 0]);
    }
    assert_eq!(flags(&mut host), weir_dataplane::intf::BARE, "its program holds it to floors");
    // A change of another kind does not forget it.
    let config = world.config(1, modes()[0]);
    world.inside("host1", || host.apply(config, &BTreeSet::new())).unwrap();
    assert_eq!(flags(&mut host), weir_dataplane::intf::BARE);
    world.tc("host1", "filter del dev port ingress pref 10");
    assert_eq!(tend(&world, &mut host), Tended::default());
    assert_eq!(flags(&mut host), 0);
    world.inside("host1", || host.close()).unwrap();
}

fn flags(host: &mut Dataplane) -> u32 {
    host.port_flags(VM).unwrap()
}

/// The answer of a call of the kernel, which is a descriptor or 0.
fn number(ret: i32) -> i32 {
    assert!(ret >= 0, "{}", std::io::Error::last_os_error());
    ret
}

/// A program that lets every packet pass.
fn stranger() -> OwnedFd {
    // r0 = 0 (TCX_PASS); exit
    let code: [u64; 2] = [0xb7, 0x95];
    // SAFETY: both strings are terminated, the code has as many instructions as is said.
    let program = number(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"stranger".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as _,
            std::ptr::null_mut(),
        )
    });
    // SAFETY: a fresh descriptor with no other owner.
    unsafe { OwnedFd::from_raw_fd(program) }
}

/// A foreign program that lets every packet pass and asks no program behind it, attached on
/// a side of host 1's port until it is dropped.
struct Stranger(#[expect(dead_code, reason = "its end detaches")] OwnedFd);

impl Stranger {
    fn on(world: &World, kind: libbpf_sys::bpf_attach_type, first: bool) -> Self {
        Self::on_device(world, c"port", kind, first)
    }

    fn on_device(
        world: &World,
        device: &std::ffi::CStr,
        kind: libbpf_sys::bpf_attach_type,
        first: bool,
    ) -> Self {
        world.inside("host1", || {
            let program = stranger();
            // SAFETY: a terminated string.
            let port = unsafe { libc::if_nametoindex(device.as_ptr()) };
            let flags = if first { libbpf_sys::BPF_F_BEFORE } else { 0 };
            let sz = size_of::<libbpf_sys::bpf_link_create_opts>() as _;
            let options = libbpf_sys::bpf_link_create_opts { sz, flags, ..Default::default() };
            // SAFETY: a live descriptor, and options that carry their size.
            let link = number(unsafe {
                let options = &raw const options;
                libbpf_sys::bpf_link_create(program.as_raw_fd(), port as i32, kind, options)
            });
            // SAFETY: a fresh descriptor with no other owner.
            Self(unsafe { OwnedFd::from_raw_fd(link) })
        })
    }
}

#[test]
fn ours_are_the_first_programs_and_become_so_again_when_somebody_gets_before_them() {
    if !modes().contains(&Mode::Tcx) {
        return;
    }
    let world = World::new();
    let _early = Stranger::on(&world, libbpf_sys::BPF_TCX_EGRESS, false);
    let mut host = open(&world, world.config(1, Mode::Tcx));
    assert_eq!(tend(&world, &mut host), Tended::default(), "ours is before one that was there");
    let _late = Stranger::on(&world, libbpf_sys::BPF_TCX_EGRESS, true);
    let mended = tend(&world, &mut host).mended;
    let said = ["\"stranger\"", "was put before weir_meter on port"];
    assert!(mended.len() == 1 && said.iter().all(|s| mended[0].contains(s)), "{mended:?}");
    assert_eq!(tend(&world, &mut host), Tended::default());
    world.inside("host1", || host.close()).unwrap();
}

#[test]
fn a_strangers_program_on_what_a_vm_sends_makes_it_unenforced_in_either_mode() {
    for mode in modes() {
        if !modes().contains(&Mode::Tcx) {
            return;
        }
        let world = World::new();
        let mut host = open(&world, world.config(1, mode));
        let stranger = Stranger::on(&world, libbpf_sys::BPF_TCX_INGRESS, false);
        let tended = tend(&world, &mut host);
        let why = &tended.unenforced()[&VM];
        assert!(why.contains("the foreign program \"stranger\""), "{mode:?}: {why}");
        assert_eq!(flags(&mut host), weir_dataplane::intf::BARE, "{mode:?}");
        drop(stranger);
        assert_eq!(tend(&world, &mut host), Tended::default(), "{mode:?}");
        world.inside("host1", || host.close()).unwrap();
    }
}

#[test]
fn a_strangers_program_behind_the_stamp_makes_all_vms_unenforced_until_it_is_gone() {
    if !modes().contains(&Mode::Tcx) {
        return;
    }
    let world = World::new();
    let mut host = open(&world, world.config(1, Mode::Tcx));
    let stranger = Stranger::on_device(&world, c"uplink", libbpf_sys::BPF_TCX_EGRESS, false);
    let tended = tend(&world, &mut host);
    let why = &tended.unenforced()[&VM];
    assert!(why.contains("\"stranger\"") && why.contains("after weir_stamp"), "{why}");
    assert_eq!(flags(&mut host), weir_dataplane::intf::BARE);
    drop(stranger);
    assert_eq!(tend(&world, &mut host), Tended::default());
    world.inside("host1", || host.close()).unwrap();
}

/// Looks so often that what is around the ports is among it.
fn tend_all(world: &World, host: &mut Dataplane) -> Tended {
    (0..8).map(|_| tend(world, host)).last().expect("eight")
}

#[test]
fn a_tunnel_beside_a_port_makes_its_vm_unenforced_unless_it_is_named() {
    let world = World::new();
    let mut host = open(&world, world.config(1, modes()[0]));
    assert_eq!(tend_all(&world, &mut host), Tended::default());
    world.ip("host1", "link add tun7 type vxlan id 7 remote 192.0.2.1 dstport 4789");
    world.ip("host1", "link set dev tun7 master br");
    let tended = tend_all(&world, &mut host);
    let why = &tended.unenforced()[&VM];
    assert!(
        why.contains("tun7") && why.contains("vxlan") && why.contains("uplink.tunnels"),
        "{why}"
    );
    assert_eq!(flags(&mut host), weir_dataplane::intf::BARE);
    world.inside("host1", || host.close()).unwrap();
    let mut config = world.config(1, modes()[0]);
    config.tunnels.interfaces.push("tun7".into());
    let mut host = open(&world, config);
    assert_eq!(tend_all(&world, &mut host), Tended::default());
    // Its stamp is looked after as the uplink's is.
    take_off(&world, host.mode(), "weir_stamp", "tun7");
    assert_eq!(tend(&world, &mut host).mended, ["another process detached weir_stamp from tun7"]);
    assert_eq!(tend_all(&world, &mut host), Tended::default());
    world.inside("host1", || host.close()).unwrap();
}

#[test]
fn a_program_that_somebody_took_off_comes_back_and_its_pairs_stay() {
    for mode in modes() {
        let world = World::new();
        let _sink = world.udp(2);
        let mut host = open(&world, world.config(1, mode));
        let levels = host.levels().unwrap();
        let programs =
            [("weir_classify", "port"), ("weir_meter", "port"), ("weir_stamp", "uplink")];
        for (program, on) in programs {
            take_off(&world, mode, program, on);
            let mended = tend(&world, &mut host).mended;
            let said = format!("another process detached {program} from {on}");
            assert_eq!(mended, [said], "{mode:?}");
            assert_eq!(tend(&world, &mut host), Tended::default(), "{mode:?}");
        }
        assert_eq!(host.levels().unwrap(), levels, "{mode:?}: nothing else was touched");
        assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}");
        world.inside("host1", || host.close()).unwrap();
    }
}

#[test]
fn a_port_with_other_programs_in_its_links_is_lost_and_comes_back_with_a_change() {
    if !modes().contains(&Mode::Tcx) {
        return;
    }
    let world = World::new();
    let _sink = world.udp(2);
    let mut host = open(&world, world.config(1, Mode::Tcx));
    let links = world.bpffs().join("weir/host1/links");
    let shown = world.ip("host1", "-o link show dev port");
    let index = shown.split(':').next().unwrap();
    for ours in ["weir_classify", "weir_meter"] {
        let pin = links.join(format!("{ours}-{index}")).display().to_string();
        let pin = std::ffi::CString::new(pin).unwrap();
        let program = stranger();
        // SAFETY: a terminated string, then live descriptors and no options.
        unsafe {
            let link = OwnedFd::from_raw_fd(number(libbpf_sys::bpf_obj_get(pin.as_ptr())));
            let (link, program) = (link.as_raw_fd(), program.as_raw_fd());
            number(libbpf_sys::bpf_link_update(link, program, std::ptr::null()));
        }
    }
    let here = &mut host;
    assert_eq!(world.inside("host1", move || here.lost_ports()), [VM]);
    let config = world.config(1, Mode::Tcx);
    world.inside("host1", || host.apply(config, &BTreeSet::from([VM]))).unwrap();
    let here = &mut host;
    assert_eq!(world.inside("host1", move || here.lost_ports()), []);
    assert_eq!(tend(&world, &mut host), Tended::default());
    let (floor, ceiling) = (Rate::from_mbps(10), Rate::from_mbps(50));
    host.set(&[PairRate { pair: PAIR, floor, ceiling }]).unwrap();
    assert_eq!(shaped(&world, &mut host, 5), 5);
    world.inside("host1", || host.close()).unwrap();
}

/// Detaches one of our programs as another process would.
fn take_off(world: &World, mode: Mode, program: &str, on: &str) {
    if mode == Mode::Clsact {
        let side = if program == "weir_classify" { "ingress" } else { "egress" };
        world.tc("host1", &format!("filter del dev {on} {side} pref 1"));
        return;
    }
    let links = world.bpffs().join("weir/host1/links");
    let shown = world.ip("host1", &format!("-o link show dev {on}"));
    let index = shown.split(':').next().unwrap();
    sh(&format!("rm {}", links.join(format!("{program}-{index}")).display()));
    // A pin that is gone ends its link some time later.
    let end = Instant::now() + std::time::Duration::from_secs(3);
    let kind = match program {
        "weir_classify" => libbpf_sys::BPF_TCX_INGRESS,
        _ => libbpf_sys::BPF_TCX_EGRESS,
    };
    while world.inside("host1", || programs_on(index.parse().unwrap(), kind)) > 0 {
        assert!(Instant::now() < end, "{program} hangs there still");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn programs_on(index: i32, kind: libbpf_sys::bpf_attach_type) -> u32 {
    let sz = size_of::<libbpf_sys::bpf_prog_query_opts>() as _;
    let mut options = libbpf_sys::bpf_prog_query_opts { sz, ..Default::default() };
    // SAFETY: the struct carries its size and outlives the call.
    let ret = unsafe { libbpf_sys::bpf_prog_query_opts(index, kind, &raw mut options) };
    assert!(ret >= 0, "{}", std::io::Error::from_raw_os_error(-ret));
    // SAFETY: both variants of the union are the same u32.
    unsafe { options.__bindgen_anon_1.count }
}

#[test]
fn a_renamed_port_stays_enforced_under_its_new_name_also_for_a_successor() {
    for mode in modes() {
        let world = World::new();
        let _sink = world.udp(2);
        let mut host = open(&world, world.config(1, mode));
        world.ip("host1", "link set dev port name other");
        let here = &mut host;
        assert_eq!(world.inside("host1", move || here.lost_ports()), [], "{mode:?}");
        let tended = tend(&world, &mut host);
        assert_eq!((&tended.mended[..], &tended.faults[..]), (&[][..], &[][..]), "{mode:?}");
        let [renamed] = &tended.renamed[..] else { panic!("{mode:?}: {tended:?}") };
        assert_eq!((&renamed.configured[..], &renamed.now[..]), ("port", "other"));
        assert!(!renamed.taken);
        assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}");
        let apply = |host: &mut Dataplane, config| {
            world.inside("host1", || host.apply(config, &BTreeSet::new())).unwrap();
        };
        apply(&mut host, world.config(1, mode));
        assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}: after a change");
        // A crash, and a successor that is told the old name, too.
        drop(host);
        let mut host = open(&world, world.config(1, mode));
        assert!(host.adopted(), "{mode:?}");
        assert_eq!(tend(&world, &mut host).renamed.len(), 1, "{mode:?}");
        assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}: by a successor");
        // Told the new one, nothing changes and nothing is renamed any more.
        let mut config = world.config(1, mode);
        config.ports[0].interface = "other".into();
        apply(&mut host, config);
        assert_eq!(tend(&world, &mut host), Tended::default(), "{mode:?}");
        assert_eq!(shaped(&world, &mut host, 5), 5, "{mode:?}");
        world.inside("host1", || host.close()).unwrap();
        let left = world.tc("host1", "qdisc show dev other");
        assert!(!left.contains("clsact"), "{mode:?}: {left}");
    }
}

#[test]
fn a_port_that_lives_keeps_its_vm_although_another_has_its_name_until_somebody_asks() {
    let world = World::new();
    let mut host = open(&world, world.config(1, modes()[0]));
    world.ip("host1", "link set dev port name other");
    world.ip("host1", "link add name port type veth peer name peer");
    let tended = tend(&world, &mut host);
    assert!(tended.renamed[0].taken && tended.faults.is_empty(), "{tended:?}");
    assert!(world.tc("host1", "filter show dev other ingress").contains("pref 4000"));
    world.inside("host1", || host.reread_names());
    let config = world.config(1, modes()[0]);
    world.inside("host1", || host.apply(config, &BTreeSet::new())).unwrap();
    assert!(world.tc("host1", "filter show dev port ingress").contains("pref 4000"));
    assert_eq!(tend(&world, &mut host), Tended::default());
    world.inside("host1", || host.close()).unwrap();
}
