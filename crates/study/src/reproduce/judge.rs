//! Judges a figure: what was asked, and what it got.
//!
//! Problem   A figure has a verdict per expectation, mechanism and point: hundreds, of which a
//!           reader wants to see the one that is worst.
//! Approach  Verdicts of the scenario that differ in nothing but the point become one criterion,
//!           shown where it is worst. A figure's own expectations compare parts and points.
//! Promises  A criterion holds if it holds at every point, by the rules of [`verdict`]: every
//!           repeat is valid and has the number, and a floor holds in each of them. Rows that were
//!           not played have no criteria.

use super::figure::{Expect, Figure, Groups, Other};
use super::kept::{Shown, World};
use super::stats::estimate;
use crate::aggregate::differing;
use crate::numbers::median;
use crate::table::lacking;
use crate::verdict::{self, Middle};
use serde_saphyr::Spanned;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::results::{Results, Run, Verdict};
use weir_units::show;

/// One thing that was asked of a mechanism.
#[derive(Debug)]
pub struct Criterion {
    /// The part's label, if the figure has several.
    pub part: Option<String>,
    /// The mechanism that was asked.
    pub mechanism: String,
    /// What was expected, in words.
    pub says: String,
    /// `goodput_of_floor.x ≥ 0.95`.
    pub asked: String,
    /// `1.03 ± 0.02 at senders = 100`.
    pub got: String,
    /// `None` if it could not be judged.
    pub held: Option<bool>,
    /// At how many points it held, and how many there are.
    pub points: (usize, usize),
}

