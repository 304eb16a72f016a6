//! Guests that ignore ECN behind agents that speak it for them: on a link that marks, while it is
//! switched on and off, through an agent's death, beside a VM that opens connections by the
//! thousand, and where it cannot be had. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{Guest, add_c, reload};
use crate::common::{Agent, StopAtEnd, World, pause, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use weir_dataplane::attach::Interface;
use weir_dataplane::mark::{Marker, MarkingPort};
use weir_model::status::Translation;
use weir_units::{Bytes, Rate};

/// Below the pair's floor: the switch alone is what is too small.
const LINK: Rate = Rate::from_mbps(15);
/// As many at once: one alone takes seconds from loss to loss.
const CONNECTIONS: u16 = 4;
const LASTS: Duration = Duration::from_secs(5);
/// Slow start is over then: it may overshoot any queue, before the first mark can be heard.
const SETTLED: Duration = Duration::from_secs(1);

/// Guests that neither ask for ECN nor agree on it.
fn without_ecn(world: &World) {
    for vm in ["vm1", "vm2"] {
        world.inside(vm, || fs::write("/proc/sys/net/ipv4/tcp_ecn", "0").unwrap());
    }
}

/// A port toward host 2 that holds 40 kB, and marks above 15 kB.
fn marking(world: &World) -> Marker {
    world.tc("switch", "qdisc add dev sw2 root tbf rate 15mbit burst 20k limit 40000");
    world.inside("switch", || {
        let interface = Interface::find("sw2").unwrap().index;
        let threshold = Bytes::new(15_000);
        Marker::open(&[MarkingPort { interface, rate: LINK, threshold }]).unwrap()
    })
}

/// Says in host `n`'s file what its first VM's connections shall follow; `none` by silence.
fn ask(world: &World, n: u32, translation: Option<&str>) {
    let file = world.dir.join(format!("host{n}.toml"));
    let text = fs::read_to_string(&file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("translation ="));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    let at = lines.iter().position(|line| line == "port = \"port\"").expect("a VM") + 1;
    let wish = translation.map(|translation| format!("translation = {translation:?}"));
    lines.splice(at..at, wish);
    fs::write(&file, lines.join("\n") + "\n").unwrap();
}

/// Says beside that translation how far its guest may send beyond its window.
fn police(world: &World, n: u32, slack: &str) {
    let file = world.dir.join(format!("host{n}.toml"));
    let text = fs::read_to_string(&file).unwrap();
    let at = text.find("translation =").expect("one before");
    let (before, rest) = text.split_at(at);
    fs::write(&file, format!("{before}policing = {slack:?}\n{rest}")).unwrap();
}

fn told(agent: &Agent<'_>, vm: &str) -> Translation {
    let all = agent.top().translations;
    all.iter().find(|one| one.vm == vm).unwrap_or_else(|| panic!("{vm} in {all:?}")).clone()
}

/// Both ends of a connection from VM 1 to VM 2.
fn connect(world: &World, port: u16) -> (TcpStream, TcpStream) {
    let listener = world.inside("vm2", || TcpListener::bind(("10.0.0.2", port)).unwrap());
    let from = world.inside("vm1", || TcpStream::connect(("10.0.0.2", port)).unwrap());
    (from, listener.accept().unwrap().0)
}

/// Octets there and back.
fn speak(from: &TcpStream, to: &TcpStream) {
    for (mut a, mut b) in [(from, to), (to, from)] {
        a.write_all(&[7; 20_000]).unwrap();
        let mut octets = [0; 20_000];
        b.read_exact(&mut octets).unwrap();
        assert_eq!(octets, [7; 20_000]);
    }
}

/// The octet at a place of the stream: without a period that segments have.
const fn octet(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Plays `during` while as much is sent as the connections take; every octet is looked at. How many
/// came.
fn stream<T>(all: Vec<(TcpStream, TcpStream)>, during: impl FnOnce() -> T) -> (u64, T) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &stop;
        let start = |(from, to)| {
            (scope.spawn(move || send(from, is_over)), scope.spawn(move || receive(to)))
        };
        let running: Vec<_> = all.into_iter().map(start).collect();
        let ended = StopAtEnd(is_over);
        let result = during();
        drop(ended);
        let finish = |(writer, reader): (ScopedJoinHandle<'_, u64>, ScopedJoinHandle<'_, u64>)| {
            let sent = writer.join().unwrap();
            assert_eq!(reader.join().unwrap(), sent, "all of it came");
            sent
        };
        (running.into_iter().map(finish).sum(), result)
    })
}

