//! EyeQ: receivers meter what arrives and tell senders at which rate they may go on.
//!
//! Problem   A VM's minimum on its host's link, in and out, must hold within milliseconds, whatever
//!           others send and whether they heed losses. Rates that are probed for, as ElasticSwitch
//!           does, need longer.
//! Approach  Where the network's core is not congested, all contention is for the links of the
//!           hosts. The receiving host sees its own: it computes one rate per VM and sends it back
//!           (`receiver`); the sending host keeps to it per destination and shares its own link by
//!           floors (`sender`).
//! Promises  What a host advertises for a VM is never above what the VM may have, nor that above
//!           the link less headroom. Limits are levels in tables, never lost; messages go through a
//!           bounded outbox. What is forged, misdirected or impossible is dropped and counted. No
//!           input in any order panics. A configuration that would oscillate, or that promises more
//!           than the link, is refused with the reason ([`Refusal`]).
//! Not here  Congestion in the core is met by marks only, and then without floors (EyeQ §3.4). The
//!           data plane. Trust: messages are authenticated before they come here.
//! Source    EyeQ §2 to §4. What the paper leaves open: docs/algorithms/eyeq.md.
//!
//! Where the data plane meters and tells by itself ([`Capabilities::meters`]), counters of received
//! octets are not used: it runs [`RateMeter`] for each packet, and the machine orders what
//! [`Shares`] gives each of a VM's two meters. Limits are then what the data plane heard. Elsewhere
//! the receiver module runs the same two.
//!
//! What passes within one host crosses no link: it is neither metered nor limited.

mod config;
mod constant;
mod division;
pub(super) mod explain;
mod headroom;
mod io;
mod law;
mod leaves;
mod newcomers;
mod rate_meter;
mod receiver;
mod refusal;
mod scheduler;
mod sender;
mod shares;
mod stability;
mod view;

pub use config::{Backend, Capacity, Ecn, EyeQ, Outer};
pub use constant::Tuned;
pub use headroom::Headroom;
pub use io::{Bounds, Class, Counters, Feedback, Levels, MeterView, Sent, VmBounds};
pub use law::{
    ELAPSED_MOST_NS, LOAD_MOST, ONE, RATE_LEAST, RATE_MOST, RcpInput, RcpOutput, rcp_step,
};
pub use rate_meter::{Asked, Heeder, IDLE_PERIODS, MeterRules, MeterShare, Packets, RateMeter};
pub use refusal::Refusal;
pub use shares::Shares;
pub use stability::{Loop, bound};
pub use view::{PairView, ReceiveView, SendView};

use crate::host::{
    self, Capabilities, Direction, Event, Hose, Input, Location, Metered, Observed, Orders, Outbox,
    Part, Policy, Receive, ReceiveCount, Setting, Wanted, Why,
};
use crate::message::Message;
use division::Division;
use leaves::Leaf;
use receiver::Receiver;
use sender::Sender;
use serde::{Deserialize, Serialize};
use weir_units::{HostId, PairId, Rate, SortedMap, Span, Time, VmId};

/// The least rate of a pair with a class of its own: HTB cannot well do with less. Together they
/// would have more than the VM's floor.
const LEAST_PAIR_RATE: Rate = Rate::from_bps(64_000);
/// An agent looks at a kernel's meters no more often, however short the kernel's periods are: C_i
/// and silence are slower.
const LEAST_LOOK: Span = Span::from_millis(1);
/// A VM that received nothing for so many periods is idle; twice as long as until its kernel's
/// meter says so when it begins again.
const QUIET_PERIODS: u64 = 128;

/// What a host knows of its VMs and of others.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Config {
    host: HostId,
    line: Rate,
    fastest_line: Rate,
    eyeq: EyeQ,
    vms: SortedMap<VmId, VmBounds>,
    directory: SortedMap<VmId, Location>,
}

