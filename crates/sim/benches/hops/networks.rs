//! Four networks by which simulators are compared, as network files.
//!
//! W1  16 flows through a dumbbell, 1 s.
//! W2  Fat tree, k = 8: each of 128 hosts sends to another, 20 ms.
//! W3  144 hosts under 9 leaves and 4 spines: web search at half the load, 20 ms.
//! W4  Fat tree, k = 16: each of 1024 hosts sends to another, 5 ms.
//!
//! All links have 10 Gb/s, but for leaves to spines 40. Ports hold 250 packets and mark above 65.
//! Ways depend on the destination alone, so that simulators that route hop by hop play the same.

use crate::twister::Twister;
use std::fmt::Write as _;
use weir_units::SortedMap;

pub(crate) const NAMES: [&str; 4] = ["W1", "W2", "W3", "W4"];

const MTU: u64 = 1500;
const RATE: u64 = 10_000_000_000;
const BUFFER: u64 = 250 * MTU;
const HOST_BUFFER: u64 = 1000 * MTU;
const MARK_ABOVE: u64 = 65 * MTU;

/// Sizes of web search (DCTCP, SIGCOMM 2010), in segments of 1460 octets.
const WEB_SEARCH: [(f64, f64); 12] = [
    (0.0, 0.0),
    (6.0, 0.15),
    (13.0, 0.2),
    (19.0, 0.3),
    (33.0, 0.4),
    (53.0, 0.53),
    (133.0, 0.6),
    (667.0, 0.7),
    (1333.0, 0.8),
    (3333.0, 0.9),
    (6667.0, 0.97),
    (20_000.0, 1.0),
];

/// What it is, and the goal in packet-hops per second.
pub(crate) fn title(name: &str) -> (&'static str, &'static str) {
    match name {
        "W1" => ("dumbbell, 16 flows, 1 s", "33 M"),
        "W2" => ("fat tree k = 8, permutation, 20 ms", "20 M"),
        "W3" => ("leaf-spine, 144 hosts, web search at 50 %, 20 ms", "18 M"),
        _ => ("fat tree k = 16, 1024 hosts, permutation, 5 ms", "10 M and 200 MB"),
    }
}

/// The network file, if there is one of this name.
pub(crate) fn text(name: &str) -> Option<String> {
    let plan = match name {
        "W1" => dumbbell(16),
        "W2" => fat_tree(8, 20_000_000),
        "W3" => leaf_spine(20_000_000),
        "W4" => fat_tree(16, 5_000_000),
        _ => return None,
    };
    Some(plan.text())
}

struct Plan {
    until: u64,
    nodes: usize,
    links: Vec<[u64; 6]>,
    numbers: SortedMap<(usize, usize), usize>,
    flows: Vec<Flow>,
    random: Twister,
}

struct Flow {
    ends: (usize, usize),
    start: u64,
    octets: u64,
    ways: [Vec<usize>; 2],
}

impl Plan {
    fn new(until: u64) -> Self {
        Self {
            until,
            nodes: 0,
            links: Vec::new(),
            numbers: SortedMap::new(),
            flows: Vec::new(),
            random: Twister::new(1),
        }
    }

    fn link(&mut self, (a, b): (usize, usize), rate: u64, delay: u64, buffer: u64, mark: u64) {
        self.numbers.insert((a, b), self.links.len());
        self.links.push([a as u64, b as u64, rate, delay, buffer, mark]);
    }

    /// Between switches.
    fn trunk(&mut self, a: usize, b: usize, rate: u64, delay: u64) {
        self.link((a, b), rate, delay, BUFFER, MARK_ABOVE);
        self.link((b, a), rate, delay, BUFFER, MARK_ABOVE);
    }

    /// From a host: its own port is long and does not mark.
    fn access(&mut self, host: usize, switch: usize, delay: u64) {
        self.link((host, switch), RATE, delay, HOST_BUFFER, 0);
        self.link((switch, host), RATE, delay, BUFFER, MARK_ABOVE);
    }

    fn flow(&mut self, start: u64, octets: u64, there: &[usize], back: &[usize]) {
        let way = |nodes: &[usize]| nodes.windows(2).map(|w| self.numbers[&(w[0], w[1])]).collect();
        let ends = (there[0], back[0]);
        self.flows.push(Flow { ends, start, octets, ways: [way(there), way(back)] });
    }

    /// Each host sends to another, each receives from one.
    fn permutation(&mut self, hosts: usize, route: impl Fn(usize, usize) -> Vec<usize>) {
        let to = loop {
            let mut to: Vec<usize> = (0..hosts).collect();
            self.random.shuffle(&mut to);
            if to.iter().enumerate().all(|(from, to)| from != *to) {
                break to;
            }
        };
        for (from, to) in to.into_iter().enumerate() {
            let start = (self.random.part() * 20e3) as u64;
            self.flow(start, 0, &route(from, to), &route(to, from));
        }
    }

