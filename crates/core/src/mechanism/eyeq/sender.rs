//! The sender module: one limiter per congested destination.
//!
//! Problem   What a receiver allows must be kept by whatever the VM runs, without slowing what it
//!           sends to others.
//! Approach  A destination has no limiter until its receiver speaks; then it has the rate that was
//!           last told. A silent receiver's limiter is halved every 100 ms while octets flow
//!           unanswered.
//! Promises  No limiter above the link or, once it has halved itself, below 1 Mb/s. Limiters are
//!           bounded in number, and given up when idle.
//! Not here  Queues and departure times: the data plane. The uplink: see `division`.
//! Source    EyeQ §3.1, §3.3, §4.2. Departs: a limiter is halved only after 20 kB unanswered, since
//!           feedback comes per 10 kB and a VM that sends little would be stranded.

use super::config::EyeQ;
use super::io::{Counters, Levels, Sent};
use crate::host::{Event, Events, Limited};
use crate::meter::Meter;
use weir_units::{PairId, Rate, SortedMap, SortedSet, Time, VmId};

/// All that is sent from a host.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Sender {
    vms: SortedSet<VmId>,
    pairs: SortedMap<PairId, Sending>,
    pub(super) limits: Levels<PairId, Rate>,
}

/// One destination of a VM.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Sending {
    octets: Meter,
    active_at: Time,
    limiter: Option<Limiter>,
}

/// What the receiver allows.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Limiter {
    rate: Rate,
    /// When the receiver last spoke, or the limiter was last halved.
    heard_at: Time,
    /// Octets that left since.
    unanswered: u64,
}

impl Limiter {
    /// Halves the rate if the receiver is silent. Says whether it did.
    fn halve_if_silent(&mut self, eyeq: &EyeQ, now: Time) -> bool {
        let is_silent = now.since(self.heard_at) >= eyeq.silence;
        if !is_silent || self.unanswered < eyeq.silent_octets.get() {
            return false;
        }
        self.heard_at = now;
        self.unanswered = 0;
        let least = eyeq.silent_least.min(self.rate);
        let halved = self.rate.split(2).max(least);
        let is_less = halved < self.rate;
        self.rate = halved;
        is_less
    }
}

impl Sending {
    fn new(now: Time) -> Self {
        Self { octets: Meter::default(), active_at: now, limiter: None }
    }

    fn count(&mut self, now: Time, sent: Sent) {
        let octets = self.octets.read(sent.octets);
        if octets > 0 || sent.waiting > 0 {
            self.active_at = now;
        }
        if let Some(limiter) = &mut self.limiter {
            limiter.unanswered = limiter.unanswered.saturating_add(octets);
        }
    }
}

impl Sender {
    /// Sets the VMs. A VM that stays keeps its limiters.
    pub(super) fn set_vms(&mut self, vms: SortedSet<VmId>) {
        self.vms = vms;
        let vms = &self.vms;
        let over = self.pairs.keys().filter(|pair| !vms.contains(&pair.src));
        for pair in over.copied().collect::<Vec<_>>() {
            self.forget(pair);
        }
    }

    /// Forgets the pairs to VMs that left, or whose number another VM has now.
    pub(super) fn keep_pairs(&mut self, stays: impl Fn(VmId) -> bool) {
        let over = self.pairs.keys().filter(|pair| !stays(pair.dst));
        for pair in over.copied().collect::<Vec<_>>() {
            self.forget(pair);
        }
    }

    pub(super) fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    pub(super) fn count(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        pair: PairId,
        sent: Sent,
        counters: &mut Counters,
    ) {
        if !self.vms.contains(&pair.src) {
            counters.unknown_pairs += 1;
            return;
        }
        if !self.pairs.contains_key(&pair) {
            if self.peers_of(pair.src) >= eyeq.peers_most {
                counters.refused_peers += 1;
                return;
            }
            self.pairs.insert(pair, Sending::new(now));
        }
        if let Some(sending) = self.pairs.get_mut(&pair) {
            sending.count(now, sent);
        }
    }

    fn peers_of(&self, vm: VmId) -> usize {
        self.pairs.range(PairId::new(vm, VmId(0))..=PairId::new(vm, VmId(u32::MAX))).count()
    }

    /// The receiver's word, already checked. `None` if nothing is sent there.
    pub(super) fn feedback(
        &mut self,
        now: Time,
        pair: PairId,
        rate: Rate,
        events: &mut Events,
    ) -> Option<()> {
        let sending = self.pairs.get_mut(&pair)?;
        let limiter = Limiter { rate, heard_at: now, unanswered: 0 };
        if sending.limiter.replace(limiter).is_none() {
            events.tell(Event::Limit(pair, rate, Limited::First));
        }
        self.limits.set(pair, rate);
        Some(())
    }

    /// One period: silent receivers, and idle limiters.
    pub(super) fn step(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        counters: &mut Counters,
        events: &mut Events,
    ) {
        let mut idle = Vec::new();
        for (pair, sending) in &mut self.pairs {
            if let Some(limiter) = &mut sending.limiter
                && limiter.halve_if_silent(eyeq, now)
            {
                counters.halved += 1;
                self.limits.set(*pair, limiter.rate);
                events.tell(Event::Limit(*pair, limiter.rate, Limited::Halved));
            }
            if now.since(sending.active_at) >= eyeq.limiter_idle {
                idle.push(*pair);
            }
        }
        for pair in idle {
            self.forget(pair);
        }
    }

    fn forget(&mut self, pair: PairId) {
        self.pairs.remove(&pair);
        self.limits.remove(pair);
    }
}
