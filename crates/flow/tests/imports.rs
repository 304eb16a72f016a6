//! Files of other simulators: what is right, what is wrong, and what no program would write.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_flow::import::{
    Connection, Failure, HpccFlow, Layered, Link, MOST_LINKS, Node, Start, Tier, Topology, Trigger,
    TriggerKind, cdf, connection_matrix, hpcc_flows, hpcc_topology, htsim_topology,
};
use weir_flow::{Flow, Flows, Routes, allocate};
use weir_units::{Bytes, Rate, Span, Time};

const MATRIX: &str = "# four hosts\nNodes 4\nConnections 3\nTriggers 1\nFailures 1\n\
    0->3 start 0 size 2000000 id 1 send_done_trigger 7\n1->3 start 1000001 size 500000 prio 1\n\
    2->1 trigger 7 size 0 id 2\n\ntrigger id 7 barrier count 1\n\
    failure switch_type AGG switch_id 2 link_id 1\n";

const FAT_TREE: &str = "# as the default\nNodes 16\nTiers 3\nPodsize 4\n\nTier 0\n\
    Downlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 1000\n\
    Tier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 500\nBundle 1\n\
    Tier 2\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\n";

const LEAF_SPINE: &str = "Nodes 32\nTiers 2\nPodsize 32\nTier 0\nDownlink_speed_Gbps 100\n\
    Radix_Down 8\nRadix_Up 2\nDownlink_Latency_ns 1000\nOversubscribed 4\nQueue_Up 15000\n\
    TIER 1\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 1000\n";

const FLOWS: &str = "2\n0 3 3 100 200000000 2.0\n1 3 3 100 5000000 2.000000001\n\nsrc dst ...\n";

const TOPOLOGY: &str = "4 1 3\n3\n0 3 100Gbps 0.001ms 0\n1 3 25Gbps 1us 0.000000\n\
    2 3 1.5Mb/s 1000ns 0.5\n\nFirst line: total node #\n";

const SIZES: &str = "0 0\n10000 15\n20000 100\n";

#[test]
fn a_connection_matrix_is_read_whole() {
    let matrix = connection_matrix("a.cm", MATRIX).expect("right");
    assert_eq!(matrix.nodes, 4);
    let first = Connection {
        from: 0,
        to: 3,
        start: Start::At(Time::ZERO),
        size: Some(Bytes::new(2_000_000)),
        id: Some(1),
        priority: None,
        send_done: Some(7),
        recv_done: None,
    };
    assert_eq!(matrix.connections[0], first);
    // 1000001 ps start in the 1001st nanosecond.
    assert_eq!(matrix.connections[1].start, Start::At(Time::from_nanos(1001)));
    assert_eq!(matrix.connections[1].priority, Some(1));
    assert_eq!(
        (matrix.connections[2].start, matrix.connections[2].size),
        (Start::Trigger(7), None)
    );
    assert_eq!(matrix.triggers, [Trigger { id: 7, kind: TriggerKind::Barrier(1) }]);
    assert_eq!(matrix.failures, [Failure { tier: Tier::Agg, switch: 2, link: 1 }]);
}

#[test]
fn three_tiers_of_htsim_are_a_fat_tree() {
    let (layered, topology) = htsim_topology("a.topo", FAT_TREE).expect("right");
    assert_eq!((layered.hosts, layered.pod, layered.tiers.len()), (16, 4, 3));
    let hosts = topology.nodes.iter().filter(|node| **node == Node::Host).count();
    // 16 hosts, 8 ToR, 8 aggregation and 4 core switches; 16 links per tier, both ways.
    assert_eq!((hosts, topology.nodes.len(), topology.links.len()), (16, 36, 96));
    let delays: Vec<u64> = [0, 40, 80].map(|at| topology.links[at].delay.as_nanos()).into();
    assert_eq!(delays, [1000, 500, 1000]);
    let mut routes = Routes::new(&topology);
    let lengths: Vec<usize> =
        [1, 3, 15].map(|to| routes.path(0, to, 9).expect("connected").len()).into();
    assert_eq!(lengths, [2, 4, 6]);
}

#[test]
fn two_tiers_of_htsim_are_a_leaf_spine() {
    let (layered, topology) = htsim_topology("b.topo", LEAF_SPINE).expect("right");
    assert_eq!(layered.tiers[0].queue_up, Some(Bytes::new(15_000)));
    assert_eq!((layered.tiers[0].oversubscribed, layered.tiers[1].radix_up), (4, 0));
    assert_eq!((topology.nodes.len(), topology.links.len()), (32 + 4 + 2, 2 * (32 + 8)));
}

