//! The meaning of a datagram: header and messages as values that need no further checks.
//!
//! Problem   Untrusted octets must not reach the algorithms.
//! Approach  [`parse`] checks everything that can be checked without state; [`encode`] is its
//!           inverse. Both directions use one test of what can be said, [`sayable`].
//! Promises  `encode` of what `parse` gave is the same octets again (with the same key).
//! Not here  Authenticity and freshness: [`crate::Session`] checks them.

use crate::packet::{
    self, FIRST, HEADER, Packet, SECOND, TAG, THIRD, VERSION, at, record_of, records_in,
};
use crate::{Key, KeyId};
use std::num::NonZeroU64;
use thiserror::Error;
use weir_core::level::Level;
use weir_core::message::{Backlog, Congestion, Echo, LevelWord, Message, Offer};
use weir_core::path::MAX_PATHS;
use weir_units::{HostId, PairId, PathId, Rate, Span, VmId};

/// 10 Tbit/s. A record with a higher rate is an error, since no link has it.
pub const MAX_RATE: Rate = Rate::from_mbps(10_000_000);

const OFFER: u8 = 1;
const ECHO: u8 = 2;
const CONGESTION: u8 = 3;
const PATH_CONGESTION: u8 = 4;
const MAY: u8 = 5;
const USES: u8 = 6;
const UNBOUNDED: u8 = 0b01;
const CONFIRM: u8 = 0b10;
const SAYS_MOST: u8 = 0b100;
const WAITS: u8 = 0b11000;
/// Largest epoch that fits into a datagram of the first version.
const FIRST_EPOCH: u32 = 0xff_ffff;

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

/// What a host last heard from another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The other host's incarnation.
    pub incarnation: Incarnation,
    /// The highest sequence heard from that incarnation, at least 1.
    pub sequence: u64,
}

/// A datagram's header: everything but records and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The version of the datagram, from [`FIRST`](crate::packet::FIRST) to [`VERSION`].
    pub version: u8,
    /// The highest version that the sender parses, not below `version`.
    pub speaks: u8,
    /// Id of the key that makes the tag.
    pub key_id: KeyId,
    /// Epoch of floors and configuration, reserved for a controller: see [`packet`](crate::packet).
    /// A datagram of the first version has its lowest 24 bits.
    pub epoch: u32,
    /// Sender.
    pub from: HostId,
    /// Receiver.
    pub to: HostId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// Sequence from this incarnation of the sender to this receiver. It begins with 1 and strictly
    /// grows.
    pub sequence: u64,
    /// What the sender knows of the receiver, if it knows it.
    pub echo: Option<Heard>,
}

/// A well-formed datagram. Its tag is not verified, so its sender is not known.
#[derive(Clone, Debug)]
pub struct Datagram<'a> {
    /// Sender, receiver, incarnation and sequence.
    pub header: Header,
    /// The messages. A datagram without messages is a greeting.
    pub messages: Messages<'a>,
}

/// The messages of a well-formed datagram, in its order.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    version: u8,
    records: std::slice::ChunksExact<'a, u8>,
}

impl Iterator for Messages<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let read = |record| read(self.version, record).expect("records were checked");
        self.records.next().map(read)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl ExactSizeIterator for Messages<'_> {}

/// Reason why octets are not a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// The length does not fit the count of records, or is outside the bounds of datagrams.
    #[error("{got} octets are not the length of a datagram")]
    Length {
        /// Octets given.
        got: usize,
    },
    /// The version is not one of ours.
    #[error("version {got}, this side speaks {FIRST} to {VERSION}")]
    Version {
        /// The version given.
        got: u8,
    },
    /// A header field has a value that its version does not use.
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