/// All criteria of a figure.
pub fn criteria(shown: &Shown) -> Vec<Criterion> {
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
        let worst = group.iter().copied().min_by(|a, b| by_margin(a, b))?;
        let values = verdict::values_of(worst, &results.runs);
        let at = at(&worst.point, &swept);
        Some(Criterion {
            part: part.map(Into::into),
            mechanism: worst.mechanism.clone(),
            says: worst.says.clone(),
            asked: format!("{} {}", worst.metric, crate::table::asked(worst)),
            got: format!("{}{}{at}", numbers(&values, worst, world), lacking(worst)),
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

/// How far a verdict is from its nearer bound, as a part of the bound; below zero it is missed.
/// What failed, if only for a single repeat, is worse than what was not judged, and that worse than
/// all that held.
fn margin(verdict: &Verdict) -> (bool, bool, f64) {
    let got = verdict.got.unwrap_or(f64::NEG_INFINITY);
    let part = |distance: f64, bound: f64| distance / bound.abs().max(1e-9);
    let least = verdict.at_least.map(|bound| part(got - bound, bound));
    let most = verdict.at_most.map(|bound| part(bound - got, bound));
    let margin = least.into_iter().chain(most).fold(f64::INFINITY, f64::min);
    (verdict.held != Some(false), verdict.held.is_some(), margin)
}

fn by_margin(a: &Verdict, b: &Verdict) -> Ordering {
    let ((a, b, margin), (c, d, other)) = (margin(a), margin(b));
    (a, b).cmp(&(c, d)).then(margin.total_cmp(&other))
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

/// Mean and 95 % interval in the simulator, median and worst in the lab. If only the worst repeat
/// misses the bounds, it is told in the simulator, too.
fn numbers(values: &[f64], of: &Verdict, world: World) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let worst = of.worst;
    match (world, estimate(values), median(&sorted)) {
        (World::Sim, Some(estimate), _) => match (estimate.half, worst) {
            (Some(half), Some(worst)) if of.held == Some(false) => {
                let [mean, half, worst] = [estimate.mean, half, worst].map(digits);
                format!("{mean} ± {half}, worst {worst}")
            }
            (Some(half), _) => format!("{} ± {}", digits(estimate.mean), digits(half)),
            (None, _) => digits(estimate.mean),
        },
        (World::Lab, _, Some(median)) => match worst.filter(|_| sorted.len() > 1) {
            Some(worst) => format!("{}, worst {}", digits(median), digits(worst)),
            None => digits(median),
        },
        _ => "no number".into(),
    }
}

/// Three digits that matter; what is large is a rate.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1e5 => show::rate(value),
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
    let compared =
        |point: &&BTreeMap<String, f64>| of_groups(shown, expect, &left, right.as_ref(), point);
    let verdicts: Vec<(Verdict, Vec<f64>)> = points.iter().map(compared).collect();
    // Of a point that was not played nothing is known; to leave it out would be to call it held.
    let nowhere = [(asked(&left, expect), Vec::new())];
    let worst = verdicts.iter().min_by(|(a, _), (b, _)| by_margin(a, b));
    let (worst, values) = worst.unwrap_or(&nowhere[0]);
    let at = match points.is_empty() {
        true => " at a point that was not played".into(),
        false => at(&worst.point, &swept),
    };
    let against = right.as_ref().map_or(String::new(), |side| against(shown, &left, side));
    Some(Criterion {
        part: label(&shown.figure, part),
        mechanism: left.mechanism.into(),
        says: expect.says.clone(),
        asked: format!("{} {}{against}", worst.metric, crate::table::asked(worst)),
        got: format!("{}{}{at}", numbers(values, worst, shown.kept.world), lacking(worst)),
        held: all(verdicts.iter().map(|(verdict, _)| verdict.held)).filter(|_| !points.is_empty()),
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

/// `compare` for each group that a metric with `.*` names, and of these the worst; or the best,
/// where one is enough.
fn of_groups(
    shown: &Shown,
    expect: &Expect,
    left: &Side<'_>,
    right: Option<&Side<'_>>,
    point: &BTreeMap<String, f64>,
) -> (Verdict, Vec<f64>) {
    let Some(prefix) = left.metric.strip_suffix('*') else {
        return compare(shown, expect, left, right, point);
    };
    let runs = shown.results[left.part].as_ref().map_or(&[][..], |r| &r.runs);
    let names: BTreeSet<&str> = runs
        .iter()
        .filter(|run| run.mechanism == left.mechanism && run.point == *point)
        .flat_map(|run| run.summary.keys())
        .filter(|name| name.starts_with(prefix))
        .map(String::as_str)
        .collect();
    let one = |metric: &str| {
        let right = right.map(|side| Side { metric, at: side.at.clone(), ..*side });
        compare(
            shown,
            expect,
            &Side { metric, at: left.at.clone(), ..*left },
            right.as_ref(),
            point,
        )
    };
    let each = names.into_iter().map(one);
    let picked = match expect.groups {
        Groups::All => each.min_by(|(a, _), (b, _)| by_margin(a, b)),
        Groups::Any => each.max_by(|(a, _), (b, _)| by_margin(a, b)),
    };
    picked.unwrap_or_else(|| compare(shown, expect, left, right, point))
}

fn compare(
    shown: &Shown,
    expect: &Expect,
    left: &Side<'_>,
    right: Option<&Side<'_>>,
    point: &BTreeMap<String, f64>,
) -> (Verdict, Vec<f64>) {
    let middle = match shown.kept.world {
        World::Sim => Middle::Mean,
        World::Lab => Middle::Median,
    };
    let at = |side: &Side<'_>, here: &dyn Fn(&Run) -> bool| {
        let runs = shown.results[side.part].as_ref().map_or(&[][..], |r| &r.runs);
        let runs = runs.iter().filter(|r| r.mechanism == side.mechanism && here(r));
        verdict::Shown::of(runs, |run| run.summary.get(side.metric).copied())
    };
    let own = at(left, &|run| run.point == *point);
    // Elsewhere if it says where; else at the same point, as far as both have its parameters.
    let same =
        |run: &Run| run.point.iter().all(|(key, value)| point.get(key).is_none_or(|v| v == value));
    let held = match right {
        None => own,
        Some(side) if side.at.is_empty() => own.by(&at(side, &same), middle),
        Some(side) => own.by(&at(side, &|run| is_at(&run.point, &side.at)), middle),
    };
    let asked = Verdict { point: point.clone(), ..asked(left, expect) };
    let verdict = verdict::settled(asked, &held, middle);
    (verdict, held.values)
}

/// The verdict on an expectation before it is judged.
fn asked(left: &Side<'_>, expect: &Expect) -> Verdict {
    Verdict {
        mechanism: left.mechanism.into(),
        metric: left.metric.into(),
        says: expect.says.clone(),
        at_least: expect.at_least,
        at_most: expect.at_most,
        ..Verdict::default()
    }
}

/// How a figure ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All that was asked was played and held.
    Held,
    /// With one of the presets that were played; with another something failed.
    HeldWith,
    /// Something that was asked did not hold.
    Failed,
    /// Something that was asked has no number.
    NotJudged,
    /// Some of it was not played, and what was played held.
    Partly,
    /// Nothing was played.
    NotPlayed,
}

impl Ending {
    /// Of all criteria and parts of a figure.
    pub fn of(shown: &Shown, criteria: &[Criterion]) -> Self {
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
    pub fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::HeldWith)
    }

    /// A few words; `criteria` are those of the figure.
    pub fn words(self, criteria: &[Criterion]) -> String {
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

/// 0 if all was played and held, 1 if something failed, 3 if something was not played or not
/// judged.
pub fn code(endings: &[Ending]) -> u8 {
    match () {
        () if endings.contains(&Ending::Failed) => 1,
        () if endings.iter().all(|ending| ending.is_held()) => 0,
        () => 3,
    }
}

/// Of a mechanism that was played with several presets, one with which every criterion holds. Only
/// one of which all is asked that is asked of any of them: else what one does well would make up
/// for another.
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
