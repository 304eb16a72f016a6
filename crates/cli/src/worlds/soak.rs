//! `weir worlds --soak`: random worlds whose traffic and VMs come and go for hours.

use super::{BROKEN, soak_lab};
use crate::args;
use crate::commands;
use crate::input;
use crate::output::{errln, out};
use crate::sim::scenario;
use anyhow::{Context as _, Result, anyhow};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use weir_model::scenario::{Mechanism, Scenario};
use weir_study::table::Grid;
use weir_study::verdict::Outcome;
use weir_swarm::{SoakReport, World, soak};
use weir_units::Span;

/// Share of the windows that have to hold.
const HELD: f64 = 0.999;
/// Resident memory may grow by so much from a tenth of a world on, plus [`SLACK_KB`].
const GROWTH: f64 = 1.05;
const SLACK_KB: u64 = 4096;
/// Windows that fell short that are listed per world.
const LISTED: usize = 10;

/// A window that is short.
#[derive(Debug, Serialize)]
pub(super) struct Missed {
    pub(super) second: u64,
    /// VM and direction.
    pub(super) of: String,
    /// What it had of what it was owed.
    pub(super) part: f64,
    /// Whether this machine was too busy.
    pub(super) disturbed: bool,
    /// Why, where it was looked for.
    pub(super) cause: Option<String>,
}