/// Reason why a record is not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RecordError {
    /// Not a kind that is known.
    #[error("unknown kind {got}")]
    UnknownKind {
        /// The kind given.
        got: u8,
    },
    /// A bit that the kind does not use is set.
    #[error("unused bits are set")]
    ReservedBits,
    /// The pair's source is its destination: a VM does not talk to itself over the network.
    #[error("the pair's source is its destination")]
    ReservedPair,
    /// The rate is above [`MAX_RATE`].
    #[error("{} is beyond any link", Rate::from_bps(*bps))]
    RateBeyondLink {
        /// The rate given, in bit/s.
        bps: u64,
    },
    /// The path is beyond [`MAX_PATHS`], the most that two hosts have.
    #[error("{path} is beyond the {MAX_PATHS} that two hosts may have")]
    UnknownPath {
        /// The path given.
        path: PathId,
    },
    /// The level is none: below 1, or above [`Level::MAX`].
    #[error("{raw} / 4096 is no level")]
    NoLevel {
        /// What was given, in 4096ths.
        raw: u32,
    },
    /// EyeQ's feedback has packets of its own ([`crate::FeedbackPacket`]).
    #[error("feedback is no record")]
    OtherPacket,
}

/// Parses untrusted octets into values that need no further checks. Does not verify the tag.
pub fn parse(octets: &[u8]) -> Result<Datagram<'_>, ParseError> {
    of(Packet::new(octets)?)
}

/// The same as [`parse`] for octets whose length is checked already.
pub(crate) fn of(packet: Packet<'_>) -> Result<Datagram<'_>, ParseError> {
    let header = header_of(&packet)?;
    let (version, records) = (packet.version(), packet.records());
    for (index, record) in records.clone().enumerate() {
        read(version, record).map_err(|why| ParseError::Record { index, why })?;
    }
    Ok(Datagram { header, messages: Messages { version, records } })
}

fn header_of(packet: &Packet<'_>) -> Result<Header, ParseError> {
    let unused = |field| ParseError::Header { field };
    let version = packet.version();
    let epoch = packet.u32(at::EPOCH);
    let (speaks, epoch) = match (packet.octet(at::SPEAKS), packet.octet(at::FIRST_SPEAKS)) {
        (0, 0) if version == FIRST => (FIRST, epoch),
        (0, later) if version == FIRST && later > FIRST => (later, epoch & FIRST_EPOCH),
        (speaks, _) if version != FIRST && speaks >= version => (speaks, epoch),
        _ => return Err(unused("highest version")),
    };
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
        version,
        speaks,
        key_id: packet.key_id(),
        epoch,
        from: HostId(packet.u32(at::SENDER)),
        to: HostId(packet.u32(at::RECEIVER)),
        incarnation,
        sequence,
        echo,
    })
}

/// Whether a message has a form in a version of the wire, that the receiver accepts.
pub fn sayable(version: u8, message: &Message) -> Result<(), RecordError> {
    let Some(pair) = message.pair() else {
        let is_known = version > THIRD;
        return is_known.then_some(()).ok_or(RecordError::UnknownKind { got: MAY });
    };
    if pair.src == pair.dst {
        return Err(RecordError::ReservedPair);
    }
    match message {
        Message::Offer(Offer { floor, .. }) | Message::Echo(Echo { floor, .. })
            if *floor > MAX_RATE =>
        {
            Err(RecordError::RateBeyondLink { bps: floor.as_bps() })
        }
        Message::Echo(Echo { most: Some(most), .. }) if *most > MAX_RATE => {
            Err(RecordError::RateBeyondLink { bps: most.as_bps() })
        }
        Message::PathCongestion(path, _) if path.0 as usize >= MAX_PATHS => {
            Err(RecordError::UnknownPath { path: *path })
        }
        Message::Feedback(_) => Err(RecordError::OtherPacket),
        _ => Ok(()),
    }
}

