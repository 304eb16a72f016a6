//! `weir doctor` as people and scripts meet it.

use serde_json::Value;
use std::process::{Command, Output};

mod place;
use place::Place;

fn doctor(arguments: &[&str]) -> Output {
    let weir = env!("CARGO_BIN_EXE_weir");
    Command::new(weir).arg("doctor").args(arguments).output().expect("weir runs")
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Whatever this machine has: what is said and the exit status agree.
#[test]
fn the_exit_status_says_what_the_answer_says() {
    let output = doctor(&["--json"]);
    let answer = answer(&output);
    let can = answer["can_enforce"].as_bool().expect("yes or no");
    assert_eq!(output.status.code(), Some(if can { 0 } else { 1 }));
    let findings = answer["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|f| f["what"] == "kernel"), "{findings:?}");
    for finding in findings {
        let fine = finding["state"] == "fine";
        assert!(fine || finding["found"] != "", "nothing was found: {finding}");
    }
}

#[test]
fn a_vm_whose_port_is_not_there_is_unenforced_by_name_and_the_status_is_1() {
    let place = Place::new("doctor");
    let at = |name: &str| place.0.join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(at(name), text).expect("written");
    write("key", "00112233445566778899aabbccddeeff\n");
    write(
        "directory.yaml",
        "hosts: [{name: h0, control: \"10.0.0.1:7001\"}]\n\
         vms: [{name: a, tenant: red, host: h0, addresses: [10.1.0.1]}]\n",
    );
    let config = format!(
        "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = {:?}\n\
         directory = {:?}\nuplink = {{ interface = \"weir-none0\", rate = \"1Gbit\" }}\n\
         mechanism = {{ name = \"elasticswitch\" }}\n[[vm]]\nname = \"a\"\nport = \"weir-none1\"\n\
         floor_out = \"10Mbit\"\nfloor_in = \"10Mbit\"\n",
        at("key"),
        at("directory.yaml")
    );
    write("agent.toml", &config);
    let output = doctor(&["--config", &at("agent.toml"), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer = answer(&output);
    let findings = answer["findings"].as_array().expect("a list");
    let state = |what: &str| {
        let found = findings.iter().find(|f| f["what"] == what);
        found.unwrap_or_else(|| panic!("nothing of {what}: {findings:?}"))["state"].clone()
    };
    assert_eq!(state("port weir-none1 of a"), "Unenforced");
    assert_eq!(state("uplink weir-none0"), "cannot");
    assert_eq!(state("uplink weir-none0, the host's own traffic"), "costs");
    let text = doctor(&["--config", &at("agent.toml")]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("Unenforced: port weir-none1 of a."), "{text}");
    assert!(text.contains("remedy: a port of its own for its storage"), "{text}");
    assert!(text.contains("or uplink.host_floor"), "{text}");
    write("agent.toml", &config.replace("\"1Gbit\"", "\"1Gbit\", host_floor = \"100Mbit\""));
    let text = doctor(&["--config", &at("agent.toml")]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("its floor is 100 Mb/s"), "{text}");
}
