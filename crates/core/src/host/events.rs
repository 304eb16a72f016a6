//! What changed in a machine, for the log, `explain` and tests.
//!
//! Problem   Levels say what is, not what happened: a pair that fell to its floor and recovered between two looks left
//!           no trace.
//! Approach  One publisher beside the orders, which every mechanism has. The driver takes events with the work, so a
//!           journal has them, too.
//! Promises  Bounded: an event without room is counted. Nothing is decided by events.
//! Not here  Sentences of `weir explain`: see [`crate::mechanism::explain`].

use super::Direction;
use crate::rate::Phase;
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::{PairId, PathId, Rate};

/// Events that may wait for the driver. A driver takes them after every batch of calls, in which one event per pair
/// is much.
const MOST: usize = 1 << 14;

/// One change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// The machine knows the pair from now on, at this end of it.
    Began(PairId, Direction),
    /// It does not know it any more: it was idle, or a VM left.
    Ended(PairId, Direction),
    /// The law of a pair that sends from here is in another phase.
    Phase {
        /// Which pair.
        pair: PairId,
        /// Which of its paths, if it has several.
        path: Option<PathId>,
        /// The phase it was in.
        from: Phase,
        /// The phase it is in.
        to: Phase,
    },
    /// EyeQ: the limit of a pair that sends from here is another. Further words of its receiver change the limit
    /// with every few packets: they are no events.
    Limit(PairId, Rate, Limited),
}

/// Why a limit is another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Limited {
    /// The receiver spoke, and the pair had no limit.
    First,
    /// The receiver is silent.
    Halved,
}

impl Event {
    /// Whether a law did it, so that it is a reason of the pair's rate.
    pub const fn is_of_law(&self) -> bool {
        matches!(self, Self::Phase { .. } | Self::Limit(..))
    }

    /// The pair that it is about.
    pub const fn pair(&self) -> PairId {
        match self {
            Self::Began(pair, _) | Self::Ended(pair, _) | Self::Phase { pair, .. } => *pair,
            Self::Limit(pair, ..) => *pair,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |direction: &Direction| match direction {
            Direction::Send => "sends",
            Direction::Receive => "receives",
        };
        match self {
            Self::Began(pair, direction) => write!(f, "{pair} {}", end(direction)),
            Self::Ended(pair, direction) => write!(f, "{pair} {} no more", end(direction)),
            Self::Phase { pair, path: None, from, to } => {
                write!(f, "{pair} goes from {from} to {to}")
            }
            Self::Phase { pair, path: Some(path), from, to } => {
                write!(f, "{pair} goes from {from} to {to} on {path}")
            }
            Self::Limit(pair, rate, Limited::First) => write!(f, "{pair} is limited to {rate}"),
            Self::Limit(pair, rate, Limited::Halved) => {
                write!(f, "{pair} is limited to {rate}, by half: its receiver is silent")
            }
        }
    }
}

/// The publisher.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Events {
    waiting: Vec<Event>,
    /// Events that found no room. Not zero means that the driver does not take them.
    pub dropped: u64,
}

impl Events {
    pub(crate) fn tell(&mut self, event: Event) {
        if self.waiting.len() < MOST {
            self.waiting.push(event);
        } else {
            self.dropped += 1;
        }
    }

    /// The only way to tell of a phase: none if it is the same.
    pub(crate) fn entered(
        &mut self,
        pair: PairId,
        path: Option<PathId>,
        (from, to): (Phase, Phase),
    ) {
        if from != to {
            self.tell(Event::Phase { pair, path, from, to });
        }
    }

    /// Takes all events so far.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.waiting)
    }
}
