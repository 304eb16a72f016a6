//! Quantities as people write them: `450Mbit`, `1.5G`, `128kB`, `15ms`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use weir_units::Rate;

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

/// Parses a rate. The error says what is wrong and what would be right.
pub fn rate(text: &str) -> Result<Rate, String> {
    let t = text.trim();
    let at = t.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(t.len());
    let (number, unit) = t.split_at(at);
    let number: f64 =
        number.parse().map_err(|_| format!("`{text}` is not a rate: write 450Mbit or 1.5Gbit"))?;
    let factor = match unit.trim() {
        "bit" => 1.0,
        "k" | "K" | "kbit" | "Kbit" => 1e3,
        "M" | "Mbit" | "mbit" => 1e6,
        "G" | "Gbit" | "gbit" => 1e9,
        "" => return Err(format!("`{text}` has no unit: write {text}bit or {text}Mbit")),
        other => return Err(format!("`{other}` is not a unit of rate: use bit, kbit, Mbit, Gbit")),
    };
    Ok(Rate::from_bps_f64(number * factor))
}
