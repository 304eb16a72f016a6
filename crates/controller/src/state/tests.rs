use super::*;
use crate::store::Write;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use weir_model::objects::{API_VERSION, Truth, read};

mod drain;
mod migrations;
mod networks;
mod numbers;
mod refusals;
mod whole;

/// A store that is a map, and a state whose changes it keeps.
pub(crate) struct World {
    pub(crate) state: State,
    records: BTreeMap<(Table, String), Vec<u8>>,
    now: Cell<u64>,
}

struct Map<'a>(&'a BTreeMap<(Table, String), Vec<u8>>);

// The map outlives the test.
impl Snapshot for Map<'_> {
    fn scan(
        &self,
        table: Table,
        from: &str,
        each: &mut dyn FnMut(&str, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        for ((_, key), value) in
            self.0.range((table, from.to_owned())..).take_while(|((of, _), _)| *of == table)
        {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }
}

pub(crate) fn operator() -> Actor {
    Actor { name: "op".into(), role: Role::Operator, tenant: None }
}

pub(crate) fn document(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn vm(tenant: &str, host: Option<&str>, floor: &str) -> Value {
    let mut spec = json!({"tenant": tenant, "floor": {"out": floor, "in": floor}});
    if let Some(host) = host {
        spec["host"] = host.into();
    }
    spec
}

pub(crate) fn put(document: Value) -> Action {
    let wish = Box::new(read(document).expect("a good document"));
    Action::Put { wish, mode: Mode::Apply, seen: None }
}

impl World {
    /// Two racks of two hosts of 1 Gb/s, joined by uplinks of 1 Gb/s; 10 % of each link stays free.
    fn new() -> Self {
        let mut world = Self::empty();
        for (n, rack) in [(0, "rack0"), (1, "rack0"), (2, "rack1"), (3, "rack1")] {
            let spec = json!({"switch": rack, "rate": "1Gbit", "slots": 4});
            world.apply("Host", &format!("h{n}"), spec);
        }
        for rack in ["rack0", "rack1"] {
            let spec = json!({"lower": rack, "upper": "core", "rate": "1Gbit"});
            world.apply("Link", &format!("{rack}-up"), spec);
        }
        for tenant in ["gold", "bulk"] {
            world.apply("Tenant", tenant, json!({}));
        }
        world
    }

    fn empty() -> Self {
        let state = State::new(Limits { audit: 1000, ..Limits::default() });
        Self { state, records: BTreeMap::new(), now: Cell::new(1_795_592_795_000) }
    }

    fn now(&self) -> Moment {
        Moment::from_millis(self.now.get())
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        self.now.set(self.now.get() + ms);
        self.state.tick(self.now());
        self.keep();
    }

    fn keep(&mut self) -> Published {
        for Write { table, key, value } in self.state.writes() {
            match value {
                Some(value) => self.records.insert((*table, key.clone()), value.clone()),
                None => self.records.remove(&(*table, key.clone())),
            };
        }
        let published = self.state.keep();
        self.state.check();
        published
    }

    fn ask(&mut self, actor: Actor, action: Action) -> Result<Value, Problem> {
        let request = Request { actor, dry_run: false, idempotency: None, action };
        let before = self.state.revision();
        let done = self.state.handle(self.now(), &request);
        if let Err(problem) = &done {
            let Problem { status, reason, field, detail, .. } = problem;
            assert!((400..500).contains(status), "{problem:?}");
            assert!(reason.starts_with(char::is_uppercase), "{problem:?}");
            assert!(!field.is_empty() && detail.contains(' '), "{problem:?}");
            assert_eq!(self.state.revision(), before, "a refused request changes nothing");
            assert_eq!(self.state.writes(), [], "a refused request changes nothing");
        }
        self.keep();
        done.map(|answer| serde_json::from_str(&answer.body).expect("answers are JSON"))
    }

    fn apply(&mut self, kind: &str, name: &str, spec: Value) -> Value {
        self.ask(operator(), put(document(kind, name, spec))).expect("it is accepted")
    }

    fn refuse(&mut self, kind: &str, name: &str, spec: Value) -> Problem {
        self.ask(operator(), put(document(kind, name, spec))).expect_err("it is refused")
    }

    fn delete(&mut self, kind: Kind, name: &str) -> Result<Value, Problem> {
        self.ask(operator(), Action::Delete { kind, name: name.into(), seen: None })
    }

    fn confirm(&mut self, name: &str) -> Result<Value, Problem> {
        self.ask(operator(), Action::Confirm(name.into()))
    }

    fn condition(&self, kind: Kind, name: &str, condition: &str) -> (Truth, String, String) {
        let stored = self.state.get(kind, name).expect("it exists");
        let found = stored.object.status.condition(condition).expect("it has the condition");
        (found.status, found.reason.clone(), found.message.clone())
    }

    /// What the objects say, as after a restart.
    fn restarted(&self) -> State {
        let state = State::load(&Map(&self.records), self.state.limits, self.now())
            .expect("it was written");
        state.check();
        state
    }

    fn assert_restart_changes_nothing(&self) {
        let again = self.restarted();
        let all =
            |state: &State| state.objects().map(|stored| stored.json.clone()).collect::<Vec<_>>();
        assert_eq!(all(&again), all(&self.state));
        let claims = |state: &State| {
            state
                .book
                .claims()
                .map(|(id, claim)| (id.to_owned(), claim.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(claims(&again), claims(&self.state));
        assert_eq!(again.revision, self.state.revision);
        assert_eq!(again.audit, self.state.audit);
        assert_eq!(again.fallen, self.state.fallen);
        assert_eq!(again.reserved, self.state.reserved);
        assert_eq!(again.deadlines, self.state.deadlines);
        assert_eq!(again.tokens, self.state.tokens);
        assert_eq!(again.answers, self.state.answers);
        assert_eq!(again.next_deadline(), self.state.next_deadline());
    }
}

fn reservation(tenant: &str, vms: &[(&str, &str, &str)]) -> Value {
    let vms: Vec<Value> = vms
        .iter()
        .map(|(name, host, floor)| {
            json!({"name": name, "host": host, "floor": {"out": floor, "in": floor}})
        })
        .collect();
    json!({"tenant": tenant, "vms": vms, "holdFor": "60s"})
}

#[test]
fn a_vm_is_admitted_on_the_given_host_and_says_so() {
    let mut world = World::new();
    let told = world.apply("VM", "a", vm("gold", Some("h2"), "100Mbit"));
    assert_eq!(told["status"]["host"], "h2");
    assert_eq!(told["status"]["conditions"][0]["reason"], "Fits");
    assert_eq!(told["metadata"]["generation"], 1);
    assert_eq!(told["status"]["observedGeneration"], 1);
    world.assert_restart_changes_nothing();
}

#[test]
fn a_vm_without_a_host_is_placed_and_stays_there() {
    let mut world = World::new();
    let host = world.apply("VM", "a", vm("gold", None, "100Mbit"))["status"]["host"].clone();
    assert!(host.is_string());
    let told = world.apply("VM", "a", vm("gold", None, "200Mbit"));
    assert_eq!(told["status"]["host"], host, "a resize moves nothing");
    assert_eq!(told["metadata"]["generation"], 2);
}

#[test]
fn what_does_not_fit_names_the_link_the_missing_rate_and_the_tenants_in_the_way() {
    let mut world = World::new();
    for (name, host) in [("a", "h0"), ("b", "h1"), ("c", "h2"), ("d", "h3")] {
        world.apply("VM", name, vm("gold", Some(host), "400Mbit"));
    }
    world.apply("VM", "x", vm("bulk", Some("h1"), "140Mbit"));
    let problem = world.refuse("VM", "y", vm("bulk", Some("h2"), "140Mbit"));
    assert_eq!((problem.status, problem.reason), (409, "LinkFull"));
    assert_eq!(problem.more["missing"], "40Mbit");
    assert!(problem.more["tenants"].as_array().is_some_and(|t| t.contains(&json!("gold"))));
    let link = problem.more["link"].as_str().expect("a link");
    assert!(link.contains("rack"), "{link}");
    assert!(
        problem.detail.contains(link) && problem.detail.contains("40Mbit"),
        "{}",
        problem.detail
    );
}

#[test]
fn a_resize_that_does_not_fit_leaves_the_old_state() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "100Mbit"));
    world.apply("VM", "b", vm("gold", Some("h2"), "950Mbit"));
    let before = world.state.get(Kind::Vm, "a").expect("it exists").json.clone();
    let problem = world.refuse("VM", "a", vm("gold", Some("h0"), "901Mbit"));
    assert_eq!(problem.reason, "LinkFull");
    assert_eq!(world.state.get(Kind::Vm, "a").expect("it exists").json, before);
    world.assert_restart_changes_nothing();
    world.apply("VM", "a", vm("gold", Some("h0"), "900Mbit"));
}

#[test]
fn a_move_that_does_not_fit_leaves_the_vm_where_it_is() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "500Mbit"));
    world.apply("VM", "b", vm("gold", Some("h2"), "600Mbit"));
    world.apply("VM", "x", vm("bulk", Some("h3"), "500Mbit"));
    world.apply("VM", "y", vm("bulk", Some("h1"), "400Mbit"));
    let problem = world.refuse("VM", "a", vm("gold", Some("h1"), "600Mbit"));
    assert_eq!(problem.reason, "LinkFull");
    let stored = world.state.get(Kind::Vm, "a").expect("it exists");
    assert_eq!(stored.object.status.host.as_deref(), Some("h0"));
    let told = world.apply("VM", "a", vm("gold", Some("h1"), "500Mbit"));
    assert_eq!(told["status"]["host"], "h1");
    world.assert_restart_changes_nothing();
}

