//! The command line: commands, arguments and their help.

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use weir_model::text::{size, span};
use weir_units::{Bytes, Rate, Span};

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

/// How a command reaches the controller.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// client.toml: where the controller is, and the token [default: $WEIR_CLIENT, else
    /// ~/.config/weir/client.toml, else /etc/weir/client.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) client: Option<PathBuf>,
}

/// How objects are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Output {
    /// A row for each object
    #[default]
    Table,
    /// The answer of the API
    Json,
    /// Documents that can be applied as they are
    Yaml,
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

/// What is done with hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum Host {
    /// Make a token by which the host joins, once, and print it; a former one is worthless
    Token {
        /// Name of the host
        name: String,
        /// How long the token is valid
        #[arg(long, value_name = "TIME", value_parser = span, default_value = "3600s")]
        valid: Span,
        #[command(flatten)]
        connection: Connection,
    },
    /// Let hosts' agents enforce floors, or only observe and say what they would do; no packet is lost
    Mode {
        /// What they do; `file`: what each host's own agent.toml says
        mode: HostModeName,
        /// Names of the hosts
        #[arg(required_unless_present_any = ["all", "tenant"])]
        hosts: Vec<String>,
        /// The hosts that have VMs of this tenant now, with all VMs on them; may be repeated
        #[arg(long, value_name = "TENANT")]
        tenant: Vec<String>,
        /// All hosts
        #[arg(long, conflicts_with_all = ["hosts", "tenant"])]
        all: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Refuse the host's certificates from now on; its floors stay as they are
    Revoke {
        /// Name of the host
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What a host's agent does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum HostModeName {
    /// Enforce floors
    Enforce,
    /// Change no packet
    Observe,
    /// As each host's file says
    File,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Controller {
    /// controller.toml
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/controller.toml")]
    pub(crate) config: PathBuf,
    #[command(subcommand)]
    pub(crate) init: Option<ControllerCommand>,
}

/// What is done before a controller runs.
#[derive(Debug, Subcommand)]
pub(crate) enum ControllerCommand {
    /// Make the configuration, the certificate authority, the store and the first operator's token
    Init {
        /// controller.toml; made if it is not there
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/controller.toml")]
        config: PathBuf,
        /// Where the first operator's token is written; readable by its owner alone
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/client.toml")]
        client: PathBuf,
        /// Address and port of the API
        #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7443")]
        listen: std::net::SocketAddr,
        /// Name or address by which clients reach the API; may be repeated
        #[arg(long = "name", value_name = "NAME", default_value = "localhost")]
        names: Vec<String>,
        /// Folder of the store and the authority
        #[arg(long = "data", value_name = "DIR", default_value = "/var/lib/weir/controller")]
        data: PathBuf,
        /// For several controllers: etcd://HOST:PORT,HOST:PORT/PREFIX; else a file in the data folder
        #[arg(long, value_name = "ADDRESS")]
        store: Option<String>,
    },
    /// Replace the certificate authority in three steps (docs/controller.md)
    Authority {
        /// The step
        #[arg(value_enum)]
        step: AuthorityStep,
        /// controller.toml
        #[arg(long, value_name = "FILE", default_value = "/etc/weir/controller.toml")]
        config: PathBuf,
    },
}

/// A step of the replacement of an authority.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AuthorityStep {
    /// Make another one, which is trusted from the next start on
    Add,
    /// Let the other one sign
    Swap,
    /// Trust the one that signs alone
    Drop,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// YAML or JSON with one or more objects; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Only say what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// agent.toml of a host; the directory that it names is read, too
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Switch to which the hosts' NICs lead; needed for hosts that the controller does not have
    #[arg(long, value_name = "NAME")]
    pub(crate) switch: Option<String>,
    /// Number of VMs that a host has room for [default: as it is, 100 for a new host]
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,
    /// Let the controller give numbers to hosts and VMs, instead of those of the directory: then the
    /// hosts of a tenant have to follow the controller all at once
    #[arg(long)]
    pub(crate) renumber: bool,
    /// Make the objects, after the difference was shown
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// vms, hosts, links, switches, tenants, topologies or reservations
    pub(crate) kind: String,
    /// Only this one
    pub(crate) name: Option<String>,
    /// How to show them
    #[arg(short = 'o', long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// Go on with changes as they happen
    #[arg(short = 'w', long, conflicts_with = "name")]
    pub(crate) watch: bool,
    /// Only those of this tenant
    #[arg(long, value_name = "TENANT", conflicts_with = "name")]
    pub(crate) tenant: Option<String>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// One object.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// vm, host, link, switch, tenant, topology or reservation
    pub(crate) kind: String,
    /// Its name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct Reservation {
    /// Name of the reservation
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args(["files", "without", "switch"])))]
pub(crate) struct Plan {
    /// YAML or JSON with objects that would be applied; may be repeated
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A host, link or switch that would be lost; may be repeated. If several have the name:
    /// host/NAME, link/NAME or switch/NAME
    #[arg(long, value_name = "NAME")]
    pub(crate) without: Vec<String>,
    /// A switch: shows the difference between its queues and those of --wanted
    #[arg(long, value_name = "NAME", requires = "wanted", conflicts_with_all = ["files", "without"])]
    pub(crate) switch: Option<String>,
    /// With --switch: the file with the queues that are wanted
    #[arg(long, value_name = "FILE", requires = "switch")]
    pub(crate) wanted: Option<PathBuf>,
    /// With --switch: the file with the switches
    #[arg(long, value_name = "FILE", default_value = SWITCHES)]
    pub(crate) switches: PathBuf,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Where the switches are described.
const SWITCHES: &str = "/etc/weir/switches.toml";

/// What is done with a switch.
#[derive(Debug, Subcommand)]
pub(crate) enum Switch {
    /// Print its queues, and what of it belongs to others
    Read(OneSwitch),
    /// Print the changes that `apply` would make; changes nothing
    Plan {
        #[command(flatten)]
        switch: OneSwitch,
        /// The file with the queues that are wanted
        #[arg(long, value_name = "FILE")]
        wanted: PathBuf,
        /// Sentences, or SONiC's own forms: `patch` for `config apply-patch`, `full` for its tables
        #[arg(long, value_enum, default_value_t = Form::Text)]
        form: Form,
    },
    /// Make its queues as wanted, in an order in which no packet meets a queue that is not there
    Apply {
        #[command(flatten)]
        switch: OneSwitch,
        /// The file with the queues that are wanted
        #[arg(long, value_name = "FILE")]
        wanted: PathBuf,
    },
    /// Make it as it was before Weir
    Rollback(OneSwitch),
}

/// One switch of a file.
#[derive(Debug, Args)]
pub(crate) struct OneSwitch {
    /// Its name in the file
    pub(crate) name: String,
    /// The file with the switches
    #[arg(long, value_name = "FILE", default_value = SWITCHES)]
    pub(crate) switches: PathBuf,
}

/// How a plan is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Form {
    /// Sentences
    Text,
    /// A JSON patch (RFC 6902)
    Patch,
    /// The whole tables, as JSON
    Full,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only objects of this kind [default: all]
    pub(crate) kind: Option<String>,
    /// Only this one
    pub(crate) name: Option<String>,
    /// Wait until all are as they should be
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "60s")]
    pub(crate) timeout: Span,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// What is asked about floors.
