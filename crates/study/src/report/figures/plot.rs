//! A figure's plot as SVG, in the paper's axes.

use super::data::{Curve, Places, Point, curves};
use crate::report::axis::{Axis, Frame, number, px};
use crate::reproduce::figure::{Plot, PlotKind, Reference};
use crate::reproduce::kept::Shown;
use maud::{Markup, html};
use std::fmt::Write as _;

const FRAME: Frame =
    Frame { width: 920.0, height: 370.0, left: 64.0, right: 22.0, top: 16.0, bottom: 56.0 };

/// From values to parts of an axis.
enum Scale {
    /// From zero.
    Linear(Axis),
    /// Decades between two values.
    Log(f64, f64),
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        match self {
            Self::Linear(axis) => axis.at(value),
            Self::Log(low, high) => {
                ((value.max(*low) / low).ln() / (high / low).ln()).clamp(0.0, 1.0)
            }
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self {
            Self::Linear(axis) => axis.ticks().collect(),
            Self::Log(low, high) => {
                let first = low.log10().ceil() as i32;
                let last = high.log10().floor() as i32;
                (first..=last).map(|power| 10f64.powi(power)).collect()
            }
        }
    }
}

/// The plot with its legend; `None` if nothing that it shows was played.
pub(super) fn draw(shown: &Shown, plot: &Plot) -> Option<Markup> {
    let (curves, places) = curves(shown, plot);
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return None;
    }
    let title = plot.title.as_deref().unwrap_or(&shown.figure.metadata.title);
    let (left, bottom) = match plot.kind {
        PlotKind::Cdf => ("part of all, cumulative", plot.y.label.as_str()),
        _ => (plot.y.label.as_str(), plot.x.as_ref().map_or("", |x| x.label.as_str())),
    };
    let y = scale_of_y(plot, &curves);
    let x = scale_of_x(plot, &curves, &places);
    let across = Across { plot, scale: x, places: &places };
    Some(html! {
        figure class="plot" {
            @if plot.title.is_some() { figcaption { b { (title) } } }
            (legend(plot, &curves))
            svg viewBox={"0 0 " (FRAME.width) " " (FRAME.height)} role="img" aria-label=(title) {
                (left_axis(&y, left))
                (across.axis(bottom))
                @match plot.kind {
                    PlotKind::Bars => (bars(&curves, &across, &y)),
                    PlotKind::Lines => (lines(&curves, &across, &y)),
                    PlotKind::Cdf => (steps(&curves, &across, &y)),
                }
                @for reference in &plot.reference { (against(reference, &across, &y)) }
            }
        }
    })
}

fn scale_of_y(plot: &Plot, curves: &[Curve]) -> Scale {
    if plot.kind == PlotKind::Cdf {
        return Scale::Linear(Axis::exactly(1.0, 5.0));
    }
    if let Some([low, high]) = plot.y.log {
        return Scale::Log(low, high);
    }
    if let Some(most) = plot.y.max {
        return Scale::Linear(Axis::exactly(most, 5.0));
    }
    let highest = |curve: &Curve| curve.points.iter().map(|p| p.high).fold(0.0, f64::max);
    let most = match plot.kind {
        PlotKind::Bars => stacked(curves),
        _ => curves.iter().map(highest).fold(0.0, f64::max),
    };
    let drawn =
        plot.reference.iter().flat_map(|r| r.at.into_iter().chain(r.points.iter().map(|p| p[1])));
    Scale::Linear(Axis::up_to(drawn.fold(most, f64::max), 5.0))
}

/// The highest pile of bars.
fn stacked(curves: &[Curve]) -> f64 {
    let piles = curves.iter().filter(|curve| curve.metric == 0).flat_map(|first| {
        let pile = |x: f64| -> f64 {
            let mine = curves.iter().filter(|curve| curve.series == first.series);
            mine.flat_map(|curve| &curve.points).filter(|p| p.x == x).map(|p| p.y).sum()
        };
        first.points.iter().map(move |point| pile(point.x).max(point.high)).collect::<Vec<_>>()
    });
    piles.fold(0.0, f64::max)
}

