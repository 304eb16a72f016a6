//! Control messages between hosts: octets ↔ values, authenticated and protected against replay.
//!
//! Problem   Floors and congestion reports travel over the network that tenants share. An attacker
//!           that injects datagrams must neither lower another VM's rate nor raise its own. The
//!           same holds for recordings, restarts and switches that reorder.
//! Approach  One datagram layout of fixed sizes ([`packet`]), a SipHash-2-4 tag with a key that two
//!           hosts share ([`Keys`]), and one machine ([`Session`]) that knows the incarnation of
//!           each peer, the sequences already heard, and what proves freshness.
//! Promises  1. Octets never panic, and never become messages without a valid tag.
//!           2. A message is delivered at most once, whatever is repeated, reordered or restarted.
//!           3. Nothing is believed from an incarnation that a later one of its host has replaced.
//!           4. After a restart of either side, or both, one round trip restores both directions.
//!           5. A rejected datagram changes nothing but a counter.
//! Not here  Sockets, clocks, DSCP, random numbers (the caller gives the incarnation), secrecy
//!           (floors are not secret), and protection against a host that was taken over: it can lie
//!           about its own VMs, but for no other host. What a message means: see
//!           `weir_core::message`.
//! Source    ElasticSwitch §6 (control packets), §7.3 (their cost), §9 (loss and priority); it has
//!           no authentication. The window is that of IPsec (RFC 4303 §3.4.3).
//!
//! # How two hosts come to believe each other
//!
//! Every agent start draws a random *incarnation*. A datagram names its sender's incarnation and
//! sequence, and *echoes* the receiver's: the incarnation the sender knows, and the highest
//! sequence it heard from it. A receiver believes a datagram only if
//!
//! - it echoes the receiver's current incarnation, which proves that it was made for this
//!   incarnation;
//! - the echoed sequence is not below the *fence*, the sequence that the receiver had reached when
//!   it confirmed the previous incarnation of that peer. An incarnation that was replaced then has
//!   never heard a later sequence, so none of its recordings can pass;
//! - its own sequence was not seen yet: it is above the highest, or unseen in the window of 64
//!   below.
//!
//! The session does not believe any other datagram with a valid tag, and answers it with a
//! *greeting*: a datagram without records that echoes the incarnation just heard. A greeting gives
//! a live peer the proof that it lacks. To a recording it gives nothing.
//!
//! ```text
//!  A (restarted as a2, knows no peer)                     B (b1, has confirmed a1)
//!  offers  a2 #1  echo: none       ─────────────────────►  not believed; hears a2 #1; greets
//!          believed: b1 confirmed  ◄─────────────────────  greeting  b1 #90  echo a2 #1
//!  greeting a2 #2 echo b1 #90      ─────────────────────►  90 ≥ fence: a2 confirmed, a1 is history
//! ```
//!
//! The argument for promise 2: a datagram believed while incarnation *s* is confirmed echoes a
//! sequence below the fence that is raised when *s* is replaced. So if *s* ever came back, its old
//! datagrams are below its new fence, and within one confirmation the window has seen them. For
//! promise 3 a host must not run two agents at once: they would take turns in being believed (each
//! message still at most once).
//!
//! BPF programs make and read EyeQ's feedback in packets of their own ([`FeedbackPacket`],
//! [`Inbox`]). Their keys follow from the state of two sessions ([`Session::feedback_key`]).
//!
//! # Four versions
//!
//! Hosts are upgraded one by one, so an agent speaks all versions of the layout. Each datagram says
//! the highest version that its sender parses. Greetings, and all datagrams to a peer that is not
//! confirmed, have the first version. A confirmed peer gets the highest that both parse. An older
//! version omits what it has no room for, which costs no floor: see [`packet`].
//!
//! # What it costs
//!
//! Octets per record of a frame without FCS: Ethernet 14, IPv4 20, UDP 8, header and tag 56, record
//! 32 (IPv6: 20 more per datagram). One offer per pair and partitioning period of 60 ms, as in the
//! paper, is 16.7 offers/s:
//!
//! | | octets per record | kb/s per pair | 100 pairs |
//! | --- | --- | --- | --- |
//! | ElasticSwitch §7.3: 64 octets (with FCS) per offer, no tag | 64 | 8.5 | ≈850 kb/s |
//! | 100 pairs with 100 different hosts: one record per datagram | 130 | 17.3 | 1733 kb/s |
//! | 4 pairs per peer host | 57 | 7.5 | 753 kb/s |
//! | 100 pairs with one host: 3 datagrams per period | 35 | 4.7 | 466 kb/s |
//! | full datagrams of 42 records | 34.3 | 4.6 | |
//!
//! So a tag, incarnations and echoes double the paper's cost for a pair that is alone between its
//! hosts; from four pairs per peer on, batching pays for them. A record of the first version has
//! 24 octets. Echoes with the most of a sender's hose add 3.3 records a second and pair, and one or
//! two after each change. At worst the cost is 0.02 % of a 10 Gb/s link. Greetings are 98 octets,
//! at most three per restart and peer. `tests/layout.rs` holds all of this.

mod datagram;
mod feedback;
mod key;
mod keyfile;
pub mod packet;
mod peer;
mod session;
mod window;

pub use datagram::{
    Datagram, Header, Heard, Incarnation, MAX_RATE, Messages, ParseError, RecordError, encode,
    parse, sayable,
};
pub use feedback::{
    FEEDBACK_PACKET, FEEDBACK_PROTOCOL, FEEDBACK_VERSION, FeedbackCounters, FeedbackError,
    FeedbackKey, FeedbackPacket, FeedbackRejected, Inbox, Lives, MAX_FEEDBACK_KEYS, Told,
    encode_feedback,
};
pub use key::{Key, KeyError, KeyId, Keyring, KeyringError, MAX_KEYS};
pub use keyfile::{KeyFileError, Keys, LineError, MAX_KEY_FILE, host_file};
pub use packet::{FIRST, MAX_DATAGRAM, MAX_RECORDS, SECOND, THIRD, VERSION};
pub use session::{Counters, KeyUse, MAX_PEERS, Opened, PeerError, Rejected, Session, Untold};

/// How many messages fit into one datagram.
pub const fn max_records() -> usize {
    MAX_RECORDS
}
