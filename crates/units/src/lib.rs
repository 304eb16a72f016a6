//! Quantities that never meet by accident: rates, octets, instants, spans, and the ids of things;
//! the one seeded generator ([`SplitMix64`]); and a host's tables ([`SortedMap`]).
//!
//! Problem   A bit is not an octet, a rate is not an amount, and a rounding error in the wrong
//!           direction credits a pair with bandwidth that was never there.
//! Approach  One integer type per quantity; conversions say which way they round.
//! Promises  No wrap-around: arithmetic saturates or is checked. No dependency but `serde`.
//! Not here  Text that is read back ("450Mbit"): see `weir-model`. What people read: see [`show`].

mod ids;
mod random;
mod rate;
pub mod show;
mod sorted;
mod time;

pub use ids::{HoseId, HostId, PairId, PathId, TenantId, VmId};
pub use random::SplitMix64;
pub use rate::{Bytes, Rate};
pub use sorted::{SortedMap, SortedSet};
pub use time::{Span, Time};
