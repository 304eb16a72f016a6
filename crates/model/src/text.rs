//! Quantities as people write them: `450Mbit`, `1.5G`, `128kB`, `15ms`.
//!
//! Problem   Files say `450Mbit`, tc says `450mbit`, Kubernetes says `450M`; and `Mbps` means
//!           megabits to people but megabytes to tc.
//! Approach  One table of units for rates, sizes and spans; decimal arithmetic in integers, so that
//!           a shown value parses back to the same octet. An ambiguous unit is refused, with
//!           advice.
//! Promises  `rate(&show_rate(r)) == r` for every `r`, and likewise for sizes and spans.
//! Not here  Arithmetic on quantities: see `scenario`'s expressions.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use weir_units::{Bytes, Rate, Span};

/// A rate that is text in files (`"450Mbit"`, `"450M"`, `"1.5Gbit"`) and bit/s inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateText(pub Rate);

impl Serialize for RateText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{}bit", self.0.as_bps()))
    }
}

impl<'de> Deserialize<'de> for RateText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        rate(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A size that is text in files (`"128kB"`, `"64KiB"`) and octets inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizeText(pub Bytes);

impl Serialize for SizeText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{}B", self.0.get()))
    }
}

impl<'de> Deserialize<'de> for SizeText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        size(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A span of time that is text in files (`"15ms"`, `"200us"`) and nanoseconds inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpanText(pub Span);

impl Serialize for SpanText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&show_span(self.0))
    }
}

impl<'de> Deserialize<'de> for SpanText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        span(&text).map(Self).map_err(D::Error::custom)
    }
}

/// What a unit measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    /// In bit/s.
    Rate,
    /// In octets.
    Size,
    /// In nanoseconds.
    Span,
    /// A bare `k`, `M`, `Gi`: a multiple of whatever the field holds, as Kubernetes writes it.
    Multiple,
}

impl Quantity {
    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Span => "span of time",
            Self::Multiple => "number",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Rate => "write a rate as 450Mbit, 450M or 1.5Gbit",
            Self::Size => "write a size as 128kB or 64KiB",
            Self::Span => "write a time as 30s, 15ms or 50us",
            Self::Multiple => "write a number",
        }
    }
}

/// Spelling, what it measures, and how many base units (bit/s, octets, nanoseconds) it is.
const UNITS: &[(&str, Quantity, u64)] = &[
    ("bit", Quantity::Rate, 1),
    ("kbit", Quantity::Rate, 1_000),
    ("Kbit", Quantity::Rate, 1_000),
    ("Mbit", Quantity::Rate, 1_000_000),
    ("mbit", Quantity::Rate, 1_000_000),
    ("Gbit", Quantity::Rate, 1_000_000_000),
    ("gbit", Quantity::Rate, 1_000_000_000),
    ("Tbit", Quantity::Rate, 1_000_000_000_000),
    ("tbit", Quantity::Rate, 1_000_000_000_000),
    // What is printed to people can be typed, too.
    ("b/s", Quantity::Rate, 1),
    ("kb/s", Quantity::Rate, 1_000),
    ("Mb/s", Quantity::Rate, 1_000_000),
    ("Gb/s", Quantity::Rate, 1_000_000_000),
    ("Tb/s", Quantity::Rate, 1_000_000_000_000),
    ("B", Quantity::Size, 1),
    ("kB", Quantity::Size, 1_000),
    ("MB", Quantity::Size, 1_000_000),
    ("GB", Quantity::Size, 1_000_000_000),
    ("KiB", Quantity::Size, 1 << 10),
    ("MiB", Quantity::Size, 1 << 20),
    ("GiB", Quantity::Size, 1 << 30),
    ("ns", Quantity::Span, 1),
    ("us", Quantity::Span, 1_000),
    ("µs", Quantity::Span, 1_000),
    ("ms", Quantity::Span, 1_000_000),
    ("s", Quantity::Span, 1_000_000_000),
    ("min", Quantity::Span, 60_000_000_000),
    ("h", Quantity::Span, 3_600_000_000_000),
    ("d", Quantity::Span, 86_400_000_000_000),
    ("k", Quantity::Multiple, 1_000),
    ("K", Quantity::Multiple, 1_000),
    ("M", Quantity::Multiple, 1_000_000),
    ("G", Quantity::Multiple, 1_000_000_000),
    ("T", Quantity::Multiple, 1_000_000_000_000),
    ("Ki", Quantity::Multiple, 1 << 10),
    ("Mi", Quantity::Multiple, 1 << 20),
    ("Gi", Quantity::Multiple, 1 << 30),
];

