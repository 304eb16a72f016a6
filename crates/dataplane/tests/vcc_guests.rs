//! Guests of this kernel that ignore ECN, on a link that marks, with vCC on their ports and without: their own
//! stacks, super-packets and checksums that devices are to compute. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

#[path = "common/net.rs"]
mod net;
#[path = "common/translated.rs"]
mod translated;

use net::World;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use translated::{Translated, index, info};
use weir_dataplane::mark::{Marker, MarkingPort};
use weir_dataplane::vcc::Law;
use weir_units::{Bytes, Rate};

const RATE: Rate = Rate::from_mbps(20);
const LASTS: Duration = Duration::from_secs(4);
/// Slow start is over then: it may overshoot any queue, before the first mark can be heard.
const SETTLED: Duration = Duration::from_secs(1);
/// Plays of which the best counts: a CPU that stands still takes from goodput and has segments sent again, never
/// the other way round.
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
    let before = marker.marks(0).unwrap().marked;
    let (mut sender, mut receiver) = world.tcp();
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
    let world = World::new();
    for vm in ["vm1", "vm2"] {
        world.inside(vm, || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "0").unwrap());
    }
    world.bottleneck("20mbit", "60000");
    let interface = index(&world, "switch", c"sw2");
    let port = MarkingPort { interface, rate: RATE, threshold: Bytes::new(15_000) };
    let marker = world.inside("switch", || Marker::open(&[port])).unwrap();

    // The best of as many, too: else stalls would make vCC look good.
    let bare = [(); TRIES].map(|()| play(&world, &marker));
    assert!(bare.iter().all(|played| played.marked == 0), "nothing is capable: {bare:?}");
    let without = bare.iter().map(|played| played.again).min().expect("some were played");
    assert!(without > 3, "the queue overflows: {bare:?}");

    for law in [Law::VirtualEcn, Law::Dctcp, Law::CubicEcn] {
        let (mut goodput, mut again) = (0.0, u32::MAX);
        for _ in 0..TRIES {
            let ports = ["host1", "host2"].map(|host| Translated::new(&world, host, law));
            let played = play(&world, &marker);
            println!("{law:?}: {played:?}; without {bare:?}");
            assert!(played.marked > 10, "{law:?}: {played:?}");
            let is_told = played.options.iter().any(|options| options & translated::ECN != 0);
            assert!(!is_told, "guests know nothing of it: {played:?}");
            let [from, to] = ports.each_ref().map(Translated::counters);
            assert!(from.lowered > 100, "{from:?}");
            assert!(to.edited > 100, "marks are hidden and echoed: {to:?}");
            assert_eq!([from.unedited, to.unedited, from.malformed, to.malformed], [0; 4]);
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
