//! One test per way a datagram can be judged, and the handshake step by step.

use crate::common::*;
use weir_core::message::{Backlog, Congestion, Echo, Message, Offer};
use weir_units::{HostId, PairId, Rate, VmId};
use weir_wire::{
    Counters, Header, Incarnation, Key, KeyId, Keyring, MAX_PEERS, Opened, PeerError, RecordError,
    Rejected, Session, Untold, encode, packet, parse,
};

/// A datagram must be refused for this reason, counted under this name, and change nothing else.
fn refused(by: &mut Session, octets: &[u8], expected: Rejected, counter: &str) {
    let before = by.clone();
    assert_eq!(by.open(octets).unwrap_err(), expected);
    for ((name, old), (_, new)) in before.counters().rows().iter().zip(by.counters().rows()) {
        assert_eq!(new - old, u64::from(*name == counter), "{name}");
    }
    assert_eq!(state(&before), state(by), "a rejected datagram changes nothing");
}

/// All of a session but its counters.
fn state(session: &Session) -> String {
    let text = format!("{session:?}");
    text.split(", counters:").next().unwrap().to_owned()
}

/// The same datagram with other octets at a place, and the right tag: made by a holder of the key.
fn resigned(octets: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut octets = octets.to_vec();
    octets[at..at + new.len()].copy_from_slice(new);
    resign(&mut octets);
    octets
}

#[test]
fn agents_of_any_two_epochs_believe_each_other_and_without_a_controller_it_is_zero() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1)]);
    assert_eq!(parse(&octets).expect("sound").header.epoch, 0);
    b.set_epoch(9);
    for (n, epoch) in [3, u32::MAX, 2, 9, 0].into_iter().enumerate() {
        a.set_epoch(epoch);
        let octets = sealed(&mut a, B, &[offer(n as u32)]);
        match b.open(&octets).expect("authentic") {
            Opened::Believed { epoch: told, messages, .. } => {
                assert_eq!((told, messages.count()), (epoch, 1));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_datagram_of_a_wrong_length_is_refused() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1)]);
    let mut longer = octets.clone();
    longer.push(0);
    for wrong in [&octets[..octets.len() - 1], &octets[..1], &[], &longer, &octets[..56]] {
        refused(&mut b, wrong, Rejected::Length { got: wrong.len() }, "rejected_length");
    }
    let full = vec![octets[0]; 1401];
    refused(&mut b, &full, Rejected::Length { got: 1401 }, "rejected_length");
}

#[test]
fn another_version_is_refused_by_its_name() {
    let (mut a, mut b) = confirmed();
    let octets = resigned(&greeting(&mut a, B), 0, &[packet::VERSION + 1]);
    refused(&mut b, &octets, Rejected::Version { got: packet::VERSION + 1 }, "rejected_version");
    refused(&mut b, &[9, 9], Rejected::Version { got: 9 }, "rejected_version");
}

#[test]
fn a_key_that_is_not_accepted_is_refused() {
    let (mut a, mut b) = confirmed();
    let octets = resigned(&sealed(&mut a, B, &[offer(1)]), 1, &[7]);
    refused(&mut b, &octets, Rejected::Key { id: 7 }, "rejected_key");
}

#[test]
fn a_wrong_tag_is_refused() {
    let (mut a, mut b) = confirmed();
    let mut octets = sealed(&mut a, B, &[offer(1)]);
    *octets.last_mut().unwrap() ^= 1;
    refused(&mut b, &octets, Rejected::Tag, "rejected_tag");
}

#[test]
fn the_same_key_id_with_another_key_is_refused() {
    let (_, mut b) = confirmed();
    let other = Key::from_hex("ffffffffffffffffffffffffffffffff").unwrap();
    let mut forger = Session::new(A, incarnation(1, 0), Keyring::new(KeyId(0), other));
    forger.add_peer(B).unwrap();
    refused(&mut b, &greeting(&mut forger, B), Rejected::Tag, "rejected_tag");
}

#[test]
fn a_datagram_to_another_host_is_refused_also_by_its_sender() {
    let (mut a, _) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1)]);
    let mut c = session(HostId(3), &[A, B], incarnation(3, 0));
    refused(&mut c, &octets, Rejected::NotForUs { to: B }, "rejected_not_for_us");
    refused(&mut a, &octets, Rejected::NotForUs { to: B }, "rejected_not_for_us");
}

