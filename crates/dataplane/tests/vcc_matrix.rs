//! Guests of this kernel with all their options, with vCC on their ports and without: each two of
//! what guests, their devices and the link between them may be occur together at least once. A
//! connection carries data both ways, of which each octet is looked at. Needs root, and fails
//! without.
//!
//! Not here: guests of other kernels, and DCTCP, which not all kernels have.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

use crate::translated;

use crate::net::World;
use crate::offload::{GRO, TSO, TX_CHECKSUMS, offload};
use crate::random::Random;
use crate::sequential::Rule;
use crate::translated::{Translated, index, info};
use crate::wire::{Ills, Wire};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weir_dataplane::mark::{Marker, MarkingPort};
use weir_dataplane::vcc::Law;
use weir_dataplane::vcc::intf::Counters;
use weir_units::{Bytes, Rate};

/// What may differ, and how.
const FACTORS: [(&str, &[&str]); 10] = [
    ("link", &["plain", "far", "lossy", "reordering", "marking"]),
    ("congestion control", &["cubic", "reno", "bbr"]),
    ("ECN", &["neither", "both", "who connects"]),
    ("frames", &["super-packets", "cut by the stack", "single", "summed by the stack"]),
    ("GRO", &["on", "off"]),
    ("SACK", &["on", "off"]),
    ("window scale", &["on", "off"]),
    ("timestamps", &["on", "off"]),
    ("IP", &["4", "6"]),
    ("law", &["virtual-ecn", "dctcp", "cubic-ecn"]),
];
const LINK: usize = 0;
const RATE: Rate = Rate::from_mbps(50);
/// Each way, in one play.
const OCTETS: usize = 1_500_000;
/// Nothing came for so long: a stall. Four timers in a row (200 to 1600 ms) are bad luck.
const STALL: Duration = Duration::from_secs(4);
/// Pairs of plays, without translation and with it, at most; [`Rule`] says when there are enough of
/// them.
const PAIRS_MOST: usize = 31;
/// Pairs of plays where marks are answered, which are not compared.
const PAIRS_MARKED: usize = 3;
/// Of what connections without translation carry, where nothing marks: the median of all that there
/// could be.
const LEAST: f64 = 0.95;
/// Guests send again after so long at the earliest, where nothing marks: a play lasts for a quarter
/// of a second, and with Linux's 200 ms chance would make one half as fast as another.
const TIMER: &str = "50ms";

/// A level of each factor.
type Case = [usize; FACTORS.len()];
/// Two factors and a level of each.
type Two = [(usize, usize); 2];

fn level(case: &Case, factor: &str) -> &'static str {
    let at = FACTORS.iter().position(|(name, _)| *name == factor).expect("a factor");
    FACTORS[at].1[case[at]]
}

fn named(case: &Case) -> String {
    let words =
        FACTORS.iter().zip(case).map(|((name, levels), at)| format!("{name}: {}", levels[*at]));
    words.collect::<Vec<_>>().join(", ")
}

fn twos(case: &Case) -> impl Iterator<Item = Two> + '_ {
    let all = 0..FACTORS.len();
    all.clone().flat_map(move |a| (a + 1..all.end).map(move |b| [(a, case[a]), (b, case[b])]))
}

/// Cases in which all twos occur: the best of some random ones, until none is missing.
fn cases() -> Vec<Case> {
    let mut random = Random(2);
    let mut any = || FACTORS.map(|(_, levels)| random.below(levels.len() as u64) as usize);
    let mut seen = BTreeSet::<Two>::new();
    let mut cases = Vec::new();
    for (a, (_, of_a)) in FACTORS.iter().enumerate() {
        for (b, (_, of_b)) in FACTORS.iter().enumerate().skip(a + 1) {
            for two in (0..of_a.len()).flat_map(|x| (0..of_b.len()).map(move |y| [(a, x), (b, y)]))
            {
                if seen.contains(&two) {
                    continue;
                }
                let with_it = (0..200).map(|_| {
                    let mut case = any();
                    two.iter().for_each(|(factor, level)| case[*factor] = *level);
                    case
                });
                let new = |case: &Case| twos(case).filter(|two| !seen.contains(two)).count();
                let best = with_it.max_by_key(new).expect("some");
                seen.extend(twos(&best));
                cases.push(best);
            }
        }
    }
    cases
}

