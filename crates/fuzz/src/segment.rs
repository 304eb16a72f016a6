//! TCP segments at a port that translates (vCC), through the BPF programs themselves. Needs root.
//!
//! Approach  The first octet of an input chooses the law, the way, and whether a handshake comes first;
//!           the rest is the frame. Each input begins with an empty table of connections.

use crate::Target;
use std::cell::RefCell;
use weir_dataplane::intf::Flow;
use weir_dataplane::programs::Frame;
use weir_dataplane::table::Table;
use weir_dataplane::vcc::intf::{Port, State};
use weir_dataplane::vcc::{Law, Program, Programs};

/// A frame passes or is dropped whole; what passes keeps its ends, numbers and payload, grows or
/// shrinks by a report at most, and has right checksums if it had them.
pub(crate) const TARGET: Target = Target { name: "segment", run, reaches, words: &[], seeds };

const PASS: i32 = -1;
const DROP: i32 = 2;
const LOOPBACK: u32 = 1;
const ETHERNET: usize = 14;
const FLOWS: u32 = 16;
/// Octets of the longest report (bpf/vcc_report.h).
const REPORT: usize = 12;
const GUEST: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);
const PEER: ([u8; 4], u16) = ([10, 0, 0, 2], 80);
const SYN: u8 = 2;
const ACK: u8 = 16;
const ECE: u8 = 64;

struct World {
    programs: Programs,
    flows: Table<Flow, State>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

impl World {
    fn new() -> Self {
        let programs = Programs::load().expect("these programs are loaded by root");
        programs.make_table(0, FLOWS).expect("a table");
        let flows = programs.flows(0).expect("a table").expect("it was made");
        Self { programs, flows }
    }

    /// Forgets all connections.
    fn forget(&mut self) {
        let known: Vec<_> = self.flows.read().expect("a table").map(|(flow, _)| flow).collect();
        for flow in known {
            self.flows.delete(flow).expect("a table");
        }
    }
}

fn run(octets: &[u8]) {
    let Some((choice, frame)) = octets.split_first() else { return };
    if frame.len() < ETHERNET {
        return;
    }
    WORLD.with_borrow_mut(|world| {
        let law = [Law::VirtualEcn, Law::Dctcp, Law::CubicEcn, Law::Auto][usize::from(choice & 3)];
        world.forget();
        let programs = &world.programs;
        programs.ports.put(LOOPBACK, Port::new(law, 0)).expect("room for one");
        if choice & 8 != 0 {
            pass(programs, Program::From, &tcp(GUEST, PEER, SYN, (99, 0), &[]));
            pass(programs, Program::To, &tcp(PEER, GUEST, SYN | ACK | ECE, (499, 100), &[]));
            pass(programs, Program::From, &tcp(GUEST, PEER, ACK, (100, 500), &[]));
        }
        let way = if choice & 4 == 0 { Program::From } else { Program::To };
        pass(programs, way, frame);
        // Once more: it is the same segment again.
        pass(programs, way, frame);
    });
}

/// Whether it is a whole segment of TCP over IPv4.
fn reaches(octets: &[u8]) -> bool {
    octets.get(1..).is_some_and(|frame| Segment::read(frame).is_some())
}

fn pass(programs: &Programs, way: Program, octets: &[u8]) {
    // The kernel refuses to make some frames at all.
    let Ok(ran) = programs.run(way, &Frame { octets, ..Frame::default() }) else { return };
    assert!([PASS, DROP].contains(&ran.verdict), "verdict {}", ran.verdict);
    if ran.verdict == DROP {
        return;
    }
    let out = &ran.octets;
    assert_eq!(out[..ETHERNET], octets[..ETHERNET], "addresses of the frame");
    let Some(before) = Segment::read(octets) else {
        assert_eq!(out.len(), octets.len(), "grew, and is no segment");
        return;
    };
    let after = Segment::read(out).expect("a segment stays one");
    assert!(after.whole.len().abs_diff(before.whole.len()) <= REPORT, "grew by more than a report");
    assert_eq!(after.ip[12..20], before.ip[12..20], "addresses");
    assert_eq!(after.whole[..12], before.whole[..12], "ports and numbers");
    assert_eq!(after.payload(), before.payload(), "payload");
    if before.is_sound() {
        assert!(after.is_sound(), "a wrong checksum");
    }
}

/// A whole segment of TCP over IPv4, in one piece.
struct Segment<'a> {
    ip: &'a [u8],
    /// From TCP's header on.
    whole: &'a [u8],
}

