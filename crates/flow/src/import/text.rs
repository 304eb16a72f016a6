//! Lines, words and numbers, with the place of what is wrong.

use super::ImportError;
use weir_units::{Rate, Span};

/// What a parser of words says is wrong.
pub(super) type What<T> = Result<T, String>;

/// A file, line by line.
pub(super) struct Lines<'a> {
    file: &'a str,
    rest: std::iter::Zip<std::ops::RangeFrom<u32>, std::str::Lines<'a>>,
}

/// A line that is not empty.
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: u32,
    /// Separated by white space.
    pub(super) words: Vec<&'a str>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, rest: (1..).zip(text.lines()) }
    }

    /// The file is wrong as a whole.
    pub(super) fn wrong<T>(&self, what: impl Into<String>) -> Result<T, ImportError> {
        self.wrong_at(0, what)
    }

    /// A line is wrong.
    pub(super) fn wrong_at<T>(&self, line: u32, what: impl Into<String>) -> Result<T, ImportError> {
        Err(ImportError { file: self.file.to_string(), line, what: what.into() })
    }

    /// Notes where `what` went wrong.
    pub(super) fn at<T>(&self, line: u32, what: What<T>) -> Result<T, ImportError> {
        what.or_else(|what| self.wrong_at(line, what))
    }

    /// The next line that must be there.
    pub(super) fn expect(&mut self, what: &str) -> Result<Line<'a>, ImportError> {
        match self.next() {
            Some(line) => Ok(line),
            None => self.wrong(format!("ends before {what}")),
        }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    /// The next line that is neither empty nor begins with `#`.
    fn next(&mut self) -> Option<Line<'a>> {
        self.rest.find_map(|(number, line)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words
                .first()
                .is_some_and(|word| !word.starts_with('#'))
                .then_some(Line { number, words })
        })
    }
}

/// A whole number from 0 to `most`.
pub(super) fn whole(word: &str, name: &str, most: u32) -> What<u32> {
    match word.parse::<u32>() {
        Ok(number) if number <= most && word.bytes().all(|c| c.is_ascii_digit()) => Ok(number),
        _ => Err(format!("{name} `{word}` is not a whole number from 0 to {most}")),
    }
}

/// The same, from 1.
pub(super) fn positive(word: &str, name: &str, most: u32) -> What<u32> {
    match whole(word, name, most) {
        Ok(0) | Err(_) => Err(format!("{name} `{word}` is not a whole number from 1 to {most}")),
        number => number,
    }
}

/// A number from 0 to `most`; with a point or an exponent, if it likes.
pub(super) fn real(word: &str, name: &str, most: f64) -> What<f64> {
    let digits = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    match word.parse::<f64>() {
        Ok(number) if digits && (0.0..=most).contains(&number) => Ok(number),
        _ => Err(format!("{name} `{word}` is not a number from 0 to {most}")),
    }
}

/// A number, and the unit behind it.
fn measured<'a>(word: &'a str, name: &str) -> What<(f64, &'a str)> {
    let unit = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    let (number, unit) = word.split_at(unit);
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number, unit)),
        _ => Err(format!("{name} `{word}` does not begin with a number")),
    }
}

/// The fastest link: 10¹⁵ bit/s.
const FASTEST: f64 = 1e15;

/// A rate as ns-3 writes it: `100Gbps`, `50Mb/s`, `12.5GBps`. Above zero.
pub(super) fn ns3_rate(word: &str) -> What<Rate> {
    let (number, unit) = measured(word, "rate")?;
    let (scale, per) = match unit.strip_suffix("ps").or_else(|| unit.strip_suffix("/s")) {
        Some(unit) => unit.split_at(unit.len().saturating_sub(1)),
        None => ("", ""),
    };
    let bits = match per {
        "b" => 1.0,
        "B" => 8.0,
        _ => return Err(format!("rate `{word}` has no unit such as Gbps, Mbps or Gb/s")),
    };
    let scale = match scale {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("rate `{word}` has no unit such as Gbps, Mbps or Gb/s")),
    };
    let bps = number * scale * bits;
    if (1.0..=FASTEST).contains(&bps) {
        Ok(Rate::from_bps_f64(bps))
    } else {
        Err(format!("rate `{word}` is not from 1 bit/s to 1 Pbit/s"))
    }
}

/// Longest delay: an hour.
const LONGEST: f64 = 3600e9;

/// A time as ns-3 writes it: `0.001ms`, `1000ns`, `1us`; no unit = seconds. To the nearest
/// nanosecond.
pub(super) fn ns3_time(word: &str) -> What<Span> {
    let (number, unit) = measured(word, "delay")?;
    let scale = match unit {
        "s" | "" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        "ps" => 1e-3,
        "fs" => 1e-6,
        _ => return Err(format!("delay `{word}` has no unit such as s, ms, us or ns")),
    };
    let ns = number * scale;
    if ns <= LONGEST {
        Ok(Span::from_nanos(ns.round() as u64))
    } else {
        Err(format!("delay `{word}` is longer than an hour"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_of_ns3_have_units() {
        let rate = |word| ns3_rate(word).map(Rate::as_bps);
        assert_eq!(rate("100Gbps"), Ok(100_000_000_000));
        assert_eq!(rate("1.5Mb/s"), Ok(1_500_000));
        assert_eq!(rate("2KBps"), Ok(16_000));
        assert_eq!(rate("2Kib/s"), Ok(2048));
        assert_eq!(rate("7bps"), Ok(7));
        for bad in ["100", "100G", "Gbps", "1e9bps", "-1Gbps", "0bps", "9999Tbps", "1ps", "/s", ""]
        {
            assert!(ns3_rate(bad).is_err(), "{bad}");
        }
        let time = |word| ns3_time(word).map(Span::as_nanos);
        assert_eq!(time("0.001ms"), Ok(1000));
        assert_eq!(time("1000ns"), Ok(1000));
        assert_eq!(time("2"), Ok(2_000_000_000));
        assert_eq!(time("1499ps"), Ok(1));
        for bad in ["ms", "1h", "-1us", "3601s", ".", "1..2ms"] {
            assert!(ns3_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_written_in_digits() {
        assert_eq!(whole("12", "n", 12), Ok(12));
        for bad in ["13", "+1", "-1", "1.0", "", "99999999999", "0x1"] {
            assert!(whole(bad, "n", 12).is_err(), "{bad}");
        }
        assert_eq!(real("2e3", "x", 1e4), Ok(2000.0));
        for bad in ["1e5", "-0", "nan", "inf", "+1", "1e"] {
            assert!(real(bad, "x", 1e4).is_err(), "{bad}");
        }
        assert!(positive("0", "n", 3).is_err());
    }
}
