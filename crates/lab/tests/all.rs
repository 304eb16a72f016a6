//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking
//! each. `scripts/run-tests` plays each module in a process of its own, and refuses a file that is
//! not named here.
#![allow(clippy::disallowed_methods, reason = "tests of real agents read clocks and sleep")]

mod common;

mod bound;
mod control;
mod exchange;
mod htb_bursts;
mod hygiene;
mod ip6;
mod journal;
mod level;
mod memcached;
mod queues;
mod traffic;
