//! vCC's programs on frames: connections step by step, random segments beside the law in Rust, and
//! what is no segment at all. Each frame that comes out is read by a parser that is not ours. Needs
//! root, and fails without.
#![allow(unsafe_code)]

use crate::dress::Dress;
use crate::random::Random;
use etherparse::{NetHeaders, PacketHeaders, TcpHeader, TransportHeader};
use std::net::IpAddr;
use weir_core::vcc::{
    ACK, CE, CWR, ECE, ECT_0, Edit, FIN, Flow, NOT_ECT, Phase, RST, SYN, Segment, Terms,
    Translation, Way, ticks,
};
use weir_dataplane::intf::{self, Address};
use weir_dataplane::programs::Frame;
use weir_dataplane::table::Table;
use weir_dataplane::vcc::intf::{ANY_SLACK, Counters, Port, State};
use weir_dataplane::vcc::{Law, Program, Programs};
use weir_units::Time;

/// Where test runs are: the loopback interface.
const INTERFACE: u32 = 1;
const PASS: i32 = -1;
const DROP: i32 = 2;
const FLOWS: u32 = 1024;
const GUEST_PORT: u16 = 40_000;
const PEER_PORT: u16 = 80;
/// How long a silent connection may need its translation, in 1024 ticks: two hours and four
/// minutes.
const IDLE: u16 = 6_929;
/// A DSCP of the guest's own: EF.
const DSCP: u8 = 46;

fn port(terms: &Terms, slack: u32) -> Port {
    Port {
        share: terms.share,
        patience: terms.patience,
        translation: terms.translation as u8,
        slack,
        ..Port::default()
    }
}

fn loaded(terms: &Terms, slack: u32) -> Programs {
    let programs = Programs::load().expect("this test loads BPF programs: run it as root");
    programs.make_table(0, FLOWS).unwrap();
    programs.ports.put(INTERFACE, port(terms, slack)).unwrap();
    programs
}

/// A connection between these two, seen from the guest.
#[derive(Clone, Copy)]
struct Ends {
    guest: IpAddr,
    peer: IpAddr,
    guest_port: u16,
}

impl Ends {
    fn v4(n: u16) -> Self {
        let [guest, peer] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        Self { guest, peer, guest_port: GUEST_PORT + n }
    }

    fn v6(n: u16) -> Self {
        let [guest, peer] = ["fd00::1", "fd00::2"].map(|a| a.parse().unwrap());
        Self { guest, peer, guest_port: GUEST_PORT + n }
    }

    fn name(&self) -> intf::Flow {
        intf::Flow {
            src: Address::from(self.peer),
            dst: Address::from(self.guest),
            src_port: PEER_PORT.to_be_bytes(),
            dst_port: self.guest_port.to_be_bytes(),
        }
    }

    /// The segment in a frame, with the options that the law reads, and checksums.
    fn frame(&self, segment: &Segment) -> Vec<u8> {
        let ((src, from), (dst, to)) = match segment.way {
            Way::Out => ((self.guest, self.guest_port), (self.peer, PEER_PORT)),
            Way::In => ((self.peer, PEER_PORT), (self.guest, self.guest_port)),
        };
        let mut options = Vec::new();
        if has(segment, SYN) && segment.mss > 0 {
            options.extend([2, 4]);
            options.extend(segment.mss.to_be_bytes());
        }
        if has(segment, SYN) && segment.scale > 0 {
            options.extend([1, 3, 3, segment.scale - 1]);
        }
        if has(segment, SYN) && segment.stamps > 0 {
            options.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0]);
        }
        if segment.told > 0 {
            options.extend(report(segment));
        }
        let length = 20 + options.len();
        let mut body: Vec<u8> = [from, to].into_iter().flat_map(u16::to_be_bytes).collect();
        body.extend([segment.seq, segment.ack].into_iter().flat_map(u32::to_be_bytes));
        body.extend(((length as u16 / 4) << 12 | segment.flags & 0x1ff).to_be_bytes());
        body.extend(segment.window.to_be_bytes());
        body.extend([0; 4]);
        body.extend(options);
        body.extend((0..segment.octets).map(|n| n as u8));
        let sum = checksum(&[&pseudo(src, dst, body.len()), &body]);
        body[16..18].copy_from_slice(&sum.to_be_bytes());
        framed(src, dst, DSCP << 2 | segment.ecn, &body)
    }
}

/// The option of a segment that tells something, as `vcc_report.h` has it.
fn report(segment: &Segment) -> Vec<u8> {
    if has(segment, SYN) {
        return vec![253, 4, 0x57, 0x43];
    }
    let told = [segment.told_octets, segment.told_marked].into_iter().flat_map(u32::to_be_bytes);
    [253, 12, 0x57, 0x43].into_iter().chain(told).collect()
}

/// A packet without what pads its frame, and without the last `size` octets of a TCP header that
/// ends it.
fn cut(frame: &[u8], is_v4: bool, size: usize) -> Vec<u8> {
    let (l4, at, more) = if is_v4 { (34, 16, 14) } else { (54, 18, 54) };
    let length = u16::from_be_bytes([frame[at], frame[at + 1]]) - size as u16;
    let mut octets = frame[..usize::from(length) + more].to_vec();
    octets[at..at + 2].copy_from_slice(&length.to_be_bytes());
    octets[l4 + 12] -= (size as u8 / 4) << 4;
    octets
}

fn has(segment: &Segment, flag: u16) -> bool {
    segment.flags & flag != 0
}

fn octets_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn pseudo(src: IpAddr, dst: IpAddr, length: usize) -> Vec<u8> {
    let mut octets = [octets_of(src), octets_of(dst)].concat();
    octets.extend((length as u32).to_be_bytes());
    octets.extend([0, 0, 0, 6]);
    octets
}

pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        for word in part.chunks(2) {
            sum += u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// TCP in IP in a frame as long as Ethernet wants it.
fn framed(src: IpAddr, dst: IpAddr, tos: u8, body: &[u8]) -> Vec<u8> {
    let mut octets = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if src.is_ipv4() {
        octets.extend([8, 0]);
        let mut header = vec![0x45, tos];
        header.extend((20 + body.len() as u16).to_be_bytes());
        header.extend([0xab, 0xcd, 0x40, 0, 64, 6, 0, 0]);
        header.extend(octets_of(src));
        header.extend(octets_of(dst));
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        octets.extend(header);
    } else {
        octets.extend([0x86, 0xdd, 0x60 | tos >> 4, tos << 4, 0, 0]);
        octets.extend((body.len() as u16).to_be_bytes());
        octets.extend([6, 64]);
        octets.extend(octets_of(src));
        octets.extend(octets_of(dst));
    }
    octets.extend(body);
    octets.resize(octets.len().max(60), 0);
    octets
}

/// What a parser that is not ours reads in a frame, once it has found it valid.
#[derive(Clone, PartialEq, Debug)]
struct Read {
    ecn: u8,
    tcp: TcpHeader,
    payload: Vec<u8>,
}

#[track_caller]
fn read(frame: &[u8]) -> Read {
    let headers = PacketHeaders::from_ethernet_slice(frame).expect("a valid packet");
    let Some(TransportHeader::Tcp(tcp)) = headers.transport else { panic!("no TCP: {headers:?}") };
    let payload = headers.payload.slice().to_vec();
    let (ecn, dscp, sum) = match headers.net.expect("a network header") {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "IPv4's checksum");
            let sum = tcp.calc_checksum_ipv4(&ip, &payload);
            (ip.ecn.value(), ip.dscp.value(), sum)
        }
        NetHeaders::Ipv6(ip, _) => {
            let sum = tcp.calc_checksum_ipv6(&ip, &payload);
            (ip.traffic_class & 3, ip.traffic_class >> 2, sum)
        }
        other => panic!("neither IPv4 nor IPv6: {other:?}"),
    };
    assert_eq!(sum.expect("not too long"), tcp.checksum, "TCP's checksum");
    assert_eq!(dscp, DSCP, "the guest's own");
    Read { ecn, tcp, payload }
}

fn program(way: Way) -> Program {
    match way {
        Way::Out => Program::From,
        Way::In => Program::To,
    }
}

fn run(programs: &Programs, way: Way, octets: &[u8]) -> (i32, Vec<u8>) {
    run_cut(programs, way, octets, 0)
}

/// The same of a super-packet that is to be cut into segments of `size` octets; of none if that is
/// zero.
fn run_cut(programs: &Programs, way: Way, octets: &[u8], size: u32) -> (i32, Vec<u8>) {
    let frame = Frame { octets, gso_size: size, ..Frame::default() };
    let ran = programs.run(program(way), &frame).unwrap();
    (ran.verdict, ran.octets)
}

/// The segment as it leaves the port; it has to pass.
#[track_caller]
fn passed(programs: &Programs, ends: &Ends, segment: &Segment) -> Read {
    let (verdict, octets) = run(programs, segment.way, &ends.frame(segment));
    assert_eq!(verdict, PASS);
    read(&octets)
}

/// The table of the only port. To look for it takes kernels before 6.2 some milliseconds, each
/// time.
fn table(programs: &Programs) -> Table<intf::Flow, State> {
    programs.flows(0).unwrap().expect("a table")
}

/// What is known of a connection, established or not.
fn state(programs: &Programs, ends: &Ends) -> Option<State> {
    let halves = programs.halves(0).unwrap().expect("a table");
    table(programs).get(ends.name()).unwrap().or_else(|| halves.get(ends.name()).unwrap())
}

fn flags_of(tcp: &TcpHeader) -> u16 {
    [(tcp.fin, FIN), (tcp.syn, SYN), (tcp.rst, RST), (tcp.ack, ACK), (tcp.ece, ECE), (tcp.cwr, CWR)]
        .into_iter()
        .map(|(is, flag)| if is { flag } else { 0 })
        .sum()
}

fn out(seq: u32, octets: u32) -> Segment {
    let (ack, flags, window) = (1, ACK, 500);
    Segment { seq, ack, octets, flags, window, way: Way::Out, ..Segment::default() }
}

fn inward(ack: u32, flags: u16) -> Segment {
    Segment { seq: 1, ack, flags, window: 120, way: Way::In, ..Segment::default() }
}

/// Both SYNs and what ends the handshake: the guest asks, the peer agrees on ECN. Its first octet
/// has number 101.
fn open(programs: &Programs, ends: &Ends) {
    let syn = Segment { seq: 100, flags: SYN, mss: 1_460, scale: 8, ..out(100, 0) };
    let asked = passed(programs, ends, &Segment { ack: 0, ..syn });
    assert_eq!(flags_of(&asked.tcp), SYN | ECE | CWR, "asks in the guest's place");
    assert_eq!(asked.ecn, NOT_ECT);
    let answer =
        Segment { seq: 0, flags: SYN | ACK | ECE, mss: 1_400, scale: 8, ..inward(101, ACK) };
    // The windows of SYNs are not scaled.
    let answered = passed(programs, ends, &Segment { window: 17_000, ..answer });
    assert_eq!(flags_of(&answered.tcp), SYN | ACK, "and hides the answer");
    let last = passed(programs, ends, &out(101, 0));
    assert_eq!((flags_of(&last.tcp), last.ecn), (ACK, NOT_ECT));
}

