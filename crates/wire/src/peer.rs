//! One peer as its host's session sees it: which incarnation is believed, and what proves it.
//!
//! Problem   Incarnations are random numbers: of two, none is the older. A recording of a former
//!           one must be told from a restart.
//! Approach  A restart can hear what we send now; a recording cannot have. A new incarnation is
//!           confirmed once it echoes a sequence of ours from after the last confirmation (the
//!           fence). See the crate's documentation for the argument.
//! Promises  Of one incarnation no sequence is believed twice, also if it is confirmed again later.
//! Not here  Tags and octets: see [`crate::Session`].

use crate::packet::FIRST;
use crate::window::{Came, Window};
use crate::{Header, Heard, Incarnation};

/// What is known of a peer. Its only transition between incarnations is [`Peer::confirm`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    /// The sequence of our next datagram to it.
    next: u64,
    /// A new incarnation must have heard this sequence of ours, or a later one.
    fence: u64,
    standing: Standing,
    /// What we heard from an incarnation that is not believed: whom a greeting answers.
    candidate: Option<Heard>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Standing {
    /// It has not echoed us yet.
    Unconfirmed,
    Confirmed(Confirmed),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Confirmed {
    /// Its incarnation, and the highest sequence heard from it, believed or not.
    heard: Heard,
    /// The fence that it passed. Its own earlier datagrams must pass it too: they may have been
    /// believed in an earlier confirmation of the same incarnation.
    fence: u64,
    window: Window,
    /// It has heard something that we sent since, which echoed it: so it has confirmed us, too.
    knows_us: bool,
    /// The highest version of datagrams that it parses.
    speaks: u8,
}

/// What to do with an authentic datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Its messages count.
    Believe(Came),
    /// They count, and its incarnation is new: greet it, so that it confirms us too.
    Confirm,
    /// They do not count; a greeting lets the sender prove itself, if it lives.
    Greet,
    /// It does not know our incarnation, and later ones from the same sender did.
    Stale,
    /// Seen before, or too late to tell.
    Replayed,
}

impl Peer {
    /// An unknown peer, to whom `first` is the next sequence.
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

    /// Whether it showed that it has confirmed us, since we confirmed it.
    pub(crate) const fn knows_us(&self) -> bool {
        matches!(&self.standing, Standing::Confirmed(confirmed) if confirmed.knows_us)
    }

    /// The highest version of datagrams that it is known to parse. One that returns in an older release
    /// is a new incarnation, and nobody is known to parse more than the first until it is believed.
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

    /// What a datagram with messages echoes. A candidate must wait until it is confirmed: it may be
    /// a recording, and the true peer would not believe what is addressed to it.
    pub(crate) const fn echo(&self) -> Option<Heard> {
        match &self.standing {
            Standing::Confirmed(confirmed) => Some(confirmed.heard),
            Standing::Unconfirmed => self.candidate,
        }
    }

    /// What a greeting echoes: whoever was heard last and not believed.
    pub(crate) fn greeting_echo(&self) -> Option<Heard> {
        self.candidate.or(self.echo())
    }

    /// Judges an authentic, well-formed datagram of this peer, and takes note of it.
    pub(crate) fn judge(&mut self, own: Incarnation, header: &Header) -> Verdict {
        // Bounded above too: nobody has heard what was never sent.
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

    /// The only way to a new incarnation: believed from this datagram on. Whatever came before is
    /// history, as none of it can have heard what we send from now on.
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
