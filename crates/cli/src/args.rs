//! The command line: commands, arguments and their help.

mod cloud;
pub(crate) mod worlds;

pub(crate) use cloud::{
    Apply, AuthorityStep, Connection, Controller, ControllerCommand, Form, Get, Host, HostModeName,
    Import, Named, OneSwitch, Output, Plan, ReportOutput, Reservation, Slo, SloReport, Status,
    Switch, Token,
};
pub(crate) use worlds::{CongestionControl, Files, Lab, Reproduce, Sim, Swarm, WorldName, Worlds};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use weir_model::text::span;
use weir_units::{Rate, Span};

/// A minimum bandwidth for every VM of every tenant, work-conserving, on stock Linux.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
#[command(
    after_help = "Exit status: 0 all expectations held and all runs are valid; 1 an expectation \
failed, or (doctor, verify) something cannot be enforced; 2 bad usage or bad input; 3 runs are invalid; \
4 a run failed while it was measured, and what it measured is kept; 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A small datacenter on this machine: a starved tenant without protection, then with it (root)
    Demo {
        /// Where the results and the page are written
        #[arg(long, value_name = "DIR", default_value = "out/demo")]
        out: PathBuf,
    },
    /// Play a scenario on real Linux, in network namespaces of this machine (root)
    Lab(Lab),
    /// Play a scenario, a network file, or other simulators' files, in the packet simulator
    Sim(Sim),
    /// Draw scenarios and faults from seeds, play them in the simulator, and check every promise
    /// all the time (docs/swarm.md)
    Swarm(Swarm),
    /// Draw worlds with constant demands from seeds, play them in the simulator, and hold every
    /// pair and VM against the oracle (docs/swarm.md, "Random worlds")
    Worlds(Worlds),
    /// Play the figures of a paper and compare them with it, on one page
    Reproduce(Reproduce),
    /// Write one HTML page from the results in a folder
    Report {
        /// Folder with one or more results.json, also in folders below it
        dir: PathBuf,
    },
    /// The host daemon: enforces the floors of this host's VMs (root)
    Agent(Agent),
    /// Play an agent's journal again: the same calls must give the same orders to the octet
    Replay {
        /// A segment, or a folder with journals of one or more agents, also in folders below it
        path: PathBuf,
    },
    /// The controller: keeps objects, admits floors, serves the API (docs/controller.md)
    Controller(Controller),
    /// Make or change the objects of files, all or none
    Apply(Apply),
    /// Make objects of agents' files; shows the difference first
    Import(Import),
    /// Floors of libvirt's domains (docs/libvirt.md)
    #[command(subcommand)]
    Libvirt(Libvirt),
    /// Show objects
    Get(Get),
    /// Show one object with its conditions
    Describe(Named),
    /// Remove an object
    Delete(Named),
    /// Say what applying files or losing a link, switch or host would change, or what a switch would
    /// be changed to; changes nothing
    Plan(Plan),
    /// Read and write the queues of a switch (docs/switches.md)
    #[command(subcommand)]
    Switch(Switch),
    /// Say which objects are as they should be; exit status 1 if one is not
    Status(Status),
    /// How floors were kept
    #[command(subcommand)]
    Slo(Slo),
    /// Turn a held reservation into VMs
    Confirm(Reservation),
    /// Give the room of a held reservation back
    Release(Reservation),
    /// Let a host join, or keep it out
    #[command(subcommand)]
    Host(Host),
    /// Make, list and delete tokens of the API
    #[command(subcommand)]
    Token(Token),
    /// Write all records of a running controller into a file
    Backup {
        /// The file; it must not exist
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make the store of a controller that does not run from a backup
    Restore {
        /// The backup
        file: PathBuf,
        /// controller.toml; there must be no store yet
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/controller.toml")]
        config: PathBuf,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands
    Man {
        /// Where they are written
        dir: PathBuf,
    },
    /// What a running agent does: pairs, floors, rates; on a terminal until `q`
    Top {
        /// Print it once
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Switch a running agent between enforcing floors and only observing, without losing a packet
    Mode {
        /// `observe` counts and says what would be done; `enforce` does it
        #[arg(value_enum)]
        mode: ModeName,
        /// agent.toml; the mode is written there, too
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make the keys of the control channel, away from the hosts (docs/keys.md)
    #[command(subcommand)]
    Keys(Keys),
    /// Why has A→B the rate it has now?
    Explain {
        /// Name of the sending VM
        a: String,
        /// Name of the receiving VM
        b: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// What happens at a running agent, as it happens: pairs that begin and end, phases, broken floors
    Observe {
        /// Only pairs of VMs of this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Only pairs from or to this VM; may be given several times
        #[arg(long = "vm", value_name = "VM")]
        vms: Vec<String>,
        /// Only events of this kind: began, ended, phase, limit or floor-broken; may be given several times
        #[arg(long = "what", value_name = "WHAT", value_parser = ["began", "ended", "phase", "limit", "floor-broken"])]
        what: Vec<String>,
        /// Begin with what the agent remembers
        #[arg(long)]
        history: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// What this host can do, what is missing, what that costs and how to get it (root)
    Doctor(Doctor),
    /// Whether the network between this host and others keeps what floors need (root)
    Verify(Verify),
    /// The numbers of this host's agents in the format of Prometheus (docs/watching.md)
    Metrics(Metrics),
    /// Gather what those who help want to see of this host, without keys and tokens, in one file (root)
    SupportBundle(Bundle),
    /// Take Weir out of this host: end its agent, remove what agents left, and look that nothing is left (root)
    Remove {
        /// agent.toml: which instance, and where its files are
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/agent.toml")]
        config: PathBuf,
    },
    /// Remove what a lab left behind that was killed (root)
    Clean,
    /// Take back borrowed bandwidth now: for the service manager, when the agent has ended
    #[command(hide = true)]
    Reclaim {
        /// agent.toml
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Take back borrowed bandwidth when the agent stops renewing its lease
    #[command(hide = true)]
    Guardian {
        /// Name of the agent's instance
        #[arg(long)]
        instance: String,
        /// Where BPF objects are pinned
        #[arg(long, default_value = "/sys/fs/bpf")]
        bpffs: PathBuf,
        /// Where the agent's heartbeat lives
        #[arg(long, default_value = "/run/weir")]
        run_dir: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Agent {
    /// agent.toml
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,
    /// Record all that happens to the agent's machine in this folder, for `weir replay`; at most 256 MiB
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) join: Option<AgentCommand>,
}

/// What is done with domains of libvirt.
#[derive(Debug, Subcommand)]
pub(crate) enum Libvirt {
    /// For libvirt's hook: hands the VMs of the domain on standard input over to the agent, or takes them
    /// back. The exit status is always 0
    Hook {
        /// Name of the domain
        domain: String,
        /// What happens to it: `start`, `stopped` and so on
        operation: String,
        /// What else libvirt says
        #[arg(hide = true)]
        more: Vec<String>,
        /// agent.toml: which instance, and where its files are
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/agent.toml")]
        config: PathBuf,
    },
    /// Print what a domain's `<bandwidth>` is as metadata of Weir, and say what has no counterpart
    Import {
        /// The domain, as `virsh dumpxml` prints it; `-` is standard input
        file: PathBuf,
    },
}

/// What is done before an agent follows a controller.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Make a key, and get this host's certificate from the controller
    Join {
        /// agent.toml, with `[controller]`
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/agent.toml")]
        config: PathBuf,
        /// NAME:PORT of the controller; default: the one in agent.toml
        #[arg(long, value_name = "ADDRESS")]
        controller: Option<String>,
        /// The token that `weir host token` printed; `-` reads it from standard input
        #[arg(long)]
        token: String,
        /// The authority's certificate: a file, or its SHA-256 in hexadecimal digits
        #[arg(long, value_name = "FILE|SHA256")]
        ca: String,
    },
}

/// What is done with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Add a random key to the master file, which never goes to a host; makes the file if there is
    /// none
    Draw {
        /// The master file: a line `ID KEY` per key, the first one signs
        #[arg(long, value_name = "FILE")]
        master: PathBuf,
    },
    /// Write a key file for each host of the directory: keys that it shares with each other host
    /// alone
    Make {
        /// The master file
        #[arg(long, value_name = "FILE")]
        master: PathBuf,
        /// The directory of hosts and VMs
        #[arg(long, value_name = "FILE")]
        directory: PathBuf,
        /// Where HOST.keys are written
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// What an agent does with packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ModeName {
    /// Floors are enforced.
    Enforce,
    /// Nothing is changed, delayed or dropped.
    Observe,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// agent.toml: look at its uplink and its VMs' ports, too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where BPF objects would be pinned [default: what the configuration says, else /sys/fs/bpf]
    #[arg(long, value_name = "DIR")]
    pub(crate) bpffs: Option<PathBuf>,
    /// Print the findings as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Verify {
    /// Hosts on which `weir verify serve` runs, port 7001 if none is named [default: with --config, all
    /// other hosts of the directory]
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = endpoint, required_unless_present = "config")]
    pub(crate) hosts: Vec<SocketAddr>,
    /// agent.toml: compare keys, and fail if something changes that this host uses
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Also send a stream at this rate in each direction, and say whether it arrives; it takes bandwidth
    #[arg(long, value_name = "RATE", value_parser = weir_model::text::rate)]
    pub(crate) rate: Option<Rate>,
    /// How long each stream lasts, 60s at most
    #[arg(long, value_name = "TIME", value_parser = stream_span, default_value = "3s")]
    #[arg(requires = "rate")]
    pub(crate) time: Span,
    /// Also send what looks like a tunnel's outer packets: 4789 for VXLAN, 6081 for Geneve
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) outer: Option<u16>,
    /// Print the findings as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) serve: Option<VerifyCommand>,
}

/// The other end of `weir verify`.
#[derive(Debug, Subcommand)]
pub(crate) enum VerifyCommand {
    /// Answer `weir verify` of other hosts, until Ctrl-C or the end of a time (root)
    Serve {
        /// Address of this host that the others ask, port 7001 if none is named [default: with
        /// --config, where its agent listens]
        #[arg(value_name = "ADDRESS[:PORT]", value_parser = endpoint)]
        #[arg(required_unless_present = "config")]
        listen: Option<SocketAddr>,
        /// agent.toml: compare keys
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Ends by itself after this time
        #[arg(long = "for", value_name = "TIME", value_parser = span, default_value = "60min")]
        lasts: Span,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Serve them at this address, under /metrics, until Ctrl-C; else print them once
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Where the agents' sockets are
    #[arg(long, value_name = "DIR", default_value = "/run/weir")]
    pub(crate) run_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// The file; it must not exist [default: weir-support-HOST-SECONDS.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// agent.toml
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/agent.toml")]
    pub(crate) config: PathBuf,
    /// A journal of the agent (`weir agent --journal DIR`): its newest 64 MiB
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,
    /// How old lines of the logs may be
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "24h")]
    pub(crate) since: Span,
    /// Where the agents' sockets are
    #[arg(long, value_name = "DIR", default_value = "/run/weir")]
    pub(crate) run_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Socket {
    /// Name of the agent's instance [default: the only one that runs]
    #[arg(long)]
    pub(crate) instance: Option<String>,
    /// Where the agents' sockets are
    #[arg(long, default_value = "/run/weir")]
    pub(crate) run_dir: PathBuf,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An address of a host, with the port of agents if none is named.
fn endpoint(text: &str) -> Result<SocketAddr, String> {
    let alone = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, weir_agent::verify::PORT));
    let wrong = "write an address, for instance 10.255.0.2, 10.255.0.2:7002 or [fd00::2]:7002";
    text.parse().or_else(|_| alone()).map_err(|_| wrong.into())
}

/// How long a stream may last.
fn stream_span(text: &str) -> Result<Span, String> {
    let lasts = span(text)?;
    let range = Span::from_millis(100)..=Span::from_secs(60);
    range.contains(&lasts).then_some(lasts).ok_or("write a time from 100ms to 60s".into())
}

/// For a shell: as it is if harmless, else in single quotes.
pub(crate) fn quoted(word: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_commands_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_endpoint_has_the_agents_port_unless_it_names_one() {
        let at = |text: &str| text.parse().expect("an address");
        assert_eq!(endpoint("10.0.0.2"), Ok(at("10.0.0.2:7001")));
        assert_eq!(endpoint("10.0.0.2:9"), Ok(at("10.0.0.2:9")));
        assert_eq!(endpoint("fd00::2"), Ok(at("[fd00::2]:7001")));
        assert!(endpoint("h1").expect_err("a name").contains("write an address"));
        assert!(stream_span("61s").is_err() && stream_span("60s").is_ok());
    }
}
