//! A scenario file: read once, resolved for every point of its sweep.
//!
//! Approach  YAML tree, `--set` changes it, keys are read into a `Spec`, which is resolved per
//!           point.
//! Promises  Every error carries the file's name; those of a sweep carry the point.

use super::error::{Error, Place};
use super::expr::Scope;
use super::formula::Formula;
use super::spec::{self, Spec, Word};
use super::{Scenario, resolve, set, yaml};
use std::path::Path;

/// A scenario file that was read; its keys are known and its expressions parsed.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    spec: Spec,
}

impl File {
    /// Reads `path` and applies `overrides` (`--set KEY=VALUE`) in their order.
    pub fn load(path: &Path, overrides: &[(String, String)]) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let help = match path.is_dir() {
                true => "this is a folder: name a file in it",
                false => "is the path right?",
            };
            Error::new(&Place::Whole, "", format!("cannot be read: {error}"), help).in_file(&name)
        })?;
        Self::parse(&name, &text, overrides)
    }

    /// The same from `text`; `name` is what errors call the file.
    pub fn parse(name: &str, text: &str, overrides: &[(String, String)]) -> Result<Self, Error> {
        let read = || -> Result<Spec, Error> {
            let mut tree = yaml::parse(text)?;
            for (key, value) in overrides {
                set::apply(&mut tree, key, value)?;
            }
            let mut spec = spec::read(&tree)?;
            spec.load(Path::new(name).parent().unwrap_or(Path::new("")))?;
            Ok(spec)
        };
        read().map(|spec| Self { name: name.into(), spec }).map_err(|e| e.in_file(name))
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// `metadata.title`, or the name.
    pub fn title(&self) -> &str {
        &self.spec.title
    }

    /// `metadata.paper`: where the scenario comes from.
    pub fn paper(&self) -> Option<&str> {
        self.spec.paper.as_deref()
    }

    /// How often each point is to be played; 1 unless the file says otherwise.
    pub fn repeat(&self) -> Result<u32, Error> {
        let Some(formula) = &self.spec.repeat else { return Ok(1) };
        formula.count(&Scope::default(), 1).map_err(|e| e.in_file(&self.name))
    }

    /// Checks the presets of the file's mechanisms against those that the registry lists.
    ///
    /// # Errors
    ///
    /// The first that does not exist, with its line.
    pub fn check_presets(&self) -> Result<(), Error> {
        resolve::presets(&self.spec).map_err(|e| e.in_file(&self.name))
    }

    /// Whether the file expects anything of the mechanism with this label, at whatever point.
    pub fn expects_of(&self, label: &str) -> bool {
        let about = |word: &Word| word.text == label;
        self.spec.expect.iter().any(|e| e.mechanisms.is_empty() || e.mechanisms.iter().any(about))
    }

    /// One scenario per point of the sweep, in its order; points that an override made equal are
    /// played once.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong at any point; the message names the point.
    pub fn points(&self) -> Result<Vec<Scenario>, Error> {
        let single = [Vec::new()];
        let sweep = if self.spec.sweep.is_empty() { &single[..] } else { &self.spec.sweep };
        let mut points: Vec<Scenario> = Vec::new();
        for point in sweep {
            let scenario = resolve::resolve(&self.spec, point)
                .map_err(|error| at_point(error, point).in_file(&self.name))?;
            if !points.contains(&scenario) {
                points.push(scenario);
            }
        }
        Ok(points)
    }
}

/// Says at which point of a sweep something is wrong.
fn at_point(mut error: Error, point: &[(Word, Formula)]) -> Error {
    let value = |(word, formula): &(Word, Formula)| format!("{} = {}", word.text, formula.text());
    if !point.is_empty() {
        let values: Vec<String> = point.iter().map(value).collect();
        error.message = format!("{} (at {})", error.message, values.join(", "));
    }
    error
}
