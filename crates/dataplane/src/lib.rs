//! Speaks to the kernel: programs that classify, count and number; queues that limit.
//!
//! Problem   Floors per VM pair must be enforced on stock Linux, for whatever a VM sends, also while
//!           the agent is restarted or dead.
//! Approach  BPF programs (`bpf/`) on the VMs' ports and the uplink decide the class of a packet,
//!           count it, number it and look for gaps; an HTB tree on an IFB device delays it. The
//!           agent sees [`Dataplane`] only: counters and events out, levels in.
//! Promises  Nothing half set up; nothing left behind by [`Dataplane::close`] or [`clean`]; floors
//!           stand and traffic flows without the agent. The only crate with `unsafe`.
//! Not here  What the levels should be: see `weir-core`.
//!
//! ```text
//! VM -> port -> classify -> redirect -> IFB with the shaper -> bridge -> stamp -> uplink
//! VM <- port <- meter <- bridge <- uplink
//! ```
//!
//! Where EyeQ decides, its own meter is in the place of that one: see [`eyeq`]. What ports rewrite for guests that
//! cannot change: [`vcc`].
#![allow(unsafe_code)]

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
mod outside;
mod pairs;
mod places;
pub mod probe;
pub mod programs;
pub mod shaper;
mod surroundings;
pub mod table;
pub mod tap;
pub mod vcc;

pub use attach::Mode;
pub use config::{
    Bounded, Config, Counters, Direction, Endpoint, Event, ExternalHose, EyeQ, HostTraffic,
    Outside, PairRate, Port, PortCounters, RxCounters, Shaped, ShapedPeer, Translated, Tunnels,
    TxCounters,
};
pub use dataplane::{
    Dataplane, Fault, Renamed, Tended, clean, has_traces, left_behind, refuse_running,
};
pub use error::Error;
