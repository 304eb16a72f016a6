//! What other programs do to the interfaces of a living agent, and what the agent and its status
//! say. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{Guest, add_c, counter, reload};
use crate::common::{self, StopAtEnd, World, pause, until};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::status::{Renamed, Request};

/// The pair from a to b sends until the flag is set; how many packets it sent.
fn sends(world: &World, stop: &AtomicBool, micros: u64) -> u64 {
    let (from, mut sent) = (world.udp(1), 0);
    while !stop.load(Ordering::Relaxed) {
        sent += u64::from(from.send_to(&[0; 1000], "10.0.0.2:9000").is_ok());
        std::thread::sleep(std::time::Duration::from_micros(micros));
    }
    sent
}

fn redirected(world: &World, port: &str) -> bool {
    world.tc("host1", &format!("filter show dev {port} ingress")).contains("pref 4000")
}

#[test]
fn a_renamed_port_stays_enforced_and_the_name_is_said_also_after_a_reload_and_a_crash() {
    let world = World::new();
    let _guest = Guest::new(&world, 1);
    add_c(&world);
    let one = world.start(1);
    world.ip("host1", "link set port3 name tap9");
    let renamed = [Renamed { configured: "port3".into(), now: "tap9".into(), taken: false }];
    until("the new name is told", 3, || one.top().renamed == renamed);
    assert!(one.top().gone.is_empty() && redirected(&world, "tap9"), "{}", one.log());
    assert_eq!(counter(&one, "agent.ports_lost"), 0);
    assert_eq!(one.log().matches("port3 is called tap9 by now").count(), 1, "{}", one.log());
    reload(&one);
    assert_eq!(counter(&one, "agent.reload_failures"), 0, "{}", one.log());
    assert_eq!(one.top().renamed, renamed);
    one.kill();
    let one = world.start(1);
    until("a successor tells it", 3, || one.top().renamed == renamed);
    assert!(one.top().gone.is_empty() && redirected(&world, "tap9"), "{}", one.log());
    // Back, so that the guest finds its port again when it ends.
    world.ip("host1", "link set tap9 name port3");
    until("nothing is renamed", 3, || one.top().renamed.is_empty());
    one.stop();
}

#[test]
fn what_is_done_to_the_plumbing_is_mended_within_a_second_counted_and_said() {
    let world = World::new();
    let one = world.start(1);
    let device = || {
        let links = world.ip("host1", "-o link show type ifb");
        links.split(": ").nth(1).expect("the shaper's device").to_owned()
    };
    let links = || world.ip("host1", "-o link show type ifb");
    let root =
        || world.tc("host1", &format!("qdisc show dev {}", device())).contains("htb 1: root");
    world.tc("host1", "filter del dev port ingress pref 4000");
    until("the redirection is back", 3, || redirected(&world, "port"));
    world.ip("host1", &format!("link set {} down", device()));
    until("the device is up", 3, || links().contains(",UP,"));
    world.ip("host1", &format!("link del {}", device()));
    until("the device is back", 3, || !links().is_empty() && root() && redirected(&world, "port"));
    world.tc("host1", &format!("qdisc del dev {} root", device()));
    until("its root is back", 3, root);
    until("all are counted", 3, || counter(&one, "agent.plumbing_mended") >= 4);
    let log = one.log();
    assert!(log.matches("it is as it was").count() >= 4, "{log}");
    assert_eq!(one.top().unenforced, []);
    one.stop();
}

#[test]
fn a_vm_whose_packets_may_miss_the_shaper_is_unenforced_by_name_until_they_cannot() {
    let world = World::new();
    let one = world.start(1);
    let filter = "dev port ingress pref 10 protocol all u32 match u32 0 0 flowid 1:1";
    world.tc("host1", &format!("filter add {filter}"));
    until("it is told", 3, || one.top().unenforced.len() == 1);
    let told = one.top().unenforced.remove(0);
    assert_eq!(told.vm, "a");
    assert!(told.why.contains("u32 filter with preference 10 on port port"), "{}", told.why);
    assert_eq!(counter(&one, "agent.vms_unenforced"), 1);
    pause(600);
    world.tc("host1", "filter del dev port ingress pref 10");
    until("it is enforced again", 3, || one.top().unenforced.is_empty());
    let log = one.log();
    assert_eq!(log.matches("Unenforced: vm a: ").count(), 1, "said once: {log}");
    assert_eq!(log.matches("vm a is enforced again").count(), 1, "{log}");
    one.stop();
}

