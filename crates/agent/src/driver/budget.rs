//! VMs' window budgets: what is asked for, what each connection gets of it, and what is reported.
//!
//! Problem   A budget that is too small, or whose classes overlap, must be seen by whoever asked for it, and keep
//!           no floor from being.
//! Approach  The core says whether a budget can keep what it promises; the host's machine divides; the data plane
//!           counts the connections of each class, and puts shares in force. What is refused is in the status, in the reasons of a
//!           pair, and in the log when it changes.
//! Promises  No wish is dropped without a word. A budget is looked at twenty times a second, where there is any; its
//!           connections are counted twice a second, and beyond that as often as they come and go, but for a hundredth of
//!           a CPU per VM at most.
//! Not here  The division: `weir_core::host` (`windows`). Counting: `weir_dataplane`.

use super::Driver;
use super::refused::Refused;
use crate::config::{Names, Setup};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::host::{Call, Input, Observed};
use weir_core::vcc::{Budget, BudgetConfig, Class, Match};
use weir_dataplane::Bounded;
use weir_dataplane::vcc::budget::{self as kernel, CLASSES_MOST, LOOK_NS};
use weir_model::agent::{AgentConfig, Ports, WindowBudget, WindowClass};
use weir_model::status;
use weir_units::{Bytes, SortedMap, Span, Time, VmId};

/// What TCP can say in a window.
const TOTAL_MOST: Bytes = Bytes::new(1 << 30);

/// A budget that is asked for.
#[derive(Debug)]
struct Asked {
    wish: WindowBudget,
    /// It, or why there is none.
    budget: Result<Budget, String>,
}

/// All budgets that are asked for.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    asked: BTreeMap<VmId, Asked>,
    /// When they were last looked at.
    looked: Time,
    /// Those that are refused, as the log has them.
    pub(super) refused: Refused,
}

/// What the data plane shall look connections up by, for the VMs that are there.
pub(super) fn of(setup: &Setup, gone: &BTreeSet<VmId>) -> BTreeMap<VmId, Vec<kernel::Class>> {
    let there = wishes(setup).into_iter().filter(|(vm, _)| !gone.contains(vm));
    there.map(|(vm, asked)| (vm, asked.classes())).filter(|(_, all)| !all.is_empty()).collect()
}

/// The budgets that can keep what they promise: the machine divides them.
pub(crate) fn sound_ones(file: &AgentConfig, names: &Names) -> SortedMap<VmId, BudgetConfig> {
    let vms = file.vms.iter();
    let asked = vms.filter_map(|vm| Some((names.id(&vm.name)?, sound(vm.budget.as_ref()?).ok()?)));
    asked.map(|(vm, budget)| (vm, budget.config().clone())).collect()
}

/// What the file asks for.
fn wishes(setup: &Setup) -> BTreeMap<VmId, Asked> {
    let vms = setup.file.vms.iter();
    let asked = vms.filter_map(|vm| Some((setup.names.id(&vm.name)?, vm.budget.as_ref()?)));
    asked.map(|(vm, wish)| (vm, Asked::new(wish))).collect()
}

impl Asked {
    fn new(wish: &WindowBudget) -> Self {
        Self { wish: wish.clone(), budget: sound(wish) }
    }

    /// As the programs on the VM's port know its classes; none if it is refused.
    fn classes(&self) -> Vec<kernel::Class> {
        let Ok(budget) = &self.budget else { return Vec::new() };
        let ports = |ports: &Option<Ports>| ports.as_ref().map_or(0..=u16::MAX, |p| p.0.clone());
        let class = |(class, share): (&WindowClass, u32)| {
            let (local, remote) = (ports(&class.local_ports), ports(&class.remote_ports));
            kernel::Class { share, ..kernel::Class::new(local, remote) }
        };
        self.wish.classes.iter().zip(budget.shares()).map(class).collect()
    }

    /// Live connections of a class, and what each of them may have; if the port is not there, what one would.
    fn found(&self, class: usize, bounded: Option<&Bounded>) -> (u32, u32) {
        let would = || (0, self.budget.as_ref().map_or(0, |budget| budget.shares()[class]));
        bounded.and_then(|one| one.classes.get(class).copied()).unwrap_or_else(would)
    }
}

