//! The receiver's step: from what the windows show to the next level.
//!
//! Problem   Floors must come back within milliseconds when their owners wake, and the whole link must
//!           be used when they sleep, for any number of pairs.
//! Approach  The relative load ρ of the bottleneck says by which factor all levels are too high or
//!           too low: one jump, then wait until it shows. Near the right load the queue's length
//!           corrects what is left, and a small addition makes levels equal. A level from which a
//!           floor took bandwidth is remembered for 100 periods, and tried again when the queue is empty.
//! Promises  A level within [1, most]. More queue, load, losses or marks never give a higher one.
//!           Integers only.
//! Not here  Measuring: see `window`. Who is told, and when: see `receiving`.
//! Source    Multiplicative step and hold: HPCC §3. Slope of the delay: TIMELY §4. One level in units
//!           of weight: Söze §4. Departs from the design: a loss or a mark can only lower what the
//!           queue alone would give.

use super::law::LevelLaw;
use super::value::{Level, UNIT};
use serde::{Deserialize, Serialize};
use weir_units::{Span, Time};

/// For so many periods a level is remembered that a floor took bandwidth from.
const GOAL_LIVES: u64 = 100;
/// The queue's part in a small step: a queue of 10 T above its rest weighs as much as a load of 2.
const QUEUE_WEIGHS: u64 = 10;

/// A level comes nearer to the mean by this part per period. Faster: what one of them saw by chance moves
/// all.
const PULLED: i64 = 8;

/// What the windows since the last step show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// q: what the least delayed packet waited.
    pub queue: Span,
    /// ρ: the relative load of the bottleneck, in 4096ths; `None` while there is no queue to see it by.
    pub load: Option<u64>,
    /// A segment was lost.
    pub is_lossy: bool,
    /// β: the part of segments that came marked, in 4096ths.
    pub marked: u64,
    /// The highest level that a pair of the sender uses, or would use if it had it.
    pub used: Level,
}

/// The level of one bottleneck, as one receiver sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    level: Level,
    goal: Level,
    goal_at: Time,
    /// Until then what is seen is still the old level's.
    settles_at: Time,
}

impl Step {
    /// At the floors.
    pub const fn new(now: Time) -> Self {
        Self { level: Level::ONE, goal: Level::ONE, goal_at: now, settles_at: now }
    }

    /// The level in force.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Nothing is sent any more: back to the floors. The level is tried again within 100 periods.
    pub fn sleep(&mut self, now: Time) {
        if self.level > Level::ONE {
            self.remember(now);
            self.level = Level::ONE;
        }
    }

    /// Nothing is decided before `until`.
    pub fn hold(&mut self, until: Time) {
        self.settles_at = self.settles_at.max(until);
    }

    /// Whether what is seen now is of the level in force.
    pub fn is_settled(&self, now: Time) -> bool {
        now >= self.settles_at
    }

    /// Nothing shows any more what the network carries: what is lent ends.
    pub fn lapse(&mut self) {
        self.level = self.level.halved();
    }

    /// A part of the way to the mean level of all that share a bottleneck.
    pub fn pull(&mut self, mean: Level) {
        let (level, mean) = (self.level.raw() as i64, mean.raw() as i64);
        self.level = Level::from_raw((level + (mean - level) / PULLED) as u64);
    }

    fn remember(&mut self, now: Time) {
        self.goal = self.level.max(self.goal.times(UNIT * 95 / 100));
        self.goal_at = now;
    }

    fn has_goal(&self, law: &LevelLaw, now: Time) -> bool {
        now.since(self.goal_at) <= law.period * GOAL_LIVES
    }

    /// One step. What was seen while the last one settles is dropped, but for a loss, which the
    /// caller keeps ([`Step::is_settled`]).
    pub fn step(&mut self, law: &LevelLaw, now: Time, seen: Seen) -> Level {
        if !self.is_settled(now) {
            return self.level;
        }
        // What is seen now left its sender before the queue that it waited in. A sender may lie about that, so there is
        // a bound.
        let waited = seen.queue.min(law.period * QUEUE_WEIGHS);
        let (old, settles) = (self.level, now + law.loop_delay + law.period + waited);
        let clear = law.clear();
        let rest = law.queue_at_rest();
        let most = Level::from_raw(seen.used.raw() * 3 / 2);
        let most = if self.has_goal(law, now) { most.max(self.goal) } else { most };
        let mut fastest = 2;
        let mut next = match seen.load {
            Some(load) if load > UNIT + clear => {
                self.remember(now);
                self.settles_at = settles;
                Level::from_raw(old.raw() * UNIT / load.min(2 * UNIT))
            }
            Some(load) if load < UNIT - clear && seen.queue < rest * 2 => {
                self.settles_at = settles;
                Level::from_raw(old.raw() * UNIT / load.max(UNIT / 2))
            }
            _ if seen.queue < law.least_queue() => {
                self.settles_at = now + law.loop_delay;
                let grown = old.times(UNIT * 5 / 4);
                let goal = self.goal.times(UNIT * 9 / 10);
                if self.has_goal(law, now) && goal > grown {
                    fastest = 16;
                    goal
                } else {
                    grown
                }
            }
            load => small(law, old, seen.queue, load.unwrap_or(UNIT)),
        };
        if seen.is_lossy {
            if seen.load.is_none_or(|load| load <= UNIT + clear) {
                (self.goal, self.goal_at) = (old, now);
            }
            self.settles_at = settles;
            next = next.min(old.halved());
        }
        if seen.marked > 0 {
            next = next.min(old.times(UNIT - seen.marked.min(UNIT) / 2));
        }
        let (least, highest) = (old.raw() / 4, old.raw() * fastest);
        self.level = Level::from_raw(next.raw().clamp(least, highest)).min(most);
        self.level
    }
}

/// Near the right load: x·(1 − α·(ρ − 1 + (q − q*) / 10 T)) + a.
fn small(law: &LevelLaw, old: Level, queue: Span, load: u64) -> Level {
    let (unit, alpha) = (UNIT as i64, i64::from(law.alpha));
    let excess = queue.as_nanos() as i64 - law.queue_at_rest().as_nanos() as i64;
    let weighs = (law.period * QUEUE_WEIGHS).as_nanos() as i64;
    let off = load as i64 - unit + (excess.min(1 << 40) * unit) / weighs.max(1);
    let factor = (unit - alpha * off / unit).max(0) as u64;
    Level::from_raw(old.times(factor).raw() + u64::from(law.add))
}
