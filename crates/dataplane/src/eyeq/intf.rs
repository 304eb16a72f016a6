//! `bpf/eyeq.h` in Rust: state that EyeQ's programs and the agent share. The header explains each
//! field and names its writer. Sizes are asserted on both sides.

use crate::intf::{Plain, Told, shared};
use std::net::Ipv4Addr;

/// Octets of a feedback frame without FCS.
pub const FRAME: usize = 60;
/// Its protocol in the IPv4 header.
pub const PROTOCOL: u8 = 253;
/// `skb->mark` of a clone on its way to the program that makes it a message.
pub const CLONE_MARK: u32 = 0x9e1b_e9c5;
/// Periods without a packet after which a VM begins anew, with all it may receive.
pub const IDLE_PERIODS: u64 = 64;

/// An IPv4 address as the maps hold it.
pub const fn address(v4: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(v4.octets())
}

shared!(
    /// Settings of all meters.
    Settings, 56, {
        /// Period of the law; 0: no metering.
        period_ns: u64,
        /// One message per this many octets; 0: none.
        feedback_octets: u64,
        /// Unit of rates in feedback.
        unit_bps: u64,
        /// The fastest link, in units.
        most_units: u64,
        /// α, in 1/65536.
        alpha: u32,
        /// Least factor of one step, in 1/65536.
        least_factor: u32,
        /// Weight of marks; see `weir_core::eyeq::RcpInput`.
        queue_octets: u32,
        /// Index of the interface by which the host's own packets leave; 0: no feedback is sent.
        via: u32,
        /// This host's address; see [`address`].
        address: u32,
        /// Unused.
        spare: u32,
    }
);
shared!(
    /// Receiving rate of a VM.
    Share, 16, {
        /// C_i.
        capacity_bps: u64,
        /// Lower bound of R.
        floor_bps: u64,
    }
);
shared!(
    /// Host of a VM.
    Vm, 8, {
        /// Its host's address; see [`address`].
        host: u32,
        /// Index of its share and meter, for a VM of this host.
        slot: u32,
    }
);
shared!(
    /// A VM's meter.
    Meter, 80, {
        /// Octets received from other hosts.
        octets: u64,
        /// When the running period began, on the kernel's monotonic clock.
        since_ns: u64,
        /// Octets since then.
        arrived: u64,
        /// The same in segments.
        segments: u64,
        /// Of these, marked.
        marked: u64,
        /// R.
        rate_bps: u64,
        /// y / C in the last period, in 1/65536.
        load: u64,
        /// Steps of the law.
        steps: u64,
        /// Octets for which no message was sent yet.
        untold: u64,
        /// The kernel's; reads as zero.
        lock: u32,
        /// Unused.
        spare: u32,
    }
);
shared!(
    /// Key and sequence for feedback to a host.
    Mouth, 32, {
        /// `FeedbackKey::halves`.
        key: [u64; 2],
        /// The last sequence.
        sequence: u64,
        /// Id of the shared key.
        key_id: u32,
        /// Unused.
        spare: u32,
    }
);
shared!(
    /// A sender of feedback that is believed.
    Voice, 8, {
        /// The host's address; see [`address`].
        address: u32,
        /// Id of the shared key.
        key_id: u32,
    }
);
shared!(
    /// Sequences heard with a key.
    Ear, 40, {
        /// `FeedbackKey::halves`.
        key: [u64; 2],
        /// The highest sequence.
        newest: u64,
        /// Bit *i*: `newest` − *i* was heard.
        seen: u64,
        /// The kernel's; reads as zero.
        lock: u32,
        /// Unused.
        spare: u32,
    }
);
shared!(
    /// Limit of a pair that sends from here, by its receiver.
    Limit, 48, {
        /// Rate that it may send.
        rate_bps: u64,
        /// Time of the message, on the kernel's monotonic clock.
        heard_ns: u64,
        /// Sequence of the message.
        sequence: u64,
        /// Number of messages.
        told: u64,
        /// The rate when the agent was last woken for it.
        rung_bps: u64,
        /// A part of the key whose sequence it is.
        by: u32,
        /// The kernel's; reads as zero.
        lock: u32,
    }
);
const _: () = assert!(size_of::<Told<Limit>>() == 56);
shared!(
    /// Counters of all messages.
    Counters, 120, {
        /// Begun: a frame was cloned.
        sampled: u64,
        /// Not begun: no memory, or the device was down.
        uncloned: u64,
        /// Sent.
        told: u64,
        /// Not sent: the VM's host is not known, or has no key yet.
        unknown: u64,
        /// Not sent: the clone could not be made a message.
        unfit: u64,
        /// Believed and stored.
        heard: u64,
        /// Dropped: another form or version.
        malformed: u64,
        /// Dropped: the host has no such key, or the VM is not its own.
        strangers: u64,
        /// Dropped: the tag was not made with the claimed key.
        forged: u64,
        /// Dropped: seen before, or too old to decide.
        replayed: u64,
        /// Dropped: no rate, or above every link.
        impossible: u64,
        /// Dropped: nothing of the pair is sent from here.
        strayed: u64,
        /// Dropped: overtaken by newer feedback of its pair.
        late: u64,
        /// Dropped: no room for another limit.
        full: u64,
        /// The agent was not woken: the ring was full.
        unrung: u64,
    }
);

impl Mouth {
    /// A key with which nothing was sent yet.
    pub const fn new(key_id: u8, key: [u64; 2]) -> Self {
        Self { key, sequence: 0, key_id: key_id as u32, spare: 0 }
    }
}

impl Ear {
    /// A key with which nothing was heard yet. Sequence 0, which is never sent, counts as heard.
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key, newest: 0, seen: 1, lock: 0, spare: 0 }
    }
}
