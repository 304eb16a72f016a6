//! A user who starts an agent without being root is told so, and how to get the rights. Needs root,
//! to give it up.
#![allow(clippy::disallowed_methods)]

use crate::common::{copy_of_daemon, pause};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The user nobody, on every Linux.
const NOBODY: u32 = 65534;

/// A folder with a sound configuration, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("weir-unprivileged-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let directory = "hosts: [{name: h0, control: '127.0.0.1:7001'}]\nvms: []\n";
        std::fs::write(dir.join("directory.yaml"), directory).unwrap();
        std::fs::write(dir.join("key"), "000102030405060708090a0b0c0d0e0f\n").unwrap();
        let text = format!(
            "instance = \"unprivileged\"\nhost = \"h0\"\nlisten = \"127.0.0.1:7001\"\n\
             key_file = {:?}\ndirectory = {:?}\nrun_dir = \"/run/weir\"\n\
             uplink = {{ interface = \"lo\", rate = \"1Gbit\" }}\n\
             mechanism = {{ name = \"elasticswitch\" }}\n",
            dir.join("key"),
            dir.join("directory.yaml")
        );
        std::fs::write(dir.join("agent.toml"), text).unwrap();
        Self(dir)
    }

    fn config(&self) -> PathBuf {
        self.0.join("agent.toml")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn as_nobody(folder: &Folder, command: &str) -> Output {
    let mut started = Command::new(copy_of_daemon(&folder.0));
    started.args([command, "--config"]).arg(folder.config()).uid(NOBODY).gid(NOBODY);
    loop {
        match started.output() {
            // A process that another test starts has the copy open for writing, until it executes
            // its own.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => pause(20),
            output => return output.expect("giving up root needs root"),
        }
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_agent_that_is_not_root_says_which_privileges_it_lacks_and_how_to_give_them() {
    let folder = Folder::new("agent");
    for command in ["agent", "reclaim"] {
        let output = as_nobody(&folder, command);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(
            said,
            "weir: not privileged enough, without CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF: \
             run it as root, or with these as AmbientCapabilities of its unit\n"
        );
    }
}

#[test]
fn a_configuration_that_only_root_can_read_is_no_riddle_either() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("hidden");
    std::fs::set_permissions(folder.config(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = stderr(&as_nobody(&folder, "agent"));
    assert!(said.contains("CAP_BPF: run it as root"), "{said}");
    // A mistake in it comes first for a user who can read it.
    let folder = Folder::new("wrong");
    let text = std::fs::read_to_string(folder.config()).unwrap();
    std::fs::write(folder.config(), text.replace("1Gbit", "0bit")).unwrap();
    let said = stderr(&as_nobody(&folder, "agent"));
    assert!(said.contains("agent.toml:7: uplink.rate: a rate of zero"), "{said}");
}
