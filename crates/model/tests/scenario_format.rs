//! What the format can say, beyond what the shipped scenarios use.

use proptest::prelude::*;
use weir_model::scenario::{
    Connections, Ecmp, File, Link, Load, PathBy, Paths, Red, Scenario, Spacing, TrafficKind,
};
use weir_units::{Bytes, Rate, Span};

const DOCS: &str = include_str!("../../../docs/scenarios.md");

/// The example of docs/scenarios.md.
fn example() -> &'static str {
    let start = DOCS.find("```yaml\n").expect("an example") + "```yaml\n".len();
    let length = DOCS[start..].find("```").expect("its end");
    &DOCS[start..start + length]
}

fn points(text: &str, overrides: &[(&str, &str)]) -> Vec<Scenario> {
    let overrides: Vec<(String, String)> =
        overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let file = File::parse("a.yaml", text, &overrides).unwrap_or_else(|e| panic!("{e}"));
    file.points().unwrap_or_else(|e| panic!("{e}"))
}

fn senders(points: &[Scenario]) -> Vec<f64> {
    points.iter().map(|p| p.point[0].1).collect()
}

/// The example on another topology, without its tenants' traffic.
fn on(topology: &str, host: &str) -> Vec<Scenario> {
    let text = format!(
        "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
         topology: {topology}, tenants: [{{name: a, vms: [{{name: v, host: {host}}}]}}], \
         mechanisms: none}}}}"
    );
    points(&text, &[])
}

#[test]
fn the_documented_example_plays_as_documented() {
    let points = points(example(), &[]);
    assert_eq!(senders(&points), [1.0, 10.0, 100.0]);
    let ten = &points[1];
    assert_eq!(ten.vms.len(), 13);
    assert_eq!((ten.vms[2].name.as_str(), ten.vms[11].name.as_str()), ("y-src-0", "y-src-9"));
    let hosts: Vec<usize> = ten.vms[2..6].iter().map(|vm| vm.host).collect();
    assert_eq!(hosts, [1, 2, 1, 2], "dealt in turn");
    let dst = &ten.vms[12];
    assert_eq!((dst.floor_in, dst.floor_out), (Rate::from_mbps(90), Rate::from_mbps(20)));
    let blast = &ten.traffic[1];
    assert_eq!((blast.start, blast.stop), (Span::from_secs(15), Span::from_secs(30)));
    let (rate, payload) = (Rate::from_mbps(40), Bytes::new(1472));
    let (on, off) = (Some(Span::from_millis(5)), Some(Span::from_millis(15)));
    assert_eq!(blast.kind, TrafficKind::Udp { rate, on, off, payload });
    assert_eq!((points[0].expect.len(), ten.expect.len()), (1, 2));
}

#[test]
fn an_entrys_pairs_begin_one_by_one_within_a_time() {
    let text = example().replace("start: duration / 2", "start: duration / 2, within: 2s");
    let starts: Vec<Span> =
        points(&text, &[])[1].traffic[1..].iter().map(|entry| entry.start).collect();
    assert_eq!((starts.len(), starts[0]), (10, Span::from_secs(15)));
    let mut sorted = starts.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 10, "{starts:?}");
    assert!(sorted[9] < Span::from_secs(17), "{starts:?}");
    // Spread evenly: no gap of a fifth of the time is empty.
    assert!(sorted.windows(2).all(|two| two[1] - two[0] <= Span::from_millis(400)), "{sorted:?}");
}

#[test]
fn every_metric_and_key_that_is_known_is_documented() {
    let wrong = example().replace("goodput_of_floor.x", "nonsense");
    let error = File::parse("a.yaml", &wrong, &[]).and_then(|f| f.points()).unwrap_err();
    let metrics = error.help.rsplit(": ").next().expect("a list");
    let wrong = example().replace("  duration:", "  nonsense: 1\n  duration:");
    let error = File::parse("a.yaml", &wrong, &[]).unwrap_err();
    let keys = error.help.rsplit(": ").next().expect("a list");
    for name in metrics.split(", ").chain(keys.split(", ")) {
        assert!(DOCS.contains(&format!("`{name}`")), "docs/scenarios.md does not mention {name}");
    }
}

