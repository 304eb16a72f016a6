//! What decides on this host: one face for the driver, whatever the law.
//!
//! Problem   ElasticSwitch decides pair by pair in the agent; EyeQ meters and tells in the kernel, and the agent
//!           has the rest. The driver's loop shall not care.
//! Approach  Both are told the same ([`Input`]) and want the same done ([`Desired`]). What only EyeQ has
//!           goes by [`Machine::eyeq`].
//! Not here  Clocks, sockets, the kernel: the driver's.

mod eyeq;

pub(crate) use eyeq::{EyeQ, ReceiveView, SendView, View};

use crate::config::{Names, Setup};
use crate::explain;
use weir_core::eyeq::Refusal;
use weir_core::host::{Desired, HostAgent, HostConfig, Input, Outbox, Wanted};
use weir_model::status::{Explain, Meter, Pair};
use weir_units::{PairId, Time};

/// The law in force, and its state.
#[derive(Debug)]
pub(crate) enum Machine {
    /// ElasticSwitch, Seawall, reservations: pairs decide.
    Pairs(Box<HostAgent>),
    /// EyeQ: receivers decide.
    EyeQ(Box<EyeQ>),
}

impl Machine {
    /// What `setup` names, with the VMs of `host`.
    ///
    /// # Errors
    ///
    /// EyeQ refuses what it is to promise.
    pub(crate) fn new(setup: &Setup, host: HostConfig, now: Time) -> Result<Self, Refusal> {
        Ok(match &setup.eyeq {
            None => Self::Pairs(Box::new(HostAgent::new(host, now))),
            Some(law) => {
                let other = setup.default_rate();
                Self::EyeQ(Box::new(EyeQ::new(law.config(&host), other, now)?))
            }
        })
    }

    /// The only way in.
    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox) {
        match self {
            Self::Pairs(agent) => agent.handle(now, input, out),
            Self::EyeQ(eyeq) => eyeq.handle(now, input),
        }
    }

    /// When it wants its counters and then [`Input::Tick`].
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Self::Pairs(agent) => agent.next_deadline().map(|(at, _)| at),
            Self::EyeQ(eyeq) => eyeq.next_deadline(),
        }
    }

    /// Which counters.
    pub(crate) fn wants(&self, now: Time) -> Wanted {
        match self {
            Self::Pairs(agent) => agent.wants(now),
            // Who receives is metered by the VM.
            Self::EyeQ(_) => Wanted { send: true, receive: false },
        }
    }

    /// The levels that pairs should have.
    pub(crate) fn desired(&mut self, now: Time) -> &mut Desired {
        match self {
            Self::Pairs(agent) => agent.desired(now),
            Self::EyeQ(eyeq) => eyeq.desired(),
        }
    }

    /// All that was written may be gone: all is to be written again.
    pub(crate) fn write_again(&mut self, now: Time) {
        let desired = self.desired(now);
        let all: Vec<PairId> = desired.iter().map(|(pair, _)| pair).collect();
        desired.retry(all);
        if let Self::EyeQ(eyeq) = self {
            eyeq.write_shares_again();
        }
    }

    /// EyeQ, if that decides.
    pub(crate) fn eyeq(&mut self) -> Option<&mut EyeQ> {
        match self {
            Self::Pairs(_) => None,
            Self::EyeQ(eyeq) => Some(eyeq),
        }
    }

    /// All active pairs, for people.
    pub(crate) fn rows(&mut self, now: Time, names: &Names) -> Vec<Pair> {
        match self {
            Self::Pairs(agent) => {
                agent.pairs(now).iter().map(|view| explain::row(view, names)).collect()
            }
            Self::EyeQ(eyeq) => {
                eyeq.views().iter().map(|view| explain::eyeq::row(view, names)).collect()
            }
        }
    }

    /// What VMs may receive, for people.
    pub(crate) fn meters(&self, names: &Names) -> Vec<Meter> {
        match self {
            Self::Pairs(_) => Vec::new(),
            Self::EyeQ(eyeq) => eyeq.meters(names),
        }
    }

    /// Why a pair has its rate, if it is active here.
    pub(crate) fn explain(
        &mut self,
        pair: PairId,
        names: &Names,
        facts: &explain::Facts,
    ) -> Option<Explain> {
        match self {
            Self::Pairs(agent) => {
                agent.pair(facts.now, pair).map(|view| explain::explain(&view, names, facts))
            }
            Self::EyeQ(eyeq) => {
                eyeq.view(pair).map(|view| explain::eyeq::explain(&view, names, facts))
            }
        }
    }

    /// What it counted about itself.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Pairs(agent) => {
                let a = agent.counters();
                vec![
                    ("agent.messages", a.messages),
                    ("agent.misdirected", a.misdirected),
                    ("agent.strayed", a.strayed),
                    ("agent.refused_pairs", a.refused_pairs),
                    ("agent.unknown_pairs", a.unknown_pairs),
                ]
            }
            Self::EyeQ(eyeq) => eyeq.counters(),
        }
    }
}
