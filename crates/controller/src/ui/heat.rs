//! A map of floors held: rows are tenants or VMs, columns half hours.
//!
//! Problem   Which tenants' floors broke, and when, has to be seen at a glance, also by people who cannot tell colours
//!           apart, without a pointer, and in a cloud of a thousand tenants.
//! Approach  A table whose cells are links to what broke then. A mark grows with what broke, so its height says what its
//!           colour says. The worst rows come first, and the rest is a number.
//! Promises  At most [`ROWS`] rows of [`COLUMNS`] cells. What was not tested, and what is not known, never look held.

use super::parts::percent;
use crate::accounts::{COLUMN, COLUMNS, Columns, Tested};
use maud::{Markup, html};
use std::cmp::Ordering;
use weir_model::moment::Moment;

/// Rows of a map. A cell is some 150 octets of the page.
pub(super) const ROWS: usize = 30;
/// Half hours between two hours in the head.
const LABELLED: u64 = 6;

/// A row of a map.
pub(super) struct Row {
    pub(super) name: String,
    /// The address of its page.
    pub(super) page: String,
    pub(super) cells: Vec<Tested>,
}

/// Classes of cells and what they mean, the best first.
const LEGEND: [(&str, &str); 6] = [
    ("c-good", "held, ≥ 99.9 %"),
    ("c-fair", "≥ 99 %"),
    ("c-poor", "≥ 90 %"),
    ("c-bad", "less"),
    ("c-idle", "not tested: no pair wanted more than it had"),
    ("c-none", "no data: no host reported"),
];

fn class(tested: Tested, is_known: bool) -> &'static str {
    match tested.share() {
        Some(share) if share >= 0.999 => "c-good",
        Some(share) if share >= 0.99 => "c-fair",
        Some(share) if share >= 0.9 => "c-poor",
        Some(_) => "c-bad",
        None if is_known => "c-idle",
        None => "c-none",
    }
}

fn says(tested: Tested, is_known: bool) -> String {
    match tested.share() {
        Some(share) => format!("held {} of {} s tested", percent(share), tested.windows),
        None if is_known => "not tested".into(),
        None => "no data".into(),
    }
}