#[test]
fn a_tenant_that_is_too_large_is_refused_and_told_its_quota() {
    let mut world = World::new();
    world.apply("Tenant", "small", json!({"quota": {"vms": 2, "out": "100Mbit"}}));
    world.apply("VM", "a", vm("small", Some("h0"), "60Mbit"));
    let problem = world.refuse("VM", "b", vm("small", Some("h0"), "41Mbit"));
    assert_eq!((problem.status, problem.reason), (409, "QuotaExceeded"));
    assert_eq!(problem.field, "spec.floor.out");
    assert!(problem.detail.contains("101Mbit") && problem.detail.contains("100Mbit"));
    world.apply("VM", "b", vm("small", Some("h0"), "40Mbit"));
    let problem = world.refuse("VM", "c", vm("small", Some("h0"), "0bit"));
    assert_eq!(problem.more["quota"], "quota.vms");
    let problem = world.refuse("Tenant", "small", json!({"quota": {"vms": 1}}));
    assert_eq!((problem.reason, problem.field.as_str()), ("QuotaBelowUse", "spec.quota.vms"));
}

#[test]
fn a_name_that_exists_an_unknown_tenant_and_an_unknown_host_are_named() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "1Mbit"));
    let wish = Box::new(read(document("VM", "a", vm("gold", None, "1Mbit"))).expect("good"));
    let create = Action::Put { wish, mode: Mode::Create, seen: None };
    let problem = world.ask(operator(), create).expect_err("it exists");
    assert_eq!((problem.status, problem.field.as_str()), (409, "metadata.name"));
    let problem = world.refuse("VM", "b", vm("nobody", Some("h0"), "1Mbit"));
    assert_eq!((problem.status, problem.field.as_str()), (422, "spec.tenant"));
    let problem = world.refuse("VM", "b", vm("gold", Some("h9"), "1Mbit"));
    assert_eq!((problem.status, problem.field.as_str()), (422, "spec.host"));
    let problem = world.refuse("VM", "a", vm("bulk", Some("h0"), "1Mbit"));
    assert_eq!((problem.reason, problem.field.as_str()), ("Immutable", "spec.tenant"));
}

