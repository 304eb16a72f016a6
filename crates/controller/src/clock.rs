//! The controller's clock: the calendar at the start, and from then on a clock that never jumps.
//!
//! Problem   The system's clock jumps when it is set, and a clock that never jumps stands still
//!           while the machine is suspended. Either may be wrong, by years.
//! Approach  Reservations and tokens go by the clock that never jumps. Certificates are read by other
//!           machines, so they are made valid by both clocks, and are good if either one says so.
//! Promises  What `now` says never decreases and never jumps while the controller runs, whatever is done
//!           to the system's clock.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::time::{Duration, Instant, SystemTime};
use weir_model::moment::Moment;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    at: u64,
    /// For tests: how far the calendar is ahead of the system's.
    shift: u64,
}

impl Clock {
    /// Takes the calendar's time once.
    #[expect(clippy::disallowed_methods, reason = "this is the driver's clock")]
    pub fn start() -> Self {
        Self { began: Instant::now(), at: calendar(), shift: 0 }
    }

    /// The time now.
    pub fn now(&self) -> Moment {
        let passed = self.began.elapsed().as_millis();
        Moment::from_millis(self.at.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// The time by the calendar, which may have jumped.
    pub fn calendar(&self) -> Moment {
        Moment::from_millis(calendar().saturating_add(self.shift))
    }

    /// The earlier one of both.
    pub fn earliest(&self) -> Moment {
        self.now().min(self.calendar())
    }

    /// The later one of both.
    pub fn latest(&self) -> Moment {
        self.now().max(self.calendar())
    }

    /// How long it is until `at` by the clock that is later with it; nothing if it has passed by both.
    pub fn left(&self, at: Moment) -> Duration {
        Duration::from_millis(at.as_millis().saturating_sub(self.earliest().as_millis()))
    }

    /// How long it is until `at`; nothing if it has passed.
    pub fn until(&self, at: Moment) -> Duration {
        Duration::from_millis(at.as_millis().saturating_sub(self.now().as_millis()))
    }

    /// The same clock, this much ahead: for tests.
    #[must_use]
    pub fn ahead(mut self, span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).expect("a test is not that long");
        self.at += millis;
        self.shift += millis;
        self
    }

    /// The same clock after its machine was suspended for so long: for tests.
    #[must_use]
    pub fn suspended(mut self, span: Duration) -> Self {
        self.at -= u64::try_from(span.as_millis()).expect("a test is not that long");
        self
    }

    /// The same clock after the calendar was set back by so much: for tests.
    #[must_use]
    pub fn set_back(mut self, span: Duration) -> Self {
        self.at += u64::try_from(span.as_millis()).expect("a test is not that long");
        self
    }

    /// Time since the clock was started.
    pub fn running(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Milliseconds since 1970 as the system has them.
#[expect(clippy::disallowed_methods, reason = "this is the driver's clock")]
fn calendar() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.now().as_millis())))
    }
}
