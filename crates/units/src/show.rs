//! Quantities as people read them: `8.18 Gb/s`, `1.5 ms`, `95 %`.
//!
//! Problem   `8177278732` has to be counted; two programs that round differently seem to disagree.
//! Approach  What was measured is shown with three digits that matter ([`rate`], [`time`]). What was set is
//!           shown as it was set, to three digits after the point: `Display` of [`Rate`](crate::Rate) and
//!           [`Span`](crate::Span). Both choose the unit here.
//! Not here  What files hold (`450Mbit`), which is read back exactly: see `weir-model`.

const RATES: [(f64, &str); 5] =
    [(1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s")];
const AMOUNTS: [(f64, &str); 5] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
const TIMES: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];

/// A measured rate in bit/s: `86.1 Mb/s`; `0` if nothing came.
pub fn rate(bps: f64) -> String {
    measured(bps, &RATES)
}

/// A measured time in seconds: `1.23 ms`.
pub fn time(seconds: f64) -> String {
    measured(seconds, &TIMES)
}

/// A measured amount of octets: `12.3 GB`.
pub fn amount(octets: f64) -> String {
    measured(octets, &AMOUNTS)
}

/// A share as a percentage: `95 %`, and `1.4 %` below ten.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent != 0.0 && percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// Three digits that matter. The unit is that of the rounded value: 999 900 b/s are 1.00 Mb/s.
fn measured(value: f64, units: &[(f64, &str)]) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let fits = |&&(size, _): &&(f64, &str)| value.abs() >= 0.9995 * size;
    let &(size, unit) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    let value = value / size;
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// Bits per second as they were set.
pub(crate) fn set_rate(bps: u64) -> String {
    set(bps as f64, &RATES)
}

/// Nanoseconds as they were set.
pub(crate) fn set_time(ns: u64) -> String {
    set(ns as f64 / 1e9, &TIMES)
}

/// At most three digits after the point, without zeros at the end.
fn set(value: f64, units: &[(f64, &str)]) -> String {
    let smallest = units[units.len() - 1];
    // A hair more than the value, so that 1e-3 is a millisecond whatever its last bit is.
    let fits = |&&(size, _): &&(f64, &str)| value * (1.0 + 1e-12) >= size;
    let &(size, unit) = units.iter().find(fits).unwrap_or(&smallest);
    let value = (value / size * 1e3).round() / 1e3;
    format!("{value} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rate, Span};

    #[test]
    fn what_was_measured_has_three_digits_that_matter() {
        assert_eq!([0.0, 999.0, 12_345_678_901.0].map(amount), ["0", "999 B", "12.3 GB"]);
        assert_eq!(rate(8_177_278_732.0), "8.18 Gb/s");
        assert_eq!(rate(86_080_000.0), "86.1 Mb/s");
        assert_eq!(rate(1_910_000.0), "1.91 Mb/s");
        assert_eq!(rate(191_300_000.0), "191 Mb/s");
        assert_eq!(rate(999_900.0), "1.00 Mb/s");
        assert_eq!(rate(40_000.0), "40.0 kb/s");
        assert_eq!((rate(12.0), rate(0.0)), ("12.0 b/s".into(), "0".into()));
        assert_eq!(time(0.001_234), "1.23 ms");
        assert_eq!(time(0.000_085_3), "85.3 µs");
        assert_eq!(time(0.999_7), "1.00 s");
        assert_eq!(time(12.345), "12.3 s");
    }

    #[test]
    fn what_was_set_is_shown_as_it_was_set() {
        assert_eq!(Rate::from_mbps(450).to_string(), "450 Mb/s");
        assert_eq!(Rate::from_bps(1_500_000_000).to_string(), "1.5 Gb/s");
        assert_eq!(Rate::from_bps(312_500).to_string(), "312.5 kb/s");
        assert_eq!(Rate::ZERO.to_string(), "0 b/s");
        assert_eq!(Span::from_millis(15).to_string(), "15 ms");
        assert_eq!(Span::from_millis(1).to_string(), "1 ms");
        assert_eq!(Span::from_millis(2000).to_string(), "2 s");
        assert_eq!(Span::from_nanos(1_500).to_string(), "1.5 µs");
        assert_eq!(
            (Span::from_nanos(7).to_string(), Span::ZERO.to_string()),
            ("7 ns".into(), "0 ns".into())
        );
    }

    #[test]
    fn small_shares_have_a_digit_after_the_point() {
        assert_eq!(
            (percent(0.95), percent(0.014), percent(0.0)),
            ("95 %".into(), "1.4 %".into(), "0 %".into())
        );
    }
}
