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
mod tests;
