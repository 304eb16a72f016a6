//! Guarantee partitioning, seen from outside (ElasticSwitch §4).

mod echoes;
mod examples;
mod guesses;
mod properties;
mod silence;
mod world;
