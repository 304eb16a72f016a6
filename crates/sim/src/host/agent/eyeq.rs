//! EyeQ's agent.
//!
//! Problem   In the kernel the law is clocked by packets, and counters begin with a pair's first one.
//! Approach  The machine of `weir-core`, called on its own deadlines. A pair that is seen is read at once, with
//!           the counters it had before its first packet: none. What a pair has of the uplink is what it has on a
//!           real host ([`Division`]). What is decided is in force at once, or later by what [`weir_core::eyeq::Backend`] says of whoever sets the limiters.
//! Not here  Super-packets: packets are single frames here, and a limiter lets them go one by one.
//! Source    EyeQ §3 and §4; docs/algorithms/eyeq.md.

use super::{Agent, Counted, Lists, Orders};
use crate::host::classes::Share;
use crate::host::letters::Words;
use crate::host::meter::Meter;
use std::collections::{BTreeMap, VecDeque};
use weir_core::eyeq::{Class, Division, Feedback, Host, HostConfig, Input, Sample, Sent, VmBounds};
use weir_core::host::{Direction, Outbox, ReceiveCount, Setting};
use weir_units::{HostId, PairId, Rate, Span, Time, VmId};

/// The class of packets of VMs with a floor, and of messages; and of those without.
const FIRST: u8 = 0;
const LAST: u8 = 1;

#[derive(Debug)]
pub(super) struct Eyeq {
    host: Host,
    config: HostConfig,
    division: Division,
    /// What each pair had sent when it was counted last.
    counted: BTreeMap<PairId, u64>,
    /// Pairs that stopped: they give their part of the floor back.
    idle: Vec<PairId>,
    /// VMs' shares are to be said.
    is_new: bool,
    outbox: Outbox<Feedback>,
    sample: Sample,
    /// How long after it was decided a level is in force, and what waits for that.
    late: Span,
    decided: VecDeque<(Time, Orders)>,
}

impl Eyeq {
    pub(super) fn new(config: &HostConfig, now: Time) -> Self {
        let host = Host::new(config.clone(), now);
        Self {
            host: host.expect("what is refused is not played"),
            config: config.clone(),
            division: Division::default(),
            counted: BTreeMap::new(),
            idle: Vec::new(),
            is_new: true,
            outbox: Outbox::default(),
            sample: Sample::default(),
            late: config.eyeq.loop_delay.actuation,
            decided: VecDeque::new(),
        }
    }

    /// When the machine wants its counters.
    fn step_at(&self) -> Option<Time> {
        self.host.next_deadline().map(|(at, _)| at)
    }

    fn changed(&mut self) -> Orders {
        let Self { host, division, config, .. } = self;
        for (pair, _) in host.limits().take_changed() {
            division.limit(pair);
        }
        let bounds = |vm: VmId| config.vms.get(&vm).map(|bounds| bounds.out);
        let promised = |vm| bounds(vm).map_or(Rate::ZERO, |bounds| bounds.floor);
        let limits = host.limits();
        let limit = |pair| limits.get(pair).map(|limit| limit.rate);
        let nothing = Setting { floor: Rate::ZERO, ceiling: config.line };
        let mut settings: Vec<_> = self.idle.drain(..).map(|pair| (pair, nothing)).collect();
        settings.extend(division.take_settings(config.line, promised, limit));
        let settings = settings.into_iter().map(|(id, setting)| (id, vec![setting])).collect();
        let is_new = std::mem::take(&mut self.is_new);
        let share = |(vm, bounds): (&VmId, &VmBounds)| {
            let class = if bounds.out.class() == Class::BestEffort { LAST } else { FIRST };
            let cap = Some(bounds.out.most).filter(|most| *most < Rate::MAX);
            (*vm, Share { floor: bounds.out.floor, cap }, class)
        };
        let shares = self.config.vms.iter().filter(|_| is_new).map(share).collect();
        Orders { settings, shares, forgotten: Vec::new() }
    }

