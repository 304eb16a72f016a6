//! EyeQ: receivers meter what arrives and tell senders at which rate they may go on.
//!
//! Problem   A VM's minimum on its host's link, in and out, must hold within milliseconds, whatever others send
//!           and whether they heed losses. Rates that are probed for, as ElasticSwitch does, need longer.
//! Approach  Where the network's core is not congested, all contention is for the links of the hosts. The
//!           receiving host sees its own: it computes one rate per VM and sends it back (`receiver`); the
//!           sending host keeps to it per destination and shares its own link by floors (`sender`).
//! Promises  What a host advertises for a VM is never above what the VM may have, nor that above the link less
//!           headroom. Limits are levels in tables, never lost; messages go through a bounded outbox. What is
//!           forged, misdirected or impossible is dropped and counted. No input in any order panics. A configuration that
//!           would oscillate, or that promises more than the link, is refused with the reason ([`Refusal`]).
//! Not here  Congestion in the core is met by marks only, and then without floors (EyeQ §3.4). The data plane.
//!           Trust: messages are authenticated before they come here.
//! Source    EyeQ §2 to §4. What the paper leaves open: docs/algorithms/eyeq.md.
//!
//! # How to drive it
//!
//! | when | call |
//! | --- | --- |
//! | a message arrives, authenticated | `handle(now, Input::Feedback(…))` |
//! | VMs come, go or move, or their bounds change | `handle(now, Input::Population(…))` |
//! | [`Host::next_deadline`] has come, or there is none and traffic began | `handle(now, Input::Sample(…))`, then `handle(now, Input::Tick)` |
//! | after a batch of these | write the changes of [`Host::limits`] and [`Host::roots`], send what is in the [`Outbox`] |
//!
//! Where the data plane meters and tells by itself, counters of received octets are not given: it runs
//! [`RateMeter`] packet by packet, and the agent gives it what [`Shares`] says. The receiver module here
//! runs the same two.
//!
//! What passes within one host crosses no link: it is neither metered nor limited.

mod admission;
mod config;
mod constant;
mod division;
mod io;
mod law;
mod newcomers;
mod rate_meter;
mod receiver;
mod refusal;
mod scheduler;
mod sender;
mod shares;
mod stability;

pub use admission::{Link, Rack, TooMuch, admit};
pub use config::{Backend, Capacity, Ecn, EyeQ, Outer};
pub use constant::{Constant, Tuned};
pub use division::Division;
pub use io::{
    Bounds, Class, Counters, Feedback, Input, Levels, Limit, MeterView, Root, Sample, Sent,
    Verdict, VmBounds, Why,
};
pub use law::{
    ELAPSED_MOST_NS, LOAD_MOST, ONE, RATE_LEAST, RATE_MOST, RcpInput, RcpOutput, rcp_step,
};
pub use rate_meter::{Asked, Heeder, IDLE_PERIODS, MeterRules, MeterShare, Packets, RateMeter};
pub use refusal::Refusal;
pub use shares::{Metered, Part, Shares};
pub use stability::{Loop, bound};

use crate::host::Location;
use crate::outbox::Outbox;
use receiver::Receiver;
use sender::Sender;
use std::collections::BTreeMap;
use weir_units::{HostId, PairId, Rate, Time, VmId};

/// Everything a host knows when it starts.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Which host this is.
    pub host: HostId,
    /// The line rate of its link to the network, each way.
    pub line: Rate,
    /// The fastest such link of the fleet: no receiver can mean a higher rate.
    pub fastest_line: Rate,
    /// The constants.
    pub eyeq: EyeQ,
    /// This host's VMs.
    pub vms: BTreeMap<VmId, VmBounds>,
    /// All VMs of the fleet.
    pub directory: BTreeMap<VmId, Location>,
}

impl HostConfig {
    /// Whether it can be kept.
    ///
    /// # Errors
    /// The first reason why not, with what would be right.
    pub fn check(&self) -> Result<(), Refusal> {
        self.eyeq.check(self.line)?;
        io::check_vms(&self.eyeq, self.line, &self.vms)
    }
}

/// One host: both modules.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    receiver: Receiver,
    sender: Sender,
    /// The last steps of the receiver and of the sender module.
    stepped_at: (Time, Time),
    step_at: Time,
    /// Counters of received, and of sent octets came since the last step: without them nothing is known, and
    /// nothing is computed.
    is_sampled: (bool, bool),
    counters: Counters,
}

