//! Connections step by step, as the port of one VM sees them.

mod watch;

use super::*;

/// Of the options below; two of these are the floor.
const MSS: u32 = 1_460;
/// The peer's shift.
const SHIFT: u8 = 7;
const GUEST: u32 = 1_000;
const PEER: u32 = 9_000;
const ASKS: u16 = SYN | ECE | CWR;

/// A flow, what it goes by, and where both ends are.
struct Port {
    flow: Flow,
    terms: Terms,
    at: u32,
    /// Of the guest's next octet.
    next: u32,
}

impl Port {
    fn new(translation: Translation) -> Self {
        let terms = Terms::new(translation);
        Self { flow: Flow::default(), terms, at: 1_000, next: GUEST + 1 }
    }

    fn pass(&mut self, segment: Segment) -> Edit {
        self.flow.handle(&Segment { at: self.at, ..segment }, &self.terms)
    }

    fn syn_out(&mut self, flags: u16) -> Edit {
        let segment = Segment { seq: GUEST, flags, window: 64_240, ..syn(4) };
        self.pass(segment)
    }

    fn syn_in(&mut self, flags: u16) -> Edit {
        let ack = if flags & ACK == 0 { 0 } else { GUEST + 1 };
        let way = Way::In;
        self.pass(Segment { seq: PEER, ack, flags, window: 65_535, way, ..syn(SHIFT + 1) })
    }

    /// The guest called, and both hosts, or both ends, speak ECN.
    fn called(translation: Translation) -> Self {
        let mut port = Self::new(translation);
        port.syn_out(SYN);
        port.syn_in(SYN | ACK | ECE);
        assert_eq!(port.flow.phase(), Phase::Open);
        port
    }

    /// The guest sends so many segments of `MSS`, as one.
    fn send(&mut self, segments: u32) -> Edit {
        let seq = self.next;
        self.next += segments * MSS;
        self.pass(Segment { octets: segments * MSS, ..data(seq) })
    }

    /// All up to `ack` octets of data is acknowledged; the receiver has plenty of room.
    fn ack(&mut self, ack: u32, flags: u16) -> Edit {
        self.pass(acknowledgement(ack, flags, 60_000))
    }

    /// What the guest was shown by `edit`, octets.
    fn shown(edit: Edit) -> u32 {
        u32::from(edit.window) << SHIFT
    }

    /// W was cut from 40 segments to 20, and all is acknowledged.
    fn throttled(translation: Translation) -> Self {
        let mut port = Self::called(translation);
        port.send(40);
        port.ack(MSS, ECE);
        port.ack(40 * MSS, 0);
        assert_eq!(port.flow.phase(), Phase::Avoid);
        port
    }
}

/// A SYN with options: MSS, and a window scale of `scale` − 1.
fn syn(scale: u8) -> Segment {
    Segment { mss: MSS as u16, scale, ..Segment::default() }
}

fn data(seq: u32) -> Segment {
    Segment { seq, ack: PEER + 1, octets: MSS, flags: ACK, window: 500, ..Segment::default() }
}

fn acknowledgement(octets: u32, flags: u16, window: u16) -> Segment {
    let (ack, flags, way) = (GUEST + 1 + octets, ACK | flags, Way::In);
    Segment { seq: PEER + 1, ack, flags, window, way, ..Segment::default() }
}

fn incoming(ecn: u8, flags: u16) -> Segment {
    let (seq, ack, flags) = (PEER + 1, GUEST + 1, ACK | flags);
    Segment { seq, ack, octets: 1_448, flags, window: 500, ecn, way: Way::In, ..Segment::default() }
}

#[test]
fn ecn_is_asked_for_and_agreed_on_behind_the_guests_back() {
    let mut port = Port::new(Translation::VirtualEcn);
    let out = port.syn_out(SYN);
    assert_eq!((out.flags, out.what), (ASKS, Edit::FLAGS));
    let back = port.syn_in(SYN | ACK | ECE);
    assert_eq!((back.flags, back.what), (SYN | ACK, Edit::FLAGS));
    assert!(port.flow.has_virtual_ecn());
    assert_eq!(port.flow.scale(), Some(SHIFT));
    assert_eq!(port.send(1).ecn, ECT_0);
}

