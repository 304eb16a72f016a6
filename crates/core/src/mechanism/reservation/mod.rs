//! Static rates for a known traffic matrix; nothing is borrowed. The papers' idealized baseline.
//!
//! Promises  A pair that was foreseen has its rate from its first packet on, and no other. Pairs
//!           are bounded in number, and forgotten when idle.
//! Source    ElasticSwitch §7.1 ("Oktopus-like reservation").

use crate::host::{
    Counters, Direction, Event, Input, Location, Observed, Orders, Policy, SendCount, Setting, Why,
};
use crate::mechanism::constants::{Entry, Take};
use crate::mechanism::explain::{Facts, Side, Summary};
use crate::meter::Meter;
use serde::{Deserialize, Serialize};
use weir_units::{PairId, Rate, SortedMap, Span, Time, VmId};

/// Pairs that a host reserves at most.
const MOST: usize = 4096;
/// How often idle pairs are looked for.
const HOUSEKEEPING: Span = Span::from_millis(500);
/// A pair that sent nothing for so long is forgotten.
const IDLE: Span = Span::from_secs(10);

/// What is reserved.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Reservation {
    /// The rate of each pair that was foreseen.
    pub rates: SortedMap<PairId, Rate>,
    /// The rate of every other pair.
    pub other: Rate,
}

impl Reservation {
    /// Default rate of a pair that was not foreseen: 1 Mb/s, `factor` times that in a world of that
    /// scale, and no more than a hundredth of the uplink.
    pub fn usual_other(factor: f64, line: Rate) -> Rate {
        Rate::from_mbps(1).scale(factor).min(line.split(100))
    }

    /// What all pairs of a VM are given together, without `other`.
    pub fn of(&self, vm: VmId) -> Rate {
        self.rates.iter().filter(|(pair, _)| pair.src == vm).map(|(_, rate)| *rate).sum()
    }
}

/// What is reserved, before the host's line is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    /// The scale of the world's rates.
    pub factor: f64,
    /// The rate of every other pair, if it is set.
    pub other: Option<Rate>,
    /// The rate of each pair that was foreseen.
    pub rates: SortedMap<PairId, Rate>,
}

impl Draft {
    /// All constants that can be set by name.
    pub const CONSTANTS: &[Entry<Self>] = &[Entry {
        name: "default_floor",
        take: Take::Rate(|draft, rate| draft.other = Some(rate)),
    }];

    /// At scale 1, with nothing reserved.
    pub(super) const fn new() -> Self {
        Self { factor: 1.0, other: None, rates: SortedMap::new() }
    }
}

impl PairView {
    pub(super) fn summary(&self) -> Summary {
        Summary {
            side: Side::Send,
            floor: self.setting.floor,
            rate: self.setting.ceiling,
            phase: if self.is_foreseen { "reserved" } else { "unforeseen" }.into(),
            ..Summary::default()
        }
    }

    pub(super) fn reasons(&self, facts: &Facts) -> Vec<String> {
        let Setting { floor, ceiling } = self.setting;
        let mut reasons = vec![if self.is_foreseen {
            format!("The reservation gives this pair {floor}, and nothing is borrowed.")
        } else {
            format!(
                "The reservation does not name this pair: it has no floor and may send {ceiling}."
            )
        }];
        facts.in_force(self.setting, &mut reasons);
        reasons
    }
}

/// A host that keeps to it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    law: Reservation,
    directory: SortedMap<VmId, Location>,
    pairs: SortedMap<PairId, Sending>,
    orders: Orders,
    look_at: Time,
    counters: Counters,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sending {
    octets: Meter,
    active_at: Time,
}

/// One pair, for people.
#[derive(Clone, Copy, Debug)]
pub struct PairView {
    /// Which pair.
    pub pair: PairId,
    /// What the data plane should have.
    pub setting: Setting,
    /// Whether the reservation names it.
    pub is_foreseen: bool,
}

