//! TCP against what theory and the RFCs say of it.

use crate::common::{BULK, Dumbbell, options};
use std::num::NonZero;
use weir_sim::{Algorithm, Outcome, Sim, TcpConfig, Traffic, play};
use weir_units::{Bytes, Rate, Span, Time};

const ALL: [Algorithm; 3] = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp];

fn tcp(algorithm: Algorithm) -> TcpConfig {
    TcpConfig { algorithm, ..TcpConfig::default() }
}

fn sum(outcome: &Outcome, of: impl Fn(&weir_sim::FlowOutcome) -> u64) -> u64 {
    outcome.flows.iter().map(of).sum()
}

/// 1 Gb/s, 2 ms, a buffer of twice the bandwidth-delay product.
fn gigabit(pairs: u32, seconds: u64) -> Dumbbell {
    Dumbbell {
        pairs,
        mbps: 1000,
        rtt: Span::from_millis(2),
        buffer: 333,
        mark_above: None,
        loss: 0.0,
        until: Span::from_secs(seconds),
    }
}

/// Segments a second that a link of 1 Gb/s carries.
const GIGABIT: f64 = 1e9 / 8.0 / 1500.0;

/// What each flow delivers between two instants, in segments a second.
fn rates(sim: &mut Sim, from: Span, to: Span) -> Vec<f64> {
    sim.run_until(Time::ZERO + from);
    let before = sim.outcome();
    sim.run_until(Time::ZERO + to);
    let after = sim.outcome();
    let span = (to - from).as_secs_f64();
    let pairs = before.flows.iter().zip(&after.flows);
    pairs.map(|(a, b)| (b.octets.get() - a.octets.get()) as f64 / 1460.0 / span).collect()
}

#[test]
fn one_flow_fills_its_link() {
    for algorithm in ALL {
        let dumbbell =
            Dumbbell { mark_above: (algorithm == Algorithm::Dctcp).then_some(60), ..gigabit(1, 4) };
        let mut sim = Sim::new(&dumbbell.network(BULK), &options(tcp(algorithm)));
        let rate = rates(&mut sim, Span::from_secs(1), Span::from_secs(4))[0];
        assert!(rate > 0.99 * GIGABIT && rate <= 1.0001 * GIGABIT, "{algorithm:?}: {rate}");
        assert_eq!(sim.outcome().flows[0].timeouts, 0, "{algorithm:?}");
    }
}

#[test]
fn equal_flows_get_equal_shares() {
    for algorithm in ALL {
        let dumbbell = Dumbbell {
            mark_above: (algorithm == Algorithm::Dctcp).then_some(60),
            ..gigabit(8, 40)
        };
        let mut sim = Sim::new(&dumbbell.network(BULK), &options(tcp(algorithm)));
        let rates = rates(&mut sim, Span::from_secs(10), Span::from_secs(40));
        let (total, squares) =
            (rates.iter().sum::<f64>(), rates.iter().map(|r| r * r).sum::<f64>());
        let jain = total * total / squares / rates.len() as f64;
        assert!(total > 0.98 * GIGABIT, "{algorithm:?}: {total}");
        assert!(jain > 0.95, "{algorithm:?}: {jain} {rates:?}");
    }
}

/// Mathis et al. 1997: W = sqrt(3/2) / sqrt(p) segments.
#[test]
fn reno_under_random_loss_follows_the_square_root_law() {
    for loss in [0.0005, 0.002, 0.008] {
        let dumbbell =
            Dumbbell { loss, rtt: Span::from_millis(20), mbps: 10_000, ..gigabit(4, 600) };
        let mut sim = Sim::new(&dumbbell.network(BULK), &options(tcp(Algorithm::Reno)));
        let rates = rates(&mut sim, Span::from_secs(10), Span::from_secs(600));
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let expected = 1.5f64.sqrt() / loss.sqrt() / 0.02;
        assert!((mean / expected - 1.0).abs() < 0.12, "p = {loss}: {}", mean / expected);
    }
}

