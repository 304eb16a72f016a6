//! Scenarios for the lab's tests, and a way to see what a run left behind.

#![allow(dead_code, reason = "each test binary uses its part")]

#[allow(clippy::disallowed_methods, reason = "it watches the machine's clock")]
pub(crate) mod watch;

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_model::scenario::{
    IpVersion, Link, Mechanism, Scenario, Topology, Traffic, TrafficKind, Vm,
};
use weir_units::{Bytes, Rate, Span};

/// Two switches joined by link 0, `core`; `left` hosts on the first, `right` on the second, one VM
/// per host; every link has `mbps`.
pub(crate) fn dumbbell(left: usize, right: usize, mbps: u64) -> Scenario {
    let hosts = left + right;
    let link = |name: String, a: usize, b: usize| Link {
        name,
        a,
        b,
        rate: Rate::from_mbps(mbps),
        buffer: Bytes::new(128_000),
        delay: Span::ZERO,
        queueing: Default::default(),
    };
    let mut links = vec![link("core".into(), hosts, hosts + 1)];
    for host in 0..hosts {
        links.push(link(format!("edge{host}"), host, hosts + usize::from(host >= left)));
    }
    let vm = |host: usize| Vm {
        name: format!("vm{host}"),
        tenant: 0,
        host,
        floor_out: Rate::from_mbps(mbps / 10),
        floor_in: Rate::from_mbps(mbps / 10),
        cap_out: None,
        external: weir_model::scenario::External::default(),
        outside: Vec::new(),
        ecn: None,
        deaf: false,
        translated: true,
        policing: None,
        rack: true,
        backpressure: false,
        hoses: Vec::new(),
        budget: None,
    };
    Scenario {
        name: "test".into(),
        title: String::new(),
        point: vec![],
        duration: Span::from_secs(2),
        warmup: Span::from_millis(500),
        sample: Span::from_millis(100),
        scale: 0.1,
        topology: Topology {
            hosts: (0..hosts).map(|h| format!("host{h}")).collect(),
            switches: vec!["left".into(), "right".into()],
            links,
            ecmp: None,
        },
        vms: (0..hosts).map(vm).collect(),
        tenants: vec!["only".into()],
        hoses: vec![],
        clock_drift: 0,
        lab: Default::default(),
        traffic: vec![],
        attacks: vec![],
        faults: vec![],
        mechanisms: vec![],
        binding: Default::default(),
        congested: vec![],
        expect: vec![],
    }
}

/// A tree: `racks` switches with `each` hosts of 100 Mb/s, joined by `root` over links of `uplink`
/// Mb/s, which are the links 0 to `racks` - 1.
pub(crate) fn tree(racks: usize, each: usize, uplink: u64) -> Scenario {
    let mut scenario = dumbbell(racks * each, 0, 100);
    let hosts = racks * each;
    let (root, rack) = (hosts, |r: usize| hosts + 1 + r);
    let edge = scenario.topology.links.remove(1);
    let link =
        |name: String, a, b, mbps| Link { name, a, b, rate: Rate::from_mbps(mbps), ..edge.clone() };
    let uplinks = (0..racks).map(|r| link(format!("rack{r}"), rack(r), root, uplink));
    let edges = (0..hosts).map(|h| link(format!("edge{h}"), h, rack(h / each), 100));
    scenario.topology.links = uplinks.chain(edges).collect();
    let switches = (0..racks).map(|r| format!("rack{r}"));
    scenario.topology.switches = std::iter::once("root".into()).chain(switches).collect();
    scenario
}

/// Traffic over the whole scenario.
pub(crate) fn flow(scenario: &mut Scenario, from: usize, to: usize, kind: TrafficKind) {
    let (start, stop) = (Span::ZERO, scenario.duration);
    scenario.traffic.push(Traffic {
        group: format!("{from}-{to}"),
        from,
        to,
        start,
        stop,
        ip: IpVersion::V4,
        trace: None,
        kind,
    });
}

/// TCP with cubic.
pub(crate) fn tcp(connections: u32) -> TrafficKind {
    TrafficKind::Tcp { connections, congestion: "cubic".into() }
}

/// UDP in packets of the largest size.
pub(crate) fn udp(mbps: f64) -> TrafficKind {
    let rate = Rate::from_bps_f64(mbps * 1e6);
    TrafficKind::Udp { rate, on: None, off: None, payload: Bytes::new(1472) }
}

/// A mechanism; `preset` steers the agent that stands in.
pub(crate) fn mechanism(name: &str, preset: &str) -> Mechanism {
    let known = Mechanism::parse(name).expect("known");
    Mechanism { label: "test".into(), preset: preset.into(), ..known }
}

/// Nothing between the VMs and the wire.
pub(crate) fn none() -> Mechanism {
    mechanism("none", "paper")
}

/// The example `stand_in`, which cargo builds beside the tests.
pub(crate) fn stand_in() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/TEST");
    target.join("examples/stand_in")
}

/// The program itself, for runs with real agents: `cargo test --workspace` builds it.
pub(crate) fn weir() -> PathBuf {
    let path = stand_in().with_file_name("../weir");
    assert!(path.exists(), "{} is not there: `cargo build -p weir`", path.display());
    path
}

/// One run at a time: two would share two CPUs and a clock.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process's runs have on the machine now: namespaces, directories and processes.
pub(crate) fn traces() -> Vec<String> {
    let prefix = format!("weir-{}-", std::process::id());
    let mut found = Vec::new();
    for directory in [PathBuf::from("/run/netns"), std::env::temp_dir()] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&prefix) {
                found.push(name);
            }
        }
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&prefix) {
            found.push(line);
        }
    }
    let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let ours = |line: &&str| {
        let name = line.trim_start();
        name.starts_with("up0:") || name.starts_with("p0:") || name.starts_with("br0:")
    };
    found.extend(devices.lines().filter(ours).map(str::to_owned));
    found
}
