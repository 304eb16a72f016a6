//! Whatever happens, nothing is left behind. As root.

#![expect(clippy::disallowed_methods, reason = "waits for processes")]

use crate::common::{alone, dumbbell, flow, mechanism, stand_in, tcp, traces, udp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_lab::{Error, Options, Phase, play, sweep_stale};
use weir_model::scenario::{Mechanism, Scenario, Translation};
use weir_units::{Rate, Span};

const ES: &str = "elasticswitch";

pub(crate) fn short() -> Scenario {
    let mut scenario = dumbbell(1, 1, 100);
    scenario.duration = Span::from_millis(600);
    scenario.warmup = Span::from_millis(200);
    flow(&mut scenario, 0, 1, tcp(2));
    scenario
}

#[test]
fn a_world_of_two_hosts_is_there_while_it_plays_and_gone_afterwards() {
    let _alone = alone();
    let mut options = Options::new(stand_in());
    options.mechanism_set.insert("a".into(), toml::Value::String("7Mbit".into()));
    let mut seen = Vec::new();
    let mut phases = Vec::new();
    let record = play(
        &short(),
        &mechanism(ES, "paper"),
        &options,
        &mut |frame| {
            if frame.phase == Phase::Running {
                seen = traces();
            }
            phases.push(std::mem::discriminant(&frame.phase));
        },
        &AtomicBool::new(false),
    )
    .expect("plays");
    // Two hosts, two switches, two VMs, a directory and two agents.
    assert_eq!(seen.len(), 9, "{seen:?}");
    assert_eq!(traces(), Vec::<String>::new());
    phases.dedup();
    assert_eq!(phases.len(), 4, "building, starting agents, running, tearing down");
    assert_eq!(record.flows[0].octets.len(), 6);
    assert_eq!(record.flows[0].connections.len(), 2);
    assert!(record.flows[0].connections.iter().all(|octets| *octets > 0), "both connections move");
    assert_eq!(record.links.len(), 6);
    assert_eq!(record.idle.len(), 6);
    assert_eq!(record.notes, Vec::<String>::new());
}

#[test]
fn an_agent_is_told_its_vms_its_peers_and_its_constants() {
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("weir-lab-test-{}", std::process::id()));
    let mut options = Options::new(stand_in());
    options.run_dir = Some(directory.clone());
    options.reserve = vec![(0, 1, Rate::from_mbps(45))];
    options.mechanism_set.insert("a".into(), toml::Value::String("7Mbit".into()));
    let translation = Some(Translation::VirtualEcn);
    let mechanism = Mechanism { translation, ..mechanism(ES, "paper") };
    play(&short(), &mechanism, &options, &mut |_| {}, &AtomicBool::new(false)).expect("plays");
    let text = std::fs::read_to_string(directory.join("h0.toml")).expect("is kept");
    for line in [
        "translation = \"virtual-ecn\"",
        "interface = \"up0\"",
        "rate = \"100000000bit\"",
        "scale = 0.1",
        "a = \"7Mbit\"",
        "port = \"p0\"",
        "rate = \"45000000bit\"",
        "listen = \"10.255.0.1:7001\"",
    ] {
        assert!(text.contains(line), "{line} in:\n{text}");
    }
    let text = std::fs::read_to_string(directory.join("h1.toml")).expect("is kept");
    assert!(!text.contains("reserve"), "a sender enforces; vm1 sends nothing");
    std::fs::remove_dir_all(directory).expect("was made");
}

#[test]
fn an_agent_that_the_scenario_kills_is_no_error_and_returns_when_it_says_so() {
    use weir_model::scenario::{Fault, FaultKind};
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("weir-lab-faults-{}", std::process::id()));
    let mut options = Options::new(stand_in());
    options.run_dir = Some(directory.clone());
    let mut scenario = short();
    scenario.duration = Span::from_secs(2);
    scenario.traffic.iter_mut().for_each(|traffic| traffic.stop = Span::from_secs(2));
    let fault = |ms, kind| Fault { at: Span::from_millis(ms), kind };
    scenario.faults = vec![
        fault(200, FaultKind::KillAgent { host: 0, guardian: true }),
        fault(700, FaultKind::StartAgent { host: 0 }),
        fault(800, FaultKind::RestartAgent { host: 1 }),
        fault(1800, FaultKind::KillAgent { host: 0, guardian: false }),
    ];
    let record =
        play(&scenario, &mechanism(ES, "paper"), &options, &mut |_| {}, &AtomicBool::new(false))
            .expect("plays");
    let lives = |host: &str| {
        let log = std::fs::read_to_string(directory.join(host)).expect("a log");
        log.lines().filter(|line| *line == "ready").count()
    };
    assert_eq!((lives("h0.log"), lives("h1.log")), (2, 2));
    assert_eq!(record.notes, Vec::<String>::new());
    std::fs::remove_dir_all(directory).expect("was made");
    assert_eq!(traces(), Vec::<String>::new());
}

