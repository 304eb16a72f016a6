//! VMs that are handed over while agents run, and while none does. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{C_HERE, Guest, counter, reload};
use crate::common::{Agent, World, sh, until};
use std::fs;
use std::path::PathBuf;
use weir_model::status::Gone;

/// What is handed over for `c`: less than the 20 Mbit/s of the others.
const C: &str =
    "[[vm]]\nname = \"c\"\nport = \"port3\"\nfloor_out = \"8Mbit\"\nfloor_in = \"6Mbit\"\n";

/// Host 1's folder, with the directory knowing `c`.
fn folder(world: &World) -> PathBuf {
    let directory = world.dir.join("directory.yaml");
    let text = fs::read_to_string(&directory).unwrap() + C_HERE;
    fs::write(&directory, text).unwrap();
    let folder = world.dir.join("run/host1/vms.d");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// As the hook does it: whole.
fn hand(folder: &std::path::Path, name: &str, text: &str) {
    fs::write(folder.join("new"), text).unwrap();
    fs::rename(folder.join("new"), folder.join(name)).unwrap();
}

/// The floor of a pair that sends now, Mbit/s.
fn floor(world: &World, agent: &Agent<'_>, from: u8, to: &str, pair: (&str, &str)) -> f64 {
    let socket =
        world.inside(&format!("vm{from}"), || std::net::UdpSocket::bind("0.0.0.0:0").unwrap());
    for _ in 0..200 {
        let _ = socket.send_to(&[0; 1472], (to, 9000));
    }
    let pairs = agent.top().pairs;
    let found = pairs.iter().find(|p| (p.from.as_str(), p.to.as_str()) == pair);
    found.map_or(0.0, |pair| pair.floor_bps as f64 / 1e6)
}

fn gone(agent: &Agent<'_>) -> Vec<Gone> {
    agent.top().gone
}

/// Whether programs hang on `c`'s port.
fn is_guarded(agent: &Agent<'_>) -> bool {
    gone(agent).is_empty() && agent.top().counters.iter().any(|(n, _)| n == "port.c.tx_octets")
}

#[test]
fn a_vm_that_is_handed_over_has_its_floor_without_a_reload_and_goes_with_its_file() {
    let world = World::new();
    let folder = folder(&world);
    let (one, two) = (world.start(1), world.start(2));
    let guest = Guest::new(&world, 1);
    hand(&folder, "c.toml", C);
    until("it is guarded", 3, || is_guarded(&one));
    assert!(one.log().contains("took up what was handed over: enforcing; 2 VMs here (1 came"));
    until("what it sends has its floor", 10, || {
        (7.9..8.1).contains(&floor(&world, &one, 3, "10.0.0.2", ("c", "b")))
    });
    until("what it receives has its floor, also where it is sent", 10, || {
        (5.9..6.1).contains(&floor(&world, &two, 2, "10.0.0.3", ("b", "c")))
    });
    hand(&folder, "c.toml", &C.replace("8Mbit", "4Mbit"));
    until("another floor", 10, || {
        (3.9..4.1).contains(&floor(&world, &one, 3, "10.0.0.2", ("c", "b")))
    });
    let took = |agent: &Agent<'_>| agent.log().matches("took up what was handed over").count();
    let times = took(&one);
    fs::remove_file(folder.join("c.toml")).unwrap();
    until("it is taken back", 3, || {
        !one.top().counters.iter().any(|(name, _)| name.starts_with("port.c."))
    });
    let log = one.log();
    assert!(log.contains("1 VMs here (0 came, 1 went)"), "{log}");
    assert_eq!(gone(&one), []);
    assert_eq!(counter(&one, "agent.reload_failures"), 0, "{log}");
    until("once", 2, || took(&one) == times + 1);
    drop(guest);
    one.stop();
    two.stop();
}

#[test]
fn a_port_that_is_not_there_yet_and_a_file_that_is_wrong_keep_no_vm_from_its_floor() {
    let world = World::new();
    let folder = folder(&world);
    // No agent runs: it finds both when it starts.
    hand(&folder, "c.toml", C);
    hand(&folder, "x.toml", &C.replace("\"c\"", "\"nowhere\"").replace("port3", "port9"));
    let one = world.start(1);
    let told = gone(&one);
    let [c, x] = &told[..] else { panic!("{told:?}") };
    assert_eq!((c.vm.as_str(), c.port.as_str(), &c.why), ("c", "port3", &None));
    assert_eq!((x.vm.as_str(), x.port.as_str()), ("nowhere", "port9"));
    let why = x.why.as_deref().unwrap_or_default();
    assert!(why.contains("x.toml: vm `nowhere` is not in"), "{why}");
    assert!(one.log().contains("vm nowhere is not guarded: vm `nowhere` is not in"));
    // A reload refuses a port of agent.toml that is missing, but none of these.
    reload(&one);
    assert_eq!(counter(&one, "agent.reload_failures"), 0, "{}", one.log());
    fs::remove_file(folder.join("x.toml")).unwrap();
    let (guest, two) = (Guest::new(&world, 1), world.start(2));
    until("its port came", 5, || is_guarded(&one));
    until("it has its floor", 10, || {
        (7.9..8.1).contains(&floor(&world, &one, 3, "10.0.0.2", ("c", "b")))
    });
    // Killed, with the VM handed over: the next one takes over what is in the kernel.
    one.kill();
    let one = world.start(1);
    until("it is guarded as before", 3, || is_guarded(&one));
    assert!(one.log().contains("took over what an earlier agent left"), "{}", one.log());
    drop(guest);
    until("its port went", 5, || gone(&one).len() == 1);
    fs::remove_file(folder.join("c.toml")).unwrap();
    until("it went", 3, || gone(&one).is_empty());
    one.stop();
    two.stop();
}

#[test]
fn what_the_kernel_refuses_for_a_while_is_taken_up_afterwards() {
    let world = World::new();
    let folder = folder(&world);
    let (guest, one) = (Guest::new(&world, 1), world.start(1));
    hand(&folder, "c.toml", C);
    until("it is guarded", 3, || is_guarded(&one));
    let remount = |mode| sh(&format!("mount -o remount,{mode} {}", world.bpffs().display()));
    remount("ro");
    fs::remove_file(folder.join("c.toml")).unwrap();
    until("it is refused", 5, || one.log().contains("is not taken up"));
    remount("rw");
    until("it went", 20, || {
        !one.top().counters.iter().any(|(name, _)| name.starts_with("port.c."))
    });
    assert_eq!(one.log().matches("is not taken up").count(), 1, "{}", one.log());
    drop(guest);
    one.stop();
}

#[test]
fn a_port_that_cannot_be_guarded_keeps_no_agent_from_starting() {
    let world = World::new();
    let folder = folder(&world);
    let guest = Guest::new(&world, 1);
    // The port of `a`, as `agent.toml` says.
    hand(&folder, "c.toml", &C.replace("port3", "port"));
    let (one, two) = (world.start(1), world.start(2));
    let why = |agent: &Agent<'_>| gone(agent).pop().and_then(|gone| gone.why).unwrap_or_default();
    until("it is refused alone", 5, || why(&one).contains("interface port is named twice"));
    assert_eq!(gone(&one).len(), 1, "{}", one.log());
    until("the other has its floor", 10, || {
        (19.9..20.1).contains(&floor(&world, &one, 1, "10.0.0.2", ("a", "b")))
    });
    hand(&folder, "c.toml", C);
    until("its own port", 5, || is_guarded(&one));
    drop(guest);
    one.stop();
    two.stop();
}
