//! The sender module: one limiter per congested destination, and a fair part of the uplink per VM.
//!
//! Problem   What a receiver allows must be kept by whatever the VM runs, without slowing what it
//!           sends to others; and the host's own uplink is contended, too.
//! Approach  Leaf: a destination has no limiter until its receiver speaks; then it has the rate
//!           that was last told. A silent receiver's limiter is halved every 100 ms while octets
//!           flow unanswered. Root: each period the uplink is filled max-min, weights ∝ floors,
//!           with what each VM can send; VMs without a floor get what is left.
//! Promises  No limiter above the link or, once it has halved itself, below 1 Mb/s; a VM that is
//!           not met has floor / Σ floors of the uplink at least; best effort takes nothing from
//!           them but a trickle; limiters are bounded in number, and given up when idle.
//! Not here  Queues and departure times: the data plane. It is given sizes that it must keep
//!           ([`Limit`]).
//! Source    EyeQ §3.1, §3.3, §4.2. Departs: a limiter is halved only after 20 kB unanswered, since
//!           feedback comes per 10 kB and a VM that sends little would be stranded; a VM counts at
//!           the root with what its limiters let through, and is not limited there while that is
//!           less than its part.

use super::config::EyeQ;
use super::io::{Bounds, Class, Counters, Levels, Limit, Root, Sent};
use crate::fill::{Claim, fill, fine, whole};
use crate::meter::Meter;
use std::collections::BTreeMap;
use weir_units::{Bytes, PairId, Rate, Span, Time, VmId};

/// The path of a filling with one link.
const UPLINK: &[usize] = &[0];

/// All that is sent from a host.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Sender {
    vms: BTreeMap<VmId, Bounds>,
    pairs: BTreeMap<PairId, Sending>,
    pub(super) limits: Levels<PairId, Limit>,
    pub(super) roots: Levels<VmId, Root>,
}

/// One destination of a VM.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Sending {
    octets: Meter,
    /// Of `octets`, up to the last step.
    stepped: u64,
    waiting: u64,
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
        Self { octets: Meter::default(), stepped: 0, waiting: 0, active_at: now, limiter: None }
    }

    fn count(&mut self, now: Time, sent: Sent) {
        let octets = self.octets.read(sent.octets);
        if octets > 0 || sent.waiting > 0 {
            self.active_at = now;
        }
        self.waiting = sent.waiting;
        if let Some(limiter) = &mut self.limiter {
            limiter.unanswered = limiter.unanswered.saturating_add(octets);
        }
    }

    /// What it can send in the next period: all that its limiter allows while packets wait in it,
    /// else what it sent in the last.
    fn demand(&mut self, elapsed: Span) -> Rate {
        let octets = self.octets.total.wrapping_sub(self.stepped);
        self.stepped = self.octets.total;
        match self.limiter {
            _ if self.waiting == 0 => Rate::of(Bytes::new(octets), elapsed),
            Some(limiter) => limiter.rate,
            None => Rate::MAX,
        }
    }
}

