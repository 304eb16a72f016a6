//! Reports to the service manager: ready, stopping, alive, and a line for
//! `systemctl status`.
//!
//! Problem   A manager that restarts what hangs must hear from the loop itself: a thread of its own
//!           would go on cheering while the loop is stuck.
//! Approach  The messages of sd_notify(3). The loop asks when the next sign of life is due and
//!           gives it between two turns, at half the manager's patience.
//! Promises  Without a manager (`NOTIFY_SOCKET` unset) nothing happens; a manager that does not
//!           listen does not block the agent.
//! Source    sd_notify(3), systemd.service(5).

use sd_notify::NotifyState;
use weir_units::{Span, Time};

/// What the manager was told, and when it wants to hear again.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// Half of the manager's patience, if it has a watchdog.
    gap: Option<Span>,
    beaten: Time,
}

impl Notifier {
    /// Asks the environment whether a manager listens.
    pub(crate) fn new(now: Time) -> Self {
        let gap = sd_notify::watchdog_enabled().map(|patience| Span::from(patience / 2));
        Self { gap, beaten: now }
    }

    /// Everything is in place: programs, queues, socket.
    pub(crate) fn ready(&self, status: &str) {
        say(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The configuration is being read again; [`Notifier::ready`] ends it.
    pub(crate) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(e) => tracing::debug!("no time to tell the service manager: {e}"),
        }
    }

    /// The end has begun: no sign of life is missed from here on.
    pub(crate) fn stopping(&self) {
        say(&[NotifyState::Stopping, NotifyState::Status("restoring the host")]);
    }

    /// When the next sign of life is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.gap.map(|gap| self.beaten + gap)
    }

    /// A sign of life. Called by the loop between two turns.
    pub(crate) fn beat(&mut self, now: Time, status: &str) {
        self.beaten = now;
        say(&[NotifyState::Watchdog, NotifyState::Status(status)]);
    }
}

fn say(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::debug!("the service manager does not listen: {e}");
    }
}
