//! vCC at VMs' ports: guests' congestion control, translated by the law that the kernel has.
//!
//! Problem   The law wants what a port sees, headers with windows and numbers of octets; here there
//!           are none: packets count segments, and no ACK carries a window.
//! Approach  Each TCP flow has a place at both of its ports. What passes one is told to the law as
//!           the header that it would have; flags and the ECN field of its answer go into the
//!           packet, and the window to the guest as the last segment that it may send. Flows begin
//!           established, so the handshake is played here once, which also says which ends speak
//!           ECN.
//! Promises  A guest that is translated learns of marks by its window alone.
//! Not here  The law: `weir_core::vcc`. Window budgets: see `shares`. Reports
//!           of `dctcp` and policing, as in the kernel's programs. Connections that come and go.

use super::shares::{Claim, Shares};
use crate::packet::{CE, CWR, ECE, ECT, Kind, Packet};
use weir_core::vcc::{self, Credit, Edit, Flow, Segment, Terms, Translation, Way, ticks};
use weir_units::{Bytes, Rate, SortedMap, Time};

/// The window of a SYN, which is not scaled: the largest.
const FIRST_WINDOW: u16 = 65_535;
/// The number of a guest's SYN: its first octet is number 0.
const FIRST: u32 = u32::MAX;

/// What asks for ECN in a SYN.
const ASKS: u16 = vcc::ECE | vcc::CWR;

/// What a guest's TCP makes of ECN, and whether its port translates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Speaker {
    /// It asks for ECN when it calls.
    pub(crate) asks: bool,
    /// It agrees to ECN when it is called.
    pub(crate) agrees: bool,
    pub(crate) translated: bool,
    /// Its budget and class, if it sends on one.
    pub(crate) claim: Option<Claim>,
}

/// All ports.
#[derive(Debug)]
pub(crate) struct Translator {
    terms: Terms,
    /// Octets of a full segment.
    payload: u32,
    /// What receivers offer, as it is in their headers, and by how many bits that is shifted.
    offered: u16,
    shift: u8,
    shares: Shares,
    /// What pairs with a floor have sent of it, by pair.
    credits: SortedMap<u32, Credit>,
    /// By TCP flow.
    flows: Vec<Ports>,
}

/// The pair of a flow's data as its source's host has it at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paced {
    /// Its number.
    pub(crate) pair: u32,
    /// Zero if it is promised nothing.
    pub(crate) floor: Rate,
}

/// A TCP flow at both of its ports; none where no port translates, and nothing else bounds it.
#[derive(Debug)]
struct Ports {
    sender: Option<Box<Flow>>,
    receiver: Option<Box<Flow>>,
    claim: Option<Claim>,
    life: Life,
    /// One more than the last segment that the sender may send.
    edge: u32,
}

/// A flow counts on a budget once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Before,
    Now,
    Over,
}

impl Translator {
    /// For segments of `payload` octets and receivers that offer so many of them.
    pub(crate) fn new(
        translation: Translation,
        shares: Shares,
        (payload, window): (u16, u32),
    ) -> Self {
        let payload = u32::from(payload);
        let octets = u64::from(window) * u64::from(payload);
        let fits = |shift: &u8| octets >> shift <= u64::from(u16::MAX);
        let shift = (0..14).find(fits).unwrap_or(14);
        let offered = (octets >> shift).min(u16::MAX.into()) as u16;
        let terms = Terms::new(translation);
        let (credits, flows) = (SortedMap::new(), Vec::new());
        Self { terms, payload, offered, shift, shares, credits, flows }
    }

    /// The next TCP flow: whether its sending guest speaks ECN.
    pub(crate) fn open(&mut self, (from, to): (Speaker, Speaker)) -> bool {
        let is_translated =
            |guest: Speaker| guest.translated && self.terms.translation != Translation::None;
        let terms = |guest: Speaker| {
            if is_translated(guest) { self.terms } else { Terms::new(Translation::None) }
        };
        let has_place = |guest: Speaker| is_translated(guest) || guest.claim.is_some();
        let flow = |guest: Speaker| has_place(guest).then(Box::<Flow>::default);
        let edge = if has_place(from) { u32::from(FIRST_WINDOW) / self.payload } else { u32::MAX };
        let (sender, receiver, life) = (flow(from), flow(to), Life::Before);
        let mut ports = Ports { sender, receiver, claim: from.claim, life, edge };
        let terms = (terms(from), terms(to));
        let syn = Segment {
            window: FIRST_WINDOW,
            mss: self.payload as u16,
            scale: self.shift + 1,
            ..Segment::default()
        };
        let asks = if from.asks { ASKS } else { 0 };
        let call = Segment { seq: FIRST, flags: vcc::SYN | asks, ..syn };
        let came = ports.cross(&terms, call, true);
        let agrees = to.agrees && came & ASKS == ASKS;
        let flags = vcc::SYN | vcc::ACK | if agrees { vcc::ECE } else { 0 };
        let answer = Segment { seq: FIRST, ack: 0, flags, ..syn };
        let got = ports.cross(&terms, answer, false);
        let last = Segment { flags: vcc::ACK, window: self.offered, ..Segment::default() };
        ports.cross(&terms, last, true);
        self.flows.push(ports);
        from.asks && got & vcc::ECE != 0
    }

