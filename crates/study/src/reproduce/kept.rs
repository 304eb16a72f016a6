//! A figure's folder in the results: its file, what was played, and the numbers of each part.
//!
//! Approach  `figure.yaml` is the file as it was read, `played.json` says what was played and where
//!           its numbers are; `PART/results.json` is what `weir lab` and `weir sim` write, too.
//! Promises  A page can be made from the folder alone, also of what was stopped half way.

use super::figure::Figure;
use crate::folder::{RESULTS, read};
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use weir_model::results::Results;

/// Name of the copy of the figure's file.
const FIGURE: &str = "figure.yaml";
/// Name of what was played.
pub const PLAYED: &str = "played.json";

/// Where figures are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// The packet simulator, at the paper's own scale
    #[default]
    Sim,
    /// Real Linux in network namespaces of this machine, at the scenarios' scale (root)
    Lab,
}

impl World {
    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
        }
    }
}

/// What was played of a figure.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// Its place on the page.
    pub order: usize,
    /// Where it was played.
    pub world: World,
    /// Whether it was played once, short, at few points.
    pub quick: bool,
    /// Plays it again.
    pub command: String,
    /// Whether the user stopped it.
    pub stopped: bool,
    /// In the order in which they were played.
    pub parts: Vec<KeptPart>,
}

/// What was played of a part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KeptPart {
    /// Its name in the figure's file.
    pub name: String,
    /// Plays it again.
    pub command: String,
    /// The scenario's.
    pub scale: f64,
    /// The folder of its numbers, from the figure's.
    pub results: Option<String>,
    /// Why there are none.
    pub not_played: Option<String>,
    /// Why there are not all.
    pub cut: Option<String>,
    /// How long it took, in seconds.
    pub wall_s: f64,
}

impl Kept {
    /// Writes it, and the figure's file beside it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, figure: &Figure, folder: &Path) -> Result<()> {
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
pub struct Shown {
    /// As its file says.
    pub figure: Figure,
    /// What was played of it.
    pub kept: Kept,
    /// The numbers of each part, if it has any.
    pub results: Vec<Option<Results>>,
    /// Where it was read from.
    pub folder: PathBuf,
}

impl Shown {
    /// Reads a figure's folder.
    ///
    /// # Errors
    /// A file that is missing or is not what it should be.
    pub fn load(folder: &Path) -> Result<Self> {
        let figure = Figure::load(&folder.join(FIGURE))?;
        let path = folder.join(PLAYED);
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let kept: Kept = serde_json::from_slice(&text)
            .with_context(|| format!("{} was not written by `weir reproduce`", path.display()))?;
        let numbers = |part: &super::figure::Part| {
            let kept = kept.parts.iter().find(|k| k.name == part.name.value)?;
            let folder = folder.join(kept.results.as_ref()?);
            Some(read(&folder.join(RESULTS)))
        };
        let results = figure.spec.play.iter().map(|part| numbers(part).transpose());
        let results = results.collect::<Result<Vec<_>>>()?;
        Ok(Self { figure, kept, results, folder: folder.into() })
    }

    /// What was played of a part.
    pub fn part(&self, index: usize) -> Option<&KeptPart> {
        let name = &self.figure.spec.play.get(index)?.name.value;
        self.kept.parts.iter().find(|kept| kept.name == *name)
    }
}
