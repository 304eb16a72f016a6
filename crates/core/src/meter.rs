//! Counters of the data plane, read at intervals.

/// A cumulative counter that may start again from zero when the data plane forgot the pair. The
/// total wraps, for only what was added in a period is ever asked: no counter, however wrong, is a
/// panic.
#[derive(Clone, Copy, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Meter {
    last: Option<u64>,
    /// What was added by all readings.
    pub(crate) total: u64,
}

impl Meter {
    /// What was added since the last reading. The first reading is the origin: what passed before
    /// it belongs to no period of ours.
    pub(crate) fn read(&mut self, count: u64) -> u64 {
        let added = match self.last {
            None => 0,
            Some(last) if count >= last => count - last,
            Some(_) => count,
        };
        self.last = Some(count);
        self.total = self.total.wrapping_add(added);
        added
    }
}
