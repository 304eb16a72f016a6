//! What is asked of a host that is gone, and changes that do not fit.

use super::*;

fn host(rack: &str, state: &str) -> Value {
    json!({"switch": rack, "rate": "1Gbit", "slots": 4, "state": state})
}

fn batch(documents: Vec<Value>) -> Action {
    Action::Batch(documents.into_iter().map(|one| read(one).expect("good")).collect())
}

#[test]
fn a_host_that_vanished_before_its_vm_was_placed_is_named_and_nothing_is_made() {
    let mut world = World::new();
    // Somebody chose h1, and it is gone when the request comes.
    world.apply("Host", "h1", host("rack0", "dead"));
    let problem = world.refuse("VM", "a", vm("gold", Some("h1"), "1Mbit"));
    assert_eq!((problem.status, problem.reason), (409, "HostDead"));
    assert_eq!(problem.field, "spec.host");
    let problem = world.refuse("Reservation", "r", reservation("gold", &[("a", "h1", "1Mbit")]));
    assert_eq!((problem.status, problem.reason), (409, "HostDead"));
    assert_eq!(problem.field, "spec.vms[0].host");
    world.delete(Kind::Host, "h1").expect("it has no VM");
    let problem = world.refuse("VM", "a", vm("gold", Some("h1"), "1Mbit"));
    assert_eq!((problem.status, problem.reason), (422, "NoSuchHost"));
    // It goes with the same request that places a VM on it.
    let request = vec![
        document("VM", "b", vm("gold", None, "1Mbit")),
        document("VM", "a", vm("gold", Some("h2"), "1Mbit")),
        document("Host", "h2", host("rack1", "dead")),
    ];
    let problem = world.ask(operator(), batch(request)).expect_err("its host goes");
    assert_eq!((problem.reason, problem.field.as_str()), ("HostDead", "items[1].spec.host"));
    assert_eq!(world.state.objects[Kind::Vm as usize].len(), 0, "no VM was made");
    world.apply("VM", "a", vm("gold", Some("h2"), "1Mbit"));
    world.assert_restart_changes_nothing();
    // All hosts go while the controller looks for a place.
    let mut request = vec![document("VM", "b", vm("gold", None, "1Mbit"))];
    for (name, rack) in [("h0", "rack0"), ("h2", "rack1"), ("h3", "rack1")] {
        request.push(document("Host", name, host(rack, "dead")));
    }
    let problem = world.ask(operator(), batch(request)).expect_err("no host is left");
    assert_eq!((problem.status, problem.reason), (409, "NoHost"));
    assert_eq!(world.condition(Kind::Vm, "a", "Admitted").0, Truth::True, "the old state stays");
    // A VM that was on a host that died cannot grow there.
    world.apply("Host", "h2", host("rack1", "dead"));
    let problem = world.refuse("VM", "a", vm("gold", Some("h2"), "2Mbit"));
    assert_eq!(problem.reason, "HostDead");
    world.assert_restart_changes_nothing();
}

#[test]
fn of_several_resizes_one_that_does_not_fit_leaves_all_as_they_were() {
    let mut world = World::new();
    for (name, host) in [("a", "h0"), ("b", "h2"), ("x", "h1"), ("y", "h3")] {
        let tenant = if name < "m" { "gold" } else { "bulk" };
        world.apply("VM", name, vm(tenant, Some(host), "400Mbit"));
    }
    let all = |world: &World| world.state.objects().map(|one| one.json.clone()).collect::<Vec<_>>();
    let before = all(&world);
    let resized = |gold: &str, bulk: &str| {
        let of = |name: &str, tenant: &str, host: &str, floor: &str| {
            document("VM", name, vm(tenant, Some(host), floor))
        };
        batch(vec![
            of("x", "bulk", "h1", bulk),
            of("y", "bulk", "h3", bulk),
            of("a", "gold", "h0", gold),
            of("b", "gold", "h2", gold),
        ])
    };
    for (gold, bulk) in [("601Mbit", "300Mbit"), ("500Mbit", "401Mbit")] {
        let problem = world.ask(operator(), resized(gold, bulk)).expect_err("one is too large");
        assert_eq!((problem.status, problem.reason), (409, "LinkFull"), "{}", problem.detail);
        assert!(problem.field.ends_with("].spec.floor"), "{}", problem.field);
        assert_eq!(all(&world), before, "{gold}, {bulk}");
        world.assert_restart_changes_nothing();
    }
    world.ask(operator(), resized("600Mbit", "300Mbit")).expect("both fit");
    world.assert_restart_changes_nothing();
}
