//! The receiver module: meters what each VM of a host receives, and tells senders what they may
//! send.
//!
//! Problem   Contention for a receiving link happens in the switch before it, where neither end
//!           looks; and a sender of too much may not care about losses.
//! Approach  A [`RateMeter`] per VM for its own tenant's senders and one for strangers, as the
//!           kernel has them; [`Shares`] says what each may receive. What the kernel counts packet
//!           by packet is counted here once a period, as one super-packet of each source: the
//!           period's end closes it, and for every 10 kB of it one source is told, the one that
//!           sent most since it was last told.
//! Promises  R_i ≤ C_i ≤ C; messages ≤ octets received / 10 kB, whatever the number of senders;
//!           every sender is told in the end; sources that are remembered are bounded, and counted
//!           beyond.
//! Not here  What a sender does with it: see `sender`.
//! Source    EyeQ §3.2, §3.4. Departs: counters are read once a period, so the packet on which the
//!           10 kB are full is not known. The source that waits with most octets takes its place.

use super::config::EyeQ;
use super::io::{Counters, Feedback, MeterView, VmBounds};
use super::rate_meter::{Heeder, MeterRules, MeterShare, Packets, RateMeter};
use super::shares::Shares;
use crate::host::{Location, Metered, Part, ReceiveCount};
use crate::meter::Meter;
use weir_units::{HostId, PairId, Rate, SortedMap, Span, TenantId, Time, VmId};

/// Times of meters begin here, ns: 0 is no time of theirs.
const EPOCH: u64 = 1;

/// All that is received on a host.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Receiver {
    shares: Shares,
    endpoints: SortedMap<VmId, Endpoint>,
}

/// One VM as it receives.
#[derive(Default, Debug, serde::Serialize, serde::Deserialize)]
struct Endpoint {
    tenant: Option<TenantId>,
    parts: [PartMeter; 2],
    sources: SortedMap<VmId, Source>,
    /// How long the last period was.
    over: Span,
}

#[derive(Default, Debug, serde::Serialize, serde::Deserialize)]
struct PartMeter {
    meter: RateMeter,
    share: MeterShare,
}

/// One VM that sends to another.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Source {
    at: Location,
    octets: Meter,
    segments: Meter,
    lost: Meter,
    marked: Meter,
    heeder: Heeder,
    /// Octets that came since it was last told its rate.
    unanswered: u64,
    active_at: Time,
}

impl Source {
    fn new(at: Location, now: Time) -> Self {
        Self {
            at,
            octets: Meter::default(),
            segments: Meter::default(),
            lost: Meter::default(),
            marked: Meter::default(),
            heeder: Heeder::default(),
            unanswered: 0,
            active_at: now,
        }
    }

    fn read(&mut self, eyeq: &EyeQ, now: Time, count: ReceiveCount) -> Packets {
        let octets = self.octets.read(count.octets);
        let segments = self.segments.read(count.segments);
        let lost = self.lost.read(count.lost);
        let marked = self.marked.read(count.marked);
        if octets > 0 {
            self.active_at = now;
        }
        self.unanswered = self.unanswered.saturating_add(octets);
        // Their size is not known: that of those that came.
        let size = octets.checked_div(segments).unwrap_or(eyeq.mtu.get()).min(eyeq.mtu.get());
        let missing = if eyeq.counts_losses { lost.saturating_mul(size) } else { 0 };
        Packets { octets: octets.saturating_add(missing), segments, marked }
    }
}

impl PartMeter {
    /// A part begins with its first packet, at the end of the period before it.
    fn take(&mut self, now_ns: u64, heeder: &mut Heeder, packets: Packets) {
        if self.meter.since_ns == 0 {
            // All it may have, once that is known: the law cuts it to that.
            (self.meter.since_ns, self.meter.rate_bps) = (now_ns, u64::MAX);
        }
        self.meter.take(heeder, packets);
    }

    fn close(&mut self, rules: &MeterRules, share: MeterShare, now_ns: u64) {
        self.share = share;
        if self.meter.since_ns > 0 {
            self.meter.close(rules, share, now_ns);
        }
    }

    /// What is told: what the part may receive may have become less since the last step.
    fn advertised(&self) -> Rate {
        Rate::from_bps(self.meter.rate_bps.min(self.share.capacity_bps))
    }
}

impl Endpoint {
    fn part_of(&self, tenant: TenantId) -> Part {
        if self.tenant == Some(tenant) { Part::Own } else { Part::Strangers }
    }

    fn count(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        (vm, at): (VmId, Location),
        count: ReceiveCount,
    ) -> bool {
        if !self.sources.contains_key(&vm) && self.sources.len() >= eyeq.peers_most {
            return false;
        }
        let part = self.part_of(at.tenant) as usize;
        let source = self.sources.entry(vm).or_insert_with(|| Source::new(at, now));
        let packets = source.read(eyeq, now, count);
        self.parts[part].take(clock(now), &mut source.heeder, packets);
        true
    }

