//! Records as octets: a length, a checksum, and what `postcard` makes of a row.
//!
//! Promises  A checksum covers a record and all before it: no record can be changed, moved, left out or repeated
//!           without the reader seeing it.

use crate::layout::layout;
use crate::{FORMAT, Read};
use serde::Serialize;

/// What every segment begins with.
const MAGIC: &[u8; 8] = b"weirjrnl";
/// Octets before the first record: magic, format, layout, checksum.
pub(crate) const HEADER: usize = 20;
/// Octets of a record before its row: length and checksum.
const PREFIX: usize = 8;

/// Why a journal could not be replayed, or did not replay as it was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The folder has no segments.
    #[error("no journal is here: no file of the folder ends in .{}", crate::SUFFIX)]
    Empty,
    /// The file does not begin as a journal does.
    #[error("this is no journal of weir: the first {HEADER} octets are not those of one")]
    NoJournal,
    /// Another version of the format.
    #[error(
        "the journal has format {found}, and this weir reads format {FORMAT}: use the version that wrote it"
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The same format, and machines with other fields.
    #[error(
        "the journal was written by another build, whose machines have other fields ({found:08x}, here \
         {here:08x}): use the build that wrote it"
    )]
    Build {
        /// The number in the file.
        found: u32,
        /// The number of this build.
        here: u32,
    },
    /// The file ends within a record, or before the closing record.
    #[error(
        "record {record} is cut off: the {} before it were replayed and agree. The agent was killed or still \
         writes, or the file was shortened", record - 1
    )]
    CutOff {
        /// Which one, the first is 1.
        record: u64,
    },
    /// A record is not as it was written.
    #[error(
        "record {record} was changed after it was written (its checksum is wrong): nothing from it on is replayed"
    )]
    Changed {
        /// Which one.
        record: u64,
    },
    /// A record that this build cannot read, though its checksum is right.
    #[error("record {record} cannot be read: {what}")]
    Unreadable {
        /// Which one.
        record: u64,
        /// What is wrong.
        what: String,
    },
    /// The machine wants something else than it did.
    #[error("record {record} differs: {what}")]
    Differs {
        /// Which one.
        record: u64,
        /// What, when and why.
        what: String,
    },
}

/// Where a segment stands: the checksum so far, and the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chain {
    crc: u32,
    pub(crate) records: u64,
}

/// Begins a segment.
pub(crate) fn begin(octets: &mut Vec<u8>) -> Chain {
    begin_as(octets, FORMAT, layout())
}

pub(crate) fn begin_as(octets: &mut Vec<u8>, format: u32, layout: u32) -> Chain {
    let start = octets.len();
    octets.extend(MAGIC);
    octets.extend(format.to_le_bytes());
    octets.extend(layout.to_le_bytes());
    let crc = crc32fast::hash(&octets[start..]);
    octets.extend(crc.to_le_bytes());
    Chain { crc, records: 0 }
}

/// Appends a record.
pub(crate) fn append(octets: &mut Vec<u8>, chain: &mut Chain, row: &impl Serialize) {
    let start = octets.len();
    octets.extend([0; PREFIX]);
    let filled = postcard::to_extend(row, std::mem::take(octets));
    *octets = filled.expect("memory takes every row");
    let length = octets.len() - start - PREFIX;
    let length = u32::try_from(length).expect("a row is far below 4 GB");
    chain.crc = checksum(chain.crc, &octets[start + PREFIX..]);
    chain.records += 1;
    octets[start..start + 4].copy_from_slice(&length.to_le_bytes());
    octets[start + 4..start + PREFIX].copy_from_slice(&chain.crc.to_le_bytes());
}

fn checksum(before: u32, octets: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&before.to_le_bytes());
    hasher.update(octets);
    hasher.finalize()
}

/// Reads the records of a segment, one after the other.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    chain: Chain,
}

impl<'a> Reader<'a> {
    /// # Errors
    /// The header is not one of this build.
    pub(crate) fn new(octets: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = octets.split_at_checked(HEADER).ok_or(Error::NoJournal)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let crc = word(16);
        if &header[..8] != MAGIC || crc32fast::hash(&header[..16]) != crc {
            return Err(Error::NoJournal);
        }
        if word(8) != FORMAT {
            return Err(Error::Version { found: word(8) });
        }
        if word(12) != layout() {
            return Err(Error::Build { found: word(12), here: layout() });
        }
        Ok(Self { rest, chain: Chain { crc, records: 0 } })
    }

    /// The number of the record that was read last; the first is 1.
    pub(crate) fn record(&self) -> u64 {
        self.chain.records
    }

    /// Whether octets are left.
    pub(crate) fn has_more(&self) -> bool {
        !self.rest.is_empty()
    }

    /// # Errors
    /// The next record is cut off or was changed.
    pub(crate) fn next(&mut self) -> Result<Read, Error> {
        let record = self.chain.records + 1;
        let cut = || Error::CutOff { record };
        let (prefix, rest) = self.rest.split_at_checked(PREFIX).ok_or_else(cut)?;
        let word = |at: usize| u32::from_le_bytes(prefix[at..at + 4].try_into().expect("four"));
        let (row, rest) = rest.split_at_checked(word(0) as usize).ok_or_else(cut)?;
        let crc = checksum(self.chain.crc, row);
        if crc != word(4) {
            return Err(Error::Changed { record });
        }
        let unreadable = |what: String| Error::Unreadable { record, what };
        let (read, left) = postcard::take_from_bytes(row).map_err(|e| unreadable(e.to_string()))?;
        if !left.is_empty() {
            return Err(unreadable(format!("{} octets are left over", left.len())));
        }
        self.rest = rest;
        self.chain = Chain { crc, records: record };
        Ok(read)
    }
}
