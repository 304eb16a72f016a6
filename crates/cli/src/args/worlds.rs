//! What is played: in the lab, in the simulator, and in worlds that are drawn.

use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;
use weir_model::text::{size, span};
use weir_units::{Bytes, Span};

/// Where figures are played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum WorldName {
    /// The packet simulator, at the paper's own scale
    #[default]
    Sim,
    /// Real Linux in network namespaces of this machine, at the scenarios' scale (root)
    Lab,
}

/// Constants of the mechanism, in every world.
#[derive(Debug, Default, Args)]
pub(crate) struct Tuning {
    /// Set one constant of the mechanism on all hosts (docs/algorithms/elasticswitch.md), beside
    /// what its preset says: --constant alpha=0.5 --constant rate_period=30ms; may be repeated
    #[arg(long = "constant", value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) constants: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct Lab {
    /// The scenario file
    pub(crate) file: PathBuf,
    #[arg(long = "mechanism", value_name = "M", help = mechanism_help())]
    pub(crate) mechanisms: Vec<String>,
    /// Override a parameter or a field of the file; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// This machine's HTB sends by bursts meanwhile, as on hosts that run the agent's unit
    /// (docs/decisions/0010-htb-by-bursts.md)
    #[arg(long)]
    pub(crate) htb_by_bursts: bool,
    /// Record all that happens to each agent's machine in this folder, for `weir replay`
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,
    /// How often to play each point and mechanism [default: what the file says, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Write results.json, table.txt and report.html into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON object on stdout, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["file", "network", "topology"])))]
pub(crate) struct Sim {
    /// The scenario file
    pub(crate) file: Option<PathBuf>,
    #[arg(long = "mechanism", value_name = "M", help = mechanism_help(), conflicts_with_all = ["network", "topology"])]
    pub(crate) mechanisms: Vec<String>,
    /// Override a parameter or a field of the file; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    #[arg(conflicts_with_all = ["network", "topology"])]
    pub(crate) set: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// How often to play each point and mechanism, each time with the next seed [default: what the
    /// file says, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[arg(conflicts_with_all = ["network", "topology"])]
    pub(crate) repeat: Option<u32>,
    /// Runs at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[arg(conflicts_with_all = ["network", "topology"])]
    pub(crate) jobs: Option<u32>,
    /// Write results.json, table.txt and report.html into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["network", "topology"])]
    pub(crate) out: Option<PathBuf>,
    /// Instead of a scenario: links, routes and flows, one per line (docs/simulator.md)
    #[arg(long, value_name = "FILE", conflicts_with = "constants")]
    pub(crate) network: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: Files,
    /// Congestion control of all flows of a network file, or of --flows [default: dctcp; with
    /// --flows cubic, if nothing marks]
    #[arg(long, value_enum, conflicts_with_all = ["file", "flow_level"])]
    pub(crate) cc: Option<CongestionControl>,
    /// All chance is drawn from this
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed)]
    pub(crate) seed: u64,
    /// Print the results as one JSON object on stdout, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

/// What other simulators wrote.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// Instead of a scenario: another simulator's network, htsim's `.topo` or HPCC's
    /// `topology.txt`, for the flows of --flows (docs/simulator.md)
    #[arg(long, value_name = "FILE", requires = "flows", conflicts_with = "constants")]
    pub(crate) topology: Option<PathBuf>,
    /// Who sends what to whom there: htsim's connection matrix, or HPCC's `flow.txt`
    #[arg(long, value_name = "FILE", requires = "topology")]
    pub(crate) flows: Option<PathBuf>,
    /// Play ideal rates (max-min with floors) instead of packets: for large worlds
    #[arg(long, requires = "topology")]
    pub(crate) flow_level: bool,
    /// Whose hosts they are, and what these are promised, for --flow-level (docs/simulator.md)
    #[arg(long, value_name = "FILE", requires = "flow_level")]
    pub(crate) tenants: Option<PathBuf>,
    /// When to stop, in the files' time [default: a second after the last start]
    #[arg(long, value_name = "TIME", value_parser = span, requires = "topology")]
    pub(crate) until: Option<Span>,
    /// What a switch's port holds, where the topology does not say [default: 128kB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    #[arg(requires = "topology", conflicts_with = "flow_level")]
    pub(crate) buffer: Option<Bytes>,
    /// Ports mark ECN-capable packets that find more than this [default: they mark nothing]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    #[arg(requires = "topology", conflicts_with = "flow_level")]
    pub(crate) mark_above: Option<Bytes>,
}

