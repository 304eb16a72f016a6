//! EyeQ's feedback between hosts: a packet of one message, which BPF programs make and read.
//!
//! Problem   A receiver tells a sender its rate every 10 kB: a hundred thousand times a second at
//!           10 Gb/s. The kernel does this, and has no session to ask.
//! Approach  One frame of Ethernet's minimal length, 60 octets without FCS. Agents derive a key for
//!           each direction between two incarnations of two hosts
//!           ([`crate::Session::feedback_key`]) and give it to their programs. The tag then proves
//!           sender, receiver and incarnations. A sequence proves freshness.
//! Promises  A packet without a valid tag changes nothing but a counter. No packet is believed
//!           twice, nor by another incarnation than the one for which it was made.
//! Not here  Whether the rate makes sense for the pair: its link and the hosts of its VMs
//!           (`weir_core::eyeq`). Feedback that newer feedback of its pair has overtaken: the
//!           programs drop it.
//! Source    EyeQ §3.2, §4.1 (the paper has no authentication); docs/decisions/0007-feedback.md.
//!
//! An IPv4 packet of 46 octets, behind 14 of Ethernet. Integers are big endian:
//!
//! | octets | field |
//! | --- | --- |
//! | 0..20 | IPv4 without options: not a fragment, protocol 253; source and destination are the two hosts |
//! | 4..6 of them | identification: the low 16 bits of the sequence |
//! | 20 | version, 1 |
//! | 21 | key id: which of the shared keys the tag's key was derived from |
//! | 22..24 | the rate, in units, not 0 |
//! | 24..26 | bits 16 to 31 of the sequence |
//! | 26..28 | any value: the place of the UDP checksum of the original packet |
//! | 28..32 | the pair's source VM, which the rate limits |
//! | 32..36 | the pair's destination VM, which gives the rate |
//! | 36..38 | any value: the place of the TCP checksum of the original packet |
//! | 38..46 | SipHash-2-4 of: the whole sequence (8 octets), octets 20..24, 28..36 |
//!
//! The sequence has 64 bits, of which 32 are in the packet. The receiver completes them to the
//! sequence nearest to the newest one that it knows (as ESP does, RFC 4303 §2.2.1), and the tag
//! verifies the result. Sequences begin with 1 for each key.

mod inbox;

pub use inbox::{FeedbackCounters, FeedbackRejected, Inbox, MAX_FEEDBACK_KEYS};

use crate::packet::{put_u32, put_u64, u32_at, u64_at};
use crate::{Incarnation, Key, KeyId};
use std::fmt;
use std::net::Ipv4Addr;
use subtle::ConstantTimeEq;
use thiserror::Error;
use weir_core::message::Feedback;
use weir_units::{HostId, PairId, Rate, VmId};

/// The protocol in the IPv4 header: for experimentation (RFC 3692).
pub const FEEDBACK_PROTOCOL: u8 = 253;
/// Octets of the IPv4 packet.
pub const FEEDBACK_PACKET: usize = 46;
/// The version this crate speaks.
pub const FEEDBACK_VERSION: u8 = 1;

/// Prefix of every text from which a key is derived. Nothing else that is tagged begins with it.
const LABEL: &[u8] = b"weir feedback";
/// DSCP CS6: control traffic of the network.
const TOS: u8 = 48 << 2;
const DONT_FRAGMENT: u8 = 0x40;
const TTL: u8 = 64;

/// Offsets of the fields.
mod at {
    pub(super) const TOTAL: usize = 2;
    pub(super) const ID: usize = 4;
    pub(super) const FRAGMENT: usize = 6;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const SUM: usize = 10;
    pub(super) const FROM: usize = 12;
    pub(super) const TO: usize = 16;
    pub(super) const BODY: usize = 20;
    pub(super) const KEY_ID: usize = 21;
    pub(super) const RATE: usize = 22;
    pub(super) const SEQUENCE: usize = 24;
    pub(super) const SRC: usize = 28;
    pub(super) const DST: usize = 32;
    pub(super) const TAG: usize = 38;
}

