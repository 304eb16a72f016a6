//! EyeQ in virtual time: hosts around one switch, real machines, links without packets.
//!
//! Problem   Is the law's time within which floors hold, with meters that read once a period, feedback per
//!           10 kB, messages and limiters that are late, that of the formula?
//! Approach  Octets are real numbers. Each quarter of a period, or of a millisecond, every VM sends what its limiters and its
//!           part of the uplink allow, which VMs share by floors, as a shaper shares it; a switch port serves its line rate, those with a floor first, and
//!           loses what its buffer cannot hold. Each host reads its counters and steps in its own phase.
//! Promises  Same world, same seed, same result.
//!           Limiters take up a rate for what waits, or give departures that are kept ([`World::departs_within`]).
//! Not here  TCP's own reaction, bursts within a quarter of a period, congestion in the core.
//! Source    EyeQ Fig. 1, Fig. 6, §3.4.

use crate::hosts::Hosts;
use std::collections::{BTreeMap, VecDeque};
use weir_core::eyeq::{EyeQ, VmBounds};
use weir_core::host::{
    Call, Class, Direction, Given, Location, Observed, Policy, ReceiveCount, SendCount, Setting,
    Work,
};
use weir_core::mechanism::Law;
use weir_units::{HostId, PairId, Rate, Span, TenantId, Time, VmId};

/// Octets of a segment on layer 2 without FCS.
const SEGMENT: f64 = 1514.0;
/// Rates are recorded over this.
pub const RECORDED: Span = Span::from_millis(1);

/// A VM: its host, its tenant, its bounds.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Which host, from 0.
    pub host: u32,
    /// Whose.
    pub tenant: u32,
    /// Minima and maxima.
    pub bounds: VmBounds,
}

/// One VM that sends to another.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The sending VM, by its place in [`World::vms`].
    pub src: u32,
    /// The receiving VM.
    pub dst: u32,
    /// What it would send; `None` = without bound.
    pub demand: Option<Rate>,
    /// When it sends.
    pub during: std::ops::Range<Span>,
}

/// Hosts around a switch.
#[derive(Clone, Debug)]
pub struct World {
    /// The line rate of every host, each way.
    pub line: Rate,
    /// The buffer of a switch port, octets, for each class.
    pub buffer: u64,
    /// The constants.
    pub eyeq: EyeQ,
    /// All VMs.
    pub vms: Vec<Vm>,
    /// All flows, one per pair of VMs.
    pub flows: Vec<Flow>,
    /// New bounds of all VMs, and from when on.
    pub change: Option<(Span, Vec<VmBounds>)>,
    /// How long a message takes.
    pub control_delay: Span,
    /// Share of messages that never arrive.
    pub control_loss: f64,
    /// How long after it was decided a rate is in force.
    pub actuation: Span,
    /// What waits keeps the departure that it was given, and none is further ahead. `None`: it leaves by the rate
    /// that is in force when it leaves. For hosts with one VM each: what their links cut, too, is lost.
    pub departs_within: Option<Span>,
    /// Phases of the hosts and losses of messages.
    pub seed: u64,
}

/// What a world came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Delivered rate of each flow in each [`RECORDED`], bit/s.
    pub series: Vec<Vec<f64>>,
    /// The most octets that waited in each host's port of the switch over each [`RECORDED`].
    pub queues: Vec<Vec<f64>>,
    /// Octets lost of each flow.
    pub lost: Vec<f64>,
    /// Feedback messages.
    pub messages: u64,
}

impl Outcome {
    /// Mean rate of a flow from `from` to `to`, bit/s.
    pub fn mean(&self, flow: usize, from: Span, to: Span) -> f64 {
        let at = |span: Span| span.div_span(RECORDED) as usize;
        let part = &self.series[flow][at(from)..at(to)];
        part.iter().sum::<f64>() / part.len() as f64
    }

    /// The rates of several flows together, per [`RECORDED`].
    pub fn sum(&self, flows: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
        let steps = self.series.first().map_or(0, Vec::len);
        (0..steps).map(|i| flows.clone().map(|f| self.series[f][i]).sum()).collect()
    }
}

/// How long after `from` a recorded rate is within `slack` of `want`, and stays there; `None`: not by the end.
pub fn settled_after(rates: &[f64], from: Span, want: f64, slack: f64) -> Option<Span> {
    let from = from.div_span(RECORDED) as usize;
    let off = |rate: &f64| (rate - want).abs() > slack * want;
    let last = rates[from..].iter().rposition(off).map_or(0, |last| last + 1);
    (from + last < rates.len()).then(|| RECORDED * last as u64)
}

