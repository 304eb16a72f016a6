//! The ideal allocation for the demands of one moment, with which every mechanism is compared.
//!
//! Problem   "Floors hold and no bandwidth is wasted" needs a yardstick that knows what no agent
//!           knows: all demands, all paths, all links.
//! Approach  F = hose max-min of the demands ([`hose_max_min`]), which is what the floors promise
//!           each pair. Rates F·(1+λ) by progressive filling over the links ([`allocate`]); pairs
//!           without a floor share the rest. Both are one filling, over hoses and over links.
//! Promises  No link exceeds its capacity. Every flow has min(demand, F). Every flow has a
//!           bottleneck: its demand, or a full link where no flow has a greater share of its floor.
//!           [`Allocation::check`] verifies them, and [`allocate`] ends in it, in release too.
//! Not here  Paths, and whether floors fit whatever the demands will be: the caller knows the topology
//!           (`weir_model::scenario`). How a mechanism comes near
//!           the ideal without knowing it: see `partition` and `rate`.
//! Source    Hose max-min as static split: ElasticSwitch §4 and the Oktopus-like reservation of §7;
//!           surplus in proportion to floors: §7 "Sharing Additional Bandwidth".
//!           Departs: surplus in proportion to F of the pair, over all links of its path at once.
//!
//! Rounding: levels are exact fractions, compared by cross-multiplication, so ties depend on the
//! numbers alone. A rate that a full link decides is rounded down to 2⁻³² bit/s before it is taken
//! from the other links, and to a whole bit/s in the result; so a result is within 1 bit/s of the
//! exact one, and never above its link.

mod allocate;
mod check;
mod hose;
mod share;

pub use allocate::{Allocation, AllocationError, Bottleneck, Flow, World, allocate};
pub use check::Violation;
pub use hose::{Hose, PairDemand, hose_max_min};
pub use share::{TCP_PAYLOAD, jain, udp_payload};
