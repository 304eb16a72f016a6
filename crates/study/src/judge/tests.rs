//! Runs written by hand, whose numbers can be checked by hand: a judge that cannot say no is
//! worthless.

use super::*;
use crate::numbers::percentile;
use crate::testing::{dumbbell, steady, tcp};
use hdrhistogram::Histogram;
use weir_model::observed::Report;
use weir_model::results::LinkResult;
use weir_model::scenario::{
    Arrivals, Connections, Flows, Load, Pick, Request, Sizes, Spacing, Traffic, TrafficKind,
};
use weir_units::{Bytes, Rate, Span};

const TCP: f64 = 1448.0 / 1514.0;

fn udp(group: &str, from: usize, to: usize, mbps: u64) -> Traffic {
    let rate = Rate::from_mbps(mbps);
    let kind = TrafficKind::Udp { rate, on: None, off: None, payload: Bytes::new(1472) };
    Traffic { kind, ..tcp(group, from, to) }
}

fn run(scenario: &Scenario, observed: &Observed) -> Run {
    judge(scenario, &scenario.mechanisms[1], 0, observed).expect("the floors fit")
}

fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-3, "got {got}, want {want}");
}

#[test]
fn an_ideal_run_is_called_ideal() {
    let scenario = dumbbell(2);
    let run = run(&scenario, &steady(&scenario, &[100.0, 50.0, 50.0]));
    assert!(run.valid, "{:?}", run.reasons);
    close(run.summary["worst_floor_ratio"], 100.0 / 90.0);
    close(run.summary["optimum_ratio"], 1.0);
    close(run.summary["min_flow_ratio"], 1.0);
    close(run.summary["total_of_link"], 1.0);
    close(run.summary["link_utilisation"], 1.0);
    close(run.summary["jain"], 1.0);
    close(run.summary["share.X"], 1.0);
    close(run.summary["goodput.X"] / 1e6, 100.0 * TCP);
}

#[test]
fn who_gives_way_for_a_while_is_judged_in_that_while_and_the_total_all_the_time() {
    let mut scenario = dumbbell(2);
    for entry in &mut scenario.traffic[1..] {
        (entry.start, entry.stop) = (Span::from_secs(4), Span::from_secs(6));
    }
    let mut observed = steady(&scenario, &[180.0, 60.0, 60.0]);
    let beside = |sample: usize| (40..60).contains(&sample);
    for sample in 0..100 {
        let octets = &mut observed.flows[0].octets[sample];
        *octets = if beside(sample) { *octets / 3 } else { *octets };
        for flow in &mut observed.flows[1..] {
            flow.octets[sample] = if beside(sample) { flow.octets[sample] } else { 0 };
        }
    }
    let result = run(&scenario, &observed);
    close(result.summary["goodput_beside.X.Y"] / 1e6, 60.0 * TCP);
    close(result.summary["goodput.Y"] / 1e6, 120.0 * TCP);
    close(result.summary["total_window_min"], 1.0);
    close(result.summary["total_window_max"], 1.0);
    assert!(!result.summary.contains_key("goodput_beside.Y.X"), "that is all of its time");
    // For half a second of nine the newcomers get nothing.
    for flow in &mut observed.flows[1..] {
        flow.octets[50..55].fill(0);
    }
    let result = run(&scenario, &observed);
    let mean = (17.0 * 180.0 + 60.0) / 18.0;
    close(result.summary["total_window_min"], 60.0 / mean);
    close(result.summary["total_window_max"], 180.0 / mean);
}

#[test]
fn a_tenants_floor_is_that_of_all_its_vms_on_a_link() {
    let scenario = dumbbell(2);
    // One of Y's VMs has nearly all that both are promised: the tenant lacks nothing.
    let unfair = run(&scenario, &steady(&scenario, &[100.0, 90.0, 1.0]));
    close(unfair.summary["tenant_floor_ratio"], 91.0 / 90.0);
    assert!(unfair.summary["worst_pair_ratio"] < 0.1);
    let mut observed = steady(&scenario, &[45.0, 77.5, 77.5]);
    let starved = run(&scenario, &observed);
    close(starved.summary["tenant_floor_ratio"], 0.5);
    close(starved.summary["tenant_floor_p1"], 0.5);
    assert!(!starved.summary.contains_key("unbound_octets"), "no tenant is bound");
    // For half a second of nine X has nothing: that is one of eighteen windows.
    observed = steady(&scenario, &[100.0, 50.0, 50.0]);
    observed.flows[0].octets[50..55].fill(0);
    let paused = run(&scenario, &observed);
    close(paused.summary["tenant_floor_p1"], 0.0);
    close(paused.summary["tenant_floor_p10"], 100.0 / 90.0);
    close(paused.summary["tenant_floor_100ms_p1"], 0.0);
}

