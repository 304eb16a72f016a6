//! The one table at the end, and what was asked of it.

use crate::aggregate::{Cell, cells, group_names, point_text, point_values, swept};
use crate::reproduce::judge::digits;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};
use std::collections::BTreeSet;
use weir_model::results::{Results, Run, Verdict};
use weir_units::show;

/// Everything people read in a terminal: the numbers, the expectations, the invalid runs.
pub fn text(results: &Results) -> String {
    let cells = cells(&results.runs);
    let mut text = String::new();
    if !results.about.title.is_empty() {
        text.push_str(&format!("{}\n", results.about.title));
    }
    text.push_str(&format!("{}\n", numbers(&cells).table()));
    if cells.iter().any(|c| c.repeats() > 1) {
        text.push_str("Each number is the median of the valid repeats.\n");
    }
    if !results.verdicts.is_empty() {
        text.push_str(&format!("\n{}\n", verdicts(&results.verdicts, &swept(&cells)).table()));
    }
    for run in results.runs.iter().filter(|r| !r.valid) {
        text.push_str(&invalid(run, &swept(&cells)));
    }
    text.push_str(&notes(&results.runs));
    text
}

/// A table before its layout.
pub struct Grid {
    /// One per column.
    pub header: Vec<String>,
    /// As wide as the header.
    pub rows: Vec<Vec<String>>,
    /// How many columns from the left hold names; the others hold numbers.
    pub names: usize,
}

impl Grid {
    /// No rows yet.
    pub fn new(header: &[&str], names: usize) -> Self {
        Self { header: header.iter().map(|h| (*h).into()).collect(), rows: Vec::new(), names }
    }

    /// As people see it in a terminal.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.remove_style(TableComponent::HorizontalLines);
        table.remove_style(TableComponent::MiddleIntersections);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.header).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// The numbers of an experiment: by group if nothing was swept, else by point.