impl World {
    /// 10 Gb/s, 128 kB per port, messages after 50 µs, limiters at once.
    pub fn new(eyeq: EyeQ, vms: Vec<Vm>, flows: Vec<Flow>) -> Self {
        Self {
            line: Rate::from_mbps(10_000),
            buffer: 128_000,
            eyeq,
            vms,
            flows,
            change: None,
            control_delay: Span::from_micros(50),
            control_loss: 0.0,
            actuation: Span::ZERO,
            departs_within: None,
            seed: 1,
        }
    }

    /// Plays the world.
    ///
    /// # Panics
    /// The configuration is refused.
    pub fn play(&self, duration: Span) -> Outcome {
        Running::new(self).play(duration)
    }

    fn policy(&self, host: u32, bounds: &[VmBounds]) -> Policy {
        let ids = || (0..).map(VmId).zip(&self.vms);
        let place = |vm: &Vm| Location { tenant: TenantId(vm.tenant), host: HostId(vm.host) };
        let law = Law::EyeQ(Box::new(self.eyeq.clone()));
        let mut policy = Policy::new(HostId(host), self.line, law)
            .with_directory(ids().map(|(id, vm)| (id, place(vm))));
        for ((id, _), bounds) in ids().zip(bounds).filter(|((_, vm), _)| vm.host == host) {
            policy.hoses.insert(id, bounds.hose());
        }
        policy.can.limiter = true;
        policy
    }
}

/// A flow while the world runs. All in octets.
#[derive(Clone, Debug, Default)]
struct FlowState {
    has_begun: bool,
    waiting: f64,
    sent: f64,
    queued: f64,
    delivered: f64,
    lost: f64,
    /// What its limiter lets through, bit/s.
    limit: Option<f64>,
    /// What has its departure already, in order: for so many seconds, at so many bit/s.
    departing: VecDeque<(f64, f64)>,
}

impl FlowState {
    /// Gives departures to what is `offered`, up to `within` seconds ahead and `queue` octets; what leaves in the
    /// next `dt` seconds.
    fn depart(&mut self, dt: f64, within: f64, queue: f64, offered: f64, bps: f64) -> f64 {
        let ahead: f64 = self.departing.iter().map(|(seconds, _)| seconds).sum();
        let booked: f64 = self.departing.iter().map(|(seconds, bps)| seconds * bps / 8.0).sum();
        // What leaves meanwhile makes room.
        let room = (within + dt - ahead).max(0.0) * bps / 8.0;
        let taken = offered.min(room).min((queue + bps * dt / 8.0 - booked).max(0.0));
        if taken > 0.0 {
            self.departing.push_back((taken * 8.0 / bps, bps));
        }
        let (mut left, mut sent) = (dt, 0.0);
        while let Some((seconds, bps)) = self.departing.front_mut() {
            let leaves = seconds.min(left);
            sent += leaves * *bps / 8.0;
            *seconds -= leaves;
            left -= leaves;
            if *seconds > 0.0 {
                break;
            }
            self.departing.pop_front();
        }
        self.waiting = (booked + taken - sent).max(0.0);
        sent
    }
}

/// What a pair's limiter lets through, bit/s, if it has one.
type Decided = (PairId, Option<f64>);

struct Running<'a> {
    world: &'a World,
    step: Span,
    hosts: Hosts,
    pairs: Vec<PairId>,
    flows: Vec<FlowState>,
    /// On its way into force.
    pending: BTreeMap<(Time, u64), Decided>,
    /// Grows with whatever is on its way into force, so that all has an order.
    sequence: u64,
}

impl<'a> Running<'a> {
    fn new(world: &'a World) -> Self {
        let count = world.vms.iter().map(|vm| vm.host + 1).max().unwrap_or(0);
        let bounds: Vec<VmBounds> = world.vms.iter().map(|vm| vm.bounds.clone()).collect();
        let policies = (0..count).map(|h| world.policy(h, &bounds));
        let letters = (world.control_delay, world.control_loss);
        let hosts = Hosts::new(policies, (world.seed, world.eyeq.period), letters);
        let period = world.eyeq.period.as_nanos();
        let pair = |f: &Flow| PairId::new(VmId(f.src), VmId(f.dst));
        Self {
            world,
            step: Span::from_nanos((period / 4).min(RECORDED.as_nanos() / 4)),
            hosts,
            pairs: world.flows.iter().map(pair).collect(),
            flows: vec![FlowState::default(); world.flows.len()],
            pending: BTreeMap::new(),
            sequence: 0,
        }
    }

