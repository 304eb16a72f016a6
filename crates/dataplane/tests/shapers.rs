//! Both shapers behind the same data plane, on two hosts made of network namespaces: what one promises
//! the other keeps. On a kernel without fq there is only HTB, and departure times are refused. Needs
//! root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

#[path = "common/net.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod net;

use net::{PAIR, UPLINK, VM2, World};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_dataplane::shaper::{ClassStats, Kind};
use weir_dataplane::{Config, Dataplane, Error, Mode, PairRate, clean, shaper};
use weir_units::Rate;

/// Octets of a full segment's payload, and of its frame without FCS.
const PAYLOAD: u64 = 1448;
const FRAME: u64 = 1514;
/// Measurements until one is good.
const TRIES: usize = 4;
const FQ: &str = "qdisc fq 3e1: root";

fn has_fq(world: &World) -> bool {
    let ns = world.ns("switch");
    let tc = |line: &str| {
        let words = line.split(' ');
        Command::new("tc").args(["-n", &ns]).args(words).output().unwrap().status.success()
    };
    tc("qdisc add dev lo root fq") && tc("qdisc del dev lo root")
}

/// The shapers of this kernel.
fn kinds(world: &World) -> Vec<Kind> {
    let mut kinds = vec![Kind::Htb];
    kinds.extend(has_fq(world).then_some(Kind::DepartureTime));
    kinds
}

/// The best way to attach on this kernel.
fn config(world: &World, kind: Option<Kind>) -> Config {
    Config { attach: None, shaper: kind, ..world.config(1, Mode::Clsact) }
}

fn try_open(world: &World, config: Config) -> Result<Dataplane, Error> {
    world.inside("host1", || Dataplane::open(config))
}

/// Opens host 1; its agent lives.
fn open(world: &World, kind: Kind) -> Dataplane {
    let mut host = try_open(world, config(world, Some(kind))).unwrap();
    assert_eq!(host.shaper(), kind);
    renew(&mut host);
    host
}

fn close(world: &World, host: Dataplane) {
    world.inside("host1", || host.close()).unwrap();
}

fn renew(host: &mut Dataplane) {
    host.renew_lease(net::now_ns()).unwrap();
}

fn level(floor: u64, ceiling: u64) -> PairRate {
    PairRate { pair: PAIR, floor: Rate::from_mbps(floor), ceiling: Rate::from_mbps(ceiling) }
}

fn queue(host: &mut Dataplane) -> ClassStats {
    host.queues().unwrap().into_iter().find(|q| q.pair == Some(PAIR)).unwrap()
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Sends on all connections; goodput together, in bit/s, from `warm` on for `span`. `meanwhile` is
/// called ten times a second.
fn goodput(
    connections: Vec<(TcpStream, TcpStream)>,
    warm: Duration,
    span: Duration,
    mut meanwhile: impl FnMut(),
) -> f64 {
    let (stop, octets) = (AtomicBool::new(false), AtomicU64::new(0));
    let is_over = || stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for (mut sender, mut receiver) in connections {
            sender.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
            receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            // What is sent behind is dropped with the connection.
            scope.spawn(move || {
                while !is_over() {
                    let _ = sender.write(&[0; 65_536]);
                }
            });
            let octets = &octets;
            scope.spawn(move || {
                let mut buffer = vec![0; 65_536];
                while !is_over() {
                    let n = receiver.read(&mut buffer).unwrap_or(0);
                    octets.fetch_add(n as u64, Ordering::Relaxed);
                }
            });
        }
        let mut wait = |span: Duration| {
            let start = Instant::now();
            while start.elapsed() < span {
                pause(100);
                meanwhile();
            }
        };
        wait(warm);
        let (start, first) = (Instant::now(), octets.load(Ordering::Relaxed));
        wait(span);
        let (took, last) = (start.elapsed(), octets.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        (last - first) as f64 * 8.0 / took.as_secs_f64()
    })
}

fn is_right(ratio: f64) -> bool {
    (0.97..=1.03).contains(&ratio)
}

/// The rate of a pair limited to `mbps`, as a part of what it should be. A machine that is busy with
/// something else gives less, and a loss that is mended gives a window what an earlier one was owed:
/// then again, a few times; the nearest counts.
fn measure(world: &World, host: &mut Dataplane, mbps: u64, flows: usize) -> f64 {
    host.set(&[level(1, mbps)]).unwrap();
    let ideal = mbps as f64 * 1e6 * PAYLOAD as f64 / FRAME as f64;
    // Such a loss is a smaller part of more.
    let span = Duration::from_millis(if mbps <= 5 { 5000 } else { 2500 });
    let mut best: f64 = 0.0;
    for _ in 0..TRIES {
        let connections = (0..flows).map(|_| world.tcp()).collect();
        let warm = Duration::from_millis(1500);
        let ratio = goodput(connections, warm, span, || renew(host)) / ideal;
        let kind = host.shaper();
        println!("{kind}, {mbps} Mbit/s, {flows} flows: {ratio:.4} of the rate");
        if (ratio - 1.0).abs() < (best - 1.0).abs() {
            best = ratio;
        }
        if is_right(best) {
            break;
        }
    }
    best
}

/// The highest rate that HTB is asked for. It makes up for 1 ms of lateness, and an emulated CPU can be
/// later than that; departure times lose nothing by it.
fn punctual(kind: Kind) -> u64 {
    let told = std::env::var("WEIR_TEST_MBIT").ok().filter(|_| kind == Kind::Htb);
    told.map_or(50, |mbit| mbit.parse().unwrap())
}

