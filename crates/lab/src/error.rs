//! What can go wrong, each with the facts and what to do.

use nix::errno::Errno;
use std::path::PathBuf;

/// Why a scenario was not played to its end. Everything that had been set up is undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces and shapers need root.
    #[error("the lab needs root to make network namespaces: run it with sudo")]
    NotRoot,
    /// The kernel or the system lacks something.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// The scenario asks for what the lab cannot do.
    #[error("the lab cannot play this scenario: {what}; {instead}")]
    Unsupported {
        /// What it asks for, by name.
        what: String,
        /// What would work.
        instead: String,
    },
    /// The agent's binary is not there or cannot be executed.
    #[error("{path}: no agent to start: {why}; build it with `cargo build --release`")]
    NoAgent {
        /// Where it was looked for.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An agent ended, or did not answer in time.
    #[error("the agent of {host} {what}; its log {log} ends with:\n{tail}")]
    Agent {
        /// The host's name in the scenario.
        host: String,
        /// What it did.
        what: String,
        /// Its log file; kept only if the caller named a run directory.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A fault of the scenario could not be played.
    #[error(
        "cannot break `{part}` of VM {vm}: {why}; only ports that an agent shapes with HTB have all parts"
    )]
    Fault {
        /// What was to be broken.
        part: &'static str,
        /// Whose port.
        vm: String,
        /// What the command said.
        why: String,
    },
    /// The kernel refused a request.
    #[error("cannot {doing}: {errno}")]
    Kernel {
        /// What was asked for.
        doing: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// What marks or carries packets could not be set up or read.
    #[error("cannot set up the network: {0}")]
    Dataplane(#[source] weir_dataplane::Error),
    /// A file or a process could not be handled.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The caller asked to stop.
    #[error("stopped before the end")]
    Stopped,
}

impl Error {
    /// An error of the kernel while `doing` something.
    pub(crate) fn kernel(doing: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let doing = doing.into();
        move |errno| Self::Kernel { doing, errno }
    }

    /// An error of the system while `doing` something.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
