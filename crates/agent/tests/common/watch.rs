//! Whether this machine's CPUs ran all the time, as the lab's tests watch it: what was measured while they did
//! not is no measurement.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A CPU that is later than this with what is due is busy with something else, or stood still.
pub(crate) const LATE: Duration = Duration::from_millis(15);

/// Also when what is watched fails: else the scope would wait for the sleepers for ever.
struct OverAtEnd<'a>(&'a AtomicBool);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Plays `during` beside a sleeper on each CPU; by how much the latest of them was late.
pub(crate) fn watched<T>(during: impl FnOnce() -> T) -> (T, Duration) {
    let is_over = AtomicBool::new(false);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let sleeper = |cpu| {
            scope.spawn({
                let is_over = &is_over;
                move || sleep_on(cpu, is_over)
            })
        };
        let sleepers: Vec<_> = (0..cpus).map(sleeper).collect();
        let over = OverAtEnd(&is_over);
        let result = during();
        drop(over);
        let late = sleepers.into_iter().map(|sleeper| sleeper.join().expect("no panic")).max();
        (result, late.unwrap_or_default())
    })
}

/// Sleeps on this CPU until all is over; returns by how much it was late at worst.
fn sleep_on(cpu: usize, is_over: &AtomicBool) -> Duration {
    let mut only = CpuSet::new();
    only.set(cpu);
    // Where that is not allowed it sleeps on any.
    let _ = sched_setaffinity(None, &only);
    let (nap, mut worst) = (Duration::from_millis(2), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let then = Instant::now();
        std::thread::sleep(nap);
        worst = worst.max(then.elapsed().saturating_sub(nap));
    }
    worst
}
