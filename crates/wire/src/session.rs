//! State of one host for its messages with others: keys, incarnations, sequences, windows,
//! counters.
//!
//! Problem   See the crate: only a peer's own fresh datagrams may be believed.
//! Approach  One way in, [`Session::open`], that checks in the order version, length, key, tag,
//!           header and records, receiver, sender, freshness; one way out, [`Session::seal`]. The
//!           caller moves the octets.
//! Promises  Every datagram ends in exactly one counter. A rejected one changes nothing else.
//! Not here  When to send: the caller limits greetings (one per peer and 10 ms is plenty).

use crate::datagram::{self, Header, Incarnation, Messages, ParseError, RecordError};
use crate::feedback::{FeedbackKey, Lives};
use crate::packet::{FIRST, Packet, VERSION, records_in};
use crate::peer::{Peer, Verdict};
use crate::window::Came;
use crate::{Heard, KeyId, Keyring, Keys, encode, sayable};
use std::collections::BTreeMap;
use thiserror::Error;
use weir_core::message::Message;
use weir_units::HostId;

/// Most peers of one session; about 200 octets each.
pub const MAX_PEERS: usize = 65_536;

/// Reason why a datagram is neither believed nor answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Rejected {
    /// The length does not fit the count of records, or is outside the bounds of datagrams.
    #[error("{got} octets are not the length of a datagram")]
    Length {
        /// Octets given.
        got: usize,
    },
    /// The version is not one of ours.
    #[error("version {got} is not spoken here")]
    Version {
        /// The version given.
        got: u8,
    },
    /// The claimed key is not shared with the claimed sender.
    #[error("key {id} is not accepted")]
    Key {
        /// The key's id, as the datagram says.
        id: u8,
    },
    /// The tag was not made with the claimed key.
    #[error("the tag is wrong")]
    Tag,
    /// The datagram is addressed to another host.
    #[error("addressed to {to}")]
    NotForUs {
        /// The host it is addressed to.
        to: HostId,
    },
    /// The claimed sender is not a peer.
    #[error("{from} is not a peer")]
    UnknownPeer {
        /// The host it claims to be from.
        from: HostId,
    },
    /// A header field has a value that its version does not use.
    #[error("unused value in the header's {field}")]
    Header {
        /// Its name in the table of [`crate::packet`].
        field: &'static str,
    },
    /// A record makes no sense, so the whole datagram is refused.
    #[error("record {index}: {why}")]
    Record {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it.
        why: RecordError,
    },
    /// The datagram was made for an earlier incarnation of this host, and its sender has learned
    /// the current one since.
    #[error("from {from}, meant for an earlier incarnation of this host")]
    Stale {
        /// Its sender.
        from: HostId,
    },
    /// The sequence was seen before, or is too old to decide.
    #[error("sequence {sequence} from {from} was seen, or is too old")]
    Replayed {
        /// Its sender.
        from: HostId,
        /// Its sequence.
        sequence: u64,
    },
}

impl From<ParseError> for Rejected {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Length { got } => Self::Length { got },
            ParseError::Version { got } => Self::Version { got },
            ParseError::Header { field } => Self::Header { field },
            ParseError::Record { index, why } => Self::Record { index, why },
        }
    }
}

/// Result of an authentic datagram.
#[derive(Clone, Debug)]
pub enum Opened<'a> {
    /// The messages are believed.
    Believed {
        /// The sender.
        from: HostId,
        /// The sender's epoch of floors and configuration, 0 without a controller. It need not
        /// equal ours.
        epoch: u32,
        /// The messages; none if it is a greeting.
        messages: Messages<'a>,
        /// The sender's incarnation is new to us. Unless messages go to it anyway,
        /// [`Session::greet`] it at once, so that it believes us one round trip earlier.
        greet: bool,
    },
    /// The messages are not believed: the sender may be alive, but has not proved it.
    /// [`Session::greet`] it at once, within a limit per host. A live sender is believed one round
    /// trip later, a recording never.
    Greet(HostId),
}

