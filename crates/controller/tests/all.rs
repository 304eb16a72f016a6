//! All integration tests in one binary: each more would be linked again.

mod agents;
mod api;
mod binding;
mod dashboard;
mod harness;
mod hosts;
mod power;
