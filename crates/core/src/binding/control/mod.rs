//! The controller's loop: from what tenants used to queues on switches and tags on hosts.
//!
//! Problem   A decision changes many switches and hosts, none of them in the same moment, and each
//!           may fail, answer late, reboot, or be changed by somebody else.
//! Approach  Each control interval asks all switches what they have, and binds tenants by what they
//!           used ([`Binder`]). A tenant then moves through phases ([`Phase`]), and each edge waits
//!           for what it needs: a queue is on all switches before a host uses it, and hosts have
//!           left it before it is removed. All swaps pass through the shared queue. A switch is told
//!           its whole config at a time, and only where something has changed.
//! Promises  No packet with a code point is sent while a port of its tenant's tree is not known to
//!           have a queue for it alone, unless a switch lost it by itself. The weight of a shared
//!           queue counts every tenant that may have packets in it, and a tenant that is not limited
//!           to its floors has a queue of its own. Same calls, same actions. No input in any order
//!           panics.
//! Not here  A clock: time is passed in. What a switch is told how: its driver. What hosts do with an
//!           [`Order`]: they tag, and limit tenants of the shared queue to their floors.
//! Source    QShare §5.4; `docs/algorithms/qshare.md`, "The loop".
//!
//! # How to drive it
//!
//! | when | call |
//! | --- | --- |
//! | tenants came or went | `handle(now, Input::Tenants(…))` |
//! | [`Due::Interval`] has come | `handle(now, Input::Interval(…))` with all tenants' usage since the last |
//! | a switch has answered | `handle(now, Input::Answer(…))` |
//! | a host has an order in force | `handle(now, Input::InForce(…))` |
//! | [`Control::next_deadline`] has come | `handle(now, Input::Tick)` |
//! | links, switches or code points are others | [`Control::set_config`] |
//!
//! A loop that follows one that ended begins with [`Control::resume`].
//!
//! Answers of one switch come in the order of the questions. A write that was asked for before a read
//! has taken effect before that read, or never does.

mod moves;
mod ports;
mod resume;
#[cfg(test)]
mod tests;

pub use resume::Held;

use super::switch::{Abilities, PortName, SwitchConfig};
use super::{Binder, CardUse, Contender, Fabric, Place, Why, Wish, score, usage_factor};
use crate::host::Version;
use crate::ledger::{Direction, LinkId, Need, SwitchId};
use weir_units::{Bytes, HostId, Rate, SortedMap, SortedSet, Span, TenantId, Time};

/// What the loop is told once.
#[derive(Clone, Debug)]
pub struct Config {
    /// Links and code points.
    pub fabric: Fabric,
    /// The switch and its port that send into a link in this direction. Hosts' own ports are not
    /// here: hosts have weighted queues of their own.
    pub ports: SortedMap<(LinkId, Direction), (SwitchId, PortName)>,
    /// What each of these switches can hold.
    pub switches: SortedMap<SwitchId, Abilities>,
    /// Who configures the switches.
    pub provision: Provision,
    /// Length of a control interval. Paper: 4 s.
    pub interval: Span,
    /// After this time no packet is under way that a host sent before it had its order. Longer: swaps
    /// take longer. Shorter: a packet may meet another tenant's queue.
    pub linger: Span,
    /// A switch that has not answered for so long has failed.
    pub patience: Span,
    /// Breaks ties.
    pub seed: u64,
}

/// Who configures the switches' queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Provision {
    /// This loop does.
    #[default]
    Loop,
    /// Others did, once: each code point of the fabric has a queue, the same on all ports. The loop
    /// reads and never writes.
    Static {
        /// How often switches are read: more seldom than an interval is long.
        read: Span,
    },
}

/// A tenant, as the ledger has it.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// The tenant.
    pub tenant: TenantId,
    /// What it has reserved on the links of its tree, ascending by link.
    pub needs: Vec<Need>,
    /// The sum of its floors.
    pub payment: Rate,
    /// What an operator wants for it.
    pub wish: Wish,
    /// Hosts with VMs of the tenant: they follow its orders.
    pub hosts: SortedSet<HostId>,
}

