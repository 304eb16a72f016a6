//! The loop against a model of switches and hosts: everything that can fail, late or in part.

mod resume;

use super::*;
use crate::binding::switch::{PortAbilities, PortQueues, diff};
use crate::binding::{LastQueue, LinkPorts, MostWeight, Provisioned, SHARED};
use proptest::prelude::*;
use weir_units::{SortedMap, SortedSet};

const LINK: Rate = Rate::from_mbps(1000);
const QUEUES: u8 = 3;
const INTERVAL: Span = Span::from_secs(4);
const LINGER: Span = Span::from_millis(20);
const PATIENCE: Span = Span::from_secs(1);
/// Link n leads from switch n to the next; both ends are ports.
const LINKS: u32 = 3;

fn switch_of(link: u32, direction: Direction) -> SwitchId {
    match direction {
        Direction::Forward => SwitchId(link),
        Direction::Backward => SwitchId((link + 1) % LINKS),
    }
}

fn name(link: u32, direction: Direction) -> PortName {
    PortName::from(format!("{link}{direction:?}").as_str())
}

fn config(provision: Provision) -> Config {
    let mut config = Config {
        fabric: Fabric {
            links: vec![LinkPorts { rate: LINK, queues: QUEUES }; LINKS as usize],
            codepoints: vec![10, 20, 30, 40],
            most_weight: MostWeight::new(100),
            last_queue: LastQueue::AlwaysShared,
        },
        ports: SortedMap::new(),
        switches: SortedMap::new(),
        provision,
        interval: INTERVAL,
        linger: LINGER,
        patience: PATIENCE,
        seed: 7,
    };
    for link in 0..LINKS {
        for direction in [Direction::Forward, Direction::Backward] {
            let (switch, name) = (switch_of(link, direction), name(link, direction));
            config.ports.insert((LinkId(link), direction), (switch, name.clone()));
            let able = config.switches.entry(switch).or_insert_with(|| Abilities {
                ports: SortedMap::new(),
                classes: None,
                most_weight: MostWeight::new(100),
                reserved_codepoints: SortedSet::new(),
            });
            // Queue 1 belongs to others.
            let has = PortAbilities { rate: LINK, queues: QUEUES + 1, reserved: [1].into() };
            able.ports.insert(name, has);
        }
    }
    config
}

/// A tenant with this floor on these links, with a VM on each of two hosts.
fn member(tenant: u32, mbps: u64, links: &[u32]) -> Member {
    let floor = Rate::from_mbps(mbps);
    let need = |link: &u32| Need { link: LinkId(*link), forward: floor, backward: floor };
    Member {
        tenant: TenantId(tenant),
        needs: links.iter().map(need).collect(),
        payment: floor,
        wish: Wish::ByScore,
        hosts: [HostId(2 * tenant), HostId(2 * tenant + 1)].into(),
    }
}

/// How a switch takes a question.
#[derive(Clone, Copy, Debug)]
enum How {
    Well,
    /// It does nothing, or the first so many changes, and says so.
    Fails(usize),
    /// It does all, or nothing, and never answers.
    Mute(bool),
}

/// Switches and hosts as they are.
struct World {
    control: Control,
    now: Time,
    members: Vec<Member>,
    switches: SortedMap<SwitchId, SwitchConfig>,
    /// Switches that lost what they had by themselves, until they have a whole config again.
    disturbed: SortedSet<SwitchId>,
    /// Queues that a switch lost by itself, with a number that the loop cannot know: nothing is known of the
    /// other end of the link. The port and the code point.
    unnumbered: SortedSet<(LinkId, Direction, u8)>,
    /// Switches that have done a part of a config.
    torn: SortedSet<SwitchId>,
    asked: Vec<(SwitchId, Ticket, Option<SwitchConfig>)>,
    told: Vec<(HostId, TenantId, Version, Order)>,
    in_force: SortedMap<(HostId, TenantId), (Version, Order)>,
    /// Packets under way: their tenant, their tag, and until when.
    under_way: Vec<(TenantId, u8, Time)>,
    writes: usize,
    events: Vec<Event>,
    /// What was written down of each tenant.
    records: SortedMap<TenantId, Held>,
}

impl World {
    fn new(members: Vec<Member>) -> Self {
        Self::with(members, config(Provision::Loop), Binder::new)
    }

