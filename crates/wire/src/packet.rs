//! The octets of a datagram, without their meaning.
//!
//! Problem   A layout that two releases, and one day a BPF program, must agree on.
//! Approach  Fixed offsets, big endian, every integer aligned to its size; a view that has checked
//!           the length once and then cannot fail. Four versions: an agent parses all, and says in
//!           each datagram the highest that it parses.
//! Promises  One value has one form: unused bits are zero, the length follows from the count.
//! Not here  Whether a field makes sense: see [`crate::parse`]. Which version a peer is sent: see
//!           [`crate::Session::seal`].
//!
//! A datagram is one UDP payload of 56 to 1400 octets:
//!
//! | octets | field |
//! | --- | --- |
//! | 0 | version, 1 to 4 |
//! | 1 | key id: which of the shared keys made the tag |
//! | 2 | from version 2 on: the highest version that the sender parses. Version 1: 0 |
//! | 3 | count *n* of records, 0 to 42 (version 1: 0 to 56); none: a greeting |
//! | 4..8 | epoch of floors and configuration, 0 from agents without a controller (see below) |
//! | 8..12 | sender, a `HostId` |
//! | 12..16 | receiver, a `HostId` |
//! | 16..24 | the sender's incarnation, not 0 |
//! | 24..32 | sequence from sender to receiver, from 1 |
//! | 32..40 | echo: the receiver's incarnation as far as the sender knows, 0 = unknown |
//! | 40..48 | echo: highest sequence heard from that incarnation; 0 with and only with unknown |
//! | 48..48+32*n* | records (version 1: 48..48+24*n*) |
//! | the last 8 | SipHash-2-4 of all octets before, as one big-endian integer |
//!
//! A record is 32 octets; blank means 0:
//!
//! | octets | Offer | Echo | Congestion | PathCongestion |
//! | --- | --- | --- | --- | --- |
//! | 0 | kind 1 | kind 2 | kind 3 | kind 4 |
//! | 1 | bit 0 unbounded, bit 1 confirm | bit 2: says the most; bits 3 and 4: what waits | | |
//! | 2 | reserved: the source VM's hose | the same | the same | the same |
//! | 3 | reserved: the destination VM's hose | the same | the same | the same |
//! | 4..8 | serial | the same | lost segments | the same |
//! | 8..12 | the pair's source VM | the same | the same | the same |
//! | 12..16 | the pair's destination VM | the same | the same | the same |
//! | 16..20 | floor, bit/s, | the same | marked segments | the same |
//! | 20..24 | 64 bits | | received segments | the same |
//! | 24..26 | reserved: level | the most, bit/s, | reserved: level | the same |
//! | 26 | | 64 bits | | path, 0 to 15 |
//! | 27 | | | | |
//! | 28..32 | round trip, µs; 0: not known | | | |
//!
//! From version 4 on two kinds are about no pair, but about the two hosts; all that is not named here is 0:
//!
//! | octets | May | Uses |
//! | --- | --- | --- |
//! | 0 | kind 5 | kind 6 |
//! | 4..8 | level, in 4096ths: what the receiver's senders may send, as a multiple of their floors | the same: the highest that the sender uses |
//!
//! **What waits** of the pair at its sender is 0 if it is not known, 1 if nothing waited in the last
//! partitioning period, 2 if packets waited some of the time, 3 if they waited all the time
//! ([`weir_core::message::Backlog`]).
//!
//! Only pairs with several paths have records of kind 4, and no data plane gives a pair several
//! paths yet. Agents from before kind 4 refuse a datagram that has one.
//!
//! **Reserved** fields are 0 in all versions. A record in which one is not 0 is refused. A *hose id*
//! distinguishes the hoses of a VM; agents leave it 0, because both find a pair's hose by themselves
//! (docs/decisions/0026-several-hoses.md). A *level* of a single pair is not used: levels are those of
//! hosts. An agent that begins to use a reserved field announces a higher version in octet 2, and uses
//! the field only with peers that announce the same.
//!
//! **Version 3** has no records of kinds 5 and 6, and is otherwise version 4. **Version 2** is version 3
//! with 0 for what waits.
//!
//! **Version 1** has records of 24 octets: the first 24 of the above, with a path in octet 3 (0 for
//! all other kinds), without most and round trip. Its epoch has 24 bits (octets 5..8). Octet 4 is
//! the highest version that the sender parses, or 0 if that is version 1. Agents that know only
//! version 1 send 0 there and accept any number. So every agent understands a greeting in version
//! 1, and learns from it which version its sender parses.
//!
//! **The epoch** is reserved for a controller, which does not exist yet. A controller will number
//! each set of floors and bindings that it hands out, and a datagram will carry the epoch that its
//! sender has in force. The controller then sees when all agents have taken a change. Until then
//! agents send 0. A receiver accepts any number, reports it ([`crate::Opened::Believed`]) and obeys
//! the messages. Offers are ordered by their serials and bounded by the hoses of both ends, so no
//! floor depends on the epoch, and agents of two epochs may talk. The epoch does not protect
//! against replay; incarnation and sequence do.

use crate::{Key, KeyId, ParseError};
use weir_units::HostId;

