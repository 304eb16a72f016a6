//! Hosts of several releases: the former versions of datagrams, and the present one.

use crate::common::*;
use weir_core::level::Level;
use weir_core::message::{Backlog, Echo, LevelWord, Message};
use weir_units::{PairId, Rate, VmId};
use weir_wire::packet::{FIRST, SECOND, THIRD, VERSION};
use weir_wire::{Header, Opened, Session, encode, parse};

/// What an agent that knows the first version only would have sent in the place of this.
fn as_once(octets: &[u8]) -> Vec<u8> {
    let datagram = parse(octets).unwrap();
    let header = Header { version: FIRST, speaks: FIRST, epoch: 0, ..datagram.header };
    encode(&header, &key(), &datagram.messages.collect::<Vec<_>>())
}

/// What an agent that knows the first two versions would have sent in the place of this.
fn as_lately(octets: &[u8]) -> Vec<u8> {
    let datagram = parse(octets).unwrap();
    let version = datagram.header.version.min(SECOND);
    let header = Header { version, speaks: SECOND, ..datagram.header };
    encode(&header, &key(), &datagram.messages.collect::<Vec<_>>())
}

/// What an agent that knows the first three versions would have sent in the place of this.
fn as_before_levels(octets: &[u8]) -> Vec<u8> {
    let datagram = parse(octets).unwrap();
    let version = datagram.header.version.min(THIRD);
    let header = Header { version, speaks: THIRD, ..datagram.header };
    encode(&header, &key(), &datagram.messages.collect::<Vec<_>>())
}

/// What an agent of the first version hears of it: nothing, if it has another one.
fn once_heard(octets: &[u8]) -> Option<&[u8]> {
    (octets[0] == FIRST).then_some(octets)
}

fn echo(most: Option<Rate>) -> Message {
    let pair = PairId::new(VmId(5), VmId(6));
    let (floor, backlog) = (Rate::from_mbps(7), Backlog::Unknown);
    Message::Echo(Echo { pair, serial: 3, floor, most, backlog })
}

/// The same with what waits.
fn waits(backlog: Backlog) -> Message {
    let Message::Echo(echo) = echo(Some(Rate::from_mbps(40))) else { panic!("an echo") };
    Message::Echo(Echo { backlog, ..echo })
}

fn version_of(octets: &[u8]) -> u8 {
    octets[0]
}

#[test]
fn two_present_hosts_come_to_speak_the_present_version() {
    let (mut a, mut b) = (at_a(0), at_b(0));
    let hello = sealed(&mut a, B, &[offer(1)]);
    assert_eq!(version_of(&hello), FIRST, "A does not know yet which version B parses");
    assert!(matches!(b.open(&hello), Ok(Opened::Greet(A))));
    let answer = greeting(&mut b, A);
    assert_eq!(version_of(&answer), FIRST);
    believed(&mut a, &answer);
    for backlog in [Backlog::Unknown, Backlog::Free, Backlog::Sometimes, Backlog::Always] {
        let said = sealed(&mut a, B, &[waits(backlog)]);
        assert_eq!(version_of(&said), VERSION);
        assert_eq!(believed(&mut b, &said), [waits(backlog)]);
    }
    assert_eq!(version_of(&sealed(&mut b, A, &[offer(2)])), VERSION);
}

#[test]
fn a_peer_of_the_first_version_is_understood_and_answered_in_it() {
    // B is the old one: what it says is rewritten, and what it could not read it does not get.
    let (mut a, mut b) = (at_a(0), at_b(0));
    let hello = sealed(&mut a, B, &[offer(1)]);
    assert!(matches!(b.open(once_heard(&hello).unwrap()), Ok(Opened::Greet(A))));
    believed(&mut a, &as_once(&greeting(&mut b, A)));
    for n in 0..5 {
        let said = sealed(&mut a, B, &[offer(n), echo(Some(Rate::from_mbps(40)))]);
        let heard = believed(&mut b, once_heard(&said).expect("a version that it parses"));
        assert_eq!(heard, [offer(n), echo(None)], "it has no word for the most");
        let answer = as_once(&sealed(&mut b, A, &[offer(n + 100)]));
        assert_eq!(believed(&mut a, &answer), [offer(n + 100)]);
    }
    assert_eq!((a.counters().rejected(), b.counters().rejected()), (0, 0));
}

