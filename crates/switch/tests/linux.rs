//! Real packets through the queues of a Linux box.

use crate::common::{Folder, apply, failure, linux, managed, name, port, sender, settings};
use crate::common::{PORT, Sink, sh, switch, world};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use weir_core::binding::switch::{SwitchConfig, diff};
use weir_switch::linux::{LinuxTc, PortCounters};
use weir_switch::{Driver, Managed, Outcome, Step, Why};
use weir_units::{Bytes, SortedMap};

/// Octets of a test's packet in UDP, and on the link.
const PAYLOAD: usize = 1_000;

fn counters(driver: &mut Managed<LinuxTc>) -> PortCounters {
    driver.backend().counters(&name()).unwrap().expect("the port has a tree")
}

/// Packets sent, by queue; queues that sent none are left out.
fn packets(driver: &mut Managed<LinuxTc>) -> SortedMap<u8, u64> {
    let queues = counters(driver).queues;
    queues.iter().map(|(queue, stats)| (*queue, stats.packets)).filter(|(_, n)| *n > 0).collect()
}

/// Reads this many packets; the first octet of each.
fn receive(sink: &Sink, many: usize) -> Vec<u8> {
    let mut octets = [0; 2048];
    let read = |_| {
        // A signal, or a machine that stood still, interrupts a wait.
        while let Err(error) = sink.socket.recv(&mut octets) {
            assert_eq!(error.kind(), ErrorKind::Interrupted, "a packet is missing");
        }
        octets[0]
    };
    (0..many).map(read).collect()
}

fn send(socket: &UdpSocket, mark: u8, many: usize) {
    for _ in 0..many {
        socket.send(&[mark; PAYLOAD]).unwrap();
    }
}

/// Weights 1, 2, 4 for the code points 11, 12, 13.
fn three_at(mbps: u64) -> SwitchConfig {
    let weights = [(0, 1), (1, 1), (2, 2), (3, 4)];
    switch(port(mbps, &weights, &[(11, 1), (12, 2), (13, 3)]))
}

fn three() -> SwitchConfig {
    three_at(100)
}

/// Nearly closes the port, so that queues can be filled: no clock decides what waits in them. To mend
/// the port's rate opens it.
fn plug() {
    let tiny = "rate 8kbit ceil 8kbit burst 1600 cburst 1600";
    sh(&format!("tc class change dev {PORT} parent 5745: classid 5745:1 htb {tiny}"));
}

/// Fills queues: so many packets by each of three sockets, whose buffers hold no more.
fn fill(at: u8, each: usize) {
    let sockets = [(); 3].map(|()| sender(at, false));
    sockets.iter().for_each(|socket| send(socket, at, each));
    std::mem::forget(sockets);
}

#[test]
fn queues_that_all_wait_are_served_by_their_weights_and_a_lone_one_takes_all() {
    const EACH: usize = 70;
    let sink = world();
    let folder = Folder::new();
    let mut driver = linux(10, &folder);
    apply(&mut driver, &three_at(10));
    plug();
    [11, 12, 13].into_iter().for_each(|at| fill(at, EACH));
    assert!(apply(&mut driver, &three_at(10)) > 0);
    let order = receive(&sink, 3 * 3 * EACH);
    // While all three wait: from some packets of the last one that was filled, until it has sent
    // nearly all. Before that, each class may send a packet beside its weight.
    let heaviest = |n| order.iter().enumerate().filter(|(_, at)| **at == 13).nth(n).unwrap().0;
    let (from, last) = (heaviest(20), heaviest(3 * EACH - 5));
    let count = |at: u8| order[from..last].iter().filter(|found| **found == at).count() as f64;
    for (at, weight) in [(11, 1.0), (12, 2.0), (13, 4.0)] {
        let (share, part) = (count(at) / (last - from) as f64, weight / 7.0);
        assert!((share / part - 1.0).abs() <= 0.05, "{at}: {share} of {}, not {part}", last - from);
    }
    let found = counters(&mut driver);
    assert_eq!(found.unclassified, 0);
    assert_eq!(found.queues.values().map(|queue| queue.drops).sum::<u64>(), 0);

    // Alone, the lightest queue has the whole port: 190 packets last 0.16 s, and 1.1 s at a seventh. A
    // busy machine only lengthens it. The first packets pay for what passed the plug.
    let span = || {
        plug();
        fill(11, EACH);
        apply(&mut driver, &three_at(10));
        assert_eq!(receive(&sink, 20), [11; 20]);
        let begun = std::time::Instant::now();
        assert_eq!(receive(&sink, 3 * EACH - 20), [11; 3 * EACH - 20]);
        begun.elapsed().as_secs_f64()
    };
    let mut spans = std::iter::repeat_with(span).take(5);
    assert!(spans.any(|span| span < 0.7), "a lone queue has a part of the port only");
}

