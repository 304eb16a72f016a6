//! EyeQ's feedback as the kernel hears it: frames of anyone on a host's uplink. Needs root.
//!
//! Approach  The kernel's program and `weir_wire::Inbox`, which says the same in Rust, get the same
//!           frames. The first octet of an input says whether what the frame tells is signed with a key
//!           that is believed: without that no mutation would get beyond the tag.

use crate::Target;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use weir_dataplane::eyeq::intf::{self as eyeq, Counters, Ear, Settings, Vm, Voice};
use weir_dataplane::eyeq::{Program, Programs, Sizes};
use weir_dataplane::intf;
use weir_dataplane::programs::Frame;
use weir_units::{HostId, PairId, VmId};
use weir_wire::{
    FeedbackKey, FeedbackPacket, FeedbackRejected, Inbox, Incarnation, Key, KeyId, Lives, Told,
    encode_feedback,
};

/// Feedback for this host is dropped and counted once, believed exactly where `Inbox` believes it;
/// everything else passes; no octet changes.
pub(crate) const TARGET: Target = Target { name: "heed", run, reaches, words: &[], seeds };

const PASS: i32 = -1;
const DROP: i32 = 2;
const ETHERNET: usize = 14;
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TO_PEER: PairId = PairId::new(VmId(1), VmId(2));
const MOST_UNITS: u64 = 10_000;

struct World {
    programs: Programs,
    inbox: Inbox,
    /// The next sequence of the believed key.
    next: u64,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

fn key() -> FeedbackKey {
    let fleet = Key::from_hex("000102030405060708090a0b0c0d0e0f").expect("a key");
    let life = |host| (HostId(host), Incarnation::new(u64::from(host)).expect("not zero"));
    FeedbackKey::derive(KeyId(0), &fleet, Lives { from: life(2), to: life(1) })
}

impl World {
    /// A host with VM 1, which sends to VM 2 of another host, whose feedback is believed.
    fn new() -> Self {
        let programs = Programs::load(Sizes { pairs: 16, endpoints: 64, hosts: 16 })
            .expect("these programs are loaded by root");
        let directory: [(IpAddr, u32, u32); 2] = [
            (Ipv4Addr::new(10, 0, 0, 1).into(), 1, intf::LOCAL),
            (Ipv4Addr::new(10, 0, 0, 2).into(), 2, 0),
        ];
        for (address, vm, flags) in directory {
            let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
            programs.endpoints.put(address.into(), endpoint).expect("room for two");
        }
        for (vm, host) in [(1, HERE), (2, THERE)] {
            let place = Vm { host: eyeq::address(host), slot: 0 };
            programs.vms.put(vm, place).expect("room for two");
        }
        let voice = Voice { address: eyeq::address(THERE), key_id: 0 };
        programs.ears.put(voice, Ear::new(key().halves())).expect("room for one");
        programs.tx.put(TO_PEER.into(), intf::Tx::default()).expect("room for one");
        let settings = Settings {
            period_ns: 1_000_000_000,
            feedback_octets: 10_000,
            unit_bps: 1_000_000,
            most_units: MOST_UNITS,
            alpha: 32_768,
            least_factor: 6_554,
            queue_octets: 0,
            via: 0,
            address: eyeq::address(HERE),
            told_part: 0,
        };
        programs.set(settings).expect("a setting");
        let mut inbox = Inbox::new(HERE);
        assert!(inbox.accept(THERE, key()));
        Self { programs, inbox, next: 1 }
    }

    /// What the frame tells, said again by a believed voice; the sequence is near the newest.
    fn signed(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let packet = FeedbackPacket::parse(packet(frame)?).ok()?;
        self.next += u64::from(packet.sequence() & 0x7f);
        let sequence = self.next.saturating_sub(u64::from(packet.sequence() >> 7 & 0x7f)).max(1);
        let told = Told { from: THERE, to: HERE, ..packet.told() };
        Some(framed(&encode_feedback(&told, &key(), sequence)))
    }