    fn with(members: Vec<Member>, config: Config, binder: impl Fn(Fabric) -> Binder) -> Self {
        let blank = |able: &Abilities| SwitchConfig {
            ports: able.ports.keys().map(|port| (port.clone(), blank())).collect(),
        };
        let switches = config.switches.iter().map(|(switch, able)| (*switch, blank(able)));
        let hosts = members.iter().flat_map(|m| m.hosts.iter().map(|host| (*host, m.tenant)));
        let in_force = hosts.map(|at| (at, Default::default())).collect::<Vec<_>>().into_iter();
        let mut world = Self {
            switches: switches.collect(),
            control: Control::with_binder(binder(config.fabric.clone()), config, Time::ZERO),
            now: Time::ZERO,
            members,
            disturbed: SortedSet::new(),
            unnumbered: SortedSet::new(),
            torn: SortedSet::new(),
            asked: Vec::new(),
            told: Vec::new(),
            in_force: in_force.collect(),
            under_way: Vec::new(),
            writes: 0,
            events: Vec::new(),
            records: SortedMap::new(),
        };
        let members = world.members.clone();
        world.call(Input::Tenants(&members));
        world
    }

    fn call(&mut self, input: Input<'_>) {
        let outcome = self.control.handle(self.now, input);
        self.follow(outcome);
    }

    fn follow(&mut self, outcome: Outcome) {
        for event in &outcome.events {
            let Event::Moved(tenant, _) = event else { continue };
            match self.control.held(*tenant) {
                Some(held) => self.records.insert(*tenant, held),
                None => self.records.remove(tenant),
            };
        }
        self.events.extend(outcome.events);
        for action in outcome.actions {
            match action {
                Action::Read { switch, ticket } => self.asked.push((switch, ticket, None)),
                Action::Apply { switch, ticket, config } => {
                    self.writes += 1;
                    self.asked.push((switch, ticket, Some(config)));
                }
                Action::Tell { tenant, version, order } => {
                    let hosts = self.members.iter().find(|member| member.tenant == tenant);
                    let hosts = hosts.expect("only members are told").hosts.clone();
                    self.told.extend(hosts.into_iter().map(|host| (host, tenant, version, order)));
                }
            }
        }
    }

    /// Time passes; the tenants in `busy` use their floors.
    fn pass(&mut self, span: Span, busy: &[u32]) {
        let until = self.now + span;
        loop {
            let (at, due) = self.control.next_deadline();
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            if due != Due::Interval {
                self.call(Input::Tick);
                continue;
            }
            let usage = |member: &Member| {
                let used = if busy.contains(&member.tenant.0) { 20_000_000 } else { 0 };
                let card = (member.needs.first()?.link, Direction::Forward);
                Some(Usage { tenant: member.tenant, card, octets: Bytes::new(used) })
            };
            let usage: Vec<Usage> = self.members.iter().filter_map(usage).collect();
            let members = self.members.clone();
            self.call(Input::Interval(&members, &usage));
        }
        self.now = until;
        self.under_way.retain(|(.., until)| *until > self.now);
    }

    /// The switch with the question of this number takes it. Earlier questions to it come first.
    fn answer(&mut self, number: usize, how: How) {
        let Some((switch, ..)) = self.asked.get(number) else { return };
        let switch = *switch;
        let first = self.asked.iter().position(|(other, ..)| *other == switch);
        let (_, ticket, config) = self.asked.remove(first.expect("there is one"));
        let fact = self.switches.get_mut(&switch).expect("known");
        let changes = config.as_ref().map_or_else(Vec::new, |config| diff(fact, config));
        let done = match how {
            How::Well | How::Mute(true) => changes.len(),
            How::Fails(done) => done.min(changes.len()),
            How::Mute(false) => 0,
        };
        changes[..done].iter().for_each(|change| change.make(fact));
        let found = fact.clone();
        if done == changes.len() && config.is_some() {
            self.forgive_unnumbered(switch);
            self.disturbed.remove(&switch);
            self.torn.remove(&switch);
        } else if done > 0 {
            self.torn.insert(switch);
        }
        let answer = match (how, config) {
            (How::Well, None) => Answer::Found(found),
            (How::Well, Some(_)) => Answer::Applied,
            (How::Fails(_), _) => Answer::Failed,
            (How::Mute(_), _) => return,
        };
        self.call(Input::Answer(switch, ticket, answer));
    }

