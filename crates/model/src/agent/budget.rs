//! A VM's window budget (vCC §4), as `agent.toml` has it.

use crate::text::SizeText;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use weir_units::Bytes;

/// A constant total of windows, divided among the live connections of its classes by their weights.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowBudget {
    /// All windows together.
    pub total: SizeText,
    /// Connections that may share it.
    pub flows_most: u32,
    /// The largest segment of these connections. Default 1460B.
    #[serde(default = "segment", skip_serializing_if = "is_usual")]
    pub segment: SizeText,
    /// Connections of none are not bounded.
    #[serde(rename = "class")]
    pub classes: Vec<WindowClass>,
}

impl WindowBudget {
    /// The largest segment of a guest whose frames are Ethernet's.
    pub const SEGMENT: SizeText = SizeText(Bytes::new(1_460));
}

const fn segment() -> SizeText {
    WindowBudget::SEGMENT
}

fn is_usual(size: &SizeText) -> bool {
    *size == WindowBudget::SEGMENT
}

/// Connections of one weight: those that match all fields.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowClass {
    /// What people call it.
    pub name: String,
    /// A connection's part, beside those of other weights.
    pub weight: u32,
    /// By these ports of the VM's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_ports: Option<Ports>,
    /// By these ports of the other end's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_ports: Option<Ports>,
}

/// One port or a range of them: `"443"`, `"5001-5003"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ports(pub RangeInclusive<u16>);

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<u16>().ok();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(format!("`{text}` is no range of ports: write \"443\" or \"5001-5003\"")),
        }
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "total = '180kB'\nflows_most = 5\n\
        [[class]]\nname = 'bulk'\nweight = 1\nremote_ports = '5001-5003'\n\
        [[class]]\nname = 'urgent'\nweight = 3\nlocal_ports = '443'\n";

    #[test]
    fn a_budget_is_read_and_written_alike() {
        let budget: WindowBudget = toml::from_str(GOOD).expect("good");
        assert_eq!(
            (budget.total.0, budget.segment.0),
            (Bytes::new(180_000), WindowBudget::SEGMENT.0)
        );
        assert_eq!(budget.classes[0].remote_ports, Some(Ports(5001..=5003)));
        assert_eq!(budget.classes[1].local_ports, Some(Ports(443..=443)));
        let text = toml::to_string(&budget).expect("text");
        assert_eq!(toml::from_str::<WindowBudget>(&text).expect("good"), budget);
    }

    #[test]
    fn what_is_no_range_of_ports_is_refused_with_its_line() {
        for wrong in ["5003-5001", "70000", "http", "1-2-3", ""] {
            let text = GOOD.replace("5001-5003", wrong);
            let error = toml::from_str::<WindowBudget>(&text).expect_err(wrong).to_string();
            assert!(error.contains("no range of ports") && error.contains("line 6"), "{error}");
        }
        let error = toml::from_str::<WindowBudget>(&GOOD.replace("180kB", "180kb"));
        assert!(error.expect_err("bits or octets").to_string().contains("ambiguous"));
    }
}
