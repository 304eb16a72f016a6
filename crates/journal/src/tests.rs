//! Every bad input gets an error with the record's number, and never a wrong replay.

use crate::frame::{self, Chain, HEADER};
use crate::{Ending, Error, Kept, Row, read_segment};
use std::fs;
use std::path::PathBuf;
use weir_core::host::{
    Call, Capabilities, Direction, Hose, HostLoop, Input, Location, Metered, Observed, Outcome,
    Part, Policy, ReceiveCount, SendCount, Told, Work,
};
use weir_core::mechanism::{Law, registry};
use weir_units::{HostId, PairId, Rate, Span, TenantId, Time, VmId};

/// A folder that is gone when the test is.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-journal-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn host() -> HostLoop {
    host_of(Law::ElasticSwitch(Box::default()), Capabilities::default())
}

fn host_of(law: Law, can: Capabilities) -> HostLoop {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
        .with_vms([(VmId(0), Hose::both(Rate::from_mbps(450)))])
        .with_directory([(VmId(0), at(0)), (VmId(1), at(1)), (VmId(2), at(2))]);
    policy.can = can;
    HostLoop::new(policy, Time::ZERO).expect("sound").with_heartbeat(Time::ZERO)
}

fn pair(dst: u32) -> PairId {
    PairId::new(VmId(0), VmId(dst))
}

fn at(turn: u64) -> Time {
    Time::ZERO + Span::from_millis(5 * turn)
}

fn counters(turn: u64) -> Observed {
    let octets = turn * 40_000;
    let (segments, numbered) = (octets / 1514, octets);
    let sent = SendCount { octets, numbered, segments, ..SendCount::default() };
    let lost = turn / 50;
    let came = ReceiveCount { octets, segments, numbered: Some(segments), lost, marked: 0 };
    let told = Told { rate: Rate::from_mbps(50 + turn % 90), times: turn };
    let metered = Metered { octets, steps: turn, advertised: told.rate };
    Observed {
        send: vec![(pair(1), sent), (pair(2), sent)],
        receive: vec![(pair(1).reversed(), came)],
        meters: Part::ALL.map(|part| (VmId(0), part, metered)).to_vec(),
        limits: vec![(pair(1), told)],
        ..Observed::default()
    }
}

/// Some turns of a driver; its orders.
pub(crate) fn drive(kept: &mut Kept, turns: u64) -> Vec<Work> {
    let all = 0..turns;
    all.map(|turn| {
        let now = at(turn);
        kept.handle(now, Call::Input(Input::Seen(pair(1 + (turn % 2) as u32), Direction::Send)));
        kept.handle(now, Call::Input(Input::Observed(&counters(turn))));
        if kept.due(now).is_some() {
            kept.handle(now, Call::Input(Input::Tick));
        }
        if kept.is_beat_due(now) {
            kept.handle(now, Call::Beat);
        }
        if turn % 13 == 0 {
            assert!(kept.pair(now, pair(1)).is_some());
            kept.pairs(now);
        }
        let work = kept.work(now);
        // Now and then a kernel refuses.
        if work.writes() {
            let (unwritten, mut outcome) = (work.pairs.iter().map(|(p, _)| *p), Outcome::default());
            match turn % 5 {
                0 => outcome.unwritten = unwritten.collect(),
                1 => outcome.classless = unwritten.collect(),
                2 => outcome.kept.clone_from(&work.forgotten),
                _ => {}
            }
            kept.handle(now, Call::Written(outcome));
        }
        if turn % 400 == 399 {
            kept.handle(now, Call::Rewrite);
        }
        work
    })
    .collect()
}

/// A segment, and where each of its records ends.
struct Segment {
    octets: Vec<u8>,
    ends: Vec<usize>,
    chain: Chain,
}

impl Segment {
    fn new(format: u32, layout: u32) -> Self {
        let mut octets = Vec::new();
        let chain = frame::begin_as(&mut octets, format, layout);
        Self { octets, ends: Vec::new(), chain }
    }

