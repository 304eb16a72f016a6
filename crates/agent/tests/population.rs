//! VMs that come, go and die while agents run. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{C_HERE, Guest, add_c, counter, reload, remove_c};
use crate::common::{Agent, FLOOR, StopAtEnd, World, sh, until};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_agent::client;
use weir_model::status::{Gone, Pair, Reply, Request};

fn pair(agent: &Agent<'_>, from: &str, to: &str) -> Option<Pair> {
    agent.top().pairs.into_iter().find(|pair| pair.from == from && pair.to == to)
}

fn udp(world: &World, n: u8) -> UdpSocket {
    world.udp(n)
}

/// Plays `during` while these VMs send `mbps` each to VM 2 in full datagrams.
fn busy<T>(world: &World, vms: &[u8], mbps: u64, during: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let _sink = udp(world, 2);
    let sockets: Vec<UdpSocket> = vms.iter().map(|n| udp(world, *n)).collect();
    std::thread::scope(|scope| {
        for socket in &sockets {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..10 {
                        // Its namespace may be gone.
                        let _ = socket.send_to(&[0; 1472], "10.0.0.2:9000");
                    }
                    std::thread::sleep(Duration::from_micros(15_140 * 8 / mbps));
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        during()
    })
}

/// What hangs on `c`'s port.
fn on_port(world: &World) -> String {
    let mut text = world.tc("host1", "qdisc show dev port3");
    for hook in ["ingress", "egress"] {
        let ns = world.ns("host1");
        let show = ["-n", &ns, "filter", "show", "dev", "port3", hook];
        text += &String::from_utf8_lossy(&Command::new("tc").args(show).output().unwrap().stdout);
    }
    text
}

#[test]
fn a_vm_that_comes_gets_its_floor_and_one_that_leaves_leaves_nothing() {
    let world = World::new();
    let guest = Guest::new(&world, 1);
    let (one, two) = (world.start(1), world.start(2));
    let bare = on_port(&world);
    add_c(&world);
    reload(&one);
    reload(&two);
    assert!(one.log().contains("2 VMs here (1 came, 0 went), 3 in the directory"), "{}", one.log());
    busy(&world, &[1, 3], 40, || {
        // B's hose in is divided among both: half each.
        let half = FLOOR * 1_000_000 / 2;
        until("both have a floor", 10, || {
            let floor = |from| pair(&one, from, "b").map_or(0, |pair| pair.floor_bps);
            floor("a") > half / 10 * 9 && floor("c") > half / 10 * 9
        });
        assert!(pair(&two, "c", "b").is_some(), "the other end knows it, too");
        assert!(world.ceilings(1).matches("class htb").count() > 0);

        remove_c(&world);
        reload(&one);
        reload(&two);
        assert_eq!((pair(&one, "c", "b"), pair(&two, "c", "b")), (None, None));
        assert_eq!(on_port(&world), bare);
        until("what it held is A's", 5, || {
            pair(&one, "a", "b").is_some_and(|pair| pair.floor_bps > half / 10 * 19)
        });
        assert_eq!((pair(&one, "c", "b"), pair(&two, "c", "b")), (None, None), "though it sends");
    });
    let ports = one.top().counters.into_iter().filter(|(name, _)| name.starts_with("port.c"));
    assert_eq!(ports.count(), 0);
    drop(guest);
    one.stop();
    two.stop();
}

#[test]
fn floors_change_and_a_vm_moves_to_another_host() {
    let world = World::new();
    let (one, two) = (world.start(1), world.start(2));
    busy(&world, &[1], 60, || {
        let floor = || pair(&one, "a", "b").map_or(0, |pair| pair.floor_bps);
        until("all of the hose", 10, || floor() == FLOOR * 1_000_000);
        let file = world.dir.join("host1.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("floor_out = \"20Mbit\"", "floor_out = \"5Mbit\"")).unwrap();
        reload(&one);
        assert_eq!(floor(), 5_000_000, "at once");
        fs::write(&file, text).unwrap();
        reload(&one);
        until("all of it again", 5, || floor() == FLOOR * 1_000_000);
    });

    let guest = Guest::new(&world, 1);
    add_c(&world);
    reload(&one);
    reload(&two);
    busy(&world, &[3], 40, || {
        until("from here", 10, || pair(&one, "c", "b").is_some_and(|p| p.floor_bps > 10_000_000));
    });
    remove_c(&world);
    guest.dies();
    let moved = Guest::new(&world, 2);
    let directory = world.dir.join("directory.yaml");
    let text = fs::read_to_string(&directory).unwrap() + &C_HERE.replace("host1", "host2");
    fs::write(&directory, text).unwrap();
    let file = world.dir.join("host2.toml");
    let text = fs::read_to_string(&file).unwrap();
    let there =
        "[[vm]]\nname = \"c\"\nport = \"port3\"\nfloor_out = \"20Mbit\"\nfloor_in = \"20Mbit\"\n";
    fs::write(&file, text + there).unwrap();
    reload(&one);
    reload(&two);
    assert_eq!(pair(&one, "c", "b"), None);
    let (from, _sink) = (world.udp(1), world.udp(3));
    until("a floor to where it is now", 10, || {
        for _ in 0..50 {
            let _ = from.send_to(&[0; 1472], "10.0.0.3:9000");
        }
        pair(&one, "a", "c").is_some_and(|p| p.floor_bps > 10_000_000)
    });
    assert!(pair(&two, "a", "c").is_some());
    drop(moved);
    one.stop();
    two.stop();
}

