//! Departure times in packets: who writes them, who takes them off, and that no number is lost by
//! them. Needs root, and fails without.
#![allow(unsafe_code)]

use crate::bench::{
    self, AT_ONCE, FROM_PEER, MINE, MINE6, NEVER, PASS, PEER, PEER6, PEERS_ROW, TO_PEER, UNKNOWN,
};
use crate::frame::{Packet, checksum, packet, udp};
use crate::net::{VM2, World, modes, now_ns};
use crate::random::Random;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;
use weir_core::host::Timed;
use weir_dataplane::intf::{self, Rx, Tx};
use weir_dataplane::programs::{Frame, Program, Programs};
use weir_dataplane::{Config, Dataplane, Mode};
use weir_units::{HostId, Span};

const RESERVED: u16 = 0x8000;
const DO_NOT_FRAGMENT: u16 = 0x4000;
const ROW: usize = PEERS_ROW as usize;
/// Longer than a test lasts.
const A_MINUTE: u32 = 60_000_000;

/// [`bench::Bench`] with packets that are timed.
struct Bench(Programs);

impl Bench {
    fn new(timed_us: u32) -> Self {
        let bench = Self(bench::Bench::new(0, NEVER).0);
        bench.set(timed_us, 0, NEVER);
        bench
    }

    fn set(&self, timed_us: u32, flags: u32, reorder_ns: u64) {
        let settings = intf::Settings { timed_us, flags, reorder_ns, ..Default::default() };
        self.0.set(settings).unwrap();
    }

    /// What a program makes of a packet. Its checksum is right.
    fn run(&self, program: Program, octets: &[u8]) -> Came {
        let ran = self.0.run(program, &Frame { octets, ..Frame::default() }).unwrap();
        assert_eq!(ran.verdict, PASS);
        assert_eq!(ran.octets.len(), octets.len());
        if octets[12] == 8 {
            assert_eq!(checksum(&ran.octets[14..34]), 0, "{:x?}", &ran.octets[14..34]);
        }
        let word = |at: usize| u16::from_be_bytes([ran.octets[at], ran.octets[at + 1]]);
        Came { id: word(18), fragment: word(20) }
    }

    fn rx(&self) -> Rx {
        self.0.rx.get(FROM_PEER).unwrap().unwrap_or_default()
    }

