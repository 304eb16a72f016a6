//! What breaks in a scenario: resolved to hosts and times, and each slip named.

use weir_model::scenario::{ControlFault, Error, Fault, FaultKind, File, PortPart, Scenario};
use weir_units::Span;

/// A scenario with these faults, on the sweep's points 0 and 1 of `which`.
fn play(faults: &str) -> Result<Vec<Scenario>, Error> {
    let text = format!(
        "apiVersion: weir/v1alpha1\n\
         kind: Scenario\n\
         metadata: {{name: t}}\n\
         spec:\n  \
           params: {{which: 0}}\n  \
           sweep: {{which: [0, 1]}}\n  \
           duration: 20s\n  \
           topology: {{single-switch: {{hosts: 3, link: 1G}}}}\n  \
           tenants: [{{name: a, vms: [{{name: v, host: host-0}}, {{name: w, host: host-1, count: 2}}]}}]\n  \
           mechanisms: [elasticswitch]\n  \
           faults:\n{faults}"
    );
    File::parse("faults.yaml", &text, &[])?.points()
}

fn faults(text: &str) -> Vec<Fault> {
    play(text).unwrap_or_else(|e| panic!("{e}")).swap_remove(0).faults
}

#[track_caller]
fn refused(text: &str, field: &str, message: &str) {
    let error = play(text).expect_err("a slip");
    assert_eq!(error.field, field, "{error}");
    assert!(error.message.contains(message), "{error}");
    assert!(!error.help.is_empty(), "{error}");
    assert!(error.line() >= 12, "{error}");
}

fn at(seconds: u64, kind: FaultKind) -> Fault {
    Fault { at: Span::from_secs(seconds), kind }
}

#[test]
fn faults_come_in_the_order_of_time_with_their_hosts() {
    let text = "    - {at: 15s, start-agent: host-1}\n    \
                - {at: 10s, kill-agent: [host-0..host-1], guardian: true}\n    \
                - {at: duration / 2 + 1s, restart-agent: host-2}\n";
    let kill = |host| at(10, FaultKind::KillAgent { host, guardian: true });
    let wanted = [
        kill(0),
        kill(1),
        at(11, FaultKind::RestartAgent { host: 2 }),
        at(15, FaultKind::StartAgent { host: 1 }),
    ];
    assert_eq!(faults(text), wanted);
}

#[test]
fn control_messages_suffer_everywhere_and_to_the_end_unless_it_is_said() {
    let text = "    - {at: 0s, control: {loss: 0.1}}\n    \
                - at: 5s\n      control: {hosts: host-2, delay: 5ms, duplicate: 0.5, jitter: 2ms, for: 4s}\n";
    let calm = ControlFault {
        hosts: vec![0, 1, 2],
        loss: 0.1,
        duplicate: 0.0,
        reorder: 0.0,
        delay: Span::ZERO,
        jitter: Span::ZERO,
        until: Span::from_secs(20),
    };
    let late = ControlFault {
        hosts: vec![2],
        loss: 0.0,
        duplicate: 0.5,
        delay: Span::from_millis(5),
        jitter: Span::from_millis(2),
        until: Span::from_secs(9),
        ..calm.clone()
    };
    assert_eq!(faults(text), [at(0, FaultKind::Control(calm)), at(5, FaultKind::Control(late))]);
}

#[test]
fn a_fault_may_happen_at_some_points_only() {
    let text = "    - {at: 10s, kill-agent: host-0, when: which == 0}\n    \
                - {at: 10s, kill-agent: host-1, when: which == 1}\n";
    let points = play(text).unwrap_or_else(|e| panic!("{e}"));
    let hosts: Vec<&FaultKind> = points.iter().map(|p| &p.faults[0].kind).collect();
    let kill = |host| FaultKind::KillAgent { host, guardian: false };
    assert_eq!(hosts, [&kill(0), &kill(1)]);
    assert!(points.iter().all(|p| p.faults.len() == 1));
}