pub(crate) fn numbers(cells: &[Cell<'_>]) -> Grid {
    let is_datacenter = |cell: &Cell<'_>| cell.shown().world == "flow";
    match swept(cells).is_empty() {
        _ if cells.iter().any(is_datacenter) => by_number(cells),
        true => by_group(cells),
        false => by_point(cells),
    }
}

/// One row per number and one column per point, of datacenters of tenants.
fn by_number(cells: &[Cell<'_>]) -> Grid {
    let swept = swept(cells);
    let place = |cell: &Cell<'_>| match swept.is_empty() {
        true => "got".to_owned(),
        false => point_text(cell.point, &swept),
    };
    let header = std::iter::once("number".to_owned()).chain(cells.iter().map(place)).collect();
    let mut grid = Grid { header, rows: Vec::new(), names: 1 };
    let names: BTreeSet<&str> = cells
        .iter()
        .flat_map(|cell| cell.shown().summary.keys())
        // The distribution is drawn.
        .filter(|name| !name.starts_with("link_use."))
        .map(String::as_str)
        .collect();
    for name in names {
        let got = cells.iter().map(|cell| or_dash(cell.number(name), digits));
        grid.rows.push(std::iter::once(name.to_owned()).chain(got).collect());
    }
    grid
}

/// One row per mechanism and group; the link's numbers stand in the first row of a mechanism.
fn by_group(cells: &[Cell<'_>]) -> Grid {
    let mut header =
        vec!["mechanism", "group", "promised", "got", "got/promised", "of ideal", "link use"];
    let timed = cells.iter().any(|cell| cell.groups().any(|group| times(cell, group).is_some()));
    header.extend(if timed { &["half within", "99 % within"][..] } else { &[] });
    let mut grid = Grid::new(&header, 2);
    for cell in cells {
        for (row, group) in cell.groups().enumerate() {
            let first = row == 0;
            let promised = cell.group(group, |g| g.promised_bps).filter(|&p| p > 0.0);
            let mut row = vec![
                if first { label(cell) } else { String::new() },
                group.to_string(),
                promised.map_or("–".into(), show::rate),
                or_dash(cell.group(group, |g| g.goodput_bps), show::rate),
                or_dash(cell.number(&format!("goodput_of_floor.{group}")), ratio_text),
                or_dash(cell.number(&format!("share.{group}")), show::percent),
                if first {
                    or_dash(cell.number("link_utilisation"), show::percent)
                } else {
                    String::new()
                },
            ];
            if timed {
                row.extend(times_text(cell, group));
            }
            grid.rows.push(row);
        }
    }
    grid
}

/// Median and 99th percentile of a group's requests or flows, or the time of its shuffle as both.
fn times(cell: &Cell<'_>, group: &str) -> Option<[f64; 2]> {
    let percentiles = |what: &str| {
        let of = |statistic: &str| cell.number(&format!("{what}.{group}.{statistic}"));
        Some([of("p50")?, of("p99")?])
    };
    let shuffle = || cell.number(&format!("shuffle_s.{group}")).map(|seconds| [seconds; 2]);
    percentiles("latency").or_else(|| percentiles("fct")).or_else(shuffle)
}

fn times_text(cell: &Cell<'_>, group: &str) -> [String; 2] {
    times(cell, group).map_or(["–".into(), "–".into()], |times| times.map(show::time))
}

/// One row per point and mechanism.
fn by_point(cells: &[Cell<'_>]) -> Grid {
    let groups = group_names(cells);
    let swept = swept(cells);
    let mut header = swept.clone();
    header.push("mechanism".into());
    let timed = |group: &String| cells.iter().any(|cell| times(cell, group).is_some());
    let timed: Vec<bool> = groups.iter().map(timed).collect();
    for (group, &timed) in groups.iter().zip(&timed) {
        header.extend([format!("{group} got"), format!("{group}/promised")]);
        header.extend(
            timed.then(|| [format!("{group} p50"), format!("{group} p99")]).into_iter().flatten(),
        );
    }
    header.extend(["link use", "worst floor", "of ideal", "Jain"].map(String::from));
    let mut grid = Grid { header, rows: Vec::new(), names: swept.len() + 1 };
    let mut before = None;
    for cell in cells {
        // A point is named once; the mechanisms below it are the same point.
        let again = before.replace(cell.point) == Some(cell.point);
        let value = |p: &String| cell.point.get(p).map_or("–".into(), f64::to_string);
        let mut row: Vec<String> =
            swept.iter().map(|p| if again { String::new() } else { value(p) }).collect();
        row.push(label(cell));
        for (group, &timed) in groups.iter().zip(&timed) {
            row.push(or_dash(cell.group(group, |g| g.goodput_bps), show::rate));
            row.push(or_dash(cell.number(&format!("goodput_of_floor.{group}")), ratio_text));
            if timed {
                row.extend(times_text(cell, group));
            }
        }
        row.push(or_dash(cell.number("link_utilisation"), show::percent));
        row.push(or_dash(cell.number("worst_floor_ratio"), ratio_text));
        row.push(or_dash(cell.number("optimum_ratio"), show::percent));
        row.push(or_dash(cell.number("jain"), ratio_text));
        grid.rows.push(row);
    }
    grid
}

fn label(cell: &Cell<'_>) -> String {
    format!("{}{}", cell.mechanism, if cell.valid { "" } else { " (invalid)" })
}

/// What was expected, and what became of it: one row per expectation and point, the points of an
/// expectation together. `swept` are the parameters that tell points apart.
pub(crate) fn verdicts(verdicts: &[Verdict], swept: &[String]) -> Grid {
    let point = swept.join(", ");
    let mut header = vec!["expected", "mechanism"];
    header.extend((!swept.is_empty()).then_some(point.as_str()));
    let names = header.len();
    header.extend(["asked", "got", "verdict"]);
    let mut grid = Grid::new(&header, names);
    let like = |v: &Verdict| {
        let same = |w: &Verdict| (&w.says, &w.mechanism) == (&v.says, &v.mechanism);
        verdicts.iter().position(same)
    };
    let mut ordered: Vec<&Verdict> = verdicts.iter().collect();
    ordered.sort_by_key(|v| like(v));
    for verdict in ordered {
        let worst = match (verdict.got, verdict.worst) {
            (Some(got), Some(worst)) if (got - worst).abs() > 5e-4 => {
                format!(" (worst {worst:.3})")
            }
            _ => String::new(),
        };
        let mut row = vec![verdict.says.clone(), verdict.mechanism.clone()];
        row.extend((!swept.is_empty()).then(|| point_values(&verdict.point, swept)));
        row.extend([
            asked(verdict),
            or_dash(verdict.got, |got| format!("{got:.3}{worst}")) + &lacking(verdict),
            held_text(verdict).to_string(),
        ]);
        grid.rows.push(row);
    }
    grid
}

/// ` (absent in 2, 1 not valid)`: the repeats that have not shown what is expected; empty if there
/// are none.
pub(crate) fn lacking(verdict: &Verdict) -> String {
    let absent = (verdict.absent > 0).then(|| format!("absent in {}", verdict.absent));
    let invalid = (verdict.invalid > 0).then(|| format!("{} not valid", verdict.invalid));
    let lacks: Vec<String> = absent.into_iter().chain(invalid).collect();
    if lacks.is_empty() { String::new() } else { format!(" ({})", lacks.join(", ")) }
}

/// `≥ 0.95`, `≤ 0.1`, or both; `≥ 1 × none`; `≥ 0.95 × that at fresh = 0`.
pub(crate) fn asked(verdict: &Verdict) -> String {
    let mut of = match (&verdict.of, &verdict.over) {
        (Some(other), _) => format!(" × {other}"),
        (None, Some(other)) => format!(" over {other}"),
        (None, None) => String::new(),
    };
    let differs = |(name, value): &(&String, &f64)| verdict.point.get(*name) != Some(*value);
    let there: Vec<String> = verdict
        .at
        .iter()
        .filter(differs)
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    if !there.is_empty() {
        of.push_str(&format!(" × that at {}", there.join(", ")));
    }
    let least = verdict.at_least.map(|v| format!("≥ {}{of}", bound(v)));
    let most = verdict.at_most.map(|v| format!("≤ {}{of}", bound(v)));
    least.into_iter().chain(most).collect::<Vec<_>>().join(", ")
}

/// Up to four digits after the point, without trailing zeros.
fn bound(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// One word.
fn held_text(verdict: &Verdict) -> &'static str {
    match verdict.held {
        Some(true) => "held",
        Some(false) => "FAILED",
        None => "not judged",
    }
}

fn invalid(run: &Run, swept: &[String]) -> String {
    let mut at = point_text(&run.point, swept);
    if !at.is_empty() {
        at = format!(" at {at}");
    }
    let repeat =
        if run.repeat > 0 { format!(", repeat {}", run.repeat + 1) } else { String::new() };
    format!("Not a result: {}{at}{repeat}: {}\n", run.mechanism, run.reasons.join("; "))
}

/// What the worlds had to say, each once.
fn notes(runs: &[Run]) -> String {
    let notes: BTreeSet<&String> = runs.iter().flat_map(|r| &r.notes).collect();
    notes.into_iter().map(|note| format!("Note: {note}\n")).collect()
}

fn or_dash(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or("–".into(), text)
}

/// A ratio with two digits; three near nothing.
fn ratio_text(ratio: f64) -> String {
    if ratio.abs() < 0.1 && ratio != 0.0 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_model::results::Group;

    fn run(n: f64, mechanism: &str, got: f64) -> Run {
        let group = Group {
            group: "gold".into(),
            promised_bps: 86e6,
            goodput_bps: got,
            ..Group::default()
        };
        Run {
            mechanism: mechanism.into(),
            valid: true,
            point: BTreeMap::from([("senders".into(), n)]),
            groups: vec![group],
            summary: BTreeMap::from([
                ("goodput_of_floor.gold".into(), got / 86e6),
                ("link_utilisation".into(), 1.0),
            ]),
            ..Run::default()
        }
    }

    #[test]
    fn a_scenario_without_a_sweep_has_a_row_per_group() {
        let runs = vec![run(100.0, "none", 1.9e6), run(100.0, "elasticswitch", 84e6)];
        let text = text(&Results { runs, ..Results::default() });
        assert!(text.contains("86.0 Mb/s") && text.contains("1.90 Mb/s"), "{text}");
        assert!(text.contains("0.022") && text.contains("0.98"), "{text}");
        assert!(!text.contains("senders"), "{text}");
    }

    #[test]
    fn a_sweep_has_a_row_per_point() {
        let runs = vec![run(1.0, "none", 95e6), run(10.0, "none", 17e6)];
        let text = text(&Results { runs, ..Results::default() });
        assert!(text.contains("senders") && text.contains("gold/promised"), "{text}");
    }

    #[test]
    fn times_are_columns_where_there_are_any() {
        let mut timed = run(1.0, "none", 95e6);
        timed.summary.insert("fct.gold.p50".into(), 0.0021);
        timed.summary.insert("fct.gold.p99".into(), 0.35);
        let grid = numbers(&cells(std::slice::from_ref(&timed)));
        assert_eq!(grid.header[7..], ["half within", "99 % within"]);
        assert_eq!(grid.rows[0][7..], ["2.10 ms", "350 ms"]);
        let runs = [timed, run(10.0, "none", 17e6)];
        let grid = numbers(&cells(&runs));
        assert_eq!(grid.header[4..6], ["gold p50", "gold p99"]);
        assert_eq!((grid.rows[0][4].as_str(), grid.rows[1][4].as_str()), ("2.10 ms", "–"));
        assert!(grid.rows.iter().all(|row| row.len() == grid.header.len()));
    }

    #[test]
    fn an_invalid_run_is_not_shown_as_a_result() {
        let reasons = vec!["CPU 1 was busy".to_string()];
        let runs = vec![Run { valid: false, reasons, ..run(1.0, "none", 95e6) }];
        let text = text(&Results { runs, ..Results::default() });
        assert!(text.contains("none (invalid)") && text.contains("CPU 1 was busy"), "{text}");
    }

    #[test]
    fn a_failed_expectation_is_said_loudly() {
        let verdict = Verdict {
            says: "gold keeps its floor".into(),
            at_least: Some(0.95),
            got: Some(0.4),
            worst: Some(0.2),
            held: Some(false),
            ..Verdict::default()
        };
        let text = verdicts(&[verdict], &[]).table().to_string();
        assert!(text.contains("FAILED") && text.contains("0.400 (worst 0.200)"), "{text}");
        assert!(text.contains("≥ 0.95") && !text.contains("absent"), "{text}");
    }

    #[test]
    fn a_comparison_names_what_it_compares_with() {
        let point = |fresh: f64| BTreeMap::from([("old".into(), 90.0), ("fresh".into(), fresh)]);
        let verdict = Verdict {
            point: point(10.0),
            at: point(0.0),
            of: Some("none".into()),
            at_least: Some(0.95),
            ..Verdict::default()
        };
        assert_eq!(asked(&verdict), "≥ 0.95 × none × that at fresh = 0");
    }

    #[test]
    fn repeats_without_the_number_are_told() {
        let verdict =
            Verdict { got: Some(9.5), absent: 2, held: Some(false), ..Verdict::default() };
        let text = verdicts(&[verdict], &[]).table().to_string();
        assert!(text.contains("9.500 (absent in 2)") && text.contains("FAILED"), "{text}");
    }
}
