//! Networks that are no trees, links of several cables, and what may be added to all of them.

use super::*;

/// Two leaves with two hosts of 10 Gb/s each, and two spines; links of 1 Gb/s.
pub(super) fn leaf_spine() -> World {
    let mut world = World::empty();
    world.apply("Topology", "default", json!({"routing": "layers"}));
    for (n, leaf) in [(0, "leaf0"), (1, "leaf0"), (2, "leaf1"), (3, "leaf1")] {
        let spec = json!({"switch": leaf, "rate": "10Gbit", "slots": 8});
        world.apply("Host", &format!("h{n}"), spec);
    }
    for leaf in ["leaf0", "leaf1"] {
        for spine in ["spine0", "spine1"] {
            world.apply("Link", &format!("{leaf}-{spine}"), cable(leaf, spine, "up"));
        }
    }
    for tenant in ["gold", "bulk", "third"] {
        world.apply("Tenant", tenant, json!({}));
    }
    world
}

/// Three switches in a ring, with a host of 10 Gb/s each, and links of 1 Gb/s.
pub(super) fn ring() -> World {
    let mut world = World::empty();
    world.apply("Topology", "default", json!({"routing": "paths", "treesPerSwitch": 2}));
    for n in 0..3 {
        let spec = json!({"switch": format!("s{n}"), "rate": "10Gbit", "slots": 8});
        world.apply("Host", &format!("h{n}"), spec);
        let (lower, upper) = (format!("s{n}"), format!("s{}", (n + 1) % 3));
        world.apply("Link", &format!("ring{n}"), cable(&lower, &upper, "up"));
    }
    world
}

pub(super) fn cable(lower: &str, upper: &str, state: &str) -> Value {
    json!({"lower": lower, "upper": upper, "rate": "1Gbit", "state": state})
}

pub(super) fn root(world: &World, tenant: &str) -> Option<String> {
    let stored = world.state.get(Kind::Tenant, tenant).expect("it exists");
    stored.object.status.routing.as_ref().map(|tree| tree.root.clone())
}

pub(super) fn across(world: &mut World, tenant: &str, floor: &str) {
    for (n, host) in [(0, "h0"), (1, "h2")] {
        world.apply("VM", &format!("{tenant}{n}"), vm(tenant, Some(host), floor));
    }
}

#[test]
fn with_layers_each_tenant_has_a_tree_of_its_own() {
    let mut world = leaf_spine();
    across(&mut world, "gold", "600Mbit");
    across(&mut world, "bulk", "600Mbit");
    let roots = [root(&world, "gold"), root(&world, "bulk")];
    assert_ne!(roots[0], roots[1], "one spine has no room for both");
    assert!(roots.iter().flatten().all(|root| root.starts_with("spine")), "{roots:?}");
    world.apply("VM", "third0", vm("third", Some("h1"), "400Mbit"));
    let problem = world.refuse("VM", "third1", vm("third", Some("h3"), "400Mbit"));
    assert_eq!((problem.reason, &problem.more["missing"]), ("LinkFull", &json!("100Mbit")));
    world.assert_restart_changes_nothing();
    // A tree has one way between any two hosts.
    let problem = world.refuse("Topology", "default", json!({"routing": "tree"}));
    assert_eq!((problem.status, problem.reason), (422, "NoTree"));
    assert!(problem.detail.contains("layers"), "{}", problem.detail);
}