/// Key for one direction between two incarnations of two hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeedbackKey {
    id: KeyId,
    halves: [u64; 2],
}

/// Direction of feedback: both hosts and their incarnations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lives {
    /// The receiver's host, which meters and sends feedback.
    pub from: (HostId, Incarnation),
    /// The sender's host, which gets the feedback.
    pub to: (HostId, Incarnation),
}

impl FeedbackKey {
    /// The key that is derived from the two hosts' key `id`.
    pub fn derive(id: KeyId, key: &Key, lives: Lives) -> Self {
        let half = |n: u8| {
            let mut octets = LABEL.to_vec();
            octets.push(FEEDBACK_VERSION);
            for (host, incarnation) in [lives.from, lives.to] {
                octets.extend(host.0.to_be_bytes());
                octets.extend(incarnation.get().to_be_bytes());
            }
            octets.push(n);
            key.tag(&octets)
        };
        Self { id, halves: [half(0), half(1)] }
    }

    /// Id of the shared key from which this key was derived.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The key of SipHash as two words, the first eight octets first, as a BPF program takes it.
    pub const fn halves(&self) -> [u64; 2] {
        self.halves
    }

    fn tag(&self, sequence: u64, packet: &[u8]) -> u64 {
        let mut signed = [0; 20];
        put_u64(&mut signed, 0, sequence);
        signed[8..12].copy_from_slice(&packet[at::BODY..at::SEQUENCE]);
        signed[12..].copy_from_slice(&packet[at::SRC..at::DST + 4]);
        let [first, second] = self.halves;
        Key::from_halves(first, second).tag(&signed)
    }
}

impl fmt::Debug for FeedbackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeedbackKey({}, not shown)", self.id.0)
    }
}

/// One message: the contents of a packet without sequence and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// The host that meters.
    pub from: Ipv4Addr,
    /// The host that is told.
    pub to: Ipv4Addr,
    /// Source and destination VM.
    pub pair: PairId,
    /// Rate that the pair may send, in the fleet's units; not 0.
    pub units: u16,
}

impl Told {
    /// Rate as the packet carries it. `None` if it is no whole number of units or needs more than
    /// 16 bits.
    pub fn new(from: Ipv4Addr, to: Ipv4Addr, feedback: Feedback, unit: Rate) -> Option<Self> {
        let units = feedback.rate.as_bps().checked_div(unit.as_bps())?;
        let units = u16::try_from(units).ok().filter(|n| *n > 0)?;
        let told = Self { from, to, pair: feedback.pair, units };
        (told.feedback(unit) == feedback).then_some(told)
    }

    /// The same message as an input of the core.
    pub fn feedback(&self, unit: Rate) -> Feedback {
        Feedback { pair: self.pair, rate: unit * u64::from(self.units) }
    }
}

/// Reason why octets are not feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FeedbackError {
    /// The packet has another length, options, or another protocol, or is a fragment.
    #[error("not an IPv4 packet of {FEEDBACK_PACKET} octets and protocol {FEEDBACK_PROTOCOL}")]
    Packet,
    /// The version is not ours.
    #[error("version {got}, this side speaks {FEEDBACK_VERSION}")]
    Version {
        /// The version given.
        got: u8,
    },
}

/// A well-formed packet. Its tag is not verified, so its sender is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedbackPacket<'a>(&'a [u8; FEEDBACK_PACKET]);

