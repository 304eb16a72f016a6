//! EyeQ between two real agents: limits come from the receiver's host, HTB follows, and whoever has no key
//! changes nothing. Needs root.
#![allow(clippy::disallowed_methods)]

mod common;

use common::guest::{Guest, counter};
use common::watch::{LATE, watched};
use common::{Agent, World, until};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_model::status::{Meter, Pair};
use weir_units::{HostId, PairId, VmId};
use weir_wire::{FeedbackKey, Incarnation, Key, KeyId, Lives, Told, encode_feedback};

/// Mbit/s. The receivers' link leaves a tenth as headroom; the senders' host has room for all.
const SENDERS: u64 = 400;
const RECEIVERS: u64 = 100;
const FLOORS: [u64; 2] = [20, 40];
/// What the receivers' host promises, in parts of the floors.
const SHARES: [f64; 2] = [30e6, 60e6];

/// Mbit/s: above what either is promised, and up to all that the receivers' link lets pass.
const HIGH: RangeInclusive<f64> = 75.0..=90.0;

const HOST1: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);

/// VMs `a` and `c` on host 1, `b` and `d` on host 2, with floors of 1 : 2; `a` sends to `b`, `c` to `d`.
fn configure(world: &World) {
    let at = |name: &str| world.dir.join(name);
    let mut directory = "hosts:\n  - {name: host1, control: '10.255.0.1:7001'}\n  \
                         - {name: host2, control: '10.255.0.2:7001'}\nvms:\n"
        .to_owned();
    let vms = [(1, "a", "t", 1), (2, "b", "t", 2), (3, "c", "u", 1), (4, "d", "u", 2)];
    for (n, name, tenant, host) in vms {
        directory += &format!(
            "  - {{name: {name}, tenant: {tenant}, host: host{host}, addresses: [10.0.0.{n}]}}\n"
        );
    }
    fs::write(at("directory.yaml"), directory).unwrap();
    for (n, line, vms) in [(1, SENDERS, ["a", "c"]), (2, RECEIVERS, ["b", "d"])] {
        let mut text = format!(
            "instance = \"host{n}\"\nhost = \"host{n}\"\nlisten = \"10.255.0.{n}:7001\"\n\
             key_file = {:?}\ndirectory = {:?}\nrun_dir = {:?}\nbpffs = {:?}\n\
             uplink = {{ interface = \"up\", rate = \"{line}Mbit\" }}\n\
             mechanism = {{ name = \"eyeq\", preset = \"final\", set = {{ feedback_unit = \"10kbit\", \
             fastest_line = \"{SENDERS}Mbit\" }} }}\n",
            at("key"),
            at("directory.yaml"),
            at("run"),
            world.bpffs(),
        );
        let ports = ["port".to_owned(), format!("port{}", n + 2)];
        for ((vm, port), floor) in vms.iter().zip(ports).zip(FLOORS) {
            text += &format!(
                "[[vm]]\nname = {vm:?}\nport = {port:?}\nfloor_out = \"{floor}Mbit\"\n\
                 floor_in = \"{floor}Mbit\"\n"
            );
        }
        fs::write(at(&format!("host{n}.toml")), text).unwrap();
    }
}

/// Also when what is played meanwhile fails: else the scope would wait for the senders for ever.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Between two times ten full datagrams: 100 Mbit/s.
const GAP: Duration = Duration::from_micros(15_140 * 8 / 100);
/// What a sender that was held up makes up for: more would be a burst that no queue has room for.
const OWED: Duration = Duration::from_millis(10);

