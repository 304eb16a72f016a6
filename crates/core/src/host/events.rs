//! What changed in a machine, for the log, `explain` and tests.
//!
//! Problem   Levels say what is, not what happened: a pair that fell to its floor and recovered between two looks left
//!           no trace.
//! Approach  One publisher beside the orders, which every mechanism has. The driver takes events with the work, so a
//!           journal has them, too.
//! Promises  Bounded: an event without room is counted. Nothing is decided by events.
//! Not here  Words for people: see `weir-agent`. Single paths of a pair, which have no events.

use super::Direction;
use crate::rate::Phase;
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::PairId;

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
        /// The phase it was in.
        from: Phase,
        /// The phase it is in.
        to: Phase,
    },
}

impl Event {
    /// The pair that it is about.
    pub const fn pair(&self) -> PairId {
        match self {
            Self::Began(pair, _) | Self::Ended(pair, _) | Self::Phase { pair, .. } => *pair,
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
            Self::Phase { pair, from, to } => write!(f, "{pair} goes from {from} to {to}"),
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
    pub(crate) fn entered(&mut self, pair: PairId, from: Phase, to: Phase) {
        if from != to {
            self.tell(Event::Phase { pair, from, to });
        }
    }

    /// Takes all events so far.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.waiting)
    }
}
