//! Two hosts and a network under the control of an attacker. The attacker holds no key, records
//! everything, and delivers any datagram at any time to any host. Agents restart meanwhile.

use crate::common::{Said, incarnation, offer, session};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_units::HostId;
use weir_wire::{Opened, Session};

const HOSTS: [HostId; 2] = [HostId(0), HostId(1)];

/// One thing that happens. Indices are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A host seals that many messages.
    Say { host: usize, messages: u8 },
    /// A datagram of the whole past arrives at a host; `late`: counted back from the newest.
    Deliver { host: usize, back: usize, greets: bool },
    /// An agent starts anew.
    Restart { host: usize },
    /// A host forgets the other and takes it up again, as when the directory changes.
    Readd { host: usize },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let host = 0..2_usize;
    // Mostly what is recent, so that handshakes succeed; sometimes anything, to try them.
    let back = prop_oneof![6 => 0..4_usize, 2 => 0..80_usize, 1 => any::<usize>()];
    let event = prop_oneof![
        8 => (host.clone(), 0..3_u8).prop_map(|(host, messages)| Event::Say { host, messages }),
        24 => (host.clone(), back, prop::bool::weighted(0.8))
            .prop_map(|(host, back, greets)| Event::Deliver { host, back, greets }),
        1 => host.clone().prop_map(|host| Event::Restart { host }),
        1 => host.prop_map(|host| Event::Readd { host }),
    ];
    prop::collection::vec(event, 0..400)
}

struct World {
    sessions: [Session; 2],
    lives: [u32; 2],
    recorded: Vec<Vec<u8>>,
    /// Sender and incarnation of each message.
    said: BTreeMap<u32, Said>,
    delivered: BTreeSet<u32>,
    /// The latest incarnation of each host that the other has believed.
    believed_life: [u32; 2],
}

impl World {
    fn new() -> Self {
        Self {
            sessions: [0, 1].map(|host| start(host, 0)),
            lives: [0; 2],
            recorded: Vec::new(),
            said: BTreeMap::new(),
            delivered: BTreeSet::new(),
            believed_life: [0; 2],
        }
    }

    /// Seals messages never said before; returns their names.
    fn say(&mut self, host: usize, messages: u8) -> Vec<u32> {
        let first = self.said.len() as u32;
        let names: Vec<u32> = (first..first + u32::from(messages)).collect();
        let said = Said { host, life: self.lives[host] };
        self.said.extend(names.iter().map(|name| (*name, said)));
        let offers: Vec<_> = names.iter().map(|name| offer(*name)).collect();
        self.sessions[host].seal(HOSTS[1 - host], &offers, &mut self.recorded).unwrap();
        names
    }

    /// Hands a recorded datagram to a host; it greets if it wants to and `greets` allows.
    fn deliver(&mut self, host: usize, recorded: usize, greets: bool) {
        let octets = self.recorded[recorded].clone();
        let greet = match self.sessions[host].open(&octets) {
            Ok(Opened::Believed { from, messages, greet, .. }) => {
                assert_eq!(from, HOSTS[1 - host]);
                for message in messages {
                    self.check(host, message.pair().expect("of a pair").src.0);
                }
                greet
            }
            Ok(Opened::Greet(from)) => {
                assert_eq!(from, HOSTS[1 - host]);
                true
            }
            Err(_) => false,
        };
        if greet && greets {
            self.sessions[host].greet(HOSTS[1 - host], &mut self.recorded).unwrap();
        }
    }

    /// What every delivery owes: promises 2 and 3 of the crate.
    fn check(&mut self, host: usize, name: u32) {
        let said = self.said[&name];
        assert_ne!(said.host, host, "message {name} came back to its sender");
        assert!(self.delivered.insert(name), "message {name} was delivered twice");
        let latest = &mut self.believed_life[said.host];
        assert!(said.life >= *latest, "message {name} of life {} after {latest}", said.life);
        *latest = said.life;
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Say { host, messages } => drop(self.say(host, messages)),
            Event::Deliver { host, back, greets } => {
                if let Some(newest) = self.recorded.len().checked_sub(1) {
                    self.deliver(host, newest - back % (newest + 1), greets);
                }
            }
            Event::Restart { host } => {
                self.lives[host] += 1;
                self.sessions[host] = start(host, self.lives[host]);
            }
            Event::Readd { host } => {
                assert!(self.sessions[host].remove_peer(HOSTS[1 - host]));
                self.sessions[host].add_peer(HOSTS[1 - host]).unwrap();
            }
        }
    }

    /// Delivers what is sealed from `first` on, and what that causes, once and in order.
    fn quietly(&mut self, first: usize) {
        let mut waiting: VecDeque<usize> = (first..self.recorded.len()).collect();
        for _ in 0..8 {
            let Some(next) = waiting.pop_front() else { return };
            let known = self.recorded.len();
            self.deliver(usize::from(self.recorded[next][15]), next, true);
            waiting.extend(known..self.recorded.len());
        }
        panic!("two hosts greet each other for ever");
    }
}

fn start(host: usize, life: u32) -> Session {
    session(HOSTS[host], &[HOSTS[1 - host]], incarnation(host, life))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_the_network_does_messages_are_believed_once_and_never_from_the_past(
        events in events(),
        starts in 0..2_usize,
    ) {
        let mut world = World::new();
        for event in events {
            world.play(event);
        }
        // The network behaves again: after one exchange, whichever side begins, all is believed.
        let first = world.recorded.len();
        world.say(starts, 1);
        world.quietly(first);
        for host in [starts, 1 - starts] {
            let first = world.recorded.len();
            let names = world.say(host, 1);
            world.quietly(first);
            prop_assert!(world.delivered.contains(&names[0]), "{host} is not heard");
        }
    }
}

/// Everything ever sent, delivered again to both: at every moment of a long life with restarts.
#[test]
fn a_complete_replay_after_each_restart_is_never_believed() {
    let mut world = World::new();
    for round in 0..12 {
        let first = world.recorded.len();
        world.say(round % 2, 2);
        world.quietly(first);
        world.say(0, 1);
        world.say(1, 1);
        world.quietly(world.recorded.len() - 2);
        let delivered = world.delivered.clone();
        for host in [0, 1] {
            for recorded in 0..world.recorded.len() {
                world.deliver(host, recorded, false);
            }
        }
        // The two first messages of a life, not believed at the time, stay so.
        assert_eq!(delivered, world.delivered);
        assert!(delivered.contains(&(world.said.len() as u32 - 1)));
        assert!(delivered.contains(&(world.said.len() as u32 - 2)));
        world.play(Event::Restart { host: round / 2 % 2 });
        for host in [0, 1] {
            for recorded in 0..world.recorded.len() {
                world.deliver(host, recorded, true);
            }
        }
        assert_eq!(delivered, world.delivered);
    }
}