impl Config {
    fn of(policy: &Policy, eyeq: EyeQ) -> Self {
        let bounds = |(vm, hose): (VmId, &Hose)| (vm, VmBounds { out: hose.out, in_: hose.in_ });
        let vms = policy.vms().map(bounds).collect();
        let Policy { host, line, fastest_line, .. } = *policy;
        Self { host, line, fastest_line, eyeq, vms, directory: policy.directory.clone() }
    }

    /// The floor that a VM's pairs divide. One without a floor has a small one.
    fn promised(&self, vm: VmId) -> Rate {
        let floor = self.vms.get(&vm).map_or(Rate::ZERO, |bounds| bounds.out.floor);
        if floor.is_zero() { self.eyeq.default_floor } else { floor }
    }

    fn check(&self) -> Result<(), Refusal> {
        self.eyeq.check(self.line)?;
        io::check_vms(&self.eyeq, self.line, &self.vms)
    }
}

/// Whether a policy can be kept with these constants.
///
/// # Errors
/// The first reason why not, with what would be right.
pub fn check(policy: &Policy, eyeq: &EyeQ) -> Result<(), Refusal> {
    has_one_hose(policy)?;
    Config::of(policy, eyeq.clone()).check()
}

/// EyeQ's receivers tell one rate per VM, so a VM has one hose.
fn has_one_hose(policy: &Policy) -> Result<(), Refusal> {
    policy.further.keys().next().map_or(Ok(()), |vm| Err(Refusal::SeveralHoses { vm: *vm }))
}

/// One host: both modules.
#[derive(Debug, Serialize, Deserialize)]
pub struct Host {
    config: Config,
    can: Capabilities,
    receiver: Receiver,
    /// The receiver module's place, where the data plane meters.
    kernel: Option<Kernel>,
    sender: Sender,
    leaves: SortedMap<PairId, Leaf>,
    division: Division,
    orders: Orders,
    /// The last step of the receiver module.
    stepped_at: Time,
    step_at: Time,
    /// Counters of received, and of sent octets came since the last step: without them nothing is
    /// known, and nothing is computed.
    is_sampled: (bool, bool),
    counters: Counters,
}

/// What is known of a data plane's meters.
#[derive(Debug, Serialize, Deserialize)]
struct Kernel {
    shares: Shares,
    /// The last readings.
    meters: SortedMap<(VmId, Part), Metered>,
    /// When something was last received.
    received_at: Option<Time>,
}

