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
mod marks;
mod page;
mod series;
mod windows;

use crate::folder::{PAGE, RESULTS, read};
use crate::reproduce::kept::{PLAYED, Shown};
use anyhow::{Context as _, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};
use weir_model::results::Results;

/// Reads every `results.json`, and every figure that `weir reproduce` played, in `dir` and its
/// folders, and writes `report.html` into `dir`. Returns
/// the page's path.
///
/// # Errors
/// Nothing to report, or a file that is not what it should be.
pub fn write(dir: &Path) -> Result<PathBuf> {
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
        bail!("no {RESULTS} in {}\n  help: `weir lab FILE --out DIR` writes one", dir.display());
    }
    let path = dir.join(PAGE);
    let page = page::html(&figures, &experiments, dir);
    fs::write(&path, page).with_context(|| format!("{}", path.display()))?;
    Ok(path)
}

/// Writes results.json, table.txt and report.html. Returns the path of the page.
///
/// # Errors
/// A file cannot be written.
pub fn keep(results: &Results, text: &str, dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let put = |name: &str, content: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    put(RESULTS, &serde_json::to_vec(results)?)?;
    put("table.txt", text.as_bytes())?;
    let page = write(dir)?;
    Ok(fs::canonicalize(&page).unwrap_or(page))
}