#[test]
fn a_server_that_ignores_ecn_is_answered_for() {
    let mut port = Port::new(Translation::VirtualEcn);
    assert_eq!(port.syn_in(ASKS).what, 0, "how it answers tells whether it speaks ECN");
    let out = port.syn_out(SYN | ACK);
    assert_eq!((out.flags, out.what), (SYN | ACK | ECE, Edit::FLAGS));
    port.ack(0, 0);
    assert_eq!((port.flow.phase(), port.flow.has_virtual_ecn()), (Phase::Open, true));
}

#[test]
fn who_speaks_ecn_keeps_it() {
    for flags in [ASKS, ASKS | AE] {
        let mut port = Port::new(Translation::VirtualEcn);
        assert_eq!(port.syn_out(flags).what, 0);
        assert_eq!(port.syn_in(SYN | ACK | ECE).what, 0);
        assert_eq!(port.send(1).what, 0);
        assert_eq!(port.pass(incoming(CE, 0)).what, 0);
        assert_eq!(port.ack(MSS, ECE).what, 0);
    }
    let mut server = Port::new(Translation::Dctcp);
    server.syn_in(ASKS);
    assert_eq!(server.syn_out(SYN | ACK | ECE).what, 0);
    server.ack(0, 0);
    assert_eq!(server.pass(incoming(CE, 0)).what, 0);
    assert!(!server.flow.has_virtual_ecn());
}

#[test]
fn a_peer_that_does_not_agree_leaves_the_flow_as_it_is() {
    let mut port = Port::new(Translation::CubicEcn);
    port.syn_out(SYN);
    port.syn_in(SYN | ACK);
    assert_eq!(port.send(1).what, 0);
    assert_eq!(port.ack(MSS, ECE).what, 0);
    // One that only repeats the flags that it saw did not agree either (RFC 3168 §6.1.1).
    let mut port = Port::new(Translation::CubicEcn);
    port.syn_out(SYN);
    assert_eq!(port.syn_in(SYN | ACK | ECE | CWR).flags, SYN | ACK);
    assert_eq!(port.send(1).what, 0);
}

#[test]
fn the_third_syn_asks_no_more() {
    let mut port = Port::new(Translation::VirtualEcn);
    let asked: Vec<u16> = (0..4).map(|_| port.syn_out(SYN).flags).collect();
    assert_eq!(asked, [ASKS, ASKS, SYN, SYN]);
    // The answer to the first: a sender of a SYN without ECN must not mark.
    assert_eq!(port.syn_in(SYN | ACK | ECE).flags, SYN | ACK);
    assert_eq!(port.send(1).what, 0);
}

#[test]
fn two_that_call_each_other_agree_too() {
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_out(SYN);
    assert_eq!(port.syn_in(ASKS).what, 0);
    assert_eq!(port.syn_out(SYN | ACK).flags, SYN | ACK | ECE);
    assert_eq!(port.syn_in(SYN | ACK | ECE).flags, SYN | ACK);
    assert_eq!((port.flow.phase(), port.flow.scale()), (Phase::Open, Some(SHIFT)));
    assert!(port.flow.has_virtual_ecn());
}

#[test]
fn data_in_a_syn_is_data() {
    let mut port = Port::new(Translation::VirtualEcn);
    let segment = Segment { seq: GUEST, flags: SYN, window: 64_240, octets: 100, ..syn(4) };
    assert_eq!(port.pass(segment).ecn, NOT_ECT);
    let answer = Segment { seq: PEER, ack: GUEST + 101, window: 65_535, ..syn(SHIFT + 1) };
    port.pass(Segment { flags: SYN | ACK | ECE, way: Way::In, ..answer });
    assert_eq!(port.flow.outstanding(), (GUEST + 101, GUEST + 101));
    assert_eq!(port.flow.edge(), Some(GUEST + 101 + 65_535));
    // And a server that need not wait sends before the handshake ends.
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_in(ASKS);
    port.syn_out(SYN | ACK);
    assert_eq!(port.send(2).what, 0);
    port.ack(2 * MSS, 0);
    assert_eq!(port.flow.outstanding(), (GUEST + 1 + 2 * MSS, GUEST + 1 + 2 * MSS));
}

