//! The kernel side: programs that classify, count and number packets, and queues that limit them.
//!
//! Problem   Floors per pair must be enforced on stock Linux, for any traffic of a VM, also while
//!           the agent restarts or is dead.
//! Approach  BPF programs (`bpf/`) on the VMs' ports and the uplink choose the class of a packet,
//!           count it, number it and find gaps. An HTB tree on an IFB device delays it. The agent
//!           uses only [`Dataplane`]: counters and events out, levels in.
//! Promises  Nothing is half set up, and [`Dataplane::close`] or [`clean`] leaves nothing behind.
//!           Floors stand and traffic flows without the agent. The only crate with `unsafe`.
//! Not here  The values of levels: see `weir-core`.
//!
//! ```text
//! VM -> port -> classify -> redirect -> IFB with the shaper -> bridge -> stamp -> uplink
//! VM <- port <- meter <- bridge <- uplink
//! ```
//!
//! Under EyeQ, its own meter replaces `meter`: see [`eyeq`]. Translations for guests that cannot
//! change: see [`vcc`].
#![allow(unsafe_code)]

pub mod astray;
pub mod attach;
mod config;
mod dataplane;
mod error;
pub mod eyeq;
pub mod frames;
mod gather;
pub mod guardian;
pub mod guest;
pub mod instance;
pub mod intf;
mod lease;
pub mod mark;
pub mod nl;
mod object;
mod outside;
mod pairs;
mod places;
pub mod probe;
pub mod programs;
pub mod shaper;
pub mod spread;
mod surroundings;
pub mod table;
mod tags;
pub mod tap;
pub mod vcc;

pub use attach::Mode;
pub use config::{
    Bounded, Config, Counters, Direction, Endpoint, Event, ExternalHose, EyeQ, HostTraffic,
    Outside, PairRate, Port, PortCounters, RxCounters, Translated, Tunnels, TxCounters,
};
pub use dataplane::{
    Dataplane, Fault, Renamed, Tended, clean, has_traces, left_behind, refuse_running,
};
pub use error::Error;
pub use tags::{CodePoints, GuestDscp};