#[test]
fn who_writes_a_version_that_is_not_the_newest_is_refused() {
    let mut world = World::new();
    let told = world.apply("VM", "a", vm("gold", Some("h0"), "1Mbit"));
    let version = told["metadata"]["resourceVersion"].clone();
    let mut first = document("VM", "a", vm("gold", Some("h0"), "2Mbit"));
    first["metadata"]["resourceVersion"] = version.clone();
    world.ask(operator(), put(first.clone())).expect("the newest version was seen");
    first["spec"] = vm("gold", Some("h0"), "3Mbit");
    let problem = world.ask(operator(), put(first)).expect_err("an old version was seen");
    assert_eq!((problem.status, problem.field.as_str()), (409, "metadata.resourceVersion"));
    let seen = version.as_str().and_then(|v| v.parse().ok());
    let delete = Action::Delete { kind: Kind::Vm, name: "a".into(), seen };
    let problem = world.ask(operator(), delete).expect_err("an old version was seen");
    assert_eq!((problem.status, problem.field.as_str()), (412, "If-Match"));
}

#[test]
fn applying_what_is_there_already_changes_no_version() {
    let mut world = World::new();
    let first = world.apply("VM", "a", vm("gold", None, "1Mbit"));
    assert_eq!(world.apply("VM", "a", vm("gold", None, "1Mbit")), first);
    // What `weir get -o yaml` prints may be applied as it is.
    assert_eq!(world.ask(operator(), put(first.clone())).expect("accepted"), first);
}

