//! What was asked of a figure, and what it got.
//!
//! Problem   A figure has a verdict per expectation, mechanism and point: hundreds, of which a reader
//!           wants to see the one that is worst.
//! Approach  Verdicts of the scenario that differ in nothing but the point become one criterion, shown
//!           where it is worst. A figure's own expectations compare parts and points.
//! Promises  A criterion holds if it holds at every point; one without numbers is not judged. Rows
//!           that were not played have no criteria.

use super::figure::{Expect, Figure, Other};
use super::kept::{Shown, World};
use super::stats::estimate;
use crate::aggregate::differing;
use crate::verdict;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use weir_model::results::{Results, Run, Verdict};

/// One thing that was asked of a mechanism.
#[derive(Debug)]
pub(crate) struct Criterion {
    /// The part's label, if the figure has several.
    pub(crate) part: Option<String>,
    pub(crate) mechanism: String,
    pub(crate) says: String,
    /// `goodput_of_floor.x ≥ 0.95`.
    pub(crate) asked: String,
    /// `1.03 ± 0.02 at senders = 100`.
    pub(crate) got: String,
    pub(crate) held: Option<bool>,
    /// At how many points it held, and how many there are.
    pub(crate) points: (usize, usize),
}

/// All criteria of a figure.
pub(crate) fn criteria(shown: &Shown) -> Vec<Criterion> {
    let mut criteria = Vec::new();
    for (index, results) in shown.results.iter().enumerate() {
        let Some(results) = results else { continue };
        let part = label(&shown.figure, index);
        let verdicts = results.verdicts.iter().filter(|v| shown.figure.judges(&v.metric));
        let verdicts: Vec<&Verdict> = verdicts.collect();
        criteria.extend(of_scenario(results, &verdicts, part.as_deref(), shown.kept.world));
    }
    let own = shown.figure.spec.expect.iter().filter_map(|expect| of_figure(shown, expect));
    criteria.extend(own);
    criteria
}

/// Of several parts, what this one is called.
pub(crate) fn label(figure: &Figure, index: usize) -> Option<String> {
    let part = figure.spec.play.get(index).filter(|_| figure.spec.play.len() > 1)?;
    Some(part.label.clone().unwrap_or_else(|| part.name.value.clone()))
}

fn of_scenario(
    results: &Results,
    verdicts: &[&Verdict],
    part: Option<&str>,
    world: World,
) -> Vec<Criterion> {
    let mut groups: Vec<Vec<&Verdict>> = Vec::new();
    let alike = |a: &Verdict, b: &Verdict| {
        (&a.mechanism, &a.metric, &a.says, &a.of, &a.over)
            == (&b.mechanism, &b.metric, &b.says, &b.of, &b.over)
    };
    for verdict in verdicts.iter().copied() {
        match groups.iter_mut().find(|group| alike(group[0], verdict)) {
            Some(group) => group.push(verdict),
            None => groups.push(vec![verdict]),
        }
    }
    let points: Vec<&BTreeMap<String, f64>> = results.runs.iter().map(|run| &run.point).collect();
    let swept = differing(&points);
    let one = |group: Vec<&Verdict>| {
        let worst = group.iter().copied().min_by(|a, b| margin(a).total_cmp(&margin(b)))?;
        let values = verdict::values_of(worst, &results.runs);
        let at = at(&worst.point, &swept);
        Some(Criterion {
            part: part.map(Into::into),
            mechanism: worst.mechanism.clone(),
            says: worst.says.clone(),
            asked: format!("{} {}", worst.metric, crate::table::asked(worst)),
            got: format!("{}{at}", numbers(&values, worst.worst, world)),
            held: all(group.iter().map(|verdict| verdict.held)),
            points: (group.iter().filter(|v| v.held == Some(true)).count(), group.len()),
        })
    };
    groups.into_iter().filter_map(one).collect()
}