fn a_connection_is_translated(ends: Ends) {
    let programs = loaded(&Terms::new(Translation::VirtualEcn), ANY_SLACK);
    open(&programs, &ends);
    for n in 0..10 {
        let data = passed(&programs, &ends, &out(101 + n * 1_400, 1_400));
        assert_eq!((data.ecn, flags_of(&data.tcp)), (ECT_0, ACK), "data leave capable");
    }
    let plain = passed(&programs, &ends, &inward(1_501, ACK));
    assert_eq!(plain.tcp.window_size, 120, "no mark, no edit");
    // A mark: four of the nine segments in flight, at first all of them. What was shown before
    // stays allowed.
    let marked = passed(&programs, &ends, &inward(2_901, ACK | ECE));
    assert_eq!(flags_of(&marked.tcp), ACK, "the guest need not know");
    let cut = state(&programs, &ends).unwrap();
    assert!(marked.tcp.window_size < 120, "{} units of 128: {cut:?}", marked.tcp.window_size);
    assert_eq!((cut.phase, cut.window, cut.target), (4, 9 * 1_400, 4 * 1_400));
    let data = passed(&programs, &ends, &out(101 + 10 * 1_400, 1_400));
    assert_eq!(flags_of(&data.tcp), ACK | CWR, "the network is told once");
    let data = passed(&programs, &ends, &out(101 + 11 * 1_400, 1_400));
    assert_eq!(flags_of(&data.tcp), ACK);
    // As receiver: a mark is echoed until CWR comes, and the guest sees none of it.
    let marked = Segment { octets: 1_000, ecn: CE, ..inward(2_901, ACK) };
    assert_eq!(passed(&programs, &ends, &marked).ecn, NOT_ECT);
    assert_eq!(flags_of(&passed(&programs, &ends, &out(101 + 12 * 1_400, 0)).tcp), ACK | ECE);
    let reduced = Segment { flags: ACK | CWR, ecn: ECT_0, ..marked };
    let reduced = passed(&programs, &ends, &reduced);
    assert_eq!((flags_of(&reduced.tcp), reduced.ecn), (ACK, NOT_ECT));
    assert_eq!(flags_of(&passed(&programs, &ends, &out(101 + 12 * 1_400, 0)).tcp), ACK);
    let counters = programs.counters(0);
    assert_eq!((counters.segments, counters.unknown, counters.unedited), (21, 0, 0));
    assert!(counters.lowered >= 1 && counters.edited > counters.lowered, "{counters:?}");
}

#[test]
fn a_connection_of_ipv4_is_translated() {
    a_connection_is_translated(Ends::v4(0));
}

#[test]
fn a_connection_of_ipv6_is_translated() {
    a_connection_is_translated(Ends::v6(0));
}

/// The octets that may differ: of the ECN field and its checksum, and of TCP's flags, window and
/// checksum.
fn assert_nothing_else_changed(before: &[u8], after: &[u8], is_v4: bool, at: &str) {
    assert_eq!(before.len(), after.len(), "{at}");
    let l4 = if is_v4 { 34 } else { 54 };
    for (n, (a, b)) in before.iter().zip(after).enumerate() {
        let ip = if is_v4 { n == 15 || n == 24 || n == 25 } else { n == 15 };
        let tcp = (l4 + 12..l4 + 18).contains(&n);
        assert!(a == b || ip || tcp, "octet {n} of {at}");
    }
}

