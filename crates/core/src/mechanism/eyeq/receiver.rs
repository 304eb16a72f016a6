//! The receiver module: meters what each VM of a host receives, and tells senders what they may send.
//!
//! Problem   Contention for a receiving link happens in the switch before it, where neither end looks; and who
//!           sends too much may not care about losses.
//! Approach  Each period, per VM: y = what arrived, C_i from the [`Scheduler`], R_i by the law
//!           ([`rcp_step`]). For every 10 kB that arrive one message with R_i goes to one source: to the one
//!           that sent most since it was last told. A VM may split its own C_i among the tenants that send
//!           to it: then each part is a meter of its own, under a scheduler of the VM.
//! Promises  R_i ≤ C_i ≤ C; messages ≤ octets received / 10 kB, whatever the number of senders or meters; everybody
//!           who sends is told in the end; sources that are remembered are bounded, and counted beyond.
//! Not here  What a sender does with it: see `sender`.
//! Source    EyeQ §3.2, §3.4. Departs: R waits until most senders know the last one
//!           ([`EyeQ::told_part`]); counters are read once a period, so the packet on which the 10 kB
//!           are full is not known. The source that waits with most octets takes its place: in the mean the
//!           same, and nobody is missed.

use super::config::{EyeQ, fraction};
use super::io::{Bounds, Counters, Feedback, MeterView, VmBounds};
use super::law::{RcpInput, rcp_step};
use super::scheduler::{Member, Pool, Scheduler, is_half_idle};
use crate::host::{Location, ReceiveCount};
use crate::meter::Meter;
use std::collections::BTreeMap;
use weir_units::{Bytes, HostId, PairId, Rate, Span, TenantId, Time, VmId};

/// All that is received on a host.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Receiver {
    scheduler: Scheduler,
    endpoints: BTreeMap<VmId, Endpoint>,
}

/// One VM as it receives.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Endpoint {
    bounds: Bounds,
    /// Divides C_i among the parts; unused while there is one.
    scheduler: Scheduler,
    /// `None`: all that has no part of its own, which is all without splits.
    meters: BTreeMap<Option<TenantId>, RateMeter>,
    sources: BTreeMap<VmId, Source>,
    /// Octets received for which nobody was told anything yet.
    untold: u64,
    /// Periods in which a rate was computed, since the host's outer loop made a step.
    steps: u64,
}

/// What arrived, and what follows from it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct RateMeter {
    bounds: Bounds,
    arrived: Arrived,
    active_at: Option<Time>,
    capacity: Rate,
    rate: Rate,
    received: Rate,
    over: Span,
    /// How often the rate was computed since the VM's outer loop made a step.
    steps: u64,
}

/// Sums over one period.
#[derive(Clone, Copy, Default, Debug, serde::Serialize, serde::Deserialize)]
struct Arrived {
    octets: u64,
    segments: u64,
    marked: u64,
}

impl Arrived {
    fn add(&mut self, more: Self) {
        self.octets = self.octets.saturating_add(more.octets);
        self.segments = self.segments.saturating_add(more.segments);
        self.marked = self.marked.saturating_add(more.marked);
    }
}

/// One that sends to a VM.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Source {
    at: Location,
    octets: Meter,
    segments: Meter,
    lost: Meter,
    marked: Meter,
    /// Octets that came since it was last told its rate.
    unanswered: u64,
    /// Octets that came since its rate was last computed, and whether it was told since.
    since_step: u64,
    is_told: bool,
    active_at: Time,
}

