//! The host's own traffic beside its VMs', on hosts made of network namespaces: what each of them
//! has whatever the other sends, with the shapers of this kernel. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::net::{self, PAIR, VM2, World};
use crate::shaper_world::{self, sh};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_dataplane::nl::{Socket, link};
use weir_dataplane::shaper::{Htb, Kind, Shaper, ShaperConfig};
use weir_dataplane::{Config, Dataplane, Error, PairRate, Tended, clean};
use weir_units::Rate;

/// Mbit/s: the uplink, the floors of the host and of the VM's pair.
const LINE: u64 = 50;
const OWN: u64 = 10;
const FLOOR: u64 = 30;
/// What VMs may have: the uplink less the host's floor and what is kept for its urgent packets.
const VMS: f64 = 39.75;
/// Octets of a full frame's payload, and of the frame without FCS.
const PAYLOAD: usize = 1472;
const FRAME: f64 = 1514.0;
/// Addresses of the two hosts themselves.
const HOST1: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);
/// Where agents listen.
const CONTROL: u16 = 7001;
const HTB: &str = "qdisc htb 3e1: root";

/// Two hosts with addresses of their own, VMs without super-packets.
fn world() -> World {
    let world = World::new();
    world.without_super_packets();
    for (host, address) in [("host1", HOST1), ("host2", HOST2)] {
        world.ip(host, &format!("addr add {address}/24 dev br"));
    }
    world
}

fn config(world: &World, kind: Kind) -> Config {
    let mut config = Config {
        attach: None,
        shaper: Some(kind),
        uplink_rate: Rate::from_mbps(LINE),
        host_floor: Rate::from_mbps(OWN),
        controls: vec![(HOST1, CONTROL).into(), (HOST2, CONTROL).into()],
        ..world.config(1, net::modes()[0])
    };
    config.ports[0].floor_out = Rate::from_mbps(FLOOR);
    config
}

fn try_open(world: &World, config: Config) -> Result<Dataplane, Error> {
    world.inside("host1", || Dataplane::open(config))
}

/// Opens host 1; its agent lives, and the pair may use all that there is.
fn open(world: &World, kind: Kind) -> Dataplane {
    let mut host = try_open(world, config(world, kind)).unwrap();
    let (floor, ceiling) = (Rate::from_mbps(FLOOR), Rate::from_mbps(LINE));
    host.set(&[PairRate { pair: PAIR, floor, ceiling }]).unwrap();
    host.renew_lease(net::now_ns()).unwrap();
    host
}

fn close(world: &World, host: Dataplane) {
    world.inside("host1", || host.close()).unwrap();
}

fn tend(world: &World, host: &mut Dataplane) -> Tended {
    world.inside("host1", || host.tend(true)).unwrap()
}