#[test]
fn what_was_not_seen_from_its_beginning_is_left_alone() {
    let mut port = Port::new(Translation::VirtualEcn);
    port.terms.share = 4_000;
    assert_eq!(port.send(1).what, 0);
    assert_eq!(port.flow.phase(), Phase::Alone);
    for segment in [acknowledgement(MSS, ECE, 60_000), incoming(CE, CWR), data(GUEST + 1)] {
        assert_eq!(port.pass(segment).what, 0);
    }
    // An answer whose question was not seen, or the reverse.
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_in(SYN | ACK | ECE);
    assert_eq!(port.flow.phase(), Phase::Alone);
    let mut port = Port::new(Translation::VirtualEcn);
    assert_eq!(port.syn_out(SYN | ACK).what, 0);
    assert_eq!(port.flow.phase(), Phase::Alone);
    // A SYN that is repeated without the scale it had.
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_out(SYN);
    port.pass(Segment { seq: GUEST, flags: SYN, ..syn(0) });
    assert_eq!(port.flow.phase(), Phase::Alone);
}

#[test]
fn a_scale_counts_only_if_both_have_one() {
    let mut port = Port::new(Translation::VirtualEcn);
    port.pass(Segment { seq: GUEST, flags: SYN, ..syn(0) });
    port.syn_in(SYN | ACK | ECE);
    assert_eq!(port.flow.scale(), Some(0));
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_out(SYN);
    let answer = Segment { seq: PEER, ack: GUEST + 1, flags: SYN | ACK, ..syn(0) };
    port.pass(Segment { way: Way::In, ..answer });
    assert_eq!(port.flow.scale(), Some(0));
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_out(SYN);
    let answer = Segment { seq: PEER, ack: GUEST + 1, flags: SYN | ACK, ..syn(200) };
    port.pass(Segment { way: Way::In, ..answer });
    assert_eq!(port.flow.scale(), Some(14), "as RFC 7323 has it");
}

#[test]
fn the_right_edge_of_the_handshake_stands() {
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_out(SYN);
    port.syn_in(SYN | ACK | ECE);
    // 65535 octets from the first on, not times 128.
    let first = port.flow.edge();
    assert_eq!(first, Some(GUEST + 1 + 65_535));
    port.send(10);
    port.terms.share = 4_000;
    let edit = port.ack(MSS, ECE);
    assert_eq!(Port::shown(edit), (65_535 - MSS).next_multiple_of(1 << SHIFT), "as promised");
    assert!(port.flow.edge() >= first);
}

#[test]
fn without_marks_a_guest_is_shown_twice_what_it_ever_had_in_flight() {
    for translation in [Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn] {
        let mut port = Port::called(translation);
        port.send(10);
        assert_eq!(Port::shown(port.ack(10 * MSS, 0)), 65_536, "what a SYN could say, rounded up");
        port.send(40);
        let twice = (2 * 40 * MSS).next_multiple_of(1 << SHIFT);
        assert_eq!(Port::shown(port.ack(50 * MSS, 0)), twice);
        for n in 51..100 {
            port.send(1);
            assert_eq!(Port::shown(port.ack(n * MSS, 0)), twice);
        }
        port.send(1);
        let edit = port.pass(acknowledgement(100 * MSS, 0, 100));
        assert_eq!((edit.window, edit.what), (100, 0), "the receiver has less");
        assert_eq!(port.flow.window(), None);
    }
    // Where ECN was not agreed on there is no law.
    let mut port = Port::new(Translation::VirtualEcn);
    port.syn_out(SYN);
    port.syn_in(SYN | ACK);
    port.send(10);
    assert_eq!(port.ack(10 * MSS, 0).what, 0);
}

#[test]
fn what_was_shown_before_the_first_mark_is_soon_used_up() {
    let mut port = Port::called(Translation::VirtualEcn);
    port.send(40);
    port.ack(MSS, 0);
    port.ack(2 * MSS, ECE);
    // As much as it may at each acknowledgement.
    for n in 3..200 {
        let edge = port.flow.edge().expect("established");
        port.send(edge.wrapping_sub(port.next) / MSS);
        port.ack(n * MSS, 0);
    }
    let (una, nxt) = port.flow.outstanding();
    let window = port.flow.window().expect("throttled");
    assert!(window < 30 * MSS && nxt - una <= window + MSS, "{} of {window}", nxt - una);
}