    fn play(mut self, duration: Span) -> Outcome {
        let n = self.flows.len();
        let mut series: Vec<Vec<f64>> = vec![Vec::new(); n];
        let mut queues: Vec<Vec<f64>> = vec![Vec::new(); self.hosts.count()];
        let mut peaks = vec![0.0f64; self.hosts.count()];
        let mut before = vec![0.0; n];
        let mut recorded_at = Time::ZERO;
        let mut change = self.world.change.clone();
        for i in 1..=duration.div_span(self.step) {
            let now = Time::ZERO + self.step * i;
            if let Some((_, bounds)) = change.take_if(|(at, _)| now >= Time::ZERO + *at) {
                self.change(now, &bounds);
            }
            self.put_in_force(now);
            self.begin(now);
            self.send(now);
            self.switch(&mut peaks);
            self.deliver_messages(now);
            self.run_hosts(now);
            if now.since(recorded_at) >= RECORDED {
                let span = now.since(recorded_at).as_secs_f64();
                recorded_at = now;
                for (k, flow) in self.flows.iter().enumerate() {
                    series[k].push((flow.delivered - before[k]) * 8.0 / span);
                    before[k] = flow.delivered;
                }
                for (queue, peak) in queues.iter_mut().zip(&mut peaks) {
                    queue.push(std::mem::take(peak));
                }
            }
        }
        let lost = self.flows.iter().map(|f| f.lost).collect();
        Outcome { series, queues, lost, messages: self.hosts.messages }
    }

    fn change(&mut self, now: Time, bounds: &[VmBounds]) {
        for h in 0..self.hosts.count() {
            let policy = self.world.policy(u32::try_from(h).expect("few hosts"), bounds);
            let work = self.hosts.call(now, h, Call::Input(Given::Policy(&policy)));
            self.take_levels(now, work);
        }
    }

    /// Both ends see the first packet of a flow.
    fn begin(&mut self, now: Time) {
        for i in 0..self.flows.len() {
            let spec = &self.world.flows[i];
            if self.flows[i].has_begun || spec.during.start > now.since(Time::ZERO) {
                continue;
            }
            self.flows[i].has_begun = true;
            for (vm, end) in [(spec.src, Direction::Send), (spec.dst, Direction::Receive)] {
                let host = self.world.vms[vm as usize].host as usize;
                let seen = Call::Input(Given::Seen(self.pairs[i], end));
                let work = self.hosts.call(now, host, seen);
                self.take_levels(now, work);
            }
        }
    }

    fn put_in_force(&mut self, now: Time) {
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let (pair, limit) = entry.remove();
            let flow = self.pairs.iter().position(|p| *p == pair);
            self.flows[flow.expect("only these are sent")].limit = limit;
        }
    }

    /// What each flow puts on its host's link in one step.
    fn send(&mut self, now: Time) {
        let dt = self.step.as_secs_f64();
        let line = self.world.line.as_f64() * dt / 8.0;
        let queue = self.world.eyeq.queue.get() as f64;
        let mut wants = vec![0.0; self.flows.len()];
        for (i, spec) in self.world.flows.iter().enumerate() {
            let flow = &mut self.flows[i];
            let is_on = spec.during.contains(&now.since(Time::ZERO));
            // Its stack is pushed back beyond the queue. Without a bound it is always full.
            let offered = match spec.demand {
                _ if !is_on => 0.0,
                Some(demand) => demand.as_f64() * dt / 8.0,
                None => f64::INFINITY,
            };
            if let Some(within) = self.world.departs_within {
                let bps = flow.limit.unwrap_or(f64::INFINITY).min(self.world.line.as_f64());
                wants[i] = flow.depart(dt, within.as_secs_f64(), queue, offered, bps);
                continue;
            }
            let limit = flow.limit.map_or(f64::INFINITY, |l| l * dt / 8.0);
            wants[i] = (flow.waiting + offered).min(limit).min(line);
            flow.waiting = (flow.waiting + offered - wants[i]).clamp(0.0, queue);
        }
        let of_vm = |vm: usize| {
            let flows = self.world.flows.iter().enumerate();
            flows.filter(move |(_, f)| f.src as usize == vm).map(|(i, _)| i)
        };
        for host in 0..self.hosts.count() {
            let mut room = line;
            for class in [Class::Guaranteed, Class::BestEffort] {
                let vms = self.world.vms.iter().enumerate();
                let here: Vec<(usize, &Vm)> = vms
                    .filter(|(_, vm)| vm.host as usize == host && vm.bounds.out.class() == class)
                    .collect();
                let claim = |(n, vm): &(usize, &Vm)| {
                    let most = vm.bounds.out.most.as_f64() * dt / 8.0;
                    let wanted: f64 = of_vm(*n).map(|i| wants[i]).sum();
                    (wanted.min(most), vm.bounds.out.floor.as_f64().max(1.0))
                };
                let claims: Vec<(f64, f64)> = here.iter().map(claim).collect();
                for ((vm, _), part) in here.iter().zip(fill(&mut room, &claims)) {
                    let mine: Vec<usize> = of_vm(*vm).collect();
                    level(&mine, &mut wants, part, &mut self.flows, queue);
                }
            }
        }
        for (flow, sent) in self.flows.iter_mut().zip(&wants) {
            flow.sent += sent;
            flow.queued += sent;
        }
    }

    /// Each port of the switch: those with a floor first.
    fn switch(&mut self, peaks: &mut [f64]) {
        let dt = self.step.as_secs_f64();
        let buffer = self.world.buffer as f64;
        for (h, peak) in peaks.iter_mut().enumerate() {
            let mut room = self.world.line.as_f64() * dt / 8.0;
            for class in [Class::Guaranteed, Class::BestEffort] {
                let vms = &self.world.vms;
                let here = |f: &Flow| {
                    vms[f.dst as usize].host as usize == h
                        && vms[f.src as usize].bounds.out.class() == class
                };
                let mine: Vec<usize> =
                    (0..self.flows.len()).filter(|i| here(&self.world.flows[*i])).collect();
                let queued: f64 = mine.iter().map(|i| self.flows[*i].queued).sum();
                if queued <= 0.0 {
                    continue;
                }
                let served = queued.min(room);
                let kept = (queued - served).min(buffer);
                room -= served;
                *peak = peak.max(kept);
                for i in mine {
                    let flow = &mut self.flows[i];
                    let part = flow.queued / queued;
                    flow.delivered += served * part;
                    flow.lost += (queued - served - kept) * part;
                    flow.queued = kept * part;
                }
            }
        }
    }

    fn deliver_messages(&mut self, now: Time) {
        while let Some((_, work)) = self.hosts.hear(now) {
            self.take_levels(now, work);
        }
    }

    fn run_hosts(&mut self, now: Time) {
        for h in 0..self.hosts.count() {
            let of = (self.world, &self.flows[..], &self.pairs[..]);
            if let Some(work) = self.hosts.turn(now, h, || counters(of, h)) {
                self.take_levels(now, work);
            }
        }
    }

    /// What the host decided is in force after a while.
    fn take_levels(&mut self, now: Time, work: Work) {
        let at = now + self.world.actuation;
        let over = work.forgotten.into_iter().filter(|(_, end)| *end == Direction::Send);
        let limit = |(pair, s): (PairId, Setting)| (pair, Some(s.ceiling.as_f64()));
        let decided = over.map(|(pair, _)| (pair, None)).chain(work.pairs.into_iter().map(limit));
        for decided in decided {
            self.sequence += 1;
            self.pending.insert((at, self.sequence), decided);
        }
    }
}

