//! Effects of switches and links beyond waiting: marks, delay, exact queues. As
//! root.

#![expect(clippy::disallowed_methods, reason = "measures round trips")]

use crate::common::watch::{LATE, Watch};
use crate::common::{alone, dumbbell, flow, mechanism, none, stand_in, tcp, traces, udp};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass};
use std::cell::Cell;
use std::fs::File;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_lab::{Frame, Options, Phase, play};
use weir_model::observed::Observed;
use weir_model::scenario::{IpVersion, Red, Scenario, TrafficKind};
use weir_units::{Bytes, Rate, Span};

/// The core link from left to right, which is given what a test is about.
const CORE: usize = 0;

/// The direction of a host's own link in which it sends.
fn to_switch(host: usize) -> usize {
    2 * (1 + host)
}

fn played(scenario: &Scenario, watch: &mut dyn FnMut(&Frame)) -> Observed {
    play(scenario, &none(), &Options::new("weir"), watch, &AtomicBool::new(false))
        .expect("plays; these tests need root")
}

/// Judges what was measured, and once more, at most twice, what a machine measured that was busy
/// with something else: it had no time left, a CPU came late, or the lab itself did, which its
/// notes say.
fn expect(scenario: &Scenario, judge: impl Fn(&Observed) -> Result<(), String>) {
    expect_watched(scenario, |_| {}, judge);
}

/// The same where something is done meanwhile, each time that it is played.
fn expect_watched(
    scenario: &Scenario,
    mut meanwhile: impl FnMut(&Frame),
    judge: impl Fn(&Observed) -> Result<(), String>,
) {
    for attempt in 1.. {
        let watch = Watch::new();
        let record = played(scenario, &mut meanwhile);
        let late = watch.worst() > LATE;
        let busy = record.idle.iter().filter(|&&idle| idle < 0.05).count();
        let disturbed = late || busy * 10 > record.idle.len() || !record.notes.is_empty();
        match judge(&record) {
            Ok(()) => return,
            Err(what) if attempt < 3 && disturbed => {
                println!("{what}; but busy in {busy} samples, {:?}: again", record.notes);
            }
            Err(what) => panic!("{what}; busy in {busy} samples; {:?}", record.notes),
        }
    }
}

fn ensure(good: bool, what: impl Into<String>) -> Result<(), String> {
    if good { Ok(()) } else { Err(what.into()) }
}

/// Mean rate on the core after the warm-up, Mb/s.
fn carried(scenario: &Scenario, record: &Observed) -> f64 {
    let skip = scenario.warmup.div_span(record.sample) as usize;
    let series = &record.links[CORE].octets[skip..];
    let seconds = record.sample.as_secs_f64() * series.len() as f64;
    series.iter().sum::<u64>() as f64 * 8.0 / seconds / 1e6
}

/// The name of VM `vm`'s namespace in this process's run.
fn namespace(vm: usize) -> PathBuf {
    let own = format!("weir-{}-", std::process::id());
    let of_vm = format!("-v{vm}-");
    let is = |name: &str| name.starts_with(&own) && name.contains(&of_vm);
    let entries = std::fs::read_dir("/run/netns").expect("namespaces").flatten();
    let mut found = entries.filter(|e| is(&e.file_name().to_string_lossy()));
    found.next().expect("the VM's namespace").path()
}

/// Runs `work` on a thread in VM `vm`'s namespace.
fn inside<T: Send + 'static>(
    vm: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let file = File::open(namespace(vm)).expect("the namespace is there");
    std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).expect("as root");
        work()
    })
}

/// Makes a VM's stack capable of ECN, from its next connection on; whether there was none before.
fn become_capable() -> bool {
    std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").expect("this kernel has ECN");
    let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("its sockets");
    // Listening sockets (0A) are there from the start.
    sockets.lines().skip(1).all(|line| line.split_whitespace().nth(3) == Some("0A"))
}