impl<'a> FeedbackPacket<'a> {
    /// Parses untrusted octets, from the IPv4 header on. The caller has cut off the padding of the
    /// frame.
    pub fn parse(octets: &'a [u8]) -> Result<Self, FeedbackError> {
        let packet: &[u8; FEEDBACK_PACKET] =
            octets.try_into().map_err(|_| FeedbackError::Packet)?;
        let total = u16::from_be_bytes([packet[at::TOTAL], packet[at::TOTAL + 1]]);
        // More to come, or an offset: a part of something else.
        let is_fragment = packet[at::FRAGMENT] & 0x3f != 0 || packet[at::FRAGMENT + 1] != 0;
        if packet[0] != 0x45
            || usize::from(total) != FEEDBACK_PACKET
            || is_fragment
            || packet[at::PROTOCOL] != FEEDBACK_PROTOCOL
        {
            return Err(FeedbackError::Packet);
        }
        match packet[at::BODY] {
            FEEDBACK_VERSION => Ok(Self(packet)),
            got => Err(FeedbackError::Version { got }),
        }
    }

    /// Id of the key that the packet claims.
    pub const fn key_id(&self) -> KeyId {
        KeyId(self.0[at::KEY_ID])
    }

    /// The low half of the sequence.
    pub const fn sequence(&self) -> u32 {
        let p = self.0;
        u32::from_be_bytes([p[at::SEQUENCE], p[at::SEQUENCE + 1], p[at::ID], p[at::ID + 1]])
    }

    /// The message; its rate in units may be 0.
    pub fn told(&self) -> Told {
        let address = |at: usize| Ipv4Addr::from_bits(u32_at(self.0, at));
        Told {
            from: address(at::FROM),
            to: address(at::TO),
            pair: PairId::new(VmId(u32_at(self.0, at::SRC)), VmId(u32_at(self.0, at::DST))),
            units: u16::from_be_bytes([self.0[at::RATE], self.0[at::RATE + 1]]),
        }
    }

    /// Whether `key` made the tag for this whole sequence. Takes the same time for every wrong tag.
    pub fn is_signed_by(&self, key: &FeedbackKey, sequence: u64) -> bool {
        u64_at(self.0, at::TAG).ct_eq(&key.tag(sequence, self.0)).into()
    }
}

/// Builds one packet with its tag and its header's checksum.
///
/// # Panics
///
/// The sequence is 0, which is a mistake of the caller.
pub fn encode_feedback(told: &Told, key: &FeedbackKey, sequence: u64) -> [u8; FEEDBACK_PACKET] {
    assert!(sequence > 0, "sequences begin with 1");
    let mut packet = [0; FEEDBACK_PACKET];
    let low = (sequence as u32).to_be_bytes();
    packet[..2].copy_from_slice(&[0x45, TOS]);
    packet[at::TOTAL..at::ID].copy_from_slice(&(FEEDBACK_PACKET as u16).to_be_bytes());
    packet[at::ID..at::FRAGMENT].copy_from_slice(&low[2..]);
    packet[at::FRAGMENT] = DONT_FRAGMENT;
    packet[at::FRAGMENT + 2] = TTL;
    packet[at::PROTOCOL] = FEEDBACK_PROTOCOL;
    put_u32(&mut packet, at::FROM, told.from.to_bits());
    put_u32(&mut packet, at::TO, told.to.to_bits());
    let sum = checksum(&packet[..at::BODY]);
    packet[at::SUM..at::FROM].copy_from_slice(&sum.to_be_bytes());
    packet[at::BODY..at::RATE].copy_from_slice(&[FEEDBACK_VERSION, key.id.0]);
    packet[at::RATE..at::SEQUENCE].copy_from_slice(&told.units.to_be_bytes());
    packet[at::SEQUENCE..at::SEQUENCE + 2].copy_from_slice(&low[..2]);
    put_u32(&mut packet, at::SRC, told.pair.src.0);
    put_u32(&mut packet, at::DST, told.pair.dst.0);
    let tag = key.tag(sequence, &packet);
    put_u64(&mut packet, at::TAG, tag);
    packet
}

/// The Internet checksum of a header whose own is 0.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0.iter().map(|w| u32::from(u16::from_be_bytes(*w)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
