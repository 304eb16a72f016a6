//! What `weir verify` and its server say to each other: octets ↔ meaning.
//!
//! Problem   The server answers whoever sends to its port, so it reads hostile octets.
//! Approach  A head of fixed length, a body by kind, and padding. [`parse`] checks all that can be checked
//!           without state. Numbers are big-endian.
//! Promises  No octets make [`parse`] panic. What [`encode`] makes, it reads.
//! Not here  Which sender is believed: see `desk`.
//!
//! | offset | head |
//! | --- | --- |
//! | 0 | `weir-vfy` |
//! | 8 | version. Magic, version and kind have these places in all versions |
//! | 9 | kind |
//! | 10 | two octets, 0 |
//! | 12 | session: a random number of the prober's |
//! | 20 | token: proves that the prober receives what is sent to its address; 0 in a hello |
//! | 28 | number: of a probe, a first probe, or a datagram of a stream |
//! | 32 | the body |

use super::header::Marks;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub(crate) const MAGIC: [u8; 8] = *b"weir-vfy";
pub(crate) const VERSION: u8 = 1;
/// Where the kind is: the sockets' filter reads it.
pub(crate) const KIND_AT: usize = 9;
/// Octets before the body.
pub(crate) const HEAD: usize = 32;
/// Octets of a question without a larger body, and so of its answer. It passes every way.
pub(crate) const QUESTION: usize = 512;
/// Sights in one report: they fit into a question of [`REPORT`] octets.
pub(crate) const SIGHTS: usize = 128;
/// Octets of a question for a report: with headers less than any IPv6 way carries.
pub(crate) const REPORT: usize = 1000;
/// Longest text: why a greeting was refused.
const TEXT: usize = 160;
/// Longest control message in a greeting.
const GREETING: usize = 256;
/// Octets of a sight.
const SIGHT: usize = 4;

/// A hello has this kind in all versions.
pub(crate) const HELLO: u8 = 1;
pub(crate) const PROBE: u8 = 3;
pub(crate) const BACK: u8 = 4;
const FLOW: u8 = 11;
const OTHER: u8 = 13;

/// One datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) session: u64,
    pub(crate) token: u64,
    pub(crate) number: u32,
    pub(crate) body: Body,
}

/// What a datagram says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// A prober is there.
    Hello,
    /// Its token; what the server sees of it.
    Welcome(Welcome),
    /// A packet whose headers are to be looked at; `back` are those of the answer.
    Probe(Probe),
    /// The answer to a probe. Wall clocks in nanoseconds.
    Back { sent: u64, came: u64, left: u64 },
    /// Which probes came, from `number` on.
    Ask,
    /// The answer: [`SIGHTS`] of them.
    Report(Vec<Option<Marks>>),
    /// An agent's control message, to be judged by the server's keys.
    Greet(Vec<u8>),
    /// The judgement, and a control message back; empty if there is none.
    Greeted { judged: Judged, greeting: Vec<u8> },
    /// A stream is to begin.
    Start(Start),
    /// What became of it so far; also a question for that.
    Stream(Stream),
    /// A datagram of a stream. Its length is what it is sent for.
    Flow,
    /// The prober has ended.
    Bye,
    /// The sender speaks another version.
    Other(u8),
}

/// The server's side, as it tells a prober.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Welcome {
    /// The prober's address and port, as the server sees them.
    pub(crate) seen: SocketAddr,
    /// MTU of the server's device.
    pub(crate) mtu: u16,
    /// An agent runs there.
    pub(crate) has_agent: bool,
    /// Weir's version there.
    pub(crate) release: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    pub(crate) back: Marks,
    /// It looks like a tunnel's packet, and so shall the answer: to the same port.
    pub(crate) is_outer: bool,
    pub(crate) sent: u64,
}

