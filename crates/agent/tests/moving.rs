//! Hosts that move from files to a controller, and a VM that moves between hosts, while VMs send within their
//! floors. Needs root.

use crate::common::controller::{
    Controller, applied, apply, ask, controller, init, join_host, object, vm,
};
use crate::common::stream::{assert_none_lost, streams};
use crate::common::{Agent, FLOOR, StopAtEnd, UPLINK, World, daemon, pause, until};
use hyper::Method;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_wire::{Keyring, host_file};

/// Another tenant comes first and numbers are no positions: nothing may depend on the order in a file.
const DIRECTORY: &str = "hosts:
  - {name: host3, control: '10.255.0.3:7001', id: 1}
  - {name: host2, control: '10.255.0.2:7001', id: 4}
  - {name: host1, control: '10.255.0.1:7001', id: 9}
vms:
  - {name: x, tenant: other, host: host3, addresses: [10.0.0.9], id: 3}
  - {name: b, tenant: t, host: host2, addresses: [10.0.0.2], id: 5}
  - {name: a, tenant: t, host: host1, addresses: [10.0.0.1], id: 12}
";
/// From which all hosts' keys are made.
const MASTER: &str = "1 000102030405060708090a0b0c0d0e0f\n";
/// Octets of each datagram.
const PAYLOAD: usize = 1400;

/// `weir` itself, which `scripts/run-tests` makes before it plays tests.
fn weir(world: &World, arguments: &[&str]) -> String {
    let program = daemon().with_file_name("../weir");
    let mut command = world.command(1, &program, &[]);
    command.current_dir(&world.dir).env("WEIR_CLIENT", "client.toml").args(arguments);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error} (`cargo build -p weir` makes weir)");
    String::from_utf8(output.stdout).unwrap()
}

/// What the kernel tells of the class of a pair, from the moment when its rate is the floor.
struct Watch<'a> {
    world: &'a World,
    n: u32,
    /// `class htb 1:4007 `.
    class: String,
    /// ` rate 20Mbit `.
    rate: String,
    told: PathBuf,
    monitor: Child,
    /// Packets that passed it before.
    before: u64,
}

impl<'a> Watch<'a> {
    /// Of the only class with this floor on host `n`.
    fn new(world: &'a World, n: u32, mbit: u64) -> Self {
        let (class, rate) = (class_of(world, n, mbit), rate(mbit));
        let class = class.unwrap_or_else(|| panic!("host{n}, {mbit}: {}", classes(world, n, "")));
        let told = world.dir.join(format!("classes{n}-{mbit}"));
        let mut monitor = world.command(n, Path::new("tc"), &[]);
        let out = File::create(&told).unwrap();
        let monitor = monitor.arg("monitor").stdout(out).spawn().unwrap();
        let mut watch = Self { world, n, class, rate, told, monitor, before: 0 };
        until("the kernel tells of changes", 10, || {
            let host = format!("host{n}");
            world.tc(&host, "qdisc add dev lo root pfifo");
            world.tc(&host, "qdisc del dev lo root");
            fs::metadata(&watch.told).unwrap().len() > 0
        });
        watch.before = watch.passed();
        watch
    }

