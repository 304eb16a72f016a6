//! Tenants that are placed, resized and refused whole.

use super::*;
use weir_model::objects::Spec;

fn tenant(vms: u32, floor: &str) -> Value {
    let floor = json!({"out": floor, "in": floor});
    json!({"components": [{"name": "web", "vms": vms, "floor": floor}]})
}

fn hosts(world: &World, tenant: &str) -> BTreeMap<String, String> {
    let vms = world.state.objects[Kind::Vm as usize].values().map(|stored| &stored.object);
    let of = vms.filter(|vm| vm.owner() == Some(tenant));
    of.map(|vm| (vm.name().to_owned(), vm.status.host.clone().expect("it is placed"))).collect()
}

fn most_on_one(hosts: &BTreeMap<String, String>) -> usize {
    let count = |host: &String| hosts.values().filter(|other| *other == host).count();
    hosts.values().map(count).max().unwrap_or_default()
}

fn batch(documents: Vec<Value>) -> Action {
    Action::Batch(documents.into_iter().map(|d| read(d).expect("good")).collect())
}

#[test]
fn a_tenant_is_placed_whole_and_survives_a_host_and_a_rack() {
    let mut world = World::new();
    world.apply("Tenant", "packed", tenant(3, "100Mbit"));
    assert_eq!(most_on_one(&hosts(&world, "packed")), 3, "one host holds it");
    assert_eq!(world.state.get(Kind::Tenant, "packed").expect("made").object.status.routing, None);
    let mut wanted = tenant(4, "100Mbit");
    wanted["survival"] = json!({"hostPercent": 75, "rackPercent": 50});
    world.apply("Tenant", "spread", wanted);
    let spread = hosts(&world, "spread");
    let names: Vec<&str> = spread.keys().map(String::as_str).collect();
    assert_eq!(names, ["spread-web-0", "spread-web-1", "spread-web-2", "spread-web-3"]);
    assert_eq!(most_on_one(&spread), 1, "{spread:?}");
    let status = &world.state.get(Kind::Tenant, "spread").expect("made").object.status;
    assert_eq!(status.routing.as_ref().map(|tree| tree.root.as_str()), Some("core"));
    world.assert_restart_changes_nothing();
}

#[test]
fn a_tenant_that_does_not_fit_is_refused_whole() {
    let mut world = World::new();
    let before = world.state.objects().count();
    let problem = world.refuse("Tenant", "large", tenant(17, "1Mbit"));
    assert_eq!((problem.status, problem.reason), (409, "NoSlot"));
    assert_eq!(problem.field, "spec.components[0].floor");
    let mut unsafe_ = tenant(3, "1Mbit");
    unsafe_["survival"] = json!({"hostPercent": 90});
    let problem = world.refuse("Tenant", "large", unsafe_);
    assert_eq!((problem.reason, problem.field.as_str()), ("Survival", "spec.survival"));
    let mut bounded = tenant(3, "1Mbit");
    bounded["quota"] = json!({"vms": 2});
    let problem = world.refuse("Tenant", "large", bounded);
    assert_eq!(
        (problem.reason, problem.field.as_str()),
        ("QuotaExceeded", "spec.components[0].vms")
    );
    assert_eq!(world.state.objects().count(), before, "neither the tenant nor a VM of it is there");
    world.assert_restart_changes_nothing();
}

