//! A switch as an object of the controller describes it, opened.
//!
//! Not here  The same from a file: see [`file`](crate::file).

use crate::linux::{LinuxTc, PortSettings, Settings};
use crate::sonic::{self, Redis, Sonic};
use crate::{Driver, Managed, Owner, Saves};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::time::Duration;
use weir_core::binding::MostWeight;
use weir_core::binding::switch::PortName;
use weir_model::objects::{SwitchDriver, SwitchSpec};
use weir_units::{Rate, SortedMap, SortedSet};

/// What a switch has beside its object.
#[derive(Clone, Debug)]
pub struct Around {
    /// Rate of each port that is used.
    pub rates: SortedMap<PortName, Rate>,
    /// Code points that tenants may have.
    pub code_points: SortedSet<u8>,
    /// The mark that is left.
    pub owner: Owner,
    /// Where the state before Weir is kept.
    pub saves: Saves,
    /// Time that one call may take.
    pub limit: Duration,
}

/// The largest weight of a switch, unless its object says another.
pub fn usual_weight(driver: SwitchDriver) -> MostWeight {
    match driver {
        SwitchDriver::LinuxTc => MostWeight::PAPER,
        SwitchDriver::Sonic => sonic::MOST_WEIGHT,
    }
}

/// Opens a switch. **A thread that opens one in another namespace stays in it.** The switch is not read.
///
/// # Errors
/// There is no such namespace, the address is none, or the kernel refuses a socket.
pub fn open(spec: &SwitchSpec, around: Around) -> Result<Box<dyn Driver>, String> {
    let Around { rates, code_points, owner, saves, limit } = around;
    let most_weight = spec.most_weight.map_or(usual_weight(spec.driver), MostWeight::new);
    match spec.driver {
        SwitchDriver::LinuxTc => {
            if let Some(path) = &spec.address {
                let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
                setns(file, CloneFlags::CLONE_NEWNET).map_err(|error| {
                    format!("{path}: cannot enter this network namespace: {error}")
                })?;
            }
            let port =
                |(name, rate): (PortName, Rate)| (name, PortSettings { rate, queues: spec.queues });
            let mut settings = Settings::new(rates.into_iter().map(port).collect());
            settings.most_weight = most_weight;
            settings.reserved_codepoints = spec.reserved_code_points.iter().copied().collect();
            let linux = LinuxTc::open(settings).map_err(|error| error.to_string())?;
            Ok(Box::new(Managed::new(linux, owner, saves, limit)))
        }
        SwitchDriver::Sonic => {
            let settings = sonic::Settings {
                ports: rates.into_keys().collect(),
                queues: spec.queues,
                free: spec.free_queues().into_iter().collect(),
                classes: spec.tenant_classes().into_iter().flatten().collect(),
                codepoints: code_points,
                most_weight,
            };
            let redis = Redis::new(spec.address.as_deref().unwrap_or_default())?;
            Ok(Box::new(Managed::new(Sonic::new(redis, settings), owner, saves, limit)))
        }
    }
}
