//! Writes tenants' queues to switches, and reads them back.
//!
//! Problem   A switch may fail half-way, be late, reboot, be changed by people, or be written to by
//!           another controller. No packet may meet a queue that is not configured.
//! Approach  A kind of switch is a [`Backend`]: it reads what is there and makes groups of changes.
//!           [`Managed`] does the rest for all kinds: owner mark, save, order, time limit, comparison
//!           of what is read back. What is found, not what was written, decides what is to do.
//! Promises  A queue is configured before a code point leads to it, and removed when none does. What
//!           others configured is not touched. [`Outcome::Applied`] means that the switch was read
//!           back and is as wanted. After a rollback it is as it was before Weir, or an error says
//!           what is not. A call ends soon after its time limit: see [`Limit`].
//! Not here  Which queues are wanted: `weir_core::binding`. When hosts tag packets: the controller.
//! Source    QShare §6. What each kind can do, and cannot: `docs/switches.md`.

pub mod file;
mod limit;
pub mod linux;
mod managed;
pub mod object;
mod saves;
pub mod sonic;

pub use limit::Limit;
pub use managed::Managed;
pub use saves::Saves;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use weir_core::binding::switch::{Abilities, Cannot, Change, Fit, PortName, Stage, SwitchConfig};
use weir_units::{SortedMap, SortedSet};

/// The name of a controller, left on a switch as a mark.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Owner(String);

impl Owner {
    /// 1 to 16 of `a`-`z`, `0`-`9` and `-`: it must fit into every switch's names.
    ///
    /// Error: the name, if it is none.
    pub fn new(name: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=16).contains(&name.len()) && name.chars().all(fits) {
            Ok(Self(name.to_owned()))
        } else {
            Err(format!("`{name}` is no owner: it needs 1 to 16 of a-z, 0-9 and -"))
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was found on a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// What it can hold.
    pub able: Abilities,
    /// Weir's queues. A port is in it if Weir configured it.
    pub config: SwitchConfig,
    /// The classes of Weir's code points; empty where the switch has none.
    pub classes: SortedMap<u8, u8>,
    /// Marks of owners.
    pub owners: SortedSet<String>,
    /// Code points of which one part is missing: they are bound again.
    pub torn: SortedSet<(PortName, u8)>,
    /// Ports that others configured in a way that leaves no room for Weir, and why.
    pub barred: SortedMap<PortName, String>,
    /// What belongs to others and is left alone, in words.
    pub others: Vec<String>,
}

impl Found {
    /// Whether Weir left anything.
    pub fn has_ours(&self) -> bool {
        !self.owners.is_empty() || !self.config.ports.is_empty()
    }
}

/// What a call was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reading what is there.
    Read,
    /// Comparing it with what is wanted.
    Plan,
    /// Leaving or reading the owner's mark.
    Claim,
    /// Saving the state before Weir.
    Save,
    /// Making changes.
    Make(Stage),
    /// Reading back.
    Verify,
    /// Restoring the state before Weir.
    Restore,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reading the switch",
            Self::Plan => "comparing",
            Self::Claim => "claiming the switch",
            Self::Save => "saving the state before Weir",
            Self::Make(Stage::Make) => "making queues",
            Self::Make(Stage::Unbind) => "moving code points to the shared queue",
            Self::Make(Stage::Bind) => "binding code points",
            Self::Make(Stage::Remove) => "removing queues",
            Self::Verify => "reading back",
            Self::Restore => "rolling back",
        })
    }
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The time limit passed. What was done until then stays; the next call finds it.
    Late,
    /// The switch, its kernel or its database said no, or did not answer.
    Refused(String),
    /// The switch cannot hold what is wanted. Nothing was changed.
    Cannot(Cannot),
    /// Others configured this port. Nothing was changed.
    Barred(String),
    /// Another controller has this switch. Nothing was changed.
    Owned(String),
    /// What was read back is not as wanted: this is missing.
    Differs(Vec<Change>),
    /// The state before Weir is not known.
    NoSave,
    /// After the rollback, this is not as it was.
    NotRestored(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("the time limit passed; the next call goes on from here"),
            Self::Refused(said) => f.write_str(said),
            Self::Cannot(cannot) => write!(f, "{cannot}; nothing was changed"),
            Self::Barred(what) => {
                write!(f, "{what}: that is not Weir's, remove it or leave the port out")
            }
            Self::Owned(owner) => write!(
                f,
                "the controller `{owner}` has this switch; nothing was changed. Let it roll back \
                 first, or let only one of both have this switch"
            ),
            Self::Differs(changes) => {
                write!(f, "it was written, but is not so: ")?;
                let said: Vec<String> = changes.iter().map(Change::to_string).collect();
                f.write_str(&said.join("; "))
            }
            Self::NoSave => f.write_str(
                "the state before Weir is not known, because its file is lost. Nothing was changed; \
                 configure the switch by hand",
            ),
            Self::NotRestored(what) => write!(f, "not as before Weir: {what}"),
        }
    }
}

