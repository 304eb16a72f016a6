//! vCC's law in C (`bpf/vcc_law.h`), as the kernel runs it, against the one in Rust (`weir_core::vcc`): many
//! flows, segments as connections have them and others, edits and state octet by octet. Needs root, and fails
//! without.

#[path = "common/law.rs"]
mod law;
#[path = "common/random.rs"]
mod random;

use law::{Aligned, Law, STEPS};
use random::Random;
use std::collections::BTreeMap;
use weir_core::vcc::{
    ACK, AE, CWR, ECE, ECT_0, Edit, FIN, Flow, Phase, RST, SYN, Segment, Terms, Translation, Way,
};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/vcc_law.bpf.o")));

/// As in `vcc_law.bpf.c`.
const FLOWS: usize = 256;
const CALLS: u64 = 5;
const MSS: u32 = 1_460;

fn input(segment: &Segment, terms: &Terms, flow: usize) -> Vec<u8> {
    let s = segment;
    let words = [s.at, s.seq, s.ack, s.octets, s.told_octets, s.told_marked];
    let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    octets.extend([s.window, s.mss, s.flags].into_iter().flat_map(u16::to_ne_bytes));
    octets.extend([s.scale, s.ecn, s.way as u8, s.told, 0, 0]);
    octets.extend([terms.share, terms.patience].into_iter().flat_map(u32::to_ne_bytes));
    octets.extend([terms.translation as u8, 0, 0, 0]);
    octets.extend([flow as u32, 0].into_iter().flat_map(u32::to_ne_bytes));
    assert_eq!(octets.len(), 56);
    octets
}

fn output(edit: Edit, flow: &Flow) -> Vec<u8> {
    let mut octets = edit.told_octets.to_ne_bytes().to_vec();
    octets.extend(edit.told_marked.to_ne_bytes());
    octets.extend(edit.window.to_ne_bytes());
    octets.extend(edit.flags.to_ne_bytes());
    octets.extend([edit.ecn, edit.what, 0, 0]);
    octets.extend(flow.to_octets());
    octets
}

impl Random {
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn word(&mut self) -> u32 {
        self.next() as u32
    }

    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }

    /// Numbers and flags that have nothing to do with anything.
    fn anything(&mut self) -> Segment {
        Segment {
            at: 0,
            seq: self.word(),
            ack: self.word(),
            octets: if self.one_in(2) { self.word() } else { self.below(70_000) as u32 },
            told_octets: self.word(),
            told_marked: self.word(),
            window: self.word() as u16,
            mss: self.word() as u16,
            flags: self.word() as u16 & self.word() as u16,
            scale: self.word() as u8,
            ecn: self.below(4) as u8,
            way: self.of(&[Way::Out, Way::In]),
            told: self.below(2) as u8,
            spare: 0,
        }
    }

    /// A SYN of the connection that `flow` is, or of a new one.
    fn syn(&mut self, flow: &Flow) -> Segment {
        let (first, _) = flow.outstanding();
        let is_begun = flow.phase() == Phase::Opening && !self.one_in(20);
        let base = Segment {
            window: self.of(&[0, 1_000, 29_200, 65_535]),
            mss: self.of(&[1_460, 1_460, 1_460, 0, 8_960, 100]),
            scale: self.of(&[8, 8, 8, 8, 1, 0, 15, 13]),
            octets: self.of(&[0, 0, 0, 0, 100]),
            ..Segment::default()
        };
        let asks = self.of(&[0, 0, 0, ECE | CWR, ECE | CWR | AE]);
        let agrees = self.of(&[0, ECE, ECE, ECE, ECE | CWR]);
        // The peer's number is the same each time, but rarely.
        let peer = if self.one_in(30) { self.word() } else { 0xffff_0000 };
        let guest = if is_begun { first.wrapping_sub(1) } else { self.word() };
        match self.below(if is_begun { 5 } else { 2 }) {
            0 => Segment { seq: guest, flags: SYN | asks, ..base },
            1 => Segment { seq: peer, flags: SYN | agrees | CWR, way: Way::In, ..base },
            2 => Segment { seq: guest, ack: peer, flags: SYN | ACK | (asks & ECE), ..base },
            _ => {
                let (flags, way) = (SYN | ACK | agrees, Way::In);
                Segment { seq: peer, ack: first, flags, way, octets: 0, ..base }
            }
        }
    }

    /// A segment of an established connection, or of one that is about to be.
    fn usual(&mut self, flow: &Flow) -> Segment {
        let (una, nxt) = flow.outstanding();
        let flight = nxt.wrapping_sub(una);
        let window = self.of(&[60_000, 60_000, 60_000, 500, 100, 0, 65_535]);
        let peer = Segment { seq: 7, window, way: Way::In, ..Segment::default() };
        let guest = Segment { ack: 8, flags: ACK, window, ..Segment::default() };
        let ecn = self.of(&[0, ECT_0, ECT_0, 3]);
        let data = MSS * (1 + self.below(16) as u32);
        match self.below(20) {
            0..6 => {
                // What was lost before the port leaves gaps: any number is in flight, or as much as W allows.
                let size = self.of(&[10, 20, 26, 29, 29, 30]);
                let lost = match self.below(64) {
                    0..2 => self.below(1u64 << size) as u32,
                    2..9 => flow.window().unwrap_or(0).saturating_sub(flight),
                    _ => 0,
                };
                let (seq, ecn) = (nxt.wrapping_add(lost), self.of(&[0, 0, 0, 2]));
                Segment { seq, octets: data, ecn, ..guest }
            }
            6 => Segment { seq: una, octets: MSS, ..guest },
            7 => Segment { seq: nxt, flags: self.of(&[ACK, ACK, ACK | ECE, ACK | CWR]), ..guest },
            8 => {
                let flags = self.of(&[ACK, ACK | CWR]);
                Segment { ack: una, octets: 1_448, flags, ecn, ..peer }
            }
            9..12 => Segment { ack: una, flags: ACK, ..peer },
            12 => {
                let ack = una.wrapping_add(self.below(u64::from(flight) + 2) as u32);
                Segment { ack, octets: 1_448, flags: ACK, ecn, ..peer }
            }
            n => {
                let all = n > 16;
                let some = self.below(u64::from(flight) + 1) as u32;
                let ack = una.wrapping_add(if all { flight } else { some });
                let flags = self.of(&[ACK, ACK, ACK, ACK, ACK | ECE]);
                // Some hosts report: totals that go on with what is acknowledged.
                let told = self.below(2) as u8;
                let marked = ack.wrapping_sub(self.below(1_000) as u32) / 4;
                Segment { ack, flags, told, told_octets: ack, told_marked: marked, ..peer }
            }
        }
    }

    fn segment(&mut self, flow: &Flow) -> Segment {
        let mut segment = match flow.phase() {
            _ if self.one_in(50) => self.anything(),
            Phase::New | Phase::Alone if !self.one_in(4) => self.syn(flow),
            Phase::Opening if !self.one_in(3) => self.syn(flow),
            _ if self.one_in(400) => self.syn(flow),
            _ => self.usual(flow),
        };
        if self.one_in(500) {
            segment.flags |= self.of(&[FIN, FIN, RST]);
        }
        segment
    }
}

