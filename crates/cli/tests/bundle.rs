//! `weir support-bundle` on a host without an agent, and on a disk without room.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

mod place;
use place::Place;

fn bundle(at: &Path, arguments: &[&str]) -> Output {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg("support-bundle").args(arguments).args(["--run-dir", "nothing"]);
    weir.current_dir(at).output().expect("weir runs")
}

fn part(at: &Path, name: &str) -> String {
    let tar = Command::new("tar").args(["-xzOf", "b.tar.gz", name]).current_dir(at).output();
    let tar = tar.expect("tar runs");
    assert!(tar.status.success(), "{name}: {}", String::from_utf8_lossy(&tar.stderr));
    String::from_utf8_lossy(&tar.stdout).into_owned()
}

#[test]
fn a_bundle_has_what_there_is_says_what_is_missing_and_has_no_token() {
    let place = Place::new("bundle-whole");
    let at = place.0.as_path();
    std::fs::write(at.join("agent.toml"), "host = \"h0\"\ntoken = \"hush\"\n").expect("ours");
    std::fs::create_dir(at.join("journal")).expect("ours");
    let made = bundle(
        at,
        &["--out", "b.tar.gz", "--config", "agent.toml", "--journal", "journal", "--since", "1s"],
    );
    let (said, missed) =
        (String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success(), "{missed}");
    assert!(said.contains("agent.toml") && said.contains("b.tar.gz: "), "{said}");
    assert!(missed.contains("missing: agents: no agent runs here"), "{missed}");
    assert_eq!(part(at, "agent.toml"), "host = \"h0\"\ntoken = (taken out)\n");
    assert!(part(at, "about.txt").starts_with("weir "));
    assert!(part(at, "kernel/links.txt").contains("lo:"));
    assert!(part(at, "doctor.json").contains("can_enforce"));
    let missing = part(at, "missing.txt");
    assert!(missing.contains("journal: journal: "), "{missing}");
    let mode = std::fs::metadata(at.join("b.tar.gz")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = bundle(at, &["--out", "b.tar.gz"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("it exists"));
}

#[test]
fn on_a_full_disk_there_is_an_error_and_no_file() {
    let place = Place::new("bundle-full");
    // The mount is gone with the process.
    let script = "mount -t tmpfs -o size=4k none . && cd \"$PWD\" && head -c 4096 /dev/zero >full && \"$0\" support-bundle --out b.tar.gz \
                  --run-dir nothing; echo status $?; ls -A";
    let mut run = Command::new("unshare");
    run.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_weir")]).current_dir(&place.0);
    let done = run.output().expect("unshare runs");
    let said = String::from_utf8_lossy(&done.stdout);
    assert_eq!(said, "status 2\nfull\n", "{}", String::from_utf8_lossy(&done.stderr));
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(error.contains("b.tar.gz: cannot be written") && error.contains("--out"), "{error}");
}