#[test]
fn a_reload_with_a_mistake_says_where_and_changes_nothing() {
    let world = World::new();
    let (one, two) = (world.start(1), world.start(2));
    busy(&world, &[1], 40, || {
        until("the pair is known", 10, || one.pair().is_some_and(|p| p.floor_bps > 10_000_000));
        let before = world.snapshot("host1");
        let (file, directory) = (world.dir.join("host1.toml"), world.dir.join("directory.yaml"));
        let (text, yaml) =
            (fs::read_to_string(&file).unwrap(), fs::read_to_string(&directory).unwrap());
        let refused = |config: String, list: String, wanted: &str| {
            fs::write(&file, config).unwrap();
            fs::write(&directory, list).unwrap();
            let failures = counter(&one, "agent.reload_failures");
            reload(&one);
            assert_eq!(counter(&one, "agent.reload_failures"), failures + 1, "{wanted}");
            let log = one.log();
            let said = log.lines().rfind(|l| l.contains("the configuration in use stays"));
            assert!(said.is_some_and(|said| said.contains(wanted)), "{wanted}: {said:?}");
            assert_eq!(world.snapshot("host1"), before, "{wanted}");
            assert!(one.pair().is_some_and(|p| p.floor_bps > 10_000_000), "{wanted}");
        };
        let uplink = text.replace("rate = \"100Mbit\"", "rate = \"90Mbit\"");
        refused(uplink, yaml.clone(), "host1.toml:8: uplink.rate: is \"90000000bit\" now, and was");
        let missing = text.clone()
            + "[[vm]]\nname = \"c\"\nport = \"port3\"\nfloor_out = \"1Mbit\"\nfloor_in = \"1Mbit\"\n";
        refused(
            missing,
            yaml.clone() + C_HERE,
            "host1.toml:17: vm[1].port: vm `c` has port `port3`, which is not on this host",
        );
        let cap = text.clone() + "cap_out = \"20Mbit\"\n";
        refused(cap, yaml.clone(), "host1.toml:15: vm[0].cap_out: vm `a` may send 20 Mb/s, and is");
        refused(
            text.clone(),
            yaml.replace("{name: b,", "{name: b, id: 9,"),
            "directory.yaml:6: vms[1]: vm `b` is number 9",
        );
        refused(text.clone(), yaml.replace("name: a,", "name: a"), "directory.yaml");
        refused(text[..text.len() / 2].to_owned(), yaml.clone(), "host1.toml");
        fs::write(&file, text).unwrap();
        fs::write(&directory, yaml).unwrap();
        reload(&one);
        assert_eq!(world.snapshot("host1"), before);
    });
    one.stop();
    two.stop();
}

