//! Takes over from an agent that died: its pairs go on.
//!
//! Problem   Floors and what was borrowed must outlive an agent, and nothing else may.
//! Approach  The loop is told what is in force, pair by pair. The first work ends the pairs for which the
//!           machine has no room.
//! Not here  What the data plane gives up by itself: see its `adoption`.

use super::Driver;
use weir_core::host::{Call, Input, Setting, Wanted};
use weir_dataplane::Counters;
use weir_units::Time;

impl Driver {
    /// What an earlier agent of this instance left in force goes on: floors, and what was borrowed.
    pub(super) fn adopt(&mut self, now: Time) {
        let levels = self.dataplane.levels().unwrap_or_else(|e| {
            tracing::error!("the levels of an earlier agent could not be read: {e}");
            Vec::new()
        });
        for level in &levels {
            let setting = Setting { floor: level.floor, ceiling: level.ceiling };
            self.host.handle(now, Call::Input(Input::Adopt(level.pair, setting)));
        }
        let mut found = Counters::default();
        if let Err(e) = self.dataplane.read(now.as_nanos(), &mut found) {
            tracing::error!("the counters of an earlier agent could not be read: {e}");
        }
        for (pair, _) in &found.rx {
            if let Some(at) = self.setup.host.directory.get(&pair.src) {
                self.host.handle(now, Call::Input(Input::Found(*pair, at.host)));
            }
        }
        self.read_counters(now, Wanted::ALL);
    }
}
