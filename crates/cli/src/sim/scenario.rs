//! `weir sim FILE`: the simulator as a world beside the lab.
//!
//! Problem   A run in virtual time has no live view worth looking at, but there are many, and they
//!           need not wait for each other.
//! Approach  All runs of a file are played first, as many at a time as there are CPUs; then the
//!           experiment asks for them in its own order, and judges as it judges the lab's.
//! Promises  Results do not depend on how many run at a time. Nothing is played if any point asks for
//!           something that the simulator lacks.
//! Not here  The model: see `weir-sim`.

use super::room::{self, Need};
use crate::args;
use crate::args::quoted;
use crate::commands;
use crate::constants::Constants;
use crate::input;
use crate::live::Live;
use crate::output::errln;
use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use weir_model::results::{About, Run};
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_sim::scenario::{Failure, Record, Setup};
use weir_study::experiment::Screen;
use weir_study::experiment::{self, Played};
use weir_study::judge::{self, Observed};
use weir_study::verdict::Outcome;
use weir_study::world::{Cut, Moment, World};
use weir_units::Span;

/// Steps of the progress bar per run.
const STEPS: f64 = 1000.0;

/// Plays a scenario file, judges, and prints what was found.
///
/// # Errors
/// Bad input, or something that cannot be simulated.
pub(crate) fn play(path: &Path, args: &args::Sim) -> Result<u8> {
    let file = File::load(path, &args.set)?;
    let mut points = file.points()?;
    file.check_presets()?;
    commands::override_mechanisms(&mut points, &args.mechanisms)?;
    let repeats = match args.repeat {
        Some(repeats) => repeats,
        None => file.repeat()?,
    };
    let constants = Constants::new(&args.tuning.constants);
    constants.check(&points)?;
    if let Some(error) = refused(&points, &constants) {
        return Err(anyhow!("{}: {error}", path.display()));
    }
    args.out.as_deref().map_or(Ok(()), input::make_folder)?;
    let about = About { title: file.title().into(), command: command_line(path, args) };
    let stop = commands::stop_flag()?;
    let chance = Chance { seed: args.seed, repeats };
    enough_memory(path, &jobs(&points, &chance, &constants), threads(args.jobs))?;
    let played = play_points(&points, &chance, &constants, threads(args.jobs), about, &stop);
    let outcome = Outcome::of(&played.results.runs, &played.results.verdicts);
    let code = commands::conclude(played, outcome, args.out.as_deref(), args.json)?;
    if commands::nothing_applies(&file, &points) {
        errln!(
            "No verdict: what {} expects of these mechanisms does not apply at any point that was \
             played.",
            path.display()
        );
    }
    Ok(code)
}

/// The records of all runs, and what the greatest take that are played at a time.
fn enough_memory(path: &Path, jobs: &[Job<'_>], threads: usize) -> Result<()> {
    let sizes = jobs.iter().map(|job| weir_sim::scenario::size(job.scenario));
    let mut sizes: Vec<_> = sizes.collect();
    let records: u64 = sizes.iter().map(|size| size.record.get()).sum();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.run.least));
    let running = || sizes.iter().take(threads.max(1)).map(|size| size.run);
    let need = Need {
        least: records + running().map(|run| run.least.get()).sum::<u64>(),
        most: records + running().map(|run| run.most.get()).fold(0, u64::saturating_add),
    };
    room::check(
        path,
        need,
        "lower its numbers of connections, or play fewer runs at a time with --jobs",
    )
}

/// Why the simulator cannot play these points with constants that were checked; nothing if it can.
pub(crate) fn refused(points: &[Scenario], constants: &Constants) -> Option<String> {
    let one = |point: &Scenario| -> Result<()> {
        weir_sim::scenario::check(point)?;
        for mechanism in &point.mechanisms {
            let job = Job { scenario: point, mechanism, seed: 0, constants };
            weir_sim::scenario::check_mechanism(point, mechanism, &setup(&job)?)?;
        }
        Ok(())
    };
    points.iter().find_map(|point| one(point).err()).map(|error| error.to_string())
}

/// How often each point is played, and from which seed on.
pub(crate) struct Chance {
    /// Of the first repeat; the others follow it.
    pub(crate) seed: u64,
    pub(crate) repeats: u32,
}

/// Plays and judges `points`, with constants that were checked, so many runs at a time.
pub(crate) fn play_points(
    points: &[Scenario],
    chance: &Chance,
    constants: &Constants,
    threads: usize,
    about: About,
    stop: &AtomicBool,
) -> Played {
    let jobs = jobs(points, chance, constants);
    let mut done = Done { runs: play_all(&jobs, threads, stop) };
    let go_on = AtomicBool::new(false);
    let mut screen = Brief(Live::new());
    experiment::play(&mut done, points, chance.repeats, about, &mut screen, &go_on)
}

/// One run to be played.
struct Job<'a> {
    scenario: &'a Scenario,
    mechanism: &'a Mechanism,
    seed: u64,
    constants: &'a Constants,
}

