use super::*;
use proptest::prelude::*;
use weir_units::SortedMap;

const GIGABIT: Rate = Rate::from_mbps(1000);

fn port(bound: &[(u8, u8)]) -> PortQueues {
    let mut port = PortQueues::shared_alone(GIGABIT, 0);
    for (codepoint, queue) in bound {
        port.weights.insert(*queue, u16::from(*queue) + 1);
        port.queue_of.insert(*codepoint, *queue);
    }
    port
}

fn switch(ports: &[(&str, &[(u8, u8)])]) -> SwitchConfig {
    let ports = ports.iter().map(|(name, bound)| (PortName::from(*name), port(bound)));
    SwitchConfig { ports: ports.collect() }
}

fn able(ports: &[&str], classes: Option<&[u8]>) -> Abilities {
    let port = PortAbilities { rate: GIGABIT, queues: 8, reserved: [3, 4].into() };
    Abilities {
        ports: ports.iter().map(|name| (PortName::from(*name), port.clone())).collect(),
        classes: classes.map(|classes| classes.iter().copied().collect()),
        most_weight: MostWeight::PAPER,
        reserved_codepoints: [46].into(),
    }
}

fn refusal(wanted: &SwitchConfig, codepoint: u8) -> Cannot {
    let fit = fit(wanted, &able(&["a", "b"], None), &SortedMap::new(), &[]);
    fit.refused.get(&codepoint).cloned().unwrap_or_else(|| panic!("{fit:?}"))
}

#[test]
fn what_a_switch_has_not_is_refused_with_the_facts() {
    let a = || PortName::from("a");
    assert_eq!(refusal(&switch(&[("c", &[(9, 1)])]), 9), Cannot::NoSuchPort("c".into()));
    let none = Cannot::NoSuchQueue { port: a(), queue: 8, has: 6 };
    assert_eq!(refusal(&switch(&[("a", &[(9, 8)])]), 9), none);
    let reserved = Cannot::ReservedQueue { port: a(), queue: 3 };
    assert_eq!(refusal(&switch(&[("a", &[(9, 3)])]), 9), reserved);
    assert_eq!(refusal(&switch(&[("a", &[(46, 1)])]), 46), Cannot::ReservedCodepoint(46));
    assert_eq!(refusal(&switch(&[("a", &[(64, 1)])]), 64), Cannot::NotACodepoint(64));

    for weight in [0, 16] {
        let mut wanted = switch(&[("a", &[(9, 1), (10, 2)])]);
        wanted.ports.get_mut(&a()).unwrap().weights.insert(1, weight);
        assert_eq!(refusal(&wanted, 9), Cannot::Weight { port: a(), queue: 1, weight, most: 15 });
        let fit = fit(&wanted, &able(&["a"], None), &SortedMap::new(), &[]);
        assert!(!fit.refused.contains_key(&10), "other queues of the port are not concerned");
    }
    let mut wanted = switch(&[("a", &[(9, 1)])]);
    wanted.ports.get_mut(&a()).unwrap().weights.remove(&1);
    assert_eq!(refusal(&wanted, 9), Cannot::NoWeight { port: a(), queue: 1 });
    wanted.ports.get_mut(&a()).unwrap().rate = Rate::from_mbps(1001);
    let rate = Cannot::Rate { port: a(), has: GIGABIT, wanted: Rate::from_mbps(1001) };
    assert_eq!(refusal(&wanted, 9), rate);
}

#[test]
fn a_binders_queues_are_the_free_ones_of_the_port() {
    let able = able(&["a"], None);
    let name = PortName::from("a");
    let plan = |queue: u8| QueuePlan {
        queue,
        of: (queue > 0).then_some((weir_units::TenantId(queue.into()), 10 + queue)),
        reserved: Rate::ZERO,
        weight: 1,
    };
    let plans: Vec<QueuePlan> = (0..6).map(plan).collect();
    let made = PortQueues::of(&name, &able.ports[&name], &plans).unwrap();
    assert_eq!(made.queue_of, [(11, 1), (12, 2), (13, 5), (14, 6), (15, 7)].into());
    assert_eq!(made.weights.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 5, 6, 7]);
    assert_eq!((made.queue(13), made.queue(9)), (5, 0));
    let refused = PortQueues::of(&name, &able.ports[&name], &[plan(6)]);
    assert_eq!(refused, Err(Cannot::NoSuchQueue { port: name, queue: 6, has: 6 }));
}