impl<'a> Segment<'a> {
    fn read(frame: &'a [u8]) -> Option<Self> {
        let ip =
            frame.get(ETHERNET..).filter(|ip| frame[12..ETHERNET] == [8, 0] && ip.len() >= 20)?;
        let header = usize::from(ip[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let is_whole = ip[0] >> 4 == 4 && header >= 20 && ip[9] == 6;
        let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
        let whole = ip.get(header..total).filter(|tcp| tcp.len() >= 20)?;
        let offset = usize::from(whole[12] >> 4) * 4;
        let fits = (20..=whole.len()).contains(&offset);
        (is_whole && !is_fragment && fits).then(|| Self { ip: &ip[..header], whole })
    }

    fn payload(&self) -> &'a [u8] {
        &self.whole[usize::from(self.whole[12] >> 4) * 4..]
    }

    /// Whether both checksums are right.
    fn is_sound(&self) -> bool {
        let length = (self.whole.len() as u16).to_be_bytes();
        let pseudo = [&self.ip[12..20], &[0, 6], &length].concat();
        sum(&[self.ip]) == 0xffff && sum(&[&pseudo, self.whole]) == 0xffff
    }
}

/// The ones' complement sum; 0xffff over what has its right checksum in it.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 =
        words.map(|w| u64::from(w[0]) << 8 | u64::from(w.get(1).copied().unwrap_or(0))).sum();
    let mut folded = sum;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    folded as u16
}

/// An address and a port.
type End = ([u8; 4], u16);

/// A segment in a frame, with checksums.
fn tcp(from: End, to: End, flags: u8, (seq, ack): (u32, u32), options: &[u8]) -> Vec<u8> {
    segment(from, to, flags, (seq, ack), options, 0)
}

fn segment(
    from: End,
    to: End,
    flags: u8,
    (seq, ack): (u32, u32),
    options: &[u8],
    payload: usize,
) -> Vec<u8> {
    let mut body: Vec<u8> = [from.1, to.1].into_iter().flat_map(u16::to_be_bytes).collect();
    body.extend([seq, ack].into_iter().flat_map(u32::to_be_bytes));
    body.extend([((20 + options.len()) as u8 / 4) << 4, flags, 0x20, 0, 0, 0, 0, 0]);
    body.extend(options);
    body.extend((0..payload).map(|n| n as u8));
    let length = (body.len() as u16).to_be_bytes();
    let pseudo = [&from.0[..], &to.0, &[0, 6], &length].concat();
    let check = (!sum(&[&pseudo, &body])).to_be_bytes();
    body[16..18].copy_from_slice(&check);
    let mut ip = vec![0x45, 2];
    ip.extend((20 + body.len() as u16).to_be_bytes());
    ip.extend([0, 7, 0x40, 0, 64, 6, 0, 0]);
    ip.extend([from.0, to.0].concat());
    let check = (!sum(&[&ip])).to_be_bytes();
    ip[10..12].copy_from_slice(&check);
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend(ip);
    frame.extend(body);
    frame
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    const MSS: [u8; 8] = [2, 4, 5, 180, 1, 3, 3, 7];
    let with = |choice: u8, frame: Vec<u8>| [&[choice][..], &frame].concat();
    let syn = tcp(GUEST, PEER, SYN, (99, 0), &MSS);
    let answer = tcp(PEER, GUEST, SYN | ACK, (499, 100), &MSS);
    let data = |payload| segment(GUEST, PEER, ACK, (100, 500), &[], payload);
    let marked = {
        let mut frame = segment(PEER, GUEST, ACK, (500, 100), &[], 900);
        frame[ETHERNET + 1] |= 3;
        let at = ETHERNET + 10;
        frame[at..at + 2].fill(0);
        let check = (!sum(&[&frame[ETHERNET..ETHERNET + 20]])).to_be_bytes();
        frame[at..at + 2].copy_from_slice(&check);
        frame
    };
    let blocks = [&[1, 1, 5, 10][..], &700u32.to_be_bytes(), &900u32.to_be_bytes()].concat();
    let sacks = tcp(PEER, GUEST, ACK | ECE, (500, 100), &blocks);
    let mut fragment = data(100);
    fragment[ETHERNET + 6] = 0x20;
    let mut seeds = vec![
        ("syn", with(0, syn)),
        ("answer", with(4, answer)),
        ("data", with(8, data(1000))),
        ("data-dctcp", with(9, data(1000))),
        ("marked", with(12, marked.clone())),
        ("marked-dctcp", with(13, marked)),
        ("acknowledged", with(14, tcp(PEER, GUEST, ACK | ECE, (500, 900), &[]))),
        ("sacks", with(15, sacks)),
        ("reset", with(8, tcp(GUEST, PEER, 4, (100, 500), &[]))),
        ("ends", with(10, tcp(GUEST, PEER, ACK | 1, (100, 500), &[]))),
        ("fragment", with(8, fragment)),
    ];
    seeds.push(("cut", with(8, data(100)[..50].to_vec())));
    seeds
}