#[test]
fn a_link_that_rests_for_a_twentieth_of_the_time_is_full_in_the_rest() {
    let scenario = dumbbell(2);
    let mut observed = steady(&scenario, &[100.0, 50.0, 50.0]);
    observed.links[2].octets[20..25].fill(0);
    let run = run(&scenario, &observed);
    close(run.summary["link_100ms_p1"], 0.0);
    close(run.summary["link_100ms_p15"], 1.0);
    close(run.summary["link_utilisation"], 85.0 / 90.0);
}

#[test]
fn a_starved_vm_breaks_its_floor() {
    let scenario = dumbbell(2);
    let run = run(&scenario, &steady(&scenario, &[9.0, 95.5, 95.5]));
    close(run.summary["worst_floor_ratio"], 0.1);
    close(run.summary["goodput_of_floor.X"], 0.1);
    close(run.summary["goodput_of_link.X"], 9.0 / 200.0);
    close(run.summary["min_flow_ratio"], 0.09);
    close(run.summary["optimum_ratio"], 1.0);
    let x = run.vms.iter().find(|v| v.vm == "x'").expect("x' is backlogged");
    assert_eq!((x.direction.as_str(), x.promised_bps), ("in", 90e6));
    close(x.goodput_bps / 1e6, 9.0 * TCP);
}

#[test]
fn a_second_of_silence_breaks_a_window_but_hardly_the_mean() {
    let scenario = dumbbell(2);
    let mut observed = steady(&scenario, &[100.0, 50.0, 50.0]);
    observed.flows[0].octets[40..45].fill(0);
    let run = run(&scenario, &observed);
    close(run.summary["worst_window_ratio"], 0.0);
    close(run.summary["worst_window_p1"], 0.0);
    close(run.summary["window_min.X"], 0.0);
    close(run.summary["window_min.Y"], 100.0 / 90.0);
    close(run.summary["worst_floor_ratio"], 100.0 / 90.0 * 85.0 / 90.0);
}

#[test]
fn the_warmup_is_not_judged() {
    let scenario = dumbbell(2);
    let mut observed = steady(&scenario, &[100.0, 50.0, 50.0]);
    observed.flows[0].octets[..10].fill(0);
    close(run(&scenario, &observed).summary["worst_window_ratio"], 100.0 / 90.0);
}

#[test]
fn an_idle_link_is_not_an_optimum() {
    let scenario = dumbbell(2);
    let run = run(&scenario, &steady(&scenario, &[90.0, 45.0, 45.0]));
    close(run.summary["optimum_ratio"], 0.9);
    close(run.summary["total_of_link"], 0.9);
    close(run.summary["worst_floor_ratio"], 1.0);
}

#[test]
fn the_optimum_is_never_exceeded() {
    let scenario = dumbbell(1);
    let run = run(&scenario, &steady(&scenario, &[110.0, 110.0]));
    assert_eq!(run.summary["optimum_ratio"], 1.0);
}

#[test]
fn jain_counts_connections_and_those_that_never_came_up() {
    let mut scenario = dumbbell(1);
    let kind = TrafficKind::Tcp { connections: 4, congestion: "cubic".into() };
    scenario.traffic[1].kind = kind;
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.flows[1].connections = vec![1000, 1000];
    let run = run(&scenario, &observed);
    close(run.summary["jain.Y"], 0.5);
    close(run.summary["jain"], 0.5);
    assert!(!run.summary.contains_key("jain.X"), "one connection is not fair to anybody");
}

#[test]
fn udp_below_its_floor_is_not_backlogged() {
    let mut scenario = dumbbell(1);
    scenario.traffic[1] = udp("Y", 3, 2, 50);
    let run = run(&scenario, &steady(&scenario, &[150.0, 10.0]));
    assert!(run.vms.iter().all(|v| v.vm != "y'"), "{:?}", run.vms);
    close(run.summary["worst_floor_ratio"], 150.0 / 90.0);
    close(run.summary["goodput_of_floor.Y"], 0.2);
    close(run.summary["share.Y"], 0.2);
}

