//! How much of an octet on the wire is the application's.

use weir_core::oracle::{TCP_PAYLOAD, udp_payload};
use weir_model::scenario::{IpVersion, Traffic, TrafficKind, tcp_on_wire};
use weir_units::Bytes;

/// A full Ethernet frame without FCS.
const FRAME: f64 = 1514.0;

/// Application octets per octet on the wire, both without FCS. A full frame of IPv6 has 20 octets less
/// for TCP; a datagram has so many headers more.
pub(crate) fn share(traffic: &Traffic) -> f64 {
    let v4 = of_ip4(&traffic.kind);
    let more = (traffic.ip.header() - IpVersion::V4.header()) as f64;
    match &traffic.kind {
        TrafficKind::Udp { payload, .. } => 1.0 / (1.0 / v4 + more / payload.get() as f64),
        _ => v4 - more / FRAME,
    }
}

fn of_ip4(kind: &TrafficKind) -> f64 {
    match kind {
        TrafficKind::Tcp { .. } | TrafficKind::Exec(_) => TCP_PAYLOAD,
        TrafficKind::Udp { payload, .. } => udp_payload(*payload),
        TrafficKind::Request(request) => of_one(request.size),
        TrafficKind::Reply { response, .. } => of_one(*response),
        TrafficKind::Flows(flows) => of_one(flows.sizes.mean()),
        TrafficKind::Shuffle { octets, .. } => of_one(*octets),
        TrafficKind::Memcached(memcached) => of_one(memcached.mean_request()),
    }
}

/// Of one piece of so many octets: its last segment is seldom full.
fn of_one(octets: Bytes) -> f64 {
    octets.get() as f64 / tcp_on_wire(octets).get() as f64
}

#[cfg(test)]
mod tests;