/// Floods VM 3 from VM 1, both of [`dumbbell`], with 90 Mbit/s of lower effort, until the end of
/// the flood is said.
fn flood_with_lower_effort(ip: IpVersion) -> (JoinHandle<()>, Arc<AtomicBool>) {
    const TOS: i32 = 1 << 2;
    let end = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&end);
    let flood = inside(1, move || {
        let (own, address) = match ip {
            IpVersion::V4 => ("0.0.0.0:0", "10.1.0.4:9"),
            IpVersion::V6 => ("[::]:0", "[fd57:0:0:1::4]:9"),
        };
        let socket = UdpSocket::bind(own).expect("any port");
        match ip {
            IpVersion::V4 => setsockopt(&socket, Ipv4Tos, &TOS),
            IpVersion::V6 => setsockopt(&socket, Ipv6TClass, &TOS),
        }
        .expect("a field that needs no rights");
        let (begin, mut sent) = (Instant::now(), 0.0);
        while !told.load(Ordering::Relaxed) {
            while sent < begin.elapsed().as_secs_f64() * 90e6 / 8.0 {
                // Before its neighbour is known the kernel may refuse.
                socket.send_to(&[0; 1400], address).ok();
                sent += 1400.0;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    (flood, end)
}

/// VM 0 sends 60 Mbit/s to VM 2 beside the flood; judged is the part of it that arrives.
fn beside_lower_effort(
    ip: IpVersion,
    priorities: bool,
    judge: impl Fn(f64, &Observed) -> Result<(), String>,
) {
    const OFFERED: f64 = 60e6;
    // So many octets make a full frame.
    let payload = if ip == IpVersion::V4 { 1472 } else { 1452 };
    let mut scenario = dumbbell(2, 2, 100);
    scenario.topology.links[CORE].queueing.priorities = priorities;
    let payload = Bytes::new(payload);
    let kind = TrafficKind::Udp { rate: Rate::from_bps_f64(OFFERED), on: None, off: None, payload };
    flow(&mut scenario, 0, 2, kind);
    scenario.traffic[0].ip = ip;
    let flood: Cell<Option<(JoinHandle<()>, Arc<AtomicBool>)>> = Cell::new(None);
    let end = || {
        if let Some((thread, end)) = flood.take() {
            end.store(true, Ordering::Relaxed);
            thread.join().expect("the flood");
        }
    };
    let meanwhile = |frame: &Frame| match frame.phase {
        Phase::Running if frame.at < Span::from_millis(150) => {
            end();
            flood.set(Some(flood_with_lower_effort(ip)));
        }
        _ => {}
    };
    expect_watched(&scenario, meanwhile, |record| {
        end();
        let settled = &record.flows[0].octets[5..];
        let goodput = settled.iter().sum::<u64>() as f64 * 8.0 / (settled.len() as f64 * 0.1);
        judge(goodput / (OFFERED * payload.get() as f64 / 1514.0), record)?;
        let (carried, drops) = (carried(&scenario, record), &record.links[CORE].drops);
        ensure(carried > 95.0, format!("{ip:?}: the link is full, {carried}"))?;
        ensure(drops.iter().sum::<u64>() > 1000, format!("{ip:?}: and the queue of the flood"))
    });
}

#[test]
fn lower_effort_waits_for_all_others_where_a_port_has_two_queues() {
    let _alone = alone();
    for ip in [IpVersion::V4, IpVersion::V6] {
        beside_lower_effort(ip, false, |arrives, _| {
            ensure(arrives < 0.85, format!("{ip:?}: one queue drops from both, {arrives}"))
        });
        beside_lower_effort(ip, true, |arrives, _| {
            ensure(arrives > 0.98, format!("{ip:?}: {arrives} arrives"))
        });
    }
}

#[test]
fn short_samples_lose_no_octet_and_share_the_readings_of_ports() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    scenario.sample = Span::from_millis(10);
    flow(&mut scenario, 0, 1, udp(40.0));
    let frames = Cell::new(0);
    let count =
        |frame: &Frame| frames.set(frames.get() + usize::from(frame.phase == Phase::Running));
    expect_watched(&scenario, count, |record| {
        let (flow, core) = (&record.flows[0].octets, &record.links[CORE].octets);
        let lengths = [flow.len(), core.len(), record.idle.len(), record.stolen.len()];
        ensure(lengths == [200; 4], format!("{lengths:?} samples"))?;
        // Of all but the first half second, as much came as the core carried, headers aside.
        let [came, carried] = [flow, core].map(|series| series[50..].iter().sum::<u64>() as f64);
        let part = came / carried / (1472.0 / 1514.0);
        ensure((0.98..1.02).contains(&part), format!("{part} of what was carried came"))?;
        let nothing = flow[50..].iter().filter(|&&octets| octets == 0).count();
        ensure(nothing < 8, format!("nothing came in {nothing} of 150 samples"))
    });
    assert!(frames.get() <= 3 * 20, "a view every 100 ms, not {} in 2 s", frames.get());
}

#[test]
fn a_marking_port_marks_the_capable_before_its_queue_fills_and_spares_the_others() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 2, 100);
    scenario.topology.links[CORE].queueing.ecn = Some(Bytes::new(20_000));
    flow(&mut scenario, 0, 2, tcp(4));
    flow(&mut scenario, 1, 3, tcp(4));
    let mut delayed = scenario.clone();
    delayed.traffic.iter_mut().for_each(|traffic| traffic.start = Span::from_millis(300));
    // Not capable: nothing is marked, and the port's own queue fills.
    expect(&scenario, |record| {
        let core = &record.links[CORE];
        let (marks, drops) = (core.marks.iter().sum::<u64>(), core.drops.iter().sum::<u64>());
        ensure(marks == 0 && drops > 0, format!("{marks} marks, {drops} drops"))?;
        // Eight connections that lose at once may leave it a moment without work.
        let got = carried(&scenario, record);
        ensure(got > 90.0, format!("and the link is full, {got} Mb/s"))
    });
    // Capable, before the first connection is made: SYNs pass, marks come, nothing is dropped.
    let in_time = Cell::new(None);
    let tell = |frame: &Frame| {
        if let Phase::Building { .. } = frame.phase {
            in_time.set(None);
        } else if frame.phase == Phase::Running && in_time.get().is_none() {
            let first = |vm| inside(vm, become_capable).join().expect("no panic");
            in_time.set(Some((0..4).all(first)));
        }
    };
    expect_watched(&delayed, tell, |record| {
        ensure(in_time.get() == Some(true), "capable only after the first connection")?;
        let core = &record.links[CORE];
        let (marks, drops) = (core.marks.iter().sum::<u64>(), core.drops.iter().sum::<u64>());
        ensure(marks > 1000, format!("{marks} marks, {drops} drops"))?;
        ensure(drops < marks / 100, format!("{marks} marks, {drops} drops"))?;
        let got = carried(&delayed, record);
        ensure(got > 90.0, format!("{got} Mb/s"))?;
        let others: u64 = record.links[CORE + 1..].iter().flat_map(|link| &link.marks).sum();
        ensure(others == 0, format!("{others} marks of other ports"))?;
        let connections = || record.flows.iter().flat_map(|flow| &flow.connections);
        let all = connections().all(|octets| *octets > 0) && connections().count() == 8;
        ensure(all, "not all connected")
    });
}

