//! Flows come, send what they have to send, and go: completion times without packets.
//!
//! Problem   A workload's completion times at the scale of a datacenter, for every mechanism's
//!           ideal.
//! Approach  Between two events rates are constant, so the next end is known. At each moment flows
//!           that end go first, then flows that begin come, then the rates are found once.
//! Promises  Same arrivals, same results. Ties: ends before arrivals; ends in order of arrival.
//!           Ends are rounded up to whole nanoseconds: a flow may end late, never early. Memory for
//!           what is under way, not for what has ended ([`play_into`]).
//! Not here  Delays, slow start, retransmissions: a flow has its ideal rate at once.

use crate::queue::{End, Ends};
use crate::solver::{FlowId, Solver, Tolerance, Work};
use crate::world::{AllocationError, Flow, World};
use thiserror::Error;
use weir_units::{Bytes, Rate, Span, Time};

/// A flow that comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Time,
    /// What it is.
    pub flow: Flow,
    /// What it sends, on the wire; `None` = it stays for ever.
    pub size: Option<Bytes>,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which arrival, from 0.
    pub number: u64,
    /// When it came.
    pub start: Time,
    /// When its last octet was sent; `None` if that was not before the end.
    pub end: Option<Time>,
    /// What was sent, on the wire; rounds down.
    pub carried: Bytes,
    /// From its arrival to its end, or to the end of everything.
    pub lasted: Span,
}

impl Outcome {
    /// Flow completion time; `None` if it did not end.
    pub fn completion(&self) -> Option<Span> {
        self.end.map(|end| end.since(self.start))
    }

    /// Mean rate while it was there. Rounds down; zero if no time passed.
    pub fn mean_rate(&self) -> Rate {
        Rate::of(self.carried, self.lasted)
    }
}

/// What a play was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Flows that came.
    pub arrivals: u64,
    /// Flows that ended.
    pub ended: u64,
    /// Most flows at one moment.
    pub most: usize,
    /// Moments at which the floors did not fit some link: not zero means that the floors were not
    /// admissible, and not kept.
    pub overbooked: u64,
    /// What the solver did.
    pub work: Work,
}

/// All that [`play`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// In order of arrival.
    pub outcomes: Vec<Outcome>,
    /// Counters.
    pub tally: Tally,
}

/// Why arrivals cannot be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlayError {
    /// Arrivals must be in order of time.
    #[error("arrival {number} comes at {at:?}, before its predecessor")]
    Order {
        /// Which one, from 0.
        number: u64,
        /// Its time.
        at: Time,
    },
    /// The flow makes no sense in this world.
    #[error("arrival {number}: {why}")]
    Flow {
        /// Which one, from 0.
        number: u64,
        /// What is wrong; the flow is named 0 there.
        why: AllocationError,
    },
}

/// Plays `arrivals`, ascending in time, in `world` until `until`; later ones are not asked for.
///
/// # Errors
/// See [`PlayError`].
pub fn play(
    world: &World,
    arrivals: impl IntoIterator<Item = Arrival>,
    until: Time,
    tolerance: Tolerance,
) -> Result<Played, PlayError> {
    let mut outcomes = Vec::new();
    let tally = play_into(world, arrivals, until, tolerance, |outcome| outcomes.push(outcome))?;
    outcomes.sort_unstable_by_key(|outcome| outcome.number);
    Ok(Played { outcomes, tally })
}

/// As [`play`], but gives each outcome away as soon as it is known: ends in order, then the flows
/// that did not end, in order of arrival.
///
/// # Errors
/// See [`PlayError`].
pub fn play_into(
    world: &World,
    arrivals: impl IntoIterator<Item = Arrival>,
    until: Time,
    tolerance: Tolerance,
    mut sink: impl FnMut(Outcome),
) -> Result<Tally, PlayError> {
    let mut arrivals = arrivals.into_iter().peekable();
    let mut stage = Stage::new(Solver::new(world.clone(), tolerance));
    let mut now = Time::ZERO;
    loop {
        let end = stage.ends.first().map(|end| end.at);
        let next = arrivals.peek().map(|arrival| arrival.at);
        if let Some(at) = next.filter(|&at| at < now) {
            return Err(PlayError::Order { number: stage.tally.arrivals, at });
        }
        let Some(at) = end.into_iter().chain(next).min().filter(|&at| at <= until) else { break };
        now = at;
        while let Some(end) = stage.ends.first().filter(|end| end.at == now) {
            sink(stage.finish(end));
        }
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at == now) {
            stage.admit(&arrival)?;
        }
        stage.settle(now);
    }
    stage.leave(until, sink);
    stage.tally.work = stage.solver.work();
    Ok(stage.tally)
}

