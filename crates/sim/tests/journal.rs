//! What agents recorded in virtual time replays to the octet, with every mechanism.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use weir_core::mechanism::registry;
use weir_journal::{Error, replay, segments};
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_sim::scenario::{Record, Setup, play};
use weir_units::{PairId, Rate, SortedSet, VmId};

/// A folder that is gone when the test is.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-journal-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// An agent dies and returns.
fn crash() -> Scenario {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/eyeq/eyeq-agent-crash.yaml");
    let set = [("duration", "4s"), ("warmup", "1s")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    File::load(path.as_ref(), &set).expect("a scenario of ours").points().expect("sound").remove(0)
}

fn run(scenario: &Scenario, mechanism: &str, journal: Option<PathBuf>) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let pair = |t: &weir_model::scenario::Traffic| {
        let pair = PairId::new(VmId(t.from as u32), VmId(t.to as u32));
        (pair, Rate::from_mbps(2))
    };
    let reserve = scenario.traffic.iter().map(pair).collect();
    let setup = Setup { seed: 1, reserve, journal, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

#[test]
fn what_was_recorded_replays_to_the_octet_with_every_mechanism_and_changes_no_run() {
    let mut scenario = crash();
    // The simulator kills no agent of EyeQ's.
    scenario.faults.clear();
    for row in registry::ALL {
        let labels = match row.presets {
            [] => vec![row.name.to_owned()],
            _ => [row.usual, row.agents].map(|p| format!("{}:{p}", row.name)).to_vec(),
        };
        for label in labels {
            let place = Place::new(&label.replace(':', "-"));
            let record = run(&scenario, &label, Some(place.0.clone()));
            assert_eq!(record.digest, run(&scenario, &label, None).digest, "{label}");
            let (mut hosts, mut works) = (SortedSet::new(), 0);
            let replayed = replay(&place.0, &mut |path, found| {
                hosts.insert(path.parent().map(PathBuf::from));
                works += found.works;
                assert_eq!(found.lost, 0);
            });
            assert!(replayed.is_ok(), "{label}: {replayed:?}");
            assert_eq!(hosts.len(), scenario.topology.hosts.len(), "{label}");
            assert!(works > 10, "{label}: {works} orders were compared");
        }
    }
}

#[test]
fn a_life_of_an_agent_is_a_segment_and_one_that_is_cut_off_says_where() {
    let scenario = crash();
    for label in ["elasticswitch:steady", "seawall", "reservation"] {
        let place = Place::new(&format!("lives-{}", label.replace(':', "-")));
        run(&scenario, label, Some(place.0.clone()));
        let all = segments(&place.0).expect("written");
        assert_eq!(all.len(), scenario.topology.hosts.len() + 1, "one agent lived twice: {all:?}");
        let replayed = replay(&place.0, &mut |_, _| {});
        assert!(replayed.is_ok(), "{label}: {replayed:?}");
        let octets = fs::read(&all[0]).expect("readable");
        fs::write(&all[0], &octets[..octets.len() / 2]).expect("room");
        let (segment, error) = replay(&place.0, &mut |_, _| {}).expect_err("cut off");
        assert_eq!(segment, all[0]);
        assert!(matches!(error, Error::CutOff { record } if record > 1), "{label}: {error}");
    }
}
