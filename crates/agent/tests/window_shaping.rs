//! Connections that keep to their pair's rate by their windows: behind real agents, while connections and rates come and
//! go, while nobody looks, and beside the queue that shapes without. Needs root.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

mod common;
#[path = "../../dataplane/tests/common/random.rs"]
mod random;
#[path = "../../dataplane/tests/common/wire.rs"]
mod wire;
/// Where the wire looks for its world.
mod net {
    pub(crate) use super::common::World;
}

use common::guest::reload;
use common::tcp::{connect_from, say, speak, window_of};
use common::{Agent, World, pause, sh, until};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_model::status::Shaping;
use wire::{Ills, Wire};

/// What the pair has, in both senses: no law moves it.
const RATE: u64 = 20_000_000;

/// The pair has this rate, whatever it wants, and so have its acknowledgements; and windows for so long, if for any.
fn reserve(world: &World, time: Option<&str>) {
    for (n, from, to) in [(1, "a", "b"), (2, "b", "a")] {
        let file = world.dir.join(format!("host{n}.toml"));
        let mechanism = format!(
            "mechanism = {{ name = \"reservation\", reserve = [{{ from = {from:?}, to = {to:?}, rate = \"{RATE}bit\" }}] }}"
        );
        let text = fs::read_to_string(&file).unwrap();
        let line = |line: &str| match line.starts_with("mechanism =") {
            true => mechanism.clone(),
            false => line.to_owned(),
        };
        fs::write(&file, text.lines().map(line).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    }
    say(world, "window_shaping", time.map(|time| format!("{time:?}")));
}

fn told(agent: &Agent<'_>) -> Shaping {
    let all = agent.top().window_shaping;
    all.iter().find(|one| one.vm == "a").unwrap_or_else(|| panic!("a in {all:?}")).clone()
}

/// Live connections to b, and what each may have.
fn to_b(agent: &Agent<'_>) -> Option<(u32, Option<u32>)> {
    told(agent).pairs.iter().find(|pair| pair.to == "b").map(|pair| (pair.live, pair.window))
}

/// These connections send, and so many octets of window are each one's; a look is every 50 ms, and a machine that is busy
/// may be late.
fn expect(agent: &Agent<'_>, sending: &[&(TcpStream, TcpStream)], window: u32) {
    let wanted = Some((sending.len() as u32, Some(window)));
    until(&format!("{wanted:?}"), 8, || {
        sending.iter().for_each(|ends| speak(ends));
        to_b(agent) == wanted
    });
}

/// Rounded up to what a scaled window can say.
fn assert_shown(world: &World, port: u16, window: u32) {
    let shown = window_of(world, "vm1", port);
    assert!((window..window + 1_024).contains(&shown), "port {port}: {shown}, {window} wanted");
}

/// Sends for `lasts` as much as the connection takes: octets in a second of what came after a third of that, and the sender's
/// smoothed round trip at the end, ms. The connection stands afterwards.
fn bulk(
    world: &World,
    (from, to): &(TcpStream, TcpStream),
    port: u16,
    lasts: Duration,
) -> (f64, f64) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    // Nothing more may come while nobody knows that yet.
    to.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let sent = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sent, over) = (&sent, &is_over);
        let sender = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                from.write_all(&[7; 8_192]).unwrap();
                sent.fetch_add(8_192, Ordering::Relaxed);
            }
        });
        let (begin, mut came, mut counted, mut octets) = (Instant::now(), 0, 0, vec![0; 1 << 16]);
        let mut trip = 0.0;
        while !sender.is_finished() || came < sent.load(Ordering::Relaxed) {
            let n = match to.read(&mut octets) {
                Ok(n) => n as u64,
                Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
                Err(e) => panic!("{e}"),
            };
            came += n;
            let passed = begin.elapsed();
            counted += if passed > lasts / 3 && passed < lasts { n } else { 0 };
            if passed > lasts && !over.load(Ordering::Relaxed) {
                trip = round_trip(world, port);
                over.store(true, Ordering::Relaxed);
            }
        }
        to.set_read_timeout(None).unwrap();
        (counted as f64 / (lasts * 2 / 3).as_secs_f64(), trip)
    })
}

