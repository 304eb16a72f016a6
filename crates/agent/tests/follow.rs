//! Real agents that follow a real controller. Needs root.

use crate::common::controller::{
    Controller, applied, apply, ask, controller, join_host, join_host_with, object, vm,
};
use crate::common::{Agent, StopAtEnd, UPLINK, World, pause, until};
use hyper::Method;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_controller::clock::Clock;
use weir_controller::tls::Authority;
use weir_rpc::client::draw_key;
use weir_rpc::home::Home;
use weir_rpc::identity::Identity;

/// How long the controller is away, seconds. `scripts/test-long` asks for ten minutes by `WEIR_AWAY`.
const AWAY: u64 = 6;

/// While VM 1 sends, until host 1 has this floor for the pair, in Mbit/s, or nearly: what is on the wire
/// counts with its headers.
fn until_floor(world: &World, sender: &Agent<'_>, mbit: u64) {
    let (from, _sink) = (world.udp(1), world.udp(2));
    let wanted = mbit * 1_000_000;
    until(&format!("a floor of {mbit} Mbit/s"), 60, || {
        for _ in 0..200 {
            from.send_to(&[0xff; 1400], "10.0.0.2:9000").unwrap();
        }
        sender.try_top().is_ok_and(|top| {
            top.pairs.iter().any(|pair| {
                pair.from == "a" && pair.floor_bps > wanted * 9 / 10 && pair.floor_bps <= wanted
            })
        })
    });
}

/// Packets that passed the queue of a tenant of its own at the switch's port toward host 2.
fn passed(world: &World) -> u64 {
    let text = world.tc("switch", "-s class show dev sw2");
    // Queue 0, which is shared, is 5745:10.
    let of = text.lines().skip_while(|line| !line.starts_with("class htb 5745:11 ")).nth(1);
    of.map_or(0, |line| line.split_whitespace().nth(3).unwrap().parse().unwrap())
}

#[test]
fn a_busy_tenants_packets_use_its_own_queues_as_the_controller_says_and_leave_them() {
    let world = World::new();
    let running = controller(&world);
    let host = json!({"switch": "tor", "rate": format!("{UPLINK}Mbit"), "slots": 10});
    let ports = json!([{"name": "sw1", "host": "host1"}, {"name": "sw2", "host": "host2"}]);
    let address = format!("/run/netns/{}", world.ns("switch"));
    let queues = json!({"codePoints": [10, 12], "interval": "1s"});
    apply(
        &world,
        json!([
            object("Topology", "default", json!({ "queues": queues })),
            object("Host", "host1", host.clone()),
            object("Host", "host2", host),
            object(
                "Switch",
                "tor",
                json!({"driver": "linux-tc", "address": address, "ports": ports})
            ),
            object("Tenant", "t", json!({})),
        ]),
    );
    [1, 2].iter().for_each(|n| join_host_with(&world, *n, "code_points = [10, 12]"));
    let agents = [world.start(1), world.start(2)];
    apply(&world, json!([vm("a", 1, "port", 20), vm("b", 2, "port", 20)]));
    until("both are applied", 60, || ["a", "b"].iter().all(|vm| applied(&world, vm).0 == "True"));
    let (from, to) = (world.udp(1), world.udp(2));
    to.set_nonblocking(true).unwrap();
    let send = || {
        for _ in 0..200 {
            from.send_to(&[0xff; 1400], "10.0.0.2:9000").unwrap();
        }
        while to.recv(&mut [0; 1500]).is_ok() {}
    };
    until("its packets have a queue of their own", 60, || {
        send();
        passed(&world) > 100
    });
    let tenant = || agents.iter().map(|agent| agent.top().tenants.remove(0));
    until("both hosts tag", 60, || {
        send();
        tenant().all(|told| told.code_point == 10)
    });
    // With the controller away all stays as it is.
    running.stop();
    let before = passed(&world);
    until("packets pass there", 60, || {
        send();
        passed(&world) > before + 100
    });
    let running = Controller::start(&world);
    apply(&world, json!([object("Tenant", "t", json!({"queue": "excluded"}))]));
    until("its queue is gone", 60, || {
        send();
        !world.tc("switch", "class show dev sw2").contains("5745:11 ")
    });
    assert!(tenant().all(|told| told.code_point == 0), "no host tags");
    agents.into_iter().for_each(Agent::stop);
    running.stop();
}

