//! The scenarios of the repository, resolved: what they play is what their figures say.

use std::path::PathBuf;
use weir_model::scenario::{Expectation, File, MechanismKind, Scenario, TrafficKind};
use weir_units::{Bytes, Rate, Span};

fn load(file: &str, overrides: &[(&str, &str)]) -> Vec<Scenario> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let file = File::load(&path, &overrides).unwrap_or_else(|e| panic!("{e}"));
    file.points().unwrap_or_else(|e| panic!("{e}"))
}

fn senders(scenario: &Scenario) -> f64 {
    scenario.point.iter().find(|(name, _)| name == "senders").expect("a parameter").1
}

fn vm(scenario: &Scenario, name: &str) -> weir_model::scenario::Vm {
    scenario.vms.iter().find(|vm| vm.name == name).unwrap_or_else(|| panic!("{name}")).clone()
}

fn expectations<'a>(scenario: &'a Scenario, metric: &str) -> Vec<&'a Expectation> {
    scenario.expect.iter().filter(|e| e.metric == metric).collect()
}

#[test]
fn fig05_sweeps_the_senders_of_the_paper() {
    let points = load("elasticswitch/fig05.yaml", &[]);
    assert_eq!(points.iter().map(senders).collect::<Vec<_>>(), [0., 1., 2., 10., 100., 200., 300.]);
    for point in &points {
        let n = senders(point) as usize;
        assert_eq!(point.name, "fig05");
        assert_eq!((point.duration, point.warmup), (Span::from_secs(30), Span::from_secs(5)));
        assert_eq!(point.scale, 0.2);
        assert_eq!((point.topology.hosts.len(), point.topology.switches.len()), (13, 2));
        assert_eq!(point.topology.links.len(), 14);
        assert!(point.topology.links.iter().all(|l| l.rate == Rate::from_mbps(200)));
        assert!(point.topology.links.iter().all(|l| l.buffer == Bytes::new(128_000)));
        assert_eq!((point.vms.len(), point.traffic.len()), (n + 3, n + 1));
        assert_eq!(vm(point, "x-dst").floor_in, Rate::from_mbps(90));
        let congested: &[&str] = if n == 0 { &[] } else { &["core"] };
        assert_eq!(point.congested, congested);
        let kinds: Vec<MechanismKind> = point.mechanisms.iter().map(|m| m.kind).collect();
        use MechanismKind::{ElasticSwitch, None, Reservation};
        assert_eq!(kinds, [None, Reservation, ElasticSwitch, ElasticSwitch]);
        assert_eq!(point.mechanisms[2].preset, "paper");
        assert_eq!(point.mechanisms[3].preset, "steady");
    }
    assert_eq!(vm(&points[4], "y-src-99").floor_out, Rate::from_mbps(18));
    assert_eq!(vm(&points[6], "y-src-0").floor_out, Rate::from_mbps(6));
}

#[test]
fn fig05_expects_what_holds_at_each_point() {
    let points = load("elasticswitch/fig05.yaml", &[]);
    let alone = expectations(&points[0], "goodput_of_link.x");
    assert_eq!((alone.len(), alone[0].at_least), (1, Some(0.90)));
    let starved = expectations(&points[4], "goodput_of_link.x");
    assert_eq!(starved[0].mechanism.as_deref(), Some("none"));
    assert_eq!(starved[0].at_most, Some(2.0 / 101.0));
    assert_eq!(expectations(&points[4], "total_of_link")[0].at_least, Some(0.85));
    assert_eq!(expectations(&points[5], "total_of_link")[0].at_least, Some(0.75));
    let floors: Vec<usize> =
        points.iter().map(|p| expectations(p, "goodput_of_floor.x").len()).collect();
    assert_eq!(
        floors,
        [1, 2, 2, 2, 2, 2, 1],
        "the reservation always, elasticswitch from 1 to 200"
    );
    assert!(expectations(&points[0], "jain.y").is_empty());
    assert!(points.iter().flat_map(|p| &p.expect).all(|e| e.says.len() > 10));
}