/// Both ends of a connection from VM 1 to VM 2 with a congestion control that fills queues, whatever the machine prefers.
fn connect(world: &World, port: u16) -> (TcpStream, TcpStream) {
    let ends = connect_from(world, "vm1", port);
    rustix::net::sockopt::set_tcp_congestion(&ends.0, "cubic").expect("a kernel with CUBIC");
    ends
}

/// What the guest of VM 1 sends leaves its sockets as it leaves the guest, as a machine's does: without this they see the
/// limiter's queue, and wait (TCP's small queues). A clone belongs to no socket.
fn detach_from_sockets(world: &World) {
    world.tc("vm1", "qdisc add dev eth0 clsact");
    let filter = "filter add dev eth0 egress prio";
    world.tc("vm1", &format!("{filter} 1 u32 match u32 0 0 indev eth0 flowid 1:1"));
    world
        .tc("vm1", &format!("{filter} 2 u32 match u32 0 0 action mirred egress redirect dev eth0"));
}

/// As the kernel of VM 1's guest has it.
fn round_trip(world: &World, port: u16) -> f64 {
    let text = sh(&format!("ip netns exec {} ss -tinH dport = :{port}", world.ns("vm1")));
    let word = text.split_whitespace().find_map(|word| word.strip_prefix("rtt:"));
    let mean = word.and_then(|both| both.split('/').next()?.parse().ok());
    mean.unwrap_or_else(|| panic!("a round trip in {text}"))
}

#[test]
fn windows_are_what_the_pairs_rate_carries_and_follow_connections_and_reloads() {
    let world = World::new();
    reserve(&world, Some("20ms"));
    let (mut one, _two) = (world.start(1), world.start(2));
    assert_eq!((told(&one).refused, told(&one).pairs.len()), (None, 0));
    let first = connect(&world, 9001);
    expect(&one, &[&first], 51_460);
    speak(&first);
    assert_shown(&world, 9001, 51_460);
    let second = connect(&world, 9002);
    expect(&one, &[&first, &second], 26_460);
    let is_shown = |port| (26_460..27_484).contains(&window_of(&world, "vm1", port));
    until("both are shown it", 8, || {
        [&first, &second].into_iter().for_each(speak);
        is_shown(9001) && is_shown(9002)
    });
    assert_eq!((told(&one).round_trip_ns, told(&one).unedited), (20_000_000, 0));
    let reasons = one.explain();
    let is_said = |reason: &String| reason.starts_with("Windows follow the rate: ");
    assert!(reasons.iter().any(is_said), "{reasons:?}");

    // Who does not send takes nothing from who does.
    expect(&one, &[&first], 51_460);

    // Another time, at run time.
    say(&world, "window_shaping", Some("\"40ms\"".into()));
    reload(&one);
    expect(&one, &[&first, &second], 51_460);
    drop(second);
    expect(&one, &[&first], 101_460);

    // Nobody looks: what was small counts no more after a second, and the queue alone shapes.
    say(&world, "window_shaping", Some("\"8ms\"".into()));
    reload(&one);
    expect(&one, &[&first], 21_460);
    assert_shown(&world, 9001, 21_460);
    one.kill_with_guardian();
    pause(1_200);
    speak(&first);
    let open = window_of(&world, "vm1", 9001);
    assert!(open > 60_000, "{open}");
    // Who comes then counts it.
    reserve(&world, Some("20ms"));
    one = world.start(1);
    expect(&one, &[&first], 51_460);
    speak(&first);
    assert_shown(&world, 9001, 51_460);

    // No wish is no bound, and nothing of it stays at the port.
    let pins = format!("find {} -name weir_vcc_*", world.bpffs().display());
    let has_programs = || !sh(&pins).is_empty();
    assert!(has_programs());
    say(&world, "window_shaping", None);
    reload(&one);
    assert_eq!(one.top().window_shaping, []);
    speak(&first);
    let open = window_of(&world, "vm1", 9001);
    assert!(open > 60_000, "{open}");
    until("the programs are gone", 10, || !has_programs());
    speak(&first);
}

