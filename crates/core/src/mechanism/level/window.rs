//! What timed packets show: the queue, and the relative load of the bottleneck.
//!
//! Problem   Switches say nothing. Clocks of hosts differ by an unknown offset and drift, hosts delay
//!           packets at random, and a departure time has room for 16 bits.
//! Approach  Hosts can only delay packets, and a queue delays all of them: so the least delayed packet
//!           of each window counts. Two of these of one busy period left the bottleneck Δrx apart and
//!           entered it Δtx apart, so ρ = Δrx/Δtx, without any clock in common. The base delay is a
//!           line below all delays, which rises or falls with the drift of the clocks; once it is old
//!           the receiver empties the queue (a *dip*) to compare it. A dip that agrees doubles its life.
//! Promises  An offset of clocks changes nothing. A clock that jumps costs the base, which begins anew.
//! Not here  What follows from it: see `step`.
//! Source    Stretch of trains: pathload (ToN 2003). Base by a filter of minima and dips: BBR.

use super::law::LevelLaw;
use super::value::UNIT;
use crate::host::Timed;
use serde::{Deserialize, Serialize};
use weir_units::{Span, Time};

/// A delay that grows by more between two packets, and by more than four times the time between their
/// departures, is a clock's jump, µs: no load does that.
const JUMP: i64 = 10_000;
/// A packet that left earlier than the one before it by more than this, µs, left by a clock that
/// jumped.
const SLACK: i64 = 1_000;
/// Clocks differ by no more, in 2⁻²⁰ (about 10⁻⁶): oscillators are right to 50 of these parts each.
const MOST_DRIFT: i64 = 105;
/// So many dips that agree with the base double its life: oscillators change with temperature.
const MOST_AGREED: u32 = 5;

/// The delays of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Windows {
    last: Option<Sample>,
    base: Option<Base>,
    /// What the base grows by with time: the drift of the clocks, in 2⁻²⁰; unknown until two dips were
    /// seen.
    drift: Option<i64>,
    /// The least delayed sample of the present dip.
    dip: Option<Sample>,
    /// Clocks that have jumped.
    pub jumps: u32,
}

/// The least delayed packet of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Sample {
    /// Receiver's clock less sender's, µs, with an unknown constant.
    delay: i64,
    came: Time,
    /// What it waited, ns.
    queue: u64,
}

/// A line below all delays: the base of a packet that comes later follows from the drift.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Base {
    /// Of a packet that came at `of`, µs.
    delay: i64,
    of: Time,
    /// When it was compared last with an emptied queue. A packet that comes as late does not do that:
    /// it may have waited in the same queue.
    since: Time,
    /// Dips in a row that agreed with it; `None` before the first dip.
    agreed: Option<u32>,
}

impl Base {
    const fn new(delay: i64, of: Time, since: Time) -> Self {
        Self { delay, of, since, agreed: None }
    }
}

/// What one window showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// q.
    pub queue: Span,
    /// ρ in 4096ths, if there was a queue in this window and the one before.
    pub load: Option<u64>,
}

impl Windows {
    /// Takes the least delayed packet of a window.
    pub fn take(&mut self, law: &LevelLaw, timed: Timed) -> Shown {
        let delay = self.unwrap(timed);
        let last = self.last.filter(|last| timed.came > last.came);
        let has_jumped = last.is_some_and(|last| is_jump(&last, delay, timed.came));
        self.jumps += u32::from(has_jumped);
        // What a dip showed before is of another clock.
        self.dip = self.dip.filter(|_| !has_jumped);
        let former = last.filter(|_| !has_jumped);
        let base = match self.base {
            Some(base) if !has_jumped => base,
            _ => Base::new(delay, timed.came, timed.came),
        };
        let above = delay - self.expected(&base, timed.came);
        // What a dip shows counts at its end.
        let is_lower = above < 0 && self.dip.is_none();
        self.base = Some(if is_lower { self.lowered(law, base, delay, timed.came) } else { base });
        let queue = above.max(0) as u64 * 1000;
        let sample = Sample { delay, came: timed.came, queue };
        self.last = Some(sample);
        if let Some(dip) = &mut self.dip
            && delay < dip.delay
        {
            *dip = sample;
        }
        let least = law.least_queue().as_nanos();
        let near = former.filter(|last| timed.came.since(last.came) <= law.asleep_after());
        let load = near.filter(|last| last.queue > least && queue > least);
        Shown {
            queue: Span::from_nanos(queue),
            load: load.and_then(|last| stretch(&last, &sample)),
        }
    }

