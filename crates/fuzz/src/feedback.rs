//! EyeQ's feedback: packets of any sender, and a network that the input controls.

use crate::Target;
use crate::datagram::incarnation;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use weir_units::{HostId, PairId, VmId};
use weir_wire::{
    FeedbackKey, FeedbackPacket, FeedbackRejected, Inbox, Key, KeyId, Lives, Told, encode_feedback,
};

/// Octets are refused, or have this one form; without the key nothing is believed. What was said is
/// believed at most once, undamaged, and by the life for which it was said.
pub(crate) const TARGET: Target = Target { name: "feedback", run, reaches, words: &[], seeds };

const TELLER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TOLD: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// More than this of one input adds nothing but time.
const MOST_EVENTS: usize = 600;

/// The key of host 1's feedback to host 2 in their `life`, by one of two keys of the fleet.
fn key(life: u64, id: u8) -> FeedbackKey {
    let fleet = Key::from_hex(&format!("{:032x}", u128::from(id) + 1)).expect("a key");
    let lives = Lives {
        from: (HostId(1), incarnation(life + 1)),
        to: (HostId(2), incarnation(2 * life + 1)),
    };
    FeedbackKey::derive(KeyId(id), &fleet, lives)
}

fn said(name: u32) -> Told {
    let pair = PairId::new(VmId(name), VmId(u32::MAX));
    Told { from: TELLER, to: TOLD, pair, units: (name % 65_535) as u16 + 1 }
}

/// Whether it is a packet of the right length and version, or has an event in it.
fn reaches(octets: &[u8]) -> bool {
    FeedbackPacket::parse(octets).is_ok() || octets.len() >= 3
}

fn run(octets: &[u8]) {
    packet(octets);
    network(octets);
}

fn packet(octets: &[u8]) {
    let whole = if let Ok(packet) = FeedbackPacket::parse(octets) {
        let told = packet.told();
        let sequence = u64::from(packet.sequence()) | 1 << 32;
        let again = encode_feedback(&told, &key(0, packet.key_id().0 & 1), sequence);
        let parsed = FeedbackPacket::parse(&again).expect("what is encoded is parsed");
        assert_eq!((parsed.told(), parsed.sequence()), (told, packet.sequence()));
        assert_eq!(again[22..26], octets[22..26], "one value has one form");
        assert_eq!(again[28..36], octets[28..36], "one value has one form");
        Some(told)
    } else {
        None
    };
    let mut inbox = Inbox::new(whole.map_or(TOLD, |told| told.to));
    let from = whole.map_or(TELLER, |told| told.from);
    for id in [0, 1] {
        assert!(inbox.accept(from, key(u64::MAX >> 2, id)));
    }
    assert!(inbox.open(octets).is_err(), "believed without the key");
    let counters = inbox.counters();
    assert_eq!((counters.all(), counters.believed), (1, 0), "one counter");
}

struct World {
    inbox: Inbox,
    life: u64,
    /// The next sequence by each key.
    next: [u64; 2],
    recorded: Vec<[u8; 46]>,
    /// The life in which message *n* was said.
    said: Vec<u64>,
    believed: BTreeSet<u32>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            inbox: Inbox::new(TOLD),
            life: 0,
            next: [1; 2],
            recorded: Vec::new(),
            said: Vec::new(),
            believed: BTreeSet::new(),
        };
        world.restart();
        world
    }

    /// Either host: both get keys that are new, and what was heard by the old ones is forgotten.
    fn restart(&mut self) {
        self.life += 1;
        self.next = [1; 2];
        for id in [0, 1] {
            assert!(self.inbox.accept(TELLER, key(self.life, id)));
        }
    }

    /// Says something, `ahead` sequences after the last: what was between is lost.
    fn say(&mut self, id: u8, ahead: u8) {
        let next = &mut self.next[usize::from(id)];
        *next += (1 << (ahead % 31)) - 1;
        let told = said(self.said.len() as u32);
        self.recorded.push(encode_feedback(&told, &key(self.life, id), *next));
        *next += 1;
        self.said.push(self.life);
    }

    fn deliver(&mut self, octets: &[u8]) {
        match self.inbox.open(octets) {
            Ok((told, _)) => {
                let name = told.pair.src.0;
                assert_eq!(told, said(name), "damaged, and believed");
                assert_eq!(self.said[name as usize], self.life, "said in another life");
                assert!(self.believed.insert(name), "message {name} was believed twice");
            }
            Err(FeedbackRejected::Malformed(_) | FeedbackRejected::Zero) => {
                panic!("{octets:?} was sound")
            }
            Err(_) => {}
        }
    }

    fn past(&self, back: u8) -> Option<[u8; 46]> {
        let newest = self.recorded.len().checked_sub(1)?;
        self.recorded.get(newest - usize::from(back) % (newest + 1)).copied()
    }

    /// Changes what is signed: whatever it says then, it is not believed.
    fn damaged(&mut self, back: u8, bit: u8) {
        let Some(mut packet) = self.past(back) else { return };
        // Octets 20 to 26, 28 to 36 and 38 to 46.
        const SIGNED: [usize; 22] = [
            20, 21, 22, 23, 24, 25, 28, 29, 30, 31, 32, 33, 34, 35, 38, 39, 40, 41, 42, 43, 44, 45,
        ];
        packet[SIGNED[usize::from(bit / 8) % SIGNED.len()]] ^= 1 << (bit % 8);
        assert!(self.inbox.open(&packet).is_err(), "bit {bit} was changed, and believed");
    }
}

fn network(octets: &[u8]) {
    let mut world = World::new();
    for event in octets.chunks_exact(3).take(MOST_EVENTS) {
        let [what, one, two] = [event[0], event[1], event[2]];
        match what % 8 {
            0..=2 => world.say(what >> 3 & 1, if what % 8 == 0 { two } else { 0 }),
            3..=5 => {
                if let Some(packet) = world.past(one) {
                    world.deliver(&packet);
                }
            }
            6 => world.damaged(one, two),
            _ if one % 8 == 0 => world.restart(),
            _ => {}
        }
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let packet = encode_feedback(&said(449), &key(0, 0), 10);
    let with = |at: usize, new: u8| {
        let mut octets = packet.to_vec();
        octets[at] = new;
        octets
    };
    let talk = [[1, 0, 0], [3, 0, 0], [9, 0, 0], [4, 0, 0], [2, 0, 0], [5, 0, 0]];
    let ahead = [[0, 0, 3], [3, 0, 0], [0, 0, 30], [3, 0, 0], [8, 0, 30], [3, 0, 0], [3, 2, 0]];
    let damage = [[6, 0, 9], [6, 1, 200], [6, 3, 77]];
    let restart = [[7, 0, 0]];
    let replay: Vec<[u8; 3]> = (0..40).map(|back| [4, back, 0]).collect();
    let all = |parts: &[&[[u8; 3]]]| parts.concat().concat();
    vec![
        ("packet", packet.to_vec()),
        ("of-another-key", with(21, 1)),
        ("another-version", with(20, 2)),
        ("a-fragment", with(6, 0x20)),
        ("cut-in-the-tag", packet[..45].to_vec()),
        ("no-rate", encode_feedback(&Told { units: 0, ..said(1) }, &key(0, 1), 1).to_vec()),
        ("conversation", all(&[&talk, &talk, &talk])),
        ("leaps", all(&[&talk, &ahead, &talk, &ahead, &replay])),
        ("damage", all(&[&talk, &damage, &talk, &damage])),
        ("restarts", all(&[&talk, &restart, &talk, &replay, &restart, &talk, &replay])),
    ]
}
