//! Many seeds, as many at a time as there are threads.

use crate::checks::Judged;
use crate::play::{Report, play};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What many seeds came to.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Seeds played to their end.
    pub played: u64,
    /// Those with a breach, in order.
    pub broken: Vec<u64>,
    /// Looks at all of a world at one moment.
    pub looks: u64,
    /// Directions of VMs that were backlogged.
    pub floors: Judged,
    /// Links crossed by packets.
    pub packet_hops: u64,
}

/// The part of all backlogged directions that may be exempt. With more, a promise that holds says little.
const EXEMPT: f64 = 0.02;
/// Fewer directions than this prove nothing about the part.
const COUNTED: usize = 300;

impl Tally {
    /// Whether so many directions are exempt from the check of floors that the check has failed.
    pub fn exempts_too_many(&self) -> bool {
        let (exempted, all) = (self.floors.exempted(), self.floors.exempted() + self.floors.count);
        all >= COUNTED && exempted as f64 > EXEMPT * all as f64
    }

    fn add(&mut self, report: &Report) {
        self.played += 1;
        self.looks += report.looks;
        self.packet_hops += report.packet_hops;
        self.floors.add(&report.floors);
        if !report.holds() {
            self.broken.push(report.seed);
            self.broken.sort_unstable();
        }
    }
}

/// Plays all `seeds`, so many at a time. `each` is called after each, from one thread at a time.
pub fn play_all(
    seeds: RangeInclusive<u64>,
    threads: usize,
    stop: &AtomicBool,
    each: &mut (dyn FnMut(&Report) + Send),
) -> Tally {
    let (next, last) = (AtomicU64::new(*seeds.start()), *seeds.end());
    let common = Mutex::new((Tally::default(), each));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last || stop.load(Ordering::Relaxed) {
                return;
            }
            let Some(report) = play(seed, stop) else { return };
            let mut common = common.lock().expect("nobody panics with it");
            common.0.add(&report);
            (common.1)(&report);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    common.into_inner().expect("nobody panics with it").0
}
