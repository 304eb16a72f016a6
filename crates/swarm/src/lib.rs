//! Datacenters drawn from seeds, played in the simulator, and looked at all the time.
//!
//! Problem   A promise is kept in every scenario that somebody thought of. What breaks it is one that
//!           nobody did: a restart while letters are lost while a link is down.
//! Approach  One number draws a whole scenario ([`draft`](Draft)): topology, tenants up to what admission accepts,
//!           traffic, faults. It is played with the very agents ([`weir_sim::scenario::Run`]); every few
//!           milliseconds somebody who sees all hosts at one moment looks ([`weir_sim::Look`]) and holds
//!           what is seen against the promises. The last fault heals; after the time that GUARANTEES.md
//!           allows, everything must have converged and every floor must hold.
//! Promises  Same seed, same scenario, same run, same breaches. What is allowed beyond a promise is
//!           exactly what GUARANTEES.md and docs/STATUS.md allow, and is written beside the check.
//! Not here  How agents decide: see `weir-core`. Scenarios for people: see `scenarios/`.
//! Source    Swarm testing: Groce and others, ISSTA 2012. A safety phase and a liveness phase from one
//!           seed: TigerBeetle's simulator.

mod breach;
mod checks;
mod draft;
mod many;
mod play;
mod soak;
mod terms;

pub use breach::Breach;
pub use checks::{Exempt, Judged};
pub use draft::{Draft, World};
pub use many::{Tally, play_all};
pub use play::{Report, Subject, play, watch};
pub use soak::{Arrived, Cause, Short, SoakReport, judge, soak};