#[test]
fn fifty_thousand_frames_become_what_the_law_in_rust_makes_of_them() {
    const MANY: usize = 64;
    const STEPS: usize = 50_000;
    let all =
        [Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn, Translation::Auto];
    let mut random = Random(11);
    let (mut edits, mut established, mut absent, mut worn) = (0, 0, 0, [0; 4]);
    let (mut told, mut heard) = (0, 0);
    for translation in all {
        let terms = Terms { share: 60_000, ..Terms::new(translation) };
        let programs = loaded(&terms, ANY_SLACK);
        let (table, halves) = (table(&programs), programs.halves(0).unwrap().expect("a table"));
        let place = |name| table.get(name).unwrap().or_else(|| halves.get(name).unwrap());
        let mut flows = [None::<Flow>; MANY];
        let mut which = 0;
        for step in 0..STEPS / all.len() {
            if random.one_in(64) {
                which = random.below(MANY as u64) as usize;
            }
            let ends = if which % 2 == 0 { Ends::v4(which as u16) } else { Ends::v6(which as u16) };
            let known = &mut flows[which];
            let mut segment = random.segment(&known.unwrap_or_default());
            segment.flags &= 0x1ff;
            segment.octets %= 2_900;
            // Guests tell nothing, and what has data has no report.
            segment.told &= u8::from(segment.way == Way::In && segment.octets == 0);
            if segment.told == 0 || has(&segment, SYN) {
                (segment.told_octets, segment.told_marked) = (0, 0);
            }
            let frame = ends.frame(&segment);
            let dress = Dress::any(&mut random, &frame);
            let before = programs.counters(0);
            let began = now();
            let ran = run_cut(&programs, segment.way, &dress.on(&frame), dress.size);
            let ended = now();
            let at = format!("step {step}: {segment:?} in {dress:?}");
            let octets = dress.off(&ran.1);
            assert_eq!((ran.0, &dress.on(&octets)), (PASS, &ran.1), "{at}");
            if known.is_none() && segment.flags & (SYN | ACK | RST) != SYN {
                assert_eq!(octets, frame, "{at}");
                assert_eq!(programs.counters(0).unknown, before.unknown + 1);
                assert!(place(ends.name()).is_none(), "only a SYN takes a place: {at}");
                absent += 1;
                continue;
            }
            let got = read(&octets);
            let got_state = place(ends.name()).expect("known from its SYN on");
            let got_flags = u16::from_be_bytes([
                octets[if which % 2 == 0 { 46 } else { 66 }],
                octets[if which % 2 == 0 { 47 } else { 67 }],
            ]) & 0x1ff;
            // The kernel has its own clock: one of the ticks that passed meanwhile.
            let twin = (began..=ended).find_map(|at| {
                let mut flow = known.unwrap_or_default();
                let edit = flow.handle(&Segment { at, ..segment }, &terms);
                let wanted = (edit.window, edit.flags, edit.ecn);
                let is_same = wanted == (got.tcp.window_size, got_flags, got.ecn)
                    && flow.to_octets() == octets_of_state(&got_state);
                is_same.then_some((flow, edit))
            });
            let Some((flow, edit)) = twin else {
                let mut flow = known.unwrap_or_default();
                let edit = flow.handle(&Segment { at: began, ..segment }, &terms);
                panic!("{at}: {got:?} and {got_state:?}, wanted {edit:?} and {flow:?}");
            };
            let size = report(&segment).len();
            let taken = if edit.what & Edit::TAKE != 0 { size } else { 0 };
            let added = if edit.what & Edit::TELL != 0 && segment.octets == 0 { size } else { 0 };
            let is_v4 = which % 2 == 0;
            let (before, after) = (cut(&frame, is_v4, taken), cut(&octets, is_v4, added));
            assert_nothing_else_changed(&before, &after, is_v4, &at);
            if added > 0 {
                let (told_octets, told_marked) = (edit.told_octets, edit.told_marked);
                let told = report(&Segment { told_octets, told_marked, ..segment });
                assert!(octets.ends_with(&told), "{told:?} at the end of {octets:?}");
            }
            (told, heard) = (told + usize::from(added > 0), heard + usize::from(taken > 0));
            let is_edited = edit.what & (Edit::WINDOW | Edit::FLAGS | Edit::ECN) != 0;
            edits += usize::from(is_edited);
            for (worn, does) in worn.iter_mut().zip(dress.what()) {
                *worn += usize::from(is_edited && does);
            }
            established += usize::from(flow.phase() as u8 >= Phase::Open as u8);
            for silent in [0, 3, 4, 127, 128, IDLE - 1, IDLE] {
                let at = (u32::from(got_state.seen) + u32::from(silent)) << 10;
                let is_live = !flow.is_spent(at, IDLE) && flow.phase() != Phase::Alone;
                assert_eq!(got_state.is_live(at), is_live, "after {silent}: {got_state:?}");
            }
            *known = Some(flow);
        }
        assert_eq!(programs.counters(0).unedited, 0);
    }
    assert!(edits > STEPS / 20 && established > STEPS / 5, "{edits} edits, {established} open");
    assert!(absent > 10, "{absent} of no connection");
    let is_enough = worn.iter().all(|worn| *worn > STEPS / 500);
    assert!(is_enough, "edits with tags, extensions, in super-packets, without a length: {worn:?}");
    assert!(told > 100 && heard > 100, "{told} reports were added, {heard} taken out");
}

fn octets_of_state(state: &State) -> [u8; 64] {
    let s = state;
    let words = [s.una, s.nxt, s.edge, s.recover, s.window, s.target, s.acked, s.progress];
    let halves = [s.alpha, s.mss, s.seen, s.flags].into_iter().flat_map(u16::to_ne_bytes);
    let octets = words.into_iter().chain(s.law).flat_map(u32::to_ne_bytes);
    let octets = octets.chain(halves).chain([s.phase, s.dups, s.scale, s.translation]);
    octets.collect::<Vec<_>>().try_into().expect("64 octets")
}

/// The kernel's clock in the law's ticks.
fn now() -> u32 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(got, 0, "every Linux has this clock");
    ticks(Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

#[test]
fn who_sends_beyond_window_and_slack_loses_the_excess_where_that_is_asked_for() {
    let terms = Terms { share: 2_800, ..Terms::new(Translation::None) };
    let programs = loaded(&terms, 1_400);
    let ends = Ends::v4(0);
    let syn = Segment { seq: 100, flags: SYN, mss: 1_400, ..out(100, 0) };
    passed(&programs, &ends, &syn);
    let answer = Segment { seq: 0, flags: SYN | ACK, mss: 1_400, ..inward(101, ACK) };
    passed(&programs, &ends, &Segment { window: 2_800, ..answer });
    // Two segments are the window, a third is the slack.
    for n in 0..3 {
        passed(&programs, &ends, &out(101 + n * 1_400, 1_400));
    }
    let beyond = ends.frame(&out(101 + 3 * 1_400, 1_400));
    assert_eq!(run(&programs, Way::Out, &beyond), (DROP, beyond.clone()));
    assert_eq!(state(&programs, &ends).unwrap().nxt, 101 + 3 * 1_400, "it was not sent");
    assert_eq!(programs.counters(0).policed, 1);
    // An acknowledgement is no data, and what is acknowledged moves the window.
    passed(&programs, &ends, &out(101 + 3 * 1_400, 0));
    passed(&programs, &ends, &Segment { window: 60_000, ..inward(101 + 3 * 1_400, ACK) });
    passed(&programs, &ends, &out(101 + 3 * 1_400, 1_400));
    assert_eq!(programs.counters(0).policed, 1);
}

/// Runs `test` on a thread of its own that stays on one CPU.
fn on_one_cpu(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: a set is plain bits, and none of them is set; the kernel reads as much as it is
        // told.
        let pinned = unsafe {
            let mut only: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(libc::sched_getcpu() as usize, &mut only);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only)
        };
        assert_eq!(pinned, 0, "a thread may stay where it is");
        test();
    };
    let ran = std::thread::spawn(run).join();
    ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Up to 128 new ones wait on the list of the CPU that brought them, where none is forgotten
/// until that CPU brings more: it has to bring them all.
#[test]
fn a_full_table_forgets_those_who_were_silent_and_leaves_them_alone() {
    on_one_cpu(fill_the_table);
}