#[test]
fn a_bulk_transfer_shaped_by_windows_has_its_rate_and_leaves_no_queue() {
    let world = World::new();
    detach_from_sockets(&world);
    reserve(&world, None);
    let (one, _two) = (world.start(1), world.start(2));
    let lasts = Duration::from_secs(3);
    let by_queue = bulk(&world, &connect(&world, 9001), 9001, lasts);
    say(&world, "window_shaping", Some("\"5ms\"".into()));
    reload(&one);
    let by_window = bulk(&world, &connect(&world, 9002), 9002, lasts);
    // A full frame has 1448 octets of payload, of 1514 that count.
    let payload = RATE as f64 / 8.0 * 1448.0 / 1514.0;
    for (what, (rate, trip)) in [("the queue", by_queue), ("windows", by_window)] {
        assert!(rate >= 0.9 * payload, "by {what}: {rate} of {payload} octets/s, {trip} ms");
    }
    assert!(by_window.1 <= 10.0, "{by_window:?}, by the queue {by_queue:?}");
    assert!(by_queue.1 >= 3.0 * by_window.1, "{by_window:?}, by the queue {by_queue:?}");
    assert!(told(&one).lowered > 0 && told(&one).unedited == 0, "{:?}", told(&one));
    assert!(!one.log().contains("is longer than"), "{}", one.log());
}

#[test]
fn a_round_trip_longer_than_what_was_said_costs_windows_and_not_the_rate() {
    // A quarter of a round trip in flight, and three of them.
    for (time, most) in [("5ms", 0.5), ("15ms", 0.9)] {
        let world = World::new();
        let _wire = Wire::cut(&world, Ills { delay: Duration::from_millis(10), ..Ills::default() });
        reserve(&world, Some(time));
        let (one, _two) = (world.start(1), world.start(2));
        let ends = connect(&world, 9001);
        // Before anybody can be sure.
        let (rate, _) = bulk(&world, &ends, 9001, Duration::from_millis(1_500));
        assert!(rate < most * RATE as f64 / 8.0, "{time}: {rate} octets/s");
        let said = format!("the round trip from a to b is longer than the {time}");
        until("the windows are lifted", 30, || {
            bulk(&world, &ends, 9001, Duration::from_secs(3));
            one.log().contains(&said)
        });
        let seconds = Duration::from_secs(4);
        let (rate, _) = bulk(&world, &ends, 9001, seconds);
        assert!(rate >= 0.8 * RATE as f64 / 8.0, "{time}, by the queue: {rate} octets/s");
        let is_too_long = || told(&one).pairs.iter().map(|pair| pair.too_long).collect::<Vec<_>>();
        assert_eq!(is_too_long(), [true]);
        let said = one.explain();
        let is_said =
            |reason: &String| reason.starts_with("The round trip of a to b is longer than");
        assert!(said.iter().any(is_said), "{said:?}");
        // A reload for another reason changes nothing of that; enough of it does.
        reload(&one);
        speak(&ends);
        assert_eq!(is_too_long(), [true]);
        say(&world, "window_shaping", Some("\"50ms\"".into()));
        reload(&one);
        let (rate, _) = bulk(&world, &ends, 9001, seconds);
        assert!(rate >= 0.8 * RATE as f64 / 8.0, "{time}, by windows: {rate} octets/s");
        assert_eq!(is_too_long(), [false]);
    }
}
