//! `weir sim`: plays a scenario, or a network file, in the packet simulator.

mod network;
mod room;
pub(crate) mod scenario;

use crate::args;
use anyhow::{Result, bail};

/// Plays what was named.
///
/// # Errors
/// Bad input, or something that cannot be simulated.
pub(crate) fn sim(args: &args::Sim) -> Result<u8> {
    match (&args.file, &args.network) {
        (Some(file), None) => scenario::play(file, args),
        (None, Some(network)) => network::play(network, args),
        _ => bail!("name a scenario file, or a network file with --network"),
    }
}
