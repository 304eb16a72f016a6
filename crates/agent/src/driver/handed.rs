//! Takes up what the program that runs guests hands over while the agent runs.
//!
//! Approach  With every heartbeat the entries of the folder are compared with those in force. After a change
//!           the configuration in force is resolved again beside the folder: neither `agent.toml` nor the
//!           directory is read, which may be half edited. A new VM counts as one without its port at
//!           first, and `ports` sets it up.
//! Promises  What cannot be taken up is logged once and changes nothing.
//! Not here  What a file may say: see `crate::handed`.

use super::Driver;
use crate::handed::{Refused, stamps};
use weir_model::status::Gone;
use weir_units::Time;

impl Driver {
    /// With every heartbeat.
    pub(super) fn look_at_handed(&mut self, now: Time) {
        // If the system does not say now, it may at the next heartbeat.
        let Ok(seen) = stamps(&self.setup.handed_folder()) else { return };
        if seen == self.setup.handed.stamps || self.untaken.as_ref() == Some(&seen) {
            return;
        }
        let next = self.setup.with_handed(&self.config);
        match next.and_then(|next| self.take_up(now, next)) {
            Ok(said) => {
                self.untaken = None;
                tracing::info!("took up what was handed over: {said}");
            }
            Err(e) => {
                self.untaken = Some(seen);
                tracing::error!("what was handed over is not taken up, reload to try again: {e:#}");
            }
        }
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
