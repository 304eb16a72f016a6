//! What people write and read: scenarios, the agent's configuration, results, and the records
//! that worlds hand to whoever judges.

pub mod agent;
pub mod net;
pub mod record;
pub mod results;
pub mod scenario;
pub mod status;
pub mod text;
pub mod whereabouts;
