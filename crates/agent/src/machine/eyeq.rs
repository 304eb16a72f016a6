//! EyeQ on a host whose kernel meters, tells and hears by itself (`bpf/eyeq*`), and whose classes the agent sets.
//!
//! Problem   Limits come from other hosts' kernels at any time and are to be in force within a millisecond (where
//!           departure times are the limits they are at once, and the agent follows); what each VM here may
//!           receive follows all meters together.
//! Approach  Sending: `weir_core::eyeq::Host` is told what was heard and what was sent, and says each
//!           destination's limit, also of receivers that are silent. A pair has a class from its first packet;
//!           its floor and ceiling are those of [`Division`]. Receiving: [`Shares`] makes C_i of the meters' counters.
//! Promises  No input in any order panics.
//! Not here  The part of each VM in the uplink: HTB gives that by floors. The kernel: `driver::eyeq`.
//! Source    EyeQ §3, §4. Departs: best effort is not served last but by the small weight of its floor.

use crate::config::Names;
use std::collections::BTreeMap;
use weir_core::eyeq::{
    self, Division, Feedback, Host, HostConfig, MeterShare, Metered, Part, Refusal, Sample, Sent,
    Shares,
};
use weir_core::host::{self, Desired, Direction, Outbox, SendCount, Setting};
use weir_dataplane::eyeq::intf;
use weir_dataplane::shaper::MIN_RATE;
use weir_model::status;
use weir_units::{Bytes, PairId, Rate, Span, Time, VmId};

/// A VM that received nothing for so many periods is idle; twice as long as until its meter says so when it
/// begins again.
const QUIET_PERIODS: u64 = 2 * intf::IDLE_PERIODS;

/// The agent looks no more often, however short the kernel's periods are: C_i and silence are slower.
const LEAST_TICK: Span = Span::from_millis(1);

/// EyeQ's part in the agent.
#[derive(Debug)]
pub(crate) struct EyeQ {
    config: HostConfig,
    /// What VMs without a floor may divide among their pairs.
    other: Rate,
    host: Host,
    /// Stays empty: the kernel tells.
    outbox: Outbox<Feedback>,
    shares: Shares,
    pairs: BTreeMap<PairId, Sending>,
    division: Division,
    desired: Desired,
    sample: Sample,
    /// The last readings of the meters: of the own tenant, and of strangers.
    meters: BTreeMap<VmId, [intf::Meter; 2]>,
    /// What parts of VMs may receive, as it was taken to be written.
    written: BTreeMap<(VmId, Part), MeterShare>,
    step_at: Time,
    /// When something was last received.
    received_at: Option<Time>,
    refused_pairs: u64,
    unknown_pairs: u64,
    /// Messages of another law: a peer whose mechanism is another.
    misplaced: u64,
}

/// A pair that sends from here.
#[derive(Debug)]
struct Sending {
    /// Octets offered, as they were counted last; `None`: an earlier life counted them, and the first reading is
    /// the origin.
    octets: Option<u64>,
    /// What had left by then.
    origin: u64,
    /// What left since the origin, as the machine was last told.
    left: u64,
    read_at: Time,
    measured: Rate,
    active_at: Time,
    /// How often its receiver had spoken when it was last looked at, and when that was news.
    told: u64,
    /// Its limit was asked for: if it spoke before the pair was known here, nobody rings again.
    is_asked: bool,
    heard_at: Option<Time>,
}

impl Sending {
    fn new(now: Time) -> Self {
        Self {
            octets: Some(0),
            origin: 0,
            left: 0,
            read_at: now,
            measured: Rate::ZERO,
            active_at: now,
            told: 0,
            is_asked: false,
            heard_at: None,
        }
    }

