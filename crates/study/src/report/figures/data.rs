//! From results to what a plot shows: curves of points with their spread.

use crate::numbers::median;
use crate::reproduce::figure::{Figure, Plot, PlotKind, RECEIVERS, Series, X};
use crate::reproduce::judge::{is_at, places};
use crate::reproduce::kept::{Shown, World};
use crate::reproduce::stats::estimate;
use std::collections::BTreeMap;
use weir_core::mechanism::registry;
use weir_model::results::{Results, Run};
use weir_model::scenario::Mechanism;

/// One series of one metric.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// Counts series: decides the place of a bar and the shape of a mark.
    pub(super) series: usize,
    pub(super) colour: usize,
    /// Counts metrics: decides how it is drawn.
    pub(super) metric: usize,
    pub(super) points: Vec<Point>,
}

/// What all runs at one place show together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// The 95 % interval of the mean in the simulator, the extremes in the lab.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Whether a valid run is behind it.
    pub(super) valid: bool,
}

/// Places on the x axis: values, and how they are written.
#[derive(Debug)]
pub(super) struct Places(pub(super) Vec<(f64, String)>);

/// All curves of a plot, and the places of its x axis.
pub(super) fn curves(shown: &Shown, plot: &Plot) -> (Vec<Curve>, Places) {
    let mut curves = Vec::new();
    let ways = ways(shown, plot);
    let xs = places_of(shown, plot, &ways);
    let colours = colours(&ways);
    for (series, way) in ways.iter().enumerate() {
        let Some(results) = &shown.results[way.part] else { continue };
        let scale = shown.part(way.part).map_or(1.0, |kept| kept.scale);
        for (metric, name) in plot.y.metrics.iter().enumerate() {
            let from = From { results, way, plot, metric: &name.value, scale };
            let points = match (plot.kind, &plot.x) {
                (PlotKind::Cdf, _) => distribution(&from),
                (_, Some(x)) => over(&from, x, shown.kept.world, &xs),
                (_, None) => Vec::new(),
            };
            let called = plot.y.names.get(metric).map_or("", String::as_str);
            let label = match (called, way.label.as_str()) {
                ("", label) => label.to_string(),
                (called, label) => format!("{label}: {called}"),
            };
            curves.push(Curve { label, series, colour: colours[series], metric, points });
        }
    }
    (curves, xs)
}

/// A mechanism of a part.
pub(super) struct Way {
    part: usize,
    mechanism: String,
    pub(super) label: String,
}

/// The series of a plot: as written, or every mechanism of every part that has runs.
pub(super) fn ways(shown: &Shown, plot: &Plot) -> Vec<Way> {
    if !plot.series.is_empty() {
        return plot.series.iter().filter_map(|series| written(&shown.figure, series)).collect();
    }
    let mut ways: Vec<Way> = Vec::new();
    for (part, results) in shown.results.iter().enumerate() {
        let several = shown.figure.spec.play.len() > 1;
        let of = shown.figure.spec.play[part].label.as_deref().filter(|_| several);
        for run in results.iter().flat_map(|results| &results.runs) {
            if !ways.iter().any(|w| w.part == part && w.mechanism == run.mechanism) {
                let name = name(&run.mechanism);
                let label = of.map_or(name.clone(), |of| format!("{name}, {of}"));
                ways.push(Way { part, mechanism: run.mechanism.clone(), label });
            }
        }
    }
    ways
}

fn written(figure: &Figure, series: &Series) -> Option<Way> {
    let (part, of) = figure.part(series.part.as_ref().map(|p| p.value.as_str()))?;
    let mechanism = series.mechanism.value.clone();
    let several = figure.spec.play.len() > 1;
    let label = series.label.clone().or_else(|| of.label.clone().filter(|_| several));
    Some(Way { part, label: label.unwrap_or_else(|| name(&mechanism)), mechanism })
}

/// As the paper calls it.
pub(super) fn name(mechanism: &str) -> String {
    if let Some((plain, translation)) = mechanism.split_once('+') {
        return format!("{}, guests translated to {translation}", name(plain));
    }
    let Ok(known) = Mechanism::parse(mechanism) else { return mechanism.into() };
    let Some(row) = known.row else { return "No protection".into() };
    match mechanism.split_once(':') {
        Some((_, preset)) => format!("{}, preset {preset}", row.title),
        None if row.usual == "paper" && !row.presets.is_empty() => {
            format!("{}, the paper's constants", row.title)
        }
        None => row.title.into(),
    }
}

/// A mechanism's colour is the same on the whole page, unless a plot has it more than once.
fn colours(ways: &[Way]) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    // The first is that of no mechanism; a preset that is not the usual one has what is left.
    let own = |mechanism: &str| match Mechanism::parse(mechanism).ok()?.row {
        None => Some(0),
        Some(row) if row.name == mechanism => {
            registry::ALL.iter().position(|one| one == row).map(|place| place + 1)
        }
        Some(_) => None,
    };
    for way in ways {
        let free = |colour: &usize| !taken.contains(colour);
        let any = (0..6).find(free).unwrap_or(taken.len() % 6);
        taken.push(own(&way.mechanism).filter(free).unwrap_or(any));
    }
    taken
}

