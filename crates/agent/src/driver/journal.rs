//! The journal of what happens to the machine, if `--journal` asks for one.
//!
//! Promises  It costs floors nothing: a journal that cannot be begun or goes on no more is told in the log and in `weir
//!           top`, and the agent goes on.
//! Not here  What is recorded, and how: see `weir_journal`.

use super::Driver;
use std::path::Path;
use weir_journal::{Log, Options, Pace};

/// A journal in `dir`; `None`, and a warning, if there can be none.
pub(super) fn begin(dir: &Path) -> Option<Log> {
    match Log::open_in(dir, Options::new(Pace::Drops)) {
        Ok(log) => Some(log),
        Err(e) => {
            tracing::warn!("{}: no journal is written: {e}", dir.display());
            None
        }
    }
}

impl Driver {
    /// Says once that the journal has ended.
    pub(super) fn tell_of_journal(&mut self) {
        if let Some(why) = self.host.log().and_then(Log::news) {
            tracing::warn!("the journal has ended, and the agent goes on without it: {why}");
        }
    }

    /// What became of it; nothing if none was asked for.
    pub(super) fn journal_counters(&mut self) -> Vec<(String, u64)> {
        let has_none = self.has_no_journal;
        let counts = self.host.log().map(|log| log.counts());
        let counts = counts.or_else(|| has_none.then(Default::default)).map(|counts| {
            [
                ("records", counts.records),
                ("dropped_records", counts.dropped),
                ("removed_segments", counts.removed),
                ("ended", u64::from(counts.ended || has_none)),
            ]
        });
        let rows = counts.into_iter().flatten();
        rows.map(|(name, count)| (format!("journal.{name}"), count)).collect()
    }
}
