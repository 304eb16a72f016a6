//! Statistics of several runs of the same.
//!
//! Problem   Five seeds are five numbers; a reader asks how far their mean may be from the truth.
//! Approach  Mean and 95 % confidence interval by Student's t in the simulator, whose seeds are a
//!           sample; median and worst in the lab, whose repeats are few and have outliers.
//! Promises  One number alone has no interval.

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A mean, and how far the true one may be away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    /// Half of the 95 % confidence interval; `None` for a single number.
    pub(crate) half: Option<f64>,
}

/// Of nothing there is no estimate.
pub(crate) fn estimate(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    if n == 1 {
        return Some(Estimate { mean, half: None });
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / (n - 1) as f64).sqrt();
    Some(Estimate { mean, half: Some(t95(n - 1) * deviation / (n as f64).sqrt()) })
}

/// Beyond the table, between its last entry and the normal distribution's 1.960: within 0.1 %.
fn t95(freedom: usize) -> f64 {
    let tabled = freedom.checked_sub(1).and_then(|index| T95.get(index)).copied();
    tabled.unwrap_or(1.96 + 2.46 / freedom as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_table() {
        // (values, mean, half): t · s / √n, by hand.
        let table: [(&[f64], f64, Option<f64>); 4] = [
            (&[3.0], 3.0, None),
            (&[1.0, 3.0], 2.0, Some(12.706)),
            (&[2.0, 4.0, 4.0, 4.0, 6.0], 4.0, Some(2.776 * 2f64.sqrt() / 5f64.sqrt())),
            (&[7.0, 7.0, 7.0], 7.0, Some(0.0)),
        ];
        for (values, mean, half) in table {
            let got = estimate(values).expect("not empty");
            assert!((got.mean - mean).abs() < 1e-12, "{values:?}: {got:?}");
            match (got.half, half) {
                (None, None) => {}
                (Some(got), Some(want)) => assert!((got - want).abs() < 1e-9, "{values:?}: {got}"),
                _ => panic!("{values:?}: {got:?}"),
            }
        }
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn beyond_the_table_the_quantile_nears_the_normal_distributions() {
        for (freedom, want) in [(30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)] {
            assert!((t95(freedom) - want).abs() < 0.002, "{freedom}: {}", t95(freedom));
        }
    }
}