    /// Whether anything left that the machine does not know.
    fn count(&mut self, now: Time, count: &SendCount) -> bool {
        let left = count.numbered.saturating_add(count.unnumbered);
        let before = *self.octets.get_or_insert_with(|| {
            self.origin = left;
            count.octets
        });
        // A pair that was forgotten counts from zero.
        let added = count.octets.checked_sub(before).unwrap_or_else(|| {
            self.origin = 0;
            count.octets
        });
        self.octets = Some(count.octets);
        if added > 0 {
            self.active_at = now;
        }
        let span = now.since(self.read_at);
        self.read_at = now;
        self.measured = Rate::of(Bytes::new(added), span);
        let before = std::mem::replace(&mut self.left, left.saturating_sub(self.origin));
        self.left != before
    }
}

/// A pair as far as it is known here, for people.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) pair: PairId,
    /// The source's side, if it is here.
    pub(crate) send: Option<SendView>,
    /// The destination's meter, if it is here, and what senders from elsewhere share.
    pub(crate) receive: Option<ReceiveView>,
}

/// What the source's host knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendView {
    pub(crate) setting: Setting,
    /// What the VM is promised, and among how many pairs that is divided.
    pub(crate) promised: Rate,
    pub(crate) peers: usize,
    /// What the limiter allows, if there is one.
    pub(crate) limit: Option<Rate>,
    /// When the receiver last spoke.
    pub(crate) heard_at: Option<Time>,
    pub(crate) measured: Rate,
    pub(crate) line: Rate,
    /// The destination is on this host, too.
    pub(crate) is_local: bool,
}

/// What the destination's host knows: of the VM, not of the pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveView {
    pub(crate) floor: Rate,
    pub(crate) capacity: Rate,
    pub(crate) advertised: Rate,
    pub(crate) received: Rate,
}

impl EyeQ {
    /// Of a host without traffic; `other` is the rate of what has no floor.
    ///
    /// # Errors
    ///
    /// [`HostConfig::check`].
    pub(crate) fn new(config: HostConfig, other: Rate, now: Time) -> Result<Self, Refusal> {
        let mut shares = Shares::new(now);
        shares.set_vms(&config.vms);
        shares.step(&config.eyeq, now, config.line);
        Ok(Self {
            host: Host::new(config.clone(), now)?,
            config,
            other,
            outbox: Outbox::default(),
            shares,
            pairs: BTreeMap::new(),
            division: Division::default(),
            desired: Desired::default(),
            sample: Sample::default(),
            meters: BTreeMap::new(),
            written: BTreeMap::new(),
            step_at: now,
            received_at: None,
            refused_pairs: 0,
            unknown_pairs: 0,
            misplaced: 0,
        })
    }

    /// The same inputs as ElasticSwitch's machine has; what EyeQ has no use for is left out.
    pub(crate) fn handle(&mut self, now: Time, input: host::Input<'_>) {
        use host::Input;
        match input {
            Input::Seen(pair, Direction::Send) => self.see(now, pair),
            Input::Seen(_, Direction::Receive) => self.received_at = Some(now),
            Input::Adopt(pair, setting) => self.adopt(now, pair, setting),
            Input::Sample(sample) => self.count(now, &sample.send),
            Input::Message(..) => self.misplaced += 1,
            Input::Population(host) => self.repopulate(now, host),
            Input::Tick => self.tick(now),
            // The kernel's meters begin anew, and so do those who listen to them.
            Input::Found(_) | Input::PeerRestarted(_) | Input::PathSample(_) => {}
        }
    }

