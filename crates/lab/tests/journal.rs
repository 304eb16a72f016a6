//! What the agents of a lab run record, replayed, with every mechanism. Needs root, and fails without.

use crate::common::weir;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use weir_core::mechanism::{Place, registry};
use weir_model::agent::AGENTS_CAN;
use weir_units::{Rate, Span};

/// Three hosts, of which two send to the third. How much arrives is other tests' subject.
const SCENARIO: &str = "
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: recorded, title: two senders to one host}
spec:
  duration: 2s
  warmup: 500ms
  topology:
    dumbbell: {left: 2, right: 1, edge: 40Mbit, core: 40Mbit, buffer: 128kB}
  tenants:
    - name: t
      vms:
        - {name: src, hosts: [left-0..left-1], floor: 15Mbit}
        - {name: dst, host: right-0, floor: 15Mbit}
  traffic:
    - {group: all, from: src, to: dst, tcp: {connections: 1, congestion: cubic}}
  mechanisms: [none]
";
const HOSTS: usize = 3;

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Every mechanism that agents play, with the preset that scenarios mean and the one that agents mean.
fn labels() -> BTreeSet<String> {
    let place =
        Place { line: Rate::from_mbps(40), round_trip: Span::from_millis(1), can: AGENTS_CAN };
    let mut labels = BTreeSet::new();
    for row in registry::ALL {
        for preset in [row.usual, row.agents] {
            let named = || format!("{}:{preset}", row.name);
            let label = if row.presets.is_empty() { row.name.to_owned() } else { named() };
            match (row.draft)(preset).expect("a preset of the row").on(&place) {
                Ok(_) => drop(labels.insert(label)),
                // Agents refuse what only the simulator plays.
                Err(error) => assert!(error.contains("in the simulator"), "{label}: {error}"),
            }
        }
    }
    labels
}

#[test]
fn what_the_agents_of_a_run_record_replays_with_every_mechanism() {
    let name = format!("recorded-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let (scenario, journal) = (folder.0.join("recorded.yaml"), folder.0.join("journal"));
    fs::create_dir_all(&folder.0).expect("room");
    fs::write(&scenario, SCENARIO).expect("room");

    let mut lab = Command::new(weir());
    lab.arg("lab").arg(&scenario).arg("--journal").arg(&journal);
    let labels = labels();
    for label in &labels {
        lab.args(["--mechanism", label]);
    }
    let played = lab.output().expect("it was built");
    // 3: another process took the CPUs, so the rates say nothing. The recordings do.
    assert!(matches!(played.status.code(), Some(0 | 3)), "{}", said(&played));

    let replayed = Command::new(weir()).arg("replay").arg(&journal).output().expect("it was built");
    let lines = said(&replayed);
    assert!(replayed.status.success(), "{lines}");
    let with_orders = lines.lines().filter(|line| !line.contains(" 0 orders"));
    let agree = with_orders.filter(|line| line.contains("records agree")).count();
    assert_eq!(agree, HOSTS * labels.len(), "{lines}");
}