fn fill_the_table() {
    let programs = loaded(&Terms::new(Translation::VirtualEcn), ANY_SLACK);
    for n in 0..4 * FLOWS as u16 {
        let syn = Segment { seq: 100, flags: SYN, mss: 1_460, scale: 8, ..out(100, 0) };
        passed(&programs, &Ends::v4(n), &syn);
    }
    let kept = programs.flows(0).unwrap().expect("a table").read().unwrap().count();
    assert!(kept <= FLOWS as usize && kept > FLOWS as usize / 4, "{kept}");
    assert!(state(&programs, &Ends::v4(0)).is_none(), "the first is gone");
    let data = out(101, 1_400);
    let frame = Ends::v4(0).frame(&data);
    assert_eq!(run(&programs, Way::Out, &frame), (PASS, frame.clone()), "and left alone");
    assert!(state(&programs, &Ends::v4(4 * FLOWS as u16 - 1)).is_some(), "the last is there");
}

#[test]
fn a_port_that_opens_thousands_of_connections_pushes_out_none_of_anothers() {
    on_one_cpu(flood_beside_a_flow);
}

fn flood_beside_a_flow() {
    let terms = Terms::new(Translation::VirtualEcn);
    let programs = loaded(&terms, ANY_SLACK);
    let (quiet, slots) = (Ends::v4(0), [0, 1]);
    open(&programs, &quiet);
    programs.make_table(slots[1], FLOWS).unwrap();
    // The other port, of the same host: the one interface that test runs have, with another's slot.
    programs.ports.put(INTERFACE, Port { slot: slots[1], ..port(&terms, ANY_SLACK) }).unwrap();
    for n in 1..4 * FLOWS as u16 {
        let syn = Segment { seq: 100, flags: SYN, mss: 1_460, scale: 8, ..out(100, 0) };
        passed(&programs, &Ends::v4(n), &syn);
    }
    let entries = |slot| programs.flows(slot).unwrap().expect("a table").read().unwrap().count();
    assert!(entries(slots[1]) > FLOWS as usize / 2, "it is full: {}", entries(slots[1]));
    assert!(state(&programs, &quiet).is_some(), "the quiet one has its place");
    programs.ports.put(INTERFACE, port(&terms, ANY_SLACK)).unwrap();
    let data = passed(&programs, &quiet, &out(101, 1_400));
    assert_eq!(data.ecn, ECT_0, "and is translated");
    let [first, second] = slots.map(|slot| programs.counters(slot));
    assert_eq!((first.begun, first.agreed, first.unknown), (1, 1, 0));
    assert_eq!((second.begun, second.agreed), (4 * u64::from(FLOWS) - 1, 0));
}

#[test]
fn syns_of_strangers_push_out_no_connection_that_is_established() {
    on_one_cpu(|| {
        let programs = loaded(&Terms::new(Translation::VirtualEcn), ANY_SLACK);
        // One that the guest began, and one that a peer began.
        let (own, asked) = (Ends::v4(0), Ends::v4(1));
        open(&programs, &own);
        let syn = Segment { seq: 0, mss: 1_400, scale: 8, ..inward(0, SYN | ECE | CWR) };
        passed(&programs, &asked, &Segment { window: 17_000, ..syn });
        let answer = Segment { flags: SYN | ACK, mss: 1_460, scale: 8, ..out(100, 0) };
        let answered = passed(&programs, &asked, &answer);
        assert_eq!(flags_of(&answered.tcp), SYN | ACK | ECE, "agrees in the guest's place");
        assert!(table(&programs).get(asked.name()).unwrap().is_none(), "not established yet");
        passed(&programs, &asked, &inward(101, ACK));
        passed(&programs, &asked, &out(101, 1_400));
        assert!(table(&programs).get(asked.name()).unwrap().is_some(), "it is now");

        // Strangers' SYNs, which the guest answers, as a listening port does, and which are never
        // confirmed.
        for n in 2..8 * FLOWS as u16 {
            let stranger = Ends::v4(n);
            passed(&programs, &stranger, &Segment { window: 17_000, ..syn });
            passed(&programs, &stranger, &answer);
        }
        for quiet in [own, asked] {
            let data = passed(&programs, &quiet, &out(1_501, 1_400));
            assert_eq!(data.ecn, ECT_0, "is translated as before");
        }
        let counters = programs.counters(0);
        assert_eq!(counters.asked, 8 * u64::from(FLOWS) - 1);
        assert_eq!((counters.begun, counters.full), (8 * u64::from(FLOWS), 0));
        assert_eq!(table(&programs).read().unwrap().count(), 2);
    });
}

#[test]
fn a_guest_that_is_policed_sends_no_fragments_of_tcp() {
    let terms = Terms { share: 2_800, ..Terms::new(Translation::None) };
    for slack in [1_400, ANY_SLACK] {
        let programs = loaded(&terms, slack);
        let ends = Ends::v4(0);
        // The first fragment of a segment, and a later one.
        for (n, at) in [0x2000_u16, 0x00b9].into_iter().enumerate() {
            let mut frame = ends.frame(&out(101, 1_400));
            frame[20..22].copy_from_slice(&at.to_be_bytes());
            let verdict = if slack == ANY_SLACK { PASS } else { DROP };
            assert_eq!(run(&programs, Way::Out, &frame), (verdict, frame.clone()));
            assert_eq!(run(&programs, Way::In, &frame), (PASS, frame.clone()), "what comes in may");
            let dropped = if slack == ANY_SLACK { 0 } else { n as u64 + 1 };
            assert_eq!(programs.counters(0).fragments, dropped);
        }
    }
}