    /// A TCP flow sends its first packet.
    pub(crate) fn begin(&mut self, flow: u32) {
        self.enter(flow, Life::Before, Life::Now);
    }

    /// The application of a TCP flow has nothing more to send.
    pub(crate) fn end(&mut self, flow: u32) {
        self.enter(flow, Life::Now, Life::Over);
        self.enter(flow, Life::Before, Life::Over);
    }

    fn enter(&mut self, flow: u32, from: Life, to: Life) {
        let Some(ports) = self.flows.get_mut(flow as usize) else { return };
        if ports.life != from {
            return;
        }
        ports.life = to;
        if from != Life::Now && to != Life::Now {
            return;
        }
        if let Some(claim) = ports.claim {
            self.shares.turn(claim, to == Life::Now);
        }
    }

    /// A guest sends a packet of a pair whose rates are set, or not.
    pub(crate) fn leave(&mut self, now: u64, packet: &mut Packet, paced: Option<Paced>) {
        self.pass(now, packet, Way::Out, None);
        let paced = paced.filter(|paced| packet.kind == Kind::Data && paced.floor > Rate::ZERO);
        if let Some(Paced { pair, floor, .. }) = paced {
            self.credits.entry(pair).or_default().spend(now, Bytes::new(packet.size.into()), floor);
        }
    }

    /// A packet comes to a guest. For an ACK, its data's pair, if that has rates.
    pub(crate) fn come(&mut self, now: u64, packet: &mut Packet, paced: Option<Paced>) {
        self.pass(now, packet, Way::In, paced);
    }

    /// Whether a pair sends no more than its floor.
    fn is_within(&self, now: u64, paced: Option<Paced>) -> bool {
        let paced = paced.filter(|paced| paced.floor > Rate::ZERO);
        let credit = |paced: Paced| self.credits.get(&paced.pair).copied().unwrap_or_default();
        paced.is_some_and(|paced| credit(paced).is_left(now))
    }

    /// One more than the last segment that the sender of this TCP flow may send.
    pub(crate) fn edge(&self, flow: u32) -> u32 {
        self.flows.get(flow as usize).map_or(u32::MAX, |ports| ports.edge)
    }

    fn pass(&mut self, now: u64, packet: &mut Packet, way: Way, paced: Option<Paced>) {
        let is_data = match packet.kind {
            Kind::Data => true,
            Kind::Ack => false,
            _ => return,
        };
        let segment = self.header(now, packet, way);
        let is_within = self.is_within(now, paced).into();
        let Some(ports) = self.flows.get_mut(packet.flow as usize) else { return };
        let is_sender = is_data == (way == Way::Out);
        let flow = if is_sender { &mut ports.sender } else { &mut ports.receiver };
        let Some(flow) = flow else { return };
        let (una, _) = flow.outstanding();
        let share = if is_sender { self.shares.of(ports.claim) } else { u32::MAX };
        // What it is translated into was said when it opened.
        let edit = flow.handle(&segment, &Terms { share, is_within, ..self.terms });
        if edit.what & Edit::ECN != 0 {
            packet.bits = packet.bits & !(ECT | CE) | bits_of(edit.ecn);
        }
        // The other of these two bits says something else, in data as in ACKs.
        let (bit, flag) = flag_of(is_data);
        if edit.what & Edit::FLAGS != 0 {
            packet.bits &= !bit;
            packet.bits |= if edit.flags & flag != 0 { bit } else { 0 };
        }
        if is_sender && !is_data {
            // What is left as it was, is what the receiver offers: the guest knows that by itself.
            let edge = if edit.what & Edit::WINDOW == 0 {
                u32::MAX
            } else {
                packet.seq.saturating_add((u32::from(edit.window) << self.shift) / self.payload)
            };
            // Windows of the past do not count, and without progress only a larger one does, as in
            // Linux.
            let progress = segment.ack.wrapping_sub(una).cast_signed();
            if progress > 0 || (progress == 0 && edge > ports.edge) {
                ports.edge = edge;
            }
        }
    }

