//! Chance for a draft: one stream per seed, drawn from in one order.

use weir_sim::Rng;

/// The stream of chance of drafts; the simulator's own are others.
const STREAM: u64 = 1 << 60;

/// What a seed draws.
#[derive(Debug)]
pub(crate) struct Draw(Rng);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::new(seed, STREAM))
    }

    /// Even over `from..=to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.below(to - from + 1)
    }

    /// Even over `0..n`; `n` is not zero.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    /// One of these, each as often.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// A part between 0 and 1 with three digits, at most `most`.
    pub(crate) fn part(&mut self, most: f64) -> f64 {
        (self.0.unit() * most * 1000.0).round() / 1000.0
    }

    /// Takes one out at random.
    pub(crate) fn take<T>(&mut self, all: &mut Vec<T>) -> Option<T> {
        if all.is_empty() {
            return None;
        }
        let index = self.index(all.len());
        Some(all.swap_remove(index))
    }
}