#[test]
fn a_floor_counts_only_while_the_vm_is_backlogged() {
    let mut scenario = dumbbell(1);
    scenario.traffic[1].start = Span::from_secs(4);
    scenario.traffic[1].stop = Span::from_secs(8);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.flows[1].octets[..40].fill(0);
    observed.flows[1].octets[80..].fill(0);
    let run = run(&scenario, &observed);
    let y = run.vms.iter().find(|v| v.vm == "y'").expect("y' is backlogged for 4 s");
    close(y.ratio, 100.0 / 90.0);
    close(run.summary["goodput.Y"] / 1e6, 100.0 * TCP);
    // Alone, X could have had all of the link for 5 of the 9 judged seconds.
    close(run.summary["share.X"], 900.0 / (4.0 * 100.0 + 5.0 * 200.0));
    assert_eq!(run.groups[1].promised_series_bps[20], 0.0);
    close(run.groups[1].promised_series_bps[50] / 1e6, 90.0 * TCP);
}

#[test]
fn changes_are_told_in_the_order_of_time() {
    let mut scenario = dumbbell(2);
    scenario.traffic[1].stop = Span::from_secs(5);
    scenario.traffic[2] = Traffic { start: Span::from_secs(5), ..udp("Y", 4, 2, 50) };
    scenario.traffic[0].start = Span::from_secs(2);
    let run = run(&scenario, &steady(&scenario, &[100.0, 50.0, 50.0]));
    let told: Vec<(f64, &str)> = run.events.iter().map(|e| (e.at_s, e.says.as_str())).collect();
    assert_eq!(told, [(2.0, "X starts TCP"), (5.0, "Y turns from TCP to UDP")]);
}

#[test]
fn bursts_are_solved_piece_by_piece() {
    let mut scenario = dumbbell(1);
    let (on, off) = (Some(Span::from_millis(500)), Some(Span::from_millis(500)));
    let rate = Rate::from_mbps(300);
    scenario.traffic[1].kind = TrafficKind::Udp { rate, on, off, payload: Bytes::new(1472) };
    let run = run(&scenario, &steady(&scenario, &[150.0, 50.0]));
    // X: 100 of 200 during a burst, 200 in the pause.
    close(run.groups[0].ideal_bps / 1e6, 150.0 * TCP);
    close(run.summary["share.X"], 1.0);
}

#[test]
fn traffic_between_tenants_has_no_floor() {
    let mut scenario = dumbbell(1);
    scenario.vms[3].tenant = 0;
    let run = run(&scenario, &steady(&scenario, &[200.0, 0.0]));
    assert!(run.vms.iter().all(|v| v.vm.starts_with('x')), "{:?}", run.vms);
    assert_eq!(run.groups[1].promised_bps, 0.0);
    assert!(!run.summary.contains_key("goodput_of_floor.Y"));
}

#[test]
fn two_vms_of_one_host_need_no_link() {
    let mut scenario = dumbbell(1);
    scenario.vms[3].host = 1;
    let run = run(&scenario, &steady(&scenario, &[200.0, 90.0]));
    close(run.groups[1].promised_bps / 1e6, 90.0 * TCP);
    close(run.summary["total_of_link"], 1.0);
}

#[test]
fn floors_that_do_not_fit_are_an_error() {
    let mut scenario = dumbbell(1);
    for vm in &mut scenario.vms {
        vm.floor_out = Rate::from_mbps(150);
        vm.floor_in = Rate::from_mbps(150);
    }
    let observed = steady(&scenario, &[100.0, 100.0]);
    let error = judge(&scenario, &scenario.mechanisms[0], 0, &observed).expect_err("300 > 200");
    assert!(error.contains("core") && error.contains("300 Mb/s"), "{error}");
}

#[test]
fn a_saturated_cpu_makes_a_run_invalid() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.idle[..10].fill(0.01);
    assert!(run(&scenario, &observed).valid, "10 % of the samples are allowed");
    observed.idle[10] = 0.0;
    let run = run(&scenario, &observed);
    assert!(!run.valid);
    assert!(run.reasons[0].contains("CPU"), "{:?}", run.reasons);
}

#[test]
fn time_that_the_machine_below_took_away_is_told_and_the_run_stays_a_result() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.stolen[3] = 0.09;
    assert!(run(&scenario, &observed).notes.is_empty());
    observed.stolen[42..44].copy_from_slice(&[0.1, 0.17]);
    let run = run(&scenario, &observed);
    assert!(run.valid);
    assert!(run.notes[0].contains("2 of 100") && run.notes[0].contains("17 %"), "{:?}", run.notes);
    assert_eq!(run.perf.stolen[42..44], [0.1, 0.17]);
}

