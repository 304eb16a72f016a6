//! `auto`: guests that agreed on ECN by themselves, and heed it or not.

use super::*;

/// A guest that called, and agreed on ECN by itself.
fn speaking(translation: Translation) -> Port {
    let mut port = Port::new(translation);
    assert_eq!(port.syn_out(ASKS).what, 0);
    assert_eq!(port.syn_in(SYN | ACK | ECE).what, 0);
    port
}

/// The guest sends ten segments that ports may mark, with `flags`, and all that it had sent before is acknowledged
/// with ECE.
fn round(port: &mut Port, flags: u16) -> [Edit; 2] {
    let all = port.next;
    let segment = Segment { octets: 10 * MSS, ecn: ECT_0, ..data(all) };
    port.next += 10 * MSS;
    let sent = port.pass(Segment { flags: segment.flags | flags, ..segment });
    [sent, port.ack(all - (GUEST + 1), ECE)]
}

#[test]
fn a_guest_that_says_nothing_to_marks_for_six_round_trips_is_deaf_to_auto_alone() {
    for translation in [Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn] {
        let mut port = speaking(translation);
        for _ in 0..40 {
            assert_eq!(round(&mut port, 0).map(|edit| edit.what), [0; 2], "{translation:?}");
        }
    }
    let mut port = speaking(Translation::Auto);
    assert!(port.flow.is_watched());
    let edits: Vec<[Edit; 2]> = (0..40).map(|_| round(&mut port, 0)).collect();
    let found = edits.iter().position(|[_, ack]| ack.flags & ECE == 0).expect("found");
    // Three strikes of two rounds each: with twenty segments in flight a round is two of these.
    assert_eq!(found, 14);
    assert!(edits[..found].iter().flatten().all(|edit| edit.what == 0), "not before");
    assert!(port.flow.has_virtual_ecn() && !port.flow.is_watched());
    assert_eq!(port.flow.window().map(|window| window <= 20 * MSS), Some(true), "W counts");
    let [next, _] = edits[found + 1];
    assert_eq!(next.flags & CWR, CWR, "the network is answered in its place");
}

#[test]
fn who_answers_marks_by_cwr_or_by_less_in_flight_is_never_deaf() {
    // Once in so many rounds is enough, if it is before the third strike.
    let mut port = speaking(Translation::Auto);
    for n in 0..200 {
        let flags = if n % 8 == 7 { CWR } else { 0 };
        assert_eq!(round(&mut port, flags).map(|edit| edit.what), [0; 2], "round {n}");
    }
    // A third less in flight two rounds later, again and again, and not a word.
    let mut port = speaking(Translation::Auto);
    for n in 0..200 {
        let all = port.next;
        let segments = [20, 20, 20, 10, 10][n % 5];
        port.next += segments * MSS;
        port.pass(Segment { octets: segments * MSS, ecn: ECT_0, ..data(all) });
        assert_eq!(port.ack(all - (GUEST + 1), ECE).what, 0, "round {n}");
    }
    // What no port may mark is not of ECN.
    let mut port = speaking(Translation::Auto);
    for _ in 0..100 {
        let all = port.next;
        port.send(10);
        assert_eq!(port.ack(all - (GUEST + 1), ECE).what, 0);
    }
}

#[test]
fn a_word_beside_what_is_sent_again_answers_the_loss_and_forgives_nothing() {
    let mut port = speaking(Translation::Auto);
    let mut found = false;
    for n in 0..60 {
        if n % 6 == 5 {
            let (first, _) = port.flow.outstanding();
            port.pass(Segment { octets: MSS, ecn: NOT_ECT, ..data(first) });
            round(&mut port, CWR);
        }
        round(&mut port, 0);
        found |= port.flow.has_virtual_ecn();
    }
    assert!(found, "{:?}", port.flow);
}

#[test]
fn only_what_rfc_3168_agrees_on_is_watched() {
    // AccECN at the guest, classic ECN at its peer; the other way round; a peer without; the guest is called.
    for (asks, answers, is_watched) in [
        (ASKS | AE, ECE, true),
        (ASKS | AE, ECE | AE, false),
        (ASKS, ECE | CWR, false),
        (ASKS, 0, false),
    ] {
        let mut port = Port::new(Translation::Auto);
        port.syn_out(asks);
        port.syn_in(SYN | ACK | answers);
        assert_eq!(port.flow.is_watched(), is_watched, "{asks:#x} {answers:#x}");
        assert!(!port.flow.has_virtual_ecn());
    }
    for (asks, answers, is_watched) in
        [(ECE | CWR, ECE, true), (0, ECE, false), (ECE | CWR, 0, false)]
    {
        let mut port = Port::new(Translation::Auto);
        port.syn_in(SYN | asks);
        port.syn_out(SYN | ACK | answers);
        assert_eq!(port.flow.is_watched(), is_watched, "{asks:#x} {answers:#x}");
    }
}
