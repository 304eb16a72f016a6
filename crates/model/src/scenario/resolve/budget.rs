//! A VM's window budget: classes are groups of its traffic.

use super::Scope;
use crate::scenario::error::{Error, did_you_mean};
use crate::scenario::formula::Formula;
use crate::scenario::spec::budget::BudgetSpec;
use crate::scenario::spec::{KindSpec, Spec, Word, traffic::WorkSpec};
use crate::scenario::topology::distinct;
use crate::scenario::{Budget, BudgetClass};
use weir_units::Bytes;

/// As many as the programs on a port can tell apart.
const CLASSES_MOST: usize = 16;
/// Largest window that TCP can express.
const TOTAL_MOST: u64 = 1 << 30;
/// The largest segment of a guest of ours.
const SEGMENT: u64 = 1_460;

/// The budget of the entry of this name.
pub(super) fn budget(
    spec: &BudgetSpec,
    vm: &Word,
    all: &Spec,
    scope: &Scope,
) -> Result<Budget, Error> {
    if spec.classes.is_empty() || spec.classes.len() > CLASSES_MOST {
        let message = format!("{} classes", spec.classes.len());
        let help = format!("write 1 to {CLASSES_MOST}: {{group: GROUP, weight: 1}}");
        return Err(spec.whole.error(message, help));
    }
    distinct(&spec.classes.iter().map(|(group, _)| group).collect::<Vec<_>>(), "group")?;
    let class = |(group, weight): &(Word, Formula)| {
        sends(group, vm, all)?;
        let weight = weight.count(scope, 1)?;
        Ok(BudgetClass { group: group.text.clone(), weight })
    };
    let classes: Vec<BudgetClass> = spec.classes.iter().map(class).collect::<Result<_, _>>()?;
    let (total, flows_most) = (spec.total.size(scope)?, spec.flows_most.count(scope, 1)?);
    let budget = Budget { total, flows_most, classes };
    let least = least(&budget);
    if total < least {
        let message = format!(
            "{total} for {flows_most} flows, of which one of the least weight would have less than two \
             segments beside others of the greatest"
        );
        return Err(spec.total.error(message, format!("write {least} or more, or fewer flows")));
    }
    if total.get() > TOTAL_MOST {
        let help = format!("write {} or less: no window is larger", Bytes::new(TOTAL_MOST));
        return Err(spec.total.error(format!("a window of {total}"), help));
    }
    Ok(budget)
}

/// Two segments for the flow of the least weight, if all others have the greatest: as
/// `weir_core::vcc` has it.
fn least(budget: &Budget) -> Bytes {
    let weights = || budget.classes.iter().map(|class| u64::from(class.weight));
    let (low, high) = (weights().min().unwrap_or(1), weights().max().unwrap_or(1));
    let all = low + high * u64::from(budget.flows_most - 1);
    Bytes::new((2 * SEGMENT).saturating_mul(all).div_ceil(low))
}

/// Whether the VM of an entry, or one of its set, sends TCP in this group. Only a sender's window
/// can be divided.
fn sends(group: &Word, vm: &Word, all: &Spec) -> Result<(), Error> {
    let mut of_group = all.traffic.iter().filter(|entry| entry.group.text == group.text).peekable();
    if of_group.peek().is_none() {
        let known = all.traffic.iter().map(|entry| entry.group.text.as_str());
        let message = format!("there is no group `{}` in `traffic`", group.text);
        return Err(group.error(message, did_you_mean(&group.text, known)));
    }
    let own = |from: &str| {
        from.strip_prefix(vm.text.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_tcp = |kind: &KindSpec| match kind {
        KindSpec::Tcp { .. } => true,
        KindSpec::Udp { .. } => false,
        KindSpec::Work(work) => !matches!(work, WorkSpec::Exec { .. }),
    };
    if of_group.any(|entry| own(&entry.from.text) && is_tcp(&entry.kind)) {
        return Ok(());
    }
    let message = format!("`{}` sends no TCP in group `{}`", vm.text, group.text);
    Err(group
        .error(message, "name a group that it sends in: shares are of windows that it may fill"))
}
