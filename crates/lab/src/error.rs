//! Errors of the lab, each with the facts and what to do.

use nix::errno::Errno;
use std::path::PathBuf;

/// Reason why a scenario was not played to its end. Everything that had been set up is undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces and shapers need root.
    #[error("the lab needs root to make network namespaces: run it with sudo")]
    NotRoot,
    /// The kernel or the system lacks something.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The missing feature.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// The scenario asks for a feature that the lab does not have.
    #[error("the lab cannot play this scenario: {what}; {instead}")]
    Unsupported {
        /// The feature, by name.
        what: String,
        /// An alternative that works.
        instead: String,
    },
    /// The agent's binary is not there or cannot be executed.
    #[error("{path}: no agent to start: {why}; build it with `cargo build --release`")]
    NoAgent {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// An agent ended, or did not answer in time.
    #[error("the agent of {host} {what}; its log {log} ends with:\n{tail}")]
    Agent {
        /// The host's name in the scenario.
        host: String,
        /// What the agent did.
        what: String,
        /// Its log file; kept only if the caller named a run directory.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A switch did not get its weighted queues.
    #[error("switch {switch} has no weighted queues: {why}")]
    Switch {
        /// The switch's name in the scenario.
        switch: String,
        /// What its driver said.
        why: String,
    },
    /// The controller ended, did not answer in time, or refused something.
    #[error("the controller {what}:\n{tail}")]
    Controller {
        /// What it did.
        what: String,
        /// Its words, or the end of its log.
        tail: String,
    },
    /// A fault of the scenario could not be played.
    #[error(
        "cannot break `{part}` of VM {vm}: {why}; only ports that an agent shapes with HTB have all parts"
    )]
    Fault {
        /// The part that was to be broken.
        part: &'static str,
        /// The VM of the port.
        vm: String,
        /// The output of the command.
        why: String,
    },
    /// The kernel refused a request.
    #[error("cannot {doing}: {errno}")]
    Kernel {
        /// The request.
        doing: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A program or a link box could not be set up or read.
    #[error("cannot set up the network: {0}")]
    Dataplane(#[source] weir_dataplane::Error),
    /// A file or a process could not be handled.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The action that failed.
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