#[test]
fn a_run_of_which_nobody_knows_how_busy_the_machine_was_is_invalid() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.idle.truncate(99);
    let run = run(&scenario, &observed);
    assert!(!run.valid && run.reasons[0].contains("99 of 100"), "{:?}", run.reasons);
}

#[test]
fn a_run_that_ended_early_is_invalid() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.flows[0].octets.truncate(60);
    let run = run(&scenario, &observed);
    assert!(!run.valid && run.reasons[0].contains("60 of 100"), "{:?}", run.reasons);
}

#[test]
fn no_drop_without_protection_makes_the_whole_point_invalid() {
    let scenario = dumbbell(1);
    let played = |drops: u64| -> Vec<Run> {
        let mut observed = steady(&scenario, &[100.0, 100.0]);
        observed.links[2].drops.fill(drops);
        let judged = |m| judge(&scenario, m, 0, &observed).expect("the floors fit");
        scenario.mechanisms.iter().map(judged).collect()
    };
    let mut runs = played(1);
    without_congestion(&scenario, &mut runs);
    assert!(runs.iter().all(|r| r.valid));
    let mut runs = played(0);
    without_congestion(&scenario, &mut runs);
    assert!(runs.iter().all(|r| !r.valid && r.reasons[0].contains("core")), "{runs:?}");
    // Without a `none` run there is nothing to compare with.
    let mut protected = played(0).split_off(1);
    without_congestion(&scenario, &mut protected);
    assert!(protected[0].valid);
}

#[test]
fn a_mark_is_congestion_as_a_drop_is() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.links[2].drops.fill(0);
    observed.links[2].marks.fill(1);
    let judged = |m| judge(&scenario, m, 0, &observed).expect("the floors fit");
    let mut runs: Vec<Run> = scenario.mechanisms.iter().map(judged).collect();
    without_congestion(&scenario, &mut runs);
    assert!(runs.iter().all(|r| r.valid), "{runs:?}");
    close(runs[0].summary["marks"], 100.0);
}

#[test]
fn seconds_without_a_floor_are_looked_for_among_what_agents_report() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    assert!(!run(&scenario, &observed).summary.contains_key("broken_seconds"), "no agent says");
    let flow = &scenario.traffic[0];
    let report = |from_at: u64, until: u64| Report {
        from: scenario.vms[flow.from].name.clone(),
        to: scenario.vms[flow.to].name.clone(),
        from_at: Span::from_millis(from_at),
        until: Span::from_millis(until),
    };
    observed.reports = Some(Vec::new());
    let all = run(&scenario, &observed);
    close(all.summary["broken_seconds"], 0.0);
    assert!(!all.summary.contains_key("broken_found"), "nothing broke");
    // From 4 s to 6 s next to nothing arrives.
    let samples = observed.flows[0].octets.len();
    let second = (1.0 / observed.sample.as_secs_f64()).round() as usize;
    assert!(samples >= 8 * second, "the scenario is long enough");
    observed.flows[0].octets[4 * second..6 * second].fill(100);
    close(run(&scenario, &observed).summary["broken_found"], 0.0);
    observed.reports = Some(vec![report(4300, 5900)]);
    let told = run(&scenario, &observed).summary;
    close(told["broken_seconds"], 2.0);
    close(told["broken_found"], 1.0);
    close(told["reported_true"], 1.0);
    // Of another pair, and of a time in which all was well.
    let other = Report { from: "another".into(), ..report(4300, 5900) };
    observed.reports = Some(vec![other, report(8800, 9900)]);
    let told = run(&scenario, &observed).summary;
    close(told["broken_found"], 0.0);
    close(told["reported_stretches"], 1.0);
    close(told["reported_true"], 0.0);
}

#[test]
fn what_is_reported_lost_beyond_what_was_dropped_is_false() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    let none = run(&scenario, &observed);
    assert!(!none.summary.contains_key("false_losses"), "nobody said anything");
    for (reported, false_losses) in [(90, 0.0), (100, 0.0), (107, 7.0)] {
        observed.losses_reported = Some(reported);
        let run = run(&scenario, &observed);
        close(run.summary["drops"], 100.0);
        close(run.summary["losses_reported"], reported as f64);
        close(run.summary["false_losses"], false_losses);
    }
}

