//! Samples the lab's own connections: their windows over time.
//!
//! Approach  On its tick the playing thread asks the kernel for each traced connection that is due.
//!           It asks the guest's end, so a sample shows windows as ports changed them.
//! Promises  A sample is taken at its time or later, by at most a tick or the thread's present
//!           work, and carries its time. A missed sample is not taken later.

use super::Tally;
use std::os::fd::BorrowedFd;
use weir_dataplane::guest;
use weir_model::record::Windows;
use weir_model::scenario::Scenario;
use weir_units::Span;

/// Connections of one entry of traffic.
struct Traced {
    entry: usize,
    every: Span,
    next: Span,
    /// Positions of their sockets, in the order in which they began.
    sockets: Vec<usize>,
}

/// All that is traced.
pub(super) struct Tracer(Vec<Traced>);

impl Tracer {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let traced = |(entry, traffic): (usize, &weir_model::scenario::Traffic)| {
            let (every, next) = (traffic.trace?, traffic.start);
            Some(Traced { entry, every, next, sockets: Vec::new() })
        };
        Self(scenario.traffic.iter().enumerate().filter_map(traced).collect())
    }

    /// A connection of `entry` has begun at this position.
    pub(super) fn began(&mut self, entry: usize, socket: usize) {
        if let Some(traced) = self.0.iter_mut().find(|traced| traced.entry == entry) {
            traced.sockets.push(socket);
        }
    }

    /// Samples the connections that are due. `socket` gives the established ones.
    pub(super) fn look<'a>(
        &mut self,
        now: Span,
        tally: &Tally,
        socket: impl Fn(usize) -> Option<BorrowedFd<'a>>,
    ) {
        for traced in self.0.iter_mut().filter(|traced| traced.next <= now) {
            while traced.next <= now {
                traced.next = traced.next + traced.every;
            }
            for (connection, position) in traced.sockets.iter().enumerate() {
                let Some(fd) = socket(*position) else { continue };
                match guest::windows(fd) {
                    Ok(guest::Windows { cwnd, shown, acked, again }) => {
                        let windows = Windows { at: now, cwnd, shown, acked, again };
                        tally.saw(traced.entry, connection, windows);
                    }
                    Err(error) => tally.complain(|| format!("a trace failed: {error}")),
                }
            }
        }
    }
}
