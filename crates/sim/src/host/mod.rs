//! What stands between a host's guests and its uplink: an agent, a shaper, and counters.
//!
//! Problem   The mechanism has to be played as it is: the very machine of `weir-core` ([`agent`]),
//!           fed with what a real host can see, acting through queues that behave as the real ones.
//! Approach  A guest's packet is counted and queued by its pair ([`htb`]), numbered as it leaves
//!           for the uplink, and at the other host counted again ([`meter`]), where gaps in the
//!           numbers are losses. Agents wake when they ask to ([`shim`]); what they say to each
//!           other are datagrams that use the links that all packets use.
//! Promises  An agent learns nothing but first sights, counters and messages. A packet that finds a
//!           queue full, or at the shaper too long ([`backlog`]), or for too long none of its own
//!           ([`stray`]), is dropped and counted. Queues stand while no agent lives; what is
//!           borrowed is taken back when the guardian does. A pair with several paths has queue,
//!           numbers and counters on each. Between guest and all that its congestion control is
//!           translated, if it is ([`translator`]), and its windows are bounded together, or follow
//!           the pair's rate, if they do ([`shares`]).
//! Not here  Which hosts and pairs there are, and when something breaks: see `scenario` and
//!           `world`. Keys and replay protection: a message that arrives is believed. Departure
//!           times.
//! Source    ARCHITECTURE.md, "A packet's way" and "A decision's way".

mod agent;
mod backlog;
mod bound;
mod classes;
mod htb;
mod letters;
mod meter;
mod pairs;
mod paths;
mod peers;
mod population;
mod queue;
mod shares;
mod shim;
mod station;
mod stray;
mod times;
mod translator;
mod weather;

pub(crate) use classes::Share;
pub(crate) use letters::{Letters, Written};
pub(crate) use pairs::{Guard, GuardedHost, GuardedPair, PathLinks};
pub(crate) use shares::{Claim, Shares};
pub(crate) use shim::Shim;
pub(crate) use translator::{Speaker, Translator};
pub(crate) use weather::Trouble;