#[derive(Debug, Args)]
pub(crate) struct Swarm {
    /// How many seeds to play
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = seed)]
    pub(crate) from: u64,
    /// Play this one alone
    #[arg(long, value_name = "SEED", value_parser = seed, conflicts_with_all = ["seeds", "from"])]
    pub(crate) seed: Option<u64>,
    /// Play nothing: write the scenario that the seed draws, for `weir sim`
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub(crate) write: Option<PathBuf>,
    /// Runs at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Worlds {
    /// How many worlds to play
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// The seed of the first
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = seed)]
    pub(crate) from: u64,
    /// Draw so many tenants [default: 2 to 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=20))]
    #[arg(conflicts_with = "soak")]
    pub(crate) tenants: Option<u64>,
    /// Play this one alone
    #[arg(long, value_name = "SEED", value_parser = seed, conflicts_with_all = ["seeds", "from"])]
    pub(crate) seed: Option<u64>,
    /// Play this; may be repeated [default: elasticswitch:steady, elasticswitch:paper, reservation,
    /// eyeq; with --soak the first of these]
    #[arg(long = "mechanism", value_name = "M")]
    pub(crate) mechanisms: Vec<String>,
    /// Let traffic and VMs of each world come and go for so long, and judge each second: 480min is
    /// 8 h
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) soak: Option<Span>,
    /// Play the soak in real time in network namespaces of this machine (root), one world after the
    /// other
    #[arg(long, requires = "soak", conflicts_with_all = ["jobs", "write"])]
    pub(crate) lab: bool,
    /// Override a field of the soak's scenario: `--set scale=0.1` halves its links; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    #[arg(requires = "soak", conflicts_with = "write")]
    pub(crate) set: Vec<(String, String)>,
    /// Write soak.json, table.txt and each world's scenario file into this folder
    #[arg(long, value_name = "DIR", requires = "soak", conflicts_with = "write")]
    pub(crate) out: Option<PathBuf>,
    /// Play nothing: write the scenario that the seed draws, for `weir sim` and `weir lab`
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub(crate) write: Option<PathBuf>,
    /// Runs at a time [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
    /// Print what was found as one JSON object on stdout, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// A paper (elasticswitch, eyeq, vcc, qshare), figures by their ids (ES-F5), or files [default:
    /// everything]
    #[arg(value_name = "PAPER|ID|FILE")]
    pub(crate) what: Vec<String>,
    /// Where to play them
    #[arg(long, value_enum, default_value_t)]
    pub(crate) world: WorldName,
    /// Everything once, short and at few points
    #[arg(long)]
    pub(crate) quick: bool,
    /// Say what there is, and play nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// One folder per figure, and the page, report.html, are written here
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub(crate) out: PathBuf,
    /// Runs at a time in the simulator [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
    /// Where the papers' folders are
    #[arg(long, value_name = "DIR", default_value = "reproduce")]
    pub(crate) from: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum CongestionControl {
    /// RFC 8257, with marks
    Dctcp,
    /// RFC 9438, with ECN where links mark
    Cubic,
    /// NewReno, RFC 5681, with ECN where links mark
    Reno,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().into(), value.trim().into()))
        }
        _ => Err("write KEY=VALUE, for instance --set duration=10s".into()),
    }
}

/// A seed.
fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {}", u64::MAX))
}

/// Generated from the registry, so that it names what there is.
fn mechanism_help() -> String {
    format!(
        "Play this instead of the file's mechanisms: {}; any of them with +TRANSLATION ({}); may be repeated",
        weir_core::mechanism::registry::help(),
        weir_model::scenario::Translation::names().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_whole_number_and_a_mistake_says_so() {
        assert_eq!(seed("7"), Ok(7));
        for text in ["x", "-1", "1.5", ""] {
            assert!(seed(text).expect_err(text).contains("whole number"), "{text}");
        }
    }

    #[test]
    fn an_assignment_needs_a_key_and_a_value() {
        assert_eq!(assignment("a = b=c"), Ok(("a".into(), "b=c".into())));
        assert!(assignment("=3").is_err() && assignment("duration").is_err());
    }
}