    /// Whom to tell its rate now: one source for every 10 kB, those first that sent most since they
    /// were told.
    fn tell(&mut self, eyeq: &EyeQ, rules: &MeterRules) -> Vec<(VmId, HostId, Rate)> {
        let own = self.tenant;
        let mut messages = Vec::new();
        for part in Part::ALL {
            let meter = &mut self.parts[part as usize].meter;
            let is_own = part == Part::Own;
            let sources = self.sources.iter_mut();
            let mut waiting: Vec<(VmId, &mut Source)> = sources
                .filter(|(_, s)| s.unanswered > 0 && (own == Some(s.at.tenant)) == is_own)
                .map(|(vm, source)| (*vm, source))
                .collect();
            waiting.sort_unstable_by_key(|(vm, s)| (std::cmp::Reverse(s.unanswered), *vm));
            let told = tell_some(meter, rules, &mut waiting);
            let rate = in_units(self.parts[part as usize].advertised(), eyeq.feedback_unit);
            messages.extend(told.into_iter().map(|(vm, host)| (vm, host, rate)));
        }
        messages
    }
}

/// Tells sources in this order, one for every 10 kB, but none that knows the rate.
fn tell_some(
    meter: &mut RateMeter,
    rules: &MeterRules,
    waiting: &mut [(VmId, &mut Source)],
) -> Vec<(VmId, HostId)> {
    let each = rules.feedback_octets;
    let mut told = Vec::new();
    let mut untold = meter.untold;
    for (vm, source) in waiting {
        if each == 0 || untold < each {
            break;
        }
        // One 10 kB at a time: what arrived is not one super-packet, but many sources' packets.
        meter.untold = each;
        if meter.ask(rules, &mut source.heeder) {
            untold -= each;
            source.unanswered = 0;
            told.push((*vm, source.at.host));
        }
    }
    // Nothing is saved up where all know the rate.
    meter.untold = untold.min(each);
    told
}

fn clock(now: Time) -> u64 {
    now.as_nanos().saturating_add(EPOCH)
}

/// A rate as 16 bits can tell it: whole units, rounded down, but at least one.
fn in_units(rate: Rate, unit: Rate) -> Rate {
    let units = (rate.as_bps() / unit.as_bps()).clamp(1, u16::MAX.into());
    unit * units
}

impl Receiver {
    pub(super) fn new(now: Time) -> Self {
        Self { shares: Shares::new(now), endpoints: SortedMap::new() }
    }

    /// The VMs are these, with these bounds; one that stays keeps its rates.
    pub(super) fn set_vms(
        &mut self,
        now: Time,
        vms: &SortedMap<VmId, VmBounds>,
        directory: &SortedMap<VmId, Location>,
    ) {
        self.shares.set_vms(vms);
        self.endpoints.retain(|vm, _| vms.contains_key(vm));
        for vm in vms.keys() {
            let endpoint = self.endpoints.entry(*vm).or_insert_with(|| {
                // What is counted first came since then.
                for part in Part::ALL {
                    self.shares.read(now, *vm, part, Metered::default());
                }
                Endpoint::default()
            });
            endpoint.tenant = directory.get(vm).map(|at| at.tenant);
        }
    }

    /// Sources that are not there any more, or are another VM now, are forgotten.
    pub(super) fn keep_sources(&mut self, directory: &SortedMap<VmId, Location>) {
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

    /// One period: capacities, rates, and the sources to tell.
    pub(super) fn step(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        line: Rate,
        elapsed: Span,
    ) -> Vec<(HostId, Feedback)> {
        for (vm, endpoint) in &self.endpoints {
            for part in Part::ALL {
                let RateMeter { octets, steps, .. } = endpoint.parts[part as usize].meter;
                self.shares.read(now, *vm, part, Metered { octets, steps, ..Metered::default() });
            }
        }
        self.shares.step(eyeq, now, line);
        let rules = eyeq.meter_rules();
        for (vm, part, share) in self.shares.shares(eyeq) {
            if let Some(endpoint) = self.endpoints.get_mut(&vm) {
                endpoint.parts[part as usize].close(&rules, share, clock(now));
                endpoint.over = elapsed;
            }
        }
        let mut messages = Vec::new();
        for (vm, endpoint) in &mut self.endpoints {
            let told = endpoint.tell(eyeq, &rules).into_iter();
            messages.extend(
                told.map(|(src, host, rate)| {
                    (host, Feedback { pair: PairId::new(src, *vm), rate })
                }),
            );
            endpoint.sources.retain(|_, s| now.since(s.active_at) < eyeq.limiter_idle);
        }
        messages
    }

    pub(super) fn view(&self, vm: VmId) -> Vec<MeterView> {
        let Some(endpoint) = self.endpoints.get(&vm) else { return Vec::new() };
        let view = |part: Part| MeterView {
            part,
            capacity: self.shares.capacity(vm, part),
            advertised: endpoint.parts[part as usize].advertised(),
            received: self.shares.received(vm, part),
            over: endpoint.over,
        };
        Part::ALL.map(view).to_vec()
    }
}
