//! Numbers that objects ask for.

use super::*;

fn numbered(number: u32) -> Value {
    json!({"tenant": "gold", "host": "h0", "floor": {"out": "1Mbit"}, "number": number})
}

fn number(world: &World, kind: Kind, name: &str) -> Option<u32> {
    world.state.get(kind, name)?.object.status.number
}

#[test]
fn an_object_has_the_number_that_it_asks_for_and_keeps_it() {
    let mut world = World::new();
    world.apply("VM", "first", vm("gold", None, "1Mbit"));
    world.apply("VM", "asks", numbered(40));
    world.apply("VM", "later", vm("gold", None, "1Mbit"));
    let all = |world: &World| ["first", "asks", "later"].map(|name| number(world, Kind::Vm, name));
    assert_eq!(all(&world), [Some(0), Some(40), Some(41)]);
    world.assert_restart_changes_nothing();
    // Without the field it stays, and whoever says the same says nothing new.
    world.apply("VM", "asks", vm("gold", None, "2Mbit"));
    world.apply("VM", "first", numbered(0));
    assert_eq!(all(&world), [Some(0), Some(40), Some(41)]);
    // Hosts have numbers of their own.
    let host = json!({"switch": "rack0", "rate": "1Gbit", "slots": 4, "number": 41});
    world.apply("Host", "h9", host);
    assert_eq!(number(&world, Kind::Host, "h9"), Some(41));
    // A removed object leaves its number, to one that asks for it.
    world.ask(operator(), remove(Kind::Vm, "asks")).expect("it may go");
    world.apply("VM", "next", vm("gold", None, "1Mbit"));
    world.apply("VM", "again", numbered(40));
    assert_eq!(["next", "again"].map(|name| number(&world, Kind::Vm, name)), [Some(42), Some(40)]);
    world.assert_restart_changes_nothing();
}

fn remove(kind: Kind, name: &str) -> Action {
    Action::Delete { kind, name: name.into(), seen: None }
}

#[test]
fn a_number_of_another_object_or_of_before_is_refused_with_field_and_reason() {
    let mut world = World::new();
    world.apply("VM", "a", numbered(7));
    let problem = world.refuse("VM", "b", numbered(7));
    assert_eq!((problem.status, problem.reason), (409, "NumberTaken"));
    assert_eq!(problem.field, "spec.number");
    assert!(problem.detail.contains("VM `a` has number 7"), "{}", problem.detail);
    let problem = world.refuse("VM", "a", numbered(8));
    assert_eq!((problem.status, problem.reason), (422, "Immutable"));
    assert!(problem.detail.contains("the VM is number 7"), "{}", problem.detail);
    let taken = number(&world, Kind::Host, "h1").expect("it has one");
    let host = json!({"switch": "rack0", "rate": "1Gbit", "slots": 4, "number": taken});
    let problem = world.refuse("Host", "h9", host);
    assert_eq!((problem.reason, problem.field.as_str()), ("NumberTaken", "spec.number"));
    // All of a request or nothing: also when two of its objects ask for one number.
    let two = ["c", "d"].map(|name| document("VM", name, numbered(9)));
    let wishes = two.map(|object| read(object).expect("a good document")).into();
    let problem = world.ask(operator(), Action::Batch(wishes)).expect_err("both want 9");
    assert_eq!((problem.reason, problem.field.as_str()), ("NumberTaken", "items[1].spec.number"));
    world.apply("VM", "d", numbered(9));
    let tenant = Actor { name: "t".into(), role: Role::Tenant, tenant: Some("gold".into()) };
    let mut own = numbered(10);
    own.as_object_mut().expect("fields").remove("host");
    let problem = world.ask(tenant, put(document("VM", "e", own))).expect_err("a tenant");
    assert_eq!((problem.status, problem.field.as_str()), (403, "spec.number"));
    let error = read(document("VM", "f", numbered(1 << 31))).expect_err("it is too large");
    assert_eq!(error.field, "spec.number");
    assert!(error.reason.contains("write 0 to 2147483647"), "{}", error.reason);
}