fn scale_of_x(plot: &Plot, curves: &[Curve], places: &Places) -> Scale {
    let most = curves.iter().flat_map(|c| &c.points).map(|p| p.x).fold(0.0, f64::max);
    match (plot.kind, plot.y.log, plot.y.max) {
        (PlotKind::Cdf, Some([low, high]), _) => Scale::Log(low, high),
        (PlotKind::Cdf, None, Some(most)) => Scale::Linear(Axis::exactly(most, 8.0)),
        (PlotKind::Cdf, None, None) => Scale::Linear(Axis::up_to(most, 8.0)),
        _ => {
            let last = places.0.iter().map(|place| place.0).fold(0.0, f64::max);
            Scale::Linear(Axis::exactly(last.max(1.0), 8.0))
        }
    }
}

/// The x axis: values in proportion, or places side by side.
struct Across<'a> {
    plot: &'a Plot,
    scale: Scale,
    places: &'a Places,
}

impl Across<'_> {
    fn to_scale(&self) -> bool {
        self.plot.kind == PlotKind::Cdf || self.plot.x.as_ref().is_some_and(|x| x.to_scale)
    }

    /// Width of a place, as a part of the axis.
    fn slot(&self) -> f64 {
        1.0 / self.places.0.len().max(1) as f64
    }

    fn x(&self, value: f64) -> f64 {
        match self.to_scale() {
            true => FRAME.x(self.scale.at(value)),
            false => FRAME.x((value + 0.5) * self.slot()),
        }
    }

    fn axis(&self, name: &str) -> Markup {
        let floor = FRAME.y(0.0);
        let ticks: Vec<(f64, String)> = match self.to_scale() {
            true => self.scale.ticks().into_iter().map(|t| (self.x(t), number(t))).collect(),
            false => self.places.0.iter().map(|(x, text)| (self.x(*x), text.clone())).collect(),
        };
        html! {
            @for (x, text) in ticks {
                @if self.to_scale() {
                    line class="base" x1=(px(x)) x2=(px(x)) y1=(px(floor)) y2=(px(floor + 4.0)) {}
                }
                text class="tick middle" x=(px(x)) y=(px(floor + 18.0)) { (text) }
            }
            text class="axis middle" x=(px(FRAME.x(0.5))) y=(px(FRAME.height - 10.0)) { (name) }
        }
    }
}

fn left_axis(y: &Scale, name: &str) -> Markup {
    let middle = FRAME.y(0.5);
    html! {
        @for tick in y.ticks() {
            @let level = px(FRAME.y(y.at(tick)));
            line class=(if y.at(tick) == 0.0 { "base" } else { "grid" })
                x1=(px(FRAME.left)) x2=(px(FRAME.width - FRAME.right)) y1=(level) y2=(level) {}
            text class="tick end" x=(px(FRAME.left - 8.0)) y=(level) dy=".32em" { (number(tick)) }
        }
        text class="axis middle" x="14" y=(px(middle)) transform={"rotate(-90 14 " (px(middle)) ")"} {
            (name)
        }
    }
}

fn bars(curves: &[Curve], across: &Across<'_>, y: &Scale) -> Markup {
    let series = curves.iter().map(|c| c.series + 1).max().unwrap_or(1);
    let width = FRAME.x(across.slot() * 0.82 / series as f64) - FRAME.x(0.0);
    html! {
        @for curve in curves.iter().filter(|curve| curve.metric == 0) {
            @for point in &curve.points {
                @let middle = across.x(point.x)
                    + (curve.series as f64 - (series - 1) as f64 / 2.0) * width;
                (pile(curves, curve, point, (middle, width * 0.88), y))
            }
        }
    }
}