#[test]
fn a_mark_halves_and_nothing_halves_again_until_its_window_is_over() {
    let mut port = Port::called(Translation::VirtualEcn);
    port.send(40);
    let edit = port.ack(MSS, ECE);
    assert_eq!(edit.flags, ACK, "the guest does not see it");
    assert_eq!(port.flow.window(), Some(40 * MSS));
    assert_eq!(port.flow.target(), Some(20 * MSS));
    for n in 2..=40 {
        port.ack(n * MSS, ECE);
        assert_eq!(port.flow.target(), Some(20 * MSS), "segment {n}");
    }
    assert_eq!(port.flow.window(), Some(20 * MSS));
    port.send(20);
    port.ack(41 * MSS, ECE);
    assert_eq!(port.flow.target(), Some(10 * MSS), "the next window");
}

#[test]
fn half_of_what_is_acknowledged_goes_until_half_is_in_flight() {
    let mut port = Port::called(Translation::VirtualEcn);
    // Uses up all that the handshake promised.
    port.send(44);
    port.ack(0, ECE);
    let mut goes = |n| {
        port.ack(n * MSS, 0);
        let edge = port.flow.edge().expect("established");
        let segments = edge.wrapping_sub(port.next) / MSS;
        port.send(segments);
        let (una, nxt) = port.flow.outstanding();
        (segments, (nxt - una) / MSS)
    };
    for n in 1..43 {
        assert_eq!(goes(n).0, n % 2, "segment {n}");
    }
    assert_eq!(goes(43), (0, 22), "no more is in flight than shall be");
    assert_eq!([goes(44), goes(45)], [(1, 22); 2], "and so much from now on");
}

#[test]
fn marks_make_the_guests_next_new_data_carry_cwr_once() {
    let mut port = Port::called(Translation::VirtualEcn);
    port.send(10);
    port.ack(MSS, ECE);
    let again = port.pass(data(GUEST + 1 + MSS));
    assert_eq!((again.flags, again.ecn), (ACK, NOT_ECT), "sent again: neither (RFC 3168 §6.1.5)");
    assert_eq!(port.send(1).flags, ACK | CWR);
    assert_eq!(port.send(1).flags, ACK);
}

#[test]
fn a_window_grows_by_a_segment_per_window_while_it_is_used() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    let mut acked = 40;
    let mut windows = Vec::new();
    for _ in 0..3 {
        let window = port.flow.window().expect("throttled") / MSS;
        for _ in 0..window {
            port.send(1);
        }
        for _ in 0..window {
            acked += 1;
            port.ack(acked * MSS, 0);
            port.send(1);
        }
        // Take back the head start: all is acknowledged before the next round.
        acked += window;
        port.ack(acked * MSS, 0);
        windows.push(port.flow.window().expect("throttled") / MSS);
    }
    assert!(windows.is_sorted() && windows[0] > 20, "{windows:?}");
    assert!(windows[2] <= 20 + 6, "at most one for each window acknowledged: {windows:?}");
    let before = port.flow.window();
    for _ in 0..100 {
        port.send(1);
        acked += 1;
        port.ack(acked * MSS, 0);
    }
    assert_eq!(port.flow.window(), before, "a window that is not used does not grow");
}

#[test]
fn a_window_is_a_number_of_the_segments_that_the_guest_sends() {
    // Timestamps take twelve octets of each, if both have them.
    let opened = |ours, theirs| {
        let mut port = Port::new(Translation::VirtualEcn);
        port.pass(Segment { seq: GUEST, flags: SYN, window: 64_240, stamps: ours, ..syn(4) });
        let answer = Segment { seq: PEER, ack: GUEST + 1, stamps: theirs, ..syn(SHIFT + 1) };
        let flags = SYN | ACK | ECE;
        port.pass(Segment { flags, window: 65_535, way: Way::In, ..answer });
        port
    };
    assert_eq!(opened(1, 0).flow.floor(), 2 * MSS);
    assert_eq!(opened(0, 1).flow.floor(), 2 * MSS);
    let mut port = opened(1, 1);
    let segment = MSS - 12;
    let send = |port: &mut Port, segments: u32| {
        for _ in 0..segments {
            let seq = port.next;
            port.next += segment;
            port.pass(Segment { octets: segment, ..data(seq) });
        }
    };
    send(&mut port, 13);
    port.ack(0, ECE);
    assert_eq!(port.flow.target(), Some(6 * segment), "of thirteen");
    port.ack(13 * segment, 0);
    send(&mut port, 6);
    port.ack(19 * segment, 0);
    assert_eq!(port.flow.window(), Some(7 * segment), "six are a whole window");
}