    fn add(&mut self, row: &Row<&HostLoop, Call<'_>, &Work>) {
        frame::append(&mut self.octets, &mut self.chain, row);
        self.ends.push(self.octets.len());
    }

    /// Ten turns. The work of turn `wrong` is not what the loop wanted.
    fn of_turns(wrong: Option<u64>) -> Self {
        let mut segment = Self::new(crate::FORMAT, crate::layout::layout());
        let mut host = host();
        segment.add(&Row::Snapshot(&host, false));
        for turn in 0..10 {
            let (now, counters) = (at(turn), counters(turn));
            let mut calls = vec![
                Call::Input(Input::Seen(pair(1), Direction::Send)),
                Call::Input(Input::Observed(&counters)),
            ];
            calls.extend(host.due(now).map(|_| Call::Input(Input::Tick)));
            calls.push(Call::Look(None));
            for call in calls {
                segment.add(&Row::Call(now, call.clone()));
                host.handle(now, call);
            }
            let mut work = host.work(now);
            if wrong == Some(turn) {
                work.forgotten.push((pair(2), Direction::Send));
            }
            segment.add(&Row::Work(now, &work, host.next_deadline()));
        }
        segment.add(&Row::End(Ending::Closed));
        segment
    }

    /// The number of the record that has this octet.
    fn record_of(&self, octet: usize) -> u64 {
        1 + self.ends.iter().filter(|end| **end <= octet).count() as u64
    }
}

#[test]
fn a_segment_that_is_whole_replays() {
    let segment = Segment::of_turns(None);
    let found = read_segment(&segment.octets, None).expect("whole");
    assert_eq!((found.works, found.records), (10, segment.ends.len() as u64));
}

#[test]
fn what_kernels_decide_and_refuse_replays_with_every_mechanism() {
    for row in registry::ALL {
        for meters in [false, true] {
            let place = Place::new(&format!("kernel-{}-{meters}", row.name));
            let can = Capabilities { meters, ..Capabilities::default() };
            let options = crate::Options::new(crate::Pace::Waits);
            let log = crate::Log::open_in(&place.0, options).expect("a folder");
            let mut kept = Kept::new(host_of(row.sample(), can), Some(log));
            let works = drive(&mut kept, 500);
            assert!(works.iter().any(Work::writes), "{}", row.name);
            drop(kept);
            let replayed = crate::replay(&place.0, &mut |_, found| assert_eq!(found.works, 500));
            assert!(replayed.is_ok(), "{}, meters {meters}: {replayed:?}", row.name);
        }
    }
}