/// Whether a budget can keep what it promises.
fn sound(wish: &WindowBudget) -> Result<Budget, String> {
    let most = wish.classes.len();
    if most > CLASSES_MOST {
        return Err(format!("it has {most} classes; {CLASSES_MOST} at most can be told apart"));
    }
    if wish.total.0 > TOTAL_MOST {
        return Err(format!("a window of {} is more than TCP can say: {TOTAL_MOST}", wish.total.0));
    }
    let class = |class: &WindowClass| {
        let flows = Match {
            local_ports: class.local_ports.clone().map(|ports| ports.0),
            remote_ports: class.remote_ports.clone().map(|ports| ports.0),
        };
        Class { name: class.name.clone(), flows, weight: class.weight }
    };
    let config = BudgetConfig {
        total: wish.total.0,
        flows_most: wish.flows_most,
        segment: wish.segment.0,
        classes: wish.classes.iter().map(class).collect(),
    };
    Budget::new(config).map_err(|refusal| refusal.to_string())
}

impl Driver {
    /// Takes up what is asked for now. Connections that live are counted anew at once.
    pub(super) fn take_up_budgets(&mut self, now: Time) {
        self.budgets.asked = wishes(&self.setup);
        self.tend_windows(now);
        self.tell_of_budgets();
    }

    /// When to look next at the connections of budgets, if there is a budget.
    pub(super) fn next_count(&self) -> Option<Time> {
        let next = self.budgets.looked + Span::from_nanos(LOOK_NS);
        self.dataplane.has_windows().then_some(next)
    }

    /// Tells the machine of the connections that live now, and puts in force what it makes of it.
    pub(super) fn tend_windows(&mut self, now: Time) {
        self.budgets.looked = now;
        let connections = self.dataplane.count_connections(now.as_nanos(), &super::thread_cpu_ns);
        if connections.is_empty() {
            return;
        }
        let observed = Observed { connections, ..Observed::default() };
        self.host.handle(now, Call::Input(Input::Observed(&observed)));
        self.carry_out(now);
        // Also where nothing changed: a port may be new.
        self.dataplane.share_windows(Vec::new());
    }

    /// What became of all budgets, for people.
    pub(super) fn told_budgets(&self) -> Vec<status::Budget> {
        self.all_budgets().into_iter().map(|(_, told)| told).collect()
    }

    fn all_budgets(&self) -> Vec<(VmId, status::Budget)> {
        let bounded = self.dataplane.budgets();
        let all = self.budgets.asked.iter().map(|(vm, asked)| {
            let own = bounded.iter().find(|one| one.vm == *vm);
            (*vm, told(self.setup.names.name(*vm), asked, own))
        });
        all.collect()
    }

    /// Says once what is refused, and when it is not any more.
    pub(super) fn tell_of_budgets(&mut self) {
        let all = self.all_budgets().into_iter();
        let refused = all.filter_map(|(vm, told)| Some((vm, told.refused?))).collect();
        let names = &self.setup.names;
        self.budgets.refused.tell("window budget", refused, &|vm| Some(names.name(vm)));
    }

    /// What bounds these VMs' windows, one sentence for each that has a budget.
    pub(super) fn explain_budgets(&self, vms: &[VmId]) -> Vec<String> {
        let all = self.all_budgets().into_iter();
        all.filter(|(vm, _)| vms.contains(vm)).map(|(_, told)| sentence(&told)).collect()
    }
}

fn told(vm: String, asked: &Asked, bounded: Option<&Bounded>) -> status::Budget {
    let class = |(n, class): (usize, &WindowClass)| {
        let (live, share) = asked.found(n, bounded);
        status::BudgetClass { name: class.name.clone(), weight: class.weight, live, share }
    };
    let c = bounded.and_then(|one| one.counters).unwrap_or_default();
    status::Budget {
        vm,
        refused: asked.budget.as_ref().err().or(bounded.and_then(|b| b.refused.as_ref())).cloned(),
        total: asked.wish.total.0.get(),
        flows_most: asked.wish.flows_most,
        classes: asked.wish.classes.iter().enumerate().map(class).collect(),
        connections: c.begun,
        lowered: c.lowered,
        no_place: c.full,
        unedited: c.unedited,
    }
}

