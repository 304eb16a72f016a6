//! `weir swarm`: scenarios drawn from seeds, played in the simulator, held against every promise.

use crate::args::{self, quoted};
use crate::commands;
use crate::output::outln;
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::atomic::Ordering;
use weir_swarm::{Draft, Exempt, Judged, Report, Tally};

/// A promise was broken.
const BROKEN: u8 = 1;

/// Plays seeds, or one of them, or writes its scenario.
///
/// # Errors
/// A file cannot be written, or the kernel refuses handlers of signals.
pub(crate) fn swarm(args: &args::Swarm) -> Result<u8> {
    if let (Some(seed), Some(path)) = (args.seed, &args.write) {
        return write(seed, path);
    }
    let stop = commands::stop_flag()?;
    let (first, count) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let bar = ProgressBar::new(count).with_style(
        ProgressStyle::with_template(
            "{msg} {wide_bar} {pos} of {len}  {elapsed} of about {duration}",
        )
        .expect("a constant template"),
    );
    bar.tick();
    let mut broken = 0u64;
    let mut each = |report: &Report| {
        bar.inc(1);
        if !report.holds() {
            broken += 1;
            bar.set_message(format!("{broken} broken"));
            // A reader that is gone is no reason to stop.
            drop(bar.suspend(|| outln!("{}", said(report))));
        }
    };
    let last = first.saturating_add(count - 1);
    let threads = crate::sim::scenario::threads(args.jobs);
    let tally = weir_swarm::play_all(first..=last, threads, &stop, &mut each);
    bar.finish_and_clear();
    outln!("{}", summary(&tally))?;
    let holds = tally.broken.is_empty() && !tally.exempts_too_many();
    Ok(match (holds, stop.load(Ordering::Relaxed)) {
        (false, _) => BROKEN,
        (true, true) => commands::INTERRUPTED,
        (true, false) => 0,
    })
}

fn write(seed: u64, path: &Path) -> Result<u8> {
    std::fs::write(path, Draft::new(seed).text())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    let path = quoted(&path.display().to_string());
    outln!("weir sim {path} --seed {seed}")?;
    Ok(0)
}

/// A seed with all that it breaks, and what plays it again.
fn said(report: &Report) -> String {
    let seed = report.seed;
    let breaches = report.breaches.iter().map(|breach| format!("  {breach}\n"));
    format!(
        "seed {seed} breaks a promise:\n{}  again: weir swarm --seed {seed}\n  \
         as a file: weir swarm --seed {seed} --write swarm-{seed}.yaml",
        breaches.collect::<String>()
    )
}

fn summary(tally: &Tally) -> String {
    let Judged { count, worst, exempt } = &tally.floors;
    let worst = worst.map_or(String::new(), |worst| format!(", the worst got {worst:.3}"));
    let reasons: Vec<String> =
        exempt.iter().map(|(why, count)| format!("{count} {}", reason(*why))).collect();
    let all = count + tally.floors.exempted();
    let part = 100.0 * tally.floors.exempted() as f64 / all.max(1) as f64;
    let too_many = if tally.exempts_too_many() { ", which is more than 2 %" } else { "" };
    format!(
        "{} seeds, {} with a broken promise; {} looks, {:.0} million packet-hops\n\
         {all} backlogged directions of VMs, {count} judged{worst}; {part:.1} % exempt{too_many} ({})",
        tally.played,
        tally.broken.len(),
        tally.looks,
        tally.packet_hops as f64 / 1e6,
        if reasons.is_empty() { "none".into() } else { reasons.join(", ") },
    )
}

fn reason(why: Exempt) -> &'static str {
    match why {
        Exempt::Overbooked => "on overbooked hosts",
        Exempt::Crowded => "on crowded ways",
        Exempt::Narrow => "in narrow hoses",
        Exempt::Pausing => "whose TCP paused",
        Exempt::Unused => "with TCP that left a floor in force unused",
    }
}
