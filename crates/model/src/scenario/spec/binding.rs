//! The block `binding` as it is written.

use super::{Word, word};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::yaml::Field;

/// How tenants are bound to queues.
#[derive(Clone, Debug)]
pub(crate) struct BindingSpec {
    pub(crate) interval: Option<Formula>,
    pub(crate) rebind: Option<Formula>,
    pub(crate) queues: Option<Formula>,
    pub(crate) shared_weight: Option<Formula>,
    pub(crate) weights: Option<Formula>,
    pub(crate) last_queue: Option<Word>,
    pub(crate) apply: Option<Formula>,
    pub(crate) pinned: Vec<Word>,
    pub(crate) excluded: Vec<Word>,
}

/// `{interval, rebind, queues, shared_weight, weights, last_queue, apply, pinned, excluded}`.
pub(crate) fn binding(field: &Field<'_>) -> Result<BindingSpec, Error> {
    let table = field.table(&[
        "interval",
        "rebind",
        "queues",
        "shared_weight",
        "weights",
        "last_queue",
        "apply",
        "pinned",
        "excluded",
    ])?;
    let formula = |key: &str| table.get(key).map(Formula::read).transpose();
    let words = |key: &str| match table.get(key) {
        Some(field) => field.items()?.into_iter().map(word).collect::<Result<Vec<_>, _>>(),
        None => Ok(Vec::new()),
    };
    Ok(BindingSpec {
        interval: formula("interval")?,
        rebind: formula("rebind")?,
        queues: formula("queues")?,
        shared_weight: formula("shared_weight")?,
        weights: formula("weights")?,
        last_queue: table.get("last_queue").map(word).transpose()?,
        apply: formula("apply")?,
        pinned: words("pinned")?,
        excluded: words("excluded")?,
    })
}
