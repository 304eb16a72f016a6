//! ElasticSwitch on one host: the composition of guarantee partitioning and rate allocation.
//!
//! Problem   Floors are per VM, limiters per pair, and the two ends of a pair live on two hosts.
//! Approach  The host of a pair's source limits it; the host of its destination offers a part of the
//!           receiver's hose and reports losses. Each decides alone; messages only improve.
//! Promises  Rates are levels in a table, never lost; messages go through a bounded outbox; the
//!           floors of one hose never exceed it; no input in any order panics.
//! Not here  How it is driven: see [`crate::host`].
//! Source    ElasticSwitch §3, §4, §5, §6.

mod config;
mod constants;
pub(super) mod explain;
mod hidden;
mod pairs;
mod paths;
mod periods;
mod population;
mod view;

pub use config::{ElasticSwitch, Promise};
pub use pairs::Blind;
pub use view::{Ends, PairView, ReceiveView, SendView};

use crate::host::{
    Counters, Direction, Event, Hose, HoseKey, Input, Observed, Orders, Outbox, Policy, Setting,
    Wanted, Why,
};
use crate::message::{Congestion, Echo, Message, Offer};
use crate::partition::{ReceiveHose, SendHose};
use pairs::{ReceivePair, SendPair};
use paths::Paths;
use serde::{Deserialize, Serialize};
use weir_units::{HoseId, HostId, PairId, Rate, SortedMap, SortedSet, Time, VmId};

/// The least rate of a pair with a queue of its own: HTB cannot well do with less. Pairs for which the
/// hose has no more stay in their VM's default queue.
const LEAST_PAIR_RATE: Rate = Rate::from_bps(64_000);
/// ElasticSwitch's machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    policy: Policy,
    es: ElasticSwitch,
    vms: SortedMap<VmId, Vm>,
    // In boxes: an insertion moves the rows that follow.
    send: SortedMap<PairId, Box<SendPair>>,
    receive: SortedMap<PairId, Box<ReceivePair>>,
    orders: Orders,
    /// Pairs whose floor may have changed since it was last written down.
    stale: SortedSet<PairId>,
    /// Hoses out that a new pair shares since: what it takes, the others no longer have.
    stale_hoses: SortedSet<(VmId, HoseKey)>,
    sample_at: Time,
    rate_at: Time,
    partition_at: Time,
    rate_stepped_at: Time,
    partitioned_at: Time,
    new_pairs_at: Option<Time>,
    /// A sending pair's counters were never read: what it sends counts from the first reading on.
    has_uncounted: bool,
    counters: Counters,
}

/// One VM of this host: the hoses its tenant bought, and the small one for everybody else.
#[derive(Debug, Serialize, Deserialize)]
struct Vm {
    tenant: HosePair,
    default: HosePair,
    further: SortedMap<HoseId, HosePair>,
}

#[derive(Debug, Serialize, Deserialize)]
struct HosePair {
    send: SendHose,
    receive: ReceiveHose,
}

impl HosePair {
    fn new(es: &ElasticSwitch, vm: VmId, hose: Hose, now: Time) -> Self {
        // A hose is divided less than a thousand times a second: serials of an earlier life are lower.
        let serial = (now.as_nanos() / 1_000_000) as u32;
        let config = es.partition.clone();
        Self {
            send: SendHose::new(config.clone(), hose.out.floor),
            receive: ReceiveHose::starting_at(config, vm, hose.in_.floor, serial),
        }
    }

    fn set(&mut self, hose: Hose) {
        self.send.set_hose(hose.out.floor);
        self.receive.set_hose(hose.in_.floor);
    }
}

impl Vm {
    fn new(es: &ElasticSwitch, id: VmId, policy: &Policy, hose: Hose, now: Time) -> Self {
        let pair = |hose| HosePair::new(es, id, hose, now);
        let further = policy.further_of(id).into_iter();
        Self {
            tenant: pair(hose),
            default: pair(Hose::both(es.default_floor)),
            further: further.map(|(number, hose)| (number, pair(hose))).collect(),
        }
    }