/// What a host says to another host's greeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// It has no configuration to judge by.
    Unconfigured,
    Accepted,
    Refused(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// The server shall send; else the prober does.
    pub(crate) is_back: bool,
    /// bit/s.
    pub(crate) rate: u64,
    pub(crate) millis: u32,
    /// Octets of each datagram.
    pub(crate) size: u16,
}

/// State of a stream at the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) phase: Phase,
    pub(crate) datagrams: u64,
    /// From the first to the last of them, nanoseconds.
    pub(crate) lasted: u64,
    /// Datagrams that the host received and its socket had no room for.
    pub(crate) dropped: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    /// No stream.
    #[default]
    None,
    /// It runs: the datagrams are those so far.
    Running,
    /// The server has sent it all.
    Done,
    /// Another prober's stream runs.
    Busy,
}

/// Octets of a datagram. It is at least `length` long.
pub(crate) fn encode(note: &Note, length: usize) -> Vec<u8> {
    let mut octets = MAGIC.to_vec();
    octets.extend([VERSION, kind(&note.body), 0, 0]);
    octets.extend(note.session.to_be_bytes());
    octets.extend(note.token.to_be_bytes());
    octets.extend(note.number.to_be_bytes());
    write(&note.body, &mut octets);
    octets.resize(octets.len().max(length), 0);
    octets
}

const fn kind(body: &Body) -> u8 {
    match body {
        Body::Hello => HELLO,
        Body::Welcome(_) => 2,
        Body::Probe(_) => PROBE,
        Body::Back { .. } => BACK,
        Body::Ask => 5,
        Body::Report(_) => 6,
        Body::Greet(_) => 7,
        Body::Greeted { .. } => 8,
        Body::Start(_) => 9,
        Body::Stream(_) => 10,
        Body::Flow => FLOW,
        Body::Bye => 12,
        Body::Other(_) => OTHER,
    }
}

fn write(body: &Body, out: &mut Vec<u8>) {
    match body {
        Body::Hello | Body::Ask | Body::Flow | Body::Bye => {}
        Body::Welcome(welcome) => {
            let ip = match welcome.seen.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out.extend(ip.octets());
            out.extend(welcome.seen.port().to_be_bytes());
            out.extend(welcome.mtu.to_be_bytes());
            out.push(welcome.has_agent.into());
            write_some(welcome.release.as_bytes(), TEXT, out);
        }
        Body::Probe(probe) => {
            out.extend(marks(probe.back));
            out.push(probe.is_outer.into());
            out.extend(probe.sent.to_be_bytes());
        }
        Body::Back { sent, came, left } => {
            [sent, came, left].into_iter().for_each(|time| out.extend(time.to_be_bytes()));
        }
        Body::Report(sights) => {
            for sight in sights {
                out.extend(sight.map_or([0; SIGHT], marks));
            }
        }
        Body::Greet(greeting) => write_some(greeting, GREETING, out),
        Body::Greeted { judged, greeting } => {
            let (code, why) = match judged {
                Judged::Unconfigured => (0, ""),
                Judged::Accepted => (1, ""),
                Judged::Refused(why) => (2, why.as_str()),
            };
            out.push(code);
            write_some(why.as_bytes(), TEXT, out);
            write_some(greeting, GREETING, out);
        }
        Body::Start(start) => {
            out.push(start.is_back.into());
            out.extend(start.rate.to_be_bytes());
            out.extend(start.millis.to_be_bytes());
            out.extend(start.size.to_be_bytes());
        }
        Body::Stream(stream) => {
            out.push(stream.phase as u8);
            let numbers = [stream.datagrams, stream.lasted, stream.dropped];
            numbers.into_iter().for_each(|number| out.extend(number.to_be_bytes()));
        }
        Body::Other(version) => out.push(*version),
    }
}

/// Octets with their count before them; what exceeds `most` is cut off.
fn write_some(octets: &[u8], most: usize, out: &mut Vec<u8>) {
    let octets = &octets[..octets.len().min(most)];
    out.extend((octets.len() as u16).to_be_bytes());
    out.extend(octets);
}

