//! Traffic whose connections are sampled over time.
//!
//! Approach  The run pauses when a sample is due, which changes nothing in it. Windows are whole
//!           segments here, where the lab's kernel counts octets.
//! Promises  Samples are at multiples of their interval since the entry's start, while it lasts.

use super::build::Part;
use crate::Sim;
use std::ops::Range;
use weir_model::record::Windows;
use weir_model::scenario::Scenario;
use weir_units::{Span, Time};

/// Connections of one entry of traffic.
struct Traced {
    entry: usize,
    every: Span,
    next: Span,
    stop: Span,
    flows: Range<usize>,
    seen: Vec<Vec<Windows>>,
}

/// All that is traced.
pub(super) struct Traces(Vec<Traced>);

impl Traces {
    /// `entries` says which flows an entry of traffic became.
    pub(super) fn new(scenario: &Scenario, entries: &[Part]) -> Self {
        let all = scenario.traffic.iter().zip(entries).enumerate();
        let traced = all.filter_map(|(entry, (traffic, part))| {
            let (Some(every), Part::Flows(flows)) = (traffic.trace, part) else { return None };
            let (next, stop) = (traffic.start + every, traffic.stop);
            let seen = vec![Vec::new(); flows.len()];
            Some(Traced { entry, every, next, stop, flows: flows.clone(), seen })
        });
        Self(traced.collect())
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Option<Time> {
        let due = self.0.iter().filter(|traced| traced.next <= traced.stop);
        due.map(|traced| Time::ZERO + traced.next).min()
    }

    /// Looks at all that is due at this moment.
    pub(super) fn look(&mut self, sim: &Sim, now: Time) {
        let at = now.since(Time::ZERO);
        for traced in self.0.iter_mut().filter(|traced| traced.next == at) {
            traced.next = traced.next + traced.every;
            for (flow, seen) in traced.flows.clone().zip(&mut traced.seen) {
                let Some((look, segment)) = sim.connection(flow as u32) else { continue };
                let octets = |segments: u32| u64::from(segments) * u64::from(segment);
                seen.push(Windows {
                    at,
                    cwnd: octets(look.cwnd),
                    shown: octets(look.rwnd),
                    acked: octets(look.acked),
                    again: look.again,
                });
            }
        }
    }

    /// What was seen, with the entry it is of.
    pub(super) fn seen(self) -> impl Iterator<Item = (usize, Vec<Vec<Windows>>)> {
        self.0.into_iter().map(|traced| (traced.entry, traced.seen))
    }
}