#[test]
fn a_host_outside_the_directory_is_refused() {
    let (mut a, _) = confirmed();
    let mut b = session(B, &[HostId(3)], incarnation(2, 0));
    let unknown = Rejected::UnknownPeer { from: A };
    refused(&mut b, &greeting(&mut a, B), unknown, "rejected_unknown_peer");
    let ours = resigned(&greeting(&mut a, B), 8, &[0, 0, 0, 2]);
    refused(&mut b, &ours, Rejected::UnknownPeer { from: B }, "rejected_unknown_peer");
}

#[test]
fn a_header_that_its_version_does_not_know_is_refused() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1)]);
    for (at, new, field) in [
        (2, &[1][..], "highest version"),
        (2, &[0], "highest version"),
        (16, &[0; 8], "sender's incarnation"),
        (24, &[0; 8], "sequence"),
        (32, &[0; 8], "echo"),
        (40, &[0; 8], "echo"),
    ] {
        let octets = resigned(&octets, at, new);
        refused(&mut b, &octets, Rejected::Header { field }, "rejected_header");
    }
}

#[test]
fn a_record_that_makes_no_sense_is_refused_with_its_whole_datagram() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1), offer(2)]);
    let second = packet::HEADER + packet::RECORD;
    let bps = 10_000_000_000_001_u64;
    for (at, new, why) in [
        (0, &[0][..], RecordError::UnknownKind { got: 0 }),
        (0, &[7], RecordError::UnknownKind { got: 7 }),
        (0, &[5], RecordError::ReservedBits),
        (1, &[4], RecordError::ReservedBits),
        (2, &[1], RecordError::ReservedBits),
        (3, &[1], RecordError::ReservedBits),
        (24, &[1], RecordError::ReservedBits),
        (26, &[1], RecordError::ReservedBits),
        (27, &[1], RecordError::ReservedBits),
        (0, &[2, 1], RecordError::ReservedBits),
        (0, &[3, 2], RecordError::ReservedBits),
        (8, &[255; 4], RecordError::ReservedPair),
        (16, &bps.to_be_bytes(), RecordError::RateBeyondLink { bps }),
    ] {
        let octets = resigned(&octets, second + at, new);
        refused(&mut b, &octets, Rejected::Record { index: 1, why }, "rejected_record");
    }
    assert_eq!(believed(&mut b, &octets).len(), 2, "the sequence is not used up");
}

#[test]
fn a_repeated_datagram_is_refused() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1)]);
    assert_eq!(believed(&mut b, &octets), [offer(1)]);
    let sequence = parse(&octets).unwrap().header.sequence;
    refused(&mut b, &octets, Rejected::Replayed { from: A, sequence }, "rejected_replayed");
}

#[test]
fn a_late_datagram_is_believed_within_the_window_and_refused_behind_it() {
    let (mut a, mut b) = confirmed();
    let late: Vec<_> = (0..65).map(|name| sealed(&mut a, B, &[offer(name)])).collect();
    believed(&mut b, &late[64]);
    let sequence = parse(&late[0]).unwrap().header.sequence;
    refused(&mut b, &late[0], Rejected::Replayed { from: A, sequence }, "rejected_replayed");
    assert_eq!(believed(&mut b, &late[1]), [offer(1)]);
}

#[test]
fn what_was_meant_for_an_earlier_incarnation_of_ours_is_stale_once_its_sender_knows_the_new_one() {
    let (mut a, mut b) = confirmed();
    let recorded = sealed(&mut b, A, &[offer(1)]);
    a = restarted_a(a, &mut b);
    believed(&mut a, &sealed(&mut b, A, &[offer(2)]));
    refused(&mut a, &recorded, Rejected::Stale { from: B }, "rejected_stale");
}

/// `a` starts anew and is confirmed by `b`, in the three datagrams that the crate draws.
fn restarted_a(old: Session, b: &mut Session) -> Session {
    drop(old);
    let mut a = at_a(1);
    let first = sealed(&mut a, B, &[offer(100)]);
    assert!(matches!(b.open(&first), Ok(Opened::Greet(A))), "its content is not believed");
    let answer = greeting(b, A);
    assert!(matches!(a.open(&answer), Ok(Opened::Believed { greet: true, .. })));
    let last = greeting(&mut a, B);
    assert!(matches!(b.open(&last), Ok(Opened::Believed { greet: true, .. })));
    a
}

