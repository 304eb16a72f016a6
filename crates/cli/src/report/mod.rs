//! One self-contained HTML page from any results.
//!
//! Problem   A table says that a floor broke; a picture says when, and for how long.
//! Approach  The page is HTML with inline SVG and one style sheet: no script, no font, nothing to
//!           load. Colours come from variables, so that one picture serves light and dark.
//! Promises  Every chart has labelled axes with units; colours are told apart by people who do not
//!           see red or green, and never carry a meaning alone.
//! Not here  The numbers: they come from the judge.

mod axis;
mod bars;
mod figures;
mod lines;
mod page;
mod series;

use crate::reproduce::kept::{PLAYED, Shown};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use weir_model::results::Results;

/// Name of the file with the numbers in an output folder.
pub(crate) const RESULTS: &str = "results.json";
/// Name of the page.
pub(crate) const PAGE: &str = "report.html";

/// Reads every `results.json`, and every figure that `weir reproduce` played, in `dir` and its
/// folders, and writes `report.html` into `dir`. Returns
/// the page's path.
///
/// # Errors
/// Nothing to report, or a file that is not what it should be.
pub(crate) fn write(dir: &Path) -> Result<PathBuf> {
    let files = files_below(dir)?;
    let named = |name: &str| -> Vec<&PathBuf> {
        files.iter().filter(|file| file.file_name().is_some_and(|n| n == name)).collect()
    };
    let folder = |file: &PathBuf| file.parent().map_or(dir.to_path_buf(), Path::to_path_buf);
    let folders: Vec<PathBuf> = named(PLAYED).into_iter().map(folder).collect();
    let mut figures = folders.iter().map(|at| Shown::load(at)).collect::<Result<Vec<_>>>()?;
    figures.sort_by_key(|figure| figure.kept.order);
    // What belongs to a figure is shown with it.
    let alone = |file: &&PathBuf| !folders.iter().any(|folder| file.starts_with(folder));
    let results = named(RESULTS).into_iter().filter(alone);
    let experiments = results.map(|file| read(file)).collect::<Result<Vec<_>>>()?;
    if experiments.is_empty() && figures.is_empty() {
        bail!("no {RESULTS} in {}: `weir lab FILE --out DIR` writes one", dir.display());
    }
    let path = dir.join(PAGE);
    let page = page::html(&figures, &experiments, dir);
    fs::write(&path, page).with_context(|| format!("{}", path.display()))?;
    Ok(path)
}

/// Reads one file of results.
///
/// # Errors
/// It holds something else.
pub(crate) fn read(file: &Path) -> Result<Results> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} holds no results of `weir lab`", file.display()))
}

/// Files with results or figures, in the order of their names. Folders below folders are read to a
/// depth of 4.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![(dir.to_path_buf(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && depth < 4 {
                folders.push((path, depth + 1));
            } else if path.file_name().is_some_and(|name| name == RESULTS || name == PLAYED) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_results_is_an_error_that_says_what_to_do() {
        let dir = std::env::temp_dir().join(format!("weir-report-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary folder");
        let error = write(&dir).expect_err("there is nothing").to_string();
        assert!(error.contains("weir lab FILE --out"), "{error}");
        fs::write(dir.join(RESULTS), "{}").expect("a file");
        let error = write(&dir).expect_err("that is nothing, too").to_string();
        assert!(error.contains("holds no results"), "{error}");
        fs::write(dir.join(RESULTS), "{\"runs\": []}").expect("a file");
        let page = fs::read_to_string(write(&dir).expect("a page")).expect("readable");
        assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<script"));
        fs::remove_dir_all(&dir).expect("removable");
    }
}
