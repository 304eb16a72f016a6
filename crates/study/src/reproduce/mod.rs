//! Figures of papers: their files, what was played of them, and what that shows.

pub mod figure;
pub mod judge;
pub mod kept;
pub(crate) mod stats;

#[cfg(test)]
mod tests;

pub use kept::World;
