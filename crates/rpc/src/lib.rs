//! What the controller and the agents say to each other: messages, certificates, the agent's end of the
//! stream.
//!
//! Problem   Two daemons of different versions have to agree on what a host shall do, over a network that
//!           breaks off, and neither may believe a stranger.
//! Approach  gRPC over TLS 1.3 with certificates on both sides. The [`messages`] stand in
//!           `agents.proto`, too. [`identity`] says whose certificate one is. [`kept`] is what a host
//!           keeps of what it was told, and how a change is added to it. [`home`] has its files.
//!           [`client`] connects, joins, renews, and speaks until the connection ends.
//! Promises  A message that was read is bounded. A host that lost its controller knows what it was told.
//! Not here  What is decided: see `weir-controller`. What is enforced: see `weir-agent`.

pub mod backoff;
pub mod client;
pub mod codec;
pub mod home;
pub mod identity;
pub mod kept;
pub mod messages;

/// Version of the messages. A controller refuses an agent of another one, and says which it speaks.
pub const PROTOCOL: u32 = 2;
/// The most octets of one message: tens of thousands of VMs.
pub const MESSAGE_MOST: usize = 16 << 20;
