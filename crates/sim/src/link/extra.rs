//! Functions of some links beyond a queue, a rate and a delay.
//!
//! Problem   A few links lose packets at random, are pulled out, or stand behind a host with
//!           jitter. Most links do none of it and should not pay for it.
//! Approach  A link names its extra; a link without one skips it. Jitter is added behind the link,
//!           where no queue can smooth it.
//! Promises  Packets of a link keep their order with any jitter. Each random process has its own
//!           stream.
//! Not here  The queue: see `link` and `special`, which calls this module first and last.

use crate::rng::Rng;
use weir_units::Span;

/// Random streams from this number on belong to the hosts' jitter, those below to losses.
const STREAM: u64 = 1 << 46;

/// Functions of a link beyond the ordinary.
#[derive(Debug)]
pub(super) struct Extra {
    /// Chance of loss, of 2⁶⁴.
    chance: u64,
    chances: Rng,
    /// Packets arrive up to this late, in ns.
    late: u64,
    lateness: Rng,
    /// When the last packet arrives, ns.
    last: u64,
    /// The cable is pulled: no packet passes.
    down: bool,
    /// Packets lost here.
    pub(super) lost: u64,
}

impl Extra {
    /// Of link `number`.
    pub(super) fn new(loss: f64, late: Span, seed: u64, number: u32) -> Self {
        Self {
            // A cast saturates: a chance of 1 is one of 1 − 2⁻⁶⁴.
            chance: (loss * 2f64.powi(64)) as u64,
            chances: Rng::new(seed, number.into()),
            late: late.as_nanos(),
            lateness: Rng::new(seed, STREAM + u64::from(number)),
            last: 0,
            down: false,
            lost: 0,
        }
    }

    /// Pulls the cable or plugs it in again. Packets that are in the queue still arrive.
    pub(super) fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    /// Whether a packet comes to the queue at all.
    pub(super) fn passes(&mut self) -> bool {
        let lost = self.down || (self.chance > 0 && self.chances.next() < self.chance);
        self.lost += u64::from(lost);
        !lost
    }

    /// When a packet arrives that should at `at`.
    pub(super) fn arrives(&mut self, at: u64) -> u64 {
        if self.late > 0 {
            self.last = self.last.max(at + self.lateness.next() % (self.late + 1));
            return self.last;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_even_and_keeps_the_order() {
        let mut extra = Extra::new(0.0, Span::from_nanos(1000), 1, 0);
        let far: Vec<u64> =
            (1..=20_000u64).map(|n| extra.arrives(n * 10_000) - n * 10_000).collect();
        assert!(far.iter().all(|late| *late <= 1000));
        let mean = far.iter().sum::<u64>() as f64 / far.len() as f64;
        assert!((mean - 500.0).abs() < 10.0, "{mean}");
        let (first, last) = (far.iter().filter(|l| **l < 100).count(), far.len() / 10);
        assert!(first.abs_diff(last) < last / 10, "{first} of {last} in the first tenth");
        let now = 1_000_000_000;
        let mut close = (0..1000).map(|n| extra.arrives(now + n));
        let mut before = close.next().expect("a thousand");
        assert!(close.all(|at| at >= std::mem::replace(&mut before, at)));
        assert!(before <= now + 2000);
    }

    #[test]
    fn nothing_passes_while_the_cable_is_out() {
        let mut extra = Extra::new(0.0, Span::ZERO, 1, 0);
        assert!(extra.passes());
        extra.set_down(true);
        assert_eq!([extra.passes(), extra.passes()], [false; 2]);
        extra.set_down(false);
        assert_eq!((extra.passes(), extra.lost, extra.arrives(8)), (true, 2, 8));
    }

    #[test]
    fn losses_do_not_depend_on_lateness() {
        let lost = |late| {
            let mut extra = Extra::new(0.1, Span::from_nanos(late), 3, 7);
            let mut is_lost = |n: u64| {
                extra.arrives(n * 100);
                !extra.passes()
            };
            (0..1000).map(&mut is_lost).collect::<Vec<_>>()
        };
        assert_eq!(lost(0), lost(50));
        assert!((60..140).contains(&lost(0).iter().filter(|l| **l).count()));
    }
}