    /// A switch that has lost queues has a whole config. What it still lacks is forgiven only where the
    /// loop does not know the other end of the link: the promise is that a lost queue is mended, not that
    /// the first write mends it.
    fn forgive_unnumbered(&mut self, switch: SwitchId) {
        for (link, direction) in self.control.config.ports.keys().copied().collect::<Vec<_>>() {
            if switch_of(link.0, direction) != switch {
                continue;
            }
            let other = switch_of(
                link.0,
                match direction {
                    Direction::Forward => Direction::Backward,
                    Direction::Backward => Direction::Forward,
                },
            );
            let port = &self.switches[&switch].ports[&name(link.0, direction)];
            for codepoint in &self.control.config.fabric.codepoints {
                let at = (link, direction, *codepoint);
                let was_lost = self.disturbed.contains(&switch) || self.unnumbered.contains(&at);
                let is_lost = was_lost && !port.queue_of.contains_key(codepoint);
                if is_lost && self.control.known(other).is_none() {
                    self.unnumbered.insert(at);
                } else {
                    self.unnumbered.remove(&at);
                }
            }
        }
    }

    /// A host takes up the order of this number, unless it has a later one.
    fn deliver(&mut self, number: usize) {
        if self.told.is_empty() {
            return;
        }
        let (host, tenant, version, order) = self.told.remove(number % self.told.len());
        let known = self.in_force.entry((host, tenant)).or_default();
        if version > known.0 {
            self.under_way.push((tenant, known.1.codepoint, self.now + LINGER));
            *known = (version, order);
        }
        let version = known.0;
        self.call(Input::InForce(host, tenant, version));
    }

    fn reboot(&mut self, switch: SwitchId) {
        let ports = &mut self.switches.get_mut(&switch).expect("known").ports;
        ports.values_mut().for_each(|port| *port = blank());
        self.disturbed.insert(switch);
    }

    /// All that is asked is done, until nothing is under way.
    fn calm(&mut self, busy: &[u32]) {
        for _ in 0..400 {
            while !self.asked.is_empty() || !self.told.is_empty() {
                self.answer(0, How::Well);
                self.deliver(0);
            }
            self.pass(Span::from_millis(50), busy);
            self.check();
        }
    }

    /// Tags that a tenant's packets may have now.
    fn tags(&self, tenant: TenantId) -> SortedSet<u8> {
        let in_force = self.in_force.iter().filter(|((_, other), _)| *other == tenant);
        let under_way = self.under_way.iter().filter(|(other, ..)| *other == tenant);
        let tags = in_force.map(|(_, (_, order))| order.codepoint);
        tags.chain(under_way.map(|(_, tag, _)| *tag)).collect()
    }

    fn check(&self) {
        for (_, order) in self.in_force.values() {
            assert!(!order.is_free || order.codepoint != SHARED, "free in the shared queue");
        }
        for (link, direction) in self.control.config.ports.keys() {
            let (switch, port) = &self.control.config.ports[&(*link, *direction)];
            if !self.disturbed.contains(switch) {
                self.check_port((*link, *direction), *switch, &self.switches[switch].ports[port]);
            }
        }
    }

    fn check_port(&self, at: (LinkId, Direction), switch: SwitchId, port: &PortQueues) {
        let on = |member: &&Member| member.needs.iter().any(|need| need.link == at.0);
        let mut owners: SortedMap<u8, TenantId> = SortedMap::new();
        let (mut in_shared, mut all) = (Rate::ZERO, Rate::ZERO);
        let mut sum: u64 = port.weights.values().map(|weight| u64::from(*weight)).sum();
        for member in self.members.iter().filter(on) {
            let tags = self.tags(member.tenant);
            let need = member.needs.iter().find(|need| need.link == at.0).expect("on it");
            all += need.forward;
            let mut in_force = self.in_force.iter().filter(|((_, of), _)| *of == member.tenant);
            if in_force.any(|(_, (_, order))| order.codepoint == SHARED) {
                in_shared += need.forward;
                // What its own queue takes of the link, it does not send to the shared one.
                let own = tags.iter().filter_map(|tag| port.queue_of.get(tag));
                let own = own.filter(|queue| **queue != port.shared);
                sum -= own.map(|queue| u64::from(port.weights[queue])).max().unwrap_or(0);
            }
            for tag in tags.into_iter().filter(|tag| *tag != SHARED) {
                let queue = port.queue_of.get(&tag).copied();
                if queue.is_none() && self.unnumbered.contains(&(at.0, at.1, tag)) {
                    continue;
                }
                let queue = queue.unwrap_or_else(|| {
                    panic!("{:?} sends {tag} to a port without its queue: {port:?}", member.tenant)
                });
                assert_ne!(queue, port.shared, "the queue is its own");
                assert!(port.weights.contains_key(&queue), "the queue is there");
                let owner = *owners.entry(queue).or_insert(member.tenant);
                assert_eq!(owner, member.tenant, "two tenants in queue {queue} of {port:?}");
            }
        }
        if self.torn.contains(&switch) || all > LINK.scale(0.9) {
            return;
        }
        // A queue that no packet may be in takes nothing of the link. Where a link cannot hold both, the
        // loop gives it the least weight. More than that counts.
        let is_idle = |queue: &u8, weight: u16| {
            weight == 1 && *queue != port.shared && !owners.contains_key(queue)
        };
        sum -=
            port.weights.iter().filter(|(queue, weight)| is_idle(queue, **weight)).count() as u64;
        let part = LINK.mul_ratio(u64::from(port.weights[&port.shared]), sum);
        assert!(
            part + Rate::from_bps(1) >= in_shared,
            "the shared queue owes {in_shared} and has {part}: {port:?}"
        );
    }

