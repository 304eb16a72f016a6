//! Level on hosts: what is spare is lent. Needs root, and fails without.

use crate::common::weir;
use serde_json::Value;
use std::process::Command;

/// Floors are half of the link. Without levels above 1 nothing more would be carried.
const SCENARIO: &str = "
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: lent, title: two senders that borrow}
spec:
  duration: 4s
  warmup: 1500ms
  topology:
    dumbbell: {left: 2, right: 1, edge: 40Mbit, core: 40Mbit, buffer: 128kB}
  tenants:
    - name: t
      vms:
        - {name: src, hosts: [left-0..left-1], floor: 10Mbit}
        - {name: dst, host: right-0, floor: 20Mbit}
  traffic:
    - {group: all, from: src, to: dst, tcp: {connections: 1, congestion: cubic}}
  mechanisms: [level]
";

#[test]
fn level_lends_what_floors_leave_and_loses_little() {
    let name = format!("lent-{}.yaml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, SCENARIO).expect("room");
    let played = Command::new(weir()).arg("lab").arg(&file).arg("--json").output();
    drop(std::fs::remove_file(&file));
    let played = played.expect("it was built");
    let said = String::from_utf8_lossy(&played.stderr);
    // 3: another process took the CPUs. Far more than the floors passes all the same.
    assert!(matches!(played.status.code(), Some(0 | 3)), "{said}");
    let results: Value = serde_json::from_slice(&played.stdout).expect("JSON");
    let summary = &results["runs"][0]["summary"];
    let of = |name: &str| summary[name].as_f64().unwrap_or_else(|| panic!("{name}: {summary}"));
    assert!(of("link_utilisation") > 0.75, "{summary}");
    assert!(of("goodput_of_floor.all") > 1.4, "{summary}");
    // Level sees queues before they are full: ElasticSwitch has hundreds of drops here.
    assert!(of("drops") < 100.0, "{summary}");
}
