//! Converts rates on the wire to rates of applications, and computes how equal a set of rates is.
//!
//! Floors count octets on the wire: layer 2 without FCS. The application's part of them depends on
//! the packet; at an MTU of 1500 a frame has 1514 octets.

use weir_units::Bytes;

/// Part of a TCP flow's octets on the wire that is payload: full segments at MTU 1500, with the
/// timestamp option.
pub const TCP_PAYLOAD: f64 = 1448.0 / 1514.0;

/// Part of UDP datagrams of `payload` octets that is payload, if they fit one packet: 42 octets of
/// Ethernet, IPv4 and UDP headers each.
pub fn udp_payload(payload: Bytes) -> f64 {
    let payload = payload.get() as f64;
    payload / (payload + 42.0)
}

/// Jain's fairness index (Σx)² / (n·Σx²): 1 if all are equal, 1/n if one has everything.
///
/// Zero if all are zero or there is none: a run that carried nothing was not fair.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|x| x * x).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (values.len() as f64 * squares)
}
