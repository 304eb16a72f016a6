//! Whether this machine's CPUs ran all the time: what a test measured while they did not is no
//! measurement.
//!
//! A hypervisor that stops a CPU for a moment need not report it. A thread that sleeps for two
//! milliseconds on each CPU notices.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A CPU that is later than this with what is due is busy with something else, or stood still.
pub(crate) const LATE: Duration = Duration::from_millis(15);

/// A sleeper on each CPU.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    sleepers: Vec<JoinHandle<Duration>>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let sleeper = |cpu| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || sleep_on(cpu, &is_over))
        };
        let sleepers = (0..cpus).map(sleeper).collect();
        Self { is_over, sleepers }
    }

    /// By how much the latest of them was late.
    pub(crate) fn worst(mut self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        let late = self.sleepers.drain(..).map(|sleeper| sleeper.join().expect("no panic"));
        late.max().unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Sleeps on this CPU until all is over; returns by how much it was late at worst.
fn sleep_on(cpu: usize, is_over: &AtomicBool) -> Duration {
    let mut only = CpuSet::new();
    // Where that is not allowed it sleeps on any.
    let _ = only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    let (nap, mut worst) = (Duration::from_millis(2), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let then = Instant::now();
        std::thread::sleep(nap);
        worst = worst.max(then.elapsed().saturating_sub(nap));
    }
    worst
}

/// Runs a test; once more, at most twice, if it fails and a CPU was late meanwhile. A defect fails
/// without that, or three times.
pub(crate) fn steadily(test: impl Fn()) {
    for attempt in 1.. {
        let watch = Watch::new();
        let result = catch_unwind(AssertUnwindSafe(&test));
        let late = watch.worst();
        match result {
            Ok(()) => return,
            Err(_) if attempt < 3 && late > LATE => println!("a CPU was {late:?} late: again"),
            Err(panic) => resume_unwind(panic),
        }
    }
}