/// Counters of one session since its start. They count datagrams unless they say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "`rejected_*` count the variants of `Rejected`, documented there")]
pub struct Counters {
    /// Datagrams that were sealed, greetings included.
    pub sent: u64,
    /// Greetings that were sealed.
    pub greeted: u64,
    /// Messages that were sealed.
    pub messages_sent: u64,
    /// Messages that were omitted because no peer would accept them ([`crate::sayable`]). A value
    /// above 0 means a bug in the caller: alarm on it.
    pub unsayable: u64,
    /// Datagrams that were believed.
    pub accepted: u64,
    /// Messages in believed datagrams.
    pub messages_accepted: u64,
    /// Incarnations confirmed: one per peer, and one more for each of its restarts.
    pub confirmed: u64,
    /// Authentic datagrams whose sender did not know any incarnation of ours: greeted, not
    /// believed.
    pub unconfirmed: u64,
    /// Authentic datagrams whose sender knew an earlier incarnation of ours, or had not heard from
    /// us since its successor was confirmed: greeted, not believed. Grows with restarts and
    /// replays.
    pub outdated: u64,
    /// Datagrams that were believed after a later one of their sender; `accepted` includes them.
    pub late: u64,
    /// Sequences that datagrams skipped when they came. Late datagrams fill a part of them; the
    /// rest ([`Counters::lost`]) never comes.
    pub skipped: u64,
    pub rejected_length: u64,
    pub rejected_version: u64,
    pub rejected_key: u64,
    pub rejected_tag: u64,
    pub rejected_not_for_us: u64,
    pub rejected_unknown_peer: u64,
    pub rejected_header: u64,
    pub rejected_record: u64,
    pub rejected_stale: u64,
    pub rejected_replayed: u64,
}

impl Counters {
    /// All counters with their names, for metrics and tables.
    pub const fn rows(&self) -> [(&'static str, u64); 19] {
        [
            ("sent", self.sent),
            ("greeted", self.greeted),
            ("messages_sent", self.messages_sent),
            ("unsayable", self.unsayable),
            ("accepted", self.accepted),
            ("messages_accepted", self.messages_accepted),
            ("confirmed", self.confirmed),
            ("unconfirmed", self.unconfirmed),
            ("outdated", self.outdated),
            ("rejected_length", self.rejected_length),
            ("rejected_version", self.rejected_version),
            ("rejected_key", self.rejected_key),
            ("rejected_tag", self.rejected_tag),
            ("rejected_not_for_us", self.rejected_not_for_us),
            ("rejected_unknown_peer", self.rejected_unknown_peer),
            ("rejected_header", self.rejected_header),
            ("rejected_record", self.rejected_record),
            ("rejected_stale", self.rejected_stale),
            ("rejected_replayed", self.rejected_replayed),
        ]
    }

    /// Datagrams that peers sent and that have not come. A late datagram counts until it comes.
    pub const fn lost(&self) -> u64 {
        self.skipped.saturating_sub(self.late)
    }

    /// Datagrams rejected, for whatever reason.
    pub fn rejected(&self) -> u64 {
        let rows = self.rows();
        rows.iter().filter(|(name, _)| name.starts_with("rejected_")).map(|(_, n)| n).sum()
    }

    fn count(&mut self, rejected: &Rejected) {
        *match rejected {
            Rejected::Length { .. } => &mut self.rejected_length,
            Rejected::Version { .. } => &mut self.rejected_version,
            Rejected::Key { .. } => &mut self.rejected_key,
            Rejected::Tag => &mut self.rejected_tag,
            Rejected::NotForUs { .. } => &mut self.rejected_not_for_us,
            Rejected::UnknownPeer { .. } => &mut self.rejected_unknown_peer,
            Rejected::Header { .. } => &mut self.rejected_header,
            Rejected::Record { .. } => &mut self.rejected_record,
            Rejected::Stale { .. } => &mut self.rejected_stale,
            Rejected::Replayed { .. } => &mut self.rejected_replayed,
        } += 1;
    }
}

/// State of a key in a session. It has the key's id, never the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyUse {
    /// Its id.
    pub id: KeyId,
    /// Whether all hosts have this very key, so that any of them can speak for the others.
    pub shared: bool,
    /// Number of peers for which it signs outgoing datagrams.
    pub signs: usize,
    /// Number of peers from which its datagrams are accepted.
    pub accepted: usize,
    /// Authentic datagrams that were signed with it, since it was first accepted. An old key may be
    /// removed when this counter stands still on every host.
    pub seen: u64,
}