#[test]
fn both_shapers_keep_rates_within_three_percent_with_one_flow_and_with_four() {
    let world = World::new();
    let mut missed = Vec::new();
    for kind in kinds(&world) {
        let mut host = open(&world, kind);
        for (mbps, flows) in [5, 10, 20, 50].into_iter().flat_map(|mbps| [(mbps, 1), (mbps, 4)]) {
            if mbps > punctual(kind) {
                continue;
            }
            let best = measure(&world, &mut host, mbps, flows);
            if !is_right(best) {
                missed.push(format!("{kind}, {mbps} Mbit/s, {flows} flows: {best:.4}"));
            }
        }
        assert_eq!(host.late_drops().unwrap(), 0, "{kind}: nothing is dropped behind the stamp");
        close(&world, host);
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn departure_times_need_fq_and_an_uplink_whose_root_nobody_has_chosen() {
    let world = World::new();
    let before = world.snapshot("host1");
    let wanted = || config(&world, Some(Kind::DepartureTime));
    // Left to itself, an agent with a fast uplink would take them.
    let fast = || Config { uplink_rate: Rate::from_mbps(10_000), ..config(&world, None) };
    if has_fq(&world) {
        let host = try_open(&world, fast()).unwrap();
        assert_eq!(host.shaper(), Kind::DepartureTime);
        close(&world, host);
        world.assert_restored("host1", &before);
        world.tc("host1", "qdisc add dev uplink root handle 7: pfifo limit 100");
        let chosen = world.snapshot("host1");
        let error = try_open(&world, wanted()).err().unwrap().to_string();
        assert!(error.starts_with("root qdisc pfifo 7:0 of uplink is there already"), "{error}");
        world.assert_restored("host1", &chosen);
    } else {
        let error = try_open(&world, wanted()).err().unwrap();
        assert!(matches!(error, Error::Shaper(shaper::Error::NoFq)), "{error}");
        assert!(error.to_string().contains("sch_fq"), "{error}");
        world.assert_restored("host1", &before);
    }
    let host = try_open(&world, fast()).unwrap();
    assert_eq!(host.shaper(), Kind::Htb);
    // A successor stays with what it finds, and with what was chosen.
    drop(host);
    let host = try_open(&world, fast()).unwrap();
    assert!(host.adopted() && host.shaper() == Kind::Htb);
    close(&world, host);
    let slow = Config { uplink_rate: UPLINK, ..config(&world, None) };
    let host = try_open(&world, slow).unwrap();
    assert_eq!(host.shaper(), Kind::Htb);
    close(&world, host);
}

#[test]
fn each_shaper_is_taken_over_cleaned_and_closed_and_the_uplink_is_as_it_was() {
    let world = World::new();
    let before = world.snapshot("host1");
    for kind in kinds(&world) {
        let mut host = open(&world, kind);
        let on_uplink = world.tc("host1", "qdisc show dev uplink");
        assert_eq!(on_uplink.contains(FQ), kind == Kind::DepartureTime, "{on_uplink}");
        host.set(&[level(10, 50)]).unwrap();
        let (socket, _sink) = (world.udp(1), world.udp(2));
        send(&socket, 10);
        pause(100);
        let packets = queue(&mut host).packets;
        assert_eq!(packets, 10, "{kind}");
        // As if it had crashed.
        drop(host);
        let mut host = open(&world, kind);
        assert!(host.adopted());
        assert_eq!(host.levels().unwrap(), [level(10, 50)], "{kind}");
        send(&socket, 10);
        pause(100);
        assert_eq!(queue(&mut host).packets, 20, "{kind}: the pair's own queue all the time");
        host.forget(&[(PAIR, weir_dataplane::Direction::Tx)]).unwrap();
        assert_eq!(host.levels().unwrap(), []);
        close(&world, host);
        world.assert_restored("host1", &before);

        drop(open(&world, kind));
        let cleaned = world.inside("host1", || clean("host1", &world.bpffs(), &world.run_dir()));
        assert!(cleaned.unwrap());
        world.assert_restored("host1", &before);

        // One that chooses the other shaper starts afresh, and leaves nothing of this one.
        drop(open(&world, kind));
        let other = *kinds(&world).last().unwrap();
        let host = open(&world, other);
        assert_eq!(host.adopted(), other == kind);
        close(&world, host);
        world.assert_restored("host1", &before);
    }
}

fn send(from: &UdpSocket, n: u64) {
    for _ in 0..n {
        from.send_to(&[0; 1000], (VM2, 9000)).unwrap();
        pause(2);
    }
}

#[test]
fn what_is_borrowed_goes_back_by_itself_where_departure_times_are_kept() {
    let world = World::new();
    for kind in kinds(&world) {
        let mut host = open(&world, kind);
        host.set(&[level(4, 12)]).unwrap();
        let ideal = |mbps: f64| mbps * 1e6 * PAYLOAD as f64 / FRAME as f64;
        let (warm, span) = (Duration::from_millis(1500), Duration::from_secs(2));
        let alive = goodput(vec![world.tcp()], warm, span, || renew(&mut host));
        // Nobody is alive now, not even a guardian.
        let dead = goodput(vec![world.tcp()], warm, span, || {});
        println!(
            "{kind}: {:.3} of the ceiling, then {:.3}",
            alive / ideal(12.0),
            dead / ideal(12.0)
        );
        let left = if kind == Kind::DepartureTime { 4.0 } else { 12.0 };
        assert!(dead <= 1.03 * ideal(left), "{kind}: {dead:.0} bit/s without anybody alive");
        assert!(dead >= 0.90 * ideal(left), "{kind}: the floor stands, {dead:.0} bit/s");
        assert!(
            alive >= 0.90 * ideal(12.0),
            "{kind}: {alive:.0} bit/s of a lease that was renewed"
        );
        close(&world, host);
    }
}
