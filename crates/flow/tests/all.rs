//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking each.
//! `scripts/run-tests` refuses a file of this folder that is not named here.

mod against_the_oracle;
mod common;
mod events;
mod imports;
mod over_time;
mod tenants;
mod workloads;