/// Files with results or figures, in the order of their names. Folders below folders are read to a
/// depth of 4.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![(dir.to_path_buf(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| {
            let help = "name the folder that `--out` named when it was played";
            anyhow!("cannot read {}: {error}\n  help: {help}", folder.display())
        })?;
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
    use std::collections::BTreeMap;
    use weir_model::results::{About, Flow, Group, Run, Verdict, Windows};

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

    /// Two seconds of X and Y under a mechanism at one point.
    fn run(n: f64, mechanism: &str, x_bps: f64, valid: bool) -> Run {
        let group = |name: &str, bps: f64, promised: f64| Group {
            group: name.into(),
            kind: "tcp".into(),
            connections: 1,
            promised_bps: promised,
            ideal_bps: 100e6,
            goodput_bps: bps,
            series_bps: vec![bps; 20],
            promised_series_bps: vec![promised; 20],
            times: None,
        };
        Run {
            scenario: "hand-made".into(),
            world: "lab".into(),
            mechanism: mechanism.into(),
            point: BTreeMap::from([("n".into(), n)]),
            valid,
            reasons: if valid { vec![] } else { vec!["a CPU was <busy>".into()] },
            groups: vec![group("X", x_bps, 86e6), group("Y", 190e6 - x_bps, 86e6)],
            summary: BTreeMap::from([
                ("goodput_of_floor.X".into(), x_bps / 86e6),
                ("worst_floor_ratio".into(), x_bps / 86e6),
                ("link_utilisation".into(), 0.97),
            ]),
            sample_s: 0.1,
            warmup_s: 0.5,
            ..Run::default()
        }
    }

    fn results(runs: Vec<Run>) -> Results {
        let verdict = |point: f64, held, says: &str| Verdict {
            point: BTreeMap::from([("n".into(), point)]),
            mechanism: "elasticswitch".into(),
            metric: "goodput_of_floor.X".into(),
            says: says.into(),
            at_least: Some(0.95),
            got: Some(1.1),
            worst: Some(0.9),
            held: Some(held),
            ..Verdict::default()
        };
        let verdicts = vec![
            verdict(1.0, true, "X keeps its floor"),
            verdict(2.0, false, "X & Y use the link"),
        ];
        let about = About { title: "By hand".into(), command: "weir lab by-hand.yaml".into() };
        Results { runs, verdicts, about }
    }

    fn count(page: &str, what: &str) -> usize {
        page.matches(what).count()
    }

    /// Every element that is opened is closed, in order: what a browser draws is what was meant.
    fn assert_well_formed(page: &str) {
        const EMPTY: [&str; 3] = ["meta", "br", "hr"];
        let mut open: Vec<&str> = Vec::new();
        // The style sheet has no elements; its text may have anything.
        let (head, rest) = page.split_once("<style>").expect("a style sheet");
        let rest = rest.split_once("</style>").expect("that ends").1;
        for text in [head, rest] {
            for tag in text.split('<').skip(1) {
                let (tag, _) = tag.split_once('>').expect("a tag ends");
                let name = tag.split_whitespace().next().unwrap_or_default();
                if let Some(closed) = name.strip_prefix('/') {
                    assert_eq!(open.pop(), Some(closed), "in {open:?}");
                } else if !name.starts_with('!') && !EMPTY.contains(&name) {
                    open.push(name);
                }
            }
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn the_page_of_a_sweep_has_its_numbers_verdicts_charts_and_invalid_runs() {
        let runs = vec![
            run(1.0, "none", 20e6, true),
            run(1.0, "elasticswitch", 95e6, true),
            run(2.0, "none", 10e6, false),
            run(2.0, "elasticswitch", 90e6, true),
        ];
        let page = page::html(&[], &[results(runs)], Path::new("."));
        assert_well_formed(&page);
        assert!(!page.contains("<script") && !page.contains("http"), "nothing to load");
        for heading in
            ["What was promised, what was got", "Over the sweep", "Expected", "No results"]
        {
            assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
        }
        assert!(page.contains("1 of 2 expectations failed"), "the banner");
        assert!(page.contains("X &amp; Y use the link") && page.contains("FAILED"), "a verdict");
        assert!(page.contains("1.100 (worst 0.900)") && page.contains("≥ 0.95"), "asked and got");
        assert!(page.contains("a CPU was &lt;busy&gt;"), "the reason of the invalid run, as text");
        assert!(page.contains("95.0 Mb/s") && page.contains("20.0 Mb/s"), "numbers");
        assert!(page.contains("weir lab by-hand.yaml"), "how to play it again");
        // Second by second: one fold per point, and in each a panel per mechanism with both groups.
        assert_eq!((count(&page, "<details>"), count(&page, "class=\"raw ")), (2, 2 * 2 * 2));
        assert_eq!(count(&page, "class=\"warmup\""), 4, "each panel shows what is not judged");
    }

    #[test]
    fn where_a_connection_was_traced_the_page_draws_its_window() {
        let looks = 0..2000u64;
        let windows = Windows {
            at_s: looks.clone().map(|n| n as f64 / 1000.0).collect(),
            cwnd: looks.clone().map(|n| 90_000 + n).collect(),
            shown: looks.clone().map(|n| 30_000 + n % 250 * 100).collect(),
            acked: looks.clone().map(|n| n * 1_000).collect(),
            again: vec![0; 2000],
        };
        let mut traced = run(1.0, "none+virtual-ecn", 95e6, true);
        let flow = |group: &str| Flow {
            group: group.into(),
            windows: vec![windows.clone(); 2],
            ..Flow::default()
        };
        traced.flows = vec![flow("X"), flow("X"), flow("Y")];
        let page = page::html(&[], &[results(vec![traced])], Path::new("."));
        assert_well_formed(&page);
        assert!(page.contains("<h2>Windows</h2>"));
        assert_eq!((count(&page, "Window of X"), count(&page, "Window of Y")), (1, 1));
        let plain = run(1.0, "none", 95e6, true);
        let page = page::html(&[], &[results(vec![plain])], Path::new("."));
        assert!(!page.contains("<h2>Windows</h2>"));
    }

    #[test]
    fn the_page_of_one_point_has_a_panel_for_each_mechanism() {
        let runs = vec![run(1.0, "none", 20e6, true), run(1.0, "elasticswitch", 95e6, true)];
        let page = page::html(&[], &[results(runs)], Path::new("."));
        assert_well_formed(&page);
        assert!(!page.contains("Over the sweep") && !page.contains("No results"));
        assert_eq!((count(&page, "<svg"), count(&page, "class=\"raw ")), (2, 4));
        assert!(page.contains("X gets 95.0 Mb/s, 110 % of its floor"), "in words");
    }
}