#[test]
fn who_confirmed_a_peer_that_did_not_hear_of_it_sees_that_and_reminds_it() {
    let (mut a, mut b) = (at_a(0), at_b(0));
    assert!(matches!(b.open(&greeting(&mut a, B)), Ok(Opened::Greet(A))));
    let answer = greeting(&mut b, A);
    assert!(matches!(a.open(&answer), Ok(Opened::Believed { greet: true, .. })));
    let _lost = greeting(&mut a, B);
    assert!(!a.is_known_to(B) && !b.is_confirmed(A) && !b.is_known_to(A));
    // B tries again, and is believed; it proves nothing new.
    assert_eq!(believed(&mut a, &greeting(&mut b, A)), []);
    assert!(!a.is_known_to(B));
    // In between comes what a greeting would answer.
    let recorded = sealed(&mut at_b(1), A, &[offer(1)]);
    assert!(matches!(a.open(&recorded), Ok(Opened::Greet(B))));
    let reminder = reminded(&mut a, B);
    assert!(matches!(b.open(&reminder), Ok(Opened::Believed { greet: true, .. })));
    assert_eq!(believed(&mut a, &reminded(&mut b, A)), []);
    assert!(a.is_known_to(B) && !b.is_known_to(A));
    // The same the other way round: a host that knew the former incarnation does not know a
    // restart.
    assert_eq!(believed(&mut b, &reminded(&mut a, B)), []);
    assert!(b.is_known_to(A));
    let a = restarted_a(a, &mut b);
    assert!(!b.is_known_to(A) && !a.is_known_to(B));
}

#[test]
fn a_restart_of_one_side_costs_one_round_trip() {
    let (mut a, mut b) = confirmed();
    believed(&mut b, &sealed(&mut a, B, &[offer(1)]));
    let mut a = restarted_a(a, &mut b);
    assert_eq!(believed(&mut a, &sealed(&mut b, A, &[offer(2)])), [offer(2)]);
    assert_eq!(believed(&mut b, &sealed(&mut a, B, &[offer(3)])), [offer(3)]);
}

#[test]
fn a_restart_is_noticed_too_by_what_the_other_side_says() {
    let (_, mut b) = confirmed();
    let mut a = at_a(1);
    // B does not know yet, and speaks to the former A.
    assert!(matches!(a.open(&sealed(&mut b, A, &[offer(1)])), Ok(Opened::Greet(B))));
    assert_eq!(a.counters().outdated, 1);
    // A's greeting proves that it lives: it echoes what only a live one can have heard.
    let hello = greeting(&mut a, B);
    assert!(matches!(b.open(&hello), Ok(Opened::Believed { greet: true, .. })));
    assert_eq!(believed(&mut a, &sealed(&mut b, A, &[offer(2)])), [offer(2)]);
    assert_eq!(believed(&mut b, &sealed(&mut a, B, &[offer(3)])), [offer(3)]);
}

#[test]
fn a_recording_of_a_former_incarnation_is_greeted_and_never_believed() {
    let (mut a, mut b) = confirmed();
    let recorded: Vec<_> = (0..4).map(|name| sealed(&mut a, B, &[offer(name)])).collect();
    believed(&mut b, &recorded[0]);
    let mut a = restarted_a(a, &mut b);
    for octets in &recorded {
        assert!(matches!(b.open(octets), Ok(Opened::Greet(A))));
    }
    assert_eq!(b.counters().outdated, 4);
    // The incarnation that is greeted now is dead; the living one loses nothing.
    let greeting = greeting(&mut b, A);
    assert!(matches!(a.open(&greeting), Ok(Opened::Greet(B))));
    assert_eq!(believed(&mut a, &sealed(&mut b, A, &[offer(9)])), [offer(9)]);
    assert_eq!(believed(&mut b, &sealed(&mut a, B, &[offer(8)])), [offer(8)]);
}