#[test]
fn floors_and_numbers_of_vms_change_in_place_or_not_at_all() {
    let mut world = World::new();
    let wanted = |vms: u32, floor: &str| {
        let mut wanted = tenant(vms, floor);
        wanted["survival"] = json!({"hostPercent": 50});
        wanted
    };
    world.apply("Tenant", "t", wanted(4, "100Mbit"));
    let first = hosts(&world, "t");
    world.apply("Tenant", "t", wanted(6, "200Mbit"));
    let grown = hosts(&world, "t");
    assert!(first.iter().all(|(vm, host)| grown[vm] == *host), "{first:?} {grown:?}");
    assert_eq!((grown.len(), most_on_one(&grown)), (6, 3));
    let (before, version) = (hosts(&world, "t"), world.state.revision());
    let problem = world.refuse("Tenant", "t", wanted(6, "301Mbit"));
    assert_eq!(problem.reason, "LinkFull");
    assert_eq!((hosts(&world, "t"), world.state.revision()), (before, version));
    world.apply("Tenant", "t", wanted(6, "300Mbit"));
    // Larger floors of fewer VMs are one step: neither half of it has to fit.
    world.apply("Tenant", "t", wanted(2, "900Mbit"));
    let shrunk = hosts(&world, "t");
    assert!(shrunk.iter().all(|(vm, host)| grown[vm] == *host), "{grown:?} {shrunk:?}");
    assert_eq!((shrunk.len(), most_on_one(&shrunk)), (2, 1), "the fuller hosts gave");
    world.assert_restart_changes_nothing();
    world.apply("Tenant", "t", json!({}));
    assert_eq!(hosts(&world, "t").len(), 0);
    assert_eq!(world.state.book.claims().count(), 0);
    world.assert_restart_changes_nothing();
}

#[test]
fn a_vm_of_a_component_changes_and_goes_with_its_tenant_only() {
    let mut world = World::new();
    world.apply("Tenant", "t", tenant(2, "100Mbit"));
    let read_back = |world: &World| {
        let stored = world.state.get(Kind::Vm, "t-web-0").expect("it exists");
        serde_json::from_str::<Value>(&stored.json).expect("JSON")
    };
    let mut vm = read_back(&world);
    world.ask(operator(), put(vm.clone())).expect("what is there already may be applied");
    let network = json!({"port": "tap7", "addresses": ["10.0.0.7"]});
    vm["spec"]["network"] = network.clone();
    world
        .ask(operator(), put(vm))
        .expect("its tenant does not say how it is joined to the network");
    let mut vm = read_back(&world);
    assert_eq!(vm["spec"]["network"], network);
    world.apply("Tenant", "t", tenant(2, "90Mbit"));
    assert_eq!(read_back(&world)["spec"]["network"], network, "it stays with the VM");
    world.apply("Tenant", "t", tenant(2, "100Mbit"));
    vm["metadata"]["resourceVersion"] = Value::Null;
    vm["spec"]["floor"]["out"] = "1Mbit".into();
    let problem = world.ask(operator(), put(vm)).expect_err("another floor");
    assert_eq!((problem.reason, problem.field.as_str()), ("Managed", "spec.component"));
    let problem = world.delete(Kind::Vm, "t-web-0").expect_err("the tenant has two");
    assert_eq!((problem.reason, problem.field.as_str()), ("Managed", "metadata.name"));
    let claimed = json!({"tenant": "t", "component": "web"});
    assert_eq!(world.refuse("VM", "t-web-2", claimed).reason, "Managed");
    world.apply("VM", "t-db-0", json!({"tenant": "t"}));
    let mut more = tenant(2, "100Mbit");
    more["components"].as_array_mut().expect("a list").push(json!({"name": "db", "vms": 1}));
    let problem = world.refuse("Tenant", "t", more);
    assert_eq!(
        (problem.reason, problem.field.as_str()),
        ("AlreadyExists", "spec.components[1].name")
    );
    assert_eq!(
        world.delete(Kind::Tenant, "t").expect_err("it has a VM of its own").reason,
        "InUse"
    );
    world.delete(Kind::Vm, "t-db-0").expect("it is nobody's component");
    world.delete(Kind::Tenant, "t").expect("its components go with it");
    assert_eq!(world.state.objects[Kind::Vm as usize].len(), 0);
    assert_eq!(world.state.book.claims().count(), 0);
    world.assert_restart_changes_nothing();
}

