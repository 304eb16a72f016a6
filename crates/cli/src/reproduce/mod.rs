//! `weir reproduce`: the figures of the papers, played and compared with what the papers say.
//!
//! Problem   "It reproduces the paper" is a claim about twenty figures, each with a setup, a
//!           criterion and axes of its own.
//! Approach  A file per figure ([`figure`]) names scenarios and says how the paper draws them; they
//!           are played in a world ([`play`]), kept ([`kept`]), judged ([`judge`]) and drawn on one
//!           page.
//! Promises  A row that was not played is shown with the reason, never as held. What is finished is
//!           kept when the user stops.
//! Not here  What is expected: mostly in the scenarios, which `weir lab` and `weir sim` judge
//!           alike.

mod play;

use crate::args;
use crate::commands::{self, INTERRUPTED};
use crate::input;
use crate::output::{errln, out, outln};
use anyhow::{Result, anyhow, bail};
use play::{Asked, Before, Ready};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weir_study::report;
use weir_study::reproduce::World;
use weir_study::reproduce::figure::Figure;
use weir_study::reproduce::judge::{Ending, code, criteria};
use weir_study::reproduce::kept::Shown;
use weir_study::table::Grid;

/// Plays, or lists, what was asked for.
///
/// # Errors
/// Bad input, or something that cannot be written.
pub(crate) fn reproduce(args: &args::Reproduce) -> Result<u8> {
    let figures = select(&args.from, &args.what)?;
    let world = match args.world {
        args::WorldName::Sim => World::Sim,
        args::WorldName::Lab => World::Lab,
    };
    let asked = Asked { world, quick: args.quick, jobs: args.jobs, out: args.out.clone() };
    let ready = figures.iter().map(|f| play::ready(f, &asked)).collect::<Result<Vec<_>>>()?;
    if args.list {
        out!("{}", list(&figures, &ready, world))?;
        return Ok(0);
    }
    input::make_folder(&asked.out)?;
    let stop = commands::stop_flag()?;
    let mut before = Before::default();
    let mut stopped = false;
    let mut shown = Vec::new();
    let total = figures.len();
    for (order, (figure, ready)) in figures.iter().zip(ready).enumerate() {
        errln!("── {} of {total}: {} {}", order + 1, figure.id(), figure.metadata.title);
        stopped = play::play(figure, order, ready, &asked, &mut before, &stop)?;
        shown.push(Shown::load(&asked.out.join(figure.id()))?);
        if stopped {
            break;
        }
    }
    let page = report::write(&asked.out)?;
    errln!("page: {}", fs::canonicalize(&page).unwrap_or(page).display());
    let endings: Vec<Ending> = shown.iter().map(|s| Ending::of(s, &criteria(s))).collect();
    outln!("{}", summary(&shown).table())?;
    if stopped {
        errln!("stopped; what was finished is kept, also on the page");
        return Ok(INTERRUPTED);
    }
    Ok(code(&endings))
}

/// The figures that `what` names, in the order of their files; without any, all.
fn select(from: &Path, what: &[String]) -> Result<Vec<Figure>> {
    let is_file = |word: &&String| word.ends_with(".yaml");
    let mut figures = Vec::new();
    let words: Vec<&String> = what.iter().filter(|word| !is_file(word)).collect();
    if what.is_empty() || !words.is_empty() {
        let all = library(from)?;
        let known: BTreeSet<&str> =
            all.iter().flat_map(|(paper, figure)| [paper.as_str(), figure.id()]).collect();
        let is = |word: &str, (paper, figure): &(String, Figure)| {
            word == paper || word.eq_ignore_ascii_case(figure.id())
        };
        if let Some(word) = words.iter().find(|word| !all.iter().any(|entry| is(word, entry))) {
            let known: Vec<&str> = known.into_iter().collect();
            bail!("there is no paper or figure `{word}`\n  help: known here: {}", known.join(", "));
        }
        let wanted =
            |entry: &(String, Figure)| what.is_empty() || words.iter().any(|word| is(word, entry));
        figures.extend(all.into_iter().filter(|e| wanted(e)).map(|(_, figure)| figure));
    }
    for file in what.iter().filter(is_file) {
        figures.push(Figure::load(Path::new(file))?);
    }
    let mut ids = BTreeSet::new();
    if let Some(twice) = figures.iter().find(|figure| !ids.insert(figure.id().to_string())) {
        bail!("{}: the id {} is there twice", twice.file.display(), twice.id());
    }
    Ok(figures)
}