    fn dedicated(&self) -> Vec<u32> {
        let is = |member: &&Member| self.control.phase(member.tenant) == Some(Phase::Dedicated);
        self.members.iter().filter(is).map(|member| member.tenant.0).collect()
    }
}

fn blank() -> PortQueues {
    PortQueues::shared_alone(LINK, 0)
}

#[test]
fn a_tenant_that_needs_a_queue_has_it_on_all_switches_before_a_host_is_told() {
    let mut world = World::new(vec![member(1, 100, &[0, 1])]);
    world.pass(INTERVAL, &[1]);
    world.answer(0, How::Well);
    assert!(world.told.is_empty());
    while !world.asked.is_empty() {
        assert!(world.told.is_empty(), "a switch has not answered");
        world.answer(0, How::Well);
    }
    let told: Vec<Order> = world.told.iter().map(|(.., order)| *order).collect();
    assert_eq!(told, [Order { codepoint: 10, is_free: false }; 2], "first it is limited");
    world.deliver(0);
    assert_eq!(world.control.phase(TenantId(1)), Some(Phase::Tagging), "the other host tags not");
    assert_eq!(world.control.place(TenantId(1)), Some(Place::Shared(Why::Moving)));
    world.deliver(0);
    assert_eq!(world.told[0].3, Order { codepoint: 10, is_free: true });
    world.calm(&[1]);
    assert_eq!(world.control.place(TenantId(1)), Some(Place::Dedicated(10)));
}

#[test]
fn a_swap_passes_through_the_shared_queue() {
    // Two own queues on link 0, three tenants.
    let mut world =
        World::new(vec![member(1, 100, &[0]), member(2, 90, &[0]), member(3, 200, &[0])]);
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
    world.events.clear();
    world.calm(&[1, 3]);
    assert_eq!(world.dedicated(), [1, 3]);
    let moved: Vec<(u32, Phase)> = world
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Moved(tenant, phase) => Some((tenant.0, *phase)),
            _ => None,
        })
        .collect();
    let left = moved.iter().position(|at| *at == (2, Phase::Shared));
    let came = moved.iter().position(|at| *at == (3, Phase::Preparing));
    assert!(left.is_some() && left < came, "{moved:?}");
    let clamped = moved.iter().position(|at| *at == (2, Phase::Clamping));
    let untagged = moved.iter().position(|at| *at == (2, Phase::Untagging));
    assert!(clamped.is_some() && clamped < untagged, "{moved:?}");
}

#[test]
fn a_switch_that_fails_keeps_its_tenants_in_the_shared_queue_and_says_so() {
    let mut world = World::new(vec![member(1, 100, &[0, 1]), member(2, 100, &[2])]);
    world.pass(INTERVAL, &[1, 2]);
    for _ in 0..20 {
        // Switch 1 has one end of each of the links 0 and 1.
        let fails = |(switch, _, config): &(SwitchId, Ticket, Option<SwitchConfig>)| {
            *switch == SwitchId(1) && config.is_some()
        };
        let how = if world.asked.first().is_some_and(fails) { How::Fails(1) } else { How::Well };
        world.answer(0, how);
        world.deliver(0);
        world.check();
    }
    assert_eq!(world.control.place(TenantId(1)), Some(Place::Shared(Why::Switch(SwitchId(1)))));
    assert_eq!(world.dedicated(), [2], "the other's tree has no such switch");
    assert!(world.events.contains(&Event::Failed(SwitchId(1))));
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2], "the next interval tries again");
}

