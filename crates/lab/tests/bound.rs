//! Switches with several paths, and tenants bound to queues on them: what goes where is counted. As
//! root.

use crate::common::{alone, none, traces, weir};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use weir_lab::{Frame, Options, Phase, play};
use weir_model::observed::Observed;
use weir_model::scenario::{File, LinkDir, Mechanism, Scenario};
use weir_units::Span;

fn points(file: &File) -> Scenario {
    file.points().unwrap_or_else(|e| panic!("{e}")).remove(0)
}

/// One host below each of two leaves, with two spines between, and what the first one sends.
fn fabric(ecmp: &str, traffic: &str) -> Scenario {
    let text = format!(
        "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: fabric}}, spec: {{duration: 1s, \
         warmup: 200ms, topology: {{leaf-spine: {{leaves: 2, spines: 2, hosts_per_leaf: 1, link: 40Mbit, \
         uplink: 40Mbit, ecmp: {ecmp}}}}}, tenants: [{{name: t, vms: [{{name: a, host: host-0-0}}, \
         {{name: b, host: host-1-0}}]}}], traffic: [{{group: t, from: a, to: b, {traffic}}}], \
         mechanisms: none}}}}"
    );
    points(&File::parse("fabric.yaml", &text, &[]).unwrap_or_else(|e| panic!("{e}")))
}

/// Octets that a link carried in the direction from one node to another.
fn carried(scenario: &Scenario, record: &Observed, name: &str) -> u64 {
    let topology = &scenario.topology;
    let mut all = (0..2 * topology.links.len()).map(LinkDir::from_index);
    let of = all.find(|link| link.name(topology) == name).expect("a link of this name");
    record.links[of.index()].octets.iter().sum()
}

/// What each spine carried from left to right.
fn by_spine(scenario: &Scenario, record: &Observed) -> [u64; 2] {
    [0, 1].map(|n| carried(scenario, record, &format!("leaf-0-spine-{n}:leaf-0>spine-{n}")))
}

#[test]
fn a_flow_stays_on_one_spine_many_flows_use_both_and_packets_take_turns() {
    let _alone = alone();
    let play = |ecmp: &str, traffic: &str| {
        let scenario = fabric(ecmp, traffic);
        let never = AtomicBool::new(false);
        let record = play(&scenario, &none(), &Options::new("weir"), &mut |_| {}, &never)
            .expect("plays; these tests need root");
        let arrived: u64 = record.flows[0].octets.iter().sum();
        assert!(arrived > 50_000, "{ecmp}, {traffic}: {arrived} octets arrive");
        by_spine(&scenario, &record)
    };
    let one = play("flow", "udp: {rate: 10Mbit}");
    assert!(one.contains(&0) && one != [0, 0], "one flow: {one:?}");
    let many = play("flow", "tcp: {connections: 40}");
    assert!(!many.contains(&0), "forty flows: {many:?}");
    let [one, other] = play("packet", "udp: {rate: 10Mbit}");
    assert!(one.abs_diff(other) <= 2 * 1514 && one > 0, "in turn: {one} and {other}");
    let first = play("none", "tcp: {connections: 40}");
    assert!(first[0] > 0 && first[1] == 0, "the first in the file: {first:?}");
    assert_eq!(traces(), Vec::<String>::new());
}

/// The shipped scenario of two trees, at a small rate and with short intervals.
fn two_trees() -> Scenario {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/qshare/two-trees.yaml");
    let set = [("scale", "0.2"), ("duration", "5s"), ("warmup", "1s")]
        .into_iter()
        .chain([("binding.interval", "500ms")]);
    let set: Vec<_> = set.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    points(&File::load(Path::new(path), &set).unwrap_or_else(|e| panic!("{e}")))
}