#[test]
fn a_link_box_has_the_rate_of_its_link_within_two_percent_and_counts_every_packet() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 1, 60);
    scenario.topology.links[CORE].delay = Span::from_micros(200);
    flow(&mut scenario, 0, 2, udp(50.0));
    flow(&mut scenario, 1, 2, udp(50.0));
    // The other links are faster, so that only the box limits.
    scenario.topology.links[CORE].rate = weir_units::Rate::from_mbps(50);
    expect(&scenario, |record| {
        let got = carried(&scenario, record);
        ensure((got / 50.0 - 1.0).abs() < 0.02, format!("{got} Mb/s on a link of 50"))?;
        // All that came and did not go on was dropped, but for what waits at the end; twice that,
        // since counters are read one after the other. What came is what the hosts' links carried:
        // senders on a busy machine offer less than they should.
        let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
        let came: f64 = [0, 1].map(|host| sum(&record.links[to_switch(host)].octets)).iter().sum();
        let missing = (came - sum(&record.links[CORE].octets)) / 1514.0;
        let dropped = sum(&record.links[CORE].drops);
        ensure(dropped > 1000.0, format!("{dropped} packets dropped"))?;
        let waiting = scenario.topology.links[CORE].buffer.get() as f64 / 1514.0;
        ensure(
            (missing - dropped).abs() <= 2.0 * waiting,
            format!("{dropped} of {missing} packets counted"),
        )
    });
}