/// ` at senders = 100, floor = 45 M`; empty if nothing was swept.
fn at(point: &BTreeMap<String, f64>, swept: &[String]) -> String {
    let value = |value: &f64| match *value {
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v => v.to_string(),
    };
    let one = |name: &String| Some(format!("{name} = {}", value(point.get(name)?)));
    let places: Vec<String> = swept.iter().filter_map(one).collect();
    if places.is_empty() { String::new() } else { format!(" at {}", places.join(", ")) }
}

/// How far a verdict is from its nearer bound, as a part of the bound; below zero it is missed. What was
/// not judged is worst of all.
fn margin(verdict: &Verdict) -> f64 {
    let Some(got) = verdict.got else { return f64::NEG_INFINITY };
    let part = |distance: f64, bound: f64| distance / bound.abs().max(1e-9);
    let least = verdict.at_least.map(|bound| part(got - bound, bound));
    let most = verdict.at_most.map(|bound| part(bound - got, bound));
    let margin = least.into_iter().chain(most).fold(f64::INFINITY, f64::min);
    // One that failed for a single repeat is shown before one that held by less.
    if verdict.held == Some(false) { margin.min(0.0) - 1.0 } else { margin }
}

/// Held if all held; failed if one failed.
fn all(held: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut together = Some(true);
    for one in held {
        together = match (together, one) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (None, _) | (_, None) => None,
            (Some(true), Some(true)) => Some(true),
        };
    }
    together
}

/// Mean and 95 % interval in the simulator, median and worst in the lab.
fn numbers(values: &[f64], worst: Option<f64>, world: World) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (world, estimate(values), verdict::median(&sorted)) {
        (World::Sim, Some(estimate), _) => match estimate.half {
            Some(half) => format!("{} ± {}", digits(estimate.mean), digits(half)),
            None => digits(estimate.mean),
        },
        (World::Lab, _, Some(median)) => match worst.filter(|_| sorted.len() > 1) {
            Some(worst) => format!("{}, worst {}", digits(median), digits(worst)),
            None => digits(median),
        },
        _ => "no number".into(),
    }
}

/// Three digits that matter, rates in Mb/s.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1e7 => format!("{:.0} Mb/s", value / 1e6),
        v if v >= 1e5 => format!("{:.2} Mb/s", value / 1e6),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 || v == 0.0 => format!("{value:.2}"),
        v if v >= 0.000_95 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// One number to be compared: the runs it is taken from.
struct Side<'a> {
    part: usize,
    mechanism: &'a str,
    metric: &'a str,
    at: Vec<(&'a str, f64)>,
}

fn of_figure(shown: &Shown, expect: &Expect) -> Option<Criterion> {
    let name = |part: &'_ Option<Spanned<String>>| part.as_ref().map(|p| p.value.clone());
    let (part, _) = shown.figure.part(name(&expect.part).as_deref())?;
    let left = Side {
        part,
        mechanism: &expect.mechanism.value,
        metric: &expect.metric.value,
        at: places(&expect.at),
    };
    let right = expect.of.as_ref().map(|of| other(shown, &left, of));
    // A part that was not played is said to be that, once, and not again for each of its numbers.
    let played = |side: &Side<'_>| shown.results.get(side.part).is_some_and(Option::is_some);
    if !played(&left) || right.as_ref().is_some_and(|side| !played(side)) {
        return None;
    }
    let runs = shown.results[part].as_ref().map_or(&[][..], |r| &r.runs);
    let points: Vec<_> = points(runs, &left);
    let swept = differing(&runs.iter().map(|run| &run.point).collect::<Vec<_>>());
    let verdicts: Vec<(Verdict, Vec<f64>)> =
        points.iter().map(|point| compare(shown, expect, &left, right.as_ref(), point)).collect();
    let (worst, values) =
        verdicts.iter().min_by(|(a, _), (b, _)| margin(a).total_cmp(&margin(b)))?;
    let at = at(&worst.point, &swept);
    let against = right.as_ref().map_or(String::new(), |side| against(shown, &left, side));
    Some(Criterion {
        part: label(&shown.figure, part),
        mechanism: left.mechanism.into(),
        says: expect.says.clone(),
        asked: format!("{} {}{against}", left.metric, crate::table::asked(worst)),
        got: format!("{}{at}", numbers(values, worst.worst, shown.kept.world)),
        held: all(verdicts.iter().map(|(verdict, _)| verdict.held)),
        points: (verdicts.iter().filter(|(v, _)| v.held == Some(true)).count(), verdicts.len()),
    })
}

