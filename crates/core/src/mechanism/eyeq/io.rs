//! What the modules of EyeQ tell each other: bounds, limits, views.

use super::config::EyeQ;
use super::refusal::Refusal;
use crate::host::Hose;
use crate::host::Part;
use serde::{Deserialize, Serialize};
use weir_units::{Rate, SortedMap, Span, VmId};

pub use crate::host::{Bounds, Class, Levels};
pub use crate::message::Feedback;

/// One VM of a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VmBounds {
    /// What it sends.
    pub out: Bounds,
    /// What it receives.
    pub in_: Bounds,
}

impl VmBounds {
    /// The same minimum in and out, no maximum.
    pub const fn both(floor: Rate) -> Self {
        let bounds = Bounds::at_least(floor);
        Self { out: bounds, in_: bounds }
    }

    /// The same as a hose.
    pub const fn hose(&self) -> Hose {
        Hose { out: self.out, in_: self.in_ }
    }

    fn check(&self, vm: VmId) -> Result<(), Refusal> {
        for Bounds { floor, most } in [self.out, self.in_] {
            if floor > most {
                return Err(Refusal::Crossed { vm, floor, most });
            }
        }
        Ok(())
    }
}

/// Whether the VMs of a host with a link of `line` can be promised their bounds.
///
/// # Errors
/// The first that cannot.
pub(super) fn check_vms(
    eyeq: &EyeQ,
    line: Rate,
    vms: &SortedMap<VmId, VmBounds>,
) -> Result<(), Refusal> {
    for (vm, bounds) in vms {
        bounds.check(*vm)?;
    }
    let available = eyeq.capacity_of(line);
    let out: Rate = vms.values().map(|vm| vm.out.floor).sum();
    let in_: Rate = vms.values().map(|vm| vm.in_.floor).sum();
    for (direction, promised) in [("out", out), ("in", in_)] {
        if promised > available {
            return Err(Refusal::Overbooked { direction, promised, available, line });
        }
    }
    Ok(())
}

/// What a VM sent to another.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Octets that left the host. Cumulative.
    pub octets: u64,
    /// Octets that wait on the host now, in the limiter or for the uplink.
    pub waiting: u64,
}

/// What a host counts about itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Feedback that was believed.
    pub feedback: u64,
    /// Dropped: of a VM that is not on the host that it came from.
    pub strangers: u64,
    /// Dropped: for a VM that is not here.
    pub misdirected: u64,
    /// Dropped: about a pair in which nothing is sent.
    pub strayed: u64,
    /// Dropped: a rate above every link of the fleet, or none at all.
    pub impossible: u64,
    /// Sightings of peers beyond [`EyeQ::peers_most`]: they get no feedback, or no limiter.
    pub refused_peers: u64,
    /// Sightings of pairs whose VM is not of this host, or whose peer the directory does not know.
    pub unknown_pairs: u64,
    /// Populations that promised too much and changed nothing.
    pub refused_populations: u64,
    /// Limiters halved because their receiver was silent.
    pub halved: u64,
    /// Feedback messages that this host wrote.
    pub written: u64,
}

/// One meter of an endpoint, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterView {
    /// Whose traffic it meters.
    pub part: Part,
    /// C_i.
    pub capacity: Rate,
    /// R_i.
    pub advertised: Rate,
    /// y_i over the last period.
    pub received: Rate,
    /// That period.
    pub over: Span,
}
