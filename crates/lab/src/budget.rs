//! A VM's window budget: the ports that distinguish its groups of traffic, and its division where
//! no agent runs.
//!
//! Problem   A scenario's classes are groups of traffic, and a port sees addresses and numbers.
//! Approach  Each entry of traffic arrives at a port of its own, so the entries of a group are a
//!           range of ports. Agents get these ranges. Without agents, the lab counts and divides as
//!           they do.
//! Not here  Shares: `weir_core::vcc`. Counting: `weir_dataplane::vcc::budget`.

use crate::Error;
use crate::traffic::port;
use std::ops::RangeInclusive;
use weir_core::vcc::{Budget, BudgetConfig};
use weir_dataplane::vcc::Programs;
use weir_dataplane::vcc::budget::{self, Divided};
use weir_model::agent::{Ports, WindowBudget, WindowClass};
use weir_model::scenario::{Scenario, TrafficKind};
use weir_model::text::SizeText;
use weir_units::Bytes;

/// The largest segment of a guest here.
const SEGMENT: Bytes = Bytes::new(1_460);

/// A group in which a VM sends, and where that arrives.
pub(crate) struct Ported {
    pub(crate) group: String,
    pub(crate) weight: u32,
    pub(crate) ports: RangeInclusive<u16>,
}

/// The classes of a VM's budget that have traffic; none if it has no budget.
///
/// # Errors
/// Ports do not tell its groups apart.
pub(crate) fn classes(scenario: &Scenario, vm: usize) -> Result<Vec<Ported>, Error> {
    let Some(budget) = &scenario.vms[vm].budget else { return Ok(Vec::new()) };
    // Answers go back to ports that the kernel gives to clients.
    let entries = || {
        let sends = scenario.traffic.iter().enumerate().filter(|(_, entry)| entry.from == vm);
        sends.filter(|(_, entry)| !matches!(entry.kind, TrafficKind::Reply { .. }))
    };
    let mut classes = Vec::new();
    for class in &budget.classes {
        let own = || entries().filter(|(_, entry)| entry.group == class.group).map(|(n, _)| n);
        let (Some(first), Some(last)) = (own().min(), own().max()) else { continue };
        let mut between = entries().filter(|(n, _)| (first..=last).contains(n));
        if let Some((_, other)) = between.find(|(_, entry)| entry.group != class.group) {
            return Err(Error::Unsupported {
                what: format!(
                    "spec.traffic has group {} of {} between entries of group {}, a class of its budget",
                    other.group, scenario.vms[vm].name, class.group
                ),
                instead: "let a group's entries follow each other".into(),
            });
        }
        let (group, weight, ports) = (class.group.clone(), class.weight, port(first)..=port(last));
        classes.push(Ported { group, weight, ports });
    }
    Ok(classes)
}

/// A VM's budget as agents are told; none if it has none. Ports tell its groups apart: that was
/// checked.
pub(crate) fn of_agent(scenario: &Scenario, vm: usize) -> Option<WindowBudget> {
    let (asked, ported) = (scenario.vms[vm].budget.as_ref()?, classes(scenario, vm).ok()?);
    let class = |one: Ported| WindowClass {
        name: one.group,
        weight: one.weight,
        local_ports: None,
        remote_ports: Some(Ports(one.ports)),
    };
    let classes: Vec<WindowClass> = ported.into_iter().map(class).collect();
    (!classes.is_empty()).then_some(WindowBudget {
        total: SizeText(asked.total),
        flows_most: asked.flows_most,
        segment: SizeText(SEGMENT),
        classes,
    })
}

/// A VM's budget where no agent is.
pub(crate) struct Own {
    budget: Budget,
    divided: Divided,
    /// The most connections that lived on it.
    most: u64,
}

impl Own {
    /// Puts the budget of a VM on its port, in `slot`, which has a table; `None` if it has none.
    pub(crate) fn begin(
        scenario: &Scenario,
        vm: usize,
        programs: &Programs,
        slot: u32,
    ) -> Result<Option<Self>, Error> {
        let ported = classes(scenario, vm)?;
        let Some(asked) = scenario.vms[vm].budget.as_ref().filter(|_| !ported.is_empty()) else {
            return Ok(None);
        };
        let class = |one: &Ported| (one.group.clone(), one.weight, one.ports.clone());
        let classes = ported.iter().map(class);
        let config = BudgetConfig::by_remote_ports(asked.total, asked.flows_most, classes);
        let budget = Budget::new(config).map_err(|refused| Error::Unsupported {
            what: format!("spec.tenants has a budget at {}: {refused}", scenario.vms[vm].name),
            instead: "change it, or leave it out".into(),
        })?;
        let kernel = |(one, share): (&Ported, u32)| budget::Class {
            share,
            ..budget::Class::new(0..=u16::MAX, one.ports.clone())
        };
        let kernel: Vec<budget::Class> = ported.iter().zip(budget.shares()).map(kernel).collect();
        let divided = Divided::begin(programs, slot, &kernel).map_err(Error::Dataplane)?;
        Ok(Some(Self { budget, divided, most: 0 }))
    }

    /// To be called every 50 ms: counts, and divides. `cpu_ns` says how much CPU time the caller
    /// has had.
    pub(crate) fn tend(
        &mut self,
        programs: &Programs,
        now_ns: u64,
        cpu_ns: &dyn Fn() -> u64,
    ) -> Result<(), Error> {
        let budget = &mut self.budget;
        let mut divide = |live: &[u32]| {
            budget.recount(live);
            budget.shares()
        };
        self.divided.tend(programs, now_ns, cpu_ns, &mut divide).map_err(Error::Dataplane)?;
        self.most = self.most.max(self.budget.live());
        Ok(())
    }

    /// What a reader of the results should know.
    pub(crate) fn note(&self, vm: &str) -> Option<String> {
        let flows = u64::from(self.budget.config().flows_most);
        let (most, total) = (self.most, self.budget.config().total);
        (most > flows).then(|| {
            format!(
                "budget of {vm}: {most} connections lived on {total}, which is for {flows} at most"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    #[test]
    fn a_group_is_the_ports_of_its_entries_and_no_others_may_be_between() {
        let text = include_str!("../../../scenarios/vcc/fig12.yaml");
        let file = File::parse("fig12.yaml", text, &[]).expect("a shipped scenario");
        let mut scenario = file.points().expect("one point").remove(0);
        let ports = |scenario: &Scenario| -> Vec<_> {
            let all = classes(scenario, 0).expect("told apart");
            all.into_iter().map(|one| (one.group, one.weight, one.ports)).collect()
        };
        let (bulk, urgent) = ("unpreferred".to_owned(), "preferred".to_owned());
        let [first, second] = [port(0)..=port(0), port(1)..=port(1)];
        assert_eq!(ports(&scenario), [(bulk.clone(), 1, first), (urgent, 3, second)]);
        assert!(classes(&scenario, 1).expect("no budget").is_empty());
        let told = of_agent(&scenario, 0).expect("a budget");
        assert_eq!((told.total.0, told.classes[1].weight), (Bytes::new(9 * 14 * 1_448), 3));
        // A third entry of the first group, behind the other one.
        scenario.traffic.push(scenario.traffic[0].clone());
        let text = classes(&scenario, 0).err().expect("mixed").to_string();
        assert!(text.contains("preferred") && text.contains("follow each other"), "{text}");
        // An entry of another VM does not matter, and a group without traffic is no class.
        scenario.traffic[1].from = 1;
        assert_eq!(ports(&scenario), [(bulk, 1, port(0)..=port(2))]);
    }
}
