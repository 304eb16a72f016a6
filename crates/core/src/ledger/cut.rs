//! The hose cut: what a tenant may need of one direction of a link.

use weir_units::Rate;

/// What the VMs of one hose may send from one side of a link and receive on the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cut {
    /// Sum of floors out of the sending side.
    pub senders: Rate,
    /// Sum of floors in of the receiving side.
    pub receivers: Rate,
}

impl Cut {
    /// The most that any traffic which the hose allows sends across: the smaller side.
    pub fn need(&self) -> Rate {
        self.senders.min(self.receivers)
    }
}

/// What a link may promise: its rate less the headroom, a part of one (ElasticSwitch §7: a tenth).
pub fn promisable(rate: Rate, headroom: f64) -> Rate {
    rate.scale(1.0 - headroom)
}
