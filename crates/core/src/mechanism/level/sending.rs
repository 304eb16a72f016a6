//! A sender's side: what its pairs may send, by what receivers said, and what they use.
//!
//! Problem   What a receiver said last may be old, and a pair that wakes at an old level, with three
//!           hundred others, fills every buffer before anybody can say so.
//! Approach  A level is a lease: without the receiver's word what is borrowed halves each period. A
//!           pair that waits may borrow twice as much each period, from nothing on; one that does not
//!           wait, twice what it uses. The sender tells the receiver the highest level that its pairs
//!           use, so that levels do not grow beyond what is used.
//! Promises  Ceilings never below floors. After silence all that is borrowed is a bounded number of
//!           octets.
//! Not here  Floors: guarantee partitioning.
//! Source    A newcomer begins at its floor: μFAB, Aeolus. Doubling: TCP's slow start.

use super::law::LevelLaw;
use super::value::{Level, UNIT};
use crate::host::{SendCount, Setting};
use crate::meter::Meter;
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Rate, Span, Time};

/// Periods over which the use of a pair is averaged.
const AVERAGED: usize = 4;

/// What the receivers on one host said.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Toward {
    level: Level,
    heard_at: Time,
    active_at: Time,
    /// The highest level in use, by the pairs that were looked at in this period.
    uses: Level,
    told: Level,
    told_at: Time,
}

/// One pair.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sending {
    /// By guarantee partitioning.
    pub floor: Rate,
    octets: Meter,
    counted: u64,
    waiting: u64,
    active_at: Time,
    /// How much of the receiver's level it may use by now.
    grown: Level,
    /// What it sends, averaged.
    used: Rate,
}

impl Toward {
    /// A host that is sent to for the first time.
    pub fn new(now: Time) -> Self {
        Self {
            level: Level::ONE,
            heard_at: now,
            active_at: now,
            uses: Level::ONE,
            told: Level::ONE,
            told_at: now,
        }
    }

    /// The receiver's word.
    pub fn hear(&mut self, now: Time, level: Level) {
        (self.level, self.heard_at) = (level, now);
    }

    /// Time without anything sent to it.
    pub fn idle_for(&self, now: Time) -> Span {
        now.since(self.active_at)
    }

    /// The level in force.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// A period begins. The lease may be over.
    pub fn step(&mut self, law: &LevelLaw, now: Time) {
        self.uses = Level::ONE;
        if now.since(self.active_at) > law.asleep_after() {
            self.level = Level::ONE;
        } else if now.since(self.heard_at) > law.lease() {
            self.level = self.level.halved();
        }
    }

    /// A pair to this host was looked at.
    pub fn used(&mut self, now: Time, pair: &Sending, level: Level) {
        self.active_at = self.active_at.max(pair.active_at).min(now);
        self.uses = self.uses.max(level);
    }

    /// The level in use that the receiver is to be told now, if it is.
    pub fn tell(&mut self, law: &LevelLaw, now: Time) -> Option<Level> {
        if now.since(self.active_at) > law.asleep_after() {
            return None;
        }
        let (uses, told, since) = (self.uses.raw(), self.told.raw(), now.since(self.told_at));
        let has_grown = uses > told + told / 8;
        let is_due = since >= law.told_every() * 2 && (uses < told - told / 4 || uses > UNIT);
        if !has_grown && !is_due {
            return None;
        }
        (self.told, self.told_at) = (self.uses, now);
        Some(self.uses)
    }
}

impl Sending {
    /// A new pair.
    pub fn new(now: Time) -> Self {
        Self {
            floor: Rate::ZERO,
            octets: Meter::default(),
            counted: 0,
            waiting: 0,
            active_at: now,
            grown: Level::ONE,
            used: Rate::ZERO,
        }
    }

    /// What the data plane counted.
    pub fn count(&mut self, now: Time, count: SendCount) {
        let waiting = count.waiting.unwrap_or(0);
        if self.octets.read(count.octets) > 0 || waiting > 0 {
            self.active_at = now;
        }
        self.waiting = waiting;
    }

    /// A period of this length is over: how much it may borrow in the next one. Returns the level it
    /// uses, or would use.
    pub fn step(
        &mut self,
        law: &LevelLaw,
        (now, span): (Time, Span),
        level: Level,
        line: Rate,
    ) -> Level {
        let octets = self.octets.total.wrapping_sub(self.counted);
        self.counted = self.octets.total;
        let sent = Rate::of(Bytes::new(octets), span.max(Span::from_nanos(1)));
        self.used = self.used - self.used.split(AVERAGED) + sent.split(AVERAGED);
        let weight = law.weight(self.floor, line);
        if now.since(self.active_at) > law.asleep_after() {
            (self.grown, self.used) = (Level::ONE, Rate::ZERO);
            return Level::ONE;
        }
        let used = Level::of(self.used, self.floor, weight);
        if self.waiting > 0 {
            let in_force = level.min(self.grown);
            self.grown = self.grown.times(2 * UNIT).min(level.times(2 * UNIT));
            // More than the line it cannot use, whatever it is lent.
            in_force.max(used).min(Level::of(line, self.floor, weight))
        } else {
            self.grown = self.grown.min(used.times(2 * UNIT));
            used
        }
    }

    /// What it may send at the receiver's `level`.
    pub fn setting(&self, law: &LevelLaw, level: Level, line: Rate) -> Setting {
        let weight = law.weight(self.floor, line);
        let ceiling = level.min(self.grown).ceiling(self.floor, weight);
        Setting { floor: self.floor, ceiling: ceiling.min(line).max(self.floor) }
    }
}
