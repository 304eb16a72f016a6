//! When everything has healed and settled, both ends of a living pair hold the same word, and of a dead
//! pair nothing is left.

use super::hoses::is_older;
use crate::breach::Breaches;
use crate::terms::Terms;
use std::collections::VecDeque;
use weir_model::scenario::{Traffic, TrafficKind};
use weir_sim::{Look, PairLook};
use weir_units::{PairId, Rate, SortedMap, Time, VmId};

const CHECK: &str = "agreement";
/// A pair of which its hose has less finds no place in it (docs/algorithms/elasticswitch.md).
const LEAST: Rate = Rate::from_bps(64_000);

/// Of a shaper's queue (docs/simulator.md).
const QUEUE: u64 = 128 * 1024;

/// What earlier looks saw.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// What receivers offered lately: when, and the serial.
    offers: SortedMap<PairId, VecDeque<(Time, u32)>>,
    /// What left the shaper last.
    departures: SortedMap<PairId, Departure>,
}

/// What left a shaper of a pair.
#[derive(Clone, Copy, Debug, Default)]
struct Departure {
    /// Octets since the pair came to life.
    left: u64,
    at: Time,
    /// When something left again after a pause in which a receiver takes the pair for over.
    resumed: Option<Time>,
    /// Octets since all has settled.
    late: u64,
}

/// What becomes of a pair of which this traffic is all there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It wants to send at every moment, and both ends have a hose with room for it.
    Lives,
    /// Neither it nor its way back has been given anything to send for a hold and longer.
    Dies,
    /// It comes and goes, or has no floor: what is left in its queue when it stops may take 16 s.
    Either,
}

impl Agreement {
    pub(super) fn look(&mut self, terms: &Terms, look: &Look) {
        let silent_after = terms.law.partition.silent_after;
        for pair in &look.pairs {
            let offer = pair.destination.receive.as_ref().and_then(|receive| receive.offered);
            let departure = self.departures.entry(pair.id).or_default();
            // A pair that was forgotten counts from zero.
            let more = pair.left.checked_sub(departure.left).unwrap_or(pair.left);
            departure.left = pair.left;
            if more > 0 {
                if look.at.since(departure.at) >= terms.law.partition.idle_after {
                    departure.resumed = Some(look.at);
                }
                departure.at = look.at;
                departure.late += if look.at > terms.judged_from() { more } else { 0 };
            }
            let offers = self.offers.entry(pair.id).or_default();
            match offer {
                None => offers.clear(),
                Some(offer) => {
                    if offers.back().is_none_or(|(_, serial)| *serial != offer.serial) {
                        offers.push_back((look.at, offer.serial));
                    }
                }
            }
            while offers.get(1).is_some_and(|(at, _)| look.at.since(*at) > silent_after) {
                offers.pop_front();
            }
        }
    }

    pub(super) fn end(&self, terms: &Terms, look: &Look, breaches: &mut Breaches) {
        for pair in &look.pairs {
            let wrong = match fate(terms, look, pair.id) {
                Fate::Either => continue,
                Fate::Lives if self.pauses(terms, look, pair.id) => continue,
                Fate::Lives => self.disagreement(terms, look, pair),
                Fate::Dies if self.drains(terms, look, pair.id) => continue,
                Fate::Dies => remains(pair),
            };
            if let Some(what) = wrong {
                let of = format!("{} to {}", terms.name(pair.id.src), terms.name(pair.id.dst));
                breaches.add(look.at, CHECK, &of, what);
            }
        }
    }

    /// Whether the pair sent nothing for so long that its ends may forget it, now or lately: TCP that waits
    /// for a timer, which doubles with each loss.
    fn pauses(&self, terms: &Terms, look: &Look, pair: PairId) -> bool {
        let partition = &terms.law.partition;
        let is_its = |t: &&Traffic| (t.from, t.to) == (pair.src.0 as usize, pair.dst.0 as usize);
        let is_tcp = |t: &Traffic| matches!(t.kind, TrafficKind::Tcp { .. });
        if !terms.scenario.traffic.iter().filter(is_its).all(is_tcp) {
            return false;
        }
        let Some(departure) = self.departures.get(&pair) else { return true };
        let settles = partition.silent_after + terms.law.partition_period;
        look.at.since(departure.at) >= partition.idle_after
            || departure.resumed.is_some_and(|at| look.at.since(at) <= settles)
    }