#[test]
fn a_vm_that_stops_has_no_port_and_agents_are_told_and_it_comes_back() {
    use weir_model::scenario::{Fault, FaultKind};
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("weir-lab-vms-{}", std::process::id()));
    let mut options = Options::new(stand_in());
    options.run_dir = Some(directory.clone());
    let mut scenario = short();
    scenario.duration = Span::from_secs(3);
    scenario.traffic[0].kind = udp(5.0);
    scenario.traffic[0].stop = Span::from_secs(3);
    let fault = |ms, kind| Fault { at: Span::from_millis(ms), kind };
    scenario.faults =
        vec![fault(1000, FaultKind::StopVm { vm: 1 }), fault(2000, FaultKind::StartVm { vm: 1 })];
    let mut listed = Vec::new();
    let mut look = |_: &weir_lab::Frame| {
        let text = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        let now =
            (text("h1.toml").contains("[[vm]]"), text("directory.yaml").contains("\"id\": 1"));
        listed.push(now);
    };
    for kind in ["none", ES] {
        let never = AtomicBool::new(false);
        let mechanism = mechanism(kind, "paper");
        let record = play(&scenario, &mechanism, &options, &mut look, &never).expect("plays");
        let octets = &record.flows[0].octets;
        // Samples of 100 ms; one more for what was on its way, and for the step itself.
        let part = |from: usize, to: usize| octets[from..to].iter().sum::<u64>();
        assert!(part(2, 9) > 0 && part(22, 30) > 0, "{kind:?}: {octets:?}");
        assert_eq!(part(12, 19), 0, "{kind:?}: {octets:?}");
    }
    listed.dedup();
    let last = listed.split_off(listed.len() - 3);
    assert_eq!(last, [(true, true), (false, false), (true, true)]);
    let log = |host: &str| std::fs::read_to_string(directory.join(host)).expect("a log");
    assert_eq!(log("h0.log"), "ready\n1 VMs here, 1 in all\n1 VMs here, 2 in all\n");
    assert_eq!(log("h1.log"), "ready\n0 VMs here, 1 in all\n1 VMs here, 2 in all\n");
    std::fs::remove_dir_all(directory).expect("was made");
    assert_eq!(traces(), Vec::<String>::new());
}

/// Plays three seconds of UDP in which VM 1 stops after one, so that all agents are told.
fn told_of_a_vm_that_stops(preset: &str) -> weir_model::observed::Observed {
    use weir_model::scenario::{Fault, FaultKind};
    let mut scenario = short();
    scenario.duration = Span::from_secs(3);
    scenario.traffic[0].kind = udp(5.0);
    scenario.traffic[0].stop = Span::from_secs(3);
    scenario.faults = vec![Fault { at: Span::from_secs(1), kind: FaultKind::StopVm { vm: 1 } }];
    let (options, never) = (Options::new(stand_in()), AtomicBool::new(false));
    play(&scenario, &mechanism(ES, preset), &options, &mut |_| {}, &never).expect("plays")
}

#[test]
fn what_was_measured_until_an_agent_died_unasked_is_kept_with_the_reason_and_the_time() {
    let _alone = alone();
    let record = told_of_a_vm_that_stops("mortal");
    let failure = record.failure.expect("an agent died");
    // Both are told and die; which one is seen first is chance.
    let of = |host: u32| {
        failure.why.contains(&format!("the agent of host{host} ended (exit status: 9)"))
    };
    assert!(of(0) || of(1), "{}", failure.why);
    assert_eq!(failure.log, "ready\nno room for this list");
    assert!(failure.at >= Span::from_secs(1), "not before it was told: {}", failure.at);
    let samples = record.flows[0].octets.len();
    assert!((10..30).contains(&samples), "until it died: {samples} samples");
    assert!(record.flows[0].octets.iter().sum::<u64>() > 0);
    assert!(record.links.iter().all(|link| link.octets.len() == samples));
    assert_eq!((record.ends.len(), record.idle.len()), (samples, samples));
    assert_eq!(record.notes, Vec::<String>::new());
    assert_eq!(traces(), Vec::<String>::new());
}

#[test]
fn a_run_in_which_an_agent_refuses_a_list_is_measured_to_its_end_and_says_so() {
    let _alone = alone();
    let record = told_of_a_vm_that_stops("stubborn");
    let failure = record.failure.expect("an agent refused");
    assert!(failure.why.contains("the agent of host0 refused 1 list"), "{}", failure.why);
    assert_eq!(failure.log, "ready\nrefused: a list of VMs that nobody ordered");
    assert!(failure.at >= Span::from_secs(2) && failure.at < Span::from_secs(3), "{}", failure.at);
    assert_eq!(record.flows[0].octets.len(), 30, "the whole run");
    assert_eq!(traces(), Vec::<String>::new());
}

