//! Links and switches that drain.

use super::networks::{across, cable, leaf_spine, ring, root};
use super::*;
use std::collections::BTreeSet;
use weir_model::objects::{HostState, LinkState, Spec};
use weir_units::SplitMix64;

fn is_admitted(world: &World, vm: &str) -> bool {
    world.condition(Kind::Vm, vm, "Admitted").0 == Truth::True
}

/// VMs of which it is said that they fall with what drains.
fn foretold(state: &State) -> BTreeSet<String> {
    let vms = state.objects[Kind::Vm as usize].values();
    let is_told = |object: &&Object| {
        object.status.condition("Admitted").is_some_and(|said| said.reason == "Draining")
    };
    let told = vms.map(|stored| &stored.object).filter(is_told);
    told.map(|object| object.name().to_owned()).collect()
}

/// VMs that fall when all that drains is gone.
fn fall_without(world: &World) -> BTreeSet<String> {
    let mut state = world.restarted();
    let before = state.fallen.clone();
    let drained = state.objects().find_map(|stored| match &stored.object.spec {
        Spec::Topology(spec) => Some(spec.draining.clone()),
        _ => None,
    });
    let drained = drained.unwrap_or_default();
    let gone = |stored: &Arc<Stored>| {
        let mut wish: Value = serde_json::from_str(&stored.json).expect("JSON");
        match &stored.object.spec {
            Spec::Link(spec) if spec.state != LinkState::Down => {
                let ends = [&spec.lower, &spec.upper].iter().any(|end| drained.contains(end));
                (ends || spec.state == LinkState::Draining).then_some(())?;
                wish["spec"]["state"] = "down".into();
            }
            Spec::Host(spec) if spec.state != HostState::Dead => {
                drained.contains(&spec.switch).then_some(())?;
                wish["spec"]["state"] = "dead".into();
            }
            _ => return None,
        }
        let _ = wish["metadata"].as_object_mut()?.remove("resourceVersion");
        Some(read(wish).expect("a good document"))
    };
    let action = Action::Batch(state.objects().filter_map(gone).collect());
    let request = Request { actor: operator(), dry_run: false, idempotency: None, action };
    state.handle(world.now(), &request).expect("links may go down");
    state.fallen.difference(&before).cloned().collect()
}

#[test]
fn tenants_leave_a_link_that_drains_and_those_without_room_keep_their_floors_and_are_told() {
    let mut world = leaf_spine();
    world.apply("Tenant", "gold", json!({"priority": 200}));
    across(&mut world, "bulk", "350Mbit");
    across(&mut world, "gold", "600Mbit");
    across(&mut world, "third", "500Mbit");
    across(&mut world, "gold", "500Mbit");
    let [here, there] = ["third", "gold"].map(|tenant| root(&world, tenant).expect("a tree"));
    assert_eq!(root(&world, "bulk").as_deref(), Some(&*here), "350 and 500 of 900 Mb/s");
    assert_ne!(here, there);
    let link = format!("leaf1-{here}");
    let told = world.apply("Link", &link, cable("leaf1", &here, "draining"));
    assert_eq!(told["spec"]["state"], "draining");
    assert_eq!(world.state.fallen(), 0, "draining takes no floor away");
    // Of equals the first takes the room that gold leaves.
    assert_eq!(root(&world, "bulk").as_deref(), Some(&*there), "500 and 350 of 900 Mb/s");
    assert_eq!(root(&world, "third").as_deref(), Some(&*here), "it has no room elsewhere");
    let (truth, reason, message) = world.condition(Kind::Link, &link, "Drained");
    assert_eq!((truth, reason.as_str()), (Truth::False, "InUse"));
    assert!(message.contains("third") && !message.contains("bulk"), "{message}");
    // One of the VMs that talk over it would fall; of the same tenant it is the younger one.
    assert_eq!(foretold(&world.state), BTreeSet::from(["third1".to_owned()]));
    assert_eq!(fall_without(&world), foretold(&world.state));
    let (_, _, message) = world.condition(Kind::Vm, "third1", "Admitted");
    assert!(message.contains("falls when what drains is gone"), "{message}");
    world.assert_restart_changes_nothing();

    // It keeps what it has, may shrink, and gets nothing more.
    world.apply("VM", "third1", vm("third", Some("h2"), "400Mbit"));
    let problem = world.refuse("VM", "third1", vm("third", Some("h2"), "401Mbit"));
    assert_eq!(problem.reason, "LinkFull", "who is in the way tells more than what drains");
    assert!(problem.detail.contains(&there), "{}", problem.detail);
    assert!(is_admitted(&world, "third1"));
    world.assert_restart_changes_nothing();
    // Room that is given back lets it go.
    world.apply("VM", "bulk0", vm("bulk", Some("h0"), "0bit"));
    assert_eq!(root(&world, "third"), Some(there));
    let (truth, reason, _) = world.condition(Kind::Link, &link, "Drained");
    assert_eq!((truth, reason.as_str()), (Truth::True, "NotUsed"));
    assert_eq!(foretold(&world.state), BTreeSet::new());
    world.assert_restart_changes_nothing();
    world.apply("Link", &link, cable("leaf1", &here, "down"));
    assert_eq!(world.state.fallen(), 0, "nobody was there any more");
    let stored = world.state.get(Kind::Link, &link).expect("it exists");
    assert!(stored.object.status.condition("Drained").is_none());
    world.apply("Link", &link, cable("leaf1", &here, "up"));
    world.apply("VM", "third1", vm("third", Some("h2"), "500Mbit"));
    world.assert_restart_changes_nothing();
}

