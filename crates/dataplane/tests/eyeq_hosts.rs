//! EyeQ in the kernel on two hosts made of network namespaces: what VM 2 receives becomes messages,
//! and those become a limit on the host of VM 1. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::eyeq_bench as bench;

use crate::net::{PAIR, VM1, VM2, World};
use bench::{MOST_UNITS, UNIT, key, settings};
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use weir_dataplane::eyeq::intf::{self as eyeq, Ear, FRAME, Limit, Mouth, PROTOCOL, Settings};
use weir_dataplane::eyeq::{Program, Programs, Sizes};
use weir_dataplane::intf;
use weir_wire::{FeedbackPacket, Told};

const HOST1: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// What VM 2 may receive.
const CAPACITY: u64 = 900 * UNIT;
const EACH: u64 = 10_000;
const ETHERNET: usize = 14;

fn index(world: &World, ns: &str, name: &str) -> u32 {
    let name = CString::new(name).unwrap();
    // SAFETY: a terminated string.
    world.inside(ns, || unsafe { libc::if_nametoindex(name.as_ptr()) })
}

/// One host's programs, and what holds them where they are.
struct Host {
    programs: Programs,
    _links: Vec<Option<OwnedFd>>,
}

/// Host `n` with its VM at the port; it believes the other one and can speak to it.
fn host(world: &World, n: u32) -> Host {
    let ns = format!("host{n}");
    let (own, other) = if n == 1 { (HOST1, HOST2) } else { (HOST2, HOST1) };
    world.ip(&ns, &format!("addr add {own}/24 dev br"));
    let programs = Programs::load(Sizes { pairs: 16, endpoints: 16, hosts: 4 }).unwrap();
    let port = intf::Port { vm: n, tenant: 1, slot: n, ..intf::Port::default() };
    programs.ports.put(index(world, &ns, "port"), port).unwrap();
    for vm in [1, 2] {
        let flags = if vm == n { intf::LOCAL } else { 0 };
        let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
        let v4 = if vm == 1 { VM1 } else { VM2 };
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, vm as u16);
        for address in [IpAddr::from(v4), v6.into()] {
            programs.endpoints.put(address.into(), endpoint).unwrap();
        }
        let host = if vm == n { own } else { other };
        programs.vms.put(vm, eyeq::Vm { host: eyeq::address(host), slot: vm }).unwrap();
    }
    let (to, from) = (key(own, other, 3), key(other, own, 3));
    let address = eyeq::address(other);
    programs.mouths.put(address, Mouth::new(3, to.halves())).unwrap();
    programs.ears.put(eyeq::Voice { address, key_id: 3 }, Ear::new(from.halves())).unwrap();
    let share = eyeq::Share { capacity_bps: CAPACITY, floor_bps: CAPACITY / 10_000 };
    programs.shares.put(n as usize, share);
    let via = index(world, &ns, "br");
    let own = eyeq::address(own);
    let set = Settings { period_ns: 2_000_000, via, address: own, ..settings() };
    programs.set(set).unwrap();
    let places = [(Program::Tell, "br"), (Program::Heed, "uplink"), (Program::Meter, "port")];
    let places = places.map(|(program, name)| (program, index(world, &ns, name)));
    let (programs, links) = world.inside(&ns, move || {
        let links = places.map(|(program, index)| programs.attach(program, index).unwrap());
        (programs, links)
    });
    Host { programs, _links: links.into() }
}

impl Host {
    fn limit(&self) -> Option<Limit> {
        self.programs.limits.get(PAIR.into()).unwrap()
    }
}

/// Of `linux/if_packet.h`.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Everything that comes in on an interface, before any program sees it.
struct Tap(OwnedFd);

impl Tap {
    fn new(world: &World, ns: &str, name: &str) -> Self {
        let index = index(world, ns, name);
        let fd = world.inside(ns, || {
            let all = (libc::ETH_P_ALL as u16).to_be();
            // SAFETY: a fresh descriptor, checked, that nobody else owns.
            let fd = unsafe {
                let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
                let fd = libc::socket(libc::AF_PACKET, kind, i32::from(all));
                assert!(fd >= 0, "a packet socket needs root");
                OwnedFd::from_raw_fd(fd)
            };
            // SAFETY: zero is a valid value of a struct of integers.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = all;
            address.sll_ifindex = index as i32;
            let size = size_of::<libc::sockaddr_ll>() as u32;
            // A message made of a super-packet counts with all its memory.
            let (octets, yes): (libc::c_int, libc::c_int) = (64 << 20, 1);
            // SAFETY: a live socket, and structs that outlive the calls and are as long as said.
            unsafe {
                let ret = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size);
                assert_eq!(ret, 0, "binding a packet socket");
                let set = |level, name, value: *const libc::c_int| {
                    libc::setsockopt(fd.as_raw_fd(), level, name, value.cast(), 4)
                };
                assert_eq!(set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &raw const octets), 0);
                assert_eq!(set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &raw const yes), 0);
            }
            fd
        });
        Self(fd)
    }

    /// The frames of feedback's protocol that came since the last call.
    fn feedback(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let mut octets = vec![0; 70_000];
            // SAFETY: a live socket and a buffer as long as said.
            let got = unsafe {
                libc::recv(self.0.as_raw_fd(), octets.as_mut_ptr().cast(), octets.len(), 0)
            };
            let Ok(length) = usize::try_from(got) else { return frames };
            octets.truncate(length);
            let is_ip4 = octets.get(12..14) == Some(&[8, 0]);
            if is_ip4 && octets.get(23) == Some(&PROTOCOL) {
                frames.push(octets);
            }
        }
    }
}

