//! Switches of all kinds. Tests with network namespaces need root.
#![allow(clippy::disallowed_methods, reason = "these tests wait for packets and servers")]
#![allow(missing_docs, reason = "tests")]

mod common;
mod faults;
mod linux;
mod sonic;
mod sonic_rules;