impl Host {
    /// A host that starts at `now`, without traffic.
    pub(crate) fn new(policy: &Policy, eyeq: EyeQ, now: Time) -> Result<Self, Refusal> {
        check(policy, &eyeq)?;
        let config = Config::of(policy, eyeq);
        let kernel = policy.can.meters.then(|| Kernel {
            shares: Shares::new(now),
            meters: SortedMap::new(),
            received_at: None,
        });
        let mut host = Self {
            receiver: Receiver::new(now),
            kernel,
            sender: Sender::default(),
            leaves: SortedMap::new(),
            division: Division::default(),
            orders: Orders::default(),
            stepped_at: now,
            step_at: now,
            is_sampled: (false, false),
            counters: Counters::default(),
            can: policy.can,
            config,
        };
        host.apply_population(now);
        Ok(host)
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Seen(pair, Direction::Send) => self.see(now, pair, Leaf::new(now)),
            Input::Seen(pair, Direction::Receive) => match &mut self.kernel {
                Some(kernel) => kernel.received_at = Some(now),
                None => self.receive(now, pair, ReceiveCount::default()),
            },
            Input::Adopt(pair, setting) => self.adopt(now, pair, setting),
            Input::Observed(observed) => self.observe(now, observed),
            Input::Message(from, Message::Feedback(feedback)) => {
                self.feedback(now, from, feedback);
            }
            // Of another mechanism.
            Input::Message(..) => self.counters.misdirected += 1,
            Input::Policy(policy) => self.repopulate(now, policy),
            Input::Tick => self.tick(now, out),
            // Meters begin anew, and so do the shares that read them.
            Input::Found(..) | Input::PeerRestarted(_) => {}
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<(Time, Why)> {
        let receives = match &self.kernel {
            None => self.receiver.has_sources(),
            Some(kernel) => {
                let quiet = self.config.eyeq.period * QUIET_PERIODS;
                kernel.received_at.is_some_and(|at| at + quiet > self.step_at)
            }
        };
        if receives {
            Some((self.step_at, Why::Receive))
        } else {
            let sends = self.sender.has_pairs() || !self.leaves.is_empty();
            sends.then_some((self.step_at, Why::Send))
        }
    }

    pub(crate) fn wants(&self) -> Wanted {
        Wanted { send: true, receive: self.kernel.is_none() }
    }

    /// Pairs whose limits are to be read: those whose receivers spoke, for one that says the same
    /// again is not silent, and new ones. A receiver that speaks for the first time announces
    /// itself.
    pub(crate) fn limits_wanted(&self) -> Vec<PairId> {
        if self.kernel.is_none() {
            return Vec::new();
        }
        let wanted = self.leaves.iter().filter(|(_, leaf)| leaf.told > 0 || !leaf.is_read);
        wanted.map(|(pair, _)| *pair).collect()
    }

    /// Limiters that the data plane should have. A destination that is not here has none.
    pub fn limits(&self) -> &Levels<PairId, Rate> {
        &self.sender.limits
    }

    /// What the host counted about itself.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn common_counters(&self) -> host::Counters {
        let c = self.counters;
        host::Counters {
            messages: c.feedback,
            misdirected: c.strangers + c.misdirected + c.impossible,
            strayed: c.strayed,
            refused_pairs: c.refused_peers,
            unknown_pairs: c.unknown_pairs,
            refused_policies: c.refused_populations,
        }
    }

    /// Whether the pair sends from here.
    pub fn knows(&self, pair: PairId) -> bool {
        self.leaves.contains_key(&pair)
    }

    pub(crate) fn known(&self) -> (usize, usize) {
        (self.leaves.len(), self.receiver.sources())
    }

    /// Why the senders to a VM of this host are told what they are told: one row per meter of it.
    pub fn meters(&self, vm: VmId) -> Vec<MeterView> {
        self.receiver.view(vm)
    }

    // -- orders -------------------------------------------------------------------------------

    pub(crate) fn undivided(&mut self) -> &mut Orders {
        &mut self.orders
    }

    pub(crate) fn orders(&mut self) -> &mut Orders {
        self.divide();
        &mut self.orders
    }

    /// Gives pairs their settings.
    fn divide(&mut self) {
        let Self { division, sender, orders, config, .. } = self;
        for (pair, _) in sender.limits.take_changed() {
            division.limit(pair);
        }
        let promised = |vm| config.promised(vm);
        let limit = |pair| sender.limits.get(pair);
        for (pair, setting) in division.take_settings(config.line, promised, limit) {
            orders.pairs.grow(pair, setting);
        }
    }

    fn promised(&self, vm: VmId) -> Rate {
        self.config.promised(vm)
    }

    // -- pairs --------------------------------------------------------------------------------

    fn see(&mut self, now: Time, pair: PairId, leaf: Leaf) {
        if self.leaves.contains_key(&pair) {
            return;
        }
        let Config { vms, directory, .. } = &self.config;
        if !vms.contains_key(&pair.src) || !directory.contains_key(&pair.dst) {
            self.counters.unknown_pairs += 1;
            return;
        }
        let peers = self.division.pairs_of(pair.src);
        let least = if self.can.meters { LEAST_PAIR_RATE } else { Rate::ZERO };
        let has_room = peers == 0 || self.promised(pair.src).split(peers + 1) >= least;
        if !has_room || peers >= self.config.eyeq.peers_most {
            self.counters.refused_peers += 1;
            return;
        }
        self.leaves.insert(pair, leaf);
        self.orders.events.tell(Event::Began(pair, Direction::Send));
        self.send(now, pair, Sent::default());
        self.division.see(pair);
    }

