//! The scenarios of the repository, resolved: what they play is what their figures say.

use std::path::PathBuf;
use weir_model::scenario::{
    Against, Expectation, FaultKind, File, Other, Pick, Scenario, TrafficKind, is_datacenter,
};
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
        let names: Vec<&str> = point.mechanisms.iter().map(|m| m.name()).collect();
        assert_eq!(names, ["none", "reservation", "seawall", "elasticswitch", "elasticswitch"]);
        assert_eq!(point.mechanisms[3].preset, "paper");
        assert_eq!(point.mechanisms[4].preset, "steady");
    }
    assert_eq!(vm(&points[4], "y-src-99").floor_out, Rate::from_mbps(18));
    assert_eq!(vm(&points[6], "y-src-0").floor_out, Rate::from_mbps(6));
}

#[test]
fn fig05_expects_what_holds_at_each_point() {
    let points = load("elasticswitch/fig05.yaml", &[]);
    let alone = expectations(&points[0], "goodput_of_link.x");
    assert_eq!((alone.len(), alone[0].at_least), (2, Some(0.90)), "of both presets");
    let starved = expectations(&points[4], "goodput_of_link.x");
    assert_eq!(starved[0].mechanism.as_deref(), Some("none"));
    assert_eq!(starved[0].at_most, Some(2.0 / 101.0));
    assert_eq!(expectations(&points[4], "total_of_link")[0].at_least, Some(0.85));
    assert_eq!(expectations(&points[5], "total_of_link")[0].at_least, Some(0.75));
    let floors = |points: &[Scenario]| -> Vec<usize> {
        points.iter().map(|p| expectations(p, "goodput_of_floor.x").len()).collect()
    };
    let lab = "the reservation always, both presets from 1 to 200";
    assert_eq!(floors(&points), [1, 3, 3, 3, 3, 3, 1], "{lab}");
    let papers = load("elasticswitch/fig05.yaml", &[("scale", "1")]);
    assert_eq!(floors(&papers), [1, 3, 3, 3, 3, 3, 3], "and 300 at the paper's scale");
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
                _ => None,
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
    assert_eq!(core.rate, Rate::from_mbps(100));
    assert_eq!(vm(demo, "gold-dst").floor_in, Rate::from_mbps(45));
    assert_eq!(vm(demo, "bulk-dst").floor_in, Rate::from_mbps(45));
    assert_eq!(demo.traffic.len(), 101);
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
            other => panic!("{other:?}"),
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

/// All scenario files of the repository, by their paths below `scenarios/`.
fn shipped() -> Vec<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut open = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).expect("scenarios are shipped").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml") && !is_datacenter(&path) {
                let below = path.strip_prefix(&root).expect("it is below");
                files.push(below.display().to_string());
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_shipped_scenario_can_be_played_also_short() {
    let files = shipped();
    assert!(files.len() > 12, "{files:?}");
    for file in &files {
        for point in load(file, &[]) {
            assert!(!point.traffic.is_empty() && !point.mechanisms.is_empty(), "{file}");
            assert!(point.expect.iter().all(|e| e.says.len() > 5), "{file}");
        }
        assert!(!load(file, &[("duration", "8s"), ("warmup", "2s")]).is_empty(), "{file}");
    }
}

#[test]
fn every_shipped_datacenter_is_sound() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/qshare");
    let entries = std::fs::read_dir(root).expect("shipped").map(|entry| entry.expect("one").path());
    let files: Vec<PathBuf> = entries.filter(|path| is_datacenter(path)).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let read = weir_model::scenario::DatacenterFile::load(&file, &[]);
        let read = read.unwrap_or_else(|error| panic!("{error}"));
        assert!(read.points().len() > 1 && read.title().len() > 5, "{}", file.display());
    }
}

