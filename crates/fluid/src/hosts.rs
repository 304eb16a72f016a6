//! The hosts of a world: real machines in their loops, each with a clock of its own, and their messages.
//!
//! Problem   What was fitted here has to be what runs: the order of calls is the agent's and the simulator's.
//! Approach  One [`HostLoop`] per host. A call is followed by its work: messages take time and can be lost, the rest is the
//!           world's to carry out.
//! Promises  Same seed, same phases, same losses.

use crate::random::next;
use std::collections::BTreeMap;
use weir_core::host::{Call, Given, HostLoop, Observed, Policy, Work};
use weir_core::message::Message;
use weir_units::{HostId, Span, Time};

pub(crate) struct Hosts {
    loops: Vec<HostLoop>,
    /// All clocks have the same pace, and another origin each.
    phases: Vec<Span>,
    /// Messages on their way, in the order in which they arrive.
    wire: BTreeMap<(Time, u64), (HostId, HostId, Message)>,
    delay: Span,
    loss: f64,
    random: u64,
    /// Messages that were sent.
    pub(crate) messages: u64,
}

impl Hosts {
    /// Hosts with these policies, whose clocks are up to `period` ahead of the world's.
    ///
    /// # Panics
    /// A policy is refused.
    pub(crate) fn new(
        policies: impl Iterator<Item = Policy>,
        (seed, period): (u64, Span),
        (delay, loss): (Span, f64),
    ) -> Self {
        let mut random = seed.max(1);
        let refused = |error| panic!("a world has a policy that is refused: {error}");
        let host = |policy| HostLoop::new(policy, Time::ZERO).unwrap_or_else(refused);
        let loops: Vec<HostLoop> = policies.map(host).collect();
        let mut phase = || Span::from_nanos(next(&mut random) % period.as_nanos());
        let phases = loops.iter().map(|_| phase()).collect();
        Self { loops, phases, wire: BTreeMap::new(), delay, loss, random, messages: 0 }
    }

    pub(crate) const fn count(&self) -> usize {
        self.loops.len()
    }

    /// A host, to look at, and its time.
    pub(crate) fn at(&mut self, now: Time, host: usize) -> (&mut HostLoop, Time) {
        (&mut self.loops[host], now + self.phases[host])
    }

    /// Makes a call, posts the messages that follow, and gives out what else is to be done.
    pub(crate) fn call(&mut self, now: Time, host: usize, call: Call<'_>) -> Work {
        let local = now + self.phases[host];
        self.loops[host].handle(local, call);
        self.work(now, host)
    }

    fn work(&mut self, now: Time, host: usize) -> Work {
        let mut work = self.loops[host].work(now + self.phases[host]);
        let from = HostId(u32::try_from(host).expect("few hosts"));
        for (to, message) in std::mem::take(&mut work.messages) {
            self.messages += 1;
            if (next(&mut self.random) % 1_000_000) as f64 >= self.loss * 1e6 {
                self.wire.insert((now + self.delay, self.messages), (from, to, message));
            }
        }
        work
    }

    /// The next message that has arrived by `now`, handed over: the host, and what it wants then.
    pub(crate) fn hear(&mut self, now: Time) -> Option<(usize, Work)> {
        let entry = self.wire.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (from, to, message) = entry.remove();
        let host = to.0 as usize;
        Some((host, self.call(now, host, Call::Input(Given::Message(from, message)))))
    }

    /// The turn of a host that is due by its own clock, with what was counted there.
    pub(crate) fn turn(
        &mut self,
        now: Time,
        host: usize,
        counted: impl FnOnce() -> Observed,
    ) -> Option<Work> {
        let local = now + self.phases[host];
        self.loops[host].due(local)?;
        self.loops[host].handle(local, Call::Input(Given::Observed(&counted())));
        self.loops[host].handle(local, Call::Input(Given::Tick));
        Some(self.work(now, host))
    }
}
