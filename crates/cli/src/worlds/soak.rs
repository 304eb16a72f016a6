//! `weir worlds --soak`: random worlds whose traffic and VMs come and go for hours.

use super::BROKEN;
use crate::args;
use crate::commands;
use crate::output::out;
use crate::sim::scenario;
use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use weir_model::scenario::Mechanism;
use weir_study::table::Grid;
use weir_swarm::{SoakReport, soak};
use weir_units::Span;

/// Share of the windows that have to hold.
const HELD: f64 = 0.999;
/// Resident memory may grow by so much from a tenth of a world on, plus [`SLACK_KB`].
const GROWTH: f64 = 1.05;
const SLACK_KB: u64 = 4096;
/// Windows that fell short that are listed per world.
const LISTED: usize = 10;

/// One world.
#[derive(Serialize)]
struct Soaked {
    seed: u64,
    /// Seconds of virtual time.
    seconds: u64,
    windows: u64,
    held: f64,
    held_at_once: f64,
    learning: u64,
    short: Vec<(u64, String, f64)>,
    /// Resident memory of the process after a tenth of the world and at its end, kB.
    memory_kb: (u64, u64),
    wall_s: f64,
}

/// Plays them, as many at a time as asked for.
///
/// # Errors
/// Bad input.
#[expect(clippy::disallowed_methods, reason = "a driver: it says how long a world took")]
pub(super) fn run(args: &args::Worlds, length: Span) -> Result<u8> {
    let label = args.mechanisms.first().map_or("elasticswitch:steady", String::as_str);
    let mechanism = Mechanism::parse(label)
        .map_err(|(wrong, right)| anyhow!("--mechanism: {wrong}; {right}"))?;
    let (first, count) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let stop = commands::stop_flag()?;
    let seconds = length.div_span(Span::from_secs(1));
    let bar = ProgressBar::new(count * seconds).with_style(scenario::bar_style());
    let (next, last) = (AtomicU64::new(first), first + count);
    let done: Mutex<Vec<Result<Soaked, String>>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last || stop.load(Ordering::Relaxed) {
                return;
            }
            let (begin, mut early) = (Instant::now(), 0);
            let mut each = |second: u64| {
                bar.inc(1);
                if second == seconds / 10 {
                    early = resident_kb();
                }
            };
            let report = soak(seed, length, &mechanism, &stop, &mut each);
            let wall_s = begin.elapsed().as_secs_f64();
            let soaked = report.map(|report| of(report, (early, resident_kb()), wall_s));
            done.lock().expect("nobody panics with it").push(soaked);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..scenario::threads(args.jobs).min(count as usize) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let worlds = done.into_inner().expect("nobody panics with it");
    let mut worlds: Vec<Soaked> =
        worlds.into_iter().collect::<Result<_, String>>().map_err(|error| anyhow!(error))?;
    worlds.sort_by_key(|world| world.seed);
    if args.json {
        crate::output::json(&worlds)?;
    } else {
        out!("{}", text(&worlds))?;
    }
    Ok(match (holds(&worlds), worlds.iter().any(|world| world.seconds < seconds)) {
        (false, _) => BROKEN,
        (true, true) => commands::INTERRUPTED,
        (true, false) => 0,
    })
}

fn of(report: SoakReport, memory_kb: (u64, u64), wall_s: f64) -> Soaked {
    let (held, held_at_once) = (report.held(), report.held_at_once());
    let short = report.short.into_iter().map(|short| (short.second, short.of, short.part));
    Soaked {
        seed: report.seed,
        seconds: report.seconds,
        windows: report.windows,
        held,
        held_at_once,
        learning: report.learning,
        short: short.collect(),
        memory_kb,
        wall_s,
    }
}

/// Whether so many windows of all worlds hold as have to, and no world's memory grew.
fn holds(worlds: &[Soaked]) -> bool {
    let windows: u64 = worlds.iter().map(|world| world.windows).sum();
    let below: u64 = worlds.iter().map(|world| world.short.len() as u64).sum();
    let grew = |world: &Soaked| {
        let (early, late) = world.memory_kb;
        early > 0 && late as f64 > early as f64 * GROWTH + SLACK_KB as f64
    };
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
            mb(world.memory_kb.0),
            mb(world.memory_kb.1),
            format!("{:.0}", world.wall_s),
        ]);
    }
    let mut text = format!("{}\n", grid.table());
    for world in worlds {
        for (second, of, part) in world.short.iter().take(LISTED) {
            text += &format!(
                "world {}, second {second}: {of} had {part:.3} of what it is owed\n",
                world.seed
            );
        }
        if world.short.len() > LISTED {
            text += &format!("world {}: {} more\n", world.seed, world.short.len() - LISTED);
        }
    }
    text
}
