//! Ports that do more than first come, first served, under TCP: against theory, and against what
//! the papers say of them.

use crate::common::{BULK, Dumbbell, options};
use weir_sim::{
    Algorithm, Discipline, Network, Outcome, PoolSpec, Port, QueueSpec, RedSpec, Sim, TcpConfig,
    Traffic, play,
};
use weir_units::{Bytes, Rate, Span, Time};

/// 1 Gb/s, 1 ms.
fn gigabit(pairs: u32, seconds: u64) -> Dumbbell {
    Dumbbell {
        pairs,
        mbps: 1000,
        rtt: Span::from_millis(1),
        buffer: 1000,
        mark_above: None,
        loss: 0.0,
        until: Span::from_secs(seconds),
    }
}

fn tcp(algorithm: Algorithm) -> TcpConfig {
    TcpConfig { algorithm, ..TcpConfig::default() }
}

fn queue(weight: u32, packets: u64, knee: Option<u64>) -> QueueSpec {
    let octets = |packets: u64| Bytes::new(1500 * packets);
    QueueSpec { weight, buffer: octets(packets), mark_above: knee.map(octets) }
}

/// The bottleneck gets this port, and the flows these classes.
fn with(mut network: Network, discipline: Discipline, classes: &[u8]) -> Network {
    network.set_port(0, Port { discipline, pool: None }).expect("fits");
    for (flow, class) in (0..).zip(classes) {
        network.set_class(flow, *class).expect("fits");
    }
    network
}

/// Octets of payload per flow between two instants.
fn between(network: &Network, tcp: TcpConfig, from: u64, to: u64) -> (Vec<f64>, Outcome) {
    let mut sim = Sim::new(network, &options(tcp));
    sim.run_until(Time::ZERO + Span::from_secs(from));
    let before = sim.outcome();
    sim.run_until(Time::ZERO + Span::from_secs(to));
    let after = sim.outcome();
    let pairs = before.flows.iter().zip(&after.flows);
    (pairs.map(|(a, b)| (b.octets.get() - a.octets.get()) as f64).collect(), after)
}

/// What a link of 1 Gb/s carries in a second.
const FULL: f64 = 1e9 / 8.0 * 1460.0 / 1500.0;

#[test]
fn weights_divide_the_link_whatever_is_in_the_queues() {
    // Six aggressive flows, one alone, two: 1 : 3 : 6.
    let classes = [0, 0, 0, 0, 0, 0, 1, 2, 2];
    for order in [Discipline::Drr as fn(_) -> _, Discipline::Wfq] {
        for (algorithm, knee) in [(Algorithm::Cubic, None), (Algorithm::Dctcp, Some(20))] {
            let queues = vec![queue(1, 100, knee), queue(3, 200, knee), queue(6, 200, knee)];
            let network = with(gigabit(9, 6).network(BULK), order(queues), &classes);
            let (octets, _) = between(&network, tcp(algorithm), 2, 6);
            let sums =
                [0..6, 6..7, 7..9].map(|flows| octets[flows].iter().sum::<f64>() / 4.0 / FULL);
            for (sum, part) in sums.iter().zip([0.1, 0.3, 0.6]) {
                assert!((sum / part - 1.0).abs() < 0.03, "{algorithm:?}: {sums:?}");
            }
        }
    }
}

#[test]
fn what_a_class_leaves_the_others_divide() {
    for order in [Discipline::Drr as fn(_) -> _, Discipline::Wfq] {
        let classes = [0, 1, 1, 2];
        let queues = vec![queue(5, 300, None), queue(1, 300, None), queue(2, 300, None)];
        let mut network = with(gigabit(4, 6).network(BULK), order(queues), &classes);
        network.stop_flow(0, Time::ZERO + Span::from_secs(2)).expect("fits");
        let (octets, _) = between(&network, tcp(Algorithm::Cubic), 3, 6);
        let sums = [0..1, 1..3, 3..4].map(|flows| octets[flows].iter().sum::<f64>() / 3.0 / FULL);
        assert!(sums[0] < 0.001 && (sums[1] * 3.0 - 1.0).abs() < 0.03, "{sums:?}");
        assert!(sums.iter().sum::<f64>() > 0.98, "{sums:?}");
    }
}