#[test]
fn what_was_overtaken_is_known_where_a_link_is_a_box_only() {
    let mut scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.overtaken = 12;
    assert!(!run(&scenario, &observed).summary.contains_key("overtaken"), "a port cannot tell");
    scenario.topology.links[1].delay = Span::from_millis(1);
    close(run(&scenario, &observed).summary["overtaken"], 12.0);
}

#[test]
fn a_goodput_that_swings_has_a_standard_deviation() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    close(run(&scenario, &observed).summary["goodput_std.X"], 0.0);
    // Half a second 10 % above its mean, half a second as much below.
    for (sample, octets) in observed.flows[0].octets.iter_mut().enumerate() {
        *octets = if sample / 5 % 2 == 0 { 1_100_000 } else { 900_000 };
    }
    let swings = run(&scenario, &observed).summary["goodput_std.X"];
    // 18 windows: the sample's deviation is a little larger than the population's.
    close(swings, 0.1 * (18.0f64 / 17.0).sqrt());
}

/// A second in samples of 10 ms; Y begins after half of it. Floors are 90 Mbit each, and so is what
/// they have.
fn in_short_samples() -> (Scenario, Observed, impl Fn(f64) -> u64) {
    let mut scenario = dumbbell(1);
    (scenario.duration, scenario.warmup) = (Span::from_secs(1), Span::from_millis(100));
    scenario.traffic.iter_mut().for_each(|entry| entry.stop = Span::from_secs(1));
    scenario.traffic[1].start = Span::from_millis(500);
    let mut observed = steady(&scenario, &[90.0, 90.0]);
    observed.sample = Span::from_millis(10);
    let share = super::payload::share(&scenario.traffic[0]);
    let octets = move |mbps: f64| (mbps * 1e6 * 0.01 / 8.0 * share) as u64;
    for flow in &mut observed.flows {
        flow.octets = vec![octets(90.0); 100];
    }
    observed.links.iter_mut().for_each(|link| link.octets = vec![0; 100]);
    (scenario, observed, octets)
}

#[test]
fn convergence_lasts_from_the_last_start_to_the_last_sample_that_is_off_its_floor() {
    let (scenario, mut observed, octets) = in_short_samples();
    let convergence = |observed: &Observed| {
        let summary = run(&scenario, observed).summary;
        ["X", "Y"].map(|group| summary.get(&format!("convergence_s.{group}")).copied())
    };
    // What X had before Y began does not count.
    observed.flows[0].octets[..50].fill(octets(180.0));
    assert_eq!(convergence(&observed), [Some(0.0), Some(0.0)]);
    observed.flows[0].octets[50..53].fill(octets(140.0));
    observed.flows[1].octets[50] = 0;
    observed.flows[1].octets[69] = octets(80.0);
    let [x, y] = convergence(&observed).map(|seconds| seconds.expect("they come to rest"));
    assert!((x - 0.03).abs() < 1e-9 && (y - 0.2).abs() < 1e-9, "{x} {y}");
    observed.flows[0].octets[99] = octets(100.0);
    assert_eq!(convergence(&observed)[0], None, "it is off at the end");
    observed.sample = Span::from_millis(100);
    assert_eq!(convergence(&observed), [None; 2], "too long to show anything");
}

#[test]
fn recovery_looks_at_ten_samples_together_and_more_is_no_harm() {
    let (scenario, mut observed, octets) = in_short_samples();
    let recovery =
        |observed: &Observed| run(&scenario, observed).summary.get("recovery_s.X").copied();
    observed.flows[0].octets[50..].copy_from_slice(&[octets(60.0), octets(120.0)].repeat(25));
    assert_eq!(recovery(&observed), Some(0.0), "pieces are no gaps");
    observed.flows[0].octets[62..65].fill(0);
    let seconds = recovery(&observed).expect("it has recovered");
    // The last ten that lack too much begin with the second of the three: those that begin with the
    // third are over at 0.74 s.
    assert!((seconds - 0.24).abs() < 1e-9, "{seconds}");
    observed.flows[0].octets[80..85].fill(0);
    assert_eq!(recovery(&observed), Some(seconds), "it was back");
    observed.flows[0].octets[62..].fill(0);
    assert_eq!(recovery(&observed), None, "it is not");
    observed.flows.iter_mut().for_each(|flow| flow.octets.truncate(59));
    observed.links.iter_mut().for_each(|link| link.octets.truncate(59));
    assert_eq!(recovery(&observed), None, "nine samples are no ten");
}

