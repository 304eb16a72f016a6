//! Runs targets without a fuzzer: over the corpus, then over damaged copies of it.
//!
//! Not here  Reading the time: the caller's clock says how long each input took.

use crate::Target;
use crate::mutate::{Random, mutate};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::Duration;

/// How much is tried, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Damaged copies of the corpus.
    pub mutations: u32,
    /// Where the generator starts.
    pub seed: u64,
    /// What one input may take at most: far above any sound one, far below a denial of service.
    pub each: Duration,
    /// Time since some moment.
    pub clock: fn() -> Duration,
}

impl Tried {
    fn add(&mut self, target: &Target, octets: &[u8]) {
        self.inputs += 1;
        self.reached += usize::from((target.reaches)(octets));
    }
}

/// The inputs of a target that are kept, by name.
///
/// # Panics
///
/// The corpus is not there or cannot be read.
pub fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.expect("a folder can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        })
        .collect();
    // The order of a folder is not the same on every machine.
    found.sort();
    found
}

/// Where a target's corpus is.
pub(crate) fn folder(target: &Target) -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus"));
    root.join(target.name)
}

/// How many inputs a target was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tried {
    /// All.
    pub inputs: usize,
    /// Those beyond the first check, of length and version: see [`Target::reaches`].
    pub reached: usize,
}

/// Runs a target over its corpus and over `limits.mutations` damaged copies.
///
/// # Panics
///
/// A promise is broken, or an input took too long: the message shows the input.
pub fn replay(target: &Target, limits: &Limits) -> Tried {
    let mut tried = Tried::default();
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{}: an empty corpus tests nothing", target.name);
    for (name, octets) in &corpus {
        tried.add(target, octets);
        attempt(target, limits, octets, name);
    }
    let mut random = Random::new(limits.seed);
    for n in 0..limits.mutations {
        let input = &corpus[random.below(corpus.len())].1;
        let other = &corpus[random.below(corpus.len())].1;
        let octets = mutate(&mut random, input, other, target.words);
        tried.add(target, &octets);
        attempt(target, limits, &octets, &format!("mutation {n} of seed {}", limits.seed));
    }
    tried
}

fn attempt(target: &Target, limits: &Limits, octets: &[u8], name: &str) {
    let start = (limits.clock)();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(octets)));
    let took = (limits.clock)().saturating_sub(start);
    if result.is_err() || took > limits.each {
        eprintln!(
            "{}: {name} {}; keep it as fuzz/corpus/{}/WHAT-IT-IS:\n{}",
            target.name,
            if result.is_err() { "breaks a promise" } else { "takes too long" },
            target.name,
            octets.escape_ascii()
        );
    }
    if let Err(panic) = result {
        resume_unwind(panic);
    }
    assert!(took <= limits.each, "{name} took {took:?}, more than {:?}", limits.each);
}