#[test]
fn a_sweep_over_two_parameters_is_multiplied_out() {
    let text = example().replace(
        "sweep: {senders: [1, 10, 100]} ",
        "sweep: {senders: [1, 2], share: [100Mbit, 200Mbit]} ",
    );
    let pairs: Vec<(f64, f64)> =
        points(&text, &[]).iter().map(|p| (p.point[0].1, p.point[1].1)).collect();
    assert_eq!(pairs, [(1.0, 1e8), (1.0, 2e8), (2.0, 1e8), (2.0, 2e8)]);
    assert_eq!(points(&text, &[("share", "50Mbit")]).len(), 2, "one of the two is pinned");
}

#[test]
fn a_sweep_can_be_a_list_of_points() {
    let text = example()
        .replace("{senders: [1, 10, 100]} ", "[{senders: 4}, {senders: 6, share: 1Mbit}] ");
    assert_eq!(senders(&points(&text, &[])), [4.0, 6.0]);
    assert_eq!(senders(&points(&text, &[("senders", "3")])), [3.0, 3.0], "share still differs");
}

#[test]
fn an_override_can_sweep() {
    assert_eq!(senders(&points(example(), &[("senders", "[5, 7]")])), [5.0, 7.0]);
    let shares = points(example(), &[("share", "[5Mbit, 7Mbit]"), ("senders", "3")]);
    assert_eq!(shares.len(), 2);
}

#[test]
fn a_link_may_be_congested_at_some_points_only() {
    let text =
        example().replace("congested: [core]", "congested: [{link: core, when: senders >= 10}]");
    let links: Vec<usize> = points(&text, &[]).iter().map(|p| p.congested.len()).collect();
    assert_eq!(links, [0, 1, 1]);
    let set = [("congested", "[left-0, {link: core, when: senders == 1}]")];
    let points = points(example(), &set);
    assert_eq!(points[0].congested, ["left-0", "core"]);
    assert_eq!(points[1].congested, ["left-0"]);
}

#[test]
fn what_is_expected_of_a_mechanism_is_known_whatever_the_point() {
    let file = File::parse("a.yaml", example(), &[]).unwrap_or_else(|e| panic!("{e}"));
    assert!(file.expects_of("none") && file.expects_of("elasticswitch"));
    assert!(!file.expects_of("reservation") && !file.expects_of("elasticswitch:steady"));
}

#[test]
fn an_override_reaches_any_value_by_name() {
    let set = [
        ("topology.core", "2Gbit"),
        ("spec.topology.dumbbell.delay", "1ms"),
        ("tenants.x.vms.x-src.cap", "500Mbit"),
        ("traffic.x.tcp.connections", "senders + 1"),
        ("mechanisms", "[\"elasticswitch:quick\"]"),
        ("scale", "1"),
        ("senders", "10"),
    ];
    let point = &points(example(), &set)[0];
    assert_eq!(point.topology.links[0].rate, Rate::from_mbps(2000));
    assert!(point.topology.links.iter().all(|l| l.delay == Span::from_millis(1)));
    assert_eq!(point.vms[0].cap_out, Some(Rate::from_mbps(500)));
    assert!(matches!(point.traffic[0].kind, TrafficKind::Tcp { connections: 11, .. }));
    assert_eq!(point.mechanisms[0].preset, "quick");
    assert_eq!(point.mechanisms[0].label, "elasticswitch:quick");
}

#[test]
fn two_tiers_oversubscribe_their_uplinks() {
    let topology = "{two-tier: {racks: 2, hosts_per_rack: 8, link: 1Gbit, oversubscription: 4}}";
    let t = &on(topology, "host-1-7")[0].topology;
    assert_eq!((t.hosts.len(), t.switches.len(), t.links.len()), (16, 3, 18));
    let up = t.links.iter().find(|l| l.name == "rack-1").expect("an uplink");
    assert_eq!(up.rate, Rate::from_mbps(2000));
    let t = &on(topology, "host-0-0")[0];
    let names: Vec<String> = t.path(0, 15).into_iter().map(|l| l.name(&t.topology)).collect();
    assert_eq!(
        names,
        [
            "host-0-0:host-0-0>rack-0",
            "rack-0:rack-0>root",
            "rack-1:root>rack-1",
            "host-1-7:rack-1>host-1-7"
        ]
    );
}