#[test]
fn a_point_at_which_nothing_should_be_congested_needs_no_drop() {
    let mut scenario = dumbbell(0);
    scenario.congested.clear();
    let mut observed = steady(&scenario, &[200.0]);
    observed.links[2].drops.fill(0);
    let judged = |m| judge(&scenario, m, 0, &observed).expect("the floors fit");
    let mut runs: Vec<Run> = scenario.mechanisms.iter().map(judged).collect();
    without_congestion(&scenario, &mut runs);
    assert!(runs.iter().all(|r| r.valid), "{runs:?}");
    // The link that limits X still is the one its share is of.
    close(runs[1].summary["goodput_of_link.X"], 1.0);
}

#[test]
fn links_are_named_with_their_direction() {
    let scenario = dumbbell(1);
    let run = run(&scenario, &steady(&scenario, &[100.0, 100.0]));
    let names: Vec<&str> = run.links.iter().map(|l: &LinkResult| l.link.as_str()).collect();
    assert_eq!(names[2..4], ["core:s1>s2", "core:s2>s1"]);
    close(run.links[2].ideal_bps / 1e6, 200.0);
}

#[test]
fn a_reservation_is_what_the_floors_promise_and_room_for_acknowledgements() {
    let scenario = dumbbell(2);
    let reserved: Vec<(String, u64)> = reservations(&scenario)
        .iter()
        .map(|(pair, rate)| (format!("{}>{}", pair.src.0, pair.dst.0), rate.as_bps()))
        .collect();
    let want = [
        ("0>1", 90_000_000),
        ("1>0", 4_500_000),
        ("2>3", 2_250_000),
        ("2>4", 2_250_000),
        ("3>2", 45_000_000),
        ("4>2", 45_000_000),
    ];
    assert_eq!(reserved, want.map(|(pair, bps)| (pair.to_string(), bps)));
}

#[test]
fn the_first_percentile_is_never_kinder_than_its_rank() {
    let hundred: Vec<f64> = (0..100).map(f64::from).collect();
    assert_eq!(percentile(&hundred, 0.01), Some(0.0));
    let two_hundred: Vec<f64> = (0..200).map(f64::from).collect();
    assert_eq!(percentile(&two_hundred, 0.01), Some(1.0));
    assert_eq!(percentile(&[], 0.01), None);
}

fn arrivals(per_second: f64) -> Arrivals {
    Arrivals { per_second, spacing: Spacing::Poisson, seed: 1 }
}

fn mice(size: u64) -> TrafficKind {
    TrafficKind::Flows(Flows {
        arrivals: arrivals(100.0),
        closed: None,
        sizes: Sizes::Fixed(Bytes::new(size)),
        pick: Pick::Random,
        mine: 0,
        of: 1,
        congestion: "cubic".into(),
    })
}

/// Work of which some was done in so many milliseconds each.
fn work(due: u64, took_ms: &[u64], last_s: u64) -> Work {
    let mut times = Histogram::new(3).expect("three digits");
    took_ms.iter().for_each(|ms| times.record(ms * 1_000_000).expect("it grows"));
    Work { due, done: took_ms.len() as u64, last: Span::from_secs(last_s), times }
}

#[test]
fn times_of_a_group_are_those_of_all_its_flows() {
    let mut scenario = dumbbell(2);
    scenario.traffic[1].kind = mice(20_000);
    scenario.traffic[2].kind = mice(20_000);
    let mut observed = steady(&scenario, &[100.0, 2.0, 2.0]);
    observed.flows[1].work = Some(work(3, &[10, 20, 30], 9));
    observed.flows[2].work = Some(work(2, &[1000], 9));
    let run = run(&scenario, &observed);
    let close_to = |name: &str, want: f64| {
        let got = run.summary[name];
        assert!((got / want - 1.0).abs() < 2e-3, "{name}: got {got}, want {want}");
    };
    close_to("fct.Y.mean", 0.265);
    close_to("fct.Y.p50", 0.020);
    close_to("fct.Y.p99", 1.0);
    close(run.summary["unfinished.Y"], 0.2);
    let times = run.flows[2].times.as_ref().expect("one was done");
    assert_eq!((times.due, times.done), (2, 1));
    assert_eq!(run.groups[1].times.as_ref().map(|t| t.due), Some(5));
    assert!(!run.summary.contains_key("latency.Y.p50") && !run.summary.contains_key("jain.Y"));
    assert!(!run.summary.contains_key("unfinished.X"));
}