#[test]
fn a_vm_of_a_component_moves_by_a_reservation_and_stays_one() {
    let mut world = World::new();
    world.apply("Tenant", "t", tenant(2, "100Mbit"));
    let from = hosts(&world, "t")["t-web-0"].clone();
    let to = if from == "h3" { "h2" } else { "h3" };
    let other = world.refuse("Reservation", "m", reservation("t", &[("t-web-0", to, "90Mbit")]));
    assert_eq!((other.reason, other.field.as_str()), ("Managed", "spec.vms[0].floor"));
    let mut moves = reservation("t", &[("t-web-0", to, "100Mbit")]);
    moves["vms"][0]["network"] = json!({"port": "tap0"});
    world.apply("Reservation", "m", moves);
    let problem = world.refuse("Tenant", "t", tenant(2, "110Mbit"));
    assert_eq!((problem.reason, problem.field.as_str()), ("Reserved", "spec.components[0].floor"));
    world.confirm("m").expect("confirmed");
    world.apply("Tenant", "t", tenant(2, "110Mbit"));
    assert_eq!(hosts(&world, "t")["t-web-0"], to, "a resize moves nothing");
    let stored = world.state.get(Kind::Vm, "t-web-0").expect("it is there");
    let Spec::Vm(spec) = &stored.object.spec else { panic!("it is a VM") };
    let port = spec.network.as_ref().and_then(|network| network.port.as_deref());
    assert_eq!(port, Some("tap0"), "a resize leaves it at its port");
    world.assert_restart_changes_nothing();
}

#[test]
fn vms_of_one_apply_are_placed_together_and_the_one_too_many_is_named() {
    let mut world = World::new();
    world.apply("Tenant", "t", json!({"survival": {"hostPercent": 50}}));
    let problem = world.refuse("VM", "a", vm("t", None, "100Mbit"));
    assert_eq!((problem.reason, problem.field.as_str()), ("Survival", "spec.tenant"));
    let two = |floor: &str| {
        batch(vec![
            document("VM", "a", vm("t", None, floor)),
            document("VM", "b", vm("t", None, floor)),
        ])
    };
    world.ask(operator(), two("100Mbit")).expect("half of them survive a host");
    assert_eq!(most_on_one(&hosts(&world, "t")), 1);
    let many = (0..5).map(|n| document("VM", &format!("c{n}"), vm("gold", Some("h2"), "1Mbit")));
    let problem = world.ask(operator(), batch(many.collect())).expect_err("the host has a VM");
    let free = 4 - hosts(&world, "t").values().filter(|host| *host == "h2").count();
    assert_eq!(problem.reason, "HostFull");
    assert_eq!(problem.field, format!("items[{free}].spec.host"));
    assert!(problem.detail.starts_with(&format!("VM `c{free}`: ")), "{}", problem.detail);
    world.ask(operator(), two("900Mbit")).expect("both grow in one step");
    assert_eq!(world.ask(operator(), two("901Mbit")).expect_err("full").reason, "LinkFull");
    world.assert_restart_changes_nothing();
}

#[test]
fn a_floor_between_components_counts_between_them_alone() {
    let mut world = World::new();
    let with = |host: &str, hoses: &[(&str, &str, &str)]| {
        let hoses: Vec<Value> = hoses
            .iter()
            .map(|(name, out, inward)| json!({"name": name, "floor": {"out": out, "in": inward}}))
            .collect();
        json!({"tenant": "gold", "host": host, "hoses": hoses})
    };
    world.apply("VM", "web", with("h0", &[("web-db", "800Mbit", "0bit")]));
    world.apply("VM", "log", with("h2", &[("log", "0bit", "900Mbit")]));
    assert_eq!(
        world.state.get(Kind::Tenant, "gold").map(|t| t.object.status.routing.is_some()),
        Some(true)
    );
    // Nothing sends to `log`, so the uplinks are free for the other hose.
    world.apply("VM", "db", with("h2", &[("web-db", "0bit", "800Mbit")]));
    let problem = world.refuse(
        "VM",
        "web",
        with("h0", &[("web-db", "800Mbit", "0bit"), ("log", "200Mbit", "0bit")]),
    );
    assert_eq!((problem.reason, &problem.more["missing"]), ("LinkFull", &json!("100Mbit")));
    world.apply(
        "VM",
        "web",
        with("h0", &[("web-db", "800Mbit", "0bit"), ("log", "100Mbit", "0bit")]),
    );
    world.assert_restart_changes_nothing();
    let quota = json!({"quota": {"out": "899Mbit"}});
    assert_eq!(world.refuse("Tenant", "gold", quota).reason, "QuotaBelowUse", "hoses count");
}