/// What a tenant sent over a host's link in one direction since the last interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The tenant.
    pub tenant: TenantId,
    /// The host's link, and the direction: both of a card's directions are entries of their own.
    pub card: (LinkId, Direction),
    /// Octets that crossed it.
    pub octets: Bytes,
}

/// What hosts do for a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Tag of its packets; 0 is the shared queue's.
    pub codepoint: u8,
    /// Whether its VMs may send as much as they like. Otherwise hosts limit them to the tenant's
    /// floors, or to what the mechanism of the shared queue allows.
    pub is_free: bool,
}

/// What the loop wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Read what a switch has.
    Read {
        /// Which one.
        switch: SwitchId,
        /// Goes back with the answer.
        ticket: Ticket,
    },
    /// Make a switch have this.
    Apply {
        /// Which one.
        switch: SwitchId,
        /// Goes back with the answer.
        ticket: Ticket,
        /// All of its ports that Weir uses.
        config: SwitchConfig,
    },
    /// Tell all hosts of a tenant, until each has this version or a later one in force.
    Tell {
        /// The tenant.
        tenant: TenantId,
        /// The version of this order.
        version: Version,
        /// What they do.
        order: Order,
    },
}

/// A question to a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticket(pub u64);

/// What a switch says.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// It has this.
    Found(SwitchConfig),
    /// It has what it was asked to have.
    Applied,
    /// It has an unknown part of that, or nothing.
    Failed,
}

/// What the loop is called with.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// All tenants, ascending: some came, went or changed.
    Tenants(&'a [Member]),
    /// A control interval has ended: all tenants, and what they used, ascending by tenant.
    Interval(&'a [Member], &'a [Usage]),
    /// A switch has answered.
    Answer(SwitchId, Ticket, Answer),
    /// A host has this version of a tenant's order in force.
    InForce(HostId, TenantId, Version),
    /// A deadline has come.
    Tick,
}

/// What to wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// The control interval ends.
    Interval,
    /// A switch has not answered.
    Patience(SwitchId),
    /// A tenant's last packets have left its queue.
    Drained(TenantId),
}

/// A tenant's place on its way between the shared queue and one of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Its packets use the shared queue, and hosts limit them.
    #[default]
    Shared,
    /// Its queues are being configured. No host knows.
    Preparing,
    /// Its queues stand. Hosts are told its code point.
    Tagging,
    /// All hosts tag. They are told that its VMs are limited no longer.
    Freeing,
    /// It has its own queues.
    Dedicated,
    /// Hosts are told to limit it again, and shared queues get the weight for it.
    Clamping,
    /// Hosts are told to tag for the shared queue.
    Untagging,
    /// All hosts do; its last packets leave its own queues until then.
    Draining(Time),
}

impl Phase {
    /// Whether its packets may be in shared queues, as far as weights are concerned: also where they
    /// are about to be.
    const fn is_in_shared(self) -> bool {
        !matches!(self, Self::Freeing | Self::Dedicated)
    }

    /// Whether hosts may tag with its code point.
    const fn is_tagged(self) -> bool {
        !matches!(self, Self::Shared | Self::Preparing)
    }
}

/// Something that people want to know.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A tenant is in another phase.
    Moved(TenantId, Phase),
    /// A switch had something else than it was told: so many changes mend it.
    Drifted(SwitchId, usize),
    /// A port of a switch leads a code point of others to a queue of tenants. It is left alone.
    Foreign(SwitchId, PortName, u8),
    /// A switch could not be read or written.
    Failed(SwitchId),
    /// Ports of a switch do not have the queues that others were to provision: code points without.
    Unprovisioned(SwitchId, Vec<u8>),
}