/// What the data plane of a host would have counted.
fn counters((world, flows, pairs): (&World, &[FlowState], &[PairId]), h: usize) -> Observed {
    let mut sample = Observed::default();
    let host = |vm: u32| world.vms[vm as usize].host as usize;
    for ((flow, spec), pair) in flows.iter().zip(&world.flows).zip(pairs) {
        if host(spec.src) == h {
            let (octets, waiting) = (flow.sent as u64, Some(flow.waiting as u64));
            let count = SendCount { octets, numbered: octets, waiting, ..SendCount::default() };
            sample.send.push((*pair, count));
        }
        if host(spec.dst) == h {
            let count = ReceiveCount {
                octets: flow.delivered as u64,
                segments: (flow.delivered / SEGMENT) as u64,
                numbered: None,
                lost: (flow.lost / SEGMENT) as u64,
                marked: 0,
            };
            sample.receive.push((*pair, count));
        }
    }
    sample
}

/// Divides `room` over claims (what is wanted, weight) max-min by weights, and takes what they get.
fn fill(room: &mut f64, claims: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let level = |i: &usize| claims[*i].0 / claims[*i].1;
    order.sort_by(|a, b| level(a).total_cmp(&level(b)));
    let mut weights: f64 = claims.iter().map(|(_, weight)| weight).sum();
    let mut got = vec![0.0; claims.len()];
    for i in order {
        let (wanted, weight) = claims[i];
        got[i] = wanted.min(*room * (weight / weights).min(1.0));
        *room -= got[i];
        weights -= weight;
    }
    got
}

/// Cuts what the flows of one VM want to its `root`, max-min; what is cut waits.
fn level(mine: &[usize], wants: &mut [f64], root: f64, flows: &mut [FlowState], queue: f64) {
    let mut order = mine.to_vec();
    order.sort_by(|a, b| wants[*a].total_cmp(&wants[*b]));
    let mut left = root;
    for (k, i) in order.iter().enumerate() {
        let fair = left / (order.len() - k) as f64;
        let sent = wants[*i].min(fair);
        flows[*i].waiting = (flows[*i].waiting + wants[*i] - sent).min(queue);
        wants[*i] = sent;
        left -= sent;
    }
}
