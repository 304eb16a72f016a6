//! The controller: keeps what is declared, adds up what is promised, says what fits, and may die at any
//! instant without a loss.
//!
//! Problem   A floor is a promise only if somebody adds up the promises, and a promise that is forgotten
//!           in a crash was none.
//! Approach  [`state`] is a machine without I/O: requests in, answers and records out. [`engine`] is the
//!           one thread that drives it: it writes the records of many requests in one synced commit of
//!           the [`store`], publishes them to the [`view`], and then answers. [`http`] is the API.
//!           `agents` tells the agents of hosts what is wanted of them. [`binding`] binds tenants to queues
//!           of switches.
//! Promises  What was acknowledged is there after `kill -9` and after a power cut. A refused request
//!           changes nothing and says which field is to blame and why.
//! Not here  What fits on a link, and where VMs are placed: see `weir-core`. Objects: see
//!           `weir_model::objects`.

mod accounts;
mod agents;
pub mod binding;
pub mod client;
pub mod clock;
pub mod daemon;
pub mod engine;
pub mod http;
pub mod metrics;
pub mod problem;
pub mod roots;
pub mod state;
pub mod store;
pub mod tls;
pub mod tokens;
mod ui;
pub mod view;
