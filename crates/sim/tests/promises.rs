//! What holds in every run: nothing is lost from sight, and the same run twice is the same run.

use crate::common::{BULK, Dumbbell, options};
use proptest::prelude::*;
use std::num::NonZero;
use weir_sim::{
    Algorithm, Bursts, Discipline, Network, Options, Outcome, PoolSpec, Port, QueueSpec, RedSpec,
    Sim, TcpConfig, Traffic, play,
};
use weir_units::{Bytes, Rate, Span, Time};

fn small(pairs: u32, buffer: u64, loss: f64) -> Dumbbell {
    Dumbbell {
        pairs,
        mbps: 1000,
        rtt: Span::from_micros(300),
        buffer,
        mark_above: Some(20),
        loss,
        until: Span::from_millis(60),
    }
}

fn check(network: &Network, outcome: &Outcome) {
    let packets = &outcome.packets;
    assert_eq!(packets.launched, packets.delivered + packets.dropped + packets.in_flight);
    let entered: u64 = outcome.links.iter().map(|link| link.packets).sum();
    let gone: u64 = outcome.links.iter().map(|link| link.drops + link.lost).sum();
    assert_eq!(packets.dropped, gone);
    assert_eq!(entered, outcome.packet_hops + packets.in_flight, "each packet is on one link");
    assert!(outcome.events >= outcome.packet_hops);
    for (spec, link) in network.links().iter().zip(&outcome.links) {
        let most = spec.rate.bytes_in(outcome.now.since(Time::ZERO));
        assert!(link.octets.get() <= most.get() + 1, "more than the link's rate");
        assert!(link.queued <= spec.buffer, "more than the buffer");
        assert!(spec.mark_above.is_some() || network.ports().next().is_some() || link.marks == 0);
    }
    for (spec, flow) in network.flows().iter().zip(&outcome.flows) {
        if let Traffic::Tcp { octets: Some(octets), .. } = spec.traffic {
            assert!(flow.octets.get() <= octets.get());
            assert_eq!(flow.completed.is_some(), flow.octets.get() == octets.get());
        }
    }
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let algorithm = prop_oneof![
        Just(None),
        Just(Some(Algorithm::Reno)),
        Just(Some(Algorithm::Cubic)),
        Just(Some(Algorithm::Dctcp)),
    ];
    let octets = prop_oneof![Just(0u64), 1u64..5_000, 1u64..3_000_000];
    prop_oneof![
        3 => (octets, algorithm)
            .prop_map(|(octets, algorithm)| Traffic::Tcp { octets: NonZero::new(octets), algorithm }),
        1 => (1u64..2000, 29u16..1501, 0u64..900, any::<bool>()).prop_map(|(mbps, size, off, random)| {
            let (on, off) = (Span::from_micros(200), Span::from_micros(off));
            let bursts = (off > Span::ZERO).then_some(Bursts { on, off, random });
            Traffic::Udp { rate: Rate::from_mbps(mbps), size, bursts }
        }),
    ]
}

fn discipline() -> impl Strategy<Value = Discipline> {
    let queue =
        (1u32..9, 1u64..40, prop::option::of(1u64..20)).prop_map(|(weight, buffer, knee)| {
            let octets = |packets: u64| Bytes::new(1500 * packets);
            QueueSpec { weight, buffer: octets(buffer), mark_above: knee.map(octets) }
        });
    let queues = || prop::collection::vec(queue.clone(), 1..9);
    let red = (1u64..1400, 0.01f64..1.0, 0.001f64..1.0, any::<bool>()).prop_map(
        |(min, probability, weight, gentle)| {
            let (min, max) = (Bytes::new(min), Bytes::new(1500));
            Discipline::Red(RedSpec { min, max, probability, weight, gentle })
        },
    );
    prop_oneof![
        Just(Discipline::Fifo),
        red,
        queues().prop_map(Discipline::Priority),
        queues().prop_map(Discipline::Drr),
        queues().prop_map(Discipline::Wfq),
    ]
}

