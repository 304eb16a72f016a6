//! State of one peer in its host's session: the incarnation that is believed, and its proof.
//!
//! Problem   Incarnations are random numbers, so their order is unknown. The session must
//!           distinguish a restart from a recording of a former incarnation.
//! Approach  A restart can hear what we send now; a recording cannot have. A new incarnation is
//!           confirmed once it echoes a sequence of ours from after the last confirmation (the
//!           fence). See the crate's documentation for the argument.
//! Promises  Of one incarnation no sequence is believed twice, also if it is confirmed again later.
//! Not here  Tags and octets: see [`crate::Session`].

use crate::packet::FIRST;
use crate::window::{Came, Window};
use crate::{Header, Heard, Incarnation};

/// State of a peer. Only [`Peer::confirm`] changes its incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    /// The sequence of our next datagram to it.
    next: u64,
    /// A new incarnation must have heard this sequence of ours, or a later one.
    fence: u64,
    standing: Standing,
    /// The incarnation last heard and not believed, with its sequence; a greeting echoes it.
    candidate: Option<Heard>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Standing {
    /// No incarnation has echoed a datagram of ours yet.
    Unconfirmed,
    Confirmed(Confirmed),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Confirmed {
    /// Its incarnation, and the highest sequence heard from it, believed or not.
    heard: Heard,
    /// The fence that the incarnation passed. Its own earlier datagrams must pass the fence too,
    /// since they may have been believed in an earlier confirmation of the same incarnation.
    fence: u64,
    window: Window,
    /// The peer heard a datagram that we sent since its confirmation and that echoed it. So the
    /// peer has confirmed us, too.
    knows_us: bool,
    /// The highest version of datagrams that it parses.
    speaks: u8,
}

/// Judgement of an authentic datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Its messages are believed.
    Believe(Came),
    /// Its messages are believed, and its incarnation is new. The caller greets it, so that it
    /// confirms us too.
    Confirm,
    /// Its messages are not believed. A greeting lets a live sender prove itself.
    Greet,
    /// The sender does not know our incarnation, although earlier datagrams of it did.
    Stale,
    /// The sequence was seen before, or is too old to decide.
    Replayed,
}

impl Peer {
    /// An unknown peer; `first` is the sequence of the first datagram to it.
    pub(crate) const fn new(first: u64) -> Self {
        Self { next: first, fence: first, standing: Standing::Unconfirmed, candidate: None }
    }

    /// The sequence of the next datagram, without using it.
    pub(crate) const fn next_sequence(&self) -> u64 {
        self.next
    }

    /// A sequence for one datagram.
    pub(crate) fn take_sequence(&mut self) -> u64 {
        let sequence = self.next;
        self.next = sequence.checked_add(1).expect("2^64 datagrams outlast every host");
        sequence
    }

    /// Whether its current incarnation is believed.
    pub(crate) const fn is_confirmed(&self) -> bool {
        matches!(self.standing, Standing::Confirmed(_))
    }

    /// Whether the peer showed that it has confirmed us, since we confirmed it.
    pub(crate) const fn knows_us(&self) -> bool {
        matches!(&self.standing, Standing::Confirmed(confirmed) if confirmed.knows_us)
    }

    /// Highest version of datagrams that the peer is known to parse. A peer that returns with an
    /// older release is a new incarnation, for which the first version holds until it is believed.
    pub(crate) const fn speaks(&self) -> u8 {
        match &self.standing {
            Standing::Confirmed(confirmed) => confirmed.speaks,
            Standing::Unconfirmed => FIRST,
        }
    }

    /// Its incarnation that is believed.
    pub(crate) const fn incarnation(&self) -> Option<Incarnation> {
        match &self.standing {
            Standing::Confirmed(confirmed) => Some(confirmed.heard.incarnation),
            Standing::Unconfirmed => None,
        }
    }

    /// Echo of a datagram with messages. A candidate is not echoed before its confirmation: it may
    /// be a recording, and the true peer would not believe a datagram addressed to it.
    pub(crate) const fn echo(&self) -> Option<Heard> {
        match &self.standing {
            Standing::Confirmed(confirmed) => Some(confirmed.heard),
            Standing::Unconfirmed => self.candidate,
        }
    }

    /// Echo of a greeting: the incarnation that was heard last and is not believed.
    pub(crate) fn greeting_echo(&self) -> Option<Heard> {
        self.candidate.or(self.echo())
    }

    /// Judges an authentic, well-formed datagram of this peer, and takes note of it.
    pub(crate) fn judge(&mut self, own: Incarnation, header: &Header) -> Verdict {
        // The echo is also bounded above: no peer has heard a sequence that was never sent.
        let next = self.next;
        let has_heard_us_since = |fence: u64| {
            let heard = header.echo.filter(|echo| echo.incarnation == own);
            heard.is_some_and(|echo| (fence..next).contains(&echo.sequence))
        };
        match &mut self.standing {
            Standing::Confirmed(now) if now.heard.incarnation == header.incarnation => {
                let believable = has_heard_us_since(now.fence);
                if !believable && header.sequence <= now.window.highest() {
                    return Verdict::Stale;
                }
                now.heard.sequence = now.heard.sequence.max(header.sequence);
                if !believable {
                    self.candidate = Some(now.heard);
                    return Verdict::Greet;
                }
                match now.window.admit(header.sequence) {
                    Some(came) => {
                        now.knows_us |= has_heard_us_since(self.fence);
                        Verdict::Believe(came)
                    }
                    None => Verdict::Replayed,
                }
            }
            _ if has_heard_us_since(self.fence) => self.confirm(header),
            _ => {
                self.candidate = Some(self.heard_from(header));
                Verdict::Greet
            }
        }
    }

    /// Begins a new incarnation, which is believed from this datagram on. This is the only
    /// transition. Earlier datagrams cannot echo what we send from now on, so none of them is
    /// believed later.
    fn confirm(&mut self, header: &Header) -> Verdict {
        self.standing = Standing::Confirmed(Confirmed {
            heard: self.heard_from(header),
            fence: self.fence,
            window: Window::new(header.sequence),
            knows_us: false,
            speaks: header.speaks,
        });
        self.fence = self.next;
        self.candidate = None;
        Verdict::Confirm
    }

    /// What is heard from an incarnation that is not confirmed, this datagram included.
    fn heard_from(&self, header: &Header) -> Heard {
        let incarnation = header.incarnation;
        let before = self.candidate.filter(|heard| heard.incarnation == incarnation);
        let sequence = before.map_or(0, |heard| heard.sequence).max(header.sequence);
        Heard { incarnation, sequence }
    }
}
