//! Large worlds without packets: ideal rates of a hundred thousand flows, and how they change.
//!
//! Problem   A packet simulator plays milliseconds of a datacenter; completion times of real
//!           workloads need seconds of it. The oracle (`weir_core::oracle`) is exact, and solves
//!           everything again for each flow that comes or goes.
//! Approach  The oracle's allocation in floating point: from scratch ([`allocate`]), after each
//!           event only where it shows ([`Solver`]), and over time ([`play()`]). QShare's tenants with
//!           their queues have a simulator of their own ([`tenants`]).
//! Promises  No link over its capacity, no admissible floor broken, a bottleneck for every flow, as
//!           in the oracle; [`Allocation::check`] verifies it, and [`allocate`] ends in it. Same
//!           input, same output, on every machine: no clocks, no hashes, IEEE arithmetic.
//! Not here  Queues, losses, round-trip times, slow start: rates change at once. Packets: the
//!           packet engine. Sizes and arrivals of workloads: `weir_model::scenario`.
//! Source    Semantics: `weir_core::oracle`. Filling: Bertsekas & Gallager, Data Networks §6.5.2.

mod allocate;
mod check;
mod csr;
mod fat_tree;
mod fill;
pub mod import;
mod layer;
mod play;
mod queue;
mod route;
mod settle;
mod solver;
pub mod tenants;
mod world;

pub use allocate::{Allocation, Bottleneck, allocate};
pub use check::Violation;
pub use fat_tree::FatTree;
pub use play::{Arrival, Outcome, PlayError, Played, Tally, play, play_into};
pub use route::Routes;
pub use solver::{FlowId, Solver, Tolerance, Work};
pub use world::{AllocationError, Floor, Flow, Flows, World};