#[test]
fn no_syn_of_a_guest_that_is_policed_makes_its_window_forgotten() {
    let terms = Terms { share: 2_800, ..Terms::new(Translation::None) };
    let programs = loaded(&terms, 1_400);
    let ends = Ends::v4(0);
    let syn = Segment { seq: 100, flags: SYN, mss: 1_400, scale: 8, ..out(100, 0) };
    passed(&programs, &ends, &syn);
    // Said again without its scale, and within the connection.
    passed(&programs, &ends, &Segment { scale: 0, ..syn });
    let answer = Segment { seq: 0, flags: SYN | ACK, mss: 1_400, scale: 8, ..inward(101, ACK) };
    passed(&programs, &ends, &Segment { window: 2_800, ..answer });
    passed(&programs, &ends, &Segment { seq: 7_000, ..syn });
    assert_eq!(programs.counters(0).repeated, 2);
    for n in 0..3 {
        passed(&programs, &ends, &out(101 + n * 1_400, 1_400));
    }
    let beyond = ends.frame(&out(101 + 3 * 1_400, 1_400));
    assert_eq!(run(&programs, Way::Out, &beyond).0, DROP, "the window stands");
    assert_eq!(programs.counters(0).policed, 1);
}

#[test]
fn where_nothing_is_asked_for_any_more_connections_keep_what_they_began_with() {
    let programs = loaded(&Terms::new(Translation::VirtualEcn), ANY_SLACK);
    let (old, new) = (Ends::v4(0), Ends::v4(1));
    open(&programs, &old);
    programs.ports.put(INTERFACE, Port::idle(0)).unwrap();
    assert_eq!(passed(&programs, &old, &out(101, 1_400)).ecn, ECT_0);
    let marked = Segment { octets: 1_000, ecn: CE, ..inward(1_501, ACK) };
    assert_eq!(passed(&programs, &old, &marked).ecn, NOT_ECT);
    assert_eq!(programs.counters(0).hidden, 1);
    let syn = Segment { seq: 100, flags: SYN, mss: 1_460, scale: 8, ack: 0, ..out(100, 0) };
    assert_eq!(flags_of(&passed(&programs, &new, &syn).tcp), SYN, "no port asks for it");
    assert!(state(&programs, &new).is_none(), "and it takes no place");
    let counters = programs.counters(0);
    assert_eq!((counters.begun, counters.unknown), (1, 1));
}

#[test]
fn connections_that_are_left_alone_are_counted_by_the_reason() {
    let programs = loaded(&Terms::new(Translation::VirtualEcn), ANY_SLACK);
    let syn = Segment { seq: 100, flags: SYN, mss: 1_460, scale: 8, ack: 0, ..out(100, 0) };
    let answer = Segment { seq: 0, flags: SYN | ACK, mss: 1_400, scale: 8, ..inward(101, ACK) };
    // The peer knows no ECN; the guest speaks it itself; a SYN again without its scale.
    for (n, first, second) in [
        (0, syn, answer),
        (1, Segment { flags: SYN | ECE | CWR, ..syn }, answer),
        (2, syn, Segment { scale: 0, ..syn }),
    ] {
        passed(&programs, &Ends::v4(n), &first);
        passed(&programs, &Ends::v4(n), &second);
    }
    let counters = programs.counters(0);
    assert_eq!((counters.begun, counters.agreed), (3, 0));
    assert_eq!((counters.deaf, counters.speaking, counters.alone), (1, 1, 1));
}

#[test]
fn what_is_no_whole_segment_passes_as_it_is() {
    let programs = loaded(&Terms::new(Translation::VirtualEcn), ANY_SLACK);
    let ends = Ends::v4(0);
    open(&programs, &ends);
    let before = state(&programs, &ends);
    let sound = ends.frame(&out(101, 1_400));
    let with = |at: usize, value: u8| {
        let mut frame = sound.clone();
        frame[at] = value;
        frame
    };
    // Shorter ones no kernel accepts in a test run.
    let mut frames: Vec<Vec<u8>> = (34..54).map(|length| sound[..length].to_vec()).collect();
    // A header of four octets; one longer than the packet; fragments; another protocol; another
    // port.
    frames.extend([with(46, 0x10), with(20, 0x20), with(21, 1), with(23, 17), with(34, 9)]);
    frames.extend([vec![0; 60], vec![0xff; 60]]);
    // Three tags; a fragment of IPv6, whole or not; more headers than any packet needs; a header
    // that never ends.
    let sixth = Ends::v6(0).frame(&out(101, 1_000));
    let tagged = Dress::tagged(3);
    let behind = |kinds: &[u8]| Dress::behind(kinds).on(&sixth);
    frames.extend([tagged.on(&sound), tagged.on(&sixth), behind(&[44]), behind(&[60; 7])]);
    frames.extend([behind(&[0, 44, 60]), behind(&[60, 60, 44])]);
    let mut endless = behind(&[60]);
    endless[55] = 0xff;
    frames.push(endless);
    for frame in frames {
        for way in [Way::Out, Way::In] {
            let (verdict, octets) = run(&programs, way, &frame);
            assert_eq!((verdict, octets), (PASS, frame.clone()));
        }
    }
    assert_eq!(state(&programs, &ends), before);
    // Where no port is known nothing happens at all.
    assert!(programs.ports.delete(INTERFACE).unwrap());
    let counters = programs.counters(0);
    assert_eq!(run(&programs, Way::Out, &sound), (PASS, sound.clone()));
    assert_eq!(programs.counters(0), counters);
    assert!(counters.malformed > 0 && counters.unknown > 0, "{counters:?}");
}

#[test]
fn laws_and_terms_are_numbered_as_the_core_has_them() {
    let laws = [
        (Law::VirtualEcn, Translation::VirtualEcn),
        (Law::Dctcp, Translation::Dctcp),
        (Law::CubicEcn, Translation::CubicEcn),
        (Law::Auto, Translation::Auto),
    ];
    for (law, translation) in laws {
        assert_eq!(Port::new(law, 0), port(&Terms::new(translation), ANY_SLACK));
    }
}