#[test]
fn recordings_do_not_keep_a_restarted_host_from_being_heard() {
    let recorded = sealed(&mut confirmed().1, A, &[offer(1)]);
    let (mut a, mut b) = (at_a(1), at_b(1));
    // The recording comes between every two steps.
    let replay = |a: &mut Session| assert!(matches!(a.open(&recorded), Ok(Opened::Greet(B))));
    let hello = sealed(&mut a, B, &[offer(2)]);
    replay(&mut a);
    assert!(matches!(b.open(&hello), Ok(Opened::Greet(A))));
    replay(&mut a);
    let answer = greeting(&mut b, A);
    assert!(matches!(a.open(&answer), Ok(Opened::Believed { greet: true, .. })));
    replay(&mut a);
    let said = sealed(&mut a, B, &[offer(3)]);
    assert_eq!(believed(&mut b, &said), [offer(3)], "messages echo the confirmed one");
}

#[test]
fn an_incarnation_that_claims_what_we_never_said_is_not_believed() {
    let (mut a, mut b) = confirmed();
    let octets = sealed(&mut a, B, &[offer(1)]);
    let ahead = resigned(&octets, 40, &u64::MAX.to_be_bytes());
    assert!(matches!(b.open(&ahead), Ok(Opened::Greet(A))));
}

#[test]
fn a_greeting_after_a_confirmation_echoes_the_confirmed() {
    let (mut a, b) = confirmed();
    let header = parse(&greeting(&mut a, B)).unwrap().header;
    let heard = header.echo.unwrap();
    assert_eq!(heard.incarnation, incarnation(2, 0));
    assert_eq!(heard.sequence, b.counters().sent);
}

#[test]
fn a_peer_removed_and_added_again_is_met_anew_and_not_replayed() {
    let (mut a, mut b) = confirmed();
    let recorded = sealed(&mut a, B, &[offer(1)]);
    believed(&mut b, &recorded);
    assert!(b.remove_peer(A));
    assert!(!b.remove_peer(A));
    b.add_peer(A).unwrap();
    assert!(!b.is_confirmed(A));
    assert!(matches!(b.open(&recorded), Ok(Opened::Greet(A))));
    believed(&mut a, &greeting(&mut b, A));
    assert_eq!(believed(&mut b, &sealed(&mut a, B, &[offer(2)])), [offer(2)]);
    assert_eq!(b.counters().messages_accepted, 2);
}

#[test]
fn everything_is_delivered_in_order_in_as_few_datagrams_as_possible() {
    let (mut a, mut b) = confirmed();
    a.set_epoch(77);
    let pair = PairId::new(VmId(5), VmId(6));
    let mut messages: Vec<_> = (0..82).map(offer).collect();
    let (serial, floor) = (u32::MAX, weir_wire::MAX_RATE);
    messages.push(Message::Offer(Offer {
        pair,
        serial,
        floor,
        unbounded: true,
        confirm: false,
        round_trip: None,
    }));
    messages.push(Message::Echo(Echo {
        pair,
        serial: 3,
        floor: Rate::ZERO,
        most: Some(Rate::ZERO),
        backlog: Backlog::Unknown,
    }));
    messages.push(Message::Congestion(Congestion {
        pair,
        lost: u32::MAX,
        marked: 1,
        received: u32::MAX - 1,
    }));
    let mut out = Vec::new();
    a.seal(B, &messages, &mut out).unwrap();
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [1400, 1400, 56 + 32]);
    assert_eq!(weir_wire::max_records(), 42);
    let mut read = Vec::new();
    for octets in &out {
        match b.open(octets).unwrap() {
            Opened::Believed { from, epoch, messages, greet } => {
                assert_eq!((from, epoch, greet), (A, 77, false));
                read.extend(messages);
            }
            Opened::Greet(_) => panic!("A is confirmed"),
        }
    }
    assert_eq!(read, messages);
    a.seal(B, &[], &mut out).unwrap();
    assert_eq!(out.len(), 3, "nothing to say, nothing sent");
}

#[test]
fn a_message_that_no_peer_would_take_is_left_out_and_counted() {
    let (mut a, mut b) = confirmed();
    let pair = PairId::new(VmId(5), VmId(6));
    let beyond = Message::Echo(Echo {
        pair,
        serial: 0,
        floor: Rate::ZERO,
        most: Some(Rate::MAX),
        backlog: Backlog::Unknown,
    });
    let pair = pair_with_itself();
    let itself = Message::Congestion(Congestion { pair, lost: 1, marked: 0, received: 0 });
    let octets = sealed(&mut a, B, &[beyond, offer(1), itself]);
    assert_eq!(believed(&mut b, &octets), [offer(1)]);
    let Counters { unsayable, messages_sent, .. } = *a.counters();
    assert_eq!((unsayable, messages_sent), (2, 1));
}

