//! Two hosts and a network that the input controls: it delivers, repeats, damages and
//! holds back what it likes; agents restart, and keys are replaced meanwhile.

use crate::Target;
use crate::datagram::incarnation;
use std::collections::BTreeSet;
use weir_core::message::{Message, Offer};
use weir_units::{HostId, PairId, Rate, VmId};
use weir_wire::{Keyring, Opened, Session};

/// A message is delivered at most once, to its receiver, and never damaged.
pub(crate) const TARGET: Target = Target { name: "session", run, reaches, words: &[], seeds };

const HOSTS: [HostId; 2] = [HostId(0), HostId(1)];
/// More than this of one input adds nothing but time.
const MOST_EVENTS: usize = 600;

struct World {
    sessions: [Session; 2],
    lives: [u64; 2],
    rotation: usize,
    recorded: Vec<Vec<u8>>,
    /// The sender of message *n*.
    said: Vec<usize>,
    delivered: BTreeSet<u32>,
}

/// The key files of a rotation without an end.
fn keys(step: usize) -> Keyring {
    let key = |n: usize| format!("{} {:032x}\n", n % 256, n + 1);
    let n = step / 3;
    let text = match step % 3 {
        0 => key(n),
        1 => key(n) + &key(n + 1),
        _ => key(n + 1) + &key(n),
    };
    text.parse().expect("a key file")
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            sessions: [0, 1].map(|host| Session::new(HOSTS[host], incarnation(1), keys(0))),
            lives: [0; 2],
            rotation: 0,
            recorded: Vec::new(),
            said: Vec::new(),
            delivered: BTreeSet::new(),
        };
        (0..2).for_each(|host| world.restart(host));
        world
    }

    fn restart(&mut self, host: usize) {
        self.lives[host] += 1;
        let life = (self.lives[host] * 2 + host as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sessions[host] = Session::new(HOSTS[host], incarnation(life), keys(self.rotation));
        self.sessions[host].add_peer(HOSTS[1 - host]).expect("room for one");
    }

    fn say(&mut self, host: usize, count: u8) {
        let mut messages = Vec::new();
        for _ in 0..count {
            let name = self.said.len() as u32;
            self.said.push(host);
            let pair = PairId::new(VmId(name), VmId(u32::MAX));
            let floor = Rate::from_mbps(1);
            let offer = Offer {
                pair,
                serial: name,
                floor,
                unbounded: false,
                confirm: false,
                round_trip: None,
            };
            messages.push(Message::Offer(offer));
        }
        let to = HOSTS[1 - host];
        self.sessions[host].seal(to, &messages, &mut self.recorded).expect("a peer");
    }

    fn deliver(&mut self, host: usize, octets: &[u8]) {
        let greet = match self.sessions[host].open(octets) {
            Ok(Opened::Believed { messages, greet, .. }) => {
                for message in messages {
                    let name = message.pair().expect("records are of pairs").src.0;
                    assert_eq!(self.said[name as usize], 1 - host, "said by another");
                    assert!(self.delivered.insert(name), "message {name} was delivered twice");
                }
                greet
            }
            Ok(Opened::Greet(_)) => true,
            Err(_) => false,
        };
        if greet {
            let to = HOSTS[1 - host];
            self.sessions[host].greet(to, &mut self.recorded).expect("a peer");
        }
    }

    /// A recorded datagram with some bits changed.
    fn damaged(&mut self, host: usize, which: u8, bit: u8) {
        let Some(mut octets) = self.past(which) else { return };
        let bit = usize::from(bit) * 31 % (octets.len() * 8);
        octets[bit / 8] ^= 1 << (bit % 8);
        assert!(self.sessions[host].open(&octets).is_err(), "bit {bit} was changed, and believed");
    }

    /// A datagram counted back from the newest.
    fn past(&self, back: u8) -> Option<Vec<u8>> {
        let newest = self.recorded.len().checked_sub(1)?;
        self.recorded.get(newest - usize::from(back) % (newest + 1)).cloned()
    }
}

/// Whether there is an event in it.
fn reaches(octets: &[u8]) -> bool {
    octets.len() >= 3
}

fn run(octets: &[u8]) {
    let mut world = World::new();
    for event in octets.chunks_exact(3).take(MOST_EVENTS) {
        let [what, one, two] = [event[0], event[1], event[2]];
        let host = usize::from(what & 1);
        match what >> 1 & 7 {
            0 | 1 => world.say(host, one % 4),
            2..=4 => {
                if let Some(octets) = world.past(one) {
                    world.deliver(host, &octets);
                }
            }
            5 => world.damaged(host, one, two),
            6 if one % 8 == 0 => world.restart(host),
            7 if one % 8 == 0 => {
                world.rotation += 1;
                for session in &mut world.sessions {
                    session.set_keys(keys(world.rotation));
                }
            }
            _ => {}
        }
    }
    for session in &world.sessions {
        assert_eq!(session.counters().unsayable, 0);
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    // say at 0, say at 1, deliver the newest to 1, to 0, …: a conversation.
    let talk = [[0, 1, 0], [5, 0, 0], [4, 0, 0], [5, 0, 0], [4, 0, 0], [1, 2, 0], [4, 0, 0]];
    let damage = [[10, 0, 9], [11, 1, 200], [10, 3, 77]];
    let restart = [[12, 0, 0], [13, 8, 0]];
    let rotate = [[14, 0, 0]];
    let replay: Vec<[u8; 3]> = (0..40).flat_map(|back| [[4, back, 0], [5, back, 0]]).collect();
    let all = |parts: &[&[[u8; 3]]]| parts.concat().concat();
    vec![
        ("conversation", all(&[&talk, &talk, &talk])),
        ("damage", all(&[&talk, &damage, &talk, &damage])),
        ("restarts", all(&[&talk, &restart, &talk, &replay, &restart, &talk])),
        ("rotation", all(&[&talk, &rotate, &talk, &rotate, &talk, &rotate, &talk, &replay])),
        ("replay", all(&[&talk, &talk, &replay, &talk, &replay])),
    ]
}
