//! A VM's `budget` as it is written.

use super::{Word, whole, word};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::yaml::Field;

/// The windows of all of a VM's connections together.
#[derive(Clone, Debug)]
pub(crate) struct BudgetSpec {
    pub(crate) whole: Word,
    pub(crate) total: Formula,
    pub(crate) flows_most: Formula,
    /// Groups of traffic, and their weights.
    pub(crate) classes: Vec<(Word, Formula)>,
}

/// `{total, flows_most, classes: [{group, weight}]}`.
pub(crate) fn budget(field: &Field<'_>) -> Result<BudgetSpec, Error> {
    let table = field.table(&["total", "flows_most", "classes"])?;
    let class = |field: &Field<'_>| {
        let table = field.table(&["group", "weight"])?;
        let weight = Formula::read(table.need("weight", "3")?)?;
        Ok((word(table.need("group", "preferred")?)?, weight))
    };
    let classes =
        table.need("classes", "[{group: bulk, weight: 1}, {group: urgent, weight: 3}]")?;
    Ok(BudgetSpec {
        whole: whole(field),
        total: Formula::read(table.need("total", "180kB")?)?,
        flows_most: Formula::read(table.need("flows_most", "5")?)?,
        classes: classes.items()?.iter().map(class).collect::<Result<_, _>>()?,
    })
}
