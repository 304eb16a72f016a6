//! The meaning of a datagram: header and messages as values that need no further checks.
//!
//! Problem   Untrusted octets must not reach the algorithms.
//! Approach  [`parse`] checks everything that can be checked without state; [`encode`] is its
//!           inverse. Both directions use one test of what can be said, [`sayable`].
//! Promises  `encode` of what `parse` gave is the same octets again (with the same key).
//! Not here  Who sent it, and when: tags and freshness are [`crate::Session`]'s.

use crate::packet::{self, HEADER, MAX_RECORDS, Packet, RECORD, TAG, VERSION, at};
use crate::{Key, KeyId};
use std::num::NonZeroU64;
use thiserror::Error;
use weir_core::message::{Congestion, Echo, Message, Offer};
use weir_core::path::MAX_PATHS;
use weir_units::{HostId, PairId, PathId, Rate, VmId};

/// 10 Tbit/s. A floor above it is no floor of any link, but an error.
pub const MAX_RATE: Rate = Rate::from_mbps(10_000_000);

const OFFER: u8 = 1;
const ECHO: u8 = 2;
const CONGESTION: u8 = 3;
const PATH_CONGESTION: u8 = 4;
const UNBOUNDED: u8 = 0b01;
const CONFIRM: u8 = 0b10;

/// One start of an agent: a random number that the caller draws, never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Incarnation(NonZeroU64);

impl Incarnation {
    /// `None` for 0, which means "unknown" on the wire: draw again.
    pub const fn new(random: u64) -> Option<Self> {
        match NonZeroU64::new(random) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// What a host last heard from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// From which of its incarnations.
    pub incarnation: Incarnation,
    /// The highest sequence heard from that incarnation, at least 1.
    pub sequence: u64,
}

/// Everything of a datagram but records and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which key makes the tag.
    pub key_id: KeyId,
    /// Of floors and configuration: reserved for a controller, see [`packet`](crate::packet).
    pub epoch: u32,
    /// Sender.
    pub from: HostId,
    /// Receiver.
    pub to: HostId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// From this sender's incarnation to this receiver, strictly increasing, from 1.
    pub sequence: u64,
    /// What the sender knows of the receiver, if anything.
    pub echo: Option<Heard>,
}

/// A datagram that is well formed. Nothing is said about who made it.
#[derive(Clone, Debug)]
pub struct Datagram<'a> {
    /// Who to whom, and when.
    pub header: Header,
    /// What it says. Empty: a greeting.
    pub messages: Messages<'a>,
}

/// The messages of a well-formed datagram, in its order.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    records: std::slice::Iter<'a, [u8; RECORD]>,
}

impl Iterator for Messages<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        self.records.next().map(|record| read(record).expect("records were checked"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl ExactSizeIterator for Messages<'_> {}

/// Why octets are not a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// Shorter or longer than its count of records says, or than any datagram may be.
    #[error("{got} octets are not the length of a datagram")]
    Length {
        /// Octets given.
        got: usize,
    },
    /// Not our version.
    #[error("version {got}, this side speaks {VERSION}")]
    Version {
        /// The version given.
        got: u8,
    },
    /// A header field has a value that version 1 does not use.
    #[error("unused value in the header's {field}")]
    Header {
        /// Its name in the table of [`crate::packet`].
        field: &'static str,
    },
    /// A record makes no sense.
    #[error("record {index}: {why}")]
    Record {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it.
        why: RecordError,
    },
}

/// Why a record is not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecordError {
    /// Not a kind of version 1.
    #[error("unknown kind {got}")]
    UnknownKind {
        /// The kind given.
        got: u8,
    },
    /// A bit that the kind does not use is set.
    #[error("unused bits are set")]
    ReservedBits,
    /// A VM does not talk to itself over the network.
    #[error("the pair's source is its destination")]
    ReservedPair,
    /// Above [`MAX_RATE`].
    #[error("{bps} bit/s is beyond any link")]
    RateBeyondLink {
        /// The rate given, in bit/s.
        bps: u64,
    },
    /// Two hosts have no more than [`MAX_PATHS`].
    #[error("{path} is beyond the {MAX_PATHS} that two hosts may have")]
    UnknownPath {
        /// The path given.
        path: PathId,
    },
}

/// Untrusted octets in, values that need no further checks out. Does not look at the tag.
pub fn parse(octets: &[u8]) -> Result<Datagram<'_>, ParseError> {
    of(Packet::new(octets)?)
}

