//! The part of a link that is promised to no VM.

use weir_units::Rate;

/// The part of every link that floors may not use (ElasticSwitch §7: 10 %), in millionths. It
/// limits what may be promised, not rates.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Headroom(u32);

impl Headroom {
    const WHOLE: u32 = 1_000_000;

    /// `part` of each link, to the nearest millionth; `None` unless 0 ≤ `part` ≤ 1.
    pub fn from_fraction(part: f64) -> Option<Self> {
        let millionths = (part * f64::from(Self::WHOLE)).round();
        (0.0..=1.0).contains(&part).then_some(Self(millionths as u32))
    }

    /// What may be promised of a link of `capacity`. Rounds up, so that a scenario whose links and
    /// floors are scaled to uneven numbers is not refused for a fraction of a bit/s.
    pub fn available(self, capacity: Rate) -> Rate {
        let kept = capacity.mul_ratio(u64::from(self.0), u64::from(Self::WHOLE));
        capacity.saturating_sub(kept)
    }
}

impl Default for Headroom {
    /// 10 %.
    fn default() -> Self {
        Self(100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headroom_rounds_in_favour_of_the_tenant_and_refuses_nonsense() {
        let available = |part, bps| {
            let headroom = Headroom::from_fraction(part).expect("a fraction");
            headroom.available(Rate::from_bps(bps)).as_bps()
        };
        assert_eq!(available(0.1, 333_333_333), 300_000_000);
        assert_eq!(available(0.0, u64::MAX), u64::MAX);
        assert_eq!(available(1.0, 1_000), 0);
        assert_eq!(Headroom::from_fraction(0.1), Some(Headroom::default()));
        for nonsense in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Headroom::from_fraction(nonsense), None);
        }
    }
}
