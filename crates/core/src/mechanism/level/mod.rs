//! Level: floors, and the whole link within milliseconds.
//!
//! Problem   ElasticSwitch's receivers learn of congestion by losses, and its senders probe for what is
//!           spare in tens of seconds. EyeQ's receivers are fast and see their own link only.
//! Approach  Max-min shares above floors are F·(1 + λ), with one λ per bottleneck. So a receiver tells
//!           each sending *host* one number, the level 1 + λ, and finds it by the delay of timed
//!           packets ([`window`], [`step`]). Floors are ElasticSwitch's guarantee partitioning, every
//!           10 ms. What a pair may send is its floor times the least of the receiver's level and of
//!           what the pair has grown to ([`sending`]).
//! Promises  A ceiling is never below its floor: no message, sample or clock takes from a floor but
//!           partitioning's own offers. What is borrowed ends with the receiver's word.
//! Not here  The meter of the receiving host's own link, a window per path of several, two queues, thin
//!           pairs, the wire's encoding: see docs/algorithms/level.md, "What is missing".
//! Source    docs/algorithms/level.md.

mod law;
mod receiving;
mod sending;
mod step;
mod value;
mod view;
mod window;

pub use law::{Draft, LevelLaw};
pub use receiving::{Path, share};
pub use sending::{Sending, Toward};
pub use step::{Seen, Step};
pub use value::{Level, UNIT};
pub use view::PairView;
pub use window::{Shown, Windows};

use super::elasticswitch;
use crate::host::{
    Counters, Direction, Input, Observed, Orders, Outbox, Policy, Setting, Timed, Wanted, Why,
};
use crate::message::{LevelWord, Message};
use crate::meter::Meter;
use serde::{Deserialize, Serialize};
use weir_units::{HostId, PairId, Rate, SortedMap, Span, Time, VmId};

/// A host to or from which nothing went for so long is forgotten.
const FORGET: Span = Span::from_secs(10);
/// Other hosts that are known at most, in each direction. Further ones are lent nothing.
const MOST_HOSTS: usize = 4096;

/// Level's machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    law: LevelLaw,
    /// The floors. It also has the policy.
    floors: elasticswitch::Machine,
    host: HostId,
    line: Rate,
    homes: SortedMap<VmId, HostId>,
    toward: SortedMap<HostId, Toward>,
    send: SortedMap<PairId, Sending>,
    paths: SortedMap<HostId, Path>,
    receive: SortedMap<PairId, Received>,
    /// The least delayed packets since the last step.
    timed: SortedMap<HostId, Timed>,
    orders: Orders,
    step_at: Time,
    stepped_at: Time,
    /// When paths with an old base empty their queues next: together, for they share this host's link.
    beat_at: Time,
    counters: Counters,
}

/// Counters of a pair that arrives.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
struct Received {
    segments: Meter,
    marked: Meter,
    lost: Meter,
}