impl Machine {
    pub(crate) fn new(policy: Policy, law: Reservation, now: Time) -> Self {
        let (pairs, orders) = (SortedMap::new(), Orders::default());
        let directory = policy.directory;
        Self { law, directory, pairs, orders, look_at: now, counters: Counters::default() }
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Seen(pair, Direction::Send) => self.see(now, pair),
            Input::Observed(observed) => self.observe(now, observed),
            Input::Policy(policy) => self.follow(policy),
            Input::Tick if self.look_at <= now => {
                self.look_at = now + HOUSEKEEPING;
                self.forget_idle(now);
            }
            Input::Message(..) => self.counters.misdirected += 1,
            // Whatever an earlier life left, rates are those of the file.
            Input::Seen(..) | Input::Adopt(..) | Input::Found(..) => {}
            Input::PeerRestarted(_) | Input::Tick => {}
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<(Time, Why)> {
        (!self.pairs.is_empty()).then_some((self.look_at, Why::Idle))
    }

    pub(crate) fn orders(&mut self) -> &mut Orders {
        &mut self.orders
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = PairView> + '_ {
        self.pairs.keys().filter_map(|pair| self.pair(*pair))
    }

    pub(crate) fn pair(&self, pair: PairId) -> Option<PairView> {
        let setting = self.orders.pairs.get(pair)?;
        Some(PairView { pair, setting, is_foreseen: self.law.rates.contains_key(&pair) })
    }

    fn see(&mut self, now: Time, pair: PairId) {
        if self.pairs.contains_key(&pair) {
            return;
        }
        if self.pairs.len() >= MOST {
            self.counters.refused_pairs += 1;
            return;
        }
        let setting = match self.law.rates.get(&pair) {
            Some(rate) => Setting { floor: *rate, ceiling: *rate },
            None => Setting { floor: Rate::ZERO, ceiling: self.law.other },
        };
        self.pairs.insert(pair, Sending { octets: Meter::default(), active_at: now });
        self.orders.pairs.set(pair, setting);
        self.orders.events.tell(Event::Began(pair, Direction::Send));
    }

    fn observe(&mut self, now: Time, observed: &Observed) {
        for (pair, SendCount { octets, .. }) in &observed.send {
            self.see(now, *pair);
            if let Some(sending) = self.pairs.get_mut(pair)
                && sending.octets.read(*octets) > 0
            {
                sending.active_at = now;
            }
        }
    }

    /// Pairs of VMs that left, or that are others by now, are over.
    fn follow(&mut self, policy: &Policy) {
        let before = std::mem::replace(&mut self.directory, policy.directory.clone());
        let is_same = |vm: VmId| self.directory.get(&vm) == before.get(&vm);
        let stays =
            |pair: PairId| policy.is_here(pair.src) && is_same(pair.src) && is_same(pair.dst);
        let over: Vec<PairId> = self.pairs.keys().copied().filter(|pair| !stays(*pair)).collect();
        self.forget(&over);
    }

    fn forget_idle(&mut self, now: Time) {
        let idle = self.pairs.iter().filter(|(_, s)| now.since(s.active_at) > IDLE);
        let idle: Vec<PairId> = idle.map(|(pair, _)| *pair).collect();
        self.forget(&idle);
    }

    fn forget(&mut self, pairs: &[PairId]) {
        for pair in pairs {
            self.pairs.remove(pair);
            self.orders.forget(*pair, Direction::Send);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{HostMachine, Outbox};
    use crate::mechanism::Law;
    use weir_units::HostId;

    #[test]
    fn a_reservation_is_static_and_borrows_nothing() {
        let mbps = Rate::from_mbps;
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let (foreseen, other) = (PairId::new(VmId(0), VmId(1)), PairId::new(VmId(0), VmId(2)));
        let rates = SortedMap::from([(foreseen, mbps(450))]);
        let law = Law::Reservation(Reservation { rates, other: mbps(1) });
        let policy = Policy::new(HostId(0), mbps(1000), law);
        let mut machine = HostMachine::new(policy, ms(0)).expect("nothing speaks against it");
        let mut out = Outbox::default();
        machine.handle(ms(0), Input::Seen(foreseen, Direction::Send), &mut out);
        machine.handle(ms(0), Input::Seen(other, Direction::Send), &mut out);
        for i in 0..100 {
            machine.handle(ms(i * 5), Input::Tick, &mut out);
        }
        let reserved = Setting { floor: mbps(450), ceiling: mbps(450) };
        assert_eq!(machine.orders(ms(500)).pairs.get(foreseen), Some(reserved));
        let unforeseen = Setting { floor: Rate::ZERO, ceiling: mbps(1) };
        let pairs = &machine.orders(ms(500)).pairs;
        assert_eq!(pairs.get(other), Some(unforeseen), "it takes no floor");
        assert!(out.is_empty());
        machine.handle(ms(20_000), Input::Tick, &mut out);
        assert_eq!(machine.orders(ms(20_000)).pairs.iter().count(), 0, "idle ones are forgotten");
        assert_eq!(machine.next_deadline(), None);
    }
}
