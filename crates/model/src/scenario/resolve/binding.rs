//! How tenants are bound to queues.

use super::Scope;
use crate::scenario::Binding;
use crate::scenario::error::{Error, did_you_mean};
use crate::scenario::formula::Formula;
use crate::scenario::spec::binding::BindingSpec;
use crate::scenario::spec::{Spec, Word};
use std::collections::BTreeSet;
use weir_core::binding::LastQueue;
use weir_units::Span;

/// Shortest control interval: hosts' counters are read that often.
const INTERVAL_LEAST: Span = Span::from_millis(20);
/// Queues of a port, and the largest weight that any switch takes.
const QUEUES: u32 = 8;
const WEIGHT: u32 = 1000;
/// Names of what the last queue of a port is.
const LAST: [(&str, LastQueue); 2] =
    [("shared", LastQueue::AlwaysShared), ("shared-if-crowded", LastQueue::SharedIfCrowded)];

/// What the file says, and the usual for the rest.
pub(super) fn binding(spec: &Spec, scope: &Scope) -> Result<Binding, Error> {
    let usual = Binding::default();
    let Some(written) = &spec.binding else { return Ok(usual) };
    let BindingSpec { interval, rebind, queues, shared_weight, weights, .. } = written;
    let BindingSpec { last_queue, apply, pinned, excluded, .. } = written;
    let span = |formula: &Option<Formula>, usual: Span, least: Span| {
        let Some(formula) = formula else { return Ok(usual) };
        let span = formula.span(scope)?;
        if span < least {
            return Err(
                formula.error(format!("{span} is too short"), format!("write {least} or more"))
            );
        }
        Ok(span)
    };
    let count = |formula: &Option<Formula>, usual: u32, least: u32, most: u32| match formula {
        Some(formula) => formula.count_to(scope, least, most),
        None => Ok(usual),
    };
    let pinned = tenants(spec, pinned)?;
    let is_pinned = |word: &&Word| tenant(spec, word).is_ok_and(|at| pinned.contains(&at));
    if let Some(word) = excluded.iter().find(is_pinned) {
        let message = format!("`{}` is both pinned and excluded", word.text);
        return Err(word.error(message, "leave one of them out"));
    }
    Ok(Binding {
        interval: span(interval, usual.interval, INTERVAL_LEAST)?,
        rebind: span(rebind, usual.rebind, INTERVAL_LEAST)?,
        queues: count(queues, usual.queues.into(), 1, QUEUES)? as u8,
        shared_weight: count(shared_weight, 0, 1, WEIGHT)? as u16,
        most_weight: count(weights, usual.most_weight.into(), 1, WEIGHT)? as u16,
        last_queue: last_queue.as_ref().map_or(Ok(usual.last_queue), last)?,
        apply: span(apply, usual.apply, Span::ZERO)?,
        excluded: tenants(spec, excluded)?,
        pinned,
    })
}

fn last(word: &Word) -> Result<LastQueue, Error> {
    let found = LAST.iter().find(|(name, _)| *name == word.text);
    found.map(|(_, last)| *last).ok_or_else(|| {
        let help = did_you_mean(&word.text, LAST.iter().map(|(name, _)| *name));
        word.error(format!("`{}` is not what a last queue can be", word.text), help)
    })
}

fn tenants(spec: &Spec, words: &[Word]) -> Result<BTreeSet<usize>, Error> {
    words.iter().map(|word| tenant(spec, word)).collect()
}

fn tenant(spec: &Spec, word: &Word) -> Result<usize, Error> {
    let names = || spec.tenants.iter().map(|tenant| tenant.name.text.as_str());
    names().position(|name| name == word.text).ok_or_else(|| {
        let help = did_you_mean(&word.text, names());
        word.error(format!("there is no tenant `{}`", word.text), help)
    })
}
