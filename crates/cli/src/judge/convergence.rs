//! How soon a group has what its floors promise, and keeps it.
//!
//! Approach  Sample by sample, since the last entry of traffic began. A group whose floors are all of what
//!           it can have, as where floors fill a link, is held against them.
//! Promises  A group that is off at the end has no number, nor has one whose samples are too long to show
//!           anything.
//! Source    EyeQ Fig. 6: rate samples of one millisecond.

use super::{Case, SLACK_S, floors};
use weir_units::Span;

/// Within this part of what floors promise.
const SLACK: f64 = 0.1;
/// Longer samples show nothing of an algorithm that takes milliseconds.
const SAMPLE_MOST: Span = Span::from_millis(10);

/// Seconds from the last start of any entry until the goodput of `flows` is within a tenth of what their floors
/// promise, for good.
pub(super) fn seconds(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    if case.observed.sample > SAMPLE_MOST {
        return None;
    }
    let starts = case.scenario.traffic.iter().map(|entry| entry.start);
    let begin = starts.max()?.as_secs_f64();
    let is_since = |sample: &usize| case.bounds(*sample).0 + SLACK_S >= begin;
    let since: Vec<usize> = samples.iter().copied().filter(is_since).collect();
    let is_off = |sample: &usize| {
        floors::ratio(case, flows, &[*sample]).is_none_or(|ratio| (ratio - 1.0).abs() > SLACK)
    };
    let first = since.first()?;
    let settled = since.iter().rposition(is_off).map_or(*first, |last| since[last] + 1);
    (settled <= *since.last()?).then(|| (case.bounds(settled).0 - begin).max(0.0))
}
