//! Whose messages an agent believes: those of a peer's present life that were written to its own.
//!
//! Problem   A letter may come so late that its reader has begun a new life meanwhile, which has
//!           forgotten what was newer than the letter.
//! Approach  As `weir-wire`'s session: each letter names the life of its writer, and the life of its
//!           reader as far as its writer knows it. One that names no life or an earlier one is
//!           answered by a greeting, and its content is not believed. Lives are counted, so the
//!           later one is the newer; a session, whose lives are random, wants one proof more.
//! Promises  No word is believed that was written to an earlier life of its reader.
//! Not here  When letters are written: see `shim`. EyeQ's feedback between data planes: see
//!           `letters`.
//! Source    `weir-wire`'s `peer.rs`; the agent's driver for the gap between greetings.

use super::letters::Letter;
use weir_units::{HostId, SortedMap};

/// A peer is greeted at most once in this time, ns.
const GREETING_GAP: u64 = 10_000_000;

/// What one life of an agent knows of its peers.
#[derive(Debug)]
pub(super) struct Peers {
    /// Which life it is, counted from 0.
    own: u32,
    all: SortedMap<HostId, Peer>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// Its life that is believed.
    known: Option<u32>,
    /// The number of its last letter that was believed.
    highest: u64,
    /// A later life that was heard of and is not believed.
    candidate: Option<u32>,
    greeted_at: Option<u64>,
}

/// What becomes of a letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Its words are believed.
    Believe,
    /// So are they, and its writer has a new life: it is greeted, to believe its reader, too.
    Confirm,
    /// They are not; a greeting lets its writer prove that it lives.
    Greet,
    /// They are not: its writer has learned of the present life since, or has a new life itself.
    Refuse,
}

impl Peers {
    /// Of the life `own`. When a run begins, all hosts have met.
    pub(super) const fn new(own: u32) -> Self {
        Self { own, all: SortedMap::new() }
    }

    fn peer(&mut self, host: HostId) -> &mut Peer {
        let known = (self.own == 0).then_some(0);
        self.all.entry(host).or_insert(Peer { known, ..Peer::default() })
    }

    /// The life of `host` that a letter to it names.
    pub(super) fn echo(&mut self, host: HostId) -> Option<u32> {
        let peer = self.peer(host);
        peer.known.or(peer.candidate)
    }

    /// `host` is greeted now: the life of it that the greeting names.
    pub(super) fn greet(&mut self, now: u64, host: HostId) -> Option<u32> {
        let peer = self.peer(host);
        peer.greeted_at = Some(now);
        peer.candidate.or(peer.known)
    }

    /// Whether the last greeting of `host` is long enough ago for another.
    pub(super) fn may_greet(&mut self, now: u64, host: HostId) -> bool {
        self.peer(host).greeted_at.is_none_or(|at| now >= at + GREETING_GAP)
    }

    /// Judges a letter, and takes note of it.
    pub(super) fn judge(&mut self, letter: &Letter) -> Verdict {
        let is_to_us = letter.echo == Some(self.own);
        let peer = self.peer(letter.from);
        match peer.known {
            Some(known) if letter.life < known => Verdict::Refuse,
            Some(known) if letter.life == known => {
                if is_to_us {
                    peer.highest = peer.highest.max(letter.number);
                    return Verdict::Believe;
                }
                if letter.number <= peer.highest { Verdict::Refuse } else { Verdict::Greet }
            }
            _ if is_to_us => {
                (peer.known, peer.candidate) = (Some(letter.life), None);
                peer.highest = letter.number;
                Verdict::Confirm
            }
            _ => {
                peer.candidate = peer.candidate.max(Some(letter.life));
                Verdict::Greet
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::letters::Words;
    use super::*;

    const THEM: HostId = HostId(7);

    fn letter(life: u32, number: u64, echo: Option<u32>) -> Letter {
        let words = Words::Records(Vec::new());
        Letter { from: THEM, to: HostId(1), life, echo, number, words }
    }

    #[test]
    fn what_was_written_to_an_earlier_life_is_never_believed() {
        let mut old = Peers::new(0);
        assert_eq!(old.judge(&letter(0, 1, Some(0))), Verdict::Believe);
        let mut new = Peers::new(1);
        assert_eq!(new.echo(THEM), None, "a new life knows nobody");
        assert_eq!(new.judge(&letter(0, 2, Some(0))), Verdict::Greet);
        assert_eq!(new.greet(0, THEM), Some(0), "what was heard shows that this life can hear");
        assert_eq!(new.judge(&letter(0, 4, Some(1))), Verdict::Confirm);
        assert_eq!(new.judge(&letter(0, 3, Some(0))), Verdict::Refuse, "overtaken");
        assert_eq!(new.judge(&letter(0, 5, Some(1))), Verdict::Believe);
    }

    #[test]
    fn a_new_life_of_a_peer_is_believed_when_it_has_heard_us() {
        let mut peers = Peers::new(0);
        assert_eq!(peers.judge(&letter(1, 5, None)), Verdict::Greet);
        assert_eq!((peers.echo(THEM), peers.greet(0, THEM)), (Some(0), Some(1)));
        assert_eq!(
            peers.judge(&letter(0, 4, Some(0))),
            Verdict::Believe,
            "late, and not refuted yet"
        );
        assert_eq!(peers.judge(&letter(1, 6, Some(0))), Verdict::Confirm);
        assert_eq!(peers.judge(&letter(0, 3, Some(0))), Verdict::Refuse, "of its former life");
        assert_eq!(peers.echo(THEM), Some(1));
    }

    #[test]
    fn a_peer_is_greeted_once_in_ten_milliseconds() {
        let mut peers = Peers::new(0);
        assert!(peers.may_greet(5, THEM));
        peers.greet(5, THEM);
        assert!(!peers.may_greet(10_000_004, THEM));
        assert!(peers.may_greet(10_000_005, THEM));
    }
}
