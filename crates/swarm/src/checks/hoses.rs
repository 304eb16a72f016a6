//! No hose is promised twice: the floors in force of a VM's pairs sum to no more than its hose.
//!
//! Out: without exception. One host decides, and what its shaper has counts, whether its agent lives or
//! not.
//!
//! In: a receiver cannot count what it was not told. GUARANTEES.md 1.5, 5.1 and 5.5 and docs/STATUS.md
//! (Known limits) except, and so do we, one pair at a time:
//!
//! - a pair that its receiver does not know, whose sender has not heard of it since they met, or that fell
//!   back after a hold: up to the small start;
//! - a pair of a receiver that lost its memory, until what its sender holds is told: one partitioning
//!   period, the three greetings by which its new life is believed, and the way of a letter after the
//!   restart or, if letters between these two hosts were lost or late since, after the last time at
//!   which they were; and not longer than the sender's hold. The period begins with the pair's first
//!   packet there, since no host is greeted before.
//!
//! A pair that is excepted still counts with what its receiver does know of. When everything has settled
//! only small starts are excepted.

use super::trouble::Trouble;
use crate::breach::Breaches;
use crate::terms::{HoseId, Terms};
use weir_core::partition::{Heard, Want};
use weir_sim::{HostLook, Look, PairLook};
use weir_units::{PairId, Rate, SortedMap, SortedSet, Span, Time};

const CHECK: &str = "hose";

/// What earlier looks saw.
#[derive(Debug)]
pub(super) struct Hoses {
    trouble: Trouble,
    /// Of each host whose agent is not in its first life: which life, and since when.
    births: SortedMap<u32, (u32, Time)>,
    /// Serial of the first offer since the receiver knows the pair.
    met: SortedMap<PairId, u32>,
    /// Pairs that were new to their receivers at the last look. A pair that becomes new was
    /// forgotten and met again, even if no look saw it missing.
    new: SortedSet<PairId>,
    /// Since when packets of the pair have come to its receiver, in the present life of that.
    came: SortedMap<PairId, Time>,
}

/// A hose in, summed.
#[derive(Debug, Default)]
struct Sum {
    charged: Rate,
    /// Who holds how much, of which the receiver knows how much.
    pairs: Vec<(PairId, Rate, Rate)>,
}

impl Hoses {
    pub(super) fn new(terms: &Terms) -> Self {
        Self {
            trouble: Trouble::new(&terms.scenario),
            births: SortedMap::new(),
            met: SortedMap::new(),
            new: SortedSet::new(),
            came: SortedMap::new(),
        }
    }

    pub(super) fn look(&mut self, terms: &Terms, look: &Look, breaches: &mut Breaches) {
        self.remember(look);
        let mut out: SortedMap<HoseId, Rate> = SortedMap::new();
        let mut into: SortedMap<HoseId, Sum> = SortedMap::new();
        for pair in &look.pairs {
            let (source, destination) = terms.hoses_of(pair.id);
            let floor = pair.in_force.map_or(Rate::ZERO, |setting| setting.floor);
            *out.entry(source).or_default() += floor;
            let sum = into.entry(destination).or_default();
            let known = known(pair);
            let is_excepted = floor > known && self.is_excepted(terms, look, pair, floor);
            sum.charged += if is_excepted { known } else { floor };
            sum.pairs.push((pair.id, floor, known));
            if let Some(receive) = &pair.destination.receive {
                let hose = terms.hose_in(destination);
                let of = format!("{}, in", terms.name(destination.vm));
                breaches.unless(receive.spent <= hose, (look.at, CHECK), &of, || {
                    format!("its host counts {} as spent of a hose of {hose}", receive.spent)
                });
            }
        }
        for (hose, sum) in out {
            let (of, most) = (format!("{}, out", terms.name(hose.vm)), terms.hose_out(hose));
            breaches.unless(sum <= most, (look.at, CHECK), &of, || {
                format!("floors of {sum} on a hose of {most}")
            });
        }
        for (hose, sum) in into {
            let (of, most) = (format!("{}, in", terms.name(hose.vm)), terms.hose_in(hose));
            breaches.unless(sum.charged <= most, (look.at, CHECK), &of, || {
                let holds = |(pair, floor, known): &(PairId, Rate, Rate)| {
                    format!("{} holds {floor}, {known} known", terms.name(pair.src))
                };
                let all: Vec<String> = sum.pairs.iter().map(holds).collect();
                format!("floors of {} on a hose of {most}: {}", sum.charged, all.join("; "))
            });
        }
    }

