//! Features of this host, tried out, and those that it lacks.
//!
//! Problem   A floor that is not enforced looks like one that is, until a VM needs it. What is
//!           missing must be known before an agent starts, with its cost and a remedy.
//! Approach  Features are tried, not guessed from versions, in a network namespace of a thread of
//!           its own. The namespace ends with the thread and takes all that was made in it. The
//!           rest is read from sysfs and procfs, under paths that a test can replace.
//! Promises  Nothing stays on the host except kernel modules that were loaded on demand and that an
//!           agent would load, too. A feature whose state is not known is [`State::Unknown`], never
//!           [`State::Fine`].
//! Not here  How it is shown, and what an agent's configuration means: see `weir doctor`.

mod bypass;
mod datapath;
mod device;
mod kernel;
mod offload;
mod remains;
mod sandbox;
mod tools;

pub use bypass::bypasses;
pub use device::{host_traffic, ports, uplink};
pub use kernel::{htb_sends_by_bursts, kernel, privileges};
pub use remains::remains;
pub use tools::tools;

use std::path::{Path, PathBuf};

/// State of one feature, device or tool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// As it should be.
    Fine,
    /// Floors hold without it, at a price.
    Costs,
    /// The state is not known, mostly for lack of a privilege.
    Unknown,
    /// Traffic that no program sees: it has no floor, and may take others' floors.
    Unenforced,
    /// No floor can be enforced on this host.
    Cannot,
}

impl State {
    /// Whether floors can be enforced all the same.
    pub const fn allows(self) -> bool {
        matches!(self, Self::Fine | Self::Costs | Self::Unknown)
    }

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Costs => "costs",
            Self::Unknown => "unknown",
            Self::Unenforced => "Unenforced",
            Self::Cannot => "cannot",
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The feature, device or tool.
    pub what: String,
    /// Its state.
    pub state: State,
    /// The observation, in a few words.
    pub found: String,
    /// The consequence; empty if the state is fine.
    pub costs: String,
    /// The remedy; empty if the state is fine or nothing helps.
    pub remedy: String,
}

impl Finding {
    fn fine(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(what, State::Fine, found, "", "")
    }

    fn new(
        what: impl Into<String>,
        state: State,
        found: impl Into<String>,
        costs: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (what, found) = (what.into(), found.into());
        Self { what, state, found, costs: costs.into(), remedy: remedy.into() }
    }
}

/// Paths of the kernel's files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roots {
    /// Ordinarily `/sys`.
    pub sys: PathBuf,
    /// Ordinarily `/proc`.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into() }
    }
}

impl Roots {
    fn device(&self, interface: &str) -> PathBuf {
        self.sys.join("class/net").join(interface)
    }
}

/// A file's text without white space around it; `None` if it cannot be read.
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

/// The last part of where a symbolic link leads.
fn link_name(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// The names in a folder, in order; none if it is not there.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
