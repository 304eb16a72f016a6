//! What becomes of traffic, floors and the host when agents die, come back, and end. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common;

use crate::common::stream::{assert_none_lost, stream};
use crate::common::{Agent, FLOOR, World, copy_of_daemon, daemon, pause, sh, until};
use std::time::{Duration, Instant};

/// A frame of a full datagram, octets on layer 2 without FCS.
const FRAME: u64 = 1514;

/// Until the pair has more than 5 Mbit/s: how pairs begin is no matter here. What waits in its
/// queue then would shorten the room of what comes next, so it may leave: 128 kB at most, in 205 ms
/// at 5 Mbit/s.
fn begin(world: &World, sender: &Agent<'_>) {
    let (from, _sink) = (world.udp(1), world.udp(2));
    until("a floor", 10, || {
        for _ in 0..60 {
            from.send_to(&[0xff; 600], "10.0.0.2:9000").unwrap();
        }
        sender.pair().is_some_and(|pair| pair.floor_bps > 5_000_000)
    });
    pause(300);
}

/// What arrives at VM 2 in `ms`, in Mbit/s on the wire, of full datagrams: at least and at
/// most, because the reader of a clock and a counter may wait for a CPU between them.
fn arriving(world: &World, ms: u64) -> (f64, f64) {
    let read = || {
        world.inside("vm2", || {
            let before = Instant::now();
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let after = Instant::now();
            let line = text.lines().find_map(|l| l.trim().strip_prefix("eth0:")).unwrap();
            let packets: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
            (before, after, packets)
        })
    };
    let (a, b, first) = read();
    pause(ms);
    let (c, d, last) = read();
    let rate = |t: Duration| (last - first) as f64 * FRAME as f64 * 8.0 / 1e6 / t.as_secs_f64();
    (rate(d - a), rate(c - b))
}

/// Never more than the floor, and all of it in the best of three: what else the machine does takes
/// away only.
fn expect_floor(world: &World, floor: f64, ms: u64) {
    let mut best: f64 = 0.0;
    for _ in 0..3 {
        let (least, most) = arriving(world, ms);
        assert!(least < 1.1 * floor, "{least:.1} of a floor of {floor} Mbit/s");
        best = best.max(most);
        if best > 0.9 * floor {
            return;
        }
    }
    panic!("{best:.1} of a floor of {floor} Mbit/s");
}

#[test]
fn killing_an_agent_leaves_traffic_and_floors_and_takes_back_what_was_borrowed() {
    let world = World::new();
    let (sender, _receiver) = (world.start(1), world.start(2));
    stream(&world, 60, 1472, || {
        until("the pair borrows", 10, || {
            sender.pair().is_some_and(|p| p.rate_bps > FLOOR * 1_500_000)
        });
        let floor = sender.pair().expect("the pair").floor_bps as f64 / 1e6;
        sender.kill();
        pause(2000);
        let nothing = world.run(1, "reclaim", "host1.toml");
        assert_eq!(String::from_utf8_lossy(&nothing.stdout), "0\n", "the guardian was there first");
        expect_floor(&world, floor, 1500);
    });
}

#[test]
fn if_agent_and_guardian_die_at_once_the_service_manager_takes_back_what_was_borrowed() {
    let world = World::new();
    let (sender, _receiver) = (world.start(1), world.start(2));
    stream(&world, 60, 1472, || {
        until("the pair borrows", 10, || {
            sender.pair().is_some_and(|p| p.rate_bps > FLOOR * 1_500_000)
        });
        let floor = sender.pair().expect("the pair").floor_bps as f64 / 1e6;
        sender.kill_with_guardian();
        // What systemd does in the next moment: ExecStopPost.
        let taken = world.run(1, "reclaim", "host1.toml");
        assert_eq!(String::from_utf8_lossy(&taken.stdout), "1\n", "one pair had borrowed");
        pause(500);
        expect_floor(&world, floor, 1000);
        // And then: Restart=always. The new one finds all of it, and borrows again.
        let sender = world.start(1);
        assert!(sender.log().contains("took over what an earlier agent left"), "{}", sender.log());
        until("the pair borrows again", 10, || {
            sender.pair().is_some_and(|p| p.rate_bps > FLOOR * 1_500_000)
        });
    });
}

#[test]
fn a_guardian_that_dies_is_replaced_and_one_watches_however_often_agents_die() {
    let world = World::new();
    let mut agent = world.start(1);
    for _ in 0..3 {
        agent.kill();
        agent = world.start(1);
    }
    until("one guardian is left", 5, || world.processes(1, "guardian").len() == 1);
    let first = world.processes(1, "guardian")[0];
    common::send(first, rustix::process::Signal::KILL);
    until("another guardian", 5, || {
        let now = world.processes(1, "guardian");
        now.len() == 1 && now[0] != first
    });
    agent.stop();
    assert_eq!(world.processes(1, "guardian"), [] as [i32; 0]);
}

