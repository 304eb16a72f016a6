//! Windows of VMs' connections, beside whatever mechanism decides rates.
//!
//! Problem   A budget of windows is divided over connections that come and go. A data plane that called back for each
//!           division would have a decision that no journal has.
//! Approach  The policy says which VM has which budget. Live connections by class are an observation, and what each
//!           connection of a class may have is a level.
//! Promises  Shares follow from the policy and the last count alone. A policy with a budget that could not keep what it
//!           promises is refused whole.
//! Not here  The division: [`Budget`]. Translation and policing: settings of a port's programs, which no state of the
//!           machine changes; the data plane's configuration has them.
//! Source    vCC §4, Fig. 12.

use super::orders::Levels;
use super::policy::Policy;
use crate::mechanism::Refusal;
use crate::vcc::Budget;
use serde::{Deserialize, Serialize};
use weir_units::{SortedMap, VmId};

/// What one connection of each class may have, octets; a data plane without such a level bounds nothing.
pub type WindowShares = Vec<u32>;

/// The budgets in force.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Windows(SortedMap<VmId, Budget>);

impl Windows {
    pub(super) fn of(policy: &Policy) -> Result<Self, Refusal> {
        let budget = |(vm, config): (&VmId, &crate::vcc::BudgetConfig)| {
            let budget = Budget::new(config.clone());
            Ok((*vm, budget.map_err(|refusal| Refusal::Windows(*vm, refusal))?))
        };
        policy.windows.iter().map(budget).collect::<Result<_, _>>().map(Self)
    }

    /// Takes the place of `former`. A budget that is the same as before keeps its count.
    pub(super) fn take_over(
        mut self,
        former: Self,
        levels: &mut Levels<VmId, WindowShares>,
    ) -> Self {
        for (vm, budget) in former.0 {
            match self.0.get_mut(&vm) {
                Some(next) if next.config() == budget.config() => *next = budget,
                _ => levels.remove(vm),
            }
        }
        self
    }

    /// Divides anew where connections were counted. Counts of a VM without a budget, or by other classes, were made
    /// before the policy changed, and tell nothing.
    pub(super) fn recount(
        &mut self,
        connections: &[(VmId, Vec<u32>)],
        levels: &mut Levels<VmId, WindowShares>,
    ) {
        for (vm, live) in connections {
            let budget = self.0.get_mut(vm);
            let known = budget.filter(|budget| budget.config().classes.len() == live.len());
            let Some(budget) = known else { continue };
            budget.recount(live);
            levels.set(*vm, budget.shares());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Capabilities, Hose, HostMachine, Input, Location, Observed, Outbox};
    use crate::mechanism::registry;
    use crate::vcc::BudgetConfig;
    use weir_units::{Bytes, HostId, Rate, TenantId, Time};

    const VM: VmId = VmId(0);

    fn budget(total: u64) -> BudgetConfig {
        let classes = [("bulk".into(), 1, 5001..=5003), ("urgent".into(), 3, 5004..=5005)];
        BudgetConfig::by_remote_ports(Bytes::new(total), 5, classes.into_iter())
    }

    fn policy(law: crate::mechanism::Law, total: u64) -> Policy {
        let at = Location { tenant: TenantId(0), host: HostId(0) };
        let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
            .with_vms([(VM, Hose::both(Rate::from_mbps(10)))])
            .with_directory([(VM, at)]);
        policy.can = Capabilities::default();
        policy.windows.insert(VM, budget(total));
        policy
    }

    fn counted(machine: &mut HostMachine, live: &[u32]) -> Vec<(VmId, Option<WindowShares>)> {
        let connections = vec![(VM, live.to_vec())];
        let observed = Observed { connections, ..Observed::default() };
        machine.handle(Time::ZERO, Input::Observed(&observed), &mut Outbox::default());
        machine.orders(Time::ZERO).windows.take_changed()
    }

    #[test]
    fn live_connections_share_a_budget_by_weight_whatever_the_mechanism() {
        for row in registry::ALL {
            let policy = policy(row.sample(), 90_000);
            let mut machine =
                HostMachine::new(policy, Time::ZERO).expect("nothing speaks against it");
            assert_eq!(counted(&mut machine, &[3, 2]), [(VM, Some(vec![10_000, 30_000]))]);
            assert_eq!(counted(&mut machine, &[3, 2]), [], "as it was");
            assert_eq!(counted(&mut machine, &[3]), [], "by other classes");
            assert_eq!(counted(&mut machine, &[9, 0]), [(VM, Some(vec![10_000, 22_500]))]);
        }
    }

    #[test]
    fn a_budget_ends_with_its_policy_and_one_that_keeps_nothing_is_refused_with_all_else() {
        for row in registry::ALL {
            let first = policy(row.sample(), 90_000);
            let mut machine = HostMachine::new(first.clone(), Time::ZERO).expect("sound");
            counted(&mut machine, &[3, 2]);
            let mut tell = |policy: &Policy| {
                machine.handle(Time::ZERO, Input::Policy(policy), &mut Outbox::default());
                let changed = machine.orders(Time::ZERO).windows.take_changed();
                (changed, machine.counters().refused_policies)
            };
            let small = policy(row.sample(), 9_000);
            assert_eq!(tell(&small), (vec![], 1), "{}", row.name);
            assert_eq!(tell(&first), (vec![], 1));
            let without = Policy { windows: SortedMap::new(), ..first };
            assert_eq!(tell(&without), (vec![(VM, None)], 1));
            assert!(HostMachine::new(small, Time::ZERO).is_err());
        }
    }
}