#[test]
fn a_batch_is_applied_whole_or_not_at_all_whatever_its_order() {
    let mut world = World::empty();
    let wishes = |documents: Vec<Value>| {
        Action::Batch(documents.into_iter().map(|d| read(d).expect("good")).collect())
    };
    let good = vec![
        document("VM", "a", vm("gold", Some("h0"), "100Mbit")),
        document("Tenant", "gold", json!({})),
        document("Host", "h0", json!({"switch": "s", "rate": "1Gbit", "slots": 2})),
    ];
    let mut bad = good.clone();
    bad.push(document("VM", "b", vm("gold", Some("h9"), "1Mbit")));
    let problem = world.ask(operator(), wishes(bad)).expect_err("one of them is wrong");
    assert_eq!(problem.field, "items[3].spec.host");
    assert!(problem.detail.starts_with("VM `b`: "), "{}", problem.detail);
    assert_eq!(world.state.objects().count(), 0);
    let told = world.ask(operator(), wishes(good)).expect("all are good");
    assert_eq!(told["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(told["changes"].as_array().map(Vec::len), Some(3));
    world.assert_restart_changes_nothing();
}

#[test]
fn a_dry_run_tells_what_would_happen_and_changes_nothing() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "500Mbit"));
    world.apply("VM", "b", vm("gold", Some("h2"), "500Mbit"));
    let before = world.restarted().revision();
    let down = json!({"lower": "rack1", "upper": "core", "rate": "1Gbit", "state": "down"});
    let wish = read(document("Link", "rack1-up", down)).expect("good");
    let action = Action::Batch(vec![wish]);
    let request = Request { actor: operator(), dry_run: true, idempotency: None, action };
    let answer = world.state.handle(world.now(), &request).expect("it would work");
    let told: Value = serde_json::from_str(&answer.body).expect("JSON");
    let falls = told["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .filter(|change| change["object"]["status"]["conditions"][0]["reason"] == "LinkFull");
    assert_eq!(falls.count(), 1, "of two VMs that talk over the link one falls");
    assert_eq!(world.state.revision(), before);
    assert_eq!(world.state.writes(), []);
    world.state.check();
    world.assert_restart_changes_nothing();
}