#[test]
fn tcp_fills_a_link_box() {
    let _alone = alone();
    // A box that a busy machine wakes late by a millisecond delays few packets at this rate.
    let mut scenario = dumbbell(1, 1, 30);
    scenario.topology.links[CORE].delay = Span::from_millis(1);
    flow(&mut scenario, 0, 1, tcp(2));
    expect(&scenario, |record| {
        let got = carried(&scenario, record);
        ensure((28.5..30.3).contains(&got), format!("{got} Mb/s on a link of 30"))
    });
}

#[test]
fn red_in_a_link_box_drops_before_the_buffer_is_full() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 1, 60);
    let core = &mut scenario.topology.links[CORE];
    core.rate = weir_units::Rate::from_mbps(50);
    let (min, max) = (Bytes::new(10_000), Bytes::new(40_000));
    core.queueing.red = Some(Red { min, max, probability: 0.1, weight: 0.02 });
    // A little more than fits. UDP, for TCP has little on the way where its kernel sees the whole
    // of it, as here.
    scenario.duration = scenario.duration * 3;
    flow(&mut scenario, 0, 2, udp(26.0));
    flow(&mut scenario, 1, 2, udp(26.0));
    let trip = Cell::new(None);
    let ask = |frame: &Frame| {
        if let Phase::Building { .. } = frame.phase {
            trip.set(None);
        } else if frame.phase == Phase::Running && trip.get().is_none() {
            trip.set(Some(round_trip(2, 70)));
        }
    };
    expect_watched(&scenario, ask, |record| {
        let drops: u64 = record.links[CORE].drops.iter().sum();
        let waits = trip.get().expect("it ran") / 1000.0;
        println!("{drops} drops, {waits} ms there and back");
        ensure(drops > 100, format!("{drops} drops"))?;
        // The buffer is 20 ms long, and full without RED; what RED leaves in it is up to 6 ms.
        ensure((1.0..10.0).contains(&waits), format!("{waits} ms in the queue"))
    });
    // While a client asks, no thread reads the counters.
    expect(&scenario, |record| {
        let drops: u64 = record.links[CORE].drops.iter().sum();
        ensure(drops > 100, format!("{drops} drops"))?;
        let got = carried(&scenario, record);
        ensure(got > 48.0, format!("{got} Mb/s on a link of 50"))
    });
}