/// Looks a unit up. The error says what to write instead.
pub(crate) fn unit(name: &str) -> Result<(Quantity, u64), String> {
    if let Some(&(_, quantity, factor)) = UNITS.iter().find(|(spelling, ..)| *spelling == name) {
        return Ok((quantity, factor));
    }
    Err(match name {
        "bps" | "kbps" | "Kbps" | "Mbps" | "mbps" | "Gbps" | "gbps" => format!(
            "`{name}` is octets to tc and bits to people: write bit, kbit, Mbit or Gbit for a rate"
        ),
        "kb" | "Kb" | "KB" | "Mb" | "mb" | "Gb" | "gb" => {
            format!("`{name}` is ambiguous: write Mbit for a rate, kB or KiB for a size")
        }
        "b" => "`b` is ambiguous: write bit for a rate, B for a size".into(),
        _ => format!(
            "`{name}` is not a unit: rates have bit, kbit, Mbit, Gbit; sizes B, kB, KiB, MB; \
             times us, ms, s, min, h, d"
        ),
    })
}

/// Parses a rate. The error says what is wrong and what would be right.
pub fn rate(text: &str) -> Result<Rate, String> {
    measure(text, Quantity::Rate).map(Rate::from_bps)
}

/// Parses a size in octets. The error says what is wrong and what would be right.
pub fn size(text: &str) -> Result<Bytes, String> {
    measure(text, Quantity::Size).map(Bytes::new)
}

/// Parses a span of time. The error says what is wrong and what would be right.
pub fn span(text: &str) -> Result<Span, String> {
    measure(text, Quantity::Span).map(Span::from_nanos)
}

