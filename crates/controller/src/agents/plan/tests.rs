mod queues;

use super::*;
use crate::state::{Action, Actor, Limits, Request, Role, State};
use serde_json::{Value, json};
use weir_model::objects::{API_VERSION, read};
use weir_rpc::messages::{Answer, HoseEnd, Known, Vm};

const NOW: Moment = Moment::from_millis(1_800_000_000_000);

/// A state machine, the plan that follows it, and hosts that answer.
struct World {
    state: State,
    plan: Plan,
    /// Host → its stream, and the states that it has in force.
    hosts: BTreeMap<String, (u64, BTreeMap<String, Tenant>)>,
    /// Tenants of which hosts do not know yet what is in force.
    open: BTreeSet<String>,
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn vm(name: &str, tenant: &str, host: &str, mbit: u64) -> Value {
    let floor = format!("{mbit}Mbit");
    let network = json!({"port": format!("p-{name}"), "addresses": ["10.0.0.1"]});
    let spec = json!({"tenant": tenant, "host": host, "floor": {"out": floor, "in": floor},
        "network": network});
    object("VM", name, spec)
}

impl World {
    /// Hosts h0 to h2 of 1 Gb/s at one switch, of which 900 Mb/s may be promised; tenants red and blue.
    fn new() -> Self {
        let ring: Keyring = "1 000102030405060708090a0b0c0d0e0f\n".parse().expect("a key");
        let plan = Plan::new(ring, &[], Vec::new(), 0, NOW).expect("empty");
        let (state, hosts) = (State::new(Limits::default()), BTreeMap::new());
        let mut world = Self { state, plan, hosts, open: BTreeSet::new() };
        let mut all: Vec<Value> = (0..3)
            .map(|n| {
                let control = format!("192.0.2.{}:7001", n + 1);
                let spec =
                    json!({"switch": "tor", "rate": "1Gbit", "slots": 50, "control": control});
                object("Host", &format!("h{n}"), spec)
            })
            .collect();
        all.extend(["red", "blue"].map(|name| object("Tenant", name, json!({}))));
        world.apply(all);
        world
    }

    fn act(&mut self, action: Action) -> Value {
        let actor = Actor { name: "op".into(), role: Role::Operator, tenant: None };
        let request = Request { actor, dry_run: false, idempotency: None, action };
        let answer = self.state.handle(NOW, &request).expect("it fits");
        self.settle();
        serde_json::from_str(&answer.body).expect("JSON")
    }

    fn settle(&mut self) {
        for event in self.state.keep().events {
            self.plan.change(event.revision, event.kind, &event.stored, NOW);
        }
    }

    fn apply(&mut self, objects: Vec<Value>) {
        let wishes = objects.into_iter().map(|object| read(object).expect("sound")).collect();
        self.act(Action::Batch(wishes));
    }

    /// A host joins, if it has not, and opens a stream with what it knows.
    fn connect(&mut self, host: &str) {
        self.connect_with(host, &[NETWORKS]);
    }

    /// The same with an agent that has these features.
    fn connect_with(&mut self, host: &str, features: &[&str]) {
        if self.enrolment(host).is_none() {
            let hash = format!("hash of {host}");
            let token = crate::state::NewToken {
                hash: hash.clone(),
                name: host.into(),
                role: Role::Host,
                tenant: None,
                host: Some(host.into()),
                expires: Some(NOW.plus_millis(1000)),
            };
            self.act(Action::AddToken(token));
            self.act(Action::Join { token: hash, host: host.into() });
        }
        let has = self.hosts.remove(host).map(|(_, has)| has).unwrap_or_default();
        let known = has.values().map(|tenant| Known {
            tenant: tenant.name.clone(),
            version: tenant.version,
            digest: if self.open.contains(&tenant.name) { 0 } else { tenant.digest() },
            ..Known::default()
        });
        let features = features.iter().map(|feature| (*feature).to_owned()).collect();
        let hello =
            Hello { rate: 1_000_000_000, known: known.collect(), features, ..Hello::default() };
        let enrolment = self.enrolment(host).expect("it joined");
        let id = self.plan.attach(host, enrolment, &hello).expect("it may");
        self.hosts.insert(host.into(), (id, has));
    }

    fn enrolment(&self, host: &str) -> Option<u64> {
        enrolment(&self.state.get(Kind::Host, host)?.object.status)
    }

    /// What a host is sent next; it does not answer.
    fn sent(&mut self, host: &str) -> Vec<Tenant> {
        let mut rooms = None;
        loop {
            match self.plan.next(host, rooms.as_ref()) {
                Next::Nothing => return Vec::new(),
                Next::Rooms(tenants) => {
                    rooms = Some(self.state.rooms(tenants.iter().map(String::as_str)));
                }
                Next::Send(_, tenants) => return tenants,
            }
        }
    }

    /// What a host begins with that joins: keys of the records, and its VMs with Mbit/s out.
    fn begun(&mut self, host: &str) -> (Vec<String>, Vec<(String, u64)>) {
        let mut rooms = None;
        loop {
            match self.plan.begin(host, rooms.as_ref()) {
                Next::Nothing => return (Vec::new(), Vec::new()),
                Next::Rooms(tenants) => {
                    rooms = Some(self.state.rooms(tenants.iter().map(String::as_str)));
                }
                Next::Send(writes, tenants) => {
                    let own = |vm: Vm| Some((vm.name, vm.local?.floor_out / 1_000_000));
                    let vms = tenants.into_iter().flat_map(|tenant| tenant.vms);
                    let keys = writes.into_iter().map(|write| write.key);
                    return (keys.collect(), vms.filter_map(own).collect());
                }
            }
        }
    }