    /// The header that a packet would have.
    fn header(&self, now: u64, packet: &Packet, way: Way) -> Segment {
        let octets = packet.seq.wrapping_mul(self.payload);
        let is_data = packet.kind == Kind::Data;
        let (bit, flag) = flag_of(is_data);
        Segment {
            at: ticks(Time::from_nanos(now)),
            seq: if is_data { octets } else { 0 },
            ack: if is_data { 0 } else { octets },
            octets: if is_data { self.payload } else { 0 },
            window: self.offered,
            flags: vcc::ACK | if packet.bits & bit != 0 { flag } else { 0 },
            ecn: match packet.bits & (ECT | CE) {
                0 => vcc::NOT_ECT,
                ECT => vcc::ECT_0,
                _ => vcc::CE,
            },
            way,
            ..Segment::default()
        }
    }
}

impl Ports {
    /// A segment of the handshake passes both ports: its flags at the other guest.
    fn cross(&mut self, terms: &(Terms, Terms), segment: Segment, from_sender: bool) -> u16 {
        let Self { sender, receiver, .. } = self;
        let (ours, theirs) = ((sender, &terms.0), (receiver, &terms.1));
        let (first, second) = if from_sender { (ours, theirs) } else { (theirs, ours) };
        let mut flags = segment.flags;
        for ((flow, terms), way) in [(first, Way::Out), (second, Way::In)] {
            if let Some(flow) = flow {
                flags = flow.handle(&Segment { flags, way, ..segment }, terms).flags;
            }
        }
        flags
    }
}

/// Which bit of a packet is which flag: data carry CWR, ACKs ECE.
const fn flag_of(is_data: bool) -> (u8, u16) {
    if is_data { (CWR, vcc::CWR) } else { (ECE, vcc::ECE) }
}