/// RFC 9438 §5.1, eq. 6: W = (C·(3 + β) / 4·(1 − β))^¼ · (RTT/p)^¾, for regular loss.
#[test]
fn cubic_under_random_loss_has_the_window_of_the_rfc() {
    let (loss, rtt) = (0.0001, 0.1);
    let dumbbell = Dumbbell { loss, rtt: Span::from_millis(100), mbps: 10_000, ..gigabit(4, 2000) };
    let mut sim = Sim::new(&dumbbell.network(BULK), &options(tcp(Algorithm::Cubic)));
    let rates = rates(&mut sim, Span::from_secs(50), Span::from_secs(2000));
    let mean = rates.iter().sum::<f64>() / rates.len() as f64 * rtt;
    let expected = 1.054 * (rtt / loss).powf(0.75);
    assert!((mean / expected - 1.0).abs() < 0.25, "{mean} segments, {expected} expected");
}

/// DCTCP (SIGCOMM 2010) §3.3: the queue swings between K + N − A and K + N, with
/// A = sqrt(2·N·(C·RTT + K)) / 2 packets.
#[test]
fn dctcp_keeps_the_queue_at_its_mark() {
    let (k, flows) = (65.0, 2.0f64);
    let dumbbell = Dumbbell {
        mbps: 10_000,
        rtt: Span::from_micros(100),
        mark_above: Some(65),
        ..gigabit(2, 1)
    };
    let mut sim = Sim::new(&dumbbell.network(BULK), &options(tcp(Algorithm::Dctcp)));
    sim.run_until(Time::from_nanos(100_000_000));
    let mut samples = Vec::new();
    for step in 0..80_000 {
        sim.run_until(Time::from_nanos(100_000_000 + step * 10_007));
        samples.push(sim.queued(0).expect("a link").get() as f64 / 1500.0);
    }
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| samples[(share * (samples.len() - 1) as f64) as usize];
    let swing = (2.0 * flows * (10e9 / 8.0 / 1500.0 * 100e-6 + k)).sqrt() / 2.0;
    assert!(at(0.99) < k + flows + 4.0, "{}", at(0.99));
    assert!((at(0.5) - (k + flows - swing / 2.0)).abs() < swing, "{}", at(0.5));
    assert!(at(0.01) > k + flows - 2.5 * swing, "{} of a swing of {swing}", at(0.01));
    assert_eq!(sim.outcome().links[0].drops, 0);
}

#[test]
fn overshoot_of_slow_start_is_repaired_without_a_timeout() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let dumbbell = Dumbbell { buffer: 60, ..gigabit(1, 10) };
        let traffic = Traffic::Tcp { octets: NonZero::new(100_000_000), algorithm: None };
        let outcome = play(&dumbbell.network(traffic), &options(tcp(algorithm)));
        let flow = &outcome.flows[0];
        assert!(outcome.links[0].drops > 20, "{algorithm:?}: many losses in one window");
        assert_eq!((flow.timeouts, flow.octets.get()), (0, 100_000_000), "{algorithm:?}");
        assert_eq!(flow.repeats, outcome.links[0].drops, "{algorithm:?}: nothing in vain");
    }
}

/// A loss among the last three segments has no three SACKs above it; RACK-TLP needs one.
#[test]
fn the_tails_of_short_flows_wait_for_a_probe_and_not_for_the_timer() {
    let traffic = Traffic::Tcp { octets: NonZero::new(20 * 1460), algorithm: None };
    let network = Dumbbell { loss: 0.03, ..gigabit(200, 5) }.network(traffic);
    let [with, without] = [true, false].map(|rack| {
        let outcome = play(&network, &options(TcpConfig { rack, ..tcp(Algorithm::Cubic) }));
        assert!(outcome.flows.iter().all(|flow| flow.completed.is_some()), "RACK: {rack}");
        let count = |of: fn(&weir_sim::FlowOutcome) -> u32| sum(&outcome, |flow| of(flow).into());
        (count(|flow| flow.timeouts), count(|flow| flow.probes))
    });
    assert!(2 * with.0 < without.0, "{with:?} {without:?}");
    assert!(with.1 > 0 && without.1 == 0, "{with:?} {without:?}");
}

