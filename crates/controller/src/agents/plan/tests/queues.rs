//! Orders of tenants' queues, to hosts and back.

use super::*;
use weir_model::objects::TenantQueue;
use weir_rpc::messages::Queue;

impl World {
    /// The agent of a host says that it can tag.
    fn connect_tagging(&mut self, host: &str, points: &[u32]) {
        self.connect(host);
        let (_, has) = self.hosts.remove(host).expect("it is connected");
        let known = has.values().map(|tenant| Known {
            tenant: tenant.name.clone(),
            version: tenant.version,
            digest: tenant.digest(),
            queue: tenant.queue.as_ref().map_or(0, |queue| queue.version),
        });
        let hello = Hello {
            rate: 1_000_000_000,
            known: known.collect(),
            code_points: points.to_vec(),
            ..Hello::default()
        };
        let enrolment = self.enrolment(host).expect("it joined");
        let id = self.plan.attach(host, enrolment, &hello).expect("it may");
        self.hosts.insert(host.into(), (id, has));
    }

    fn order(&mut self, tenant: &str, tag: u8, version: u64) {
        let queue = TenantQueue { code_point: 10, tag, free: tag > 0, version };
        self.act(Action::Observe(vec![Observation {
            kind: Kind::Tenant,
            name: tenant.into(),
            generation: None,
            condition: crate::state::QUEUE,
            status: Truth::True,
            reason: "Moving".into(),
            message: String::new(),
            agent: None,
            queue: Some(queue),
        }]));
    }

    fn queue(&self, host: &str, tenant: &str) -> Option<Queue> {
        self.hosts[host].1.get(tenant)?.queue.clone()
    }

    fn in_force(&mut self) -> Vec<(String, u64)> {
        let all = self.plan.take_in_force();
        all.into_iter().map(|(host, _, version)| (host, version)).collect()
    }
}

fn at(host: &str, version: u64) -> (String, u64) {
    (host.into(), version)
}

#[test]
fn an_order_reaches_the_tenants_hosts_and_what_they_acknowledge_is_told() {
    let mut world = World::new();
    ["h0", "h1", "h2"].iter().for_each(|host| world.connect_tagging(host, &[10, 12]));
    let all = ["h0", "h1", "h2"];
    world.apply(vec![vm("a", "red", "h0", 100), vm("b", "red", "h1", 100)]);
    world.converge(&all);
    assert_eq!((world.queue("h0", "red"), world.in_force()), (None, vec![]));
    world.order("red", 10, 3);
    let sent = world.sent("h0");
    assert_eq!(sent[0].queue, Some(Queue { version: 3, code_point: 10, free: true }));
    assert_eq!(world.in_force(), [], "it was only sent");
    world.answer("h0", &sent, None);
    assert_eq!(world.in_force(), [at("h0", 3)]);
    world.converge(&all);
    assert_eq!(world.in_force(), [at("h1", 3)], "h2 has nothing of the tenant");
    // Only a record changed, which hosts are not told.
    world.order("red", 10, 3);
    assert_eq!(world.sent("h0"), []);
    world.order("red", 0, 4);
    let sent = world.sent("h1");
    world.answer("h1", &sent, Some("no such port"));
    assert_eq!((world.in_force(), world.queue("h1", "red").map(|q| q.version)), (vec![], Some(3)));
    assert_eq!(world.plan.all_in_force().len(), 2, "the former one stays in force");
}

#[test]
fn a_host_that_returns_says_what_it_has_in_force() {
    let mut world = World::new();
    ["h0", "h1"].iter().for_each(|host| world.connect_tagging(host, &[10]));
    world.apply(vec![vm("a", "red", "h0", 100), vm("b", "red", "h1", 100)]);
    world.order("red", 10, 3);
    world.converge(&["h0", "h1"]);
    world.in_force();
    let (id, _) = world.hosts["h0"];
    world.plan.detach("h0", id, NOW);
    world.connect_tagging("h0", &[10]);
    assert_eq!(world.in_force(), [at("h0", 3)]);
    // What it missed is sent.
    let (id, _) = world.hosts["h0"];
    world.plan.detach("h0", id, NOW);
    world.order("red", 0, 4);
    world.connect_tagging("h0", &[10]);
    assert_eq!(world.in_force(), []);
    world.converge(&["h0"]);
    assert_eq!(world.in_force(), [at("h0", 4)]);
}

#[test]
fn a_host_that_knows_a_newer_order_than_the_store_is_noticed() {
    let mut world = World::new();
    ["h0", "h1"].iter().for_each(|host| world.connect_tagging(host, &[10]));
    world.apply(vec![vm("a", "red", "h0", 100), vm("b", "red", "h1", 100)]);
    world.order("red", 10, 7);
    world.converge(&["h0", "h1"]);
    let (id, _) = world.hosts["h0"];
    world.plan.detach("h0", id, NOW);
    world.connect_tagging("h0", &[10]);
    assert!(world.plan.take_ahead().is_empty());
    // The store is one of before.
    world.order("red", 0, 3);
    world.plan.detach("h0", world.hosts["h0"].0, NOW);
    world.connect_tagging("h0", &[10]);
    assert_eq!(world.plan.take_ahead(), ["red".to_owned()].into());
}

#[test]
fn an_agent_of_before_is_told_no_order_and_is_known_not_to_tag() {
    let mut world = World::new();
    world.connect("h0");
    world.connect_tagging("h1", &[10]);
    world.apply(vec![vm("a", "red", "h0", 100), vm("b", "red", "h1", 100)]);
    world.order("red", 10, 3);
    world.converge(&["h0", "h1"]);
    assert_eq!((world.queue("h0", "red"), world.in_force()), (None, vec![at("h1", 3)]));
    let cannot = |world: &World, points: &[u8]| {
        world.plan.cannot_tag(&points.iter().copied().collect()).into_iter().collect::<Vec<_>>()
    };
    // h2 never joined.
    assert_eq!(cannot(&world, &[10]), ["h0", "h2"]);
    assert_eq!(cannot(&world, &[10, 12]), ["h0", "h1", "h2"]);
    // It does what an order for the shared queue says.
    world.order("red", 0, 4);
    world.converge(&["h0", "h1"]);
    let mut in_force = world.in_force();
    in_force.sort();
    assert_eq!((world.queue("h0", "red"), in_force), (None, vec![at("h0", 4), at("h1", 4)]));
}

#[test]
fn a_raise_that_waits_holds_no_order_back() {
    let mut world = World::new();
    ["h0", "h1", "h2"].iter().for_each(|host| world.connect_tagging(host, &[10]));
    world.apply(vec![
        vm("a", "red", "h0", 600),
        vm("c", "red", "h2", 600),
        vm("b", "blue", "h1", 300),
        vm("d", "blue", "h2", 300),
    ]);
    world.converge(&["h0", "h1", "h2"]);
    world.apply(vec![vm("a", "red", "h0", 100), vm("c", "red", "h2", 100)]);
    world.apply(vec![vm("b", "blue", "h1", 800), vm("d", "blue", "h2", 800)]);
    world.order("blue", 10, 3);
    let (id, _) = world.hosts["h2"];
    world.plan.detach("h2", id, NOW);
    world.converge(&["h0", "h1"]);
    assert_eq!((world.floor("h1", "b"), world.in_force()), (300, vec![at("h1", 3)]));
}
