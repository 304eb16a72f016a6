//! Windows by pair on a VM's port: whom they are for, when they change, and how long they count.
//! Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

use crate::net::{World, now_ns};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;
use weir_dataplane::{Config, Dataplane, Endpoint, Mode, Outside, PairRate, ShapedPeer};
use weir_units::{PairId, Rate, TenantId, VmId};

const VM: VmId = VmId(1);
const PEER: VmId = VmId(2);

const PAIR: PairId = PairId::new(VM, PEER);

/// With a VM whose windows are shaped; its pair is fast, so that looks need not be repeated for a
/// lease.
fn open(world: &World, config: Config) -> Dataplane {
    let config = Config { window_shaping: [VM].into(), ..config };
    world.inside("host1", || Dataplane::open(config)).unwrap()
}

/// The first octets, so that the pair is known, and its rate.
fn begin(host: &mut Dataplane, ends: &(TcpStream, TcpStream)) {
    speak(ends);
    let (floor, ceiling) = (Rate::from_mbps(50), Rate::from_mbps(200));
    host.set(&[PairRate { pair: PAIR, floor, ceiling }]).unwrap();
}

/// Looks, as an agent does twenty times a second: `window` is each connection's; none if nothing
/// bounds them.
fn tend(world: &World, host: &mut Dataplane, window: Option<u32>) {
    let mut none = |_: &BTreeMap<VmId, &[u32]>| BTreeMap::new();
    world.inside("host1", || {
        host.tend_windows(now_ns(), &|| 0, &mut none, &mut |from, to, _| {
            assert_eq!((from, to), (VM, PEER));
            window
        });
    });
}

fn peers(host: &Dataplane) -> Vec<ShapedPeer> {
    let [one] = &host.shaped()[..] else { panic!("one VM asks: {:?}", host.shaped()) };
    assert_eq!((one.vm, &one.refused), (VM, &None));
    one.peers.clone()
}

/// Octets there. What was shown before is used up when as many of them have passed.
fn speak((from, to): &(TcpStream, TcpStream)) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&[7; 400_000]).unwrap());
        to.read_exact(&mut vec![0; 400_000]).unwrap();
    });
}

/// The window that the guest was shown last.
fn shown((from, _): &(TcpStream, TcpStream)) -> u32 {
    // SAFETY: all zeroes are one; the kernel writes no more than it is told there is room for.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: a live socket, and a struct of the size that is said.
    let ret = unsafe {
        let (info, size) = ((&raw mut info).cast(), &raw mut size);
        libc::getsockopt(from.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, size)
    };
    assert_eq!(ret, 0, "a connection");
    info.tcpi_snd_wnd
}

/// Rounded up to what a scaled window can say.
#[track_caller]
fn assert_shown(ends: &(TcpStream, TcpStream), window: u32) {
    let has_come = (0..10).any(|_| {
        speak(ends);
        (window..window + 1_024).contains(&shown(ends))
    });
    assert!(has_come, "{}, {window} wanted", shown(ends));
}

/// Looks until the guest is shown `window`: on a busy machine the lease of one look may end before
/// the next octet passes.
#[track_caller]
fn tend_until_shown(
    world: &World,
    host: &mut Dataplane,
    ends: &(TcpStream, TcpStream),
    window: u32,
) {
    let has_come = (0..10).any(|_| {
        speak(ends);
        tend(world, host, Some(window));
        speak(ends);
        (window..window + 1_024).contains(&shown(ends))
    });
    assert!(has_come, "{}, {window} wanted", shown(ends));
}

#[track_caller]
fn assert_open(ends: &(TcpStream, TcpStream)) {
    speak(ends);
    assert!(shown(ends) > 60_000, "{}", shown(ends));
}

