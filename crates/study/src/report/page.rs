//! The page around the charts.

use super::marks::{Marks, points};
use super::{bars, figures, lines, series, windows};
use crate::aggregate::{Cell, cells, point_text, point_values, swept};
use crate::reproduce::kept::Shown;
use crate::table::{Grid, numbers, verdicts};
use crate::verdict::Outcome;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::path::Path;
use weir_model::results::{Results, Run};
use weir_units::show;

const STYLE: &str = include_str!("style.css");

/// Numbers worth a chart over a sweep, with the axis' name.
const OVER_SWEEP: [(&str, &str); 4] = [
    ("worst_floor_ratio", "worst got / promised floor"),
    ("optimum_ratio", "carried / ideal, worst bottleneck"),
    ("jain", "Jain index of the largest group"),
    ("link_utilisation", "link use"),
];

/// The whole page.
pub(super) fn html(shown: &[Shown], experiments: &[Results], dir: &Path) -> String {
    let title = match (shown.len(), experiments) {
        (0, [one]) => name(one),
        (0, several) => format!("{} experiments", several.len()),
        (1, _) => shown[0].figure.id().into(),
        (several, _) => format!("{several} figures"),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Weir: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { p class="brand" { "Weir" span { "a bandwidth floor for every VM" } } }
                main {
                    @if !shown.is_empty() { (figures::html(shown, dir)) }
                    @for results in experiments { (experiment(results)) }
                }
                footer { p { (LEGEND) } }
            }
        }
    };
    page.into_string()
}

const LEGEND: &str = "Goodput is application octets received. A floor is promised on the wire (layer \
    2 without FCS); here it is drawn as the goodput it is worth. “Of ideal” compares with the best \
    allocation for the demands of each moment: floors first, what remains in proportion to floors.";

fn name(results: &Results) -> String {
    results.runs.first().map_or_else(|| "nothing".into(), |run| run.scenario.clone())
}

fn experiment(results: &Results) -> Markup {
    let cells = cells(&results.runs);
    let swept = swept(&cells);
    let title =
        if results.about.title.is_empty() { name(results) } else { results.about.title.clone() };
    html! {
        article {
            h1 { (title) }
            p class="sub" { code { (name(results)) } " · " (size(results, &cells)) }
            (banner(results))
            section { h2 { "What was promised, what was got" } (table(&numbers(&cells))) }
            @if swept.is_empty() { (panels(&cells)) } @else { (sweep(&cells, &swept)) }
            (traces(&cells, &swept))
            @if !results.verdicts.is_empty() {
                section { h2 { "Expected" } (table(&verdicts(&results.verdicts, &swept))) }
            }
            (invalid(&results.runs, &swept))
            (notes(&results.runs))
            (cost(&cells))
            @if !results.about.command.is_empty() {
                section { h2 { "Play it again" } pre { (results.about.command) } }
            }
        }
    }
}