const fn bits_of(ecn: u8) -> u8 {
    match ecn {
        vcc::NOT_ECT => 0,
        vcc::CE => ECT | CE,
        _ => ECT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: u16 = 1_448;
    const OFFERED: u32 = 4_344;
    const SIZES: (u16, u32) = (PAYLOAD, OFFERED);

    fn speaker(ecn: Option<bool>, translated: bool) -> Speaker {
        let (asks, agrees) = (ecn == Some(true), ecn != Some(false));
        Speaker { asks, agrees, translated, claim: None }
    }

    fn packet(kind: Kind, seq: u32, bits: u8) -> Packet {
        Packet { seq, bits, ..Packet::wake(kind, 0) }
    }

    /// A flow from a guest without ECN to another, each at a port that translates or not.
    fn opened(to: Speaker) -> Translator {
        let mut ports = Translator::new(Translation::VirtualEcn, Shares::default(), SIZES);
        assert!(!ports.open((speaker(Some(false), true), to)), "the guest itself has none");
        ports
    }

    fn left(ports: &mut Translator, kind: Kind, seq: u32, bits: u8) -> u8 {
        let mut packet = packet(kind, seq, bits);
        ports.leave(0, &mut packet, None);
        packet.bits
    }

    fn came(ports: &mut Translator, kind: Kind, seq: u32, bits: u8) -> u8 {
        let mut packet = packet(kind, seq, bits);
        ports.come(0, &mut packet, None);
        packet.bits
    }

    #[test]
    fn ecn_is_spoken_where_both_ends_or_their_ports_speak_it() {
        let open = |from, to| {
            let mut ports = Translator::new(Translation::VirtualEcn, Shares::default(), SIZES);
            let speaks = ports.open((from, to));
            (speaks, left(&mut ports, Kind::Data, 0, if speaks { ECT } else { 0 }))
        };
        let (deaf, asks, plain) = (Some(false), Some(true), None);
        let bare = |ecn| speaker(ecn, false);
        let ported = |ecn| speaker(ecn, true);
        assert_eq!(open(bare(asks), bare(plain)), (true, ECT));
        assert_eq!(open(bare(asks), bare(deaf)), (false, 0));
        assert_eq!(open(bare(asks), ported(deaf)), (true, ECT), "answered for");
        assert_eq!(open(ported(plain), bare(plain)), (false, ECT), "asked for");
        assert_eq!(open(ported(deaf), bare(deaf)), (false, 0));
        assert_eq!(open(ported(deaf), ported(deaf)), (false, ECT));
        assert_eq!(open(bare(plain), ported(plain)), (false, 0), "nobody asks");
    }

    #[test]
    fn a_mark_becomes_a_smaller_window_that_the_guest_alone_sees() {
        let mut ports = opened(speaker(None, false));
        for seq in 0..40 {
            assert_eq!(left(&mut ports, Kind::Data, seq, 0), ECT);
        }
        assert_eq!(came(&mut ports, Kind::Ack, 1, 0), 0);
        assert_eq!(ports.edge(0), 81, "twice the forty");
        assert_eq!(came(&mut ports, Kind::Ack, 2, ECE), 0, "hidden");
        assert_eq!(left(&mut ports, Kind::Data, 40, 0), ECT | CWR, "the network is told");
        (41..81).for_each(|seq| assert_eq!(left(&mut ports, Kind::Data, seq, 0), ECT));
        (3..=81).for_each(|seq| assert_eq!(came(&mut ports, Kind::Ack, seq, 0), 0));
        // Half of 39 that were in flight, and one more for the one window that was used since.
        assert_eq!(ports.edge(0), 81 + 19 + 1);
        came(&mut ports, Kind::Ack, 30, 0);
        assert_eq!(ports.edge(0), 101, "nothing of the past counts");
    }

    #[test]
    fn a_deaf_receivers_port_echoes_until_it_is_answered() {
        let mut ports = opened(speaker(Some(false), true));
        assert_eq!(came(&mut ports, Kind::Data, 0, ECT), 0);
        assert_eq!(left(&mut ports, Kind::Ack, 1, 0), 0);
        assert_eq!(came(&mut ports, Kind::Data, 1, ECT | CE), 0);
        assert_eq!(left(&mut ports, Kind::Ack, 2, 0), ECE);
        assert_eq!(came(&mut ports, Kind::Data, 2, ECT), 0);
        assert_eq!(left(&mut ports, Kind::Ack, 3, 0), ECE);
        assert_eq!(came(&mut ports, Kind::Data, 3, ECT | CWR), 0);
        assert_eq!(left(&mut ports, Kind::Ack, 4, 0), 0);
    }

    #[test]
    fn who_lives_on_a_budget_has_its_share_while_it_lives_translated_or_not() {
        use weir_core::vcc::{Budget, BudgetConfig};
        use weir_units::Bytes;
        let class = |port: u16, weight| (port.to_string(), weight, port..=port);
        let segments = |n: u64| Bytes::new(n * u64::from(PAYLOAD));
        let classes = [class(0, 1), class(1, 4)].into_iter();
        let config = BudgetConfig::by_remote_ports(segments(60), 3, classes);
        let budget = Budget::new(config).expect("enough");
        let shares = Shares::new([(7, budget)].into());
        let mut ports = Translator::new(Translation::None, shares, SIZES);
        for class in [Some(0), Some(1), None] {
            let claim = class.map(|class| Claim { vm: 7, class });
            let from = Speaker { claim, ..speaker(None, true) };
            assert!(!ports.open((from, speaker(None, true))), "nobody translates");
        }
        // Of a hundred segments in flight all are acknowledged at once.
        let shown = |ports: &mut Translator, flow: u32, seq: u32| {
            for seq in seq - 100..seq {
                ports.leave(0, &mut Packet { flow, ..packet(Kind::Data, seq, 0) }, None);
            }
            ports.come(0, &mut Packet { flow, ..packet(Kind::Ack, seq, 0) }, None);
            ports.edge(flow).checked_sub(seq)
        };
        ports.begin(0);
        assert_eq!(shown(&mut ports, 0, 100), Some(60), "nobody else lives");
        ports.begin(1);
        ports.begin(1);
        assert_eq!((shown(&mut ports, 1, 100), shown(&mut ports, 0, 200)), (Some(48), Some(12)));
        assert_eq!(shown(&mut ports, 2, 100), Some(u32::MAX - 100), "of no class");
        ports.end(1);
        ports.end(1);
        ports.begin(1);
        assert_eq!(shown(&mut ports, 0, 300), Some(60));
    }
}