    /// When the last timed packet came.
    pub fn last_came(&self) -> Option<Time> {
        self.last.map(|last| last.came)
    }

    /// Since when the base is known, and for how many `base_lives` it will do. The more dips agree with
    /// it, the better the drift is known, and the longer it lives.
    pub fn base_lives(&self) -> Option<(Time, u64)> {
        let base = self.base?;
        Some((base.since, 1 << base.agreed.unwrap_or(0).min(MOST_AGREED)))
    }

    /// The queue is being emptied from now on.
    pub fn begin_dip(&mut self) {
        self.dip = self.last;
    }

    /// It is not, after all.
    pub fn give_up_dip(&mut self) {
        self.dip = None;
    }

    /// Whether it is.
    pub const fn is_dipping(&self) -> bool {
        self.dip.is_some()
    }

    /// It was. What was seen meanwhile is the base, if none was known; else it says whether that still
    /// holds, and how the clocks drift. A dip may leave a queue, so it raises the base halfway only.
    pub fn end_dip(&mut self, law: &LevelLaw, now: Time) {
        let (Some(least), Some(base)) = (self.dip.take(), self.base) else { return };
        let Some(agreed) = base.agreed else {
            self.base = Some(Base { agreed: Some(0), ..Base::new(least.delay, least.came, now) });
            return;
        };
        let above = least.delay - self.expected(&base, least.came);
        let is_as_expected = above <= noise(law) && -above <= noise(law);
        let base = if above < 0 { self.lowered(law, base, least.delay, least.came) } else { base };
        if above > 0
            && !is_as_expected
            && let Some(drift) = slope(&base, least.delay, least.came)
        {
            let drift = drift.min(MOST_DRIFT);
            self.drift = Some(self.drift.map_or(drift, |known| (known + drift) / 2));
        }
        let knows = self.drift.is_some();
        if is_as_expected && !knows {
            self.drift = slope(&base, least.delay, least.came);
        }
        let agreed = if is_as_expected && knows { agreed + 1 } else { 0 };
        self.base = Some(Base { since: now, agreed: Some(agreed), ..base });
    }

    /// The base once a packet came less delayed than any should: the drift is less, or the base was a
    /// queue.
    fn lowered(&mut self, law: &LevelLaw, base: Base, delay: i64, came: Time) -> Base {
        let is_near = self.expected(&base, came) - delay <= noise(law);
        let drift = slope(&base, delay, came).filter(|drift| *drift >= -MOST_DRIFT);
        let below = Base { agreed: base.agreed.map(|_| 0), ..Base::new(delay, came, base.since) };
        match (base.agreed, self.drift, drift) {
            (Some(_), None, Some(drift)) => self.drift = Some(drift),
            (Some(_), Some(_), Some(drift)) if is_near => self.drift = Some(drift),
            (Some(_), Some(known), Some(drift)) => {
                self.drift = Some((known + drift) / 2);
                return below;
            }
            _ => return below,
        }
        base
    }

    /// Departure times wrap after 65 ms; delays differ by less than half of that.
    fn unwrap(&self, timed: Timed) -> i64 {
        let short = timed.delay();
        match self.last {
            None => short.into(),
            Some(last) => last.delay + i64::from(short.wrapping_sub(last.delay as u16) as i16),
        }
    }

    /// What a packet that comes now is delayed without a queue.
    fn expected(&self, base: &Base, now: Time) -> i64 {
        base.delay + ((self.drift.unwrap_or(0) * micros(now.since(base.of))) >> 20)
    }
}

/// By what a base would grow if there was no queue at a later packet, in 2⁻²⁰; not within half a second.
fn slope(base: &Base, delay: i64, came: Time) -> Option<i64> {
    let apart = micros(came.since(base.of));
    (apart > 500_000).then(|| ((delay - base.delay) << 20).div_euclid(apart))
}

fn micros(span: Span) -> i64 {
    (span.as_nanos() / 1000) as i64
}

/// What hosts alone add to the least delay of a window, µs.
fn noise(law: &LevelLaw) -> i64 {
    micros(law.noise)
}

fn is_jump(last: &Sample, delay: i64, came: Time) -> bool {
    let by = delay - last.delay;
    let sent = micros(came.since(last.came)) - by;
    by > JUMP.max(4 * sent) || sent < -SLACK
}

/// ρ = Δrx/Δtx. `None`: they left at once, or too far apart.
fn stretch(a: &Sample, b: &Sample) -> Option<u64> {
    let received = micros(b.came.since(a.came));
    let sent = received - (b.delay - a.delay);
    (received > 0 && sent > 0).then(|| received as u64 * UNIT / sent as u64)
}
