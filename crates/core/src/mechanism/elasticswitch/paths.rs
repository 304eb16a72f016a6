//! A pair with several paths: its floor is divided over them, and each has a rate of its own.
//!
//! Problem   Rate allocation knows one floor, one rate and one history of losses per pair; on several
//!           paths there are several of each.
//! Approach  Each path is to rate allocation what a pair with one path is: it has counters, reports and
//!           the law's state. The third layer divides the pair's floor over them ([`PathPartition`]).
//! Promises  The floors of the paths sum to the pair's floor. A pair with one path has none of this.
//! Not here  Which packets take which path: a driver does that by [`crate::path::place()`].

use super::pairs::SendPair;
use super::{ElasticSwitch, HoseKey, Machine, Observed, Outbox, Setting};
use crate::message::{Congestion, Message};
use crate::path::{PathPartition, Seen};
use crate::rate::{Feedback, Phase};
use serde::{Deserialize, Serialize};
use weir_units::{PairId, PathId, Rate, Span, Time};

/// The sending end of a pair that has several paths.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Paths {
    partition: PathPartition,
    paths: Vec<OnPath>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OnPath {
    sending: SendPair,
    /// Its part of the floor.
    part: Rate,
    /// Reported since the last division, while the rate was at the part.
    lost: u64,
    arrived: u64,
}

impl Paths {
    /// Over `count` paths, whose rates begin as even parts of `start`.
    pub(super) fn new(now: Time, count: usize, hose: HoseKey, start: Rate) -> Box<Self> {
        let partition = PathPartition::new(count);
        let path = |start| OnPath {
            sending: SendPair::new(now, hose, start),
            part: Rate::ZERO,
            lost: 0,
            arrived: 0,
        };
        let paths = partition.parts(start).into_iter().map(path).collect();
        Box::new(Self { partition, paths })
    }

    fn get(&mut self, path: PathId) -> Option<&mut OnPath> {
        self.paths.get_mut(path.0 as usize)
    }

    /// Takes a report; `None` if there is no such path.
    fn congested(
        &mut self,
        now: Time,
        es: &ElasticSwitch,
        path: PathId,
        report: Congestion,
    ) -> Option<()> {
        let path = self.get(path)?;
        if path.sending.rate.rate().as_f64() <= es.paths.near * path.part.as_f64() {
            path.lost = path.lost.saturating_add(report.lost.into());
            path.arrived = path.arrived.saturating_add(report.received.into());
        }
        path.sending.congested(now, &es.rate, report);
        Some(())
    }

    /// The periodic step of the third layer.
    pub(super) fn divide(&mut self, es: &ElasticSwitch, span: Span) {
        let parts: Vec<Rate> = self.paths.iter().map(|path| path.part).collect();
        let seen = |path: &mut OnPath| {
            let used = path.sending.used_since_partition(span, None).rate;
            let allowed = path.sending.rate.rate().max(path.part);
            let (lost, arrived) =
                (std::mem::take(&mut path.lost), std::mem::take(&mut path.arrived));
            Seen { used: used.min(allowed), lost, arrived }
        };
        let seen: Vec<Seen> = self.paths.iter_mut().map(seen).collect();
        self.partition.step(&es.paths, &es.partition, &parts, &seen);
    }

    /// The pair's floor is this from now on.
    pub(super) fn set_floor(&mut self, floor: Rate) {
        for (path, part) in self.paths.iter_mut().zip(self.partition.parts(floor)) {
            path.part = part;
        }
    }

    /// One step of the law on each path, or of its decay. `weight` is the rate that stands for the
    /// pair's weight, of which each path has a part like that of the floor. `entered` hears of phases.
    pub(super) fn allocate(
        &mut self,
        es: &ElasticSwitch,
        now: Time,
        (weight, line): (Rate, Rate),
        (span, round_trip): (Span, Option<Span>),
        may_borrow: bool,
        entered: &mut dyn FnMut(Option<PathId>, (Phase, Phase)),
    ) {
        let weights = self.partition.parts(weight);
        for ((number, path), weight) in (0..).zip(&mut self.paths).zip(weights) {
            let OnPath { sending, part, .. } = path;
            let before = sending.rate.phase();
            let feedback = Feedback { round_trip, ..sending.take_feedback(span) };
            // Only pairs between hosts have several.
            sending.look_for_blindness(span, false);
            if may_borrow && !sending.is_blind(es.rate.signal) {
                sending.rate.step_weighted(&es.rate, now, (*part, weight), line, feedback);
            } else {
                sending.rate.decay(*part);
            }
            entered(Some(PathId(number)), (before, sending.rate.phase()));
        }
    }

    /// The level of each path.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let of = |path: &OnPath| Setting {
            floor: path.part,
            ceiling: path.sending.rate.rate().max(path.part),
        };
        self.paths.iter().map(of).collect()
    }
}

impl Machine {
    /// How many paths a pair has whose source is here.
    pub(super) fn paths_of(&self, pair: PairId) -> usize {
        let is_local =
            self.policy.directory.get(&pair.dst).is_some_and(|l| l.host == self.policy.host);
        if is_local { 1 } else { self.es.paths.count.min(self.policy.can.paths) }
    }

    /// Counters of single paths. Pairs that are not known were first seen in the counters of whole pairs.
    pub(super) fn path_sample(&mut self, now: Time, sample: &Observed, out: &mut Outbox) {
        let (gap, most) = (self.es.feedback_gap, self.es.paths.count);
        for (pair, path, count) in &sample.send_paths {
            let paths = self.send.get_mut(pair).and_then(|p| p.paths.as_mut());
            if let Some(path) = paths.and_then(|paths| paths.get(*path)) {
                path.sending.count(now, *count);
            }
        }
        for (pair, path, counted) in &sample.receive_paths {
            let Some(p) = self.receive.get_mut(pair) else { continue };
            if path.0 as usize >= most {
                continue;
            }
            if let Some(report) = p.count_on(*path, *counted, now, gap) {
                let report = Congestion { pair: *pair, ..report };
                self.post(now, pair.src, Message::PathCongestion(*path, report), out);
            }
        }
    }

    /// A report about one path of a pair.
    pub(super) fn path_congested(
        &mut self,
        now: Time,
        path: PathId,
        report: Congestion,
    ) -> Option<()> {
        let es = &self.es;
        let p = self.send.get_mut(&report.pair)?;
        p.paths.as_mut()?.congested(now, es, path, report)?;
        p.lost_total = p.lost_total.saturating_add(report.lost.into());
        p.marked_total = p.marked_total.saturating_add(report.marked.into());
        Some(())
    }
}

#[cfg(test)]
mod tests;
