//! Plays scenarios: the files that the lab plays on real Linux.
//!
//! Problem   A figure of a paper must be the same in both worlds, as far as a simulator can be.
//! Approach  A resolved [`Scenario`] becomes a network ([`build`]) and, with a mechanism, an agent
//!           on each host ([`guard`]). The run is sampled as the lab samples. A feature that the
//!           simulator lacks is refused by its name in the file ([`refuse`]).
//! Promises  Same scenario, mechanism and seed give the same [`Record`], to the octet. No setting
//!           of the file is silently ignored.
//! Not here  Judging: the judge of the lab's runs, in `weir`, judges these, too.

mod bind;
mod build;
mod faults;
mod guard;
mod queues;
mod refuse;
mod run;
mod size;
mod trace;
mod ways;

pub use refuse::{Unsupported, check};
pub use run::Run;
pub use size::{Size, size};

use build::Part;
use queues::Queues;
use trace::Traces;

use crate::Sim;
use crate::digest::Digest;
use crate::exchange::Work;
use crate::host::Written;
use crate::network::Flaw;
use crate::outcome::{LinkOutcome, Outcome};
use crate::world::GuardedView;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_core::mechanism::{Draft, Refusal};
use weir_model::observed::{Observed, ObservedFlow};
use weir_model::record::{LinkRecord, WrittenRecord};
use weir_model::scenario::{FaultKind, Mechanism, Scenario};
use weir_units::{PairId, Rate, Span, Time};

/// Parameters of a run beside its scenario and mechanism.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Seed of all random choices.
    pub seed: u64,
    /// The rate of each pair, for a mechanism that reserves rates.
    pub reserve: Vec<(PairId, Rate)>,
    /// The mechanism's constants at the scenario's scale, if some were set; `None`: those of its
    /// name and preset.
    pub draft: Option<Draft>,
    /// A folder in which each host's agent gets a folder with its journal.
    pub journal: Option<PathBuf>,
}

/// A run: what the judge gets, and what only the simulator knows.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// What was measured. The caller adds how long it took.
    pub observed: Observed,
    /// Requests, short flows and shuffles of each traffic entry, with the exact duration of each.
    pub works: Vec<Option<Work>>,
    /// Packets that found no room in a host's shaper.
    pub shaper_drops: u64,
    /// Digest of the run.
    pub digest: u64,
}

/// Reason why a scenario gave no record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The file asks for a feature that the simulator lacks.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A number of the file is beyond the simulator's bounds.
    #[error("{field}: {flaw}")]
    Flaw {
        /// Which field of the file.
        field: String,
        /// What is wrong.
        flaw: Flaw,
    },
    /// The mechanism cannot keep its promise here.
    #[error("{field}: {refusal}")]
    Refused {
        /// Which field of the file, and where.
        field: String,
        /// Why, and what would be right.
        refusal: Refusal,
    },
    /// A host's journal cannot be made.
    #[error("{}: the journal cannot be made: {error}", path.display())]
    Journal {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Checks whether this mechanism can be played here.
///
/// # Errors
///
/// The reason: the place in the file, and what would be right.
pub fn check_mechanism(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
) -> Result<(), Failure> {
    refuse::translation(scenario, mechanism)?;
    bind::binding(scenario, mechanism, setup.seed)?;
    guard::check(scenario, mechanism, setup)
}

/// Plays `scenario` with `mechanism`. `watch` is called after each sample with the part of the run
/// that is done; `stop` ends it early.
///
/// # Errors
///
/// Anything in [`Failure`].
pub fn play(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
    watch: &mut dyn FnMut(f64),
    stop: &AtomicBool,
) -> Result<Record, Failure> {
    let Run { plan, mut sim } = Run::new(scenario, mechanism, setup)?;
    let width = scenario.sample;
    let count = |span: Span| (span + Span::from_nanos(width.as_nanos() / 2)).div_span(width);
    let (samples, warmup) = (count(scenario.duration).max(1), count(scenario.warmup));
    let mut sampler = Sampler::new(scenario, &plan, Seen::of(&sim));
    let mut queues = Queues::new(&scenario.topology);
    let mut traces = Traces::new(scenario, &plan.entries);
    let mut before = Written::default();
    for sample in 1..=samples {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Stopped);
        }
        let [begin, end] = [sample - 1, sample].map(|n| Time::ZERO + width * n);
        let mut at = begin;
        while at < end {
            let due = traces.next().filter(|due| *due <= end);
            let to = due.unwrap_or(end);
            if sample > warmup {
                queues.play(&mut sim, at, to);
            } else {
                sim.run_until(to);
            }
            traces.look(&sim, to);
            at = to;
        }
        sampler.take(Seen::of(&sim), sample == warmup);
        if sample == warmup {
            before = sim.written().unwrap_or_default();
        }
        watch(sample as f64 / samples as f64);
    }
    let view = sim.guarded_view();
    let works = sim.works().cloned().collect();
    let breaks_control =
        scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Control(_)));
    let pairs = view.as_ref().map_or(0, |view| view.receiving);
    let mut record = sampler.record(view, works, breaks_control);
    let observed = &mut record.observed;
    observed.seed = setup.seed;
    observed.written = sim.written().map(|now| WrittenRecord {
        octets: now.octets - before.octets,
        reports: now.reports - before.reports,
        offers: now.offers - before.offers,
        pairs,
        over: scenario.duration - scenario.warmup,
    });
    (observed.queue_edge, observed.queue_core) = queues.records();
    observed.unbound = mechanism.bound.map(|_| sim.unbound().get());
    observed.disorder = sim.disorder().filter(|_| build::has_priorities(mechanism));
    for (entry, seen) in traces.seen() {
        observed.flows[entry].windows = seen;
    }
    Ok(record)
}

