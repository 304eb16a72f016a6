//! Which tenant had which queue, and when.
//!
//! Approach  What objects say is looked at every few seconds, and each change is remembered for an hour.
//! Promises  A bounded memory: tenants that change their queue more often than [`CHANGES`] times an hour lose the earliest.
//! Not here  Shorter changes, as where queues stay and hosts rebind tenants every 100 ms: what was between two looks is
//!           not seen.

use std::collections::{BTreeMap, VecDeque};

/// How far back, ms.
pub(crate) const HOUR: u64 = 3_600_000;
/// Changes of a tenant that are remembered.
const CHANGES: usize = 1800;

/// By tenant: from when on it had which code point; 0 is the shared queue.
#[derive(Default)]
pub(super) struct Queues(BTreeMap<String, VecDeque<(u64, u8)>>);

/// A time in which a tenant had a queue of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Own {
    /// Its beginning and its end, ms.
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) code_point: u8,
}

impl Queues {
    /// What all tenants have now. Tenants that are gone are forgotten.
    pub(super) fn note(&mut self, now: u64, present: &BTreeMap<String, u8>) {
        self.0.retain(|tenant, _| present.contains_key(tenant));
        for (tenant, code_point) in present {
            let changes = self.0.entry(tenant.clone()).or_default();
            if changes.back().is_none_or(|(_, last)| last != code_point) {
                changes.push_back((now, *code_point));
            }
            let is_over = |next: Option<&(u64, u8)>| next.is_some_and(|(at, _)| at + HOUR <= now);
            while is_over(changes.get(1)) || changes.len() > CHANGES {
                changes.pop_front();
            }
        }
    }

    /// The times of the last hour in which a tenant had a queue of its own.
    pub(super) fn own(&self, tenant: &str, now: u64) -> Vec<Own> {
        let Some(changes) = self.0.get(tenant) else { return Vec::new() };
        let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([now]);
        let spans = changes.iter().zip(ends).map(|((from, code_point), until)| Own {
            from: (*from).max(now.saturating_sub(HOUR)),
            until,
            code_point: *code_point,
        });
        spans.filter(|own| own.code_point > 0 && own.until > own.from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_remembered_and_what_lasts_since_before_is_cut() {
        let mut queues = Queues::default();
        let mut note = |now, points: &[(&str, u8)]| {
            let present = points.iter().map(|(tenant, point)| ((*tenant).to_owned(), *point));
            queues.note(now, &present.collect());
        };
        note(1000, &[("a", 0), ("b", 12)]);
        note(3000, &[("a", 10), ("b", 12)]);
        note(5000, &[("a", 10), ("b", 12)]);
        note(7000, &[("a", 0), ("b", 12)]);
        let own = |from, until, code_point| Own { from, until, code_point };
        assert_eq!(queues.own("a", 9000), [own(3000, 7000, 10)]);
        assert_eq!(queues.own("b", 9000), [own(1000, 9000, 12)]);
        assert_eq!(queues.own("none", 9000), []);
        let later = 8000 + HOUR;
        assert_eq!(queues.own("b", later), [own(8000, later, 12)]);
        let present: BTreeMap<String, u8> = [("b".to_owned(), 0)].into();
        queues.note(later, &present);
        assert_eq!(
            (queues.own("a", later), queues.own("b", later)),
            (vec![], vec![own(8000, later, 12)])
        );
        queues.note(later + HOUR, &present);
        assert_eq!((queues.own("b", later + HOUR), queues.0["b"].len()), (vec![], 1));
        for n in 0..4000 {
            queues.note(later + HOUR + n, &[("b".to_owned(), (n % 2) as u8 * 12)].into());
        }
        assert!(queues.0["b"].len() <= CHANGES);
    }
}