/// Every figure of every paper, with the paper's folder, in the order of their files.
pub(crate) fn library(from: &Path) -> Result<Vec<(String, Figure)>> {
    let help = "run this in the repository's folder, or name it: --from DIR";
    let read = |folder: &Path| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(folder).map_err(|error| {
            anyhow!("cannot read {}: {error}\n  help: {help}", folder.display())
        })?;
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
        paths.sort();
        Ok(paths)
    };
    let mut all = Vec::new();
    for paper in read(from)?.into_iter().filter(|path| path.is_dir()) {
        let name = paper.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
        for file in read(&paper)? {
            if file.extension().is_some_and(|extension| extension == "yaml") {
                all.push((name.clone(), Figure::load(&file)?));
            }
        }
    }
    if all.is_empty() {
        bail!("no figures in {}\n  help: {help}", from.display());
    }
    Ok(all)
}

/// What there is, and what this world would play of it.
fn list(figures: &[Figure], ready: &[Vec<Ready>], world: World) -> String {
    let mut grid = Grid::new(&["id", "paper", "shows", world.word()], 4);
    let mut reasons = String::new();
    for (figure, ready) in figures.iter().zip(ready) {
        let refused: Vec<&Ready> = ready.iter().filter(|part| part.not.is_some()).collect();
        let state = match (&figure.spec.missing, refused.len()) {
            (Some(_), _) if !figure.spec.shown_by.is_empty() => "shown by tests".to_string(),
            (Some(_), _) => "not played".into(),
            (None, 0) => "plays".into(),
            (None, n) if n == ready.len() => "does not play".into(),
            (None, n) => format!("plays {} of {} parts", ready.len() - n, ready.len()),
        };
        let meta = &figure.metadata;
        grid.rows.push(vec![figure.id().into(), meta.paper.clone(), meta.title.clone(), state]);
        if let Some(why) = &figure.spec.missing {
            reasons += &format!("{}: {}\n", figure.id(), why.trim());
        }
        for by in &figure.spec.shown_by {
            reasons += &format!("{}: {}: {}\n", figure.id(), by.name(), by.says.trim());
        }
        for part in refused {
            let why = part.not.as_deref().unwrap_or_default();
            reasons += &format!("{} {}: {}\n", figure.id(), part.name, why.trim());
        }
    }
    format!("{}\n{reasons}", grid.table())
}

/// One line per figure and what failed of it, for the terminal.
fn summary(shown: &[Shown]) -> Grid {
    let mut grid = Grid::new(&["figure", "asked", "of", "got", ""], 5);
    for one in shown {
        let criteria = criteria(one);
        let ending = Ending::of(one, &criteria);
        let held = criteria.iter().filter(|c| c.held == Some(true)).count();
        grid.rows.push(vec![
            one.figure.id().into(),
            one.figure.metadata.title.clone(),
            String::new(),
            format!("{held} of {} held", criteria.len()),
            ending.words(&criteria),
        ]);
        for c in criteria.iter().filter(|c| c.held != Some(true)) {
            let verdict = if c.held.is_some() { "FAILED" } else { "not judged" };
            let of = c.part.iter().cloned().chain([c.mechanism.clone()]).collect::<Vec<_>>();
            let row =
                [String::new(), c.asked.clone(), of.join(", "), c.got.clone(), verdict.into()];
            grid.rows.push(row.into());
        }
        for by in &one.figure.spec.shown_by {
            let row = ["", by.name(), "", by.says.trim(), "not run here"].map(Into::into);
            grid.rows.push(row.into());
        }
        for part in one.kept.parts.iter() {
            if let Some(why) = part.not_played.as_ref().or(part.cut.as_ref()) {
                let why = why.lines().next().unwrap_or_default();
                let row = ["", &part.name, "", why, "not played"].map(Into::into);
                grid.rows.push(row.into());
            }
        }
    }
    grid
}

#[cfg(test)]
mod tests;
