//! Octets from anywhere: they never panic, and are never believed without the key.

use crate::common::*;
use proptest::prelude::*;
use weir_core::level::Level;
use weir_core::message::{Backlog, Congestion, Echo, LevelWord, Message, Offer};
use weir_core::path::MAX_PATHS;
use weir_units::{HostId, PairId, PathId, Rate, Span, VmId};
use weir_wire::{
    FIRST, Header, Heard, Incarnation, KeyId, MAX_RATE, MAX_RECORDS, SECOND, VERSION, encode,
    parse, sayable,
};

fn pairs() -> impl Strategy<Value = PairId> {
    any::<(u32, u32)>()
        .prop_filter("a VM does not talk to itself", |(src, dst)| src != dst)
        .prop_map(|(src, dst)| PairId::new(VmId(src), VmId(dst)))
}

fn reports() -> impl Strategy<Value = Congestion> {
    (pairs(), any::<(u32, u32, u32)>()).prop_map(|(pair, (lost, marked, received))| Congestion {
        pair,
        lost,
        marked,
        received,
    })
}

fn backlogs() -> impl Strategy<Value = Backlog> {
    use Backlog::*;
    prop::sample::select(vec![Unknown, Free, Sometimes, Always])
}

fn messages() -> impl Strategy<Value = Message> {
    let floor = || (0..=MAX_RATE.as_bps()).prop_map(Rate::from_bps);
    prop_oneof![
        (pairs(), any::<(u32, bool, bool)>(), floor(), prop::option::of(1..=u32::MAX)).prop_map(
            |(pair, (serial, unbounded, confirm), floor, micros)| {
                let round_trip = micros.map(|n| Span::from_micros(n.into()));
                Message::Offer(Offer { pair, serial, floor, unbounded, confirm, round_trip })
            }
        ),
        (pairs(), any::<u32>(), floor(), prop::option::of(floor()), backlogs()).prop_map(
            |(pair, serial, floor, most, backlog)| {
                Message::Echo(Echo { pair, serial, floor, most, backlog })
            }
        ),
        reports().prop_map(Message::Congestion),
        (0..MAX_PATHS as u32, reports())
            .prop_map(|(path, report)| Message::PathCongestion(PathId(path), report)),
        (any::<bool>(), any::<u32>()).prop_map(|(may, raw)| {
            let level = Level::from(raw);
            Message::Level(if may { LevelWord::May(level) } else { LevelWord::Uses(level) })
        }),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    let incarnations = || (1..=u64::MAX).prop_map(|n| Incarnation::new(n).unwrap());
    let heard = (incarnations(), 1..=u64::MAX)
        .prop_map(|(incarnation, sequence)| Heard { incarnation, sequence });
    let numbers = (FIRST..=VERSION, any::<(u8, u8, u32, u32, u32)>());
    (numbers, incarnations(), 1..=u64::MAX, prop::option::of(heard)).prop_map(
        |((version, (more, key_id, epoch, from, to)), incarnation, sequence, echo)| Header {
            version,
            speaks: more.max(version),
            key_id: KeyId(key_id),
            epoch: if version == FIRST { epoch >> 8 } else { epoch },
            from: HostId(from),
            to: HostId(to),
            incarnation,
            sequence,
            echo,
        },
    )
}

/// One thing that goes wrong with octets on their way.
#[derive(Clone, Debug)]
enum Damage {
    Flip { bit: prop::sample::Index },
    Set { at: prop::sample::Index, to: Vec<u8> },
    Cut { to: prop::sample::Index },
    Append { octets: Vec<u8> },
    Repeat { from: prop::sample::Index },
}

impl Damage {
    fn to(&self, octets: &[u8]) -> Vec<u8> {
        let mut octets = octets.to_vec();
        let length = octets.len();
        if length == 0 && !matches!(self, Self::Append { .. }) {
            // An earlier cut left nothing to damage.
            return octets;
        }
        match self {
            Self::Flip { bit } => {
                let bit = bit.index(length * 8);
                octets[bit / 8] ^= 1 << (bit % 8);
            }
            Self::Set { at, to } => {
                let rest = &mut octets[at.index(length)..];
                let count = rest.len().min(to.len());
                rest[..count].copy_from_slice(&to[..count]);
            }
            Self::Cut { to } => octets.truncate(to.index(length)),
            Self::Append { octets: more } => octets.extend(more),
            Self::Repeat { from } => octets.extend_from_within(from.index(length)..),
        }
        octets
    }
}

/// What of a message a datagram with this header has room for.
fn said(header: &Header, message: Message) -> Message {
    match message {
        Message::Echo(echo) if header.version == FIRST => {
            Message::Echo(Echo { most: None, backlog: Backlog::Unknown, ..echo })
        }
        Message::Echo(echo) if header.version == SECOND => {
            Message::Echo(Echo { backlog: Backlog::Unknown, ..echo })
        }
        Message::Offer(offer) if header.version == FIRST => {
            Message::Offer(Offer { round_trip: None, ..offer })
        }
        _ => message,
    }
}

fn damages() -> impl Strategy<Value = Damage> {
    let some = || prop::collection::vec(any::<u8>(), 1..40);
    prop_oneof![
        4 => any::<prop::sample::Index>().prop_map(|bit| Damage::Flip { bit }),
        2 => (any::<prop::sample::Index>(), some()).prop_map(|(at, to)| Damage::Set { at, to }),
        1 => any::<prop::sample::Index>().prop_map(|to| Damage::Cut { to }),
        1 => some().prop_map(|octets| Damage::Append { octets }),
        1 => any::<prop::sample::Index>().prop_map(|from| Damage::Repeat { from }),
    ]
}

/// Octets that look like a datagram at first sight.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let octets = prop::collection::vec(any::<u8>(), 56 + 3 * 32);
    (0..4_usize, FIRST..=VERSION, octets).prop_map(|(count, version, mut octets)| {
        octets.truncate(56 + count * if version == FIRST { 24 } else { 32 });
        let speaks = if version == FIRST { 0 } else { version };
        octets[..4].copy_from_slice(&[version, 0, speaks, count as u8]);
        octets
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_encoded_is_parsed(
        header in headers(),
        mut messages in prop::collection::vec(messages(), 0..=MAX_RECORDS),
    ) {
        messages.retain(|message| sayable(header.version, message).is_ok());
        let octets = encode(&header, &key(), &messages);
        let datagram = parse(&octets).unwrap();
        prop_assert_eq!(datagram.header, header);
        let sayable: Vec<_> = messages.into_iter().map(|message| said(&header, message)).collect();
        prop_assert_eq!(datagram.messages.collect::<Vec<_>>(), sayable);
    }

    #[test]
    fn what_can_be_parsed_has_one_form(
        header in headers(),
        mut messages in prop::collection::vec(messages(), 0..4),
        damage in damages(),
    ) {
        messages.retain(|message| sayable(header.version, message).is_ok());
        let mut octets = damage.to(&encode(&header, &key(), &messages));
        if octets.len() >= 56 {
            resign(&mut octets);
        }
        if let Ok(datagram) = parse(&octets) {
            let messages: Vec<_> = datagram.messages.collect();
            prop_assert_eq!(encode(&datagram.header, &key(), &messages), octets);
        }
    }

    #[test]
    fn arbitrary_octets_are_never_believed(
        octets in prop_oneof![prop::collection::vec(any::<u8>(), 0..1500), plausible()],
    ) {
        let (_, mut b) = confirmed();
        let _ = parse(&octets);
        prop_assert!(b.open(&octets).is_err());
    }

    #[test]
    fn a_damaged_datagram_is_never_believed(
        names in prop::collection::vec(any::<u32>(), 0..43),
        damages in prop::collection::vec(damages(), 1..4),
    ) {
        let (mut a, mut b) = confirmed();
        let names = names.into_iter().filter(|name| *name != u32::MAX);
        let offers: Vec<_> = names.map(offer).collect();
        let whole =
            if offers.is_empty() { greeting(&mut a, B) } else { sealed(&mut a, B, &offers) };
        let damaged = damages.iter().fold(whole.clone(), |octets, damage| damage.to(&octets));
        prop_assume!(damaged != whole);
        prop_assert!(b.open(&damaged).is_err());
        prop_assert_eq!(believed(&mut b, &whole), offers, "the whole one is, afterwards");
    }

    #[test]
    fn damage_by_a_holder_of_the_key_never_panics(
        names in prop::collection::vec(0..9_u32, 1..4),
        damage in damages(),
    ) {
        let (mut a, mut b) = confirmed();
        let offers: Vec<_> = names.into_iter().map(offer).collect();
        let mut octets = damage.to(&sealed(&mut a, B, &offers));
        if octets.len() >= 56 {
            resign(&mut octets);
        }
        let _ = b.open(&octets).map(drop);
    }
}

#[test]
fn no_single_bit_of_a_datagram_may_change() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1), offer(2)]);
    for bit in 0..octets.len() * 8 {
        let mut damaged = octets.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(b.open(&damaged).is_err(), "bit {bit}");
    }
    assert_eq!(believed(&mut b, &octets).len(), 2);
}