    fn answer(&mut self, host: &str, tenants: &[Tenant], refusal: Option<&str>) {
        let (id, has) = self.hosts.get_mut(host).expect("it is connected");
        for tenant in tenants {
            let answer = Answer {
                tenant: tenant.name.clone(),
                version: tenant.version,
                applied: refusal.is_none(),
                reason: refusal.map_or(String::new(), |_| "NotTakenUp".into()),
                message: refusal.unwrap_or_default().into(),
            };
            if refusal.is_none() {
                has.insert(tenant.name.clone(), tenant.clone());
            }
            self.plan.answered(host, *id, &answer, NOW);
        }
        self.tell();
    }

    /// Everything is sent to these hosts and applied there.
    fn converge(&mut self, hosts: &[&str]) {
        loop {
            let mut quiet = true;
            for host in hosts {
                let tenants = self.sent(host);
                quiet &= tenants.is_empty();
                self.answer(host, &tenants, None);
                self.check();
            }
            if quiet {
                return;
            }
        }
    }

    /// Writes down what was seen.
    fn tell(&mut self) {
        let seen = self.plan.take_observations();
        self.act(Action::Observe(seen));
    }

    /// Mbit/s out that a host enforces for a VM.
    fn floor(&self, host: &str, vm: &str) -> u64 {
        let has = self.hosts.get(host).into_iter().flat_map(|(_, has)| has.values());
        let found = has.flat_map(|tenant| &tenant.vms).find(|one| one.name == vm);
        let floor = found.and_then(|vm| vm.local.as_ref()).map_or(0, |local| local.floor_out);
        floor / 1_000_000
    }

    fn applied(&mut self, vm: &str) -> (Truth, String, String) {
        self.tell();
        let stored = self.state.get(Kind::Vm, vm).expect("it is there");
        let found = stored.object.status.condition("Applied").expect("the host joined");
        (found.status, found.reason.clone(), found.message.clone())
    }

