//! Rates in bit/s and amounts in octets, both on layer 2 without FCS unless a name says otherwise.

use crate::Span;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

/// Bits per second.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Rate(u64);

/// Octets.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Bytes(u64);

const NS_PER_S: u128 = 1_000_000_000;

impl Rate {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than any link: "no limit".
    pub const MAX: Self = Self(u64::MAX);

    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// `mbps` megabits (10⁶ bits) per second.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// The nearest whole rate; negative and NaN become zero. For control laws in reals.
    pub fn from_bps_f64(bps: f64) -> Self {
        Self(bps.round() as u64)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Bits per second as a real, for control laws and pictures.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Whether this is nothing at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The rate at which `size` passed in `span`. Rounds down. Zero if no time passed.
    pub const fn of(size: Bytes, span: Span) -> Self {
        if span.as_nanos() == 0 {
            return Self::ZERO;
        }
        clamp(size.0 as u128 * 8 * NS_PER_S / span.as_nanos() as u128)
    }

    /// Time that `size` occupies a link of this rate. Rounds up: a shaper may run late, never
    /// early. [`Span::MAX`] if the rate is zero.
    pub const fn time_for(self, size: Bytes) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let ns = (size.0 as u128 * 8 * NS_PER_S).div_ceil(self.0 as u128);
        Span::from_nanos(if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 })
    }

    /// What fits into `span`. Rounds down: no sender is credited octets not yet earned.
    pub const fn bytes_in(self, span: Span) -> Bytes {
        let octets = self.0 as u128 * span.as_nanos() as u128 / NS_PER_S / 8;
        Bytes(if octets > u64::MAX as u128 { u64::MAX } else { octets as u64 })
    }

    /// This rate × `num` / `den`, rounded down. Zero if `den` is zero.
    pub const fn mul_ratio(self, num: u64, den: u64) -> Self {
        if den == 0 {
            return Self::ZERO;
        }
        clamp(self.0 as u128 * num as u128 / den as u128)
    }

    /// This rate × `factor`, rounded to the nearest; negative and NaN factors give zero.
    pub fn scale(self, factor: f64) -> Self {
        Self::from_bps_f64(self.0 as f64 * factor)
    }

    /// An equal part for each of `n`, rounded down; everything if `n` is zero.
    pub const fn split(self, n: usize) -> Self {
        Self(self.0 / if n == 0 { 1 } else { n as u64 })
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

const fn clamp(bps: u128) -> Rate {
    Rate(if bps > u64::MAX as u128 { u64::MAX } else { bps as u64 })
}

impl Bytes {
    /// No octets.
    pub const ZERO: Self = Self(0);

    /// `n` octets.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The number of octets.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

macro_rules! arithmetic {
    ($t:ident) => {
        impl Add for $t {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $t {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl Sub for $t {
            type Output = Self;
            /// Panics on a negative result: that is a bug of ours. See `saturating_sub`.
            fn sub(self, other: Self) -> Self {
                Self(self.0.checked_sub(other.0).expect("quantities are not negative"))
            }
        }
        impl Mul<u64> for $t {
            type Output = Self;
            fn mul(self, n: u64) -> Self {
                Self(self.0.saturating_mul(n))
            }
        }
        impl Sum for $t {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::default(), |a, b| a + b)
            }
        }
    };
}
arithmetic!(Rate);
arithmetic!(Bytes);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::show::set_rate(self.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shaper_runs_late_never_early() {
        let rate = Rate::from_bps(3);
        assert_eq!(rate.time_for(Bytes::new(1)).as_nanos(), 2_666_666_667);
        assert_eq!(rate.bytes_in(Span::from_nanos(2_666_666_666)), Bytes::ZERO);
        assert_eq!(rate.bytes_in(Span::from_nanos(2_666_666_667)), Bytes::new(1));
    }

    /// Of the time of each packet, where one follows the other.
    #[test]
    fn rounding_up_costs_less_than_a_percent_of_full_frames_at_any_speed() {
        let cost = |gbps: u64, octets: u64| {
            let exact = octets as f64 * 8.0 / gbps as f64;
            let rate = Rate::from_mbps(gbps * 1000);
            rate.time_for(Bytes::new(octets)).as_nanos() as f64 / exact - 1.0
        };
        for gbps in [1, 3, 7, 10, 25, 40, 50, 77, 100] {
            assert!((0.0..0.009).contains(&cost(gbps, 1514)), "{gbps} Gb/s");
        }
        // Small ones: a packet every 5.12 ns is late by 0.88.
        assert!((cost(100, 64) - 0.172).abs() < 0.001 && cost(10, 64) < 0.016);
    }

    #[test]
    fn nothing_wraps() {
        assert_eq!(Rate::MAX + Rate::MAX, Rate::MAX);
        assert_eq!(Rate::MAX.bytes_in(Span::MAX), Bytes::new(u64::MAX));
        assert_eq!(Rate::ZERO.time_for(Bytes::new(1)), Span::MAX);
        assert_eq!(Rate::of(Bytes::new(1), Span::ZERO), Rate::ZERO);
    }
}
