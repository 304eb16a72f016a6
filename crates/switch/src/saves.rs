//! The state of switches before Weir, in files.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;

/// One file per switch in a folder. A file is replaced whole, or not at all.
#[derive(Clone, Debug)]
pub struct Saves {
    folder: PathBuf,
    switch: String,
}

/// What a file has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept<S> {
    /// Whether nothing was Weir's when it was read, so that it is the state before Weir.
    pub(crate) is_exact: bool,
    pub(crate) state: S,
}

impl Saves {
    /// The file of `switch` in `folder`, which is made when it is needed. A name of a switch is part
    /// of the file's: other characters than letters, digits, `-` and `.` become `_`.
    pub fn new(folder: impl Into<PathBuf>, switch: &str) -> Self {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let switch = switch.chars().map(|c| if fits(c) { c } else { '_' }).collect();
        Self { folder: folder.into(), switch }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.before.json", self.switch))
    }

    pub(crate) fn load<S: DeserializeOwned>(&self) -> io::Result<Option<Kept<S>>> {
        match fs::read(self.path()) {
            Ok(octets) => Ok(Some(serde_json::from_slice(&octets).map_err(|error| {
                io::Error::other(format!("{}: {error}", self.path().display()))
            })?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn store<S: Serialize>(&self, kept: &Kept<S>) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let draft = self.folder.join(format!("{}.before.new", self.switch));
        let mut file = File::create(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(kept)?)?;
        file.sync_all()?;
        fs::rename(&draft, self.path())
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
