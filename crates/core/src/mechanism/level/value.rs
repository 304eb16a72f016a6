//! A level: the multiple of its floor that a pair may send.
//!
//! Problem   Rates differ from pair to pair; what pairs on one bottleneck have in common is how many
//!           times its floor each of them may send.
//! Approach  A fixed-point number of 1/4096 in 32 bits, so that the same step can be computed in BPF.
//! Promises  Never below 1 and never above [`Level::MAX`], whatever is computed from whatever input.

use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::Rate;

/// One, in the unit of levels and of all ratios of the law.
pub const UNIT: u64 = 1 << 12;

/// The multiple of its floor that a pair may send: the x of the design, 1 + λ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub struct Level(u32);

impl Level {
    /// The floor and nothing more.
    pub const ONE: Self = Self(UNIT as u32);
    /// Above what any pair can use: 64 kbit/s on 16 Gbit/s. Higher levels are cut to it.
    pub const MAX: Self = Self(1 << 30);

    /// The level of so many 4096ths, cut to what a level can be.
    pub const fn from_raw(raw: u64) -> Self {
        if raw < Self::ONE.0 as u64 {
            Self::ONE
        } else if raw > Self::MAX.0 as u64 {
            Self::MAX
        } else {
            Self(raw as u32)
        }
    }

    /// In 4096ths.
    pub const fn raw(self) -> u64 {
        self.0 as u64
    }

    /// This many times as much: `ratio` in 4096ths.
    pub const fn times(self, ratio: u64) -> Self {
        Self::from_raw(self.raw().saturating_mul(ratio) / UNIT)
    }

    /// What is borrowed is halved.
    pub const fn halved(self) -> Self {
        Self((Self::ONE.0 + self.0) / 2)
    }

    /// The level at which a pair of this floor and weight sends `rate`, rounded up.
    pub fn of(rate: Rate, floor: Rate, weight: Rate) -> Self {
        let above = u128::from(rate.saturating_sub(floor).as_bps()) * u128::from(UNIT);
        let above = above.div_ceil(u128::from(weight.as_bps().max(1)));
        Self::from_raw(UNIT.saturating_add(u64::try_from(above).unwrap_or(u64::MAX)))
    }

    /// The most that a pair of this floor and weight may send. The weight is the floor, but for pairs
    /// whose floor is next to nothing.
    pub const fn ceiling(self, floor: Rate, weight: Rate) -> Rate {
        let borrowed = weight.mul_ratio(self.raw() - UNIT, UNIT);
        Rate::from_bps(floor.as_bps().saturating_add(borrowed.as_bps()))
    }
}

impl From<u32> for Level {
    fn from(raw: u32) -> Self {
        Self::from_raw(raw.into())
    }
}

impl From<Level> for u32 {
    fn from(level: Level) -> Self {
        level.0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", f64::from(self.0) / UNIT as f64)
    }
}
