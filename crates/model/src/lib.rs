//! What people write and read: scenarios, the agent's configuration, results.

pub mod results;
pub mod scenario;