    /// Pairs that sent since the last time have a part of their VM's floor, and idle ones none.
    fn divide(&mut self, now: Time) {
        for (pair, sent) in &self.sample.send {
            let before = self.counted.insert(*pair, sent.octets).unwrap_or_default();
            if sent.octets != before || sent.waiting > 0 {
                self.division.see(now, *pair);
            }
        }
        self.idle.extend(self.division.forget_idle(now, self.config.eyeq.limiter_idle));
    }
}

impl Agent for Eyeq {
    fn see(&mut self, now: Time, pair: PairId, direction: Direction) {
        let mut first = Sample::default();
        match direction {
            Direction::Send => {
                self.division.see(now, pair);
                first.send.push((pair, Sent::default()));
            }
            Direction::Receive => first.receive.push((pair, ReceiveCount::default())),
        }
        self.host.handle(now, Input::Sample(&first), &mut self.outbox);
    }

    fn hear(&mut self, now: Time, from: HostId, words: &Words) {
        let Words::Feedback(feedback) = words else { return };
        self.host.handle(now, Input::Feedback(from, *feedback), &mut self.outbox);
    }

    fn count(&mut self, now: Time, counted: &Counted<'_>) {
        if self.step_at().is_none_or(|at| at > now) {
            return;
        }
        let Self { host, sample, outbox, .. } = self;
        sample.send.clear();
        sample.send.extend(counted.sending().map(|pair| {
            let waiting = pair.sending.leaf.map_or(0, |leaf| counted.htb.waiting(leaf));
            (pair.id, Sent { octets: pair.sending.numbered, waiting })
        }));
        sample.receive.clear();
        sample.receive.extend(counted.receiving().map(|pair| {
            let Meter { octets, segments, marked, .. } = pair.meter;
            let lost = pair.meter.lost(counted.now, counted.window);
            (pair.id, ReceiveCount { octets, segments, numbered: None, lost, marked })
        }));
        host.handle(now, Input::Sample(sample), outbox);
        self.divide(now);
    }

    fn tick(&mut self, now: Time) {
        self.host.handle(now, Input::Tick, &mut self.outbox);
    }

    fn deadline(&self) -> Option<Time> {
        let decided = self.decided.front().map(|(at, _)| *at);
        self.step_at().into_iter().chain(decided).min()
    }

    fn take_up(&mut self, now: Time, lists: &Lists) {
        if let Lists::EyeQ(config) = lists {
            self.host.handle(now, Input::Population(config), &mut self.outbox);
            self.config = config.clone();
            config.vms.keys().for_each(|vm| self.division.redivide(*vm));
            self.is_new = true;
        }
    }

    fn orders(&mut self, now: Time) -> Orders {
        let changed = self.changed();
        if self.late == Span::ZERO {
            return changed;
        }
        if !changed.settings.is_empty() || !changed.shares.is_empty() {
            self.decided.push_back((now + self.late, changed));
        }
        let mut due = Orders::default();
        while self.decided.front().is_some_and(|(at, _)| *at <= now) {
            let (_, orders) = self.decided.pop_front().expect("there is a front");
            due.settings.extend(orders.settings);
            due.shares.extend(orders.shares);
        }
        due
    }

    fn say(&mut self) -> Vec<(HostId, Words)> {
        let words = |(to, feedback)| (to, Words::Feedback(feedback));
        self.outbox.take().into_iter().map(words).collect()
    }

    /// No limiter until a receiver speaks: the queue is there, and as fast as the line.
    fn at_first(&self) -> Option<Setting> {
        Some(Setting { floor: Rate::ZERO, ceiling: self.config.line })
    }

    // No agent dies here (see `scenario::eyeq`), so that none is adopted from.
    fn adopt(&mut self, _: Time, _: PairId, _: Setting) {}
    fn find(&mut self, _: Time, _: PairId) {}
    fn peer_restarted(&mut self, _: Time, _: HostId) {}

    fn losses(&mut self, _: Time) -> Option<u64> {
        None
    }

    fn listed(&mut self, _: Time) -> u64 {
        (self.sample.send.len() + self.sample.receive.len()) as u64
    }

    fn unsent(&self) -> u64 {
        self.outbox.dropped
    }
}