fn pair_with_itself() -> PairId {
    PairId::new(VmId(5), VmId(5))
}

#[test]
fn only_peers_are_talked_to() {
    let mut a = at_a(0);
    let mut out = Vec::new();
    let stranger = HostId(9);
    assert_eq!(a.seal(stranger, &[offer(1)], &mut out), Err(Untold::UnknownPeer(stranger)));
    assert_eq!(a.greet(stranger, &mut out), Err(Untold::UnknownPeer(stranger)));
    assert_eq!(a.add_peer(A), Err(PeerError::Ourselves));
    assert!(out.is_empty());
}

#[test]
fn the_table_of_peers_is_bounded() {
    let mut a = session(HostId(u32::MAX), &[], incarnation(1, 0));
    for host in 0..MAX_PEERS as u32 {
        a.add_peer(HostId(host)).unwrap();
    }
    assert_eq!(a.add_peer(HostId(MAX_PEERS as u32)), Err(PeerError::Full));
    assert_eq!(a.add_peer(HostId(0)), Ok(()), "it is there already");
    assert!(a.remove_peer(HostId(0)));
    assert_eq!(a.add_peer(HostId(MAX_PEERS as u32)), Ok(()));
}

#[test]
fn keys_are_replaced_while_messages_flow() {
    let (mut a, mut b) = confirmed();
    let new = || Key::from_hex("22222222222222222222222222222222").unwrap();
    let mut ring = Keyring::new(KeyId(0), key());
    ring.accept(KeyId(1), new()).unwrap();
    a.set_keys(ring.clone());
    b.set_keys(ring.clone());
    let with_old = sealed(&mut a, B, &[offer(1)]);
    ring.sign_with(KeyId(1)).unwrap();
    a.set_keys(ring.clone());
    let with_new = sealed(&mut a, B, &[offer(2)]);
    assert_eq!(parse(&with_new).unwrap().header.key_id, KeyId(1));
    assert_eq!(believed(&mut b, &with_new), [offer(2)]);
    ring.forget(KeyId(0)).unwrap();
    b.set_keys(ring);
    refused(&mut b, &with_old, Rejected::Key { id: 0 }, "rejected_key");
}

#[test]
fn every_datagram_is_in_exactly_one_counter() {
    let (mut a, mut b) = confirmed();
    let said = sealed(&mut a, B, &[offer(1)]);
    for octets in [&said[..], &said, &said[..5], &greeting(&mut at_a(1), B)] {
        let _ = b.open(octets);
    }
    let counters = b.counters();
    let unbelieved = counters.unconfirmed + counters.outdated;
    assert_eq!(counters.accepted + unbelieved + counters.rejected(), 2 + 4);
    assert_eq!((counters.accepted, unbelieved, counters.rejected()), (2, 2, 2));
    assert_eq!(counters.confirmed, 1);
}

#[test]
fn what_is_lost_is_told_from_what_is_late() {
    let (mut a, mut b) = confirmed();
    let said: Vec<_> = (0..5).map(|_| sealed(&mut a, B, &[offer(1)])).collect();
    for octets in [&said[0], &said[3], &said[4]] {
        let _ = b.open(octets);
    }
    assert_eq!((b.counters().lost(), b.counters().late), (2, 0));
    let _ = b.open(&said[1]);
    assert_eq!((b.counters().lost(), b.counters().late), (1, 1), "one comes after all");
    let _ = b.open(&said[1]);
    assert_eq!((b.counters().lost(), b.counters().late), (1, 1), "and once only");
}

#[test]
fn an_incarnation_is_never_zero() {
    assert!(Incarnation::new(0).is_none());
}

#[test]
#[should_panic(expected = "the caller cuts batches")]
fn encoding_more_than_fits_is_a_bug_of_ours() {
    let header = Header {
        version: packet::VERSION,
        speaks: packet::VERSION,
        key_id: KeyId(0),
        epoch: 0,
        from: A,
        to: B,
        incarnation: incarnation(1, 0),
        sequence: 1,
        echo: None,
    };
    encode(&header, &key(), &vec![offer(1); 43]);
}
