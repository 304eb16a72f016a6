//! The controller that binds tenants to queues, in virtual time: the loop of `weir-core`, the
//! switches and hosts that it speaks to, and how long they take.
//!
//! Approach  What is told takes effect later, in the order in which it was told. A switch has all of a
//!           config in one moment. Hosts count octets per tenant and card.
//! Promises  The loop learns nothing but answers and counters.
//! Not here  Letters between the controller and hosts use no link. Switches that fail.

use crate::net::Net;
use crate::network::CLASSES;
use crate::packet::Kind;
use crate::world::Sim;
use weir_core::binding::control::{
    Action, Answer, Config, Control, Due, Event, Input, Member, Order, Outcome, Ticket, Usage,
};
use weir_core::binding::switch::{PortName, PortQueues, SwitchConfig};
use weir_core::binding::{Binder, SHARED};
use weir_core::host::Version;
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_units::{Bytes, HostId, SortedMap, Span, TenantId, Time, VmId};

/// Time in which a switch says what it has, and in which a host has an order in force, ns.
const READ: u64 = 1_000_000;
const ORDER: u64 = 1_000_000;

/// What a run's controller knows, and what it speaks to.
pub(crate) struct BindingSpec {
    pub(crate) config: Config,
    pub(crate) binder: Binder,
    pub(crate) members: Vec<Member>,
    /// What switches have at first.
    pub(crate) switches: SortedMap<SwitchId, SwitchConfig>,
    /// The link into which a switch's port sends.
    pub(crate) links: SortedMap<(SwitchId, PortName), u32>,
    /// Each host's link, and the direction that leaves the host.
    pub(crate) cards: SortedMap<HostId, (LinkId, Direction)>,
    /// A tenant's VMs on each host.
    pub(crate) vms: SortedMap<(HostId, TenantId), Vec<VmId>>,
    /// Each VM's tenant, of so many.
    pub(crate) tenant_of: Vec<u32>,
    pub(crate) tenants: usize,
    /// Time in which a switch has a config.
    pub(crate) apply: Span,
}

/// What will happen.
#[derive(Debug)]
enum Happens {
    Read(SwitchId, Ticket),
    Applied(SwitchId, Ticket, SwitchConfig),
    Ordered(HostId, TenantId, Version, Order),
    Deadline,
}

/// The controller and what it speaks to.
#[derive(Debug)]
pub(super) struct Binding {
    control: Control,
    members: Vec<Member>,
    switches: SortedMap<SwitchId, SwitchConfig>,
    links: SortedMap<(SwitchId, PortName), u32>,
    cards: SortedMap<HostId, (LinkId, Direction)>,
    vms: SortedMap<(HostId, TenantId), Vec<VmId>>,
    apply: u64,
    /// By time, and in the order in which it was told.
    agenda: SortedMap<(u64, u64), Happens>,
    told: u64,
    /// Octets out and in at the end of the last interval.
    used: SortedMap<(HostId, TenantId), [u64; 2]>,
    /// What happened, and when.
    events: Vec<(Time, Event)>,
}

impl Binding {
    pub(super) fn new(spec: BindingSpec, net: &mut Net) -> Self {
        let control = Control::with_binder(spec.binder, spec.config, Time::ZERO);
        let mut binding = Self {
            control,
            members: spec.members,
            switches: spec.switches,
            links: spec.links,
            cards: spec.cards,
            vms: spec.vms,
            apply: spec.apply.as_nanos(),
            agenda: SortedMap::new(),
            told: 0,
            used: SortedMap::new(),
            events: Vec::new(),
        };
        for switch in binding.switches.keys().copied().collect::<Vec<_>>() {
            binding.take_effect(net, switch);
        }
        let outcome = binding.control.handle(Time::ZERO, Input::Tenants(&binding.members));
        binding.follow(net, outcome);
        binding
    }

    /// Does what the loop wants, and wakes it when it asks to be.
    fn follow(&mut self, net: &mut Net, outcome: Outcome) {
        let now = net.now;
        let at = Time::from_nanos(now);
        self.events.extend(outcome.events.into_iter().map(|event| (at, event)));
        for action in outcome.actions {
            match action {
                Action::Read { switch, ticket } => {
                    self.later(net, now + READ, Happens::Read(switch, ticket));
                }
                Action::Apply { switch, ticket, config } => {
                    let done = Happens::Applied(switch, ticket, config);
                    self.later(net, now + self.apply, done);
                }
                Action::Tell { tenant, version, order } => {
                    let hosts = self.members.iter().find(|member| member.tenant == tenant);
                    let hosts = hosts.map(|member| member.hosts.clone()).unwrap_or_default();
                    for host in hosts {
                        let done = Happens::Ordered(host, tenant, version, order);
                        self.later(net, now + ORDER, done);
                    }
                }
            }
        }
        let (due, _) = self.control.next_deadline();
        let due = due.as_nanos().max(now + 1);
        let is_next = |at: u64, what: &Happens| at <= due && matches!(what, Happens::Deadline);
        if !self.agenda.iter().any(|((at, _), what)| is_next(*at, what)) {
            self.later(net, due, Happens::Deadline);
        }
    }

