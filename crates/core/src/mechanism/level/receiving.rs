//! A receiver's side of a pair of hosts: windows, the step, and what the sender is told.
//!
//! Approach  Each period the windows make a step. A cut is told at once and twice more; other changes
//!           above 1/32 once a period; anything else every four periods, which renews the lease.
//! Promises  At most one message per period.
//! Not here  The arithmetic: see `step` and `window`.

use super::law::LevelLaw;
use super::step::{Seen, Step};
use super::value::{Level, UNIT};
use super::window::{Shown, Windows};
use crate::host::Timed;
use serde::{Deserialize, Serialize};
use weir_units::{Span, Time};

/// A cut is repeated this often: a lost one costs floors.
const REPEATS: u8 = 2;
/// Changes below one part in this many wait.
const SMALL: u64 = 32;
/// Two paths have had the same queue in so many windows. More: paths with few packets are never alike.
/// Fewer: two bottlenecks are, by chance.
const ALIKE: u32 = 2;
/// A dip lasts so many periods, and the time until it shows.
const DIP: u64 = 16;

/// What arrived from one host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Path {
    windows: Windows,
    step: Step,
    /// A dip is under way: it shows from `.0` to `.1`.
    dip: Option<(Time, Time)>,
    /// In so many of the last windows it had the same queue as another path.
    alike: u32,
    is_lossy: bool,
    segments: u64,
    marked: u64,
    used: Level,
    active_at: Time,
    told: Level,
    told_at: Time,
    repeats: u8,
}

impl Path {
    /// Of a host that just began to send.
    pub fn new(now: Time) -> Self {
        Self {
            windows: Windows::default(),
            step: Step::new(now),
            dip: None,
            alike: 0,
            is_lossy: false,
            segments: 0,
            marked: 0,
            used: Level::ONE,
            active_at: now,
            told: Level::ONE,
            told_at: now,
            repeats: 0,
        }
    }

    /// Segments of a pair arrived since the last count, so many marked, and some were found lost.
    pub fn count(&mut self, now: Time, segments: u64, marked: u64, lost: u64) {
        if segments > 0 {
            self.active_at = now;
        }
        self.segments = self.segments.saturating_add(segments);
        self.marked = self.marked.saturating_add(marked);
        self.is_lossy |= lost > 0;
    }

    /// The sender's highest level in use.
    pub fn uses(&mut self, used: Level) {
        self.used = used;
    }

    /// Whether something arrived lately.
    pub fn is_awake(&self, law: &LevelLaw, now: Time) -> bool {
        now.since(self.active_at) <= law.asleep_after()
    }

    /// Time without arrivals.
    pub fn idle_for(&self, now: Time) -> Span {
        now.since(self.active_at)
    }

    /// The level in force; in a dip that is the floors'.
    pub fn level(&self) -> Level {
        if self.dip.is_some() { Level::ONE } else { self.step.level() }
    }

    /// Whether another path had the same queue in this window.
    fn compare(&mut self, is_alike: bool) {
        self.alike = if is_alike { (self.alike + 1).min(2 * ALIKE) } else { self.alike / 2 };
    }

    /// Its level, if it has a bottleneck in common with another path, and uses what it is given.
    fn shared(&self) -> Option<Level> {
        let level = self.step.level();
        let is_used = level.raw() < self.used.raw() * 3 / 2;
        (self.alike >= ALIKE && self.dip.is_none() && is_used).then_some(level)
    }

    /// Whether the queue is being emptied, or about to be.
    pub const fn is_dipping(&self) -> bool {
        self.dip.is_some()
    }

    /// Clocks that have jumped.
    pub const fn jumps(&self) -> u32 {
        self.windows.jumps
    }

    /// What the least delayed packet of a window shows.
    pub fn look(&mut self, law: &LevelLaw, now: Time, timed: Timed) -> Shown {
        let before = self.windows.jumps;
        let shown = self.windows.take(law, timed);
        if self.windows.jumps > before {
            // The base is new, and may be a queue's: nothing grows on its account.
            self.step.hold(now + law.period * 3);
        }
        shown
    }