/// The last MSS that a SYN's options offer, read by their rules (RFC 9293 §3.1) once more.
fn offered(mut options: &[u8]) -> Option<u16> {
    let mut mss = None;
    while let [kind, rest @ ..] = options {
        match (kind, rest) {
            (0, _) => break,
            (1, _) => options = rest,
            (_, [length, ..]) if (2..=options.len()).contains(&usize::from(*length)) => {
                if let [2, 4, a, b, ..] = options {
                    mss = Some(u16::from_be_bytes([*a, *b]));
                }
                options = &options[usize::from(*length)..];
            }
            _ => break,
        }
    }
    mss
}

/// Options in any order and damage, from a SYN on: no verdict but to pass, and what is changed
/// stays valid.
#[test]
fn options_of_any_kind_confuse_nobody() {
    let mut random = Random(5);
    let terms = Terms::new(Translation::VirtualEcn);
    for round in 0..20 {
        let programs = loaded(&terms, ANY_SLACK);
        let table = table(&programs);
        for n in 0..500u16 {
            let ends = Ends::v4(n);
            let words = random.below(11) as usize;
            let mut options: Vec<u8> = (0..words * 4)
                .map(|_| random.of(&[0, 1, 1, 1, 2, 3, 3, 4, 5, 8, 10, 40, 255]))
                .collect();
            if words > 2 && random.one_in(2) {
                options[..4].copy_from_slice(&[2, 4, 5, 180]);
            }
            let syn = ends.frame(&Segment { seq: 100, flags: SYN, window: 1, ..out(100, 0) });
            let mut body = syn[34..54].to_vec();
            body[12] = (5 + words as u8) << 4;
            body[16..18].fill(0);
            body.extend(&options);
            let sum = checksum(&[&pseudo(ends.guest, ends.peer, body.len()), &body]);
            body[16..18].copy_from_slice(&sum.to_be_bytes());
            let frame = framed(ends.guest, ends.peer, DSCP << 2, &body);
            let (verdict, octets) = run(&programs, Way::Out, &frame);
            assert_eq!(verdict, PASS);
            assert_nothing_else_changed(&frame, &octets, true, &format!("{round}: {options:?}"));
            let known = table.get(ends.name()).unwrap().expect("a SYN");
            let mss = offered(&options).map_or(536, |mss| mss.max(536));
            assert_eq!(known.mss, mss, "{options:?}");
            // The parser that is not ours refuses headers whose options make no sense: checksums
            // alone.
            let sum = checksum(&[
                &pseudo(ends.guest, ends.peer, body.len()),
                &octets[34..34 + body.len()],
            ]);
            assert_eq!(sum, 0, "{options:?}");
        }
        let Counters { unedited, malformed, .. } = programs.counters(0);
        assert_eq!((unedited, malformed), (0, 0));
    }
}

/// An acknowledgement of nothing new, with these options.
fn with_options(ends: &Ends, way: Way, options: &[u8]) -> Vec<u8> {
    let segment = if way == Way::Out { out(101, 0) } else { inward(101, ACK) };
    let is_v4 = ends.guest.is_ipv4();
    let (src, dst) =
        if way == Way::Out { (ends.guest, ends.peer) } else { (ends.peer, ends.guest) };
    let l4 = if is_v4 { 34 } else { 54 };
    let mut body = ends.frame(&segment)[l4..l4 + 20].to_vec();
    body[12] = (5 + options.len() as u8 / 4) << 4;
    body[16..18].fill(0);
    body.extend(options);
    let sum = checksum(&[&pseudo(src, dst, body.len()), &body]);
    body[16..18].copy_from_slice(&sum.to_be_bytes());
    framed(src, dst, DSCP << 2, &body)
}

/// The guest calls, and its port and the peer's agree on ECN and on reports.
fn open_with_reports(programs: &Programs, ends: &Ends, is_read: bool) {
    let syn = Segment { ack: 0, flags: SYN, mss: 1_460, scale: 8, ..out(100, 0) };
    let asked = passed(programs, ends, &syn);
    assert!(asked.tcp.options.as_slice().ends_with(&[253, 4, 0x57, 0x43]), "{asked:?}");
    let flags = SYN | ACK | ECE;
    let answer = Segment { seq: 0, flags, mss: 1_400, scale: 8, ..inward(101, ACK) };
    let answer = Segment { window: 17_000, told: u8::from(is_read), ..answer };
    let plain = read(&ends.frame(&Segment { told: 0, ..answer }));
    let answered = passed(programs, ends, &answer);
    assert_eq!(answered.tcp.options, plain.tcp.options, "the guest sees none of it");
}

/// Whether the law has heard a report.
fn has_heard(programs: &Programs, ends: &Ends) -> bool {
    state(programs, ends).unwrap().flags & 1 << 10 != 0
}

