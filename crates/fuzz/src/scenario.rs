//! Scenario files, the expressions in them, and `--set` on the command line.

use crate::{Target, by_hand};
use weir_model::scenario::{Error, File, Place, Scenario};

const SOUND: &str = include_str!("../../../fuzz/corpus/scenario/small.yaml");
const WORDS: [&str; 20] = [
    "spec:",
    "params:",
    "sweep:",
    "tenants:",
    "traffic:",
    "count: ",
    "hosts: ",
    "&a ",
    "*a",
    "<<: ",
    "left-0..left-9",
    "450Mbit",
    "duration",
    "min(",
    " / ",
    "9999",
    "!!str ",
    "? ",
    "|\n",
    "when: ",
];

/// Scenarios that need no further checks, or an error with file, line and column.
pub(crate) const TARGET: Target =
    Target { name: "scenario", run, reaches, words: &WORDS, seeds: by_hand };

/// One expression, as a parameter of a sound scenario.
pub(crate) const EXPRESSION: Target = Target {
    name: "expression",
    run: expression,
    reaches: crate::not_empty,
    words: &[
        "min(", "max(", "ceil(", "floor(", ")", "senders", " and ", " or ", "==", "1/0", "Mbit",
    ],
    seeds: by_hand,
};

/// Lines of `KEY=VALUE`, set one after the other in a sound scenario.
pub(crate) const ASSIGNMENT: Target = Target {
    name: "assignment",
    run: assignment,
    reaches: crate::not_empty,
    words: &["=", "spec.", "params.", "tenants.", "topology.", "sweep=", "[", "{", "duration", "."],
    seeds: by_hand,
};

/// Whether it is text of this version of the format.
fn reaches(octets: &[u8]) -> bool {
    std::str::from_utf8(octets).is_ok_and(|text| text.contains("weir/v1alpha1"))
}

fn run(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match File::parse("f.yaml", text, &[]) {
        Ok(file) => {
            if let Err(error) = file.repeat() {
                located(&error, text);
            }
            played(&file, text);
        }
        Err(error) => located(&error, text),
    }
}

fn played(file: &File, text: &str) {
    match file.points() {
        Ok(points) => {
            points.iter().for_each(sound);
            assert_eq!(file.points().as_ref(), Ok(&points), "the same file, other points");
        }
        Err(error) => located(&error, text),
    }
}

/// What worlds rely on without looking.
fn sound(s: &Scenario) {
    let (hosts, nodes) = (s.topology.hosts.len(), s.topology.nodes());
    assert!(s.warmup < s.duration && s.scale > 0.0 && s.scale.is_finite());
    assert!(s.topology.links.iter().all(|l| l.a < nodes && l.b < nodes && l.a != l.b));
    assert!(s.vms.iter().all(|vm| vm.host < hosts && vm.tenant < s.tenants.len()));
    for t in &s.traffic {
        assert!(t.from < s.vms.len() && t.to < s.vms.len() && t.from != t.to);
        assert!(t.start < t.stop && t.stop <= s.duration);
    }
    assert!(s.point.iter().all(|(_, value)| value.is_finite()));
}

/// Says where in the text, and not much more than the text.
fn located(error: &Error, text: &str) {
    let shown = error.to_string();
    assert!(shown.starts_with("f.yaml:") && !error.message.is_empty(), "{shown}");
    assert!(shown.len() <= 4 * text.len() + 4000, "an error of {} octets", shown.len());
    let lines = text.lines().count().max(1) as u32 + 1;
    match &error.place {
        Place::File { line, column } => {
            assert!((1..=lines).contains(line) && *column >= 1, "line {line} of {lines}: {shown}");
        }
        Place::Set(assignment) => assert!(!assignment.is_empty()),
        Place::Whole => panic!("an error without its line: {shown}"),
    }
}

fn expression(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    // A JSON string is a quoted YAML scalar.
    let quoted = serde_json::to_string(text).expect("a text");
    let whole = SOUND.replace("senders: 3", &format!("senders: 3\n    x: {quoted}"));
    assert_ne!(whole, SOUND);
    run(whole.as_bytes());
}

fn assignment(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    let pair = |line: &str| line.split_once('=').map(|(k, v)| (k.trim().into(), v.trim().into()));
    let set: Vec<(String, String)> = text.lines().take(8).filter_map(pair).collect();
    // The message may quote the assignment, and list what is known in the file.
    let about = format!("{SOUND}\n{text}");
    match File::parse("f.yaml", SOUND, &set) {
        Ok(file) => played(&file, &about),
        Err(error) => located(&error, &about),
    }
}
