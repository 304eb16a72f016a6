//! What an agent or a lab recorded of its host's machine (`weir-journal`).
//!
//! Approach  An input is no segment but what becomes of one: its first octet chooses the mechanism that
//!           was recorded, each six octets after it are an edit. So the corpus stays valid when a machine
//!           gets another field, and most inputs get beyond the header, which has a checksum.

use crate::Target;
use std::cell::RefCell;
use std::fs;
use weir_core::host::{
    Call, Capabilities, Direction, Given, Hose, HostLoop, Location, Observed, Policy, ReceiveCount,
    SendCount, Told,
};
use weir_core::mechanism::{Law, registry};
use weir_journal::{Error, Kept, Log, Options, Pace, read_segment, segments};
use weir_units::{HostId, PairId, Rate, Span, TenantId, Time, VmId};

/// A segment as it was written replays. Any other is refused: within the header as no journal, behind
/// it by the number of the first record that is not as it was written.
pub(crate) const TARGET: Target = Target { name: "recording", run, reaches, words: &[], seeds };

/// Octets before the first record, and before the row of each: `weir_journal::frame`.
const HEADER: usize = 20;
const PREFIX: usize = 8;
/// Octets of an edit: what, where (three), how much, and one for what is put there.
const EDIT: usize = 6;
/// More edits say nothing new.
const EDITS: usize = 16;
const TURNS: u64 = 30;

/// A segment of a mechanism, and where each record ends.
#[derive(Clone)]
struct Written {
    octets: Vec<u8>,
    ends: Vec<usize>,
}

thread_local! {
    /// One for each mechanism, with limits in the kernel and without.
    static WRITTEN: RefCell<Vec<Written>> = RefCell::new(
        registry::ALL
            .iter()
            .flat_map(|row| [false, true].map(|meters| Written::new(row.sample(), meters)))
            .collect()
    );
}

impl Written {
    fn new(law: Law, meters: bool) -> Self {
        let thread = std::thread::current().id();
        let place =
            std::env::temp_dir().join(format!("weir-fuzz-{}-{thread:?}", std::process::id()));
        drop(fs::remove_dir_all(&place));
        let log = Log::open_in(&place, Options::new(Pace::Waits)).expect("room for a folder");
        drive(Kept::new(host(law, meters), Some(log)));
        let file = &segments(&place).expect("it was written")[0];
        let octets = fs::read(file).expect("it is ours");
        drop(fs::remove_dir_all(&place));
        let mut ends = Vec::new();
        let mut end = HEADER;
        while let Some(length) = octets.get(end..end + 4) {
            end += PREFIX + u32::from_le_bytes(length.try_into().expect("four")) as usize;
            ends.push(end);
        }
        assert_eq!(end, octets.len(), "a record ends with its segment");
        let whole = read_segment(&octets, None).expect("as it was written");
        assert_eq!(whole.records, ends.len() as u64);
        Self { octets, ends }
    }

    /// The place of a record, by any number.
    fn record(&self, number: usize) -> std::ops::Range<usize> {
        let n = number % self.ends.len();
        let start = n.checked_sub(1).map_or(HEADER, |before| self.ends[before]);
        start..self.ends[n]
    }

    /// What the edits make of it.
    fn edited(&self, edits: &[u8], other: &Self) -> Vec<u8> {
        let mut octets = self.octets.clone();
        for edit in edits.chunks_exact(EDIT).take(EDITS) {
            let at = edit[1..4].iter().fold(0, |all, octet| all << 8 | usize::from(*octet));
            let (much, put) = (usize::from(edit[4]), edit[5]);
            let place = at % (octets.len() + 1);
            let end = (place + much).min(octets.len());
            let record = self.record(at);
            match edit[0] % 8 {
                0 => octets[place..end].iter_mut().for_each(|octet| *octet ^= put),
                1 => octets.truncate(place),
                2 => drop(octets.drain(place..end)),
                3 => drop(octets.splice(place..place, vec![put; much])),
                // A whole record: gone, doubled, or in the place of another.
                4 if record.end <= octets.len() => drop(octets.drain(record)),
                5 if record.end <= octets.len() => {
                    let copy = octets[record.clone()].to_vec();
                    drop(octets.splice(record.end..record.end, copy));
                }
                6 if record.end <= octets.len() => {
                    let copy = self.octets[self.record(much)].to_vec();
                    drop(octets.splice(record, copy));
                }
                // It goes on as another mechanism's does.
                7 => {
                    octets.truncate(place);
                    octets.extend(other.octets.get(place..).unwrap_or_default());
                }
                _ => {}
            }
        }
        octets
    }
}