impl RateMeter {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            arrived: Arrived::default(),
            active_at: None,
            capacity: Rate::ZERO,
            rate: Rate::MAX,
            received: Rate::ZERO,
            over: Span::ZERO,
            steps: 0,
        }
    }

    fn is_active(&self, eyeq: &EyeQ, now: Time) -> bool {
        self.active_at.is_some_and(|at| now.since(at) < eyeq.idle_after)
    }

    fn member(&self, key: u32, eyeq: &EyeQ, now: Time) -> Member {
        let (bounds, octets) = (self.bounds, self.arrived.octets);
        Member { key, bounds, octets, is_active: self.is_active(eyeq, now), steps: self.steps }
    }

    /// One period of the law, or of its bounds alone while that is not due. A new meter starts at
    /// its capacity: an idle endpoint has room.
    fn step(&mut self, eyeq: &EyeQ, capacity: Rate, elapsed: Span, is_due: bool) {
        let arrived = self.arrived;
        // Marks wait for the next step; y is that of the last period.
        self.arrived = if is_due { Arrived::default() } else { Arrived { octets: 0, ..arrived } };
        self.steps = self.steps.saturating_add(is_due.into());
        let out = rcp_step(RcpInput {
            rate_bps: self.rate.as_bps(),
            capacity_bps: capacity.as_bps(),
            floor_bps: capacity.mul_ratio(1, eyeq.least_divisor.into()).as_bps(),
            elapsed_ns: if is_due { elapsed.as_nanos() } else { 0 },
            received_octets: arrived.octets,
            segments: arrived.segments,
            marked: arrived.marked,
            alpha: fraction(eyeq.alpha),
            least_factor: fraction(eyeq.least_factor),
            queue_octets: eyeq.queue_octets(),
            spare: 0,
        });
        self.capacity = capacity;
        self.rate = Rate::from_bps(out.rate_bps);
        self.received = Rate::of(Bytes::new(arrived.octets), elapsed);
        self.over = elapsed;
    }
}

impl Source {
    fn new(at: Location, now: Time) -> Self {
        Self {
            at,
            octets: Meter::default(),
            segments: Meter::default(),
            lost: Meter::default(),
            marked: Meter::default(),
            unanswered: 0,
            since_step: 0,
            is_told: false,
            active_at: now,
        }
    }

    fn read(&mut self, eyeq: &EyeQ, now: Time, count: ReceiveCount) -> Arrived {
        let octets = self.octets.read(count.octets);
        let segments = self.segments.read(count.segments);
        let lost = self.lost.read(count.lost);
        let marked = self.marked.read(count.marked);
        if octets > 0 {
            self.active_at = now;
        }
        self.unanswered = self.unanswered.saturating_add(octets);
        self.since_step = self.since_step.saturating_add(octets);
        // Their size is not known: that of those that came.
        let size = octets.checked_div(segments).unwrap_or(eyeq.mtu.get()).min(eyeq.mtu.get());
        let missing = if eyeq.counts_losses { lost.saturating_mul(size) } else { 0 };
        Arrived { octets: octets.saturating_add(missing), segments, marked }
    }
}

impl Endpoint {
    fn new(now: Time) -> Self {
        Self {
            bounds: Bounds::BEST_EFFORT,
            scheduler: Scheduler::new(now),
            meters: BTreeMap::new(),
            sources: BTreeMap::new(),
            untold: 0,
            steps: 0,
        }
    }

    /// Meters that go on keep their rate: priorities change while all runs.
    fn set_bounds(&mut self, bounds: &VmBounds) {
        self.bounds = bounds.in_;
        let rest = if bounds.splits.is_empty() { bounds.in_ } else { Bounds::BEST_EFFORT };
        let parts = bounds.splits.iter().map(|(tenant, part)| (Some(*tenant), *part));
        let all: BTreeMap<_, _> = parts.chain([(None, rest)]).collect();
        self.meters.retain(|part, _| all.contains_key(part));
        for (part, bounds) in all {
            self.meters.entry(part).or_insert_with(|| RateMeter::new(bounds)).bounds = bounds;
        }
    }

    fn part_of(&self, tenant: TenantId) -> Option<TenantId> {
        Some(tenant).filter(|t| self.meters.contains_key(&Some(*t)))
    }