fn ports_tell_each_other_what_came(ends: Ends) {
    let programs = loaded(&Terms::new(Translation::Dctcp), ANY_SLACK);
    open_with_reports(&programs, &ends, true);
    // As receiver: totals, with each acknowledgement that has room and no data.
    let came = Segment { octets: 1_000, ecn: ECT_0, ..inward(101, ACK) };
    passed(&programs, &ends, &came);
    passed(&programs, &ends, &Segment { seq: 1_001, ecn: CE, ..came });
    let told = passed(&programs, &ends, &out(101, 0));
    let totals = [253, 12, 0x57, 0x43, 0, 0, 7, 208, 0, 0, 3, 232];
    assert_eq!(told.tcp.options.as_slice(), totals, "2000, of which 1000 marked");
    assert_eq!(flags_of(&told.tcp), ACK | ECE);
    let full = [&[8, 10, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 5, 26][..], &[7; 24], &[1, 0]].concat();
    let (verdict, octets) = run(&programs, Way::Out, &with_options(&ends, Way::Out, &full));
    assert_eq!((verdict, read(&octets).tcp.options.as_slice()), (PASS, &full[..]), "no room");
    assert_eq!(passed(&programs, &ends, &out(101, 700)).tcp.options.as_slice(), [], "data");
    // As sender: what comes is heard, and the guest does not see it.
    let heard = Segment { told: 1, told_octets: 700, told_marked: 70, ..inward(801, ACK) };
    assert_eq!(passed(&programs, &ends, &heard).tcp.options.as_slice(), []);
    assert!(has_heard(&programs, &ends));
    let stamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1];
    let both = [&stamps[..], &totals].concat();
    let (_, octets) = run(&programs, Way::In, &with_options(&ends, Way::In, &both));
    assert_eq!(read(&octets).tcp.options.as_slice(), stamps);
    // What a report looks like, within another option, is none.
    let within = [&[1, 1, 76, 14][..], &totals].concat();
    let frame = with_options(&ends, Way::In, &within);
    assert_eq!(read(&run(&programs, Way::In, &frame).1).tcp.options.as_slice(), within);
    // A guest that speaks so itself is not let through.
    let forged = with_options(&ends, Way::Out, &totals);
    assert_eq!(run(&programs, Way::Out, &forged).0, DROP);
    let counters = programs.counters(0);
    assert_eq!((counters.reports, counters.malformed, counters.unedited), (2, 1, 0));
}

#[test]
fn ports_of_ipv4_tell_each_other_what_came() {
    ports_tell_each_other_what_came(Ends::v4(0));
}

#[test]
fn ports_of_ipv6_tell_each_other_what_came() {
    ports_tell_each_other_what_came(Ends::v6(0));
}

#[test]
fn who_has_not_said_that_it_reads_reports_is_told_none_and_not_believed() {
    let programs = loaded(&Terms::new(Translation::Dctcp), ANY_SLACK);
    let ends = Ends::v4(0);
    open_with_reports(&programs, &ends, false);
    passed(&programs, &ends, &out(101, 700));
    assert_eq!(passed(&programs, &ends, &out(801, 0)).tcp.options.as_slice(), []);
    let forged = Segment { told: 1, told_octets: 700, ..inward(801, ACK) };
    assert_eq!(passed(&programs, &ends, &forged).tcp.options.as_slice(), [], "taken out");
    assert!(!has_heard(&programs, &ends));
}

/// Where the last of these options begins, read by their rules once more.
fn last_of(options: &[u8]) -> Option<usize> {
    let (mut at, mut last) = (0, None);
    while at < options.len() {
        match options[at..] {
            [0, ..] => break,
            [1, ..] => at += 1,
            [_, length, ..] if length >= 2 && at + usize::from(length) <= options.len() => {
                last = Some(at);
                at += usize::from(length);
            }
            _ => break,
        }
    }
    last
}

/// Acknowledgements with options in any order and damage, some of them reports, in both directions.
#[test]
fn reports_among_options_of_any_kind_confuse_nobody() {
    let mut random = Random(6);
    let programs = loaded(&Terms::new(Translation::Dctcp), ANY_SLACK);
    let all = [Ends::v4(0), Ends::v6(0)];
    all.iter().for_each(|ends| open_with_reports(&programs, ends, true));
    let (mut taken, mut dropped, mut added) = (0, 0, 0);
    for n in 0..20_000 {
        let ends = all[n % 2];
        let way = random.of(&[Way::Out, Way::In]);
        let words = random.below(11) as usize;
        let kinds = [0, 1, 1, 1, 2, 4, 5, 8, 10, 12, 76, 253, 253, 0x57, 0x43];
        let mut options: Vec<u8> = (0..words * 4).map(|_| random.of(&kinds)).collect();
        if random.one_in(2) {
            options.iter_mut().for_each(|octet| *octet = 1);
        }
        if words >= 3 && random.one_in(2) {
            let at = options.len() - 12;
            options[at..at + 4].copy_from_slice(&[253, 12, 0x57, 0x43]);
        }
        let frame = with_options(&ends, way, &options);
        let (verdict, octets) = run(&programs, way, &frame);
        let is_report = last_of(&options).is_some_and(|at| {
            at + 12 == options.len() && options[at..].starts_with(&[253, 12, 0x57, 0x43])
        });
        let at = format!("{n}: {way:?} {options:?}");
        assert_eq!(verdict, if is_report && way == Way::Out { DROP } else { PASS }, "{at}");
        if verdict == DROP {
            dropped += 1;
            continue;
        }
        let is_v4 = n % 2 == 0;
        let l4 = if is_v4 { 34 } else { 54 };
        let after = cut(&octets, is_v4, 0);
        let [(src, dst), (back, forth)] = [(ends.guest, ends.peer), (ends.peer, ends.guest)];
        let (src, dst) = if way == Way::Out { (src, dst) } else { (back, forth) };
        let body = &after[l4..];
        assert_eq!(body.len(), usize::from(body[12] >> 4) * 4, "no data: {at}");
        assert_eq!(checksum(&[&pseudo(src, dst, body.len()), body]), 0, "{at}");
        match (way, is_report) {
            (Way::In, true) => {
                taken += 1;
                assert_eq!(body[20..], options[..options.len() - 12], "{at}");
            }
            (Way::Out, _) if options.len() <= 28 => {
                added += 1;
                assert_eq!(body[20..body.len() - 12], options, "{at}");
                assert_eq!(body[body.len() - 12..body.len() - 8], [253, 12, 0x57, 0x43], "{at}");
            }
            _ => assert_eq!(body[20..], options, "{at}"),
        }
    }
    assert!(taken > 500 && dropped > 500 && added > 500, "{taken}, {dropped}, {added}");
    assert_eq!(programs.counters(0).unedited, 0);
}