fn send(mut from: TcpStream, is_over: &AtomicBool) -> u64 {
    let mut at = 0;
    while !is_over.load(Ordering::Relaxed) {
        let chunk: Vec<u8> = (at..at + 16_384).map(octet).collect();
        from.write_all(&chunk).expect("the connection stands");
        at += 16_384;
    }
    at
}

fn receive(mut to: TcpStream) -> u64 {
    let (mut chunk, mut at) = (vec![0; 1 << 16], 0);
    loop {
        let n = to.read(&mut chunk).expect("reads");
        if n == 0 {
            return at;
        }
        for got in &chunk[..n] {
            assert_eq!(*got, octet(at), "octet {at} of the stream");
            at += 1;
        }
    }
}

/// Packets that the bottleneck dropped so far.
fn dropped(world: &World) -> u64 {
    let text = world.tc("switch", "-s qdisc show dev sw2");
    let (_, rest) = text.split_once("(dropped ").expect("a count");
    rest.split(',').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// What a few connections lose once they have settled, and the marks in that time.
fn losses(world: &World, marker: &Marker) -> (u64, u64) {
    let ends = (0..CONNECTIONS).map(|n| connect(world, 9001 + n)).collect();
    let counts = || (dropped(world), marker.marks(0).unwrap().marked);
    let (octets, (before, after)) = stream(ends, || {
        let began = Instant::now();
        pause(SETTLED.as_millis() as u64);
        let before = counts();
        pause((LASTS - began.elapsed()).as_millis() as u64);
        (before, counts())
    });
    let goodput = octets as f64 * 8.0 / LASTS.as_secs_f64() / LINK.as_bps() as f64;
    println!("{before:?} {after:?}, {goodput:.3} of the link");
    assert!(goodput > 0.5, "{goodput:.3} of the link");
    (after.0 - before.0, after.1 - before.1)
}

/// Until the pair may send more than the bottleneck carries.
fn begin(world: &World, sender: &Agent<'_>) {
    stream(vec![connect(world, 9000)], || {
        until("a floor", 15, || sender.pair().is_some_and(|pair| pair.floor_bps > 15_500_000));
    });
}

/// The pair's floor exceeds the link, so marks cut no window: the translation is in force, no guest
/// sees the marks, and the pair has what it had. What a translation saves where floors fit is
/// dataplane's to test
/// (`guests_that_ignore_ecn_lose_nothing_on_a_link_that_marks_once_their_ports_translate`).
#[test]
fn a_translation_takes_nothing_from_a_pair_whose_floor_exceeds_the_link() {
    let world = World::new();
    without_ecn(&world);
    let marker = marking(&world);
    let (one, two) = (world.start(1), world.start(2));
    begin(&world, &one);
    let (drops, marked) = losses(&world, &marker);
    assert!(drops > 5, "the queue overflows: {drops}");
    assert_eq!(marked, 0, "nothing is capable");

    for (n, agent) in [(1, &one), (2, &two)] {
        ask(&world, n, Some("virtual-ecn"));
        reload(agent);
    }
    // It asserts half of the link for the connections.
    let (_, marked) = losses(&world, &marker);
    assert!(marked > 10, "{marked} marks on what is capable now");
    let (a, b) = (told(&one, "a"), told(&two, "b"));
    let connections = u64::from(CONNECTIONS);
    assert_eq!((a.to.as_str(), a.refused.as_ref(), a.unedited), ("virtual-ecn", None, 0));
    assert_eq!((a.connections, a.agreed, b.agreed), (connections, connections, connections));
    // The pair gets no more than its offer, so its marks are taken off before the translation sees
    // them, but for those before the first offer.
    assert!(b.marks_hidden < marked / 2, "{marked} {a:?} {b:?}");
    let reasons = one.explain();
    let is_said = |reason: &String| reason.starts_with("The connections of a follow virtual-ecn");
    assert!(reasons.iter().any(is_said), "{reasons:?}");
}

#[test]
fn a_connection_keeps_what_it_began_with_while_it_is_switched_and_its_agent_dies() {
    let world = World::new();
    without_ecn(&world);
    for n in [1, 2] {
        ask(&world, n, Some("cubic-ecn"));
    }
    let before = world.snapshot("host1");
    let (mut one, _two) = (world.start(1), world.start(2));
    let old = connect(&world, 9001);
    speak(&old.0, &old.1);
    let first = told(&one, "a");
    assert_eq!((first.connections, first.agreed), (1, 1), "{first:?}");

    ask(&world, 1, None);
    reload(&one);
    let late = connect(&world, 9002);
    speak(&old.0, &old.1);
    speak(&late.0, &late.1);
    let off = told(&one, "a");
    assert_eq!((off.to.as_str(), off.connections), ("none", 1), "{off:?}");
    assert!(off.edited > first.edited && off.left_alone.unknown_segments > 4, "{off:?}");

    // Killed in the middle of it, with its guardian: only the programs are left.
    one.kill_with_guardian();
    speak(&old.0, &old.1);
    one = world.start(1);
    speak(&old.0, &old.1);
    let again = told(&one, "a");
    assert_eq!((again.to.as_str(), again.connections), ("none", 1), "{again:?}");
    assert!(again.edited > off.edited + 4, "{off:?} {again:?}");

    ask(&world, 1, Some("dctcp"));
    police(&world, 1, "3kB");
    reload(&one);
    assert!(!one.log().contains("policing"), "{}", one.log());
    let new = connect(&world, 9003);
    for ends in [&old, &late, &new] {
        speak(&ends.0, &ends.1);
    }
    let on = told(&one, "a");
    assert_eq!((on.to.as_str(), on.connections, on.agreed), ("dctcp", 2, 2), "{on:?}");
    assert_eq!(on.policed, 0, "who keeps to its window loses nothing");
    one.stop();
    assert_eq!(world.snapshot("host1"), before, "nothing stays");
    speak(&late.0, &late.1);
}

#[test]
fn a_vm_that_opens_thousands_of_connections_takes_no_place_of_anothers() {
    const PLACES: u64 = 256;
    let world = World::new();
    without_ecn(&world);
    let _guest = Guest::new(&world, 1);
    add_c(&world);
    for n in [1, 2] {
        ask(&world, n, Some("virtual-ecn"));
    }
    let file = world.dir.join("host1.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("port = \"port3\"", "port = \"port3\"\ntranslation = \"virtual-ecn\"");
    fs::write(&file, format!("flows_per_vm = {PLACES}\n{text}")).unwrap();
    let (one, _two) = (world.start(1), world.start(2));
    let quiet = connect(&world, 9001);
    speak(&quiet.0, &quiet.1);
    let before = told(&one, "a");
    // To a port where nothing listens: each is a SYN and an answer, and takes a place.
    world.inside("vm3", || {
        for _ in 0..8 * PLACES {
            let refused = TcpStream::connect(("10.0.0.2", 7)).expect_err("nobody listens");
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
    let flood = told(&one, "c");
    assert!(flood.connections >= 8 * PLACES, "{flood:?}");
    speak(&quiet.0, &quiet.1);
    let after = told(&one, "a");
    assert_eq!(after.left_alone.unknown_segments, before.left_alone.unknown_segments, "{after:?}");
    assert!(after.edited > before.edited, "{before:?} {after:?}");
}

#[test]
fn a_translation_that_cannot_be_had_is_told_with_the_reason_and_floors_stand() {
    let world = World::new();
    ask(&world, 1, Some("virtual-ecn"));
    for n in [1, 2] {
        let file = world.dir.join(format!("host{n}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        let marks = "{ name = \"elasticswitch\", preset = \"steady-ecn\",";
        fs::write(&file, text.replace("{ name = \"elasticswitch\",", marks)).unwrap();
    }
    let (one, _two) = (world.start(1), world.start(2));
    let told = told(&one, "a");
    let why = told.refused.expect("refused");
    assert!(why.contains("marks are the mechanism's own signal"), "{why}");
    assert!(one.log().contains("the translation of vm a is refused: marks are"), "{}", one.log());
    stream(vec![connect(&world, 9001)], || {
        until("the rest goes on", 10, || one.pair().is_some_and(|pair| pair.floor_bps > 5_000_000));
    });
    let reasons = one.explain();
    let is_said = |reason: &String| reason.contains("virtual-ecn, refused: marks are");
    assert!(reasons.iter().any(is_said), "{reasons:?}");
    // What is no translation at all is a mistake of the file: said with its line, and nothing
    // changes.
    ask(&world, 1, Some("ecn"));
    reload(&one);
    assert!(one.log().contains("unknown variant `ecn`"), "{}", one.log());
    assert_eq!(one.top().translations[0].to, "virtual-ecn");
    // Policing without it is one, too.
    ask(&world, 1, None);
    let text = fs::read_to_string(world.dir.join("host1.toml")).unwrap();
    let policed = text.replace("port = \"port\"", "port = \"port\"\npolicing = \"3kB\"");
    fs::write(world.dir.join("host1.toml"), policed).unwrap();
    reload(&one);
    assert!(one.log().contains("vm `a` has no translation, so its port"), "{}", one.log());
    fs::write(world.dir.join("host1.toml"), text).unwrap();
    // And what is not asked for any more is not refused.
    reload(&one);
    assert_eq!(one.top().translations, []);
    assert!(one.log().contains("no translation of vm a is refused any more"), "{}", one.log());
}
