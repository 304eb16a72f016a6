//! A hundred migrations while the cloud changes.

use super::*;
use std::collections::BTreeSet;
use weir_model::objects::{Phase, Spec};
use weir_units::SplitMix64;

const HOSTS: u64 = 16;
const TENANTS: u64 = 6;
const MIGRATIONS: u32 = 100;

/// All chance of a case comes from its seed.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next() % n
    }

    fn host(&mut self) -> String {
        format!("h{}", self.below(HOSTS))
    }

    fn floor(&mut self) -> String {
        format!("{}Mbit", 1 + self.below(400))
    }
}

/// Four racks of four hosts, two spines.
fn cloud() -> World {
    let mut world = World::empty();
    world.apply("Topology", "default", json!({"routing": "layers"}));
    for n in 0..HOSTS {
        let spec = json!({"switch": format!("leaf{}", n / 4), "rate": "2Gbit", "slots": 12});
        world.apply("Host", &format!("h{n}"), spec);
    }
    for leaf in 0..4 {
        for spine in 0..2 {
            let spec = json!({"lower": format!("leaf{leaf}"), "upper": format!("spine{spine}"), "rate": "2Gbit"});
            world.apply("Link", &format!("l{leaf}s{spine}"), spec);
        }
    }
    for tenant in 0..TENANTS {
        world.apply("Tenant", &format!("t{tenant}"), json!({"quota": {"vms": 14}}));
    }
    world
}

/// VMs and held reservations as they are, without their versions.
fn promises(world: &World) -> BTreeMap<String, Value> {
    let kinds = [Kind::Vm, Kind::Reservation].map(|kind| kind as usize);
    let all = kinds.into_iter().flat_map(|kind| world.state.objects[kind].values());
    let of = |stored: &Arc<Stored>| {
        let name = format!("{} {}", stored.object.kind(), stored.object.name());
        (name, serde_json::from_str(&stored.json).expect("JSON"))
    };
    all.map(of).collect()
}

/// Asks, and checks that nobody but `named` is touched.
fn ask_alone(world: &mut World, action: Action, named: &[String]) -> bool {
    let before = promises(world);
    let done = world.ask(operator(), action).is_ok();
    let after = promises(world);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names.into_iter().filter(|name| !named.contains(name)) {
        assert_eq!(before.get(name), after.get(name), "{name} is not named in the request");
    }
    assert_eq!(world.state.fallen(), 0, "no floor falls");
    done
}

fn vms(world: &World) -> Vec<(String, String, String)> {
    let all = world.state.objects[Kind::Vm as usize].values().map(|stored| &stored.object);
    let of = |vm: &Object| {
        let floor = match &vm.spec {
            Spec::Vm(spec) => weir_model::text::show_rate(spec.floor.out.0),
            _ => unreachable!("they are VMs"),
        };
        (vm.name().to_owned(), vm.owner().unwrap_or_default().to_owned(), floor)
    };
    all.map(of).collect()
}

/// A VM comes, goes, grows or shrinks.
fn load(world: &mut World, random: &mut Random) {
    let tenant = format!("t{}", random.below(TENANTS));
    let name = format!("{tenant}-{}", random.below(14));
    let named = [format!("VM {name}")];
    let host = (random.below(2) == 0).then(|| random.host());
    let action = match random.below(4) {
        0 => Action::Delete { kind: Kind::Vm, name, seen: None },
        _ => {
            let floor = random.floor();
            put(document("VM", &name, vm(&tenant, host.as_deref(), &floor)))
        }
    };
    ask_alone(world, action, &named);
}

#[test]
fn a_hundred_migrations_under_load_touch_nobody_elses_reservation() {
    let (mut world, mut random) = (cloud(), Random(SplitMix64::new(22)));
    for _ in 0..150 {
        load(&mut world, &mut random);
    }
    let (mut begun, mut moved, mut aborted, mut refused) = (0, 0, 0, 0);
    let mut under_way: Vec<(String, String, String)> = Vec::new();
    while moved + aborted < MIGRATIONS {
        load(&mut world, &mut random);
        let all = vms(&world);
        let (vm, tenant, floor) = all[random.below(all.len() as u64) as usize].clone();
        let (name, to) = (format!("m{begun}"), random.host());
        let named = [format!("Reservation {name}")];
        let action =
            put(document("Reservation", &name, reservation(&tenant, &[(&vm, &to, &floor)])));
        match ask_alone(&mut world, action, &named) {
            true => {
                begun += 1;
                under_way.push((name, vm, to));
            }
            false => refused += 1,
        }
        if under_way.len() < 4 {
            continue;
        }
        let (name, vm, to) = under_way.remove(random.below(4) as usize);
        let named = [format!("Reservation {name}"), format!("VM {vm}")];
        if random.below(2) == 0 {
            assert!(
                ask_alone(&mut world, Action::Confirm(name), &named),
                "what is held is confirmed"
            );
            let stored = world.state.get(Kind::Vm, &vm).expect("it moved");
            assert_eq!(stored.object.status.host.as_ref(), Some(&to));
            moved += 1;
        } else {
            assert!(
                ask_alone(&mut world, Action::Release(name), &named),
                "what is held is released"
            );
            aborted += 1;
        }
    }
    assert!(moved > 20 && aborted > 20 && refused > 20, "{moved} {aborted} {refused}");
    world.assert_restart_changes_nothing();
}

