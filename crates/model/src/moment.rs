//! Moments of the calendar as people and programs read them: RFC 3339, `2026-11-25T07:46:35.120Z`.
//!
//! Approach  Milliseconds since 1970, and the civil calendar by arithmetic alone: leap seconds do not
//!           exist for it, as for the clocks of computers.
//! Promises  A moment that is shown parses back to itself. Nothing reads a clock here.
//! Source    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt;
use std::str::FromStr;

/// A moment in UTC, to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment(u64);

/// The last millisecond of the year 9999, the last one that RFC 3339 can write.
const LAST: u64 = 253_402_300_799_999;
const DAY_MS: u64 = 86_400_000;

impl Moment {
    /// The moment `ms` milliseconds after the start of 1970, at most the end of the year 9999.
    pub const fn from_millis(ms: u64) -> Self {
        Self(if ms > LAST { LAST } else { ms })
    }

    /// Milliseconds since the start of 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `ms` milliseconds later, at most the end of the year 9999.
    #[must_use]
    pub const fn plus_millis(self, ms: u64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0 / DAY_MS);
        let (s, ms) = (self.0 % DAY_MS / 1000, self.0 % 1000);
        let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

impl FromStr for Moment {
    type Err = String;

    /// Reads RFC 3339 with any fraction of a second, of which milliseconds count, and any offset.
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text)
            .ok_or_else(|| format!("`{text}` is not a moment: write it as 2026-11-25T07:46:35Z"))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Year, month and day of the day `days` after the first of 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from the first of 1970 to a date of 1970 or later.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

fn parse(text: &str) -> Option<Moment> {
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let separators = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
    if separators.iter().any(|&(at, what)| text.get(at..at + 1) != Some(what)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let zone = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let ms = millis(text.get(19..text.len() - zone.len())?)?;
    let (later, earlier) = offset(zone)?;
    if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let at = days(year, month, day.max(1));
    // A day that the month does not have gives another date back.
    let seconds = at * 86_400 + hour * 3600 + minute * 60 + second;
    let all = (seconds * 1000 + ms + earlier).checked_sub(later)?;
    (civil(at) == (year, month, day) && all <= LAST).then(|| Moment::from_millis(all))
}

/// Milliseconds of a fraction of a second: empty, or a point and digits.
fn millis(fraction: &str) -> Option<u64> {
    if fraction.is_empty() {
        return Some(0);
    }
    let digits = fraction.strip_prefix('.')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let three: String = digits.chars().chain("000".chars()).take(3).collect();
    is_number.then(|| three.parse().ok())?
}

/// By how many milliseconds the clock of a zone is later than UTC, and by how many earlier.
fn offset(zone: &str) -> Option<(u64, u64)> {
    if zone == "Z" {
        return Some((0, 0));
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let number = |digits: &str| -> Option<u64> {
        let is_number = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let ms = (hours * 60 + minutes) * 60_000;
    match zone.get(..1)? {
        _ if hours > 23 || minutes > 59 => None,
        "+" => Some((ms, 0)),
        "-" => Some((0, ms)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_have_their_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_592_795_120, "2026-11-25T07:46:35.120Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Moment::from_millis(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Moment::from_millis(ms)), "{text}");
        }
        for (ms, text) in [
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_782_400_000, "2000-02-29T01:30:00+01:30"),
            (951_782_400_050, "2000-02-28T19:00:00.05-05:00"),
            (951_782_400_224, "2000-02-29T00:00:00.224999+00:00"),
        ] {
            assert_eq!(text.parse(), Ok(Moment::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_an_example() {
        for text in [
            "",
            "2026-11-25",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1.2Z",
            "1970-01-01T00:59:59+01:00",
            "9999-12-31T23:59:59-00:01",
            "2026-01-01T00:00:0\u{e9}Z",
        ] {
            let error = text.parse::<Moment>().expect_err(text);
            assert!(error.contains("write it as"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_shown_moment_is_read_back_exactly(ms in 0..=LAST) {
            let moment = Moment::from_millis(ms);
            prop_assert_eq!(moment.to_string().parse(), Ok(moment));
        }
    }
}
