//! How large flows are: one size, or a table of sizes and how many are no larger.
//!
//! Problem   Real flows are mostly small while most octets are in the large ones; published tables
//!           differ in units and in how they end.
//! Approach  `octets probability` per line, ascending; between two lines sizes are spread evenly
//!           (linear interpolation), below the first line all are as large as it says.
//! Promises  A table that was read is ascending in both columns and ends at 1.

use std::sync::Arc;
use weir_units::Bytes;

/// How large flows are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(Bytes),
    /// As the table says, each multiplied by the factor.
    Table(Arc<Cdf>, f64),
}

impl Sizes {
    /// The size of which a share `p` (0 to 1) is no larger; at least one octet.
    pub fn at(&self, p: f64) -> Bytes {
        match self {
            Self::Fixed(size) => *size,
            Self::Table(cdf, factor) => Bytes::new((cdf.at(p) * factor).round().max(1.0) as u64),
        }
    }

    /// The mean.
    pub fn mean(&self) -> Bytes {
        match self {
            Self::Fixed(size) => *size,
            Self::Table(cdf, factor) => Bytes::new((cdf.mean() * factor).round().max(1.0) as u64),
        }
    }

    pub(crate) fn scale(&mut self, scale: f64) {
        match self {
            Self::Fixed(size) => {
                *size = Bytes::new(((size.get() as f64 * scale).round() as u64).max(1));
            }
            Self::Table(_, factor) => *factor *= scale,
        }
    }
}

/// A cumulative distribution of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cdf {
    /// (octets, share of flows that are no larger), ascending in both; the last share is 1.
    points: Vec<(f64, f64)>,
}

/// Lines of a table: more is another kind of file.
const MOST: usize = 10_000;

impl Cdf {
    /// Reads a table: `octets probability` per line, both ascending, the last probability 1, or 100
    /// in percent. Empty lines and comments after `#` are ignored. The error is (line, what is
    /// wrong, what would be right).
    pub fn parse(text: &str) -> Result<Self, (u32, String, String)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last = 0;
        for (number, line) in (1u32..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            last = number;
            let wrong = |what: String, help: &str| Err((number, what, help.to_string()));
            let mut parts = line.split_whitespace().map(str::parse::<f64>);
            let (Some(Ok(octets)), Some(Ok(share)), None) =
                (parts.next(), parts.next(), parts.next())
            else {
                let help = "write octets and the share of flows that are no larger: 10000 0.15";
                return wrong(format!("`{line}` is not two numbers"), help);
            };
            if !(0.0..=1e15).contains(&octets) || !(0.0..=100.0).contains(&share) {
                let help =
                    "octets are not negative, a share lies between 0 and 1, or 100 in percent";
                return wrong(format!("`{line}` is out of range"), help);
            }
            if points.last().is_some_and(|&(o, s)| octets < o || share < s) {
                return wrong(format!("`{line}` is less than the line before"), "sort the lines");
            }
            if points.len() == MOST {
                return wrong(format!("more than {MOST} lines"), "use fewer points");
            }
            points.push((octets, share));
        }
        match points.last() {
            Some(&(octets, whole @ (1.0 | 100.0))) if octets > 0.0 => {
                points.iter_mut().for_each(|(_, share)| *share /= whole);
                Ok(Self { points })
            }
            Some(&(octets, share)) => Err((
                last,
                format!("ends with `{octets} {share}`"),
                "let the last line be the largest size and 1, or 100 in percent".into(),
            )),
            None => Err((0, "is empty".into(), "write `octets probability` per line".into())),
        }
    }

    /// Octets of which a share `p` is no larger.
    fn at(&self, p: f64) -> f64 {
        let above = self.points.partition_point(|&(_, share)| share < p).min(self.points.len() - 1);
        let (octets, share) = self.points[above];
        let Some(&(octets_below, share_below)) = above.checked_sub(1).map(|i| &self.points[i])
        else {
            return octets;
        };
        let part = (p - share_below) / (share - share_below);
        octets_below + (octets - octets_below) * part.clamp(0.0, 1.0)
    }

    fn mean(&self) -> f64 {
        let (first, share) = self.points[0];
        let between = |pair: &[(f64, f64)]| (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0;
        first * share + self.points.windows(2).map(between).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# octets share\n100 0\n\n200 0.5 # half\n1000 1\n";

    fn table(text: &str) -> Sizes {
        Sizes::Table(Arc::new(Cdf::parse(text).expect("a table")), 1.0)
    }

    #[test]
    fn sizes_between_two_lines_are_spread_evenly() {
        let sizes = table(TABLE);
        let at = |p| sizes.at(p).get();
        assert_eq!([at(0.0), at(0.25), at(0.5), at(0.75), at(1.0)], [100, 150, 200, 600, 1000]);
        assert_eq!(sizes.mean(), Bytes::new(375));
    }

    #[test]
    fn a_table_in_percent_is_the_same() {
        assert_eq!(table("100 0\n200 50\n1000 100\n"), table(TABLE));
    }

    #[test]
    fn a_table_may_begin_above_zero_and_step() {
        let sizes = table("500 0.5\n700 0.5\n700 1\n");
        let at = |p| sizes.at(p).get();
        assert_eq!([at(0.1), at(0.5), at(0.6), at(1.0)], [500, 500, 700, 700]);
        assert_eq!(sizes.mean(), Bytes::new(600));
    }

    #[test]
    fn a_scaled_table_keeps_its_shape_and_no_flow_is_empty() {
        let mut sizes = table(TABLE);
        sizes.scale(0.001);
        assert_eq!((sizes.at(0.0), sizes.at(1.0)), (Bytes::new(1), Bytes::new(1)));
        sizes.scale(2000.0);
        assert_eq!(sizes.at(0.5), Bytes::new(400));
    }

    #[test]
    fn a_bad_table_is_told_with_its_line() {
        let error = |text: &str| Cdf::parse(text).expect_err("bad");
        assert_eq!(error("1 0\n2 x\n").0, 2);
        assert!(error("1 0\n2 101\n").1.contains("out of range"));
        assert!(error("1 0\n2 50\n").1.contains("ends with"));
        assert!(error("10 0\n5 1\n").1.contains("less than the line before"));
        assert!(error("10 0\n20 0.9\n").1.contains("ends with"));
        assert_eq!(error("# nothing\n").0, 0);
    }
}