#[test]
fn a_leaf_spine_has_a_link_from_every_leaf_to_every_spine() {
    let topology = "{leaf-spine: {leaves: 3, spines: 2, hosts_per_leaf: 8, link: 1Gbit, \
                    oversubscription: 2, links: {leaf-2-spine-1: {delay: 1ms}}}}";
    let t = &on(topology, "host-2-7")[0].topology;
    assert_eq!((t.hosts.len(), t.switches.len(), t.links.len()), (24, 5, 30));
    assert_eq!(t.ecmp, Some(Ecmp::Flow), "as such networks do");
    let up = t.links.iter().find(|l| l.name == "leaf-2-spine-1").expect("an uplink");
    assert_eq!((up.rate, up.delay), (Rate::from_mbps(2000), Span::from_millis(1)));
    assert_eq!((t.node_name(up.a), t.node_name(up.b)), ("leaf-2", "spine-1"));
    let host = t.hosts.iter().position(|h| h == "host-2-7").expect("a host");
    let stages = t.stages(&t.forwarding_to(host), 0);
    assert_eq!(stages.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 2, 1]);
}

#[test]
fn a_fat_tree_has_its_full_bisection_unless_oversubscribed() {
    let t = &on("{fat-tree: {k: 4, link: 1Gbit}}", "host-3-1-1")[0].topology;
    // k³/4 hosts, 5k²/4 switches, 3k³/4 links.
    assert_eq!((t.hosts.len(), t.switches.len(), t.links.len()), (16, 20, 48));
    assert!(t.links.iter().all(|link| link.rate == Rate::from_mbps(1000)));
    for (node, name) in t.switches.iter().enumerate() {
        let node = t.hosts.len() + node;
        let ports = t.links.iter().filter(|l| l.a == node || l.b == node).count();
        assert_eq!(ports, 4, "{name}");
    }
    // Each core has a link to one switch of each pod.
    let to = |core: &str| -> Vec<String> {
        let ends = t.links.iter().filter(|l| t.node_name(l.b) == core).map(|l| t.node_name(l.a));
        ends.map(str::to_owned).collect()
    };
    assert_eq!(to("core-3"), ["agg-0-1", "agg-1-1", "agg-2-1", "agg-3-1"]);
    let host = |name: &str| t.hosts.iter().position(|h| h == name).expect("a host");
    let ways = t.forwarding_to(host("host-3-1-1"));
    let lengths =
        |from: &str| -> Vec<usize> { t.stages(&ways, host(from)).iter().map(Vec::len).collect() };
    assert_eq!(lengths("host-0-0-0"), [1, 2, 4, 4, 2, 1]);
    assert_eq!(lengths("host-3-0-0"), [1, 2, 2, 1]);
    assert_eq!(lengths("host-3-1-0"), [1, 1]);

    let more = "{fat-tree: {k: 4, hosts_per_edge: 4, link: 1Gbit, uplink: 1Gbit, ecmp: packet}}";
    let t = &on(more, "host-3-1-3")[0].topology;
    assert_eq!((t.hosts.len(), t.ecmp), (32, Some(Ecmp::Packet)));
    let thin =
        &on("{fat-tree: {k: 4, link: 1Gbit, oversubscription: 4}}", "host-0-0-0")[0].topology;
    let rate = |name: &str| thin.links.iter().find(|l| l.name == name).expect("a link").rate;
    assert_eq!(
        (rate("edge-0-0-agg-1"), rate("host-0-0-0")),
        (Rate::from_mbps(250), Rate::from_mbps(1000))
    );
}

#[test]
fn a_topology_can_be_written_link_by_link() {
    let scenario = on(
        "{links: {hosts: [a, b], switches: [s], buffer: 64kB, \
          links: [{a: a, b: s, rate: 1G}, {name: slow, a: s, b: b, rate: 10M, buffer: 9kB, delay: 5ms}]}}",
        "a",
    );
    let links = &scenario[0].topology.links;
    assert_eq!((links[0].name.as_str(), links[0].buffer), ("a-s", Bytes::new(64_000)));
    assert_eq!((links[1].buffer, links[1].delay), (Bytes::new(9_000), Span::from_millis(5)));
    assert_eq!(scenario[0].path(0, 1).len(), 2);
}

