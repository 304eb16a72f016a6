//! The controller: keeps what is declared, adds up what is promised, and says what fits.

pub mod clock;
pub mod engine;
pub mod metrics;
pub mod problem;
pub mod state;
pub mod store;
pub mod view;
