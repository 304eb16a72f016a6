//! Hosts that move from files to a controller while their VMs send within their floors. Needs root.

use crate::common::controller::{Controller, applied, apply, init, join_host, vm};
use crate::common::stream::{assert_none_lost, streams};
use crate::common::{Agent, FLOOR, World, daemon, pause, until};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;
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