    /// Whether a queue of a pair, there or back, was still being emptied until lately: with the least
    /// rate of a class that takes 16 s.
    fn drains(&self, terms: &Terms, look: &Look, pair: PairId) -> bool {
        let partition = &terms.law.partition;
        let gone_after =
            partition.idle_after + partition.silent_after + terms.law.partition_period * 4;
        [pair, pair.reversed()].into_iter().any(|pair| {
            let last = self.departures.get(&pair).copied().unwrap_or_default();
            look.at.since(last.at) < gone_after && last.late <= QUEUE
        })
    }

    /// What is wrong with a living pair.
    fn disagreement(&self, terms: &Terms, look: &Look, pair: &PairLook) -> Option<String> {
        let Some(word) = pair.source.send else {
            return Some("its source's agent does not know it".into());
        };
        let Some(word) = word.filter(|word| !word.is_adopted) else {
            return Some("its source never heard of its destination".into());
        };
        let clock = look.hosts[pair.hosts.0.0 as usize].clock;
        let silent_for = clock.since(word.at);
        if silent_for > terms.law.partition.silent_after {
            return Some(format!("its source has heard nothing for {silent_for}"));
        }
        let Some(receive) = &pair.destination.receive else {
            return Some("its destination's agent does not know it".into());
        };
        let oldest = self.offers.get(&pair.id).and_then(|offers| offers.front());
        if oldest.is_none_or(|(_, oldest)| is_older(word.offer.serial, *oldest)) {
            return Some(format!("its source holds offer {} of long ago", word.offer.serial));
        }
        let floor = pair.in_force.map_or(Rate::ZERO, |setting| setting.floor);
        let held = receive.held.map_or(Rate::ZERO, |held| held.most);
        if floor > word.offer.floor || floor > held {
            let offered = word.offer.floor;
            return Some(format!("{floor} in force, {offered} offered, {held} counted as held"));
        }
        None
    }
}

/// What is left of a dead pair.
fn remains(pair: &PairLook) -> Option<String> {
    let left = [
        (pair.in_force.is_some(), "a queue"),
        (pair.source.send.is_some(), "its source's agent"),
        (pair.destination.receive.is_some(), "its destination's agent"),
        (pair.is_met, "its destination's counters"),
    ];
    let left: Vec<&str> = left.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
    (!left.is_empty()).then(|| format!("it is dead, and still known to {}", left.join(", ")))
}

fn fate(terms: &Terms, look: &Look, pair: PairId) -> Fate {
    let scenario = &terms.scenario;
    let is = |t: &Traffic, a: VmId, b: VmId| (t.from, t.to) == (a.0 as usize, b.0 as usize);
    let there = |t: &&Traffic| is(t, pair.src, pair.dst);
    let back = |t: &&Traffic| is(t, pair.dst, pair.src);
    let lasts = |t: &Traffic| Time::ZERO + t.stop >= terms.judged_from();
    let steady = |t: &Traffic| match &t.kind {
        TrafficKind::Tcp { .. } => true,
        TrafficKind::Udp { off, .. } => off.is_none(),
        _ => false,
    };
    let (out, into) = terms.hoses_of(pair);
    let has_room = |vm: VmId, hose: Rate| {
        let peers = look.pairs.iter().filter(|other| other.id.src == vm).count();
        hose.split(peers + 1) >= LEAST
    };
    let has_floor = !out.is_default
        && !terms.hose_in(into).is_zero()
        && has_room(pair.src, terms.hose_out(out));
    let sends = scenario.traffic.iter().filter(there).any(|t| lasts(t) && steady(t));
    let is_over = !scenario.traffic.iter().filter(|t| there(t) || back(t)).any(lasts);
    match (has_floor, sends, is_over) {
        (true, true, _) => Fate::Lives,
        (true, _, true) => Fate::Dies,
        _ => Fate::Either,
    }
}
