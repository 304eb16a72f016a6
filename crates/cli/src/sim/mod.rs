//! `weir sim`: plays a scenario, a network file, or other simulators' files, packet by packet or, these, flow by flow.
//! A datacenter of tenants is computed tenant by tenant.

mod completion;
pub(crate) mod datacenter;
mod flows;
mod import;
mod network;
mod packets;
mod room;
pub(crate) mod scenario;
mod tenants;

use crate::args;
use crate::output::errln;
use anyhow::{Result, bail};
use import::Import;
use weir_model::scenario::is_datacenter;
use weir_units::Time;

/// Plays what was named.
///
/// # Errors
/// Bad input, or something that cannot be simulated.
pub(crate) fn sim(args: &args::Sim) -> Result<u8> {
    match (&args.file, &args.network, &args.files.topology) {
        (Some(file), None, None) if is_datacenter(file) => datacenter::play(file, args),
        (Some(file), None, None) => scenario::play(file, args),
        (None, Some(network), None) => network::play(network, args),
        (None, None, Some(_)) => imported(args),
        _ => bail!(
            "name a scenario file, a network file with --network, or a --topology with --flows"
        ),
    }
}

/// Plays other simulators' files.
fn imported(args: &args::Sim) -> Result<u8> {
    let import = Import::read(&args.files)?;
    let until = args.files.until.map_or_else(|| import.end(), |until| Time::ZERO + until);
    for note in &import.notes {
        errln!("{note}");
    }
    if args.files.flow_level {
        flows::play(&import, until, args)
    } else {
        packets::play(&import, until, args)
    }
}
