//! The controller: keeps what is declared, adds up what is promised, and says what fits.

pub mod store;
