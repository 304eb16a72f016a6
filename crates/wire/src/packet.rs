//! The octets of a datagram, and nothing of their meaning.
//!
//! Problem   A layout that two releases, and one day a BPF program, must agree on.
//! Approach  Fixed offsets, big endian, every integer aligned to its size; a view that has checked
//!           the length once and then cannot fail.
//! Promises  One value has one form: unused bits are zero, the length follows from the count.
//! Not here  Whether a field makes sense: see [`crate::parse`].
//!
//! A datagram is one UDP payload of 56 to 1400 octets:
//!
//! | octets | field |
//! | --- | --- |
//! | 0 | version, 1 |
//! | 1 | key id: which of the shared keys made the tag |
//! | 2 | flags, 0 in version 1 |
//! | 3 | count *n* of records, 0 to 56; none: a greeting |
//! | 4..8 | epoch of floors and configuration, 0 from agents without a controller (see below) |
//! | 8..12 | sender, a `HostId` |
//! | 12..16 | receiver, a `HostId` |
//! | 16..24 | the sender's incarnation, not 0 |
//! | 24..32 | sequence from sender to receiver, from 1 |
//! | 32..40 | echo: the receiver's incarnation as far as the sender knows, 0 = unknown |
//! | 40..48 | echo: highest sequence heard from that incarnation; 0 with and only with unknown |
//! | 48..48+24*n* | records |
//! | the last 8 | SipHash-2-4 of all octets before, as one big-endian integer |
//!
//! A record is 24 octets; blank means 0:
//!
//! | octets | Offer | Echo | Congestion | PathCongestion |
//! | --- | --- | --- | --- | --- |
//! | 0 | kind 1 | kind 2 | kind 3 | kind 4 |
//! | 1 | bit 0 unbounded, bit 1 confirm | | | |
//! | 2 | | | | |
//! | 3 | | | | path, 0 to 15 |
//! | 4..8 | serial | the same | lost segments | the same |
//! | 8..12 | the pair's source VM | the same | the same | the same |
//! | 12..16 | the pair's destination VM | the same | the same | the same |
//! | 16..20 | floor, bit/s, | the same | marked segments | the same |
//! | 20..24 | 64 bits | | received segments | the same |
//!
//! Kind 4 is said of pairs that have several paths only, which no data plane gives them yet; agents from
//! before it refuse a datagram that has one.
//!
//! **The epoch** is reserved for a controller, which there is none yet. It will number each set of
//! floors and bindings that it hands out; the epoch in a datagram is then the one that its sender has
//! in force, so that who waits for a change sees that all agents have taken it. Until then agents send
//! 0. A receiver takes any number, reports it ([`crate::Opened::Believed`]) and obeys messages all the
//! same: offers are ordered by their serials and bounded by both ends' own hoses, so agents of two
//! epochs may talk while a change spreads, and no floor depends on their agreeing. It is no protection
//! against replay either: incarnation and sequence are.

use crate::{Key, KeyId, ParseError};

/// The version this crate speaks.
pub const VERSION: u8 = 1;
/// Octets before the records.
pub const HEADER: usize = 48;
/// Octets of a record.
pub const RECORD: usize = 24;
/// Octets of the tag.
pub const TAG: usize = 8;
/// Octets of the largest datagram: fits an MTU of 1500 with an outer header or two around it.
pub const MAX_DATAGRAM: usize = 1400;
/// Records in the largest datagram.
pub const MAX_RECORDS: usize = (MAX_DATAGRAM - HEADER - TAG) / RECORD;

const _: () = assert!(MAX_RECORDS == 56, "the tables say 56");

/// Where each field begins.
pub(crate) mod at {
    pub(crate) const VERSION: usize = 0;
    pub(crate) const KEY_ID: usize = 1;
    pub(crate) const FLAGS: usize = 2;
    pub(crate) const COUNT: usize = 3;
    pub(crate) const EPOCH: usize = 4;
    pub(crate) const SENDER: usize = 8;
    pub(crate) const RECEIVER: usize = 12;
    pub(crate) const INCARNATION: usize = 16;
    pub(crate) const SEQUENCE: usize = 24;
    pub(crate) const ECHO_INCARNATION: usize = 32;
    pub(crate) const ECHO_SEQUENCE: usize = 40;

    // Within a record.
    pub(crate) const KIND: usize = 0;
    pub(crate) const RECORD_FLAGS: usize = 1;
    pub(crate) const RESERVED: usize = 2;
    pub(crate) const PATH: usize = 3;
    pub(crate) const SERIAL: usize = 4;
    pub(crate) const LOST: usize = 4;
    pub(crate) const SRC: usize = 8;
    pub(crate) const DST: usize = 12;
    pub(crate) const FLOOR: usize = 16;
    pub(crate) const MARKED: usize = 16;
    pub(crate) const RECEIVED: usize = 20;
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
            Some(&VERSION) => {}
            Some(&got) => return Err(ParseError::Version { got }),
        }
        if !(HEADER + TAG..=MAX_DATAGRAM).contains(&octets.len()) {
            return Err(length);
        }
        let packet = Self { octets };
        if octets.len() != HEADER + packet.count() * RECORD + TAG {
            return Err(length);
        }
        Ok(packet)
    }

    /// Which key made the tag, as the datagram says.
    pub fn key_id(&self) -> KeyId {
        KeyId(self.octets[at::KEY_ID])
    }

    /// Flags; version 1 has none.
    pub fn flags(&self) -> u8 {
        self.octets[at::FLAGS]
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
    pub fn records(&self) -> &'a [[u8; RECORD]] {
        self.octets[HEADER..self.octets.len() - TAG].as_chunks().0
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32_at(self.octets, at)
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64_at(self.octets, at)
    }
}

/// Four octets as an integer. Panics beyond the end: offsets are ours, lengths were checked.
pub(crate) fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().expect("four octets"))
}

/// Eight octets as an integer. Panics beyond the end: offsets are ours, lengths were checked.
pub(crate) fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets[at..at + 8].try_into().expect("eight octets"))
}

pub(crate) fn put_u32(octets: &mut [u8], at: usize, value: u32) {
    octets[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(octets: &mut [u8], at: usize, value: u64) {
    octets[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
