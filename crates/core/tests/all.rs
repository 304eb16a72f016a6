//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking each.
//! `scripts/run-tests` refuses a file of this folder that is not named here.

mod bounds;
mod events;
mod eyeq_any_order;
mod eyeq_law;
mod hoses;
mod host_any_order;
mod host_retries;
mod how_to_add_a_mechanism;
mod ledger_examples;
mod ledger_properties;
mod ledger_rooms;
mod ledger_shapes;
mod migration;
mod oracle_checks;
mod oracle_properties;
mod oracle_worked_cases;
mod partition;
mod path_properties;
mod vcc_any_order;
mod vcc_reno;