fn qdiscs(world: &World) -> String {
    world.tc("host1", "qdisc show dev uplink")
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// A socket of a host itself.
fn own(world: &World, host: &str, port: u16) -> UdpSocket {
    world.inside(host, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
}

/// Sends full frames at `mbps` until the flag is set, in portions of 1 ms. What a socket or a queue
/// refuses is not sent again.
fn flood(from: &UdpSocket, to: (Ipv4Addr, u16), mbps: u64, stop: &AtomicBool) {
    let (start, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_secs_f64() * mbps as f64 * 1e6 / (FRAME * 8.0);
        while f64::from(sent) < due {
            let _ = from.send_to(&[0; PAYLOAD], to);
            sent += 1;
        }
        pause(1);
    }
}

/// Counts frames until the flag is set.
fn count(socket: &UdpSocket, frames: &AtomicU64, stop: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 2000];
    while !stop.load(Ordering::Relaxed) {
        if socket.recv(&mut buffer).is_ok() {
            frames.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What arrives of the VM and of the host itself, in Mbit/s on the wire, while they send as much as
/// is said. `during` is played meanwhile, too.
fn rates_while(
    world: &World,
    dataplane: &mut Dataplane,
    [vm, host]: [u64; 2],
    during: impl FnOnce() + Send,
) -> [f64; 2] {
    const SPAN: Duration = Duration::from_secs(3);
    let from = [world.udp(1), own(world, "host1", 9000)];
    let to = [world.udp(2), own(world, "host2", 9000)];
    let (stop, frames) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let read = || [0, 1].map(|i: usize| frames[i].load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for i in [0, 1] {
            let (to, frames, stop) = (&to[i], &frames[i], &stop);
            scope.spawn(move || count(to, frames, stop));
        }
        for (from, address, mbps) in [(&from[0], VM2, vm), (&from[1], HOST2, host)] {
            let stop = &stop;
            scope.spawn(move || {
                if mbps > 0 {
                    flood(from, (address, 9000), mbps, stop)
                }
            });
        }
        let during = scope.spawn(during);
        pause(500);
        let (start, before) = (Instant::now(), read());
        while start.elapsed() < SPAN {
            pause(100);
            dataplane.renew_lease(net::now_ns()).unwrap();
        }
        let (took, after) = (start.elapsed().as_secs_f64(), read());
        during.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        [0, 1].map(|i| (after[i] - before[i]) as f64 * FRAME * 8.0 / took / 1e6)
    })
}

/// The same without anything else meanwhile. A machine that is busy with something else gives less
/// to either: then again, a few times.
fn rates(
    world: &World,
    dataplane: &mut Dataplane,
    sent: [u64; 2],
    is_right: impl Fn([f64; 2]) -> bool,
) -> [f64; 2] {
    let mut last = [0.0; 2];
    for _ in 0..3 {
        last = rates_while(world, dataplane, sent, || {});
        println!("{}, sent {sent:?}: {last:.2?} Mbit/s", dataplane.shaper());
        if is_right(last) {
            break;
        }
    }
    last
}

/// The shapers of this kernel.
fn kinds(world: &World) -> Vec<Kind> {
    let fq = world.tc_succeeds("switch", "qdisc add dev lo root fq");
    let mut kinds = vec![Kind::Htb];
    kinds.extend(fq.then_some(Kind::DepartureTime));
    kinds
}

#[test]
fn the_host_and_its_vms_keep_their_floors_whatever_the_other_sends() {
    let world = world();
    for kind in kinds(&world) {
        let mut host = open(&world, kind);
        let holds = |[vm, own]: [f64; 2]| vm >= 0.97 * FLOOR as f64 && own >= 0.97 * OWN as f64;
        let is_within = |[vm, own]: [f64; 2]| vm + own <= 1.02 * LINE as f64;
        // Each alone would fill the line.
        let both = rates(&world, &mut host, [60, 60], holds);
        assert!(holds(both) && is_within(both), "{kind}: {both:?}");

        // The host uses what VMs leave, and VMs what is not the host's.
        let quiet = rates(&world, &mut host, [5, 60], |[_, own]| own >= 0.95 * 45.0);
        assert!(quiet[1] >= 0.95 * 45.0 && is_within(quiet), "{kind}: {quiet:?}");
        let room = if kind == Kind::Htb { VMS } else { 0.97 * LINE as f64 };
        let alone = rates(&world, &mut host, [60, 0], |[vm, _]| vm >= 0.95 * room);
        assert!(alone[0] >= 0.95 * room && is_within(alone), "{kind}: {alone:?}");

        assert_eq!(host.late_drops().unwrap(), 0, "{kind}: nothing is dropped behind the stamp");
        let traffic = host.host_traffic().unwrap().unwrap();
        assert_eq!(traffic.floor, Rate::from_mbps(OWN));
        // Three seconds of its floor at least, and far more was sent than there was room for.
        assert!(traffic.octets.get() > OWN * 3 * 1_000_000 / 8, "{kind}: {traffic:?}");
        assert!(traffic.dropped > 0, "{kind}: {traffic:?}");
        close(&world, host);
    }
}

#[test]
fn agents_messages_and_neighbour_discovery_do_not_wait_behind_what_the_host_sends() {
    let world = world();
    let mut host = open(&world, Kind::Htb);
    let (from, to) = (own(&world, "host1", CONTROL), own(&world, "host2", CONTROL));
    to.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // What waits for the host's floor: 128 kB at 10 Mbit/s.
    let waits = Mutex::new(Vec::new());
    let (world, waits) = (&world, &waits);
    let got = rates_while(world, &mut host, [60, 60], move || {
        pause(1000);
        for i in 0..50 {
            if i % 10 == 0 {
                let neighbour = format!("neigh flush dev br to {HOST2}");
                world.ip("host1", &neighbour);
            }
            let (sent, mut answer) = (Instant::now(), [0; 100]);
            from.send_to(&[7; 60], (HOST2, CONTROL)).unwrap();
            let length = to.recv(&mut answer).expect("no message is lost");
            assert_eq!(length, 60);
            waits.lock().unwrap().push(sent.elapsed());
            pause(20);
        }
    });
    assert!(got[1] >= 0.9 * OWN as f64, "the host's own packets wait meanwhile: {got:?}");
    let mut waits = waits.lock().unwrap().clone();
    waits.sort_unstable();
    println!("median {:?}, longest {:?}", waits[25], waits[49]);
    assert!(waits[25] < Duration::from_millis(5), "half of them: {:?}", waits[25]);
    assert!(waits[45] < Duration::from_millis(30), "nine tenths: {:?}", waits[45]);
    close(world, host);
}

#[test]
fn the_uplinks_root_is_taken_from_the_kernel_only_and_given_back() {
    let world = world();
    let before = world.snapshot("host1");
    let host = open(&world, Kind::Htb);
    assert!(qdiscs(&world).contains(HTB), "{}", qdiscs(&world));
    close(&world, host);
    world.assert_restored("host1", &before);

    // As if it had crashed: what counted goes on counting, and what remains is cleaned up.
    let mut host = open(&world, Kind::Htb);
    let sent = own(&world, "host1", 9000);
    sent.send_to(&[0; PAYLOAD], (HOST2, 9000)).unwrap();
    let octets = |host: &mut Dataplane| host.host_traffic().unwrap().unwrap().octets.get();
    let end = Instant::now() + Duration::from_secs(3);
    while octets(&mut host) == 0 && Instant::now() < end {
        pause(5);
    }
    let counted = octets(&mut host);
    assert!(counted >= FRAME as u64);
    drop(host);
    let mut host = open(&world, Kind::Htb);
    assert!(host.adopted() && octets(&mut host) >= counted);
    drop(host);
    let cleaned = world.inside("host1", || clean("host1", &world.bpffs(), &world.run_dir()));
    assert!(cleaned.unwrap());
    world.assert_restored("host1", &before);

    // A successor without such a floor needs no root.
    drop(open(&world, Kind::Htb));
    let without = Config { host_floor: Rate::ZERO, ..config(&world, Kind::Htb) };
    let host = try_open(&world, without).unwrap();
    assert!(host.adopted() && !qdiscs(&world).contains("3e1"), "{}", qdiscs(&world));
    close(&world, host);
    world.assert_restored("host1", &before);

    world.tc("host1", "qdisc add dev uplink root handle 7: pfifo limit 100");
    let chosen = world.snapshot("host1");
    let error = try_open(&world, config(&world, Kind::Htb)).err().unwrap().to_string();
    assert!(error.starts_with("root qdisc pfifo 7:0 of uplink exists already"), "{error}");
    assert!(error.ends_with("leave out uplink.host_floor"), "{error}");
    world.assert_restored("host1", &chosen);
}

/// What is done to the uplink, by words of `tc`, and a part of what the look says of it.
const MENDABLE: [(&str, &str); 5] = [
    ("qdisc del dev uplink root", "the htb qdisc of uplink is gone"),
    (
        "class change dev uplink parent 3e1:1 classid 3e1:20 htb rate 1mbit",
        "class 3e1:20 was changed",
    ),
    ("class del dev uplink classid 3e1:30", "class 3e1:30 was deleted"),
    ("class add dev uplink parent 3e1:1 classid 3e1:40 htb rate 1mbit", "class 3e1:40 too many"),
    ("qdisc replace dev uplink parent 3e1:10 handle 9: pfifo limit 5", "the queue of class 3e1:10"),
];

#[test]
fn what_is_done_to_the_uplinks_classes_is_mended_and_another_root_is_named_and_left() {
    let world = world();
    let mut host = open(&world, Kind::Htb);
    let classes = || world.tc("host1", "class show dev uplink");
    let (before, none) = (classes(), Tended::default());
    assert_eq!(tend(&world, &mut host), none, "nothing was done yet");
    for (line, said) in MENDABLE {
        world.tc("host1", line);
        // Every second look reads the classes.
        let mut mended = tend(&world, &mut host).mended;
        mended.extend(tend(&world, &mut host).mended);
        assert!(mended.iter().any(|what| what.contains(said)), "{line}: {mended:?}");
        assert_eq!(
            [tend(&world, &mut host), tend(&world, &mut host)],
            [none.clone(), none.clone()]
        );
        assert_eq!(classes(), before, "after {line}");
    }
    world.tc("host1", "qdisc replace dev uplink root handle 7: pfifo limit 100");
    for _ in 0..2 {
        let tended = tend(&world, &mut host);
        let said = "qdisc pfifo 7:0 has replaced the host's htb on uplink";
        assert_eq!((&tended.mended, tended.faults.len()), (&vec![], 1), "{tended:?}");
        assert_eq!(tended.faults[0].what, said);
    }
    // A change of another kind is possible meanwhile, and VMs stay shaped.
    let same = config(&world, Kind::Htb);
    world.inside("host1", || host.apply(same, &BTreeSet::new())).unwrap();
    assert!(world.tc("host1", "filter show dev port ingress").contains("pref 4000"));
    world.tc("host1", "qdisc del dev uplink root");
    assert!(tend(&world, &mut host).faults.is_empty());
    assert_eq!(classes(), before);
    close(&world, host);
}

#[test]
fn an_agent_that_observes_leaves_the_uplink_as_it_is_and_takes_it_when_told_to_enforce() {
    let world = world();
    let before = qdiscs(&world);
    let as_told = |observe| Config { observe, ..config(&world, Kind::Htb) };
    let mut host = try_open(&world, as_told(true)).unwrap();
    let clsact_apart = |text: String| {
        let lines = text.lines().filter(|line| !line.contains("clsact"));
        lines.map(str::trim).collect::<Vec<_>>().join("\n")
    };
    let is_as_before = || clsact_apart(qdiscs(&world)) == clsact_apart(before.clone());
    assert!(is_as_before(), "{}", qdiscs(&world));
    assert_eq!(host.host_traffic().unwrap(), None);
    let apply = |host: &mut Dataplane, observe| {
        world.inside("host1", || host.apply(as_told(observe), &BTreeSet::new())).unwrap();
    };
    for _ in 0..2 {
        apply(&mut host, false);
        assert!(qdiscs(&world).contains(HTB), "{}", qdiscs(&world));
        assert_eq!(tend(&world, &mut host), Tended::default());
        assert_eq!(tend(&world, &mut host), Tended::default());
        apply(&mut host, true);
        // Until what waits has left.
        let end = Instant::now() + Duration::from_secs(3);
        while !is_as_before() && Instant::now() < end {
            assert_eq!(tend(&world, &mut host), Tended::default());
            pause(20);
        }
        assert!(is_as_before(), "{}", qdiscs(&world));
    }
    // A crash of one that enforced, and a successor that observes.
    apply(&mut host, false);
    drop(host);
    let host = try_open(&world, as_told(true)).unwrap();
    assert!(is_as_before(), "{}", qdiscs(&world));
    close(&world, host);
}

#[test]
fn an_uplink_of_several_queues_is_divided_and_has_them_back() {
    shaper_world::unshare();
    sh("ip link add name cards numtxqueues 4 type ifb");
    sh("ip link set cards up");
    let before = sh("tc qdisc show dev cards");
    assert!(before.contains("qdisc mq 0: root") && before.lines().count() == 5, "{before}");
    let link = link::get(&mut Socket::open().unwrap(), "cards").unwrap().expect("just made");
    let host_floor = Rate::from_mbps(OWN);
    let config = ShaperConfig { host_floor, ..ShaperConfig::new("mq", Rate::from_mbps(LINE)) };
    let mut shaper = Box::new(Htb::open(config).unwrap().beside_host(link.device).unwrap());
    let during = sh("tc qdisc show dev cards");
    assert!(during.contains(HTB) && !during.contains("mq"), "{during}");
    shaper.apply_vms(&[]).unwrap();
    assert_eq!(shaper.faults(true).unwrap(), []);
    shaper.close().unwrap();
    assert_eq!(sh("tc qdisc show dev cards"), before);
}
