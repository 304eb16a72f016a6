//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking
//! each. `scripts/run-tests` refuses a file of this folder that is not named here.

mod bound;
mod common;
mod exchange;
mod eyeq;
mod faults;
mod floors;
mod journal;
mod looks;
mod overbooked;
mod paths;
mod population;
mod ports;
mod promises;
mod queues;
mod scenarios;
mod strays;
mod theory;
mod trinity;
mod vcc;
