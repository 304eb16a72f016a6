//! A mistake in a configuration: in which of its two files, in which field and line.

use crate::names::shortened;
use anyhow::anyhow;
use std::path::Path;
use weir_model::whereabouts::{line_in_toml, line_in_yaml};

/// Which file a mistake is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Config,
    Directory,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) struct Mistake {
    which: Which,
    /// As in `vm[2].name`.
    field: String,
    what: String,
}

impl Mistake {
    /// In `agent.toml`.
    pub(crate) fn config(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { which: Which::Config, field: field.into(), what: what.into() }
    }

    /// One of `agent.toml`, told where only its path is at hand: it is read again for the line.
    pub(crate) fn tell_in(&self, config: &Path) -> anyhow::Error {
        let text = std::fs::read_to_string(config).unwrap_or_default();
        Sources { config: (config, &text), directory: (config, "") }.tell(self)
    }

    /// What is wrong, without the place.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// The place in `[[vm]]` of the VM that it concerns.
    pub(crate) fn vm(&self) -> Option<usize> {
        let (at, _) = self.field.strip_prefix("vm[")?.split_once(']')?;
        at.parse().ok().filter(|_| self.which == Which::Config)
    }

    /// In the directory.
    pub(crate) fn directory(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { which: Which::Directory, field: field.into(), what: what.into() }
    }
}

/// Both files, as they were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) config: (&'a Path, &'a str),
    pub(crate) directory: (&'a Path, &'a str),
}

impl Sources<'_> {
    /// `FILE:LINE: FIELD: WHAT`.
    pub(crate) fn tell(&self, mistake: &Mistake) -> anyhow::Error {
        let Mistake { which, field, what } = mistake;
        let (file, line) = match which {
            Which::Config => (self.config.0, line_in_toml(self.config.1, field)),
            Which::Directory => (self.directory.0, line_in_yaml(self.directory.1, field)),
        };
        let what = shortened(what);
        match line {
            Some(line) => anyhow!("{}:{line}: {field}: {what}", file.display()),
            None => anyhow!("{}: {field}: {what}", file.display()),
        }
    }
}

/// Refuses with what `mistake` makes, unless it holds.
pub(crate) fn sound(holds: bool, mistake: impl FnOnce() -> Mistake) -> Result<(), Mistake> {
    if holds { Ok(()) } else { Err(mistake()) }
}