/// One world.
#[derive(Serialize)]
pub(super) struct Soaked {
    pub(super) seed: u64,
    /// `sim` or `lab`.
    pub(super) world: &'static str,
    /// Seconds that were played, of virtual time in the simulator.
    pub(super) seconds: u64,
    pub(super) windows: u64,
    pub(super) held: f64,
    pub(super) held_at_once: f64,
    pub(super) learning: u64,
    /// Of these: in which second after the change, why, how many.
    pub(super) learning_by_cause: Vec<(usize, String, u64)>,
    /// Windows in seconds in which this machine was too busy for a lab; they count in all numbers.
    pub(super) disturbed: u64,
    pub(super) short: Vec<Missed>,
    /// Resident memory after a tenth of the world and at its end, kB: of this process, or of all
    /// agents of a lab.
    pub(super) memory_kb: (u64, u64),
    /// The same of each agent of a lab, in the order of the hosts.
    pub(super) agents_kb: Vec<(u64, u64)>,
    pub(super) wall_s: f64,
    /// Why the run decides nothing; empty if it does.
    pub(super) invalid: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Plays them, as many at a time as asked for.
///
/// # Errors
/// Bad input, or a lab that cannot play them.
pub(super) fn run(args: &args::Worlds, length: Span) -> Result<u8> {
    let label = args.mechanisms.first().map_or("elasticswitch:steady", String::as_str);
    let mechanism = Mechanism::parse(label)
        .map_err(|(wrong, right)| anyhow!("--mechanism: {wrong}; {right}"))?;
    args.out.as_deref().map_or(Ok(()), input::make_folder)?;
    let (first, count) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let seeds = first..first.saturating_add(count);
    let scenario = |seed| -> Result<(u64, Scenario)> {
        Ok((seed, World::churning(seed, length).scenario_with(&args.set)?))
    };
    let all: Vec<(u64, Scenario)> = seeds.map(scenario).collect::<Result<_>>()?;
    let worlds = if args.lab {
        soak_lab::play_all(all, &mechanism)?
    } else {
        play_all(args.jobs, &all, &mechanism)?
    };
    if let Some(out) = &args.out {
        keep(out, &worlds, length)?;
    }
    if args.json {
        crate::output::json(&worlds)?;
    } else {
        out!("{}", text(&worlds))?;
    }
    let seconds = length.div_span(Span::from_secs(1));
    let is_cut = (worlds.len() as u64) < count || worlds.iter().any(|w| w.seconds < seconds);
    Ok(match (worlds.iter().any(|world| !world.invalid.is_empty()), holds(&worlds)) {
        (true, _) => Outcome::Invalid.code(),
        (false, false) => BROKEN,
        (false, true) if is_cut => commands::INTERRUPTED,
        (false, true) => 0,
    })
}

/// Writes what was found, and what plays it again.
fn keep(out: &Path, worlds: &[Soaked], length: Span) -> Result<()> {
    let json = serde_json::to_string(worlds)?;
    let mut files = vec![("soak.json".into(), json), ("table.txt".to_owned(), text(worlds))];
    let file = |world: &Soaked| {
        let name = format!("world-{}.yaml", world.seed);
        (name, World::churning(world.seed, length).text().to_owned())
    };
    files.extend(worlds.iter().map(file));
    for (name, text) in files {
        let path = out.join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    errln!("written to {}", out.display());
    Ok(())
}

/// In the simulator.
#[expect(clippy::disallowed_methods, reason = "a driver: it says how long a world took")]
fn play_all(
    jobs: Option<u32>,
    all: &[(u64, Scenario)],
    mechanism: &Mechanism,
) -> Result<Vec<Soaked>> {
    let stop = commands::stop_flag()?;
    let seconds = |scenario: &Scenario| scenario.duration.div_span(Span::from_secs(1));
    let sum = all.iter().map(|(_, scenario)| seconds(scenario)).sum();
    let bar = ProgressBar::new(sum).with_style(scenario::bar_style());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Result<Soaked, String>>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some((seed, scenario)) = all.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let (begin, mut early) = (Instant::now(), 0);
            let mut each = |second: u64| {
                bar.inc(1);
                if second == seconds(scenario) / 10 {
                    early = resident_kb();
                }
            };
            let report = soak(*seed, scenario, mechanism, &stop, &mut each);
            let soaked = report.map(|report| Soaked {
                memory_kb: (early, resident_kb()),
                wall_s: begin.elapsed().as_secs_f64(),
                ..of(report, "sim")
            });
            done.lock().expect("nobody panics with it").push(soaked);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..scenario::threads(jobs).min(all.len()) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let worlds = done.into_inner().expect("nobody panics with it");
    let mut worlds: Vec<Soaked> =
        worlds.into_iter().collect::<Result<_, String>>().map_err(|error| anyhow!(error))?;
    worlds.sort_by_key(|world| world.seed);
    Ok(worlds)
}

/// All but memory and wall-clock time.
pub(super) fn of(report: SoakReport, world: &'static str) -> Soaked {
    let (held, held_at_once) = (report.held(), report.held_at_once());
    let short = report.short.into_iter().map(|short| Missed {
        second: short.second,
        of: short.of,
        part: short.part,
        disturbed: short.disturbed,
        cause: short.cause.map(|cause| cause.to_string()),
    });
    let learning = report.learning_by_cause.into_iter();
    let learning = learning.map(|((second, cause), n)| (second, cause.to_string(), n));
    Soaked {
        seed: report.seed,
        world,
        seconds: report.seconds,
        windows: report.windows,
        held,
        held_at_once,
        learning: report.learning,
        learning_by_cause: learning.collect(),
        disturbed: report.disturbed,
        short: short.collect(),
        memory_kb: (0, 0),
        agents_kb: Vec::new(),
        wall_s: 0.0,
        invalid: Vec::new(),
        notes: Vec::new(),
    }
}

/// Whether so many windows of all worlds hold as have to, and no memory grew.
fn holds(worlds: &[Soaked]) -> bool {
    let windows: u64 = worlds.iter().map(|world| world.windows).sum();
    let below: u64 = worlds.iter().map(|world| world.short.len() as u64).sum();
    let grew = |(early, late): &(u64, u64)| {
        *early > 0 && *late as f64 > *early as f64 * GROWTH + SLACK_KB as f64
    };
    let grew = |world: &Soaked| grew(&world.memory_kb) || world.agents_kb.iter().any(grew);
    below as f64 <= windows as f64 * (1.0 - HELD) && !worlds.iter().any(grew)
}

/// Resident memory of this process, kB; 0 where the kernel does not say.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

fn text(worlds: &[Soaked]) -> String {
    let header = [
        "world",
        "hours",
        "windows",
        "held",
        "at once",
        "learning",
        "short",
        "disturbed",
        "MB early",
        "MB at the end",
        "wall s",
    ];
    let mut grid = Grid::new(&header, 1);
    let mb = |kb: u64| format!("{:.1}", kb as f64 / 1024.0);
    for world in worlds {
        grid.rows.push(vec![
            world.seed.to_string(),
            format!("{:.2}", world.seconds as f64 / 3600.0),
            world.windows.to_string(),
            format!("{:.5}", world.held),
            format!("{:.5}", world.held_at_once),
            world.learning.to_string(),
            world.short.len().to_string(),
            world.disturbed.to_string(),
            mb(world.memory_kb.0),
            mb(world.memory_kb.1),
            format!("{:.0}", world.wall_s),
        ]);
    }
    let mut text = format!("{}\n", grid.table());
    for world in worlds {
        for Missed { second, of, part, disturbed, cause } in world.short.iter().take(LISTED) {
            let busy = if *disturbed { "; this machine was too busy then" } else { "" };
            let why = cause.as_ref().map_or(String::new(), |cause| format!(": {cause}"));
            text += &format!(
                "world {}, second {second}: {of} had {part:.3} of what it is owed{why}{busy}\n",
                world.seed
            );
        }
        if world.short.len() > LISTED {
            text += &format!("world {}: {} more\n", world.seed, world.short.len() - LISTED);
        }
        text += &of_lab(world);
    }
    text + &causes(worlds)
}

/// How many windows of all worlds were short, and how many learned, by cause.
fn causes(worlds: &[Soaked]) -> String {
    let mut causes: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for cause in worlds.iter().flat_map(|world| &world.short).filter_map(|s| s.cause.as_deref()) {
        causes.entry(cause).or_default()[0] += 1;
    }
    for (second, cause, n) in worlds.iter().flat_map(|world| &world.learning_by_cause) {
        causes.entry(cause).or_default()[1 + (*second).min(1)] += n;
    }
    if causes.is_empty() {
        return String::new();
    }
    let header = ["why", "short", "learning, first second", "second second"];
    let mut grid = Grid::new(&header, 1);
    for (cause, counts) in causes {
        let counts = counts.iter().map(u64::to_string);
        grid.rows.push(std::iter::once(cause.to_owned()).chain(counts).collect());
    }
    format!("{}\n", grid.table())
}

/// What only a lab has to say.
fn of_lab(world: &Soaked) -> String {
    let mut text = String::new();
    if world.disturbed > 0 {
        let short = world.short.iter().filter(|short| short.disturbed).count();
        text += &format!(
            "world {}: in the seconds of {} windows this machine was too busy; {short} of the {} short \
             ones are among these\n",
            world.seed,
            world.disturbed,
            world.short.len()
        );
    }
    if !world.agents_kb.is_empty() {
        let mb = |kb: u64| kb as f64 / 1024.0;
        let agents = world.agents_kb.iter();
        let agents = agents.map(|(early, late)| format!("{:.1} to {:.1}", mb(*early), mb(*late)));
        let agents: Vec<String> = agents.collect();
        text += &format!(
            "world {}: MB of each agent, after a tenth to the end: {}\n",
            world.seed,
            agents.join(", ")
        );
    }
    for note in &world.notes {
        text += &format!("world {}: note: {note}\n", world.seed);
    }
    for reason in &world.invalid {
        text += &format!("world {}: decides nothing: {reason}\n", world.seed);
    }
    text
}
