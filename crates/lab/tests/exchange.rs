//! Requests, short flows, shuffles and programs: all arrives, and is timed from when it should have
//! begun. As root.

use crate::common;

use crate::common::watch::steadily;
use crate::common::{alone, dumbbell, flow, none, tcp, traces};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;
use weir_lab::{Options, play};
use weir_model::observed::{Observed, Work};
use weir_model::scenario::{
    Arrivals, Connections, Exec, Flows, Load, Pick, Request, Scenario, Sizes, Spacing, Traffic,
    TrafficKind, Vm,
};
use weir_units::{Bytes, Span};

fn run(scenario: &Scenario) -> Observed {
    let (options, never) = (Options::new("weir"), AtomicBool::new(false));
    play(scenario, &none(), &options, &mut |_| {}, &never).expect("plays; needs root")
}

fn arrivals(per_second: f64) -> Arrivals {
    Arrivals { per_second, spacing: Spacing::Fixed, seed: 5 }
}

/// Requests from VM 0 to VM 1 and their answers: entries 0 and 1.
fn requests(load: Load, connections: Connections, response: u64) -> Scenario {
    let mut scenario = dumbbell(1, 1, 100);
    let per_second = match &load {
        Load::Open(at) => Some(at.per_second),
        Load::Closed { .. } => None,
    };
    let congestion: String = "cubic".into();
    let (size, response) = (Bytes::new(1000), Bytes::new(response));
    let request = Request { size, response, load, connections, congestion: congestion.clone() };
    flow(&mut scenario, 0, 1, TrafficKind::Request(request));
    flow(&mut scenario, 1, 0, TrafficKind::Reply { response, per_second, congestion });
    scenario
}

/// Short flows of 50 kB from VM 0 to all VMs on the right.
fn flows(right: usize, per_second: f64) -> Scenario {
    let mut scenario = dumbbell(1, right, 100);
    for mine in 0..right {
        let kind = TrafficKind::Flows(Flows {
            arrivals: arrivals(per_second),
            closed: None,
            sizes: Sizes::Fixed(Bytes::new(50_000)),
            pick: Pick::InTurn,
            mine: mine as u32,
            of: right as u32,
            congestion: "cubic".into(),
        });
        flow(&mut scenario, 0, 1 + mine, kind);
    }
    scenario
}

fn work(record: &Observed, entry: usize) -> &Work {
    record.flows[entry].work.as_ref().expect("it has beginnings and ends")
}

fn octets(record: &Observed, entry: usize) -> u64 {
    record.flows[entry].octets.iter().sum()
}

/// In milliseconds.
fn quantile(work: &Work, q: f64) -> f64 {
    work.times.value_at_quantile(q) as f64 / 1e6
}

#[test]
fn requests_at_a_rate_are_answered_on_new_and_on_kept_connections() {
    let _alone = alone();
    steadily(|| {
        for connections in [Connections::New, Connections::Kept] {
            let scenario = requests(Load::Open(arrivals(100.0)), connections, 10_000);
            let record = run(&scenario);
            let work = work(&record, 0);
            // 1.5 s are judged.
            assert!((149..=151).contains(&work.due), "{connections:?}: {work:?}");
            assert!(work.due - work.done <= 3, "{connections:?}: {} of {}", work.done, work.due);
            // Seven segments on a link of 100 Mbit/s take 0.85 ms, less what a port sends at once
            // after idling.
            let half = quantile(work, 0.5);
            assert!((0.2..10.0).contains(&half), "{connections:?}: {half} ms");
            assert!(record.notes.iter().all(|n| !n.contains("failed")), "{:?}", record.notes);
            assert!((190_000..=200_000).contains(&octets(&record, 0)), "{}", octets(&record, 0));
            assert!(
                (1_900_000..=2_000_000).contains(&octets(&record, 1)),
                "{}",
                octets(&record, 1)
            );
        }
    });
}

