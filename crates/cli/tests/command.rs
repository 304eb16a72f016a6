//! The command as a script sees it: exit status, stdout, stderr. Nothing here needs root.

use std::path::Path;
use std::process::{Command, Output};

mod place;
use place::Place;

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scenario(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("scenarios").join(name).display().to_string()
}

#[test]
fn bad_usage_is_status_2() {
    for args in [&[][..], &["frobnicate"], &["lab"], &["lab", "x.yaml", "--set", "novalue"]] {
        assert_eq!(weir(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn help_names_every_command_and_the_exit_statuses() {
    let output = weir(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for word in [
        "demo",
        "lab",
        "sim",
        "swarm",
        "reproduce",
        "report",
        "agent",
        "top",
        "explain",
        "clean",
        "3 runs are invalid",
        "4 a run failed",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(!text.contains("guardian"), "the guardian is nobody's command: {text}");
}

#[test]
fn a_mistake_in_a_scenario_is_one_error_with_file_line_and_field() {
    let folder = Place::new("cli-mistake");
    let file = folder.0.join("bad.yaml");
    let text = std::fs::read_to_string(scenario("demo.yaml")).expect("the demo is there");
    std::fs::write(&file, text.replace("duration: 18s", "durration: 18s")).expect("a file");
    let output = weir(&["lab", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.contains("bad.yaml:") && error.contains("durration"), "{error}");
    assert!(output.stdout.is_empty(), "stdout belongs to results");
}

#[test]
fn an_override_or_mechanism_that_does_not_exist_is_refused_before_anything_is_played() {
    let file = scenario("elasticswitch/fig05.yaml");
    let output = weir(&["lab", &file, "--set", "sendrs=3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("sendrs"), "{}", stderr(&output));
    let output = weir(&["lab", &file, "--mechanism", "elastic"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("unknown mechanism"), "{}", stderr(&output));
}

#[test]
fn a_preset_that_does_not_exist_is_refused_before_anything_is_played() {
    let file = scenario("elasticswitch/fig05.yaml");
    let set = "mechanisms=[elasticswitch:stedy]";
    for option in [["--mechanism", "elasticswitch:stedy"], ["--set", set]] {
        let output = weir(&["lab", &file, option[0], option[1]]);
        assert_eq!(output.status.code(), Some(2), "{option:?}");
        let error = stderr(&output);
        for word in ["`elasticswitch:stedy`", "did you mean `steady`?", "paper, steady"] {
            assert!(error.contains(word), "{word} is missing in {error}");
        }
    }
}

#[test]
fn a_constant_that_does_not_exist_is_refused_in_both_worlds_before_anything_is_played() {
    let file = scenario("elasticswitch/fig05.yaml");
    for world in ["lab", "sim"] {
        let output = weir(&[world, &file, "--constant", "alhpa=0.5"]);
        assert_eq!(output.status.code(), Some(2), "{world}");
        let error = stderr(&output);
        assert!(error.contains("--constant alhpa: there is no such constant"), "{error}");
    }
    let output = weir(&["sim", "--network", "x.net", "--constant", "alpha=0.5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot be used with"), "{}", stderr(&output));
}

#[test]
fn floors_that_do_not_fit_are_refused_by_the_name_of_the_link() {
    let output = weir(&["lab", &scenario("demo.yaml"), "--set", "floor=600Mbit"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("core"), "{}", stderr(&output));
}

#[test]
fn a_missing_agent_or_configuration_is_named() {
    let folder = Place::new("cli-agents");
    let run_dir = folder.0.display().to_string();
    let output = weir(&["top", "--run-dir", &run_dir]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no agent runs here"), "{}", stderr(&output));
    let output = weir(&["agent", "--config", "/nonexistent/agent.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/agent.toml"), "{}", stderr(&output));
}

#[test]
fn a_report_needs_results() {
    let folder = Place::new("cli-report");
    let output = weir(&["report", &folder.0.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("results.json"), "{}", stderr(&output));
}

/// Two hosts and a link of 1 Gb/s that marks.
const NETWORK: &str = "until_ns 20000000\nmtu 1500\nnodes 2\nlinks 2\n\
    0 0 1 1000000000 50000 150000 30000\n1 1 0 1000000000 50000 150000 30000\n\
    flows 2\n0 0 1 0 0 1 0 1 1\n1 0 1 1000 14600 1 0 1 1\n";

#[test]
fn a_network_file_is_played_the_same_way_twice() {
    let folder = Place::new("cli-network");
    let file = folder.0.join("two.net");
    std::fs::write(&file, NETWORK).expect("a file");
    let file = file.display().to_string();
    let play = |cc: &str| {
        let output = weir(&["sim", "--network", &file, "--cc", cc, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("one JSON object")
    };
    let (once, again, other) = (play("dctcp"), play("dctcp"), play("cubic"));
    assert_eq!(once["digest"], again["digest"]);
    assert_ne!(once["digest"], other["digest"]);
    let flows = once["flows"].as_array().expect("flows");
    assert_eq!(flows[1]["octets"], 14600);
    assert!(flows[1]["completed_s"].as_f64().expect("it ends") < 0.01);
    assert!(flows[0]["completed_s"].is_null());
    let goodput = flows[0]["goodput_bps"].as_f64().expect("a rate");
    assert!((0.9e9..0.974e9).contains(&goodput), "{goodput}");
    assert!(once["perf"]["packet_hops"].as_u64().expect("a count") > 2000);
    let text = weir(&["sim", "--network", &file]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("packet-hops/s") && text.contains("dctcp"), "{text}");
}

#[test]
fn a_scenario_is_simulated_the_same_way_twice_and_judged() {
    let file = scenario("elasticswitch/fig05.yaml");
    let set = ["--set", "senders=2", "--set", "duration=2s", "--set", "warmup=1s"];
    let play = |more: &[&str]| {
        let args = [&["sim", &file, "--json"][..], &set, more].concat();
        let output = weir(&args);
        let results: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
                panic!("{e}: {}", stderr(&output));
            });
        results["runs"].as_array().expect("runs").clone()
    };
    let steady = ["--mechanism", "none", "--mechanism", "elasticswitch:steady", "--repeat", "2"];
    let runs = play(&steady);
    assert_eq!(runs.len(), 4);
    assert!(runs.iter().all(|run| run["world"] == "sim" && run["valid"] == true));
    assert_eq!([&runs[0]["seed"], &runs[2]["seed"]], [1, 2]);
    let again = play(&[&steady[..], &["--jobs", "1"]].concat());
    for (run, again) in runs.iter().zip(&again) {
        assert_eq!(run["notes"], again["notes"], "the digest is among the notes");
        assert_eq!(run["summary"], again["summary"]);
    }
    assert_ne!(runs[0]["notes"], runs[2]["notes"], "another seed");
}

#[test]
fn short_flows_have_times_and_faults_are_told_in_the_simulator_as_in_the_lab() {
    let play = |file: &str, set: &[&str]| {
        let file = scenario(file);
        let args = [&["sim", &file, "--json", "--mechanism", "elasticswitch:steady"][..], set];
        let output = weir(&args.concat());
        let results: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
        results["runs"][0].clone()
    };
    let run = play("short-flows.yaml", &["--set", "duration=5s", "--set", "warmup=1s"]);
    let metric = |name: &str| run["summary"][name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    let [p50, p99] = ["fct.search.p50", "fct.search.p99"].map(metric);
    assert!(p50 > 1e-4 && p50 <= p99 && p99 < 5.0, "{p50} {p99}");
    assert!((0.0..0.5).contains(&metric("unfinished.search")));
    assert!(run["flows"][0]["times"]["due"].as_u64().expect("a count") > 0);
    let crash = ["--set", "duration=5s", "--set", "warmup=1s", "--set", "senders=5"];
    let run = play("elasticswitch/agent-crash.yaml", &crash);
    let said: Vec<&str> = run["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|e| e["says"].as_str())
        .collect();
    assert!(said.contains(&"left-0: agent killed") && said.contains(&"left-0: agent starts"));
}

#[test]
fn what_cannot_be_simulated_is_refused_by_file_and_field() {
    let file = scenario("elasticswitch/ipv6.yaml");
    let output = weir(&["sim", &file]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("ipv6.yaml") && text.contains("spec.traffic (group"), "{text}");
    assert_eq!(weir(&["sim"]).status.code(), Some(2), "neither a scenario nor a network file");
}

#[test]
fn a_scenario_too_large_for_memory_says_so_before_it_starts() {
    let folder = Place::new("cli-too-large");
    let file = folder.0.join("large.yaml");
    let text = "apiVersion: weir/v1alpha1\nkind: Scenario\nmetadata: {name: large}\nspec:\n  \
        duration: 10s\n  topology: {single-switch: {hosts: 2, link: 1Gbit}}\n  tenants:\n    \
        - name: a\n      vms:\n        - {name: s, hosts: [host-0], count: 100}\n        \
        - {name: r, hosts: [host-1], count: 100}\n  traffic:\n    \
        - {group: g, from: s, to: r, tcp: {connections: 10000}}\n  mechanisms: [none]\n";
    std::fs::write(&file, text).expect("a file");
    let output = weir(&["sim", &file.display().to_string(), "--jobs", "1"]);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("large.yaml: needs at least ") && error.contains(" GB of memory"),
        "{error}"
    );
    assert!(error.contains("are available: lower its numbers of connections"), "{error}");
}

#[test]
fn a_mistake_in_a_network_file_names_file_and_line() {
    let folder = Place::new("cli-network-mistake");
    let file = folder.0.join("bad.net");
    std::fs::write(&file, NETWORK.replace("nodes 2", "nodes 1")).expect("a file");
    let output = weir(&["sim", "--network", &file.display().to_string(), "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(
        error.contains("bad.net") && error.contains("line 5: node 1 does not exist"),
        "{error}"
    );
    assert!(output.stdout.is_empty(), "stdout belongs to results");
    let output = weir(&["sim", "--network", "/nonexistent/x.net"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/nonexistent/x.net"), "{}", stderr(&output));
}

/// Four hosts of HPCC's at one switch.
const STAR: &str =
    "5 1 4\n4\n0 4 10Gbps 1us 0\n1 4 10Gbps 1us 0\n2 4 10Gbps 1us 0\n3 4 10Gbps 1us 0\n";
/// The same as a tree of htsim's with two switches and one above.
const TREE: &str = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 10\nRadix_Down 2\n\
    Radix_Up 2\nQueue_Down 1000000\nQueue_Up 1000000\nDownlink_Latency_ns 1000\n\
    Tier 1\nDownlink_speed_Gbps 10\nRadix_Down 2\nDownlink_Latency_ns 1000\n";
/// Two senders to host 3, of which the second comes later and has less; the third goes on for ever.
const MATRIX: &str = "Nodes 4\nConnections 3\n0->3 start 0 size 14600000\n\
    1->3 start 2000000000 size 1460000\n2->1 start 0 size 0\n";
const FLOWS: &str = "2\n0 3 3 100 14600000 0\n1 3 3 100 1460000 0.002\n";

#[test]
fn other_simulators_files_are_played_at_both_levels() {
    let folder = Place::new("cli-import");
    let write = |name: &str, text: &str| {
        let file = folder.0.join(name);
        std::fs::write(&file, text).expect("a file");
        file.display().to_string()
    };
    let hpcc = (write("topology.txt", STAR), write("flow.txt", FLOWS));
    let htsim = (write("a.topo", TREE), write("a.cm", MATRIX));
    let play = |(topology, flows): &(String, String), more: &[&str]| {
        let args = ["sim", "--topology", topology, "--flows", flows, "--json", "--until", "50ms"];
        let output = weir(&[&args[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("one JSON object")
    };
    let took = |played: &serde_json::Value, flow: usize| {
        let flow = &played["flows"][flow];
        let end = flow["completed_s"].as_f64().unwrap_or_else(|| panic!("it ends: {flow}"));
        end - flow["start_s"].as_f64().expect("a start")
    };
    for files in [&hpcc, &htsim] {
        let ideal = play(files, &["--flow-level"]);
        // 15 and 1.5 MB on the wire at 10 Gb/s: the second has half until it is done, 2.4 ms.
        assert!((took(&ideal, 1) - 0.0024).abs() < 1e-6, "{ideal}");
        assert!((took(&ideal, 0) - 0.0132).abs() < 1e-6, "{ideal}");
        let packets = play(files, &["--mark-above", "30kB", "--buffer", "1MB"]);
        assert_eq!((&packets["world"], &packets["cc"]), (&"packets".into(), &"dctcp".into()));
        assert_eq!(
            packets["digest"],
            play(files, &["--mark-above", "30kB", "--buffer", "1MB"])["digest"]
        );
        // A pair that begins beside another is slow, but the link is used: both end not much later
        // than ideally.
        assert!(took(&packets, 1) > 0.0012, "{packets}");
        let last = (0.002 + took(&packets, 1)).max(took(&packets, 0));
        assert!((0.0132..0.0145).contains(&last), "{last} s");
    }
    let endless = &play(&htsim, &["--flow-level"])["flows"][2];
    assert!(endless["completed_s"].is_null() && endless["size"].is_null(), "{endless}");
    assert!((endless["goodput_bps"].as_f64().expect("a rate") / 9.7333e9 - 1.0).abs() < 1e-3);
    // A floor for the second sender's tenant: nine of ten gigabits, by hose.
    let tenants = write(
        "tenants.yaml",
        "apiVersion: weir/v1alpha1\nkind: Tenants\nspec:\n  tenants:\n    \
         - {name: x, hosts: [1, 3], floor: 9Gbit}\n",
    );
    let floors = play(&hpcc, &["--flow-level", "--tenants", &tenants]);
    assert!(took(&floors, 1) < 1.35e-3, "{floors}");
    assert_eq!(floors["overbooked"], 0);
    let args = ["sim", "--topology", &hpcc.0, "--flows", &hpcc.1];
    let text = weir(&args);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("p99 slowdown") && text.contains("cubic"), "{text}");
}

#[test]
fn what_cannot_be_played_of_other_simulators_is_refused_with_file_and_line() {
    let folder = Place::new("cli-import-mistake");
    let write = |name: &str, text: &str| {
        let file = folder.0.join(name);
        std::fs::write(&file, text).expect("a file");
        file.display().to_string()
    };
    let star = write("topology.txt", STAR);
    let refused = |topology: &str, flows: &str, words: &str| {
        let flows = write("flows", flows);
        let output = weir(&["sim", "--topology", topology, "--flows", &flows]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "stdout belongs to results");
    };
    refused(&star, "1\n0 9 3 100 1000 0\n", "flows:2: destination `9`");
    refused(&star, "1\n0 4 3 100 1000 0\n", "flow 0: node 4 is a switch");
    refused(&star, "Nodes 4\nConnections 1\n0->1 start x size 1\n", "flows:3:");
    let waits = "Nodes 4\nConnections 1\nTriggers 1\n0->1 trigger 1 size 1\ntrigger id 1 oneshot\n";
    refused(&star, waits, "connection 0 (0->1) waits for a trigger");
    refused(&star, "0\n", "has no flows");
    let torn = write("torn.txt", "3 0 1\n0 1 1Gbps 1us 0\n");
    refused(&torn, "1\n0 2 3 100 1000 0\n", "no links lead from node 0 to node 2");
    let wrong = write("wrong.txt", "5 1 4\n4\n0 4 10Gb 1us 0\n");
    refused(&wrong, "1\n0 1 3 100 1000 0\n", "wrong.txt:3:");
    let output = weir(&["sim", "--topology", &star]);
    assert_eq!(output.status.code(), Some(2), "without flows");
}

const TINY: &str = "\
apiVersion: weir/v1alpha1
kind: Figure
metadata: {id: T-1, title: A tiny figure, paper: Test Fig 1}
spec:
  says: X is protected
  criterion: X keeps its floor
  play:
    - name: both
      scenario: SCENARIO
      mechanisms: [none, elasticswitch]
      sim: {set: [\"senders=[1, 4]\", duration=4s, warmup=2s], repeat: 2}
    - {name: lab, label: elsewhere, scenario: SCENARIO, sim: {not: it takes a real kernel}}
  plots:
    - kind: bars
      x: {of: senders, label: Number of senders}
      y: {metrics: [goodput.x, goodput.y], names: [X, Y], label: 'Mb/s', unit: Mb/s, at_scale_1: true}
  expect:
    - {says: X has its floor, mechanism: elasticswitch, metric: goodput_of_floor.x, at_least: 0.8}
    - {says: X has less without, mechanism: none, metric: goodput.x, at: [senders=4], of: {mechanism: elasticswitch}, at_most: 1}
";

#[test]
fn a_figure_is_played_in_the_simulator_kept_and_drawn() {
    let folder = Place::new("cli-figure");
    let file = folder.0.join("tiny.yaml");
    let text = TINY.replace("SCENARIO", &scenario("elasticswitch/fig05.yaml"));
    std::fs::write(&file, text).expect("a file");
    let out = folder.0.join("out");
    let (file, out_text) = (file.display().to_string(), out.display().to_string());
    let output = weir(&["reproduce", &file, "--out", &out_text]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    // One part was not played, so that the figure as a whole is not held.
    assert_eq!(output.status.code(), Some(3), "{stdout}{}", stderr(&output));
    assert!(
        stdout.contains("held in part") && stdout.contains("it takes a real kernel"),
        "{stdout}"
    );
    let page = std::fs::read_to_string(out.join("report.html")).expect("a page");
    for word in ["Number of senders", "A tiny figure", "weir sim", "X is protected", "±", "<svg"] {
        assert!(page.contains(word), "{word} is missing");
    }
    assert!(!page.contains("<script") && !page.contains("http"), "nothing is loaded");
    assert!(page.contains("href=\"T-1/both/report.html\""));
    let kept = std::fs::read(out.join("T-1/both/results.json")).expect("numbers");
    let results: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(results["runs"].as_array().map(Vec::len), Some(2 * 2 * 2));
    // The page can be made again from the folder.
    std::fs::remove_file(out.join("report.html")).expect("there");
    assert!(weir(&["report", &out_text]).status.success());
    let again = std::fs::read_to_string(out.join("report.html")).expect("a page");
    assert_eq!(page, again);
}

#[test]
fn a_mistake_in_a_figure_is_one_error_with_file_line_and_field() {
    let folder = Place::new("cli-bad-figure");
    let file = folder.0.join("bad.yaml");
    let sound = TINY.replace("SCENARIO", &scenario("elasticswitch/fig05.yaml"));
    for (from, to, says) in [
        ("criterion:", "criterium:", "bad.yaml:6:"),
        ("goodput_of_floor.x", "goodput_of_floor.z", "no scenario here has a group `z`"),
        ("fig05.yaml", "fig55.yaml", "there is no file"),
        ("senders=[1, 4]", "sendrs=3", "sendrs"),
    ] {
        assert!(sound.contains(from), "{from}");
        std::fs::write(&file, sound.replacen(from, to, 1)).expect("a file");
        let output = weir(&["reproduce", "--list", &file.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{to}");
        assert!(stderr(&output).contains(says), "{to}: {}", stderr(&output));
        assert!(stderr(&output).contains("bad.yaml"), "{to}: {}", stderr(&output));
    }
}

#[test]
fn a_seed_is_played_and_written_as_a_scenario_that_can_be_played() {
    let folder = Place::new("cli-swarm");
    let file = folder.0.join("seed.yaml").display().to_string();
    let output = weir(&["swarm", "--seed", "3", "--write", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("weir sim {file} --seed 3\n"));
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert!(text.contains("name: swarm-3") && text.contains("tenants:"), "{text}");
    let output = weir(&["swarm", "--from", "3", "--seeds", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("1 seeds, 0 with a broken promise; "), "{said}");
    assert_eq!(weir(&["swarm", "--seeds", "0"]).status.code(), Some(2));
    assert_eq!(weir(&["swarm", "--write", &file]).status.code(), Some(2), "of which seed?");
}

#[test]
fn a_mistake_says_where_it_is_and_what_to_do() {
    let folder = Place::new("cli-mistakes");
    let at = |name: &str| folder.0.join(name).display().to_string();
    std::fs::create_dir_all(at("bad")).expect("a folder");
    std::fs::write(at("bad/results.json"), r#"{"x": 1}"#).expect("a file");
    std::fs::write(at("file"), "").expect("a file");
    let (here, bad, none, under) = (at(""), at("bad"), at("none"), at("file/out"));
    let (demo, missing) = (scenario("demo.yaml"), "is the path right?");
    for (args, wanted) in [
        (&["sim", &here][..], ["cannot be read", "name a file in it"]),
        (&["reproduce", "--list", &at("none.yaml")], ["none.yaml: cannot be read", missing]),
        (&["sim", "--network", &none], [none.as_str(), missing]),
        (&["sim", "--network", &here], ["cannot be read", "name a file in it"]),
        (&["sim", "--topology", &none, "--flows", &none], [none.as_str(), missing]),
        (&["sim", &demo, "--seed", "x"], ["--seed", "write a whole number"]),
        (&["swarm", "--seed", "1.5"], ["--seed", "write a whole number"]),
        (&["sim", &demo, "--out", &under], [under.as_str(), "--out DIR"]),
        (&["report", &none], ["cannot read", "the folder that `--out` named"]),
        (&["report", &bad], ["missing field `runs`", "play it again"]),
        (&["reproduce", "--from", &none], ["(os error 2)\n  help:", "--from DIR"]),
        (&["lab", &demo, "--constant", "alpha=2"], ["--constant alpha is 2", "between 0 and 1"]),
    ] {
        let output = weir(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = stderr(&output);
        for part in wanted {
            assert!(error.contains(part), "{args:?}: {part} is missing in {error}");
        }
    }
}

/// Nothing reads what is printed: the pipe's other end is closed before the process starts.
#[test]
fn a_closed_pipe_is_no_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../reproduce");
    let from = root.display().to_string();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let process = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["reproduce", "--list", "--from", &from])
        .stdout(writer)
        .output()
        .expect("the binary runs");
    assert_eq!(process.status.code(), Some(0), "{}", stderr(&process));
    assert_eq!(stderr(&process), "");
}

const SWITCHES: &str = "owner = \"ctl\"\nstate = \"DIR/state\"\n[switch.leaf]\nkind = \"linux-tc\"\n\
                        ports = { swp1 = \"100Mbit\" }\n";
const QUEUES: &str = "[port.swp1]\nrate = \"100Mbit\"\nweights = { 0 = 1, 1 = 3 }\n\
                      codepoints = { 11 = 1 }\n";

#[test]
fn a_switchs_files_are_read_before_anything_is_done() {
    let folder = Place::new("cli-switch-files");
    let at = |name: &str| folder.0.join(name).display().to_string();
    std::fs::write(at("s.toml"), SWITCHES).unwrap();
    std::fs::write(at("q.toml"), QUEUES.replace('3', "three")).unwrap();
    let (switches, wanted) = (at("s.toml"), at("q.toml"));
    let common = ["--switches", &switches, "--wanted", &wanted];
    let output = weir(&[&["switch", "apply", "spine"], &common[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("q.toml"), "{}", stderr(&output));
    std::fs::write(&wanted, QUEUES).unwrap();
    let output = weir(&[&["plan", "--switch", "spine"], &common[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no switch `spine`, only leaf"), "{}", stderr(&output));
    assert_eq!(weir(&["plan", "--switch", "leaf"]).status.code(), Some(2), "--wanted is missing");
}
