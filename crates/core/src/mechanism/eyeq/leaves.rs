//! The sending pairs of a host as its data plane has them: a class or a limiter each.
//!
//! Problem   Limits come at any time; counters of an earlier life are not this one's; and a data plane that shares the
//!           uplink by the floors of pairs wants one for each.
//! Approach  A pair has a leaf from its first packet on. Its ceiling is the limit, or the line before there is one. Where
//!           the data plane shares by pairs ([`crate::host::Capabilities::shares`] is not set), its floor is an equal part of its VM's.
//! Promises  A pair's floor never exceeds its limit, nor the floors of a VM its own.
//! Not here  What the limit is: see `sender`.
//! Source    EyeQ §3.3. Departs: best effort is not served last but by the small weight of its floor, where pairs have floors.

use crate::host::{SendCount, Told};
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Rate, Span, Time};

/// A pair that sends from here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Leaf {
    /// Octets offered, as they were counted last; `None`: an earlier life counted them, and the first reading is
    /// the origin.
    octets: Option<u64>,
    /// What had left by then.
    origin: u64,
    /// What left since the origin, and what waited, at the last reading.
    pub(super) left: u64,
    pub(super) waiting: u64,
    read_at: Time,
    pub(super) measured: Rate,
    active_at: Time,
    /// How often its receiver had spoken when it was last read, and when that was news.
    pub(super) told: u64,
    pub(super) heard_at: Option<Time>,
    /// Its limit was read: a receiver that speaks for the first time later announces itself.
    pub(super) is_read: bool,
}

impl Leaf {
    pub(super) fn new(now: Time) -> Self {
        Self {
            octets: Some(0),
            origin: 0,
            left: 0,
            waiting: 0,
            read_at: now,
            measured: Rate::ZERO,
            active_at: now,
            told: 0,
            heard_at: None,
            is_read: false,
        }
    }

    /// What an earlier life left in force.
    pub(super) fn adopted(now: Time) -> Self {
        Self { octets: None, ..Self::new(now) }
    }

    /// Whether the sender module is to know: something left, or waits, or waits no longer.
    pub(super) fn count(&mut self, now: Time, count: &SendCount) -> bool {
        let left = count.numbered.saturating_add(count.unnumbered);
        let before = *self.octets.get_or_insert_with(|| {
            self.origin = left;
            count.octets
        });
        // A pair that was forgotten counts from zero.
        let added = count.octets.checked_sub(before).unwrap_or_else(|| {
            self.origin = 0;
            count.octets
        });
        self.octets = Some(count.octets);
        let waits = count.waiting.unwrap_or_default();
        if added > 0 || waits > 0 {
            self.active_at = now;
        }
        let span = now.since(self.read_at);
        self.read_at = now;
        self.measured = Rate::of(Bytes::new(added), span);
        let before = std::mem::replace(&mut self.left, left.saturating_sub(self.origin));
        let waited = std::mem::replace(&mut self.waiting, waits);
        self.left != before || waited > 0 || self.waiting > 0
    }

    /// Whether the receiver has spoken since the last reading.
    pub(super) fn hear(&mut self, now: Time, told: Told) -> bool {
        self.is_read = true;
        if told.times == self.told {
            return false;
        }
        self.told = told.times;
        self.heard_at = Some(now);
        true
    }

    pub(super) fn is_idle(&self, now: Time, most: Span) -> bool {
        now.since(self.active_at) >= most
    }
}