#[test]
fn a_closed_loop_asks_as_fast_as_it_is_answered() {
    let _alone = alone();
    steadily(|| {
        let scenario = requests(Load::Closed { outstanding: 4 }, Connections::Kept, 100_000);
        let record = run(&scenario);
        let work = work(&record, 0);
        // 100 kB take 8.4 ms on the link: four that share it take 34 ms each.
        let half = quantile(work, 0.5);
        assert!((15.0..80.0).contains(&half), "{half} ms");
        let goodput = octets(&record, 1) as f64 * 8.0 / 2.0 / 1e6;
        assert!((60.0..96.5).contains(&goodput), "{goodput} Mb/s of answers");
        assert!(work.due - work.done <= 4, "{} of {}", work.done, work.due);
    });
}

#[test]
fn what_comes_too_late_counts_from_when_it_should_have_begun() {
    let _alone = alone();
    steadily(|| {
        // Three times what the link carries: a queue of requests grows all the time.
        let scenario = requests(Load::Open(arrivals(150.0)), Connections::Kept, 250_000);
        let record = run(&scenario);
        let work = work(&record, 0);
        assert!((223..=227).contains(&work.due), "the network's slowness does not slow the asking");
        assert!(work.done < work.due, "{} of {}", work.done, work.due);
        assert!(work.done == 0 || quantile(work, 1.0) > 400.0, "{} ms", quantile(work, 1.0));
    });
}

#[test]
fn short_flows_arrive_whole_and_in_turn() {
    let _alone = alone();
    steadily(|| {
        let scenario = flows(4, 80.0);
        let record = run(&scenario);
        for entry in 0..4 {
            let work = work(&record, entry);
            assert!((29..=31).contains(&work.due), "{entry}: {}", work.due);
            assert!(work.due - work.done <= 1, "{entry}: {} of {}", work.done, work.due);
            let half = quantile(work, 0.5);
            // 35 segments, and as many round trips as slow start needs.
            assert!((3.0..40.0).contains(&half), "{entry}: {half} ms");
            assert!((1_900_000..=2_000_000).contains(&octets(&record, entry)), "{entry}");
        }
    });
}

#[test]
fn a_shuffle_sends_exactly_its_octets_and_says_when_it_was_done() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 2, 100);
    for (from, to) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        let kind =
            TrafficKind::Shuffle { octets: Bytes::new(2_000_000), congestion: "cubic".into() };
        flow(&mut scenario, from, to, kind);
    }
    let record = run(&scenario);
    for entry in 0..4 {
        let work = work(&record, entry);
        assert_eq!((work.due, work.done, octets(&record, entry)), (1, 1, 2_000_000), "{entry}");
        // 8 MB take 0.67 s on the core; one flow may be alone with it for a quarter of that.
        let seconds = work.last.as_secs_f64();
        assert!((0.16..1.6).contains(&seconds), "{entry}: {seconds} s");
    }
    let last = (0..4).map(|entry| work(&record, entry).last).max().expect("four");
    assert!(last > Span::from_millis(650), "{last}: faster than the link");
}

/// A program that leaves two ports to the namespace it runs in, gone with this.
struct FewPorts(std::path::PathBuf);

impl FewPorts {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("weir-few-ports-{}", std::process::id()));
        let text = "#!/bin/sh\necho 40000 40001 > /proc/sys/net/ipv4/ip_local_port_range\n";
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }
}

