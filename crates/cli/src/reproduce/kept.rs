//! A figure's folder in the results: its file, what was played, and the numbers of each part.
//!
//! Approach  `figure.yaml` is the file as it was read, `played.json` says what was played and where its
//!           numbers are; `PART/results.json` is what `weir lab` and `weir sim` write, too.
//! Promises  A page can be made from the folder alone, also of what was stopped half way.

use super::figure::Figure;
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use weir_model::results::Results;

/// Name of the copy of the figure's file.
const FIGURE: &str = "figure.yaml";
/// Name of what was played.
pub(crate) const PLAYED: &str = "played.json";

/// Where figures are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum World {
    /// The packet simulator, at the paper's own scale
    #[default]
    Sim,
    /// Real Linux in network namespaces of this machine, at the scenarios' scale (root)
    Lab,
}

impl World {
    /// As it is typed.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
        }
    }
}

/// What was played of a figure.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Its place on the page.
    pub(crate) order: usize,
    pub(crate) world: World,
    pub(crate) quick: bool,
    /// Plays it again.
    pub(crate) command: String,
    /// Whether somebody stopped it.
    pub(crate) stopped: bool,
    pub(crate) parts: Vec<KeptPart>,
}

/// What was played of a part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct KeptPart {
    pub(crate) name: String,
    /// Plays it again.
    pub(crate) command: String,
    /// The scenario's.
    pub(crate) scale: f64,
    /// The folder of its numbers, from the figure's.
    pub(crate) results: Option<String>,
    /// Why there are none.
    pub(crate) not_played: Option<String>,
    /// Why there are not all.
    pub(crate) cut: Option<String>,
    pub(crate) wall_s: f64,
}

impl Kept {
    /// Writes it, and the figure's file beside it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn write(&self, figure: &Figure, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let copy = folder.join(FIGURE);
        if !copy.exists() {
            fs::copy(&figure.file, &copy)
                .with_context(|| format!("cannot write {}", copy.display()))?;
        }
        let path = folder.join(PLAYED);
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A figure, what was played of it, and its numbers, part by part in the file's order.
pub(crate) struct Shown {
    pub(crate) figure: Figure,
    pub(crate) kept: Kept,
    pub(crate) results: Vec<Option<Results>>,
    /// Where it was read from.
    pub(crate) folder: PathBuf,
}

impl Shown {
    /// Reads a figure's folder.
    ///
    /// # Errors
    /// A file that is missing or is not what it should be.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        let figure = Figure::load(&folder.join(FIGURE))?;
        let path = folder.join(PLAYED);
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let kept: Kept = serde_json::from_slice(&text)
            .with_context(|| format!("{} was not written by `weir reproduce`", path.display()))?;
        let numbers = |part: &super::figure::Part| {
            let kept = kept.parts.iter().find(|k| k.name == part.name.value)?;
            let folder = folder.join(kept.results.as_ref()?);
            Some(crate::report::read(&folder.join(crate::report::RESULTS)))
        };
        let results = figure.spec.play.iter().map(|part| numbers(part).transpose());
        let results = results.collect::<Result<Vec<_>>>()?;
        Ok(Self { figure, kept, results, folder: folder.into() })
    }

    /// What was played of a part.
    pub(crate) fn part(&self, index: usize) -> Option<&KeptPart> {
        let name = &self.figure.spec.play.get(index)?.name.value;
        self.kept.parts.iter().find(|kept| kept.name == *name)
    }
}