    fn count(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        from: (VmId, Location),
        count: ReceiveCount,
    ) -> bool {
        let (vm, at) = from;
        if !self.sources.contains_key(&vm) && self.sources.len() >= eyeq.peers_most {
            return false;
        }
        let source = self.sources.entry(vm).or_insert_with(|| Source::new(at, now));
        let before = source.unanswered;
        let arrived = source.read(eyeq, now, count);
        self.untold = self.untold.saturating_add(source.unanswered - before);
        let part = self.part_of(at.tenant);
        let meter = self.meters.get_mut(&part).expect("there is always a meter for the rest");
        meter.arrived.add(arrived);
        if arrived.octets > 0 {
            meter.active_at = Some(now);
        }
        true
    }

    /// As a whole, in the eyes of the host.
    fn member(&self, vm: VmId, eyeq: &EyeQ, now: Time) -> Member {
        let meters = self.meters.values();
        Member {
            key: vm.0,
            bounds: self.bounds,
            octets: meters.clone().fold(0, |sum, m| sum.saturating_add(m.arrived.octets)),
            is_active: meters.clone().any(|m| m.is_active(eyeq, now)),
            steps: self.steps,
        }
    }

    fn step(&mut self, eyeq: &EyeQ, now: Time, capacity: Rate, elapsed: Span) {
        let due = self.are_due(eyeq, elapsed);
        self.steps = self.steps.saturating_add(due.contains(&true).into());
        if let [is_due] = due[..] {
            self.meters.values_mut().for_each(|m| m.step(eyeq, capacity, elapsed, is_due));
            return;
        }
        let members: Vec<Member> =
            self.meters.values().zip(0..).map(|(m, key)| m.member(key, eyeq, now)).collect();
        let pool = Pool { capacity, line: None, elapsed };
        let parts = self.scheduler.step(eyeq, now, pool, &members);
        for ((meter, part), is_due) in self.meters.values_mut().zip(parts).zip(due) {
            if self.scheduler.has_stepped {
                meter.steps = 0;
            }
            meter.step(eyeq, part, elapsed, is_due);
        }
    }

    /// For each meter, whether its rate may change: those who send most of what arrives know it, or so little arrives
    /// that a higher one hurts nobody. If it may, what they know is about to be old.
    fn are_due(&mut self, eyeq: &EyeQ, elapsed: Span) -> Vec<bool> {
        let mut octets: BTreeMap<Option<TenantId>, (u64, u64)> =
            self.meters.keys().map(|part| (*part, (0, 0))).collect();
        for source in self.sources.values() {
            let (told, all) = octets.entry(self.part_of(source.at.tenant)).or_default();
            *all = all.saturating_add(source.since_step);
            if source.is_told {
                *told = told.saturating_add(source.since_step);
            }
        }
        let is_due = |(part, meter): (&Option<TenantId>, &RateMeter)| {
            let (told, all) = octets[part];
            let is_idle = is_half_idle(meter.arrived.octets, meter.capacity, elapsed);
            (*part, is_idle || eyeq.is_enough(told, all))
        };
        let due: BTreeMap<Option<TenantId>, bool> = self.meters.iter().map(is_due).collect();
        for source in self.sources.values_mut() {
            let tenant = Some(source.at.tenant);
            let part = if due.contains_key(&tenant) { tenant } else { None };
            if due[&part] {
                source.since_step = 0;
                source.is_told = false;
            }
        }
        due.into_values().collect()
    }

    /// Whom to tell his rate now: one for every 10 kB, those first who sent most since they were told.
    fn tell(&mut self, eyeq: &EyeQ) -> Vec<(VmId, HostId, Rate)> {
        let each = eyeq.feedback_octets.get();
        let most = usize::try_from(self.untold / each).unwrap_or(usize::MAX);
        if most == 0 {
            return Vec::new();
        }
        self.untold %= each;
        let waiting = self.sources.iter().filter(|(_, s)| s.unanswered > 0);
        let mut told: Vec<(u64, VmId)> = waiting.map(|(vm, s)| (s.unanswered, *vm)).collect();
        told.sort_unstable_by_key(|(octets, vm)| (std::cmp::Reverse(*octets), *vm));
        told.truncate(most);
        let mut messages = Vec::with_capacity(told.len());
        for (_, vm) in told {
            let Some(source) = self.sources.get_mut(&vm) else { continue };
            source.unanswered = 0;
            source.is_told = true;
            let at = source.at;
            let rate = self.meters[&self.part_of(at.tenant)].rate;
            messages.push((vm, at.host, in_units(rate, eyeq.feedback_unit)));
        }
        messages
    }
}

