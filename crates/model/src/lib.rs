//! Data that people write and read: scenarios, the agent's configuration, results. And the records
//! that worlds give to the judge.

pub mod agent;
pub mod controller;
pub mod moment;
pub mod net;
pub mod objects;
pub mod observed;
pub mod record;
pub mod results;
pub mod scenario;
pub mod status;
pub mod text;
pub mod whereabouts;
pub mod yaml;