/// All runs in the order in which the experiment asks for them.
fn jobs<'a>(points: &'a [Scenario], chance: &Chance, constants: &'a Constants) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for scenario in points {
        for repeat in 0..chance.repeats.max(1) {
            let seed = chance.seed.wrapping_add(repeat.into());
            let job = |mechanism| Job { scenario, mechanism, seed, constants };
            jobs.extend(scenario.mechanisms.iter().map(job));
        }
    }
    jobs
}

/// As many as asked for, else one per CPU.
pub(crate) fn threads(asked: Option<u32>) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or_else(cpus, |n| n as usize)
}

/// One run with the mechanism's own constants, played and judged.
///
/// # Errors
/// It was stopped, or cannot be played.
pub(crate) fn run(
    scenario: &Scenario,
    mechanism: &Mechanism,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Run, Cut> {
    let job = Job { scenario, mechanism, seed, constants: &Constants::new(&[]) };
    let observed = play_one(&job, &ProgressBar::hidden(), stop)?;
    judge::judge(scenario, mechanism, 0, &observed).map_err(|error| Cut::Failed(anyhow!(error)))
}

/// How the progress of many runs looks.
pub(crate) fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {percent} %  {elapsed} of about {duration}")
        .expect("a constant template")
}

/// Plays all, so many at a time.
fn play_all(
    jobs: &[Job<'_>],
    threads: usize,
    stop: &AtomicBool,
) -> VecDeque<Result<Observed, Cut>> {
    let bar = ProgressBar::new(jobs.len() as u64 * STEPS as u64).with_style(bar_style());
    let next = AtomicUsize::new(0);
    let finished = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Observed, Cut>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return };
            let result = play_one(job, &bar, stop);
            let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
            bar.set_message(format!("{done} of {} runs", jobs.len()));
            *results[number].lock().expect("nobody panics with it") = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()).max(1) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let result = |slot: Mutex<Option<_>>| {
        slot.into_inner().expect("nobody panics with it").unwrap_or(Err(Cut::Stopped))
    };
    results.into_iter().map(result).collect()
}

#[expect(clippy::disallowed_methods, reason = "a driver: it says how long a run took")]
fn play_one(job: &Job<'_>, bar: &ProgressBar, stop: &AtomicBool) -> Result<Observed, Cut> {
    let begin = Instant::now();
    let mut setup = setup(job).map_err(Cut::Failed)?;
    if job.mechanism.reserves() {
        setup.reserve = judge::reservations(job.scenario);
    }
    let mut shown = 0;
    let mut watch = |part: f64| {
        let steps = (part * STEPS) as u64;
        bar.inc(steps.saturating_sub(shown));
        shown = steps;
    };
    match weir_sim::scenario::play(job.scenario, job.mechanism, &setup, &mut watch, stop) {
        Ok(record) => Ok(observed(record, begin.elapsed().into())),
        Err(Failure::Stopped) => Err(Cut::Stopped),
        Err(error) => Err(Cut::Failed(error.into())),
    }
}

/// What is drawn and what is set; reservations apart.
fn setup(job: &Job<'_>) -> Result<Setup> {
    Ok(Setup {
        journal: None,
        seed: job.seed,
        draft: job.constants.draft(job.scenario, job.mechanism)?,
        reserve: Vec::new(),
    })
}

fn observed(record: Record, wall: Span) -> Observed {
    let drops = record.shaper_drops;
    let note = format!("digest {:016x}; {drops} packets found no room in a shaper", record.digest);
    Observed { user_cpu: wall, wall, notes: vec![note], ..record.observed }
}

/// Runs that have been played, in the order in which they are asked for.
struct Done {
    runs: VecDeque<Result<Observed, Cut>>,
}

impl World for Done {
    fn play(
        &mut self,
        _: &Scenario,
        _: &Mechanism,
        _: &mut dyn FnMut(&Moment),
        _: &AtomicBool,
    ) -> Result<Observed, Cut> {
        self.runs.pop_front().unwrap_or(Err(Cut::Stopped))
    }
}

/// One line per run, when it is judged.
struct Brief(Live);

impl Screen for Brief {
    fn begin(&mut self, _: &str, _: &Scenario, _: &Mechanism) {}
    fn show(&mut self, _: &Moment) {}
    fn end(&mut self) {}
    fn judged(&mut self, title: &str, run: &Run) {
        self.0.judged(title, run);
    }
}

/// What to type to play this again.
fn command_line(path: &Path, args: &args::Sim) -> String {
    let mut words = vec!["weir sim".into(), quoted(&path.display().to_string())];
    words.extend(args.mechanisms.iter().map(|m| format!("--mechanism {}", quoted(m))));
    words.extend(args.set.iter().map(|(k, v)| format!("--set {}", quoted(&format!("{k}={v}")))));
    words.extend(Constants::new(&args.tuning.constants).words());
    if args.seed != 1 {
        words.push(format!("--seed {}", args.seed));
    }
    words.extend(args.repeat.map(|n| format!("--repeat {n}")));
    words.extend(args.out.as_ref().map(|d| format!("--out {}", quoted(&d.display().to_string()))));
    words.join(" ")
}
