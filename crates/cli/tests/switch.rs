//! `weir switch` on a Linux box in a namespace of the test's own. Needs root.

use std::process::Command;

const SWITCHES: &str = "owner = \"ctl\"\nstate = \"DIR/state\"\n[switch.leaf]\nkind = \"linux-tc\"\n\
                        ports = { swp1 = \"100Mbit\" }\n";
const QUEUES: &str = "[port.swp1]\nrate = \"100Mbit\"\nweights = { 0 = 1, 1 = 3 }\n\
                      codepoints = { 11 = 1 }\n";

#[test]
fn a_plan_is_shown_applied_read_and_rolled_back() {
    let folder = std::env::temp_dir().join(format!("weir-cli-switch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name);
    std::fs::write(path("s.toml"), SWITCHES.replace("DIR", &folder.display().to_string())).unwrap();
    std::fs::write(path("q.toml"), QUEUES).unwrap();
    let script = "set -e; ip link add swp1 type veth peer name far; ip link set swp1 up\n\
                  s=\"--switches $1/s.toml\"; w=\"--wanted $1/q.toml\"\n\
                  $0 plan --switch leaf $s $w; echo ==\n\
                  $0 switch apply leaf $s $w; echo ==\n\
                  $0 switch plan leaf $s $w; echo ==\n\
                  $0 switch read leaf $s; echo ==\n\
                  $0 switch rollback leaf $s; echo ==\n\
                  tc qdisc show dev swp1; $0 switch read leaf $s\n\
                  $0 switch plan leaf $s $w --form patch && exit 9 || true\n\
                  sed -i 's/ 1 = 3/ 1 = 300/' $1/q.toml; $0 switch apply leaf $s $w";
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", script, env!("CARGO_BIN_EXE_weir")]).arg(&folder);
    let output = command.output().expect("util-linux");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let _ = std::fs::remove_dir_all(&folder);
    let parts: Vec<&str> = text.split("==\n").collect();
    assert_eq!(parts.len(), 6, "{text}{errors} (this test needs root)");
    let changes = "port swp1: rate 100000000 bit/s\n\
                   port swp1: make queue 0 with weight 1\n\
                   port swp1: make queue 1 with weight 3\n\
                   port swp1: queue 0 is shared\n\
                   port swp1: code point 11 to queue 1 (was the shared queue)\n";
    assert_eq!(parts[0], changes);
    let applied = "applied: the switch was read back and is so\n";
    assert_eq!(parts[1], format!("{changes}{applied}"));
    assert_eq!(parts[2], "no changes\n");
    assert!(parts[3].contains("# owner: ctl") && parts[3].contains("codepoints = { 11 = 1 }"));
    assert_eq!(parts[4], applied);
    assert!(!parts[5].contains("htb") && !parts[5].contains("owner"), "{}", parts[5]);
    assert!(errors.contains("only SONiC has"), "{errors}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(parts[5].contains("failed: comparing: weight 300 of queue 1"), "{}", parts[5]);
}