#[test]
fn every_shipped_table_of_sizes_is_one() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/workloads");
    let means = [
        ("web-search.cdf", 1_711_000),
        ("data-mining.cdf", 7_470_000),
        ("enterprise.cdf", 157_000),
        ("hadoop.cdf", 120_000),
    ];
    for (name, mean) in means {
        let text = std::fs::read_to_string(directory.join(name)).expect("shipped");
        assert!(text.contains("Source: "), "{name}");
        let cdf =
            weir_model::scenario::Cdf::parse(&text).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let got = weir_model::scenario::Sizes::Table(cdf.into(), 1.0).mean().get();
        let off = (got as f64 / mean as f64 - 1.0).abs();
        assert!(off < 0.05, "{name}: a mean of {got}, published {mean}");
    }
}

#[test]
fn fig02_offers_from_nothing_to_the_whole_link() {
    let points = load("elasticswitch/fig02.yaml", &[]);
    let offered: Vec<u64> = points
        .iter()
        .map(|p| p.traffic.iter().filter_map(|t| t.kind.offers()).map(Rate::as_bps).sum())
        .collect();
    let percent: Vec<u64> = (0..=10).map(|ten| ten * 20_000_000).collect();
    assert_eq!(offered, percent);
}

#[test]
fn table2_holds_one_pairs_goodput_against_the_others() {
    let points = load("elasticswitch/table2.yaml", &[]);
    let floors: Vec<Rate> = points.iter().map(|p| vm(p, "b-dst").floor_in).collect();
    assert_eq!(floors, [18, 36, 90].map(Rate::from_mbps));
    let ratio = expectations(&points[0], "goodput.b")[0];
    let other = Other::Metric("goodput.a".into());
    assert_eq!(ratio.against, Some(Against { difference: false, other }));
    assert_eq!((ratio.at_least, ratio.at_most), (Some(1.9), Some(3.0)), "no rates: a ratio");
    // Not rising down the rows: each is held against the one above.
    for (row, point) in points.iter().enumerate() {
        let ratios = expectations(point, "goodput.b");
        let against: Vec<_> = ratios.iter().filter_map(|e| e.at.as_ref()).collect();
        let above = row.checked_sub(1).map(|above| &points[above].point);
        assert_eq!(against, above.into_iter().flat_map(|a| [a, a]).collect::<Vec<_>>(), "{row}");
    }
}

#[test]
fn fig09_costs_little_with_ten_new_vms_a_second_and_the_more_the_more_they_are() {
    let points = load("elasticswitch/fig09.yaml", &[]);
    let value = |point: &[(String, f64)], name: &str| {
        point.iter().find(|(param, _)| param == name).expect("a parameter").1
    };
    let mut compared = Vec::new();
    for point in &points {
        let of = |e: &&&Expectation| e.mechanism.as_deref() == Some("elasticswitch:steady");
        for e in expectations(point, "goodput.x").iter().filter(of) {
            let there = e.at.as_deref().expect("held against another point");
            let both = [&point.point[..], there].map(|p| [value(p, "old"), value(p, "fresh")]);
            compared.push((both, e.at_least, e.at_most));
        }
    }
    let none = [0., 0.];
    let little = |here| ([here, none], Some(0.95), None);
    let no_less = |here, there| ([here, there], None, Some(1.0));
    assert_eq!(
        compared,
        [
            little([10., 0.]),
            little([100., 0.]),
            little([0., 10.]),
            little([90., 10.]),
            no_less([0., 20.], [0., 10.]),
            no_less([80., 20.], [90., 10.]),
            no_less([0., 50.], [0., 20.]),
            no_less([50., 50.], [80., 20.]),
        ]
    );
}

#[test]
fn a_real_program_is_held_against_the_built_in_traffic_of_the_same_network() {
    let points = load("elasticswitch/fig05-exec.yaml", &[]);
    assert_eq!(points.len(), 4);
    for pair in points.chunks(2) {
        let [built_in, real] = pair else { panic!("both are played") };
        let names =
            |s: &Scenario| -> Vec<&str> { s.traffic.iter().map(|t| t.kind.name()).collect() };
        assert!(names(built_in).iter().all(|kind| *kind == "tcp"));
        assert!(names(real).iter().all(|kind| *kind == "exec"));
        assert_eq!(built_in.topology, real.topology);
        let hosts = |s: &Scenario| -> Vec<_> {
            s.traffic
                .iter()
                .map(|t| (s.vms[t.from].host, s.vms[t.to].host, t.group.clone()))
                .collect()
        };
        assert_eq!(hosts(built_in), hosts(real));
        for metric in ["goodput.x", "total_of_link"] {
            let held: Vec<_> =
                expectations(real, metric).into_iter().filter(|e| e.at.is_some()).collect();
            assert!(!held.is_empty(), "{metric}");
            for e in held {
                assert_eq!(e.at.as_ref(), Some(&built_in.point));
                assert_eq!((e.at_least, e.at_most), (Some(0.97), Some(1.03)));
            }
        }
    }
}