#[test]
fn acks_are_half_as_many_as_segments_or_as_configured() {
    for (every, share) in [(1, 1.0), (2, 0.5), (4, 0.25)] {
        let receive_window = Bytes::new(200 * 1460);
        let tcp = TcpConfig { ack_every: every, receive_window, ..tcp(Algorithm::Cubic) };
        let outcome = play(&gigabit(1, 1).network(BULK), &options(tcp));
        let got = outcome.links[1].packets as f64 / outcome.links[0].packets as f64;
        assert!((got / share - 1.0).abs() < 0.02, "one for {every}: {got}");
    }
}

#[test]
fn a_small_receive_window_limits_the_rate() {
    let tcp = TcpConfig { receive_window: Bytes::new(20 * 1460 + 7), ..tcp(Algorithm::Reno) };
    let dumbbell = Dumbbell { rtt: Span::from_millis(10), ..gigabit(1, 3) };
    let mut sim = Sim::new(&dumbbell.network(BULK), &options(tcp));
    let rate = rates(&mut sim, Span::from_secs(1), Span::from_secs(3))[0];
    assert!((rate / 2000.0 - 1.0).abs() < 0.02, "20 segments per 10 ms and a little: {rate}");
}

#[test]
fn a_flow_ends_when_its_last_octet_has_arrived() {
    // 10 + 20 + 40 segments take three round trips but for the way back; the last is short.
    let octets = NonZero::new(69 * 1460 + 11);
    let dumbbell = Dumbbell { rtt: Span::from_millis(10), ..gigabit(1, 1) };
    let tcp = TcpConfig { ack_every: 1, ..tcp(Algorithm::Reno) };
    let outcome = play(&dumbbell.network(Traffic::Tcp { octets, algorithm: None }), &options(tcp));
    let flow = &outcome.flows[0];
    assert_eq!(flow.octets.get(), 69 * 1460 + 11);
    let ms = flow.completed.expect("it ended").as_secs_f64() * 1e3;
    assert!((25.0..26.0).contains(&ms), "{ms} ms");
    assert_eq!((outcome.packets.in_flight, flow.repeats), (0, 0));
    assert_eq!(
        flow.goodput,
        Rate::of(flow.octets, flow.completed.expect("it ended").since(flow.start))
    );
}

#[test]
fn a_dead_link_is_tried_ever_more_rarely() {
    let dumbbell = Dumbbell { loss: 1.0, ..gigabit(1, 64) };
    let outcome = play(&dumbbell.network(BULK), &options(tcp(Algorithm::Reno)));
    // After 1, 3, 7, 15, 31 and 63 s.
    assert_eq!((outcome.flows[0].timeouts, outcome.flows[0].repeats), (6, 6));
    assert_eq!(outcome.links[0].lost, 10 + 6);
    assert_eq!(outcome.flows[0].octets, Bytes::ZERO);
}

#[test]
fn with_ecn_reno_and_cubic_are_marked_and_lose_nothing() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic] {
        let dumbbell = Dumbbell { mark_above: Some(170), buffer: 2000, ..gigabit(4, 5) };
        let network = dumbbell.network(BULK);
        let with = play(&network, &options(tcp(algorithm)));
        assert_eq!(sum(&with, |flow| flow.repeats), 0, "{algorithm:?}");
        assert!(sum(&with, |flow| flow.reductions.into()) > 20, "{algorithm:?}");
        assert!(sum(&with, |flow| flow.octets.get()) as f64 > 0.97 * 5.0 * GIGABIT * 1460.0);
        let without = play(&network, &options(TcpConfig { ecn: false, ..tcp(algorithm) }));
        assert_eq!(without.links[0].marks, 0, "{algorithm:?}");
        assert!(sum(&without, |flow| flow.repeats) > 0, "{algorithm:?}");
    }
}

#[test]
fn a_udp_source_sends_at_its_rate_and_loses_what_does_not_fit() {
    let traffic = Traffic::Udp { rate: Rate::from_mbps(800), size: 1000, bursts: None };
    let outcome = play(&gigabit(2, 2).network(traffic), &options(TcpConfig::default()));
    assert!((outcome.packets.launched as f64 / 400_000.0 - 1.0).abs() < 1e-3);
    let arrived = sum(&outcome, |flow| flow.octets.get()) as f64 / 972.0;
    assert!((arrived / 250_000.0 - 1.0).abs() < 5e-3, "the link's 1 Gb/s: {arrived}");
    assert!(outcome.links[0].drops > 140_000);
}
