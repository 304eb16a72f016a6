//! Talks rtnetlink: links, qdiscs, fq, HTB classes, redirect filters.
//!
//! Problem   Rates change every few milliseconds for hundreds of pairs; a `tc` process per change
//!           costs milliseconds, and its failures are text.
//! Approach  A raw socket, an encoder of our own, many messages per send with an answer to each.
//! Promises  Every message is answered. An error names the object, the number and the kernel's own
//!           words. No call waits longer than [`ANSWER_LIMIT_S`].
//! Not here  The desired state: see `shaper`. Addresses, neighbours, routes: their users write the
//!           messages by [`Batch::push`].
//! Source    rtnetlink(7), include/uapi/linux/{rtnetlink,pkt_sched,pkt_cls}.h. No rate tables are
//!           sent (`linklayer` = Ethernet makes the kernel compute), buffers are in 64 ns ticks.

mod attr;
pub mod codepoint;
mod dissect;
pub mod fq;
pub mod htb;
mod keys;
pub mod link;
mod message;
pub(crate) mod pair_queue;
pub mod redirect;
mod socket;
pub mod tc;

pub use dissect::{Answer, dissect};
pub use message::{Batch, Body, Verb};
pub use socket::{ANSWER_LIMIT_S, Socket};

use std::fmt;
use std::io;
use std::sync::Arc;

/// A device as messages and errors need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name, for people.
    pub name: Arc<str>,
    /// Its index, for the kernel.
    pub index: u32,
}

/// Object of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// A network device, by name.
    Link(Arc<str>),
    /// All network devices.
    Links,
    /// A qdisc by its place.
    Qdisc {
        /// The device.
        device: Device,
        /// Its parent: a class, `0xffff_ffff` for the root, `0xffff_fff1` for clsact.
        parent: u32,
    },
    /// All qdiscs of the namespace.
    Qdiscs,
    /// One class.
    Class {
        /// The device.
        device: Device,
        /// Its handle.
        id: u32,
    },
    /// All classes of a device.
    Classes(Device),
    /// The redirection of what enters a device.
    Redirect(Device),
    /// The filters of a device's root qdisc.
    Filters(Device),
    /// The object of a message that a user outside this crate writes.
    Named {
        /// In words.
        what: Arc<str>,
        /// The kernel feature without which it is refused.
        needs: Option<&'static str>,
    },
}

/// `major:minor` as `tc` writes it.
pub struct Handle(
    /// Major in the high 16 bits.
    pub u32,
);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.0 >> 16, self.0 & 0xffff)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(name) => write!(f, "link {name}"),
            Self::Links => write!(f, "links"),
            Self::Qdisc { device, parent: tc::ROOT } => write!(f, "root qdisc of {device}"),
            Self::Qdisc { device, parent: tc::CLSACT } => write!(f, "clsact qdisc of {device}"),
            Self::Qdisc { device, parent } => {
                write!(f, "qdisc under {} of {device}", Handle(*parent))
            }
            Self::Qdiscs => write!(f, "qdiscs"),
            Self::Class { device, id } => write!(f, "class {} of {device}", Handle(*id)),
            Self::Classes(device) => write!(f, "classes of {device}"),
            Self::Redirect(device) => write!(f, "redirection of {device}"),
            Self::Filters(device) => write!(f, "filters of the root qdisc of {device}"),
            Self::Named { what, .. } => f.write_str(what),
        }
    }
}

/// Reason why the kernel did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket itself failed.
    #[error("rtnetlink socket: cannot {action}: {source}")]
    Socket {
        /// The failed action.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel refused one message.
    #[error("cannot {verb} {object}: {}{}", io::Error::from_raw_os_error(*errno), said(message))]
    Refused {
        /// The request.
        verb: Verb,
        /// The object.
        object: Object,
        /// The error number, positive.
        errno: i32,
        /// The kernel's own words; often empty.
        message: String,
    },
    /// The kernel's answer was not understood.
    #[error("cannot {verb} {object}: the kernel's answer {what}")]
    Answer {
        /// The request.
        verb: Verb,
        /// The object.
        object: Object,
        /// What is wrong with the answer.
        what: &'static str,
    },
    /// A name that the kernel cannot hold.
    #[error(
        "`{name}` is no name of a network device: it needs 1 to 15 octets without `/` or space"
    )]
    Name {
        /// The given name.
        name: String,
    },
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" (kernel: {message})") }
}

impl Error {
    /// The error number of a refusal.
    pub const fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the object (or its device) is not there.
    pub const fn is_absent(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }

    /// Whether the object is already there.
    pub const fn is_present(&self) -> bool {
        matches!(self.errno(), Some(libc::EEXIST))
    }
}
