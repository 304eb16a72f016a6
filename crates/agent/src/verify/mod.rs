//! `weir verify`: whether the way between two hosts keeps what Weir relies on.
//!
//! Problem   Weir writes tags, numbers and marks into headers, sends control messages, and promises rates.
//!           A firewall, a switch or a tunnel between two hosts can break each of these, in one
//!           direction, long before a tenant notices.
//! Approach  A server on one host, a prober on the other. Packets with headers made on purpose go both
//!           ways, and each side says what it saw. A stream at a rate tells whether the way carries it.
//! Promises  Works before agents and tenants exist. Changes nothing on either host.
//! Not here  What `weir doctor` sees without a server at the other end: see `way`.
//!
//! | file | what |
//! | --- | --- |
//! | `header` | IP and UDP headers, built and read |
//! | `note` | what prober and server say to each other |
//! | `probes` | the headers that are tried |
//! | `desk`, `serve` | the server: its state, its sockets |
//! | `ask` | the prober |
//! | `flow` | streams |
//! | `keys` | control messages of agents |
//! | `verdict` | what it means |

mod ask;
mod desk;
mod flow;
mod header;
mod keys;
mod note;
mod probes;
mod serve;
mod sockets;
mod verdict;

pub use ask::Asking;
pub use serve::serve;
pub use verdict::{Report, Row, State};

use crate::client;
use crate::config::Setup;
use anyhow::{Result, ensure};
use ask::{Prober, Silence};
use keys::Greeter;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use verdict::Needs;
use weir_core::mechanism::Law;
use weir_core::rate::Signal;
use weir_model::agent::Translation;

/// The port of agents in all examples, and of servers unless another one is named.
pub const PORT: u16 = 7001;
/// Where agents' sockets are unless a configuration says otherwise.
const RUN_DIR: &str = "/run/weir";
const INTERRUPTED: &str = "interrupted";

/// Asks servers of other hosts.
pub struct Verifier {
    setup: Option<Setup>,
    greeter: Option<Greeter>,
    needs: Needs,
    run_dir: PathBuf,
}

impl Verifier {
    /// With this host's configuration, if there is one: then keys are compared, and what it uses must
    /// survive.
    ///
    /// # Errors
    ///
    /// The configuration has a mistake, or its keys cannot be read.
    pub fn new(config: Option<&Path>) -> Result<Self> {
        // Else each host would show that the caller may not.
        sockets::Raw::open(Ipv4Addr::LOCALHOST.into(), note::BACK)?;
        let setup = config.map(Setup::load).transpose()?;
        let greeter = setup.as_ref().map(Greeter::of).transpose()?;
        let needs = setup.as_ref().map(needs).unwrap_or_default();
        let run_dir = setup.as_ref().map_or(RUN_DIR.into(), |setup| setup.file.run_dir.clone());
        Ok(Self { setup, greeter, needs, run_dir })
    }

    /// The control addresses of all other hosts of the directory.
    pub fn others(&self) -> Vec<SocketAddr> {
        let Some(setup) = &self.setup else { return Vec::new() };
        let others = setup.hosts.values().filter(|(name, _)| *name != setup.file.host);
        others.map(|(_, at)| *at).collect()
    }

    /// Measures the ways to one server and back. `say` is told each step.
    ///
    /// # Errors
    ///
    /// The caller may not have raw sockets, no way leads there, the server stops to answer, or `stop` was
    /// set. A host that does not answer at all is a finding.
    pub fn verify(
        &self,
        at: SocketAddr,
        asking: &Asking,
        stop: &AtomicBool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Report> {
        let name = |setup: &Setup| {
            let mut hosts = setup.hosts.values();
            hosts.find(|(_, control)| control.ip() == at.ip()).map(|(name, _)| name.clone())
        };
        let host = self.setup.as_ref().and_then(name).unwrap_or_else(|| at.ip().to_string());
        let mut prober = Prober::new(at, stop)?;
        say("asks");
        let (rows, mut notes) = match prober.hello()? {
            Ok(welcome) => {
                let greeter = self.greeter.as_ref();
                let facts = prober.measure(welcome, asking, greeter, say)?;
                verdict::judge(&facts, &self.needs)
            }
            Err(silence) => {
                ensure!(!stop.load(Ordering::Relaxed), INTERRUPTED);
                (silent(at, prober.port(), silence), Vec::new())
            }
        };
        if asking.rate.is_some() && !client::instances(&self.run_dir).is_empty() {
            notes.push(
                "An agent runs here. The stream is traffic of the hosts: `uplink.host_floor` limits it \
                 to what VMs leave, and without that it takes from them."
                    .into(),
            );
        }
        Ok(Report { host, at, rows, notes })
    }
}

/// What this host's mechanism, queues and translations rely on.
fn needs(setup: &Setup) -> Needs {
    let mut code_points: BTreeSet<u8> = setup.file.code_points.iter().copied().collect();
    let signal = match &setup.host.law {
        Law::ElasticSwitch(law) => Some(law.rate.signal),
        // Its feedback, and packets of VMs without a floor.
        Law::EyeQ(_) => {
            code_points.extend([1, 48]);
            None
        }
        _ => None,
    };
    // Its timed packets have numbers like others.
    let times = matches!(setup.host.law, Law::Level(_));
    let translates = setup.file.vms.iter().any(|vm| vm.translation != Translation::default());
    Needs {
        is_configured: true,
        code_points,
        marks: signal == Some(Signal::Ecn) || translates,
        numbers: times || signal == Some(Signal::Loss),
        times,
    }
}

/// Reads a datagram of a prober or a server, and makes it anew. `None` if it is neither's.
pub fn rewritten(octets: &[u8]) -> Option<Vec<u8>> {
    note::parse(octets).map(|note| note::encode(&note, octets.len()))
}

fn silent(at: SocketAddr, own: u16, silence: Silence) -> Vec<Row> {
    let serve = format!("run `weir verify serve {at}` there");
    match silence {
        Silence::Nothing => {
            // A firewall that knows the port of agents alone lets no answer to another one through.
            let other = match own == at.port() {
                true => String::new(),
                false => format!(" (to {own} here: an agent has {})", at.port()),
            };
            verdict::unreachable(
                "no answer",
                "agents' messages may not arrive either",
                format!(
                    "{serve}; if it runs, open UDP {} between the hosts{other}: where the server says \
                     that this host asks, the way back is closed, else the way there",
                    at.port()
                ),
            )
        }
        Silence::Refused => {
            verdict::unreachable("arrives, and nothing listens", "nothing was measured", serve)
        }
        Silence::Version(version) => verdict::unreachable(
            &format!("speaks version {version}, here it is {}", note::VERSION),
            "nothing was measured",
            "install the same release of Weir on both hosts".into(),
        ),
    }
}

/// The wall clock, nanoseconds.
fn wall() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
