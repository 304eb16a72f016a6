//! One flow under vCC's law, any segments in any order: no panic, and what is promised holds after each.
//!
//! Most segments are such as a connection could have, near what the flow knows; some are made up. What the guest
//! was shown is followed here independently of the law.

use proptest::prelude::*;
use weir_core::vcc::{
    ACK, AE, CWR, ECE, Edit, FIN, Flow, Phase, RST, SYN, Segment, Terms, Translation, Way,
};

const MSS: u32 = 1_460;
const EDITED: u16 = ECE | CWR;

/// How a case begins.
#[derive(Clone, Copy, Debug)]
enum Opening {
    /// The guest calls.
    Call,
    /// The guest is called.
    Called,
    /// The guest calls, and agrees on ECN by itself.
    Speaks,
    /// Seen from its middle.
    None,
}

/// A segment, relative to what the flow knows.
#[derive(Clone, Debug)]
struct Step {
    way: Way,
    /// Its numbers are anything.
    is_wild: bool,
    number: u32,
    octets: u32,
    window: u16,
    flags: u16,
    mss: u16,
    scale: u8,
    ecn: u8,
    told: Option<(u32, u32)>,
    wait: u32,
    share: u32,
}

fn flags() -> impl Strategy<Value = u16> {
    prop_oneof![
        12 => Just(ACK),
        4 => Just(ACK | ECE),
        3 => Just(ACK | CWR),
        1 => Just(ACK | FIN),
        1 => prop_oneof![Just(SYN), Just(SYN | EDITED), Just(SYN | ACK), Just(SYN | ACK | ECE)],
        1 => prop_oneof![Just(RST), Just(0), Just(SYN | EDITED | AE), any::<u16>()],
    ]
}

prop_compose! {
    fn step()(
        is_out in any::<bool>(),
        is_wild in prop::bool::weighted(0.05),
        number in any::<u32>(),
        octets in prop_oneof![Just(0), Just(MSS), 0..64 * MSS, Just(1), any::<u32>()],
        window in prop_oneof![Just(0), 0u16..100, any::<u16>()],
        flags in flags(),
        mss in prop_oneof![Just(0), Just(1_460), any::<u16>()],
        scale in prop_oneof![Just(8), any::<u8>()],
        ecn in 0u8..4,
        told in prop::option::of((any::<u32>(), any::<u32>())),
        wait in prop_oneof![8 => 0u32..3, 1 => 0u32..500, 1 => any::<u32>()],
        share in prop_oneof![3 => Just(u32::MAX), 1 => any::<u32>(), 1 => 0u32..100_000],
    ) -> Step {
        let way = if is_out { Way::Out } else { Way::In };
        Step { way, is_wild, number, octets, window, flags, mss, scale, ecn, told, wait, share }
    }
}