/// Counters of a run at one time.
#[derive(Clone)]
struct Seen {
    outcome: Outcome,
    /// Octets of requests, flows and shuffles, there and back.
    exchanged: Vec<[u64; 2]>,
}

impl Seen {
    fn of(sim: &Sim) -> Self {
        Self { outcome: sim.outcome(), exchanged: sim.exchanged() }
    }

    /// Octets that have arrived on each connection of a traffic entry.
    fn octets(&self, part: &Part) -> Vec<u64> {
        let flows = &self.outcome.flows;
        match part {
            Part::Flows(range) => range.clone().map(|f| flows[f].octets.get()).collect(),
            Part::There(number) => vec![self.exchanged[*number][0]],
            Part::Back(number) => vec![self.exchanged[*number][1]],
        }
    }

    /// Octets that have arrived since, on each connection.
    fn since(&self, then: &Self, part: &Part) -> Vec<u64> {
        let (now, then) = (self.octets(part), then.octets(part));
        now.iter().zip(then).map(|(now, then)| now - then).collect()
    }
}

/// Series from the counters.
struct Sampler<'a> {
    plan: &'a build::Plan,
    width: Span,
    last: Seen,
    at_warmup: Seen,
    flows: Vec<ObservedFlow>,
    links: Vec<LinkRecord>,
}

impl<'a> Sampler<'a> {
    fn new(scenario: &Scenario, plan: &'a build::Plan, begin: Seen) -> Self {
        Self {
            plan,
            width: scenario.sample,
            at_warmup: begin.clone(),
            last: begin,
            flows: vec![ObservedFlow::default(); scenario.traffic.len()],
            links: vec![LinkRecord::default(); 2 * scenario.topology.links.len()],
        }
    }

    fn take(&mut self, now: Seen, is_warm: bool) {
        for (flow, part) in self.flows.iter_mut().zip(&self.plan.entries) {
            flow.octets.push(now.since(&self.last, part).iter().sum());
        }
        let passed = |then: &LinkOutcome, now: &LinkOutcome| {
            let octets = now.octets.get().saturating_sub(then.octets.get());
            (octets, now.drops - then.drops, now.marks - then.marks)
        };
        let both = self.last.outcome.links.iter().zip(&now.outcome.links);
        for (link, (then, now)) in self.links.iter_mut().zip(both) {
            let (octets, drops, marks) = passed(then, now);
            link.octets.push(octets);
            link.drops.push(drops);
            link.marks.push(marks);
        }
        if is_warm {
            self.at_warmup = now.clone();
        }
        self.last = now;
    }

    fn record(
        mut self,
        view: Option<GuardedView>,
        works: Vec<Work>,
        breaks_control: bool,
    ) -> Record {
        let mut exact = Vec::with_capacity(self.flows.len());
        for (flow, part) in self.flows.iter_mut().zip(&self.plan.entries) {
            flow.connections = self.last.since(&self.at_warmup, part);
            let work = match part {
                Part::There(number) => Some(&works[*number]),
                Part::Flows(_) | Part::Back(_) => None,
            };
            flow.work = work.map(Work::rounded);
            exact.push(work.cloned());
        }
        let outcome = &self.last.outcome;
        let mut digest = Digest::new();
        digest.add(outcome.digest());
        for work in &works {
            [work.due, work.done, work.last.as_nanos()].into_iter().for_each(|n| digest.add(n));
            work.times.iter().for_each(|time| digest.add(time.as_nanos()));
        }
        let (losses_reported, agent_pairs, shaper_drops, control) = match view {
            None => (None, Vec::new(), 0, None),
            Some(GuardedView { losses, pairs, shaper_drops, control, .. }) => {
                (losses, pairs, shaper_drops, breaks_control.then_some(control))
            }
        };
        // Virtual time waits for the machine: it is never too slow.
        let samples = self.flows.first().map_or(0, |flow| flow.octets.len());
        let observed = Observed {
            world: "sim",
            sample: self.width,
            flows: self.flows,
            links: self.links,
            idle: vec![1.0; samples],
            stolen: vec![0.0; samples],
            losses_reported,
            agent_pairs,
            control,
            packet_hops: outcome.packet_hops,
            events: outcome.events,
            ..Observed::default()
        };
        Record { observed, works: exact, shaper_drops, digest: digest.value() }
    }
}