/// What came of a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// In this order.
    pub actions: Vec<Action>,
    /// For people.
    pub events: Vec<Event>,
}

/// A tenant on its way.
#[derive(Clone, Debug)]
struct Tenant {
    member: Member,
    is_gone: bool,
    phase: Phase,
    /// Its code point and the number of its queue on each link. Not in force while it is shared.
    codepoint: u8,
    slots: SortedMap<LinkId, u8>,
    version: Version,
    order: Order,
    in_force: SortedMap<HostId, Version>,
    /// The code point that the binder wants it to have.
    wanted: Option<u8>,
    /// Why it has no queue in this interval, although the binder gave it one.
    failed: Option<Why>,
    /// Switches that lost its queue and could not be mended.
    lost: SortedSet<SwitchId>,
}

/// A switch, as far as is known.
#[derive(Clone, Debug, Default)]
struct Switch {
    /// What it has; `None`: unknown.
    known: Option<SwitchConfig>,
    /// What it had before the first write.
    before: Option<SwitchConfig>,
    pending: Option<Pending>,
    /// Whether it failed in this interval. It is not written to again before the next.
    has_failed: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    ticket: Ticket,
    until: Time,
    /// What it is told; `None`: it is read.
    config: Option<SwitchConfig>,
}

/// The loop.
///
/// Cost: a call takes O(tenants · links of a tree); an interval also what [`Binder::bind`] takes.
#[derive(Clone, Debug)]
pub struct Control {
    config: Config,
    binder: Binder,
    tenants: SortedMap<TenantId, Tenant>,
    switches: SortedMap<SwitchId, Switch>,
    /// The ports of each switch.
    ports: SortedMap<SwitchId, Vec<(LinkId, Direction, PortName)>>,
    /// Tenants with a reservation or a queue, by link.
    on_links: SortedMap<LinkId, SortedSet<TenantId>>,
    /// The links of each tenant there.
    links_of: SortedMap<TenantId, SortedSet<LinkId>>,
    /// Switches that may need another config.
    dirty: SortedSet<SwitchId>,
    began: Time,
    read_at: Time,
    rounds: u64,
    tickets: u64,
    /// The first version of orders.
    first_version: u64,
}

/// The ports of each switch.
fn ports_of(config: &Config) -> SortedMap<SwitchId, Vec<(LinkId, Direction, PortName)>> {
    let mut ports: SortedMap<SwitchId, Vec<_>> = SortedMap::new();
    for ((link, direction), (switch, port)) in &config.ports {
        ports.entry(*switch).or_default().push((*link, *direction, port.clone()));
    }
    ports
}

impl Control {
    /// A loop whose first interval begins at `now`. All tenants are in the shared queue.
    pub fn new(config: Config, now: Time) -> Self {
        Self::with_binder(Binder::new(config.fabric.clone()), config, now)
    }

    /// The same with a binder of its own: one for queues that others provisioned.
    pub fn with_binder(binder: Binder, config: Config, now: Time) -> Self {
        let ports = ports_of(&config);
        let known = config.switches.keys();
        let switches = known.map(|switch| (*switch, Switch::default())).collect();
        let tenants = SortedMap::new();
        let (rounds, tickets) = (0, 0);
        Self {
            config,
            binder,
            tenants,
            switches,
            ports,
            on_links: SortedMap::new(),
            links_of: SortedMap::new(),
            dirty: SortedSet::new(),
            began: now,
            read_at: now,
            rounds,
            tickets,
            first_version: 1,
        }
    }

    /// The same with versions of orders that are no less than this: more than any version that hosts may
    /// know from a loop of which no record is left.
    #[must_use]
    pub fn with_first_version(self, first_version: u64) -> Self {
        Self { first_version, ..self }
    }