/// The first metric solid, the others on top of it, paler.
fn pile(curves: &[Curve], first: &Curve, point: &Point, at: (f64, f64), y: &Scale) -> Markup {
    let (middle, width) = at;
    let mut layers = Vec::new();
    let mut below = 0.0;
    for curve in curves.iter().filter(|curve| curve.series == first.series) {
        let Some(here) = curve.points.iter().find(|p| p.x == point.x) else { continue };
        layers.push((curve.metric, below, below + here.y, curve.label.as_str(), here.y));
        below += here.y;
    }
    let doubt = if point.valid { "" } else { " doubtful" };
    html! {
        g class={"bar s" (first.colour) (doubt)} {
            @for (metric, from, to, label, value) in layers {
                rect class=(if metric == 0 { "first" } else { "rest" }) x=(px(middle - width / 2.0))
                    width=(px(width)) y=(px(FRAME.y(y.at(to))))
                    height=(px(FRAME.y(y.at(from)) - FRAME.y(y.at(to)))) {
                    title { (label) ": " (number(value)) @if !point.valid { ", not a valid run" } }
                }
            }
        }
        (whisker(middle, point, y))
    }
}

/// From the low to the high end of what several runs showed.
fn whisker(x: f64, point: &Point, y: &Scale) -> Markup {
    let (low, high) = (FRAME.y(y.at(point.low)), FRAME.y(y.at(point.high)));
    html! {
        @if low - high > 1.0 {
            path class="whisker" d={
                "M" (px(x)) " " (px(low)) "L" (px(x)) " " (px(high))
                "M" (px(x - 3.0)) " " (px(low)) "L" (px(x + 3.0)) " " (px(low))
                "M" (px(x - 3.0)) " " (px(high)) "L" (px(x + 3.0)) " " (px(high))
            } {}
        }
    }
}

fn lines(curves: &[Curve], across: &Across<'_>, y: &Scale) -> Markup {
    html! {
        @for curve in curves {
            @let places: Vec<(f64, f64)> = curve.points.iter()
                .map(|p| (across.x(p.x), FRAME.y(y.at(p.y)))).collect();
            path class={"bold s" (curve.colour) " d" (curve.metric % 3)} d=(path(&places)) {}
            @for (point, (x, level)) in curve.points.iter().zip(&places) {
                (whisker(*x, point, y))
                g class={"s" (curve.colour) (if point.valid { "" } else { " doubtful" })} {
                    (mark(curve.series, *x, *level, Some(&format!("{}: {}", curve.label, number(point.y)))))
                }
            }
        }
    }
}

/// A shape of its own for each series: colours alone do not tell them apart.
fn mark(series: usize, x: f64, y: f64, title: Option<&str>) -> Markup {
    let shape = match series % 6 {
        0 => "M-4.2 0A4.2 4.2 0 1 0 4.2 0A4.2 4.2 0 1 0-4.2 0Z",
        1 => "M-4-4H4V4H-4Z",
        2 => "M0-5.2L5.2 0L0 5.2L-5.2 0Z",
        3 => "M0-5L4.8 3.8H-4.8Z",
        4 => "M0 5L4.8-3.8H-4.8Z",
        _ => "M-1.6-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z",
    };
    html! {
        path class="dot" transform={"translate(" (px(x)) " " (px(y)) ")"} d=(shape) {
            @if let Some(title) = title { title { (title) } }
        }
    }
}

fn path(places: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in places.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path
}

/// A distribution: up at each value, level between.
fn steps(curves: &[Curve], across: &Across<'_>, y: &Scale) -> Markup {
    html! {
        @for curve in curves {
            @let places = {
                let mut places = Vec::new();
                let mut level = FRAME.y(0.0);
                for point in &curve.points {
                    let x = across.x(point.x);
                    places.push((x, level));
                    level = FRAME.y(y.at(point.y));
                    places.push((x, level));
                }
                places.push((FRAME.x(1.0), level));
                places
            };
            path class={"bold s" (curve.colour) " d" (curve.series % 3)} d=(path(&places)) {
                title { (curve.label) }
            }
        }
    }
}

