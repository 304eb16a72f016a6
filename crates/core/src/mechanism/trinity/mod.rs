//! Trinity: two priorities in the network, so that borrowing harms no floor. For comparison only.
//!
//! Problem   ElasticSwitch has to find what is spare without touching others' floors, so it is careful
//!           and leaves a part of the link idle.
//! Approach  Floors are ElasticSwitch's guarantee partitioning. What a pair sends within its floor has
//!           the first priority in switches, what it sends beyond it the second ([`Colours`]). So a
//!           pair may borrow without Hold-Increase and Rate-Caution: what it floods is the second queue.
//! Promises  The packets of a pair with the first priority are within its floor, but for one burst.
//! Not here  Packets overtake each other where both queues of a port are in use, and the second queue
//!           waits for as long as the first is busy. Both are measured (`reordered`, `starved_s`), not
//!           prevented. Small flows are not preferred. The machine is ElasticSwitch's.
//! Source    QShare §2, §10, which describes Trinity and measures it. Departs: Trinity's own paper was
//!           not at hand; what QShare does not say is decided in docs/algorithms/trinity.md.

#[cfg(test)]
mod tests;

use super::constants::{Entry, Take};
use super::elasticswitch::ElasticSwitch;
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Rate, Span, Time};

/// The constants of Trinity. The default is for links of 1 Gb/s.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Trinity {
    /// Guarantee partitioning and rate allocation.
    pub pairs: ElasticSwitch,
    /// Octets that a pair may send at once within its floor. Larger: a pair that paused sends more with
    /// the first priority. Smaller: the packets of a burst change colour more often.
    pub burst: Bytes,
}

impl Default for Trinity {
    fn default() -> Self {
        let paper = ElasticSwitch::default();
        Self {
            pairs: ElasticSwitch {
                rate: paper.rate.without_hold_and_caution(),
                // A packet of the second priority may be overtaken by many of the first.
                reorder_window: Span::from_millis(10),
                ..paper
            },
            burst: Bytes::new(15_140),
        }
    }
}

const fn entry(name: &'static str, take: Take<Trinity>) -> Entry<Trinity> {
    Entry { name, take }
}

impl Trinity {
    /// All constants that can be set by name.
    pub const CONSTANTS: &[Entry<Self>] = &[
        entry("burst", Take::Octets(|law, octets| law.burst = octets)),
        entry("rate_period", Take::Span(|law, span| law.pairs.rate.period = span)),
        entry("alpha", Take::Real(|law, part| law.pairs.rate.alpha = part)),
        entry("a", Take::Rate(|law, rate| law.pairs.rate.a = rate)),
        entry("partition_period", Take::Span(|law, span| law.pairs.partition_period = span)),
        entry("reorder_window", Take::Span(|law, span| law.pairs.reorder_window = span)),
        entry("default_floor", Take::Rate(|law, rate| law.pairs.default_floor = rate)),
    ];

    /// The same on links `factor` times as fast: rates scale, periods and the burst do not.
    pub fn scaled(&self, factor: f64) -> Self {
        Self { pairs: self.pairs.scaled(factor), ..self.clone() }
    }

    /// Whether the constants can work together.
    ///
    /// # Errors
    /// The first that cannot, with what could.
    pub fn check(&self) -> Result<(), String> {
        if !(1514..=1_000_000).contains(&self.burst.get()) {
            return Err(format!(
                "burst is {}; it should lie between a full frame (1514B) and 1MB",
                self.burst
            ));
        }
        self.pairs.check()
    }
}

/// Which priority a packet has in switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// Within its pair's floor: the first.
    Promised,
    /// Beyond it: the second.
    Borrowed,
}

/// Tells a pair's packets within its floor from those beyond it: a token bucket of the floor's rate.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Colours {
    /// When the bucket will be full again.
    full_at: Time,
}

impl Colours {
    /// The colour of a packet of `size` octets that leaves at `now`.
    pub fn of(&mut self, now: Time, size: Bytes, floor: Rate, burst: Bytes) -> Colour {
        if floor.is_zero() {
            return Colour::Borrowed;
        }
        // No bucket is more than empty: what was owed to a smaller floor is forgotten.
        let empty = now + floor.time_for(burst);
        self.full_at = self.full_at.clamp(now, empty);
        let full_at = self.full_at + floor.time_for(size);
        if full_at > empty {
            return Colour::Borrowed;
        }
        self.full_at = full_at;
        Colour::Promised
    }
}
