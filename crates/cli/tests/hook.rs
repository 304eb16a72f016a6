//! `weir libvirt` as libvirt and people call it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const UUID: &str = "1e4ea45c-5c92-41eb-8177-b7a0d3f77e34";

/// A folder of this test's own, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-libvirt-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let config = format!(
            "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nrun_dir = {:?}\n\
             directory = \"/d\"\nkey_file = \"/k\"\n\
             uplink = {{ interface = \"up0\", rate = \"1Gbit\" }}\n\
             mechanism = {{ name = \"elasticswitch\" }}\n",
            dir.join("run")
        );
        std::fs::write(dir.join("agent.toml"), config).unwrap();
        Self(dir)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn domain(metadata: &str) -> String {
    format!(
        "<domain><name>web</name><uuid>{UUID}</uuid><metadata>{metadata}</metadata><devices>\
         <interface type='bridge'><mac address='52:54:00:00:00:01'/><target dev='vnet0'/>\
         <bandwidth><inbound floor='125' average='250'/></bandwidth></interface></devices></domain>"
    )
}

fn play(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that does not read it has ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn hook(config: &Path, operation: &str, input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let command = command.args(["libvirt", "hook", "web", operation, "begin", "-", "--config"]);
    play(command.arg(config), input)
}

#[test]
fn the_hook_ends_well_and_prints_no_xml_whatever_it_is_given() {
    let place = Place::new("hook");
    let config = place.0.join("agent.toml");
    let element =
        "<w:vms xmlns:w='urn:weir:libvirt:1'><w:vm floor_out='1M' floor_in='1M'/></w:vms>";
    let (sound, wrong) = (domain(element), domain(&element.replace("1M", "1")));
    let bare = domain("");
    let nowhere = place.0.join("nowhere.toml");
    let handed = "web`: handed over VM `web` on vnet0";
    for (config, operation, input, said) in [
        (&config, "start", &*sound, handed),
        (&config, "stopped", &sound, "its VMs were taken back"),
        (&config, "start", &bare, ""),
        (&config, "release", &bare, ""),
        (&nowhere, "start", &bare, ""),
        (&nowhere, "start", &sound, "nowhere.toml: cannot be read"),
        (
            &config,
            "start",
            &wrong,
            "start of `web`: VMs were not handed over: domain `web`: metadata",
        ),
        (&config, "start", "", "not XML of libvirt"),
        (&config, "start", &sound[..100], "not XML of libvirt"),
        (&config, "\u{1b}[2J", &sound, ""),
    ] {
        let output = hook(config, operation, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{operation}: {errors}");
        assert_eq!(output.stdout, b"", "libvirt would take it for the domain");
        assert!(
            errors.contains(said) && errors.is_empty() == said.is_empty(),
            "{said} in: {errors}"
        );
    }
}

#[test]
fn the_packages_hook_ends_well_without_weir_and_with_one_that_fails() {
    let place = Place::new("script");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/libvirt-hook");
    let prints = place.0.join("prints");
    std::fs::write(&prints, "#!/bin/sh\necho '<domain/>'\nexit 3\n").unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&prints, permissions).unwrap();
    for weir in [&place.0.join("missing"), &prints] {
        let mut command = Command::new("sh");
        command.args([script, "web", "start", "begin", "-"]).env("WEIR", weir);
        let output = play(&mut command, &domain(""));
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b""[..]));
    }
}

#[test]
fn an_import_prints_the_element_and_on_stderr_what_is_lost() {
    let place = Place::new("import");
    let file = place.0.join("web.xml");
    std::fs::write(&file, domain("")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = play(command.args(["libvirt", "import"]).arg(&file), "");
    let element = "<vms><vm floor_out=\"0bit\" floor_in=\"1Mbit\"/></vms>\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), element);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("average=\"250\": left out"), "{errors}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = play(command.args(["libvirt", "import", "-"]), "<network/>");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "weir: -: not a domain of libvirt: it begins with `network`\n");
}