#[test]
fn after_a_spine_fails_tenants_change_their_trees_or_fall_by_priority() {
    let mut world = leaf_spine();
    world.apply("Tenant", "gold", json!({"priority": 200}));
    across(&mut world, "bulk", "300Mbit");
    across(&mut world, "gold", "500Mbit");
    let spine = root(&world, "gold").expect("a tree");
    let other = if spine == "spine0" { "spine1" } else { "spine0" };
    let link = format!("leaf1-{spine}");
    world.apply("Link", &link, cable("leaf1", &spine, "down"));
    assert_eq!(root(&world, "gold").as_deref(), Some(other), "it fits on the other spine");
    assert_eq!(world.state.fallen(), 0, "both fit there");
    world.assert_restart_changes_nothing();
    across(&mut world, "gold", "600Mbit");
    world.apply(
        "Link",
        &format!("leaf1-{other}"),
        json!({"lower": "leaf1", "upper": other, "rate": "700Mbit"}),
    );
    assert_eq!(world.state.fallen(), 1);
    assert!(
        ["bulk0", "bulk1"]
            .iter()
            .any(|vm| { world.condition(Kind::Vm, vm, "Admitted").0 == Truth::False })
    );
    world.assert_restart_changes_nothing();
    world.apply("Link", &link, cable("leaf1", &spine, "up"));
    assert_eq!(world.state.fallen(), 0, "with the link the floors return");
    world.assert_restart_changes_nothing();
}

#[test]
fn a_restart_leaves_every_tenant_on_its_tree() {
    let mut world = leaf_spine();
    // Whatever order a start takes them in, each has the tree of before: else the last does not fit.
    across(&mut world, "third", "500Mbit");
    across(&mut world, "bulk", "500Mbit");
    across(&mut world, "gold", "400Mbit");
    let roots = ["gold", "bulk", "third"].map(|tenant| root(&world, tenant));
    world.assert_restart_changes_nothing();
    let again = world.restarted();
    let tree = |tenant| again.book.tree(tenant).map(|tree| tree.root);
    assert_eq!(["gold", "bulk", "third"].map(tree), roots);
}

#[test]
fn in_any_graph_shortest_paths_are_found_around_a_link_that_is_down() {
    let mut world = ring();
    world.apply("Tenant", "gold", json!({}));
    world.apply("VM", "a", vm("gold", Some("h0"), "900Mbit"));
    world.apply("VM", "b", vm("gold", Some("h1"), "900Mbit"));
    world.apply("Link", "ring0", cable("s0", "s1", "down"));
    assert_eq!(world.state.fallen(), 0, "s2 joins them");
    world.assert_restart_changes_nothing();
    world.apply("Link", "ring1", cable("s1", "s2", "down"));
    assert_eq!(world.state.fallen(), 1, "nothing joins them");
    world.assert_restart_changes_nothing();
    let problem = world.state.room().expect_err("a switch has no upper side");
    assert_eq!(problem.reason, "NoAdditiveRoom");
    let outside = json!({"tenant": "gold", "host": "h0", "external": {"out": "1Mbit"}});
    assert_eq!(world.refuse("VM", "x", outside.clone()).reason, "NoRoute");
    let gateway = json!({"routing": "paths", "treesPerSwitch": 2, "gateways": ["s9"]});
    let problem = world.refuse("Topology", "default", gateway);
    assert_eq!((problem.reason, problem.field.as_str()), ("NoSuchSwitch", "spec.gateways[0]"));
    let gateway = json!({"routing": "paths", "treesPerSwitch": 2, "gateways": ["s0"]});
    world.apply("Topology", "default", gateway);
    world.apply("VM", "x", outside);
    world.assert_restart_changes_nothing();
}

#[test]
fn a_ring_of_links_upward_is_refused() {
    let mut world = leaf_spine();
    let problem = world.refuse("Link", "ring", cable("spine0", "leaf0", "up"));
    assert_eq!((problem.status, problem.reason), (422, "NoTree"));
    assert_eq!(problem.field, "spec.upper");
    let problem = world.refuse("Link", "ring", cable("spine0", "leaf1", "up"));
    assert!(problem.detail.contains("paths"), "{}", problem.detail);
    world.assert_restart_changes_nothing();
}

#[test]
fn cables_of_one_link_add_up() {
    let mut world = World::new();
    for rack in ["rack0", "rack1"] {
        let spec = json!({"lower": rack, "upper": "core", "rate": "1Gbit", "members": 2});
        world.apply("Link", &format!("{rack}-up"), spec);
    }
    for (name, host) in [("a", "h0"), ("b", "h1"), ("c", "h2"), ("d", "h3")] {
        world.apply("VM", name, vm("gold", Some(host), "900Mbit"));
    }
    world.assert_restart_changes_nothing();
    let spec = json!({"lower": "rack0", "upper": "core", "rate": "1Gbit"});
    world.apply("Link", "rack0-up", spec);
    assert!(world.state.fallen() > 0, "one cable carries half");
}