/// Four octets of a header. The highest bit of the flags says that there is one.
fn marks(marks: Marks) -> [u8; SIGHT] {
    let flags = 0x80 | u8::from(marks.dont_fragment) | u8::from(marks.reserved) << 1;
    let [high, low] = marks.id.to_be_bytes();
    [marks.tos, flags, high, low]
}

/// Untrusted octets in, a value that needs no further checks out.
pub(crate) fn parse(octets: &[u8]) -> Option<Note> {
    let mut rest = Rest(octets);
    if rest.array()? != MAGIC {
        return None;
    }
    let [version, kind] = rest.array()?;
    if version != VERSION {
        // Nothing else of another version can be read. What is not a hello or its answer is none of
        // ours: two servers of different versions would answer each other for ever.
        if !matches!(kind, HELLO | OTHER) {
            return None;
        }
        let body = Body::Other(version);
        return Some(Note { session: 0, token: 0, number: 0, body });
    }
    let [0, 0] = rest.array()? else { return None };
    let (session, token) = (rest.u64()?, rest.u64()?);
    let number = u32::from_be_bytes(rest.array()?);
    Some(Note { session, token, number, body: read(kind, &mut rest)? })
}

fn read(kind: u8, rest: &mut Rest<'_>) -> Option<Body> {
    Some(match kind {
        HELLO => Body::Hello,
        2 => {
            let ip = Ipv6Addr::from(rest.array::<16>()?).to_canonical();
            let seen = SocketAddr::new(ip, rest.u16()?);
            let (mtu, has_agent) = (rest.u16()?, rest.flag()?);
            Body::Welcome(Welcome { seen, mtu, has_agent, release: rest.text()? })
        }
        PROBE => {
            let back = rest.sight()??;
            Body::Probe(Probe { back, is_outer: rest.flag()?, sent: rest.u64()? })
        }
        BACK => Body::Back { sent: rest.u64()?, came: rest.u64()?, left: rest.u64()? },
        5 => Body::Ask,
        6 => Body::Report((0..SIGHTS).map(|_| rest.sight()).collect::<Option<_>>()?),
        7 => Body::Greet(rest.some(GREETING)?.to_vec()),
        8 => {
            let [code] = rest.array()?;
            let why = rest.text()?;
            let judged = match code {
                0 => Judged::Unconfigured,
                1 => Judged::Accepted,
                2 => Judged::Refused(why),
                _ => return None,
            };
            Body::Greeted { judged, greeting: rest.some(GREETING)?.to_vec() }
        }
        9 => {
            let (is_back, rate) = (rest.flag()?, rest.u64()?);
            let millis = u32::from_be_bytes(rest.array()?);
            Body::Start(Start { is_back, rate, millis, size: rest.u16()? })
        }
        10 => {
            let [phase] = rest.array()?;
            let phases = [Phase::None, Phase::Running, Phase::Done, Phase::Busy];
            let phase = *phases.get(usize::from(phase))?;
            let (datagrams, lasted, dropped) = (rest.u64()?, rest.u64()?, rest.u64()?);
            Body::Stream(Stream { phase, datagrams, lasted, dropped })
        }
        FLOW => Body::Flow,
        12 => Body::Bye,
        OTHER => Body::Other(rest.array::<1>()?[0]),
        _ => return None,
    })
}