#[test]
fn who_is_dead_cannot_be_killed_and_who_lives_cannot_be_started() {
    let dead = "    - {at: 10s, kill-agent: host-0}\n    - {at: 12s, kill-agent: host-0}\n";
    refused(dead, "spec.faults.1.kill-agent", "at 12 s the agent of host-0 is dead by then");
    let gone = "    - {at: 10s, kill-agent: host-0}\n    - {at: 12s, restart-agent: host-0}\n";
    refused(gone, "spec.faults.1.restart-agent", "the agent of host-0 is dead by then");
    let alive = "    - {at: 12s, start-agent: host-0}\n";
    refused(alive, "spec.faults.0.start-agent", "the agent of host-0 runs already");
    let back = "    - {at: 10s, kill-agent: host-0}\n    - {at: 12s, start-agent: host-0}\n    \
                - {at: 14s, kill-agent: host-0}\n";
    assert_eq!(faults(back).len(), 3);
}

#[test]
fn parts_of_ports_can_break_as_often_as_one_likes() {
    let text = "    - {at: 4s, break-port: [v, w], part: redirection}\n    \
                - {at: 6s, break-port: v, part: name}\n    - {at: 7s, break-port: v, part: name}\n";
    let parts: Vec<(usize, PortPart)> = faults(text)
        .into_iter()
        .map(|fault| match fault.kind {
            FaultKind::BreakPort { vm, part } => (vm, part),
            other => panic!("{other:?}"),
        })
        .collect();
    let (redirection, name) = (PortPart::Redirection, PortPart::Name);
    assert_eq!(parts, [(0, redirection), (1, redirection), (2, redirection), (0, name), (0, name)]);
    let wrong = "    - {at: 4s, break-port: v, part: redirect}\n";
    refused(wrong, "spec.faults.0.part", "a port has no part `redirect`");
    let missing = "    - {at: 4s, break-port: v}\n";
    refused(missing, "spec.faults.0.part", "`part` is missing");
    let beside = "    - {at: 4s, stop-vm: v, part: name}\n";
    refused(beside, "spec.faults.0.part", "`part` beside `stop-vm`");
}

#[test]
fn links_hosts_and_clocks_can_break() {
    let text = "    - {at: 4s, link-down: [host-1, host-2]}\n    \
                - {at: 6s, link-up: host-1}\n    \
                - {at: 7s, pause-host: host-0..host-1, for: 1500ms}\n    \
                - {at: 9s, step-clock: host-2, by: duration / 4}\n";
    let pause = |host| at(7, FaultKind::PauseHost { host, until: Span::from_millis(8500) });
    let wanted = [
        at(4, FaultKind::LinkDown { link: 1 }),
        at(4, FaultKind::LinkDown { link: 2 }),
        at(6, FaultKind::LinkUp { link: 1 }),
        pause(0),
        pause(1),
        at(9, FaultKind::StepClock { host: 2, by: Span::from_secs(5) }),
    ];
    assert_eq!(faults(text), wanted);
    let agents = wanted.iter().filter(|fault| fault.kind.is_of_agents()).count();
    assert_eq!(agents, 1);
}

#[test]
fn a_link_goes_down_and_up_in_turn() {
    let down = "    - {at: 4s, link-down: host-1}\n    - {at: 5s, link-down: host-1}\n";
    refused(down, "spec.faults.1.link-down", "at 5 s the link host-1 is down already");
    let up = "    - {at: 4s, link-up: host-1}\n";
    refused(up, "spec.faults.0.link-up", "at 4 s the link host-1 is up already");
    refused("    - {at: 4s, link-up: core}\n", "spec.faults.0.link-up", "no link `core`");
    // An agent and a link may have one number.
    let both = "    - {at: 4s, link-down: host-0}\n    - {at: 5s, kill-agent: host-0}\n";
    assert_eq!(faults(both).len(), 2);
}

