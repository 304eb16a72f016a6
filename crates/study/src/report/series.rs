//! Goodput over time: one panel per mechanism, floors as dashed lines.

use super::axis::{Axis, Frame, number, px};
use maud::{Markup, html};
use std::fmt::Write as _;
use weir_model::results::{Group, Run};
use weir_units::show;

const FRAME: Frame =
    Frame { width: 920.0, height: 250.0, left: 46.0, right: 150.0, top: 34.0, bottom: 38.0 };
/// The bold line is the mean over this long; the thin one is every sample.
const SMOOTH_S: f64 = 0.5;
/// Floors that differ by less share a line: TCP and UDP make different goodput of one floor.
const ALIKE: f64 = 0.03;
/// Labels at the right edge are at least so far apart.
const LABEL_GAP: f64 = 15.0;

/// The largest value any panel of these runs shows, bit/s: panels that share it can be compared.
pub(super) fn most(runs: &[&Run]) -> f64 {
    let highest = |run: &&Run| {
        let lines = run.groups.iter().flat_map(|g| smooth(&g.series_bps, width(run)));
        let floors = run.groups.iter().flat_map(|g| g.promised_series_bps.iter().copied());
        lines.chain(floors).chain(capacity(run)).fold(0.0, f64::max)
    };
    runs.iter().map(highest).fold(0.0, f64::max)
}

/// Samples that the bold line averages over.
fn width(run: &Run) -> usize {
    if run.sample_s > 0.0 { (SMOOTH_S / run.sample_s).round().max(1.0) as usize } else { 1 }
}

/// The rate of the fullest link that is a bottleneck of the run: drawn as the ceiling.
fn capacity(run: &Run) -> Option<f64> {
    let full = |l: &&weir_model::results::LinkResult| l.ideal_bps > 0.0;
    let by_use = |a: &&weir_model::results::LinkResult, b: &&weir_model::results::LinkResult| {
        (a.ideal_bps / a.rate_bps).total_cmp(&(b.ideal_bps / b.rate_bps))
    };
    run.links.iter().filter(full).max_by(by_use).map(|l| l.rate_bps)
}

/// One panel.
pub(super) fn panel(run: &Run, most_bps: f64) -> Markup {
    let y = Axis::up_to(most_bps / 1e6, 4.0);
    let samples = run.groups.iter().map(|g| g.series_bps.len()).max().unwrap_or(0);
    let x = Axis::exactly((samples as f64 * run.sample_s).max(run.sample_s), 10.0);
    let place = Place { x, y, sample_s: run.sample_s };
    let label = format!("Goodput of each group over time under {}", run.mechanism);
    html! {
        svg viewBox={"0 0 " (FRAME.width) " " (FRAME.height)} role="img" aria-label=(label) {
            (warmup(run, &place))
            (events(run, &place))
            (place.y.draw_left(&FRAME, "goodput, Mb/s"))
            (time_axis(&place))
            (ceiling(run, &place))
            @for (index, group) in run.groups.iter().enumerate() {
                path class={"raw s" (index % 6)} d=(line(&group.series_bps, 0, &place)) {}
            }
            @for (index, group) in run.groups.iter().enumerate() {
                @let bold = smooth(&group.series_bps, width(run));
                path class={"bold s" (index % 6)} d=(line(&bold, 0, &place)) {
                    title { (group.group) ": " (show::rate(group.goodput_bps)) }
                }
            }
            (floors(run, &place))
            (labels(run, &place))
            @if run.warmup_s > 0.0 {
                text class="faint" x=(px(FRAME.x(0.0) + 5.0)) y=(px(FRAME.y(0.22))) {
                    "warm-up, not judged"
                }
            }
        }
    }
}

struct Place {
    x: Axis,
    y: Axis,
    sample_s: f64,
}

impl Place {
    fn x_of(&self, seconds: f64) -> f64 {
        FRAME.x(self.x.at(seconds))
    }

    fn y_of(&self, bps: f64) -> f64 {
        FRAME.y(self.y.at(bps / 1e6))
    }
}

fn warmup(run: &Run, place: &Place) -> Markup {
    let (from, to) = (place.x_of(0.0), place.x_of(run.warmup_s));
    let top = FRAME.y(1.0);
    html! {
        @if run.warmup_s > 0.0 {
            rect class="warmup" x=(px(from)) y=(px(top)) width=(px(to - from))
                height=(px(FRAME.y(0.0) - top)) {}
        }
    }
}

fn events(run: &Run, place: &Place) -> Markup {
    html! {
        @for event in &run.events {
            @let x = px(place.x_of(event.at_s));
            line class="event" x1=(x) x2=(x) y1=(px(FRAME.y(0.0))) y2=(px(FRAME.y(1.0) - 4.0)) {}
            text class="hint middle" x=(x) y=(px(FRAME.y(1.0) - 9.0)) { (event.says) }
        }
    }
}

fn time_axis(place: &Place) -> Markup {
    let y = FRAME.y(0.0);
    html! {
        @for tick in place.x.ticks() {
            text class="tick middle" x=(px(place.x_of(tick))) y=(px(y + 17.0)) { (number(tick)) }
        }
        text class="axis middle" x=(px(FRAME.x(0.5))) y=(px(FRAME.height - 4.0)) { "time, s" }
    }
}