fn other<'a>(shown: &Shown, left: &Side<'a>, of: &'a Other) -> Side<'a> {
    let text = |value: &'a Option<Spanned<String>>| value.as_ref().map(|v| v.value.as_str());
    let part = text(&of.part).and_then(|name| Some(shown.figure.part(Some(name))?.0));
    Side {
        part: part.unwrap_or(left.part),
        mechanism: text(&of.mechanism).unwrap_or(left.mechanism),
        metric: text(&of.metric).unwrap_or(left.metric),
        at: places(&of.at),
    }
}

/// ` × of part less, senders = 300`.
fn against(shown: &Shown, left: &Side<'_>, right: &Side<'_>) -> String {
    let mut words = Vec::new();
    if right.part != left.part {
        words.extend(label(&shown.figure, right.part));
    }
    if right.mechanism != left.mechanism {
        words.push(right.mechanism.into());
    }
    if right.metric != left.metric {
        words.push(right.metric.into());
    }
    words.extend(right.at.iter().map(|(key, value)| format!("{key} = {value}")));
    format!(" × {}", words.join(", "))
}

/// `senders=300` as a place; what is no number is nowhere.
pub(crate) fn places(texts: &[Spanned<String>]) -> Vec<(&str, f64)> {
    let place = |text: &'_ str| -> Option<(usize, f64)> {
        let (key, value) = text.split_once('=')?;
        Some((key.trim_end().len(), value.trim().parse().ok()?))
    };
    let read = |text: &'_ Spanned<String>| place(&text.value);
    texts.iter().filter_map(|t| read(t).map(|(end, v)| (&t.value[..end], v))).collect()
}

/// The points at which a side has runs.
fn points<'a>(runs: &'a [Run], side: &Side<'_>) -> Vec<&'a BTreeMap<String, f64>> {
    let mut points = Vec::new();
    let here = |run: &&Run| run.mechanism == side.mechanism && is_at(&run.point, &side.at);
    for run in runs.iter().filter(here) {
        if !points.contains(&&run.point) {
            points.push(&run.point);
        }
    }
    points
}

pub(crate) fn is_at(point: &BTreeMap<String, f64>, places: &[(&str, f64)]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    places.iter().all(|(key, value)| point.get(*key).is_some_and(|got| near(*got, *value)))
}

fn compare(
    shown: &Shown,
    expect: &Expect,
    left: &Side<'_>,
    right: Option<&Side<'_>>,
    point: &BTreeMap<String, f64>,
) -> (Verdict, Vec<f64>) {
    let values_at = |side: &Side<'_>, here: &dyn Fn(&Run) -> bool| -> Vec<f64> {
        let runs = shown.results[side.part].as_ref().map_or(&[][..], |r| &r.runs);
        let runs = runs.iter().filter(|r| r.valid && r.mechanism == side.mechanism && here(r));
        runs.filter_map(|run| run.summary.get(side.metric).copied()).collect()
    };
    let mut values = values_at(left, &|run| run.point == *point);
    if let Some(side) = right {
        // Elsewhere if it says where; else at the same point, as far as both have its parameters.
        let same = |run: &Run| {
            run.point.iter().all(|(key, value)| point.get(key).is_none_or(|v| v == value))
        };
        let others = match side.at.is_empty() {
            true => values_at(side, &same),
            false => values_at(side, &|run| is_at(&run.point, &side.at)),
        };
        let middle = estimate(&others).map(|e| e.mean).filter(|mean| *mean > 0.0);
        values = middle.map_or(Vec::new(), |m| values.into_iter().map(|v| v / m).collect());
    }
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let got = match shown.kept.world {
        World::Sim => estimate(&values).map(|e| e.mean),
        World::Lab => verdict::median(&sorted),
    };
    let within = |v: f64| {
        expect.at_least.is_none_or(|least| v >= least) && expect.at_most.is_none_or(|m| v <= m)
    };
    let worst = match expect.at_least {
        Some(_) => sorted.first(),
        None => sorted.last(),
    };
    let verdict = Verdict {
        point: point.clone(),
        mechanism: left.mechanism.into(),
        metric: left.metric.into(),
        says: expect.says.clone(),
        at_least: expect.at_least,
        at_most: expect.at_most,
        got,
        worst: worst.copied(),
        held: got.map(within),
        ..Verdict::default()
    };
    (verdict, values)
}