fn size(results: &Results, cells: &[Cell<'_>]) -> String {
    let runs = results.runs.len();
    let world = results.runs.first().map_or("", |r| r.world.as_str());
    let world = match world {
        "lab" => "real Linux stacks in network namespaces",
        "sim" => "hosts and links simulated packet by packet",
        "flow" => "tenants and ports computed without packets",
        other => other,
    };
    let repeats = cells.iter().map(Cell::repeats).max().unwrap_or(0);
    let median = if repeats > 1 { ", medians of the valid repeats" } else { "" };
    format!("{runs} run{} on {world}{median}", if runs == 1 { "" } else { "s" })
}

fn banner(results: &Results) -> Markup {
    let failed = results.verdicts.iter().filter(|v| v.held == Some(false)).count();
    let invalid = results.runs.iter().filter(|r| !r.valid).count();
    let asked = results.verdicts.len();
    let (class, text) = match Outcome::of(&results.runs, &results.verdicts) {
        Outcome::Held if asked == 0 => ("held", "Nothing was expected; all runs are valid.".into()),
        Outcome::Held => ("held", format!("✓ All {asked} expectations held.")),
        Outcome::Failed if failed > 0 => {
            ("failed", format!("✗ {failed} of {asked} expectations failed."))
        }
        Outcome::Failed => ("failed", "✗ Something expected was never measured.".into()),
        Outcome::Invalid => ("doubt", format!("! {invalid} runs are no results: see below.")),
    };
    html! { p class={"banner " (class)} { (text) } }
}

fn table(grid: &Grid) -> Markup {
    let class = |column: usize| if column < grid.names { "name" } else { "number" };
    let verdict = |text: &str| match text {
        "held" => "held",
        "FAILED" => "failed",
        "not judged" => "doubt",
        _ => "",
    };
    html! {
        div class="scroll" {
            table {
                thead { tr { @for (i, cell) in grid.header.iter().enumerate() {
                    th class=(class(i)) { (cell) }
                } } }
                tbody { @for row in &grid.rows {
                    tr class=[(!row[0].is_empty()).then_some("first")] {
                        @for (i, cell) in row.iter().enumerate() {
                            td class={(class(i)) " " (verdict(cell))} { (cell) }
                        }
                    }
                } }
            }
        }
    }
}

/// One panel per mechanism, all on the same scale.
fn panels(cells: &[Cell<'_>]) -> Markup {
    let runs: Vec<&Run> = cells.iter().map(Cell::shown).collect();
    let most = series::most(&runs);
    html! {
        section {
            h2 { "Second by second" }
            p class="note" {
                "Bold: means over half a second; thin: every sample. Dashed: the floor, as goodput."
            }
            @for cell in cells {
                figure {
                    figcaption { b { (cell.mechanism) } " " (headline(cell)) }
                    (series::panel(cell.shown(), most))
                }
            }
        }
    }
}

/// What the first group got, in words.
fn headline(cell: &Cell<'_>) -> String {
    let Some(group) = cell.groups().next() else { return String::new() };
    let got = cell.group(group, |g| g.goodput_bps).map_or("–".into(), show::rate);
    let doubt = if cell.valid { "" } else { " (not a valid run)" };
    match cell.number(&format!("goodput_of_floor.{group}")) {
        Some(ratio) => format!("{group} gets {got}, {} of its floor{doubt}", show::percent(ratio)),
        None => format!("{group} gets {got}{doubt}"),
    }
}

fn sweep(cells: &[Cell<'_>], swept: &[String]) -> Markup {
    let marks = Marks::of(cells);
    let first = cells.first().and_then(|c| c.groups().next()).unwrap_or("the first group");
    let charts = OVER_SWEEP.iter().filter_map(|(m, t)| lines::chart(cells, swept, &marks, m, t));
    html! {
        section {
            h2 { "Over the sweep" }
            (legend(&marks))
            figure {
                figcaption {
                    b { "Goodput" } " Solid: " (first) "; pale, on top of it: all others. Dashed: the \
                    floor of " (first) "."
                }
                (bars::chart(cells, swept, &marks))
            }
            div class="pair" { @for chart in charts { figure { (chart) } } }
        }
        section {
            h2 { "Second by second" }
            @for point in points(cells) {
                @let here: Vec<&Cell<'_>> = cells.iter().filter(|c| c.point == point).collect();
                @let runs: Vec<&Run> = here.iter().map(|c| c.shown()).collect();
                @let most = series::most(&runs);
                details {
                    summary { (swept.join(", ")) " = " (point_values(point, swept)) }
                    @for cell in here {
                        figure {
                            figcaption { b { (cell.mechanism) } " " (headline(cell)) }
                            (series::panel(cell.shown(), most))
                        }
                    }
                }
            }
        }
    }
}

/// Windows over time, where something was traced.
fn traces(cells: &[Cell<'_>], swept: &[String]) -> Markup {
    let runs: Vec<&Run> = cells.iter().map(Cell::shown).collect();
    html! {
        @if windows::any(&runs) {
            section {
                h2 { "Windows" }
                @for run in runs {
                    @let point = point_text(&run.point, swept);
                    @if point.is_empty() { (windows::charts(run)) } @else {
                        details { summary { (point) ", " (run.mechanism) } (windows::charts(run)) }
                    }
                }
            }
        }
    }
}

fn legend(marks: &Marks) -> Markup {
    html! {
        p class="legend" {
            @for (index, mechanism) in marks.mechanisms.iter().enumerate() {
                span { i class={"swatch s" (index % 6)} {} (mechanism) }
            }
        }
    }
}

fn invalid(runs: &[Run], swept: &[String]) -> Markup {
    let invalid: Vec<&Run> = runs.iter().filter(|r| !r.valid).collect();
    html! {
        @if !invalid.is_empty() {
            section {
                h2 { "No results" }
                p class="note" { "These runs were played and are shown, but prove nothing:" }
                ul { @for run in invalid {
                    li {
                        b { (run.mechanism) } (at(run, swept)) ": " (run.reasons.join("; ")) "."
                    }
                } }
            }
        }
    }
}

/// Which point and repeat of several.
fn at(run: &Run, swept: &[String]) -> String {
    let point = point_text(&run.point, swept);
    let point = if point.is_empty() { point } else { format!(" at {point}") };
    let repeat =
        if run.repeat > 0 { format!(", repeat {}", run.repeat + 1) } else { String::new() };
    format!("{point}{repeat}")
}

fn notes(runs: &[Run]) -> Markup {
    let mut notes: Vec<&String> = runs.iter().flat_map(|r| &r.notes).collect();
    notes.sort();
    notes.dedup();
    html! {
        @if !notes.is_empty() {
            section { h2 { "Notes" } ul { @for note in notes { li { (note) } } } }
        }
    }
}

fn cost(cells: &[Cell<'_>]) -> Markup {
    let most = |value: fn(&Run) -> f64| cells.iter().map(|c| value(c.shown())).fold(0.0, f64::max);
    let idle = cells.iter().map(|c| c.shown().perf.worst_idle).fold(1.0, f64::min);
    let agents =
        most(|r| if r.perf.wall_s > 0.0 { r.perf.agents_cpu_s / r.perf.wall_s } else { 0.0 });
    html! {
        section {
            h2 { "What it cost" }
            p {
                "The longest run took " (format!("{:.1}", most(|r| r.perf.wall_s))) " s. All agents \
                together used at most " (show::percent(agents)) " of one CPU; the busiest CPU of any \
                run had " (show::percent(idle)) " idle in its worst sample."
            }
        }
    }
}