#[test]
fn each_two_of_what_guests_may_be_occur_together() {
    let (cases, mut seen) = (cases(), BTreeSet::new());
    cases.iter().for_each(|case| seen.extend(twos(case)));
    let sizes = FACTORS.map(|(_, levels)| levels.len());
    let wanted: usize =
        (0..sizes.len()).flat_map(|a| (0..a).map(move |b| sizes[a] * sizes[b])).sum();
    assert_eq!(seen.len(), wanted);
    assert!(cases.len() < 30, "{} cases take too long", cases.len());
}

/// Octets of a stream, with a period that no segment's length divides: the two ways have different
/// ones.
fn octets(way: usize, at: usize, length: usize) -> &'static [u8] {
    const PERIOD: usize = 65_521;
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut random = Random(3);
        let once: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
        [once.clone(), once].concat()
    });
    let from = (at + way * 30_011) % PERIOD;
    &all[from..from + length]
}

/// Reads all that the other end sends: when the last of it came, and how long nothing did at most.
fn read_all(mut socket: &TcpStream, way: usize) -> (Instant, Duration) {
    let (mut chunk, mut at) = (vec![0; 1 << 15], 0);
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while at < OCTETS {
        let n = socket.read(&mut chunk).expect("the connection stands, and does not stall");
        assert_ne!(n, 0, "it ended after {at} of {OCTETS} octets");
        assert!(chunk[..n] == *octets(way, at, n), "{n} octets from {at} on are what was sent");
        at += n;
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    (last, longest)
}

fn write_all(mut socket: &TcpStream, way: usize) {
    for at in (0..OCTETS).step_by(1 << 14) {
        let length = (OCTETS - at).min(1 << 14);
        socket.write_all(octets(way, at, length)).expect("the connection stands");
    }
}

/// What one connection came to.
struct Played {
    /// Of the link, the mean of both ways.
    goodput: f64,
    longest: Duration,
    options: [u8; 2],
}

fn is_chosen(socket: &impl AsRawFd, congestion: &str) -> bool {
    let (name, length) = (congestion.as_ptr().cast(), congestion.len() as u32);
    let (fd, tcp) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
    // SAFETY: a live socket; the name is as long as it is said to be.
    unsafe { libc::setsockopt(fd, tcp, libc::TCP_CONGESTION, name, length) == 0 }
}

/// The two ends of a new connection from VM 1 to VM 2.
fn connect(world: &World, case: &Case, port: u16) -> [TcpStream; 2] {
    let ip = if level(case, "IP") == "4" { "10.0.0.2" } else { "fd00::2" };
    let to = SocketAddr::new(ip.parse().expect("an address"), port);
    let listener = world.inside("vm2", || TcpListener::bind(to).unwrap());
    let most = libc::timeval { tv_sec: 10, tv_usec: 0 };
    let (fd, length) = (listener.as_fd().as_raw_fd(), size_of::<libc::timeval>() as u32);
    // SAFETY: a live socket, and a time of the kernel's size that outlives the call.
    let set = unsafe {
        let most = (&raw const most).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, most, length)
    };
    assert_eq!(set, 0, "accepting may take ten seconds");
    let from = world.inside("vm1", || TcpStream::connect_timeout(&to, Duration::from_secs(10)));
    let ends = [from.expect("it connects"), listener.accept().expect("it is accepted").0];
    for end in &ends {
        assert!(is_chosen(end, level(case, "congestion control")), "{}", named(case));
        end.set_read_timeout(Some(STALL)).unwrap();
        end.set_write_timeout(Some(2 * STALL)).unwrap();
    }
    ends
}

/// Data both ways at once, until each end has all of it and the other's end.
fn play(world: &World, case: &Case, port: u16) -> Played {
    let [from, to] = connect(world, case, port);
    let began = Instant::now();
    let read = std::thread::scope(|scope| {
        let (from, to) = (&from, &to);
        scope.spawn(move || write_all(from, 0));
        scope.spawn(move || write_all(to, 1));
        let reading =
            [scope.spawn(move || read_all(to, 0)), scope.spawn(move || read_all(from, 1))];
        reading.map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    });
    let options = [&from, &to].map(|end| info(end).tcpi_options);
    for end in [&from, &to] {
        end.shutdown(std::net::Shutdown::Write).expect("it still stands");
    }
    for mut end in [&from, &to] {
        assert_eq!(end.read(&mut [0]).expect("it is not reset"), 0, "nothing comes after all");
    }
    let goodput =
        |last: Instant| OCTETS as f64 * 8.0 / (last - began).as_secs_f64() / RATE.as_bps() as f64;
    Played {
        goodput: read.iter().map(|(last, _)| goodput(*last)).sum::<f64>() / 2.0,
        longest: read.iter().map(|(_, longest)| *longest).max().expect("two ways"),
        options,
    }
}

