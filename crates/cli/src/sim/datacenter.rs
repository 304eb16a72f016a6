//! `weir sim FILE` for a datacenter of tenants, which is computed without packets.
//!
//! Problem   A row of QShare is a datacenter at several points with several seeds, each of them seconds.
//! Approach  Runs are played side by side, one per CPU, and become results like those of any world.
//! Promises  Results do not depend on how many run at a time, but for the times that they tell.
//! Not here  What is computed: see `weir_flow::tenants`.

use super::scenario::{Chance, bar_style, threads};
use crate::args;
use crate::args::quoted;
use crate::commands;
use crate::input;
use anyhow::{Result, bail};
use indicatif::ProgressBar;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use weir_flow::tenants::{Watch, play as play_tenants};
use weir_model::results::{About, Perf, Results, Run};
use weir_model::scenario::{Datacenter, DatacenterFile};
use weir_study::experiment::Played;
use weir_study::verdict::Outcome;
use weir_study::world::Cut;
use weir_units::{Span, Time};

/// What hosts do to the tenants of the shared queue: they hold them to their floors.
pub(crate) const MECHANISM: &str = "reservation";
/// Steps of the progress bar per run.
const STEPS: f64 = 1000.0;

/// Plays a file of the kind `Datacenter`, and prints what was found. Nothing is expected of it here.
///
/// # Errors
/// Bad input, or something that cannot be written.
pub(crate) fn play(path: &Path, args: &args::Sim) -> Result<u8> {
    if !args.mechanisms.is_empty() || !args.tuning.constants.is_empty() {
        bail!("{}: a datacenter has neither --mechanism nor --constant", path.display());
    }
    let file = DatacenterFile::load(path, &args.set)?;
    args.out.as_deref().map_or(Ok(()), input::make_folder)?;
    let stop = commands::stop_flag()?;
    let chance = Chance { seed: args.seed, repeats: args.repeat.unwrap_or(1) };
    let about = About { title: file.title().into(), command: command_line(path, args) };
    let played = play_points(file.points(), &chance, threads(args.jobs), about, &stop);
    let outcome = Outcome::of(&played.results.runs, &played.results.verdicts);
    commands::conclude(played, outcome, args.out.as_deref(), args.json)
}

/// Plays `points`, so many runs at a time.
pub(crate) fn play_points(
    points: &[Datacenter],
    chance: &Chance,
    threads: usize,
    about: About,
    stop: &AtomicBool,
) -> Played {
    let repeats = chance.repeats.max(1);
    let jobs: Vec<(&Datacenter, u32)> =
        points.iter().flat_map(|point| (0..repeats).map(move |repeat| (point, repeat))).collect();
    let bar = ProgressBar::new(jobs.len() as u64 * STEPS as u64).with_style(bar_style());
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let slots: Vec<Mutex<Option<Run>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((of, repeat)) = jobs.get(number) else { return };
            let seed = chance.seed.wrapping_add(u64::from(*repeat));
            let run = one(of, *repeat, seed, &about.title, &bar, stop);
            let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
            bar.set_message(format!("{done} of {} runs", jobs.len()));
            *slots[number].lock().expect("no thread panics with it") = run;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()).max(1) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let of = |slot: Mutex<Option<Run>>| slot.into_inner().expect("no thread panics with it");
    let runs: Vec<Run> = slots.into_iter().filter_map(of).collect();
    let cut = (runs.len() < jobs.len()).then_some(Cut::Stopped);
    Played { results: Results { runs, verdicts: Vec::new(), about }, cut }
}

/// One run; nothing if it was stopped.
fn one(
    of: &Datacenter,
    repeat: u32,
    seed: u64,
    title: &str,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> Option<Run> {
    let mut clock = Clock::new(bar, stop);
    let summary = play_tenants(of, seed, &mut clock)?;
    let wall_s = clock.now().since(Time::ZERO).as_secs_f64();
    Some(Run {
        scenario: title.into(),
        world: "flow".into(),
        mechanism: MECHANISM.into(),
        translation: "none".into(),
        seed,
        repeat,
        point: of.point.iter().cloned().collect(),
        valid: true,
        summary,
        perf: Perf { wall_s, worst_idle: 1.0, ..Perf::default() },
        ..Run::default()
    })
}

/// The machine's clock, the bar, and the user's wish to stop.
struct Clock<'a> {
    begin: Instant,
    bar: &'a ProgressBar,
    stop: &'a AtomicBool,
    shown: u64,
}

impl<'a> Clock<'a> {
    #[expect(clippy::disallowed_methods, reason = "a driver: it says how long a placement took")]
    fn new(bar: &'a ProgressBar, stop: &'a AtomicBool) -> Self {
        Self { begin: Instant::now(), bar, stop, shown: 0 }
    }
}

impl Watch for Clock<'_> {
    fn now(&mut self) -> Time {
        Time::ZERO + Span::from(self.begin.elapsed())
    }

    fn goes_on(&mut self, part: f64) -> bool {
        let steps = (part * STEPS) as u64;
        self.bar.inc(steps.saturating_sub(self.shown));
        self.shown = self.shown.max(steps);
        !self.stop.load(Ordering::Relaxed)
    }
}

/// What to type to play this again.
fn command_line(path: &Path, args: &args::Sim) -> String {
    let mut words = vec!["weir sim".into(), quoted(&path.display().to_string())];
    words.extend(args.set.iter().map(|(k, v)| format!("--set {}", quoted(&format!("{k}={v}")))));
    if args.seed != 1 {
        words.push(format!("--seed {}", args.seed));
    }
    words.extend(args.repeat.map(|n| format!("--repeat {n}")));
    words.extend(args.out.as_ref().map(|d| format!("--out {}", quoted(&d.display().to_string()))));
    words.join(" ")
}