#[test]
fn stopping_at_any_time_leaves_nothing() {
    let _alone = alone();
    for at in 0..14 {
        let stop = AtomicBool::new(false);
        let mut frames = 0;
        let mut watch = |_: &weir_lab::Frame| {
            if frames == at {
                stop.store(true, Ordering::Relaxed);
            }
            frames += 1;
        };
        let mut scenario = short();
        scenario.duration = Span::from_secs(30);
        let options = Options::new(stand_in());
        let result = play(&scenario, &mechanism(ES, "paper"), &options, &mut watch, &stop);
        assert!(matches!(result, Err(Error::Stopped)), "stopped at frame {at}");
        assert_eq!(traces(), Vec::<String>::new(), "stopped at frame {at}");
    }
}

#[test]
fn a_panic_of_the_watcher_leaves_nothing() {
    let _alone = alone();
    let options = Options::new(stand_in());
    let mut watch = |frame: &weir_lab::Frame| assert_ne!(frame.phase, Phase::Running, "on purpose");
    let never = AtomicBool::new(false);
    let result = catch_unwind(AssertUnwindSafe(|| {
        play(&short(), &mechanism(ES, "paper"), &options, &mut watch, &never)
    }));
    assert!(result.is_err(), "the panic is passed on");
    assert_eq!(traces(), Vec::<String>::new());
}

#[test]
fn an_agent_that_is_missing_fails_or_will_not_end_is_dealt_with() {
    let _alone = alone();
    let never = AtomicBool::new(false);
    let go = |agent: &str, preset: &str| {
        play(&short(), &mechanism(ES, preset), &Options::new(agent), &mut |_| {}, &never)
    };
    let missing = go("/nowhere/weir", "paper").expect_err("there is none").to_string();
    assert!(missing.contains("/nowhere/weir") && missing.contains("cargo build"), "{missing}");
    let text = stand_in().into_os_string().into_string().expect("a plain path");
    let refused = go(&text, "refuse").expect_err("it refuses").to_string();
    assert!(refused.contains("host0") && refused.contains("no such feature"), "{refused}");
    let record = go(&text, "deaf").expect("plays");
    assert!(record.notes.iter().any(|note| note.contains("was killed")), "{:?}", record.notes);
    let record = go(&text, "parent").expect("plays");
    assert!(
        record.notes.iter().any(|note| note.contains("left 2 processes")),
        "{:?}",
        record.notes
    );
    assert_eq!(traces(), Vec::<String>::new());
}

/// Names of namespaces and command lines that belong to a run of process `pid`.
fn traces_of(pid: u32) -> (usize, usize) {
    let prefix = format!("weir-{pid}-");
    let named = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let runs = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&prefix)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    (namespaces.map(named).filter(|&b| b).count(), processes.map(runs).filter(|&b| b).count())
}

/// Looks again and again, for at most ten seconds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{what}: not within ten seconds");
}

/// Plays a lab with 19 namespaces and 13 agents, kills it and sweeps; says what was left and what
/// the sweep said.
fn kill_a_lab_and_sweep() -> (usize, Vec<String>) {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/elasticswitch/fig05.yaml");
    let mut lab = std::process::Command::new(stand_in().with_file_name("play"))
        .args([scenario, "--set", "senders=1", "--agent"])
        .arg(stand_in())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the example is built");
    let pid = lab.id();
    // 13 hosts, 2 switches, 4 VMs.
    until("it plays", || traces_of(pid) == (19, 13));
    lab.kill().expect("it lives");
    lab.wait().expect("it ends");
    until("its agents end", || traces_of(pid).1 == 0);
    let (left, _) = traces_of(pid);
    let said = sweep_stale();
    assert_eq!(traces_of(pid), (0, 0), "whoever swept");
    (left, said)
}

#[test]
fn the_agents_of_a_killed_lab_end_and_the_next_one_removes_the_rest_and_says_so() {
    let _alone = alone();
    let mut seen = Vec::new();
    // Another lab on this machine may be faster to sweep; not three times.
    for _ in 0..3 {
        let (left, said) = kill_a_lab_and_sweep();
        if said.iter().any(|line| line.contains("removed 19 namespaces")) {
            assert_eq!(left, 19);
            return;
        }
        seen.push((left, said));
    }
    panic!("never said that 19 namespaces were removed: {seen:?}");
}

#[test]
fn who_is_not_root_is_told_to_become_root_before_anything_is_made() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let _alone = alone();
    // Copies: this tree may lie where others cannot read, as under /root.
    let folder = std::env::temp_dir().join(format!("nobodys-lab-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let fig05 = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/elasticswitch/fig05.yaml");
    let (scenario, play) = (folder.join("fig05.yaml"), folder.join("play"));
    std::fs::copy(fig05, &scenario).unwrap();
    std::fs::copy(stand_in().with_file_name("play"), &play).unwrap();
    let mut command = std::process::Command::new(&play);
    command.arg(&scenario).uid(NOBODY).gid(NOBODY);
    let output = loop {
        match command.output() {
            // A process that another test starts has the copy open for writing, until it executes
            // its own.
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            output => break output.expect("giving up root needs root"),
        }
    };
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the lab needs root"), "{said}");
    assert!(said.contains("run it with sudo"), "{said}");
    assert_eq!(traces(), Vec::<String>::new());
}
