//! A loop that follows one that ended, and a network that changes.

use super::*;

impl World {
    /// The loop dies at once. What it asked of switches is never done. The next one reads all switches
    /// but these, and hosts that come back say what they have in force.
    pub(super) fn restart(&mut self, unread: &[u32]) {
        self.asked.clear();
        let config = self.control.config.clone();
        let readable = self.switches.iter().filter(|(switch, _)| !unread.contains(&switch.0));
        let found = readable.map(|(switch, config)| (*switch, config.clone())).collect();
        self.control = Control::new(config, self.now);
        let (members, held) =
            (self.members.clone(), self.records.values().copied().collect::<Vec<_>>());
        // What was written down is sent to hosts, whatever became of the loop.
        self.told.clear();
        for held in &held {
            let hosts = members.iter().find(|member| member.tenant == held.tenant);
            let hosts = hosts.expect("a member").hosts.iter();
            self.told.extend(hosts.map(|host| (*host, held.tenant, held.version, held.order)));
        }
        let outcome = self.control.resume(self.now, &members, &held, &found);
        self.follow(outcome);
        let in_force = self.in_force.clone();
        for ((host, tenant), (version, _)) in in_force {
            self.call(Input::InForce(host, tenant, version));
        }
    }
}

/// Tenants 1 and 2 have queues of their own.
fn two() -> World {
    let mut world = World::new(vec![member(1, 100, &[0, 1]), member(2, 100, &[1, 2])]);
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
    world.events.clear();
    world
}

#[test]
fn a_loop_that_restarts_goes_on_with_what_is_there_and_writes_nothing() {
    let mut world = two();
    let (before, writes) = (world.switches.clone(), world.writes);
    let order = world.control.order(TenantId(1));
    world.restart(&[]);
    world.check();
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
    assert_eq!((&world.switches, world.writes), (&before, writes));
    assert_eq!(world.control.order(TenantId(1)), order, "hosts are told nothing new");
}

#[test]
fn a_loop_that_dies_between_make_and_break_leaves_queues_until_hosts_have_left_them() {
    let mut world = two();
    let point = world.control.order(TenantId(1)).expect("it is known").1.codepoint;
    let members = {
        let mut members = world.members.clone();
        members[0].wish = Wish::Excluded;
        world.members = members.clone();
        members
    };
    world.call(Input::Tenants(&members));
    world.pass(INTERVAL, &[1, 2]);
    while !world.asked.is_empty() {
        world.answer(0, How::Well);
    }
    // Clamped at one host of two.
    world.deliver(0);
    assert_eq!(world.control.phase(TenantId(1)), Some(Phase::Clamping));
    let port = name(0, Direction::Forward);
    let bound = |world: &World| world.switches[&SwitchId(0)].ports[&port].queue_of.clone();
    assert!(bound(&world).contains_key(&point));
    world.restart(&[]);
    world.check();
    world.pass(INTERVAL, &[1, 2]);
    while !world.asked.is_empty() {
        world.answer(0, How::Well);
        world.check();
    }
    assert!(bound(&world).contains_key(&point), "a host is silent");
    world.calm(&[1, 2]);
    assert_eq!((world.dedicated(), bound(&world).len()), (vec![2], 0));
}

#[test]
fn a_tenant_that_lost_a_queue_meanwhile_is_limited_and_told_the_shared_one() {
    let mut world = two();
    world.reboot(SwitchId(0));
    world.restart(&[]);
    // Limited at once. The shared queue is told when the other switches have the weight for it.
    assert_eq!(world.control.phase(TenantId(1)), Some(Phase::Clamping));
    let (version, order) = world.control.order(TenantId(1)).expect("it is known");
    assert!(!order.is_free);
    assert!(world.records[&TenantId(1)].version == version && version.0 > 1);
    while !world.told.is_empty() {
        world.deliver(0);
    }
    assert_eq!(world.control.phase(TenantId(1)), Some(Phase::Clamping), "no switch has answered");
    while !world.asked.is_empty() {
        world.answer(0, How::Well);
        world.check();
    }
    assert_eq!(world.control.phase(TenantId(1)), Some(Phase::Untagging));
    assert_eq!(world.control.order(TenantId(1)).map(|(_, order)| order), Some(Order::default()));
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2], "later it gets one again");
}

#[test]
fn a_switch_that_cannot_be_read_at_a_start_keeps_queues_until_hosts_have_left_them() {
    let mut world = two();
    let before = world.switches[&SwitchId(0)].clone();
    world.restart(&[0]);
    // Whether that switch's shared queue has the weight for it is not known.
    assert_eq!(world.control.phase(TenantId(1)), Some(Phase::Clamping));
    world.pass(INTERVAL, &[2]);
    while !world.asked.is_empty() {
        world.answer(0, How::Well);
    }
    assert_eq!(
        world.switches[&SwitchId(0)].ports[&name(0, Direction::Forward)].queue_of,
        before.ports[&name(0, Direction::Forward)].queue_of
    );
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
}

#[test]
fn versions_begin_where_the_caller_says_and_grow() {
    let mut world = World::new(vec![member(1, 100, &[0])]);
    world.control = world.control.clone().with_first_version(1000);
    world.calm(&[1]);
    assert_eq!(world.control.order(TenantId(1)).map(|(version, _)| version), Some(Version(1001)));
}

