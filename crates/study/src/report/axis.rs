//! From values to positions in a chart.

use maud::{Markup, html};

/// The drawing area of a chart, in user units of the SVG.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Left edge of `fraction` of the inner width.
    pub(super) fn x(&self, fraction: f64) -> f64 {
        self.left + fraction * (self.width - self.left - self.right)
    }

    /// Height of `fraction` of the inner height, from below.
    pub(super) fn y(&self, fraction: f64) -> f64 {
        self.height - self.bottom - fraction * (self.height - self.top - self.bottom)
    }
}

/// An axis from zero to a round number.
pub(super) struct Axis {
    pub(super) most: f64,
    pub(super) step: f64,
}

impl Axis {
    /// From 0 to a little above `most`, with about `ticks` round steps.
    pub(super) fn up_to(most: f64, ticks: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let rough = most / ticks;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * power)
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(10.0 * power);
        Self { most: (most / step).ceil() * step, step }
    }

    /// Exactly from 0 to `most`.
    pub(super) fn exactly(most: f64, ticks: f64) -> Self {
        Self { most, ..Self::up_to(most, ticks) }
    }

    /// Where `value` lies: 0 to 1, cut at both ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        (value / self.most).clamp(0.0, 1.0)
    }

    /// Round values from 0 on.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let n = (self.most / self.step + 1e-6).floor() as usize;
        (0..=n).map(|i| i as f64 * self.step)
    }

    /// Horizontal lines with their values, and the axis' name above them.
    pub(super) fn draw_left(&self, frame: &Frame, name: &str) -> Markup {
        html! {
            @for tick in self.ticks() {
                @let y = px(frame.y(self.at(tick)));
                line class=(if tick == 0.0 { "base" } else { "grid" })
                    x1=(px(frame.left)) x2=(px(frame.width - frame.right)) y1=(y) y2=(y) {}
                text class="tick end" x=(px(frame.left - 8.0)) y=(y) dy=".32em" { (number(tick)) }
            }
            text class="axis" x="2" y=(px(frame.top - 12.0)) { (name) }
        }
    }
}

/// A coordinate with one digit.
pub(super) fn px(value: f64) -> String {
    format!("{:.1}", value)
}

/// A tick's value without needless digits.
pub(super) fn number(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number() {
        let axis = Axis::up_to(191.3, 4.0);
        assert_eq!((axis.most, axis.step), (200.0, 50.0));
        assert_eq!(axis.ticks().count(), 5);
        assert_eq!(Axis::up_to(0.0, 4.0).most, 1.0);
        assert_eq!(Axis::exactly(20.0, 8.0).ticks().last(), Some(20.0));
    }
}
