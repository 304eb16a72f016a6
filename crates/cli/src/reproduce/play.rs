//! Plays the parts of figures, and keeps what was found.
//!
//! Problem   A figure's parts take minutes to hours; two figures may need the same runs; a user
//!           who stops must not lose what was done.
//! Approach  Everything is resolved first, so that a mistake in the last file is found before the
//!           first run. Each part is written as soon as it is judged. A part that was played for
//!           another figure with the same settings is referred to, not played again.
//! Promises  What a world refuses is kept as "not played" with its reason, never as a result.

use crate::args::quoted;
use crate::commands;
use crate::constants::Constants;
use crate::lab::Lab;
use crate::live::Live;
use crate::output::errln;
use crate::sim::datacenter;
use crate::sim::scenario::{self as sim, Chance};
use anyhow::{Context as _, Result, bail};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_model::results::{About, Results};
use weir_model::scenario::{Datacenter, DatacenterFile, File, Scenario, is_datacenter};
use weir_study::experiment::{self, Played};
use weir_study::reproduce::World;
use weir_study::reproduce::figure::{Figure, How, Part};
use weir_study::reproduce::kept::{Kept, KeptPart, PLAYED};
use weir_study::world::Cut;
use weir_study::{report, table};

/// Repeats where a figure says nothing: seeds in the simulator, plays in the lab.
const SEEDS: u32 = 5;
const PLAYS: u32 = 3;
/// Of the first repeat.
const SEED: u64 = 1;

/// What was asked for.
pub(crate) struct Asked {
    pub(crate) world: World,
    pub(crate) quick: bool,
    pub(crate) jobs: Option<u32>,
    pub(crate) out: PathBuf,
}

/// A part that is ready to be played, or why it is not.
pub(crate) struct Ready {
    pub(crate) name: String,
    title: String,
    points: Points,
    repeats: u32,
    constants: Constants,
    /// Plays this part alone.
    command: String,
    pub(crate) not: Option<String>,
}

/// What is played.
enum Points {
    /// Packet by packet.
    Scenarios(Vec<Scenario>),
    /// Tenant by tenant.
    Datacenters(Vec<Datacenter>),
}

impl Points {
    fn scenarios(&self) -> &[Scenario] {
        match self {
            Self::Scenarios(points) => points,
            Self::Datacenters(_) => &[],
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Scenarios(points) => points.len(),
            Self::Datacenters(points) => points.len(),
        }
    }
}

#[cfg(test)]
impl Ready {
    /// How many hosts each point has.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = usize> {
        self.points.scenarios().iter().map(|point| point.topology.hosts.len())
    }
}

/// Reads the scenarios of a figure as `asked` will play them.
///
/// # Errors
/// The first mistake in any file.
pub(crate) fn ready(figure: &Figure, asked: &Asked) -> Result<Vec<Ready>> {
    let parts = figure.spec.play.iter().map(|part| one(figure, part, asked));
    let ready = parts.collect::<Result<Vec<_>>>()?;
    let scenarios: Vec<Scenario> =
        ready.iter().flat_map(|ready| ready.points.scenarios()).cloned().collect();
    if !ready.is_empty() {
        figure.check_groups(&scenarios)?;
    }
    Ok(ready)
}