/// Shows a rate in its largest unit, exactly: [`rate`] gives the same rate back.
pub fn show_rate(rate: Rate) -> String {
    show(
        rate.as_bps(),
        &[(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit"), (1, "bit")],
    )
}

/// Shows a size in its largest unit, exactly: [`size`] gives the same size back.
pub fn show_size(size: Bytes) -> String {
    show(size.get(), &[(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"), (1, "B")])
}

/// Shows a span in its largest unit, exactly: [`span`] gives the same span back.
pub fn show_span(span: Span) -> String {
    show(span.as_nanos(), &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
}

/// `units` are powers of ten, the largest first, the last one 1.
fn show(value: u64, units: &[(u64, &str)]) -> String {
    let fits = |&&(factor, _): &&(u64, &str)| value >= factor;
    let &(factor, name) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    let digits = factor.ilog10() as usize;
    let fraction = format!("{:0digits$}", value % factor);
    match fraction.trim_end_matches('0') {
        _ if digits == 0 => format!("{value}{name}"),
        "" => format!("{}{name}", value / factor),
        some => format!("{}.{some}{name}", value / factor),
    }
}

/// A number with a unit of `wanted`, in base units, rounded to the nearest.
fn measure(text: &str, wanted: Quantity) -> Result<u64, String> {
    let t = text.trim();
    let at = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, name) = (&t[..at], t[at..].trim());
    let (kind, advice) = (wanted.name(), wanted.advice());
    let Some((digits, decimals)) = decimal(number) else {
        return Err(format!("`{text}` is not a {kind}: {advice}"));
    };
    if name.is_empty() {
        return Err(format!("`{text}` has no unit: {advice}"));
    }
    let (quantity, factor) = unit(name)?;
    if quantity != wanted && (quantity != Quantity::Multiple || wanted == Quantity::Span) {
        return Err(format!("`{text}` is a {}, not a {kind}: {advice}", quantity.name()));
    }
    let whole = 10_u128.pow(decimals);
    let value = digits.checked_mul(u128::from(factor)).map(|x| (x + whole / 2) / whole);
    value
        .and_then(|x| u64::try_from(x).ok())
        .ok_or_else(|| format!("`{text}` is more than any {kind}: {advice}"))
}

/// All digits of a plain decimal number as one integer, and how many of them are decimals.
fn decimal(number: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // 25 digits times the largest factor stay within 128 bits.
    if whole.is_empty() || whole.len() + fraction.len() > 25 {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    digits.parse().ok().map(|n| (n, fraction.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_rate_has_the_spellings_of_people_tc_and_kubernetes() {
        for text in ["450Mbit", "450mbit", "450M", "0.45Gbit", "450000kbit", " 450 Mbit "] {
            assert_eq!(rate(text), Ok(Rate::from_mbps(450)), "{text}");
        }
        assert_eq!(rate("2Mi"), Ok(Rate::from_bps(2 << 20)));
        assert_eq!(size("128k"), Ok(Bytes::new(128_000)));
        assert_eq!(size("64KiB"), Ok(Bytes::new(65_536)));
        assert_eq!(span("1.5ms"), Ok(Span::from_micros(1_500)));
        assert_eq!(span("1min"), Ok(Span::from_secs(60)));
    }

    #[test]
    fn an_ambiguous_or_missing_unit_is_refused_with_advice() {
        assert_eq!(
            rate("450"),
            Err("`450` has no unit: write a rate as 450Mbit, 450M or 1.5Gbit".into())
        );
        assert!(rate("450Mbps").unwrap_err().contains("octets to tc and bits to people"));
        assert!(size("128kb").unwrap_err().contains("ambiguous"));
        assert!(rate("10ms").unwrap_err().contains("is a span of time, not a rate"));
        assert!(span("15M").unwrap_err().contains("is a number, not a span of time"));
        assert!(rate("fast").unwrap_err().contains("is not a rate"));
        assert!(rate("99999999999Gbit").unwrap_err().contains("more than any rate"));
        assert!(rate("1.2.3Mbit").is_err() && rate("").is_err() && rate("-1Mbit").is_err());
    }

    #[test]
    fn what_people_are_shown_can_be_typed() {
        for shown in [Rate::from_bps(312_500), Rate::from_mbps(450), Rate::from_mbps(8_180)] {
            assert_eq!(rate(&shown.to_string()), Ok(shown));
        }
        let shown = Span::from_micros(1_500);
        assert_eq!(span(&shown.to_string()), Ok(shown));
    }

    #[test]
    fn what_is_shown_is_short() {
        assert_eq!(show_rate(Rate::from_bps(312_500)), "312.5kbit");
        assert_eq!(show_rate(Rate::from_mbps(1_000)), "1Gbit");
        assert_eq!(show_size(Bytes::new(128_000)), "128kB");
        assert_eq!(show_span(Span::from_millis(1_500)), "1.5s");
        assert_eq!(show_span(Span::ZERO), "0ns");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back_exactly(n: u64) {
            prop_assert_eq!(rate(&show_rate(Rate::from_bps(n))), Ok(Rate::from_bps(n)));
            prop_assert_eq!(size(&show_size(Bytes::new(n))), Ok(Bytes::new(n)));
            prop_assert_eq!(span(&show_span(Span::from_nanos(n))), Ok(Span::from_nanos(n)));
        }

        #[test]
        fn any_text_is_an_answer_not_a_panic(text: String) {
            let _ = (rate(&text), size(&text), span(&text));
        }
    }
}