#[test]
fn sets_send_to_everybody_but_themselves() {
    let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 9s, \
        topology: {single-switch: {hosts: 4, link: 1G}}, repeat: 3, mechanisms: [none], \
        tenants: [{name: a, vms: [{name: v, hosts: host-0..host-3, count: 4}]}], \
        traffic: [{group: shuffle, from: v, to: v, tcp: }, {group: one, from: v-0, to: v-2, tcp: {}}]}}";
    let scenario = &points(text, &[])[0];
    assert_eq!(scenario.traffic.len(), 13);
    assert!(scenario.traffic.iter().all(|t| t.from != t.to));
    assert_eq!(File::parse("a.yaml", text, &[]).and_then(|f| f.repeat()), Ok(3));
}

proptest! {
    #[test]
    fn a_file_with_a_piece_changed_is_read_or_refused_but_never_a_panic(
        at in 0_usize..2000,
        length in 0_usize..40,
        with in "[-a-z0-9{}\\[\\]:,.*/() \n\"'&!|>]{0,12}",
    ) {
        let text = example();
        let (from, to) = (at.min(text.len()), (at + length).min(text.len()));
        let changed = format!("{}{with}{}", &text[..from], &text[to..]);
        if let Err(error) = File::parse("a.yaml", &changed, &[]).and_then(|file| file.points()) {
            prop_assert!(!error.message.is_empty());
            prop_assert_eq!(error.file, "a.yaml");
        }
    }
}

/// The documented example with another first traffic entry.
fn with_traffic(kind: &str) -> Scenario {
    let text = example().replace("tcp: {connections: 1, congestion: cubic}", kind);
    points(&text, &[("senders", "3")]).remove(0)
}

#[test]
fn requests_have_answers_and_scale_changes_sizes_but_no_moments() {
    let kind = "request: {size: 1kB, response: 20kB, rate: 50, connections: new}";
    let point = with_traffic(kind);
    let [request, reply] = &point.traffic[..2] else { panic!("two of them") };
    assert_eq!((reply.from, reply.to), (request.to, request.from));
    let TrafficKind::Request(request) = &request.kind else { panic!("{request:?}") };
    assert_eq!((request.size, request.response), (Bytes::new(200), Bytes::new(4000)));
    assert_eq!(request.connections, Connections::New);
    let Load::Open(at) = &request.load else { panic!("{:?}", request.load) };
    assert_eq!((at.per_second, at.spacing), (50.0, Spacing::Poisson));
    assert!(at.starts().take(20).eq(at.starts().take(20)));
    let closed = with_traffic("request: {size: 1kB, response: 20kB, outstanding: 4}");
    let TrafficKind::Request(request) = &closed.traffic[0].kind else { panic!("{closed:?}") };
    assert_eq!(
        (&request.load, request.connections),
        (&Load::Closed { outstanding: 4 }, Connections::Kept)
    );
    assert_eq!(closed.traffic[0].kind.offers(), Some(Rate::ZERO));
}

#[test]
fn a_memcached_has_answers_and_what_is_not_written_is_usual() {
    let point = with_traffic("memcached: {rate: 50, value: 5kB}");
    let [request, reply] = &point.traffic[..2] else { panic!("two of them") };
    assert_eq!((reply.from, reply.to), (request.to, request.from));
    let TrafficKind::Memcached(memcached) = &request.kind else { panic!("{request:?}") };
    // Played at a fifth.
    assert_eq!((memcached.value, memcached.key), (Bytes::new(1000), Bytes::new(32)));
    assert_eq!((memcached.keys, memcached.connections, memcached.sets), (1000, 10, 0.1));
    assert_eq!(
        (memcached.arrivals.per_second, memcached.arrivals.spacing),
        (50.0, Spacing::Poisson)
    );
    let all = "memcached: {rate: 5, spacing: fixed, value: 1kB, key: 20B, keys: 7, sets: 1, \
               connections: 3, congestion: reno}";
    let point = with_traffic(all);
    let TrafficKind::Memcached(memcached) = &point.traffic[0].kind else { panic!("{point:?}") };
    assert_eq!((memcached.key.get(), memcached.keys, memcached.connections), (20, 7, 3));
    // Six lines' words and ends around 200 octets under a key of 20, with headers.
    let wire = 4 + 20 + 5 + 3 + 2 + 200 + 2 + 66;
    assert_eq!(point.traffic[0].kind.offers(), Some(Rate::from_bps(wire * 8 * 5)));
    assert_eq!(point.traffic[1].kind.congestion(), Some("reno"));
}

