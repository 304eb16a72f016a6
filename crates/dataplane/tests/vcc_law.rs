//! vCC's law in C (`bpf/vcc_law.h`), as the kernel runs it, against the one in Rust
//! (`weir_core::vcc`): many flows, segments as connections have them and others, edits and state
//! octet by octet. Needs root, and fails without.

use crate::law::{Aligned, Law, STEPS};
use crate::random::Random;
use std::collections::BTreeMap;
use weir_core::vcc::{Edit, Flow, Phase, Segment, Terms, Translation};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/vcc_law.bpf.o")));

/// As in `vcc_law.bpf.c`.
const FLOWS: usize = 256;
const CALLS: u64 = 5;

fn input(segment: &Segment, terms: &Terms, flow: usize) -> Vec<u8> {
    let s = segment;
    let words = [s.at, s.seq, s.ack, s.octets, s.told_octets, s.told_marked];
    let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    octets.extend([s.window, s.mss, s.flags].into_iter().flat_map(u16::to_ne_bytes));
    octets.extend([s.scale, s.ecn, s.way as u8, s.told, s.stamps, 0]);
    octets.extend([terms.share, terms.patience].into_iter().flat_map(u32::to_ne_bytes));
    octets.extend([terms.translation as u8, terms.is_within, 0, 0]);
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

/// What the inputs came to: how often each phase of each translation, lowered windows, other edits.
#[derive(Default)]
struct Seen {
    phases: BTreeMap<(u8, u8), usize>,
    lowered: usize,
    edited: usize,
    /// Connections that `auto` watches, by segments; and how often it found a guest deaf.
    watched: usize,
    found: usize,
    /// How often α of `dctcp` rose, and fell, by echoes because reports stayed out.
    untold: [usize; 2],
}

/// α of a flow of `dctcp` whose peer's host has reported.
fn alpha(flow: &Flow) -> Option<u16> {
    const REPORTED: u16 = 1 << 10;
    let octets = flow.to_octets();
    let half = |at: usize| u16::from_ne_bytes([octets[at], octets[at + 1]]);
    let counts = octets[63] == Translation::Dctcp as u8 && half(58) & REPORTED != 0;
    (flow.has_virtual_ecn() && counts).then(|| half(52))
}

impl Seen {
    fn count(&mut self, translation: Translation, flow: &Flow, edit: Edit) {
        *self.phases.entry((translation as u8, flow.phase() as u8)).or_default() += 1;
        self.lowered += usize::from(edit.what & Edit::WINDOW != 0);
        self.edited += usize::from(edit.what & !Edit::WINDOW != 0);
    }

    fn check(&self, steps: usize) {
        for translation in
            [Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn, Translation::Auto]
        {
            let phases = [Phase::Opening, Phase::Alone, Phase::Open, Phase::Reduce, Phase::Avoid];
            for phase in phases.into_iter().chain([Phase::SlowStart]) {
                let times = self.phases.get(&(translation as u8, phase as u8));
                assert!(times.is_some_and(|n| *n >= 20), "{translation:?} {phase:?}: {times:?}");
            }
        }
        assert!(self.lowered > steps / 50, "{} of {steps} windows were lowered", self.lowered);
        assert!(self.edited > steps / 50, "{} of {steps} were edited otherwise", self.edited);
        assert!(self.watched > steps / 100, "{} of {steps} were watched", self.watched);
        assert!(self.found >= 20, "{} guests were found deaf", self.found);
        assert!(self.untold.iter().all(|n| *n >= 100), "{:?} without a report", self.untold);
    }
}

#[test]
fn three_hundred_thousand_segments_are_edited_alike_in_c_and_in_rust() {
    const ALL: [Translation; 5] = [
        Translation::None,
        Translation::VirtualEcn,
        Translation::Dctcp,
        Translation::CubicEcn,
        Translation::Auto,
    ];
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
            terms.is_within = u8::from(segment.ack.wrapping_add(segment.seq).is_multiple_of(16));
            let (was_watched, alpha_was) = (flow.is_watched(), alpha(flow));
            let edit = flow.handle(&segment, &terms);
            seen.watched += usize::from(was_watched);
            seen.found += usize::from(was_watched && flow.has_virtual_ecn());
            if let (Some(was), Some(is), 0) = (alpha_was, alpha(flow), segment.told) {
                seen.untold[0] += usize::from(is > was);
                seen.untold[1] += usize::from(is < was);
            }
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
