//! Queues of switches as `agent.toml` has them: tenants' tags, and guests' own code points.

use serde::{Deserialize, Serialize};

/// What becomes of the code points (DSCP) that a VM's guest writes itself. Priorities of its VLAN
/// tags are always taken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestDscp {
    /// They are 0 in the network and at the receiver.
    #[default]
    Clear,
    /// Those that are none of `code_points` stay where no tag takes their place.
    Keep,
    /// The same, and packets of a TCP connection that were tagged have the code point of its SYN
    /// again at a receiver whose VM restores, too.
    Restore,
}

impl GuestDscp {
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// A tenant's queue on switches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The tenant's name in the directory.
    pub name: String,
    /// Version of what is said of the tenant here. A reload with an older one is refused. Default
    /// 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u64,
    /// The code point that its VMs' packets to each other carry: one of `code_points`. Default 0:
    /// the shared queue.
    #[serde(default, skip_serializing_if = "is_shared")]
    pub code_point: u8,
    /// Whether its VMs may send to each other as fast as the uplink allows. Only where every switch
    /// on their ways has a queue for its code point. Otherwise the mechanism limits them. Default
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub free: bool,
    /// Why it has this queue, for `weir explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(version: &u64) -> bool {
    *version == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_shared(code_point: &u8) -> bool {
    *code_point == 0
}
