//! What the tests share.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

use weir_core::message::{Message, Offer};
use weir_units::{HostId, PairId, Rate, VmId};
use weir_wire::{Incarnation, Key, KeyId, Keyring, Opened, Session};

/// Sender of a message, and its incarnation.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    pub host: usize,
    pub life: u32,
}

pub fn key() -> Key {
    Key::from_hex("000102030405060708090a0b0c0d0e0f").unwrap()
}

/// Puts the tag of [`key`] at the end of altered octets: what only a holder of the key can do.
/// Made without the crate's own code.
pub fn resign(octets: &mut [u8]) {
    let key: [u8; 16] = std::array::from_fn(|n| n as u8);
    let signed = octets.len() - 8;
    let tag = siphasher::sip::SipHasher24::new_with_key(&key).hash(&octets[..signed]);
    octets[signed..].copy_from_slice(&tag.to_be_bytes());
}

/// Incarnations without order, as random ones are, but the same in every run.
pub fn incarnation(host: usize, life: u32) -> Incarnation {
    let n = u64::from(life) * 2 + host as u64 + 1;
    Incarnation::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap()
}

pub fn session(own: HostId, peers: &[HostId], incarnation: Incarnation) -> Session {
    let mut session = Session::new(own, incarnation, Keyring::new(KeyId(0), key()));
    for peer in peers {
        session.add_peer(*peer).unwrap();
    }
    session
}

/// An offer that carries its name in its pair.
pub fn offer(name: u32) -> Message {
    let pair = PairId::new(VmId(name), VmId(u32::MAX));
    let floor = Rate::from_mbps(90);
    Message::Offer(Offer {
        pair,
        serial: name,
        floor,
        unbounded: false,
        confirm: true,
        round_trip: None,
    })
}

pub const A: HostId = HostId(1);
pub const B: HostId = HostId(2);

pub fn at_a(life: u32) -> Session {
    session(A, &[B], incarnation(1, life))
}

pub fn at_b(life: u32) -> Session {
    session(B, &[A], incarnation(2, life))
}

/// `A` and `B` after a handshake.
pub fn confirmed() -> (Session, Session) {
    let (mut a, mut b) = (at_a(0), at_b(0));
    let hello = greeting(&mut a, B);
    assert!(matches!(b.open(&hello), Ok(Opened::Greet(A))));
    let answer = greeting(&mut b, A);
    assert!(matches!(a.open(&answer), Ok(Opened::Believed { greet: true, .. })));
    let last = greeting(&mut a, B);
    assert!(matches!(b.open(&last), Ok(Opened::Believed { greet: true, .. })));
    (a, b)
}

pub fn greeting(from: &mut Session, to: HostId) -> Vec<u8> {
    let mut out = Vec::new();
    from.greet(to, &mut out).unwrap();
    out.pop().unwrap()
}

pub fn reminded(from: &mut Session, to: HostId) -> Vec<u8> {
    let mut out = Vec::new();
    from.remind(to, &mut out).unwrap();
    out.pop().unwrap()
}

/// The one datagram that tells `messages`.
pub fn sealed(from: &mut Session, to: HostId, messages: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    from.seal(to, messages, &mut out).unwrap();
    assert_eq!(out.len(), 1);
    out.pop().unwrap()
}

/// The messages of a datagram that must be believed.
pub fn believed(by: &mut Session, octets: &[u8]) -> Vec<Message> {
    match by.open(octets) {
        Ok(Opened::Believed { messages, .. }) => messages.collect(),
        other => panic!("not believed: {other:?}"),
    }
}

/// Octets as they are written in tests and in the corpus: white space and `#` comments are ignored.
pub fn unhex(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap());
    let digits: Vec<u32> = lines
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit"))
        .collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