/// The two ports of the bottleneck, and the first access ports, are special; flows have classes.
fn with_ports(network: &Network, (a, b): (Discipline, Discipline), shared: bool) -> Network {
    let until = network.until();
    let mut special = Network::new(64, network.mtu(), until).expect("fits");
    for link in network.links() {
        special.add_link(weir_sim::LinkSpec { mark_above: None, ..link.clone() }).expect("fits");
    }
    for (flow, spec) in (0..).zip(network.flows()) {
        special.add_flow(spec.clone()).expect("fits");
        special.set_class(flow, (flow % 8) as u8).expect("fits");
    }
    for alpha in [0.5, 2.0] {
        special.add_pool(PoolSpec { octets: Bytes::new(20_000), alpha }).expect("fits");
    }
    let port = |discipline, pool: u32| Port { discipline, pool: shared.then_some(pool) };
    special.set_port(0, port(a, 0)).expect("fits");
    special.set_port(1, port(b, 1)).expect("fits");
    // Links 5 and 3 go to the same switches' hosts as 0 and 1.
    special.set_port(5, port(Discipline::Fifo, 0)).expect("fits");
    special.set_port(3, port(Discipline::Fifo, 1)).expect("fits");
    special
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_packet_is_delivered_dropped_or_in_flight(
        pairs in 1u32..12,
        buffer in 1u64..80,
        loss in prop_oneof![Just(0.0), 0.0f64..0.2],
        traffic in traffic(),
        stops in prop::collection::vec(0u64..60_000_000, 0..5),
        ports in prop::option::of((discipline(), discipline(), any::<bool>())),
        seed in any::<u64>(),
    ) {
        let mut network = small(pairs, buffer, loss).network(traffic);
        if let Some((a, b, shared)) = ports {
            network = with_ports(&network, (a, b), shared);
        }
        let tcp = TcpConfig { min_rto: Span::from_millis(2), ..TcpConfig::default() };
        let options = Options { tcp, seed };
        let mut sim = Sim::new(&network, &options);
        let mut stops = stops;
        stops.sort_unstable();
        for stop in stops {
            sim.run_until(Time::from_nanos(stop));
            check(&network, &sim.outcome());
        }
        sim.run_until(network.until());
        let outcome = sim.outcome();
        check(&network, &outcome);
        let at_once = play(&network, &options);
        prop_assert_eq!(&at_once, &outcome, "stops change nothing");
        prop_assert_eq!(at_once.digest(), outcome.digest());
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let network = small(6, 30, 0.01).network(BULK);
    let digest = |seed| play(&network, &Options { seed, ..options(TcpConfig::default()) }).digest();
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn the_digest_sees_a_single_packet() {
    let dumbbell = small(2, 50, 0.0);
    let octets = |n| Traffic::Tcp { octets: NonZero::new(n), algorithm: None };
    let digest = |n| play(&dumbbell.network(octets(n)), &options(TcpConfig::default())).digest();
    assert_ne!(digest(100_000), digest(100_001));
}

/// A further way through another link between the same switches: packets take both in turn.
#[test]
fn packets_of_a_flow_take_its_ways_in_turn() {
    let mut network = small(1, 1000, 0.0).network(BULK);
    let other = network.add_link(network.links()[0].clone()).expect("fits");
    let mut forward = network.flows()[0].forward.clone();
    assert_eq!(forward[1], 0);
    forward[1] = other;
    network.add_way(0, weir_sim::Way::Forward, forward).expect("fits");
    let outcome = play(&network, &options(TcpConfig::default()));
    check(&network, &outcome);
    let (a, b) = (outcome.links[0].packets, outcome.links[other as usize].packets);
    assert!(a > 1000 && a.abs_diff(b) <= 1, "{a} {b}");
    assert_eq!(outcome.flows[0].repeats, 0, "of the same length: nothing is overtaken");
}

/// The same on every machine and in every build: all arithmetic is exact or IEEE 754's. When the
/// model changes on purpose, so does this number.
#[test]
fn a_run_is_the_same_on_every_machine() {
    let digests = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp].map(|algorithm| {
        let tcp = TcpConfig { algorithm, ..TcpConfig::default() };
        play(&small(5, 40, 0.001).network(BULK), &options(tcp)).digest()
    });
    let expected = [0xdda2_04f8_e426_a616, 0xe57b_bc8b_ce08_fc30, 0x3eac_81b4_a22f_e343_u64];
    assert_eq!(digests, expected, "{digests:x?}");
}
