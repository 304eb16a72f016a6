//! What tells mechanisms and points apart in all charts of an experiment.

use crate::aggregate::Cell;
use std::collections::BTreeMap;

/// A mechanism's colour is its position here, in every chart of an experiment.
pub(super) struct Marks {
    pub(super) mechanisms: Vec<String>,
}

impl Marks {
    pub(super) fn of(cells: &[Cell<'_>]) -> Self {
        let mut mechanisms: Vec<String> = Vec::new();
        for cell in cells {
            if !mechanisms.iter().any(|m| m == cell.mechanism) {
                mechanisms.push(cell.mechanism.into());
            }
        }
        Self { mechanisms }
    }

    pub(super) fn index(&self, mechanism: &str) -> usize {
        self.mechanisms.iter().position(|m| m == mechanism).unwrap_or(0)
    }
}

/// The points of a sweep in the order they were played.
pub(super) fn points<'a>(cells: &[Cell<'a>]) -> Vec<&'a BTreeMap<String, f64>> {
    let mut points = Vec::new();
    for cell in cells {
        if !points.contains(&cell.point) {
            points.push(cell.point);
        }
    }
    points
}
