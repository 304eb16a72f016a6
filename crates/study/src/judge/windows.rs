//! What traced connections show of their windows, from the end of the warmup on.
//!
//! Problem   Whether a port steers its guest is not seen in goodput, but in the saw that a window makes.
//! Approach  A connection's window is the smaller of its congestion window and of the window it was shown. Numbers of
//!           a group are means over its traced connections; of the lowest window the worst counts.
//! Promises  A saw without two teeth has no period, and what was never seen has no number.
//! Source    vCC Figs. 8 and 9.

use super::case::Case;
use crate::numbers::mean;
use weir_model::record::Windows;
use weir_model::results;
use weir_units::Span;

/// Nothing new was acknowledged for so long: a pause. Linux's least retransmission timer.
const PAUSE_S: f64 = 0.2;
/// Pauses are counted per so many seconds.
const PER_S: f64 = 30.0;
/// A tooth begins when the window, once below the first part of its largest, is above the second.
const TOOTH: [f64; 2] = [0.65, 0.75];

/// A trace, as results have it.
pub(super) fn result(looks: &[Windows]) -> results::Windows {
    let of = |field: fn(&Windows) -> u64| looks.iter().map(field).collect();
    results::Windows {
        at_s: looks.iter().map(|look| look.at.as_secs_f64()).collect(),
        cwnd: of(|look| look.cwnd),
        shown: of(|look| look.shown),
        acked: of(|look| look.acked),
        again: of(|look| look.again),
    }
}

/// The numbers of a group with these traffic entries.
pub(super) fn judge(case: &Case<'_>, flows: &[usize]) -> [(&'static str, Option<f64>); 5] {
    let from = case.scenario.warmup;
    let traces = flows.iter().flat_map(|&flow| &case.observed.flows[flow].windows);
    let traces: Vec<Trace<'_>> = traces.filter_map(|looks| Trace::since(looks, from)).collect();
    let each =
        |of: fn(&Trace<'_>) -> f64| (!traces.is_empty()).then(|| mean(traces.iter().map(of)));
    let periods: Vec<f64> = traces.iter().filter_map(Trace::period).collect();
    [
        ("ack_pauses", each(|trace| trace.pauses())),
        ("window_low", traces.iter().map(Trace::low).min_by(f64::total_cmp)),
        ("window_period_s", (!periods.is_empty()).then(|| mean(periods.iter().copied()))),
        ("window_by_port", each(|trace| trace.by_port())),
        ("resent", (!traces.is_empty()).then(|| traces.iter().map(Trace::resent).sum())),
    ]
}

/// A connection from the end of the warmup on: two looks at least.
struct Trace<'a>(&'a [Windows]);

impl<'a> Trace<'a> {
    fn since(looks: &'a [Windows], from: Span) -> Option<Self> {
        let first = looks.partition_point(|look| look.at < from);
        (looks.len() >= first + 2).then(|| Self(&looks[first..]))
    }

    fn ends(&self) -> [&Windows; 2] {
        [&self.0[0], &self.0[self.0.len() - 1]]
    }

    fn windows(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|look| look.cwnd.min(look.shown) as f64)
    }

    fn most(&self) -> f64 {
        self.windows().fold(0.0, f64::max)
    }

    /// How often nothing new was acknowledged for longer than a pause, in thirty seconds.
    fn pauses(&self) -> f64 {
        let [first, last] = self.ends();
        let news = self.0.windows(2).filter(|pair| pair[1].acked > pair[0].acked);
        let mut at = first.at;
        let mut pauses = 0;
        for now in news.map(|pair| pair[1].at).chain([last.at]) {
            pauses += usize::from((now - at).as_secs_f64() > PAUSE_S);
            at = now;
        }
        pauses as f64 * PER_S / (last.at - first.at).as_secs_f64()
    }

    /// The smallest window as a part of the largest.
    fn low(&self) -> f64 {
        self.windows().fold(f64::MAX, f64::min) / self.most()
    }

    /// Mean time from one tooth of the saw to the next, seconds.
    fn period(&self) -> Option<f64> {
        let most = self.most();
        let mut teeth = Vec::new();
        let mut is_down = false;
        for (look, window) in self.0.iter().zip(self.windows()) {
            is_down |= window < TOOTH[0] * most;
            if is_down && window >= TOOTH[1] * most {
                teeth.push(look.at);
                is_down = false;
            }
        }
        match teeth[..] {
            [first, .., last] => Some((last - first).as_secs_f64() / (teeth.len() - 1) as f64),
            _ => None,
        }
    }

    /// The part of all looks at which the congestion window was no smaller than the window that was shown.
    fn by_port(&self) -> f64 {
        mean(self.0.iter().map(|look| f64::from(u8::from(look.cwnd >= look.shown))))
    }

    /// Segments sent again.
    fn resent(&self) -> f64 {
        let [first, last] = self.ends();
        last.again.saturating_sub(first.again) as f64
    }
}

#[cfg(test)]
mod tests {
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
}