/// A rate as 16 bits can tell it: whole units, rounded down, but at least one.
fn in_units(rate: Rate, unit: Rate) -> Rate {
    let units = (rate.as_bps() / unit.as_bps()).clamp(1, u16::MAX.into());
    unit * units
}

impl Receiver {
    pub(super) fn new(now: Time) -> Self {
        Self { scheduler: Scheduler::new(now), endpoints: BTreeMap::new() }
    }

    /// The VMs are these, with these bounds; who stays keeps his rates.
    pub(super) fn set_vms(&mut self, now: Time, vms: &BTreeMap<VmId, VmBounds>) {
        self.endpoints.retain(|vm, _| vms.contains_key(vm));
        for (vm, bounds) in vms {
            self.endpoints.entry(*vm).or_insert_with(|| Endpoint::new(now)).set_bounds(bounds);
        }
    }

    /// Sources that are not there any more, or are somebody else, are forgotten.
    pub(super) fn keep_sources(&mut self, directory: &BTreeMap<VmId, Location>) {
        for endpoint in self.endpoints.values_mut() {
            endpoint.sources.retain(|vm, source| directory.get(vm) == Some(&source.at));
        }
    }

    /// Pairs that send to VMs here.
    pub(super) fn sources(&self) -> usize {
        self.endpoints.values().map(|e| e.sources.len()).sum()
    }

    pub(super) fn has_sources(&self) -> bool {
        self.endpoints.values().any(|e| !e.sources.is_empty())
    }

    pub(super) fn count(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        (pair, at): (PairId, Location),
        count: ReceiveCount,
        counters: &mut Counters,
    ) {
        match self.endpoints.get_mut(&pair.dst) {
            None => counters.unknown_pairs += 1,
            Some(endpoint) => {
                let is_known = endpoint.count(eyeq, now, (pair.src, at), count);
                counters.refused_peers += u64::from(!is_known);
            }
        }
    }

    /// One period: capacities, rates, and whom to tell.
    pub(super) fn step(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        line: Rate,
        elapsed: Span,
    ) -> Vec<(HostId, Feedback)> {
        let members: Vec<Member> =
            self.endpoints.iter().map(|(vm, endpoint)| endpoint.member(*vm, eyeq, now)).collect();
        let pool = Pool { capacity: eyeq.capacity_of(line), line: Some(line), elapsed };
        let capacities = self.scheduler.step(eyeq, now, pool, &members);
        let mut messages = Vec::new();
        for ((vm, endpoint), capacity) in self.endpoints.iter_mut().zip(capacities) {
            if self.scheduler.has_stepped {
                endpoint.steps = 0;
            }
            endpoint.step(eyeq, now, capacity, elapsed);
            let told = endpoint
                .tell(eyeq)
                .into_iter()
                .map(|(src, host, rate)| (host, Feedback { pair: PairId::new(src, *vm), rate }));
            messages.extend(told);
            endpoint.sources.retain(|_, s| now.since(s.active_at) < eyeq.limiter_idle);
        }
        messages
    }

    pub(super) fn view(&self, vm: VmId) -> Vec<MeterView> {
        let Some(endpoint) = self.endpoints.get(&vm) else { return Vec::new() };
        let meters = endpoint.meters.iter().map(|(part, m)| MeterView {
            part: *part,
            capacity: m.capacity,
            advertised: m.rate,
            received: m.received,
            over: m.over,
        });
        meters.collect()
    }
}