    /// Packets that passed the class.
    fn passed(&self) -> u64 {
        let text = classes(self.world, self.n, "-s ");
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&self.class));
        let line = lines.nth(1).unwrap_or_else(|| panic!("{} is gone: {text}", self.class));
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    }

    /// The class was there all the time with the floor, and this many packets passed it at least.
    #[track_caller]
    fn expect_floor(mut self, sent: u64) {
        let passed = self.passed() - self.before;
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
        let told = fs::read_to_string(&self.told).unwrap();
        let here: Vec<&str> = told.lines().filter(|line| line.contains(&self.class)).collect();
        let fell = here.iter().find(|line| !line.contains(&self.rate) || line.contains("deleted"));
        println!("host{}: {}changed {} times, {passed} packets", self.n, self.class, here.len());
        assert_eq!(fell, None, "of {}", here.len());
        assert!(passed >= sent, "{sent} sent, {passed} passed {}", self.class);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

fn classes(world: &World, n: u32, options: &str) -> String {
    let host = format!("host{n}");
    let links = world.ip(&host, "-o link show type ifb");
    let device = links.split(": ").nth(1).expect("the shaper's device").to_owned();
    world.tc(&host, &format!("{options}class show dev {device}"))
}

fn rate(mbit: u64) -> String {
    format!(" rate {mbit}Mbit ")
}

/// The class of the pair that has this floor, if there is one.
fn class_of(world: &World, n: u32, mbit: u64) -> Option<String> {
    let (text, rate) = (classes(world, n, ""), rate(mbit));
    let mut found = text.lines().filter(|line| line.contains(&rate));
    let line = found.next()?;
    assert_eq!(found.next(), None, "one pair has it:\n{text}");
    Some(line.split_inclusive(' ').take(3).collect())
}

/// As a host begins to follow: its file anew, its join, its agent in place of the former one.
fn follow<'a>(world: &'a World, n: u32, former: Agent<'a>) -> Agent<'a> {
    join_host(world, n);
    former.kill();
    world.start(n)
}

#[test]
fn hosts_move_from_files_to_a_controller_and_no_packet_or_floor_is_lost() {
    let world = World::new();
    fs::write(world.dir.join("directory.yaml"), DIRECTORY).unwrap();
    let ring: Keyring = MASTER.parse().unwrap();
    for (own, peer) in [("host1", "host2"), ("host2", "host1")] {
        let keys = host_file(&ring, own, [peer]);
        fs::write(world.dir.join(format!("{own}.keys")), keys).unwrap();
    }
    let (first, second) = (world.start(1), world.start(2));
    let (all, running) = streams(&world, &[(1, 2), (2, 1)], FLOOR * 3 / 4, PAYLOAD, |running| {
        until("both pairs have their floors", 20, || {
            [1, 2].iter().all(|n| class_of(&world, *n, FLOOR).is_some())
        });
        // What waited while the pairs began has left.
        pause(500);
        running.count();
        let watches = [1, 2].map(|n| Watch::new(&world, n, FLOOR));
        let before = running.sent();
        init(&world);
        fs::write(world.dir.join("data/pairs.keys"), MASTER).unwrap();
        let controller = Controller::start(&world);
        let files = ["host1.toml", "host2.toml"];
        let said = weir(&world, &["import", files[0], files[1], "--switch", "tor", "--yes"]);
        assert!(said.contains("5 of 5 objects were made"), "{said}");
        let first = follow(&world, 1, first);
        until("the first host follows", 60, || applied(&world, "a").0 == "True");
        pause(1000);
        let second = follow(&world, 2, second);
        until("the second host follows", 60, || applied(&world, "b").0 == "True");
        pause(1000);
        for ((watch, before), after) in watches.into_iter().zip(before).zip(running.sent()) {
            // Some are on their way.
            watch.expect_floor(after - before - 50);
        }
        (first, second, controller)
    });
    all.iter().for_each(|stream| assert_none_lost(&world, stream));
    let (first, second, controller) = running;
    // Both follow: what they are told changes the floors.
    apply(&world, json!([vm("a", 1, "port", FLOOR / 2), vm("b", 2, "port", FLOOR / 2)]));
    until("they are told", 60, || ["a", "b"].iter().all(|vm| applied(&world, vm).0 == "True"));
    first.stop();
    second.stop();
    controller.stop();
}

/// How often a VM moves. `scripts/test-long` asks for a hundred by `WEIR_MOVES`.
const MOVES: u64 = 6;
/// The floors of the VM that moves and of its peers: other ones than those of its neighbours.
const MOVER: u64 = 12;
/// What it sends to each of its peers, Mbit/s: one is on the other host, so it fills the link.
const FLOOD: u64 = 90;

/// Sends to each of these VMs until told to stop, as far as there is a way.
fn flood(from: &UdpSocket, to: &[&str], mbps: u64, is_over: &AtomicBool) {
    let each = mbps * 10_000 / 8 / 1442;
    while !is_over.load(Ordering::Relaxed) {
        for address in to {
            // Its port is down while the VM is on the other host.
            (0..each).for_each(|_| drop(from.send_to(&[0; PAYLOAD], (*address, 9100))));
        }
        pause(10);
    }
}

#[test]
fn a_vm_moves_again_and_again_under_load_and_no_neighbour_loses_a_packet_or_a_floor() {
    let moves = std::env::var("WEIR_MOVES").map_or(MOVES, |text| text.parse().unwrap());
    let world = World::new();
    // The VM that moves has a port on each host, one of which is up; and a peer on each.
    for (name, n, port, address) in
        [("m1", 1, "guest", 9), ("m2", 2, "guest", 9), ("p", 1, "peer", 7), ("q", 2, "peer", 8)]
    {
        world.add_vm(name, n, port, address);
    }
    for name in ["m1", "m2"] {
        world.ip(name, "link set eth0 address 02:57:00:00:00:09");
    }
    world.ip("m2", "link set eth0 down");

    let running = controller(&world);
    let host = json!({"switch": "tor", "rate": format!("{UPLINK}Mbit"), "slots": 10});
    let other = |name: &str, n: u32, port: &str, address: u32| {
        let mut vm = vm(name, n, port, MOVER);
        vm["spec"]["tenant"] = json!("o");
        vm["spec"]["network"]["addresses"] = json!([format!("10.0.0.{address}")]);
        vm
    };
    apply(
        &world,
        json!([
            object("Host", "host1", host.clone()),
            object("Host", "host2", host),
            object("Tenant", "t", json!({})),
            object("Tenant", "o", json!({})),
        ]),
    );
    [1, 2].iter().for_each(|n| join_host(&world, *n));
    let agents = [world.start(1), world.start(2)];
    let (a, b) = (vm("a", 1, "port", FLOOR), vm("b", 2, "port", FLOOR));
    let (p, q) = (other("p", 1, "peer", 7), other("q", 2, "peer", 8));
    apply(&world, json!([a, b, other("m", 1, "guest", 9), p, q]));
    let all = ["a", "b", "m", "p", "q"];
    until("all are applied", 60, || all.iter().all(|vm| applied(&world, vm).0 == "True"));
    let has_a_floor = |n: u64| {
        let top = agents[n as usize - 1].try_top();
        top.is_ok_and(|top| {
            let mut of_it = top.pairs.iter().filter(|p| p.from == "m" && p.side == "send");
            of_it.any(|p| p.floor_bps > 0 && p.measured_bps > UPLINK * 1_000_000 / 2)
        })
    };

    let is_over = AtomicBool::new(false);
    let sockets = ["m1", "m2", "p", "q"]
        .map(|name| world.inside(name, || UdpSocket::bind("0.0.0.0:9100").unwrap()));
    let (all, ()) = std::thread::scope(|scope| {
        let _end = StopAtEnd(&is_over);
        let ways: [(&[&str], u64); 4] = [
            (&["10.0.0.7", "10.0.0.8"], FLOOD),
            (&["10.0.0.7", "10.0.0.8"], FLOOD),
            (&["10.0.0.9"], MOVER),
            (&["10.0.0.9"], MOVER),
        ];
        for (socket, (to, mbps)) in sockets.iter().zip(ways) {
            let is_over = &is_over;
            scope.spawn(move || flood(socket, to, mbps, is_over));
        }
        streams(&world, &[(1, 2), (2, 1)], FLOOR * 3 / 4, PAYLOAD, |running| {
            until("all pairs have their floors", 20, || {
                [1, 2].iter().all(|n| class_of(&world, *n, FLOOR).is_some()) && has_a_floor(1)
            });
            // What waited while the pairs began has left.
            pause(500);
            running.count();
            let watches = [1, 2].map(|n| Watch::new(&world, n, FLOOR));
            let before = running.sent();
            for n in 0..moves {
                let (from, to) = if n % 2 == 0 { (1, 2) } else { (2, 1) };
                let (name, floor) = (format!("move{n}"), format!("{MOVER}Mbit"));
                let reserved = json!({"name": "m", "host": format!("host{to}"),
                    "floor": {"out": floor, "in": floor}});
                let spec = json!({"tenant": "o", "vms": [reserved]});
                apply(&world, json!([object("Reservation", &name, spec)]));
                world.ip(&format!("m{from}"), "link set eth0 down");
                world.ip(&format!("m{to}"), "link set eth0 up");
                ask(&world, Method::POST, &format!("reservations/{name}/confirm"), &Value::Null);
                until("the VM is at its new host", 60, || applied(&world, "m").0 == "True");
                until("it has a floor there, and sends more", 60, || has_a_floor(to));
            }
            watches.into_iter().zip(before).zip(running.sent()).for_each(
                |((watch, before), after)| {
                    // Some are on their way.
                    watch.expect_floor(after - before - 50);
                },
            );
        })
    });
    // Where the CPUs are full, one of thirty thousand overtakes another: two CPUs serve a shaper in turns.
    all.into_iter().for_each(|stream| assert_none_lost(&world, &stream.sorted()));
    agents.into_iter().for_each(Agent::stop);
    running.stop();
}
