//! How many packet-hops a second: plays network files and says how long it took.
//!
//! cargo run --release -p weir-sim --example hops -- FILE…
//!
//! The first line is a calibration, to compare days and machines: UDP through long chains of links,
//! which is the event loop and nothing else.

use std::error::Error;
use std::time::Instant;
use weir_sim::{Flaw, FlowSpec, LinkSpec, Network, Options, Outcome, Sim, Traffic};
use weir_units::{Bytes, Rate, Span, Time};

fn main() -> Result<(), Box<dyn Error>> {
    let (outcome, seconds) = play(&chains()?);
    println!("calibration: {:.1} M packet-hops/s", outcome.packet_hops as f64 / seconds / 1e6);
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file)?;
        let network = Network::parse(&text).map_err(|error| format!("{file}: {error}"))?;
        let (outcome, seconds) = play(&network);
        let octets: u64 = outcome.flows.iter().map(|flow| flow.octets.get()).sum();
        let drops: u64 = outcome.links.iter().map(|link| link.drops).sum();
        let marks: u64 = outcome.links.iter().map(|link| link.marks).sum();
        println!(
            "{file}: {:.1} M packet-hops/s ({} in {seconds:.2} s, {} events); goodput {:.3} Gb/s, \
             {drops} drops, {marks} marks, {} repeats, {} timeouts; {} MB; digest {:016x}",
            outcome.packet_hops as f64 / seconds / 1e6,
            outcome.packet_hops,
            outcome.events,
            octets as f64 * 8.0 / network.until().as_secs_f64() / 1e9,
            outcome.flows.iter().map(|flow| flow.repeats).sum::<u64>(),
            outcome.flows.iter().map(|flow| flow.timeouts).sum::<u32>(),
            peak_memory(),
            outcome.digest(),
        );
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures how fast the machine is")]
fn play(network: &Network) -> (Outcome, f64) {
    let begin = Instant::now();
    let mut sim = Sim::new(network, &Options::default());
    sim.run_until(network.until());
    (sim.outcome(), begin.elapsed().as_secs_f64())
}

/// Sixteen chains of sixty links, a UDP source before each.
fn chains() -> Result<Network, Flaw> {
    let (chains, links) = (16, 60);
    let mut network = Network::new(chains * (links + 1), 1500, Time::from_nanos(10_000_000))?;
    for chain in 0..chains {
        let first = chain * (links + 1);
        let mut forward = Vec::new();
        for from in first..first + links {
            forward.push(network.add_link(LinkSpec {
                from,
                to: from + 1,
                rate: Rate::from_mbps(10_000),
                delay: Span::from_nanos(1000 + u64::from(from)),
                buffer: Bytes::new(375_000),
                mark_above: Some(Bytes::new(97_500)),
                loss: 0.0,
            })?);
        }
        let (src, dst, reverse) = (first, first + links, Vec::new());
        let rate = Rate::from_mbps(9_000 + u64::from(chain));
        let traffic = Traffic::Udp { rate, size: 1500, bursts: None };
        network.add_flow(FlowSpec { src, dst, start: Time::ZERO, traffic, forward, reverse })?;
    }
    Ok(network)
}

/// The most memory this process has used, in MB; 0 where the kernel does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