fn sentence(one: &status::Budget) -> String {
    let vm = &one.vm;
    if let Some(why) = &one.refused {
        return format!("{vm} asks for a window budget, refused: {why}.");
    }
    let class = |class: &status::BudgetClass| {
        format!("{} of {} with {} each", class.live, class.name, Bytes::new(class.share.into()))
    };
    let classes: Vec<String> = one.classes.iter().map(class).collect();
    let live: u64 = one.classes.iter().map(|class| u64::from(class.live)).sum();
    let crowded = if live > u64::from(one.flows_most) {
        format!(", more than the {} that it is for", one.flows_most)
    } else {
        String::new()
    };
    let unbounded = match one.no_place {
        0 => String::new(),
        n => format!(". Nothing bounds {n} that found no place in its table (`flows_per_vm`)"),
    };
    format!(
        "The connections of {vm} share windows of {} together: {}{crowded}{unbounded}.",
        Bytes::new(one.total),
        classes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_dataplane::vcc::intf::Counters;

    fn wish(text: &str) -> WindowBudget {
        toml::from_str(text).expect("a budget")
    }

    const PAPER: &str = "total = '90kB'\nflows_most = 5\n\
        [[class]]\nname = 'bulk'\nweight = 1\nremote_ports = '5001-5003'\n\
        [[class]]\nname = 'urgent'\nweight = 3\nremote_ports = '5004-5005'\n";

    #[test]
    fn what_a_budget_cannot_keep_is_refused_with_what_would_do() {
        let checked = sound;
        assert!(checked(&wish(PAPER)).is_ok());
        let refused = |from: &str, to: &str| {
            assert!(PAPER.contains(from), "{from}");
            checked(&wish(&PAPER.replacen(from, to, 1))).expect_err(to)
        };
        assert!(refused("90kB", "37959B").contains("take 37960 B or more"));
        assert!(refused("5001-5003", "5001-5004").contains("bulk and urgent overlap"));
        assert!(refused("weight = 1", "weight = 0").contains("weight of class bulk"));
        assert!(refused("90kB", "2GB").contains("more than TCP can say"));
        let mut many = wish(PAPER);
        many.classes = vec![many.classes[0].clone(); CLASSES_MOST + 1];
        assert!(checked(&many).expect_err("too many").contains("17 classes"));
    }

    #[test]
    fn the_kernel_is_told_the_classes_that_were_written() {
        let classes = Asked::new(&wish(PAPER)).classes();
        let urgent = kernel::Class::new(0..=u16::MAX, 5004..=5005);
        assert_eq!(classes[1], kernel::Class { share: 90_000, ..urgent });
        assert_eq!(classes[0].remote_first..=classes[0].remote_last, 5001..=5003);
    }

    #[test]
    fn a_budget_without_a_port_tells_what_one_connection_would_have() {
        let asked = Asked::new(&wish(PAPER));
        assert_eq!(asked.found(1, None), (0, 90_000), "what one would have");
        let refused = Asked::new(&wish(&PAPER.replace("90kB", "9kB")));
        assert_eq!((refused.found(1, None), refused.classes().len()), ((0, 0), 0));
    }

    #[test]
    fn each_outcome_of_a_wish_has_its_words() {
        let told = |one: Bounded| told("a".into(), &Asked::new(&wish(PAPER)), Some(&one));
        let classes = vec![(3, 10_000), (2, 30_000)];
        let counters = Some(Counters { begun: 7, lowered: 31, ..Counters::default() });
        let one = Bounded { vm: VmId(1), refused: None, classes, counters };
        let on = told(one.clone());
        assert_eq!(
            sentence(&on),
            "The connections of a share windows of 90000 B together: 3 of bulk with 10000 B each, 2 of \
             urgent with 30000 B each."
        );
        assert_eq!((on.connections, on.lowered, on.no_place), (7, 31, 0));
        let classes = vec![(9, 9_000), (1, 9_000)];
        let crowded = sentence(&told(Bounded { classes, ..one.clone() }));
        assert!(crowded.ends_with(", more than the 5 that it is for."), "{crowded}");
        let counters = Some(Counters { full: 12, ..Counters::default() });
        let full = sentence(&told(Bounded { counters, ..one.clone() }));
        assert!(full.contains(". Nothing bounds 12 that found no place in its table"), "{full}");
        let refused = sentence(&told(Bounded { refused: Some("too small".into()), ..one }));
        assert_eq!(refused, "a asks for a window budget, refused: too small.");
    }
}