#[test]
fn nothing_done_has_no_percentiles_but_is_counted() {
    let mut scenario = dumbbell(1);
    scenario.traffic[1].kind = mice(20_000);
    let mut observed = steady(&scenario, &[100.0, 0.0]);
    observed.flows[1].work = Some(work(7, &[], 0));
    let run = run(&scenario, &observed);
    close(run.summary["unfinished.Y"], 1.0);
    assert!(!run.summary.keys().any(|name| name.starts_with("fct.")));
}

#[test]
fn short_flows_offer_their_rate_and_the_oracle_leaves_the_rest_to_others() {
    let mut scenario = dumbbell(1);
    // 100 flows a second of 20 kB are 20 924 octets each on the wire: 16.7 Mb/s, below the floor.
    scenario.traffic[1].kind = mice(20_000);
    let run = run(&scenario, &steady(&scenario, &[183.2608, 16.7392]));
    close(run.summary["share.X"], 1.0);
    close(run.summary["goodput_of_floor.Y"], 1.0);
    assert!(run.vms.iter().all(|v| v.vm != "y'"), "a demand below the floor is no backlog");
}

#[test]
fn answers_are_a_demand_of_their_own_direction() {
    let mut scenario = dumbbell(1);
    let request = Request {
        size: Bytes::new(100),
        response: Bytes::new(20_000),
        load: Load::Open(arrivals(100.0)),
        connections: Connections::New,
        congestion: "cubic".into(),
    };
    scenario.traffic[1].kind = TrafficKind::Request(request);
    let kind = TrafficKind::Reply {
        response: Bytes::new(20_000),
        per_second: Some(100.0),
        congestion: "cubic".into(),
    };
    let (from, to) = (scenario.traffic[1].to, scenario.traffic[1].from);
    scenario.traffic.push(Traffic { from, to, kind, ..scenario.traffic[1].clone() });
    let mut observed = steady(&scenario, &[100.0, 0.1328, 16.7392]);
    observed.flows[1].work = Some(work(3, &[4, 5, 6], 9));
    let run = run(&scenario, &observed);
    close(run.links[2].ideal_bps / 1e6, 200.0);
    close(run.links[3].ideal_bps / 1e6, 16.7392);
    close(run.summary["goodput_of_link.Y"], 0.1328 / 200.0);
    close(run.summary["goodput.Y"] / 1e6, 16.0 + 0.08);
    assert!((run.summary["latency.Y.p50"] - 0.005).abs() < 1e-5);
    assert_eq!(run.groups[1].kind, "reply+request");
    // A reservation cannot know when a burst comes: both directions get their hoses' part.
    let reserved = reservations(&scenario);
    let of = |src: u32, dst: u32| {
        let pair = |(p, _): &&(weir_units::PairId, Rate)| (p.src.0, p.dst.0) == (src, dst);
        reserved.iter().find(pair).expect("reserved").1.as_bps()
    };
    assert_eq!((of(3, 2), of(2, 3)), (94_500_000, 94_500_000));
}

#[test]
fn a_median_over_shuffles_needs_all_of_them() {
    let mut scenario = dumbbell(2);
    let octets = Bytes::new(50_000_000);
    for (entry, group) in [(1, "A"), (2, "B")] {
        scenario.traffic[entry].kind = TrafficKind::Shuffle { octets, congestion: "cubic".into() };
        scenario.traffic[entry].group = group.into();
    }
    let mut observed = steady(&scenario, &[100.0, 50.0, 50.0]);
    observed.flows[1].work = Some(work(1, &[4000], 4));
    observed.flows[2].work = Some(work(1, &[6000], 6));
    close(run(&scenario, &observed).summary["shuffle_p50_s"], 5.0);
    close(run(&scenario, &observed).summary["shuffle_last_s"], 6.0);
    observed.flows[2].work = Some(work(1, &[], 0));
    let one = run(&scenario, &observed).summary;
    close(one["shuffle_s.A"], 4.0);
    assert!(!one.contains_key("shuffle_p50_s"), "B's did not end");
    assert!(!one.contains_key("shuffle_last_s"), "likewise");
    assert!(one.contains_key("shuffle_worst_s.B"));
    assert!(!one.contains_key("shuffle_worst_p50_s"), "A's did");
}

