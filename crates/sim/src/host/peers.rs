//! Whose messages an agent believes: those of a peer's present life that were written to its own.
//!
//! Problem   A letter may come so late that its reader has begun a new life meanwhile, which has
//!           forgotten what was newer than the letter.
//! Approach  As `weir-wire`'s session: each letter names the life of its writer, and the life of its
//!           reader as far as its writer knows it. One that names no life or an earlier one is
//!           answered by a greeting, and its content is not believed. Lives are counted, so the
//!           later one is the newer; a session, whose lives are random, wants one proof more.
//! Promises  No word is believed that was written to an earlier life of its reader.
//! Not here  When a peer is greeted: see `weir_core::host`. When letters are written: see `shim`. EyeQ's feedback between data planes: see
//!           `letters`.
//! Source    `weir-wire`'s `peer.rs`.

use super::letters::Letter;
use weir_units::{HostId, SortedMap};

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

    /// The life of `host` that a greeting names.
    pub(super) fn echo_of_greeting(&mut self, host: HostId) -> Option<u32> {
        let peer = self.peer(host);
        peer.candidate.or(peer.known)
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
        assert_eq!(
            new.echo_of_greeting(THEM),
            Some(0),
            "what was heard shows that this life can hear"
        );
        assert_eq!(new.judge(&letter(0, 4, Some(1))), Verdict::Confirm);
        assert_eq!(new.judge(&letter(0, 3, Some(0))), Verdict::Refuse, "overtaken");
        assert_eq!(new.judge(&letter(0, 5, Some(1))), Verdict::Believe);
    }

    #[test]
    fn a_new_life_of_a_peer_is_believed_when_it_has_heard_us() {
        let mut peers = Peers::new(0);
        assert_eq!(peers.judge(&letter(1, 5, None)), Verdict::Greet);
        assert_eq!((peers.echo(THEM), peers.echo_of_greeting(THEM)), (Some(0), Some(1)));
        assert_eq!(
            peers.judge(&letter(0, 4, Some(0))),
            Verdict::Believe,
            "late, and not refuted yet"
        );
        assert_eq!(peers.judge(&letter(1, 6, Some(0))), Verdict::Confirm);
        assert_eq!(peers.judge(&letter(0, 3, Some(0))), Verdict::Refuse, "of its former life");
        assert_eq!(peers.echo(THEM), Some(1));
    }
}