/// Builds one datagram with its tag.
///
/// A datagram of the first version omits [`Echo::most`] and [`Offer::round_trip`], for which it has
/// no room. Later versions have the round trip in whole microseconds, below 72 minutes. From the
/// third version on there is [`Echo::backlog`].
///
/// # Panics
///
/// There are more messages than [`records_in`](crate::packet::records_in), a message is not
/// [`sayable`], a sequence of the header is 0, or the version is not ours. All of these are
/// mistakes of the caller.
pub fn encode(header: &Header, key: &Key, messages: &[Message]) -> Vec<u8> {
    let version = header.version;
    assert!(
        (FIRST..=VERSION).contains(&version),
        "the caller chose a version that this side does not speak"
    );
    assert!(header.speaks >= version, "a sender parses every version that it speaks");
    assert!(messages.len() <= records_in(version), "the caller cuts batches");
    assert!(header.sequence > 0, "sequences begin with 1");
    let mut octets = vec![0; HEADER + messages.len() * record_of(version) + TAG];
    octets[at::VERSION] = version;
    octets[at::KEY_ID] = header.key_id.0;
    octets[at::COUNT] = u8::try_from(messages.len()).expect("56 at most");
    if version == FIRST {
        packet::put_u32(&mut octets, at::EPOCH, header.epoch & FIRST_EPOCH);
        octets[at::FIRST_SPEAKS] = if header.speaks == FIRST { 0 } else { header.speaks };
    } else {
        packet::put_u32(&mut octets, at::EPOCH, header.epoch);
        octets[at::SPEAKS] = header.speaks;
    }
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
    let records = octets[HEADER..end].chunks_exact_mut(record_of(version));
    for (record, message) in records.zip(messages) {
        sayable(version, message).expect("the caller says what can be said");
        write(version, record, message);
    }
    let tag = key.tag(&octets[..end]);
    packet::put_u64(&mut octets, end, tag);
    octets
}

fn write(version: u8, record: &mut [u8], message: &Message) {
    if let Some(pair) = message.pair() {
        packet::put_u32(record, at::SRC, pair.src.0);
        packet::put_u32(record, at::DST, pair.dst.0);
    }
    match *message {
        Message::Offer(Offer { serial, floor, unbounded, confirm, round_trip, .. }) => {
            record[at::KIND] = OFFER;
            record[at::RECORD_FLAGS] =
                if unbounded { UNBOUNDED } else { 0 } | if confirm { CONFIRM } else { 0 };
            packet::put_u32(record, at::SERIAL, serial);
            packet::put_u64(record, at::FLOOR, floor.as_bps());
            if let (Some(time), false) = (round_trip, version == FIRST) {
                let micros = u32::try_from(time.as_nanos() / 1000).unwrap_or(u32::MAX);
                packet::put_u32(record, at::ROUND_TRIP, micros.max(1));
            }
        }
        Message::Echo(Echo { serial, floor, most, backlog, .. }) => {
            record[at::KIND] = ECHO;
            packet::put_u32(record, at::SERIAL, serial);
            packet::put_u64(record, at::FLOOR, floor.as_bps());
            if let (Some(most), false) = (most, version == FIRST) {
                record[at::RECORD_FLAGS] = SAYS_MOST;
                packet::put_u64(record, at::MOST, most.as_bps());
            }
            if version > SECOND {
                record[at::RECORD_FLAGS] |= waits(backlog) << WAITS.trailing_zeros();
            }
        }
        Message::Congestion(report) => {
            record[at::KIND] = CONGESTION;
            write_report(record, report);
        }
        Message::PathCongestion(path, report) => {
            record[at::KIND] = PATH_CONGESTION;
            let at = if version == FIRST { at::FIRST_PATH } else { at::PATH };
            record[at] = u8::try_from(path.0).expect("sayable");
            write_report(record, report);
        }
        Message::Level(word) => {
            let (kind, level) = match word {
                LevelWord::May(level) => (MAY, level),
                LevelWord::Uses(level) => (USES, level),
            };
            record[at::KIND] = kind;
            packet::put_u32(record, at::WORD, level.into());
        }
        Message::Feedback(_) => unreachable!("not sayable"),
    }
}

/// What waits of a pair, as a field of two bits.
const fn waits(backlog: Backlog) -> u8 {
    match backlog {
        Backlog::Unknown => 0,
        Backlog::Free => 1,
        Backlog::Sometimes => 2,
        Backlog::Always => 3,
    }
}

