//! Agents of hosts: they join, and follow what is wanted on one stream each.
//!
//! Approach  [`serve`] speaks gRPC on connections on which HTTP/2 was agreed; `weir-rpc` has the messages.
//!           [`plan`] is what each host shall have, without I/O. [`fleet`] drives it: changes in, messages
//!           and conditions out.
//! Promises  Only the host of a certificate is told what concerns it, and only while the certificate
//!           is valid, of the host's last join, and not revoked. See [`plan`] for floors.

mod fleet;
mod floors;
mod plan;
mod request;
mod serve;

pub(crate) use fleet::{Fleet, Report, Slot};
pub(crate) use serve::connection;
