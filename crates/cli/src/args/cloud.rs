//! What the controller and switches are asked and told.

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use weir_model::text::span;
use weir_units::Span;

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