/// The round trip of small packets from VM 0 to another in microseconds: of 100, of which so many
/// come back at least, the one that a quarter are not above. What else the machine does makes round
/// trips longer, never shorter.
fn round_trip(to: usize, least: usize) -> f64 {
    let address = format!("10.1.0.{}:9000", to + 1);
    let there = address.clone();
    let echo = inside(to, move || {
        let socket = UdpSocket::bind(there).expect("the VM's address");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        let mut octets = [0; 64];
        while let Ok((length, from)) = socket.recv_from(&mut octets) {
            socket.send_to(&octets[..length], from).expect("sends");
        }
    });
    let ask = inside(0, move || {
        let socket = UdpSocket::bind("10.1.0.1:0").expect("VM 0's address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        socket.connect(address).expect("an address");
        let mut trips = Vec::new();
        for number in 0u8..100 {
            let (sent, mut octets) = (Instant::now(), [0; 64]);
            socket.send(&[number; 32]).expect("sends");
            // The answer to one that was given up may still come.
            while let Ok(length) = socket.recv(&mut octets) {
                if octets[..length] == [number; 32] {
                    trips.push(sent.elapsed().as_secs_f64() * 1e6);
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        trips.sort_by(f64::total_cmp);
        assert!(trips.len() >= least, "{} of 100 came back", trips.len());
        trips[trips.len() / 4]
    });
    let trip = ask.join().expect("no panic");
    echo.join().expect("no panic");
    trip
}

/// The round trip of a small packet through a link with this delay, in microseconds.
fn trip_through(delay: u64) -> f64 {
    let mut scenario = dumbbell(1, 1, 100);
    scenario.topology.links[CORE].delay = Span::from_micros(delay);
    flow(&mut scenario, 0, 1, udp(0.1));
    let mut trip = None;
    played(&scenario, &mut |frame| {
        if frame.phase == Phase::Running && trip.is_none() {
            trip = Some(round_trip(1, 91));
        }
    });
    trip.expect("it ran")
}

/// Keeps the CPUs from sleeping, with work that nothing has to wait for: how long a CPU takes to
/// wake depends on how long it slept, and would be in round trips of 2 ms more than in those
/// without a box.
struct Awake(Vec<Child>);

impl Awake {
    fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spin = |cpu: usize| {
            let cpu = cpu.to_string();
            let args = ["-i", "0", "taskset", "-c", &cpu, "sh", "-c", "while :; do :; done"];
            Command::new("chrt").args(args).spawn().expect("chrt and taskset are util-linux'")
        };
        Self((0..cpus).map(spin).collect())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_link_box_has_the_delay_of_its_link_within_ten_percent() {
    let _alone = alone();
    let _awake = Awake::new();
    for delay in [500, 1000] {
        // What the ends need to wake up is not the link's, and depends on what else the machine's
        // host does, which makes any round trip longer, never shorter. In turn, since that changes.
        let turn = || (trip_through(delay), trip_through(0));
        let turns: Vec<(f64, f64)> = std::iter::repeat_with(turn).take(5).collect();
        println!("{delay} us one way: round trips and those without of {turns:.0?} us");
        let least = |(a, b): (f64, f64), (c, d): (f64, f64)| (a.min(c), b.min(d));
        let (trip, ends) = turns.into_iter().reduce(least).expect("five turns");
        // What woke a box counts as up to 25 us on the way, and it delivers up to 5 us early: where
        // waking is quick, the ends' own time is partly in the link's. Never more of it than that.
        let early = 2.0 * (25.0 + 5.0);
        assert!(trip >= 2.0 * delay as f64 - early, "{trip} us through {delay} us and back");
        let ratio = (trip - ends) / (2.0 * delay as f64);
        assert!((0.9..1.1).contains(&ratio), "{ratio} of what it should be");
    }
}

#[test]
fn a_world_with_boxes_and_marking_ports_is_gone_afterwards() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    scenario.duration = Span::from_millis(600);
    scenario.warmup = Span::from_millis(200);
    scenario.topology.links.iter_mut().for_each(|link| {
        link.queueing.ecn = Some(Bytes::new(20_000));
    });
    // A host's uplink, too: its agent finds a TAP there.
    for link in [0, 1] {
        scenario.topology.links[link].delay = Span::from_micros(100);
    }
    flow(&mut scenario, 0, 1, tcp(2));
    let es = mechanism("elasticswitch", "paper");
    let options = Options::new(stand_in());
    let never = AtomicBool::new(false);
    let record = play(&scenario, &es, &options, &mut |_| {}, &never).expect("plays");
    assert!(record.flows[0].octets.iter().sum::<u64>() > 100_000);
    assert!(record.links.iter().all(|link| link.marks.len() == 6));
    assert_eq!(record.losses_reported, None, "the stand-in answers nothing: not known, not zero");
    assert_eq!(traces(), Vec::<String>::new());
}