#[test]
fn new_tenants_go_around_a_link_that_drains_however_little_they_want() {
    let mut world = leaf_spine();
    world.apply("Link", "leaf1-spine0", cable("leaf1", "spine0", "draining"));
    across(&mut world, "gold", "900Mbit");
    across(&mut world, "bulk", "0bit");
    for tenant in ["gold", "bulk"] {
        assert_eq!(root(&world, tenant).as_deref(), Some("spine1"), "{tenant}");
    }
    world.apply("VM", "third0", vm("third", Some("h1"), "1Mbit"));
    let problem = world.refuse("VM", "third1", vm("third", Some("h3"), "1Mbit"));
    assert_eq!(problem.reason, "LinkFull");
    world.apply("Link", "leaf1-spine1", cable("leaf1", "spine1", "draining"));
    let problem = world.refuse("VM", "third1", vm("third", Some("h3"), "0bit"));
    assert_eq!((problem.status, problem.reason), (409, "LinkDraining"));
    assert_eq!(problem.field, "spec.floor");
    assert!(problem.detail.contains("leaf1-spine"), "{}", problem.detail);
    // Within the rack nothing drains.
    world.apply("VM", "third1", vm("third", Some("h0"), "1Mbit"));
    let room = world.state.room().expect("layers");
    assert_eq!(room["switches"][1]["name"], "leaf1");
    assert_eq!(
        (&room["switches"][1]["out"], &room["switches"][1]["slots"]),
        (&json!("0bit"), &json!(0))
    );
    world.assert_restart_changes_nothing();
}

#[test]
fn a_switch_drains_by_its_name_with_all_links_and_hosts_that_it_has() {
    let mut world = leaf_spine();
    across(&mut world, "gold", "300Mbit");
    across(&mut world, "bulk", "300Mbit");
    let drain = |names: &[&str]| json!({"routing": "layers", "draining": names});
    let problem = world.refuse("Topology", "default", drain(&["spine0", "spine9"]));
    assert_eq!((problem.reason, problem.field.as_str()), ("NoSuchSwitch", "spec.draining[1]"));
    world.apply("Topology", "default", drain(&["spine0"]));
    for tenant in ["gold", "bulk"] {
        assert_eq!(root(&world, tenant).as_deref(), Some("spine1"), "{tenant}");
    }
    assert_eq!(world.condition(Kind::Topology, "default", "Drained").1, "NotUsed");
    assert_eq!(world.condition(Kind::Link, "leaf0-spine0", "Drained").1, "NotUsed");
    world.assert_restart_changes_nothing();
    // A rack: its VMs stay, and nothing comes to them.
    world.apply("Topology", "default", drain(&["leaf1"]));
    assert_eq!(world.state.fallen(), 0);
    let (truth, _, message) = world.condition(Kind::Topology, "default", "Drained");
    assert_eq!(truth, Truth::False);
    assert!(message.starts_with("leaf1: 2 tenants") && message.contains("bulk, gold"), "{message}");
    assert_eq!(foretold(&world.state), BTreeSet::from(["bulk1".into(), "gold1".into()]));
    assert_eq!(fall_without(&world), foretold(&world.state));
    let problem = world.refuse("VM", "x", vm("third", Some("h3"), "1Mbit"));
    assert_eq!((problem.reason, problem.field.as_str()), ("HostDraining", "spec.host"));
    let told = world.apply("VM", "x", vm("third", None, "1Mbit"));
    assert!(["h0", "h1"].iter().any(|host| told["status"]["host"] == *host), "{told}");
    // The smaller side says what the links need.
    world.apply("VM", "gold0", vm("gold", Some("h0"), "301Mbit"));
    let problem = world.refuse("VM", "gold1", vm("gold", Some("h2"), "301Mbit"));
    assert_eq!(problem.reason, "LinkDraining", "{}", problem.detail);
    world.assert_restart_changes_nothing();
    world.delete(Kind::Vm, "gold1").expect("deleted");
    world.apply("VM", "bulk1", vm("bulk", Some("h1"), "300Mbit"));
    assert_eq!(world.condition(Kind::Topology, "default", "Drained").1, "NotUsed");
    world.apply("Topology", "default", drain(&[]));
    let stored = world.state.get(Kind::Topology, "default").expect("it exists");
    assert!(stored.object.status.condition("Drained").is_none());
    world.apply("VM", "gold1", vm("gold", Some("h3"), "300Mbit"));
    world.assert_restart_changes_nothing();
}

