//! What bounds windows beside the law: budgets, and pairs' rates. Who lives on which, and what each has.
//!
//! Promises  A connection lives on its budget, and on its pair's rate, from its first packet until its application has
//!           nothing more to send.
//! Not here  Shares of the total, and windows from rates: `weir_core::vcc`. What a share does: `translator`. Unlike in the
//!           kernel, shares and windows change in the moment in which somebody comes or goes, or a rate does, and windows
//!           count no more in that in which an agent dies.

use std::collections::BTreeMap;
use weir_core::vcc::{Budget, shaping};
use weir_units::{Rate, Span};

/// Of which budget, and of which of its classes, a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// The VM whose budget it is.
    pub(crate) vm: u32,
    pub(crate) class: usize,
}

/// A connection whose window follows its pair's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// The VMs, the one that sends first.
    pub(crate) pair: (u32, u32),
    /// So long the pair's rate is to carry what all of its connections have in flight.
    pub(crate) time: Span,
}

/// All bounds.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// By VM: a budget, and its live connections by class.
    budgets: BTreeMap<u32, (Budget, Vec<u32>)>,
    /// Live connections whose windows follow rates, by pair.
    shaped: BTreeMap<(u32, u32), u32>,
}

impl Shares {
    pub(crate) fn new(budgets: BTreeMap<u32, Budget>) -> Self {
        let empty = |(vm, budget): (u32, Budget)| {
            let live = vec![0; budget.config().classes.len()];
            (vm, (budget, live))
        };
        Self { budgets: budgets.into_iter().map(empty).collect(), shaped: BTreeMap::new() }
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

    /// A connection whose window follows a rate begins, or ends.
    pub(crate) fn turn_shaped(&mut self, shape: Shape, lives: bool) {
        let live = self.shaped.entry(shape.pair).or_default();
        *live = if lives { *live + 1 } else { live.checked_sub(1).expect("who ends has begun") };
    }

    /// What it may have at its pair's rate, octets; all ones if there is none.
    pub(crate) fn at_rate(&self, shape: Option<Shape>, rate: Option<Rate>) -> u32 {
        let Some((shape, rate)) = shape.zip(rate) else { return u32::MAX };
        let live = self.shaped.get(&shape.pair).copied().unwrap_or_default();
        shaping::window(rate, shape.time, live)
    }
}
