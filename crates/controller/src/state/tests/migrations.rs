//! A hundred migrations while the cloud changes.

use super::*;
use std::collections::BTreeSet;
use weir_model::objects::Spec;

const HOSTS: u64 = 16;
const TENANTS: u64 = 6;
const MIGRATIONS: u32 = 100;

/// SplitMix64: all chance of a case comes from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
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
    let (mut world, mut random) = (cloud(), Random(22));
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