fn host(law: Law, meters: bool) -> HostLoop {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
        .with_vms([(VmId(0), Hose::both(Rate::from_mbps(450)))])
        .with_directory([(VmId(0), at(0)), (VmId(1), at(1))]);
    policy.can = Capabilities { meters, ..Capabilities::default() };
    HostLoop::new(policy, Time::ZERO).expect("sound").with_heartbeat(Time::ZERO)
}

/// Some turns of a driver.
fn drive(mut kept: Kept) {
    let to = PairId::new(VmId(0), VmId(1));
    for turn in 0..TURNS {
        let now = Time::ZERO + Span::from_millis(5 * turn);
        let (octets, segments) = (turn * 40_000, turn * 26);
        let sent = SendCount { octets, numbered: octets, segments, ..SendCount::default() };
        let came =
            ReceiveCount { octets, segments, numbered: Some(segments), lost: turn / 9, marked: 0 };
        let seen = Observed {
            send: vec![(to, sent)],
            receive: vec![(to.reversed(), came)],
            limits: vec![(to, Told { rate: Rate::from_mbps(50 + turn), times: turn })],
            ..Observed::default()
        };
        kept.handle(now, Call::Input(Given::Seen(to, Direction::Send)));
        kept.handle(now, Call::Input(Given::Observed(&seen)));
        if kept.due(now).is_some() {
            kept.handle(now, Call::Input(Given::Tick));
        }
        if kept.is_beat_due(now) {
            kept.handle(now, Call::Beat);
        }
        kept.work(now);
    }
}

/// What an input makes of a segment, and the segment that it is most like: an edit may leave most of
/// another mechanism's.
fn damaged(input: &[u8]) -> Option<(Vec<u8>, Written)> {
    let (choice, edits) = input.split_first()?;
    WRITTEN.with_borrow(|all| {
        let choice = usize::from(*choice);
        let (written, other) = (&all[choice % all.len()], &all[(choice + 1) % all.len()]);
        let octets = written.edited(edits, other);
        let like = all.iter().max_by_key(|written| parting(&written.octets, &octets))?;
        Some((octets, like.clone()))
    })
}

/// Where the two differ first.
fn parting(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

fn reaches(input: &[u8]) -> bool {
    damaged(input).is_some_and(|(octets, written)| {
        written.octets != octets && parting(&written.octets, &octets) >= HEADER
    })
}

fn run(input: &[u8]) {
    let Some((damaged, Written { octets, ends })) = damaged(input) else { return };
    let found = read_segment(&damaged, None);
    if damaged == octets {
        assert_eq!(found.expect("as it was written").records, ends.len() as u64);
        return;
    }
    let parting = parting(&octets, &damaged);
    let first = 1 + ends.iter().filter(|end| **end <= parting).count() as u64;
    match found.expect_err("it is not as it was written") {
        Error::NoJournal | Error::Version { .. } | Error::Build { .. } => {
            assert!(parting < HEADER, "octet {parting}");
        }
        Error::Changed { record } | Error::CutOff { record } => assert_eq!(record, first),
        // Octets behind the closing record.
        Error::Unreadable { record, what } => {
            assert_eq!((record, record + 1), (ends.len() as u64, first), "{what}");
        }
        other => panic!("{other}"),
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let edit = |choice: u8, edits: &[[u8; EDIT]]| [&[choice][..], &edits.concat()].concat();
    vec![
        ("as-it-was-written", edit(4, &[])),
        ("an-octet-of-the-header", edit(0, &[[0, 0, 0, 9, 1, 1]])),
        ("an-octet-of-the-snapshot", edit(1, &[[0, 0, 0, 80, 1, 64]])),
        ("an-octet-of-a-later-record", edit(2, &[[0, 0, 9, 80, 1, 64]])),
        ("cut-off", edit(3, &[[1, 0, 8, 0, 0, 0]])),
        ("octets-are-missing", edit(4, &[[2, 0, 7, 0, 9, 0]])),
        ("octets-too-many", edit(5, &[[3, 0, 7, 0, 9, 255]])),
        ("a-record-is-missing", edit(6, &[[4, 0, 0, 30, 0, 0]])),
        ("the-last-record-is-missing", edit(6, &[[4, 255, 255, 255, 0, 0]])),
        ("a-record-is-doubled", edit(7, &[[5, 0, 0, 31, 0, 0]])),
        ("a-record-in-the-place-of-another", edit(0, &[[6, 0, 0, 32, 40, 0]])),
        ("it-goes-on-as-another", edit(6, &[[7, 0, 8, 0, 0, 0]])),
        ("two-edits", edit(1, &[[2, 0, 9, 0, 3, 0], [3, 0, 9, 0, 3, 7]])),
    ]
}
