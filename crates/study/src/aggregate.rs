//! Repeats of one point and mechanism, seen as one.

use crate::numbers::median;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::results::{Group, Run};

/// All repeats of one mechanism at one point. Numbers are medians over the valid ones, or over all
/// if none is valid: then they are shown as doubtful.
pub(crate) struct Cell<'a> {
    pub(crate) point: &'a BTreeMap<String, f64>,
    pub(crate) mechanism: &'a str,
    /// Whether at least one repeat is valid.
    pub(crate) valid: bool,
    runs: Vec<&'a Run>,
}

/// The cells of an experiment, in the order in which they were played.
pub(crate) fn cells(runs: &[Run]) -> Vec<Cell<'_>> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for run in runs {
        let same = |c: &&mut Cell<'_>| *c.point == run.point && c.mechanism == run.mechanism;
        match cells.iter_mut().find(same) {
            Some(cell) => cell.runs.push(run),
            None => cells.push(Cell {
                point: &run.point,
                mechanism: &run.mechanism,
                valid: false,
                runs: vec![run],
            }),
        }
    }
    for cell in &mut cells {
        cell.valid = cell.runs.iter().any(|run| run.valid);
        if cell.valid {
            cell.runs.retain(|run| run.valid);
        }
    }
    cells
}

impl<'a> Cell<'a> {
    /// The median of a number of `summary`.
    pub(crate) fn number(&self, metric: &str) -> Option<f64> {
        self.over(|run| run.summary.get(metric).copied())
    }

    /// The median of something of a group.
    pub(crate) fn group(&self, name: &str, value: impl Fn(&Group) -> f64) -> Option<f64> {
        self.over(|run| run.groups.iter().find(|g| g.group == name).map(&value))
    }

    /// Names of the groups, in the scenario's order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &'a str> {
        self.runs[0].groups.iter().map(|g| g.group.as_str())
    }

    /// The repeat that is drawn: the first valid one.
    pub(crate) fn shown(&self) -> &'a Run {
        self.runs[0]
    }

    /// How many repeats count.
    pub(crate) fn repeats(&self) -> usize {
        self.runs.len()
    }

    fn over(&self, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.runs.iter().filter_map(|run| value(run)).collect();
        values.sort_by(f64::total_cmp);
        median(&values)
    }
}

/// The names of the groups of all runs, in the order of their first appearance.
pub(crate) fn group_names(cells: &[Cell<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in cells.iter().flat_map(Cell::groups) {
        if !names.iter().any(|n| n == name) {
            names.push(name.into());
        }
    }
    names
}

/// `senders = 10`; empty if nothing was swept.
pub(crate) fn point_text(point: &BTreeMap<String, f64>, swept: &[String]) -> String {
    match swept {
        [] => String::new(),
        names => format!("{} = {}", names.join(", "), point_values(point, names)),
    }
}

/// The values of the swept parameters: `10`, or `10, 0.2`.
pub(crate) fn point_values(point: &BTreeMap<String, f64>, swept: &[String]) -> String {
    let values: Vec<String> =
        swept.iter().filter_map(|name| point.get(name)).map(f64::to_string).collect();
    values.join(", ")
}

/// The parameters in which the points differ; the others are the same everywhere.
pub(crate) fn swept(cells: &[Cell<'_>]) -> Vec<String> {
    differing(&cells.iter().map(|c| c.point).collect::<Vec<_>>())
}

/// The names whose values are not the same at all points.
pub(crate) fn differing(points: &[&BTreeMap<String, f64>]) -> Vec<String> {
    let names: BTreeSet<&String> = points.iter().flat_map(|point| point.keys()).collect();
    let differs = |name: &&String| {
        let mut values = points.iter().map(|point| point.get(*name));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    names.into_iter().filter(differs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: f64, mechanism: &str, valid: bool, x: f64) -> Run {
        Run {
            point: BTreeMap::from([("n".into(), n), ("scale".into(), 0.2)]),
            mechanism: mechanism.into(),
            valid,
            summary: BTreeMap::from([("x".into(), x)]),
            ..Run::default()
        }
    }

    #[test]
    fn repeats_become_one_cell_with_the_median_of_the_valid() {
        let runs = [
            run(1.0, "none", true, 0.5),
            run(1.0, "none", false, 9.0),
            run(1.0, "none", true, 0.7),
            run(2.0, "none", false, 0.1),
        ];
        let cells = cells(&runs);
        assert_eq!((cells.len(), cells[0].number("x"), cells[0].repeats()), (2, Some(0.6), 2));
        assert!(!cells[1].valid);
        assert_eq!(cells[1].number("x"), Some(0.1));
        assert_eq!(swept(&cells), ["n"]);
    }
}
