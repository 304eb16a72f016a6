//! A host's loop whose calls may be recorded.

use crate::log::Log;
use std::ops::Deref;
use weir_core::host::{Call, HostLoop, Work};
use weir_core::mechanism::PairView;
use weir_units::{PairId, Time};

/// A [`HostLoop`], and the journal of its calls if there is one. Everything that changes the loop passes here.
#[derive(Debug)]
pub struct Kept {
    host: HostLoop,
    log: Option<Log>,
}

impl Kept {
    /// `host`, recorded from now on if there is a `log`.
    pub const fn new(host: HostLoop, log: Option<Log>) -> Self {
        Self { host, log }
    }

    /// See [`HostLoop::handle`].
    pub fn handle(&mut self, now: Time, call: Call<'_>) {
        if let Some(log) = &mut self.log {
            log.call(&self.host, now, &call);
        }
        self.host.handle(now, call);
    }

    /// See [`HostLoop::work`].
    pub fn work(&mut self, now: Time) -> Work {
        // A segment that begins here begins with what led to the work.
        if let Some(log) = &mut self.log {
            log.open(&self.host);
        }
        let work = self.host.work(now);
        if let Some(log) = &mut self.log {
            log.work(&self.host, now, &work);
        }
        work
    }

    /// See [`HostLoop::pairs`].
    pub fn pairs(&mut self, now: Time) -> Vec<PairView> {
        if let Some(log) = &mut self.log {
            log.call(&self.host, now, &Call::Look(None));
        }
        self.host.pairs(now)
    }

    /// See [`HostLoop::pair`].
    pub fn pair(&mut self, now: Time, pair: PairId) -> Option<PairView> {
        if let Some(log) = &mut self.log {
            log.call(&self.host, now, &Call::Look(Some(pair)));
        }
        self.host.pair(now, pair)
    }

    /// Another loop in its place, in the same journal: the driver has a new life.
    pub fn replace(&mut self, host: HostLoop) {
        self.host = host;
        if let Some(log) = &mut self.log {
            log.close();
        }
    }

    /// The journal, if there is one.
    pub const fn log(&mut self) -> Option<&mut Log> {
        self.log.as_mut()
    }
}

impl Deref for Kept {
    type Target = HostLoop;

    fn deref(&self) -> &HostLoop {
        &self.host
    }
}