    /// The only way in. Pure: same state, `now` and input give the same outcome.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Outcome {
        let mut out = Outcome::default();
        match input {
            Input::Tenants(members) => self.take(members, now, &mut out),
            Input::Interval(members, usage) => self.interval(members, usage, now, &mut out),
            Input::Answer(switch, ticket, answer) => {
                self.answered(switch, ticket, answer, &mut out)
            }
            Input::InForce(host, tenant, version) => {
                if let Some(tenant) = self.tenants.get_mut(&tenant) {
                    let known = tenant.in_force.entry(host).or_default();
                    *known = version.min(tenant.version).max(*known);
                }
            }
            Input::Tick => {}
        }
        self.lose_patience(now, &mut out);
        self.advance(now, &mut out);
        out
    }

    /// When to call again, and why. With [`Due::Interval`] the call is [`Input::Interval`].
    pub fn next_deadline(&self) -> (Time, Due) {
        let interval = (self.began + self.config.interval, Due::Interval);
        let switches = self.switches.iter().filter_map(|(switch, state)| {
            Some((state.pending.as_ref()?.until, Due::Patience(*switch)))
        });
        let drained = self.tenants.iter().filter_map(|(tenant, state)| match state.phase {
            Phase::Draining(until) => Some((until, Due::Drained(*tenant))),
            _ => None,
        });
        switches.chain(drained).chain([interval]).min().unwrap_or(interval)
    }

    /// Its configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Where a tenant is now, on all switches and hosts.
    pub fn phase(&self, tenant: TenantId) -> Option<Phase> {
        self.tenants.get(&tenant).map(|tenant| tenant.phase)
    }

    /// Where a tenant is, with the reason if it has no queue of its own.
    pub fn place(&self, tenant: TenantId) -> Option<Place> {
        let state = self.tenants.get(&tenant)?;
        if matches!(state.phase, Phase::Freeing | Phase::Dedicated) {
            return Some(Place::Dedicated(state.codepoint));
        }
        if let Some(why) = state.failed {
            return Some(Place::Shared(why));
        }
        match self.binder.place(tenant) {
            Some(Place::Shared(why)) => Some(Place::Shared(why)),
            Some(Place::Dedicated(_)) => Some(Place::Shared(Why::Moving)),
            None => Some(Place::Shared(Why::New)),
        }
    }

    /// What hosts are to do for a tenant, and the version of that.
    pub fn order(&self, tenant: TenantId) -> Option<(Version, Order)> {
        self.tenants.get(&tenant).map(|tenant| (tenant.version, tenant.order))
    }

    /// What a switch is known to have; `None`: unknown.
    pub fn known(&self, switch: SwitchId) -> Option<&SwitchConfig> {
        self.switches.get(&switch)?.known.as_ref()
    }

    /// What a switch had before the first write: apply it to give the switch back.
    pub fn before(&self, switch: SwitchId) -> Option<&SwitchConfig> {
        self.switches.get(&switch)?.before.as_ref()
    }

    /// Takes up the list of tenants. Hosts of a tenant that went send nothing more.
    fn take(&mut self, members: &[Member], now: Time, out: &mut Outcome) {
        debug_assert!(members.is_sorted_by_key(|member| member.tenant), "ascending");
        let is_named =
            |tenant| members.binary_search_by_key(&tenant, |member| member.tenant).is_ok();
        let left: Vec<TenantId> =
            self.tenants.keys().copied().filter(|tenant| !is_named(*tenant)).collect();
        for id in left {
            let tenant = self.tenants.get_mut(&id).expect("it is listed");
            (tenant.is_gone, tenant.wanted) = (true, None);
            if tenant.phase.is_tagged() && !matches!(tenant.phase, Phase::Draining(_)) {
                self.enter(id, Phase::Draining(now + self.config.linger), out);
            }
        }
        for member in members {
            let new = || Tenant::new(member.clone());
            let tenant = self.tenants.entry(member.tenant).or_insert_with(new);
            // One that went and is back before its packets left waits for that.
            tenant.is_gone = false;
            if tenant.member != *member {
                tenant.in_force.retain(|host, _| member.hosts.contains(host));
                tenant.member = member.clone();
                self.dirty.extend(self.switches_of(&self.tenants[&member.tenant]));
            }
            self.index(member.tenant);
        }
    }

    /// Notes on which links a tenant is.
    fn index(&mut self, id: TenantId) {
        let links = self.tenants.get(&id).map_or_else(SortedSet::new, |tenant| {
            let needs = tenant.member.needs.iter().map(|need| need.link);
            needs.chain(tenant.slots.keys().copied()).collect()
        });
        let before = self.links_of.insert(id, links.clone()).unwrap_or_default();
        if before == links {
            return;
        }
        for link in before.difference(&links).chain(links.difference(&before)) {
            let on = self.on_links.entry(*link).or_default();
            if links.contains(link) {
                on.insert(id)
            } else {
                on.remove(&id)
            };
            for direction in [Direction::Forward, Direction::Backward] {
                self.dirty.extend(self.config.ports.get(&(*link, direction)).map(|port| port.0));
            }
        }
        if links.is_empty() {
            self.links_of.remove(&id);
        }
    }

    fn interval(&mut self, members: &[Member], usage: &[Usage], now: Time, out: &mut Outcome) {
        let before: SortedSet<TenantId> = self.tenants.keys().copied().collect();
        self.take(members, now, out);
        let span = now.since(self.began);
        debug_assert!(usage.is_sorted_by_key(|usage| usage.tenant), "ascending");
        let contend = |member: &Member| {
            let from = usage.partition_point(|usage| usage.tenant < member.tenant);
            let cards = usage[from..].iter().take_while(|usage| usage.tenant == member.tenant);
            let factor = usage_factor(cards.map(|usage| card_use(member, usage, span)));
            Contender {
                tenant: member.tenant,
                needs: member.needs.clone(),
                score: score(member.payment, factor),
                wish: member.wish,
                is_new: !before.contains(&member.tenant),
            }
        };
        let contenders: Vec<Contender> = members.iter().map(contend).collect();
        self.binder.bind(&contenders, self.config.seed.wrapping_add(self.rounds));
        (self.began, self.rounds) = (now, self.rounds + 1);
        for (id, tenant) in &mut self.tenants {
            tenant.failed = None;
            tenant.wanted = match self.binder.place(*id) {
                Some(Place::Dedicated(codepoint)) if !tenant.is_gone => Some(codepoint),
                _ => None,
            };
        }
        let every = match self.config.provision {
            Provision::Loop => Span::ZERO,
            Provision::Static { read } => read,
        };
        if now >= self.read_at {
            self.read_at = now + every;
            let all: Vec<SwitchId> = self.switches.keys().copied().collect();
            for switch in all {
                self.switches.get_mut(&switch).expect("it is listed").has_failed = false;
                self.ask(switch, None, now, out);
            }
        }
    }
}

impl Tenant {
    /// One in the shared queue, of which hosts know nothing.
    const fn new(member: Member) -> Self {
        Self {
            member,
            is_gone: false,
            phase: Phase::Shared,
            codepoint: super::SHARED,
            slots: SortedMap::new(),
            version: Version(0),
            order: Order { codepoint: super::SHARED, is_free: false },
            in_force: SortedMap::new(),
            wanted: None,
            failed: None,
            lost: SortedSet::new(),
        }
    }
}

/// A card's part of the U-factor.
fn card_use(member: &Member, usage: &Usage, span: Span) -> CardUse {
    let (link, direction) = usage.card;
    let at = member.needs.binary_search_by_key(&link, |need| need.link);
    let reserved = at.map_or(Rate::ZERO, |at| floor(&member.needs[at], direction));
    CardUse { used: Rate::of(usage.octets, span), reserved }
}

/// What is reserved in a direction.
const fn floor(need: &Need, direction: Direction) -> Rate {
    match direction {
        Direction::Forward => need.forward,
        Direction::Backward => need.backward,
    }
}