#[test]
fn a_shuffle_that_is_done_wants_nothing_more() {
    let mut scenario = dumbbell(1);
    let octets = Bytes::new(50_000_000);
    scenario.traffic[1].kind = TrafficKind::Shuffle { octets, congestion: "cubic".into() };
    let mut observed = steady(&scenario, &[150.0, 100.0]);
    observed.flows[1].octets[40..].fill(0);
    observed.flows[1].work = Some(work(1, &[4000], 4));
    let done = run(&scenario, &observed);
    close(done.summary["shuffle_s.Y"], 4.0);
    close(done.summary["shuffle_p50_s"], 4.0);
    let y = done.vms.iter().find(|v| v.vm == "y'").expect("y' is backlogged for 3 s");
    close(y.ratio, 100.0 / 90.0);
    // X: 100 of 200 Mb/s for 3 s, then all.
    close(done.summary["share.X"], 150.0 * 9.0 / (100.0 * 3.0 + 200.0 * 6.0));
    assert!(done.events.is_empty(), "its end was not planned: {:?}", done.events);
    observed.flows[1].work = Some(work(1, &[], 0));
    let late = run(&scenario, &observed);
    assert!(!late.summary.contains_key("shuffle_s.Y"));
    close(late.summary["unfinished.Y"], 1.0);
    // 100 Mb/s on the wire for 3 of the 9 measured seconds.
    let seconds = 50e6 * 8.0 / (100e6 * TCP * 3.0 / 9.0);
    close(late.summary["shuffle_worst_s.Y"], seconds);
    close(late.summary["shuffle_worst_p50_s"], seconds);
    assert!(!done.summary.contains_key("shuffle_worst_s.Y"));
}

#[test]
fn receivers_are_counted_by_whether_they_have_their_floor() {
    let scenario = dumbbell(2);
    let run = run(&scenario, &steady(&scenario, &[9.0, 95.5, 95.5]));
    close(run.summary["receiver_floor_min"], 0.1);
    close(run.summary["receivers_below"], 0.5);
    close(run.summary["receiver_goodput_mean"] / 1e6, 100.0 * TCP);
}

#[test]
fn what_stays_on_a_host_is_no_receivers_network_goodput() {
    let mut scenario = dumbbell(2);
    let rates = steady(&scenario, &[9.0, 95.5, 60.5]);
    close(run(&scenario, &rates).summary["receiver_network_mean"] / 1e6, 82.5 * TCP);
    // The second sender moves to its receiver's host.
    scenario.vms[4].host = scenario.vms[2].host;
    close(run(&scenario, &rates).summary["receiver_network_mean"] / 1e6, 52.25 * TCP);
    scenario.vms[3].host = scenario.vms[2].host;
    scenario.vms[0].host = scenario.vms[1].host;
    assert!(!run(&scenario, &rates).summary.contains_key("receiver_network_mean"));
}

#[test]
fn agents_are_judged_by_the_one_that_needs_most() {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    let none = run(&scenario, &observed);
    assert!(!none.summary.keys().any(|name| name.starts_with("agent")), "without agents");
    observed.agents_cpu = Span::from_millis(1500);
    observed.agent_cpu = vec![Span::from_millis(500), Span::from_millis(1000)];
    observed.agent_memory_before = vec![4_000_000, 5_000_000];
    observed.agent_memory = vec![6_000_000, 5_000_000];
    observed.agent_pairs = vec![3, 300];
    let run = run(&scenario, &observed);
    close(run.summary["agents_cpu_cores"], 0.15);
    close(run.summary["agent_cpu_cores"], 0.1);
    close(run.summary["agents_memory_growth"], 1.5);
    assert_eq!((run.summary["agents_memory"], run.summary["agents_pairs"]), (6e6, 300.0));
}

#[test]
fn windows_in_the_time_to_settle_after_a_kill_are_told_apart() {
    use weir_model::scenario::{Fault, FaultKind};
    let mut scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    // X stands still from 4.2 s to 5.9 s, and stumbles at 7 s.
    observed.flows[0].octets[42..59].fill(0);
    let stumble = observed.flows[0].octets[0] / 2;
    observed.flows[0].octets[70..75].fill(stumble);
    let settled = |scenario: &Scenario, observed: &Observed| run(scenario, observed).summary["window_min_settled.X"];
    close(settled(&scenario, &observed), 0.0);
    let kill = FaultKind::KillAgent { host: 0, guardian: false };
    scenario.faults = vec![Fault { at: Span::from_secs(4), kind: kill }];
    close(settled(&scenario, &observed), 100.0 / 2.0 / 90.0);
    close(run(&scenario, &observed).summary["window_min.X"], 0.0);
    let said: Vec<String> =
        run(&scenario, &observed).events.into_iter().map(|event| event.says).collect();
    assert_eq!(said, ["left: agent killed"]);
}