#[test]
fn a_borrower_is_held_to_its_floor_when_agent_and_guardian_die_at_once() {
    let world = World::new();
    let (one, two) = (world.start(1), world.start(2));
    let stop = AtomicBool::new(false);
    let _sink = world.udp(2);
    std::thread::scope(|scope| {
        // 80 Mbit/s, where the floor is 20.
        scope.spawn(|| sends(&world, &stop, 60));
        let _stop = StopAtEnd(&stop);
        until("the pair borrows", 20, || one.pair().is_some_and(|pair| pair.rate_bps > 45_000_000));
        one.kill_with_guardian();
        // A second, and what may be sent ahead.
        pause(2500);
        let octets = || -> u64 {
            let text = world.ip("host1", "-s -j link show dev up");
            let (_, tx) = text.split_once("\"tx\":{\"bytes\":").expect("counters");
            tx.split(',').next().unwrap().parse().unwrap()
        };
        let before = octets();
        pause(2000);
        let mbit = (octets() - before) as f64 * 8.0 / 2e6;
        assert!(mbit < 26.0, "{mbit} Mbit/s where the floor is 20");
        assert!(mbit > 10.0, "the floor stands: {mbit} Mbit/s");
    });
    two.stop();
}

/// The daemon does what `weir mode` does.
fn switch(world: &World, mode: &str) {
    let output = world.run(1, mode, "host1.toml");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn observing_changes_nothing_and_is_switched_both_ways_without_a_lost_packet() {
    let world = World::new();
    let bare = world.snapshot("host1");
    let config = world.dir.join("host1.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("mode = \"observe\"\n{text}")).unwrap();
    let (one, two) = (world.start(1), world.start(2));
    assert!(one.top().observing && !two.top().observing);
    let links = world.ip("host1", "-o link show type ifb");
    assert_eq!(links, "", "no queue is there");
    let stop = AtomicBool::new(false);
    let sink = world.udp(2);
    sink.set_read_timeout(Some(std::time::Duration::from_millis(1500))).unwrap();
    let (sent, received) = std::thread::scope(|scope| {
        // 4 Mbit/s: below the floor, so whatever is lost is lost by the switch.
        let sender = scope.spawn(|| sends(&world, &stop, 2000));
        let receiver = scope.spawn(|| {
            let mut octets = [0; 2000];
            std::iter::from_fn(|| sink.recv_from(&mut octets).ok()).count() as u64
        });
        let _stop = StopAtEnd(&stop);
        until("the law runs", 10, || one.pair().is_some_and(|pair| pair.floor_bps > 0));
        assert!(one.explain().iter().any(|why| why.contains("observing")), "{:?}", one.explain());
        for n in 0..3 {
            switch(&world, "enforce");
            assert!(!one.top().observing && redirected(&world, "port"), "{}", one.log());
            until("the pair has its class", 5, || world.ceilings(1).contains("1:4"));
            pause(400);
            switch(&world, "observe");
            assert!(one.top().observing && !redirected(&world, "port"), "{n}: {}", one.log());
            until("its queues are gone", 5, || {
                world.ip("host1", "-o link show type ifb").is_empty()
            });
        }
        stop.store(true, Ordering::Relaxed);
        (sender.join().unwrap(), receiver.join().unwrap())
    });
    assert_eq!(received, sent, "{}", one.log());
    assert!(std::fs::read_to_string(&config).unwrap().starts_with("mode = \"observe\"\n"));
    one.stop();
    assert_eq!(world.snapshot("host1"), bare);
    two.stop();
}