/// Reason why a host cannot be told anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Untold {
    /// It is not a peer of this session.
    #[error("{0} is not a peer")]
    UnknownPeer(HostId),
    /// No key is shared with it.
    #[error("no key is shared with {0}")]
    NoKey(HostId),
}

/// Reason why a peer was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// A host does not talk to itself over the network.
    #[error("a host is not its own peer")]
    Ourselves,
    /// [`MAX_PEERS`] are there already.
    #[error("{MAX_PEERS} peers already")]
    Full,
}

/// One host's side of all its conversations.
///
/// - at start: [`new`](Self::new) with a fresh random incarnation, [`add_peer`](Self::add_peer) for
///   each host of the directory, then [`greet`](Self::greet) them, or wait for something to say;
/// - to speak: [`seal`](Self::seal), then send each datagram to the peer's control address;
/// - for each datagram that arrives: [`open`](Self::open), and [`greet`](Self::greet) if asked to;
/// - on change: [`set_epoch`](Self::set_epoch), [`set_keys`](Self::set_keys),
///   [`remove_peer`](Self::remove_peer);
/// - for EyeQ's programs: [`feedback_key`](Self::feedback_key) and
///   [`feedback_keys_from`](Self::feedback_keys_from), again whenever `greet` was asked for;
/// - to watch: [`counters`](Self::counters), [`keys`](Self::keys),
///   [`is_confirmed`](Self::is_confirmed), [`is_known_to`](Self::is_known_to).
#[derive(Clone, Debug)]
pub struct Session {
    own: HostId,
    incarnation: Incarnation,
    epoch: u32,
    keys: Keys,
    peers: BTreeMap<HostId, Peer>,
    /// First sequence of a new peer. It is above all sequences that removed peers have heard, so a
    /// peer that returns neither takes us for a replay nor can be replayed.
    first: u64,
    counters: Counters,
    /// Authentic datagrams by sender and signing key, for accepted keys only.
    seen: BTreeMap<(HostId, KeyId), u64>,
}

impl Session {
    /// A session of `own` without peers. `incarnation` is random, drawn at each start of the agent.
    pub fn new(own: HostId, incarnation: Incarnation, keys: impl Into<Keys>) -> Self {
        Self {
            own,
            incarnation,
            epoch: 0,
            keys: keys.into(),
            seen: BTreeMap::new(),
            peers: BTreeMap::new(),
            first: 1,
            counters: Counters::default(),
        }
    }

    /// Sets the epoch that datagrams carry: that of the floors in force here. Reserved for a
    /// controller; without one it stays 0.
    pub fn set_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// Replaces the keys. Confirmed peers stay confirmed.
    pub fn set_keys(&mut self, keys: impl Into<Keys>) {
        let keys = keys.into();
        let one = |keys: &Keys, (host, id)| keys.of(host).and_then(|ring| ring.get(id)).cloned();
        self.seen.retain(|at, _| one(&self.keys, *at) == one(&keys, *at));
        self.keys = keys;
    }

    /// The keys in use by their ids, those that sign for the most peers first.
    pub fn keys(&self) -> Vec<KeyUse> {
        let mut uses: BTreeMap<KeyId, KeyUse> = BTreeMap::new();
        for (host, ring) in self.peers.keys().filter_map(|host| Some((host, self.keys.of(*host)?)))
        {
            for id in ring.ids() {
                let shared = self.keys.is_shared(id);
                let none = KeyUse { id, shared, signs: 0, accepted: 0, seen: 0 };
                let used = uses.entry(id).or_insert(none);
                used.accepted += 1;
                used.signs += usize::from(id == ring.signing().0);
                used.seen += self.seen.get(&(*host, id)).copied().unwrap_or(0);
            }
        }
        let mut uses: Vec<KeyUse> = uses.into_values().collect();
        uses.sort_by_key(|used| std::cmp::Reverse(used.signs));
        uses
    }