    /// No host's link carries more than may be promised, by what hosts enforce.
    fn check(&self) {
        for host in self.hosts.keys() {
            let here: u64 = ["a", "b", "c", "d"].iter().map(|vm| self.floor(host, vm)).sum();
            assert!(here <= 900, "{host} enforces {here} Mbit/s");
        }
    }
}

#[test]
fn a_tenant_reaches_its_hosts_alone_with_the_keys_of_its_pairs() {
    let mut world = World::new();
    for host in ["h0", "h1", "h2"] {
        world.connect(host);
    }
    world.apply(vec![vm("a", "red", "h0", 100), vm("b", "red", "h1", 200)]);
    world.converge(&["h0", "h1", "h2"]);
    assert_eq!((world.floor("h0", "a"), world.floor("h1", "b")), (100, 200));
    assert!(world.hosts["h2"].1.is_empty(), "it has nothing to do with the tenant");
    let red = &world.hosts["h0"].1["red"];
    let other = red.vms.iter().find(|vm| vm.name == "b").expect("all VMs of the tenant");
    assert!(other.local.is_none(), "the floors of another host's VM are not its affair");
    let peers: Vec<&str> = red.hosts.iter().map(|peer| peer.name.as_str()).collect();
    assert_eq!(peers, ["h1"]);
    assert_eq!(red.hosts[0].keys, world.hosts["h1"].1["red"].hosts[0].keys, "one key for both");
    assert_eq!(world.applied("a").0, Truth::True);
    assert_eq!(world.sent("h0"), [], "nothing is sent twice");
}

#[test]
fn what_a_host_is_told_at_its_join_counts_as_enforced_from_then_on() {
    let mut world = World::new();
    world.apply(vec![vm("a", "red", "h0", 800), vm("c", "red", "h1", 800)]);
    let (keys, has) = world.begun("h0");
    assert_eq!((keys, has), (vec!["h0/a".to_owned()], vec![("a".to_owned(), 800)]));
    // Whether its agent has started or not: the room of what is lowered is not there yet for a raise.
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h1", 100)]);
    world.apply(vec![vm("b", "blue", "h1", 700), vm("d", "blue", "h0", 700)]);
    world.connect("h1");
    world.converge(&["h1"]);
    assert_eq!((world.floor("h1", "b"), world.applied("b").1.as_str()), (0, "Pending"));
}

#[test]
fn floors_that_a_host_has_from_its_files_wait_for_nobody_when_it_joins() {
    for (number, wanted) in [(Some(17), 700), (None, 0)] {
        let mut world = World::new();
        ["h0", "h2"].iter().for_each(|host| world.connect(host));
        world.apply(vec![vm("a", "red", "h0", 600), vm("c", "red", "h2", 600)]);
        world.converge(&["h0", "h2"]);
        // h2 is silent, and may enforce 600 toward h0 still.
        let (id, _) = world.hosts["h2"];
        world.plan.detach("h2", id, NOW);
        world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h2", 100)]);
        // As `weir import` makes them, and as an operator adds VMs.
        let [mut b, d] = [vm("b", "blue", "h1", 700), vm("d", "blue", "h0", 700)];
        b["spec"]["number"] = json!(number);
        world.apply(vec![b, d]);
        assert_eq!(world.begun("h1").1, [("b".to_owned(), wanted)]);
    }
}

#[test]
fn hosts_hear_of_the_hoses_of_components_and_a_shift_between_hoses_waits_for_the_other_host() {
    const HOSTS: [&str; 3] = ["h0", "h1", "h2"];
    let mut world = World::new();
    HOSTS.iter().for_each(|host| world.connect(host));
    let tenant = |hose: &str| {
        let hose =
            |out: &str, into: &str| json!([{"name": hose, "floor": {"out": out, "in": into}}]);
        let components = json!([
            {"name": "web", "vms": 1, "hoses": hose("800Mbit", "0bit")},
            {"name": "db", "vms": 1, "hoses": hose("0bit", "800Mbit")},
        ]);
        // One VM per host.
        let survival = json!({"hostPercent": 50});
        object("Tenant", "red", json!({"components": components, "survival": survival}))
    };
    world.apply(vec![tenant("a")]);
    world.converge(&HOSTS);
    let end = |world: &World, name: &str| {
        let mut all = world.hosts.iter().filter_map(|(_, (_, has))| has.get("red"));
        let of = |state: &Tenant| {
            let vm = state.vms.iter().find(|vm| vm.name == name)?;
            Some((vm.hoses.clone(), vm.local.clone()?.hoses))
        };
        all.find_map(of).expect("its own host knows it")
    };
    let (ends, floors) = end(&world, "red-web-0");
    let named = |name: &str, sends, receives| HoseEnd { name: name.into(), sends, receives };
    assert_eq!(ends, [named("", false, false), named("a", true, false)]);
    let rates = (floors[0].name.as_str(), floors[0].floor_out, floors[0].floor_in);
    assert_eq!(rates, ("a", 800_000_000, 0));
    assert_eq!(end(&world, "red-db-0").0[1], named("a", false, true));

    // The same rates in another hose: neither host may have them while the other has the former ones.
    world.apply(vec![tenant("b")]);
    let first: Vec<Tenant> = HOSTS.iter().flat_map(|host| world.sent(host)).collect();
    assert!(first.iter().all(|state| state.name == "red") && !first.is_empty());
    let raised = first.iter().flat_map(|state| &state.vms).filter_map(|vm| vm.local.as_ref());
    let raised = raised.filter(|local| local.hoses.iter().any(|hose| hose.name == "b"));
    assert!(raised.count() < 2, "one of them waits for the other: {first:?}");
    for host in HOSTS {
        let of: Vec<Tenant> = first
            .iter()
            .filter(|state| state.vms.iter().any(|vm| vm.host == host && vm.local.is_some()))
            .cloned()
            .collect();
        world.answer(host, &of, None);
    }
    world.converge(&HOSTS);
    assert_eq!(end(&world, "red-web-0").1[0].name, "b");
    assert_eq!(world.applied("red-web-0").0, Truth::True);
}

#[test]
fn versions_are_of_tenants_and_later_changes_are_coalesced() {
    let mut world = World::new();
    world.connect("h0");
    world.apply(vec![vm("a", "red", "h0", 10), vm("c", "blue", "h0", 10)]);
    world.converge(&["h0"]);
    let before = world.hosts["h0"].1["blue"].version;
    world.apply(vec![vm("a", "red", "h0", 20)]);
    let first = world.sent("h0");
    assert_eq!(first.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["red"]);
    for mbit in 21..100 {
        world.apply(vec![vm("a", "red", "h0", mbit)]);
        assert_eq!(world.sent("h0"), [], "one message at most is unanswered");
    }
    world.answer("h0", &first, None);
    let last = world.sent("h0");
    assert!(last[0].version > first[0].version);
    world.answer("h0", &last, None);
    assert_eq!((world.floor("h0", "a"), world.sent("h0").len()), (99, 0));
    assert_eq!(world.hosts["h0"].1["blue"].version, before, "the other tenant did not change");
}

#[test]
fn a_raise_waits_for_the_lower_that_it_needs_and_names_a_silent_host() {
    let mut world = World::new();
    for host in ["h0", "h1", "h2"] {
        world.connect(host);
    }
    // The room of h2 is full with both tenants' receivers.
    world.apply(vec![
        vm("a", "red", "h0", 600),
        vm("c", "red", "h2", 600),
        vm("b", "blue", "h1", 300),
        vm("d", "blue", "h2", 300),
    ]);
    world.converge(&["h0", "h1", "h2"]);
    // h2's answer is still out when h1 could raise: blue needs the room that red gives back at h2.
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h2", 100)]);
    world.apply(vec![vm("b", "blue", "h1", 800), vm("d", "blue", "h2", 800)]);
    let (id, _) = world.hosts["h2"];
    world.plan.detach("h2", id, NOW);
    world.converge(&["h0", "h1"]);
    assert_eq!(world.floor("h1", "b"), 300, "it waits");
    let (status, reason, message) = world.applied("b");
    assert_eq!((status, reason.as_str()), (Truth::False, "Pending"));
    assert!(message.contains("host `h2` (silent since "), "{message}");
    // The host is back and lowers; then the raises follow.
    world.connect("h2");
    world.converge(&["h0", "h1", "h2"]);
    assert_eq!((world.floor("h1", "b"), world.floor("h2", "d")), (800, 800));
    assert_eq!((world.applied("b").0, world.applied("d").0), (Truth::True, Truth::True));
}

#[test]
fn what_a_dead_host_enforced_is_waited_for_no_longer() {
    let mut world = World::new();
    for host in ["h0", "h1", "h2"] {
        world.connect(host);
    }
    world.apply(vec![
        vm("a", "red", "h2", 600),
        vm("b", "blue", "h1", 10),
        vm("d", "blue", "h2", 10),
    ]);
    world.converge(&["h0", "h1", "h2"]);
    let (id, _) = world.hosts["h2"];
    world.plan.detach("h2", id, NOW);
    world.hosts.remove("h2");
    world.act(Action::Delete { kind: Kind::Vm, name: "a".into(), seen: None });
    world.apply(vec![vm("b", "blue", "h1", 800), vm("d", "blue", "h0", 800)]);
    world.converge(&["h0", "h1"]);
    assert!(world.floor("h1", "b") == 800 || world.applied("b").1 == "Pending");
    let dead = json!({"switch": "tor", "rate": "1Gbit", "slots": 50, "state": "dead"});
    world.apply(vec![object("Host", "h2", dead)]);
    world.converge(&["h0", "h1"]);
    assert_eq!((world.floor("h1", "b"), world.floor("h0", "d")), (800, 800));
}

#[test]
fn a_raise_that_waited_for_a_floor_that_a_host_then_refused_goes_on() {
    let mut world = World::new();
    ["h0", "h1"].iter().for_each(|host| world.connect(host));
    world.apply(vec![
        vm("a", "red", "h0", 100),
        vm("c", "red", "h1", 100),
        vm("b", "blue", "h1", 10),
        vm("d", "blue", "h0", 10),
    ]);
    world.converge(&["h0", "h1"]);
    // h0 is told of 600, and before it answers the tenant wants 100 again.
    world.apply(vec![vm("a", "red", "h0", 600), vm("c", "red", "h1", 600)]);
    let out = world.sent("h0");
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h1", 100)]);
    world.apply(vec![vm("b", "blue", "h1", 700), vm("d", "blue", "h0", 700)]);
    world.converge(&["h1"]);
    assert_eq!((world.floor("h1", "b"), world.applied("b").1.as_str()), (10, "Pending"));
    world.answer("h0", &out, Some("no such port"));
    world.converge(&["h0", "h1"]);
    assert_eq!((world.floor("h1", "b"), world.floor("h0", "d")), (700, 700));
    assert_eq!(world.applied("b").0, Truth::True);
}

#[test]
fn a_raise_that_waits_goes_on_when_its_link_has_room_though_a_host_stays_silent() {
    let mut world = World::new();
    ["h0", "h1", "h2"].iter().for_each(|host| world.connect(host));
    world.apply(vec![
        vm("a", "red", "h0", 600),
        vm("c", "red", "h2", 600),
        vm("b", "blue", "h1", 10),
        vm("d", "blue", "h0", 10),
    ]);
    world.converge(&["h0", "h1", "h2"]);
    let (id, _) = world.hosts["h2"];
    world.plan.detach("h2", id, NOW);
    // h2 may enforce 600 for `c` wherever its peers are.
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h2", 100)]);
    world.apply(vec![vm("b", "blue", "h1", 700), vm("d", "blue", "h0", 700)]);
    world.converge(&["h0", "h1"]);
    assert_eq!((world.floor("h0", "d"), world.applied("d").1.as_str()), (10, "Pending"));
    // The operator gives h0 a faster NIC. No host says anything.
    let control = "192.0.2.1:7001";
    let spec = json!({"switch": "tor", "rate": "10Gbit", "slots": 50, "control": control});
    world.apply(vec![object("Host", "h0", spec)]);
    world.plan.tick(NOW.plus_millis(AGAIN));
    world.converge(&["h0", "h1"]);
    let floor = world.hosts["h0"].1["blue"].vms.iter().find(|vm| vm.name == "d");
    let floor = floor.and_then(|vm| vm.local.as_ref()).expect("here").floor_out;
    assert_eq!((floor, world.applied("d").0), (700_000_000, Truth::True));
}

#[test]
fn a_host_that_is_revoked_while_a_raise_waits_for_it_keeps_its_peers_and_lowers_when_it_is_back() {
    let mut world = World::new();
    for host in ["h0", "h1", "h2"] {
        world.connect(host);
    }
    // As agents say it, not as Hosts do.
    let spec = json!({"switch": "tor", "rate": "1Gbit", "slots": 50});
    world.apply(vec![object("Host", "h2", spec)]);
    let (id, _) = world.hosts["h2"];
    world.plan.detach("h2", id, NOW);
    let enrolment = world.enrolment("h2").expect("it joined");
    let hello = Hello {
        rate: 1_000_000_000,
        control: "192.0.2.3:7001".into(),
        features: vec![NETWORKS.into()],
        ..Hello::default()
    };
    let id = world.plan.attach("h2", enrolment, &hello).expect("it may");
    world.hosts.insert("h2".into(), (id, BTreeMap::new()));
    world.tell();
    world.apply(vec![
        vm("a", "red", "h0", 600),
        vm("c", "red", "h2", 600),
        vm("b", "blue", "h1", 300),
        vm("d", "blue", "h2", 300),
    ]);
    world.converge(&["h0", "h1", "h2"]);
    let peers = |world: &World| {
        let red = &world.hosts["h0"].1["red"];
        red.hosts.iter().map(|peer| peer.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(peers(&world), ["h2"]);
    // The lower of `c` is on its way when the host is revoked, and a raise waits for it.
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h2", 100)]);
    let unanswered = world.sent("h2");
    assert!(!unanswered.is_empty());
    world.apply(vec![vm("b", "blue", "h1", 800), vm("d", "blue", "h2", 800)]);
    world.converge(&["h0", "h1"]);
    world.act(Action::Revoke("h2".into()));
    assert!(!world.plan.is_present("h2", id, enrolment));
    world.plan.detach("h2", id, NOW);
    world.plan.tick(NOW.plus_millis(AGAIN));
    world.converge(&["h0", "h1"]);
    assert_eq!(peers(&world), ["h2"], "they keep what they agree on with it");
    assert_eq!(world.floor("h1", "b"), 300, "it waits");
    let (status, reason, message) = world.applied("b");
    assert_eq!((status, reason.as_str()), (Truth::False, "Pending"));
    assert!(message.contains("host `h2` (silent since "), "{message}");
    // A change of what is there says so, and another apply of the Host makes it no better.
    world.apply(vec![vm("c", "red", "h2", 90)]);
    assert_eq!(world.applied("c").1, "HostSilent");
    let spec = json!({"switch": "tor", "rate": "1Gbit", "slots": 49});
    world.apply(vec![object("Host", "h2", spec)]);
    let ready = world.state.get(Kind::Host, "h2").expect("there").object.status.clone();
    let ready = ready.condition("Ready").expect("it has joined").reason.clone();
    assert_eq!(ready, "Revoked");
    // A controller that starts now waits for it as well.
    let objects: Vec<_> = world.state.objects().cloned().collect();
    let row = |vm: &str| (format!("h2/{vm}"), world.plan.may["h2"][vm].most.record("red"));
    let records = vec![row("c")];
    let ring: Keyring = "1 000102030405060708090a0b0c0d0e0f\n".parse().expect("a key");
    let other = Plan::new(ring, &objects, records, world.state.revision(), NOW).expect("sound");
    assert_eq!(other.excess.len(), 1);
    // It joins again with what it has.
    world.connect("h2");
    world.converge(&["h0", "h1", "h2"]);
    assert_eq!((world.floor("h1", "b"), world.floor("h2", "d")), (800, 800));
    assert_eq!(world.floor("h2", "c"), 90);
}

#[test]
fn a_refusal_becomes_a_condition_keeps_the_former_floors_and_is_tried_again() {
    let mut world = World::new();
    world.connect("h0");
    world.apply(vec![vm("a", "red", "h0", 10)]);
    world.converge(&["h0"]);
    world.apply(vec![vm("a", "red", "h0", 20)]);
    let sent = world.sent("h0");
    world.answer("h0", &sent, Some("vm `a` has port `p-a`, which is not on this host"));
    let (status, reason, message) = world.applied("a");
    assert_eq!((status, reason.as_str()), (Truth::False, "NotTakenUp"));
    assert!(message.contains("host `h0` refuses: vm `a` has port"), "{message}");
    assert_eq!(world.sent("h0"), [], "not at once");
    world.plan.tick(NOW.plus_millis(AGAIN));
    let again = world.sent("h0");
    assert_eq!(again, sent);
    world.answer("h0", &again, None);
    assert_eq!(world.applied("a").0, Truth::True);
}

#[test]
fn what_a_host_knows_is_not_sent_again_and_what_it_missed_is() {
    let mut world = World::new();
    world.connect("h0");
    world.apply(vec![vm("a", "red", "h0", 10), vm("c", "blue", "h0", 10)]);
    world.converge(&["h0"]);
    let (id, _) = world.hosts["h0"];
    world.plan.detach("h0", id, NOW);
    world.act(Action::Delete { kind: Kind::Vm, name: "c".into(), seen: None });
    world.connect("h0");
    let sent = world.sent("h0");
    assert_eq!(sent.len(), 1, "red is known");
    assert_eq!((sent[0].name.as_str(), sent[0].vms.len()), ("blue", 0));
    world.answer("h0", &sent, None);
    assert_eq!(world.floor("h0", "a"), 10);
}

#[test]
fn a_controller_that_restarts_knows_what_silent_hosts_may_enforce() {
    let mut world = World::new();
    for host in ["h0", "h1"] {
        world.connect(host);
    }
    world.apply(vec![vm("a", "red", "h0", 600), vm("b", "red", "h1", 600)]);
    let mut records: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for host in ["h0", "h1"] {
        let Next::Send(writes, tenants) = world.plan.next(host, None) else { panic!("a state") };
        assert!(!writes.is_empty(), "the records come first");
        records.extend(writes.into_iter().map(|write| (write.key, write.value.expect("more"))));
        world.answer(host, &tenants, None);
    }
    assert_eq!(records.keys().collect::<Vec<_>>(), ["h0/a", "h1/b"]);
    // It dies. The new one hears nothing of h0, whose VM is deleted meanwhile.
    let objects: Vec<_> = world.state.objects().cloned().collect();
    let ring: Keyring = "1 000102030405060708090a0b0c0d0e0f\n".parse().expect("a key");
    let may = records.into_iter().collect();
    world.plan = Plan::new(ring, &objects, may, world.state.revision(), NOW).expect("sound");
    for name in ["a", "b"] {
        world.act(Action::Delete { kind: Kind::Vm, name: name.into(), seen: None });
    }
    assert_eq!(world.plan.excess.len(), 2);
    let has = world.hosts.remove("h0").expect("it was there").1;
    world.connect("h1");
    world.apply(vec![vm("c", "blue", "h0", 800), vm("d", "blue", "h1", 800)]);
    world.hosts.insert("h0".into(), (0, has));
    world.connect("h0");
    let sent = world.sent("h0");
    let c = sent.iter().flat_map(|t| &t.vms).find(|vm| vm.name == "c").expect("it is told");
    let floor = c.local.as_ref().expect("here").floor_out;
    assert_eq!(floor, 0, "`a` has its floor until the host says that it is gone");
    world.answer("h0", &sent, None);
    world.hosts.get_mut("h0").expect("connected").1.remove("red");
    world.converge(&["h0", "h1"]);
    assert_eq!(world.floor("h0", "c"), 800);
}

#[test]
fn a_record_that_the_store_refused_comes_again_before_the_host_is_told() {
    let mut world = World::new();
    world.connect("h0");
    world.apply(vec![vm("a", "red", "h0", 600)]);
    let next = |world: &mut World| {
        let Next::Send(writes, tenants) = world.plan.next("h0", None) else { panic!("a state") };
        (writes, tenants)
    };
    let (refused, _) = next(&mut world);
    let id = world.hosts["h0"].0;
    world.plan.unwritten(refused.clone());
    world.plan.unsent("h0", id);
    let (again, tenants) = next(&mut world);
    assert!(!again.is_empty() && again == refused, "{again:?} after {refused:?}");
    world.answer("h0", &tenants, None);
    assert_eq!(world.floor("h0", "a"), 600);
    // What the host has anyway, and was told of without a record once: it gets one.
    world.plan.unwritten(refused);
    world.apply(vec![vm("a", "red", "h0", 500)]);
    let (writes, _) = next(&mut world);
    assert_eq!(writes.len(), 1, "the most that it may enforce is not on the disk yet");
}

#[test]
fn a_silent_host_is_shown_after_a_while_and_a_rate_that_differs_at_once() {
    let mut world = World::new();
    world.connect("h0");
    let (id, _) = world.hosts["h0"];
    let hello = Hello { rate: 10_000_000_000, ..Hello::default() };
    let enrolment = world.enrolment("h0").expect("it joined");
    world.plan.detach("h0", id, NOW);
    let id = world.plan.attach("h0", enrolment, &hello).expect("it may");
    world.tell();
    let host = |world: &World, name: &str| {
        let stored = world.state.get(Kind::Host, "h0").expect("it is there").clone();
        let found = stored.object.status.condition(name).expect("a condition").clone();
        (found.status, found.reason, found.message)
    };
    let (status, reason, message) = host(&world, "RateMatches");
    assert_eq!((status, reason.as_str()), (Truth::False, "RateDiffers"));
    assert!(message.contains("10Gbit") && message.contains("1Gbit"), "{message}");
    assert_eq!(host(&world, "Ready").0, Truth::True);
    // The operator corrects it, and declares a floor of the host itself of which the host knows nothing.
    let spec = json!({"switch": "tor", "rate": "10Gbit", "slots": 50, "own": {"out": "1Gbit"}});
    world.apply(vec![object("Host", "h0", spec)]);
    world.tell();
    assert_eq!(host(&world, "RateMatches").0, Truth::True);
    let hello = Hello { own_out: Some(0), ..hello };
    let id = {
        world.plan.detach("h0", id, NOW);
        world.plan.attach("h0", enrolment, &hello).expect("it may")
    };
    world.tell();
    let (status, reason, message) = host(&world, "OwnFloorMatches");
    assert_eq!((status, reason.as_str()), (Truth::False, "OwnFloorDiffers"));
    assert!(message.contains("keeps 0bit ") && message.contains("declared is 1Gbit"), "{message}");
    world.plan.detach("h0", id, NOW);
    world.plan.tick(NOW.plus_millis(GRACE - 1));
    world.tell();
    assert_eq!(host(&world, "Ready").0, Truth::True, "a renewal is no silence");
    world.plan.tick(NOW.plus_millis(GRACE));
    world.tell();
    let (status, reason, message) = host(&world, "Ready");
    assert_eq!((status, reason.as_str()), (Truth::Unknown, "Silent"));
    assert!(message.contains(&NOW.to_string()), "{message}");
}

#[test]
fn a_host_that_was_revoked_or_joined_again_has_no_other_stream() {
    let mut world = World::new();
    world.connect("h0");
    let (id, _) = world.hosts["h0"];
    let first = world.enrolment("h0").expect("it joined");
    assert!(world.plan.is_present("h0", id, first));
    world.act(Action::Revoke("h0".into()));
    assert!(!world.plan.is_present("h0", id, first));
    let refused = world.plan.attach("h0", first, &Hello::default()).expect_err("revoked");
    assert!(refused.0.contains("`weir host token`"), "{}", refused.0);
    world.connect("h0");
    let second = world.enrolment("h0").expect("it joined again");
    assert!(second > first);
    assert!(world.plan.attach("h0", first, &Hello::default()).is_err(), "the former certificate");
    assert!(world.plan.check("nobody", 1).is_err());
}

#[test]
fn a_token_of_a_host_expires_and_a_wrong_one_is_not_used_up() {
    let mut world = World::new();
    let token = crate::state::NewToken {
        hash: "hash".into(),
        name: "host-h0".into(),
        role: Role::Host,
        tenant: None,
        host: Some("h0".into()),
        expires: Some(NOW.plus_millis(1000)),
    };
    world.act(Action::AddToken(token));
    let mut join = |host: &str, after: u64| {
        let actor = Actor { name: "host".into(), role: Role::Host, tenant: None };
        let action = Action::Join { token: "hash".into(), host: host.into() };
        let request = Request { actor, dry_run: false, idempotency: None, action };
        world.state.handle(NOW.plus_millis(after), &request).map(drop).map_err(|p| p.detail)
    };
    let error = join("h1", 0).expect_err("another host's");
    assert_eq!(error, "this token is for host `h0`, not for `h1`");
    let error = join("h0", 1000).expect_err("too late");
    assert!(error.starts_with("this token expired at "), "{error}");
    join("h0", 999).expect("in time");
    let error = join("h0", 999).expect_err("twice");
    assert!(error.contains("it was used before"), "{error}");
}

#[test]
fn settings_of_a_vms_network_reach_agents_that_know_them_and_others_keep_the_floors() {
    let mut world = World::new();
    world.connect("h0");
    world.connect_with("h1", &[]);
    let class = json!({"name": "x", "weight": 2, "localPorts": "443"});
    let more = json!({"port": "p", "addresses": ["10.0.0.1"], "prefixes": ["0.0.0.0/0"],
        "externalCap": "9Mbit", "translation": "cubic-ecn", "policing": "15kB", "dscp": "restore",
        "budget": {"total": "180kB", "flowsMost": 5, "classes": [class]}});
    let with = |name: &str, host: &str| {
        let mut vm = vm(name, "red", host, 10);
        vm["spec"]["network"] = more.clone();
        vm["spec"]["external"] = json!({"out": "5Mbit"});
        vm
    };
    world.apply(vec![with("a", "h0"), with("b", "h1"), vm("c", "red", "h1", 1)]);
    world.converge(&["h0", "h1"]);
    let of = |world: &World, host: &str, name: &str| {
        let red = world.hosts[host].1["red"].clone();
        red.vms.into_iter().find(|vm| vm.name == name).expect("it is told")
    };
    let told = of(&world, "h0", "a");
    assert_eq!(told.prefixes, ["0.0.0.0/0"]);
    assert_eq!(of(&world, "h0", "b").prefixes, ["0.0.0.0/0"], "the other host's endpoint, too");
    let local = told.local.expect("it is here");
    assert_eq!((local.external_out, local.external_most), (Some(5_000_000), Some(9_000_000)));
    assert_eq!((local.translation.as_str(), local.policing), ("cubic-ecn", Some(15_000)));
    assert_eq!(local.dscp, "restore");
    let budget = local.budget.expect("it is told");
    assert_eq!((budget.total, budget.flows_most, budget.segment), (180_000, 5, 1460));
    assert_eq!((budget.classes[0].weight, budget.classes[0].local_ports.as_str()), (2, "443-443"));
    assert_eq!(world.applied("a"), (Truth::True, "InForce".into(), String::new()));

    // The old agent has the floors, and the VM says what is missing; others of its VMs are as they shall be.
    let told = of(&world, "h1", "b");
    let local = told.local.expect("it is here");
    assert!(told.prefixes.is_empty() && local.translation.is_empty() && local.budget.is_none());
    assert_eq!((local.floor_out, local.external_out), (10_000_000, Some(5_000_000)));
    let (status, reason, message) = world.applied("b");
    assert_eq!((status, reason.as_str()), (Truth::False, "AgentTooOld"));
    assert!(message.contains("host `h1` holds the floors"), "{message}");
    assert_eq!(world.applied("c").1, "InForce");
    // What it knows is not sent again.
    world.connect_with("h1", &[]);
    assert!(world.sent("h1").is_empty());
    assert_eq!(world.applied("b").1, "AgentTooOld");
    // A newer agent on the same host gets the rest.
    world.connect("h1");
    world.converge(&["h0", "h1"]);
    assert_eq!(world.applied("b").1, "InForce");
    assert_eq!(of(&world, "h1", "b").prefixes, ["0.0.0.0/0"]);
}

/// A tenant with a VM on each of two hosts, and another one.
fn two_tenants(red: u64, blue: u64) -> Vec<Value> {
    vec![
        vm("a", "red", "h0", red),
        vm("c", "red", "h1", red),
        vm("b", "blue", "h1", blue),
        vm("d", "blue", "h0", blue),
    ]
}

/// Host h0 is told of 600 Mbit/s for a VM that has 100, and its stream breaks before it answers. What was sent.
fn raise_without_an_answer(world: &mut World) -> Vec<Tenant> {
    ["h0", "h1"].iter().for_each(|host| world.connect(host));
    world.apply(two_tenants(100, 10));
    world.converge(&["h0", "h1"]);
    world.apply(vec![vm("a", "red", "h0", 600), vm("c", "red", "h1", 600)]);
    let sent = world.sent("h0");
    assert_eq!(sent.len(), 1);
    world.plan.detach("h0", world.hosts["h0"].0, NOW);
    sent
}

#[test]
fn a_refusal_after_a_lost_answer_does_not_make_a_raise_forgotten() {
    let mut world = World::new();
    let sent = raise_without_an_answer(&mut world);
    // It had taken it up.
    world.hosts.get_mut("h0").expect("it is there").1.insert("red".into(), sent[0].clone());
    world.apply(vec![
        vm("a", "red", "h0", 100),
        vm("c", "red", "h1", 100),
        vm("e", "red", "h0", 1),
    ]);
    world.connect("h0");
    let sent = world.sent("h0");
    world.answer("h0", &sent, Some("the port of e is not there"));
    assert_eq!(world.floor("h0", "a"), 600);
    world.apply(vec![vm("b", "blue", "h1", 700), vm("d", "blue", "h0", 700)]);
    for host in ["h1", "h0", "h1", "h0"] {
        for tenant in world.sent(host) {
            let refusal = (host == "h0" && tenant.name == "red").then_some("still not there");
            world.answer(host, std::slice::from_ref(&tenant), refusal);
            world.check();
        }
    }
    assert_eq!(world.applied("d").1, "Pending");
}

#[test]
fn a_state_that_a_host_still_has_in_hand_counts_when_it_comes_back() {
    let mut world = World::new();
    let sent = raise_without_an_answer(&mut world);
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h1", 100)]);
    // What it wrote down is what is wanted again, and 600 is in hand.
    world.open.insert("red".into());
    world.connect("h0");
    let again = world.sent("h0");
    assert_eq!(again.len(), 1, "it is told anew");
    world.hosts.get_mut("h0").expect("it is there").1.insert("red".into(), sent[0].clone());
    world.apply(vec![vm("b", "blue", "h1", 700), vm("d", "blue", "h0", 700)]);
    world.converge(&["h1"]);
    world.check();
    world.answer("h0", &sent, None);
    world.check();
    world.answer("h0", &again, None);
    world.open.clear();
    world.converge(&["h0", "h1"]);
    assert_eq!((world.floor("h0", "a"), world.floor("h0", "d")), (100, 700));
    // One of an earlier version speaks of what it was not sent: it is told what is wanted.
    world.answer("h0", &sent, None);
    assert_eq!(world.sent("h0").len(), 1);
}

#[test]
fn vms_of_a_host_that_only_observes_are_said_to_be_observed_and_not_in_force() {
    let mut world = World::new();
    world.connect("h0");
    world.connect("h1");
    world.apply(vec![
        vm("a", "red", "h0", 10),
        vm("b", "blue", "h0", 10),
        vm("c", "red", "h1", 10),
    ]);
    world.converge(&["h0", "h1"]);
    world.plan.says_mode("h0", true);
    let (status, reason, message) = world.applied("a");
    assert_eq!((status, reason.as_str()), (Truth::False, "Observing"));
    assert!(message.contains("weir host mode enforce h0"), "{message}");
    assert_eq!(world.applied("c").1, "InForce");
    // A change while it observes, and one that it refused: only the first is in force afterwards.
    world.apply(vec![vm("a", "red", "h0", 20)]);
    world.converge(&["h0", "h1"]);
    assert_eq!(world.applied("a").1, "Observing");
    world.apply(vec![vm("b", "blue", "h0", 30)]);
    let tenants = world.sent("h0");
    world.answer("h0", &tenants, Some("no"));
    world.plan.says_mode("h0", false);
    assert_eq!(
        (world.applied("a").1, world.applied("b").1),
        ("InForce".into(), "NotTakenUp".into())
    );
}

#[test]
fn a_floor_to_the_outside_beyond_its_maximum_counts() {
    let mut world = World::new();
    world.connect("h0");
    let mut wide = vm("a", "red", "h0", 10);
    wide["spec"]["external"] = json!({"out": "50Mbit"});
    wide["spec"]["network"]["externalCap"] = "20Mbit".into();
    world.apply(vec![wide]);
    world.converge(&["h0"]);
    let local = world.hosts["h0"].1["red"].vms[0].local.clone().expect("it is here");
    assert_eq!((local.external_out, local.external_most), (Some(50_000_000), Some(50_000_000)));
}

#[test]
fn a_host_that_follows_is_told_the_directorys_numbers_of_those_that_still_read_files() {
    let mut world = World::new();
    let host = |n: u32, number: u32| {
        let control = format!("192.0.2.{n}:7001");
        let spec = json!({"switch": "tor", "rate": "1Gbit", "slots": 50, "control": control,
            "number": number});
        object("Host", &format!("file{n}"), spec)
    };
    let numbered = |name: &str, host: &str, number: u32| {
        let mut object = vm(name, "red", host, 100);
        object["spec"]["number"] = number.into();
        object
    };
    // As `weir import` makes them of a directory.
    world.apply(vec![
        host(8, 70),
        host(9, 60),
        numbered("web", "file8", 17),
        numbered("db", "file9", 16),
    ]);
    // Only one of the two joins.
    world.connect("file8");
    let sent = world.sent("file8");
    let red = sent.iter().find(|tenant| tenant.name == "red").expect("it has a VM there");
    let vms: BTreeMap<&str, u32> = red.vms.iter().map(|vm| (vm.name.as_str(), vm.number)).collect();
    assert_eq!(vms, BTreeMap::from([("web", 17), ("db", 16)]));
    let [peer] = &red.hosts[..] else { panic!("one other host: {:?}", red.hosts) };
    assert_eq!((peer.name.as_str(), peer.number), ("file9", 60));
    assert_eq!(peer.control, "192.0.2.9:7001");
    // The key file that `weir keys make` wrote for the other host has the same key.
    let ring: Keyring = "1 000102030405060708090a0b0c0d0e0f\n".parse().expect("a key");
    let theirs = weir_wire::host_file(&ring, "file9", ["file8"]);
    assert!(theirs.contains(&format!("file8 {}", peer.keys)), "{theirs}");
}
