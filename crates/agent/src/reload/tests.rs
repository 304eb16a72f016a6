//! What is taken up and what is refused, by the words of the files.

use super::*;
use std::path::Path;

const DIRECTORY: &str = "hosts:
  - {name: h0, control: 10.0.0.1:7001}
  - {name: h1, control: 10.0.0.2:7001}
vms:
  - {name: a, tenant: red, host: h0, addresses: [10.1.0.1]}
  - {name: b, tenant: blue, host: h1, addresses: [10.1.0.2]}
  - {name: c, tenant: red, host: h1, addresses: [10.1.0.3]}
";
const CONFIG: &str = r#"instance = "h0"
host = "h0"
listen = "10.0.0.1:7001"
key_file = "key"
directory = "DIRECTORY"
uplink = { interface = "up0", rate = "1Gbit" }
mechanism = { name = "elasticswitch", set = { alpha = 0.1 } }
[[vm]]
name = "a"
port = "p0"
floor_out = "450Mbit"
floor_in = "400Mbit"
"#;

/// Loads both files, then reads them again with these replacements.
fn reload(
    name: &str,
    config: (&str, &str),
    directory: (&str, &str),
) -> (Setup, Result<Setup, String>) {
    let dir = std::env::temp_dir().join(format!("weir-reload-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (toml, yaml) = (dir.join("agent.toml"), dir.join("directory.yaml"));
    let text = CONFIG.replace("DIRECTORY", &yaml.display().to_string());
    let write = |path: &Path, text: String| std::fs::write(path, text).expect("written");
    write(&toml, text.clone());
    write(&yaml, DIRECTORY.into());
    let former = Setup::load(&toml).expect("sound");
    assert!(text.contains(config.0) && DIRECTORY.contains(directory.0), "nothing to replace");
    write(&toml, text.replacen(config.0, config.1, 1));
    write(&yaml, DIRECTORY.replacen(directory.0, directory.1, 1));
    let next = Setup::reload(&toml, &former).map_err(|e| format!("{e:#}"));
    std::fs::remove_dir_all(&dir).expect("removed");
    let prefix = format!("{}/", dir.display());
    (former, next.map_err(|e| e.replace(&prefix, "")))
}

fn refused(name: &str, config: (&str, &str), directory: (&str, &str)) -> String {
    reload(name, config, directory).1.expect_err("refused")
}

const SAME: (&str, &str) = ("", "");

#[test]
fn what_is_no_vm_of_this_host_nor_the_directory_needs_a_restart_and_is_named() {
    let cases = [
        (
            ("rate = \"1Gbit\"", "rate = \"2Gbit\""),
            "agent.toml:6: uplink.rate: is \"2000000000bit\" now, and was \"1000000000bit\" when the \
             agent started: restart to change",
        ),
        (
            ("instance = \"h0\"", "instance = \"h9\""),
            "agent.toml:1: instance: is \"h9\" now, and was \"h0\" when the agent started: restart to \
             change",
        ),
        (
            ("alpha = 0.1", "alpha = 0.2"),
            "agent.toml:7: mechanism.set.alpha: is 0.2 now, and was 0.1 when the agent started: restart \
             to change",
        ),
        (
            ("alpha = 0.1", "alpha = 0.1, delta = 0.2"),
            "agent.toml:7: mechanism.set.delta: is 0.2 now, and was absent when the agent started: \
             restart to change",
        ),
        (
            ("[[vm]]", "pairs_per_vm = 8\n[[vm]]"),
            "agent.toml:8: pairs_per_vm: is 8 now, and was 512 when the agent started: restart to change",
        ),
    ];
    for (i, (change, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(refused(&format!("fixed{i}"), change, SAME), wanted);
    }
    let same_in_other_words = ("rate = \"1Gbit\"", "rate = \"1000Mbit\"");
    reload("words", same_in_other_words, SAME).1.expect("the same");
}

#[test]
fn a_number_does_not_leave_its_vm_or_host() {
    let gone = "  - {name: b, tenant: blue, host: h1, addresses: [10.1.0.2]}\n";
    assert_eq!(
        refused("shifted", SAME, (gone, "")),
        "directory.yaml:6: vms[1]: vm `c` is number 1 now and was 2, by which running agents know it: \
         write `id: 2` (or restart all agents)"
    );
    let host = ("{name: h1, control", "{name: h1, id: 7, control");
    let error = refused("host", SAME, host);
    assert!(
        error.starts_with("directory.yaml:3: hosts[1]: host `h1` is number 7 now and was 1"),
        "{error}"
    );
    let twice = ("{name: c,", "{name: c, id: 1,");
    let error = refused("twice", SAME, twice);
    assert!(
        error.starts_with("directory.yaml:7: vms[2].id: `b` and `c` are both number 1"),
        "{error}"
    );
}

#[test]
fn an_entry_may_go_from_the_middle_if_the_others_keep_their_numbers() {
    let middle =
        "  - {name: b, tenant: blue, host: h1, addresses: [10.1.0.2]}\n  - {name: c, tenant: red,";
    let (former, next) = reload("middle", SAME, (middle, "  - {name: c, id: 2, tenant: red,"));
    let next = next.expect("sound");
    assert_eq!(next.names.id("c"), Some(VmId(2)));
    assert_eq!(next.host.directory[&VmId(2)], former.host.directory[&VmId(2)], "tenant and host");
    assert!(!next.host.directory.contains_key(&VmId(1)));
    assert_eq!(strangers(&former, &next), BTreeSet::new());
}

#[test]
fn who_takes_anothers_number_or_moves_is_a_stranger_and_others_keep_their_tenants() {
    let other = ("name: b, tenant: blue", "name: d, tenant: green");
    let (former, next) = reload("other", SAME, other);
    let next = next.expect("sound");
    assert_eq!(strangers(&former, &next), BTreeSet::from([VmId(1)]));
    assert_eq!(next.tenants[&VmId(0)], former.tenants[&VmId(0)]);
    assert!(!former.tenants.values().any(|t| *t == next.tenants[&VmId(1)]), "a number of its own");
    let moved = ("{name: c, tenant: red, host: h1", "{name: c, tenant: red, host: h0");
    let (former, next) = reload("moved", SAME, moved);
    assert_eq!(strangers(&former, &next.expect("sound")), BTreeSet::from([VmId(2)]));
    let first = ("tenant: red", "tenant: green");
    let (former, next) = reload("first", SAME, first);
    assert_eq!(next.expect("sound").tenants[&VmId(2)], former.tenants[&VmId(2)]);
}

#[test]
fn vms_floors_and_addresses_are_taken_up() {
    let config = ("floor_out = \"450Mbit\"", "floor_out = \"100Mbit\"");
    let (_, next) = reload("floors", config, ("[10.1.0.3]", "[10.1.0.4]"));
    let next = next.expect("sound");
    assert_eq!(next.host.hose(VmId(0)).expect("here").out.floor, weir_units::Rate::from_mbps(100));
    let vms = CONFIG.split_once("[[vm]]").expect("VMs").1;
    let (_, next) = reload("none", (&format!("[[vm]]{vms}"), ""), SAME);
    assert!(next.expect("sound").host.hoses.is_empty());
}
