//! A network simulated packet by packet: links, queues, TCP and UDP, as fast as one core can.
//!
//! Problem   Real Linux on one machine shows that an algorithm works; it cannot show a hundred
//!           hosts at 10 Gb/s, nor the same run twice.
//! Approach  One event per packet and hop ([`world`]'s loop, [`link`]); a timing wheel with a total
//!           order ([`wheel`]); packets of 32 octets in a slab ([`packet`]); TCP as two pure
//!           machines per flow ([`tcp`]). One thread; runs of a sweep are so many threads or
//!           processes. Scenario files: the network, and on each host the very `HostMachine` of
//!           `weir-core` ([`scenario`], [`host`]); traffic that comes and goes ([`exchange`]).
//! Promises  Same network, same options, same outcome to the octet ([`Outcome::digest`]); no clock,
//!           no chance but the seed's, no hash order. A packet is delivered, dropped or in flight.
//! Not here  Judging results: `weir` has the judge.
//! Source    htsim (Raiciu, Handley): source routes, pooled packets, integer time. The modules name
//!           their own sources.
//!
//! ```
//! use weir_sim::{Network, Options, play};
//!
//! let text = "until_ns 1000000\nmtu 1500\nnodes 2\nlinks 2\n\
//!             0 0 1 10000000000 1000 375000 97500\n\
//!             1 1 0 10000000000 1000 375000 97500\n\
//!             flows 1\n0 0 1 0 146000 1 0 1 1\n";
//! let outcome = play(&Network::parse(text)?, &Options::default());
//! assert_eq!(outcome.flows[0].octets.get(), 146_000);
//! # Ok::<(), weir_sim::ParseError>(())
//! ```

mod calibration;
mod digest;
mod exchange;
mod fan;
mod host;
mod link;
mod look;
mod memory;
mod net;
mod network;
mod outcome;
mod packet;
mod rng;
pub mod scenario;
mod sockets;
mod tcp;
mod udp;
mod wheel;
mod world;

pub use calibration::turn_wheel;
pub use exchange::Work;
pub use look::{ConnectionLook, HostLook, Look, PairLook};
pub use memory::Memory;
pub use network::{
    Bursts, CLASSES, Discipline, Flaw, FlowSpec, LinkSpec, Network, ParseError, PoolSpec, Port,
    Problem, QueueSpec, RedSpec, Traffic, Way,
};
pub use outcome::{FlowOutcome, LinkOutcome, Outcome, Packets};
pub use rng::Rng;
pub use tcp::{Algorithm, TcpConfig};
pub use world::{Options, Sim, play};