/// Where and why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The port, if it was one.
    pub port: Option<PortName>,
    /// What it was doing.
    pub step: Step,
    /// Why.
    pub why: Why,
}

impl Failed {
    /// A failure of the whole switch.
    pub const fn new(step: Step, why: Why) -> Self {
        Self { port: None, step, why }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(port) = &self.port {
            write!(f, "port {port}: ")?;
        }
        write!(f, "{}: {}", self.step, self.why)
    }
}

impl std::error::Error for Failed {}

/// What became of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The switch was read back and is as wanted. The changes that were made.
    Applied(Vec<Change>),
    /// The switch's database was read back and is as wanted. Whether its hardware is cannot be told.
    Written(Vec<Change>),
    /// It is not as wanted, or not known to be. What was done stays; the next call finds it.
    Failed(Failed),
}

/// What applying a config would do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// What the switch cannot hold. Then [`Driver::apply`] changes nothing.
    pub fit: Fit,
    /// Ports that others configured, and why Weir has no room there.
    pub barred: SortedMap<PortName, String>,
    /// Marks of other owners.
    pub owners: SortedSet<String>,
    /// What belongs to others and is left alone, in words.
    pub others: Vec<String>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for owner in &self.owners {
            writeln!(f, "owned by another controller: {owner}")?;
        }
        for (port, why) in &self.barred {
            writeln!(f, "port {port} is configured by others: {why}")?;
        }
        for (port, why) in &self.fit.ports {
            writeln!(f, "port {port} cannot be configured: {why}")?;
        }
        for (codepoint, why) in &self.fit.refused {
            writeln!(f, "code point {codepoint} stays in the shared queue: {why}")?;
        }
        for other in &self.others {
            writeln!(f, "left alone: {other}")?;
        }
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        if self.changes.is_empty() { writeln!(f, "no changes") } else { Ok(()) }
    }
}

/// A switch of any kind.
///
/// Calls: [`read`](Self::read) and [`plan`](Self::plan) change nothing. [`apply`](Self::apply) finds
/// out by itself what is to do, so it is called again after a failure, a reboot, or now and then to
/// mend what drifted.
pub trait Driver {
    /// Reads what is there.
    ///
    /// # Errors
    /// The switch does not answer within the time limit, or not in a way that is understood.
    fn read(&mut self) -> Result<Found, Failed>;

    /// What [`apply`](Self::apply) would do.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn plan(&mut self, wanted: &SwitchConfig) -> Result<Plan, Failed>;

    /// Makes the switch as wanted. Ports that `wanted` does not name stay as they are.
    fn apply(&mut self, wanted: &SwitchConfig) -> Outcome;

    /// Makes the switch as it was before Weir's first [`apply`](Self::apply).
    fn rollback(&mut self) -> Outcome;
}

/// A group of changes of one stage.
pub struct Group<'a, S> {
    /// Their stage.
    pub stage: Stage,
    /// The changes.
    pub changes: &'a [Change],
    /// Weir's queues when they are made.
    pub after: &'a SwitchConfig,
    /// The class of each code point in `after`, where the switch has classes.
    pub classes: &'a SortedMap<u8, u8>,
    /// The state before Weir.
    pub saved: &'a S,
    /// Who makes them.
    pub owner: &'a Owner,
}

/// A kind of switch, as [`Managed`] uses it. Every call returns an error soon after `limit`.
#[expect(clippy::missing_errors_doc, reason = "each fails if the switch does not do it in time")]
pub trait Backend {
    /// The state before Weir.
    type Saved: Clone + PartialEq + Serialize + DeserializeOwned;

    /// Whether what is read back is what the switch does, and not only what its database has.
    const PROVES: bool;

    /// Reads what is there.
    fn read(&mut self, limit: &Limit) -> Result<Found, Failed>;

    /// The state without Weir: as it is now, without what is Weir's.
    fn save(&mut self, limit: &Limit) -> Result<Self::Saved, Failed>;

    /// Whether this state has the port.
    fn covers(saved: &Self::Saved, port: &PortName) -> bool;

    /// Adds to `saved` the ports of `now` that it does not have: they came later.
    fn extend(saved: &mut Self::Saved, now: Self::Saved);

    /// Leaves an owner's mark. It is there already, or it is made.
    fn mark(&mut self, owner: &Owner, limit: &Limit) -> Result<(), Failed>;

    /// Removes an owner's mark.
    fn unmark(&mut self, owner: &Owner, limit: &Limit) -> Result<(), Failed>;

    /// Makes changes. The last [`read`](Self::read) was before the first group.
    fn make(&mut self, group: &Group<'_, Self::Saved>, limit: &Limit) -> Result<(), Failed>;

    /// Removes what is Weir's but the mark, and restores what it replaced.
    fn restore(&mut self, saved: &Self::Saved, limit: &Limit) -> Result<(), Failed>;
}
