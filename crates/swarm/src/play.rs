//! One run, looked at all the time.

use crate::breach::Breach;
use crate::checks::{Checks, Judged};
use crate::draft::Draft;
use crate::terms::Terms;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::scenario::{Mechanism, Scenario};
use weir_sim::scenario::{Run, Setup};
use weir_units::{Span, Time};

/// Time between two looks: agents look at their counters every 5 ms.
const LOOK: Span = Span::from_millis(2);

/// What was found in one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What drew it.
    pub seed: u64,
    /// Broken promises, the earliest first.
    pub breaches: Vec<Breach>,
    /// How often somebody looked.
    pub looks: u64,
    /// Directions of VMs that were backlogged.
    pub floors: Judged,
    /// Links crossed by packets.
    pub packet_hops: u64,
    /// One number for all that came out.
    pub digest: u64,
}

impl Report {
    fn of(seed: u64) -> Self {
        Self {
            seed,
            breaches: Vec::new(),
            looks: 0,
            floors: Judged::default(),
            packet_hops: 0,
            digest: 0,
        }
    }

    /// A run that could not be played.
    fn broken(seed: u64, at: Time, check: &'static str, what: String) -> Self {
        let breach = Breach { at, times: 1, check, of: "the run".into(), what };
        Self { breaches: vec![breach], ..Self::of(seed) }
    }

    /// Whether every promise was kept.
    pub fn holds(&self) -> bool {
        self.breaches.is_empty()
    }
}

/// What is played, and what is promised of it: the same scenario, except where checks themselves are
/// tested.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// What is played.
    pub played: &'a Scenario,
    /// With this mechanism.
    pub mechanism: &'a Mechanism,
    /// What its promises are taken from; the mechanism is its first.
    pub promised: &'a Scenario,
    /// All chance of the run is drawn from this.
    pub seed: u64,
}

/// Draws and plays a seed; `None` if it was stopped.
pub fn play(seed: u64, stop: &AtomicBool) -> Option<Report> {
    let scenario = match Draft::new(seed).scenario() {
        Ok(scenario) => scenario,
        Err(error) => return Some(Report::broken(seed, Time::ZERO, "draft", error.to_string())),
    };
    let mechanism = &scenario.mechanisms[0];
    watch(&Subject { played: &scenario, mechanism, promised: &scenario, seed }, stop)
}

/// Plays a scenario and looks; `None` if it was stopped. A panic is a breach.
pub fn watch(subject: &Subject<'_>, stop: &AtomicBool) -> Option<Report> {
    let mut at = Time::ZERO;
    let played = catch_unwind(AssertUnwindSafe(|| look_on(subject, stop, &mut at)));
    match played {
        Ok(report) => report,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let text = text.unwrap_or_else(|| "something that is no text".into());
            Some(Report::broken(subject.seed, at, "panic", text))
        }
    }
}

fn look_on(subject: &Subject<'_>, stop: &AtomicBool, at: &mut Time) -> Option<Report> {
    let Subject { played, mechanism, promised, seed } = *subject;
    let broken = |what: String| Some(Report::broken(seed, Time::ZERO, "draft", what));
    let Some(terms) = promised.mechanisms.first().and_then(|m| Terms::new(promised, m)) else {
        return broken("its first mechanism promises no hoses".into());
    };
    let mut run = match Run::new(played, mechanism, &Setup { seed, ..Setup::default() }) {
        Ok(run) => run,
        Err(error) => return broken(error.to_string()),
    };
    let judged_from = terms.judged_from();
    let mut checks = Checks::new(terms, &run.ways());
    let mut before = Vec::new();
    let looks = played.duration.div_span(LOOK);
    for number in 1..=looks {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        run.play_until(LOOK * number);
        let look = run.look();
        *at = look.at;
        checks.look(&look);
        if checks.floors.since.is_none() && look.at >= judged_from {
            checks.floors.since = Some(look.at);
            before = run.octets();
        }
        if number == looks {
            let octets = run.octets();
            let more = octets.iter().zip(&before).map(|(now, then)| now - then);
            let (breaches, floors) = checks.end(&look, &more.collect::<Vec<_>>());
            return Some(Report {
                breaches,
                looks,
                floors,
                packet_hops: run.packet_hops(),
                digest: run.digest(),
                ..Report::of(seed)
            });
        }
    }
    broken("it is over before anybody could look".into())
}
