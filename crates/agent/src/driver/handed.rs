//! Takes up what the program that runs guests hands over while the agent runs.
//!
//! Approach  With every heartbeat the entries of the folder are compared with those in force. After a change
//!           the configuration in force is resolved again beside the folder: neither `agent.toml` nor the
//!           directory is read, which may be half edited. A new VM counts as one without its port at
//!           first, and `ports` sets it up.
//! Promises  What cannot be taken up is logged once, changes nothing, and is tried again after pauses. No port
//!           that is handed over keeps an agent from starting.
//! Not here  What a file may say: see `crate::handed`.

use super::ports::Refusal;
use super::{Driver, population};
use crate::config::Setup;
use crate::handed::{Refused, Stamps, stamps};
use std::collections::BTreeSet;
use weir_dataplane::Dataplane;
use weir_model::status::Gone;
use weir_units::{Time, VmId};

impl Driver {
    /// With every heartbeat.
    pub(super) fn look_at_handed(&mut self, now: Time) {
        // If the system does not say now, it may at the next heartbeat.
        let Ok(seen) = stamps(&self.setup.handed_folder()) else { return };
        if seen == self.setup.handed.stamps {
            return;
        }
        let is_paused =
            |(stamps, former): &(Stamps, Refusal)| *stamps == seen && !former.is_due(now);
        if self.untaken.as_ref().is_some_and(is_paused) {
            return;
        }
        let former = self.untaken.take().filter(|(stamps, _)| *stamps == seen);
        let former = former.map(|(_, former)| former);
        let next = self.setup.with_handed(&self.config);
        match next.and_then(|next| self.take_up(now, next)) {
            Ok(said) => tracing::info!("took up what was handed over: {said}"),
            Err(e) => {
                let (why, former) = (format!("{e:#}"), former.as_ref());
                if former.is_none_or(|former| former.why() != why) {
                    tracing::error!(
                        "what was handed over is not taken up, and is tried again: {why}"
                    );
                }
                self.untaken = Some((seen, Refusal::new(now, why, former)));
            }
        }
    }
}

/// Opens the data plane, without the ports that were handed over if it refuses one of them: the first
/// heartbeat tries each of these alone. Also says which VMs are gone then.
///
/// # Errors
///
/// Those of the data plane, without these ports.
pub(super) fn open(
    setup: &Setup,
    gone: BTreeSet<VmId>,
) -> Result<(Dataplane, BTreeSet<VmId>), weir_dataplane::Error> {
    let handed = setup.file.vms.iter().filter(|vm| setup.handed.has(&vm.name));
    let mut fewer = gone.clone();
    fewer.extend(handed.filter_map(|vm| setup.names.id(&vm.name)));
    match Dataplane::open(population::dataplane_config(setup, &gone)) {
        Err(why) if fewer != gone => {
            tracing::error!("started without the ports that were handed over: {why}");
            Dataplane::open(population::dataplane_config(setup, &fewer)).map(|open| (open, fewer))
        }
        opened => opened.map(|open| (open, gone)),
    }
}

/// Logs what is left out and was not before.
pub(super) fn tell(before: &[Refused], now: &[Refused]) {
    for refused in now.iter().filter(|refused| !before.contains(refused)) {
        let Refused { file, vm, why, .. } = refused;
        tracing::error!("{}: vm {vm} is not guarded: {why}", file.display());
    }
}

/// A VM that is left out, for people.
pub(super) fn told(refused: &Refused) -> Gone {
    let Refused { file, vm, port, why } = refused;
    let why = Some(format!("{}: {why}", file.display()));
    Gone { vm: vm.clone(), port: port.clone(), why }
}
