//! The hosts that may send feedback to this host, and the sequences heard from each.
//! `bpf/eyeq.bpf.c` has the same law in C.
//!
//! Problem   Every reader must believe the same packets: the kernel, an agent on a host where no
//!           program can set departure times, and the simulator.
//! Approach  A key and a window for each peer and key id. Every refused packet is in exactly one
//!           counter.
//! Promises  A packet is believed at most once, and only with its key. A refused packet changes one
//!           counter and nothing else.

use super::{FeedbackError, FeedbackKey, FeedbackPacket, Told};
use crate::KeyId;
use crate::window::Window;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use thiserror::Error;

/// Most keys of one inbox: two for each of [`crate::MAX_PEERS`], since a rotation needs both.
pub const MAX_FEEDBACK_KEYS: usize = 2 * crate::MAX_PEERS;

/// Reason why a packet is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FeedbackRejected {
    /// The packet is not well formed.
    #[error(transparent)]
    Malformed(#[from] FeedbackError),
    /// The packet is addressed to another host.
    #[error("addressed to {to}")]
    NotForUs {
        /// Address of its destination.
        to: Ipv4Addr,
    },
    /// No key of this id is known for the source: the host is unknown or not confirmed yet.
    #[error("{from} has no key {id} here")]
    Stranger {
        /// Source that the packet claims.
        from: Ipv4Addr,
        /// Id of the key that the packet claims.
        id: u8,
    },
    /// The tag was not made with the claimed key.
    #[error("the tag is wrong")]
    Tag,
    /// The sequence was seen before, or is too old to decide.
    #[error("sequence {sequence} was seen, or is too old")]
    Replayed {
        /// The whole sequence, 64 bits.
        sequence: u64,
    },
    /// The packet is authentic, but has no rate.
    #[error("a rate of zero")]
    Zero,
}

/// Counters of all packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "all but the first count the variants of `FeedbackRejected`")]
pub struct FeedbackCounters {
    /// Packets that were believed.
    pub believed: u64,
    pub malformed: u64,
    pub not_for_us: u64,
    pub strangers: u64,
    pub tag: u64,
    pub replayed: u64,
    pub zero: u64,
}

impl FeedbackCounters {
    fn count(&mut self, result: &Result<(Told, u64), FeedbackRejected>) {
        *match result {
            Ok(_) => &mut self.believed,
            Err(FeedbackRejected::Malformed(_)) => &mut self.malformed,
            Err(FeedbackRejected::NotForUs { .. }) => &mut self.not_for_us,
            Err(FeedbackRejected::Stranger { .. }) => &mut self.strangers,
            Err(FeedbackRejected::Tag) => &mut self.tag,
            Err(FeedbackRejected::Replayed { .. }) => &mut self.replayed,
            Err(FeedbackRejected::Zero) => &mut self.zero,
        } += 1;
    }

    /// Packets of all kinds.
    pub const fn all(&self) -> u64 {
        self.believed
            + self.malformed
            + self.not_for_us
            + self.strangers
            + self.tag
            + self.replayed
            + self.zero
    }
}

/// One key, and the sequences that came with it.
#[derive(Clone, Debug)]
struct Ear {
    key: FeedbackKey,
    /// A window in which only 0 was seen, which is never sent.
    window: Window,
}

/// The keys that one host accepts for feedback.
#[derive(Clone, Debug)]
pub struct Inbox {
    own: Ipv4Addr,
    ears: BTreeMap<(Ipv4Addr, KeyId), Ear>,
    counters: FeedbackCounters,
}

impl Inbox {
    /// An inbox of the host with this address, without any key.
    pub fn new(own: Ipv4Addr) -> Self {
        Self { own, ears: BTreeMap::new(), counters: FeedbackCounters::default() }
    }

    /// Believes `from` with this key from now on. Another key of the same id is forgotten with its
    /// sequences; the same key keeps them. Returns false if there was no room.
    pub fn accept(&mut self, from: Ipv4Addr, key: FeedbackKey) -> bool {
        let at = (from, key.id());
        if self.ears.get(&at).is_some_and(|ear| ear.key == key) {
            return true;
        }
        if self.ears.len() >= MAX_FEEDBACK_KEYS && !self.ears.contains_key(&at) {
            return false;
        }
        self.ears.insert(at, Ear { key, window: Window::new(0) });
        true
    }

    /// Does not believe `from` with this key any more.
    pub fn forget(&mut self, from: Ipv4Addr, id: KeyId) {
        self.ears.remove(&(from, id));
    }

    /// The counters so far.
    pub const fn counters(&self) -> &FeedbackCounters {
        &self.counters
    }

    /// Judges an IPv4 packet. This is the only way in. Returns the message and its sequence if it
    /// is believed.
    pub fn open(&mut self, octets: &[u8]) -> Result<(Told, u64), FeedbackRejected> {
        let result = self.judge(octets);
        self.counters.count(&result);
        result
    }

    fn judge(&mut self, octets: &[u8]) -> Result<(Told, u64), FeedbackRejected> {
        let packet = FeedbackPacket::parse(octets)?;
        let (told, id) = (packet.told(), packet.key_id());
        if told.to != self.own {
            return Err(FeedbackRejected::NotForUs { to: told.to });
        }
        let stranger = FeedbackRejected::Stranger { from: told.from, id: id.0 };
        let ear = self.ears.get_mut(&(told.from, id)).ok_or(stranger)?;
        let sequence = widened(ear.window.highest(), packet.sequence());
        if !packet.is_signed_by(&ear.key, sequence) {
            return Err(FeedbackRejected::Tag);
        }
        if ear.window.admit(sequence).is_none() {
            return Err(FeedbackRejected::Replayed { sequence });
        }
        if told.units == 0 {
            return Err(FeedbackRejected::Zero);
        }
        Ok((told, sequence))
    }
}

/// The sequence with these low bits that is nearest to the newest one.
const fn widened(newest: u64, low: u32) -> u64 {
    let ahead = low.wrapping_sub(newest as u32).cast_signed();
    newest.wrapping_add_signed(ahead as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_sequence_becomes_the_nearest_whole_one() {
        let wrap = 1 << 32;
        assert_eq!(widened(0, 1), 1);
        assert_eq!(widened(70, 6), 6);
        assert_eq!(widened(wrap - 1, 0), wrap);
        assert_eq!(widened(wrap + 5, u32::MAX), wrap - 1);
        assert_eq!(widened(3 * wrap, 1 << 20), 3 * wrap + (1 << 20));
    }
}