impl Machine {
    /// A machine that starts at `now`, without pairs.
    pub(crate) fn new(policy: Policy, law: LevelLaw, now: Time) -> Self {
        let homes = homes(&policy);
        let (host, line) = (policy.host, policy.line);
        // Hosts do not begin together; the simulator's would.
        let spread = u64::from(host.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let beat_at = now + Span::from_nanos(spread % law.base_lives.as_nanos().max(1));
        let floors = elasticswitch::Machine::new(policy, law.partition.clone(), now);
        Self {
            law,
            floors,
            host,
            line,
            homes,
            toward: SortedMap::new(),
            send: SortedMap::new(),
            paths: SortedMap::new(),
            receive: SortedMap::new(),
            timed: SortedMap::new(),
            orders: Orders::default(),
            step_at: now,
            stepped_at: now,
            beat_at,
            counters: Counters::default(),
        }
    }

    /// The only way in. Pure: same state, `now` and `input` give the same actions.
    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Message(from, Message::Level(word)) => return self.hear(now, from, word),
            Input::Observed(observed) => self.observe(now, observed),
            Input::Policy(policy) => self.homes = homes(policy),
            Input::Tick if self.step_at <= now => self.step(now, out),
            _ => {}
        }
        // Its receivers report losses; here these are the windows' affair.
        let mut said = Outbox::default();
        self.floors.handle(now, input, &mut said);
        for (to, message) in said.take() {
            if !matches!(message, Message::Congestion(_) | Message::PathCongestion(..)) {
                out.push(to, message);
            }
        }
    }

    /// When to call again with [`Input::Tick`], and why; `None` while there is no pair.
    pub(crate) fn next_deadline(&self) -> Option<(Time, Why)> {
        let next = self.floors.next_deadline()?;
        Some(next.min((self.step_at, Why::Level)))
    }

    /// The counters without which the [`Input::Tick`] at `now` would go by old ones.
    pub(crate) fn wants(&self, now: Time) -> Wanted {
        if self.step_at <= now { Wanted::ALL } else { self.floors.wants(now) }
    }

    pub(crate) fn undivided(&mut self) -> &mut Orders {
        &mut self.orders
    }

    /// The rates that the data plane should have, after all that was handled up to `now`.
    pub(crate) fn orders(&mut self, now: Time) -> &mut Orders {
        let floors = self.floors.orders(now);
        let (forgotten, events) = (floors.pairs.take_forgotten(), floors.events.take());
        let changed = floors.pairs.take_changed();
        for (pair, direction) in forgotten {
            match direction {
                Direction::Send => drop(self.send.remove(&pair)),
                Direction::Receive => drop(self.receive.remove(&pair)),
            }
            self.orders.pairs.forget(pair, direction);
        }
        events.into_iter().for_each(|event| self.orders.events.tell(event));
        for (pair, setting) in changed {
            let sending = self.send.entry(pair).or_insert_with(|| Sending::new(now));
            sending.floor = setting.floor;
            let setting = self.setting(pair);
            self.orders.pairs.set(pair, setting);
        }
        &mut self.orders
    }

    pub(crate) fn counters(&self) -> Counters {
        let floors = self.floors.counters();
        let Counters { messages, misdirected, .. } = self.counters;
        Counters {
            messages: floors.messages + messages,
            misdirected: floors.misdirected + misdirected,
            ..floors
        }
    }

    /// The machine that divides floors.
    pub const fn partitioning(&self) -> &elasticswitch::Machine {
        &self.floors
    }

    /// How many pairs it knows: of those whose source is here, and of those whose destination is.
    pub fn known(&self) -> (usize, usize) {
        self.floors.known()
    }

    // -- counters and messages ----------------------------------------------------------------

    fn observe(&mut self, now: Time, observed: &Observed) {
        for (pair, count) in &observed.send {
            if let Some(sending) = self.send.get_mut(pair) {
                sending.count(now, *count);
            }
        }
        for (pair, count) in &observed.receive {
            let Some(&from) = self.homes.get(&pair.src).filter(|from| **from != self.host) else {
                continue;
            };
            let received = self.receive.entry(*pair).or_default();
            let segments = received.segments.read(count.segments);
            let (marked, lost) =
                (received.marked.read(count.marked), received.lost.read(count.lost));
            let is_known = self.paths.contains_key(&from);
            if is_known || self.paths.len() < MOST_HOSTS {
                let path = self.paths.entry(from).or_insert_with(|| Path::new(now));
                path.count(now, segments, marked, lost);
            }
        }
        // Counters may be read more often than the law steps.
        for (from, timed) in &observed.timed {
            let least = self.timed.entry(*from).or_insert(*timed);
            if timed.is_before(least) {
                *least = *timed;
            }
        }
    }

    fn hear(&mut self, now: Time, from: HostId, word: LevelWord) {
        let known = match word {
            LevelWord::May(level) => self.toward.get_mut(&from).map(|t| t.hear(now, level)),
            LevelWord::Uses(level) => self.paths.get_mut(&from).map(|p| p.uses(level)),
        };
        match known {
            Some(()) => self.counters.messages += 1,
            None => self.counters.misdirected += 1,
        }
    }

    // -- the period ---------------------------------------------------------------------------

    fn step(&mut self, now: Time, out: &mut Outbox) {
        let span = now.since(self.stepped_at);
        let missed = now.since(self.step_at).div_span(self.law.period);
        self.step_at += self.law.period * (missed + 1);
        self.stepped_at = now;
        self.step_receiving(now, out);
        self.step_sending(now, span, out);
    }

    fn step_receiving(&mut self, now: Time, out: &mut Outbox) {
        let law = &self.law;
        let is_beat = now >= self.beat_at;
        let mut begins = is_beat;
        let mut timed = std::mem::take(&mut self.timed);
        let mut look = |(host, path): (&HostId, &mut Path)| {
            timed.remove(host).map(|timed| path.look(law, now, timed))
        };
        let shown: Vec<Option<Shown>> = self.paths.iter_mut().map(&mut look).collect();
        let queues = shown.iter().flatten().map(|shown| shown.queue);
        let common = queues.min().unwrap_or_default();
        for (path, shown) in self.paths.values_mut().zip(&shown) {
            let was_dipping = path.is_dipping();
            path.step(law, now, *shown, common, is_beat);
            begins |= path.is_dipping() && !was_dipping;
        }
        share(law, self.paths.values_mut().zip(shown));
        for (host, path) in &mut self.paths {
            if let Some(level) = path.tell(law, now) {
                out.push(*host, Message::Level(LevelWord::May(level)));
            }
        }
        if begins {
            self.beat_at = now + law.base_lives;
        }
        self.paths.retain(|_, path| path.idle_for(now) < FORGET);
    }

    fn step_sending(&mut self, now: Time, span: Span, out: &mut Outbox) {
        let law = &self.law;
        self.toward.values_mut().for_each(|toward| toward.step(law, now));
        for (pair, sending) in &mut self.send {
            let Some(&to) = self.homes.get(&pair.dst).filter(|to| **to != self.host) else {
                continue;
            };
            let is_known = self.toward.contains_key(&to);
            if !is_known && self.toward.len() >= MOST_HOSTS {
                continue;
            }
            let toward = self.toward.entry(to).or_insert_with(|| Toward::new(now));
            let uses = sending.step(law, (now, span), toward.level(), self.line);
            toward.used(now, sending, uses);
        }
        for (host, toward) in &mut self.toward {
            if let Some(level) = toward.tell(law, now) {
                out.push(*host, Message::Level(LevelWord::Uses(level)));
            }
        }
        self.toward.retain(|_, toward| toward.idle_for(now) < FORGET);
        let pairs: Vec<PairId> = self.send.keys().copied().collect();
        for pair in pairs {
            let setting = self.setting(pair);
            if setting.ceiling < self.line {
                self.orders.pairs.grow(pair, setting);
            } else {
                self.orders.pairs.set(pair, setting);
            }
        }
    }

    /// What a pair may send now. One within the host crosses no link.
    fn setting(&self, pair: PairId) -> Setting {
        let Some(sending) = self.send.get(&pair) else { return Setting::default() };
        let floor = sending.floor;
        match self.homes.get(&pair.dst) {
            Some(to) if *to == self.host => Setting { floor, ceiling: self.line.max(floor) },
            Some(to) => {
                let level = self.toward.get(to).map_or(Level::ONE, Toward::level);
                sending.setting(&self.law, level, self.line)
            }
            None => Setting { floor, ceiling: floor },
        }
    }
}

fn homes(policy: &Policy) -> SortedMap<VmId, HostId> {
    policy.directory.iter().map(|(vm, at)| (*vm, at.host)).collect()
}

#[cfg(test)]
mod tests;