#[test]
fn hpcc_flows_are_as_many_as_the_first_line_says() {
    let read = hpcc_flows("flow.txt", FLOWS, 4).expect("right");
    let second = HpccFlow {
        from: 1,
        to: 3,
        group: 3,
        port: 100,
        size: Bytes::new(5_000_000),
        start: Time::from_nanos(2_000_000_001),
    };
    assert_eq!((read.flows.len(), read.flows[1], read.ignored), (2, second, 1));
}

#[test]
fn an_hpcc_topology_has_both_directions_of_its_links() {
    let (topology, ignored) = hpcc_topology("topology.txt", TOPOLOGY).expect("right");
    assert_eq!(topology.nodes, [Node::Host, Node::Host, Node::Host, Node::Switch]);
    let back = Link {
        from: 3,
        to: 2,
        rate: Rate::from_bps(1_500_000),
        delay: Span::from_micros(1),
        loss: 0.5,
    };
    assert_eq!((topology.links.len(), topology.links[5], ignored), (6, back, 1));
}

#[test]
fn imported_flows_over_an_imported_topology_have_ideal_rates() {
    let (topology, _) = hpcc_topology("topology.txt", TOPOLOGY).expect("right");
    let mut routes = Routes::new(&topology);
    let world = routes.world();
    let flow = |(from, to)| Flow::greedy(routes.path(from, to, 0).expect("connected"));
    let flows: Vec<Flow> = [(0, 1), (0, 2)].map(flow).into();
    let rates = allocate(&world, &flows.iter().collect::<Flows>()).expect("admissible").rates;
    assert_eq!(rates, [25e9, 1.5e6]);
}

#[test]
fn a_table_in_percent_is_a_table_of_shares() {
    use weir_model::scenario::Cdf;
    let ours = Cdf::parse("0 0\n10000 0.15\n20000 1\n").expect("right");
    assert_eq!(cdf("sizes", SIZES), Ok(ours.clone()));
    assert_eq!(cdf("sizes", "# shares\n0 0\n\n10000 0.15\n20000 1\n"), Ok(ours));
    let error = cdf("sizes", "\n5 0\n# less\n3 100\n").expect_err("falls");
    assert!(error.to_string().starts_with("sizes:4: "), "{error}");
}

type Read = fn(&str) -> Result<(), weir_flow::import::ImportError>;

fn matrix(text: &str) -> Result<(), weir_flow::import::ImportError> {
    connection_matrix("f", text).map(drop)
}

fn topo(text: &str) -> Result<(), weir_flow::import::ImportError> {
    htsim_topology("f", text).map(drop)
}

fn flows(text: &str) -> Result<(), weir_flow::import::ImportError> {
    hpcc_flows("f", text, 4).map(drop)
}

fn topology(text: &str) -> Result<(), weir_flow::import::ImportError> {
    hpcc_topology("f", text).map(drop)
}

