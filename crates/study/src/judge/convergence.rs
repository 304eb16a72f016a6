//! How soon a group has what its floors promise, and keeps it.
//!
//! Approach  Sample by sample, since the last entry of traffic began. A group whose floors are all
//!           of what it can have, as where floors fill a link, is held against them.
//! Promises  A group that is off at the end does not converge, and one that never comes back does
//!           not recover: they have no number. Nor has one without floors, nor one whose samples
//!           are too long to show anything.
//! Source    EyeQ Fig. 6: rate samples of one millisecond.

use super::case::{Case, SLACK_S};
use super::floors;
use weir_units::Span;

/// Within this part of what floors promise.
const SLACK: f64 = 0.1;
/// Longer samples show nothing of an algorithm that takes milliseconds.
const SAMPLE_MOST: Span = Span::from_millis(10);

/// Samples that are judged together, because TCP comes in pieces in single ones.
const TOGETHER: usize = 10;

/// Seconds from the last start of any entry until the goodput of `flows` is within a tenth of what
/// their floors promise, for good.
pub(super) fn seconds(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let since = Since::last_start(case, samples)?;
    let is_off = |sample: &usize| {
        floors::ratio(case, flows, &[*sample]).is_none_or(|ratio| (ratio - 1.0).abs() > SLACK)
    };
    let first = since.samples.first()?;
    let off = since.samples.iter().rposition(is_off);
    let settled = off.map_or(*first, |last| since.samples[last] + 1);
    (settled <= *since.samples.last()?).then(|| since.until(settled))
}

/// Seconds from the last start of any entry to the end of the first ten samples in a row in which
/// `flows` have nine tenths of what their floors promise, once they had less in ten; zero if they
/// always have it.
pub(super) fn recovery(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let since = Since::last_start(case, samples)?;
    let is_off = |window: &[usize]| {
        floors::ratio(case, flows, window).is_none_or(|ratio| ratio < 1.0 - SLACK)
    };
    floors::ratio(case, flows, since.samples.get(..TOGETHER)?)?;
    let mut windows = since.samples.windows(TOGETHER).skip_while(|window| !is_off(window));
    if windows.next().is_none() {
        return Some(0.0);
    }
    let back = windows.find(|window| !is_off(window))?;
    Some(since.until(back[TOGETHER - 1] + 1))
}

/// The samples since the last start of any entry.
struct Since<'a> {
    case: &'a Case<'a>,
    begin: f64,
    samples: Vec<usize>,
}

impl<'a> Since<'a> {
    fn last_start(case: &'a Case<'a>, samples: &[usize]) -> Option<Self> {
        if case.observed.sample > SAMPLE_MOST {
            return None;
        }
        let starts = case.scenario.traffic.iter().map(|entry| entry.start);
        let begin = starts.max()?.as_secs_f64();
        let is_since = |sample: &usize| case.bounds(*sample).0 + SLACK_S >= begin;
        Some(Self { case, begin, samples: samples.iter().copied().filter(is_since).collect() })
    }

    /// Seconds from there to the begin of `sample`.
    fn until(&self, sample: usize) -> f64 {
        (self.case.bounds(sample).0 - self.begin).max(0.0)
    }
}