#[test]
fn an_order_that_is_older_than_what_hosts_know_is_told_again() {
    let mut world = two();
    let outcome = world.control.tell_again(TenantId(1));
    world.follow(outcome);
    assert_eq!(world.control.order(TenantId(1)).map(|(version, _)| version), Some(Version(3)));
    assert_eq!((world.told.len(), world.records[&TenantId(1)].version), (2, Version(3)));
    world.restart(&[]);
    world.control = world.control.clone().with_first_version(1000);
    let outcome = world.control.tell_again(TenantId(1));
    world.follow(outcome);
    world.calm(&[1, 2]);
    assert_eq!(world.control.order(TenantId(1)).map(|(version, _)| version), Some(Version(1000)));
    assert_eq!(world.dedicated(), [1, 2]);
    assert!(world.control.tell_again(TenantId(9)).actions.is_empty());
}

#[test]
fn a_link_that_loses_its_queues_gives_its_tenants_back_and_one_that_comes_gets_them() {
    let mut world = two();
    let mut config = world.control.config().clone();
    config.fabric.links[0].queues = 1;
    world.control.set_config(config.clone());
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [2]);
    assert_eq!(world.control.place(TenantId(1)), Some(Place::Shared(Why::NoQueues(LinkId(0)))));
    world.control.set_config(super::config(Provision::Loop));
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
    // A switch that is taken away, with all its ports.
    config = super::config(Provision::Loop);
    config.switches.remove(&SwitchId(2));
    config.ports.retain(|_, (switch, _)| *switch != SwitchId(2));
    config.fabric.links[1].queues = 0;
    config.fabric.links[2].queues = 0;
    world.control.set_config(config);
    world.calm(&[1, 2]);
    assert_eq!((world.dedicated(), world.control.known(SwitchId(2))), (vec![], None));
}

#[test]
fn a_queue_that_others_need_again_is_left_for_another_one() {
    let mut world = World::new(vec![member(1, 100, &[0]), member(2, 100, &[0])]);
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
    // Of the queues 0, 2 and 3 the last one is reserved now.
    let mut config = world.control.config().clone();
    for able in config.switches.values_mut() {
        able.ports.values_mut().for_each(|port| _ = port.reserved.insert(3));
    }
    config.fabric.links.iter_mut().for_each(|link| link.queues = 2);
    world.control.set_config(config);
    for _ in 0..400 {
        while !world.asked.is_empty() || !world.told.is_empty() {
            world.answer(0, How::Well);
            world.deliver(0);
        }
        world.pass(Span::from_millis(50), &[1, 2]);
    }
    assert_eq!(world.dedicated().len(), 1);
    let bound = |port: &PortQueues| port.queue_of.values().all(|queue| *queue == 2);
    assert!(world.switches.values().flat_map(|switch| switch.ports.values()).all(bound));
}

/// An interval in which these tenants are bound: switches are read, and asked to have queues.
fn bound(members: &[Member]) -> World {
    let mut world = World::new(members.to_vec());
    world.pass(INTERVAL, &[0, 1, 2]);
    (0..LINKS).for_each(|_| world.answer(0, How::Well));
    world
}

#[test]
fn what_one_end_of_a_link_lost_is_not_removed_at_the_other_while_hosts_tag() {
    let mut world = bound(&[member(2, 40, &[0])]);
    world.answer(0, How::Well);
    world.answer(0, How::Well);
    assert_eq!(world.control.phase(TenantId(2)), Some(Phase::Tagging));
    let at = |world: &World, direction| {
        let port = &world.switches[&switch_of(0, direction)].ports[&name(0, direction)];
        port.queue_of.clone()
    };
    let before = at(&world, Direction::Forward);
    world.reboot(switch_of(0, Direction::Backward));
    world.restart(&[]);
    // A host takes up the former loop's order: it tags.
    world.deliver(0);
    assert_eq!(world.tags(TenantId(2)).last(), before.keys().last());
    while !world.asked.is_empty() {
        world.answer(0, How::Well);
        world.check();
    }
    assert_eq!(at(&world, Direction::Forward), before, "a host is silent");
    assert_eq!(at(&world, Direction::Backward), before, "mended");
    world.calm(&[2]);
    assert_eq!(world.dedicated(), [2]);
}

#[test]
fn no_host_is_told_the_shared_queue_before_an_unread_switch_has_the_weight_for_it() {
    let mut world = bound(&[member(0, 10, &[1])]);
    while !world.asked.is_empty() || !world.told.is_empty() {
        world.answer(0, How::Well);
        world.deliver(0);
    }
    assert_eq!(world.dedicated(), [0]);
    world.restart(&[2]);
    while !world.asked.is_empty() || !world.told.is_empty() {
        world.answer(0, How::Well);
        world.deliver(0);
        world.check();
    }
    let order = world.control.order(TenantId(0)).map(|(_, order)| order);
    assert!(order.is_some_and(|order| order.codepoint != SHARED && !order.is_free));
    world.calm(&[]);
    world.check();
}