/// The inverse of [`waits`], from all bits of a record.
const fn backlog_of(flags: u8) -> Backlog {
    match (flags & WAITS) >> WAITS.trailing_zeros() {
        0 => Backlog::Unknown,
        1 => Backlog::Free,
        2 => Backlog::Sometimes,
        _ => Backlog::Always,
    }
}

/// Round trip of an offer as a field: microseconds, 0 if it is not known.
fn round_trip_of(version: u8, record: &[u8]) -> Option<Span> {
    let micros = if version == FIRST { 0 } else { packet::u32_at(record, at::ROUND_TRIP) };
    (micros > 0).then_some(Span::from_micros(micros.into()))
}

fn write_report(record: &mut [u8], report: Congestion) {
    packet::put_u32(record, at::LOST, report.lost);
    packet::put_u32(record, at::MARKED, report.marked);
    packet::put_u32(record, at::RECEIVED, report.received);
}

/// A record of the kinds that are about two hosts.
fn read_level(record: &[u8]) -> Result<Message, RecordError> {
    let is_blank = |octets: &[u8]| octets.iter().all(|octet| *octet == 0);
    if !is_blank(&record[at::RECORD_FLAGS..at::WORD]) || !is_blank(&record[at::SRC..]) {
        return Err(RecordError::ReservedBits);
    }
    let raw = packet::u32_at(record, at::WORD);
    let level = Level::from(raw);
    if u32::from(level) != raw {
        return Err(RecordError::NoLevel { raw });
    }
    let is_may = record[at::KIND] == MAY;
    Ok(Message::Level(if is_may { LevelWord::May(level) } else { LevelWord::Uses(level) }))
}

fn read(version: u8, record: &[u8]) -> Result<Message, RecordError> {
    if version > THIRD && [MAY, USES].contains(&record[at::KIND]) {
        return read_level(record);
    }
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
    // Fields that this kind or version does not use must be 0.
    let is_later = version != FIRST;
    let path = record[if is_later { at::PATH } else { at::FIRST_PATH }];
    let (message, used_flags) = match record[at::KIND] {
        OFFER => {
            let unbounded = flags & UNBOUNDED != 0;
            let confirm = flags & CONFIRM != 0;
            let round_trip = round_trip_of(version, record);
            let offer = Offer { pair, serial, floor, unbounded, confirm, round_trip };
            (Message::Offer(offer), UNBOUNDED | CONFIRM)
        }
        ECHO => {
            let says_most = is_later && flags & SAYS_MOST != 0;
            let most = says_most.then(|| Rate::from_bps(packet::u64_at(record, at::MOST)));
            let (backlog, waits) = match version {
                ..=SECOND => (Backlog::Unknown, 0),
                _ => (backlog_of(flags), WAITS),
            };
            let used = if says_most { SAYS_MOST } else { 0 };
            (Message::Echo(Echo { pair, serial, floor, most, backlog }), used | waits)
        }
        CONGESTION => (Message::Congestion(report), 0),
        PATH_CONGESTION => (Message::PathCongestion(PathId(path.into()), report), 0),
        got => return Err(RecordError::UnknownKind { got }),
    };
    let says_most = used_flags & SAYS_MOST != 0;
    let has_path = matches!(message, Message::PathCongestion(..));
    let has_time = matches!(message, Message::Offer(_));
    let blank = |from: usize, to: usize| record[from..to].iter().all(|octet| *octet == 0);
    let is_clean = if is_later {
        let path_is_clean = has_path || blank(at::PATH, at::BLANK);
        let end = if has_time { at::ROUND_TRIP } else { record.len() };
        let tail = blank(at::LEVEL, at::PATH) && path_is_clean && blank(at::BLANK, end);
        blank(at::HOSES, at::SERIAL) && (says_most || tail)
    } else {
        record[at::HOSES] == 0 && (path == 0 || has_path)
    };
    if flags & !used_flags != 0 || !is_clean {
        return Err(RecordError::ReservedBits);
    }
    sayable(version, &message).map(|()| message)
}