#[test]
fn what_changes_by_itself_is_mended_and_what_is_others_stays() {
    let mut world = World::new(vec![member(1, 100, &[0])]);
    world.calm(&[1]);
    let before = world.switches.clone();
    world.reboot(SwitchId(0));
    let port = name(0, Direction::Backward);
    let others = world.switches.get_mut(&SwitchId(1)).unwrap().ports.get_mut(&port).unwrap();
    others.queue_of.insert(46, 1);
    others.weights.insert(1, 9);
    world.events.clear();
    world.calm(&[1]);
    assert_eq!(world.switches[&SwitchId(0)], before[&SwitchId(0)], "mended");
    assert!(world.events.iter().any(|event| matches!(event, Event::Drifted(SwitchId(0), 1..))));
    let port = &world.switches[&SwitchId(1)].ports[&port];
    assert_eq!((port.queue_of.get(&46), port.weights.get(&1)), (Some(&1), Some(&9)));
    assert!(world.events.iter().any(|event| matches!(event, Event::Foreign(SwitchId(1), _, 46))));
    assert_eq!(world.dedicated(), [1]);
}

#[test]
fn a_tenant_whose_queue_cannot_be_mended_is_limited_and_goes_to_the_shared_queue() {
    let mut world = World::new(vec![member(1, 100, &[0])]);
    world.calm(&[1]);
    world.reboot(SwitchId(0));
    world.pass(INTERVAL, &[1]);
    for _ in 0..10 {
        let is_write = world.asked.first().is_some_and(|(.., config)| config.is_some());
        world.answer(0, if is_write { How::Fails(0) } else { How::Well });
        world.deliver(0);
    }
    assert_eq!(world.control.place(TenantId(1)), Some(Place::Shared(Why::Switch(SwitchId(0)))));
    let (_, order) = world.control.order(TenantId(1)).unwrap();
    assert!(!order.is_free);
}

#[test]
fn nothing_changes_where_nothing_has_changed() {
    let members = vec![member(1, 100, &[0, 1]), member(2, 100, &[1, 2]), member(3, 100, &[0])];
    let mut world = World::new(members);
    world.calm(&[1, 2, 3]);
    let writes = world.writes;
    world.events.clear();
    world.calm(&[1, 2, 3]);
    assert_eq!((world.writes, world.events.len()), (writes, 0));
}

#[test]
fn a_tenant_that_leaves_gives_its_queue_back_after_its_last_packets() {
    let mut world = World::new(vec![member(1, 100, &[0])]);
    world.calm(&[1]);
    let had = world.control.known(SwitchId(0)).cloned();
    world.members.clear();
    world.call(Input::Tenants(&[]));
    assert_eq!(world.control.known(SwitchId(0)).cloned(), had);
    world.calm(&[]);
    assert_eq!(world.control.phase(TenantId(1)), None);
    let port = &world.switches[&SwitchId(0)].ports[&name(0, Direction::Forward)];
    assert_eq!(*port, blank());
    assert_eq!(world.control.before(SwitchId(0)), Some(&world.switches[&SwitchId(0)]));
}

#[test]
fn static_queues_are_bound_by_hosts_alone_and_never_written() {
    let read = Span::from_secs(4);
    let mut config = config(Provision::Static { read });
    config.interval = Span::from_millis(100);
    config.fabric.codepoints = vec![10, 20];
    let own = [(10, 1), (20, 1)].into();
    let provisioned = |fabric| Binder::provisioned(fabric, Provisioned { shared: 4, own });
    let members = vec![member(1, 100, &[0]), member(2, 90, &[0, 1]), member(3, 80, &[0])];
    let mut world = World::with(members, config, |fabric| provisioned.clone()(fabric));
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [], "nobody has provisioned queues");
    assert!(world.events.iter().any(|event| matches!(event, Event::Unprovisioned(..))));
    for switch in world.switches.values_mut() {
        for port in switch.ports.values_mut() {
            port.weights = [(0, 4), (2, 1), (3, 1)].into();
            port.queue_of = [(10, 2), (20, 3)].into();
        }
    }
    world.calm(&[1, 2]);
    assert_eq!(world.dedicated(), [1, 2]);
    // Two intervals of 100 ms, and orders of hosts.
    world.pass(Span::from_millis(200), &[2, 3]);
    for _ in 0..20 {
        world.deliver(0);
        world.pass(Span::from_millis(5), &[2, 3]);
    }
    assert_eq!((world.dedicated(), world.writes), (vec![2, 3], 0));
}