/// The same for octets whose length is checked already.
pub(crate) fn of(packet: Packet<'_>) -> Result<Datagram<'_>, ParseError> {
    let header = header_of(&packet)?;
    let records = packet.records();
    for (index, record) in records.iter().enumerate() {
        read(record).map_err(|why| ParseError::Record { index, why })?;
    }
    Ok(Datagram { header, messages: Messages { records: records.iter() } })
}

fn header_of(packet: &Packet<'_>) -> Result<Header, ParseError> {
    let unused = |field| ParseError::Header { field };
    if packet.flags() != 0 {
        return Err(unused("flags"));
    }
    let incarnation =
        Incarnation::new(packet.u64(at::INCARNATION)).ok_or(unused("sender's incarnation"))?;
    let sequence = packet.u64(at::SEQUENCE);
    if sequence == 0 {
        return Err(unused("sequence"));
    }
    let heard = packet.u64(at::ECHO_SEQUENCE);
    let echo = match (Incarnation::new(packet.u64(at::ECHO_INCARNATION)), heard) {
        (None, 0) => None,
        (Some(incarnation), 1..) => Some(Heard { incarnation, sequence: heard }),
        _ => return Err(unused("echo")),
    };
    Ok(Header {
        key_id: packet.key_id(),
        epoch: packet.u32(at::EPOCH),
        from: HostId(packet.u32(at::SENDER)),
        to: HostId(packet.u32(at::RECEIVER)),
        incarnation,
        sequence,
        echo,
    })
}

/// Whether a message can be put on the wire, that is, whether the other side would take it.
pub fn sayable(message: &Message) -> Result<(), RecordError> {
    let pair = message.pair();
    if pair.src == pair.dst {
        return Err(RecordError::ReservedPair);
    }
    match message {
        Message::Offer(Offer { floor, .. }) | Message::Echo(Echo { floor, .. })
            if *floor > MAX_RATE =>
        {
            Err(RecordError::RateBeyondLink { bps: floor.as_bps() })
        }
        Message::PathCongestion(path, _) if path.0 as usize >= MAX_PATHS => {
            Err(RecordError::UnknownPath { path: *path })
        }
        _ => Ok(()),
    }
}

/// One datagram, with its tag.
///
/// Panics if there are more than [`MAX_RECORDS`] messages or one is not [`sayable`], and if a
/// sequence in the header is 0: what goes in here is ours.
pub fn encode(header: &Header, key: &Key, messages: &[Message]) -> Vec<u8> {
    assert!(messages.len() <= MAX_RECORDS, "the caller cuts batches");
    assert!(header.sequence > 0, "sequences begin with 1");
    let mut octets = vec![0; HEADER + messages.len() * RECORD + TAG];
    octets[at::VERSION] = VERSION;
    octets[at::KEY_ID] = header.key_id.0;
    octets[at::COUNT] = u8::try_from(messages.len()).expect("56 at most");
    packet::put_u32(&mut octets, at::EPOCH, header.epoch);
    packet::put_u32(&mut octets, at::SENDER, header.from.0);
    packet::put_u32(&mut octets, at::RECEIVER, header.to.0);
    packet::put_u64(&mut octets, at::INCARNATION, header.incarnation.get());
    packet::put_u64(&mut octets, at::SEQUENCE, header.sequence);
    if let Some(echo) = header.echo {
        assert!(echo.sequence > 0, "sequences begin with 1");
        packet::put_u64(&mut octets, at::ECHO_INCARNATION, echo.incarnation.get());
        packet::put_u64(&mut octets, at::ECHO_SEQUENCE, echo.sequence);
    }
    let end = octets.len() - TAG;
    let (records, _) = octets[HEADER..end].as_chunks_mut::<RECORD>();
    for (record, message) in records.iter_mut().zip(messages) {
        sayable(message).expect("the caller says what can be said");
        write(record, message);
    }
    let tag = key.tag(&octets[..end]);
    packet::put_u64(&mut octets, end, tag);
    octets
}

fn write(record: &mut [u8; RECORD], message: &Message) {
    let pair = message.pair();
    packet::put_u32(record, at::SRC, pair.src.0);
    packet::put_u32(record, at::DST, pair.dst.0);
    match *message {
        Message::Offer(Offer { serial, floor, unbounded, confirm, .. }) => {
            record[at::KIND] = OFFER;
            record[at::RECORD_FLAGS] =
                if unbounded { UNBOUNDED } else { 0 } | if confirm { CONFIRM } else { 0 };
            packet::put_u32(record, at::SERIAL, serial);
            packet::put_u64(record, at::FLOOR, floor.as_bps());
        }
        Message::Echo(Echo { serial, floor, .. }) => {
            record[at::KIND] = ECHO;
            packet::put_u32(record, at::SERIAL, serial);
            packet::put_u64(record, at::FLOOR, floor.as_bps());
        }
        Message::Congestion(report) => {
            record[at::KIND] = CONGESTION;
            write_report(record, report);
        }
        Message::PathCongestion(path, report) => {
            record[at::KIND] = PATH_CONGESTION;
            record[at::PATH] = u8::try_from(path.0).expect("sayable");
            write_report(record, report);
        }
    }
}

fn write_report(record: &mut [u8; RECORD], report: Congestion) {
    packet::put_u32(record, at::LOST, report.lost);
    packet::put_u32(record, at::MARKED, report.marked);
    packet::put_u32(record, at::RECEIVED, report.received);
}

fn read(record: &[u8; RECORD]) -> Result<Message, RecordError> {
    let flags = record[at::RECORD_FLAGS];
    let pair =
        PairId::new(VmId(packet::u32_at(record, at::SRC)), VmId(packet::u32_at(record, at::DST)));
    let serial = packet::u32_at(record, at::SERIAL);
    let floor = Rate::from_bps(packet::u64_at(record, at::FLOOR));
    let report = Congestion {
        pair,
        lost: packet::u32_at(record, at::LOST),
        marked: packet::u32_at(record, at::MARKED),
        received: packet::u32_at(record, at::RECEIVED),
    };
    let path = record[at::PATH];
    let (message, used_flags) = match record[at::KIND] {
        OFFER => {
            let unbounded = flags & UNBOUNDED != 0;
            let confirm = flags & CONFIRM != 0;
            let offer = Offer { pair, serial, floor, unbounded, confirm };
            (Message::Offer(offer), UNBOUNDED | CONFIRM)
        }
        ECHO => (Message::Echo(Echo { pair, serial, floor }), 0),
        CONGESTION => (Message::Congestion(report), 0),
        PATH_CONGESTION => (Message::PathCongestion(PathId(path.into()), report), 0),
        got => return Err(RecordError::UnknownKind { got }),
    };
    let has_path = matches!(message, Message::PathCongestion(..));
    if flags & !used_flags != 0 || record[at::RESERVED] != 0 || (path != 0 && !has_path) {
        return Err(RecordError::ReservedBits);
    }
    sayable(&message).map(|()| message)
}
