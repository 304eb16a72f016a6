//! Tenants bound to queues of real Linux boxes, by a real controller, with agents that take up what they
//! are told.
//!
//! The cloud: two hosts of 100 Mb/s at one switch, `tor`, with the ports `swp0` and `swp1` in a namespace
//! of its own.

use crate::agents::etcd_server::Etcd;
use crate::harness::{Controller, Folder, done, object};
use crate::hosts::{Agent, apply, condition, joined, until, vm};
use hyper::Method;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_controller::binding::{Drivers, LIMIT, Real};
use weir_core::binding::switch::SwitchConfig;
use weir_model::objects::SwitchSpec;
use weir_rpc::client::desk::Report;
use weir_rpc::home::Home;
use weir_rpc::messages::{Queue, Used};
use weir_switch::object::{Around, open};
use weir_switch::{Driver, Failed, Found, Outcome, Owner, Plan, Saves, Step, Why};
use weir_units::{Rate, SortedMap};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace: it lasts as long as its thread.
struct Tor {
    path: String,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    folder: Folder,
}

impl Tor {
    fn new() -> Self {
        let (jobs, todo) = channel::<Job>();
        let (say, told) = channel();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
            let path =
                format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
            say.send(path).expect("it waits");
            todo.into_iter().for_each(|job| job());
        });
        let path = told.recv().expect("a path");
        let made = Self { path, jobs: Some(jobs), thread: Some(thread), folder: Folder::new() };
        for port in ["swp0", "swp1"] {
            made.sh(&format!("ip link add {port} type veth peer name p{port}"));
            made.sh(&format!("ip link set {port} up"));
        }
        made
    }

    /// Does something in the namespace.
    fn inside<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let (say, told) = channel();
        let job: Job = Box::new(move || drop(say.send(act())));
        self.jobs.as_ref().expect("until the end").send(job).expect("it works");
        told.recv().expect("it did not panic")
    }

    fn sh(&self, line: &str) -> String {
        let line = line.to_owned();
        self.inside(move || sh(&line))
    }

    fn driver(&self, owner: &str) -> impl FnOnce() -> Box<dyn Driver> + use<> {
        let (owner, saves) = (owner.to_owned(), Saves::new(&self.folder.0, "test"));
        move || {
            let spec: SwitchSpec =
                serde_json::from_value(switch(None)["spec"].clone()).expect("ok");
            let rate = Rate::from_mbps(100);
            let around = Around {
                rates: ["swp0", "swp1"].map(|port| (port.into(), rate)).into(),
                code_points: [10, 12].into(),
                owner: Owner::new(&owner).expect("a name"),
                saves,
                limit: Duration::from_secs(20),
            };
            open(&spec, around).expect("a socket")
        }
    }

    /// What the switch has.
    fn config(&self) -> SwitchConfig {
        let driver = self.driver("test");
        self.inside(|| driver().read().expect("it answers").config)
    }

    /// Code points with a queue of their own on each port.
    fn bound(&self) -> SortedMap<String, Vec<u8>> {
        let config = self.config();
        let of = |(name, port): (&weir_core::binding::switch::PortName, &_)| {
            let port: &weir_core::binding::switch::PortQueues = port;
            (name.to_string(), port.queue_of.keys().copied().collect())
        };
        config.ports.iter().map(of).collect()
    }

    fn is_bound(&self, point: u8) -> bool {
        let bound = self.bound();
        bound.len() == 2 && bound.values().all(|points| points.contains(&point))
    }

    fn is_clear(&self) -> bool {
        self.bound().values().all(Vec::is_empty)
    }

    /// As a reboot: queues and marks are gone.
    fn reboot(&self) {
        for port in ["swp0", "swp1"] {
            let line = format!("tc qdisc del dev {port} root");
            self.inside(move || drop(Command::new("sh").args(["-c", &line]).output()));
            let shown = self.sh(&format!("ip link show dev {port}"));
            for name in shown.split_whitespace().filter(|word| word.starts_with("weir.")) {
                self.sh(&format!("ip link property del dev {port} altname {name}"));
            }
        }
    }
}