    /// What an earlier life left in force counts as its receiver's word, until that speaks.
    fn adopt(&mut self, now: Time, pair: PairId, setting: Setting) {
        // What it sent before went unanswered here, and not there.
        self.see(now, pair, Leaf::adopted(now));
        if self.knows(pair) && setting.ceiling < self.config.line {
            self.obey(now, pair, setting.ceiling);
        }
    }

    /// The receiver said so, wherever it was heard.
    fn obey(&mut self, now: Time, pair: PairId, rate: Rate) {
        if let Some(at) = self.config.directory.get(&pair.dst) {
            self.feedback(now, at.host, Feedback { pair, rate });
        }
    }

    fn forget_idle(&mut self, now: Time) {
        let most = self.config.eyeq.limiter_idle;
        let idle = self.leaves.iter().filter(|(_, leaf)| leaf.is_idle(now, most));
        let idle: Vec<PairId> = idle.map(|(pair, _)| *pair).collect();
        self.forget(&idle);
    }

    fn forget(&mut self, pairs: &[PairId]) {
        for pair in pairs {
            self.leaves.remove(pair);
            self.division.forget(*pair);
            self.orders.forget(*pair, Direction::Send);
        }
    }

    // -- counters -----------------------------------------------------------------------------

    fn observe(&mut self, now: Time, observed: &Observed) {
        for (pair, count) in &observed.send {
            self.see(now, *pair, Leaf::new(now));
            let Some(leaf) = self.leaves.get_mut(pair) else { continue };
            // Of a thousand pairs few send in each period.
            if leaf.count(now, count) {
                let sent = Sent { octets: leaf.left, waiting: leaf.waiting };
                self.send(now, *pair, sent);
            }
            self.is_sampled.1 = true;
        }
        let Some(kernel) = &mut self.kernel else {
            for (pair, count) in &observed.receive {
                self.receive(now, *pair, *count);
            }
            return;
        };
        for (vm, part, metered) in &observed.meters {
            let before =
                kernel.meters.insert((*vm, *part), *metered).map_or(0, |before| before.octets);
            if metered.octets != before {
                kernel.received_at = Some(now);
            }
            kernel.shares.read(now, *vm, *part, *metered);
        }
        for (pair, told) in &observed.limits {
            if self.leaves.get_mut(pair).is_some_and(|leaf| leaf.hear(now, *told)) {
                self.obey(now, *pair, told.rate);
            }
        }
    }

    fn send(&mut self, now: Time, pair: PairId, sent: Sent) {
        self.is_sampled.1 = true;
        let at = self.config.directory.get(&pair.dst);
        if at.is_some_and(|at| at.host != self.config.host) {
            self.sender.count(&self.config.eyeq, now, pair, sent, &mut self.counters);
        }
    }

    fn receive(&mut self, now: Time, pair: PairId, count: ReceiveCount) {
        self.is_sampled.0 = true;
        match self.config.directory.get(&pair.src) {
            Some(at) if at.host == self.config.host => {}
            Some(at) => {
                let (eyeq, pair) = (&self.config.eyeq, (pair, *at));
                self.receiver.count(eyeq, now, pair, count, &mut self.counters);
            }
            None => self.counters.unknown_pairs += 1,
        }
    }

    /// The receiver's word, if it is its to say and can be meant.
    fn feedback(&mut self, now: Time, from: HostId, feedback: Feedback) {
        let Feedback { pair, rate } = feedback;
        let config = &self.config;
        let counter = if config.directory.get(&pair.dst).is_none_or(|at| at.host != from) {
            &mut self.counters.strangers
        } else if !config.vms.contains_key(&pair.src) {
            &mut self.counters.misdirected
        } else if rate.is_zero() || rate > config.fastest_line.max(config.line) {
            &mut self.counters.impossible
        } else {
            let rate = rate.min(config.line);
            match self.sender.feedback(now, pair, rate, &mut self.orders.events) {
                Some(()) => &mut self.counters.feedback,
                None => &mut self.counters.strayed,
            }
        };
        *counter += 1;
    }

