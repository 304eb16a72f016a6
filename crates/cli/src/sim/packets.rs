//! `weir sim --topology T --flows F`: the flows of other simulators, packet by packet.

use super::completion::{self, Finish, on_the_wire};
use super::import::{Import, Sent};
use super::network;
use crate::args::{self, CongestionControl};
use crate::output::outln;
use anyhow::{Context as _, Result, anyhow};
use serde_json::json;
use std::num::NonZero;
use weir_flow::import::Node;
use weir_sim::{FlowOutcome, FlowSpec, LinkSpec, Network, Traffic};
use weir_units::{Bytes, Span, Time};

/// Octets of a full packet.
const MTU: u16 = 1500;
/// Default buffer of a switch's port.
const BUFFER: Bytes = Bytes::new(128_000);
/// What a host's own port holds for each flow that begins there: more than a receive window, or all
/// that it sends, so that no flow loses packets before they are on the way. A host would hold its
/// guests back instead.
const WINDOW: Bytes = Bytes::new(7 << 20);
/// No port takes longer to empty.
const LONGEST: Span = Span::from_secs(3600);

/// Plays and prints.
///
/// # Errors
/// Something that the simulator cannot play.
pub(super) fn play(import: &Import, until: Time, args: &args::Sim) -> Result<u8> {
    let file = args.files.flows.as_deref().context("flows are named")?;
    let topology = args.files.topology.as_deref().context("a topology is named")?;
    let mut network = Network::new(import.topology.nodes.len() as u32, MTU, until)
        .map_err(|error| anyhow!("--until: {error}"))?;
    add_links(&mut network, import, &args.files)
        .map_err(|error| anyhow!("{}: {error}", topology.display()))?;
    add_flows(&mut network, import).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    // Without marks DCTCP is Reno.
    let marks = args.files.mark_above.is_some();
    let otherwise = if marks { CongestionControl::Dctcp } else { CongestionControl::Cubic };
    let (algorithm, name) = network::algorithm(args.cc.unwrap_or(otherwise));
    let fewer = "write fewer flows into it, or play it with --flow-level";
    let (outcome, wall) = network::run(file, &network, algorithm, args.seed, fewer)?;
    let both = import.flows.iter().zip(&outcome.flows);
    let finishes: Vec<Finish> = both.map(|(sent, flow)| finish(sent, flow, import)).collect();
    if args.json {
        let mut all = network::whole(&outcome, wall);
        all["world"] = json!("packets");
        all["cc"] = json!(name);
        all["seed"] = json!(args.seed);
        all["notes"] = json!(import.notes);
        for ((flow, sent), finish) in
            all["flows"].as_array_mut().into_iter().flatten().zip(&import.flows).zip(&finishes)
        {
            let more = finish.json(sent.from, sent.to);
            for (key, value) in more.as_object().into_iter().flatten() {
                flow[key] = value.clone();
            }
        }
        outln!("{all}")?;
    } else {
        outln!("{name}, seed {}", args.seed)?;
        outln!("{}", completion::table(&finishes))?;
        outln!("{}", losses(&outcome))?;
        outln!("{}", network::cost(&outcome, wall))?;
    }
    Ok(0)
}

fn add_links(
    network: &mut Network,
    import: &Import,
    files: &args::Files,
) -> Result<(), weir_sim::Flaw> {
    let mut sent = vec![Bytes::ZERO; import.topology.nodes.len()];
    for flow in &import.flows {
        sent[flow.from as usize] += flow.size.map_or(WINDOW, |size| on_the_wire(size).min(WINDOW));
    }
    for (link, said) in import.topology.links.iter().zip(&import.buffers) {
        let otherwise = match import.topology.nodes[link.from as usize] {
            Node::Host => sent[link.from as usize].max(WINDOW).min(link.rate.bytes_in(LONGEST)),
            Node::Switch => files.buffer.unwrap_or(BUFFER),
        };
        network.add_link(LinkSpec {
            from: link.from,
            to: link.to,
            rate: link.rate,
            delay: link.delay,
            buffer: said.unwrap_or(otherwise),
            mark_above: files.mark_above,
            loss: link.loss,
        })?;
    }
    Ok(())
}

fn add_flows(network: &mut Network, import: &Import) -> Result<(), weir_sim::Flaw> {
    for sent in &import.flows {
        let octets = sent.size.and_then(|size| NonZero::new(size.get()));
        network.add_flow(FlowSpec {
            src: sent.from,
            dst: sent.to,
            start: sent.start,
            traffic: Traffic::Tcp { octets, algorithm: None },
            forward: sent.forward.clone(),
            reverse: sent.reverse.clone(),
        })?;
    }
    Ok(())
}

fn finish(sent: &Sent, flow: &FlowOutcome, import: &Import) -> Finish {
    let links = || sent.forward.iter().map(|link| &import.topology.links[*link as usize]);
    let delay = links().fold(Span::ZERO, |sum, link| sum + link.delay);
    let slowest = links().map(|link| link.rate).min();
    let alone = slowest.zip(sent.size).map(|(rate, size)| rate.time_for(on_the_wire(size)) + delay);
    Finish {
        start: flow.start,
        size: sent.size,
        completed: flow.completed,
        octets: flow.octets,
        goodput: flow.goodput,
        alone,
    }
}

fn losses(outcome: &weir_sim::Outcome) -> String {
    let sum = |of: fn(&weir_sim::LinkOutcome) -> u64| outcome.links.iter().map(of).sum::<u64>();
    format!(
        "{} packets dropped, {} lost by chance, {} marked; {} sent again",
        sum(|link| link.drops),
        sum(|link| link.lost),
        sum(|link| link.marks),
        outcome.flows.iter().map(|flow| flow.repeats).sum::<u64>()
    )
}
