//! The outside of the cloud and versions of IP in scenario files.

use std::path::PathBuf;
use weir_model::scenario::{File, IpVersion, Scenario, TrafficKind};

fn shipped(file: &str) -> Scenario {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/elasticswitch").join(file);
    let points = File::load(&path, &[]).and_then(|file| file.points());
    points.unwrap_or_else(|e| panic!("{e}")).remove(0)
}

/// A scenario of one tenant with these VMs and this traffic.
fn load(vms: &[&str], traffic: &str) -> Result<Scenario, String> {
    let lines: String = vms.iter().map(|vm| format!("        - {{{vm}}}\n")).collect();
    let text = format!(
        "apiVersion: weir/v1alpha1
kind: Scenario
metadata: {{name: t}}
spec:
  duration: 10s
  topology:
    single-switch: {{hosts: 2, link: 100Mbit}}
  tenants:
    - name: x
      vms:
{lines}  traffic:
    - {{group: g, from: a, to: b, {traffic}}}
  mechanisms: [none]
"
    );
    let folder = std::env::temp_dir();
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = folder.join(format!("weir-outside-{}-{n}.yaml", std::process::id()));
    std::fs::write(&path, text).expect("a temporary file");
    let points = File::load(&path, &[]).and_then(|file| file.points());
    std::fs::remove_file(&path).expect("it was written");
    points.map(|mut points| points.remove(0)).map_err(|e| e.to_string())
}

const A: &str = "name: a, host: host-0";
const B: &str = "name: b, host: host-1";

#[test]
fn the_gateways_vm_stands_for_all_that_is_outside() {
    let scenario = shipped("gateway.yaml");
    let out = scenario.vms.iter().find(|vm| vm.name == "x-out").expect("x-out");
    let shown: Vec<String> = out.outside.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["0.0.0.0/0", "::/0"]);
    assert_eq!(scenario.vms.iter().filter(|vm| !vm.outside.is_empty()).count(), 1);
    assert!(scenario.traffic.iter().all(|t| t.ip == IpVersion::V4));
}

#[test]
fn all_traffic_of_the_ipv6_scenario_is_ipv6() {
    let scenario = shipped("ipv6.yaml");
    assert!(scenario.traffic.iter().all(|t| t.ip == IpVersion::V6));
    for traffic in &scenario.traffic {
        if let TrafficKind::Udp { payload, .. } = &traffic.kind {
            assert_eq!(payload.get(), 1452, "a full frame");
        }
    }
}

#[test]
fn a_mistake_about_the_outside_or_ip_is_named_with_what_would_be_right() {
    let error = |a: &str, traffic: &str| load(&[a, B], traffic).expect_err("a mistake");
    for (got, wanted) in [
        (error(A, "ip: 5, tcp: {}"), ".ip: there is no IP version `5`"),
        (error(A, "ip: 6, udp: {rate: 1Mbit, payload: 1453B}"), "write 1B to 1452B"),
        (
            error("name: a, host: host-0, outside: [10.0.0.1/8]", "tcp: {}"),
            "`10.0.0.1/8` has bits behind its length: write 10.0.0.0/8",
        ),
        (
            error("name: a, host: host-0, count: 2, outside: [0.0.0.0/0]", "tcp: {}"),
            "`outside` beside `count`",
        ),
        (
            error("name: a, host: host-0, outside: [0.0.0.0/0]", "ip: 6, tcp: {}"),
            "`a` stands for no IPv6 address",
        ),
        (
            error("name: a, host: host-0, outside: ['::/0']", "tcp: {}"),
            "`a` stands for no IPv4 address",
        ),
    ] {
        assert!(got.contains(wanted), "`{wanted}` in: {got}");
    }
    load(&["name: a, host: host-0, outside: ['::/0']", B], "ip: 6, tcp: {}").expect("sound");
}
