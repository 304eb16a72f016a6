//! A random world in which traffic and VMs come and go for hours, judged second by second.
//!
//! Approach  Demands are constant within each second of such a world, so the oracle gives one F for each.
//!           A direction of a VM whose demand is its floor or more is owed 0.95 of the F of its pairs, 0.9
//!           of those with TCP in both directions. No law knows a demand before it has measured it: in the
//!           first two seconds after a demand of the tenant changed, each pair is owed that part of the
//!           least F that it had since before the change.
//! Promises  Each window that falls short is told with its time, and in the simulator with its cause. Those
//!           that only lack what a change of demands has brought are counted by cause.
//! Source    GUARANTEES.md 1.1; docs/swarm.md, "Soak".

mod cause;
mod judge;

pub use cause::Cause;

use cause::Watch;
use judge::{Judge, Window};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::scenario::{Mechanism, Scenario};
use weir_sim::scenario::{Run, Setup};
use weir_units::{SortedMap, Span};

/// Floors are judged in windows of so long.
const WINDOW: Span = Span::from_secs(1);
/// Windows from a change of demands on in which what it brought need not be there yet.
const LEARNING: usize = 2;

/// A window in which a VM had less than it was owed.
#[derive(Clone, Debug)]
pub struct Short {
    /// The window's number: seconds since the start.
    pub second: u64,
    /// Of whom: VM and direction.
    pub of: String,
    /// What it got of what it was owed.
    pub part: f64,
    /// Whether the machine that played the world was too busy in this second.
    pub disturbed: bool,
    /// Why, where the world can be looked into.
    pub cause: Option<Cause>,
}

/// What a soak came to.
#[derive(Clone, Debug, Default)]
pub struct SoakReport {
    /// What drew it.
    pub seed: u64,
    /// Windows of VMs' directions in which they were backlogged.
    pub windows: u64,
    /// Those with less than their part of F, and no less than that part of the least F since before a change
    /// in the last two seconds.
    pub learning: u64,
    /// The same by the second after the change (0, 1) and by cause, where the world can be looked into.
    pub learning_by_cause: SortedMap<(usize, Cause), u64>,
    /// Those with less than that.
    pub short: Vec<Short>,
    /// Windows in seconds in which the machine that played the world was too busy. They count.
    pub disturbed: u64,
    /// Seconds that were played.
    pub seconds: u64,
}

impl SoakReport {
    /// Share of the windows that had what they are owed.
    pub fn held(&self) -> f64 {
        self.part(self.short.len() as u64)
    }

    /// Share of the windows that had their part of the F of their second.
    pub fn held_at_once(&self) -> f64 {
        self.part(self.learning + self.short.len() as u64)
    }

    /// The short windows by cause.
    pub fn causes(&self) -> SortedMap<Cause, u64> {
        let mut causes = SortedMap::new();
        for cause in self.short.iter().filter_map(|short| short.cause) {
            *causes.entry(cause).or_default() += 1;
        }
        causes
    }

    /// Counts a window; a short one is the last of its list.
    fn take(&mut self, scenario: &Scenario, second: u64, window: &Window, disturbed: bool) {
        self.windows += 1;
        self.disturbed += u64::from(disturbed);
        if window.holds() {
            return;
        }
        if window.learns() {
            self.learning += 1;
            return;
        }
        let direction = if window.is_in { "in" } else { "out" };
        let of = format!("{}, {direction}", scenario.vms[window.vm].name);
        let part = window.got / window.least;
        self.short.push(Short { second, of, part, disturbed, cause: None });
    }

    fn part(&self, below: u64) -> f64 {
        if self.windows == 0 { 1.0 } else { 1.0 - below as f64 / self.windows as f64 }
    }
}

/// Plays a churning world in the simulator; `each` is called after each second. An early stop gives
/// what was seen until then.
///
/// # Errors
/// The scenario cannot be played.
pub fn soak(
    seed: u64,
    scenario: &Scenario,
    mechanism: &Mechanism,
    stop: &AtomicBool,
    each: &mut dyn FnMut(u64),
) -> Result<SoakReport, String> {
    let setup = Setup { seed, ..Setup::default() };
    let mut run = Run::new(scenario, mechanism, &setup).map_err(|error| error.to_string())?;
    let (mut judge, mut watch) = (Judge::new(scenario), Watch::default());
    let mut report = SoakReport { seed, ..SoakReport::default() };
    for second in 0..scenario.duration.div_span(WINDOW) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        watch.begin();
        for look in 1..=WINDOW.div_span(cause::LOOK) {
            run.play_until(WINDOW * second + cause::LOOK * look);
            watch.look(&run.look());
        }
        for window in judge.windows(second, &run.octets()) {
            report.take(scenario, second, &window, false);
            if window.holds() {
                continue;
            }
            if window.learns() {
                let cause = watch.cause(&judge, &window, &|pair| judge.promised(pair));
                *report.learning_by_cause.entry((judge.age(&window), cause)).or_default() += 1;
            } else if let Some(short) = report.short.last_mut() {
                short.cause = Some(watch.cause(&judge, &window, &|pair| judge.least(pair)));
            }
        }
        report.seconds = second + 1;
        each(second);
    }
    Ok(report)
}