#[test]
fn fig05_is_played_short_and_at_one_point_by_overrides() {
    let points = load("elasticswitch/fig05.yaml", &[("senders", "100"), ("duration", "10s")]);
    assert_eq!(points.len(), 1);
    assert_eq!((senders(&points[0]), points[0].duration), (100.0, Span::from_secs(10)));
    assert!(points[0].traffic.iter().all(|t| t.stop == Span::from_secs(10)));
}

#[test]
fn any_number_of_senders_fits_the_hosts() {
    for n in [3, 7, 11, 25, 55, 99, 137, 250] {
        for file in ["elasticswitch/fig05.yaml", "elasticswitch/fig06.yaml", "demo.yaml"] {
            assert_eq!(load(file, &[("senders", &n.to_string())]).len(), 1, "{file} with {n}");
        }
    }
}

#[test]
fn fig06_offers_the_link_twice() {
    let points = load("elasticswitch/fig06.yaml", &[]);
    assert_eq!(points.len(), 7);
    for point in &points {
        let offered: u64 = point
            .traffic
            .iter()
            .filter_map(|t| match t.kind {
                TrafficKind::Udp { rate, .. } => Some(rate.as_bps()),
                TrafficKind::Tcp { .. } => None,
            })
            .sum();
        let wanted = match senders(point) as u64 {
            0 => 0,
            1 => 200_000_000,
            _ => 400_000_000,
        };
        assert!(offered.abs_diff(wanted) < 300, "{offered} of {wanted}");
        assert_eq!(vm(point, "x-dst").host, vm(point, "y-dst").host);
        let congested: &[&str] = if senders(point) == 0.0 { &[] } else { &["host-0"] };
        assert_eq!(point.congested, congested);
    }
}

#[test]
fn the_demo_turns_from_tcp_to_udp_at_half_time() {
    let points = load("demo.yaml", &[]);
    assert_eq!(points.len(), 1);
    let demo = &points[0];
    assert_eq!((demo.duration, demo.warmup), (Span::from_secs(18), Span::from_secs(3)));
    let core = demo.topology.links.iter().find(|l| l.name == "core").expect("a core link");
    assert_eq!(core.rate, Rate::from_mbps(200));
    assert_eq!(vm(demo, "gold-dst").floor_in, Rate::from_mbps(90));
    assert_eq!(vm(demo, "bulk-dst").floor_in, Rate::from_mbps(90));
    assert_eq!(demo.traffic.len(), 201);
    let half = Span::from_secs(9);
    for flow in &demo.traffic[1..] {
        match &flow.kind {
            TrafficKind::Tcp { connections, .. } => {
                assert_eq!((flow.start, flow.stop, *connections), (Span::ZERO, half, 1));
            }
            TrafficKind::Udp { rate, on, payload, .. } => {
                assert_eq!((flow.start, flow.stop), (half, demo.duration));
                assert_eq!((*rate, *on), (Rate::from_mbps(4), None));
                assert_eq!(*payload, Bytes::new(1472));
            }
        }
    }
}

#[test]
fn the_demo_expects_something_of_each_act_and_both_floors_of_the_last() {
    let demo = &load("demo.yaml", &[])[0];
    for mechanism in &demo.mechanisms {
        let label = Some(&mechanism.label);
        assert!(demo.expect.iter().any(|e| e.mechanism.as_ref() == label), "{label:?}");
    }
    for metric in ["goodput_of_floor.gold", "goodput_of_floor.bulk"] {
        let held = |e: &&Expectation| e.mechanism.as_deref() == Some("elasticswitch:steady");
        let held: Vec<_> = expectations(demo, metric).into_iter().filter(held).collect();
        assert_eq!((held.len(), held[0].at_least), (1, Some(0.95)), "{metric}");
    }
}

#[test]
fn a_path_crosses_the_core_in_its_direction() {
    let demo = &load("demo.yaml", &[])[0];
    let (from, to) = (vm(demo, "gold-src").host, vm(demo, "gold-dst").host);
    let names = |path: Vec<weir_model::scenario::LinkDir>| -> Vec<String> {
        path.into_iter().map(|step| step.name(&demo.topology)).collect()
    };
    assert_eq!(
        names(demo.path(from, to)),
        ["left-0:left-0>left", "core:left>right", "right-0:right>right-0"]
    );
    assert_eq!(
        names(demo.path(to, from)),
        ["right-0:right-0>right", "core:right>left", "left-0:left>left-0"]
    );
}
