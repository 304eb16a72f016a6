//! Takes an agent's traces out of this host, also those of one that is dead.
//!
//! Promises  Traffic flows throughout: programs go before queues. What is left is looked for in the kernel, not in
//!           the agent's notes.

use crate::fitness;
use anyhow::{Context as _, Result};
use std::path::Path;
use weir_dataplane::probe;

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removal {
    /// An agent had left something.
    pub had_state: bool,
    /// What of any agent is in the kernel still, in words.
    pub left: Vec<String>,
}

/// Removes what the agent of this `agent.toml` left in the kernel, in the bpffs and in its `run_dir`.
///
/// # Errors
///
/// The agent lives, the file is not sound, or the kernel refuses something: which, and what to do.
pub fn remove(config: &Path) -> Result<Removal> {
    let file = crate::config::read(config).map_err(fitness::or_unprivileged)?;
    fitness::privileges()?;
    let had_state = weir_dataplane::clean(&file.instance, &file.bpffs, &file.run_dir)?;
    let run = file.run_dir.join(&file.instance);
    if run.exists() {
        std::fs::remove_dir_all(&run)
            .with_context(|| format!("{} cannot be removed", run.display()))?;
    }
    let left = probe::remains().context("the kernel does not say what is left")?;
    Ok(Removal { had_state, left })
}
