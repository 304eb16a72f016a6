//! The time limit of a call.

use crate::{Failed, Step, Why};
use std::time::{Duration, Instant};

/// When a call should have ended.
///
/// It is looked at before each request to a switch, and bounds the wait for its answer where the
/// switch is remote. A request to this machine's kernel is not cut short: it fails by
/// itself after [`ANSWER_LIMIT_S`](weir_dataplane::nl::ANSWER_LIMIT_S).
#[derive(Clone, Copy, Debug)]
pub struct Limit(Instant);

#[expect(clippy::disallowed_methods, reason = "this is the driver's clock")]
fn now() -> Instant {
    Instant::now()
}

impl Limit {
    /// So long from now.
    pub fn after(span: Duration) -> Self {
        Self(now() + span)
    }

    /// What is left.
    ///
    /// # Errors
    /// Nothing is left: [`Why::Late`], at this step.
    pub fn left(&self, step: Step) -> Result<Duration, Failed> {
        let left = self.0.saturating_duration_since(now());
        if left.is_zero() { Err(Failed::new(step, Why::Late)) } else { Ok(left) }
    }
}