#[test]
fn floors_are_asked_of_half_seconds_too_and_congestion_is_shown() {
    let files = [
        "fig02",
        "table2",
        "ecn",
        "control-loss",
        "control-late",
        "fig09",
        "churn",
        "gateway",
        "ipv6",
        "fig05",
        "fig05-edge",
        "fig06",
        "fig06-core",
        "gp-demands",
        "gp-fig4",
        "two-paths",
        "shrew",
    ];
    for file in files {
        let points = load(&format!("elasticswitch/{file}.yaml"), &[]);
        let asks = |s: &Scenario| {
            let p1 =
                |e: &&Expectation| e.metric.starts_with("window_p1.") && e.at_least == Some(0.85);
            s.expect.iter().any(|e| p1(&e))
        };
        assert!(points.iter().any(asks), "{file}");
    }
    for file in ["control-loss", "control-late", "agent-crash", "fig12"] {
        for point in load(&format!("elasticswitch/{file}.yaml"), &[]) {
            let alone = point.traffic.len() == 1;
            assert_eq!(point.congested.is_empty(), alone, "{file}");
            let none = |m: &weir_model::scenario::Mechanism| m.row.is_none();
            assert!(point.mechanisms.iter().any(none), "{file}: nothing would show it");
            let about_none = |e: &Expectation| e.mechanism.is_none();
            assert!(!point.expect.iter().any(about_none), "{file}: no agents, no numbers of them");
        }
    }
}

#[test]
fn control_late_asks_of_agents_whether_messages_suffered_as_they_should() {
    let points = load("elasticswitch/control-late.yaml", &[]);
    assert_eq!(points.len(), 5);
    for point in &points {
        let FaultKind::Control(control) = &point.faults[0].kind else { panic!("another fault") };
        let asked = |metric, part: f64| {
            let lower = |e: &&Expectation| e.at_least.is_some_and(|least| least > 0.0);
            let asks = expectations(point, metric).iter().any(lower);
            assert_eq!(asks, part > 0.0, "{metric} at {:?}", point.point);
        };
        asked("control_lost", control.loss);
        asked("control_repeated", control.duplicate);
        asked("control_overtaken", control.reorder);
        asked("control_delay", control.delay.as_secs_f64());
        assert_eq!(expectations(point, "goodput_of_floor.x").len(), 2, "of both presets");
    }
    let late = |p: &Scenario| expectations(p, "control_delay")[0].at_least;
    assert_eq!(late(&points[2]), Some(0.03), "in seconds");
}

#[test]
fn fig08_fills_its_slots_and_every_reducer_gets_the_same() {
    for (file, vms) in [("random", 64), ("unbalanced", 64), ("light", 6)] {
        let points = load(&format!("elasticswitch/fig08-{file}.yaml"), &[]);
        let [point, endless] = &points[..] else { panic!("two points") };
        let judged = |s: &Scenario| s.expect.iter().any(|e| e.metric.starts_with("shuffle_s."));
        assert!(judged(point) && !judged(endless), "{file}: one of them does not end");
        assert_eq!(point.vms.len(), vms, "{file}");
        let at = |host: usize| point.vms.iter().filter(|vm| vm.host == host).count();
        assert!((0..16).all(|host| at(host) <= 4), "{file}: four slots each");
        for (vm, _) in point.vms.iter().enumerate().filter(|(_, vm)| vm.name.contains("-red-")) {
            let gets = |t: &weir_model::scenario::Traffic| match t.kind {
                TrafficKind::Shuffle { octets, .. } if t.to == vm => octets.get(),
                _ => 0,
            };
            let total: u64 = point.traffic.iter().map(gets).sum();
            assert!(total.abs_diff(3_350_000) < 10, "{file}: {total}");
        }
    }
}

