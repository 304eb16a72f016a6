//! Keys are replaced while datagrams flow: nothing is refused on the way.

use crate::common::*;
use proptest::prelude::*;
use weir_units::HostId;
use weir_wire::{KeyId, KeyUse, Keyring, Keys, Opened, Rejected, Session, Untold, host_file};

const OLD: &str = "1 11111111111111111111111111111111\n";
const NEW: &str = "2 22222222222222222222222222222222\n";
const NEXT: &str = "3 33333333333333333333333333333333\n";

/// The master file of every step of two rotations, as the procedure of the crate's `keyfile` says.
fn steps() -> Vec<Keyring> {
    let files = [
        OLD.to_owned(),
        format!("{OLD}{NEW}"),
        format!("{NEW}{OLD}"),
        NEW.to_owned(),
        format!("{NEW}{NEXT}"),
        format!("{NEXT}{NEW}"),
        NEXT.to_owned(),
    ];
    files.iter().map(|text| text.parse().expect("a key file")).collect()
}

/// What the host's own file has at a step: other keys for each peer.
fn of_host(host: usize, master: &Keyring) -> Keys {
    let text = host_file(master, NAMES[host], NAMES);
    let hosts = NAMES.into_iter().zip(HOSTS).collect();
    Keys::read(&text, NAMES[host], &hosts).expect("a key file")
}

/// Hosts at any of two neighbouring steps, and what is under way between them.
struct Fleet {
    sessions: Vec<Session>,
    step: Vec<usize>,
    under_way: Vec<(usize, Vec<u8>)>,
}

const HOSTS: [HostId; 3] = [HostId(0), HostId(1), HostId(2)];
const NAMES: [&str; 3] = ["h0", "h1", "h2"];

impl Fleet {
    fn new() -> Self {
        let keys = steps().remove(0);
        let start = |host: usize| {
            let mut session = Session::new(HOSTS[host], incarnation(host, 0), of_host(host, &keys));
            HOSTS.iter().filter(|h| **h != HOSTS[host]).for_each(|h| {
                session.add_peer(*h).expect("room for two");
            });
            session
        };
        let mut fleet =
            Self { sessions: (0..3).map(start).collect(), step: vec![0; 3], under_way: Vec::new() };
        for _ in 0..3 {
            for from in 0..3 {
                (0..3).filter(|to| *to != from).for_each(|to| fleet.say(from, to));
            }
            fleet.deliver_all();
        }
        assert!((0..3).all(|a| (0..3).all(|b| a == b || fleet.sessions[a].is_confirmed(HOSTS[b]))));
        fleet
    }

    fn say(&mut self, from: usize, to: usize) {
        let mut out = Vec::new();
        self.sessions[from].seal(HOSTS[to], &[offer(1)], &mut out).expect("a peer");
        self.under_way.extend(out.into_iter().map(|octets| (to, octets)));
    }

    fn deliver_all(&mut self) {
        while !self.under_way.is_empty() {
            for (to, octets) in std::mem::take(&mut self.under_way) {
                let opened = self.sessions[to].open(&octets);
                let greet = match opened.expect("no datagram is refused") {
                    Opened::Believed { from, greet, .. } => greet.then_some(from),
                    Opened::Greet(from) => Some(from),
                };
                if let Some(peer) = greet {
                    let mut out = Vec::new();
                    self.sessions[to].greet(peer, &mut out).expect("a peer");
                    let back = HOSTS.iter().position(|h| *h == peer).expect("one of three");
                    self.under_way.extend(out.into_iter().map(|octets| (back, octets)));
                }
            }
        }
    }

