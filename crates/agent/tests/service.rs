//! What the service manager hears and what it is told to do. Needs root for the agent's part.
#![allow(clippy::disallowed_methods)]

use crate::common;

use crate::common::{World, copy_of_daemon, daemon, pause};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const UNIT: &str = include_str!("../../../packaging/weir-agent.service");
const CONTROLLER: &str = include_str!("../../../packaging/weir-controller.service");
const METRICS: &str = include_str!("../../../packaging/weir-metrics.service");

/// A manager's end of the conversation.
struct Manager(UnixDatagram);

impl Manager {
    /// Listens at `path`, for as long as a test may take.
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self(socket)
    }

    /// All that is said within `ms`.
    fn hear(&self, ms: u64) -> Vec<String> {
        let end = Instant::now() + Duration::from_millis(ms);
        let (mut said, mut octets) = (Vec::new(), [0; 4096]);
        while Instant::now() < end {
            if let Ok(length) = self.0.recv(&mut octets) {
                let text = String::from_utf8_lossy(&octets[..length]).into_owned();
                said.extend(text.lines().map(str::to_owned));
            }
        }
        said
    }
}

#[test]
fn the_manager_hears_ready_then_signs_of_life_from_the_loop_then_stopping() {
    let world = World::new();
    let path = world.dir.join("notify");
    let manager = Manager::listen(&path);
    let environment =
        [("NOTIFY_SOCKET", path.display().to_string()), ("WATCHDOG_USEC", "1000000".into())];
    let agent = world.start_as(1, &daemon(), &[], &environment);
    let said = manager.hear(300);
    assert_eq!(said.first().map(String::as_str), Some("READY=1"), "{said:?}");
    let status = "STATUS=guards 1 VMs, 0 ends of pairs are active";
    assert!(said.iter().any(|line| line == status), "{said:?}");

    // Half the manager's patience, for a second and a half.
    let beats = |said: &[String]| said.iter().filter(|line| *line == "WATCHDOG=1").count();
    let said = manager.hear(1600);
    assert!((2..=4).contains(&beats(&said)), "{said:?}");

    // A loop that hangs gives none: this is no thread of its own.
    common::send(agent.pid(), Signal::STOP);
    manager.hear(100);
    assert_eq!(beats(&manager.hear(1200)), 0);
    common::send(agent.pid(), Signal::CONT);
    pause(300);

    agent.stop();
    let said = manager.hear(200);
    assert!(said.iter().any(|line| line == "STOPPING=1"), "{said:?}");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units_and_little_that_they_expose() {
    let directory = std::env::temp_dir().join(format!("weir-unit-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // Verified as installed: the binary must be there.
    let binary = copy_of_daemon(&directory).display().to_string();
    let asked = |(name, unit): (&str, &str)| {
        let file = directory.join(name);
        std::fs::write(&file, unit.replace("/usr/bin/weir", &binary)).unwrap();
        let ask = |args: &[&str]| {
            let output = Command::new("systemd-analyze").args(args).arg(&file).output();
            output.expect("systemd-analyze is installed: see scripts/setup test")
        };
        (name.to_owned(), ask(&["verify"]), ask(&["security", "--offline=true", "--threshold=30"]))
    };
    let units = [
        ("weir-agent.service", UNIT),
        ("weir-controller.service", CONTROLLER),
        ("weir-metrics.service", METRICS),
    ];
    let answers = units.map(asked);
    std::fs::remove_dir_all(&directory).unwrap();
    for (name, verified, exposed) in answers {
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        // If other units of this machine have mistakes, they are told as well.
        let ours: Vec<&str> = said.lines().filter(|line| line.contains(&name)).collect();
        assert!(ours.is_empty() && (verified.status.success() || !said.is_empty()), "{said}");
        let said = String::from_utf8_lossy(&exposed.stdout).into_owned();
        assert!(exposed.status.success() && said.contains("Overall exposure"), "{name}: {said}");
    }
}

#[test]
fn the_unit_keeps_floors_when_the_agent_dies() {
    let value = |key: &str| {
        let line = UNIT.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("{key} is not set")).to_owned()
    };
    assert_eq!(value("Type"), "notify");
    assert_eq!(value("KillMode"), "process", "the guardian outlives the agent");
    assert_eq!(value("Restart"), "always");
    assert_eq!(value("RuntimeDirectoryPreserve"), "yes", "the lease outlives the agent");
    assert_eq!(value("ReadWritePaths"), "/sys/fs/bpf", "what is pinned outlives the agent");
    assert_eq!(value("StateDirectory"), "weir/agent", "an agent writes what its controller wants");
    assert!(value("ExecStopPost").contains("weir reclaim --config"), "if the guardian dies too");
    let patience: u64 = value("WatchdogSec").parse().expect("seconds");
    assert!(patience >= 5, "longer than a busy host makes the loop wait");
}