#[test]
fn a_floor_that_has_fallen_does_not_return_over_a_link_that_drains() {
    let mut world = World::new();
    let up =
        |state: &str| json!({"lower": "rack1", "upper": "core", "rate": "1Gbit", "state": state});
    world.apply("VM", "a", vm("gold", Some("h0"), "500Mbit"));
    world.apply("VM", "b", vm("gold", Some("h2"), "500Mbit"));
    world.apply("Link", "rack1-up", up("down"));
    assert_eq!(world.state.fallen(), 1);
    world.apply("Link", "rack1-up", up("draining"));
    assert_eq!(world.state.fallen(), 1, "it would be new there");
    world.assert_restart_changes_nothing();
    world.apply("Link", "rack1-up", up("up"));
    assert_eq!(world.state.fallen(), 0);
    // What holds stays, also when something else fails meanwhile.
    world.apply("Link", "rack1-up", up("draining"));
    world.apply("VM", "x", vm("bulk", Some("h1"), "100Mbit"));
    world.apply("VM", "y", vm("bulk", Some("h1"), "100Mbit"));
    let slow = json!({"switch": "rack0", "rate": "200Mbit", "slots": 1});
    world.apply("Host", "h1", slow);
    assert!(world.state.fallen() > 0);
    assert!(is_admitted(&world, "a") && is_admitted(&world, "b"));
    world.assert_restart_changes_nothing();
}

#[test]
fn in_any_graph_a_tenant_goes_around_a_link_that_drains_or_keeps_its_tree() {
    let mut world = ring();
    for tenant in ["gold", "bulk", "third"] {
        world.apply("Tenant", tenant, json!({}));
    }
    let pair = |world: &mut World, tenant: &str, hosts: [&str; 2], floor: &str| {
        for (n, host) in hosts.into_iter().enumerate() {
            world.apply("VM", &format!("{tenant}{n}"), vm(tenant, Some(host), floor));
        }
    };
    pair(&mut world, "gold", ["h0", "h1"], "500Mbit");
    world.apply("Link", "ring0", cable("s0", "s1", "draining"));
    assert_eq!(world.condition(Kind::Link, "ring0", "Drained").1, "NotUsed", "s2 joins them");
    pair(&mut world, "bulk", ["h0", "h1"], "100Mbit");
    assert_eq!(world.condition(Kind::Link, "ring0", "Drained").1, "NotUsed");
    world.assert_restart_changes_nothing();
    world.apply("Link", "ring0", cable("s0", "s1", "up"));
    pair(&mut world, "third", ["h1", "h2"], "400Mbit");
    world.assert_restart_changes_nothing();
    for _ in 0..2 {
        for n in 0..3 {
            let (lower, upper) = (format!("s{n}"), format!("s{}", (n + 1) % 3));
            let before: Vec<_> =
                ["gold", "bulk", "third"].map(|one| world.state.book.reserved(one).0.len()).into();
            world.apply("Link", &format!("ring{n}"), cable(&lower, &upper, "draining"));
            assert_eq!(world.state.fallen(), 0, "ring{n}: {before:?}");
            assert_eq!(fall_without(&world), foretold(&world.state));
            world.assert_restart_changes_nothing();
            world.apply("Link", &format!("ring{n}"), cable(&lower, &upper, "up"));
            assert_eq!(world.state.fallen(), 0, "ring{n}");
        }
    }
}