#[test]
fn the_outermost_headers_code_point_chooses_the_queue() {
    let _sink = world();
    let folder = Folder::new();
    let mut driver = linux(100, &folder);
    apply(&mut driver, &three());
    send(&sender(11, false), 0, 3);
    send(&sender(12, true), 0, 5);
    send(&sender(13, false), 0, 7);
    send(&sender(46, false), 0, 2);
    send(&sender(46, true), 0, 2);
    // ECN bits beside the code point change nothing.
    let marked = sender(13, false);
    let tos = (13 << 2) | 1;
    nix::sys::socket::setsockopt(&marked, nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
    send(&marked, 0, 1);
    // VXLAN: 12 outside, 11 inside.
    sh(&format!(
        "ip link add vx0 type vxlan id 7 remote 10.0.0.2 dstport 4789 dev {PORT} tos 0x30"
    ));
    sh("ip addr add 10.1.0.1/24 dev vx0");
    sh("ip link set vx0 address 02:00:00:00:01:01 up");
    sh("ip neigh add 10.1.0.2 lladdr 02:00:00:00:01:02 dev vx0");
    let before = packets(&mut driver);
    assert_eq!(before[&1], 3);
    assert_eq!(before[&3], 8);
    assert!(before[&0] >= 4, "{before:?}: other code points, and what is no IP");
    let inner = UdpSocket::bind("10.1.0.1:0").unwrap();
    let tos = 11 << 2;
    nix::sys::socket::setsockopt(&inner, nix::sys::socket::sockopt::Ipv4Tos, &tos).unwrap();
    inner.connect("10.1.0.2:5000").unwrap();
    send(&inner, 0, 9);
    let after = packets(&mut driver);
    assert_eq!(after[&1], 3, "the inner header does not count");
    assert!(after[&2] >= before[&2] + 9, "{before:?} {after:?}");
    assert_eq!(counters(&mut driver).unclassified, 0);
}

#[test]
fn no_packet_is_lost_or_without_a_queue_during_a_hundred_rebindings() {
    let sink = world();
    let folder = Folder::new();
    let mut driver = linux(1_000, &folder);
    let at = |queue: u8, weight: u16| {
        switch(port(1_000, &[(0, 1), (queue, weight)], &[(11, queue), (12, queue)]))
    };
    let shared = switch(port(1_000, &[(0, 1)], &[]));
    apply(&mut driver, &shared);
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicUsize::new(0));
    let flags = [(); 2].map(|()| (Arc::clone(&stop), Arc::clone(&sent)));
    let senders = [(11, false), (12, true)].into_iter().zip(flags).map(|((at, is_ip6), flags)| {
        let socket = sender(at, is_ip6);
        let (stop, sent) = flags;
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                send(&socket, at, 1);
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    let receiver = sink.socket.try_clone().unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    let counter = std::thread::spawn(move || {
        let mut octets = [0; 2048];
        let mut received = 0usize;
        loop {
            match receiver.recv(&mut octets) {
                Ok(_) => received += 1,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return received,
            }
        }
    });
    // A hundred, and more until enough traffic has passed.
    let mut n = 0u32;
    while n < 100 || sent.load(Ordering::Relaxed) < 100 {
        // Made, bound, moved to another queue, unbound, removed.
        let wanted =
            if n % 5 == 4 { shared.clone() } else { at(1 + (n % 3) as u8, 1 + (n % 7) as u16) };
        assert!(apply(&mut driver, &wanted) > 0, "{n}");
        let found = counters(&mut driver);
        assert_eq!(found.unclassified, 0, "{n}");
        assert_eq!(found.queues.values().map(|queue| queue.drops).sum::<u64>(), 0, "{n}");
        n += 1;
    }
    stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(counter.join().unwrap(), sent.load(Ordering::Relaxed));
}

#[test]
fn what_drifted_is_mended_and_what_is_others_stays() {
    let _sink = world();
    let folder = Folder::new();
    let mut driver = linux(100, &folder);
    apply(&mut driver, &three());
    assert_eq!(apply(&mut driver, &three()), 0, "nothing is to be done");
    for drift in [
        "class change dev swp1 parent 5745:1 classid 5745:13 htb rate 8kbit ceil 100mbit quantum 9000",
        "qdisc del dev swp1 parent 5745:11",
        "filter del dev swp1 parent 5745: prio 10",
        "filter del dev swp1 parent 5745: prio 11",
        "filter del dev swp1 parent 5745: prio 99",
        "class change dev swp1 parent 5745: classid 5745:1 htb rate 50mbit ceil 50mbit",
    ] {
        sh(&format!("tc {drift}"));
        assert!(apply(&mut driver, &three()) > 0, "{drift}");
        assert_eq!(driver.read().unwrap().config, three(), "{drift}");
    }
    sh("tc class add dev swp1 parent 5745:1 classid 5745:90 htb rate 1mbit ceil 2mbit");
    sh("tc filter add dev swp1 parent 5745: prio 50 protocol ip u32 match u32 0 0 classid 5745:90");
    let found = driver.read().unwrap();
    assert_eq!(found.others.len(), 2, "{:?}", found.others);
    assert_eq!(apply(&mut driver, &three()), 0);
    assert!(sh("tc class show dev swp1").contains("5745:90"));
    let failed = failure(driver.rollback());
    assert!(matches!(failed.why, Why::NotRestored(_)), "{failed}");
    assert!(sh("tc class show dev swp1").contains("5745:90"));
}

#[test]
fn a_rollback_leaves_the_port_as_it_was() {
    let _sink = world();
    let folder = Folder::new();
    let show = || {
        let all = ["tc qdisc show dev swp1", "tc class show dev swp1", "ip -d link show swp1"];
        all.map(sh)
    };
    let before = show();
    let mut driver = linux(100, &folder);
    apply(&mut driver, &three());
    assert_ne!(show(), before);
    apply(&mut driver, &switch(port(50, &[(0, 1), (5, 3)], &[(20, 5)])));
    assert_eq!(driver.rollback(), Outcome::Applied(Vec::new()));
    assert_eq!(show(), before);
    assert_eq!(driver.rollback(), Outcome::Applied(Vec::new()), "nothing is left to do");
    // Without the file of the state before Weir, nothing is guessed.
    apply(&mut driver, &three());
    std::fs::remove_dir_all(&folder.0).unwrap();
    assert_eq!(failure(driver.rollback()).why, Why::NoSave);
    assert_eq!(driver.read().unwrap().config, three());
}

#[test]
fn a_port_that_comes_later_is_marked_and_saved_too() {
    let _sink = world();
    sh("ip link add swp2 type veth peer name far2");
    let folder = Folder::new();
    apply(&mut linux(100, &folder), &three());
    let mut more = settings(100);
    more.ports.insert("swp2".into(), more.ports[&name()]);
    let mut driver = managed(LinuxTc::open(more).unwrap(), "test", &folder);
    let mut wanted = three();
    wanted.ports.insert("swp2".into(), port(100, &[(0, 1)], &[]));
    apply(&mut driver, &wanted);
    assert!(sh("ip link show swp2").contains("altname weir.test.swp2"));
    assert_eq!(driver.rollback(), Outcome::Applied(Vec::new()));
    for port in ["swp1", "swp2"] {
        assert!(!sh(&format!("tc qdisc show dev {port}")).contains("htb"));
        assert!(!sh(&format!("ip link show {port}")).contains("altname"));
    }
}

#[test]
fn a_port_with_a_qdisc_of_others_is_barred() {
    let _sink = world();
    let folder = Folder::new();
    sh("tc qdisc add dev swp1 root handle 7: htb");
    let mut driver = linux(100, &folder);
    let plan = driver.plan(&three()).unwrap();
    assert!(plan.to_string().contains("configured by others: root qdisc htb 7:"), "{plan}");
    let failed = failure(driver.apply(&three()));
    assert_eq!((failed.port.clone(), failed.step), (Some(name()), Step::Plan));
    assert!(matches!(failed.why, Why::Barred(_)), "{failed}");
    assert!(sh("tc qdisc show dev swp1").contains("htb 7: root"));
    assert!(!sh("ip link show swp1").contains("altname"));
}

#[test]
fn two_controllers_do_not_share_a_switch() {
    let _sink = world();
    let (mine, theirs) = (Folder::new(), Folder::new());
    let mut driver = linux(100, &mine);
    apply(&mut driver, &three());
    assert!(sh("ip link show swp1").contains("altname weir.test.swp1"));
    let mut other = managed(LinuxTc::open(settings(100)).unwrap(), "other", &theirs);
    let wanted = switch(port(100, &[(0, 1)], &[]));
    for outcome in [other.apply(&wanted), other.rollback()] {
        assert_eq!(failure(outcome).why, Why::Owned("test".into()));
    }
    assert_eq!(other.plan(&wanted).unwrap().owners, ["test".to_owned()].into());
    assert_eq!(driver.read().unwrap().config, three());
    driver.rollback();
    apply(&mut other, &wanted);
    assert_eq!(failure(driver.apply(&three())).why, Why::Owned("other".into()));
}

#[test]
fn super_packets_need_a_turn_of_their_size() {
    // What `turn` is for: the quantum of weight 1 is one turn, in the kernel too.
    let _sink = world();
    let folder = Folder::new();
    let mut settings = settings(1_000);
    settings.turn = Bytes::new(65_536);
    let mut driver = managed(LinuxTc::open(settings).unwrap(), "test", &folder);
    let wanted = switch(port(1_000, &[(0, 1), (1, 15)], &[(11, 1)]));
    apply(&mut driver, &wanted);
    assert!(diff(&driver.read().unwrap().config, &wanted).is_empty());
    assert!(sh("tc -d class show dev swp1").contains("quantum 983040"));
}
