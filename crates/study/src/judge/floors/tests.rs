use crate::judge::judge;
use crate::testing::{dumbbell, steady};
use std::collections::BTreeMap;
use weir_model::results::Run;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::{Bytes, Rate, Span};

/// X with a floor of 90 Mb/s that sends all the time, Y with the same that sends UDP of 300 Mb/s now and then.
fn bursts(on_ms: u64, off_ms: u64) -> Scenario {
    let mut scenario = dumbbell(1);
    let (on, off) = (Some(Span::from_millis(on_ms)), Some(Span::from_millis(off_ms)));
    let rate = Rate::from_mbps(300);
    scenario.traffic[1].kind = TrafficKind::Udp { rate, on, off, payload: Bytes::new(1472) };
    scenario
}

fn run(scenario: &Scenario, observed: &crate::judge::Observed) -> Run {
    judge(scenario, &scenario.mechanisms[1], 0, observed).expect("the floors fit")
}

fn close(summary: &BTreeMap<String, f64>, metric: &str, want: f64) {
    let got = summary.get(metric).unwrap_or_else(|| panic!("no {metric}"));
    assert!((got - want).abs() < 2e-3, "{metric}: got {got}, want {want}");
}

#[test]
fn a_vm_that_is_never_backlogged_for_half_a_second_does_not_vanish() {
    let scenario = bursts(300, 700);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    // In one burst of nine Y gets nothing.
    observed.flows[1].octets[50..53].fill(0);
    let run = run(&scenario, &observed);
    let y = run.vms.iter().find(|vm| vm.vm == "y'").expect("judged");
    assert_eq!((y.window_min, y.window_100ms_min), (None, Some(0.0)));
    assert!((y.ratio - 8.0 / 9.0 * 100.0 / 90.0).abs() < 2e-3, "{y:?}");
    close(&run.summary, "worst_100ms_ratio", 0.0);
    close(&run.summary, "worst_100ms_p1", 0.0);
    close(&run.summary, "worst_floor_ratio", 8.0 / 9.0 * 100.0 / 90.0);
    // Of half seconds there are X's alone.
    close(&run.summary, "worst_window_ratio", 100.0 / 90.0);
    close(&run.summary, "floors_unjudged", 0.0);
}

#[test]
fn half_seconds_begin_with_the_backlog() {
    // From 1.2 s on for 700 ms, in a grid of half seconds that begins at 1 s.
    let mut scenario = bursts(700, 9_300);
    scenario.traffic[1].start = Span::from_millis(1_200);
    let observed = steady(&scenario, &[100.0, 50.0]);
    let run = run(&scenario, &observed);
    let y = run.vms.iter().find(|vm| vm.vm == "y'").expect("judged");
    assert!((y.window_min.expect("it has one") - 50.0 / 90.0).abs() < 2e-3, "{y:?}");
}

#[test]
fn a_burst_shorter_than_a_sample_is_counted_as_not_judged() {
    let scenario = bursts(20, 180);
    let run = run(&scenario, &steady(&scenario, &[100.0, 50.0]));
    assert!(run.vms.iter().all(|vm| vm.vm.starts_with('x')), "{:?}", run.vms);
    // Its sender and its receiver.
    close(&run.summary, "floors_unjudged", 2.0);
}

#[test]
fn a_tenth_of_a_second_is_judged_where_the_floor_is_worth_fifty_frames() {
    let ratio = |floor: u64| {
        let mut scenario = dumbbell(1);
        for vm in &mut scenario.vms {
            (vm.floor_in, vm.floor_out) =
                (Rate::from_bps(floor * 1000), Rate::from_bps(floor * 1000));
        }
        let mut observed = steady(&scenario, &[100.0, 100.0]);
        observed.flows[0].octets[40] = 0;
        run(&scenario, &observed).summary.get("worst_100ms_ratio").copied()
    };
    // 50 frames of 1514 octets in 100 ms are 6.056 Mb/s.
    assert_eq!(ratio(6_100), Some(0.0));
    assert_eq!(ratio(6_000), None);
}

#[test]
fn windows_are_as_long_as_they_were_and_not_as_they_should_have_been() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    let late = |n: u64| if n == 41 { 60 } else { 0 };
    observed.ends = (1..=100).map(|n| Span::from_millis(100 * n + late(n))).collect();
    for flow in &mut observed.flows {
        // The one that is read late has more, the next one less.
        let octets = flow.octets[40];
        (flow.octets[40], flow.octets[41]) = (octets * 16 / 10, octets * 4 / 10);
    }
    let run = run(&scenario, &observed);
    close(&run.summary, "worst_100ms_ratio", 100.0 / 90.0);
    close(&run.summary, "window_100ms_min.X", 100.0 / 90.0);
    close(&run.summary, "worst_window_ratio", 100.0 / 90.0);
    let series: Vec<f64> = run.groups[0].series_bps[39..43].to_vec();
    assert!(series.windows(2).all(|two| (two[0] / two[1] - 1.0).abs() < 1e-3), "{series:?}");
}

#[test]
fn a_pair_that_starves_is_seen_beside_the_mean_of_all() {
    let scenario = dumbbell(2);
    let run = run(&scenario, &steady(&scenario, &[5.0, 50.0, 50.0]));
    close(&run.summary, "pairs_of_ideal_mean", (0.05 + 1.0 + 1.0) / 3.0);
    close(&run.summary, "pairs_of_ideal_p1", 0.05);
}