/// A controller with two hosts that have joined, and VM a on the first, VM b on the second.
fn begin(world: &World) -> (Controller, [Agent<'_>; 2]) {
    let running = controller(world);
    let host = json!({"switch": "tor", "rate": format!("{UPLINK}Mbit"), "slots": 10});
    apply(
        world,
        json!([
            object("Host", "host1", host.clone()),
            object("Host", "host2", host),
            object("Tenant", "t", json!({})),
        ]),
    );
    [1, 2].iter().for_each(|n| join_host(world, *n));
    let agents = [world.start(1), world.start(2)];
    apply(world, json!([vm("a", 1, "port", 20), vm("b", 2, "port", 20)]));
    until("both are applied", 60, || ["a", "b"].iter().all(|vm| applied(world, vm).0 == "True"));
    until_floor(world, &agents[0], 20);
    (running, agents)
}

/// A pair that sends nothing for a second is over. Where the machine stops the sender for part of that, the
/// pair may begin anew, and what it has then does not say whether it kept its floor.
const STOPPED: Duration = Duration::from_millis(500);

/// Sends until it is told to stop, whatever agents do meanwhile.
fn send(from: &UdpSocket, done: &AtomicBool, was_stopped: &AtomicBool) {
    let (clock, mut last) = (Clock::start(), Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..50 {
            from.send_to(&[0xff; 1400], "10.0.0.2:9000").unwrap();
        }
        pause(50);
        let gap = clock.running() - std::mem::replace(&mut last, clock.running());
        if gap > STOPPED {
            was_stopped.store(true, Ordering::Relaxed);
        }
    }
}

/// While VM 1 sends for `seconds`, host 1 has this floor for the pair at every look.
#[track_caller]
fn holds_floor(world: &World, sender: &Agent<'_>, mbit: u64, seconds: u64) {
    until_floor(world, sender, mbit);
    let (from, _sink) = (world.udp(1), world.udp(2));
    let (done, was_stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    let wanted = mbit * 1_000_000;
    let look = || {
        let pairs = sender.try_top().ok()?.pairs;
        Some(pairs.iter().find(|pair| pair.from == "a").map_or(0, |pair| pair.floor_bps))
    };
    let holds = |floor| floor > wanted * 9 / 10 && floor <= wanted;
    let clock = Clock::start();
    std::thread::scope(|scope| {
        let _end = StopAtEnd(&done);
        scope.spawn(|| send(&from, &done, &was_stopped));
        while clock.running() < Duration::from_secs(seconds) {
            pause(50);
            // An agent that is late with its answer keeps its floors all the same: the next look tells.
            let Some(floor) = look().filter(|floor| !holds(*floor)) else { continue };
            let after = clock.running();
            let begins_anew = was_stopped.swap(false, Ordering::Relaxed);
            let why = sender.try_explain();
            assert!(begins_anew, "after {after:?}: {floor} bit/s, not {mbit} Mbit/s: {why:?}");
            until("the pair has its floor again", 60, || look().is_some_and(holds));
        }
        until("the floor is there at the end", 60, || look().is_some_and(holds));
    });
}

/// Gives a host a certificate that ends soon. It has a key of its own.
fn shorten(world: &World, n: u32, millis: u64) {
    let home = Home::new(world.dir.join(format!("state{n}")));
    let data = world.dir.join("data");
    let (key, roots) = (data.join("ca.key"), data.join("ca.crt"));
    let authority = Authority::read(&key, &roots, Vec::new()).unwrap();
    let until = Clock::start().now().plus_millis(millis);
    let identity = Identity { until, ..home.proof().unwrap().unwrap().identity };
    let (own, _) = draw_key().unwrap();
    let signed = authority.sign_host(Clock::start().now(), &own, &identity).unwrap();
    home.keep_proof(&own.serialize_pem(), &signed, authority.roots()).unwrap();
}

#[test]
fn floors_hold_while_the_controller_is_away_and_beyond_the_end_of_a_certificate() {
    let away = std::env::var("WEIR_AWAY").map_or(AWAY, |text| text.parse().unwrap());
    let world = World::new();
    let (running, [first, second]) = begin(&world);
    running.stop();
    // The certificate of host 1 ends meanwhile, and both agents start from their disks.
    shorten(&world, 1, 3_000);
    first.kill();
    let first = world.start(1);
    holds_floor(&world, &first, 20, away / 2);
    second.kill();
    let second = world.start(2);
    holds_floor(&world, &first, 20, away.div_ceil(2));

    // Host 2 follows again. Host 1 hears of nothing, and keeps its floor.
    let running = Controller::start(&world);
    apply(&world, json!([vm("a", 1, "port", 30), vm("b", 2, "port", 30)]));
    until("host 2 is told", 60, || applied(&world, "b").0 == "True");
    holds_floor(&world, &first, 20, 3);
    assert_eq!(applied(&world, "a").1, "HostSilent");
    join_host(&world, 1);
    until_floor(&world, &first, 30);
    [first, second].into_iter().for_each(Agent::stop);
    running.stop();
}

#[test]
fn agents_join_get_floors_hold_them_without_their_controller_and_follow_again() {
    let world = World::new();
    let (running, agents) = begin(&world);

    // A port that is not there: the host refuses, says why, and keeps what it has.
    let mut other = vm("c", 1, "nowhere", 1);
    other["spec"]["network"]["addresses"] = json!(["10.0.0.3"]);
    apply(&world, json!([other]));
    until("the refusal is told", 60, || applied(&world, "c").1 == "NotTakenUp");
    let (status, _, message) = applied(&world, "c");
    assert!(
        status == "False" && message.contains("`nowhere`, which is not on this host"),
        "{message}"
    );
    until_floor(&world, &agents[0], 20);
    ask(&world, Method::DELETE, "vms/c", &Value::Null);

    // The controller dies, and so do the agents: they start from their own disks.
    until("a and b are in force again", 60, || {
        ["a", "b"].iter().all(|vm| applied(&world, vm).0 == "True")
    });
    running.stop();
    agents.into_iter().for_each(Agent::kill);
    let agents = [world.start(1), world.start(2)];
    until_floor(&world, &agents[0], 20);

    let running = Controller::start(&world);
    apply(&world, json!([vm("a", 1, "port", 30), vm("b", 2, "port", 30)]));
    until_floor(&world, &agents[0], 30);

    // Both are in a hose of their own now: what they send each other is counted there.
    let hosed = |name: &str, n: u32, out: &str, into: &str| {
        let mut vm = vm(name, n, "port", 30);
        let floor = json!({"out": out, "in": into});
        vm["spec"]["hoses"] = json!([{"name": "web-db", "floor": floor}]);
        vm
    };
    apply(&world, json!([hosed("a", 1, "10Mbit", "0bit"), hosed("b", 2, "0bit", "40Mbit")]));
    until_floor(&world, &agents[0], 10);
    until("both hosts enforce the hose", 60, || {
        ["a", "b"].iter().all(|vm| applied(&world, vm).0 == "True")
    });
    let top = agents[0].try_top().expect("it runs");
    let pair = top.pairs.iter().find(|pair| pair.from == "a").expect("it sends");
    assert_eq!(pair.hose.as_deref(), Some("web-db"));
    // Without the hose the pair has its tenant's again.
    apply(&world, json!([vm("a", 1, "port", 30), vm("b", 2, "port", 30)]));
    until_floor(&world, &agents[0], 30);
    agents.into_iter().for_each(Agent::stop);
    running.stop();
}

/// Host 1 with this mode, or with the one that it has.
fn apply_host(world: &World, mode: Option<&str>) {
    let rate = format!("{UPLINK}Mbit");
    let spec = json!({"switch": "tor", "rate": rate, "slots": 10, "mode": mode});
    apply(world, json!([object("Host", "host1", spec)]));
}

/// What tells an agent ports: libvirt's hook does it in this way.
fn hand_over(world: &World, text: Option<&str>) {
    let folder = world.dir.join("run/host2/vms.d");
    std::fs::create_dir_all(&folder).unwrap();
    match text {
        Some(text) => {
            std::fs::write(folder.join("new"), text).unwrap();
            std::fs::rename(folder.join("new"), folder.join("b.toml")).unwrap();
        }
        None => std::fs::remove_file(folder.join("b.toml")).unwrap(),
    }
}

#[test]
fn a_vm_of_the_controller_without_a_port_takes_the_one_that_is_handed_over() {
    let world = World::new();
    let running = controller(&world);
    let host = json!({"switch": "tor", "rate": format!("{UPLINK}Mbit"), "slots": 10});
    apply(
        &world,
        json!([
            object("Host", "host1", host.clone()),
            object("Host", "host2", host),
            object("Tenant", "t", json!({})),
        ]),
    );
    [1, 2].iter().for_each(|n| join_host(&world, *n));
    let [one, two] = [world.start(1), world.start(2)];
    let mut portless = vm("b", 2, "", 20);
    portless["spec"]["network"]["port"].take();
    apply(&world, json!([vm("a", 1, "port", 20), portless]));
    let is_gone = |agent: &Agent<'_>| {
        let gone = agent.top().gone;
        matches!(&gone[..], [gone] if gone.vm == "b" && gone.port.is_empty())
    };
    // Its guest does not run yet, and keeps nothing else of its tenant from the host.
    until("it is taken up without a port", 30, || applied(&world, "b").0 == "True");
    assert!(is_gone(&two), "{}", two.log());
    // Floors are the controller's, whatever is handed over.
    let port =
        "[[vm]]\nname = \"b\"\nport = \"port\"\nfloor_out = \"1Mbit\"\nfloor_in = \"1Mbit\"\n";
    hand_over(&world, Some(port));
    until("it is guarded", 5, || two.top().gone.is_empty());
    until_floor(&world, &one, 20);
    // Its guest stops: the VM is gone, and the next agent starts without its port.
    hand_over(&world, None);
    until("it is gone", 5, || is_gone(&two));
    two.stop();
    let two = world.start(2);
    assert!(is_gone(&two), "{}", two.log());
    hand_over(&world, Some(port));
    until("it is back", 5, || two.top().gone.is_empty());
    until_floor(&world, &one, 20);
    one.stop();
    two.stop();
    running.stop();
}

#[test]
fn the_controller_says_whether_a_host_enforces_and_its_word_lasts() {
    let world = World::new();
    let (running, [first, second]) = begin(&world);
    let host = |mode: Option<&str>| apply_host(&world, mode);
    until_floor(&world, &first, 20);
    assert!(!first.top().observing, "its file says nothing else");
    // A canary the other way: one of two hosts.
    host(Some("observe"));
    until("host 1 observes", 60, || first.try_top().is_ok_and(|top| top.observing));
    assert!(!second.top().observing);
    // A document that does not name the mode does not change it.
    host(None);
    let told = ask(&world, Method::GET, "hosts/host1", &Value::Null);
    assert_eq!(told["spec"]["mode"], "observe");
    let file = world.dir.join("host1.toml");
    // It is on the disk in a moment.
    until("its file does not decide", 60, || {
        let refused = weir_agent::set_mode(&file, weir_model::agent::Mode::Enforce);
        refused.is_err_and(|why| why.to_string().contains("weir host mode"))
    });
    // It is the same for the next agent while the controller is away.
    running.stop();
    first.stop();
    let first = world.start(1);
    assert!(first.top().observing);
    let running = Controller::start(&world);
    host(Some("enforce"));
    until("host 1 enforces", 60, || first.try_top().is_ok_and(|top| !top.observing));
    until_floor(&world, &first, 20);
    // Without the controller's word the file's is in force at once, also if it was changed by hand meanwhile.
    let text = std::fs::read_to_string(&file).unwrap();
    let other =
        text.lines().filter(|line| !line.starts_with("mode = ")).map(|line| format!("{line}\n"));
    std::fs::write(&file, format!("mode = \"observe\"\n{}", other.collect::<String>())).unwrap();
    host(Some("file"));
    until("its file decides", 60, || first.try_top().is_ok_and(|top| top.observing));
    until("its file is changed", 60, || {
        weir_agent::set_mode(&file, weir_model::agent::Mode::Enforce).is_ok()
    });
    until("host 1 enforces again", 60, || first.try_top().is_ok_and(|top| !top.observing));
    [first, second].into_iter().for_each(Agent::stop);
    running.stop();
}

#[test]
fn a_mode_that_a_host_refuses_does_not_keep_its_next_agent_from_starting() {
    let world = World::new();
    let running = controller(&world);
    let host = |mode: Option<&str>| apply_host(&world, mode);
    host(None);
    join_host(&world, 1);
    // EyeQ's receivers speak through ports of VMs: it cannot only observe.
    let file = world.dir.join("host1.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let mechanism = format!(
        "{{ name = \"eyeq\", preset = \"final\", set = {{ feedback_unit = \"10kbit\", fastest_line = \
         \"{UPLINK}Mbit\" }} }}"
    );
    let before = "{ name = \"elasticswitch\", set = { scale = 0.1 } }";
    assert!(text.contains(before));
    std::fs::write(&file, text.replace(before, &mechanism)).unwrap();
    let agent = world.start(1);
    host(Some("observe"));
    until("it refuses", 60, || agent.log().contains("the controller's mode is not taken up"));
    running.stop();
    agent.stop();
    let agent = world.start(1);
    assert!(!agent.top().observing);
    agent.stop();
}