    fn later(&mut self, net: &mut Net, at: u64, what: Happens) {
        self.told += 1;
        self.agenda.insert((at, self.told), what);
        net.wake(at, Kind::Bind, 0);
    }

    /// A switch's ports do what its config says.
    fn take_effect(&self, net: &mut Net, switch: SwitchId) {
        for (name, port) in &self.switches[&switch].ports {
            if let Some(link) = self.links.get(&(switch, name.clone())) {
                let (weights, bound) = of_port(port);
                net.bind(*link, &weights, bound);
            }
        }
    }
}

/// The weights of a port's queues, and the queue of each class: here a code point is a class.
fn of_port(port: &PortQueues) -> ([u32; CLASSES as usize], [Option<u8>; CLASSES as usize]) {
    let mut weights = [1; CLASSES as usize];
    let mut bound = [None; CLASSES as usize];
    for (queue, weight) in &port.weights {
        if let Some(slot) = weights.get_mut(usize::from(*queue)) {
            *slot = u32::from(*weight);
        }
    }
    for (codepoint, queue) in &port.queue_of {
        if let Some(slot) = bound.get_mut(usize::from(*codepoint)) {
            *slot = Some(*queue);
        }
    }
    bound[usize::from(SHARED)] = Some(port.shared);
    (weights, bound)
}

impl Sim {
    /// Something of the binding is due.
    pub(super) fn bind(&mut self) {
        let Some(mut binding) = self.binding.take() else { return };
        let now = self.net.now;
        while let Some(((at, _), _)) = binding.agenda.first_key_value()
            && *at <= now
        {
            let (_, happens) = binding.agenda.pop_first().expect("there is a first");
            let outcome = self.happens(&mut binding, happens);
            binding.follow(&mut self.net, outcome);
        }
        self.binding = Some(binding);
    }

    fn happens(&mut self, binding: &mut Binding, happens: Happens) -> Outcome {
        let at = Time::from_nanos(self.net.now);
        match happens {
            Happens::Read(switch, ticket) => {
                let found = binding.switches[&switch].clone();
                let answer = Answer::Found(found);
                binding.control.handle(at, Input::Answer(switch, ticket, answer))
            }
            Happens::Applied(switch, ticket, config) => {
                binding.switches.insert(switch, config);
                binding.take_effect(&mut self.net, switch);
                binding.control.handle(at, Input::Answer(switch, ticket, Answer::Applied))
            }
            Happens::Ordered(host, tenant, version, order) => {
                let vms = binding.vms.get(&(host, tenant)).map_or(&[][..], Vec::as_slice);
                if let Some(shim) = &mut self.edge.shim {
                    shim.obey(&mut self.net, host.0, vms, order);
                }
                binding.control.handle(at, Input::InForce(host, tenant, version))
            }
            Happens::Deadline => {
                let (due, why) = binding.control.next_deadline();
                if why != Due::Interval || due > at {
                    return binding.control.handle(at, Input::Tick);
                }
                let usage = self.usage(binding);
                binding.control.handle(at, Input::Interval(&binding.members, &usage))
            }
        }
    }

    /// What tenants used since the last interval, ascending by tenant.
    fn usage(&self, binding: &mut Binding) -> Vec<Usage> {
        let mut usage = Vec::new();
        let Some(shim) = &self.edge.shim else { return usage };
        for (host, tenant) in binding.vms.keys() {
            let Some(&(link, out)) = binding.cards.get(host) else { continue };
            let back = match out {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
            let now = shim.used(host.0, tenant.0);
            let before = binding.used.insert((*host, *tenant), now).unwrap_or_default();
            for (way, direction) in [out, back].into_iter().enumerate() {
                let octets = Bytes::new(now[way] - before[way]);
                usage.push(Usage { tenant: *tenant, card: (link, direction), octets });
            }
        }
        usage.sort_by_key(|usage| usage.tenant);
        usage
    }

    /// What happened to the binding of tenants so far, and when.
    pub fn binding_events(&self) -> &[(Time, Event)] {
        self.binding.as_ref().map_or(&[], |binding| &binding.events)
    }

    /// Octets that carried the code point of a queue to a port without that queue: off their tenant's
    /// tree, or before or after the queue was there.
    pub fn unbound(&self) -> Bytes {
        Bytes::new(self.net.unbound())
    }
}
