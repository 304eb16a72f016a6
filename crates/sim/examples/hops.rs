//! How many packet-hops a second: plays network files and says how long it took.
//!
//! cargo run --release -p weir-sim --example hops -- FILE…

use std::error::Error;
use std::time::Instant;
use weir_sim::{Network, Options, Sim};

#[expect(clippy::disallowed_methods, reason = "it measures how fast the machine is")]
fn main() -> Result<(), Box<dyn Error>> {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file)?;
        let network = Network::parse(&text).map_err(|error| format!("{file}: {error}"))?;
        let begin = Instant::now();
        let mut sim = Sim::new(&network, &Options::default());
        sim.run_until(network.until());
        let seconds = begin.elapsed().as_secs_f64();
        let outcome = sim.outcome();
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

/// The most memory this process has used, in MB; 0 where the kernel does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