/// A state that another controller loads from the same records, and what it answers to a confirmation.
fn confirmed_elsewhere(world: &World) -> (State, Result<(), Problem>) {
    let mut other = world.restarted();
    other.tick(world.now());
    let action = Action::Confirm("move".into());
    let request = Request { actor: operator(), dry_run: false, idempotency: None, action };
    let answer = other.handle(world.now(), &request).map(drop);
    other.keep();
    other.check();
    (other, answer)
}

#[test]
fn a_migration_at_a_full_quota_is_held_by_the_next_leader_and_ends_once() {
    let mut world = World::new();
    for rack in ["rack0", "rack1"] {
        let spec = json!({"lower": rack, "upper": "core", "rate": "10Gbit"});
        world.apply("Link", &format!("{rack}-up"), spec);
    }
    world.apply("Tenant", "gold", json!({"quota": {"vms": 2, "out": "1200Mbit"}}));
    world.apply("VM", "web", vm("gold", Some("h0"), "600Mbit"));
    world.apply("VM", "peer", vm("gold", Some("h1"), "600Mbit"));
    world.apply("VM", "sink", vm("bulk", Some("h3"), "400Mbit"));
    world.apply("Reservation", "move", reservation("gold", &[("web", "h2", "600Mbit")]));
    let refused = world.refuse("VM", "more", vm("gold", Some("h1"), "1Mbit"));
    assert_eq!(refused.reason, "QuotaExceeded");
    // The leader is killed. The next one has both hosts' room and the quota as they were.
    world.assert_restart_changes_nothing();
    world.state = world.restarted();
    for host in ["h0", "h2"] {
        let refused = world.refuse("VM", "other", vm("bulk", Some(host), "400Mbit"));
        assert_eq!((refused.reason, refused.status), ("LinkFull", 409), "{host}");
    }
    let refused = world.refuse("VM", "more", vm("gold", Some("h1"), "1Mbit"));
    assert_eq!(refused.reason, "QuotaExceeded");
    // It confirms. What the killed one would have written is fenced: the store's tests play that.
    let (next, answer) = confirmed_elsewhere(&world);
    answer.expect("it is held");
    let moved = next.get(Kind::Vm, "web").expect("it is there");
    assert_eq!(moved.object.status.host.as_deref(), Some("h2"));
    world.state = next;
    world.apply("VM", "other", vm("bulk", Some("h0"), "400Mbit"));
}

#[test]
fn a_reservation_whose_time_ends_while_another_controller_confirms_it_ends_once_and_the_same_way() {
    let mut world = World::new();
    world.apply("VM", "web", vm("gold", Some("h0"), "600Mbit"));
    world.apply("Reservation", "move", reservation("gold", &[("web", "h2", "600Mbit")]));
    let places = |state: &State| {
        let web = state.get(Kind::Vm, "web").expect("it is there");
        let end = state.get(Kind::Reservation, "move").expect("it is there").object.status.phase;
        (web.object.status.host.clone().expect("it has one"), end.expect("it has one"))
    };
    // One millisecond before its end.
    world.now.set(world.now.get() + 59_999);
    let (next, answer) = confirmed_elsewhere(&world);
    answer.expect("in time");
    assert_eq!(places(&next), ("h2".into(), Phase::Confirmed));
    // At its end, to the millisecond, whoever looks first.
    world.now.set(world.now.get() + 1);
    let (next, answer) = confirmed_elsewhere(&world);
    assert_eq!(answer.expect_err("too late").reason, "Expired");
    assert_eq!(places(&next), ("h0".into(), Phase::Expired));
    // An engine lets time pass before each request.
    world.pass(0);
    assert_eq!(world.confirm("move").expect_err("too late").reason, "Expired");
    assert_eq!(places(&world.state), ("h0".into(), Phase::Expired));
    // The clock of the next leader is behind, by more than the reservation was to be held: it ends no later
    // than it asked from when that leader began.
    let mut world = World::new();
    world.apply("VM", "web", vm("gold", Some("h0"), "600Mbit"));
    world.apply("Reservation", "move", reservation("gold", &[("web", "h2", "600Mbit")]));
    world.now.set(world.now.get() - 3_600_000);
    world.state = world.restarted();
    world.pass(59_999);
    assert_eq!(places(&world.state).1, Phase::Held);
    world.pass(1);
    assert_eq!(places(&world.state), ("h0".into(), Phase::Expired));
}
