//! A real memcached, asked by the lab's client over real TCP. As root, with Debian's memcached.

use crate::common::watch::steadily;
use crate::common::{alone, dumbbell, flow, none, traces};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::sync::atomic::AtomicBool;
use weir_lab::{Frame, Options, Phase, play};
use weir_model::observed::{Observed, Work};
use weir_model::scenario::{Arrivals, Memcached, Operation, Scenario, Spacing, TrafficKind};
use weir_units::{Bytes, Span};

const PER_SECOND: f64 = 400.0;

fn memcached(sets: f64) -> Memcached {
    Memcached {
        arrivals: Arrivals { per_second: PER_SECOND, spacing: Spacing::Fixed, seed: 5 },
        sets,
        keys: 100,
        key: Bytes::new(32),
        value: Bytes::new(6000),
        connections: 4,
        congestion: "cubic".into(),
    }
}

/// VM 0 asks VM 1; requests and answers are entries 0 and 1.
fn scenario(memcached: &Memcached) -> Scenario {
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, TrafficKind::Memcached(memcached.clone()));
    let (response, congestion) = (memcached.mean_answer(), memcached.congestion.clone());
    let per_second = Some(memcached.arrivals.per_second);
    flow(&mut scenario, 1, 0, TrafficKind::Reply { response, per_second, congestion });
    scenario
}

fn run(scenario: &Scenario, watch: &mut dyn FnMut(&Frame)) -> Observed {
    let (options, never) = (Options::new("weir"), AtomicBool::new(false));
    play(scenario, &none(), &options, watch, &never).expect("plays; needs root and memcached")
}

fn work(record: &Observed) -> &Work {
    record.flows[0].work.as_ref().expect("it has beginnings and ends")
}

fn octets(record: &Observed, entry: usize) -> u64 {
    record.flows[entry].octets.iter().sum()
}

/// In milliseconds.
fn quantile(work: &Work, q: f64) -> f64 {
    work.times.value_at_quantile(q) as f64 / 1e6
}

/// What `/proc` says of the server that this process started, and its id.
fn server() -> Option<(Pid, String)> {
    let parent = format!("PPid:\t{}\n", std::process::id());
    let processes = fs::read_dir("/proc").expect("there is one").flatten();
    processes
        .filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(process.path().join("status")).ok()?;
            Some((Pid::from_raw(id), status))
        })
        .find(|(_, status)| status.starts_with("Name:\tmemcached\n") && status.contains(&parent))
}

#[test]
fn requests_are_answered_by_a_server_without_rights_that_ends_with_the_run() {
    let _alone = alone();
    steadily(|| {
        let asked = memcached(0.5);
        let mut seen = None;
        let record = run(&scenario(&asked), &mut |frame| {
            if frame.phase == Phase::Running && seen.is_none() {
                seen = server();
            }
        });
        let work = work(&record);
        // 1.5 s are judged.
        assert!((599..=601).contains(&work.due), "{work:?}");
        assert!(work.due - work.done <= 4, "{} of {}", work.done, work.due);
        // A port that idled sends a value's five segments at once.
        let half = quantile(work, 0.5);
        assert!((0.02..10.0).contains(&half), "{half} ms");
        assert!(record.notes.is_empty(), "{:?}", record.notes);
        // Goodput is what was asked and answered in two seconds, to the octet.
        let asks: Vec<_> = asked.starts().take(800).map(|(_, ask)| ask.operation).collect();
        let sum = |of: fn(&Memcached, Operation) -> Bytes| -> u64 {
            asks.iter().map(|&operation| of(&asked, operation).get()).sum()
        };
        let wanted = [sum(Memcached::request), sum(Memcached::answer)];
        for (entry, wanted) in wanted.into_iter().enumerate() {
            let got = octets(&record, entry);
            assert!(got <= wanted && wanted - got <= 5 * 6100, "{entry}: {got} of {wanted}");
        }
        let (_, status) = seen.expect("it ran");
        assert!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
        assert!(status.contains("\nGid:\t65534\t65534\t65534\t65534\n"), "{status}");
        assert!(status.contains("\nCapEff:\t0000000000000000\n"), "{status}");
        assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        assert!(server().is_none());
        assert_eq!(traces(), Vec::<String>::new());
    });
}

#[test]
fn while_the_server_stands_still_requests_are_due_all_the_same() {
    let _alone = alone();
    steadily(|| {
        let record = run(&scenario(&memcached(1.0)), &mut |frame| {
            let signal = match frame.at.as_nanos() / 1_000_000 {
                800 => Signal::SIGSTOP,
                1300 => Signal::SIGCONT,
                _ => return,
            };
            let (id, _) = server().expect("it runs");
            kill(id, signal).expect("ours");
        });
        let work = work(&record);
        assert!((599..=601).contains(&work.due), "{work:?}");
        assert!(work.due - work.done <= 4, "{} of {}", work.done, work.due);
        // 200 were due while it stood still for half a second: 160 of them waited for 100 ms or
        // more. A client that waits for its four connections before it asks again would have seen
        // four.
        let slow: u64 = work
            .times
            .iter_recorded()
            .filter(|v| v.value_iterated_to() >= 100_000_000)
            .map(|v| v.count_at_value() as u64)
            .sum();
        assert!((120..=220).contains(&slow), "{slow}");
        assert!((400.0..700.0).contains(&quantile(work, 1.0)), "{} ms", quantile(work, 1.0));
    });
}

#[test]
fn what_a_server_that_dies_was_asked_is_unfinished_and_told() {
    let _alone = alone();
    let record = run(&scenario(&memcached(0.0)), &mut |frame| {
        if frame.at == Span::from_secs(1) {
            kill(server().expect("it runs").0, Signal::SIGKILL).expect("ours");
        }
    });
    let work = work(&record);
    assert!((599..=601).contains(&work.due), "{work:?}");
    assert!((150..=260).contains(&work.done), "{}: it answered for half a second", work.done);
    let told = |what: &str| record.notes.iter().any(|note| note.contains(what));
    assert!(told("a connection vm0 → vm1 failed"), "{:?}", record.notes);
    assert!(told("the memcached of 0-1 0 ended early"), "{:?}", record.notes);
    assert_eq!(traces(), Vec::<String>::new());
}