fn one(figure: &Figure, part: &Part, asked: &Asked) -> Result<Ready> {
    let how = match asked.world {
        World::Sim => &part.sim,
        World::Lab => &part.lab,
    };
    let named = part.named(how);
    let path = figure.scenario(named);
    if !path.is_file() {
        let message = format!("there is no file {}", path.display());
        let help = "paths are relative to the figure's file";
        let field = format!("spec.play.{}.scenario", part.name.value);
        return Err(figure.wrong(&field, named, message, help).into());
    }
    let sets = sets(how, part, asked.quick);
    let repeats = match (asked.quick, asked.world) {
        (true, _) => 1,
        (false, World::Sim) => how.repeat.unwrap_or(SEEDS),
        (false, World::Lab) => how.repeat.unwrap_or(PLAYS),
    };
    if is_datacenter(&path) {
        return datacenter(figure, part, how, (&path, &sets, repeats), asked.world);
    }
    let file = File::load(&path, &sets)
        .with_context(|| format!("{}: part `{}`", figure.file.display(), part.name.value))?;
    file.check_presets()?;
    let mut points = file.points().with_context(|| figure.file.display().to_string())?;
    let mechanisms: Vec<String> = part.mechanisms.iter().map(|m| m.value.clone()).collect();
    commands::override_mechanisms(&mut points, &mechanisms)?;
    let constants = Constants::new(&pairs(&part.constants));
    constants.check(&points).with_context(|| figure.file.display().to_string())?;
    let not = how.not.clone().or_else(|| match asked.world {
        World::Sim => sim::refused(&points, &constants),
        World::Lab => constants.check_hosts(&points).err().map(|error| format!("{error:#}")),
    });
    let command = command(&path, asked.world, &mechanisms, &sets, &constants, repeats);
    let title = file.title().into();
    let points = Points::Scenarios(points);
    Ok(Ready { name: part.name.value.clone(), title, points, repeats, constants, command, not })
}

/// A part that is computed without packets: the same in both worlds, so only the simulator's plays it.
fn datacenter(
    figure: &Figure,
    part: &Part,
    how: &How,
    (path, sets, repeats): (&Path, &[(String, String)], u32),
    world: World,
) -> Result<Ready> {
    let needless = part.mechanisms.iter().chain(&part.constants).next();
    if let Some(word) = needless {
        let message = "is for a scenario, and this part plays a datacenter of tenants";
        return Err(figure.wrong("spec.play", word, message, "leave it out").into());
    }
    let file = DatacenterFile::load(path, sets)
        .with_context(|| format!("{}: part `{}`", figure.file.display(), part.name.value))?;
    let constants = Constants::new(&[]);
    let lab = || "it is computed without packets: --world sim plays it".to_owned();
    Ok(Ready {
        name: part.name.value.clone(),
        title: file.title().into(),
        points: Points::Datacenters(file.points().to_vec()),
        repeats,
        command: command(path, World::Sim, &[], sets, &constants, repeats),
        constants,
        not: how.not.clone().or_else(|| (world == World::Lab).then(lab)),
    })
}

/// The world's `set`, then that of `quick`.
fn sets(how: &How, part: &Part, quick: bool) -> Vec<(String, String)> {
    let mut sets = pairs(&how.set);
    if quick {
        sets.extend(pairs(&part.quick.set));
    }
    sets
}

/// The figure's file was checked: all have a `=`.
fn pairs(texts: &[Spanned<String>]) -> Vec<(String, String)> {
    let pair = |text: &Spanned<String>| {
        let (key, value) = text.value.split_once('=')?;
        Some((key.trim().to_string(), value.trim().to_string()))
    };
    texts.iter().filter_map(pair).collect()
}

fn command(
    path: &Path,
    world: World,
    mechanisms: &[String],
    sets: &[(String, String)],
    constants: &Constants,
    repeats: u32,
) -> String {
    let mut words = vec![format!("weir {} {}", world.word(), quoted(&path.display().to_string()))];
    words.extend(mechanisms.iter().map(|m| format!("--mechanism {}", quoted(m))));
    words.extend(sets.iter().map(|(k, v)| format!("--set {}", quoted(&format!("{k}={v}")))));
    words.extend(constants.words());
    words.push(format!("--repeat {repeats}"));
    words.join(" ")
}

/// What was played in this call, so that nothing is played twice: folders by commands.
#[derive(Default)]
pub(crate) struct Before(BTreeMap<String, String>);