#[test]
fn when_a_link_fails_floors_fall_by_priority_at_once_and_return_with_it() {
    let mut world = World::new();
    world.apply("Tenant", "gold", json!({"priority": 200}));
    for (tenant, n) in [("bulk", 0), ("gold", 1)] {
        world.apply("VM", &format!("{tenant}-l"), vm(tenant, Some("h0"), "400Mbit"));
        world.apply(
            "VM",
            &format!("{tenant}-r"),
            vm(tenant, Some(&format!("h{}", 2 + n)), "400Mbit"),
        );
    }
    let slow = json!({"lower": "rack1", "upper": "core", "rate": "500Mbit"});
    world.apply("Link", "rack1-up", slow);
    assert_eq!(world.state.fallen(), 1);
    for vm in ["gold-l", "gold-r", "bulk-l"] {
        assert_eq!(world.condition(Kind::Vm, vm, "Admitted").0, Truth::True, "{vm}");
    }
    let (truth, reason, message) = world.condition(Kind::Vm, "bulk-r", "Admitted");
    assert_eq!((truth, reason.as_str()), (Truth::False, "LinkFull"));
    assert!(message.contains("rack1-up") && message.contains("350Mbit"), "{message}");
    world.assert_restart_changes_nothing();
    // Room that is given back goes to what has fallen.
    world.delete(Kind::Vm, "gold-r").expect("deleted");
    assert_eq!(world.condition(Kind::Vm, "bulk-r", "Admitted").0, Truth::True);
    world.assert_restart_changes_nothing();
    let problem = world.refuse("VM", "gold-r", vm("gold", Some("h3"), "400Mbit"));
    assert_eq!(problem.reason, "LinkFull");
    world.apply("Link", "rack1-up", json!({"lower": "rack1", "upper": "core", "rate": "1Gbit"}));
    world.apply("VM", "gold-r", vm("gold", Some("h3"), "400Mbit"));
    world.assert_restart_changes_nothing();
}

#[test]
fn a_draining_host_takes_nothing_new_and_a_dead_one_gives_its_room_back() {
    let mut world = World::new();
    let host =
        |state: &str| json!({"switch": "rack0", "rate": "1Gbit", "slots": 4, "state": state});
    world.apply("VM", "a", vm("gold", Some("h0"), "100Mbit"));
    world.apply("VM", "free", vm("gold", None, "100Mbit"));
    world.apply("Host", "h0", host("draining"));
    let problem = world.refuse("VM", "b", vm("gold", Some("h0"), "1Mbit"));
    assert_eq!((problem.reason, problem.field.as_str()), ("HostDraining", "spec.host"));
    world.apply("VM", "a", vm("gold", Some("h0"), "50Mbit"));
    let problem = world.delete(Kind::Host, "h0").expect_err("it has a VM");
    assert_eq!(problem.reason, "InUse");
    assert!(problem.detail.contains("VM a"), "{}", problem.detail);
    world.apply("Host", "h0", host("dead"));
    assert_eq!(world.condition(Kind::Vm, "a", "Admitted").1, "HostDead");
    let stored = world.state.get(Kind::Vm, "free").expect("it exists");
    assert_ne!(stored.object.status.host.as_deref(), Some("h0"), "it was placed elsewhere");
    world.assert_restart_changes_nothing();
    world.delete(Kind::Host, "h0").expect("nothing claims it");
    world.apply("VM", "a", vm("gold", Some("h1"), "50Mbit"));
    assert_eq!(world.condition(Kind::Vm, "a", "Admitted").1, "Fits");
    world.assert_restart_changes_nothing();
}