#[test]
fn what_an_observed_vm_sends_arrives_as_it_was_sent_also_what_would_be_dropped() {
    let world = World::new();
    let config = world.dir.join("host1.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("mode = \"observe\"\n{text}")).unwrap();
    let one = world.start(1);
    // Another address than the VM's: forged.
    world.ip("vm1", "addr add 10.0.0.77/24 dev eth0");
    let sink = world.udp(2);
    sink.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    let forged = world.inside("vm1", || std::net::UdpSocket::bind("10.0.0.77:9000").unwrap());
    let mut got = [0; 100];
    forged.send_to(&[7; 64], "10.0.0.2:9000").unwrap();
    let (n, from) = sink.recv_from(&mut got).expect("it is not dropped");
    assert_eq!((n, from.to_string()), (64, "10.0.0.77:9000".to_owned()));
    until("it is counted as what it is", 3, || counter(&one, "port.a.spoofed") >= 1);
    one.stop();
}

/// A crash leaves no keys on disk, and the guardian starts also when the file of the binary is
/// gone.
#[test]
fn an_agent_whose_file_was_replaced_has_a_guardian_and_dumps_no_core() {
    let world = World::new();
    let copy = world.dir.join("agent-copy");
    std::fs::copy(common::daemon(), &copy).unwrap();
    let one = world.start_as(1, &copy, &[], &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", one.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    std::fs::remove_file(&copy).unwrap();
    let guardian = world.processes(1, "guardian")[0];
    common::send(guardian, Signal::KILL);
    until("another watches", 10, || {
        let now = world.processes(1, "guardian");
        now.len() == 1 && now[0] != guardian
    });
    assert!(!one.top().guardian_down);
    assert_eq!(counter(&one, "agent.guardians_lost"), 1, "{}", one.log());
    one.stop();
}

/// Starts an agent that cannot start, with its run directory on a file system of so many kB.
fn start_on(world: &World, kb: u32) -> (bool, String) {
    let run = world.dir.join("run");
    std::fs::create_dir_all(&run).unwrap();
    common::sh(&format!("mount -t tmpfs -o size={kb}k tmpfs {}", run.display()));
    let mut child = world
        .command(1, &common::daemon(), &[])
        .args(["agent", "--config"])
        .arg(world.dir.join("host1.toml"))
        .stderr(std::fs::File::create(world.dir.join("full.log")).unwrap())
        .spawn()
        .unwrap();
    let socket = run.join("host1/agent.sock");
    until("it starts or ends", 20, || {
        matches!(child.try_wait(), Ok(Some(_)))
            || std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    let started = matches!(child.try_wait(), Ok(None));
    let log = std::fs::read_to_string(world.dir.join("full.log")).unwrap();
    if started {
        let answer = weir_agent::client::ask(&socket, &Request::Top);
        assert!(
            matches!(answer, Ok(weir_model::status::Reply::Top(top)) if !top.guardian_down),
            "{log}"
        );
        common::send(child.id() as i32, Signal::TERM);
    }
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), None, "no SIGBUS: {log}");
    let _ = Command::new("umount").arg(&run).status();
    (started, log)
}

#[test]
fn on_a_nearly_full_run_directory_an_agent_has_a_guardian_or_says_why_it_does_not_start() {
    let world = World::new();
    let bare = world.snapshot("host1");
    let mut seen = [false; 2];
    for kb in [4, 8, 12, 16, 20, 24, 32] {
        let (started, log) = start_on(&world, kb);
        seen[usize::from(started)] = true;
        assert!(started || log.contains("No space left on device"), "{kb} kB: {log}");
        assert_eq!(world.snapshot("host1"), bare, "{kb} kB: {log}");
    }
    assert_eq!(seen, [true; 2], "some are too small and some suffice");
}

/// An agent must not answer for a directory in which others could put files.
#[test]
fn a_directory_that_others_may_write_is_refused_by_name() {
    let world = World::new();
    let run = world.dir.join("run/host1");
    std::fs::create_dir_all(&run).unwrap();
    common::sh(&format!("chmod 777 {}", run.display()));
    let output = world.run(1, "agent", "host1.toml");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("chmod go-w"), "{text}");
}
