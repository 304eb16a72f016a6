//! Whether agents say which floors broke: what they report, beside what was measured.
//!
//! Problem   An agent counts by its own queue and by losses; whether it finds a floor that breaks shows only beside what
//!           arrived.
//! Approach  Each pair's backlogged time is cut into seconds. One with clearly less than its floor is *broken*, and
//!           found if the agent of its sender reports a stretch within 1.5 s of it. A stretch is *true* if a second
//!           near it had less than 0.95 of the floor.
//! Promises  A second that follows none in which the pair wanted its floor counts for neither: agents learn in it.
//!           An agent remembers 128 stretches, so a long run may have more than it tells.
//! Not here  When an agent reports: see [`weir_core::accounts`].

use super::case::Case;
use super::floors::windows;
use super::ideal::{Pair, pairs_of};
use std::collections::BTreeMap;
use weir_core::accounts::{GRAIN, HELD_PERCENT};
use weir_model::observed::Report;

/// Below this part of its floor, less [`GRAIN`], a pair's second is clearly broken. Agents report below 0.95; between the
/// two the cut of the seconds decides.
const CLEAR: f64 = 0.85;
/// Seconds of agents begin at other times than ours, and the clock of a report is read late.
const NEAR_S: f64 = 1.5;

/// A second of a pair: beginning, end, and octets that its floor promised and that arrived.
struct Second {
    from: f64,
    to: f64,
    owed: f64,
    got: f64,
}

impl Second {
    fn is_broken(&self) -> bool {
        self.got + (GRAIN.get() as f64) < CLEAR * self.owed
    }
}

/// Into `summary`: `broken_seconds`, `broken_found` (the part of these that is reported), `reported_stretches`,
/// `reported_true`.
pub(super) fn judge(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let Some(reports) = &case.observed.reports else { return };
    let name = |vm: usize| case.scenario.vms[vm].name.as_str();
    let (mut broken, mut found, mut stretches, mut right) = (0, 0, 0, 0);
    for pair in pairs_of(case.scenario) {
        let seconds = seconds(case, &pair);
        let is_its =
            |report: &&Report| report.from == name(pair.from) && report.to == name(pair.to);
        let its: Vec<(f64, f64)> = reports.iter().filter(is_its).map(bounds).collect();
        let near = |second: &Second, (from, to): (f64, f64)| {
            from <= second.to + NEAR_S && to >= second.from - NEAR_S
        };
        for second in seconds.iter().filter(|second| second.is_broken()) {
            broken += 1;
            found += u32::from(its.iter().any(|stretch| near(second, *stretch)));
        }
        for stretch in its {
            let mut beside = seconds.iter().filter(|second| near(second, stretch)).peekable();
            // What the scenario does not want for whole seconds cannot be compared.
            if beside.peek().is_some() {
                stretches += 1;
                right += u32::from(
                    beside.any(|second| second.got * 100.0 < second.owed * HELD_PERCENT as f64),
                );
            }
        }
    }
    summary.insert("broken_seconds".into(), f64::from(broken));
    summary.insert("reported_stretches".into(), f64::from(stretches));
    summary.insert("broken_found".into(), f64::from(found) / f64::from(broken));
    summary.insert("reported_true".into(), f64::from(right) / f64::from(stretches));
}

fn bounds(report: &Report) -> (f64, f64) {
    (report.from_at.as_secs_f64(), report.until.as_secs_f64())
}

/// The whole seconds of a pair in which it wants its floor, but for the first of each unbroken time.
fn seconds(case: &Case<'_>, pair: &Pair) -> Vec<Second> {
    let wants = |sample: &usize| {
        let (from, to) = case.core_of(*sample);
        case.ideal.all(from, to, |at| {
            let promised: f64 = pair.flows.iter().map(|&f| at.promised[f]).sum();
            let wanted: f64 = pair.flows.iter().map(|&f| at.demand[f].as_bps() as f64).sum();
            promised > 0.0 && wanted >= promised
        })
    };
    let samples: Vec<usize> = case.measured.clone().filter(wants).collect();
    let cut = windows(case, &samples, 1.0);
    let follows =
        |pair: &[&[usize]]| pair[0].last().map(|last| last + 1) == pair[1].first().copied();
    let later = cut.windows(2).filter(|pair| follows(pair)).map(|pair| pair[1]);
    let second = |samples: &[usize]| {
        let (from, to) = (case.bounds(samples[0]).0, case.bounds(samples[samples.len() - 1]).1);
        let got = case.mean(samples.iter().copied(), |s| {
            pair.flows.iter().map(|&f| case.on_wire(f, s)).sum()
        });
        let promised =
            case.ideal.mean(from, to, |at| pair.flows.iter().map(|&f| at.promised[f]).sum());
        let octets = |rate: f64| rate * (to - from) / 8.0;
        Second { from, to, owed: octets(promised), got: octets(got) }
    };
    later.map(second).collect()
}