/// The paper's own points, or a line to compare with.
fn against(reference: &Reference, across: &Across<'_>, y: &Scale) -> Markup {
    let is_cdf = across.plot.kind == PlotKind::Cdf;
    let places: Vec<(f64, f64)> =
        reference.points.iter().map(|[x, v]| (across.x(*x), FRAME.y(y.at(*v)))).collect();
    html! {
        @match reference.at {
            Some(at) if is_cdf => {
                @let x = across.x(at);
                line class="floor both" x1=(px(x)) x2=(px(x)) y1=(px(FRAME.y(0.0))) y2=(px(FRAME.y(1.0))) {}
                text class="faint" x=(px(x + 6.0)) y=(px(FRAME.y(0.0) - 8.0)) { (reference.label) }
            }
            Some(at) => {
                @let level = FRAME.y(y.at(at));
                line class="floor both" x1=(px(FRAME.x(0.0))) x2=(px(FRAME.x(1.0))) y1=(px(level)) y2=(px(level)) {}
                text class="faint end" x=(px(FRAME.x(1.0) - 4.0)) y=(px(level - 5.0)) { (reference.label) }
            }
            None => {
                @if reference.line { path class="floor both" d=(path(&places)) {} }
                @if !reference.line {
                    @for (x, level) in &places { g class="both hollow" { (mark(2, *x, *level, Some(&reference.label))) } }
                }
            }
        }
    }
}