/// All floors fit the two paths together, and half of them does not fit the narrow one.
#[test]
fn two_paths_promise_all_that_they_can_and_spread_evenly_too_much() {
    let points = load("elasticswitch/two-paths.yaml", &[]);
    let [point] = &points[..] else { panic!("one point") };
    let rate = |name: &str| {
        point.topology.links.iter().find(|link| link.name == name).expect("a link").rate
    };
    let floors: Rate =
        point.vms.iter().filter(|vm| vm.name.contains("-src")).map(|vm| vm.floor_out).sum();
    assert_eq!(floors, (rate("wide") + rate("narrow")).scale(0.9));
    assert!(floors.split(2) > rate("narrow") * 2, "{floors}");
    let ways = point.topology.forwarding_to(point.vms[point.traffic[0].to].host);
    let steps = point.topology.stages(&ways, point.vms[point.traffic[0].from].host);
    assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1]);
    let evenly = File::load(
        &PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../scenarios/elasticswitch/two-paths.yaml"),
        &[("topology.links.ecmp".to_owned(), "flow".to_owned())],
    );
    let refused = evenly.and_then(|file| file.points()).expect_err("by switches, evenly");
    assert!(refused.message.contains("narrow"), "{}", refused.message);
}

#[test]
fn fig09_and_churn_come_back_to_a_vm_after_it_was_forgotten() {
    let files = ["elasticswitch/fig09.yaml", "elasticswitch/churn.yaml"];
    for point in files.iter().flat_map(|file| load(file, &[])) {
        for traffic in &point.traffic {
            if let TrafficKind::Flows(flows) = &traffic.kind
                && flows.pick == Pick::InTurn
            {
                let seconds = f64::from(flows.of) / flows.arrivals.per_second;
                assert!(seconds >= 2.0, "{}: {seconds} s", point.name);
            }
        }
    }
}

#[test]
fn the_four_combinations_share_everything_but_what_they_are_named_for() {
    let ten =
        |file: &str| load(&format!("elasticswitch/{file}.yaml"), &[("senders", "10")]).remove(0);
    for (file, network, traffic) in
        [("fig05-edge", "fig06", "fig05"), ("fig06-core", "fig05", "fig06")]
    {
        let (mixed, network, traffic) = (ten(file), ten(network), ten(traffic));
        assert_eq!(mixed.topology, network.topology, "{file}");
        assert_eq!(mixed.congested, network.congested, "{file}");
        let kinds = |s: &Scenario| s.traffic.iter().map(|t| t.kind.clone()).collect::<Vec<_>>();
        assert_eq!(kinds(&mixed), kinds(&traffic), "{file}");
        assert_eq!(mixed.expect, traffic.expect, "{file}");
    }
}

#[test]
fn with_ecn_all_switches_mark_and_either_many_tcp_senders_or_one_udp_sender_compete() {
    let points = load("elasticswitch/ecn.yaml", &[]);
    assert_eq!(points.len(), 10);
    for point in &points {
        let marks = |l: &weir_model::scenario::Link| l.queueing.ecn == Some(Bytes::new(20_000));
        assert!(point.topology.links.iter().all(|l| marks(l) && !l.is_more_than_a_queue()));
    }
    let others: Vec<usize> = points.iter().map(|p| p.traffic.len() - 1).collect();
    assert_eq!(others, [0, 1, 2, 10, 100, 1, 1, 1, 1, 1]);
    let rate = |p: &Scenario| match p.traffic[1].kind {
        TrafficKind::Udp { rate, .. } => rate,
        _ => panic!("UDP"),
    };
    assert_eq!((rate(&points[5]), rate(&points[9])), (Rate::from_mbps(20), Rate::from_mbps(200)));
    assert!(points[0].congested.is_empty() && points[5].congested == ["core"]);
}

