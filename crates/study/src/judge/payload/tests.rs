use super::*;
use crate::testing::tcp;
use weir_units::Rate;

#[test]
fn the_longer_header_of_ipv6_is_no_payload() {
    let v6 = |kind| share(&Traffic { ip: IpVersion::V6, kind, ..tcp("x", 0, 1) });
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    near(v6(tcp("x", 0, 1).kind), 1428.0 / 1514.0);
    let (rate, payload) = (Rate::from_mbps(1), Bytes::new(1452));
    near(v6(TrafficKind::Udp { rate, on: None, off: None, payload }), 1452.0 / 1514.0);
    near(share(&tcp("x", 0, 1)), 1448.0 / 1514.0);
}