/// How a figure ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Held,
    /// With one of the presets that were played; with another something failed.
    HeldWith,
    Failed,
    /// Something that was asked has no number.
    NotJudged,
    /// Some of it was not played, and what was played held.
    Partly,
    NotPlayed,
}

impl Ending {
    /// Of all criteria and parts of a figure.
    pub(crate) fn of(shown: &Shown, criteria: &[Criterion]) -> Self {
        let parts = shown.figure.spec.play.len();
        let whole = |n: &usize| {
            shown.part(*n).is_some_and(|p| p.not_played.is_none() && p.cut.is_none())
                && shown.results[*n].is_some()
        };
        let played = (0..parts).filter(whole).count();
        let by_preset = || preset_that_holds(criteria).is_some();
        match all(criteria.iter().map(|c| c.held)) {
            Some(false) if !by_preset() => Self::Failed,
            Some(false) if played < parts => Self::Partly,
            Some(false) => Self::HeldWith,
            _ if shown.results.iter().all(Option::is_none) => Self::NotPlayed,
            None => Self::NotJudged,
            Some(true) if criteria.is_empty() => Self::NotJudged,
            Some(true) if played < parts => Self::Partly,
            Some(true) => Self::Held,
        }
    }

    /// Whether all that was asked was played and held.
    pub(crate) fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::HeldWith)
    }

    /// A few words; `criteria` are those of the figure.
    pub(crate) fn words(self, criteria: &[Criterion]) -> String {
        let word = match self {
            Self::Held => "held",
            Self::HeldWith => {
                let preset = preset_that_holds(criteria).unwrap_or_default();
                return format!("held with {preset}");
            }
            Self::Failed => "FAILED",
            Self::NotJudged => "not judged",
            Self::Partly => "held in part",
            Self::NotPlayed => "not played",
        };
        word.into()
    }
}

/// Of a mechanism that was played with several presets, one with which every criterion holds. Only one of which
/// all is asked that is asked of any of them: else what one does well would make up for another.
fn preset_that_holds(criteria: &[Criterion]) -> Option<&str> {
    fn kind(c: &Criterion) -> &str {
        c.mechanism.split(':').next().unwrap_or_default()
    }
    // `asked` begins with the metric; what follows, the bounds, may differ from point to point.
    let metric = |c: &Criterion| c.asked.split(' ').next().map(str::to_owned);
    let same = |a: &Criterion, b: &Criterion| {
        (&a.part, &a.says, metric(a)) == (&b.part, &b.says, metric(b))
    };
    let carries = |preset: &Criterion| {
        criteria.iter().all(|asked| {
            if kind(asked) != kind(preset) {
                return asked.held == Some(true);
            }
            let of_it = |c: &&Criterion| same(c, asked) && c.mechanism == preset.mechanism;
            let mut of_it = criteria.iter().filter(of_it).peekable();
            of_it.peek().is_some() && of_it.all(|c| c.held == Some(true))
        })
    };
    let has_siblings = |c: &&Criterion| {
        criteria.iter().any(|other| kind(other) == kind(c) && other.mechanism != c.mechanism)
    };
    criteria.iter().filter(has_siblings).find(|c| carries(c)).map(|c| c.mechanism.as_str())
}
