//! One host's machine: the same inputs, outputs and rules of driving for every mechanism.
//!
//! Problem   A host's agent, the simulator and the fluid world drive each mechanism. If each of them wraps each
//!           mechanism in its own way, what was measured is not what runs.
//! Approach  One machine around one mechanism ([`crate::mechanism`]). It is told a [`Policy`], what the data plane
//!           [`Observed`], and messages; it wants [`Orders`]. What a data plane can do is a value
//!           ([`Capabilities`]).
//! Promises  Pure: the same state, `now` and input give the same orders and messages. Orders are levels in tables,
//!           never lost; messages go through a bounded outbox. A policy is taken whole or refused.
//!           No input in any order panics.
//! Not here  Clocks, sockets, counters: a driver brings them (`weir-agent`, `weir-sim`, `weir-fluid`).
//!
//! # How to drive it
//!
//! | when | call |
//! | --- | --- |
//! | a pair's first packet passes | `handle(now, Input::Seen(…))` |
//! | at a restart | `handle(now, Input::Adopt(…))` and `Input::Found(…)` for what is there |
//! | a message arrives, authenticated | `handle(now, Input::Message(…))` |
//! | VMs come, go or move, or hoses change | `handle(now, Input::Policy(…))` |
//! | a peer has a new life | `handle(now, Input::PeerRestarted(…))`, before its messages |
//! | [`HostMachine::next_deadline`] has come | `handle(now, Input::Observed(…))` with at least what [`HostMachine::wants`] and [`HostMachine::limits_wanted`], then `handle(now, Input::Tick)` |
//! | after a batch of these | write the changes of [`HostMachine::orders`], send what is in the [`Outbox`] |

mod events;
mod greet;
mod hoses;
mod io;
mod orders;
mod policy;
mod strays;
mod tags;
mod turns;
mod windows;

pub use crate::outbox::Outbox;
pub use events::{Event, Events, Limited};
pub use hoses::{HoseKey, Ties, shared};
pub use io::{
    Counters, Direction, Given, Input, Metered, Observed, Part, ReceiveCount, SendCount, Timed,
    Told, Wanted, Why,
};
pub use orders::{Levels, Orders, Pairs, Receive, Setting};
pub use policy::{Bounds, Capabilities, Class, Hose, Location, Policy, Version};
pub use strays::Brake;
pub use tags::Tag;
pub use turns::{Call, HEARTBEAT, Happening, HostLoop, Outcome, UNWRITTEN, Work};
pub use windows::WindowShares;

use crate::mechanism::{Mechanism, PairView, Refusal, elasticswitch, eyeq};
use serde::{Deserialize, Serialize};
use weir_units::{PairId, SortedMap, TenantId, Time};
use windows::Windows;

/// One host's machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostMachine {
    mechanism: Mechanism,
    windows: Windows,
    free: tags::Free,
    /// The versions of tenants in force.
    tenants: SortedMap<TenantId, Version>,
    refused_policies: u64,
}

impl HostMachine {
    /// A machine that starts at `now`, without pairs.
    ///
    /// # Errors
    /// The mechanism cannot keep what the policy promises, with what would be right.
    pub fn new(policy: Policy, now: Time) -> Result<Self, Refusal> {
        let (tenants, windows) = (policy.tenants.clone(), Windows::of(&policy)?);
        let (tagged, free) = (tags::here(&policy), tags::Free::of(&policy));
        let mut mechanism = Mechanism::new(policy, now)?;
        tags::order(tagged, &mut mechanism.undivided().tags);
        Ok(Self { mechanism, windows, free, tenants, refused_policies: 0 })
    }

    /// The only way in. Pure: same state, `now` and `input` give the same actions.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox) {
        match input {
            Input::Policy(next) => return self.take_policy(now, next, out),
            Input::Observed(observed) if !observed.connections.is_empty() => {
                let levels = &mut self.mechanism.undivided().windows;
                self.windows.recount(&observed.connections, levels);
            }
            _ => {}
        }
        self.mechanism.handle(now, input, out);
    }

    fn take_policy(&mut self, now: Time, next: &Policy, out: &mut Outbox) {
        let windows = match Windows::of(next) {
            Ok(windows) if !is_older(&next.tenants, &self.tenants) => windows,
            _ => {
                self.refused_policies += 1;
                return;
            }
        };
        let refused = self.mechanism.counters().refused_policies;
        self.mechanism.handle(now, Input::Policy(next), out);
        if self.mechanism.counters().refused_policies > refused {
            return;
        }
        self.tenants.clone_from(&next.tenants);
        let orders = self.mechanism.undivided();
        tags::order(tags::here(next), &mut orders.tags);
        let free = tags::Free::of(next);
        free.take_over(&self.free, &mut orders.pairs);
        self.free = free;
        let former = std::mem::take(&mut self.windows);
        self.windows = windows.take_over(former, &mut self.mechanism.undivided().windows);
    }

    /// When to call again with [`Input::Tick`], and why; `None` while there is nothing to wait for.
    pub fn next_deadline(&self) -> Option<(Time, Why)> {
        self.mechanism.next_deadline()
    }

    /// The counters without which the [`Input::Tick`] at `now` would go by old ones.
    pub fn wants(&self, now: Time) -> Wanted {
        self.mechanism.wants(now)
    }

    /// Pairs whose limits are to be read with the counters, where the data plane hears them by itself.
    pub fn limits_wanted(&self) -> Vec<PairId> {
        self.eyeq().map_or_else(Vec::new, eyeq::Host::limits_wanted)
    }

    /// What the data plane should have, after all that was handled up to `now`.
    pub fn orders(&mut self, now: Time) -> &mut Orders {
        self.mechanism.orders(now)
    }

    /// What the machine counted about itself.
    pub fn counters(&self) -> Counters {
        let counters = self.mechanism.counters();
        let refused_policies = counters.refused_policies + self.refused_policies;
        Counters { refused_policies, ..counters }
    }

    /// All active pairs, in the order of their ids.
    pub fn pairs(&mut self, now: Time) -> Vec<PairView> {
        self.mechanism.pairs(now)
    }

    /// One pair, if it is active here.
    pub fn pair(&mut self, now: Time, pair: PairId) -> Option<PairView> {
        self.mechanism.pair(now, pair)
    }

    /// How many pairs it knows: of those whose source is here, and of those whose destination is.
    pub fn known(&self) -> (usize, usize) {
        self.mechanism.known()
    }

    /// ElasticSwitch's machine, if that decides, at least about floors.
    pub fn elasticswitch(&self) -> Option<&elasticswitch::Machine> {
        match &self.mechanism {
            Mechanism::ElasticSwitch(machine) => Some(machine),
            Mechanism::Level(machine) => Some(machine.partitioning()),
            _ => None,
        }
    }

    /// EyeQ's machine, if that decides.
    pub fn eyeq(&self) -> Option<&eyeq::Host> {
        match &self.mechanism {
            Mechanism::EyeQ(host) => Some(host),
            _ => None,
        }
    }
}

/// Whether a tenant's version in `next` is older than in `now`. One that is not listed has version 0.
fn is_older(next: &SortedMap<TenantId, Version>, now: &SortedMap<TenantId, Version>) -> bool {
    now.iter().any(|(tenant, version)| next.get(tenant).copied().unwrap_or_default() < *version)
}