    fn remember(&mut self, look: &Look) {
        self.trouble.look(look);
        for (number, host) in (0..).zip(&look.hosts) {
            if host.lives == self.births.get(&number).map_or(0, |(life, _)| *life) {
                continue;
            }
            self.births.insert(number, (host.lives, look.at));
            let here = |pair: &&PairLook| pair.hosts.1.0 == number;
            for pair in look.pairs.iter().filter(here) {
                self.met.remove(&pair.id);
                self.came.remove(&pair.id);
            }
        }
        for pair in &look.pairs {
            if pair.is_met {
                self.came.entry(pair.id).or_insert(look.at);
            } else {
                self.came.remove(&pair.id);
            }
            match &pair.destination.receive {
                None => {
                    self.met.remove(&pair.id);
                    self.new.remove(&pair.id);
                }
                Some(receive) => {
                    if !matches!(receive.wants, Some((Want::New, _))) {
                        self.new.remove(&pair.id);
                    } else if self.new.insert(pair.id) {
                        self.met.remove(&pair.id);
                    }
                    if let Some(offer) = receive.offered {
                        self.met.entry(pair.id).or_insert(offer.serial);
                    }
                }
            }
        }
    }

    /// Whether a pair may hold more than its receiver knows.
    fn is_excepted(&self, terms: &Terms, look: &Look, pair: &PairLook, floor: Rate) -> bool {
        let word = pair.source.send.flatten();
        let silent_for = word.map_or(Span::MAX, |word| silent_for(&look.hosts, pair, word));
        let is_old = self.is_old(pair, word);
        let is_lapsed = silent_for > terms.held_for();
        if floor <= terms.small(pair.id) && (is_old || is_lapsed) {
            return true;
        }
        let Some((_, birth)) = self.births.get(&pair.hosts.1.0) else { return false };
        // What has lapsed is written down with the next partitioning.
        let may_hold = silent_for <= terms.held_for() + terms.law.partition_period;
        if look.at >= terms.judged_from() || !is_old || !may_hold {
            return false;
        }
        let (sender, receiver) = pair.hosts;
        let Some(came) = self.came.get(&pair.id) else { return true };
        let since = self.trouble.last((sender, receiver), look.at).max(*birth).max(*came);
        let believed = terms.greetings(receiver, sender);
        look.at.since(since) <= believed + terms.next_word(receiver, sender)
    }

    /// Whether the sender's word is not one of those that the receiver counts.
    fn is_old(&self, pair: &PairLook, word: Option<Heard>) -> bool {
        let (Some(word), Some(met)) = (word, self.met.get(&pair.id)) else { return true };
        word.is_adopted || is_older(word.offer.serial, *met)
    }
}

/// What the receiver counts as held by this pair.
fn known(pair: &PairLook) -> Rate {
    let held = pair.destination.receive.as_ref().and_then(|receive| receive.held);
    held.map_or(Rate::ZERO, |held| held.most)
}

/// How long ago a sender heard this word, by its own clock.
fn silent_for(hosts: &[HostLook], pair: &PairLook, word: Heard) -> Span {
    hosts[pair.hosts.0.0 as usize].clock.since(word.at)
}

/// Serials grow modulo 2³².
pub(super) fn is_older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