    /// When the next period ends; `None` while nothing is sent or received.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let quiet = self.config.eyeq.period * QUIET_PERIODS;
        let receives = self.received_at.is_some_and(|at| at + quiet > self.step_at);
        (receives || !self.pairs.is_empty()).then_some(self.step_at)
    }

    pub(crate) fn desired(&mut self) -> &mut Desired {
        let Self { division, host, config, other, desired, .. } = self;
        for (pair, _) in host.limits().take_changed() {
            division.limit(pair);
        }
        let promised = |vm: VmId| promised(config, vm, *other);
        let limits = host.limits();
        let limit = |pair| limits.get(pair).map(|limit| limit.rate);
        for (pair, setting) in division.take_settings(config.line, promised, limit) {
            desired.grow(pair, setting);
        }
        desired
    }

    /// Pairs that send from here.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = PairId> + '_ {
        self.pairs.keys().copied()
    }

    /// Whether the pair sends from here.
    pub(crate) fn knows(&self, pair: PairId) -> bool {
        self.pairs.contains_key(&pair)
    }

    // -- the kernel's side --------------------------------------------------------------------

    /// Pairs whose limits are to be read before the next tick: those whose receivers spoke, for one that says
    /// the same again is not silent, and new ones. Who speaks for the first time rings.
    pub(crate) fn take_asked(&mut self) -> Vec<PairId> {
        let mut asked = Vec::new();
        for (pair, sending) in &mut self.pairs {
            if sending.told > 0 || !std::mem::replace(&mut sending.is_asked, true) {
                asked.push(*pair);
            }
        }
        asked
    }

    /// What the receiver of a pair allows, as the kernel holds it: news if it spoke since.
    pub(crate) fn hear(&mut self, now: Time, pair: PairId, told: &intf::Limit) {
        let Some(sending) = self.pairs.get_mut(&pair) else { return };
        if told.told == sending.told {
            return;
        }
        sending.told = told.told;
        sending.heard_at = Some(now);
        self.obey(now, pair, Rate::from_bps(told.rate_bps));
    }

    /// The meters of a VM were read.
    pub(crate) fn meter(&mut self, now: Time, vm: VmId, meters: [intf::Meter; 2]) {
        let octets = |meters: [intf::Meter; 2]| meters.map(|meter| meter.octets);
        let before = self.meters.insert(vm, meters).map_or([0; 2], octets);
        if octets(meters) != before {
            self.received_at = Some(now);
        }
        for (part, meter) in Part::ALL.into_iter().zip(meters) {
            let metered = Metered { octets: meter.octets, steps: meter.steps };
            self.shares.read(now, vm, part, metered);
        }
    }

    /// What parts of VMs may receive, of those for which that changed since the last call.
    pub(crate) fn take_shares(&mut self) -> Vec<(VmId, Part, intf::Share)> {
        let mut changed = Vec::new();
        for (vm, part, share) in self.shares.shares(&self.config.eyeq) {
            if self.written.insert((vm, part), share) != Some(share) {
                let MeterShare { capacity_bps, floor_bps } = share;
                changed.push((vm, part, intf::Share { capacity_bps, floor_bps }));
            }
        }
        changed
    }

    /// The kernel may have lost them.
    pub(crate) fn write_shares_again(&mut self) {
        self.written.clear();
    }

    // -- sending ------------------------------------------------------------------------------

    fn see(&mut self, now: Time, pair: PairId) {
        if self.pairs.contains_key(&pair) {
            return;
        }
        let vms = &self.config.vms;
        if !vms.contains_key(&pair.src) || !self.config.directory.contains_key(&pair.dst) {
            self.unknown_pairs += 1;
            return;
        }
        let peers = self.division.pairs_of(pair.src);
        // A class cannot have less: together they would have more than the VM's floor.
        if peers > 0 && self.promised(pair.src).split(peers + 1) < MIN_RATE {
            self.refused_pairs += 1;
            return;
        }
        self.pairs.insert(pair, Sending::new(now));
        let first = Sample { send: vec![(pair, Sent::default())], receive: Vec::new() };
        self.host.handle(now, eyeq::Input::Sample(&first), &mut self.outbox);
        self.division.see(now, pair);
    }

    /// What an earlier life left in force counts as its receiver's word, until that speaks.
    fn adopt(&mut self, now: Time, pair: PairId, setting: Setting) {
        let is_new = !self.knows(pair);
        self.see(now, pair);
        if let Some(sending) = self.pairs.get_mut(&pair).filter(|_| is_new) {
            // What it sent before went unanswered here, and not there.
            sending.octets = None;
        }
        if self.knows(pair) && setting.ceiling < self.config.line {
            self.obey(now, pair, setting.ceiling);
        }
    }

    fn obey(&mut self, now: Time, pair: PairId, rate: Rate) {
        let Some(at) = self.config.directory.get(&pair.dst) else { return };
        let feedback = eyeq::Input::Feedback(at.host, Feedback { pair, rate });
        self.host.handle(now, feedback, &mut self.outbox);
    }

    fn count(&mut self, now: Time, counted: &[(PairId, SendCount)]) {
        let mut known = None;
        for (pair, count) in counted {
            if !self.pairs.contains_key(pair) {
                self.see(now, *pair);
            }
            let Some(sending) = self.pairs.get_mut(pair) else { continue };
            let is_news = sending.count(now, count);
            // HTB shares the uplink, not `Host`: so nobody need know what waits.
            let sent = (*pair, Sent { octets: sending.left, waiting: 0 });
            // Of a thousand pairs few send in each period. What was counted between two ticks stays.
            if is_news {
                self.sample.send.push(sent);
            }
            known = Some(sent);
        }
        // Without any the machine would not step: nobody sends, or it was not asked.
        if self.sample.send.is_empty() {
            self.sample.send.extend(known);
        }
    }

    fn tick(&mut self, now: Time) {
        if now < self.step_at {
            return;
        }
        // A late driver skips, it does not catch up.
        let period = self.config.eyeq.period.max(LEAST_TICK);
        let missed = now.since(self.step_at).div_span(period);
        self.step_at += period * (missed + 1);
        let Self { host, sample, outbox, .. } = self;
        host.handle(now, eyeq::Input::Sample(sample), outbox);
        host.handle(now, eyeq::Input::Tick, outbox);
        self.sample.send.clear();
        self.forget_idle(now);
        self.shares.step(&self.config.eyeq, now, self.config.line);
    }

    fn forget_idle(&mut self, now: Time) {
        let most = self.config.eyeq.limiter_idle;
        let is_idle = |sending: &Sending| now.since(sending.active_at) >= most;
        let idle = self.pairs.iter().filter(|(_, sending)| is_idle(sending));
        let idle: Vec<PairId> = idle.map(|(pair, _)| *pair).collect();
        self.forget(&idle);
    }

    fn forget(&mut self, pairs: &[PairId]) {
        for pair in pairs {
            self.pairs.remove(pair);
            self.desired.forget(*pair, Direction::Send);
            self.division.forget(*pair);
        }
    }

    fn promised(&self, vm: VmId) -> Rate {
        promised(&self.config, vm, self.other)
    }

    // -- VMs ----------------------------------------------------------------------------------

    fn repopulate(&mut self, now: Time, to: &host::HostConfig) {
        let bounds = |hose: &host::Hose| eyeq::VmBounds {
            out: eyeq::Bounds::at_least(hose.floor_out),
            in_: eyeq::Bounds::at_least(hose.floor_in),
        };
        let vms: BTreeMap<_, _> = to.vms.iter().map(|(vm, hose)| (*vm, bounds(hose))).collect();
        let next = HostConfig { vms, directory: to.directory.clone(), ..self.config.clone() };
        self.host.handle(now, eyeq::Input::Population(&next), &mut self.outbox);
        let before = std::mem::replace(&mut self.config, next);
        let (vms, there) = (&self.config.vms, &self.config.directory);
        let is_over = |pair: &&PairId| {
            let is_same = there.get(&pair.dst) == before.directory.get(&pair.dst);
            !vms.contains_key(&pair.src) || !there.contains_key(&pair.dst) || !is_same
        };
        let over: Vec<PairId> = self.pairs.keys().filter(is_over).copied().collect();
        self.forget(&over);
        let here = &self.config.vms;
        self.meters.retain(|vm, _| here.contains_key(vm));
        here.keys().for_each(|vm| self.division.redivide(*vm));
        self.shares.set_vms(&self.config.vms);
        self.shares.step(&self.config.eyeq, now, self.config.line);
        // A port may have another slot by now.
        self.write_shares_again();
    }

    // -- for people ---------------------------------------------------------------------------

    /// All pairs that send from here.
    pub(crate) fn views(&mut self) -> Vec<View> {
        let all: Vec<PairId> = self.pairs().collect();
        all.into_iter().filter_map(|pair| self.view(pair)).collect()
    }

    /// One pair, if it sends from here or its receiver is here.
    pub(crate) fn view(&mut self, pair: PairId) -> Option<View> {
        let send = self.send_view(pair);
        let at = |vm: VmId| self.config.directory.get(&vm).map(|at| at.host);
        let is_from_elsewhere = at(pair.src).is_some_and(|host| host != self.config.host);
        let receive = if is_from_elsewhere { self.receive_view(pair.dst) } else { None };
        (send.is_some() || receive.is_some()).then_some(View { pair, send, receive })
    }

    fn send_view(&mut self, pair: PairId) -> Option<SendView> {
        let sending = self.pairs.get(&pair)?;
        let (heard_at, measured) = (sending.heard_at, sending.measured);
        let at = self.config.directory.get(&pair.dst).map(|at| at.host);
        Some(SendView {
            setting: self.desired().get(pair).unwrap_or_default(),
            promised: self.promised(pair.src),
            peers: self.division.pairs_of(pair.src),
            limit: self.host.limits().get(pair).map(|limit| limit.rate),
            heard_at,
            measured,
            line: self.config.line,
            is_local: at == Some(self.config.host),
        })
    }

    fn receive_view(&self, vm: VmId) -> Option<ReceiveView> {
        let floor = self.config.vms.get(&vm)?.in_.floor;
        self.written.get(&(vm, Part::Own))?;
        let advertised = self.meters.get(&vm).map_or(0, |[own, _]| own.rate_bps);
        Some(ReceiveView {
            floor,
            capacity: self.shares.capacity(vm, Part::Own),
            advertised: Rate::from_bps(advertised),
            received: Part::ALL.map(|part| self.shares.received(vm, part)).into_iter().sum(),
        })
    }

    /// What the VMs of this host may receive.
    pub(crate) fn meters(&self, names: &Names) -> Vec<status::Meter> {
        let row = |vm: &VmId| {
            let view = self.receive_view(*vm)?;
            Some(status::Meter {
                vm: names.name(*vm),
                floor_bps: view.floor.as_bps(),
                capacity_bps: view.capacity.as_bps(),
                advertised_bps: view.advertised.as_bps(),
                received_bps: view.received.as_bps(),
            })
        };
        self.config.vms.keys().filter_map(row).collect()
    }

    /// What it counted about itself.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let host = self.host.counters();
        vec![
            ("agent.messages", host.feedback),
            ("agent.misdirected", host.strangers + host.misdirected),
            ("agent.strayed", host.strayed),
            ("agent.refused_pairs", self.refused_pairs + host.refused_peers),
            ("agent.unknown_pairs", self.unknown_pairs + host.unknown_pairs),
            ("eyeq.halved", host.halved),
            ("eyeq.impossible_limits", host.impossible),
            ("eyeq.refused_populations", host.refused_populations),
            ("eyeq.misplaced_messages", self.misplaced),
        ]
    }
}

/// What a VM is promised; one without a floor has `other` for all its pairs.
fn promised(config: &HostConfig, vm: VmId, other: Rate) -> Rate {
    let floor = config.vms.get(&vm).map_or(Rate::ZERO, |bounds| bounds.out.floor);
    if floor.is_zero() { other } else { floor }
}

#[cfg(test)]
mod tests;