#[test]
fn strict_priority_gives_the_first_class_all_it_wants_and_the_second_what_is_left() {
    let mut network = gigabit(4, 4).network(BULK);
    let spec = network.flows()[0].clone();
    let traffic = Traffic::Udp { rate: Rate::from_mbps(400), size: 1500, bursts: None };
    network.add_flow(weir_sim::FlowSpec { traffic, ..spec }).expect("fits");
    let priority = Discipline::Priority(vec![queue(1, 100, None), queue(1, 500, None)]);
    let (octets, outcome) =
        between(&with(network, priority, &[1, 1, 1, 1, 0]), tcp(Algorithm::Cubic), 1, 4);
    let udp = octets[4] / 3.0 / (400e6 / 8.0 * 1472.0 / 1500.0);
    assert!((udp - 1.0).abs() < 0.001, "{udp}");
    let rest = octets[..4].iter().sum::<f64>() / 3.0 / FULL;
    assert!((rest / 0.6 - 1.0).abs() < 0.02, "{rest}");
    assert!(outcome.links[0].drops > 0, "the second class finds its queue full");
}

fn red(min: u64, max: u64, probability: f64, weight: f64) -> RedSpec {
    let (min, max) = (Bytes::new(min), Bytes::new(max));
    RedSpec { min, max, probability, weight, gentle: false }
}

/// Reno's window is sqrt(1.5/p) segments if a share p of them is marked (Mathis et al. 1997), and
/// RED's share is known by its average: both must hold at once.
#[test]
fn red_marks_as_often_as_renos_window_asks_for() {
    for (min, max, probability) in [(30_000, 300_000, 0.1), (90_000, 400_000, 0.02)] {
        let spec = red(min, max, probability, 0.002);
        let (flows, seconds) = (10u32, 30);
        let network = with(gigabit(flows, seconds).network(BULK), Discipline::Red(spec), &[]);
        let mut sim = Sim::new(&network, &options(tcp(Algorithm::Reno)));
        sim.run_until(Time::ZERO + Span::from_secs(5));
        let before = sim.outcome().links[0];
        let mut queued = Vec::new();
        for ms in 5_000..seconds * 1000 {
            sim.run_until(Time::ZERO + Span::from_millis(ms));
            queued.push(sim.queued(0).expect("a link").get() as f64);
        }
        let after = sim.outcome().links[0];
        assert_eq!(after.drops, before.drops, "all can be marked");
        let share = (after.marks - before.marks) as f64 / (after.packets - before.packets) as f64;
        let mean = queued.iter().sum::<f64>() / queued.len() as f64;
        // Base round-trip time and the queue, in segments on the wire, over all flows.
        let pipe = (1e9 / 8.0 * 1.001e-3 + mean) / 1500.0;
        let window = (1.5 / share).sqrt() * f64::from(flows);
        assert!((window / pipe - 1.0).abs() < 0.15, "{window} segments by marks, {pipe} in flight");
        // Gaps are uniform, so a chance of p strikes 2p/(1 + p) of the packets.
        let chance = probability * (mean - min as f64) / (max - min) as f64;
        let expected = 2.0 * chance / (1.0 + chance);
        assert!((share / expected - 1.0).abs() < 0.25, "{share} marked, {expected} by the average");
    }
}

/// What a switch's memory is shared for: a burst to one port uses what the others do not need.
#[test]
fn a_burst_that_one_eighth_of_the_memory_would_drop_fits_into_a_shared_one() {
    let burst = Traffic::Tcp { octets: std::num::NonZero::new(10 * 1460), algorithm: None };
    let drops = |pool: Option<PoolSpec>, buffer| {
        let dumbbell = Dumbbell { buffer, rtt: Span::from_micros(20), ..gigabit(40, 2) };
        let mut network = dumbbell.network(burst);
        if let Some(pool) = pool {
            network.add_pool(pool).expect("fits");
            let port = Port { discipline: Discipline::Fifo, pool: Some(0) };
            network.set_port(0, port).expect("fits");
        }
        let outcome = play(&network, &options(tcp(Algorithm::Reno)));
        assert!(outcome.flows.iter().all(|flow| flow.completed.is_some()));
        outcome.links[0].drops
    };
    let memory = PoolSpec { octets: Bytes::new(1_200_000), alpha: 1.0 };
    assert!(drops(None, 100) > 100, "a buffer of 150 kB");
    assert_eq!(drops(Some(memory), 1_000_000), 0, "half of 1.2 MB");
}