fn bound(scenario: &Scenario, watch: &mut dyn FnMut(&Frame)) -> Observed {
    let mechanism = Mechanism::parse("elasticswitch:floors@loop").expect("known");
    let never = AtomicBool::new(false);
    let record = play(scenario, &mechanism, &Options::new(weir()), watch, &never)
        .expect("plays; these tests need root");
    assert_eq!(record.failure, None);
    let said = record.notes.iter().find(|note| note.starts_with("binding: "));
    let said = said.expect("the loop tells what it did");
    assert!(!said.contains(" 0 promotions"), "nobody had a queue: {said}");
    assert_eq!(traces(), Vec::<String>::new());
    record
}

#[test]
fn bound_tenants_stay_on_the_trees_of_their_spines_and_none_meets_a_port_without_its_queue() {
    let _alone = alone();
    let scenario = two_trees();
    let record = bound(&scenario, &mut |_| {});
    let said = record.notes.join("\n");
    assert_eq!(record.unbound, Some(0), "{said}");
    assert!(!said.contains("Unenforced"), "{said}");
    // B's host is the only one whose tenants are on the second spine. C is in the shared queue, and
    // stays on its tree as well: if its packets were spread, half of them would be on that spine.
    let received = |flow: usize| record.flows[flow].octets.iter().sum::<u64>();
    let [first, second] = by_spine(&scenario, &record);
    let of_b = carried(&scenario, &record, "host-0-1:host-0-1>leaf-0");
    assert!(received(2) > 100_000, "C sends: {}", received(2));
    assert!(second < of_b + received(2) / 4, "{second} octets, and B's host sent {of_b}");
    assert!(first > received(0) + received(2), "{first} octets on the first spine");
}

/// Runs a command in a switch's namespace; its output if it did what it should.
fn in_switch(switch: usize, line: &str) -> Option<String> {
    let own = format!("weir-{}-", std::process::id());
    let of_switch = format!("-s{switch}-");
    let is = |name: &str| name.starts_with(&own) && name.contains(&of_switch);
    let entries = fs::read_dir("/run/netns").expect("namespaces").flatten();
    let name = entries.map(|e| e.file_name().to_string_lossy().into_owned()).find(|n| is(n))?;
    let words = ["netns", "exec", &name].into_iter().chain(line.split(' '));
    let output = Command::new("ip").args(words).output().expect("iproute2");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn octets_off_their_tree_or_without_a_queue_are_counted_and_the_run_says_where() {
    let _alone = alone();
    let scenario = two_trees();
    let position = |all: &[String], name: &str| all.iter().position(|n| n == name).expect("known");
    let leaf = position(&scenario.topology.switches, "leaf-0");
    let link = scenario.topology.links.iter().position(|link| link.name == "leaf-0-spine-1");
    let port = format!("l{}", link.expect("a link"));
    let to = scenario.vms.iter().position(|vm| vm.name == "a-r").expect("a VM");
    // The entry of A's receiver leads to the other spine, and at that port B's filters are gone.
    let astray = format!("bridge fdb replace 02:57:00:01:00:{to:02x} dev {port} master static");
    let [list, delete] = ["show", "del"]
        .map(|verb| format!("tc filter {verb} dev {port} parent 5745: pref 10 protocol ip"));
    let mut is_done = false;
    let record = bound(&scenario, &mut |frame| {
        let is_late = frame.phase == Phase::Running && frame.at > Span::from_secs(2);
        if is_late && !is_done {
            let is_bound = in_switch(leaf, &list).is_some_and(|found| found.contains("5745:1"));
            let run = |line: &str| in_switch(leaf, line).is_some();
            is_done = is_bound && run(&astray) && run(&delete);
        }
    });
    assert!(is_done, "B never had a queue at {port}: {:?}", record.notes);
    let says = |what: &str| {
        let place = "leaf-0-spine-1:leaf-0>spine-1";
        let is_it = |note: &&String| note.contains("Unenforced") && note.ends_with(place);
        record.notes.iter().filter(is_it).any(|note| note.contains(what))
    };
    assert!(record.unbound > Some(10 * 1514), "{:?} {:?}", record.unbound, record.notes);
    assert!(says("octets of a left their tree at"), "{:?}", record.notes);
    assert!(says("octets of b met no queue of their own at"), "{:?}", record.notes);
}