#[test]
fn code_points_that_no_port_tells_apart_have_one_class() {
    let able = able(&["a", "b"], Some(&[0, 1, 2]));
    let wanted = switch(&[("a", &[(9, 1), (10, 2)]), ("b", &[(11, 1), (12, 7)])]);
    let found = fit(&wanted, &able, &SortedMap::new(), &[]);
    assert!(found.is_whole(), "{found:?}");
    assert_eq!(found.classes, [(9, 1), (10, 2), (11, 1), (12, 2)].into());

    // The third on one port finds no class; who comes first has one.
    let wanted = switch(&[("a", &[(9, 1), (10, 2), (11, 5)])]);
    let refused = |held: &[(u8, u8)], order: &[u8]| {
        let held = held.iter().copied().collect();
        let found = fit(&wanted, &able, &held, order);
        found.refused.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!(refused(&[], &[]), [11]);
    assert_eq!(refused(&[], &[11]), [10]);
    assert_eq!(refused(&[(9, 2)], &[11, 10]), [10], "9 has its class already");
    let why = Cannot::Classes { codepoint: 11, classes: 2 };
    assert_eq!(fit(&wanted, &able, &SortedMap::new(), &[]).refused[&11], why);
}

#[test]
fn a_swap_passes_through_the_shared_queue_and_a_lone_move_does_not() {
    let changes = diff(
        &switch(&[("a", &[(9, 1), (10, 2), (11, 5)])]),
        &switch(&[("a", &[(9, 2), (10, 1), (11, 6)])]),
    );
    let said: Vec<String> = changes.iter().map(Change::to_string).collect();
    assert_eq!(
        said,
        [
            "port a: make queue 6 with weight 7",
            "port a: code point 9 to the shared queue (was queue 1)",
            "port a: code point 10 to the shared queue (was queue 2)",
            "port a: code point 9 to queue 2 (was the shared queue)",
            "port a: code point 10 to queue 1 (was the shared queue)",
            "port a: code point 11 to queue 6 (was queue 5)",
            "port a: remove queue 5 (weight 6)",
        ]
    );
}

fn any_switch() -> impl Strategy<Value = SwitchConfig> {
    let queues = prop::collection::btree_map(1u8..12, 1u8..8, 0..7);
    let port = (queues, 1u16..16).prop_map(|(queue_of, weight)| {
        let bound: Vec<(u8, u8)> = queue_of.into_iter().collect();
        let mut port = port(&bound);
        port.weights.insert(0, weight);
        port
    });
    prop::collection::btree_map("[a-c]", port, 0..3).prop_map(|ports| SwitchConfig {
        ports: ports.into_iter().map(|(name, port)| (name.as_str().into(), port)).collect(),
    })
}

proptest! {
    #[test]
    fn after_each_change_every_code_point_leads_to_a_configured_queue(
        found in any_switch(),
        wanted in any_switch(),
    ) {
        let mut now = found.clone();
        let changes = diff(&found, &wanted);
        prop_assert!(changes.is_sorted_by_key(Change::stage));
        for change in &changes {
            if change.stage() == Stage::Bind {
                let before = &now.ports[&change.port];
                let What::Bind { codepoint, queue, was } = change.what else { unreachable!() };
                prop_assert_eq!(was, before.queue_of.get(&codepoint).copied());
                let mut others = before.queue_of.iter().filter(|(_, at)| **at == queue);
                let ends = wanted.ports.get(&change.port).unwrap();
                prop_assert!(others.all(|(other, at)| ends.queue_of.get(other) == Some(at)));
            }
            change.make(&mut now);
            if change.stage() > Stage::Make {
                let port = &now.ports[&change.port];
                for codepoint in 0..=LAST_CODEPOINT {
                    let queue = port.queue(codepoint);
                    prop_assert!(port.weights.contains_key(&queue), "{change}: {queue}");
                }
            }
        }
        for (name, port) in &found.ports {
            if !wanted.ports.contains_key(name) {
                prop_assert_eq!(now.ports.get(name), Some(port));
            }
        }
        now.ports.retain(|name, _| wanted.ports.contains_key(name));
        prop_assert_eq!(&now, &wanted);
        prop_assert!(diff(&now, &wanted).is_empty());
    }

    #[test]
    fn a_class_leads_every_code_point_to_its_queue_on_every_port(
        wanted in any_switch(),
        last in 0u8..8,
    ) {
        let classes: Vec<u8> = (0..=last).collect();
        let mut able = able(&["a", "b", "c"], Some(&classes));
        able.ports.values_mut().for_each(|port| port.reserved.clear());
        let found = fit(&wanted, &able, &SortedMap::new(), &[]);
        for port in wanted.ports.values() {
            let mut queues: SortedMap<u8, u8> = SortedMap::new();
            for (codepoint, queue) in &port.queue_of {
                let class = found.classes.get(codepoint);
                prop_assert!(class.is_some() != found.refused.contains_key(codepoint));
                if let Some(class) = class {
                    prop_assert!(*class <= last && (*class > 0 || *queue == port.shared));
                    prop_assert_eq!(*queues.entry(*class).or_insert(*queue), *queue);
                }
            }
        }
        // Whoever has a class keeps it.
        let again = fit(&wanted, &able, &found.classes, &[11, 10, 9]);
        prop_assert_eq!(again.classes, found.classes);
    }
}
