//! How many packet-hops a second, and how much memory, on four networks.
//!
//! cargo bench -p weir-sim --bench hops
//! cargo bench -p weir-sim --bench hops -- FILE…        plays network files instead
//! cargo bench -p weir-sim --bench hops -- --print W1   prints the network file
//!
//! Two lines of calibration come first, to compare days and machines: a wheel on which events come
//! and go, and UDP through long chains of links, which is the event loop with ports and nothing
//! else. Each network is played five times, in a process of its own; the middle one counts.

mod networks;
mod twister;

use std::error::Error;
use std::process::Command;
use std::time::Instant;
use weir_sim::{Flaw, FlowSpec, LinkSpec, Network, Options, Outcome, Sim, Traffic, turn_wheel};
use weir_units::{Bytes, Rate, Span, Time};

/// How often each network is played.
const TIMES: usize = 5;
/// Events of the calibration.
const EVENTS: u64 = 20_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    // What cargo adds, like `--bench`, is not for us.
    let known =
        |word: &String| !word.starts_with("--") || ["--print", "--one"].contains(&&word[..]);
    let words: Vec<String> = std::env::args().skip(1).filter(known).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--print", name] => print!("{}", networks::text(name).ok_or("W1, W2, W3 or W4")?),
        ["--one", name] => {
            let text = networks::text(name).ok_or("W1, W2, W3 or W4")?;
            let (title, goal) = networks::title(name);
            println!("{name} {title}, goal {goal}: {}", measure(&text)?);
        }
        [] => {
            calibrate()?;
            for name in networks::NAMES {
                let status =
                    Command::new(std::env::current_exe()?).args(["--one", name]).status()?;
                if !status.success() {
                    return Err(format!("{name}: {status}").into());
                }
            }
        }
        ref files => {
            calibrate()?;
            for file in files {
                let text = std::fs::read_to_string(file)?;
                println!("{file}: {}", measure(&text).map_err(|error| format!("{file}: {error}"))?);
            }
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures how fast the machine is")]
fn calibrate() -> Result<(), Flaw> {
    let mut speeds = [0.0; TIMES];
    for speed in &mut speeds {
        let begin = Instant::now();
        std::hint::black_box(turn_wheel(EVENTS));
        *speed = EVENTS as f64 / begin.elapsed().as_secs_f64() / 1e6;
    }
    println!("calibration, bare wheel: {}", middle(&mut speeds, "events/s"));
    let network = chains()?;
    let mut speeds = [0.0; TIMES];
    for other in &mut speeds {
        let (outcome, seconds) = play(&network);
        *other = speed(&outcome, seconds);
    }
    println!("calibration, chains of links: {}", middle(&mut speeds, "packet-hops/s"));
    Ok(())
}

/// One line about a network.
fn measure(text: &str) -> Result<String, weir_sim::ParseError> {
    let network = Network::parse(text)?;
    let (outcome, seconds) = play(&network);
    let memory = peak_memory();
    let mut speeds = [speed(&outcome, seconds); TIMES];
    for other in &mut speeds[1..] {
        let (again, seconds) = play(&network);
        assert_eq!(again.digest(), outcome.digest(), "the same each time");
        *other = speed(&again, seconds);
    }
    let sum = |of: fn(&weir_sim::LinkOutcome) -> u64| outcome.links.iter().map(of).sum::<u64>();
    let octets: u64 = outcome.flows.iter().map(|flow| flow.octets.get()).sum();
    Ok(format!(
        "{}; {} packet-hops, {:.1} Gb/s, {} drops, {} marks, {} MB, digest {:016x}",
        middle(&mut speeds, "packet-hops/s"),
        outcome.packet_hops,
        octets as f64 * 8.0 / network.until().as_secs_f64() / 1e9,
        sum(|link| link.drops),
        sum(|link| link.marks),
        memory,
        outcome.digest(),
    ))
}

fn speed(outcome: &Outcome, seconds: f64) -> f64 {
    outcome.packet_hops as f64 / seconds / 1e6
}

/// The middle one, and the first and last.
fn middle(speeds: &mut [f64; TIMES], unit: &str) -> String {
    speeds.sort_by(f64::total_cmp);
    format!("{:.1} M {unit} ({:.1} to {:.1})", speeds[TIMES / 2], speeds[0], speeds[TIMES - 1])
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
    kib.unwrap_or(0) * 1024 / 1_000_000
}
