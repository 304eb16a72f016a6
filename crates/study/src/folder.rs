//! The files of an output folder.

use anyhow::{Context as _, Result, anyhow};
use std::fs;
use std::path::Path;
use weir_model::results::Results;

/// Name of the file with the numbers in an output folder.
pub const RESULTS: &str = "results.json";

/// Name of the page.
pub(crate) const PAGE: &str = "report.html";

/// Reads one file of results.
///
/// # Errors
/// It holds something else.
pub(crate) fn read(file: &Path) -> Result<Results> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| {
        let help = "it was not written by this version, or not to its end: play it again";
        anyhow!("{}: holds no results of `weir lab`: {error}\n  help: {help}", file.display())
    })
}
