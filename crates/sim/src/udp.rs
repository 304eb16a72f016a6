//! UDP: a source that sends at a rate while it is on, and does not react to losses.
//!
//! Approach  The instants of datagrams are exact multiples of their time at the rate; a burst
//!           begins with its own first datagram.

use crate::network::Bursts;
use crate::rng::Rng;
use weir_units::Rate;

/// Further bits of an instant below a nanosecond.
const FINE: u32 = 16;

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) size: u16,
    /// Between two datagrams, in 2⁻¹⁶ ns. Rounded up: never faster than the rate.
    gap: u128,
    /// Since the burst began, in 2⁻¹⁶ ns.
    passed: u128,
    /// When the burst began and when it ends, ns.
    began: u64,
    ends: u64,
    bursts: Option<(Bursts, Rng)>,
    pub(crate) route: u32,
    /// Of each datagram.
    pub(crate) bits: u8,
    /// Datagrams sent, and those that arrived.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// It sends nothing more.
    pub(crate) halted: bool,
}

impl Source {
    /// Datagrams of `size` octets at `rate` from `start` ns on.
    pub(crate) fn new(
        (rate, size): (Rate, u16),
        bursts: Option<(Bursts, Rng)>,
        start: u64,
        route: u32,
    ) -> Self {
        let gap = ((u128::from(size) * 8_000_000_000) << FINE).div_ceil(rate.as_bps().into());
        let mut source = Self {
            size,
            gap,
            passed: 0,
            began: start,
            ends: u64::MAX,
            bursts,
            route,
            bits: 0,
            sent: 0,
            arrived: 0,
            halted: false,
        };
        source.ends =
            source.length(|bursts| bursts.on.as_nanos()).map_or(u64::MAX, |on| start + on);
        source
    }

    /// A datagram is sent at `began + passed`; returns when the next one is.
    pub(crate) fn next(&mut self) -> u64 {
        self.sent += 1;
        self.skip()
    }

    /// The next datagram is not sent; returns when the one after it is.
    pub(crate) fn skip(&mut self) -> u64 {
        self.passed += self.gap;
        let at = self.began + (self.passed >> FINE) as u64;
        if at < self.ends {
            return at;
        }
        let off = self.length(|bursts| bursts.off.as_nanos()).unwrap_or(0);
        let on = self.length(|bursts| bursts.on.as_nanos()).unwrap_or(u64::MAX / 2);
        // A burst may be shorter than the time of one datagram.
        self.began = at.max(self.ends + off);
        self.ends = self.began + on;
        self.passed = 0;
        self.began
    }

    /// How long the next time on or off is; `None` if it is always on.
    fn length(&mut self, which: impl Fn(&Bursts) -> u64) -> Option<u64> {
        let (bursts, rng) = self.bursts.as_mut()?;
        let mean = which(bursts);
        Some(if bursts.random { rng.exponential(mean) } else { mean }.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Span;

    fn instants(source: &mut Source, until: u64) -> Vec<u64> {
        std::iter::successors(Some(source.began), |_| Some(source.next()))
            .take_while(|at| *at < until)
            .collect()
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        // 1000 octets at 3 Gb/s: 2666.67 ns.
        let mut source = Source::new((Rate::from_mbps(3000), 1000), None, 5, 0);
        let at = instants(&mut source, 3_000_000_000);
        assert_eq!(at[..4], [5, 2671, 5338, 8005]);
        assert!((1_124_999..=1_125_000).contains(&at.len()), "{}", at.len());
    }

    #[test]
    fn bursts_begin_and_end_on_time() {
        let (on, off) = (Span::from_micros(10), Span::from_micros(30));
        let bursts = Some((Bursts { on, off, random: false }, Rng::new(1, 1)));
        let mut source = Source::new((Rate::from_mbps(2000), 1000), bursts, 0, 0);
        assert_eq!(instants(&mut source, 50_000), [0, 4000, 8000, 40_000, 44_000, 48_000]);
    }

    #[test]
    fn random_bursts_have_the_mean_they_should() {
        let (on, off) = (Span::from_micros(100), Span::from_micros(300));
        let bursts = Some((Bursts { on, off, random: true }, Rng::new(7, 1)));
        let mut source = Source::new((Rate::from_mbps(10_000), 125), bursts, 0, 0);
        // A quarter of 10 Gb/s in datagrams of 1000 bit for 4 s.
        let sent = instants(&mut source, 4_000_000_000).len() as f64;
        assert!((sent / 10_000_000.0 - 1.0).abs() < 0.03, "{sent}");
    }
}