#[test]
fn a_segment_that_is_cut_off_anywhere_says_at_which_record() {
    let segment = Segment::of_turns(None);
    for length in 0..segment.octets.len() {
        match read_segment(&segment.octets[..length], None) {
            Err(Error::NoJournal) => assert!(length < HEADER, "{length}"),
            Err(Error::CutOff { record }) => assert_eq!(record, segment.record_of(length)),
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn an_octet_that_was_changed_is_found_in_its_record() {
    let segment = Segment::of_turns(None);
    for octet in 0..segment.octets.len() {
        let mut edited = segment.octets.clone();
        edited[octet] ^= 0x10;
        match read_segment(&edited, None) {
            Err(Error::NoJournal) => assert!(octet < HEADER, "{octet}"),
            // A length that grew reaches beyond the end.
            Err(Error::Changed { record } | Error::CutOff { record }) => {
                assert_eq!(record, segment.record_of(octet));
            }
            other => panic!("{octet}: {other:?}"),
        }
    }
}

#[test]
fn a_record_that_is_missing_doubled_or_in_another_place_is_found() {
    let Segment { octets, ends, .. } = Segment::of_turns(None);
    let (a, b, c) = (ends[4], ends[5], ends[6]);
    let missing = [&octets[..a], &octets[b..]].concat();
    let doubled = [&octets[..b], &octets[a..]].concat();
    let swapped = [&octets[..a], &octets[b..c], &octets[a..b], &octets[c..]].concat();
    for (edited, at) in [(missing, 6), (doubled, 7), (swapped, 6)] {
        let found = read_segment(&edited, None);
        assert!(matches!(found, Err(Error::Changed { record }) if record == at), "{found:?}");
    }
}

#[test]
fn another_format_and_another_build_are_refused_by_name() {
    let (format, layout) = (crate::FORMAT, crate::layout::layout());
    let found = read_segment(&Segment::new(format + 1, layout).octets, None);
    let error = found.expect_err("another format").to_string();
    assert!(error.contains("has format 2") && error.contains("reads format 1"), "{error}");
    let found = read_segment(&Segment::new(format, layout ^ 1).octets, None);
    assert!(found.expect_err("another build").to_string().contains("by another build"));
    let found = read_segment(b"apiVersion: weir/v1alpha1\nkind: Scenario\n", None);
    assert!(matches!(found, Err(Error::NoJournal)));
}

#[test]
fn orders_that_differ_are_shown_with_record_and_reason() {
    let segment = Segment::of_turns(Some(7));
    let error = read_segment(&segment.octets, None).expect_err("not what the loop wants");
    let Error::Differs { record, what } = &error else { panic!("{error}") };
    let works = segment.ends.len() as u64;
    assert!(*record > 20 && *record < works, "{error}");
    let expected = ["removed pair", "is nothing", "last woken", "losses", "Look(None)"];
    assert!(expected.iter().all(|word| what.contains(word)), "{what}");
}

#[test]
fn rows_in_an_order_that_is_none_are_refused() {
    let (host, layout) = (host(), crate::layout::layout());
    let of = |rows: &[Row<&HostLoop, Call<'_>, &Work>]| {
        let mut segment = Segment::new(crate::FORMAT, layout);
        rows.iter().for_each(|row| segment.add(row));
        read_segment(&segment.octets, None)
    };
    let snapshot = || Row::Snapshot(&host, false);
    for (rows, record) in [
        (vec![Row::End(Ending::Closed)], 1),
        (vec![snapshot(), snapshot()], 2),
        (vec![snapshot(), Row::End(Ending::Closed), Row::Call(at(1), Call::Beat)], 2),
    ] {
        let found = of(&rows);
        assert!(
            matches!(&found, Err(Error::Unreadable { record: at, .. }) if *at == record),
            "{found:?}"
        );
    }
    assert!(of(&[snapshot(), Row::End(Ending::Closed)]).is_ok());
}

#[test]
fn a_record_of_octets_that_are_no_row_is_refused_and_does_not_panic() {
    for octets in [vec![9_u8; 5], vec![], vec![1; 40], vec![255; 300]] {
        let mut segment = Segment::new(crate::FORMAT, crate::layout::layout());
        segment.add(&Row::Snapshot(&host(), false));
        // As a tuple: no length before it.
        for octet in octets {
            frame::append(&mut segment.octets, &mut segment.chain, &octet);
        }
        assert!(read_segment(&segment.octets, None).is_err());
    }
}

#[test]
fn a_segment_that_goes_on_from_another_state_is_refused() {
    let place = Place::new("goes-on");
    let options = crate::Options { segment: 9000, segments: 9, pace: crate::Pace::Waits };
    let log = crate::Log::open_in(&place.0, options).expect("a folder");
    drive(&mut Kept::new(host(), Some(log)), 300);
    let all = crate::segments(&place.0).expect("written");
    assert!(all.len() > 2, "{all:?}");
    crate::replay(&place.0, &mut |_, _| {}).expect("it agrees");
    fs::rename(&all[2], &all[1]).expect("ours");
    let (segment, error) = crate::replay(&place.0, &mut |_, _| {}).expect_err("one is missing");
    assert_eq!(segment, all[1]);
    assert!(matches!(error, Error::Differs { record: 1, .. }), "{error}");
}