    // -- VMs ----------------------------------------------------------------------------------

    fn repopulate(&mut self, now: Time, to: &Policy) {
        let has_one_hose = has_one_hose(to);
        let to = Config::of(to, self.config.eyeq.clone());
        let checked = io::check_vms(&self.config.eyeq, self.config.line, &to.vms);
        if checked.and(has_one_hose).is_err() {
            self.counters.refused_populations += 1;
            return;
        }
        let before = std::mem::replace(&mut self.config.directory, to.directory);
        self.config.vms = to.vms;
        let (vms, directory) = (&self.config.vms, &self.config.directory);
        let is_same = |vm: VmId| directory.get(&vm) == before.get(&vm);
        self.receiver.keep_sources(directory);
        self.sender.keep_pairs(is_same);
        let stays = |pair: &PairId| {
            vms.contains_key(&pair.src) && directory.contains_key(&pair.dst) && is_same(pair.dst)
        };
        let over: Vec<PairId> = self.leaves.keys().copied().filter(|pair| !stays(pair)).collect();
        self.forget(&over);
        self.config.vms.keys().for_each(|vm| self.division.redivide(*vm));
        self.apply_population(now);
    }

    fn apply_population(&mut self, now: Time) {
        let vms = &self.config.vms;
        self.receiver.set_vms(now, vms, &self.config.directory);
        self.sender.set_vms(vms.keys().copied().collect());
        let gone: Vec<VmId> = self.orders.classes.iter().map(|(vm, _)| vm).collect();
        for vm in gone.into_iter().filter(|vm| !vms.contains_key(vm)) {
            self.orders.classes.remove(vm);
        }
        for (vm, bounds) in vms {
            self.orders.classes.set(*vm, bounds.out.class());
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.meters.retain(|(vm, _), _| vms.contains_key(vm));
            kernel.shares.set_vms(vms);
            let gone: Vec<(VmId, Part)> = self.orders.meters.iter().map(|(key, _)| key).collect();
            // All again: a port may have another slot by now.
            gone.into_iter().for_each(|key| self.orders.meters.remove(key));
            self.share_link(now);
        }
    }

    // -- periods ------------------------------------------------------------------------------

    fn tick(&mut self, now: Time, out: &mut Outbox) {
        if now < self.step_at {
            return;
        }
        let (eyeq, line) = (&self.config.eyeq, self.config.line);
        let period = if self.kernel.is_some() { eyeq.period.max(LEAST_LOOK) } else { eyeq.period };
        let (received, sent) = std::mem::take(&mut self.is_sampled);
        if received {
            let elapsed = now.since(self.stepped_at);
            self.stepped_at = now;
            for (host, feedback) in self.receiver.step(eyeq, now, line, elapsed) {
                self.counters.written += 1;
                out.push(host, Message::Feedback(feedback));
            }
        }
        if sent {
            self.sender.step(eyeq, now, &mut self.counters, &mut self.orders.events);
        }
        // A late driver skips, it does not catch up.
        let missed = now.since(self.step_at).div_span(period);
        self.step_at += period * (missed + 1);
        self.forget_idle(now);
        self.share_link(now);
    }

    /// What each VM may receive, where the data plane meters.
    fn share_link(&mut self, now: Time) {
        let Some(kernel) = &mut self.kernel else { return };
        let (eyeq, line) = (&self.config.eyeq, self.config.line);
        kernel.shares.step(eyeq, now, line);
        for (vm, part, MeterShare { capacity_bps, floor_bps }) in kernel.shares.shares(eyeq) {
            let (capacity, least) = (Rate::from_bps(capacity_bps), Rate::from_bps(floor_bps));
            self.orders.meters.set((vm, part), Receive { capacity, least });
        }
    }
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod tests;