impl Host {
    /// A host that starts at `now`, without traffic.
    ///
    /// # Errors
    /// [`HostConfig::check`].
    pub fn new(config: HostConfig, now: Time) -> Result<Self, Refusal> {
        config.check()?;
        let mut host = Self {
            receiver: Receiver::new(now),
            sender: Sender::default(),
            stepped_at: (now, now),
            step_at: now,
            is_sampled: (false, false),
            counters: Counters::default(),
            config,
        };
        host.apply_population(now);
        Ok(host)
    }

    /// The only way in. Pure: same state, `now` and `input` give the same actions.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox<Feedback>) {
        match input {
            Input::Sample(sample) => self.sample(now, sample),
            Input::Feedback(from, feedback) => self.feedback(now, from, feedback),
            Input::Population(config) => self.repopulate(now, config),
            Input::Tick => self.tick(now, out),
        }
    }

    /// When to call again with [`Input::Tick`], and why; `None` while there is no traffic.
    pub fn next_deadline(&self) -> Option<(Time, Why)> {
        if self.receiver.has_sources() {
            Some((self.step_at, Why::Receive))
        } else {
            self.sender.has_pairs().then_some((self.step_at, Why::Send))
        }
    }

    /// Limiters that the data plane should have. A destination that is not here has none.
    pub fn limits(&mut self) -> &mut Levels<PairId, Limit> {
        &mut self.sender.limits
    }

    /// Each VM's part of the uplink.
    pub fn roots(&mut self) -> &mut Levels<VmId, Root> {
        &mut self.sender.roots
    }

    /// What the host counted about itself.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Why the senders to a VM of this host are told what they are told: one row per meter of it.
    pub fn meters(&self, vm: VmId) -> Vec<MeterView> {
        self.receiver.view(vm)
    }

    fn sample(&mut self, now: Time, sample: &Sample) {
        self.is_sampled.0 |= !sample.receive.is_empty();
        self.is_sampled.1 |= !sample.send.is_empty();
        let config = &self.config;
        let at = |vm: VmId| config.directory.get(&vm).copied();
        for (pair, count) in &sample.receive {
            match at(pair.src) {
                Some(at) if at.host == config.host => {}
                Some(at) => {
                    let (eyeq, pair) = (&config.eyeq, (*pair, at));
                    self.receiver.count(eyeq, now, pair, *count, &mut self.counters);
                }
                None => self.counters.unknown_pairs += 1,
            }
        }
        for (pair, sent) in &sample.send {
            match at(pair.dst) {
                Some(at) if at.host == config.host => {}
                Some(_) => {
                    self.sender.count(&config.eyeq, now, *pair, *sent, &mut self.counters);
                }
                None => self.counters.unknown_pairs += 1,
            }
        }
    }

    /// The receiver's word, if it is his to say and can be meant.
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
            match self.sender.feedback(&config.eyeq, now, pair, rate) {
                Some(()) => &mut self.counters.feedback,
                None => &mut self.counters.strayed,
            }
        };
        *counter += 1;
    }

    fn repopulate(&mut self, now: Time, to: &HostConfig) {
        if io::check_vms(&self.config.eyeq, self.config.line, &to.vms).is_err() {
            self.counters.refused_populations += 1;
            return;
        }
        let before = std::mem::replace(&mut self.config.directory, to.directory.clone());
        self.config.vms.clone_from(&to.vms);
        let directory = &self.config.directory;
        self.receiver.keep_sources(directory);
        self.sender.keep_pairs(|vm| directory.get(&vm) == before.get(&vm));
        self.apply_population(now);
    }

    fn apply_population(&mut self, now: Time) {
        let vms = &self.config.vms;
        self.receiver.set_vms(now, vms, &self.config.directory);
        let out = vms.iter().map(|(vm, bounds)| (*vm, bounds.out)).collect();
        self.sender.set_vms(out, self.config.line);
    }

    fn tick(&mut self, now: Time, out: &mut Outbox<Feedback>) {
        if now < self.step_at {
            return;
        }
        let (eyeq, line) = (&self.config.eyeq, self.config.line);
        let (received, sent) = std::mem::take(&mut self.is_sampled);
        if received {
            let elapsed = now.since(self.stepped_at.0);
            self.stepped_at.0 = now;
            for (host, feedback) in self.receiver.step(eyeq, now, line, elapsed) {
                self.counters.written += 1;
                out.push(host, feedback);
            }
        }
        if sent {
            let elapsed = now.since(self.stepped_at.1);
            self.stepped_at.1 = now;
            self.sender.step(eyeq, now, line, elapsed, &mut self.counters);
        }
        // A late driver skips, it does not catch up.
        let missed = now.since(self.step_at).div_span(eyeq.period);
        self.step_at += eyeq.period * (missed + 1);
    }
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod tests;
