//! Segments as connections have them, and others: for tests that hold vCC's law in C and in Rust
//! equal.

use crate::random::Random;
use weir_core::vcc::{ACK, AE, CWR, ECE, ECT_0, FIN, Flow, Phase, RST, SYN, Segment, Way};

const MSS: u32 = 1_460;

impl Random {
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.next() as u32
    }

    pub(crate) fn of<T: Copy>(&mut self, some: &[T]) -> T {
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
            stamps: self.below(2) as u8,
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
            stamps: self.of(&[0, 1, 1]),
            told: self.of(&[0, 1, 1]),
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
                // What was lost before the port leaves gaps: any number is in flight, or as much as
                // W allows.
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

    /// What passes while a guest that agreed on ECN by itself does not heed it.
    fn unheard(&mut self, flow: &Flow) -> Segment {
        let (_, nxt) = flow.outstanding();
        let segment = Segment { window: 60_000, flags: ACK, ..Segment::default() };
        if self.one_in(2) {
            return Segment { seq: nxt, ack: 8, octets: MSS, ecn: ECT_0, ..segment };
        }
        let flags = if self.one_in(10) { ACK } else { ACK | ECE };
        Segment { seq: 7, ack: nxt, flags, way: Way::In, ..segment }
    }

    pub(crate) fn segment(&mut self, flow: &Flow) -> Segment {
        let mut segment = match flow.phase() {
            _ if self.one_in(50) => self.anything(),
            Phase::New | Phase::Alone if !self.one_in(4) => self.syn(flow),
            Phase::Opening if !self.one_in(3) => self.syn(flow),
            _ if self.one_in(400) => self.syn(flow),
            _ if flow.is_watched() && !self.one_in(8) => self.unheard(flow),
            _ => self.usual(flow),
        };
        if self.one_in(500) {
            segment.flags |= self.of(&[FIN, FIN, RST]);
        }
        segment
    }
}