#[test]
fn a_peer_of_the_second_version_hears_the_most_and_not_what_waits() {
    let (mut a, mut b) = (at_a(0), at_b(0));
    handshake(&mut b, &mut a, as_lately);
    for n in 0..5 {
        let said = sealed(&mut a, B, &[offer(n), waits(Backlog::Always)]);
        assert_eq!(version_of(&said), SECOND, "the highest that both parse");
        let most = Some(Rate::from_mbps(40));
        assert_eq!(believed(&mut b, &said), [offer(n), echo(most)]);
        let answer = as_lately(&sealed(&mut b, A, &[waits(Backlog::Free)]));
        assert_eq!(believed(&mut a, &answer), [echo(most)]);
    }
    assert_eq!((a.counters().rejected(), b.counters().rejected()), (0, 0));
}

#[test]
fn a_peer_of_the_third_version_hears_all_but_levels_and_that_is_no_mistake() {
    let (mut a, mut b) = (at_a(0), at_b(0));
    handshake(&mut b, &mut a, as_before_levels);
    let level = Message::Level(LevelWord::May(Level::from_raw(9000)));
    for n in 0..5 {
        let said = sealed(&mut a, B, &[level, offer(n), waits(Backlog::Always), level]);
        assert_eq!(version_of(&said), THIRD, "the highest that both parse");
        assert_eq!(believed(&mut b, &said), [offer(n), waits(Backlog::Always)]);
    }
    let mut out = Vec::new();
    a.seal(B, &[level], &mut out).unwrap();
    assert_eq!(out.len(), 0, "nothing that it would hear, nothing sent");
    assert_eq!((a.counters().unsayable, b.counters().rejected()), (0, 0));
}

#[test]
fn a_host_that_is_upgraded_or_set_back_is_spoken_to_as_it_can_hear() {
    let (mut a, mut old) = (at_a(0), at_b(0));
    assert!(matches!(old.open(&greeting(&mut a, B)), Ok(Opened::Greet(A))));
    believed(&mut a, &as_once(&greeting(&mut old, A)));
    assert_eq!(version_of(&sealed(&mut a, B, &[offer(1)])), FIRST);

    let mut upgraded = at_b(1);
    handshake(&mut upgraded, &mut a, <[u8]>::to_vec);
    assert_eq!(version_of(&sealed(&mut a, B, &[offer(2)])), VERSION);

    // A recording of the upgraded one changes nothing for the one that is set back.
    let recording = sealed(&mut upgraded, A, &[offer(3)]);
    let mut set_back = at_b(2);
    handshake(&mut set_back, &mut a, as_once);
    assert_eq!(version_of(&sealed(&mut a, B, &[offer(4)])), FIRST);
    assert!(!matches!(a.open(&recording), Ok(Opened::Believed { .. })));
    assert_eq!(version_of(&sealed(&mut a, B, &[offer(5)])), FIRST);
}

/// `b` begins; what it says passes `rewritten`. It hears the first version only, as far as this
/// goes.
fn handshake(b: &mut Session, a: &mut Session, rewritten: fn(&[u8]) -> Vec<u8>) {
    let hello = rewritten(&greeting(b, A));
    assert!(matches!(a.open(&hello), Ok(Opened::Greet(B))));
    let answer = greeting(a, B);
    believed(b, once_heard(&answer).expect("every version parses a greeting"));
    believed(a, &rewritten(&greeting(b, A)));
}
