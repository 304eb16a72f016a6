//! VMs whose packets leave their hosts in VXLAN: bridge, tunnel, uplink. Needs root, and fails without.
#![allow(clippy::disallowed_methods)]

use crate::net::{PAIR, VM2, World, modes, now_ns};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use weir_dataplane::shaper::Kind;
use weir_dataplane::{
    Config, Counters, Dataplane, Mode, PairRate, RxCounters, Tunnels, TxCounters,
};
use weir_units::Rate;

const PAYLOAD: usize = 500;
/// With Ethernet, IP and UDP, and what VXLAN adds to that.
const FRAME: u64 = PAYLOAD as u64 + 42;
const OVERHEAD: u32 = 50;

/// Puts VXLAN between each host's bridge and its uplink.
fn dig(world: &World) {
    for (n, peer) in [(1, 2), (2, 1)] {
        let host = format!("host{n}");
        world.ip(&host, "link set dev uplink nomaster");
        world.ip(&host, &format!("addr add 192.168.77.{n}/24 dev uplink"));
        world.ip(
            &host,
            &format!(
                "link add vx0 type vxlan id 7 local 192.168.77.{n} remote 192.168.77.{peer} \
                 dstport 4789 dev uplink"
            ),
        );
        world.ip(&host, "link set dev vx0 master br");
        world.ip(&host, "link set dev vx0 up");
        world.ip(&format!("vm{n}"), "link set dev eth0 mtu 1450");
    }
    world.without_super_packets();
}

fn config(world: &World, n: u32, (mode, shaper): (Mode, Kind)) -> Config {
    let tunnels = Tunnels { interfaces: vec!["vx0".into()], overhead: OVERHEAD };
    Config { tunnels, shaper: Some(shaper), ..world.config(n, mode) }
}

fn open(world: &World, n: u32, how: (Mode, Kind)) -> Dataplane {
    let config = config(world, n, how);
    world.inside(&format!("host{n}"), || Dataplane::open(config)).unwrap()
}

fn ends(hosts: &mut [Dataplane; 2]) -> (TxCounters, RxCounters) {
    let mut all = Counters::default();
    let [one, two] = hosts;
    one.read(now_ns(), &mut all).unwrap();
    let tx = all.tx.iter().find(|(pair, _)| *pair == PAIR).map(|(_, c)| *c).unwrap_or_default();
    two.read(now_ns(), &mut all).unwrap();
    let rx = all.rx.iter().find(|(pair, _)| *pair == PAIR).map(|(_, c)| *c).unwrap_or_default();
    (tx, rx)
}

/// Sends some datagrams, few enough for every queue on the way.
fn send(from: &UdpSocket, n: u64) {
    for _ in 0..n {
        from.send_to(&[0; PAYLOAD], (VM2, 9000)).unwrap();
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within ten seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_enters_a_tunnel_is_numbered_and_counted_with_its_outer_headers_and_its_losses_show() {
    // Departure times, which not every kernel has: `what_departed_into_a_tunnel_departs_only_once`.
    for how in modes().into_iter().map(|mode| (mode, Kind::Htb)) {
        let world = World::new();
        dig(&world);
        let (from, _to) = (world.udp(1), world.udp(2));
        let mut hosts = [open(&world, 1, how), open(&world, 2, how)];
        let floor = Rate::from_mbps(50);
        hosts[0].set(&[PairRate { pair: PAIR, floor, ceiling: floor }]).unwrap();
        hosts[0].renew_lease(now_ns()).unwrap();
        // The first ones wait for ARP, each behind the bridge's and the tunnel's.
        send(&from, 1);
        until("the first one arrives", || ends(&mut hosts).1.numbered == 1);
        send(&from, 19);
        until("all arrive", || ends(&mut hosts).1.numbered == 20);
        let (tx, rx) = ends(&mut hosts);
        let outer = FRAME + u64::from(OVERHEAD);
        assert_eq!((tx.octets.get(), tx.numbered.get()), (20 * outer, 20 * outer), "{how:?}");
        assert_eq!((tx.unnumbered.get(), tx.left), (0, 20), "{how:?}");
        assert_eq!(
            (rx.octets.get(), rx.segments),
            (20 * FRAME, 20),
            "what the VM is sent: {how:?}"
        );
        assert_eq!((rx.lost, rx.strange, rx.resyncs, rx.reordered), (0, 0, 0, 0), "{how:?}");

        // The network loses thirty.
        world.ip("switch", "link set dev sw2 down");
        send(&from, 30);
        until("they left", || ends(&mut hosts).0.left == 50);
        world.ip("switch", "link set dev sw2 up");
        until("it carries again", || {
            send(&from, 1);
            std::thread::sleep(Duration::from_millis(20));
            ends(&mut hosts).1.numbered > 20
        });
        send(&from, 10);
        until("what is missing is lost", || {
            let (tx, rx) = ends(&mut hosts);
            rx.lost >= 30 && rx.lost + rx.numbered == tx.left
        });
        let [one, two] = hosts;
        world.inside("host1", || one.close()).unwrap();
        world.inside("host2", || two.close()).unwrap();
    }
}

#[test]
fn classes_of_htb_count_the_outer_headers_and_the_uplink_what_super_packets_gain() {
    let how = (modes()[0], Kind::Htb);
    let world = World::new();
    dig(&world);
    let mut host = open(&world, 1, how);
    let floor = Rate::from_mbps(50);
    host.set(&[PairRate { pair: PAIR, floor, ceiling: floor }]).unwrap();
    let links = world.ip("host1", "-o link show type ifb");
    let device = links.split(": ").nth(1).expect("the shaper's device").to_owned();
    let classes = world.tc("host1", &format!("-d class show dev {device}"));
    // Those within a pair's queue have no limit.
    let ours = |line: &&str| line.starts_with("class htb 1:");
    assert!(classes.lines().filter(ours).all(|line| line.contains(" overhead 50")), "{classes}");
    assert!(classes.lines().filter(ours).count() > 4, "{classes}");
    // 200 Mbit/s less 50 octets of each 1514.
    let root = classes.lines().find(|line| line.contains("htb 1:1 root")).expect("a root");
    assert!(root.contains("rate 193394Kbit") || root.contains("rate 193395Kbit"), "{root}");
    // A successor finds nothing to do.
    drop(host);
    let mut host = open(&world, 1, how);
    assert!(host.adopted());
    assert_eq!(world.inside("host1", || host.tend(true)).unwrap(), Default::default());
    world.inside("host1", || host.close()).unwrap();
    assert!(!world.tc("host1", "qdisc show dev vx0").contains("clsact"));
}
