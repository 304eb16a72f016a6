//! A record of all that happened to a host's machine, and its replay.
//!
//! Problem   A wrong rate on some host cannot be explained a week later; a machine that is pure could be played again,
//!           if anybody had written down what it was told.
//! Approach  [`Kept`] drives a [`HostLoop`] and writes each call and the work that followed into segments, each of
//!           which begins with a snapshot of the loop. [`replay`] feeds the calls to the same code and compares.
//! Promises  A replay is equal to the octet, or says which record differs first, or which record cannot be read: each
//!           record has a checksum over itself and all before it. The writer's disk never holds up the driver: what
//!           finds no room is counted, and the next segment begins with a new snapshot. All is bounded: a segment, the
//!           number of segments, and what waits to be written.
//! Not here  What is recorded: see `weir_core::host::Call`. Octets of one record: the crate `postcard`.

mod frame;
mod kept;
mod layout;
mod log;
mod replay;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod tests;

pub use frame::Error;
pub use kept::Kept;
pub use log::{Counts, Log, Options, Pace};
pub use replay::{Replayed, read_segment, replay, segments};

use serde::{Deserialize, Serialize};
use weir_core::host::{Happening, HostLoop, Observed, Policy, Why, Work};
use weir_units::Time;

/// Version of the format. To be raised when a record changes its meaning without changing its layout, which
/// `layout` sees by itself.
const FORMAT: u32 = 1;
/// How the name of a segment ends.
const SUFFIX: &str = "weir-journal";

/// One record: `S` is the loop, `C` a call, `W` work; references where it is written.
#[derive(Debug, Serialize, Deserialize)]
enum Row<S, C, W> {
    /// The state before the first call of the segment, and whether the segment before it ended with this state.
    Snapshot(S, bool),
    /// What happened.
    Call(Time, C),
    /// What the loop wanted then, and when it wants to be called next.
    Work(Time, W, Option<(Time, Why)>),
    /// The segment is complete.
    End(Ending),
}

/// A record as it is read.
type Read = Row<Box<HostLoop>, Happening<Box<Observed>, Box<Policy>>, Work>;

/// Why a segment ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Ending {
    /// It is full: the next one begins with the state that this one ends with.
    Full,
    /// The driver ended.
    Closed,
    /// The disk was too slow for so many records: the next one begins with a later state.
    Lost(u64),
}