    /// Gives both the frame.
    fn hear(&mut self, octets: &[u8]) {
        let before = self.programs.counters();
        // The kernel refuses to make some frames at all.
        let frame = Frame { octets, ..Frame::default() };
        let Ok(ran) = self.programs.run(Program::Heed, &frame) else { return };
        assert_eq!(ran.octets, octets, "heed changes no octet");
        let moved = moved(&before, &self.programs.counters());
        if !is_feedback_for_us(octets) {
            assert_eq!((ran.verdict, moved), (PASS, vec![]), "not feedback for this host");
            return;
        }
        assert_eq!(ran.verdict, DROP, "feedback never goes on");
        let [moved] = moved[..] else { panic!("{moved:?} were counted for one message") };
        let judged = self.inbox.open(packet(octets).unwrap_or(&octets[ETHERNET..]));
        let is_so = match &judged {
            Ok(_) => ["heard", "late", "strangers", "strayed", "impossible"].contains(&moved),
            Err(FeedbackRejected::Malformed(_)) => moved == "malformed",
            Err(FeedbackRejected::Stranger { .. }) => moved == "strangers",
            Err(FeedbackRejected::Tag) => moved == "forged",
            Err(FeedbackRejected::Replayed { .. }) => moved == "replayed",
            Err(FeedbackRejected::Zero) => moved == "impossible",
            Err(FeedbackRejected::NotForUs { .. }) => false,
        };
        assert!(is_so, "the kernel counts {moved}, the crate says {judged:?}");
    }
}

fn run(octets: &[u8]) {
    let Some((choice, frame)) = octets.split_first() else { return };
    if frame.len() < ETHERNET {
        return;
    }
    WORLD.with_borrow_mut(|world| {
        let signed = if choice & 1 == 1 { world.signed(frame) } else { None };
        world.hear(signed.as_deref().unwrap_or(frame));
    });
}

/// Whether it is feedback for this host, of the right length and version.
fn reaches(octets: &[u8]) -> bool {
    let Some(frame) = octets.get(1..).filter(|frame| frame.len() >= ETHERNET) else { return false };
    is_feedback_for_us(frame) && packet(frame).is_some_and(|p| FeedbackPacket::parse(p).is_ok())
}

/// The feedback in a frame that is long enough for it.
fn packet(frame: &[u8]) -> Option<&[u8]> {
    frame.get(ETHERNET..eyeq::FRAME)
}

fn is_feedback_for_us(frame: &[u8]) -> bool {
    let header = frame.get(ETHERNET..ETHERNET + 20);
    header.is_some_and(|ip| {
        frame[12..ETHERNET] == [8, 0] && ip[9] == eyeq::PROTOCOL && ip[16..] == HERE.octets()
    })
}

/// The counters of what was heard that are not what they were.
fn moved(before: &Counters, after: &Counters) -> Vec<&'static str> {
    let rows = [
        ("heard", before.heard, after.heard),
        ("malformed", before.malformed, after.malformed),
        ("strangers", before.strangers, after.strangers),
        ("forged", before.forged, after.forged),
        ("replayed", before.replayed, after.replayed),
        ("impossible", before.impossible, after.impossible),
        ("strayed", before.strayed, after.strayed),
        ("late", before.late, after.late),
        ("full", before.full, after.full),
    ];
    let differs =
        |(name, before, after): (&'static str, u64, u64)| (before != after).then_some(name);
    rows.into_iter().filter_map(differs).collect()
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(packet);
    frame.resize(frame.len().max(eyeq::FRAME), 0);
    frame
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let told = |pair, units| Told { from: THERE, to: HERE, pair, units };
    let say = |choice: u8, told: Told, sequence| {
        [&[choice][..], &framed(&encode_feedback(&told, &key(), sequence))].concat()
    };
    let with = |at: usize, new: u8| {
        let mut octets = say(1, told(TO_PEER, 450), 7);
        octets[1 + ETHERNET + at] = new;
        octets
    };
    let elsewhere = Told { to: Ipv4Addr::new(192, 0, 2, 9), ..told(TO_PEER, 450) };
    let stranger = Told { from: Ipv4Addr::new(192, 0, 2, 9), ..told(TO_PEER, 450) };
    let padded = [say(1, told(TO_PEER, 450), 7), vec![0; 40]].concat();
    vec![
        ("signed", say(1, told(TO_PEER, 450), 1)),
        ("leaps", say(1, told(TO_PEER, 300), 0x7f)),
        ("late", say(1, told(TO_PEER, 200), 0x3f80)),
        ("as-it-is", say(0, told(TO_PEER, 450), 9)),
        ("no-rate", say(1, told(TO_PEER, 0), 2)),
        ("more-than-the-link", say(1, told(TO_PEER, u16::MAX), 3)),
        ("of-no-pair", say(1, told(PairId::new(VmId(7), VmId(2)), 450), 4)),
        ("of-another-hosts-vm", say(1, told(PairId::new(VmId(2), VmId(1)), 450), 5)),
        ("for-another-host", say(0, elsewhere, 6)),
        ("of-a-stranger", say(0, stranger, 6)),
        ("another-version", with(20, 2)),
        ("another-key", with(21, 1)),
        ("a-fragment", with(6, 0x20)),
        ("options", with(0, 0x46)),
        ("padded", padded),
        ("cut", say(0, told(TO_PEER, 450), 8)[..50].to_vec()),
    ]
}
