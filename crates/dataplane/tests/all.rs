//! All tests of the crate from outside, in one binary: linking one is much cheaper than linking
//! each. `scripts/run-tests` plays each module in a process of its own, and refuses a file that is
//! not named here.
#![allow(
    unsafe_code,
    clippy::disallowed_methods,
    reason = "tests enter namespaces and read clocks"
)]

#[path = "common/bench.rs"]
mod bench;
#[path = "common/deaf.rs"]
mod deaf;
#[path = "common/dress.rs"]
mod dress;
#[path = "common/eyeq.rs"]
mod eyeq_bench;
#[path = "common/frame.rs"]
mod frame;
#[path = "common/law.rs"]
mod law;
#[path = "common/net.rs"]
mod net;
#[path = "common/offload.rs"]
mod offload;
#[path = "common/random.rs"]
mod random;
#[path = "common/segments.rs"]
mod segments;
#[path = "common/sequential.rs"]
mod sequential;
mod shaper_world;
#[path = "common/translated.rs"]
mod translated;
#[path = "common/wire.rs"]
mod wire;

mod backlog;
mod backlog_law;
mod change;
mod classify;
mod departure;
mod dscp;
mod dscp_hosts;
mod ecn;
mod ecn_hosts;
mod eyeq_count;
mod eyeq_datapath;
mod eyeq_heed;
mod eyeq_hosts;
mod eyeq_law;
mod eyeq_meter;
mod eyeq_tell;
mod host_floor;
mod hosts;
mod htb_bursts;
mod lease;
mod mark;
mod marks;
mod marks_law;
mod outside;
mod plumbing;
mod programs;
mod sequence;
mod shaper;
mod shaper_rates;
mod shapers;
mod stray;
mod tables;
mod timed;
mod tunnel;
mod vcc_budget;
mod vcc_guests;
mod vcc_hosts;
mod vcc_law;
mod vcc_matrix;
mod vcc_port;
mod verifier;
mod waits;