#[test]
fn three_duplicates_and_a_segment_sent_again_are_a_loss() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    assert_eq!(port.flow.target(), Some(20 * MSS));
    port.send(20);
    port.ack(41 * MSS, 0);
    let shown: Vec<u16> = (0..5).map(|_| port.ack(41 * MSS, 0).window).collect();
    assert!(shown.iter().all(|w| *w == shown[0]), "duplicates show one window: {shown:?}");
    assert_eq!(port.flow.target(), Some(20 * MSS), "nothing was sent again");
    port.pass(data(GUEST + 1 + 41 * MSS));
    assert_eq!(port.flow.phase(), Phase::Reduce);
    assert_eq!(port.flow.target(), Some(10 * MSS));
    // More is sent again for the same window, and a mark comes for it.
    port.pass(data(GUEST + 1 + 42 * MSS));
    port.ack(43 * MSS, ECE);
    assert_eq!(port.flow.target(), Some(10 * MSS), "one cut per window");
    port.ack(60 * MSS, 0);
    assert_eq!(port.flow.window(), Some(10 * MSS));
}

#[test]
fn a_segment_sent_again_after_silence_is_a_time_out() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    port.send(20);
    port.ack(41 * MSS, 0);
    port.at += Terms::PATIENCE - 1;
    // What is sent meanwhile does not begin the wait anew.
    port.send(1);
    port.pass(data(GUEST + 1 + 41 * MSS));
    assert_eq!(port.flow.phase(), Phase::Avoid, "not yet");
    port.at += 1;
    port.pass(data(GUEST + 1 + 41 * MSS));
    assert_eq!(port.flow.phase(), Phase::SlowStart);
    assert_eq!((port.flow.window(), port.flow.target()), (Some(2 * MSS), Some(10 * MSS)));
    // The guest's timer doubles; it is one time-out's window all the same.
    port.at += 2 * Terms::PATIENCE;
    port.pass(data(GUEST + 1 + 41 * MSS));
    assert_eq!(port.flow.target(), Some(10 * MSS));
    port.ack(45 * MSS, 0);
    assert_eq!(port.flow.window(), Some(6 * MSS), "slow start");
    port.ack(61 * MSS, 0);
    assert_eq!((port.flow.window(), port.flow.phase()), (Some(10 * MSS), Phase::Avoid));
}

#[test]
fn a_full_receiver_is_no_time_out_and_its_window_stays_as_it_is() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    // The guest sends all that it may; the receiver takes it and has no room left.
    let edge = port.flow.edge().expect("established");
    port.pass(Segment { octets: edge - port.next, ..data(port.next) });
    let full = acknowledgement(edge - GUEST - 1, 0, 0);
    assert_eq!(port.pass(full).what, 0);
    let window = port.flow.window();
    for _ in 0..5 {
        // A probe of one octet, or of none before the first.
        assert_eq!(port.pass(Segment { octets: 1, ..data(edge) }).what, 0);
        assert_eq!(port.pass(Segment { octets: 0, ..data(edge - 1) }).what, 0);
        assert_eq!(port.pass(full).what, 0);
        port.at += Terms::PATIENCE - 1;
    }
    assert_eq!((port.flow.phase(), port.flow.window()), (Phase::Avoid, window));
}

#[test]
fn what_is_beyond_the_window_may_not_be_marked() {
    let mut port = Port::called(Translation::VirtualEcn);
    assert_eq!(port.send(44).ecn, ECT_0, "64240 of 65535");
    assert_eq!(port.send(1).ecn, NOT_ECT, "a probe, or a guest that ignores windows");
}

#[test]
fn no_window_is_below_two_segments() {
    let mut port = Port::called(Translation::VirtualEcn);
    let mut acked = 0;
    for _ in 0..20 {
        port.send(2);
        acked += 2;
        port.ack(acked * MSS, ECE);
    }
    assert_eq!(port.flow.window(), Some(2 * MSS));
    // So does a share of nothing.
    port.terms.share = 0;
    port.send(40);
    let edit = port.ack((acked + 40) * MSS, 0);
    assert!(Port::shown(edit) >= 2 * MSS);
}