#[test]
fn a_tenant_at_its_quota_can_move_its_vms() {
    let mut world = World::new();
    world.apply("Tenant", "t", json!({"quota": {"vms": 2, "out": "200Mbit"}}));
    world.apply("VM", "a", vm("t", Some("h0"), "100Mbit"));
    world.apply("VM", "b", vm("t", Some("h1"), "100Mbit"));
    let problem = world.refuse("Reservation", "m", reservation("t", &[("a", "h2", "101Mbit")]));
    assert_eq!(
        (problem.reason, problem.field.as_str()),
        ("QuotaExceeded", "spec.vms[0].floor.out")
    );
    world.apply("Reservation", "m", reservation("t", &[("a", "h2", "100Mbit")]));
    world.assert_restart_changes_nothing();
    let problem = world.refuse("VM", "c", vm("t", Some("h3"), "0bit"));
    assert_eq!(problem.reason, "QuotaExceeded");
    // Without the VM that moves, its reservation makes it, and counts.
    world.delete(Kind::Vm, "a").expect("deleted");
    world.assert_restart_changes_nothing();
    assert_eq!(world.refuse("VM", "c", vm("t", Some("h3"), "0bit")).reason, "QuotaExceeded");
    world.confirm("m").expect("confirmed");
    world.assert_restart_changes_nothing();
    assert_eq!(world.refuse("VM", "c", vm("t", Some("h3"), "0bit")).reason, "QuotaExceeded");
}

#[test]
fn a_higher_priority_takes_back_the_floor_that_fell() {
    let mut world = World::new();
    world.apply("Tenant", "gold", json!({"priority": 200}));
    for (name, tenant, host) in
        [("gl", "gold", "h0"), ("gr", "gold", "h2"), ("bl", "bulk", "h1"), ("br", "bulk", "h3")]
    {
        world.apply("VM", name, vm(tenant, Some(host), "400Mbit"));
    }
    let slow = json!({"lower": "rack1", "upper": "core", "rate": "500Mbit"});
    world.apply("Link", "rack1-up", slow);
    assert_eq!(world.condition(Kind::Vm, "br", "Admitted").0, Truth::False);
    world.apply("Tenant", "bulk", json!({"priority": 300}));
    assert_eq!(world.condition(Kind::Vm, "br", "Admitted").0, Truth::True);
    assert_eq!(world.condition(Kind::Vm, "gr", "Admitted").0, Truth::False);
    world.assert_restart_changes_nothing();
}

#[test]
fn room_that_a_move_gives_back_goes_to_what_fell_before_anybody_else_asks() {
    let mut world = World::new();
    world.apply("Tenant", "gold", json!({"priority": 200}));
    for (name, tenant, host) in
        [("gl", "gold", "h0"), ("gr", "gold", "h2"), ("bl", "bulk", "h1"), ("br", "bulk", "h3")]
    {
        world.apply("VM", name, vm(tenant, Some(host), "400Mbit"));
    }
    world.apply("Link", "rack1-up", json!({"lower": "rack1", "upper": "core", "rate": "500Mbit"}));
    assert_eq!(world.condition(Kind::Vm, "br", "Admitted").0, Truth::False);
    world.apply("Reservation", "m", reservation("gold", &[("gr", "h1", "400Mbit")]));
    let confirm = Request {
        actor: operator(),
        dry_run: false,
        idempotency: None,
        action: Action::Confirm("m".into()),
    };
    let greedy = Request {
        action: put(document("VM", "new", vm("gold", Some("h2"), "400Mbit"))),
        ..confirm.clone()
    };
    // Both in one commit.
    world.state.handle(world.now(), &confirm).expect("confirmed");
    assert_eq!(world.condition(Kind::Vm, "br", "Admitted").0, Truth::True);
    world.state.handle(world.now(), &greedy).expect_err("the room is taken");
    world.keep();
    world.assert_restart_changes_nothing();
}
