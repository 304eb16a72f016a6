//! Guests of this kernel that ignore ECN, on a link that marks, with vCC on their ports and
//! without: their own stacks, super-packets and checksums that devices are to compute. Needs root,
//! and fails without.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

use crate::deaf;
use crate::translated;

use crate::net::World;
use crate::translated::{ECN, Translated, index, info};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use weir_dataplane::mark::{Marker, MarkingPort};
use weir_dataplane::vcc::Law;
use weir_dataplane::vcc::intf::ANY_SLACK;
use weir_units::{Bytes, Rate};

const RATE: Rate = Rate::from_mbps(20);
const LASTS: Duration = Duration::from_secs(4);
/// Slow start is over then: it may overshoot any queue, before the first mark can be heard.
const SETTLED: Duration = Duration::from_secs(1);
/// Plays of which the best counts: a CPU that stands still takes from goodput and has segments sent
/// again, never the other way round.
const TRIES: usize = 3;

/// The octet at a place of the stream: without a period that segments have.
const fn octet(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// What one connection came to.
#[derive(Debug)]
struct Played {
    goodput: f64,
    /// Segments sent again once slow start was over.
    again: u32,
    marked: u64,
    options: [u8; 2],
}

/// One connection from VM 1 to VM 2, whose octets are all looked at.
fn play(world: &World, marker: &Marker) -> Played {
    speak(world.tcp(), marker)
}

/// What is sent for a while from one end, and looked at at the other.
fn speak((mut sender, mut receiver): (TcpStream, TcpStream), marker: &Marker) -> Played {
    let before = marker.marks(0).unwrap().marked;
    let ends = [sender.try_clone().unwrap(), receiver.try_clone().unwrap()];
    let reading = std::thread::spawn(move || {
        let (mut chunk, mut at, mut last) = (vec![0; 1 << 16], 0u64, Instant::now());
        loop {
            let n = receiver.read(&mut chunk).expect("reads");
            if n == 0 {
                return (at, last);
            }
            for got in &chunk[..n] {
                assert_eq!(*got, octet(at), "octet {at} of the stream");
                at += 1;
            }
            last = Instant::now();
        }
    });
    let began = Instant::now();
    let (mut at, mut before_settled) = (0, 0);
    while began.elapsed() < LASTS {
        if began.elapsed() < SETTLED {
            before_settled = info(&sender).tcpi_total_retrans;
        }
        let chunk: Vec<u8> = (at..at + 32_768).map(octet).collect();
        sender.write_all(&chunk).expect("the connection stands");
        at += 32_768;
    }
    let infos = ends.each_ref().map(info);
    sender.shutdown(std::net::Shutdown::Write).unwrap();
    let (octets, last) = reading.join().expect("every octet is the one that was sent");
    assert_eq!(octets, at, "and all of them came");
    Played {
        goodput: octets as f64 * 8.0 / (last - began).as_secs_f64() / RATE.as_bps() as f64,
        again: infos[0].tcpi_total_retrans - before_settled,
        marked: marker.marks(0).unwrap().marked - before,
        options: infos.map(|info| info.tcpi_options),
    }
}

#[test]
fn guests_that_ignore_ecn_lose_nothing_on_a_link_that_marks_once_their_ports_translate() {
    let (world, marker) = world("0", "60000");

    // The best of as many, too: else stalls would make vCC look good.
    let bare = [(); TRIES].map(|()| play(&world, &marker));
    assert!(bare.iter().all(|played| played.marked == 0), "nothing is capable: {bare:?}");
    let without = bare.iter().map(|played| played.again).min().expect("some were played");
    assert!(without > 3, "the queue overflows: {bare:?}");

    for law in [Law::VirtualEcn, Law::Dctcp, Law::CubicEcn] {
        let (mut goodput, mut again) = (0.0, u32::MAX);
        for _ in 0..TRIES {
            let ports = ["host1", "host2"].map(|host| Translated::new(&world, host, law, 0));
            let played = play(&world, &marker);
            println!("{law:?}: {played:?}; without {bare:?}");
            assert!(played.marked > 10, "{law:?}: {played:?}");
            let is_told = played.options.iter().any(|options| options & translated::ECN != 0);
            assert!(!is_told, "guests know nothing of it: {played:?}");
            let [from, to] = ports.each_ref().map(Translated::counters);
            assert!(from.lowered > 100, "{from:?}");
            assert!(to.edited > 100, "marks are hidden and echoed: {to:?}");
            assert_eq!([from.unedited, to.unedited, from.malformed, to.malformed], [0; 4]);
            assert_eq!([from.policed, to.policed], [0; 2], "honest guests keep to their windows");
            let tells = law == Law::Dctcp;
            assert_eq!(from.reports > 100, tells, "what came is told where that is read: {from:?}");
            (goodput, again) = (played.goodput.max(goodput), played.again.min(again));
            if goodput > 0.88 && again * 2 < without {
                break;
            }
        }
        assert!(again * 2 < without, "{law:?}: {again} segments sent again, {without} without");
        assert!(goodput > 0.88, "{law:?}: {goodput:.3} of the link");
    }
    // Where nothing translates any more connections go on as before.
    assert_eq!(play(&world, &marker).marked, 0);
}

/// Packets that the bottleneck dropped so far.
fn dropped(world: &World) -> u64 {
    let text = world.tc("switch", "-s qdisc show dev sw2");
    let (_, rest) = text.split_once("(dropped ").expect("a count");
    rest.split(',').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// What an honest connection and one that knows no window come to side by side, and what the link
/// dropped meanwhile.
fn beside_a_deaf_one(world: &World, marker: &Marker, ports: [u16; 2]) -> ([Played; 2], u64) {
    let before = dropped(world);
    let ends = ports.map(|port| world.tcp_at(port));
    let played = std::thread::scope(|scope| {
        let running = ends.map(|ends| scope.spawn(|| speak(ends, marker)));
        running.map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    (played, dropped(world) - before)
}

#[test]
fn a_guest_that_ignores_its_window_loses_the_excess_at_its_port_and_not_on_the_link() {
    const SLACK: u32 = 3_000;
    const DEAF: u16 = 9_002;
    let (world, marker) = world("0", "60000");
    let guest = index(&world, "vm1", c"eth0");
    let _deaf = world.inside("vm1", || deaf::make_deaf(guest, DEAF, deaf::WINDOWS));

    // The best of several, for both: a CPU that stands still has queues overflow.
    let best = |slack: u32| {
        let mut plays = Vec::new();
        for _ in 0..TRIES {
            let ports = ["host1", "host2"]
                .map(|host| Translated::new(&world, host, Law::VirtualEcn, slack));
            let ([honest, deaf], drops) = beside_a_deaf_one(&world, &marker, [9_001, DEAF]);
            let [from, to] = ports.each_ref().map(Translated::counters);
            println!("slack {slack}: {drops} dropped, {from:?}: {honest:?}, deaf {deaf:?}");
            assert_eq!((to.policed, from.unedited), (0, 0), "a receiver is not policed");
            plays.push((honest.again, drops, from.policed, honest.goodput));
        }
        plays.into_iter().min_by_key(|(again, ..)| *again).expect("some were played")
    };
    let (_, drops, policed, goodput) = best(ANY_SLACK);
    assert!(drops > 5 && policed == 0, "the queue overflows: {drops}");
    assert!(goodput < 0.4, "the honest guest has little of the link: {goodput:.3}");
    let (again, _, policed, goodput) = best(SLACK);
    assert!(policed > 10, "{policed} segments were beyond window and slack");
    assert_eq!(again, 0, "the honest guest loses nothing");
    assert!(goodput > 0.6, "{goodput:.3} of the link");
}

/// A world whose guests ask for ECN, or neither ask nor agree.
fn world(ecn: &str, limit: &str) -> (World, Marker) {
    let world = World::new();
    for vm in ["vm1", "vm2"] {
        world.inside(vm, || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", ecn).unwrap());
    }
    world.bottleneck("20mbit", limit);
    let interface = index(&world, "switch", c"sw2");
    let port = MarkingPort { interface, rate: RATE, threshold: Bytes::new(15_000) };
    let marker = world.inside("switch", || Marker::open(&[port])).unwrap();
    (world, marker)
}

/// Chooses a sender's congestion control.
fn choose(sender: &TcpStream, name: &str) {
    let (fd, length) = (sender.as_raw_fd(), name.len() as u32);
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    // SAFETY: a live socket; the name is as long as it is said to be.
    let ret = unsafe { libc::setsockopt(fd, level, option, name.as_ptr().cast(), length) };
    assert_eq!(ret, 0, "choosing {name}");
}

#[test]
fn guests_that_heed_ecn_are_never_found_deaf_whatever_else_they_lose() {
    // A queue that marks alone, and one that overflows, too.
    for (limit, overflows) in [("60000", false), ("12000", true)] {
        let (world, marker) = world("1", limit);
        let mut lost = 0;
        for name in ["cubic", "reno"] {
            let ports = ["host1", "host2"].map(|host| Translated::new(&world, host, Law::Auto, 0));
            let (ends, before) = (world.tcp(), dropped(&world));
            choose(&ends.0, name);
            let played = speak(ends, &marker);
            lost += dropped(&world) - before;
            let [from, to] = ports.each_ref().map(Translated::counters);
            println!("{limit} {name}: {played:?}, {lost} lost, {from:?}");
            assert!(played.marked > 10, "{name}: {played:?}");
            assert!(played.options.iter().all(|options| options & ECN != 0), "{played:?}");
            assert_eq!([from.speaking, to.speaking], [1; 2], "{from:?}");
            assert_eq!([from.found, to.found, from.edited, to.edited], [0; 4], "{from:?}");
        }
        assert!(!overflows || lost > 0, "the queue of {limit} octets overflows");
    }
}

#[test]
fn a_guest_that_agrees_on_ecn_and_never_hears_of_marks_is_found_by_auto() {
    const DEAF: u16 = 9_002;
    let (world, marker) = world("1", "60000");
    let guest = index(&world, "vm1", c"eth0");
    let _deaf = world.inside("vm1", || deaf::make_deaf(guest, DEAF, deaf::MARKS));
    let best = |law: Law| {
        let mut plays = Vec::new();
        for _ in 0..TRIES {
            let ports = ["host1", "host2"].map(|host| Translated::new(&world, host, law, 0));
            let ([honest, deaf], drops) = beside_a_deaf_one(&world, &marker, [9_001, DEAF]);
            let from = ports[0].counters();
            println!("{law:?}: {drops} dropped, {from:?}: {honest:?}, deaf {deaf:?}");
            assert_eq!((from.policed, from.unedited), (0, 0));
            let most = u64::from(law == Law::Auto);
            assert!(from.found <= most, "{law:?}: its neighbour is not deaf: {from:?}");
            plays.push((deaf.again, honest.goodput, from.lowered, from.found));
        }
        plays.into_iter().min_by_key(|(again, ..)| *again).expect("some were played")
    };
    let (before, goodput, lowered, found) = best(Law::VirtualEcn);
    assert_eq!((lowered, found), (0, 0), "guests that speak ECN are taken at their word");
    assert!(before > 5 && goodput < 0.3, "the greedy one fills the queue: {before}, {goodput:.3}");
    let (again, part, lowered, found) = best(Law::Auto);
    assert_eq!(found, 1, "the deaf one");
    assert!(again * 4 < before, "it is told in another way: {again} of {before} sent again");
    assert!(lowered > 100, "{lowered} windows");
    assert!(
        part > 1.3 * goodput,
        "the guest that answers marks has more: {part:.3}, {goodput:.3} before"
    );
}