/// Makes the VMs, their devices and ports what a case says.
fn prepare(world: &World, case: &Case) {
    let frames = level(case, "frames");
    for (n, vm) in ["vm1", "vm2"].into_iter().enumerate() {
        let asks = match level(case, "ECN") {
            "both" => "1",
            "who connects" if n == 0 => "1",
            _ => "0",
        };
        let on = |factor| if level(case, factor) == "on" { "1" } else { "0" };
        let settings = [
            ("tcp_ecn", asks),
            ("tcp_sack", on("SACK")),
            ("tcp_window_scaling", on("window scale")),
            ("tcp_timestamps", on("timestamps")),
            // Nothing is to be remembered of the case before.
            ("tcp_no_metrics_save", "1"),
        ];
        let write = |(name, value): (&str, &str)| {
            std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap();
        };
        world.inside(vm, || settings.into_iter().for_each(write));
        offload(world, vm, "eth0", TX_CHECKSUMS, frames != "summed by the stack");
        offload(world, vm, "eth0", TSO, frames == "super-packets");
        let most = if frames == "single" { 1 } else { 65_535 };
        world.ip(vm, &format!("link set eth0 gso_max_segs {most}"));
        let gro = level(case, "GRO") == "on";
        offload(world, vm, "eth0", GRO, gro);
        offload(world, &format!("host{}", n + 1), "uplink", GRO, gro);
    }
}

/// Whether the guests agreed on what the case says, and on no more.
fn assert_agreed(case: &Case, played: &Played, is_translated: bool) {
    let [from, to] = played.options.map(|options| {
        let mine = [translated::STAMPS, translated::SACK, translated::SCALE, translated::ECN];
        mine.map(|option| options & option != 0)
    });
    let on = |factor| level(case, factor) == "on";
    let ecn = match level(case, "ECN") {
        "both" => [true; 2],
        // A listening guest knows none, and its port answers for it.
        "who connects" => [is_translated, false],
        _ => [false; 2],
    };
    for (got, ecn) in [from, to].iter().zip(ecn) {
        let wanted = [on("timestamps"), on("SACK"), on("window scale"), ecn];
        // A SYN that was lost twice is the last one that asks for ECN.
        let is_lossy = level(case, "link") == "lossy";
        assert!(got[..3] == wanted[..3] && (is_lossy || got[3] == ecn), "{got:?}: {}", named(case));
    }
}

/// What a port did for one connection, by its counters before and after.
fn assert_translated(case: &Case, n: usize, before: &Counters, after: &Counters) {
    let did =
        [after.agreed - before.agreed, after.speaking - before.speaking, after.deaf - before.deaf];
    let wanted = match (level(case, "ECN"), n) {
        ("neither", _) | ("who connects", 1) => [1, 0, 0],
        _ => [0, 1, 0],
    };
    let is_lossy = level(case, "link") == "lossy";
    assert!(did == wanted || is_lossy, "port {n} did {did:?}: {}", named(case));
    let hidden = after.hidden - before.hidden;
    if wanted == [1, 0, 0] && level(case, "link") == "marking" {
        assert!(hidden > 0, "port {n} hid no mark: {}", named(case));
    }
    let none = |after: u64, before: u64| assert_eq!(after, before, "{}", named(case));
    none(after.malformed, before.malformed);
    none(after.unedited, before.unedited);
    none(after.alone, before.alone);
}

