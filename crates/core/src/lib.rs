//! The control algorithms of Weir as pure state machines: no clock, no I/O, no randomness.
//!
//! The same code is driven by the fluid world (tests), the lab (network namespaces) and the agent on
//! a real host. Every machine has one shape: one way in with the time as an argument, one bounded
//! way out, one deadline that says why it is armed.

pub mod accounts;
pub mod backlog;
pub mod binding;
pub mod classes;
mod fill;
pub mod host;
pub mod ledger;
pub mod marks;
pub mod mechanism;
pub mod message;
mod meter;
pub mod oracle;
mod outbox;
pub mod partition;
pub mod path;
pub mod placement;
pub mod rate;
pub mod vcc;

pub use mechanism::{elasticswitch, eyeq, level, reservation, trinity};
