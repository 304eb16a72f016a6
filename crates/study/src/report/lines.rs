//! One number over a sweep, one line per mechanism.

use super::axis::{Axis, Frame, px};
use super::marks::{Marks, points};
use crate::aggregate::{Cell, point_values};
use maud::{Markup, html};
use std::fmt::Write as _;

const FRAME: Frame =
    Frame { width: 440.0, height: 230.0, left: 40.0, right: 14.0, top: 34.0, bottom: 42.0 };

/// `metric` of all cells; nothing if no cell has it.
pub(super) fn chart(
    cells: &[Cell<'_>],
    swept: &[String],
    marks: &Marks,
    metric: &str,
    title: &str,
) -> Option<Markup> {
    let most = cells.iter().filter_map(|c| c.number(metric)).reduce(f64::max)?;
    let y = Axis::up_to(most.max(1.0), 4.0);
    let points = points(cells);
    let x = |index: usize| FRAME.x((index as f64 + 0.5) / points.len() as f64);
    let of = |mechanism: &str| -> Vec<(f64, f64, bool, f64)> {
        let place = |cell: &Cell<'_>| {
            let index = points.iter().position(|p| *p == cell.point)?;
            let value = cell.number(metric)?;
            Some((x(index), FRAME.y(y.at(value)), cell.valid, value))
        };
        cells.iter().filter(|c| c.mechanism == mechanism).filter_map(place).collect()
    };
    Some(html! {
        svg viewBox={"0 0 " (FRAME.width) " " (FRAME.height)} role="img" aria-label=(title) {
            (y.draw_left(&FRAME, title))
            @if most > 1.0 {
                @let level = px(FRAME.y(y.at(1.0)));
                line class="floor both" x1=(px(FRAME.x(0.0))) x2=(px(FRAME.x(1.0))) y1=(level) y2=(level) {}
            }
            @for (index, point) in points.iter().enumerate() {
                text class="tick middle" x=(px(x(index))) y=(px(FRAME.y(0.0) + 17.0)) {
                    (point_values(point, swept))
                }
            }
            text class="axis middle" x=(px(FRAME.x(0.5))) y=(px(FRAME.height - 5.0)) { (swept.join(", ")) }
            @for (index, mechanism) in marks.mechanisms.iter().enumerate() {
                @let places = of(mechanism);
                path class={"bold s" (index % 6)} d=(path(&places)) {}
                @for (x, y, valid, value) in &places {
                    circle class={"dot s" (index % 6) (if *valid { "" } else { " doubtful" })}
                        cx=(px(*x)) cy=(px(*y)) r="3.5" {
                        title { (mechanism) ": " (format!("{value:.3}")) }
                    }
                }
            }
        }
    })
}

fn path(places: &[(f64, f64, bool, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y, ..)) in places.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path
}