fn median(ratios: &[f64]) -> f64 {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn law(case: &Case) -> Law {
    match level(case, "law") {
        "virtual-ecn" => Law::VirtualEcn,
        "dctcp" => Law::Dctcp,
        _ => Law::CubicEcn,
    }
}

/// Plays a case with translation and without, in turn.
fn play_case(
    world: &World,
    wire: Option<&Wire>,
    ports: &[Translated; 2],
    case: &Case,
    rule: &Rule,
    port: &mut u16,
) {
    prepare(world, case);
    let is_marking = level(case, "link") == "marking";
    let (mut ratios, mut goodputs) = (Vec::new(), Vec::new());
    let is_enough = loop {
        let pair = ratios.len();
        let mut goodput = [0.0; 2];
        for turn in 0..2 {
            let is_translated = (pair + turn) % 2 == 1;
            let before = ports.each_ref().map(Translated::counters);
            ports
                .iter()
                .for_each(|port| if is_translated { port.set(law(case)) } else { port.unset() });
            wire.into_iter().for_each(|wire| wire.again(1 + pair as u64));
            *port += 1;
            let played = play(world, case, *port);
            assert!(played.longest < STALL, "nothing for {:?}: {}", played.longest, named(case));
            assert_agreed(case, &played, is_translated);
            for (n, before) in before.iter().enumerate().filter(|_| is_translated) {
                assert_translated(case, n, before, &ports[n].counters());
            }
            goodput[usize::from(is_translated)] = played.goodput;
        }
        ratios.push(goodput[1] / goodput[0]);
        goodputs.push(goodput.map(|g| (g * 1000.0).round() / 1000.0));
        let decided = if is_marking {
            (ratios.len() == PAIRS_MARKED).then_some(true)
        } else {
            rule.decides(&ratios)
        };
        if let Some(is_enough) = decided {
            break is_enough;
        }
    };
    let (ratio, pairs) = (median(&ratios), ratios.len());
    println!("{ratio:.3} of {pairs} pairs, {goodputs:?}: {}", named(case));
    assert!(is_enough, "{ratio:.3} of what it is without translation: {}", named(case));
}

/// All cases with one kind of link.
fn play_all(link: &str, ills: Option<Ills>) {
    let world = World::beside_others();
    for n in [1, 2] {
        let vm = format!("vm{n}");
        world.ip(&vm, &format!("addr add fd00::{n}/64 dev eth0 nodad"));
        if link != "marking" {
            for own in [
                format!("route replace 10.0.0.0/24 dev eth0 scope link src 10.0.0.{n}"),
                "-6 route replace fd00::/64 dev eth0 metric 256".to_owned(),
            ] {
                world.ip(&vm, &format!("{own} proto kernel rto_min {TIMER}"));
            }
        }
        // 10 ms of the link's rate.
        let shape = format!("qdisc add dev sw{n} root tbf rate 50mbit burst 20k limit 62500");
        world.tc("switch", &shape);
    }
    let wire = ills.map(|ills| Wire::cut(&world, ills));
    let marker = (link == "marking").then(|| {
        let ports = [c"sw1", c"sw2"].map(|name| MarkingPort {
            interface: index(&world, "switch", name),
            rate: RATE,
            threshold: Bytes::new(30_000),
        });
        world.inside("switch", || Marker::open(&ports)).unwrap()
    });
    let ports = ["host1", "host2"].map(|host| Translated::load(&world, host));
    let (mut port, rule) = (10_000, Rule::new(LEAST, PAIRS_MOST));
    let mine = cases().into_iter().filter(|case| FACTORS[LINK].1[case[LINK]] == link);
    for mut case in mine {
        without_bbr(&world, &mut case);
        play_case(&world, wire.as_ref(), &ports, &case, &rule, &mut port);
    }
    if let Some(marker) = marker {
        assert!(marker.marks(0).unwrap().marked > 100 && marker.marks(1).unwrap().marked > 100);
    }
    if let (Some(wire), Some(ills)) = (wire, ills) {
        let [lost, overtaken] = wire.suffered();
        assert_eq!((lost > 100, overtaken > 100), (ills.lost_of > 0, ills.late_of > 0));
    }
}

/// Where a kernel has no BBR its cases are CUBIC's: said, and a failure where all kernels should
/// have it.
fn without_bbr(world: &World, case: &mut Case) {
    let has = world.inside("vm1", || {
        let socket = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        is_chosen(&socket, level(case, "congestion control"))
    });
    if !has {
        assert!(std::env::var_os("CI").is_none(), "kernels of CI have BBR (CONFIG_TCP_CONG_BBR)");
        println!("This kernel has no BBR (modprobe tcp_bbr): CUBIC in its place.");
        case[1] = 0;
    }
}

#[test]
fn on_a_plain_link_a_translation_costs_no_connection_anything() {
    play_all("plain", None);
}

#[test]
fn over_ten_milliseconds_a_translation_costs_no_connection_anything() {
    play_all("far", Some(Ills { delay: Duration::from_millis(5), ..Ills::default() }));
}

#[test]
fn where_one_of_a_hundred_frames_is_lost_a_translation_costs_no_connection_anything() {
    let delay = Duration::from_micros(500);
    play_all("lossy", Some(Ills { delay, lost_of: 100, ..Ills::default() }));
}

#[test]
fn where_frames_overtake_each_other_a_translation_costs_no_connection_anything() {
    let (delay, late) = (Duration::from_micros(500), Duration::from_millis(1));
    play_all("reordering", Some(Ills { delay, late_of: 50, late, ..Ills::default() }));
}

#[test]
fn on_a_link_that_marks_all_that_is_sent_arrives() {
    play_all("marking", None);
}