/// One change to a file that is right, the line it is told with, and words of what is told.
const WRONG: &[(Read, &str, &str, &str, u32, &str)] = &[
    (matrix, MATRIX, "Nodes 4", "Nodes four", 2, "`four` is not a whole number"),
    (matrix, MATRIX, "Nodes 4", "Nodes", 2, "write `Nodes NUMBER`"),
    (matrix, MATRIX, "Nodes 4\n", "\n", 6, "comes before `Nodes N`"),
    (matrix, MATRIX, "Nodes 4", "Nodes 0", 6, "there are no nodes"),
    (matrix, MATRIX, "Triggers 1", "Nodes 4", 4, "`Nodes` is said twice"),
    (matrix, MATRIX, "Connections 3", "Connections 4", 0, "says `Connections 4`, and has 3"),
    (matrix, MATRIX, "Connections 3", "Conections 3", 3, "`Conections` is none of"),
    (matrix, MATRIX, "0->3", "0->4", 6, "receiver `4` is not a whole number from 0 to 3"),
    (matrix, MATRIX, "1->3", "->3", 7, "sender ``"),
    (matrix, MATRIX, "1->3", "3->3", 7, "node 3 sends to itself"),
    (matrix, MATRIX, "start 1000001", "start -1", 7, "start `-1`"),
    (matrix, MATRIX, "start 1000001 ", "", 7, "neither `start` nor `trigger`"),
    (matrix, MATRIX, "2->1 trigger 7", "2->1 trigger 7 start 0", 8, "both `start` and `trigger`"),
    (matrix, MATRIX, "size 500000 ", "", 7, "has no `size`"),
    (matrix, MATRIX, "prio 1", "prio", 7, "`prio` has no value"),
    (matrix, MATRIX, "prio 1", "size 3", 7, "`size` is said twice"),
    (matrix, MATRIX, "prio 1", "color 1", 7, "`color` is none of"),
    (matrix, MATRIX, "2->1 trigger 7", "2->1 trigger 8", 8, "no trigger with id 8"),
    (matrix, MATRIX, "id 7 barrier count 1", "id 7 barrier", 10, "a barrier needs a `count`"),
    (matrix, MATRIX, "id 7 barrier", "id 7 oneshot barrier", 10, "two kinds"),
    (matrix, MATRIX, "id 7 barrier count 1", "barrier count 1", 10, "needs an `id`"),
    (matrix, MATRIX, "type AGG", "type SPINE", 11, "none of TOR, AGG, CORE"),
    (matrix, MATRIX, " link_id 1", "", 11, "needs switch_type, switch_id and link_id"),
    (topo, FAT_TREE, "Tiers 3", "Tiers 4", 0, "has 4 tiers"),
    (topo, FAT_TREE, "Tiers 3", "Tiers 2", 0, "more tiers than the 2"),
    (topo, FAT_TREE, "Nodes 16\n", "", 0, "has no line `nodes N`"),
    (topo, FAT_TREE, "Nodes 16", "Nodes 18", 0, "18 over 4"),
    (topo, FAT_TREE, "Tier 1", "Tier 0", 11, "tier 0 is said twice"),
    (topo, FAT_TREE, "Tier 2", "Tier 3", 17, "tier `3`"),
    (topo, FAT_TREE, "Bundle 1", "Bundle 2", 0, "radix_up of tier 0 is 2"),
    (topo, FAT_TREE, "Radix_Down 4", "Radix_Down 8", 0, "radix_up of tier 1 is 2"),
    (topo, FAT_TREE, "Switch_Latency_ns 0", "Radix_Up 1", 0, "tier 2 is the top"),
    (topo, FAT_TREE, "Switch_Latency_ns 0", "Switch 0", 21, "`switch` is none of"),
    (topo, FAT_TREE, "Downlink_Latency_ns 500\n", "", 0, "tier 1 has no `downlink_latency_ns`"),
    (topo, FAT_TREE, "Podsize 4", "Radix_Up 4", 4, "comes before the first `Tier`"),
    (topo, LEAF_SPINE, "Podsize 32", "Podsize 16", 0, "radix_up of tier 0 is 2"),
    (topo, LEAF_SPINE, "Oversubscribed 4", "Oversubscribed", 9, "write `oversubscribed VALUE`"),
    (topo, LEAF_SPINE, "Gbps 100\nRadix_Down 8", "Gbps 0\nRadix_Down 8", 0, "speed_gbps of 0"),
    (flows, FLOWS, "2\n0", "two\n0", 1, "number of flows `two`"),
    (flows, FLOWS, "2\n0", "5\n0", 5, "src dst pg dport"),
    (flows, "3\n0 3 3 1 1 0\n", "", "", 0, "ends before flow 2 of 3"),
    (flows, FLOWS, "1 3 3 100", "4 3 3 100", 3, "source `4`"),
    (flows, FLOWS, "1 3 3 100", "3 3 3 100", 3, "sends to itself"),
    (flows, FLOWS, "1 3 3 100 5000000", "1 3 3 100 0", 3, "0 octets"),
    (flows, FLOWS, "100 5000000", "66000 5000000", 3, "dport `66000`"),
    (flows, FLOWS, "2.000000001", "1.9", 3, "sort by start"),
    (topology, TOPOLOGY, "4 1 3", "4 1", 1, "nodes switches links"),
    (topology, TOPOLOGY, "4 1 3", "4 5 3", 1, "switches `5`"),
    (topology, TOPOLOGY, "4 1 3\n3", "4 2 3\n3 3", 2, "named twice"),
    (topology, TOPOLOGY, "4 1 3\n3", "4 1 3\n3 2", 2, "more than 1 switches"),
    (topology, TOPOLOGY, "4 1 3\n3", "4 1 3\n4", 2, "switch `4`"),
    (topology, TOPOLOGY, "25Gbps", "25G", 4, "has no unit"),
    (topology, TOPOLOGY, "1us", "1fortnight", 4, "has no unit"),
    (topology, TOPOLOGY, "0.5", "1.5", 5, "error_rate `1.5`"),
    (topology, TOPOLOGY, "2 3 1.5", "2 2 1.5", 5, "connected with itself"),
    (topology, TOPOLOGY, "4 1 3", "4 1 9", 7, "node `First`"),
];

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for (read, text, was, is, line, what) in WRONG {
        assert!(text.contains(was), "{was} is not there to be changed");
        let error = read(&text.replacen(was, is, 1)).expect_err(what);
        assert_eq!((error.file.as_str(), error.line), ("f", *line), "{was} → {is}: {error}");
        assert!(error.what.contains(what), "{was} → {is}: {error}");
    }
}

