//! Judges what worlds played, and shows it.
//!
//! Problem   The lab and the simulator must mean the same by "the floor held", and neither may judge itself.
//! Approach  An [`experiment`] plays a scenario's points in a [`world`] that is handed in; the [`judge`] holds
//!           what was measured against the oracle; [`verdict`] compares with what was expected. A
//!           [`table`], a page ([`report`]) and a paper's figures ([`reproduce`]) only show.
//! Promises  No world is known here: a second one is judged by the same code. Nothing is printed.
//! Not here  Arguments, signals and terminals: see the crate `weir`.

pub mod aggregate;
pub mod experiment;
pub mod folder;
pub mod judge;
pub mod numbers;
pub mod report;
pub mod reproduce;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verdict;
pub mod world;
