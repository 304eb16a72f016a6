//! Marks as the signal, on links that mark all that passes above a threshold: ElasticSwitch §6, §7.4.

use weir_core::elasticswitch::ElasticSwitch;
use weir_fluid::{Outcome, PairSpec, World};
use weir_units::{Rate, Span};

const LINK: Rate = Rate::from_mbps(1000);
const FLOOR: Rate = Rate::from_mbps(450);
/// Octets: about 20 segments, 0.24 ms of the link.
const THRESHOLD: u64 = 30_000;
const RUN: Span = Span::from_secs(20);
const WARMUP: Span = Span::from_secs(8);

/// One pair to X, `n` pairs to Y, both with a hose of 450 Mb/s (Fig. 5).
fn many_to_one(n: usize) -> Vec<PairSpec> {
    let mut pairs = vec![PairSpec::alone(FLOOR)];
    for i in 0..n {
        pairs.push(PairSpec { destination: (i > 0).then_some(1), ..PairSpec::alone(FLOOR) });
    }
    pairs
}

fn world(preset: &str, pairs: Vec<PairSpec>) -> World {
    let es = ElasticSwitch::preset(preset).expect("a preset");
    let mark_above = es.rate.signal.needs_marks().then_some(THRESHOLD);
    World { mark_above, ..World::new(LINK, es, pairs) }
}

fn play(preset: &str, pairs: Vec<PairSpec>) -> Outcome {
    world(preset, pairs).play(RUN, WARMUP)
}

/// Standard deviation of X's rate over 100 ms, as a part of its mean.
fn deviation(outcome: &Outcome) -> f64 {
    let from = WARMUP.div_span(Span::from_millis(100)) as usize;
    let rates = &outcome.series[0][from..];
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let square = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    square.sqrt() / mean
}

#[test]
fn one_pair_keeps_its_floor_beside_any_number_and_hardly_varies() {
    for n in [1, 10, 100] {
        let losses = play("paper", many_to_one(n));
        for (preset, at_most) in [("paper-ecn", deviation(&losses)), ("steady-ecn", 0.03)] {
            let got = play(preset, many_to_one(n));
            let x = got.rates[0] / FLOOR.as_f64();
            assert!(x >= 0.95, "{preset}, {n}: {x:.3} of the floor");
            let window = got.window_min[0] / FLOOR.as_f64();
            assert!(window >= 0.95, "{preset}, {n}: {window:.3} of the floor in some window");
            let deviation = deviation(&got);
            assert!(deviation <= at_most, "{preset}, {n}: deviation {deviation:.3}");
            let (used, before) = (got.carried / LINK.as_f64(), losses.carried / LINK.as_f64());
            assert!(used >= before - 0.002, "{preset}, {n}: {used:.3}, with losses {before:.3}");
        }
    }
}

#[test]
fn what_a_bounded_neighbour_leaves_is_used_better_than_with_losses() {
    for udp in [100, 200, 300, 400, 450] {
        let demand = Some(Rate::from_mbps(udp));
        let pairs = || vec![PairSpec::alone(FLOOR), PairSpec { demand, ..PairSpec::alone(FLOOR) }];
        let used = |preset| {
            let got = play(preset, pairs());
            assert!(got.rates[0] >= 0.95 * FLOOR.as_f64(), "{preset}, UDP {udp}");
            got.carried / LINK.as_f64()
        };
        let (losses, marks) = (used("paper"), used("steady-ecn"));
        assert!(marks >= losses, "UDP {udp}: {marks:.3} with marks, {losses:.3} with losses");
        assert!(marks >= 0.95, "UDP {udp}: {marks:.3}");
    }
}

#[test]
fn a_link_that_marks_in_time_loses_nothing_once_all_have_started() {
    let got = play("steady-ecn", many_to_one(10));
    let (marked, lost) = got.signals.iter().fold((0.0, 0.0), |a, s| (a.0 + s.0, a.1 + s.1));
    assert!(marked > 0.0);
    assert!(lost < 1e-4 * got.carried * RUN.as_secs_f64() / 8.0, "{lost:.0} octets lost");
}

#[test]
fn a_newcomer_on_a_full_link_has_its_floor_within_a_few_tenths_of_a_second() {
    let mut pairs = many_to_one(20);
    pairs[0].start = Span::from_secs(10);
    let got = play("steady-ecn", pairs);
    for (i, rate) in got.series[0][103..120].iter().enumerate() {
        let share = rate / FLOOR.as_f64();
        assert!(share >= 0.95, "{} ms after the start: {share:.3} of the floor", (i + 3) * 100);
    }
}

#[test]
fn on_a_link_that_does_not_mark_losses_still_keep_the_floor() {
    for preset in ["paper-ecn", "steady-ecn"] {
        let world = World { mark_above: None, ..world(preset, many_to_one(10)) };
        let got = world.play(RUN, WARMUP);
        assert!(got.rates[0] >= 0.95 * FLOOR.as_f64(), "{preset}: {:.0}", got.rates[0]);
    }
}
