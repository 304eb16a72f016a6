//! The host daemon: clock, sockets and loop around core's `HostMachine`.
//!
//! Problem   The algorithms are pure; a driver has to read counters, carry messages, write rates
//!           and know what time it is.
//! Approach  One thread, one `poll`: packets' first sights (ring buffer), peers' messages (UDP),
//!           questions (Unix socket), signals, and the machine's own next deadline.
//! Promises  Messages are believed only with a valid tag; rates are levels, written until they
//!           stick; the lease on what is borrowed is renewed only while the loop runs; a clean stop
//!           restores the host.
//! Not here  Any law: see `weir-core`. Any packet: see `weir-dataplane`.

mod addresses;
pub mod client;
mod config;
mod control;
mod driver;
mod explain;
mod fitness;
mod follow;
mod handed;
mod hoses;
mod key_maker;
mod keys;
pub mod libvirt;
mod mistake;
mod mode;
mod names;
mod notify;
mod overbooked;
mod policing;
mod promised;
mod queues;
mod reload;
mod removal;
mod server;
pub mod verify;
mod way;

pub use driver::{reclaim, run};
pub use follow::{Joining, join};
pub use key_maker::{draw as draw_master_key, make as make_key_files};
pub use mode::set_mode;
pub use removal::{Removal, remove};
pub use way::{Way, try_ways};

use anyhow::Result;
use std::path::Path;
use weir_model::agent::AgentConfig;

/// Reads the configuration and all files it names, as [`run`] does at its start; touches nothing.
///
/// # Errors
///
/// What would keep an agent from starting, with file and field.
pub fn check(config: &Path) -> Result<AgentConfig> {
    let setup = config::Setup::load(config)?;
    keys::KeyFile::open(&setup.file.key_file, setup.key_reader())?;
    Ok(setup.file)
}

/// The same for the texts of `agent.toml` and of the directory; no file is read.
///
/// # Errors
///
/// As [`check`].
pub fn check_texts(config: &str, directory: &str) -> Result<AgentConfig> {
    Ok(config::Setup::parse(config, directory)?.file)
}