fn ceiling(run: &Run, place: &Place) -> Markup {
    html! {
        @if let Some(rate) = capacity(run) {
            @let y = px(place.y_of(rate));
            line class="ceiling" x1=(px(FRAME.x(0.0))) x2=(px(FRAME.x(1.0))) y1=(y) y2=(y) {}
        }
    }
}

/// A path through the middles of the samples from `first` on.
fn line(values: &[f64], first: usize, place: &Place) -> String {
    let mut path = String::new();
    for (index, value) in values.iter().enumerate() {
        let x = place.x_of(((first + index) as f64 + 0.5) * place.sample_s);
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", x, place.y_of(*value));
    }
    path
}

/// Centred mean over `width` samples, fewer at the ends.
fn smooth(values: &[f64], width: usize) -> Vec<f64> {
    let (before, after) = ((width - 1) / 2, width / 2);
    let mean = |i: usize| {
        let part = &values[i.saturating_sub(before)..(i + after + 1).min(values.len())];
        part.iter().sum::<f64>() / part.len() as f64
    };
    (0..values.len()).map(mean).collect()
}

/// Groups whose promises are alike share one dashed line.
fn floor_sets(groups: &[Group]) -> Vec<(Vec<usize>, &[f64])> {
    let mut sets: Vec<(Vec<usize>, &[f64])> = Vec::new();
    for (index, group) in groups.iter().enumerate().filter(|(_, g)| g.promised_bps > 0.0) {
        let alike = |set: &&mut (Vec<usize>, &[f64])| near(set.1, &group.promised_series_bps);
        match sets.iter_mut().find(alike) {
            Some(set) => set.0.push(index),
            None => sets.push((vec![index], &group.promised_series_bps)),
        }
    }
    sets
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= ALIKE * a.max(*b))
}

fn floors(run: &Run, place: &Place) -> Markup {
    html! {
        @for (groups, promised) in floor_sets(&run.groups) {
            @let colour = match groups.as_slice() { [one] => format!("s{}", one % 6), _ => "both".into() };
            @for (start, part) in stretches(promised) {
                path class={"floor " (colour)} d=(line(part, start, place)) {}
            }
        }
    }
}

/// The parts in which something is promised, with their first index.
fn stretches(values: &[f64]) -> Vec<(usize, &[f64])> {
    let mut parts = Vec::new();
    let mut start = 0;
    for part in values.split(|&v| v <= 0.0) {
        if !part.is_empty() {
            parts.push((start, part));
        }
        start += part.len() + 1;
    }
    parts
}

/// Names at the right edge, beside the lines they belong to, pushed apart where they would overlap.
fn labels(run: &Run, place: &Place) -> Markup {
    let mut labels: Vec<(f64, String, String)> = Vec::new();
    for (index, group) in run.groups.iter().enumerate() {
        let tail = &group.series_bps[group.series_bps.len().saturating_sub(2 * width(run))..];
        let last = tail.iter().sum::<f64>() / tail.len().max(1) as f64;
        labels.push((place.y_of(last), group.group.clone(), format!("name s{}", index % 6)));
    }
    for (groups, promised) in floor_sets(&run.groups) {
        let last = promised.iter().rev().find(|&&v| v > 0.0).copied().unwrap_or(0.0);
        let names: Vec<&str> = groups.iter().map(|&g| run.groups[g].group.as_str()).collect();
        labels.push((place.y_of(last), format!("floor of {}", names.join(", ")), "hint".into()));
    }
    if let Some(rate) = capacity(run) {
        labels.push((place.y_of(rate), format!("link {}", show::rate(rate)), "hint".into()));
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    for index in 1..labels.len() {
        labels[index].0 = labels[index].0.max(labels[index - 1].0 + LABEL_GAP);
    }
    let over = labels.last().map_or(0.0, |l| (l.0 - FRAME.y(0.0)).max(0.0));
    html! {
        @for (y, text, class) in &labels {
            text class=(class) x=(px(FRAME.x(1.0) + 8.0)) y=(px(y - over)) dy=".32em" { (text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_the_length_and_the_mean_of_a_plateau() {
        assert_eq!(smooth(&[4.0; 7], 5), vec![4.0; 7]);
        assert_eq!(smooth(&[0.0, 3.0, 6.0], 3), vec![1.5, 3.0, 4.5]);
        assert_eq!(smooth(&[], 5), Vec::<f64>::new());
    }

    #[test]
    fn a_floor_is_drawn_only_while_it_is_promised() {
        let values = [0.0, 5.0, 5.0, 0.0, 0.0, 7.0];
        assert_eq!(stretches(&values), vec![(1, &[5.0, 5.0][..]), (5, &[7.0][..])]);
    }

    #[test]
    fn equal_floors_share_a_line() {
        let group = |promised: f64| Group {
            promised_bps: promised,
            promised_series_bps: vec![promised; 3],
            ..Group::default()
        };
        let groups = [group(86.0), group(86.1), group(40.0), group(0.0)];
        let sets: Vec<Vec<usize>> = floor_sets(&groups).into_iter().map(|s| s.0).collect();
        assert_eq!(sets, vec![vec![0, 1], vec![2]]);
    }
}
