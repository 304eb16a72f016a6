//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking
//! each. `scripts/run-tests` refuses a file of this folder that is not named here.

mod admission;
mod bad_scenarios;
mod faults;
mod outside_and_ip;
mod scenario_format;
mod shipped_scenarios;