#[test]
fn no_packet_is_lost_while_agents_die_and_return_at_both_ends() {
    let world = World::new();
    let (sender, receiver) = (world.start(1), world.start(2));
    begin(&world, &sender);
    // Below the floor: nothing else may lose one.
    let (stream, (sender, receiver)) = stream(&world, 5, 600, || {
        until("the pair is known", 10, || sender.pair().is_some());
        pause(1000);
        sender.kill();
        pause(500);
        let sender = world.start(1);
        receiver.kill();
        pause(500);
        let receiver = world.start(2);
        pause(1000);
        (sender, receiver)
    });
    assert_none_lost(&world, &stream);
    assert!(stream.sent > 2000, "{}", stream.sent);
    // What the pair had is known to the new agents, and nothing counts as lost.
    let pair = sender.pair().expect("adopted");
    assert!(pair.floor_bps > 0 && pair.lost == 0, "{pair:?}");
    assert_eq!(receiver.pair().expect("seen again").lost, 0);
    sender.stop();
    receiver.stop();
}

#[test]
fn an_agent_is_replaced_by_a_newer_binary_under_traffic() {
    let world = World::new();
    let (sender, _receiver) = (world.start(1), world.start(2));
    let newer = world.dir.join("newer");
    std::fs::copy(daemon(), &newer).unwrap();
    begin(&world, &sender);
    let (stream, _sender) = stream(&world, 5, 600, || {
        until("the pair is known", 10, || sender.pair().is_some());
        pause(500);
        sender.kill();
        let sender = world.start_as(1, &newer, &[], &[]);
        assert!(sender.log().contains("took over what an earlier agent left"), "{}", sender.log());
        assert!(sender.pair().is_some(), "its pairs, too");
        pause(500);
        sender
    });
    assert_none_lost(&world, &stream);
}

#[test]
fn state_of_another_layout_is_given_up_with_a_word_and_the_host_is_restored_at_the_end() {
    let world = World::new();
    let before = world.snapshot("host1");
    let agent = world.start(1);
    agent.kill();
    // As a version with another layout of its maps would have left it.
    let pins = world.bpffs().join("weir/host1");
    let maps = std::fs::read_dir(&pins).unwrap().flatten().map(|e| e.path());
    let maps =
        maps.into_iter().find(|p| p.to_string_lossy().contains("maps-")).expect("pinned maps");
    std::fs::rename(&maps, pins.join("maps-0")).unwrap();
    let agent = world.start(1);
    let word = "what an earlier agent left was not taken over: its counters have another layout";
    assert!(agent.log().contains(word), "{}", agent.log());
    agent.stop();
    assert_eq!(world.snapshot("host1"), before);
    assert!(!pins.exists(), "nothing stays pinned, of either layout");
}

