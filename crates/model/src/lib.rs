//! What people write and read: scenarios, the agent's configuration, results.

pub mod agent;
pub mod net;
pub mod results;
pub mod scenario;
pub mod status;
pub mod text;
pub mod whereabouts;