/// What the frames say, in the order in which it was said, with their tags checked: sequences from
/// 1 on, without a gap. On their way they may overtake each other: two CPUs receive for a VM.
fn read(frames: &[Vec<u8>]) -> Vec<Told> {
    let mut told = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        assert_eq!(frame.len(), FRAME, "the least that Ethernet has");
        let packet = FeedbackPacket::parse(&frame[ETHERNET..]).unwrap();
        let sequence = packet.sequence();
        assert!(packet.is_signed_by(&key(HOST2, HOST1, 3), sequence.into()), "{n}: {frame:02x?}");
        told.push((sequence, packet.told()));
    }
    told.sort_by_key(|(sequence, _)| *sequence);
    let missing = (1..).zip(&told).find(|(n, (sequence, _))| n != sequence);
    assert_eq!(missing, None, "of {} messages, which are numbered from 1 on", told.len());
    told.into_iter().map(|(_, told)| told).collect()
}

/// Waits until `done`, and fails if it never is.
#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(10), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Both hosts, and VM 1 may send to VM 2.
fn hosts(world: &World) -> (Host, Host) {
    let (host1, host2) = (host(world, 1), host(world, 2));
    host1.programs.tx.put(PAIR.into(), intf::Tx::default()).unwrap();
    (host1, host2)
}

#[test]
fn a_udp_stream_is_answered_once_per_period_and_its_sender_is_limited() {
    let world = World::new();
    world.without_super_packets();
    let (host1, host2) = hosts(&world);
    let tap = Tap::new(&world, "host1", "uplink");
    let at_vms = [Tap::new(&world, "vm1", "eth0"), Tap::new(&world, "vm2", "eth0")];
    let (sender, receiver) = (world.udp(1), world.udp(2));
    let count = 1_000u64;
    for n in 0..count {
        sender.send_to(&[7; 1472], (VM2, 9000)).unwrap();
        if n % 10 == 9 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let octets = count * 1514;
    until("all of it arrives", || host2.programs.meters.get(2).unwrap().unwrap().octets >= octets);
    std::thread::sleep(Duration::from_millis(100));
    let meter = host2.programs.meters.get(2).unwrap().unwrap();
    assert_eq!(meter.octets, octets);
    let told = host2.programs.counters();
    let messages = told.told;
    // Once for 10 kB, and in each period in which 10 kB came.
    assert!(messages <= (octets / EACH).min(meter.steps + 1), "{messages} messages, {meter:?}");
    assert!(messages > 5, "{messages} messages, {meter:?}");
    let expected =
        eyeq::Counters { sampled: messages, told: messages, ..eyeq::Counters::default() };
    assert_eq!(told, expected);

    let frames = tap.feedback();
    assert_eq!(frames.len() as u64, messages);
    let said = read(&frames);
    for told in &said {
        assert_eq!((told.from, told.to, told.pair), (HOST2, HOST1, PAIR));
        assert!((1..=CAPACITY / UNIT).contains(&u64::from(told.units)), "{told:?}");
    }
    assert_eq!(u64::from(said[0].units), CAPACITY / UNIT, "a new meter begins with all there is");
    assert!(meter.steps > 5, "{meter:?}");
    let heard = host1.programs.counters();
    assert_eq!(heard, eyeq::Counters { heard: messages, ..eyeq::Counters::default() });
    let limit = host1.limit().unwrap();
    let last = u64::from(said.last().unwrap().units) * UNIT;
    assert_eq!((limit.rate_bps, limit.told), (last, messages));
    assert!(at_vms.iter().all(|tap| tap.feedback().is_empty()), "no VM ever sees one");

    // The VM got every packet, once and as it was sent.
    receiver.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2000];
    let mut got = 0;
    while let Ok(length) = receiver.recv(&mut buffer) {
        assert_eq!(buffer[..length], [7; 1472]);
        got += 1;
    }
    // A socket's own buffer holds a part of them.
    assert!((1..=count).contains(&got), "{got}");

    replayed_and_forged(&world, &host1, &frames);
}