    /// Peers without a key. They are told nothing, and none of their datagrams is believed.
    pub fn without_keys(&self) -> impl Iterator<Item = HostId> + '_ {
        self.peers.keys().copied().filter(|host| self.keys.of(*host).is_none())
    }

    /// Adds the peer `host`. A peer that exists already stays as it is.
    pub fn add_peer(&mut self, host: HostId) -> Result<(), PeerError> {
        if host == self.own {
            return Err(PeerError::Ourselves);
        }
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&host) {
            return Err(PeerError::Full);
        }
        self.peers.entry(host).or_insert(Peer::new(self.first));
        Ok(())
    }

    /// Removes the peer `host`. Returns whether it existed.
    pub fn remove_peer(&mut self, host: HostId) -> bool {
        let removed = self.peers.remove(&host);
        if let Some(peer) = &removed {
            self.first = self.first.max(peer.next_sequence());
        }
        removed.is_some()
    }

    /// Whether the incarnation of `host` that was last heard is believed.
    pub fn is_confirmed(&self, host: HostId) -> bool {
        self.peers.get(&host).is_some_and(Peer::is_confirmed)
    }

    /// Whether `host` has confirmed us, as far as its datagrams show. A believed peer that does not
    /// know us missed our greetings: [`remind`](Self::remind) it. A caller that always has messages
    /// for the peer need not ask, because the next datagram has the same effect.
    pub fn is_known_to(&self, host: HostId) -> bool {
        self.peers.get(&host).is_some_and(Peer::knows_us)
    }

    /// Key with which this host sends feedback to `host`, derived from their signing key for their
    /// present incarnations. `None` until `host` is confirmed. It changes with a restart of either
    /// host and with the signing key. Its sequences begin with 1.
    pub fn feedback_key(&self, host: HostId) -> Option<FeedbackKey> {
        let their = self.peers.get(&host)?.incarnation()?;
        let lives = Lives { from: (self.own, self.incarnation), to: (host, their) };
        let (id, key) = self.keys.of(host)?.signing();
        Some(FeedbackKey::derive(id, key, lives))
    }

    /// Keys with which `host` may send feedback to this host: one for each of its accepted keys.
    /// None until `host` is confirmed.
    pub fn feedback_keys_from(&self, host: HostId) -> Vec<FeedbackKey> {
        let Some(their) = self.peers.get(&host).and_then(Peer::incarnation) else {
            return Vec::new();
        };
        let lives = Lives { from: (host, their), to: (self.own, self.incarnation) };
        let rings = self.keys.of(host).into_iter();
        rings.flat_map(Keyring::all).map(|(id, key)| FeedbackKey::derive(id, key, lives)).collect()
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Appends the datagrams that carry all of `messages` to `to`, in order and in as few as
    /// possible (42 messages each, 56 in the first version). Appends nothing if there is no
    /// message.
    ///
    /// The datagrams have the highest version that both sides parse, as far as the peer's datagrams
    /// show. A peer that is not confirmed gets the first version, which every peer parses.
    ///
    /// A peer that is not confirmed gets messages, too: it may have confirmed us, and otherwise it
    /// greets. A message that is not [`sayable`] in the peer's version is omitted, and
    /// counted if it is in no version.
    pub fn seal(
        &mut self,
        to: HostId,
        messages: &[Message],
        out: &mut Vec<Vec<u8>>,
    ) -> Result<(), Untold> {
        let peer = self.peers.get(&to).ok_or(Untold::UnknownPeer(to))?;
        let as_known = (peer.echo(), peer.speaks().min(VERSION));
        let is_sayable = |message: &Message| sayable(as_known.1, message).is_ok();
        if messages.iter().all(is_sayable) {
            return self.seal_sayable(to, as_known, messages, out);
        }
        let rest: Vec<_> = messages.iter().filter(|m| is_sayable(m)).copied().collect();
        // A peer of an earlier version misses what it has no word for; that is no mistake.
        let is_never = |message: &&Message| sayable(VERSION, message).is_err();
        self.counters.unsayable += messages.iter().filter(is_never).count() as u64;
        self.seal_sayable(to, as_known, &rest, out)
    }

    fn seal_sayable(
        &mut self,
        to: HostId,
        (echo, version): (Option<Heard>, u8),
        messages: &[Message],
        out: &mut Vec<Vec<u8>>,
    ) -> Result<(), Untold> {
        for batch in messages.chunks(records_in(version)) {
            out.push(self.datagram(to, (echo, version), batch)?);
        }
        self.counters.messages_sent += messages.len() as u64;
        Ok(())
    }

    /// Appends one datagram without messages, a greeting. It tells `to` our incarnation and echoes
    /// the one last heard. It has the first version, which every peer parses, and names the present
    /// version as the highest that this side parses.
    pub fn greet(&mut self, to: HostId, out: &mut Vec<Vec<u8>>) -> Result<(), Untold> {
        let echo = self.peers.get(&to).ok_or(Untold::UnknownPeer(to))?.greeting_echo();
        out.push(self.datagram(to, (echo, FIRST), &[])?);
        self.counters.greeted += 1;
        Ok(())
    }

    /// Appends a greeting for a confirmed peer that does not know us yet. It echoes the believed
    /// incarnation, even if a recording was heard since. A caller that answers believed datagrams
    /// with it while [`is_known_to`](Self::is_known_to) is false comes to an end, because each
    /// answer proves more than the one before.
    pub fn remind(&mut self, to: HostId, out: &mut Vec<Vec<u8>>) -> Result<(), Untold> {
        let echo = self.peers.get(&to).ok_or(Untold::UnknownPeer(to))?.echo();
        out.push(self.datagram(to, (echo, FIRST), &[])?);
        self.counters.greeted += 1;
        Ok(())
    }

    fn datagram(
        &mut self,
        to: HostId,
        (echo, version): (Option<Heard>, u8),
        messages: &[Message],
    ) -> Result<Vec<u8>, Untold> {
        let (key_id, key) = self.keys.of(to).ok_or(Untold::NoKey(to))?.signing();
        let sequence = self.peers.get_mut(&to).ok_or(Untold::UnknownPeer(to))?.take_sequence();
        let header = Header {
            version,
            speaks: VERSION,
            key_id,
            epoch: self.epoch,
            from: self.own,
            to,
            incarnation: self.incarnation,
            sequence,
            echo,
        };
        self.counters.sent += 1;
        Ok(encode(&header, key, messages))
    }

    /// Judges a datagram from the network. This is the only way in.
    pub fn open<'a>(&mut self, octets: &'a [u8]) -> Result<Opened<'a>, Rejected> {
        let opened = self.judge(octets);
        match &opened {
            Ok(Opened::Believed { messages, .. }) => {
                self.counters.accepted += 1;
                self.counters.messages_accepted += messages.len() as u64;
            }
            Ok(Opened::Greet(_)) => {}
            Err(rejected) => self.counters.count(rejected),
        }
        opened
    }

    fn judge<'a>(&mut self, octets: &'a [u8]) -> Result<Opened<'a>, Rejected> {
        let packet = Packet::new(octets)?;
        let (id, sender) = (packet.key_id(), packet.sender());
        let ring = self.keys.of(sender);
        let key = ring.and_then(|ring| ring.get(id)).ok_or(Rejected::Key { id: id.0 })?;
        if !packet.is_signed_by(key) {
            return Err(Rejected::Tag);
        }
        // From here on the sender is known to hold the key.
        *self.seen.entry((sender, id)).or_default() += 1;
        let datagram::Datagram { header, messages } = datagram::of(packet)?;
        let Header { from, to, epoch, sequence, echo, .. } = header;
        if to != self.own {
            return Err(Rejected::NotForUs { to });
        }
        let peer = self.peers.get_mut(&from).ok_or(Rejected::UnknownPeer { from })?;
        match peer.judge(self.incarnation, &header) {
            Verdict::Believe(came) => {
                match came {
                    Came::Ahead { skipped } => self.counters.skipped += skipped,
                    Came::Late => self.counters.late += 1,
                }
                Ok(Opened::Believed { from, epoch, messages, greet: false })
            }
            Verdict::Confirm => {
                self.counters.confirmed += 1;
                Ok(Opened::Believed { from, epoch, messages, greet: true })
            }
            Verdict::Greet => {
                match echo {
                    None => self.counters.unconfirmed += 1,
                    Some(_) => self.counters.outdated += 1,
                }
                Ok(Opened::Greet(from))
            }
            Verdict::Stale => Err(Rejected::Stale { from }),
            Verdict::Replayed => Err(Rejected::Replayed { from, sequence }),
        }
    }
}