    /// A period is over; `shown` is of its window. All paths of the host have a queue of `common`, the
    /// link's own. `is_beat`: it is the host's time to empty queues.
    pub fn step(
        &mut self,
        law: &LevelLaw,
        now: Time,
        shown: Option<Shown>,
        common: Span,
        is_beat: bool,
    ) {
        if !self.is_awake(law, now) {
            self.step.sleep(now);
            self.dip = None;
            self.windows.give_up_dip();
            return;
        }
        if let Some((from, until)) = self.dip {
            if now >= until {
                self.windows.end_dip(law, now);
                self.dip = None;
                self.step.hold(now + law.loop_delay + law.period);
            } else if now >= from && shown.is_some() && !self.windows.is_dipping() {
                self.windows.begin_dip();
            }
            return;
        }
        // A path with two bottlenecks goes by the fuller one. By the sum it would give way at both.
        let shown = shown.map(|shown| Shown { queue: common.max(shown.queue - common), ..shown });
        let queue = shown.map(|shown| shown.queue);
        if self.is_dip_due(law, now, queue, is_beat) {
            let from = now + law.loop_delay;
            self.dip = Some((from, from + law.period * DIP));
            return;
        }
        if !self.step.is_settled(now) {
            return;
        }
        let is_lossy = std::mem::take(&mut self.is_lossy);
        let (segments, marked) =
            (std::mem::take(&mut self.segments), std::mem::take(&mut self.marked));
        let Some(shown) = shown else {
            if is_lossy {
                self.decide(
                    law,
                    now,
                    Seen {
                        queue: law.queue_at_rest(),
                        load: None,
                        is_lossy,
                        marked: 0,
                        used: self.used,
                    },
                );
            }
            // IPv6 and fragments carry no times: a level that IPv4 found would stay for ever.
            if self.windows.last_came().is_some_and(|came| now.since(came) > law.lease()) {
                self.step.lapse();
            }
            return;
        };
        let marked = marked.min(segments).saturating_mul(UNIT).checked_div(segments).unwrap_or(0);
        let used = self.used;
        self.decide(
            law,
            now,
            Seen { queue: shown.queue, load: shown.load, is_lossy, marked, used },
        );
    }

    fn decide(&mut self, law: &LevelLaw, now: Time, seen: Seen) {
        self.step.step(law, now, seen);
    }

    /// The base is old, and it is time. Once it is half as old, a queue that others empty is reason enough:
    /// so receivers that share a bottleneck come to do it at the same time.
    fn is_dip_due(&self, law: &LevelLaw, now: Time, queue: Option<Span>, is_beat: bool) -> bool {
        let Some((since, lives)) = self.windows.base_lives() else { return false };
        let (age, lives) = (now.since(since) * 2, law.base_lives * lives);
        let is_low = queue.is_some_and(|queue| queue * 2 <= law.queue_at_rest());
        is_beat && age + law.base_lives >= lives * 2 || is_low && age >= lives
    }

    /// What the sender is to be told now, if anything.
    pub fn tell(&mut self, law: &LevelLaw, now: Time) -> Option<Level> {
        let level = self.level();
        let (raw, told) = (level.raw(), self.told.raw());
        let is_cut = raw < told - told / SMALL;
        let is_growth = raw > told + told / SMALL;
        let is_due = self.is_awake(law, now) && now.since(self.told_at) >= law.told_every();
        if is_cut {
            self.repeats = REPEATS;
        } else if self.repeats > 0 {
            self.repeats -= 1;
        } else if !is_growth && !is_due {
            return None;
        }
        (self.told, self.told_at) = (level, now);
        Some(level)
    }
}

/// Paths of a host that have the same queue window after window have one bottleneck, and come to one level.
/// One by one they would, too, but in seconds.
pub fn share<'a>(law: &LevelLaw, paths: impl Iterator<Item = (&'a mut Path, Option<Shown>)>) {
    let none = law.least_queue();
    let mut paths: Vec<(Span, &mut Path)> = paths
        .filter_map(|(path, shown)| shown.map(|shown| (shown.queue, path)))
        .filter(|(queue, _)| *queue > none)
        .collect();
    paths.sort_by_key(|(queue, _)| *queue);
    for alike in paths.chunk_by_mut(|a, b| b.0 - a.0 <= none) {
        let are_several = alike.len() > 1;
        alike.iter_mut().for_each(|(_, path)| path.compare(are_several));
        let levels = || alike.iter().filter_map(|(_, path)| path.shared()).map(Level::raw);
        let Some(mean) = levels().sum::<u64>().checked_div(levels().count() as u64) else {
            continue;
        };
        for (_, path) in alike.iter_mut().filter(|(_, path)| path.shared().is_some()) {
            path.step.pull(Level::from_raw(mean));
        }
    }
}