/// What each tenant has of each link that drains, by names.
fn held(state: &State) -> BTreeMap<(String, String), [u64; 2]> {
    let names = state.book.link_names();
    let mut held = BTreeMap::new();
    for tenant in state.objects[Kind::Tenant as usize].keys() {
        for need in state.book.reserved(tenant).0 {
            let link = names[need.link.0 as usize].clone();
            let rates = [need.forward.as_bps(), need.backward.as_bps()];
            if state.book.is_draining(&link) {
                held.insert((tenant.clone(), link), rates);
            }
        }
    }
    held
}

/// One random network with `layers` or `tree`, and changes of VMs and of what drains.
fn play(seed: u64, seen: &mut [usize; 4]) {
    let mut random = SplitMix64::new(seed);
    let mut below = |n: u64| random.next() % n;
    let spines = 1 + below(3);
    let routing = if spines == 1 { "tree" } else { "layers" };
    let mut world = World::empty();
    world.apply("Topology", "default", json!({"routing": routing}));
    for n in 0..6 {
        let spec = json!({"switch": format!("leaf{}", n / 2), "rate": "2Gbit", "slots": 6});
        world.apply("Host", &format!("h{n}"), spec);
    }
    let link = |n: u64, state: &str| {
        let (leaf, spine) = (format!("leaf{}", n % 3), format!("spine{}", n / 3));
        (format!("{leaf}-{spine}"), cable(&leaf, &spine, state))
    };
    for n in 0..3 * spines {
        let (name, spec) = link(n, "up");
        world.apply("Link", &name, spec);
    }
    for tenant in 0..4 {
        world.apply("Tenant", &format!("t{tenant}"), json!({"priority": 100 + tenant % 2}));
    }
    for step in 0..60 {
        let at = format!("seed {seed}, step {step}");
        let (before, fallen) = (held(&world.state), world.state.fallen.clone());
        let drained = world.state.book.link_names();
        let drained: BTreeSet<String> =
            drained.into_iter().filter(|link| world.state.book.is_draining(link)).collect();
        let tenant = format!("t{}", below(4));
        let name = format!("{tenant}-{}", below(5));
        let host = (below(2) == 0).then(|| format!("h{}", below(6)));
        let floor = format!("{}Mbit", below(400));
        let draw = below(10);
        let is_network = draw >= 7;
        let (action, may_fall) = match draw {
            0 => (Action::Delete { kind: Kind::Vm, name, seen: None }, false),
            1..7 => (put(document("VM", &name, vm(&tenant, host.as_deref(), &floor))), false),
            7 => {
                let switch = ["leaf0", "leaf1", "spine0"][below(3) as usize];
                let draining = if below(2) == 0 { vec![] } else { vec![switch] };
                let spec = json!({"routing": routing, "draining": draining});
                (put(document("Topology", "default", spec)), false)
            }
            _ => {
                let state = ["up", "draining", "draining", "down"][below(4) as usize];
                let (name, spec) = link(below(3 * spines), state);
                (put(document("Link", &name, spec)), state == "down")
            }
        };
        let revision = world.state.revision();
        let done = world.ask(operator(), action).is_ok();
        let fell = world.state.fallen.difference(&fallen).count();
        assert!(may_fall || fell == 0, "{at}: draining takes no floor away");
        seen[0] += usize::from(done && !is_network);
        // Nobody gets more of what drains.
        for (of, rates) in held(&world.state) {
            let had = before.get(&of).copied().unwrap_or_default();
            let is_more = rates[0] > had[0] || rates[1] > had[1];
            assert!(!is_more || !drained.contains(&of.1), "{at}: {of:?}: {had:?}, {rates:?}");
        }
        // What is foretold is of the last change of the network.
        if is_network && world.state.revision() > revision {
            let told = foretold(&world.state);
            assert_eq!(told, fall_without(&world), "{at}");
            seen[1] += usize::from(!told.is_empty());
            seen[2] += usize::from(before.keys().any(|of| !held(&world.state).contains_key(of)));
            seen[3] += fell;
        }
        for tenant in world.state.stuck.keys().cloned().collect::<Vec<_>>() {
            assert!(world.state.book.leave(&tenant).is_none(), "{at}: {tenant} could leave");
        }
        world.assert_restart_changes_nothing();
    }
}

#[test]
fn draining_takes_no_floor_away_and_gives_none_and_foretells_what_falls() {
    // Changes of VMs, drains that foretell a fall, tenants that left, floors that fell with `down`.
    let mut seen = [0; 4];
    for seed in 0..40 {
        play(seed, &mut seen);
    }
    assert!(seen.iter().all(|seen| *seen > 20), "the cases are there: {seen:?}");
}