#[test]
fn a_vm_that_dies_unsaid_is_told_and_the_others_keep_their_floors() {
    let world = World::new();
    let guest = Guest::new(&world, 1);
    add_c(&world);
    let (one, two) = (world.start(1), world.start(2));
    busy(&world, &[1], 60, || {
        busy_from_guest(&world, || {
            until("both have a floor", 10, || {
                pair(&one, "c", "b").is_some() && pair(&one, "a", "b").is_some()
            });
        });
        guest.dies();
        let gone = Gone { vm: "c".into(), port: "port3".into(), why: None };
        until("it is told", 5, || one.top().gone == [gone.clone()]);
        assert!(one.log().contains("vm c is gone: its port port3"), "{}", one.log());
        assert_eq!(pair(&one, "c", "b"), None);
        let question = Request::Explain { from: "c".into(), to: "b".into() };
        let socket = client::socket_path(&world.dir.join("run"), "host1");
        match client::ask(&socket, &question).unwrap() {
            Reply::Error { message } => {
                assert!(message.starts_with("Unenforced: c is gone"), "{message}")
            }
            other => panic!("{other:?}"),
        }
        // The receiver waits until a sender that is mute must have let go of what it held.
        until("the floor of the other", 20, || {
            pair(&one, "a", "b").is_some_and(|p| p.floor_bps == FLOOR * 1_000_000)
        });
        // A reload does not mind: it is known to be gone.
        reload(&one);
        assert_eq!((counter(&one, "agent.reload_failures"), one.top().gone.len()), (0, 1));
    });
    // Nor does an agent that follows a dead one.
    one.kill();
    let one = world.start(1);
    assert_eq!(one.top().gone.len(), 1, "{}", one.log());
    let guest = Guest::new(&world, 1);
    until("it is back", 5, || one.top().gone.is_empty());
    busy_from_guest(&world, || {
        until("with a floor", 10, || pair(&one, "c", "b").is_some_and(|p| p.floor_bps > 1_000_000));
    });
    drop(guest);
    one.stop();
    two.stop();
}

fn busy_from_guest(world: &World, mut until_done: impl FnMut()) {
    let (stop, socket) = (AtomicBool::new(false), world.udp(3));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send_to(&[0; 1472], "10.0.0.2:9000");
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let _stop = StopAtEnd(&stop);
        until_done();
    });
}

#[test]
fn fifty_vms_that_come_and_go_leave_no_growth_and_cost_nobody_a_floor() {
    let world = World::new();
    let (one, two) = (world.start(1), world.start(2));
    let bare = world.snapshot("host1");
    let size = |agent: &Agent<'_>| {
        let status = sh(&format!("cat /proc/{}/status", agent.pid()));
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("a size");
        let kib: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
        let files = fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count();
        (kib, files)
    };
    busy(&world, &[1], 60, || {
        until("all of the hose", 10, || {
            one.pair().is_some_and(|pair| pair.floor_bps == FLOOR * 1_000_000)
        });
        let mut first = None;
        for round in 0..50 {
            let guest = Guest::new(&world, 1);
            add_c(&world);
            reload(&one);
            reload(&two);
            let socket = world.udp(3);
            // To A, on the same host: B's hose stays A's alone.
            for _ in 0..5 {
                let _ = socket.send_to(&[0; 1000], "10.0.0.1:9000");
            }
            // An open socket would keep its namespace.
            drop(socket);
            let floor = one.pair().map(|pair| pair.floor_bps);
            assert_eq!(floor, Some(FLOOR * 1_000_000), "round {round}");
            // Half of them die before they are removed.
            let kept = (round % 2 == 0).then_some(guest);
            remove_c(&world);
            reload(&one);
            reload(&two);
            drop(kept);
            if round == 9 {
                first = Some([size(&one), size(&two)]);
            }
        }
        assert_eq!(counter(&one, "agent.reloads"), 100);
        for (agent, (kib, files)) in [&one, &two].into_iter().zip(first.unwrap()) {
            // A connection that was answered is open for a moment more.
            let mut now = size(agent);
            until(&format!("{files} descriptors after ten, and no more after fifty"), 5, || {
                now = size(agent);
                now.1 <= files
            });
            assert!(now.0 < kib + 512, "{} KiB after ten, {} after fifty", kib, now.0);
        }
    });
    until("its class goes back", 20, || one.top().pairs.is_empty());
    let now = world.snapshot("host1");
    // The first pair has left a pool of eight classes of two fifos on the shaper's device, as it would without.
    let links = |words: &[String]| words.iter().filter(|word| word.contains("bfifo")).count();
    assert!(links(&now) <= links(&bare) + 16, "{} of {}", links(&now), links(&bare));
    let journal = fs::read_to_string(world.dir.join("run/host1/journal")).unwrap();
    assert!(journal.lines().count() < 12, "{journal}");
    one.stop();
    two.stop();
}