#[test]
fn a_share_bounds_a_flow_that_nothing_translates() {
    let mut port = Port::new(Translation::None);
    port.terms.share = 30_000;
    assert_eq!(port.syn_out(ASKS).what, 0);
    assert_eq!(port.syn_in(SYN | ACK | ECE).what, 0);
    port.send(44);
    let edit = port.ack(44 * MSS, ECE);
    assert_eq!((edit.what, edit.flags), (Edit::WINDOW, ACK | ECE));
    assert_eq!(Port::shown(edit), 30_000u32.next_multiple_of(1 << SHIFT));
    port.terms.share = 10_000;
    port.send(10);
    let before = port.flow.edge().expect("established");
    port.ack(45 * MSS, 0);
    let moved = port.flow.edge().expect("established") - before;
    assert!(moved < 1 << SHIFT, "less is reached by not going on, but for rounding: {moved}");
    port.terms.share = u32::MAX;
    assert_eq!(port.ack(54 * MSS, 0).what, 0);
}

#[test]
fn a_receiver_may_take_its_own_window_back() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    let edit = port.pass(acknowledgement(40 * MSS, 0, 10));
    assert_eq!((edit.window, edit.what), (10, 0));
}

#[test]
fn acknowledgements_of_the_past_keep_their_window() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    let old = port.ack(10 * MSS, ECE);
    assert_eq!((old.window, old.flags, old.what), (60_000, ACK, Edit::FLAGS));
    let never_sent = port.ack(400 * MSS, ECE);
    assert_eq!((never_sent.window, never_sent.what), (60_000, Edit::FLAGS));
    assert_eq!(port.flow.target(), Some(20 * MSS));
}

#[test]
fn a_mark_is_echoed_until_cwr_and_never_seen() {
    let mut port = Port::called(Translation::VirtualEcn);
    let ack = Segment { octets: 0, ..data(GUEST + 1) };
    assert_eq!(port.pass(incoming(ECT_0, 0)).ecn, NOT_ECT);
    assert_eq!(port.pass(ack).flags, ACK);
    assert_eq!(port.pass(incoming(CE, 0)).ecn, NOT_ECT);
    assert_eq!(port.pass(ack).flags, ACK | ECE);
    assert_eq!(port.pass(incoming(ECT_0, 0)).flags, ACK);
    assert_eq!(port.pass(ack).flags, ACK | ECE, "until CWR");
    assert_eq!(port.pass(incoming(ECT_0, CWR)).flags, ACK, "hidden");
    assert_eq!(port.pass(ack).flags, ACK);
    port.pass(incoming(CE, CWR));
    assert_eq!(port.pass(ack).flags, ACK | ECE, "what carries CWR may be marked anew");
}

#[test]
fn dctcp_tells_what_came_and_takes_out_what_it_is_told() {
    let mut port = Port::new(Translation::Dctcp);
    assert_eq!(port.syn_out(SYN).what, Edit::FLAGS | Edit::TELL, "this port reads reports");
    let (seq, ack, way) = (PEER, GUEST + 1, Way::In);
    let answer = Segment { seq, ack, flags: SYN | ACK | ECE, way, told: 1, ..syn(SHIFT + 1) };
    assert_eq!(port.pass(answer).what, Edit::FLAGS | Edit::TAKE, "so does the peer's");
    for ecn in [CE, ECT_0, CE, CE] {
        port.pass(incoming(ecn, 0));
    }
    let edit = port.pass(Segment { octets: 0, ..data(GUEST + 1) });
    assert_eq!((edit.told_octets, edit.told_marked), (4 * 1_448, 3 * 1_448));
    assert_eq!(edit.what, Edit::TELL | Edit::FLAGS | Edit::ECN, "and ECT on all");
    let told = Segment { told: 1, ..acknowledgement(0, 0, 100) };
    assert_eq!(port.pass(told).what, Edit::TAKE);
    // The called end answers only peers that it can understand; no other end is told anything.
    for told in [0, 1] {
        let mut port = Port::new(Translation::Dctcp);
        port.pass(Segment { seq: PEER, flags: ASKS, way, told, ..syn(SHIFT + 1) });
        assert_eq!(port.syn_out(SYN | ACK).what & Edit::TELL, told * Edit::TELL);
        port.ack(0, 0);
        port.pass(incoming(CE, 0));
        let edit = port.pass(Segment { octets: 0, ..data(GUEST + 1) });
        assert_eq!(edit.what & Edit::TELL, told * Edit::TELL);
    }
    let mut other = Port::called(Translation::VirtualEcn);
    other.pass(incoming(CE, 0));
    assert_eq!(other.pass(Segment { octets: 0, ..data(GUEST + 1) }).what, Edit::FLAGS);
}