/// What an eavesdropper on the switch sends again changes nothing; neither does what it makes
/// up.
fn replayed_and_forged(world: &World, host1: &Host, frames: &[Vec<u8>]) {
    let before = host1.limit();
    let index = index(world, "switch", "sw1");
    let mut forged = frames[0].clone();
    forged[ETHERNET + 22] ^= 1;
    let said: Vec<Vec<u8>> = [frames[0].clone(), forged].into();
    world.inside("switch", || {
        // SAFETY: a packet socket of this thread; the address is as long as said; closed at the
        // end.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            assert!(fd >= 0);
            let fd = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = index as i32;
            for frame in said {
                let (to, size) = ((&raw const address).cast(), size_of_val(&address) as u32);
                let from = frame.as_ptr().cast();
                let sent = libc::sendto(fd.as_raw_fd(), from, frame.len(), 0, to, size);
                assert_eq!(sent, FRAME as isize);
            }
        }
    });
    until("both arrive", || {
        let c = host1.programs.counters();
        (c.replayed, c.forged) == (1, 1)
    });
    assert_eq!(host1.limit(), before);
}

/// Lets the kernel compute the checksums of what leaves by an interface, as it does where a device
/// cannot.
fn compute_checksums(world: &World, ns: &str, name: &str) {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const SET_TX_CHECKSUM: u32 = 0x17;
    world.inside(ns, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let mut value = Value { command: SET_TX_CHECKSUM, data: 0 };
        // SAFETY: zero is a valid value of a struct of integers and a union of such.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: a live socket; request and value outlive the call.
        let ret = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
        assert_eq!(ret, 0, "{}", std::io::Error::last_os_error());
    });
}

#[test]
fn merged_packets_are_answered_too_and_their_unfinished_checksums_harm_nothing() {
    let world = World::new();
    let (host1, host2) = hosts(&world);
    for (ns, name) in [("host2", "uplink"), ("host2", "br")] {
        compute_checksums(&world, ns, name);
    }
    let tap = Tap::new(&world, "host1", "uplink");
    let (mut sender, mut receiver) = world.tcp();
    let total = 4 << 20;
    let reading = std::thread::spawn(move || {
        let mut octets = vec![0; 1 << 16];
        let mut got = 0;
        while got < total {
            let length = receiver.read(&mut octets).unwrap();
            assert!(length > 0 && octets[..length].iter().all(|o| *o == 9));
            got += length;
        }
    });
    // Over many periods.
    for part in vec![9; total].chunks(total / 64) {
        sender.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    reading.join().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let frames = tap.feedback();
    let meter = host2.programs.meters.get(2).unwrap().unwrap();
    assert!(meter.octets > total as u64);
    assert!(frames.len() > 20 && frames.len() as u64 <= meter.octets / EACH, "{}", frames.len());
    // Each is what it should be, though a checksum was written into it.
    let said = read(&frames);
    assert!(said.iter().all(|told| told.pair == PAIR));
    // Where TCP's was: it begins where a message's body does, at 34.
    let written = frames.iter().filter(|f| f[34 + 16..34 + 18] != [0, 0]).count();
    assert!(written * 10 > frames.len() * 9, "{written} of {}: this shows nothing", frames.len());
    let heard = host1.programs.counters();
    // A message that was overtaken is late.
    assert_eq!((heard.heard + heard.late, heard.forged), (frames.len() as u64, 0));
    let told = host2.programs.counters();
    assert_eq!((told.told, told.unfit, told.uncloned), (frames.len() as u64, 0, 0));
}

#[test]
fn a_stream_of_ipv6_is_answered_in_ipv4() {
    let world = World::new();
    world.without_super_packets();
    let (host1, host2) = hosts(&world);
    for n in [1, 2] {
        world.ip(&format!("vm{n}"), &format!("addr add fd00::{n}/64 dev eth0 nodad"));
    }
    compute_checksums(&world, "host2", "uplink");
    let tap = Tap::new(&world, "host1", "uplink");
    let address = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    let _receiver = world.inside("vm2", || UdpSocket::bind((address(2), 9000)).unwrap());
    let sender = world.inside("vm1", || UdpSocket::bind((address(1), 0)).unwrap());
    for _ in 0..200 {
        sender.send_to(&[7; 1452], (address(2), 9000)).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    let octets = || host2.programs.meters.get(2).unwrap().unwrap().octets;
    until("all of it arrives", || octets() >= 200 * 1514);
    std::thread::sleep(Duration::from_millis(100));
    let frames = tap.feedback();
    let told = host2.programs.counters().told;
    assert_eq!(frames.len() as u64, told);
    assert!((5..=octets() / EACH).contains(&told), "{told}");
    assert!(read(&frames).iter().all(|told| told.pair == PAIR));
    assert_eq!(host1.programs.counters().heard, frames.len() as u64);
    let limit = host1.limit().unwrap();
    assert!(limit.rate_bps <= MOST_UNITS * UNIT && limit.rate_bps > 0);
}
