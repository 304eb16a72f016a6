//! One run beside its scenario and its ideal: what every single number is computed from.

use super::ideal::Ideal;
use super::payload;
use std::ops::Range;
use weir_model::observed::Observed;
use weir_model::scenario::Scenario;

/// Everything the single numbers are computed from.
pub(super) struct Case<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) observed: &'a Observed,
    pub(super) ideal: Ideal,
    /// Directed links on each traffic entry's way.
    pub(super) routes: Vec<Vec<usize>>,
    /// Samples of the measured interval: from the end of the warmup to the end of the run.
    pub(super) measured: Range<usize>,
    /// Planned width of a sample in seconds.
    pub(super) sample_s: f64,
    /// When each sample ended, in seconds: as measured, where the world measures it.
    pub(super) ends: Vec<f64>,
}

impl Case<'_> {
    /// Application goodput of traffic entry `flow` in `sample`, bit/s.
    pub(super) fn goodput(&self, flow: usize, sample: usize) -> f64 {
        let octets = self.observed.flows[flow].octets.get(sample).copied().unwrap_or(0);
        octets as f64 * 8.0 / self.width(sample)
    }

    /// Mean application goodput of `flows` together over `samples`, bit/s; zero of no sample.
    pub(super) fn mean_goodput(
        &self,
        flows: &[usize],
        samples: impl Iterator<Item = usize>,
    ) -> f64 {
        self.mean(samples, |s| flows.iter().map(|&f| self.goodput(f, s)).sum())
    }

    /// Mean of `value` over `samples`, each as heavy as it is long; zero of no sample.
    pub(super) fn mean(
        &self,
        samples: impl Iterator<Item = usize>,
        value: impl Fn(usize) -> f64,
    ) -> f64 {
        let (sum, span) = samples.fold((0.0, 0.0), |(sum, span), s| {
            let width = self.width(s);
            (sum + width * value(s), span + width)
        });
        if span > 0.0 { sum / span } else { 0.0 }
    }

    /// The same as a rate on the wire, without acknowledgements: goodput / payload share.
    pub(super) fn on_wire(&self, flow: usize, sample: usize) -> f64 {
        self.goodput(flow, sample) / self.share(flow)
    }

    /// Payload share of traffic entry `flow`.
    pub(super) fn share(&self, flow: usize) -> f64 {
        payload::share(&self.scenario.traffic[flow])
    }

    /// Start and end of `sample` in seconds, as measured.
    pub(super) fn bounds(&self, sample: usize) -> (f64, f64) {
        let end = |s: usize| self.ends.get(s).copied().unwrap_or((s + 1) as f64 * self.sample_s);
        (sample.checked_sub(1).map_or(0.0, end), end(sample))
    }

    /// How long `sample` lasted, in seconds.
    pub(super) fn width(&self, sample: usize) -> f64 {
        let (from, to) = self.bounds(sample);
        to - from
    }

    /// `bounds` for questions that a sample answers as a whole: without what a thread that is woken late
    /// adds to it or takes from it.
    pub(super) fn core_of(&self, sample: usize) -> (f64, f64) {
        let (from, to) = self.bounds(sample);
        let late = if self.ends.is_empty() { SLACK_S } else { LATE * self.sample_s };
        (from + late, to - late)
    }

    /// Measured samples that lie wholly within the traffic entries' time.
    pub(super) fn active(&self, flows: &[usize]) -> Vec<usize> {
        let traffic = &self.scenario.traffic;
        let start = flows.iter().map(|&f| traffic[f].start).min().unwrap_or_default();
        let stop = flows.iter().map(|&f| traffic[f].stop).max().unwrap_or_default();
        let inside = |&sample: &usize| {
            let (from, to) = self.core_of(sample);
            from >= start.as_secs_f64() && to <= stop.as_secs_f64()
        };
        self.measured.clone().filter(inside).collect()
    }
}

/// Boundaries that differ by less are the same: they come from sums of reals.
pub(super) const SLACK_S: f64 = 1e-6;
/// The part of a sample by which its measured ends may lie beyond what it is asked about. More would count
/// samples in which demand was low; less would drop samples because a thread woke some milliseconds late.
const LATE: f64 = 0.1;
