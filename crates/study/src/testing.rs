//! A scenario and a run whose numbers can be checked by head.

use crate::judge::{Observed, ObservedFlow, payload};
use weir_model::record::LinkRecord;
use weir_model::scenario::{
    IpVersion, Link, Mechanism, Scenario, Topology, Traffic, TrafficKind, Vm,
};
use weir_units::{Bytes, Rate, Span};

const SAMPLE_S: f64 = 0.1;

/// Two racks and one link of 200 Mbit between them: X sends to X', `n` VMs send to Y'; every VM has
/// a floor of 90 Mbit. 10 s, of which the first is not judged.
pub fn dumbbell(n: usize) -> Scenario {
    let vm = |name: String, tenant: usize, host: usize| Vm {
        name,
        tenant,
        host,
        floor_out: Rate::from_mbps(90),
        floor_in: Rate::from_mbps(90),
        cap_out: None,
        external: weir_model::scenario::External::default(),
        outside: Vec::new(),
        ecn: None,
        deaf: false,
        translated: true,
        policing: None,
        rack: true,
        backpressure: false,
        hoses: Vec::new(),
        budget: None,
    };
    let mut vms = vec![vm("x".into(), 0, 0), vm("x'".into(), 0, 1), vm("y'".into(), 1, 1)];
    vms.extend((0..n).map(|i| vm(format!("y{i}"), 1, 0)));
    let mut traffic = vec![tcp("X", 0, 1)];
    traffic.extend((0..n).map(|i| tcp("Y", 3 + i, 2)));
    let link = |name: &str, a, b, rate| Link {
        name: name.into(),
        a,
        b,
        rate: Rate::from_mbps(rate),
        buffer: Bytes::new(128_000),
        delay: Span::ZERO,
        queueing: Default::default(),
    };
    let hosts = vec!["left".into(), "right".into()];
    let switches = vec!["s1".into(), "s2".into()];
    let links = vec![link("l", 0, 2, 1000), link("core", 2, 3, 200), link("r", 3, 1, 1000)];
    let mechanism = |label: &str| Mechanism::parse(label).expect("known");
    Scenario {
        name: "hand-made".into(),
        title: "by hand".into(),
        point: vec![("n".into(), n as f64)],
        duration: Span::from_secs(10),
        warmup: Span::from_secs(1),
        sample: Span::from_millis(100),
        scale: 1.0,
        clock_drift: 0,
        topology: Topology { hosts, switches, links, ecmp: None },
        vms,
        tenants: vec!["gold".into(), "bulk".into()],
        hoses: vec![],
        lab: Default::default(),
        traffic,
        faults: vec![],
        mechanisms: vec![mechanism("none"), mechanism("elasticswitch")],
        binding: Default::default(),
        attacks: vec![],
        congested: vec!["core".into()],
        expect: vec![],
    }
}

/// One TCP connection from VM `from` to VM `to` for the whole run.
pub fn tcp(group: &str, from: usize, to: usize) -> Traffic {
    Traffic {
        group: group.into(),
        from,
        to,
        start: Span::ZERO,
        stop: Span::from_secs(10),
        ip: IpVersion::V4,
        trace: None,
        kind: TrafficKind::Tcp { connections: 1, congestion: "cubic".into() },
    }
}

/// Octets of one sample at `mbps` on the wire.
fn octets(mbps: f64) -> u64 {
    (mbps * 1e6 * SAMPLE_S / 8.0).round() as u64
}

/// A run in which every traffic entry has a constant rate on the wire, and so has the core.
pub fn steady(scenario: &Scenario, wire_mbps: &[f64]) -> Observed {
    let samples = 100;
    let flow = |(t, &mbps): (&Traffic, &f64)| {
        let goodput = octets(mbps * payload::share(t));
        let (octets, connections) = (vec![goodput; samples], vec![goodput * 90]);
        ObservedFlow { octets, connections, ..ObservedFlow::default() }
    };
    let total: f64 = wire_mbps.iter().sum();
    let links = (0..2 * scenario.topology.links.len()).map(|directed| LinkRecord {
        octets: vec![if directed % 2 == 0 { octets(total) } else { 0 }; samples],
        drops: vec![u64::from(directed == 2); samples],
        marks: vec![0; samples],
    });
    Observed {
        sample: Span::from_millis(100),
        flows: scenario.traffic.iter().zip(wire_mbps).map(flow).collect(),
        links: links.collect(),
        idle: vec![0.4; samples],
        stolen: vec![0.0; samples],
        ..Observed::default()
    }
}
