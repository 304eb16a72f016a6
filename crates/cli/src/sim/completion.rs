//! Completion times by size, of either engine.

use serde_json::{Value, json};
use weir_study::table::Grid;
use weir_units::{Bytes, Rate, Span, Time, show};

/// A full packet on the wire, and what of it is payload: those of the packet engine.
pub(super) const PACKET: (u64, u64) = (1500, 1460);

/// Payload with the headers of the packets that carry it.
pub(super) fn on_the_wire(payload: Bytes) -> Bytes {
    let (packet, inside) = PACKET;
    payload + Bytes::new(payload.get().div_ceil(inside) * (packet - inside))
}

/// What became of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    pub(super) start: Time,
    /// Octets of payload it has to send; without, it never ends.
    pub(super) size: Option<Bytes>,
    pub(super) completed: Option<Time>,
    /// Octets of payload that arrived.
    pub(super) octets: Bytes,
    /// `octets` over the time from its start to its completion, or to the end.
    pub(super) goodput: Rate,
    /// The time it would take alone at the rate of the slowest link on its way.
    pub(super) alone: Option<Span>,
}

impl Finish {
    /// One that was to begin after the end.
    pub(super) fn unborn(start: Time, size: Option<Bytes>) -> Self {
        Self { start, size, completed: None, octets: Bytes::ZERO, goodput: Rate::ZERO, alone: None }
    }

    /// How long it took, if it is done.
    fn took(&self) -> Option<Span> {
        self.completed.map(|at| at.since(self.start))
    }

    /// How many times as long as alone.
    fn slowdown(&self) -> Option<f64> {
        let (took, alone) = self.took().zip(self.alone)?;
        Some(took.as_secs_f64() / alone.as_secs_f64().max(1e-9))
    }

    /// Rates in bit/s, times in seconds, sizes in octets.
    pub(super) fn json(&self, from: u32, to: u32) -> Value {
        json!({
            "from": from,
            "to": to,
            "start_s": self.start.as_secs_f64(),
            "size": self.size.map(Bytes::get),
            "completed_s": self.completed.map(Time::as_secs_f64),
            "octets": self.octets.get(),
            "goodput_bps": self.goodput.as_f64(),
            "slowdown": self.slowdown(),
        })
    }
}

/// Sizes up to here are in one row.
const ROWS: [(u64, &str); 4] = [
    (10_000, "to 10 kB"),
    (100_000, "to 100 kB"),
    (1_000_000, "to 1 MB"),
    (10_000_000, "to 10 MB"),
];

/// One row per class of sizes that occurs, and one for all.
pub(super) fn table(finishes: &[Finish]) -> String {
    let header = [
        "size",
        "flows",
        "completed",
        "mean",
        "p50",
        "p99",
        "p50 slowdown",
        "p99 slowdown",
        "mean goodput",
    ];
    let mut grid = Grid::new(&header, 1);
    let mut add = |name: &str, of: Vec<&Finish>| {
        if !of.is_empty() {
            grid.rows.push(row(name, &of));
        }
    };
    for class in 0..=ROWS.len() + 1 {
        let name = match class {
            class if class < ROWS.len() => ROWS[class].1,
            class if class == ROWS.len() => "above",
            _ => "without end",
        };
        add(name, finishes.iter().filter(|finish| class_of(finish) == class).collect());
    }
    add("all", finishes.iter().collect());
    grid.table().to_string()
}

fn class_of(finish: &Finish) -> usize {
    let Some(size) = finish.size else { return ROWS.len() + 1 };
    ROWS.iter().position(|(most, _)| size.get() <= *most).unwrap_or(ROWS.len())
}

fn row(name: &str, of: &[&Finish]) -> Vec<String> {
    let mut times: Vec<f64> =
        of.iter().filter_map(|one| one.took()).map(|took| took.as_secs_f64()).collect();
    let mut slower: Vec<f64> = of.iter().filter_map(|one| one.slowdown()).collect();
    times.sort_by(f64::total_cmp);
    slower.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let goodput = of.iter().map(|one| one.goodput.as_f64()).sum::<f64>() / of.len() as f64;
    let time = |value: Option<f64>| value.map_or("–".into(), show::time);
    let factor = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.2}"));
    vec![
        name.into(),
        of.len().to_string(),
        times.len().to_string(),
        time(Some(mean).filter(|mean| mean.is_finite())),
        time(percentile(&times, 0.50)),
        time(percentile(&times, 0.99)),
        factor(percentile(&slower, 0.50)),
        factor(percentile(&slower, 0.99)),
        show::rate(goodput),
    ]
}

/// The least value that `part` of all are not above.
fn percentile(ascending: &[f64], part: f64) -> Option<f64> {
    let rank = (part * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(size: u64, ms: u64) -> Finish {
        Finish {
            start: Time::ZERO,
            size: Some(Bytes::new(size)),
            completed: Some(Time::ZERO + Span::from_millis(ms)),
            octets: Bytes::new(size),
            goodput: Rate::of(Bytes::new(size), Span::from_millis(ms)),
            alone: Some(Span::from_millis(1)),
        }
    }

    #[test]
    fn a_percentile_is_a_value_that_was_there() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.50), Some(100.0));
        assert_eq!(percentile(&values, 0.99), Some(198.0));
        assert_eq!(percentile(&values[..1], 0.99), Some(1.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn rows_are_by_size_and_the_last_has_all() {
        let finishes = [
            done(5_000, 2),
            done(10_000, 4),
            done(20_000_000, 8),
            Finish::unborn(Time::ZERO, None),
        ];
        let table = table(&finishes);
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let row = |name: &[&str]| {
            let found = rows.iter().find(|row| row.starts_with(name));
            found.unwrap_or_else(|| panic!("{name:?} is missing in {table}"))[name.len()..].to_vec()
        };
        let times = ["2", "2", "3.00", "ms", "2.00", "ms", "4.00", "ms"];
        assert_eq!(row(&["to", "10", "kB"])[..8], times);
        assert_eq!(row(&["above"])[..2], ["1", "1"]);
        assert_eq!(row(&["without", "end"])[..3], ["1", "0", "–"]);
        assert_eq!(row(&["all"])[..2], ["4", "3"]);
        assert!(!table.contains("100 kB"), "{table}");
    }
}