/// A flow under way.
#[derive(Clone, Copy)]
struct Active {
    number: u64,
    start: Time,
    size: Option<Bytes>,
    /// Bits sent until `since`.
    sent: f64,
    since: Time,
    /// In bit/s, from then on.
    rate: f64,
}

impl Active {
    fn bits(&self) -> f64 {
        self.size.map_or(f64::INFINITY, |size| size.get() as f64 * 8.0)
    }

    fn sent_by(&self, now: Time) -> f64 {
        let sent = self.sent + self.rate * now.since(self.since).as_secs_f64();
        sent.min(self.bits())
    }
}

struct Stage {
    solver: Solver,
    ends: Ends,
    /// Per flow of the solver.
    active: Vec<Option<Active>>,
    tally: Tally,
}

impl Stage {
    fn new(solver: Solver) -> Self {
        Self { solver, ends: Ends::default(), active: Vec::new(), tally: Tally::default() }
    }

    fn admit(&mut self, arrival: &Arrival) -> Result<(), PlayError> {
        let number = self.tally.arrivals;
        let id =
            self.solver.insert(&arrival.flow).map_err(|why| PlayError::Flow { number, why })?;
        let at = arrival.at;
        let (size, sent, rate) = (arrival.size, 0.0, 0.0);
        let active = Active { number, start: at, size, sent, since: at, rate };
        self.active.resize(self.active.len().max(id.0 as usize + 1), None);
        self.active[id.0 as usize] = Some(active);
        if size == Some(Bytes::ZERO) {
            self.ends.set(End { at, number, flow: id.0 });
        }
        self.tally.arrivals += 1;
        self.tally.most = self.tally.most.max(self.solver.len());
        Ok(())
    }

    fn finish(&mut self, end: End) -> Outcome {
        self.ends.remove(end.flow);
        self.solver.remove(FlowId(end.flow));
        let active = self.active[end.flow as usize].take().expect("who ends was under way");
        self.tally.ended += 1;
        Outcome {
            number: active.number,
            start: active.start,
            end: Some(end.at),
            carried: active.size.expect("who ends has a size"),
            lasted: end.at.since(active.start),
        }
    }

    /// New rates, and what follows from them.
    fn settle(&mut self, now: Time) {
        self.solver.settle();
        self.tally.overbooked += u64::from(self.solver.overbooked() > 0);
        for &id in self.solver.changed() {
            let rate = self.solver.rate(id);
            let Some(active) = &mut self.active[id.0 as usize] else { continue };
            if rate == active.rate {
                continue;
            }
            active.sent = active.sent_by(now);
            (active.since, active.rate) = (now, rate);
            let left = active.bits() - active.sent;
            // Not a number and infinity are no time at all: such a flow does not end.
            let ns = (left / rate * 1e9).ceil();
            if ns < (u64::MAX - now.as_nanos()) as f64 {
                let at = now + Span::from_nanos(ns as u64);
                self.ends.set(End { at, number: active.number, flow: id.0 });
            } else {
                self.ends.remove(id.0);
            }
        }
    }

    /// Reports the flows that did not end.
    fn leave(&self, until: Time, mut sink: impl FnMut(Outcome)) {
        let mut left: Vec<&Active> = self.active.iter().flatten().collect();
        left.sort_unstable_by_key(|active| active.number);
        for active in left {
            let carried = Bytes::new((active.sent_by(until) / 8.0) as u64);
            let (number, start) = (active.number, active.start);
            sink(Outcome { number, start, end: None, carried, lasted: until.since(start) });
        }
    }
}
