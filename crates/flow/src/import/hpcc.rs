//! HPCC's (and other ns-3 simulations') `flow.txt` and `topology.txt`.
//!
//! Source    `alibaba-edu/High-Precision-Congestion-Control` simulation/scratch/third.cc and
//!           simulation/mix. The first line says how many lines follow; what stands behind them is
//!           not read there, and often is not data: here it is counted.

use super::text::{Line, Lines, What, ns3_rate, ns3_time, real, whole};
use super::{ImportError, Link, MOST_LINKS, MOST_NODES, Node, Topology};
use weir_units::{Bytes, Span, Time};

/// A file of flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HpccFlows {
    /// In the order of the file, ascending in time.
    pub flows: Vec<HpccFlow>,
    /// Lines behind the last flow that the file's count names.
    pub ignored: u32,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HpccFlow {
    /// The sender: a node of the topology.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// Priority group.
    pub group: u32,
    /// The receiver's port.
    pub port: u32,
    /// What is sent, without headers. Above zero.
    pub size: Bytes,
    /// When; to the nearest nanosecond.
    pub start: Time,
}

/// Latest start.
const LATEST_S: f64 = 1e6;
/// Largest flow.
const LARGEST: f64 = 1e15;

/// Reads flows; `file` is their name in errors, `nodes` how many nodes the topology has.
///
/// # Errors
/// The first line that is wrong.
pub fn hpcc_flows(file: &str, text: &str, nodes: u32) -> Result<HpccFlows, ImportError> {
    let mut lines = Lines::new(file, text);
    let first = lines.expect("the number of flows")?;
    let count = match first.words[..] {
        [count] => whole(count, "number of flows", u32::MAX),
        _ => Err("the first line is the number of flows".into()),
    };
    let count = lines.at(first.number, count)?;
    let mut read = HpccFlows::default();
    for nth in 0..count {
        let line = lines.expect(&format!("flow {} of {count}", u64::from(nth) + 1))?;
        let flow = lines.at(line.number, flow(&line, nodes))?;
        if read.flows.last().is_some_and(|last| last.start > flow.start) {
            return lines.wrong_at(line.number, "starts before its predecessor: sort by start");
        }
        read.flows.push(flow);
    }
    read.ignored = lines.count() as u32;
    Ok(read)
}

fn flow(line: &Line<'_>, nodes: u32) -> What<HpccFlow> {
    let [from, to, group, port, size, start] = line.words[..] else {
        return Err("write `src dst pg dport size_bytes start_seconds`".into());
    };
    let (from, to) = (node(from, "source", nodes)?, node(to, "destination", nodes)?);
    if from == to {
        return Err(format!("node {from} sends to itself"));
    }
    let size = real(size, "size", LARGEST)? as u64;
    if size == 0 {
        return Err("a flow of 0 octets never starts".into());
    }
    Ok(HpccFlow {
        from,
        to,
        group: whole(group, "pg", 7)?,
        port: whole(port, "dport", 65_535)?,
        size: Bytes::new(size),
        start: Time::ZERO + Span::from_secs_f64(real(start, "start", LATEST_S)?),
    })
}

fn node(word: &str, name: &str, nodes: u32) -> What<u32> {
    whole(word, name, nodes.checked_sub(1).ok_or("there are no nodes")?)
}

/// Reads a topology; `file` is its name in errors. The second value is how many lines stand behind
/// the last link that the file's count names.
///
/// # Errors
/// The first line that is wrong.
pub fn hpcc_topology(file: &str, text: &str) -> Result<(Topology, u32), ImportError> {
    let mut lines = Lines::new(file, text);
    let first = lines.expect("`nodes switches links`")?;
    let counts = match first.words[..] {
        [nodes, switches, links] => whole(nodes, "nodes", MOST_NODES).and_then(|nodes| {
            let switches = whole(switches, "switches", nodes)?;
            Ok((nodes, switches, whole(links, "links", MOST_LINKS / 2)?))
        }),
        _ => Err("the first line is `nodes switches links`".into()),
    };
    let (nodes, switches, links) = lines.at(first.number, counts)?;
    let mut topology = Topology { nodes: vec![Node::Host; nodes as usize], links: Vec::new() };
    let mut left = switches;
    // The ids may fill several lines; the original reads words, not lines.
    while left > 0 {
        let line = lines.expect(&format!("{left} more switches"))?;
        if line.words.len() > left as usize {
            return lines.wrong_at(line.number, format!("more than {switches} switches"));
        }
        for word in &line.words {
            let switch = lines.at(line.number, node(word, "switch", nodes))?;
            let place = &mut topology.nodes[switch as usize];
            if std::mem::replace(place, Node::Switch) == Node::Switch {
                return lines.wrong_at(line.number, format!("switch {switch} is named twice"));
            }
            left -= 1;
        }
    }
    for nth in 0..links {
        let line = lines.expect(&format!("link {} of {links}", u64::from(nth) + 1))?;
        let link = lines.at(line.number, link(&line, nodes))?;
        topology.connect(link);
    }
    Ok((topology, lines.count() as u32))
}

fn link(line: &Line<'_>, nodes: u32) -> What<Link> {
    let [from, to, rate, delay, loss] = line.words[..] else {
        return Err("write `node node rate delay error_rate`: 0 1 100Gbps 1us 0".into());
    };
    let (from, to) = (node(from, "node", nodes)?, node(to, "node", nodes)?);
    if from == to {
        return Err(format!("node {from} is connected with itself"));
    }
    Ok(Link {
        from,
        to,
        rate: ns3_rate(rate)?,
        delay: ns3_time(delay)?,
        loss: real(loss, "error_rate", 1.0)?,
    })
}