    /// The hose of this key. A pair has the key of none that is not there.
    fn hose(&mut self, key: HoseKey) -> &mut HosePair {
        match key {
            HoseKey::Tenant => &mut self.tenant,
            HoseKey::Default => &mut self.default,
            HoseKey::Further(number) => self.further.get_mut(&number).expect("it ties the VM"),
        }
    }

    /// The same as it was divided last.
    fn divided(&self, key: HoseKey) -> &HosePair {
        match key {
            HoseKey::Tenant => &self.tenant,
            HoseKey::Default => &self.default,
            HoseKey::Further(number) => self.further.get(&number).expect("it ties the VM"),
        }
    }

    /// All hoses, in the order of their keys.
    fn hoses(&mut self) -> impl Iterator<Item = (HoseKey, &mut HosePair)> {
        let first = [(HoseKey::Tenant, &mut self.tenant), (HoseKey::Default, &mut self.default)];
        let further = self.further.iter_mut();
        first.into_iter().chain(further.map(|(number, hose)| (HoseKey::Further(*number), hose)))
    }
}

impl Machine {
    /// A machine that starts at `now`, without pairs.
    pub(crate) fn new(policy: Policy, es: ElasticSwitch, now: Time) -> Self {
        let mut policy = policy;
        if !es.promise.has_hoses() {
            policy.further.clear();
            policy.ties.clear();
        }
        let vm = |(id, hose): (VmId, &Hose)| (id, Vm::new(&es, id, &policy, *hose, now));
        let vms = policy.vms().map(vm).collect();
        Self {
            policy,
            es,
            vms,
            send: SortedMap::new(),
            receive: SortedMap::new(),
            orders: Orders::default(),
            stale: SortedSet::new(),
            stale_hoses: SortedSet::new(),
            sample_at: now,
            rate_at: now,
            partition_at: now,
            rate_stepped_at: now,
            partitioned_at: now,
            new_pairs_at: None,
            has_uncounted: false,
            counters: Counters::default(),
        }
    }

