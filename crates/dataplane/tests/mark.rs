//! The marking port, on frames and on packets. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

use crate::frame::{packet, udp};
use crate::net::{VM1, VM2, World};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use weir_dataplane::mark::{Marker, MarkingPort, Marks};
use weir_units::{Bytes, Rate};

/// Runs `test` in a network namespace that is gone afterwards.
fn alone(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: changes this thread's own namespace only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "these tests need root");
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

/// A full frame with an ECN field of `ecn`.
fn full(v6: bool, ecn: u8) -> Vec<u8> {
    let (src, dst) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
    let mut packet = packet(src, dst, 17, udp(9, if v6 { 1452 } else { 1472 }));
    packet.tos = ecn;
    packet.octets()
}

#[test]
fn above_the_threshold_the_capable_are_marked_and_nobody_is_dropped() {
    alone(|| {
        // A full frame takes an eighth of a second: nothing drains while this runs.
        let rate = Rate::from_bps(100_000);
        let port = MarkingPort { interface: 1, rate, threshold: Bytes::new(3028) };
        let marker = Marker::open(&[port]).unwrap();
        let ecn_of = |v6: bool, ecn: u8| {
            let out = marker.run(&full(v6, ecn)).unwrap();
            assert_eq!(out.len(), 1514);
            if v6 { out[15] >> 4 & 3 } else { out[15] & 3 }
        };
        assert_eq!([ecn_of(false, 2), ecn_of(false, 2), ecn_of(false, 2)], [2, 2, 2]);
        assert_eq!(marker.marks(0).unwrap(), Marks { marked: 0, spared: 0, segments: 3 });
        assert_eq!([ecn_of(false, 2), ecn_of(false, 1), ecn_of(true, 2)], [3, 3, 3]);
        assert_eq!(marker.run(&full(false, 2)).unwrap(), full(false, 3), "nothing else changes");
        assert_eq!([ecn_of(false, 0), ecn_of(true, 0)], [0, 0], "these cannot be marked");
        assert_eq!(ecn_of(false, 3), 3, "a foreign mark");
        assert_eq!(marker.marks(0).unwrap(), Marks { marked: 4, spared: 2, segments: 10 });
        // However much came, what is above the threshold is forgotten in an eighth of a second.
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(ecn_of(false, 2), 2);
    });
}

#[test]
fn nothing_that_is_no_ip_packet_confuses_it() {
    alone(|| {
        let rate = Rate::from_bps(1000);
        let port = MarkingPort { interface: 1, rate, threshold: Bytes::new(1514) };
        let marker = Marker::open(&[port]).unwrap();
        for _ in 0..3 {
            let mut arp = vec![0xff; 60];
            arp[12..14].copy_from_slice(&[8, 6]);
            assert_eq!(marker.run(&arp).unwrap(), arp);
            let mut cut = full(false, 2);
            cut.truncate(50);
            assert_eq!(marker.run(&cut).unwrap(), cut);
            marker.run(&full(false, 0)).unwrap();
        }
    });
}

#[test]
fn a_port_that_marks_all_lets_a_new_connection_in() {
    let world = World::new();
    world.without_super_packets();
    // Marks come of the virtual queue. The real one has room for what a blaster that was held up
    // makes up for.
    world.bottleneck("20mbit", "1000000");
    let index = world.inside("switch", || {
        // SAFETY: a terminated string.
        unsafe { libc::if_nametoindex(c"sw2".as_ptr()) }
    });
    let (rate, threshold) = (Rate::from_mbps(10), Bytes::new(3_000));
    let port = MarkingPort { interface: index, rate, threshold };
    let marker = world.inside("switch", || Marker::open(&[port])).unwrap();
    let listener = world.inside("vm2", || TcpListener::bind((VM2, 7000)).unwrap());
    let _sink = world.inside("vm2", || UdpSocket::bind((VM2, 9000)).unwrap());
    let sender = world.inside("vm1", || UdpSocket::bind((VM1, 0)).unwrap());
    let ect: libc::c_int = 2;
    // SAFETY: a live socket, and an integer that outlives the call.
    let set = unsafe {
        let value = (&raw const ect).cast();
        libc::setsockopt(sender.as_raw_fd(), libc::IPPROTO_IP, libc::IP_TOS, value, 4)
    };
    assert_eq!(set, 0);
    let (stop, stopped) = mpsc::channel::<()>();
    let blast = move || {
        // 15 Mb/s: half as much again as the virtual queue drains, less than the real one sends. A
        // pause is made up for.
        let begun = Instant::now();
        for i in 1u64.. {
            sender.send_to(&[0; 1472], (VM2, 9000)).unwrap();
            let due = Duration::from_nanos(i * 1514 * 8 * 1000 / 15);
            let early = due.saturating_sub(begun.elapsed());
            if !matches!(stopped.recv_timeout(early), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    };
    let blaster = std::thread::spawn(blast);
    let begun = Instant::now();
    while marker.marks(0).unwrap().marked < 100 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", marker.marks(0).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = marker.marks(0).unwrap();
    // Twenty in a tenth of a second: for once the blaster may wait for a CPU.
    let connected = world.inside("vm1", || {
        let to = SocketAddr::from((VM2, 7000));
        let once = || {
            std::thread::sleep(Duration::from_millis(5));
            TcpStream::connect_timeout(&to, Duration::from_millis(900)).is_ok()
        };
        std::iter::repeat_with(once).take(20).filter(|&it| it).count()
    });
    let after = marker.marks(0).unwrap();
    drop(stop);
    drop(listener);
    blaster.join().unwrap();
    assert_eq!(connected, 20, "their SYNs lived");
    assert!(after.marked > before.marked, "it marked meanwhile: {before:?}, {after:?}");
    assert!(after.spared > before.spared, "SYNs were among those that cannot be marked");
}
