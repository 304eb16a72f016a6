//! Durations of requests and flows, from the playing thread.

use super::Tally;
use std::sync::MutexGuard;
use weir_model::observed::Work;
use weir_units::{SortedMap, Span};

type Book<'a> = MutexGuard<'a, SortedMap<usize, Work>>;

impl Tally {
    fn book(&self) -> Book<'_> {
        self.work.lock().expect("no thread panics while it holds the lock")
    }

    /// A request or flow of traffic entry `entry` should begin.
    pub(super) fn due(&self, entry: usize) {
        self.book().entry(entry).or_default().due += 1;
    }

    /// A request or flow is done: its duration, and its end in the time of the run.
    pub(super) fn done(&self, entry: usize, took: Span, at: Span) {
        let mut book = self.book();
        let work = book.entry(entry).or_default();
        work.done += 1;
        work.last = at;
        // A histogram that grows by itself takes every value.
        let _ = work.times.record(took.as_nanos().max(1));
    }

    /// What is known so far of traffic entry `entry`; nothing if it has no beginnings and ends.
    pub(crate) fn work(&self, entry: usize) -> Option<Work> {
        self.book().get(&entry).cloned()
    }
}