#[test]
fn vms_go_and_come_and_none_twice() {
    let text = "    - {at: 5s, stop-vm: VMS}\n    - {at: 8s, start-vm: VMS}\n";
    let one = |vm: &str| text.replace("VMS", vm);
    let wanted = [at(5, FaultKind::StopVm { vm: 0 }), at(8, FaultKind::StartVm { vm: 0 })];
    assert_eq!(faults(&one("v")), wanted);
    assert_eq!(faults(&one("w")).len(), 4, "a set is all of its VMs");
    let twice = one("w-0") + "    - {at: 6s, stop-vm: w}\n";
    refused(&twice, "spec.faults.2.stop-vm", "at 6 s VM w-0 is gone by then");
    let alive = "    - {at: 5s, start-vm: w-1}\n";
    refused(alive, "spec.faults.0.start-vm", "at 5 s VM w-1 runs already");
    refused("    - {at: 5s, stop-vm: z}\n", "spec.faults.0.stop-vm", "`z`");
}

#[test]
fn each_slip_is_named_with_its_field() {
    let one = |entry: &str| format!("    - {entry}\n");
    refused(&one("{at: 10s, kill-agent: host-9}"), "spec.faults.0.kill-agent", "no host `host-9`");
    refused(&one("{at: 30s, kill-agent: host-0}"), "spec.faults.0.at", "scenario of 20 s is over");
    refused(&one("{at: 10s}"), "spec.faults.0", "has none of `kill-agent`");
    refused(&one("{kill-agent: host-0}"), "spec.faults.0.at", "`at` is missing");
    let guarded = "{at: 10s, restart-agent: host-0, guardian: true}";
    refused(&one(guarded), "spec.faults.0.guardian", "`guardian` beside `restart-agent`");
    let paused = "{at: 10s, link-down: host-0, for: 2s}";
    refused(&one(paused), "spec.faults.0.for", "`for` beside `link-down`");
    refused(&one("{at: 10s, pause-host: host-0}"), "spec.faults.0.for", "`for` is missing");
    let moment = "{at: 10s, pause-host: host-0, for: 0s}";
    refused(&one(moment), "spec.faults.0.for", "a pause of zero");
    let back = "{at: 10s, step-clock: host-0, by: -2s}";
    refused(&one(back), "spec.faults.0.by", "`-2s` is out of range");
    let half = "{at: 10s, kill-agent: host-0, guardian: half}";
    refused(&one(half), "spec.faults.0.guardian", "`half` is neither true nor false");
    let most = "{at: 10s, control: {loss: 1.5}}";
    refused(&one(most), "spec.faults.0.control.loss", "a part of 1.5");
    refused(&one("{at: 1s, control: {for: 5s}}"), "spec.faults.0.control", "does nothing");
    let early = "{at: 10s, control: {delay: 5ms, jitter: 6ms}}";
    refused(&one(early), "spec.faults.0.control.jitter", "6 ms around a delay of 5 ms");
    let alone = "{at: 10s, control: {jitter: 6ms}}";
    refused(&one(alone), "spec.faults.0.control.jitter", "6 ms around a delay of 0");
    let word = "{at: 10s, control: {lose: 0.5}}";
    refused(&one(word), "spec.faults.0.control.lose", "unknown key `lose`");
}

#[test]
fn an_override_reaches_into_a_fault() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios/elasticswitch/control-loss.yaml");
    let set = |key: &str, value: &str| {
        let overrides = [(key.to_string(), value.to_string())];
        let file = File::load(&path, &overrides).unwrap_or_else(|e| panic!("{e}"));
        file.points().unwrap_or_else(|e| panic!("{e}"))
    };
    let loss = |scenario: &Scenario| match &scenario.faults[0].kind {
        FaultKind::Control(control) => control.loss,
        other => panic!("{other:?}"),
    };
    assert_eq!(set("loss", "0.5").iter().map(loss).collect::<Vec<_>>(), [0.5]);
    assert_eq!(
        set("faults.0.control.loss", "0.25").iter().map(loss).max_by(f64::total_cmp),
        Some(0.25)
    );
}
