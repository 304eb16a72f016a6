//! Who may feed back to this host, and what was heard of each: as `bpf/eyeq.bpf.c` has it, in Rust.
//!
//! Problem   The same packets must be believed wherever they are read: in the kernel, by an agent where
//!           no program can set departure times, in the simulator.
//! Approach  A key and a window for each peer and key id. What is not as it should be ends in one counter.
//! Promises  At most once; nothing without the key; a refused packet moves one counter and nothing else.

use super::{FeedbackError, FeedbackKey, FeedbackPacket, Told};
use crate::KeyId;
use crate::window::Window;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use thiserror::Error;

/// Most keys of one inbox: as many as [`crate::MAX_PEERS`], and all again in a rotation.
pub const MAX_FEEDBACK_KEYS: usize = 2 * crate::MAX_PEERS;

/// Why a packet is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FeedbackRejected {
    /// Not of this form.
    #[error(transparent)]
    Malformed(#[from] FeedbackError),
    /// To another host.
    #[error("addressed to {to}")]
    NotForUs {
        /// Whom it is addressed to.
        to: Ipv4Addr,
    },
    /// From a host that has no such key here: unknown, or not yet confirmed.
    #[error("{from} has no key {id} here")]
    Stranger {
        /// Where it says it comes from.
        from: Ipv4Addr,
        /// The key it names.
        id: u8,
    },
    /// Not tagged with the key it names.
    #[error("the tag is wrong")]
    Tag,
    /// Seen before, or too old to tell.
    #[error("sequence {sequence} was seen, or is too old")]
    Replayed {
        /// The whole sequence.
        sequence: u64,
    },
    /// Authentic, and no rate.
    #[error("a rate of zero")]
    Zero,
}

/// What became of all packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "all but the first count the variants of `FeedbackRejected`")]
pub struct FeedbackCounters {
    /// Believed.
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

/// One key, and what was heard by it.
#[derive(Clone, Debug)]
struct Ear {
    key: FeedbackKey,
    /// Has seen 0, which nobody sends.
    window: Window,
}

/// What one host believes of feedback.
#[derive(Clone, Debug)]
pub struct Inbox {
    own: Ipv4Addr,
    ears: BTreeMap<(Ipv4Addr, KeyId), Ear>,
    counters: FeedbackCounters,
}

impl Inbox {
    /// Of the host with this address; believes nobody.
    pub fn new(own: Ipv4Addr) -> Self {
        Self { own, ears: BTreeMap::new(), counters: FeedbackCounters::default() }
    }

    /// Believes `from` with this key from now on. Another key of the same id is forgotten with all that was
    /// heard by it, the same key goes on. Says whether there was room.
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

    /// What became of all packets so far.
    pub const fn counters(&self) -> &FeedbackCounters {
        &self.counters
    }

    /// Judges an IPv4 packet: the only way in. What is believed comes with its sequence.
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
