//! Control messages under way between agents.
//!
//! Approach  As with SACK blocks: few packets are letters, so packets point into a table here.
//! Promises  A letter is taken out exactly once, when it arrives or when it is lost.
//! Source    Sizes: `weir-wire` (a header, a tag, and a record per message); EyeQ's: §3.2.

use weir_core::message::Message;
use weir_units::{HostId, SortedMap};
use weir_wire::packet::{HEADER, RECORD, TAG};

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
/// EyeQ's message, and Level's: the least Ethernet frame (EyeQ §3.2).
const SINGLE: u16 = 64;

/// One datagram.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(super) from: HostId,
    pub(super) to: HostId,
    /// Which life of its sender's agent wrote it, and to which one of its receiver's: the last that
    /// its sender has heard of.
    pub(super) life: u32,
    pub(super) echo: Option<u32>,
    /// Counted from 1 between these two.
    pub(super) number: u64,
    pub(super) words: Words,
}

/// What a datagram says.
#[derive(Clone, Debug)]
pub(crate) enum Words {
    /// Records of `weir-wire`. None: a greeting.
    Records(Vec<Message>),
    /// A message that data planes make: EyeQ's feedback, Level's words.
    Single(Message),
}

impl Letter {
    /// Octets on the wire.
    pub(super) fn size(&self) -> u16 {
        match &self.words {
            Words::Records(messages) => (HEADERS + HEADER + TAG + RECORD * messages.len()) as u16,
            Words::Single(_) => SINGLE,
        }
    }
}

/// What agents have written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Octets on the wire.
    pub(crate) octets: u64,
    /// The part of these that reports of congestion took.
    pub(crate) reports: u64,
    /// Offers of floors.
    pub(crate) offers: u64,
}

impl Written {
    /// One more letter. What is around its records is theirs in equal parts.
    pub(super) fn add(&mut self, letter: &Letter) {
        let size = u64::from(letter.size());
        self.octets += size;
        let Words::Records(messages) = &letter.words else { return };
        let (mut offers, mut reports) = (0, 0);
        for message in messages {
            match message {
                Message::Offer(_) => offers += 1,
                Message::Congestion(_) | Message::PathCongestion(..) => reports += 1,
                Message::Echo(_) | Message::Feedback(_) | Message::Level(_) => {}
            }
        }
        self.offers += offers;
        self.reports += size * reports / (messages.len() as u64).max(1);
    }
}

/// All letters under way.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    table: Vec<Option<Letter>>,
    free: Vec<u32>,
    /// How many from one host to another found no room in a port, or were lost on a link.
    lost: SortedMap<(HostId, HostId), u64>,
}

impl Letters {
    pub(super) fn put(&mut self, letter: Letter) -> u32 {
        if let Some(id) = self.free.pop() {
            self.table[id as usize] = Some(letter);
            return id;
        }
        self.table.push(Some(letter));
        self.table.len() as u32 - 1
    }

    pub(crate) fn to(&self, id: u32) -> HostId {
        self.table[id as usize].as_ref().expect("a letter is under way").to
    }

    /// One is lost on its way.
    pub(crate) fn lose(&mut self, id: u32) {
        let letter = self.take(id);
        *self.lost.entry((letter.from, letter.to)).or_default() += 1;
    }

    /// How many were lost on their way so far, from one host to another.
    pub(crate) fn lost(&self) -> &SortedMap<(HostId, HostId), u64> {
        &self.lost
    }

    pub(crate) fn take(&mut self, id: u32) -> Letter {
        self.free.push(id);
        self.table[id as usize].take().expect("a letter is taken once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::message::{Backlog, Congestion, Echo};
    use weir_units::{PairId, Rate, VmId};

    #[test]
    fn what_is_around_records_is_theirs_in_equal_parts() {
        let pair = PairId::new(VmId(1), VmId(2));
        let report = Message::Congestion(Congestion { pair, lost: 1, marked: 0, received: 9 });
        let echo = Message::Echo(Echo {
            pair,
            serial: 1,
            floor: Rate::ZERO,
            most: None,
            backlog: Backlog::Unknown,
        });
        let letter = |messages: Vec<Message>| {
            let words = Words::Records(messages);
            Letter { from: HostId(0), to: HostId(1), life: 1, echo: None, number: 1, words }
        };
        let mut written = Written::default();
        let both = letter(vec![report, echo]);
        written.add(&both);
        let size = u64::from(both.size());
        assert_eq!(written, Written { octets: size, reports: size / 2, offers: 0 });
        written.add(&letter(Vec::new()));
        assert_eq!(written.reports, size / 2, "a greeting reports nothing");
        assert!(written.octets > size);
    }
}