#[test]
fn reordering_is_played_with_and_without_true_losses() {
    let points = load("elasticswitch/reorder.yaml", &[]);
    assert_eq!(points.len(), 2);
    let paths = points[0].topology.links[0].queueing.paths.expect("two paths");
    assert_eq!((paths.count, paths.skew), (2, Span::from_micros(200)));
    // What is offered fits the core: 30 of X, 17 of U, of 100 Mb/s.
    assert_eq!(vm(&points[0], "x-src").cap_out, Some(Rate::from_mbps(30)));
    assert_eq!((points[0].traffic.len(), points[1].traffic.len()), (3, 13));
    // Where packets are dropped, a loss that goes unseen would hide one that is made up.
    let judged = |p, metric| expectations(p, metric).len();
    assert_eq!((judged(&points[0], "false_losses"), judged(&points[0], "drops")), (1, 1));
    assert_eq!((judged(&points[1], "false_losses"), judged(&points[1], "losses_reported")), (0, 1));
}

#[test]
fn each_end_dies_in_turn_and_comes_back_while_senders_start() {
    use weir_model::scenario::FaultKind;
    let points = load("elasticswitch/agent-crash.yaml", &[]);
    let victims = ["left-0", "right-0", "right-1", "left-1"];
    assert_eq!(points.len(), victims.len());
    for (point, victim) in points.iter().zip(victims) {
        let host = point.topology.hosts.iter().position(|h| h == victim).expect("a host");
        let steps: Vec<(Span, &FaultKind)> =
            point.faults.iter().map(|fault| (fault.at, &fault.kind)).collect();
        let (kill, start) =
            (FaultKind::KillAgent { host, guardian: false }, FaultKind::StartAgent { host });
        assert_eq!(steps, [(Span::from_secs(10), &kill), (Span::from_secs(15), &start)]);
        let late = point.traffic.iter().filter(|t| t.start == Span::from_secs(12)).count();
        assert_eq!(late, 100);
    }
    let judged: Vec<[usize; 2]> = points
        .iter()
        .map(|p| ["x", "y"].map(|g| expectations(p, &format!("window_min_settled.{g}")).len()))
        .collect();
    let both = "of both presets, and of the neighbour of whose agents die";
    assert_eq!(judged, [[2, 2], [2, 2], [2, 0], [2, 0]], "{both}");
    let starts: Vec<Span> = points.iter().map(|p| p.traffic[0].start).collect();
    assert_eq!(starts[2..], [Span::ZERO, Span::from_secs(11)], "the borrower has the link alone");
}

/// ALGORITHMS.md, vCC: limit, min, max, probability and weight of RED1 to RED3, and of Fig 7's
/// three.
#[test]
fn the_ports_of_vccs_figures_mark_as_its_table_1_says() {
    let port = |file: &str, point: &[(&str, &str)]| {
        let [scenario] = &load(file, point)[..] else { panic!("{file}: one point") };
        let link = scenario.topology.links.iter().find(|link| link.name == "host-0");
        let link = link.expect("the receiver's").clone();
        let Some(red) = link.queueing.red else { panic!("{file}: it marks") };
        (link.buffer.get(), red.min.get(), red.max.get(), red.probability, red.weight)
    };
    let table = [
        ("1", (1_000_000, 90_000, 90_001, 1.0, 0.5)),
        ("2", (400_000, 30_000, 90_000, 0.02, 1.0 / 64.0)),
        ("3", (400_000, 30_000, 90_000, 1.0, 1.0 / 64.0)),
    ];
    for (red, wanted) in table {
        let got = port("vcc/fig06.yaml", &[("red", red), ("new", "9")]);
        assert!((got.3 - wanted.3).abs() < 1e-9, "RED{red}: {got:?}");
        assert_eq!(
            (got.0, got.1, got.2, got.4),
            (wanted.0, wanted.1, wanted.2, wanted.4),
            "RED{red}"
        );
    }
    for file in ["vcc/fig01.yaml", "vcc/fig04.yaml", "vcc/fig10.yaml", "vcc/fig11.yaml"] {
        let points = load(file, &[]);
        for point in &points {
            let link = point.topology.links.iter().find(|l| l.name == "host-0").expect("there");
            let red = link.queueing.red.expect("it marks");
            let got =
                (link.buffer.get(), red.min.get(), red.max.get(), red.probability, red.weight);
            assert_eq!(got, table[0].1, "{file}");
        }
    }
}