    /// Flows that arrive by chance, so that hosts have `load` of their rate to send.
    fn web_search(&mut self, hosts: usize, load: f64, route: impl Fn(usize, usize) -> Vec<usize>) {
        let pairs = WEB_SEARCH.iter().zip(&WEB_SEARCH[1..]);
        let mean = pairs.map(|(a, b)| (b.0 + a.0) / 2.0 * (b.1 - a.1)).sum::<f64>() * 1460.0;
        let per_ns = load * hosts as f64 * RATE as f64 / 8.0 / mean / 1e9;
        let mut now = 0.0;
        loop {
            now += -(1.0 - self.random.part()).ln() / per_ns;
            if now >= self.until as f64 {
                return;
            }
            let from = self.random.below(hosts);
            let to = (from + 1 + self.random.below(hosts - 1)) % hosts;
            let u = self.random.part();
            let upper = WEB_SEARCH.partition_point(|step| step.1 < u).max(1);
            let ((a, pa), (b, pb)) = (WEB_SEARCH[upper - 1], WEB_SEARCH[upper]);
            let octets = (((a + (b - a) * (u - pa) / (pb - pa)) * 1460.0) as u64).max(1);
            self.flow(now as u64, octets, &route(from, to), &route(to, from));
        }
    }

    fn text(&self) -> String {
        let (until, nodes, links) = (self.until, self.nodes, self.links.len());
        let mut text = format!("until_ns {until}\nmtu {MTU}\nnodes {nodes}\nlinks {links}\n");
        let mut line = |words: &[u64]| {
            let words: Vec<String> = words.iter().map(u64::to_string).collect();
            _ = writeln!(text, "{}", words.join(" "));
        };
        for (id, link) in (0..).zip(&self.links) {
            line(&[&[id], &link[..]].concat());
        }
        _ = writeln!(text, "flows {}", self.flows.len());
        for (id, flow) in self.flows.iter().enumerate() {
            let (src, dst) = flow.ends;
            _ = write!(text, "{id} {src} {dst} {} {}", flow.start, flow.octets);
            for way in &flow.ways {
                _ = write!(text, " {}", way.len());
                way.iter().for_each(|link| _ = write!(text, " {link}"));
            }
            text.push('\n');
        }
        text
    }
}

fn dumbbell(pairs: usize) -> Plan {
    let mut plan = Plan::new(1_000_000_000);
    let (left, right) = (2 * pairs, 2 * pairs + 1);
    plan.nodes = 2 * pairs + 2;
    for pair in 0..pairs {
        plan.access(pair, left, 5000);
        plan.access(pairs + pair, right, 5000);
    }
    plan.trunk(left, right, RATE, 5000);
    for pair in 0..pairs {
        let start = (plan.random.part() * 100e3) as u64;
        let other = pairs + pair;
        plan.flow(start, 0, &[pair, left, right, other], &[other, right, left, pair]);
    }
    plan
}

fn fat_tree(k: usize, until: u64) -> Plan {
    let half = k / 2;
    let hosts = k * k * k / 4;
    let (tors, aggs) = (hosts, hosts + k * half);
    let cores = aggs + k * half;
    let mut plan = Plan::new(until);
    plan.nodes = cores + half * half;
    for pod in 0..k {
        for tor in pod * half..(pod + 1) * half {
            (0..half).for_each(|slot| plan.access(tor * half + slot, tors + tor, 1000));
            (0..half).for_each(|agg| plan.trunk(tors + tor, aggs + pod * half + agg, RATE, 1000));
        }
    }
    for agg in 0..half {
        for core in agg * half..(agg + 1) * half {
            (0..k).for_each(|pod| plan.trunk(aggs + pod * half + agg, cores + core, RATE, 1000));
        }
    }
    let picks: Vec<usize> = (0..hosts).map(|_| plan.random.below(half * half)).collect();
    plan.permutation(hosts, |from, to| {
        let (core, tor) = (picks[to], [from / half, to / half]);
        let pod = tor.map(|tor| tor / half);
        let agg = pod.map(|pod| aggs + pod * half + core / half);
        let tor = tor.map(|tor| tors + tor);
        if tor[0] == tor[1] {
            vec![from, tor[0], to]
        } else if pod[0] == pod[1] {
            vec![from, tor[0], agg[0], tor[1], to]
        } else {
            vec![from, tor[0], agg[0], cores + core, agg[1], tor[1], to]
        }
    });
    plan
}

fn leaf_spine(until: u64) -> Plan {
    let (leaves, slots, spines) = (9, 16, 4);
    let hosts = leaves * slots;
    let mut plan = Plan::new(until);
    plan.nodes = hosts + leaves + spines;
    for leaf in 0..leaves {
        (0..slots).for_each(|slot| plan.access(leaf * slots + slot, hosts + leaf, 1000));
        let spine = |spine| hosts + leaves + spine;
        (0..spines).for_each(|s| plan.trunk(hosts + leaf, spine(s), 4 * RATE, 1000));
    }
    let picks: Vec<usize> = (0..hosts).map(|_| plan.random.below(spines)).collect();
    plan.web_search(hosts, 0.5, |from, to| {
        let leaf = [from, to].map(|host| hosts + host / slots);
        if leaf[0] == leaf[1] {
            vec![from, leaf[0], to]
        } else {
            vec![from, leaf[0], hosts + leaves + picks[to], leaf[1], to]
        }
    });
    plan
}
