//! The controller's clock: the calendar at the start, and from then on a clock that never jumps.
//!
//! Promises  The time never decreases and never jumps while the controller runs, whatever is done to the
//!           system's clock.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::time::{Duration, Instant, SystemTime};
use weir_model::moment::Moment;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    at: u64,
}

impl Clock {
    /// Takes the calendar's time once.
    #[expect(clippy::disallowed_methods, reason = "this is the driver's clock")]
    pub fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = since_1970.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        Self { began: Instant::now(), at }
    }

    /// The time now.
    pub fn now(&self) -> Moment {
        let passed = self.began.elapsed().as_millis();
        Moment::from_millis(self.at.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// How long it is until `at`; nothing if it has passed.
    pub fn until(&self, at: Moment) -> Duration {
        Duration::from_millis(at.as_millis().saturating_sub(self.now().as_millis()))
    }

    /// The same clock, this much ahead: for tests.
    #[must_use]
    pub fn ahead(mut self, span: Duration) -> Self {
        self.at += u64::try_from(span.as_millis()).expect("a test is not that long");
        self
    }

    /// Time since the clock was started.
    pub fn running(&self) -> Duration {
        self.began.elapsed()
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.now().as_millis())))
    }
}