#[test]
fn flows_of_a_sender_are_dealt_to_its_destinations() {
    let text = example().replace(
        "{group: y, from: y-src, to: y-dst, udp: {rate: 2Gbit / senders, on: 5ms, off: 15ms}",
        "{group: y, from: y-dst, to: y-src, flows: {rate: 30, size: 10kB, pick: in-turn}",
    );
    let point = points(&text, &[("senders", "3")]).remove(0);
    let flows: Vec<_> = point
        .traffic
        .iter()
        .filter_map(|t| match &t.kind {
            TrafficKind::Flows(flows) => Some(flows),
            _ => None,
        })
        .collect();
    let places: Vec<(u32, u32)> = flows.iter().map(|f| (f.mine, f.of)).collect();
    assert_eq!(places, [(0, 3), (1, 3), (2, 3)]);
    assert!(flows.windows(2).all(|pair| pair[0].arrivals == pair[1].arrivals), "one sender");
    // 2 kB are two segments; a third of thirty per second.
    assert!(point.traffic[1].kind.offers() == Some(Rate::from_bps((2000 + 132) * 8 * 10)));
}

fn link<'a>(scenario: &'a Scenario, name: &str) -> &'a Link {
    scenario.topology.links.iter().find(|l| l.name == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn all_links_mark_and_a_single_one_is_called_by_its_name() {
    let points = on(
        "{dumbbell: {left: 1, right: 1, edge: 1G, core: 1G, ecn: 20kB, \
          links: {core: {delay: 1ms, buffer: 200kB, red: {min: 30kB, max: 90kB}}, left-0: {ecn: 0}, \
          right-0: {loss: 0.01, paths: {skew: 200us}}}}}",
        "left-0",
    );
    let core = link(&points[0], "core");
    let (min, max) = (Bytes::new(30_000), Bytes::new(90_000));
    let red = Red { min, max, probability: 0.1, weight: 0.002 };
    assert_eq!((core.queueing.red, core.queueing.ecn), (Some(red), None), "RED marks alone");
    assert_eq!((core.delay, core.buffer), (Span::from_millis(1), Bytes::new(200_000)));
    let (left, right) = (link(&points[0], "left-0"), link(&points[0], "right-0"));
    assert_eq!((left.queueing.ecn, left.is_more_than_a_queue()), (None, false));
    assert_eq!(right.queueing.ecn, Some(Bytes::new(20_000)));
    assert_eq!(right.queueing.loss, 0.01);
    let paths = Paths { count: 2, skew: Span::from_micros(200), by: PathBy::Flow };
    assert_eq!((right.queueing.paths, right.is_more_than_a_queue()), (Some(paths), true));
}

#[test]
fn a_link_of_a_list_has_paths_and_a_threshold_of_its_own() {
    let points = on(
        "{links: {hosts: [a, b], switches: [s], links: [{a: a, b: s, rate: 1G}, {name: two, a: s, \
          b: b, rate: 10M, ecn: 9kB, paths: {count: 3, skew: 1ms, by: packet}}]}}",
        "a",
    );
    let two = link(&points[0], "two");
    let paths = Paths { count: 3, skew: Span::from_millis(1), by: PathBy::Packet };
    assert_eq!((two.queueing.ecn, two.queueing.paths), (Some(Bytes::new(9_000)), Some(paths)));
    assert!(!link(&points[0], "a-s").is_more_than_a_queue());
}