#[test]
fn dctcp_gives_way_as_much_as_is_marked() {
    let mut port = Port::called(Translation::Dctcp);
    let mut acked = 0;
    // One acknowledgement in ten with a mark, for a hundred windows.
    for _ in 0..100 {
        for n in 0..10 {
            port.send(4);
            acked += 4;
            port.ack(acked * MSS, if n == 9 { ECE } else { 0 });
        }
    }
    port.send(40);
    port.ack((acked + 1) * MSS, ECE);
    let (window, target) = (port.flow.window().unwrap(), port.flow.target().unwrap());
    assert!(target >= window * 85 / 100, "{target} of {window}");
}

#[test]
fn dctcp_gives_way_to_marks_also_where_reports_have_no_room_any_more() {
    let mut port = Port::new(Translation::Dctcp);
    port.syn_out(SYN);
    let (seq, ack, way) = (PEER, GUEST + 1, Way::In);
    port.pass(Segment { seq, ack, flags: SYN | ACK | ECE, way, told: 1, ..syn(SHIFT + 1) });
    let mut acked = 0;
    let mut play = |port: &mut Port, told: u8, flags: u16| {
        port.send(10);
        for _ in 0..5 {
            acked += 2 * MSS;
            let octets = if told == 0 { MSS } else { 0 };
            let ack = acknowledgement(acked, flags, 60_000);
            port.pass(Segment { octets, told, told_octets: acked, ..ack });
        }
    };
    // Nothing is marked for so long that marks would lower nothing,
    (0..400).for_each(|_| play(&mut port, 1, 0));
    play(&mut port, 1, ECE);
    assert_eq!(port.flow.target(), port.flow.window(), "by what reports say");
    // and then the other end sends data with all of its acknowledgements.
    (0..40).for_each(|_| play(&mut port, 0, ECE));
    assert_eq!(port.flow.window(), Some(port.flow.floor()));
}

#[test]
fn a_closed_flow_is_forgotten_soon_and_its_ports_may_serve_again() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    assert!(!port.flow.is_spent(port.at + (300 << 10), 600));
    assert!(port.flow.is_spent(port.at + (600 << 10), 600));
    port.pass(Segment { flags: ACK | FIN, ..data(port.next) });
    assert!(!port.flow.is_spent(port.at + (10 << 10), 600), "half of it lives");
    port.pass(acknowledgement(40 * MSS, FIN, 60_000));
    assert!(port.flow.is_spent(port.at + (10 << 10), 600));
    assert_eq!(port.pass(Segment { seq: 77, flags: SYN, ..syn(4) }).flags, ASKS);
    assert_eq!(port.flow.phase(), Phase::Opening);
    port.pass(Segment { seq: 0, flags: RST, way: Way::In, ..Segment::default() });
    assert!(port.flow.is_spent(port.at + (10 << 10), 600));
}

#[test]
fn a_syn_from_elsewhere_does_not_disturb_an_established_flow() {
    let mut port = Port::throttled(Translation::VirtualEcn);
    let before = port.flow;
    assert_eq!(port.pass(Segment { seq: 5, flags: SYN, way: Way::In, ..syn(9) }).what, 0);
    assert_eq!(port.flow, before);
}

#[test]
fn a_flow_is_64_octets_in_the_order_of_the_struct() {
    let port = Port::throttled(Translation::Dctcp);
    let octets = port.flow.to_octets();
    let (una, _) = port.flow.outstanding();
    assert_eq!(octets[..4], una.to_ne_bytes());
    assert_eq!(octets[16..20], port.flow.window().expect("throttled").to_ne_bytes());
    assert_eq!(octets[60..], [Phase::Avoid as u8, 0, SHIFT, Translation::Dctcp as u8]);
}