#[test]
fn a_clean_stop_restores_the_host_word_by_word() {
    let world = World::new();
    let before = world.snapshot("host1");
    let (sender, receiver) = (world.start(1), world.start(2));
    stream(&world, 40, 1472, || until("the pair is known", 10, || sender.pair().is_some()));
    assert_ne!(world.snapshot("host1"), before);
    sender.stop();
    assert_eq!(world.snapshot("host1"), before);
    assert!(!world.bpffs().join("weir/host1").exists(), "no program or map stays pinned");
    assert_eq!(world.processes(1, "guardian"), [] as [i32; 0]);
    // No program hangs on an interface either: an agent of another name would be refused.
    world.write_configuration(1, "a", "other", "host1.toml");
    let mut other = world.command(1, &daemon(), &[]);
    other.args(["agent", "--config"]).arg(world.dir.join("host1.toml"));
    let mut other = other.stderr(std::process::Stdio::null()).spawn().unwrap();
    let socket = world.dir.join("run/other/agent.sock");
    until("another instance starts", 20, || {
        assert!(matches!(other.try_wait(), Ok(None)), "it was refused");
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    common::send(other.id() as i32, rustix::process::Signal::TERM);
    assert!(other.wait().unwrap().success());
    assert_eq!(world.snapshot("host1"), before);
    receiver.stop();
}

#[test]
fn a_second_agent_is_refused_by_name_and_by_interface() {
    let world = World::new();
    let agent = world.start(1);
    let running = world.snapshot("host1");
    let same = world.run(1, "agent", "host1.toml");
    let error = String::from_utf8_lossy(&same.stderr).into_owned();
    assert_eq!(same.status.code(), Some(2), "{error}");
    let wanted = format!("instance \"host1\" is in use by process {}", agent.pid());
    assert!(error.contains(&wanted) && error.contains("stop it"), "{error}");

    world.write_configuration(1, "a", "other", "other.toml");
    let text = std::fs::read_to_string(world.dir.join("other.toml")).unwrap();
    std::fs::write(world.dir.join("other.toml"), text.replace(":7001", ":7009")).unwrap();
    let other = world.run(1, "agent", "other.toml");
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{error}");
    assert!(error.contains("already carries a weir program"), "{error}");
    // Neither has touched what the first one guards.
    assert_eq!(world.snapshot("host1"), running);
    assert!(agent.top().pairs.is_empty());
    agent.stop();
}

#[test]
fn a_peer_that_is_gone_for_good_costs_what_was_borrowed_and_then_the_floor() {
    let world = World::new();
    let (sender, receiver) = (world.start(1), world.start(2));
    stream(&world, 60, 1472, || {
        until("the pair borrows", 10, || {
            sender.pair().is_some_and(|p| p.rate_bps > FLOOR * 1_500_000)
        });
        let floor = sender.pair().expect("the pair").floor_bps;
        receiver.kill_with_guardian();
        pause(2000);
        let pair = sender.pair().expect("the pair");
        assert_eq!((pair.floor_bps, pair.phase.as_str()), (floor, "decaying"), "{pair:?}");
        assert!(pair.rate_bps < floor + floor / 20, "given back: {pair:?}");
        let reasons = sender.explain().join("\n");
        assert!(reasons.contains("b's host has been silent for"), "{reasons}");
        until("the floor falls to the small start", 8, || {
            sender.pair().is_some_and(|p| p.floor_bps <= 1_000_000)
        });
    });
}

#[test]
fn the_capabilities_that_the_unit_gives_suffice() {
    let world = World::new();
    let unit = include_str!("../../../packaging/weir-agent.service");
    let line = unit.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet=")).expect("a set");
    let names: Vec<String> = line
        .split_whitespace()
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let set = format!("-all,{}", names.join(","));
    let prefix = ["setpriv", "--bounding-set", &set, "--inh-caps", "-all", "--no-new-privs", "--"];
    let agent = world.start_as(1, &copy_of_daemon(&world.dir), &prefix.map(String::from), &[]);
    let status = sh(&format!("cat /proc/{}/status", agent.pid()));
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:")).expect("a line").trim();
    let bits = u64::from_str_radix(effective, 16).unwrap().count_ones() as usize;
    assert_eq!(bits, names.len(), "{effective}");
    // The check of whose programs are there needs them all, see `packaging/weir-agent.service`.
    agent.stop();
}

#[test]
fn an_overbooked_host_says_so_at_the_start_while_it_runs_and_when_asked() {
    let world = World::new();
    let file = world.dir.join("host1.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    // Of 100 Mbit/s the uplink leaves 99.4: the rest is for control and what has no floor.
    let text = text.replace(&format!("floor_out = \"{FLOOR}Mbit\""), "floor_out = \"99800kbit\"");
    std::fs::write(&file, text).unwrap();
    let other = world.dir.join("host2.toml");
    let text = std::fs::read_to_string(&other).unwrap();
    let text = text.replace(&format!("floor_in = \"{FLOOR}Mbit\""), "floor_in = \"99800kbit\"");
    std::fs::write(&other, text).unwrap();
    let (one, two) = (world.start(1), world.start(2));
    let said = one.log();
    assert!(said.contains("promised 99.8 Mb/s out over an uplink of 100 Mb/s"), "{said}");
    assert!(said.contains("90 Mb/s are for floors"), "{said}");
    assert!(!two.log().contains("out over an uplink"), "{}", two.log());
    assert_eq!(one.top().overbooked, None, "no pair has a floor yet");
    stream(&world, 40, 1472, || {
        // On a busy machine the stream pauses, and then no floor is in use: each look stands for itself.
        let mut over = None;
        until("it says so", 10, || {
            over = one.top().overbooked;
            over.is_some()
        });
        let over = over.expect("it was seen");
        assert!(over.floors_bps > over.budget_bps && over.factor() > 0.9, "{over:?}");
        until("the reason is told", 2, || {
            one.explain().iter().any(|reason| reason.starts_with("Overbooked: "))
        });
        until("it is logged", 2, || {
            one.log().contains("overbooked: the floors of this host's pairs")
        });
    });
    one.stop();
    two.stop();
}

#[test]
fn what_a_dead_agent_left_is_removed_word_by_word_and_what_another_has_is_said() {
    let world = World::new();
    let before = world.snapshot("host1");
    let (sender, receiver) = (world.start(1), world.start(2));
    stream(&world, 40, 1472, || until("the pair is known", 10, || sender.pair().is_some()));
    let lives = world.run(1, "remove", "host1.toml");
    let said = String::from_utf8_lossy(&lives.stderr).into_owned();
    assert!(!lives.status.success() && said.contains("is in use by process"), "{said}");
    assert_ne!(world.snapshot("host1"), before, "nothing was touched");
    sender.kill_with_guardian();
    // Named by another file, it is still found.
    world.write_configuration(1, "a", "other", "other.toml");
    let other = world.run(1, "remove", "other.toml");
    let told = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(told.starts_with("false [") && told.contains("weir_classify"), "{told}");
    assert!(told.contains("queues of an agent"), "{told}");
    let removed = world.run(1, "remove", "host1.toml");
    assert_eq!(String::from_utf8_lossy(&removed.stdout), "true []\n");
    assert_eq!(world.snapshot("host1"), before);
    assert!(!world.bpffs().join("weir/host1").exists(), "no program or map stays pinned");
    assert!(!world.dir.join("run/host1").exists(), "no file stays");
    let again = world.run(1, "remove", "host1.toml");
    assert_eq!(String::from_utf8_lossy(&again.stdout), "false []\n");
    receiver.stop();
}