#[test]
fn a_reservation_keeps_room_until_it_is_confirmed_and_confirming_twice_is_once() {
    let mut world = World::new();
    let told = world.apply(
        "Reservation",
        "r",
        reservation("gold", &[("a", "h0", "900Mbit"), ("b", "h2", "900Mbit")]),
    );
    assert_eq!(told["status"]["phase"], "Held");
    world.assert_restart_changes_nothing();
    let x = world.refuse(
        "Reservation",
        "x",
        reservation("bulk", &[("x", "h0", "100Mbit"), ("y", "h2", "100Mbit")]),
    );
    assert_eq!((x.reason, x.field.as_str()), ("LinkFull", "spec.vms[1].floor"));
    assert_eq!(x.more["vm"], "y");
    let problem = world.refuse("VM", "a", vm("gold", Some("h1"), "1Mbit"));
    assert_eq!(problem.reason, "Reserved");
    let first = world.confirm("r").expect("in time");
    assert_eq!(first["status"]["phase"], "Confirmed");
    let stored = world.state.get(Kind::Vm, "b").expect("it was made");
    assert_eq!(stored.object.status.host.as_deref(), Some("h2"));
    assert_eq!(world.confirm("r").expect("it was confirmed"), first);
    world.assert_restart_changes_nothing();
    let problem = world.ask(operator(), Action::Release("r".into())).expect_err("too late");
    assert_eq!(problem.reason, "Confirmed");
    let stored = world.refuse("Reservation", "r", reservation("gold", &[("c", "h0", "1Mbit")]));
    assert_eq!(stored.reason, "Immutable");
}

#[test]
fn a_reservation_that_nobody_confirms_expires_and_is_too_late_then() {
    let mut world = World::new();
    world.apply(
        "Reservation",
        "r",
        reservation("gold", &[("a", "h0", "900Mbit"), ("b", "h2", "900Mbit")]),
    );
    assert_eq!(world.state.next_deadline(), Some(world.now().plus_millis(60_000)));
    world.pass(59_999);
    assert!(world.state.held("r").is_some());
    world.pass(1);
    let problem = world.confirm("r").expect_err("too late");
    assert_eq!((problem.status, problem.reason), (409, "Expired"));
    assert!(problem.detail.contains("nobody confirmed it in time"), "{}", problem.detail);
    world.assert_restart_changes_nothing();
    world.apply(
        "Reservation",
        "s",
        reservation("bulk", &[("x", "h0", "900Mbit"), ("y", "h2", "900Mbit")]),
    );
    world.ask(operator(), Action::Release("s".into())).expect("released");
    world.ask(operator(), Action::Release("s".into())).expect("releasing twice is once");
    assert_eq!(world.confirm("s").expect_err("released").reason, "Released");
    world.pass(3_600_000);
    assert!(world.state.get(Kind::Reservation, "r").is_none(), "it goes out of sight");
    assert_eq!(world.state.next_deadline(), None);
    assert_eq!(world.confirm("r").expect_err("gone").status, 404);
    world.assert_restart_changes_nothing();
}

#[test]
fn a_clock_that_jumped_while_the_controller_was_down_holds_a_reservation_no_longer_than_it_asked() {
    for jump in [-31_536_000_000, -59_000, 0, 59_000_i64] {
        let mut world = World::new();
        world.apply("Reservation", "r", reservation("gold", &[("a", "h0", "1Mbit")]));
        world.now.set(world.now.get().checked_add_signed(jump).expect("after 1970"));
        world.state = world.restarted();
        world.pass(999);
        assert!(world.state.held("r").is_some(), "{jump}: it is held");
        world.pass(60_000);
        assert!(world.state.held("r").is_none(), "{jump}: for a minute at most");
        world.pass(3_600_000);
        assert!(world.state.get(Kind::Reservation, "r").is_none(), "{jump}");
        world.assert_restart_changes_nothing();
    }
}

#[test]
fn a_host_that_dies_between_reserve_and_confirm_fails_the_reservation() {
    let mut world = World::new();
    world.apply(
        "Reservation",
        "r",
        reservation("gold", &[("a", "h0", "1Mbit"), ("b", "h1", "1Mbit")]),
    );
    let problem = world.delete(Kind::Host, "h1").expect_err("it has room reserved");
    assert_eq!(problem.reason, "InUse");
    world.apply(
        "Host",
        "h1",
        json!({"switch": "rack0", "rate": "1Gbit", "slots": 4, "state": "dead"}),
    );
    let problem = world.confirm("r").expect_err("a host is gone");
    assert_eq!(problem.reason, "Failed");
    assert!(problem.detail.contains("host `h1` is dead"), "{}", problem.detail);
    assert_eq!(world.state.book.claims().count(), 0);
    assert_eq!(world.state.objects[Kind::Vm as usize].len(), 0, "no VM was made");
    world.assert_restart_changes_nothing();
}