#[test]
fn windows_by_pair_are_shown_while_somebody_looks_and_change_when_rates_do() {
    let world = World::new();
    let mut host = open(&world, world.config(1, Mode::Tcx));
    let one = world.tcp_at(9_001);
    begin(&mut host, &one);
    assert_open(&one);
    tend(&world, &mut host, Some(20_000));
    let peer = peers(&host)[0];
    assert_eq!((peer.vm, peer.live, peer.window), (PEER, 1, Some(20_000)));
    assert_shown(&one, 20_000);

    // At once, without a look; and by little, not at all.
    let rates = [PairRate { pair: PAIR, floor: Rate::ZERO, ceiling: Rate::ZERO }];
    host.follow_rates(&rates, &mut |_, _, live| Some(30_000 / live));
    assert_shown(&one, 30_000);
    host.follow_rates(&rates, &mut |_, _, _| Some(29_000));
    assert_eq!(peers(&host)[0].window, Some(30_000));
    let others = [PairRate { pair: PairId::new(PEER, VM), ..rates[0] }];
    host.follow_rates(&others, &mut |_, _, _| panic!("a pair that does not send from here"));

    // Two that send, and one that does not any more.
    let two = world.tcp_at(9_002);
    std::thread::sleep(Duration::from_millis(550));
    speak(&one);
    speak(&two);
    tend(&world, &mut host, Some(10_000));
    assert_eq!(peers(&host)[0].live, 2);
    assert_shown(&one, 10_000);
    assert_shown(&two, 10_000);
    std::thread::sleep(Duration::from_millis(550));
    speak(&two);
    tend(&world, &mut host, Some(15_000));
    assert_eq!(peers(&host)[0].live, 1);

    // Nobody looks: the lease ends.
    std::thread::sleep(Duration::from_millis(1_100));
    assert_open(&two);
    tend_until_shown(&world, &mut host, &two, 15_000);
    // No rate is set.
    tend(&world, &mut host, None);
    assert_open(&two);

    // Nobody asks.
    tend_until_shown(&world, &mut host, &two, 15_000);
    let bare = world.config(1, Mode::Tcx);
    world.inside("host1", || host.apply(bare, &BTreeSet::new())).unwrap();
    assert_eq!((host.shaped(), host.has_windows()), (vec![], false));
    assert_open(&two);
    world.inside("host1", || host.close()).unwrap();
}

/// A connection from VM 1 to an address of VM 2.
fn connect(world: &World, address: SocketAddrV4) -> (TcpStream, TcpStream) {
    let listener = world.inside("vm2", || TcpListener::bind(address).unwrap());
    let from = world.inside("vm1", || TcpStream::connect(address).unwrap());
    (from, listener.accept().unwrap().0)
}

#[test]
fn all_addresses_of_a_peer_are_one_pair_and_strangers_are_none() {
    let world = World::new();
    let mut config = world.config(1, Mode::Tcx);
    let second = Ipv4Addr::new(10, 9, 9, 9);
    config.endpoints.push(Endpoint { address: second.into(), ..config.endpoints[1] });
    world.ip("vm2", &format!("addr add {second}/32 dev eth0"));
    world.ip("vm1", &format!("route add {second} dev eth0"));
    let mut host = open(&world, config);
    let one = world.tcp_at(9_001);
    begin(&mut host, &one);
    let two = connect(&world, SocketAddrV4::new(second, 9_002));
    speak(&one);
    speak(&two);
    tend(&world, &mut host, Some(20_000));
    let all: Vec<_> = peers(&host).iter().map(|peer| (peer.vm, peer.live)).collect();
    assert_eq!(all, [(PEER, 2)]);
    assert_shown(&one, 20_000);
    tend(&world, &mut host, Some(20_000));
    assert_shown(&two, 20_000);
    // The directory does not list it any more.
    let mut config = Config { window_shaping: [VM].into(), ..world.config(1, Mode::Tcx) };
    config.endpoints.retain(|endpoint| endpoint.vm != PEER);
    world.inside("host1", || host.apply(config, &BTreeSet::new())).unwrap();
    std::thread::sleep(Duration::from_millis(550));
    speak(&one);
    tend(&world, &mut host, Some(20_000));
    assert_eq!(peers(&host), []);
    assert_open(&one);
    world.inside("host1", || host.close()).unwrap();
}

#[test]
fn who_takes_over_leaves_nothing_of_before_in_force() {
    let world = World::new();
    let mut host = open(&world, world.config(1, Mode::Tcx));
    let one = world.tcp_at(9_001);
    begin(&mut host, &one);
    tend(&world, &mut host, Some(20_000));
    assert_shown(&one, 20_000);
    drop(host);
    let mut host = open(&world, world.config(1, Mode::Tcx));
    assert!(host.adopted());
    begin(&mut host, &one);
    assert_open(&one);
    tend(&world, &mut host, Some(25_000));
    assert_shown(&one, 25_000);
    world.inside("host1", || host.close()).unwrap();
}

#[test]
fn shaping_of_what_leads_outside_is_refused_with_the_reason() {
    let world = World::new();
    let mut outward = world.config(1, Mode::Tcx);
    outward.endpoints.retain(|endpoint| endpoint.vm != VM);
    let address = "0.0.0.0".parse().unwrap();
    outward.outside.push(Outside { address, length: 0, vm: VM, tenant: TenantId(1) });
    let host = open(&world, outward);
    let why = host.shaped()[0].refused.clone().expect("refused");
    assert!(why.contains("its port leads outside"), "{why}");
    assert!(!host.has_windows());
    world.inside("host1", || host.close()).unwrap();
}
