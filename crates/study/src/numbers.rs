//! Means, medians and percentiles.

/// The mean; zero of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0u64), |(sum, n), v| (sum + v, n + 1));
    if n == 0 { 0.0 } else { sum / n as f64 }
}

/// The smallest value of `values` such that a share `p` of them is not above it (nearest rank): of
/// fewer than 100 values the 1st percentile is the minimum.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (p * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

/// The median of sorted `values`; of an even number the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let n = values.len();
    match n {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}