fn legend(plot: &Plot, curves: &[Curve]) -> Markup {
    let shape = |curve: &Curve| {
        let kind = plot.kind;
        html! {
            svg class="key" viewBox="0 0 30 14" {
                @match kind {
                    PlotKind::Bars => g class={"bar s" (curve.colour)} {
                        rect class=(if curve.metric == 0 { "first" } else { "rest" }) x="8" y="1" width="12" height="12" rx="2" {}
                    },
                    PlotKind::Lines => g class={"s" (curve.colour)} {
                        path class={"bold d" (curve.metric % 3)} d="M0 7H30" {}
                        (mark(curve.series, 15.0, 7.0, None))
                    },
                    PlotKind::Cdf => path class={"bold s" (curve.colour) " d" (curve.series % 3)} d="M0 7H30" {},
                }
            }
        }
    };
    html! {
        p class="legend" {
            @for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
                span { (shape(curve)) (curve.label) }
            }
            @for reference in plot.reference.iter().filter(|r| r.at.is_none()) {
                span {
                    svg class="key" viewBox="0 0 30 14" {
                        @if reference.line { path class="floor both" d="M0 7H30" {} }
                        @if !reference.line { g class="both hollow" { (mark(2, 15.0, 7.0, None)) } }
                    }
                    (reference.label)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::Figure;
    use crate::reproduce::kept::{Kept, KeptPart};
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use weir_model::results::{Results, Run};

    fn shown(plot: &str) -> Shown {
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Figure, metadata: {{id: T-1, title: t, paper: P}}, \
             spec: {{says: s, criterion: c, play: [{{name: a, scenario: a.yaml}}], plots: [{plot}]}}}}"
        );
        let figure = Figure::parse(Path::new("f.yaml"), &text).expect("a sound figure");
        let mut runs = Vec::new();
        for (mechanism, base) in [("none", 100e6), ("elasticswitch", 200e6)] {
            for n in [1.0, 10.0, 300.0] {
                for repeat in 0..2 {
                    let x = base + 10e6 * f64::from(repeat);
                    runs.push(Run {
                        mechanism: mechanism.into(),
                        valid: true,
                        repeat,
                        point: BTreeMap::from([("n".into(), n)]),
                        summary: BTreeMap::from([
                            ("goodput.x".into(), x),
                            ("goodput.y".into(), 400e6),
                        ]),
                        ..Run::default()
                    });
                }
            }
        }
        let part = KeptPart { name: "a".into(), scale: 0.5, ..KeptPart::default() };
        let kept = Kept { parts: vec![part], ..Kept::default() };
        let results = vec![Some(Results { runs, ..Results::default() })];
        Shown { figure, kept, results, folder: PathBuf::new() }
    }

    fn svg(plot: &str) -> String {
        let shown = shown(plot);
        draw(&shown, &shown.figure.spec.plots[0]).expect("something to draw").into_string()
    }

    fn count(text: &str, what: &str) -> usize {
        text.matches(what).count()
    }

    const METRICS: &str = "y: {metrics: [goodput.x, goodput.y], names: [X, Y], \
         label: 'Throughput, Mb/s', unit: Mb/s, at_scale_1: true}";

    #[test]
    fn bars_are_piles_side_by_side_with_whiskers_and_labelled_axes() {
        let svg = svg(&format!(
            "{{kind: bars, x: {{of: n, label: Number of senders}}, {METRICS}, \
             reference: [{{label: the floor, at: 430}}]}}"
        ));
        // Two mechanisms at three places; keys of the legend are rectangles, too.
        assert_eq!(count(&svg, "class=\"first\""), 6 + 2);
        assert_eq!(count(&svg, "class=\"rest\""), 6 + 2);
        assert_eq!(count(&svg, "class=\"whisker\""), 6);
        assert!(svg.contains("Number of senders") && svg.contains("Throughput, Mb/s"));
        assert!(svg.contains("the floor") && svg.contains("No protection: X"));
        for place in [">1<", ">10<", ">300<"] {
            assert!(svg.contains(place), "{place}");
        }
        // The pile is (105 + 400) / 0.5 Mb/s high or less: both mechanisms' fit below 1250.
        assert!(svg.contains(">1250<") && !svg.contains(">1500<"), "{svg}");
    }

    #[test]
    fn lines_have_a_mark_per_point_and_a_shape_per_series() {
        let svg = svg(&format!(
            "{{kind: lines, x: {{of: n, label: n, to_scale: true}}, {METRICS}, \
             reference: [{{label: paper, points: [[1, 203], [10, 219]]}}]}}"
        ));
        // Two series, two metrics, three places, two points of the paper; five keys of the legend.
        assert_eq!(count(&svg, "class=\"dot\""), 12 + 2 + 5);
        assert_eq!(count(&svg, "class=\"bold"), 4 + 4);
        assert!(svg.contains("d1"), "the second metric is dashed");
    }

    #[test]
    fn a_distribution_ends_at_one_and_has_the_metric_on_its_x_axis() {
        let shown = shown("{kind: cdf, y: {metrics: [goodput.x], label: 'Mb/s of X', unit: Mb/s}}");
        let (curves, _) = curves(&shown, &shown.figure.spec.plots[0]);
        assert_eq!(curves.len(), 2);
        assert!(curves.iter().all(|c| c.points.len() == 6 && c.points[5].y == 1.0), "{curves:?}");
        assert_eq!((curves[0].points[0].x, curves[1].points[5].x), (100.0, 210.0));
        let svg = draw(&shown, &shown.figure.spec.plots[0]).expect("drawn").into_string();
        assert!(svg.contains("Mb/s of X") && svg.contains("part of all"));
    }

    #[test]
    fn ratios_are_to_the_other_mechanism_at_the_same_point() {
        let shown = shown(
            "{kind: lines, x: {of: n, label: n}, y: {metrics: [goodput.x], label: r, of: none}, \
             series: [{mechanism: elasticswitch}], only: [n=10]}",
        );
        let (curves, places) = curves(&shown, &shown.figure.spec.plots[0]);
        assert_eq!((curves.len(), places.0.len(), curves[0].points.len()), (1, 1, 1));
        assert!((curves[0].points[0].y - 205.0 / 105.0).abs() < 1e-9, "{curves:?}");
    }

    #[test]
    fn without_runs_nothing_is_drawn() {
        let mut shown = shown(&format!("{{kind: bars, x: {{of: n, label: n}}, {METRICS}}}"));
        shown.results = vec![None];
        assert!(draw(&shown, &shown.figure.spec.plots[0]).is_none());
    }
}
