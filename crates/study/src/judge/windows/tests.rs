use super::*;
use crate::testing::{dumbbell, steady};
use std::collections::BTreeMap;

/// A look every 10 ms for ten seconds, of which the first is not judged.
fn looks(one: impl Fn(u64) -> Windows) -> Vec<Windows> {
    (0..1000).map(|n| Windows { at: Span::from_millis(10 * n), ..one(n) }).collect()
}

/// A saw between 30 and 60 segments with four teeth a second; the guest's own window is larger.
fn saw(n: u64) -> Windows {
    let shown = 1448 * (30 + n % 25 * 30 / 24);
    Windows { cwnd: 200_000, shown, acked: n * 10_000, again: 3, ..Windows::default() }
}

fn summary(windows: Vec<Vec<Windows>>) -> BTreeMap<String, f64> {
    let scenario = dumbbell(1);
    let mut observed = steady(&scenario, &[100.0, 100.0]);
    observed.flows[0].windows = windows;
    let run = crate::judge::judge(&scenario, &scenario.mechanisms[1], 0, &observed);
    run.expect("the floors fit").summary
}

#[test]
fn a_saw_has_its_depth_and_its_period() {
    let got = summary(vec![looks(saw)]);
    assert!((got["window_low.X"] - 0.5).abs() < 1e-9, "{got:?}");
    assert!((got["window_period_s.X"] - 0.25).abs() < 1e-9, "{got:?}");
    let rest = ["window_by_port.X", "ack_pauses.X", "resent.X"].map(|metric| got[metric]);
    assert_eq!(rest, [1.0, 0.0, 0.0]);
}

#[test]
fn who_waits_for_its_timer_has_pauses_and_sends_again() {
    // Half a second of silence in every one, of which nine are judged; the first is sent again each time.
    let pausing = looks(|n| {
        let acked = n / 100 * 50_000 + (n % 100).min(50) * 1_000;
        Windows { acked, again: n / 100, ..saw(n) }
    });
    let got = summary(vec![pausing, looks(saw)]);
    // Nine in nine seconds of one connection of two.
    assert!((got["ack_pauses.X"] - 9.0 * 30.0 / 8.99 / 2.0).abs() < 1e-6, "{got:?}");
    assert_eq!(got["resent.X"], 8.0);
}

#[test]
fn who_is_below_what_it_is_shown_is_not_steered_by_its_port() {
    let got = summary(vec![looks(|n| Windows { cwnd: 14_480, shown: 1 << 20, ..saw(n) })]);
    assert_eq!(got["window_by_port.X"], 0.0);
    assert_eq!(got["window_low.X"], 1.0);
    assert!(!got.contains_key("window_period_s.X"), "a line has no teeth: {got:?}");
}

#[test]
fn what_was_not_looked_at_has_no_numbers() {
    let got = summary(Vec::new());
    assert!(!got.keys().any(|metric| metric.starts_with("window_low")), "{got:?}");
    assert!(!summary(vec![Vec::new()]).contains_key("ack_pauses.X"));
}