/// The values of the x axis: those that any series has.
fn places_of(shown: &Shown, plot: &Plot, ways: &[Way]) -> Places {
    let Some(x) = plot.x.as_ref().filter(|_| plot.kind != PlotKind::Cdf) else {
        return Places(Vec::new());
    };
    let mut found: Vec<(f64, String)> = Vec::new();
    for way in ways {
        for run in shown.results[way.part].iter().flat_map(|results| &results.runs) {
            let Some(text) = text(run, x).filter(|_| wanted(run, plot)) else { continue };
            if run.mechanism == way.mechanism && !found.iter().any(|(_, other)| *other == text) {
                let value = text.parse().unwrap_or(found.len() as f64);
                found.push((value, text));
            }
        }
    }
    if x.to_scale {
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
    } else {
        // In the order of the sweep, side by side.
        found.iter_mut().enumerate().for_each(|(index, place)| place.0 = index as f64);
    }
    Places(found)
}

fn wanted(run: &Run, plot: &Plot) -> bool {
    is_at(&run.point, &places(&plot.only))
}

/// How the place of a run is written; nothing if it has no such parameter.
fn text(run: &Run, x: &X) -> Option<String> {
    let unit = x.unit.map_or(1.0, |unit| unit.size());
    let values = x.of.value.split(',').map(|key| {
        let value = run.point.get(key.trim())? / unit;
        Some(((value * 1e6).round() / 1e6).to_string())
    });
    Some(values.collect::<Option<Vec<_>>>()?.join(" / "))
}

/// One point per place of the x axis.
fn over(from: &From<'_>, x: &X, world: World, xs: &Places) -> Vec<Point> {
    let mut points = Vec::new();
    for (place, label) in &xs.0 {
        let here = |run: &&Run| from.is_mine(run) && text(run, x).as_ref() == Some(label);
        let runs: Vec<&Run> = from.results.runs.iter().filter(here).collect();
        let valid = runs.iter().any(|run| run.valid);
        let counted = runs.iter().filter(|run| run.valid || !valid);
        let number = |run: &&&Run| {
            let value = *run.summary.get(from.metric)?;
            from.shown(run, from.metric, value)
        };
        let values: Vec<f64> = counted.filter_map(|run| number(&run)).collect();
        points.extend(together(*place, &values, world, valid));
    }
    points
}

/// Mean and interval, or median and extremes.
fn together(x: f64, values: &[f64], world: World, valid: bool) -> Option<Point> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match world {
        World::Sim => {
            let estimate = estimate(values)?;
            let half = estimate.half.unwrap_or(0.0);
            let (low, high) = (estimate.mean - half, estimate.mean + half);
            Some(Point { x, y: estimate.mean, low, high, valid })
        }
        World::Lab => {
            let (low, high) = (*sorted.first()?, *sorted.last()?);
            Some(Point { x, y: median(&sorted)?, low, high, valid })
        }
    }
}

/// Where the numbers of a curve come from.
struct From<'a> {
    results: &'a Results,
    way: &'a Way,
    plot: &'a Plot,
    metric: &'a str,
    scale: f64,
}

impl From<'_> {
    fn is_mine(&self, run: &Run) -> bool {
        run.mechanism == self.way.mechanism && wanted(run, self.plot)
    }

    /// In the plot's unit, at the paper's scale, as a ratio: whatever the plot asks for.
    fn shown(&self, run: &Run, metric: &str, value: f64) -> Option<f64> {
        let y = &self.plot.y;
        if let Some(of) = &y.of {
            let same = |other: &&Run| other.mechanism == of.value && other.point == run.point;
            let others = self.results.runs.iter().filter(same).filter(|other| other.valid);
            let mut others: Vec<f64> =
                others.filter_map(|other| other.summary.get(metric).copied()).collect();
            others.sort_by(f64::total_cmp);
            return median(&others).filter(|other| *other > 0.0).map(|other| value / other);
        }
        let scale = if y.at_scale_1 { self.scale } else { 1.0 };
        Some(value / y.unit.size() / scale)
    }
}

/// Every value of all valid runs, ascending, with the part of values up to it.
fn distribution(from: &From<'_>) -> Vec<Point> {
    let mut values: Vec<f64> = Vec::new();
    for run in from.results.runs.iter().filter(|run| run.valid && from.is_mine(run)) {
        for (name, value) in all(run, from.metric) {
            values.extend(from.shown(run, &name, value));
        }
    }
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let point = |(index, x): (usize, &f64)| {
        let y = (index + 1) as f64 / n;
        Point { x: *x, y, low: y, high: y, valid: true }
    };
    values.iter().enumerate().map(point).collect()
}

/// All numbers of a run that `metric` stands for.
fn all(run: &Run, metric: &str) -> BTreeMap<String, f64> {
    if metric == RECEIVERS {
        let receivers = run.vms.iter().filter(|vm| vm.direction == "in");
        return receivers.map(|vm| (vm.vm.clone(), vm.goodput_bps)).collect();
    }
    let named = |name: &str| match metric.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == metric,
    };
    run.summary.iter().filter(|(name, _)| named(name)).map(|(n, v)| (n.clone(), *v)).collect()
}