    /// The host takes the next step, unless another is a step behind: the procedure says that each
    /// step is finished everywhere before the next begins. What is under way arrives before a key
    /// is removed: a second is enough.
    fn advance(&mut self, host: usize) {
        let behind = self.step.iter().any(|step| *step < self.step[host]);
        let Some(keys) = steps().into_iter().nth(self.step[host] + 1).filter(|_| !behind) else {
            return;
        };
        if keys.ids().count() == 1 {
            self.deliver_all();
        }
        self.sessions[host].set_keys(of_host(host, &keys));
        self.step[host] += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_datagram_is_refused_while_keys_are_replaced_host_by_host(
        events in prop::collection::vec((0..4_u8, 0..3_usize, 1..3_usize), 0..200),
    ) {
        let mut fleet = Fleet::new();
        for (what, host, other) in events {
            match what {
                0 => fleet.advance(host),
                1 => fleet.deliver_all(),
                _ => fleet.say(host, (host + other) % 3),
            }
        }
        fleet.deliver_all();
        for session in &fleet.sessions {
            prop_assert_eq!(session.counters().rejected(), 0);
        }
    }
}

#[test]
fn two_whole_rotations_leave_only_the_last_key() {
    let mut fleet = Fleet::new();
    for _ in 0..steps().len() - 1 {
        for host in 0..3 {
            fleet.advance(host);
            fleet.say(host, (host + 1) % 3);
            fleet.say((host + 2) % 3, host);
            fleet.deliver_all();
        }
    }
    for session in &fleet.sessions {
        let keys = session.keys();
        assert!(
            matches!(keys[..], [KeyUse { id: KeyId(3), signs: 2, accepted: 2, seen: 1.., .. }]),
            "{keys:?}"
        );
        assert_eq!(session.counters().rejected(), 0);
    }
}

#[test]
fn a_key_that_was_removed_is_refused_and_one_of_the_same_id_is_another() {
    let mut fleet = Fleet::new();
    fleet.say(0, 1);
    let (_, signed_with_old) = fleet.under_way.pop().expect("one");
    fleet.sessions[1].set_keys(of_host(1, &NEW.parse().expect("a master file")));
    let refused = fleet.sessions[1].open(&signed_with_old).expect_err("of no key");
    assert_eq!(refused, Rejected::Key { id: 1 });
    let same_id: Keyring = OLD.replace("11111111", "aaaaaaaa").parse().expect("a key file");
    fleet.sessions[1].set_keys(of_host(1, &same_id));
    assert_eq!(fleet.sessions[1].open(&signed_with_old).expect_err("another key"), Rejected::Tag);
}

#[test]
fn the_count_of_a_key_says_when_nobody_signs_with_it_any_more() {
    let mut fleet = Fleet::new();
    let seen = |fleet: &Fleet, id: u8| {
        let found = fleet.sessions[1].keys().into_iter().find(|key| key.id == KeyId(id));
        found.map(|key| (key.signs == 2, key.seen))
    };
    let before = seen(&fleet, 1).expect("it signs").1;
    (0..3).for_each(|host| fleet.advance(host));
    assert_eq!(seen(&fleet, 1), Some((true, before)));
    assert_eq!(seen(&fleet, 2), Some((false, 0)));
    (0..3).for_each(|host| fleet.advance(host));
    fleet.say(0, 1);
    fleet.deliver_all();
    assert_eq!(seen(&fleet, 1), Some((false, before)), "stands still");
    assert_eq!(seen(&fleet, 2), Some((true, 1)));
}

/// One hypervisor is taken over: its keys let it speak for itself, and for no other host.
#[test]
fn a_host_that_was_taken_over_cannot_speak_for_another() {
    let mut fleet = Fleet::new();
    let [zero, ..] = HOSTS;
    // Host 2 has all that its own file holds, and what it heard of incarnations and sequences.
    let stolen = of_host(2, &steps().remove(0));
    let mut forger = Session::new(zero, incarnation(0, 0), stolen);
    forger.add_peer(HOSTS[1]).expect("room");
    let mut forged = Vec::new();
    forger.seal(HOSTS[1], &[offer(9)], &mut forged).expect("a key that host 2 shares with host 1");
    let refused = fleet.sessions[1].open(&forged[0]).expect_err("not host 0's");
    assert_eq!(refused, Rejected::Tag);
    assert_eq!(fleet.sessions[1].counters().rejected_tag, 1);
    // Under its own name it is believed as ever.
    fleet.say(2, 1);
    fleet.deliver_all();
    assert_eq!(fleet.sessions[1].counters().rejected(), 1);
}

#[test]
fn nothing_is_said_to_a_peer_without_a_key_nor_believed_of_it() {
    let hosts = NAMES.into_iter().zip(HOSTS).collect();
    let keys = Keys::read("host h0\nh1 1 11111111111111111111111111111111\n", "h0", &hosts);
    let mut session = Session::new(HOSTS[0], incarnation(0, 0), keys.expect("a key file"));
    HOSTS[1..].iter().for_each(|peer| session.add_peer(*peer).expect("room"));
    let mut out = Vec::new();
    session.seal(HOSTS[1], &[offer(1)], &mut out).expect("a key");
    let refused = session.seal(HOSTS[2], &[offer(1)], &mut out).expect_err("no key");
    assert_eq!((refused, out.len()), (Untold::NoKey(HOSTS[2]), 1));
    assert_eq!(session.without_keys().collect::<Vec<_>>(), [HOSTS[2]]);
    let mut third = Session::new(HOSTS[2], incarnation(2, 0), steps().remove(0));
    third.add_peer(HOSTS[0]).expect("room");
    third.seal(HOSTS[0], &[offer(1)], &mut out).expect("a key");
    assert_eq!(session.open(&out[1]).expect_err("not shared"), Rejected::Key { id: 1 });
}