/// What the inputs came to: how often each phase of each translation, lowered windows, other edits.
#[derive(Default)]
struct Seen {
    phases: BTreeMap<(u8, u8), usize>,
    lowered: usize,
    edited: usize,
}

impl Seen {
    fn count(&mut self, translation: Translation, flow: &Flow, edit: Edit) {
        *self.phases.entry((translation as u8, flow.phase() as u8)).or_default() += 1;
        self.lowered += usize::from(edit.what & Edit::WINDOW != 0);
        self.edited += usize::from(edit.what & !Edit::WINDOW != 0);
    }

    fn check(&self, steps: usize) {
        for translation in [Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn] {
            let phases = [Phase::Opening, Phase::Alone, Phase::Open, Phase::Reduce, Phase::Avoid];
            for phase in phases.into_iter().chain([Phase::SlowStart]) {
                let times = self.phases.get(&(translation as u8, phase as u8));
                assert!(times.is_some_and(|n| *n >= 20), "{translation:?} {phase:?}: {times:?}");
            }
        }
        assert!(self.lowered > steps / 50, "{} of {steps} windows were lowered", self.lowered);
        assert!(self.edited > steps / 50, "{} of {steps} were edited otherwise", self.edited);
    }
}

#[test]
fn three_hundred_thousand_segments_are_edited_alike_in_c_and_in_rust() {
    const ALL: [Translation; 4] =
        [Translation::None, Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn];
    let kernel = Law::load(&OBJECT.0);
    let mut flows = [Flow::default(); FLOWS];
    let (mut seen, mut steps, mut nanos) = (Seen::default(), 0, Vec::new());
    let (mut at, mut which) = (u32::MAX - 100_000, 0);
    for seed in 0..CALLS {
        let mut random = Random(seed);
        let (mut inputs, mut wanted) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            // A connection has some segments in a row, and now and then all wait.
            if random.one_in(64) {
                which = random.below(FLOWS as u64) as usize;
            }
            if random.one_in(16) {
                at = at.wrapping_add(random.below(5) as u32);
            }
            if random.one_in(100) {
                at = at.wrapping_add(random.below(600) as u32);
            }
            if random.one_in(2_000) {
                at = at.wrapping_add(random.below(200_000) as u32);
            }
            let flow = &mut flows[which];
            let segment = Segment { at, ..random.segment(flow) };
            let mut terms = Terms::new(ALL[which % ALL.len()]);
            if random.one_in(3) {
                terms.share = if random.one_in(4) { random.word() } else { 40_000 };
            }
            let edit = flow.handle(&segment, &terms);
            seen.count(terms.translation, flow, edit);
            inputs.extend(input(&segment, &terms, which));
            wanted.push((segment, output(edit, flow)));
        }
        let (outputs, each) = kernel.run(STEPS, &inputs);
        assert_eq!(outputs.len(), wanted.len());
        for (n, (got, (segment, want))) in outputs.iter().zip(&wanted).enumerate() {
            assert_eq!(got, want, "seed {seed}, input {n}: {segment:?}");
            steps += 1;
        }
        nanos.push(each);
    }
    assert!(steps >= 300_000);
    seen.check(steps);
    nanos.sort_unstable();
    println!("one segment, with what surrounds it: {} ns", nanos[nanos.len() / 2]);
}