/// Hours and minutes of a moment, UTC.
pub(super) fn clock(ms: u64) -> String {
    let minutes = ms / 60_000 % 1440;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn total(row: &Row) -> Tested {
    let mut total = Tested::default();
    row.cells.iter().for_each(|cell| total.add(*cell));
    total
}

/// The worst first: the least part held, then the most seconds broken. What was not tested comes last.
fn worst_first(rows: Vec<Row>) -> Vec<(Row, Tested)> {
    let mut rows: Vec<(Row, Tested)> = rows
        .into_iter()
        .map(|row| {
            let total = total(&row);
            (row, total)
        })
        .collect();
    let broken = |tested: &Tested| tested.windows.saturating_sub(tested.held);
    rows.sort_by(|(a, x), (b, y)| {
        let share = |tested: &Tested| tested.share().unwrap_or(2.0);
        let by_share = share(x).partial_cmp(&share(y)).unwrap_or(Ordering::Equal);
        by_share.then(broken(y).cmp(&broken(x))).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

/// A map, and what it is of: "tenant" or "VM".
pub(super) fn heat(of: &str, columns: &Columns, rows: Vec<Row>) -> Markup {
    let rows = worst_first(rows);
    let (shown, rest) = rows.split_at(rows.len().min(ROWS));
    let until = columns.from + COLUMN * COLUMNS as u64;
    html! {
        h2 { "Floors held, last 24 hours" }
        @if rows.is_empty() { p { "There is no " (of) " yet." } }
        @else {
            p.legend { @for (class, text) in LEGEND { span { i.(class) {} (text) } } }
            table.heat role="grid" aria-label=(format!("Floors held by {of} and half hour, the worst first")) {
                thead { tr {
                    th { (of) }
                    @for (begin, columns) in hours(columns.from) {
                        th colspan=(columns) { @if columns > 3 { (clock(begin)) } }
                    }
                    th { "held" }
                } }
                tbody { @for (row, total) in shown { (line(row, *total, columns)) } }
            }
            p.says {
                (Moment::from_millis(columns.from).to_string()[..10]) " " (clock(columns.from)) " to "
                (Moment::from_millis(until).to_string()[..10]) " " (clock(until)) ", UTC"
            }
            @if !rest.is_empty() { p { (left(rest)) } }
        }
    }
}

/// Parts of the head: their first half hours, and how many they have.
fn hours(from: u64) -> Vec<(u64, usize)> {
    let mut parts: Vec<(u64, usize)> = Vec::new();
    for column in 0..COLUMNS as u64 {
        let begin = from + column * COLUMN;
        match parts.last_mut() {
            Some((_, columns)) if !(begin / COLUMN).is_multiple_of(LABELLED) => *columns += 1,
            _ => parts.push((begin, 1)),
        }
    }
    parts
}

fn line(row: &Row, total: Tested, columns: &Columns) -> Markup {
    let known = |column: usize| columns.is_known.get(column).copied().unwrap_or_default();
    html! {
        tr {
            th scope="row" {
                a href=(row.page) title=(format!("{}, 24 h: {}", row.name, says(total, true))) { (row.name) }
            }
            @for (column, cell) in row.cells.iter().enumerate() {
                @let begin = columns.from + column as u64 * COLUMN;
                td {
                    // The keyboard reaches cells by arrows, not one by one.
                    a.(class(*cell, known(column))) tabindex="-1"
                        href=(format!("{}?at={}#broken", row.page, begin / 1000))
                        title=(format!("{}, {}–{}: {}", row.name, clock(begin), clock(begin + COLUMN),
                            says(*cell, known(column)))) {}
                }
            }
            td.total { (total.share().map_or_else(|| "–".into(), percent)) }
        }
    }
}

/// What is said of rows that are not shown.
fn left(rest: &[(Row, Tested)]) -> String {
    let tested: Vec<f64> = rest.iter().filter_map(|(_, total)| total.share()).collect();
    let idle = rest.len() - tested.len();
    let mut text = format!("{} more", rest.len());
    // They are sorted: the first one of them is the worst.
    if let Some(worst) = tested.first() {
        text += &format!(": {} held at least {}", tested.len(), percent(*worst));
    }
    if idle > 0 {
        text += &format!("{} {idle} not tested", if tested.is_empty() { ":" } else { "," });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        // The last two half hours are known.
        let is_known = (0..COLUMNS).map(|column| column >= COLUMNS - 2).collect();
        Columns { from: 960 * COLUMN, is_known }
    }

    fn row(name: &str, windows: u64, held: u64) -> Row {
        let mut cells = vec![Tested::default(); COLUMNS];
        cells[COLUMNS - 1] = Tested { windows, held };
        Row { name: name.into(), page: format!("/ui/tenants/{name}"), cells }
    }

    fn text(rows: Vec<Row>) -> String {
        heat("tenant", &columns(), rows).into_string()
    }

    #[test]
    fn a_name_with_html_is_text_wherever_it_stands() {
        let page = text(vec![row("<script>\"'&", 10, 1)]);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;&quot;'&amp;"), "{page}");
        // No attribute ends early: each title that begins with the name goes on to its value.
        assert!(
            page.contains(
                "title=\"&lt;script&gt;&quot;'&amp;, 24 h: held 10.00 % of 10 s tested\""
            )
        );
    }

    #[test]
    fn the_worst_come_first_and_the_rest_is_a_number() {
        let mut rows: Vec<Row> =
            (0..500).map(|n| row(&format!("t{n:03}"), 1000, 1000 - n)).collect();
        rows.extend((0..9500).map(|n| row(&format!("idle{n}"), 0, 0)));
        let page = text(rows);
        assert_eq!(page.matches("<th scope=\"row\">").count(), ROWS);
        assert_eq!(page.matches("tabindex=\"-1\"").count(), ROWS * COLUMNS);
        assert!(page.len() < 300_000, "{}", page.len());
        let at = |name: &str| page.find(&format!(">{name}<")).expect("it is shown");
        assert!(at("t499") < at("t498") && !page.contains(">t469<"));
        assert!(page.contains("9970 more: 470 held at least 53.10 %, 9500 not tested"));
        assert!(text(Vec::new()).contains("There is no tenant yet."));
    }

    #[test]
    fn what_was_not_tested_and_what_is_not_known_do_not_look_held() {
        let page = text(vec![row("gold", 10, 10), row("blue", 0, 0)]);
        let cells = |class: &str| page.matches(&format!("<a class=\"{class}\"")).count();
        assert_eq!((cells("c-good"), cells("c-idle")), (1, 3));
        assert_eq!(cells("c-none"), 2 * (COLUMNS - 2));
        assert!(page.contains("gold, 23:30–00:00: held 100.00 % of 10 s tested"), "{page}");
        assert!(page.contains("blue, 23:30–00:00: not tested"));
        assert!(page.contains("blue, 23:00–23:30: not tested"));
        assert!(page.contains("blue, 22:30–23:00: no data"));
        assert!(page.contains("/ui/tenants/gold?at="));
    }

    #[test]
    fn a_share_has_the_class_that_the_legend_says_and_no_more_than_was_held() {
        let of = |held| class(Tested { windows: 1000, held }, true);
        assert_eq!(
            [of(1000), of(999), of(998), of(990), of(989), of(900), of(899), of(0)],
            ["c-good", "c-good", "c-fair", "c-fair", "c-poor", "c-poor", "c-bad", "c-bad"]
        );
        let almost = Tested { windows: 1_000_000, held: 999_999 };
        assert_eq!(says(almost, true), "held 99.99 % of 1000000 s tested");
    }

    #[test]
    fn the_head_covers_all_columns_whenever_the_map_begins() {
        for from in 1000..1006 {
            let parts = hours(from * COLUMN);
            assert_eq!(parts.iter().map(|(_, columns)| columns).sum::<usize>(), COLUMNS);
            assert!(parts[1..].iter().all(|(begin, _)| begin % (LABELLED * COLUMN) == 0));
        }
    }
}