#[test]
fn what_keeps_to_the_published_room_is_admitted() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "500Mbit"));
    world.apply("VM", "b", vm("gold", Some("h2"), "300Mbit"));
    let room = world.state.room().expect("a tree");
    let of = |list: &str, name: &str| {
        let places = room[list].as_array().expect("a list");
        places.iter().find(|place| place["name"] == name).cloned().expect("it is there")
    };
    assert_eq!(of("hosts", "h0")["out"], "400Mbit");
    assert_eq!(of("hosts", "h0")["slots"], 3);
    assert_eq!(of("switches", "rack0")["out"], "400Mbit", "both VMs count with their whole floors");
    assert_eq!(of("switches", "rack0")["hosts"], json!(["h0", "h1"]));
    assert_eq!(of("switches", "rack1")["in"], "600Mbit");
    assert_eq!(room["network"]["slots"], 14);
    world.apply("VM", "x", vm("bulk", Some("h1"), "400Mbit"));
    world.apply("VM", "y", vm("bulk", Some("h3"), "600Mbit"));
    assert_eq!(
        world.state.room().map(|room| room["switches"][0]["out"].clone()),
        Ok("0bit".into())
    );
    let host = json!({"switch": "rack0", "rate": "1Gbit", "slots": 4, "state": "draining"});
    world.apply("Host", "h1", host);
    let room = world.state.room().expect("a tree");
    assert_eq!(room["hosts"][1]["slots"], 0, "a host that drains takes nothing");
}

#[test]
fn what_keeps_to_the_room_of_its_tenant_is_admitted() {
    let mut world = World::new();
    world.apply("VM", "a", vm("gold", Some("h0"), "500Mbit"));
    world.apply("VM", "b", vm("gold", Some("h2"), "300Mbit"));
    let out = |room: &Value, list: &str, name: &str| {
        let places = room[list].as_array().expect("a list");
        let place = places.iter().find(|place| place["name"] == name).expect("it is there");
        place["out"].as_str().expect("a rate").to_owned()
    };
    // A new tenant has what is left of each link: gold needs 300 Mb/s, not the floors of both its VMs.
    let new = world.state.tenant_room("fourth").expect("a tree");
    assert_eq!((&new["centre"], &new["tree"]), (&json!("core"), &json!("core")));
    assert_eq!(out(&new, "hosts", "h0"), "600Mbit");
    assert_eq!(out(&new, "switches", "rack0"), "600Mbit");
    assert_eq!(out(&new, "hosts", "h1"), "900Mbit");
    // Most of gold is on h0. A VM beside it takes nothing of the links above, however full they are.
    let gold = world.state.tenant_room("gold").expect("it has a tree");
    assert_eq!(gold["centre"], "h0");
    assert_eq!(out(&gold, "switches", "rack1"), "600Mbit");
    let rack0 = &gold["switches"].as_array().expect("a list")[0];
    assert_eq!((&rack0["hosts"], &rack0["switches"]), (&json!(["h0", "h1"]), &json!(["rack0"])));
    world.apply("VM", "y", vm("gold", Some("h3"), "600Mbit"));
    world.apply("VM", "c", vm("gold", Some("h0"), "900Mbit"));
    // Floors that fell take no room. What is left of the link is told.
    let link = json!({"lower": "rack0", "upper": "core", "rate": "1Mbit"});
    world.apply("Link", "rack0-up", link);
    assert!(world.state.fallen() > 0);
    let gold = world.state.tenant_room("gold").expect("it has a tree");
    assert_eq!(out(&gold, "switches", "rack0"), "900kbit");
    let problem = World::empty().state.tenant_room("gold").expect_err("no host");
    assert_eq!((problem.status, problem.field.as_str()), (409, "query.tenant"));
}
