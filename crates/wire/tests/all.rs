//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking
//! each. `scripts/run-tests` refuses a file of this folder that is not named here.

mod adversary;
mod arbitrary;
mod common;
mod corpus;
mod feedback;
mod feedback_corpus;
mod layout;
mod rotation;
mod session;
mod versions;