fn past(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

struct World {
    flow: Flow,
    terms: Terms,
    at: u32,
    /// The guest's right edge, since the flow is established.
    shown: Option<u32>,
    /// The most that was ever in flight.
    most: u32,
}

impl World {
    fn new(translation: Translation, opening: Opening, first: u32) -> Self {
        let terms = Terms::new(translation);
        let mut world = Self { flow: Flow::default(), terms, at: first, shown: None, most: 0 };
        let syn = Segment { window: 60_000, mss: MSS as u16, scale: 8, ..Segment::default() };
        let answer = first.wrapping_add(1);
        let out = Segment { seq: first, ..syn };
        let back = Segment { seq: 7, way: Way::In, ..syn };
        let script = match opening {
            Opening::Call => vec![
                Segment { flags: SYN, ..out },
                Segment { flags: SYN | ACK | ECE, ack: answer, ..back },
            ],
            Opening::Called => vec![
                Segment { flags: SYN | EDITED, ..back },
                Segment { flags: SYN | ACK, ..out },
                Segment { flags: ACK, ack: answer, window: 500, mss: 0, scale: 0, ..back },
            ],
            Opening::Speaks => vec![
                Segment { flags: SYN | EDITED, ..out },
                Segment { flags: SYN | ACK | ECE, ack: answer, ..back },
            ],
            Opening::None => Vec::new(),
        };
        for segment in script {
            world.flow.handle(&segment, &world.terms);
        }
        world
    }

    fn segment(&mut self, step: &Step) -> Segment {
        self.at = self.at.wrapping_add(step.wait);
        let (una, nxt) = self.flow.outstanding();
        let flight = nxt.wrapping_sub(una);
        // The next, the first again, or something between; acknowledged is something of what was sent.
        let near = match (step.way, step.number % 8) {
            (Way::Out, 0..6) => nxt,
            (Way::Out, 6) => una,
            (Way::In, 0..2) => una,
            _ => una.wrapping_add(step.number / 8 % flight.saturating_add(2)),
        };
        let near = if step.is_wild { step.number } else { near };
        let (seq, ack) = match step.way {
            Way::Out => (near, 8),
            Way::In => (8, near),
        };
        let (told_octets, told_marked) = step.told.unwrap_or_default();
        Segment {
            at: self.at,
            seq,
            ack,
            octets: step.octets,
            told_octets,
            told_marked,
            window: step.window,
            mss: step.mss,
            flags: step.flags,
            scale: step.scale,
            ecn: step.ecn,
            way: step.way,
            told: u8::from(step.told.is_some()),
            stamps: (step.number >> 31) as u8,
            spare: 0,
        }
    }

    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let segment = self.segment(step);
        self.terms.share = step.share;
        let before = self.flow;
        let edit = self.flow.handle(&segment, &self.terms);
        let after = self.flow;
        let (una, nxt) = before.outstanding();
        self.most = self.most.max(nxt.wrapping_sub(una));
        prop_assert_eq!(edit.what & Edit::WINDOW != 0, edit.window != segment.window);
        prop_assert_eq!(edit.what & Edit::FLAGS != 0, edit.flags != segment.flags);
        prop_assert_eq!(edit.what & Edit::ECN != 0, edit.ecn != segment.ecn);
        prop_assert!(edit.flags & !EDITED == segment.flags & !EDITED, "no flag but ECE and CWR");
        if after.is_watched() {
            prop_assert_eq!(edit.what & !(Edit::WINDOW | Edit::TAKE), 0, "its ECN is its own");
        }
        if after.phase() == Phase::Alone {
            prop_assert_eq!(edit.what, 0);
        }
        if segment.flags & SYN != 0 {
            check_syn(&segment, edit)?;
        }
        if before.edge().is_some() && after.edge().is_some() && segment.flags & (SYN | RST) == 0 {
            self.check_windows(before, &segment, edit)?;
            if after.has_virtual_ecn() && segment.way == Way::In {
                prop_assert_eq!((edit.ecn, edit.flags & EDITED), (0, 0), "the guest is deaf");
            }
        }
        if after.edge().is_none() {
            self.shown = None;
        }
        Ok(())
    }

    /// What the guest is shown, and what W did.
    fn check_windows(
        &mut self,
        before: Flow,
        segment: &Segment,
        edit: Edit,
    ) -> Result<(), TestCaseError> {
        let after = self.flow;
        let (una, nxt) = before.outstanding();
        let counts = segment.flags & ACK != 0 && !past(una, segment.ack) && !past(segment.ack, nxt);
        if segment.way == Way::In && counts {
            let scale = after.scale().expect("established");
            let shown = u32::from(edit.window) << scale;
            let edge = segment.ack.wrapping_add(shown);
            if after.phase() == Phase::Open && after.has_virtual_ecn() {
                let promised = before.edge().filter(|old| past(*old, segment.ack));
                let promised = promised.map_or(0, |old| old.wrapping_sub(segment.ack));
                let bound = promised.max(2 * self.most).max(65_535).max(after.floor());
                prop_assert!(shown < bound + (1 << scale), "{shown} of {bound}");
            }
            if edit.window != segment.window {
                prop_assert!(edit.window < segment.window, "raised");
                prop_assert!(shown >= after.floor(), "{shown} octets");
                let stands = self.shown.is_none_or(|old| !past(old, edge));
                prop_assert!(stands, "back from {:?} to {edge}", self.shown);
            }
            let old = self.shown.unwrap_or(edge);
            self.shown = Some(if past(edge, old) { edge } else { old });
        } else {
            prop_assert_eq!(edit.window, segment.window);
        }
        if let Some(window) = after.window() {
            prop_assert!((after.floor()..=1 << 30).contains(&window), "{window}");
        }
        if let Some(recover) = before.recover()
            && !past(after.outstanding().0, recover)
        {
            prop_assert_eq!(before.target(), after.target(), "a second cut in one window");
        }
        Ok(())
    }
}

