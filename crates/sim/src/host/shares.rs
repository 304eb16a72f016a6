//! What bounds windows beside the law: the budgets, their flows, and the share of each.
//!
//! Promises  A connection lives on its budget from its first packet until its application has
//!           nothing more to send.
//! Not here  Shares of the total: `weir_core::vcc`. What a share does: `translator`. Unlike in the
//!           kernel, shares change in the moment in which a flow comes or goes.

use weir_core::vcc::Budget;
use weir_units::SortedMap;

/// The budget of a connection, and its class there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// The VM whose budget it is.
    pub(crate) vm: u32,
    pub(crate) class: usize,
}

/// All bounds.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// By VM: a budget, and its live connections by class.
    budgets: SortedMap<u32, (Budget, Vec<u32>)>,
}

impl Shares {
    pub(crate) fn new(budgets: SortedMap<u32, Budget>) -> Self {
        let empty = |(vm, budget): (u32, Budget)| {
            let live = vec![0; budget.config().classes.len()];
            (vm, (budget, live))
        };
        Self { budgets: budgets.into_iter().map(empty).collect() }
    }

    /// A connection begins, or ends.
    pub(crate) fn turn(&mut self, claim: Claim, lives: bool) {
        let Some((budget, live)) = self.budgets.get_mut(&claim.vm) else { return };
        let own = &mut live[claim.class];
        *own = if lives { *own + 1 } else { own.checked_sub(1).expect("who ends has begun") };
        budget.recount(live);
    }

    /// What a connection may have, octets; all ones if nothing bounds it.
    pub(crate) fn of(&self, claim: Option<Claim>) -> u32 {
        let budget = claim.and_then(|claim| Some((self.budgets.get(&claim.vm)?, claim.class)));
        budget.map_or(u32::MAX, |((budget, _), class)| {
            u32::try_from(budget.share(class).get()).unwrap_or(u32::MAX)
        })
    }
}
