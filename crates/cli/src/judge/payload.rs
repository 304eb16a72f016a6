//! How much of an octet on the wire is the application's.

use weir_core::oracle::{TCP_PAYLOAD, udp_payload};
use weir_model::scenario::TrafficKind;

/// Application octets per octet on the wire, both without FCS.
pub(super) fn share(kind: &TrafficKind) -> f64 {
    match kind {
        TrafficKind::Tcp { .. } => TCP_PAYLOAD,
        TrafficKind::Udp { payload, .. } => udp_payload(*payload),
    }
}