/// Plays `during` while VM 1 sends to VM 2 and VM 3 to VM 4, more than they may; VM 3 not while it is told
/// to be quiet.
fn busy<T>(world: &World, during: impl FnOnce(&AtomicBool) -> T) -> T {
    let (stop, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
    let _sinks = [world.udp(2), world.udp(4)];
    let senders: [(UdpSocket, &str); 2] =
        [(world.udp(1), "10.0.0.2:9000"), (world.udp(3), "10.0.0.4:9000")];
    std::thread::scope(|scope| {
        for (n, (socket, to)) in senders.iter().enumerate() {
            let (stop, quiet) = (&stop, &quiet);
            scope.spawn(move || {
                let mut due = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let is_quiet = n == 1 && quiet.load(Ordering::Relaxed);
                    for _ in 0..if is_quiet { 0 } else { 10 } {
                        let _ = socket.send_to(&[0; 1472], to);
                    }
                    let now = Instant::now();
                    due = (due + GAP).max(now - OWED);
                    std::thread::sleep(due.saturating_duration_since(now));
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        during(&quiet)
    })
}

fn pair(agent: &Agent<'_>, from: &str, to: &str) -> Option<Pair> {
    agent.top().pairs.into_iter().find(|pair| pair.from == from && pair.to == to)
}

/// Whether some class of host 1 has a ceiling that only `a` can have, and only while it is alone.
fn has_high_ceiling(world: &World) -> bool {
    let classes = world.ceilings(1);
    classes.split(" ceil ").skip(1).any(|rest| {
        let mbits = rest.split_whitespace().next().and_then(|word| {
            let kbits = word.strip_suffix("Kbit").map(|n| n.parse::<f64>().map(|n| n / 1e3));
            kbits.or_else(|| word.strip_suffix("Mbit").map(str::parse))?.ok()
        });
        mbits.is_some_and(|mbits| HIGH.contains(&mbits))
    })
}

/// What `b` and `d` receive, bit/s, over three seconds.
fn received(agent: &Agent<'_>) -> [f64; 2] {
    let octets = || ["b", "d"].map(|vm| counter(agent, &format!("port.{vm}.rx_octets")));
    let (began, before) = (Instant::now(), octets());
    common::pause(3000);
    let (after, seconds) = (octets(), began.elapsed().as_secs_f64());
    [0, 1].map(|i| (after[i] - before[i]) as f64 * 8.0 / seconds)
}

fn is_near(got: f64, want: f64, slack: f64) -> bool {
    (1.0 - slack..=1.0 + slack).contains(&(got / want))
}

/// `b`, and `d` if more is wanted, receive this within a tenth. Of three seconds in which a CPU was late nobody
/// knows who sent what: then three others, at most twice.
#[track_caller]
fn expect_received(agent: &Agent<'_>, what: &str, wants: &[f64]) {
    for attempt in 1.. {
        let (got, late) = watched(|| received(agent));
        if got.iter().zip(wants).all(|(got, want)| is_near(*got, *want, 0.10)) {
            return;
        }
        let said = format!("{what}: {got:.0?}, not {wants:.0?}; a CPU was {late:?} late");
        assert!(attempt < 3 && late > LATE, "{said}");
        println!("{said}: again");
    }
}

#[test]
fn two_senders_share_a_receivers_link_by_floors_and_a_forger_changes_nothing() {
    let world = World::new();
    let _guests = [Guest::with(&world, 1, 3, "", |_| {}), Guest::with(&world, 2, 4, "", |_| {})];
    configure(&world);
    let (agent1, agent2) = (world.start(1), world.start(2));
    assert!(agent1.top().mechanism.starts_with("eyeq"), "{}", agent1.top().mechanism);
    busy(&world, |quiet| {
        let limited = |from, to| {
            pair(&agent1, from, to).is_some_and(|pair| pair.phase == "limited" && pair.rate_bps > 0)
        };
        until("limits arrive", 10, || limited("a", "b") && limited("c", "d"));
        common::pause(2000);
        expect_received(&agent2, "a to b, and c to d", &SHARES);
        // What is told is what is in force, but for a moment in which a sender was held up: then the other
        // may have what it leaves.
        until("what is told, and classes, are near the shares", 3, || {
            let told = agent2.top().meters;
            assert_eq!(told.iter().map(|meter| meter.vm.as_str()).collect::<Vec<_>>(), ["b", "d"]);
            let is_told =
                |(meter, want): (&Meter, f64)| is_near(meter.capacity_bps as f64, want, 0.20);
            let holds = told.iter().zip(SHARES).all(is_told) && !has_high_ceiling(&world);
            if !holds {
                println!("{told:?}, {}", world.ceilings(1));
            }
            holds
        });
        let reasons = agent1.explain();
        assert!(reasons.iter().any(|reason| reason.contains("b's host spoke")), "{reasons:?}");
        // What another leaves is its, and no longer than that; classes follow in the same turn.
        for is_alone in [true, false] {
            quiet.store(is_alone, Ordering::Relaxed);
            let edge = if is_alone { HIGH.start() } else { &(SHARES[0] * 1.5 / 1e6) };
            until("the other's word", 3, || {
                let rate = pair(&agent1, "a", "b").expect("it sends").rate_bps as f64 / 1e6;
                (rate >= *edge) == is_alone
            });
            assert_eq!(has_high_ceiling(&world), is_alone, "{}", world.ceilings(1));
        }
        common::pause(2000);
        let told = counter(&agent2, "feedback.told");
        assert!(told > 1000 && counter(&agent1, "feedback.heard") > 1000, "{told}");

        forge(&world);
        until("the forgery is seen", 5, || counter(&agent1, "feedback.forged") >= 20);
        let rate = pair(&agent1, "a", "b").expect("it sends").rate_bps;
        assert!(rate > 10_000_000, "1 unit was forged, and {rate} bit/s is the limit");
        expect_received(&agent2, "a to b, after the forgery", &SHARES[..1]);
    });
    agent1.stop();
    agent2.stop();
}

/// From the switch, in the name of host 2: `a` may send one unit to `b`.
fn forge(world: &World) {
    world.ip("switch", "addr add 10.255.0.9/24 dev br");
    let life = |host, n| (HostId(host), Incarnation::new(n).expect("not zero"));
    let lives = Lives { from: life(1, 7), to: life(0, 8) };
    let key = Key::from_hex("ffeeddccbbaa99887766554433221100").expect("a key");
    let key = FeedbackKey::derive(KeyId(0), &key, lives);
    let told = Told { from: HOST2, to: HOST1, pair: PairId::new(VmId(0), VmId(1)), units: 1 };
    world.inside("switch", || {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))
            .expect("a raw socket needs root");
        for sequence in 1..=20 {
            let packet = encode_feedback(&told, &key, sequence);
            sendto(&socket, &packet, SendFlags::empty(), &SocketAddrV4::new(HOST1, 0))
                .expect("sent");
        }
    });
}

#[test]
fn an_agent_that_cannot_keep_eyeqs_promises_says_why() {
    let world = World::new();
    let _guests = [Guest::with(&world, 1, 3, "", |_| {}), Guest::with(&world, 2, 4, "", |_| {})];
    configure(&world);
    let file = world.dir.join("host2.toml");
    let text = fs::read_to_string(&file).unwrap();
    for (was, is, why) in [
        ("feedback_unit", "alpha = 1.5, feedback_unit", "alpha = 1.5 oscillates"),
        ("feedback_unit", "period = \"1ms\", feedback_unit", "measures nothing"),
        ("floor_in = \"40Mbit\"", "floor_in = \"90Mbit\"", "only 90Mbit may be promised"),
        ("feedback_unit", "backend = \"kernel\", feedback_unit", "the agent sets HTB's classes"),
    ] {
        assert!(text.contains(was), "{was}");
        fs::write(&file, text.replacen(was, is, 1)).unwrap();
        let output = world.run(2, "agent", "host2.toml");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
    }
}