impl Sender {
    /// Sets the VMs and their bounds. A VM that stays keeps its limiters.
    pub(super) fn set_vms(&mut self, vms: BTreeMap<VmId, Bounds>, line: Rate) {
        let gone: Vec<VmId> = self.vms.keys().filter(|vm| !vms.contains_key(vm)).copied().collect();
        for vm in gone {
            self.roots.remove(vm);
        }
        self.vms = vms;
        let vms = &self.vms;
        let over = self.pairs.keys().filter(|pair| !vms.contains_key(&pair.src));
        for pair in over.copied().collect::<Vec<_>>() {
            self.forget(pair);
        }
        for (vm, bounds) in &self.vms {
            self.roots.set(*vm, root(*bounds, line, None));
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
        if !self.vms.contains_key(&pair.src) {
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
        eyeq: &EyeQ,
        now: Time,
        pair: PairId,
        rate: Rate,
    ) -> Option<()> {
        let sending = self.pairs.get_mut(&pair)?;
        sending.limiter = Some(Limiter { rate, heard_at: now, unanswered: 0 });
        self.limits.set(pair, Limit::new(eyeq, rate));
        Some(())
    }

    /// One period: silent receivers, idle limiters, and the uplink.
    pub(super) fn step(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        line: Rate,
        elapsed: Span,
        counters: &mut Counters,
    ) {
        let mut demands: BTreeMap<VmId, Rate> = BTreeMap::new();
        let mut idle = Vec::new();
        for (pair, sending) in &mut self.pairs {
            if let Some(limiter) = &mut sending.limiter
                && limiter.halve_if_silent(eyeq, now)
            {
                counters.halved += 1;
                self.limits.set(*pair, Limit::new(eyeq, limiter.rate));
            }
            *demands.entry(pair.src).or_default() += sending.demand(elapsed);
            if now.since(sending.active_at) >= eyeq.limiter_idle {
                idle.push(*pair);
            }
        }
        for pair in idle {
            self.forget(pair);
        }
        let trickle = eyeq.silent_least;
        for (vm, level) in share(&self.vms, &demands, line, trickle) {
            self.roots.set(vm, level);
        }
    }

    fn forget(&mut self, pair: PairId) {
        self.pairs.remove(&pair);
        self.limits.remove(pair);
    }
}

/// Fills the uplink with what the VMs can send: first those with a floor, in proportion to it,
/// then, with what they leave, the others, equally.
fn share(
    vms: &BTreeMap<VmId, Bounds>,
    demands: &BTreeMap<VmId, Rate>,
    line: Rate,
    trickle: Rate,
) -> Vec<(VmId, Root)> {
    let mut room = [fine(line.as_bps())];
    let mut levels = Vec::with_capacity(vms.len());
    for class in [Class::Guaranteed, Class::BestEffort] {
        let of_class: Vec<(&VmId, &Bounds)> =
            vms.iter().filter(|(_, bounds)| bounds.class() == class).collect();
        let demand = |vm: &VmId, bounds: &Bounds| {
            let wanted = demands.get(vm).copied().unwrap_or_default();
            wanted.min(bounds.most).min(line)
        };
        let claims: Vec<Claim<'_>> = of_class
            .iter()
            .map(|(vm, bounds)| Claim {
                weight: bounds.floor.as_bps().max(1),
                demand: Some(demand(vm, bounds).as_bps()),
                path: UPLINK,
            })
            .collect();
        let grants = fill(&mut room, &claims);
        for ((vm, bounds), grant) in of_class.into_iter().zip(grants) {
            let share = Rate::from_bps(whole(grant.rate));
            let is_met = share >= demand(vm, bounds);
            let unmet = (!is_met).then(|| match class {
                Class::Guaranteed => share,
                Class::BestEffort => share.max(trickle),
            });
            levels.push((*vm, root(*bounds, line, unmet)));
        }
    }
    levels
}

/// The level of a VM that gets all it asks for, or only so much.
fn root(bounds: Bounds, line: Rate, unmet: Option<Rate>) -> Root {
    let most = bounds.most.min(line);
    Root {
        floor: bounds.floor,
        rate: unmet.map_or(most, |share| share.min(most)),
        class: bounds.class(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: Rate = Rate::from_mbps(10_000);
    const TRICKLE: Rate = Rate::from_mbps(1);

    fn mbps(m: u64) -> Rate {
        Rate::from_mbps(m)
    }

    /// (floor, maximum, demand) of each VM, in Mb/s.
    fn shares(vms: &[(u64, u64, u64)]) -> Vec<Rate> {
        let id = |i: usize| VmId(u32::try_from(i).unwrap());
        let bounds = |floor, most| Bounds { floor: mbps(floor), most: mbps(most) };
        let all = vms.iter().enumerate().map(|(i, (f, m, _))| (id(i), bounds(*f, *m))).collect();
        let demands = vms.iter().enumerate().map(|(i, (_, _, d))| (id(i), mbps(*d))).collect();
        let mut levels = share(&all, &demands, LINE, TRICKLE);
        levels.sort_by_key(|(vm, _)| *vm);
        levels.into_iter().map(|(_, root)| root.rate).collect()
    }

    const ALL: u64 = 1_000_000;

    #[test]
    fn who_is_not_met_shares_by_floors_and_who_is_met_is_not_limited() {
        assert_eq!(shares(&[(2_000, ALL, ALL), (6_000, ALL, ALL)]), [2_500, 7_500].map(mbps));
        assert_eq!(shares(&[(2_000, ALL, ALL), (6_000, ALL, 100)]), [9_900, 10_000].map(mbps));
    }

    #[test]
    fn a_maximum_is_kept_and_its_rest_is_the_others() {
        assert_eq!(shares(&[(2_000, ALL, ALL), (6_000, 3_000, ALL)]), [7_000, 3_000].map(mbps));
        assert_eq!(shares(&[(2_000, 3_000, ALL)]), [mbps(3_000)], "alone, too");
    }

    #[test]
    fn best_effort_has_all_that_is_spare_and_takes_nothing_from_floors() {
        let floors = [(2_000, ALL, ALL), (6_000, ALL, ALL)];
        let with = shares(&[floors[0], floors[1], (0, ALL, ALL)]);
        assert_eq!(with, [mbps(2_500), mbps(7_500), TRICKLE]);
        let got = shares(&[(2_000, ALL, 4_000), (0, ALL, ALL), (0, ALL, ALL)]);
        assert_eq!(got[1..], [3_000, 3_000].map(mbps));
    }

    proptest! {
        #[test]
        fn the_uplink_is_never_given_twice_and_nobody_waits_while_it_has_room(
            vms in prop::collection::vec((0u64..2_000, 1u64..20_000, 0u64..20_000), 1..8),
        ) {
            let vms: Vec<_> = vms.into_iter().map(|(f, m, d)| (f, m.max(f), d)).collect();
            let got = shares(&vms);
            let line = LINE.as_bps();
            let wants: Vec<u64> =
                vms.iter().map(|(_, m, d)| mbps(*d.min(m)).as_bps().min(line)).collect();
            let takes: Vec<u64> =
                got.iter().zip(&wants).map(|(rate, want)| rate.as_bps().min(*want)).collect();
            let floors: u64 = vms.iter().map(|(f, _, _)| f).sum();
            let best_effort = vms.iter().filter(|(f, _, _)| *f == 0).count() as u64;
            let sum: u64 = takes.iter().sum();
            prop_assert!(sum <= line + best_effort * TRICKLE.as_bps(), "{sum}");
            let all_met = takes == wants;
            prop_assert!(all_met || sum + 8 >= line, "{sum} while somebody waits");
            for (((floor, most, _), take), want) in vms.iter().zip(&takes).zip(&wants) {
                let owed = mbps(*floor).as_bps().min(*want);
                if floors <= 10_000 {
                    prop_assert!(*take >= owed, "{take} of a floor of {floor} Mb/s");
                }
                prop_assert!(*take <= mbps(*most).as_bps());
            }
            for (i, j) in (0..vms.len()).flat_map(|i| (0..vms.len()).map(move |j| (i, j))) {
                let is_unmet = takes[i] < wants[i];
                if is_unmet && vms[i].0 > 0 && vms[j].0 > 0 {
                    // No VM has more for its floor than a VM that waits.
                    let (a, b) = (u128::from(takes[i]) + 1, u128::from(takes[j]));
                    prop_assert!(a * u128::from(vms[j].0) >= b * u128::from(vms[i].0));
                }
            }
        }
    }
}
