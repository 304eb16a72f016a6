//! `weir sim --network FILE`: plays a network file in the packet simulator.
//!
//! Not here  Scenario files: see `scenario`. The model: see `weir-sim`.

use super::room::{self, Need};
use crate::args::{self, CongestionControl};
use crate::input;
use crate::output::outln;
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_sim::{Algorithm, FlowOutcome, LinkOutcome, Network, Options, Outcome, Sim, TcpConfig};
use weir_study::table::Grid;
use weir_units::{Time, show};

/// What to do if it does not fit.
const FEWER: &str = "write fewer flows or smaller buffers into it";

/// Plays the file and prints what came out.
///
/// # Errors
/// The file cannot be read, or says nothing that can be played.
pub(crate) fn play(path: &Path, args: &args::Sim) -> Result<u8> {
    let file = path.display();
    let length = fs::metadata(path).map_or(0, |found| found.len());
    // Numbers take less room as text than in memory.
    room::check(path, Need { least: 2 * length, most: 0 }, FEWER)?;
    let text = input::read(path)?;
    let network = Network::parse(&text).map_err(|error| anyhow!("{file}: {error}"))?;
    drop(text);
    let (algorithm, name) = algorithm(args.cc.unwrap_or(CongestionControl::Dctcp));
    let (outcome, wall) = run(path, &network, algorithm, args.seed, FEWER)?;
    if args.json {
        let mut all = whole(&outcome, wall);
        all["network"] = json!(file.to_string());
        all["cc"] = json!(name);
        all["seed"] = json!(args.seed);
        outln!("{all}")?;
    } else {
        outln!("{file}: {name}, seed {}", args.seed)?;
        outln!("{}", table(&outcome))?;
        outln!("{}", cost(&outcome, wall))?;
    }
    Ok(0)
}

/// What people call an algorithm.
pub(super) fn algorithm(chosen: CongestionControl) -> (Algorithm, &'static str) {
    match chosen {
        CongestionControl::Dctcp => (Algorithm::Dctcp, "dctcp"),
        CongestionControl::Cubic => (Algorithm::Cubic, "cubic"),
        CongestionControl::Reno => (Algorithm::Reno, "reno"),
    }
}

/// Plays a network to its end, if there is memory for it.
///
/// # Errors
/// There is not.
#[expect(clippy::disallowed_methods, reason = "a driver: it says how fast the simulator is")]
pub(super) fn run(
    file: &Path,
    network: &Network,
    algorithm: Algorithm,
    seed: u64,
    instead: &str,
) -> Result<(Outcome, Duration)> {
    let tcp = TcpConfig { algorithm, ..TcpConfig::default() };
    let memory = network.memory(&tcp);
    let need = Need { least: memory.least.get(), most: memory.most.get() };
    room::check(file, need, instead)?;
    let begin = Instant::now();
    let mut sim = Sim::new(network, &Options { tcp, seed });
    sim.run_until(network.until());
    let wall = begin.elapsed();
    Ok((sim.outcome(), wall))
}

/// Everything: rates in bit/s, times in seconds, flows and links in the file's order.
pub(super) fn whole(outcome: &Outcome, wall: Duration) -> Value {
    let packets = &outcome.packets;
    json!({
        "until_s": outcome.now.as_secs_f64(),
        "digest": format!("{:016x}", outcome.digest()),
        "flows": outcome.flows.iter().map(flow).collect::<Vec<_>>(),
        "links": outcome.links.iter().map(link).collect::<Vec<_>>(),
        "packets": {
            "launched": packets.launched,
            "delivered": packets.delivered,
            "dropped": packets.dropped,
            "in_flight": packets.in_flight,
        },
        "perf": {
            "packet_hops": outcome.packet_hops,
            "events": outcome.events,
            "wall_s": wall.as_secs_f64(),
            "packet_hops_per_s": per_second(outcome, wall),
        },
    })
}

fn flow(flow: &FlowOutcome) -> Value {
    json!({
        "start_s": flow.start.as_secs_f64(),
        "completed_s": flow.completed.map(Time::as_secs_f64),
        "octets": flow.octets.get(),
        "goodput_bps": flow.goodput.as_f64(),
        "repeats": flow.repeats,
        "probes": flow.probes,
        "timeouts": flow.timeouts,
        "recoveries": flow.recoveries,
        "reductions": flow.reductions,
        "cwnd": flow.cwnd,
        "rtt_s": flow.rtt.as_secs_f64(),
    })
}

fn link(link: &LinkOutcome) -> Value {
    json!({
        "octets": link.octets.get(),
        "packets": link.packets,
        "drops": link.drops,
        "lost": link.lost,
        "marks": link.marks,
        "queued": link.queued.get(),
    })
}

/// All flows in one row: people who want each ask for JSON.
fn table(outcome: &Outcome) -> String {
    let header = ["flows", "completed", "goodput", "drops", "marks", "repeats", "time-outs"];
    let mut grid = Grid::new(&header, 0);
    let octets: u64 = outcome.flows.iter().map(|flow| flow.octets.get()).sum();
    let seconds = outcome.now.as_secs_f64().max(1e-9);
    let completed = outcome.flows.iter().filter(|flow| flow.completed.is_some()).count();
    grid.rows.push(vec![
        outcome.flows.len().to_string(),
        completed.to_string(),
        show::rate(octets as f64 * 8.0 / seconds),
        outcome.links.iter().map(|link| link.drops).sum::<u64>().to_string(),
        outcome.links.iter().map(|link| link.marks).sum::<u64>().to_string(),
        outcome.flows.iter().map(|flow| flow.repeats).sum::<u64>().to_string(),
        outcome.flows.iter().map(|flow| u64::from(flow.timeouts)).sum::<u64>().to_string(),
    ]);
    grid.table().to_string()
}

pub(super) fn cost(outcome: &Outcome, wall: Duration) -> String {
    format!(
        "{} simulated in {}: {} packet-hops, {:.1} M packet-hops/s; digest {:016x}",
        show::time(outcome.now.as_secs_f64()),
        show::time(wall.as_secs_f64()),
        outcome.packet_hops,
        per_second(outcome, wall) / 1e6,
        outcome.digest(),
    )
}

fn per_second(outcome: &Outcome, wall: Duration) -> f64 {
    outcome.packet_hops as f64 / wall.as_secs_f64().max(1e-9)
}