#[derive(Debug, Subcommand)]
pub(crate) enum Slo {
    /// For each floor the part of the time in which it held, and when it did not; exit status 1 if one was broken.
    /// Only the seconds count in which a pair wanted more than it had
    Report(SloReport),
}

#[derive(Debug, Args)]
pub(crate) struct SloReport {
    /// Only floors of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Only floors of this VM
    #[arg(long, value_name = "VM")]
    pub(crate) vm: Option<String>,
    /// How far back
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub(crate) since: String,
    /// How to show it
    #[arg(short = 'o', long, value_enum, default_value_t)]
    pub(crate) output: ReportOutput,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How a report is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum ReportOutput {
    /// A row for each floor, and one for each stretch of time in which one was broken
    #[default]
    Table,
    /// The answer of the API
    Json,
    /// A row for each floor: rates in bit/s, amounts in octets
    Csv,
}

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a token and print it, once
    Create {
        /// Unique name: the audit log has it
        name: String,
        /// What it allows: viewer, tenant or operator
        #[arg(long)]
        role: String,
        /// For the role tenant: which tenant
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List all tokens, without their secrets
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a token worthless
    Delete {
        /// Its name
        name: String,
        #[command(flatten)]
        connection: Connection,
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

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().into(), value.trim().into()))
        }
        _ => Err("write KEY=VALUE, for instance --set duration=10s".into()),
    }
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

/// A seed.
fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("write a whole number from 0 to {}", u64::MAX))
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
    use clap::CommandFactory as _;

    #[test]
    fn the_commands_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_seed_is_a_whole_number_and_a_mistake_says_so() {
        assert_eq!(seed("7"), Ok(7));
        for text in ["x", "-1", "1.5", ""] {
            assert!(seed(text).expect_err(text).contains("whole number"), "{text}");
        }
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

    #[test]
    fn an_assignment_needs_a_key_and_a_value() {
        assert_eq!(assignment("a = b=c"), Ok(("a".into(), "b=c".into())));
        assert!(assignment("=3").is_err() && assignment("duration").is_err());
    }
}