/// What another world than the simulator measured while it played a churning world.
#[derive(Clone, Debug)]
pub struct Arrived<'a> {
    /// When each sample was read, since traffic began.
    pub ends: Vec<Span>,
    /// Application octets per sample, of each traffic entry.
    pub octets: Vec<&'a [u64]>,
}

/// Judges what arrived in whole seconds as [`soak`] does. `is_disturbed` says in which of them the
/// machine was too busy: these windows are counted, and marked.
///
/// Samples end when they are read. What a sample holds of two seconds is divided by time.
///
/// # Panics
/// `arrived` has not one series per traffic entry.
pub fn judge(
    seed: u64,
    scenario: &Scenario,
    arrived: &Arrived<'_>,
    is_disturbed: &dyn Fn(u64) -> bool,
) -> SoakReport {
    assert_eq!(arrived.octets.len(), scenario.traffic.len(), "one series per traffic entry");
    let mut judge = Judge::new(scenario);
    let mut report = SoakReport { seed, ..SoakReport::default() };
    let played = arrived.ends.last().copied().unwrap_or_default().min(scenario.duration);
    let (mut whole, mut total) = (0, vec![0; scenario.traffic.len()]);
    for second in 0..played.div_span(WINDOW) {
        let until = WINDOW * (second + 1);
        while arrived.ends[whole] <= until && whole + 1 < arrived.ends.len() {
            total.iter_mut().zip(&arrived.octets).for_each(|(total, of)| *total += of[whole]);
            whole += 1;
        }
        let from = whole.checked_sub(1).map_or(Span::ZERO, |last| arrived.ends[last]);
        let width = (arrived.ends[whole] - from).as_secs_f64();
        let part = if width > 0.0 { ((until - from).as_secs_f64() / width).min(1.0) } else { 1.0 };
        let so_far = |(total, of): (&u64, &&[u64])| total + (of[whole] as f64 * part) as u64;
        let octets: Vec<u64> = total.iter().zip(&arrived.octets).map(so_far).collect();
        for window in judge.windows(second, &octets) {
            report.take(scenario, second, &window, is_disturbed(second));
        }
        report.seconds = second + 1;
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    fn report(length: Span) -> (Scenario, SoakReport) {
        let scenario = World::churning(10, length).scenario().expect("sound");
        let mechanism = Mechanism::parse("elasticswitch:steady").expect("known");
        let stop = AtomicBool::new(false);
        let report = soak(10, &scenario, &mechanism, &stop, &mut |_| ()).expect("playable");
        (scenario, report)
    }

    #[test]
    fn each_window_that_is_not_held_has_a_cause() {
        let (_, report) = report(Span::from_secs(60));
        assert_eq!(report.seconds, 60);
        assert!(report.windows > 300 && report.learning > 0, "{report:?}");
        assert_eq!(report.learning_by_cause.values().sum::<u64>(), report.learning);
        assert_eq!(report.causes().values().sum::<u64>(), report.short.len() as u64);
        let unknown = |(_, cause): &(usize, Cause)| *cause == Cause::Unknown;
        assert!(!report.learning_by_cause.keys().any(unknown), "{report:?}");
        assert!(report.held() >= 0.99, "{report:?}");
    }

    #[test]
    fn what_another_world_measured_is_judged_as_the_simulator_is() {
        let length = Span::from_secs(20);
        let (scenario, report) = report(length);
        let mechanism = Mechanism::parse("elasticswitch:steady").expect("known");
        let setup = Setup { seed: 10, ..Setup::default() };
        let mut run = Run::new(&scenario, &mechanism, &setup).expect("playable");
        // Samples of 400 ms: each second but one in five ends within a sample.
        let ends: Vec<Span> = (1..=50).map(|n| Span::from_millis(400) * n).collect();
        let mut series = vec![Vec::new(); scenario.traffic.len()];
        let mut before = vec![0; series.len()];
        for end in &ends {
            run.play_until(*end);
            let now = run.octets();
            for ((series, now), before) in series.iter_mut().zip(&now).zip(&before) {
                series.push(now - before);
            }
            before = now;
        }
        let octets = series.iter().map(Vec::as_slice).collect();
        let arrived = Arrived { ends, octets };
        let judged = judge(10, &scenario, &arrived, &|second| second == 7);
        assert_eq!((judged.seconds, judged.windows), (report.seconds, report.windows));
        let below = |report: &SoakReport| report.learning + report.short.len() as u64;
        // A change that lies within a sample is smeared over it.
        assert!(below(&judged).abs_diff(below(&report)) <= report.windows / 20);
        assert!((1..report.windows / 10).contains(&judged.disturbed), "{judged:?}");
    }
}