/// Octets that were not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        let [octet] = self.array()?;
        (octet <= 1).then_some(octet == 1)
    }

    fn some(&mut self, most: usize) -> Option<&'a [u8]> {
        let count = usize::from(self.u16()?);
        if count > most { None } else { self.take(count) }
    }

    /// What a terminal may show: no control characters.
    fn text(&mut self) -> Option<String> {
        let text = String::from_utf8_lossy(self.some(TEXT)?).into_owned();
        Some(text.chars().filter(|c| !c.is_control()).collect())
    }

    fn sight(&mut self) -> Option<Option<Marks>> {
        let [tos, flags, high, low] = self.array()?;
        let id = u16::from_be_bytes([high, low]);
        let (dont_fragment, reserved) = (flags & 1 != 0, flags & 2 != 0);
        Some((flags & 0x80 != 0).then_some(Marks { tos, dont_fragment, reserved, id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks { tos: 0x2a, dont_fragment: true, reserved: true, id: 0xbeef };

    fn samples() -> Vec<Body> {
        let welcome = Welcome {
            seen: "10.0.0.1:7001".parse().expect("an address"),
            mtu: 9000,
            has_agent: true,
            release: "0.1.0".into(),
        };
        let sights = (0..SIGHTS).map(|n| (n % 3 > 0).then_some(MARKS)).collect();
        vec![
            Body::Hello,
            Body::Welcome(welcome),
            Body::Probe(Probe { back: MARKS, is_outer: true, sent: 1 << 60 }),
            Body::Back { sent: 1, came: 2, left: 3 },
            Body::Ask,
            Body::Report(sights),
            Body::Greet(vec![1, 2, 3]),
            Body::Greeted { judged: Judged::Refused("the tag is wrong".into()), greeting: vec![] },
            Body::Greeted { judged: Judged::Accepted, greeting: vec![9; 64] },
            Body::Start(Start { is_back: true, rate: 10, millis: 3000, size: 1472 }),
            Body::Stream(Stream { phase: Phase::Busy, datagrams: 7, lasted: 8, dropped: 9 }),
            Body::Flow,
            Body::Bye,
            Body::Other(2),
        ]
    }

    fn of(body: Body) -> Note {
        Note { session: 5, token: 6, number: 7, body }
    }

    #[test]
    fn what_is_said_is_read_and_cut_off_it_is_nothing() {
        for body in samples() {
            let note = of(body);
            let octets = encode(&note, 0);
            assert_eq!(parse(&octets).as_ref(), Some(&note));
            assert_eq!(parse(&encode(&note, REPORT)).as_ref(), Some(&note), "with padding");
            for end in 0..octets.len() {
                let whole = parse(&octets[..end]);
                assert!(whole.is_none(), "{note:?} cut off at {end}: {whole:?}");
            }
        }
    }

    #[test]
    fn answers_fit_into_their_questions() {
        for body in samples() {
            let most = if matches!(body, Body::Report(_)) { REPORT } else { QUESTION };
            let length = encode(&of(body.clone()), 0).len();
            assert!(length <= most, "{body:?} has {length} octets");
        }
        let why = Judged::Refused("x".repeat(1000));
        let longest = Body::Greeted { judged: why, greeting: vec![0; 1000] };
        assert!(encode(&of(longest), 0).len() <= QUESTION);
    }

    #[test]
    fn another_version_is_told_apart_and_noise_is_nothing() {
        let mut octets = encode(&of(Body::Hello), 0);
        octets[8] = 9;
        assert_eq!(parse(&octets).map(|note| note.body), Some(Body::Other(9)));
        octets[KIND_AT] = FLOW;
        assert_eq!(parse(&octets), None, "neither a hello nor its answer");
        let mut chance = weir_units::SplitMix64::new(11);
        for round in 0..20_000 {
            let mut noise = encode(&of(samples()[round % 14].clone()), 0);
            for _ in 0..=chance.below(4) {
                let at = chance.below(noise.len() as u64) as usize;
                noise[at] = chance.next() as u8;
            }
            noise.truncate(chance.below(noise.len() as u64 + 1) as usize);
            if let Some(Note { body: Body::Greeted { judged: Judged::Refused(why), .. }, .. }) =
                parse(&noise)
            {
                assert!(!why.chars().any(char::is_control), "a terminal shows it: {why:?}");
            }
        }
    }
}
