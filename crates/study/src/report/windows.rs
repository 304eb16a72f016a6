//! Windows of traced connections over time: a chart for each group, of its first connection.

use super::axis::{Axis, Frame, number, px};
use maud::{Markup, html};
use std::fmt::Write as _;
use weir_model::results::{Run, Windows};

const FRAME: Frame =
    Frame { width: 920.0, height: 230.0, left: 46.0, right: 150.0, top: 34.0, bottom: 38.0 };
/// Looks that a chart has room for; of more, the lowest and the highest of each stretch.
const ROOM: usize = 1800;
/// A window that nothing steers may be megabytes: the axis ends at so many times the largest that counted.
const ABOVE: f64 = 1.5;

/// The charts of a run; nothing if it has no trace.
pub(super) fn charts(run: &Run) -> Markup {
    let mut groups: Vec<(&str, &Windows)> = Vec::new();
    for flow in &run.flows {
        let is_new = groups.iter().all(|(group, _)| *group != flow.group);
        let first = flow.windows.first().filter(|_| is_new);
        groups.extend(first.map(|windows| (flow.group.as_str(), windows)));
    }
    html! {
        @for (group, windows) in &groups {
            figure {
                figcaption { b { "Window of " (group) } " under " (run.mechanism) ": bold what may be in flight, thin the \
                    guest's own congestion window." }
                (chart(run, windows))
            }
        }
    }
}

/// Whether any of these runs has a trace.
pub(super) fn any(runs: &[&Run]) -> bool {
    runs.iter().any(|run| run.flows.iter().any(|flow| !flow.windows.is_empty()))
}

fn chart(run: &Run, windows: &Windows) -> Markup {
    let both = windows.cwnd.iter().zip(&windows.shown);
    let window: Vec<f64> = both.map(|(cwnd, shown)| (*cwnd).min(*shown) as f64 / 1e3).collect();
    let cwnd: Vec<f64> = windows.cwnd.iter().map(|cwnd| *cwnd as f64 / 1e3).collect();
    // What is not judged, slow start above all, may leave the chart.
    let judged = windows.at_s.iter().zip(&window).filter(|(at, _)| **at >= run.warmup_s);
    let most = judged.map(|(_, window)| *window).fold(0.0, f64::max);
    let y = Axis::up_to(most * ABOVE, 4.0);
    let x = Axis::exactly(windows.at_s.last().copied().unwrap_or(1.0).max(run.sample_s), 10.0);
    let line = |values: &[f64]| line(&windows.at_s, values, &x, &y);
    let warmup = FRAME.x(x.at(run.warmup_s)) - FRAME.x(0.0);
    html! {
        svg viewBox={"0 0 " (FRAME.width) " " (FRAME.height)} role="img" aria-label="Window over time" {
            rect class="warmup" x=(px(FRAME.x(0.0))) y=(px(FRAME.y(1.0))) width=(px(warmup))
                height=(px(FRAME.y(0.0) - FRAME.y(1.0))) {}
            (y.draw_left(&FRAME, "window, kB"))
            @for tick in x.ticks() {
                text class="tick middle" x=(px(FRAME.x(x.at(tick)))) y=(px(FRAME.y(0.0) + 17.0)) { (number(tick)) }
            }
            text class="axis middle" x=(px(FRAME.x(0.5))) y=(px(FRAME.height - 4.0)) { "time, s" }
            path class="raw s1" d=(line(&cwnd)) {}
            path class="bold s0" d=(line(&window)) {}
        }
    }
}

/// A path through all looks, or through the ends of stretches of them.
fn line(at: &[f64], values: &[f64], x: &Axis, y: &Axis) -> String {
    let width = (2 * at.len()).div_ceil(ROOM).max(1);
    let mut path = String::new();
    let all: Vec<(f64, f64)> = at.iter().copied().zip(values.iter().copied()).collect();
    for stretch in all.chunks(width) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [stretch.iter().min_by(by_value), stretch.iter().max_by(by_value)];
        let mut ends: Vec<&(f64, f64)> = ends.into_iter().flatten().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        for (at, value) in ends {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let place = (FRAME.x(x.at(*at)), FRAME.y(y.at(*value)));
            let _ = write!(path, "{command}{:.1} {:.1}", place.0, place.1);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_looks_than_there_is_room_for_none_that_is_extreme_is_left_out() {
        let at: Vec<f64> = (0..10_000).map(|n| f64::from(n) / 1000.0).collect();
        let mut values = vec![50.0; 10_000];
        (values[4_321], values[4_322]) = (0.0, 100.0);
        let (x, y) = (Axis::exactly(10.0, 10.0), Axis::exactly(100.0, 4.0));
        let path = line(&at, &values, &x, &y);
        assert!(path.matches(['M', 'L']).count() <= ROOM + 1, "{}", path.len());
        for end in [FRAME.y(0.0), FRAME.y(1.0)] {
            assert!(path.contains(&format!(" {end:.1}")), "{end}");
        }
    }
}