/// What was changed can be told, and undone: only flags, and none that the sender had set itself.
fn check_syn(segment: &Segment, edit: Edit) -> Result<(), TestCaseError> {
    let has_report = if segment.way == Way::Out { Edit::TELL } else { Edit::TAKE };
    prop_assert_eq!(edit.what & !(Edit::FLAGS | has_report), 0);
    let is_told = edit.what & Edit::TAKE == 0 || segment.told != 0;
    prop_assert!(is_told, "nothing is taken out that was not there");
    match segment.way {
        Way::Out if edit.what & Edit::FLAGS != 0 => {
            prop_assert_eq!(segment.flags & (EDITED | AE), 0);
            prop_assert_eq!(edit.flags & !EDITED, segment.flags);
            let asks = if segment.flags & ACK == 0 { EDITED } else { ECE };
            prop_assert_eq!(edit.flags, segment.flags | asks);
        }
        Way::In if edit.what & Edit::FLAGS != 0 => {
            prop_assert!(segment.flags & ACK != 0, "a SYN that asks is shown as it is");
            prop_assert_eq!(edit.flags, segment.flags & !EDITED);
        }
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn whatever_segments_come_a_flow_keeps_what_is_promised(
        translation in prop::sample::select(vec![
            Translation::None, Translation::VirtualEcn, Translation::Dctcp, Translation::CubicEcn,
            Translation::Auto,
        ]),
        opening in prop::sample::select(vec![
            Opening::Call, Opening::Called, Opening::Speaks, Opening::None,
        ]),
        first in prop_oneof![any::<u32>(), u32::MAX - 100_000..=u32::MAX],
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut world = World::new(translation, opening, first);
        for step in &steps {
            world.play(step)?;
        }
        let octets = world.flow.to_octets();
        prop_assert_eq!(octets[60], world.flow.phase() as u8);
    }

    /// The SYN-ACK as one guest sent it is what the other sees, though their hosts agreed on ECN with it.
    #[test]
    fn two_hosts_agree_on_ecn_and_neither_guest_sees_it(
        first in any::<u32>(),
        window in any::<u16>(),
    ) {
        let terms = Terms::new(Translation::VirtualEcn);
        let (mut client, mut server) = (Flow::default(), Flow::default());
        let syn = Segment { seq: first, flags: SYN, window, scale: 8, ..Segment::default() };
        let sent = client.handle(&syn, &terms);
        let came = Segment { flags: sent.flags, way: Way::In, ..syn };
        prop_assert_eq!(server.handle(&came, &terms).what, 0);
        let answer = Segment {
            seq: 5,
            ack: first.wrapping_add(1),
            flags: SYN | ACK,
            window,
            scale: 3,
            ..Segment::default()
        };
        let sent = server.handle(&answer, &terms);
        let came = Segment { flags: sent.flags, way: Way::In, ..answer };
        let seen = client.handle(&came, &terms);
        prop_assert_eq!((seen.flags, seen.window), (answer.flags, answer.window));
        prop_assert!(client.has_virtual_ecn() && server.has_virtual_ecn());
    }
}
