//! What is fuzzed, and what must hold whatever comes.
//!
//! Problem   Datagrams come from the tenants' network, packets from VMs, files from people in a hurry;
//!           "it does not panic" is the least that can be asked of what reads them.
//! Approach  Each parser has a target: a plain function of octets that asserts what its answer owes.
//!           `fuzz/` runs them under libFuzzer, where a nightly compiler is at hand; [`replay`] runs
//!           them everywhere, over `fuzz/corpus` and seeded mutations of it, as an ordinary test.
//! Promises  Same seed, same inputs. An input that breaks a promise is shown whole, with what to do.
//! Not here  Whether a well-formed message should be obeyed: see `weir_wire::Session`, and the
//!           properties of `weir-core`.

mod agent_config;
mod cdf;
mod datagram;
mod domain;
mod feedback;
mod frame;
mod heed;
mod journal;
mod key_file;
pub mod mutate;
mod netlink;
mod network;
mod packet;
mod quantity;
mod recording;
mod replay;
mod results;
mod scenario;
mod segment;
mod session;
mod verify;

pub use replay::{Limits, Tried, corpus, replay};

/// One parser under attack.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of its folder in `fuzz/corpus`, and of its program in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Takes any octets; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Whether an input gets beyond the first check, of length and version where the format has one:
    /// only such inputs count as tried.
    pub reaches: fn(&[u8]) -> bool,
    /// Words that mean something to the parser: mutations insert them.
    pub words: &'static [&'static str],
    /// Inputs that cannot be written by hand: files of the same names in the corpus hold them.
    pub seeds: fn() -> Vec<(&'static str, Vec<u8>)>,
}

/// All of them.
pub const TARGETS: [Target; 23] = [
    datagram::TARGET,
    session::TARGET,
    feedback::TARGET,
    key_file::TARGET,
    scenario::TARGET,
    scenario::EXPRESSION,
    scenario::ASSIGNMENT,
    agent_config::CONFIG,
    agent_config::DIRECTORY,
    quantity::TARGET,
    results::TARGET,
    results::SOCKET,
    netlink::TARGET,
    network::TARGET,
    packet::TARGET,
    cdf::TARGET,
    journal::TARGET,
    frame::TARGET,
    heed::TARGET,
    segment::TARGET,
    recording::TARGET,
    domain::TARGET,
    verify::TARGET,
];

/// The target of this name. Panics if there is none: names are ours.
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("there is no target {name}"))
}

/// Of formats without a version.
fn not_empty(octets: &[u8]) -> bool {
    !octets.is_empty()
}

/// A target whose corpus is written by hand.
fn by_hand() -> Vec<(&'static str, Vec<u8>)> {
    Vec::new()
}