#[test]
fn a_write_that_is_under_way_counts_before_a_host_is_told() {
    // A write comes too late, so the switch has a queue of which the loop knows nothing.
    let mut world = World::new(vec![member(4, 10, &[1])]);
    world.pass(INTERVAL, &[]);
    (0..LINKS).for_each(|_| world.answer(0, How::Well));
    assert_eq!(world.control.phase(TenantId(4)), Some(Phase::Preparing));
    world.answer(0, How::Mute(true));
    world.answer(0, How::Mute(true));
    world.pass(INTERVAL, &[]);
    assert_eq!(world.control.phase(TenantId(4)), Some(Phase::Shared));
    // Switch 1 is read first, and told to remove the queue. Then the tenant may prepare.
    let number = world.asked.iter().position(|(switch, ..)| *switch == SwitchId(1));
    world.answer(number.expect("it is read"), How::Well);
    let is_write = |asked: &(SwitchId, Ticket, Option<SwitchConfig>)| asked.2.is_some();
    assert!(world.asked.iter().any(|asked| asked.0 == SwitchId(1) && is_write(asked)));
    let number = world.asked.iter().position(|(switch, ..)| *switch == SwitchId(2));
    world.answer(number.expect("it is read"), How::Well);
    assert_eq!(world.control.phase(TenantId(4)), Some(Phase::Preparing), "a write is under way");
    assert!(world.told.is_empty());
    let number = world.asked.iter().position(is_write);
    world.answer(number.expect("it is told"), How::Well);
    world.check();
    assert_eq!(world.control.phase(TenantId(4)), Some(Phase::Preparing), "the queue is gone");
    while !world.asked.is_empty() || !world.told.is_empty() {
        world.answer(0, How::Well);
        world.deliver(0);
        world.check();
    }
    assert_eq!(world.dedicated(), [4]);
}

/// What happens to switches, hosts and the loop.
#[derive(Clone, Debug)]
enum Step {
    Pass(u16),
    Busy(Vec<u32>),
    Answer(usize, How),
    Deliver(usize),
    Reboot(u32),
    /// The loop dies, and the next one cannot read these switches.
    Restart(Vec<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        6 => Just(How::Well),
        1 => (0usize..6).prop_map(How::Fails),
        1 => any::<bool>().prop_map(How::Mute),
    ];
    prop_oneof![
        4 => (0u16..900).prop_map(Step::Pass),
        1 => proptest::collection::vec(0u32..6, 0..5).prop_map(Step::Busy),
        6 => (0usize..6, how).prop_map(|(number, how)| Step::Answer(number, how)),
        6 => (0usize..20).prop_map(Step::Deliver),
        1 => (0..LINKS).prop_map(Step::Reboot),
        1 => proptest::sample::subsequence(vec![0, 1, 2], 0..=2).prop_map(Step::Restart),
    ]
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let one = (10u64..150, proptest::sample::subsequence(vec![0u32, 1, 2], 0..=3));
    proptest::collection::vec(one, 6).prop_map(|all| {
        let of = |(tenant, (mbps, links)): (u32, (u64, Vec<u32>))| member(tenant, mbps, &links);
        (0..).zip(all).map(of).collect()
    })
}

/// All of this happens, and then nothing more.
fn play(members: Vec<Member>, steps: Vec<Step>) {
    let mut world = World::new(members);
    let mut busy = vec![0, 1, 2];
    for step in steps {
        match step {
            Step::Pass(ms) => world.pass(Span::from_millis(ms.into()), &busy),
            Step::Busy(tenants) => busy = tenants,
            Step::Answer(number, how) => world.answer(number, how),
            Step::Deliver(number) => world.deliver(number),
            Step::Reboot(switch) => world.reboot(SwitchId(switch)),
            Step::Restart(unread) => world.restart(&unread),
        }
        world.check();
    }
    // In peace, everything comes to where the binder wants it.
    world.calm(&busy);
    for member in &world.members {
        let phase = world.control.phase(member.tenant);
        assert!(matches!(phase, Some(Phase::Shared | Phase::Dedicated)), "{phase:?}");
        let (place, wanted) =
            (world.control.place(member.tenant), world.control.binder.place(member.tenant));
        assert_eq!(place, wanted);
    }
    for (switch, config) in &world.switches {
        assert_eq!(world.control.known(*switch), Some(config));
    }
}

proptest! {
    #[test]
    fn no_order_of_answers_failures_and_reboots_breaks_a_promise(
        members in members(),
        steps in proptest::collection::vec(step(), 0..250),
    ) {
        play(members, steps);
    }
}