#[test]
fn a_migration_has_room_on_both_hosts_until_it_is_confirmed_or_aborted() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "500Mbit"));
    world.apply("VM", "b", vm("gold", Some("h1"), "500Mbit"));
    world.apply("Reservation", "m", reservation("gold", &[("a", "h2", "500Mbit")]));
    assert_eq!(world.state.book.claims_on("h0").count(), 1);
    assert_eq!(world.state.book.claims_on("h2").count(), 1);
    world.ask(operator(), Action::Release("m".into())).expect("aborted");
    assert_eq!(world.state.book.claims_on("h2").count(), 0);
    world.apply("Reservation", "n", reservation("gold", &[("a", "h2", "500Mbit")]));
    let problem = world.refuse("Reservation", "o", reservation("gold", &[("a", "h3", "1Mbit")]));
    assert_eq!(problem.reason, "Reserved");
    world.confirm("n").expect("confirmed");
    assert_eq!(world.state.book.claims_on("h0").count(), 0);
    let stored = world.state.get(Kind::Vm, "a").expect("it exists");
    assert_eq!(stored.object.status.host.as_deref(), Some("h2"));
    assert_eq!(stored.object.metadata.generation, 2);
    let there = world.refuse("Reservation", "p", reservation("gold", &[("a", "h2", "1Mbit")]));
    assert_eq!(there.reason, "AlreadyThere");
    let other = world.refuse("Reservation", "p", reservation("bulk", &[("a", "h0", "1Mbit")]));
    assert_eq!(other.reason, "AlreadyExists");
    world.assert_restart_changes_nothing();
}

#[test]
fn roles_bound_what_a_token_may_write() {
    let mut world = World::new();
    let tenant = Actor { name: "t".into(), role: Role::Tenant, tenant: Some("gold".into()) };
    let viewer = Actor { name: "v".into(), role: Role::Viewer, tenant: None };
    world.apply("VM", "theirs", vm("bulk", Some("h0"), "1Mbit"));
    world
        .ask(tenant.clone(), put(document("VM", "a", vm("gold", None, "1Mbit"))))
        .expect("its own");
    for (actor, kind, name, spec) in [
        (&viewer, "VM", "a", vm("gold", None, "2Mbit")),
        (&tenant, "VM", "b", vm("bulk", None, "2Mbit")),
        (&tenant, "VM", "theirs", vm("gold", None, "2Mbit")),
        (&tenant, "VM", "c", vm("gold", Some("h0"), "2Mbit")),
        (&tenant, "Tenant", "gold", json!({"priority": 1000})),
        (&tenant, "Reservation", "r", reservation("gold", &[("c", "h0", "1Mbit")])),
        (&tenant, "Host", "h0", json!({"switch": "rack0", "rate": "9Gbit", "slots": 4})),
    ] {
        let problem = world.ask(actor.clone(), put(document(kind, name, spec))).expect_err(kind);
        assert_eq!(problem.status, 403, "{kind} {name}");
    }
    let delete = |name: &str| Action::Delete { kind: Kind::Vm, name: name.into(), seen: None };
    // Whether a stranger's VM exists is not told.
    for name in ["theirs", "nothing"] {
        assert_eq!(world.ask(tenant.clone(), delete(name)).expect_err("not its own").status, 403);
    }
    world.ask(tenant.clone(), delete("a")).expect("its own");
    let token = NewToken {
        hash: "00".into(),
        name: "x".into(),
        role: Role::Operator,
        tenant: None,
        host: None,
        expires: None,
    };
    for actor in [tenant, viewer] {
        let problem =
            world.ask(actor, Action::AddToken(token.clone())).expect_err("not an operator");
        assert_eq!(problem.status, 403);
    }
    let told = world.ask(operator(), Action::AddToken(token)).expect("an operator");
    assert!(told.get("hash").is_none(), "hashes stay inside");
    world.assert_restart_changes_nothing();
    world.ask(operator(), Action::RemoveToken("x".into())).expect("removed");
    world.assert_restart_changes_nothing();
}

