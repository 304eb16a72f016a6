//! What this host can do, tried out, and what it lacks.
//!
//! Problem   A floor that is not enforced looks like one that is, until somebody needs it. What is
//!           missing must be known before an agent starts, with what it costs and how to get it.
//! Approach  Features are tried, not guessed from versions: in a network namespace of a thread of its
//!           own, which takes all it made along when it ends. The rest is read from sysfs and procfs,
//!           under paths that a test can replace.
//! Promises  Nothing is left behind on the host but kernel modules that were loaded on demand, and
//!           that an agent would load too. What could not be found out is [`State::Unknown`], never
//!           [`State::Fine`].
//! Not here  How it is shown, and what an agent's configuration means: see `weir doctor`.

mod bypass;
mod datapath;
mod device;
mod kernel;
mod offload;
mod sandbox;
mod tools;

pub use bypass::bypasses;
pub use device::{ports, uplink};
pub use kernel::{htb_sends_by_bursts, kernel, privileges};
pub use tools::tools;

use std::path::{Path, PathBuf};

/// How things stand with one feature, device or tool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// As it should be.
    Fine,
    /// Floors hold without it, at a price.
    Costs,
    /// It could not be found out, mostly for lack of a privilege.
    Unknown,
    /// Traffic that no program here sees: its floors cannot be kept, nor can it be kept from others'.
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

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What.
    pub what: String,
    /// How it stands.
    pub state: State,
    /// What was found, in a few words.
    pub found: String,
    /// What follows from it; empty if it is fine.
    pub costs: String,
    /// How to change it; empty if it is fine or nothing helps.
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

/// Where the kernel's files are.
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