/// What every topology that was read owes.
fn sound(topology: &Topology) -> Result<(), TestCaseError> {
    prop_assert!(topology.links.len() <= MOST_LINKS as usize);
    for pair in topology.links.chunks(2) {
        prop_assert_eq!((pair[0].from, pair[0].to), (pair[1].to, pair[1].from));
        prop_assert!(pair[0].from != pair[0].to && !pair[0].rate.is_zero());
        prop_assert!((pair[0].from.max(pair[0].to) as usize) < topology.nodes.len());
    }
    Ok(())
}

/// Every parser reads it, and what they accept is sound.
fn read_all(text: &str) -> Result<(), TestCaseError> {
    let most = text.lines().count() as u32;
    let error = |error: weir_flow::import::ImportError| {
        prop_assert!(error.file == "f" && error.line <= most && !error.what.is_empty());
        Ok(())
    };
    match connection_matrix("f", text) {
        Ok(read) => {
            prop_assert!(read.connections.iter().all(|c| c.from.max(c.to) < read.nodes));
        }
        Err(wrong) => error(wrong)?,
    }
    match htsim_topology("f", text) {
        Ok((Layered { hosts, .. }, topology)) => {
            sound(&topology)?;
            // Every host has one port, and can reach the last one.
            let ports = |host| topology.links.iter().filter(|link| link.from == host).count();
            prop_assert!((0..hosts.min(50)).all(|host| ports(host) == 1));
            let mut routes = Routes::new(&topology);
            prop_assert!((0..hosts.min(50)).all(|host| routes.path(host, hosts - 1, 1).is_some()));
        }
        Err(wrong) => error(wrong)?,
    }
    match hpcc_flows("f", text, 4) {
        Ok(read) => {
            prop_assert!(read.flows.iter().all(|f| f.from.max(f.to) < 4 && f.from != f.to));
            prop_assert!(read.flows.is_sorted_by_key(|flow| flow.start));
        }
        Err(wrong) => error(wrong)?,
    }
    match hpcc_topology("f", text) {
        Ok((topology, _)) => sound(&topology)?,
        Err(wrong) => error(wrong)?,
    }
    match cdf("f", text) {
        Ok(_) => {}
        Err(wrong) => error(wrong)?,
    }
    Ok(())
}

const WORDS: &[&str] = &[
    "0",
    "1",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "1e308",
    "1e-308",
    "-1",
    "nan",
    "inf",
    "0.5",
    "100Gbps",
    "1Tbps",
    "1ns",
    "Tier",
    "Nodes",
    "Podsize",
    "Bundle",
    "Radix_Down",
    "0->1",
    "->",
    "trigger",
    "id",
    "start",
    "size",
    "barrier",
    "count",
    "#",
    "\n",
    "\u{e9}->\u{0}",
];

const FILES: &[&str] = &[MATRIX, FAT_TREE, LEAF_SPINE, FLOWS, TOPOLOGY, SIZES];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_damage_to_a_file_panics_or_is_accepted_unsound(
        file in 0..FILES.len(),
        damages in vec((any::<prop::sample::Index>(), 0..WORDS.len(), 0..4u8), 0..5),
    ) {
        let mut words: Vec<String> =
            FILES[file].split_inclusive([' ', '\n']).map(str::to_string).collect();
        for (at, word, how) in damages {
            let at = at.index(words.len());
            let end = if words[at].ends_with('\n') { "\n" } else { " " };
            match how {
                0 => words[at] = format!("{}{end}", WORDS[word]),
                1 => words.insert(at, format!("{} ", WORDS[word])),
                2 => words[at] = end.to_string(),
                _ => words.insert(at, words[at / 2].clone()),
            }
        }
        read_all(&words.concat())?;
    }

    #[test]
    fn no_text_at_all_panics(text in "(\\PC|\n| ){0,200}") {
        read_all(&text)?;
    }
}