    /// The only way in. Pure: same state, `now` and `input` give the same actions.
    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Seen(pair, Direction::Send) => self.seen_sending(now, pair, out),
            Input::Seen(pair, Direction::Receive) => self.seen_receiving(now, pair, out),
            Input::Adopt(pair, setting) => self.adopt(now, pair, setting),
            Input::Found(pair, _) => _ = self.insert_receiving(now, pair),
            Input::PeerRestarted(host) => self.tell_what_is_held(now, host, out),
            Input::Observed(observed) => {
                self.sample(now, observed, out);
                self.path_sample(now, observed, out);
            }
            Input::Message(from, message) => self.message(now, from, message, out),
            Input::Policy(policy) => self.repopulate(now, policy),
            Input::Tick => self.tick(now, out),
        }
    }

    /// When to call again with [`Input::Tick`], and why; `None` while there is no pair.
    pub(crate) fn next_deadline(&self) -> Option<(Time, Why)> {
        if self.send.is_empty() && self.receive.is_empty() {
            return None;
        }
        let mut next = (self.rate_at, Why::Rate).min((self.partition_at, Why::Partition));
        if self.looks_for_losses() || self.has_uncounted {
            next = next.min((self.sample_at, Why::Sample));
        }
        match self.new_pairs_at {
            Some(at) => Some(next.min((at, Why::NewPairs))),
            None => Some(next),
        }
    }

    /// The counters without which the [`Input::Tick`] at `now` would go by old ones. Reading them is most of
    /// an agent's work, and losses are looked for much more often than rates are computed.
    ///
    /// A pair whose first packet was not `Seen` shows when all are wanted: once per partitioning period.
    pub(crate) fn wants(&self, now: Time) -> Wanted {
        if self.partition_at <= now {
            return Wanted { send: true, receive: true };
        }
        let rate = self.rate_at <= now && !self.send.is_empty();
        Wanted {
            send: rate || self.has_uncounted,
            receive: self.sample_at <= now && self.looks_for_losses(),
        }
    }

    fn looks_for_losses(&self) -> bool {
        !self.receive.is_empty()
    }

    pub(crate) fn undivided(&mut self) -> &mut Orders {
        &mut self.orders
    }

    /// The rates that the data plane should have, after all that was handled up to `now`.
    ///
    /// Many offers or new pairs that come together cost one division of the hose, here, not one each.
    pub(crate) fn orders(&mut self, now: Time) -> &mut Orders {
        for (vm, key) in std::mem::take(&mut self.stale_hoses) {
            let all = PairId::new(vm, VmId(0))..=PairId::new(vm, VmId(u32::MAX));
            let sharing = self.send.range(all).filter(|(_, p)| p.hose == key);
            self.stale.extend(sharing.map(|(pair, _)| *pair));
        }
        for pair in std::mem::take(&mut self.stale) {
            self.apply(now, pair);
        }
        &mut self.orders
    }

    /// What the agent counted about itself.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    // -- pairs come ---------------------------------------------------------------------------

    fn seen_sending(&mut self, now: Time, pair: PairId, out: &mut Outbox) {
        if self.send.contains_key(&pair) {
            return;
        }
        let (Some(key), Some(vm)) = (self.policy.hose_of(pair), self.vms.get_mut(&pair.src)) else {
            self.counters.unknown_pairs += 1;
            return;
        };
        let hose = &mut vm.hose(key).send;
        if !has_room(hose) || !hose.see(now, pair.dst) {
            self.counters.refused_pairs += 1;
            return;
        }
        // The partitioned floor of a new pair is a good beginning for one that has none, too.
        let start = hose.floor(now, pair.dst);
        self.insert_sending(now, pair, SendPair::new(now, key, start));
        // A local destination is offered at once, as a remote one is by its own host.
        if self.policy.is_here(pair.dst) {
            self.seen_receiving(now, pair, out);
        }
    }

    fn insert_sending(&mut self, now: Time, pair: PairId, mut sending: SendPair) {
        let count = self.paths_of(pair);
        if count > 1 {
            let start = sending.rate.rate();
            sending.paths = Some(Paths::new(now, count, sending.hose, start));
        }
        self.start_clocks_if_first(now);
        self.has_uncounted = true;
        self.stale_hoses.insert((pair.src, sending.hose));
        self.send.insert(pair, Box::new(sending));
        self.orders.events.tell(Event::Began(pair, Direction::Send));
        self.new_pairs(now);
        self.apply(now, pair);
    }

    /// The levels of an earlier life go on: the floor until the receiver speaks, and what was
    /// borrowed as if it had been learned here.
    fn adopt(&mut self, now: Time, pair: PairId, setting: Setting) {
        let (Some(key), Some(vm)) = (self.policy.hose_of(pair), self.vms.get_mut(&pair.src)) else {
            return;
        };
        let hose = &mut vm.hose(key).send;
        if self.send.contains_key(&pair) || !has_room(hose) {
            return;
        }
        if hose.adopt(now, pair.dst, pair, setting.floor) {
            self.insert_sending(now, pair, SendPair::new(now, key, setting.ceiling));
        }
    }

    fn seen_receiving(&mut self, now: Time, pair: PairId, out: &mut Outbox) {
        if self.insert_receiving(now, pair) {
            self.new_pairs(now);
            self.offer(now, pair, out);
        }
    }

    /// Without an offer: that comes at once, or with the next partitioning. Says whether it is new.
    fn insert_receiving(&mut self, now: Time, pair: PairId) -> bool {
        if self.receive.contains_key(&pair) {
            return false;
        }
        let (Some(key), Some(vm)) = (self.policy.hose_of(pair), self.vms.get_mut(&pair.dst)) else {
            self.counters.unknown_pairs += 1;
            return false;
        };
        if !vm.hose(key).receive.see(now, pair.src) {
            self.counters.refused_pairs += 1;
            return false;
        }
        self.start_clocks_if_first(now);
        self.receive.insert(pair, Box::new(ReceivePair::new(key)));
        self.orders.events.tell(Event::Began(pair, Direction::Receive));
        true
    }

    /// Tells a host that has a new life what was taken from its former one and still holds.
    fn tell_what_is_held(&mut self, now: Time, host: HostId, out: &mut Outbox) {
        let at = |vm: VmId| self.policy.directory.get(&vm).map(|l| l.host);
        let mut held = Vec::new();
        for (pair, p) in &self.send {
            let Some(vm) = self.vms.get_mut(&pair.src) else { continue };
            if at(pair.dst) == Some(host) {
                held.extend(vm.hose(p.hose).send.held(now, pair.dst));
            }
        }
        for echo in held {
            self.post(now, echo.pair.dst, Message::Echo(echo), out);
        }
    }

    /// Many pairs that start together share one new division of their hoses.
    fn new_pairs(&mut self, now: Time) {
        if self.new_pairs_at.is_none() {
            self.new_pairs_at = Some(now + self.es.new_pair_delay);
        }
    }

    /// The first pair after a silence: the clocks of the periods start with it.
    fn start_clocks_if_first(&mut self, now: Time) {
        if !self.send.is_empty() || !self.receive.is_empty() {
            return;
        }
        let es = &self.es;
        let (sample, rate, partition) = (es.sample_period, es.rate.period, es.partition_period);
        self.sample_at = now + sample;
        self.rate_at = now + rate;
        self.partition_at = now + partition;
        self.rate_stepped_at = now;
        self.partitioned_at = now;
    }

    // -- counters -----------------------------------------------------------------------------

    fn sample(&mut self, now: Time, sample: &Observed, out: &mut Outbox) {
        self.has_uncounted &= sample.send.is_empty();
        for (pair, count) in &sample.send {
            if !self.send.contains_key(pair) {
                self.seen_sending(now, *pair, out);
            }
            if let Some(p) = self.send.get_mut(pair) {
                p.count(now, *count);
            }
        }
        let gap = self.es.feedback_gap;
        for (pair, count) in &sample.receive {
            if !self.receive.contains_key(pair) {
                self.seen_receiving(now, *pair, out);
            }
            let Some(p) = self.receive.get_mut(pair) else { continue };
            let had_marks = p.marked_total > 0;
            p.count(*count);
            let has_first = !had_marks && p.marked_total > 0;
            if let Some(report) = p.report(now, gap) {
                let congestion = Congestion { pair: *pair, ..report };
                self.post(now, pair.src, Message::Congestion(congestion), out);
            }
            if has_first {
                self.tell_offer(*pair);
            }
        }
    }

    // -- messages -----------------------------------------------------------------------------

    /// Sends to the host of `vm`; what is for this host is handled without a detour.
    fn post(&mut self, now: Time, vm: VmId, message: Message, out: &mut Outbox) {
        let Some(location) = self.policy.directory.get(&vm) else { return };
        if location.host == self.policy.host {
            self.message(now, location.host, message, out);
        } else {
            out.push(location.host, message);
        }
    }

    fn message(&mut self, now: Time, from: HostId, message: Message, out: &mut Outbox) {
        let (here, there) = match message {
            Message::Offer(Offer { pair, .. })
            | Message::Congestion(Congestion { pair, .. })
            | Message::PathCongestion(_, Congestion { pair, .. }) => (pair.src, pair.dst),
            Message::Echo(Echo { pair, .. }) => (pair.dst, pair.src),
            // Another mechanism's.
            Message::Feedback(_) | Message::Level(_) => {
                self.counters.misdirected += 1;
                return;
            }
        };
        let is_theirs = self.policy.directory.get(&there).is_some_and(|l| l.host == from);
        if !is_theirs || !self.policy.is_here(here) {
            self.counters.misdirected += 1;
            return;
        }
        let known = match message {
            Message::Offer(offer) => self.offered(now, offer, out),
            Message::Echo(echo) => self.echoed(now, echo),
            Message::Congestion(congestion) => self.congested(now, congestion),
            Message::PathCongestion(path, report) => self.path_congested(now, path, report),
            Message::Feedback(_) | Message::Level(_) => None,
        };
        match known {
            Some(()) => self.counters.messages += 1,
            None => self.counters.strayed += 1,
        }
    }

    /// Also for a pair that is over here: the answer "holds nothing" lets the receiver give its part
    /// to others at once.
    fn offered(&mut self, now: Time, offer: Offer, out: &mut Outbox) -> Option<()> {
        let pair = offer.pair;
        let key = self.policy.hose_of(pair)?;
        let hose = &mut self.vms.get_mut(&pair.src)?.hose(key).send;
        let echo = hose.offer(now, pair.dst, offer);
        if let Some(echo) = echo {
            self.post(now, pair.dst, Message::Echo(echo), out);
        }
        self.send.contains_key(&pair).then(|| _ = self.stale.insert(pair))
    }

    fn echoed(&mut self, now: Time, echo: Echo) -> Option<()> {
        let p = self.receive.get_mut(&echo.pair)?;
        p.echoed(echo);
        let key = p.hose;
        let hose = &mut self.vms.get_mut(&echo.pair.dst)?.hose(key).receive;
        if hose.learn(now, echo.pair.src, echo) {
            return Some(());
        }
        if hose.echo(now, echo.pair.src, echo) {
            // Something was freed that others wait for.
            self.new_pairs(now);
        }
        Some(())
    }

    fn congested(&mut self, now: Time, congestion: Congestion) -> Option<()> {
        self.send.get_mut(&congestion.pair)?.congested(now, &self.es.rate, congestion);
        Some(())
    }

    /// Tells the source's host the receiver's part of a pair's floor.
    fn offer(&mut self, now: Time, pair: PairId, out: &mut Outbox) {
        let Some(p) = self.receive.get_mut(&pair) else { return };
        let Some(vm) = self.vms.get_mut(&pair.dst) else { return };
        let offer = vm.hose(p.hose).receive.offer(now, pair.src);
        p.offered = Some(offer);
        self.tell_offer(pair);
        self.post(now, pair.src, Message::Offer(offer), out);
    }

    /// Where marks are left to guests, one whose pair gets no more than its offer need not see them.
    fn tell_offer(&mut self, pair: PairId) {
        if self.es.rate.signal.needs_marks() || !self.es.promise.has_hoses() {
            return;
        }
        let shown = self.receive.get(&pair).filter(|p| p.marked_total > 0);
        if let Some(offer) = shown.and_then(|p| p.offered) {
            self.orders.offers.set(pair, offer.floor);
        }
    }

    fn forget(&mut self, pair: PairId, direction: Direction) {
        match direction {
            Direction::Send => drop(self.send.remove(&pair)),
            Direction::Receive => drop(self.receive.remove(&pair)),
        }
        self.orders.forget(pair, direction);
    }
}

/// Whether one more pair would still get the least rate that a queue can have: a VM that talks to
/// thousands must not get thousands of least rates, which together are more than its floor.
fn has_room(hose: &SendHose) -> bool {
    hose.is_empty() || hose.hose().split(hose.len() + 1) >= LEAST_PAIR_RATE
}

#[cfg(test)]
impl Machine {
    /// With the law of `policy`.
    fn of(policy: Policy, now: Time) -> Self {
        let crate::mechanism::Law::ElasticSwitch(es) = policy.law.clone() else {
            panic!("another law")
        };
        Self::new(policy, *es, now)
    }
}

#[cfg(test)]
mod population_tests;
#[cfg(test)]
mod signal_tests;
#[cfg(test)]
mod tests;
