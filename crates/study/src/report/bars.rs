//! A sweep as bars: at each point one bar per mechanism, the first group at the bottom and all
//! others on top of it, as in ElasticSwitch Figs. 5 and 6.

use super::axis::{Axis, Frame, px};
use super::marks::Marks;
use crate::aggregate::{Cell, point_values};
use maud::{Markup, html};
use weir_units::show;

const FRAME: Frame =
    Frame { width: 920.0, height: 300.0, left: 46.0, right: 20.0, top: 34.0, bottom: 44.0 };

/// The bars of all cells, which have the parameters `swept` and the mechanisms of `marks`.
pub(super) fn chart(cells: &[Cell<'_>], swept: &[String], marks: &Marks) -> Markup {
    let total = |cell: &Cell<'_>| cell.groups().map(|g| got(cell, g)).sum::<f64>();
    let promised = |cell: &Cell<'_>| first(cell).map_or(0.0, |g| promise(cell, g));
    let most = cells.iter().map(|c| total(c).max(promised(c))).fold(0.0, f64::max);
    let y = Axis::up_to(most / 1e6, 5.0);
    let points = super::marks::points(cells);
    let slot = 1.0 / points.len().max(1) as f64;
    let bar = slot * 0.8 / marks.mechanisms.len().max(1) as f64;
    html! {
        svg viewBox={"0 0 " (FRAME.width) " " (FRAME.height)} role="img"
            aria-label="Goodput at each point of the sweep, by mechanism" {
            (y.draw_left(&FRAME, "goodput, Mb/s"))
            @for (index, point) in points.iter().enumerate() {
                @let left = index as f64 * slot;
                text class="tick middle" x=(px(FRAME.x(left + slot / 2.0))) y=(px(FRAME.y(0.0) + 17.0)) {
                    (point_values(point, swept))
                }
                @for cell in cells.iter().filter(|c| c.point == *point) {
                    @let at = left + slot * 0.1 + marks.index(cell.mechanism) as f64 * bar;
                    (stack(cell, &y, at, bar, marks))
                }
                @if let Some(cell) = cells.iter().find(|c| c.point == *point && promised(c) > 0.0) {
                    @let level = px(FRAME.y(y.at(promised(cell) / 1e6)));
                    line class="floor both" x1=(px(FRAME.x(left + slot * 0.04)))
                        x2=(px(FRAME.x(left + slot * 0.96))) y1=(level) y2=(level) {}
                }
            }
            text class="axis middle" x=(px(FRAME.x(0.5))) y=(px(FRAME.height - 6.0)) {
                (swept.join(", "))
            }
        }
    }
}

fn stack(cell: &Cell<'_>, y: &Axis, at: f64, bar: f64, marks: &Marks) -> Markup {
    let below = first(cell).map_or(0.0, |g| got(cell, g));
    let all: f64 = cell.groups().map(|g| got(cell, g)).sum();
    let (x, width) = (FRAME.x(at), FRAME.x(at + bar * 0.9) - FRAME.x(at));
    let colour = marks.index(cell.mechanism) % 6;
    let height = |from: f64, to: f64| FRAME.y(y.at(from / 1e6)) - FRAME.y(y.at(to / 1e6));
    let doubt = if cell.valid { "" } else { " doubtful" };
    html! {
        g class={"bar s" (colour) (doubt)} {
            title {
                (cell.mechanism) ": "
                @for group in cell.groups() { (group) " " (show::rate(got(cell, group))) "; " }
                @if !cell.valid { "not a valid run" }
            }
            rect class="rest" x=(px(x)) y=(px(FRAME.y(y.at(all / 1e6)))) width=(px(width))
                height=(px(height(below, all))) {}
            rect class="first" x=(px(x)) y=(px(FRAME.y(y.at(below / 1e6)))) width=(px(width))
                height=(px(height(0.0, below))) {}
        }
    }
}

fn first<'a>(cell: &Cell<'a>) -> Option<&'a str> {
    cell.groups().next()
}

fn got(cell: &Cell<'_>, group: &str) -> f64 {
    cell.group(group, |g| g.goodput_bps).unwrap_or(0.0)
}

fn promise(cell: &Cell<'_>, group: &str) -> f64 {
    cell.group(group, |g| g.promised_bps).unwrap_or(0.0)
}