    /// Gives the meter one of the peer's: its number, or that it is timed.
    fn meter(&self, number: Option<u16>) {
        let came = self.run(Program::Meter, &from_peer(number.unwrap_or(0xabcd), number.is_none()));
        assert_eq!(came.fragment, DO_NOT_FRAGMENT);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Came {
    id: u16,
    fragment: u16,
}

fn to_peer() -> Packet {
    packet(MINE, PEER, 17, udp(9, 100))
}

fn from_peer(id: u16, is_timed: bool) -> Vec<u8> {
    let mut p = packet(PEER, MINE, 17, udp(9, 100));
    p.id = id;
    p.fragment |= if is_timed { RESERVED } else { 0 };
    p.octets()
}

fn micros() -> u64 {
    now_ns() / 1000
}

#[test]
fn one_packet_in_a_while_leaves_with_the_time_and_uses_up_its_number() {
    let bench = Bench::new(A_MINUTE);
    let numbered = |id| Came { id, fragment: DO_NOT_FRAGMENT };
    assert_eq!(bench.run(Program::Stamp, &to_peer().octets()), numbered(0), "the first one");
    let mut fragment = to_peer();
    fragment.fragment = 0x2000;
    assert_eq!(bench.run(Program::Stamp, &fragment.octets()).fragment, 0x2000);
    bench.run(Program::Stamp, &packet(MINE6, PEER6, 17, udp(9, 100)).octets());
    let before = micros();
    let timed = bench.run(Program::Stamp, &to_peer().octets());
    let after = micros();
    assert_eq!(timed.fragment, DO_NOT_FRAGMENT | RESERVED);
    assert!((before..=after).any(|us| us as u16 == timed.id), "{before} {timed:?} {after}");
    for number in 2..5 {
        assert_eq!(bench.run(Program::Stamp, &to_peer().octets()), numbered(number));
    }
    assert_eq!(bench.0.tx.get(TO_PEER).unwrap().unwrap().sequence, 5);
    // The time is over, and then no mechanism asks for times.
    bench.set(1, 0, NEVER);
    assert_eq!(bench.run(Program::Stamp, &to_peer().octets()).fragment, DO_NOT_FRAGMENT | RESERVED);
    bench.set(0, 0, NEVER);
    assert_eq!(bench.run(Program::Stamp, &to_peer().octets()), numbered(6));
}

#[test]
fn what_goes_to_no_host_with_a_row_carries_no_time() {
    let bench = Bench::new(1);
    let outside = intf::Prefix {
        bits: intf::PREFIX_HEAD + 96,
        tenant: 1,
        family: 4,
        address: "0.0.0.0".parse::<IpAddr>().unwrap().into(),
    };
    let endpoint = intf::Endpoint { vm: 9, tenant: 1, ..Default::default() };
    let value = intf::Outside { endpoint, slot: 0, default_class: 0 };
    bench.0.outside.put(outside, value).unwrap();
    bench.0.tx.put(intf::Pair { src: 1, dst: 9 }, Tx::default()).unwrap();
    // A VM of a host for which there was no row.
    let address: IpAddr = "10.0.0.7".parse().unwrap();
    let endpoint = intf::Endpoint { vm: 7, tenant: 1, ..Default::default() };
    bench.0.endpoints.put(address.into(), endpoint).unwrap();
    bench.0.tx.put(intf::Pair { src: 1, dst: 7 }, Tx::default()).unwrap();
    for to in [UNKNOWN, "10.0.0.7"] {
        let octets = packet(MINE, to, 17, udp(9, 100)).octets();
        let left = [0; 3].map(|_| bench.run(Program::Stamp, &octets));
        assert_eq!(left, [0, 1, 2].map(|id| Came { id, fragment: DO_NOT_FRAGMENT }), "{to}");
    }
}

#[test]
fn losses_of_a_pair_show_however_slow_it_is() {
    // Each packet comes after the time is over.
    let (sender, receiver) = (Bench::new(1), Bench::new(A_MINUTE));
    let mut timed = 0;
    for n in 0..200 {
        let left = sender.run(Program::Stamp, &to_peer().octets());
        let is_timed = left.fragment & RESERVED != 0;
        timed += u32::from(is_timed);
        if n < 190 && n % 10 == 5 {
            continue;
        }
        receiver.meter(if is_timed { None } else { Some(left.id) });
    }
    assert!(timed > 50, "{timed} are timed");
    receiver.set(A_MINUTE, 0, AT_ONCE);
    (200..204).for_each(|number| receiver.meter(Some(number)));
    assert_eq!(receiver.rx().lost, 19);
}

#[test]
fn a_guest_that_sets_the_bit_is_not_believed_unless_nothing_may_be_changed() {
    let bench = Bench::new(A_MINUTE);
    let mut forged = to_peer();
    (forged.id, forged.fragment) = (0x1234, DO_NOT_FRAGMENT | RESERVED);
    let left = |fragment| Came { id: 0x1234, fragment };
    assert_eq!(bench.run(Program::Classify, &forged.octets()), left(DO_NOT_FRAGMENT));
    bench.set(A_MINUTE, intf::OBSERVE, NEVER);
    let unchanged = left(DO_NOT_FRAGMENT | RESERVED);
    assert_eq!(bench.run(Program::Classify, &forged.octets()), unchanged);
    assert_eq!(bench.run(Program::Stamp, &forged.octets()), unchanged);
    assert_eq!(bench.run(Program::Meter, &from_peer(0x1234, true)), unchanged);
    assert_eq!(bench.0.timed().unwrap().0.get(ROW), intf::Timed::default());
}

#[test]
fn of_each_window_the_least_delayed_stays_with_its_arrival() {
    let bench = Bench::new(A_MINUTE);
    let (rows, window) = bench.0.timed().unwrap();
    let least = |which: usize| rows.get(ROW).least[which];
    // Departed so long ago, by a clock of its own. The arrival is a little later than `micros` says.
    let arrive = |ago: u64| {
        let sent = micros().wrapping_sub(ago) as u16;
        let came = bench.run(Program::Meter, &from_peer(sent, true));
        assert_eq!(came, Came { id: sent, fragment: DO_NOT_FRAGMENT });
        sent
    };
    let before = micros();
    arrive(28_000);
    let sent = arrive(1_000);
    arrive(25_000);
    assert_eq!(least(0) as u16, sent, "28 and 25 ms are more than 1");
    assert!((before..=micros()).contains(&(least(0) >> 16)));
    assert_eq!(least(1), 0);
    window.put(0, 1);
    let later = arrive(15_000);
    assert_eq!((least(0) as u16, least(1) as u16), (sent, later));
    window.put(0, 2);
    // A clock far ahead, by which packets come before they leave.
    let ahead = arrive(0u64.wrapping_sub(20_000));
    assert_eq!(least(0) as u16, ahead);
    // Numbered ones are no times, and no other host has any.
    bench.meter(Some(7));
    assert_eq!(least(0) as u16, ahead);
    assert!([0, 1, 3].iter().all(|row| rows.get(*row) == intf::Timed::default()));
}

/// What is lost of these, in their order, once nothing more can come: `None` is a timed one.
fn lost(came: &[Option<u16>], next: u16) -> u64 {
    let bench = Bench::new(A_MINUTE);
    came.iter().for_each(|number| bench.meter(*number));
    assert_eq!(bench.rx().lost, 0, "{came:?}: the window is not over");
    bench.set(A_MINUTE, 0, AT_ONCE);
    // Three later ones end a hole, and four are enough if the first one opens another.
    (next..next + 4).for_each(|number| bench.meter(Some(number)));
    let rx = bench.rx();
    assert_eq!((rx.missing, rx.resyncs, rx.strange), (0, 0, 0), "{came:?}");
    assert_eq!(rx.segments, came.len() as u64 + 4);
    rx.lost
}

#[test]
fn a_timed_packet_had_a_number_and_none_is_missed_for_it() {
    let t = None;
    assert_eq!(lost(&[Some(5), t, Some(7)], 8), 0);
    assert_eq!(lost(&[t, Some(5), t, t, Some(8), t], 10), 0);
    // 6 or 7 is lost.
    assert_eq!(lost(&[Some(5), t, Some(8)], 9), 1);
    // A timed one is lost.
    assert_eq!(lost(&[Some(5), Some(7), t, Some(9)], 10), 1);
    // It overtook one, and two.
    assert_eq!(lost(&[Some(5), t, Some(6), Some(8)], 9), 0);
    assert_eq!(lost(&[Some(5), t, Some(6), Some(7), Some(9)], 10), 0);
    // It was overtaken.
    assert_eq!(lost(&[Some(5), Some(7), t, Some(8)], 9), 0);
    // It overtook one, and another is lost.
    assert_eq!(lost(&[Some(5), t, Some(6), Some(9)], 10), 1);
}

#[test]
fn whatever_the_order_as_many_are_lost_as_did_not_come() {
    for seed in 1..=40u64 {
        let mut numbers = Random(seed);
        let mut random = |end: u64| numbers.below(end);
        let (one_in, width) = (1 + random(20), 1 + random(9));
        let mut missing = 0;
        let mut came: Vec<(u64, Option<u16>)> = Vec::new();
        for number in 0..150 {
            // The first ones set the sequence, and the last ones show where it is.
            let is_inner = (10..140).contains(&number);
            if is_inner && random(12) == 0 {
                missing += 1;
                continue;
            }
            let is_timed = is_inner && random(one_in) == 0;
            let late = if is_inner { random(width) } else { 0 };
            came.push((number * 2 + late, (!is_timed).then_some(60_000 + number as u16)));
        }
        came.sort_by_key(|(at, _)| *at);
        let came: Vec<Option<u16>> = came.into_iter().map(|(_, number)| number).collect();
        assert_eq!(lost(&came, 60_150), missing, "seed {seed}: {came:?}");
    }
}

#[test]
fn a_sender_that_begins_anew_is_found_between_timed_packets() {
    let bench = Bench::new(A_MINUTE);
    (0x9000..0x9010).for_each(|number| bench.meter(Some(number)));
    for number in 0..8 {
        bench.meter(Some(number * 2));
        bench.meter(None);
    }
    bench.set(A_MINUTE, 0, AT_ONCE);
    (16..20).for_each(|number| bench.meter(Some(number)));
    let rx = bench.rx();
    assert_eq!((rx.resyncs, rx.lost, rx.missing, rx.expected), (1, 0, 0, 20));
}

/// A host that times its packets.
fn open(world: &World, n: u32, mode: Mode) -> Dataplane {
    let every = Some(Span::from_micros(125));
    let config = Config { timed_every: every, ..world.config(n, mode) };
    world.inside(&format!("host{n}"), || Dataplane::open(config)).unwrap()
}

#[test]
fn a_host_reads_the_times_of_another_and_guests_see_none() {
    for mode in modes() {
        let world = World::new();
        let (_sender, receiver) = (open(&world, 1, mode), open(&world, 2, mode));
        let (socket, sink) = (world.udp(1), world.udp(2));
        sink.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut all: Vec<(HostId, Timed)> = Vec::new();
        receiver.read_times(&mut all);
        assert_eq!(all, [], "{mode:?}: nothing came yet");
        let before = micros();
        for n in 0..20u8 {
            socket.send_to(&[n], (VM2, 9000)).unwrap();
            let mut octets = [0; 9];
            assert_eq!(sink.recv(&mut octets).unwrap(), 1, "{mode:?}");
            receiver.read_times(&mut all);
        }
        let after = micros();
        assert!(all.len() > 1, "{mode:?}: {all:?}");
        for (host, timed) in &all {
            assert_eq!(*host, HostId(1));
            let came = timed.came.as_nanos() / 1000;
            assert!((before..=after).contains(&came), "{mode:?}: {before} {timed:?} {after}");
            // The two share a clock: it left at some moment between.
            assert!((before..=came).any(|us| us as u16 == timed.sent), "{mode:?}: {timed:?}");
        }
    }
}

/// A container's datagram that is to leave at this moment.
fn send_at(socket: &UdpSocket, at_ns: u64) {
    let at = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
    // SAFETY: a live socket, and an option of its length.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TXTIME,
            (&raw const at).cast(),
            size_of_val(&at) as u32,
        )
    };
    assert_eq!(ret, 0, "SO_TXTIME");
    let octets = at_ns.to_ne_bytes();
    let mut part = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: 1 };
    // One control message with eight octets: a header of two words, and a word.
    let mut control = [24, libc::SOL_SOCKET as u64 | (libc::SCM_TXTIME as u64) << 32, at_ns];
    // SAFETY: zeros are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all that the message points to lives.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_container_that_says_when_its_packets_leave_changes_no_time() {
    for mode in modes() {
        let world = World::new();
        let (_sender, receiver) = (open(&world, 1, mode), open(&world, 2, mode));
        let (socket, sink) = (world.udp(1), world.udp(2));
        socket.connect((VM2, 9000)).unwrap();
        sink.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut all: Vec<(HostId, Timed)> = Vec::new();
        let before = micros();
        for _ in 0..20 {
            send_at(&socket, now_ns() + 25_000_000);
            assert_eq!(sink.recv(&mut [0; 9]).unwrap(), 1, "{mode:?}");
            receiver.read_times(&mut all);
        }
        assert!(all.len() > 1, "{mode:?}: {all:?}");
        for (_, timed) in &all {
            let came = timed.came.as_nanos() / 1000;
            assert!((before..=came).any(|us| us as u16 == timed.sent), "{mode:?}: {timed:?}");
        }
    }
}