impl Drop for Tor {
    fn drop(&mut self) {
        self.jobs.take();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

#[track_caller]
fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output();
    let output = output.expect("it can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error} (these tests need root)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The switch as an object.
fn switch(address: Option<&str>) -> Value {
    let ports = json!([{"name": "swp0", "host": "h0"}, {"name": "swp1", "host": "h1"}]);
    let mut spec = json!({"driver": "linux-tc", "ports": ports, "queues": 3});
    if let Some(address) = address {
        spec["address"] = address.into();
    }
    object("Switch", "tor", spec)
}

fn topology(more: &[(&str, Value)]) -> Value {
    let mut queues = json!({"codePoints": [10, 12], "interval": "1s"});
    for (key, value) in more {
        queues[*key] = value.clone();
    }
    object("Topology", "default", json!({"queues": queues}))
}

fn tenant(name: &str, wish: &str) -> Value {
    object("Tenant", name, json!({"queue": wish}))
}

/// What happens to the calls of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A write takes longer than anybody waits.
    Late,
    /// A write does one port of two.
    Half,
    /// After a write it has nothing any more.
    Reboot,
    /// It has two queues, whatever it was said to have.
    Poor,
}

#[derive(Clone)]
struct Faulty {
    fault: Arc<Mutex<Fault>>,
    writes: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

impl Faulty {
    fn new() -> Self {
        Self {
            fault: Arc::new(Mutex::new(Fault::None)),
            writes: Arc::default(),
            reads: Arc::default(),
        }
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock().expect("nobody panics") = fault;
    }

    fn get(&self) -> Fault {
        *self.fault.lock().expect("nobody panics")
    }

    /// Waits until the switch was read so often again: an interval each.
    #[track_caller]
    fn until_read(&self, more: usize) {
        let reads = || self.reads.load(Ordering::Relaxed);
        let before = reads();
        until("the switch is read again", || reads() >= before + more);
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Drivers for Faulty {
    fn open(
        &self,
        name: &str,
        spec: &SwitchSpec,
        around: Around,
    ) -> Result<Box<dyn Driver>, String> {
        let inner = Real.open(name, spec, around)?;
        Ok(Box::new(FaultyDriver { inner, faulty: self.clone() }))
    }
}

struct FaultyDriver {
    inner: Box<dyn Driver>,
    faulty: Faulty,
}

impl Driver for FaultyDriver {
    fn read(&mut self) -> Result<Found, Failed> {
        self.faulty.reads.fetch_add(1, Ordering::Relaxed);
        let mut found = self.inner.read()?;
        if self.faulty.get() == Fault::Poor {
            found.able.ports.values_mut().for_each(|port| port.queues = 2);
        }
        Ok(found)
    }

    fn plan(&mut self, wanted: &SwitchConfig) -> Result<Plan, Failed> {
        self.inner.plan(wanted)
    }

    #[expect(clippy::disallowed_methods, reason = "a switch that is late")]
    fn apply(&mut self, wanted: &SwitchConfig) -> Outcome {
        self.faulty.writes.fetch_add(1, Ordering::Relaxed);
        match self.faulty.get() {
            Fault::None | Fault::Poor => self.inner.apply(wanted),
            Fault::Late => {
                std::thread::sleep(2 * LIMIT);
                Outcome::Failed(Failed::new(Step::Read, Why::Late))
            }
            Fault::Half => {
                let mut half = wanted.clone();
                let last = half.ports.keys().next_back().cloned();
                half.ports.remove(&last.expect("it has ports"));
                drop(self.inner.apply(&half));
                Outcome::Failed(Failed::new(Step::Read, Why::Late))
            }
            Fault::Reboot => {
                let outcome = self.inner.apply(wanted);
                // This thread is in the switch's namespace.
                for port in ["swp0", "swp1"] {
                    sh(&format!("tc qdisc del dev {port} root"));
                }
                outcome
            }
        }
    }

    fn rollback(&mut self) -> Outcome {
        self.inner.rollback()
    }
}

/// A controller, its switch, and two hosts whose tenants are busy if a test says so.
struct World {
    tor: Tor,
    faulty: Faulty,
    controller: Controller,
    agents: Vec<Agent>,
    busy: Arc<Mutex<SortedMap<String, u64>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _folder: Folder,
}

impl World {
    /// gold has a VM on each host, and uses what it has.
    fn new(queues: &[(&str, Value)], code_points: &[u8]) -> Self {
        Self::with(queues, code_points, true)
    }

    fn with(queues: &[(&str, Value)], code_points: &[u8], has_switch: bool) -> Self {
        let faulty = Faulty::new();
        let drivers = Arc::new(faulty.clone());
        let controller = Controller::with_drivers(|_| {}, |store| Box::new(store), drivers);
        let servers = controller.server.clone();
        Self::of(controller, &servers, faulty, queues, code_points, has_switch)
    }

    fn of(
        controller: Controller,
        servers: &str,
        faulty: Faulty,
        queues: &[(&str, Value)],
        code_points: &[u8],
        has_switch: bool,
    ) -> Self {
        let (tor, folder) = (Tor::new(), Folder::new());
        let host = |name: &str| {
            object("Host", name, json!({"switch": "tor", "rate": "100Mbit", "slots": 9}))
        };
        let mut items = vec![topology(queues), host("h0"), host("h1"), tenant("gold", "auto")];
        if has_switch {
            items.push(switch(Some(&tor.path)));
        }
        apply(&controller, json!({"items": items}));
        let homes: Vec<Home> =
            ["h0", "h1"].iter().map(|host| joined(&controller, &folder.0, host)).collect();
        let start = |(n, home): (usize, &Home)| {
            Agent::start_with(servers, home, n, code_points, |follower| follower)
        };
        let agents: Vec<Agent> = homes.iter().enumerate().map(start).collect();
        apply(&controller, json!({"items": [vm("a", "h0", "20Mbit"), vm("b", "h1", "20Mbit")]}));
        let busy = Arc::new(Mutex::new(SortedMap::from([("gold".to_owned(), 2_500_000)])));
        let stop = Arc::new(AtomicBool::new(false));
        let count = |agent: &Agent| {
            let (desk, busy, stop) =
                (Arc::clone(&agent.desk), Arc::clone(&busy), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut at_ms, mut used) = (1, SortedMap::<String, u64>::new());
                while !stop.load(Ordering::Relaxed) {
                    for (tenant, per_second) in &*busy.lock().expect("nobody panics") {
                        *used.entry(tenant.clone()).or_default() += per_second / 20;
                    }
                    let of = |(tenant, sent): (&String, &u64)| Used {
                        tenant: tenant.clone(),
                        sent: *sent,
                        received: *sent,
                    };
                    let told = desk.usage_every_ms() > 0;
                    if told {
                        desk.report(Report { at_ms, used: used.iter().map(of).collect() });
                    }
                    at_ms += 50;
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            })
        };
        let threads = agents.iter().map(count).collect();
        Self { tor, faulty, controller, agents, busy, stop, threads, _folder: folder }
    }

    fn uses(&self, tenants: &[(&str, u64)]) {
        let of = |(name, used): &(&str, u64)| ((*name).to_owned(), *used);
        *self.busy.lock().expect("nobody panics") = tenants.iter().map(of).collect();
    }

    /// As an operator, by `weir switch apply`.
    #[track_caller]
    fn provision(&self, text: &str) {
        let driver = self.tor.driver("operator");
        let wanted = weir_switch::file::wanted(text).expect("sound");
        let applied = self.tor.inside(move || driver().apply(&wanted));
        assert!(matches!(applied, Outcome::Applied(_)), "{applied:?}");
    }

    fn queues(&self, tenant: &str) -> Vec<Option<Queue>> {
        self.agents.iter().map(|agent| agent.queue(tenant)).collect()
    }

    /// All hosts tag, and limit the tenant no longer.
    fn is_free(&self, tenant: &str, point: u32) -> bool {
        let is = |queue: Option<Queue>| queue.is_some_and(|q| q.code_point == point && q.free);
        self.queues(tenant).into_iter().all(is)
    }

    /// No host tags.
    fn is_shared(&self, tenant: &str) -> bool {
        let is = |queue: Option<Queue>| queue.is_none_or(|q| q.code_point == 0 && !q.free);
        self.queues(tenant).into_iter().all(is)
    }

    fn condition(&self, path: &str, name: &str) -> (String, String) {
        let condition = condition(&self.controller, path, name);
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    fn reason(&self, path: &str, name: &str) -> String {
        self.condition(path, name).0
    }

    fn is_clamped(&self) -> bool {
        let all = self.queues("gold");
        all.iter().flatten().all(|queue| queue.code_point == 10 && !queue.free)
    }

    /// gold is to give its queues back. h1 takes the clamp up, and does not answer: the loop waits for it.
    fn stop_in_the_middle(&self) {
        self.agents[1].is_mute.store(true, Ordering::Relaxed);
        apply(&self.controller, json!({"items": [tenant("gold", "excluded")]}));
        until("both are clamped", || self.is_clamped());
    }

    /// Another controller leaves all as it is until h1 answers.
    fn goes_on(&self) {
        self.faulty.until_read(3);
        assert!(self.tor.is_bound(10) && self.is_clamped(), "a host has not answered");
        self.agents[1].is_mute.store(false, Ordering::Relaxed);
        until("it goes on", || self.is_shared("gold") && self.tor.is_clear());
        until("it is said", || self.reason("tenants/gold", "Queue") == "Excluded");
    }

    fn until_dedicated(&self) {
        until("gold has queues of its own", || self.is_free("gold", 10) && self.tor.is_bound(10));
        until("the object says so", || self.reason("tenants/gold", "Queue") == "Dedicated");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.agents.iter().for_each(|agent| agent.is_mute.store(false, Ordering::Relaxed));
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

const POINTS: [u8; 2] = [10, 12];

#[test]
fn a_tenant_gets_queues_before_hosts_tag_and_gives_them_back_after() {
    let world = World::new(&[], &POINTS);
    world.until_dedicated();
    until("it is said", || world.reason("switches/tor", "Ready") == "AsWanted");
    until("it is said", || world.reason("topologies/default", "Queues") == "Bound");
    let versions = |world: &World| world.queues("gold")[0].as_ref().map(|queue| queue.version);
    let before = versions(&world);
    assert!(before > Some(1_000_000_000_000), "versions begin with the calendar");
    // The weight of its queue is its own and the shared one holds the rest.
    let config = world.tor.config();
    assert!(config.ports.values().all(|port| port.weights.len() == 2), "{config:?}");
    apply(&world.controller, json!({"items": [tenant("gold", "excluded")]}));
    until("no host tags, and no queue is left", || world.is_shared("gold") && world.tor.is_clear());
    until("the object says so", || world.reason("tenants/gold", "Queue") == "Excluded");
    assert!(versions(&world) > before);
    // Nothing is wanted any more: the loop ends, and a pinned tenant has none.
    apply(&world.controller, json!({"items": [tenant("gold", "pinned")]}));
    world.until_dedicated();
    apply(&world.controller, json!({"items": [object("Topology", "default", json!({}))]}));
    until("all is given back", || world.is_shared("gold") && world.tor.is_clear());
    until("agents are asked no more", || {
        world.agents.iter().all(|agent| agent.desk.usage_every_ms() == 0)
    });
}

#[test]
fn a_switch_that_is_late_keeps_its_tenants_in_the_shared_queue_and_says_so() {
    let world = World::with(&[], &POINTS, false);
    world.faulty.set(Fault::Late);
    apply(&world.controller, json!({"items": [switch(Some(&world.tor.path))]}));
    until("it is said", || world.reason("switches/tor", "Ready") == "Failed");
    // What becomes of its tenants is written after that.
    // Each new attempt says at first that switches and hosts are told: read reason and message at once.
    until("it is said with the switch's name", || {
        let (reason, message) = world.condition("tenants/gold", "Queue");
        reason == "SwitchFailed" && message.contains("switch `tor`")
    });
    assert_eq!(world.queues("gold"), [None, None], "no host heard of it");
    world.faulty.set(Fault::None);
    world.until_dedicated();
    until("it is said", || world.reason("switches/tor", "Ready") == "AsWanted");
}

#[test]
fn a_switch_that_does_half_of_a_change_is_read_before_the_next_one() {
    let world = World::with(&[], &POINTS, false);
    world.faulty.set(Fault::Half);
    apply(&world.controller, json!({"items": [switch(Some(&world.tor.path))]}));
    until("half is done", || world.tor.bound().values().any(|points| points.contains(&10)));
    until("it is said", || world.reason("tenants/gold", "Queue") == "SwitchFailed");
    assert!(!world.tor.is_bound(10));
    assert_eq!(world.queues("gold"), [None, None], "no host heard of it");
    world.faulty.set(Fault::None);
    world.until_dedicated();
}

#[test]
fn a_switch_that_reboots_between_two_steps_and_one_that_drifts_are_mended() {
    let world = World::with(&[], &POINTS, false);
    world.faulty.set(Fault::Reboot);
    apply(&world.controller, json!({"items": [switch(Some(&world.tor.path))]}));
    until("it was written to", || world.faulty.writes() > 0);
    world.faulty.set(Fault::None);
    world.until_dedicated();
    // Later, of itself.
    let before = world.faulty.writes();
    world.tor.reboot();
    until("it is mended", || world.faulty.writes() > before && world.tor.is_bound(10));
    until("it is said", || world.reason("switches/tor", "OthersChanges") == "Mended");
    // What is others' stays.
    world.tor.sh("tc class add dev swp0 parent 5745:1 classid 5745:77 htb rate 8kbit");
    let writes = world.faulty.writes();
    world.faulty.until_read(3);
    assert!(world.tor.sh("tc class show dev swp0").contains("5745:77"));
    assert_eq!(world.faulty.writes(), writes, "nothing was to be written");
}

#[test]
fn a_controller_that_dies_between_make_and_break_goes_on_from_what_is_there() {
    let mut world = World::new(&[], &POINTS);
    world.until_dedicated();
    // In peace a restart changes nothing.
    let (config, queues) = (world.tor.config(), world.queues("gold"));
    let writes = world.faulty.writes();
    world.controller.stop();
    world.controller.restart();
    until("agents are asked again", || {
        world.agents.iter().all(|agent| agent.desk.usage_every_ms() > 0)
    });
    world.faulty.until_read(3);
    assert_eq!((world.tor.config(), world.queues("gold")), (config, queues));
    assert_eq!(world.faulty.writes(), writes);

    world.stop_in_the_middle();
    world.controller.stop();
    assert!(world.tor.is_bound(10), "hosts tag still");
    world.controller.restart();
    world.goes_on();
}

#[test]
fn a_controller_that_takes_over_while_queues_change_goes_on_from_what_is_there() {
    let (etcd, faulty) = (Etcd::start(), Faulty::new());
    let first = Controller::on_with_drivers(etcd.address(), Arc::new(faulty.clone()));
    let second = first.another();
    assert!(!second.leads());
    let servers = format!("{},{}", first.server, second.server);
    let mut world = World::of(first, &servers, faulty, &[], &POINTS, true);
    world.until_dedicated();
    world.stop_in_the_middle();
    world.controller.stop();
    until("the other one leads", || second.leads());
    world.controller = second;
    world.goes_on();
    // And the other way, by the controller that came last.
    apply(&world.controller, json!({"items": [tenant("gold", "pinned")]}));
    world.until_dedicated();
}

#[test]
fn a_queue_that_is_lost_while_the_controller_is_away_leaves_no_host_that_tags() {
    let mut world = World::new(&[], &POINTS);
    world.until_dedicated();
    let before = world.queues("gold")[0].clone().expect("an order").version;
    world.controller.stop();
    world.tor.reboot();
    world.controller.restart();
    until("hosts were told otherwise, and again", || {
        let versions = world.queues("gold").into_iter().flatten().map(|queue| queue.version);
        versions.min() > Some(before + 1)
    });
    world.until_dedicated();
}

#[test]
fn two_controllers_do_not_bind_at_one_switch() {
    let world = World::new(&[], &POINTS);
    world.until_dedicated();
    // The dedicated queue's weight is written after it is bound.
    let mut config = world.tor.config();
    until("the switch is as it stays", || {
        world.faulty.until_read(2);
        let before = std::mem::replace(&mut config, world.tor.config());
        config == before
    });
    let other = Controller::start();
    let host =
        |name: &str| object("Host", name, json!({"switch": "tor", "rate": "100Mbit", "slots": 9}));
    let items = json!([topology(&[]), host("h0"), host("h1"), switch(Some(&world.tor.path))]);
    apply(&other, json!({"items": items}));
    until("it is said which controller has it", || {
        let ready = condition(&other, "switches/tor", "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["reason"] == "Owned" && message.contains("the controller `weir-")
    });
    assert_eq!(world.tor.config(), config);
    until("it is said", || world.reason("switches/tor", "Ready") == "AsWanted");
}

#[test]
fn agents_of_before_are_not_told_and_the_tenant_says_which_host_cannot_tag() {
    let world = World::new(&[], &[]);
    until("it is said of which host", || {
        let (reason, message) = world.condition("tenants/gold", "Queue");
        reason == "HostCannotTag" && message.contains("host `h0`")
    });
    assert_eq!(world.queues("gold"), [None, None]);
    assert!(world.tor.is_clear());
}

#[test]
fn provisioned_queues_are_verified_and_bound_and_never_written() {
    let mode: [(&str, Value); 2] = [("mode", "static".into()), ("sharedWeight", 2.into())];
    let world = World::new(&mode, &POINTS);
    until("they are missed", || world.reason("switches/tor", "Ready") == "Unprovisioned");
    assert_eq!(world.queues("gold"), [None, None]);
    let port =
        "rate = \"100Mbit\"\nweights = { 0 = 2, 1 = 1, 2 = 1 }\ncodepoints = { 10 = 1, 12 = 2 }\n";
    world.provision(&format!("[port.swp0]\n{port}[port.swp1]\n{port}"));
    until("gold is bound by its tag alone", || world.is_free("gold", 10));
    until("it is verified", || world.reason("switches/tor", "Ready") == "Verified");
    assert_eq!(world.faulty.writes(), 0);
}

/// A VM of another tenant.
fn bulk(name: &str, host: &str) -> Value {
    let mut wanted = vm(name, host, "20Mbit");
    wanted["spec"]["tenant"] = "bulk".into();
    wanted["spec"]["network"]["addresses"] = json!(["10.0.1.1"]);
    wanted
}

#[test]
fn a_provisioned_queue_changes_hands_by_tags_alone_in_intervals_of_100_ms() {
    let queues = [
        ("codePoints", json!([10])),
        ("mode", "static".into()),
        ("sharedWeight", 2.into()),
        ("interval", "100ms".into()),
    ];
    let world = World::new(&queues, &POINTS);
    let port = "rate = \"100Mbit\"\nweights = { 0 = 2, 1 = 1 }\ncodepoints = { 10 = 1 }\n";
    world.provision(&format!("[port.swp0]\n{port}[port.swp1]\n{port}"));
    until("gold is bound by its tag alone", || world.is_free("gold", 10));
    until("agents tell what they use twice an interval", || {
        world.agents.iter().all(|agent| agent.desk.usage_every_ms() == 50)
    });
    let items = [tenant("bulk", "auto"), bulk("c", "h0"), bulk("d", "h1")];
    apply(&world.controller, json!({"items": items}));
    for _ in 0..3 {
        world.uses(&[("gold", 25_000), ("bulk", 2_500_000)]);
        until("bulk has the queue", || world.is_free("bulk", 10) && world.is_shared("gold"));
        world.uses(&[("gold", 2_500_000), ("bulk", 25_000)]);
        until("gold has the queue", || world.is_free("gold", 10) && world.is_shared("bulk"));
    }
    assert_eq!(world.faulty.writes(), 0);
}

#[test]
fn a_switch_with_fewer_queues_than_said_binds_fewer_tenants() {
    let world = World::with(&[], &POINTS, false);
    world.faulty.set(Fault::Poor);
    let items = json!([
        tenant("bulk", "auto"),
        switch(Some(&world.tor.path)),
        bulk("c", "h0"),
        bulk("d", "h1")
    ]);
    // Before the switch is there: else the first interval binds whoever comes first.
    world.uses(&[("gold", 2_500_000), ("bulk", 250_000)]);
    apply(&world.controller, json!({"items": items}));
    world.until_dedicated();
    until("it is said", || world.reason("switches/tor", "Ready") == "Differs");
    until("the other shares", || world.reason("tenants/bulk", "Queue") == "Outscored");
    // Now the other uses more.
    world.uses(&[("gold", 25_000), ("bulk", 2_500_000)]);
    until("they change places", || {
        let is = |name: &str| world.reason(&format!("tenants/{name}"), "Queue");
        is("bulk") == "Dedicated" && matches!(&*is("gold"), "Preempted" | "Outscored")
    });
    world.faulty.set(Fault::None);
    until("both have one", || {
        ["gold", "bulk"]
            .iter()
            .all(|name| world.reason(&format!("tenants/{name}"), "Queue") == "Dedicated")
    });
    let listed = world.controller.client().get("/api/v1/switches").expect("it answers");
    assert_eq!(done(listed)["items"].as_array().map(Vec::len), Some(1));
    let gone = world.controller.client().send(Method::DELETE, "/api/v1/switches/tor", &json!({}));
    done(gone.expect("it answers"));
    until("without the object they share", || {
        ["gold", "bulk"].iter().all(|name| world.is_shared(name))
    });
}