#[test]
fn a_request_is_done_once_however_often_it_is_sent_with_its_key() {
    let mut world = World::new();
    let mut request = |key: &str, spec: Value, fingerprint: &str| {
        let request = Request {
            actor: operator(),
            dry_run: false,
            idempotency: Some(Idempotency { key: key.into(), fingerprint: fingerprint.into() }),
            action: put(document("VM", "a", spec)),
        };
        let answer = world.state.handle(world.now(), &request);
        world.keep();
        answer
    };
    let first = request("k", vm("gold", Some("h0"), "1Mbit"), "f1").expect("accepted");
    assert_eq!(first.status, 201);
    request("l", vm("gold", Some("h0"), "2Mbit"), "f2").expect("accepted");
    // Sent again, it gets its old answer and does not undo what came later.
    assert_eq!(request("k", vm("gold", Some("h0"), "1Mbit"), "f1"), Ok(first));
    let problem = request("k", vm("gold", Some("h0"), "3Mbit"), "f3").expect_err("another request");
    assert_eq!((problem.status, problem.field.as_str()), (422, "Idempotency-Key"));
    let stored = world.state.get(Kind::Vm, "a").expect("it exists");
    assert!(stored.json.contains("2Mbit"));
    world.assert_restart_changes_nothing();
    world.pass(86_400_000);
    assert!(world.state.answers.is_empty(), "a day later it is forgotten");
    world.assert_restart_changes_nothing();
}

#[test]
fn every_change_is_in_the_audit_log_and_the_oldest_entries_go() {
    let mut world = World::empty();
    world.state.limits.audit = 3;
    for n in 0..5 {
        world.apply("Tenant", &format!("t{n}"), json!({}));
    }
    world.apply("Tenant", "t4", json!({}));
    let entries: Vec<Value> = world
        .records
        .iter()
        .filter(|((table, _), _)| *table == Table::Audit)
        .map(|(_, value)| serde_json::from_slice(value).expect("JSON"))
        .collect();
    let names: Vec<&str> = entries.iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert_eq!(names, ["t2", "t3", "t4"], "what changes nothing is no entry");
    assert_eq!(entries[0]["who"], "op");
    assert_eq!(entries[0]["verb"], "apply");
    world.assert_restart_changes_nothing();
}

#[test]
fn what_the_store_could_not_write_is_taken_back() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "100Mbit"));
    world.apply("Reservation", "r", reservation("gold", &[("b", "h1", "1Mbit")]));
    let counters = world.state.counters();
    let all = |state: &State| state.objects().map(|s| s.json.clone()).collect::<Vec<_>>();
    let before = all(&world.state);
    let dead = json!({"switch": "rack0", "rate": "1Gbit", "slots": 4, "state": "dead"});
    for action in [
        put(document("VM", "a", vm("gold", Some("h1"), "200Mbit"))),
        put(document("VM", "c", vm("bulk", None, "200Mbit"))),
        Action::Confirm("r".into()),
        Action::Delete { kind: Kind::Vm, name: "c".into(), seen: None },
        put(document("Host", "h0", dead)),
        put(document("Host", "h9", json!({"switch": "rack0", "rate": "1Gbit", "slots": 4}))),
    ] {
        let request = Request { actor: operator(), dry_run: false, idempotency: None, action };
        world.state.handle(world.now(), &request).expect("accepted");
        world.state.check();
    }
    world.state.undo(counters);
    world.state.check();
    assert_eq!(all(&world.state), before);
    assert_eq!(world.state.writes(), []);
    world.assert_restart_changes_nothing();
}