/// Plays what is ready of a figure and writes it below `asked.out`. Returns whether the user
/// stopped it.
///
/// # Errors
/// Something cannot be written.
pub(crate) fn play(
    figure: &Figure,
    order: usize,
    ready: Vec<Ready>,
    asked: &Asked,
    before: &mut Before,
    stop: &AtomicBool,
) -> Result<bool> {
    let folder = asked.out.join(figure.id());
    // What an earlier call left here is not part of this one.
    if folder.join(PLAYED).is_file() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    } else if folder.exists() {
        bail!(
            "{} is there, and no figure was played into it: name another --out",
            folder.display()
        );
    }
    let mut kept = Kept {
        order,
        world: asked.world,
        quick: asked.quick,
        command: again(figure, asked),
        stopped: false,
        parts: Vec::new(),
    };
    kept.write(figure, &folder)?;
    for part in ready {
        let mut entry = KeptPart {
            name: part.name.clone(),
            command: part.command.clone(),
            scale: part.points.scenarios().first().map_or(1.0, |point| point.scale),
            ..KeptPart::default()
        };
        match (&part.not, before.0.get(&part.command)) {
            (Some(reason), _) => {
                errln!("{} {}: not played: {reason}", figure.id(), part.name);
                entry.not_played = Some(reason.clone());
            }
            (None, Some(folder)) => entry.results = Some(format!("../{folder}")),
            (None, None) => {
                let cut = run(figure, part, asked, &mut entry, stop)?;
                kept.stopped = matches!(cut, Some(Cut::Stopped));
                entry.cut = match cut {
                    Some(Cut::Failed(error)) => Some(format!("{error:#}")),
                    Some(Cut::Broke(failure)) => {
                        Some(format!("the last run {}", weir_study::judge::failed(&failure)))
                    }
                    Some(Cut::Stopped) => Some("stopped".into()),
                    None => None,
                };
                if entry.cut.is_none() {
                    let at = format!("{}/{}", figure.id(), entry.name);
                    before.0.insert(entry.command.clone(), at);
                }
            }
        }
        kept.parts.push(entry);
        kept.write(figure, &folder)?;
        if kept.stopped {
            break;
        }
    }
    Ok(kept.stopped || stop.load(Ordering::Relaxed))
}

#[expect(clippy::disallowed_methods, reason = "a driver: it says how long a part took")]
fn run(
    figure: &Figure,
    part: Ready,
    asked: &Asked,
    entry: &mut KeptPart,
    stop: &AtomicBool,
) -> Result<Option<Cut>> {
    let mechanisms = part.points.scenarios().first().map_or(1, |point| point.mechanisms.len());
    errln!(
        "{} {}: {} points, {mechanisms} mechanisms, {} × each",
        figure.id(),
        part.name,
        part.points.len(),
        part.repeats
    );
    let begin = Instant::now();
    let about = About { title: part.title, command: part.command };
    let chance = Chance { seed: SEED, repeats: part.repeats };
    let threads = sim::threads(asked.jobs);
    let Played { mut results, cut } = match (&part.points, asked.world) {
        (Points::Datacenters(points), _) => {
            datacenter::play_points(points, &chance, threads, about, stop)
        }
        (Points::Scenarios(points), World::Sim) => {
            sim::play_points(points, &chance, &part.constants, threads, about, stop)
        }
        (Points::Scenarios(points), World::Lab) => {
            let mut lab = Lab::new(part.constants)?;
            let mut screen = Live::new();
            experiment::play(&mut lab, points, part.repeats, about, &mut screen, stop)
        }
    };
    entry.wall_s = begin.elapsed().as_secs_f64();
    if !results.runs.is_empty() {
        slim(&mut results);
        let folder = asked.out.join(figure.id()).join(&part.name);
        report::keep(&results, &table::text(&results), &folder)?;
        entry.results = Some(part.name);
    }
    Ok(cut)
}

/// Without what no plot and no table of a figure reads: each single flow second by second. Three
/// hundred of them in a hundred runs are gigabytes.
fn slim(results: &mut Results) {
    for run in &mut results.runs {
        run.flows.iter_mut().for_each(|flow| flow.series_bps = Vec::new());
        if run.repeat > 0 {
            run.links.iter_mut().for_each(|link| {
                (link.series_bps, link.drops, link.marks) = (Vec::new(), Vec::new(), Vec::new());
            });
        }
    }
}

/// What to type to play the figure again.
fn again(figure: &Figure, asked: &Asked) -> String {
    let quick = if asked.quick { " --quick" } else { "" };
    format!("weir reproduce {} --world {}{quick}", figure.id(), asked.world.word())
}