impl Drop for FewPorts {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// One address may be that of several connections, if they go to different places.
#[test]
fn connections_from_the_same_port_are_not_taken_for_each_other() {
    let _alone = alone();
    let few = FewPorts::new();
    let mut scenario = dumbbell(1, 3, 100);
    for to in 1..=3 {
        let kind = TrafficKind::Shuffle { octets: Bytes::new(500_000), congestion: "cubic".into() };
        flow(&mut scenario, 0, to, kind);
        scenario.traffic[to - 1].start = Span::from_secs(1);
    }
    let client = few.0.display().to_string();
    let server = format!("{} serve {{port}}", pump());
    flow(&mut scenario, 0, 1, TrafficKind::Exec(Exec { server, client }));
    let record = run(&scenario);
    for entry in 0..3 {
        let work = work(&record, entry);
        assert_eq!((work.due, work.done, octets(&record, entry)), (1, 1, 500_000), "{entry}");
    }
}

#[test]
fn all_kinds_of_traffic_stop_at_their_time() {
    let _alone = alone();
    steadily(|| {
        let mut scenario = flows(2, 100.0);
        flow(&mut scenario, 1, 0, tcp(1));
        for traffic in &mut scenario.traffic {
            traffic.start = Span::from_millis(500);
            traffic.stop = Span::from_millis(1200);
        }
        let record = run(&scenario);
        for (entry, flow) in record.flows.iter().enumerate() {
            let sum = |range: std::ops::Range<usize>| flow.octets[range].iter().sum::<u64>();
            assert_eq!((sum(0..4), sum(13..20)), (0, 0), "{entry}: {:?}", flow.octets);
            assert!(sum(5..12) > 100_000, "{entry}: {:?}", flow.octets);
        }
    });
}

/// A program of this package's examples, which cargo builds beside the tests.
fn pump() -> String {
    let path = common::stand_in().with_file_name("pump");
    path.into_os_string().into_string().expect("a plain path")
}

fn exec(server: &str, client: &str) -> TrafficKind {
    let command = |words: &str| format!("{} {words}", pump());
    TrafficKind::Exec(Exec { server: command(server), client: command(client) })
}

#[test]
fn programs_are_measured_at_the_receivers_port_and_end_with_the_run() {
    let _alone = alone();
    steadily(|| {
        let mut scenario = dumbbell(2, 1, 100);
        flow(&mut scenario, 0, 2, exec("serve {port}", "send {to} {port}"));
        flow(&mut scenario, 1, 2, exec("serve {port}", "send {to} {port}"));
        let late = &mut scenario.traffic[1];
        late.start = Span::from_secs(1);
        let record = run(&scenario);
        let goodput = |range: std::ops::Range<usize>| -> f64 {
            let both = record.flows.iter().map(|f| f.octets[range.clone()].iter().sum::<u64>());
            // A sample that is read late holds more.
            let took = record.ends[range.end - 1].as_secs_f64()
                - record.ends[range.start - 1].as_secs_f64();
            both.sum::<u64>() as f64 * 8.0 / took / 1e6
        };
        assert!((85.0..96.5).contains(&goodput(5..20)), "{} Mb/s", goodput(5..20));
        assert_eq!(record.flows[0].octets, record.flows[1].octets, "clients are not told apart");
        assert!(record.notes.iter().all(|n| !n.contains("ended early")), "{:?}", record.notes);
        assert_eq!(traces(), Vec::<String>::new());
    });
}

#[test]
fn a_program_that_fails_is_told_with_its_last_words() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, exec("serve {port}", "fail"));
    let record = run(&scenario);
    let told = record.notes.iter().find(|note| note.contains("client of 0-1"));
    assert!(told.is_some_and(|note| note.contains("nothing to pump")), "{:?}", record.notes);
    scenario.traffic[0].kind =
        TrafficKind::Exec(Exec { server: "no-such-program-anywhere".into(), client: "x".into() });
    let options = Options::new("weir");
    let error = play(&scenario, &none(), &options, &mut |_| {}, &AtomicBool::new(false))
        .expect_err("there is no such program");
    assert!(error.to_string().contains("no-such-program-anywhere"), "{error}");
    assert_eq!(traces(), Vec::<String>::new());
}

#[test]
fn hundreds_of_short_connections_a_second_are_no_trouble() {
    let _alone = alone();
    steadily(|| {
        let mut scenario = flows(5, 500.0);
        for traffic in &mut scenario.traffic {
            if let Traffic { kind: TrafficKind::Flows(flows), .. } = traffic {
                flows.sizes = Sizes::Fixed(Bytes::new(1000));
            }
        }
        let record = run(&scenario);
        let (due, done) = (0..5).fold((0, 0), |(due, done), entry| {
            let work = work(&record, entry);
            (due + work.due, done + work.done)
        });
        assert!((745..=755).contains(&due), "{due}");
        assert!(due - done <= 5, "{done} of {due}");
        assert!(record.notes.iter().all(|n| !n.contains("failed")), "{:?}", record.notes);
    });
}

#[test]
fn a_host_has_room_for_hundreds_of_vms() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    scenario.duration = Span::from_millis(600);
    scenario.warmup = Span::ZERO;
    let one = scenario.vms[0].clone();
    scenario.vms.extend((0..300).map(|i| Vm { name: format!("more{i}"), ..one.clone() }));
    flow(&mut scenario, 301, 1, tcp(1));
    assert!(octets(&run(&scenario), 0) > 1_000_000);
}
