//! Files and folders that people name on the command line.

use anyhow::{Result, anyhow};
use std::fs;
use std::path::Path;

/// Reads a file.
///
/// # Errors
/// It cannot be read: which file, why, and what to do.
pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| {
        let help = match file.is_dir() {
            true => "this is a folder: name a file in it",
            false => "is the path right?",
        };
        anyhow!("{}: cannot be read: {error}\n  help: {help}", file.display())
    })
}

/// Makes the folder that results go to. To be called before anything is played: an hour of runs is not to end
/// in a folder that cannot be made.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_folder(out: &Path) -> Result<()> {
    fs::create_dir_all(out).map_err(|error| {
        let help = "name a folder that you may write to: --out DIR";
        anyhow!("cannot make {}: {error}\n  help: {help}", out.display())
    })
}
