//! How much of an octet on the wire is the application's.

use weir_core::oracle::{TCP_PAYLOAD, udp_payload};
use weir_model::scenario::{TrafficKind, tcp_on_wire};
use weir_units::Bytes;

/// Application octets per octet on the wire, both without FCS.
pub(super) fn share(kind: &TrafficKind) -> f64 {
    match kind {
        TrafficKind::Tcp { .. } | TrafficKind::Exec(_) => TCP_PAYLOAD,
        TrafficKind::Udp { payload, .. } => udp_payload(*payload),
        TrafficKind::Request(request) => of_one(request.size),
        TrafficKind::Reply { response, .. } => of_one(*response),
        TrafficKind::Flows(flows) => of_one(flows.sizes.mean()),
        TrafficKind::Shuffle { octets, .. } => of_one(*octets),
    }
}

/// Of one piece of so many octets: its last segment is seldom full.
fn of_one(octets: Bytes) -> f64 {
    octets.get() as f64 / tcp_on_wire(octets).get() as f64
}