/// Version of datagrams to peers that parse it.
pub const VERSION: u8 = 4;
/// The version before it: hosts do not tell each other levels.
pub const THIRD: u8 = 3;
/// The version before that: echoes do not say what waits.
pub const SECOND: u8 = 2;
/// The first version, for peers that parse no later one or whose version is not known.
pub const FIRST: u8 = 1;
/// Octets before the records.
pub const HEADER: usize = 48;
/// Octets of a record.
pub const RECORD: usize = 32;
/// Octets of a record of the first version.
pub const FIRST_RECORD: usize = 24;
/// Octets of the tag.
pub const TAG: usize = 8;
/// Octets of the largest datagram: fits an MTU of 1500 with an outer header or two around it.
pub const MAX_DATAGRAM: usize = 1400;
/// Records in the largest datagram.
pub const MAX_RECORDS: usize = records_in(VERSION);

const _: () = assert!(MAX_RECORDS == 42 && records_in(FIRST) == 56, "the tables say 42 and 56");

/// Octets of a record of one of the versions.
pub const fn record_of(version: u8) -> usize {
    if version == FIRST { FIRST_RECORD } else { RECORD }
}

/// Records in the largest datagram of one of the versions.
pub const fn records_in(version: u8) -> usize {
    (MAX_DATAGRAM - HEADER - TAG) / record_of(version)
}

/// Offsets of the fields.
pub(crate) mod at {
    pub(crate) const VERSION: usize = 0;
    pub(crate) const KEY_ID: usize = 1;
    pub(crate) const SPEAKS: usize = 2;
    pub(crate) const COUNT: usize = 3;
    pub(crate) const EPOCH: usize = 4;
    pub(crate) const FIRST_SPEAKS: usize = 4;
    pub(crate) const SENDER: usize = 8;
    pub(crate) const RECEIVER: usize = 12;
    pub(crate) const INCARNATION: usize = 16;
    pub(crate) const SEQUENCE: usize = 24;
    pub(crate) const ECHO_INCARNATION: usize = 32;
    pub(crate) const ECHO_SEQUENCE: usize = 40;

    // Within a record.
    pub(crate) const KIND: usize = 0;
    pub(crate) const RECORD_FLAGS: usize = 1;
    pub(crate) const HOSES: usize = 2;
    pub(crate) const FIRST_PATH: usize = 3;
    pub(crate) const SERIAL: usize = 4;
    pub(crate) const LOST: usize = 4;
    pub(crate) const WORD: usize = 4;
    pub(crate) const SRC: usize = 8;
    pub(crate) const DST: usize = 12;
    pub(crate) const FLOOR: usize = 16;
    pub(crate) const MARKED: usize = 16;
    pub(crate) const RECEIVED: usize = 20;
    pub(crate) const MOST: usize = 24;
    pub(crate) const LEVEL: usize = 24;
    pub(crate) const PATH: usize = 26;
    pub(crate) const BLANK: usize = 27;
    pub(crate) const ROUND_TRIP: usize = 28;
}

/// A datagram whose length and version have been checked: its fields can be read.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    octets: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks version and length. The version comes first: another one has other lengths.
    pub fn new(octets: &'a [u8]) -> Result<Self, ParseError> {
        let length = ParseError::Length { got: octets.len() };
        match octets.get(at::VERSION) {
            None => return Err(length),
            Some(&(FIRST..=VERSION)) => {}
            Some(&got) => return Err(ParseError::Version { got }),
        }
        if !(HEADER + TAG..=MAX_DATAGRAM).contains(&octets.len()) {
            return Err(length);
        }
        let packet = Self { octets };
        if octets.len() != HEADER + packet.count() * record_of(packet.version()) + TAG {
            return Err(length);
        }
        Ok(packet)
    }

    /// Id of the key that made the tag, as the datagram claims.
    pub fn key_id(&self) -> KeyId {
        KeyId(self.octets[at::KEY_ID])
    }

    /// Sender that the datagram claims. Its keys verify the tag.
    pub fn sender(&self) -> HostId {
        HostId(self.u32(at::SENDER))
    }

    /// The version of this datagram.
    pub fn version(&self) -> u8 {
        self.octets[at::VERSION]
    }

    pub(crate) fn octet(&self, at: usize) -> u8 {
        self.octets[at]
    }

    /// Number of records.
    pub fn count(&self) -> usize {
        usize::from(self.octets[at::COUNT])
    }

    /// Whether `key` made the tag. Takes the same time for every wrong tag.
    pub fn is_signed_by(&self, key: &Key) -> bool {
        let (signed, tag) = self.octets.split_at(self.octets.len() - TAG);
        key.verifies(signed, u64_at(tag, 0))
    }

    /// The records, one after the other.
    pub fn records(&self) -> std::slice::ChunksExact<'a, u8> {
        let end = self.octets.len() - TAG;
        self.octets[HEADER..end].chunks_exact(record_of(self.version()))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32_at(self.octets, at)
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64_at(self.octets, at)
    }
}

/// Four octets as an integer. Panics beyond the end, which is a mistake in this crate: lengths were
/// checked.
pub(crate) fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().expect("four octets"))
}

/// Eight octets as an integer. Panics beyond the end, which is a mistake in this crate: lengths
/// were checked.
pub(crate) fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets[at..at + 8].try_into().expect("eight octets"))
}

pub(crate) fn put_u32(octets: &mut [u8], at: usize, value: u32) {
    octets[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(octets: &mut [u8], at: usize, value: u64) {
    octets[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
