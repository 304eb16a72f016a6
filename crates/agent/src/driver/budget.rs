//! VMs' window budgets: what is asked for, who gets what of it, and what is told.
//!
//! Problem   A budget that is too small, or whose classes overlap, must be seen by whoever asked for it, and keep
//!           no floor from being.
//! Approach  The core says whether a budget can keep what it promises, and divides; the data plane counts who
//!           lives on it, and puts shares in force. What is refused is in the status, in the reasons of a pair,
//!           and in the log when it changes.
//! Promises  No wish is dropped without a word. A budget is looked at twenty times a second, where there is any; its
//!           connections are counted twice a second, and beyond that as often as they come and go, but for a hundredth of
//!           a CPU per VM at most.
//! Not here  The division: `weir_core::vcc`. Counting: `weir_dataplane`.

use super::Driver;
use crate::config::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::vcc::{Budget, BudgetConfig, Class, Match, Prefix};
use weir_dataplane::Bounded;
use weir_dataplane::vcc::budget::{self as kernel, CLASSES_MOST, LOOK_NS};
use weir_model::agent::{Ports, WindowBudget, WindowClass};
use weir_model::status;
use weir_units::{Bytes, Span, Time, VmId};

/// What TCP can say in a window.
const TOTAL_MOST: Bytes = Bytes::new(1 << 30);

/// A VM's budget, or why it has none.
type Asked = Result<Budget, String>;

/// All budgets that are asked for.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    asked: BTreeMap<VmId, Asked>,
    /// When they were last looked at.
    looked: Time,
    /// Those that are refused, as the log has them.
    refused: BTreeMap<VmId, String>,
}

/// What the data plane shall look connections up by, for the VMs that are there.
pub(super) fn of(setup: &Setup, gone: &BTreeSet<VmId>) -> BTreeMap<VmId, Vec<kernel::Class>> {
    let vms = setup.file.vms.iter();
    let wished = vms.filter_map(|vm| Some((setup.names.id(&vm.name)?, vm.budget.as_ref()?)));
    let sound = wished.filter_map(|(vm, wish)| Some((vm, wish, asked(wish).ok()?)));
    sound
        .filter(|(vm, ..)| !gone.contains(vm))
        .map(|(vm, wish, budget)| (vm, classes(wish, &budget)))
        .collect()
}

/// Whether a budget can keep what it promises.
fn asked(wish: &WindowBudget) -> Asked {
    let most = wish.classes.len();
    if most > CLASSES_MOST {
        return Err(format!("it has {most} classes; {CLASSES_MOST} at most can be told apart"));
    }
    if wish.total.0 > TOTAL_MOST {
        return Err(format!("a window of {} is more than TCP can say: {TOTAL_MOST}", wish.total.0));
    }
    let class = |class: &WindowClass| Class {
        name: class.name.clone(),
        flows: Match {
            tenant: None,
            remote: class.remote.map(|prefix| Prefix::new(prefix.first(), prefix.length())),
            local_ports: class.local_ports.clone().map(|ports| ports.0),
            remote_ports: class.remote_ports.clone().map(|ports| ports.0),
        },
        weight: class.weight,
    };
    let config = BudgetConfig {
        total: wish.total.0,
        flows_most: wish.flows_most,
        segment: wish.segment.0,
        classes: wish.classes.iter().map(class).collect(),
    };
    Budget::new(config).map_err(|refusal| refusal.to_string())
}

/// As the programs on a port know them.
fn classes(wish: &WindowBudget, budget: &Budget) -> Vec<kernel::Class> {
    let ports = |ports: &Option<Ports>| ports.as_ref().map_or(0..=u16::MAX, |p| p.0.clone());
    let class = |(n, class): (usize, &WindowClass)| {
        let remote = class.remote.map(|prefix| (prefix.first(), prefix.length()));
        let (local, distant) = (ports(&class.local_ports), ports(&class.remote_ports));
        kernel::Class { share: share(budget, n), ..kernel::Class::new(remote, local, distant) }
    };
    wish.classes.iter().enumerate().map(class).collect()
}

fn share(budget: &Budget, class: usize) -> u32 {
    u32::try_from(budget.share(class).get()).unwrap_or(u32::MAX)
}

impl Driver {
    /// Takes up what is asked for now. Connections that live are counted anew at once.
    pub(super) fn take_up_budgets(&mut self, now: Time) {
        let vms = self.setup.file.vms.iter();
        let wished =
            vms.filter_map(|vm| Some((self.setup.names.id(&vm.name)?, vm.budget.as_ref()?)));
        self.budgets.asked = wished.map(|(vm, wish)| (vm, asked(wish))).collect();
        self.divide_budgets(now);
        self.tell_of_budgets();
    }

    /// When to look at budgets next, if there are any.
    pub(super) fn next_division(&self) -> Option<Time> {
        let next = self.budgets.looked + Span::from_nanos(LOOK_NS);
        self.dataplane.has_budgets().then_some(next)
    }

    /// Divides them among who lives now.
    pub(super) fn divide_budgets(&mut self, now: Time) {
        self.budgets.looked = now;
        let asked = &mut self.budgets.asked;
        let mut divide = |vm: VmId, live: &[u32]| match asked.get_mut(&vm) {
            Some(Ok(budget)) => {
                budget.recount(live);
                (0..live.len()).map(|class| share(budget, class)).collect()
            }
            // One that is on its way out: as if nothing bounded it.
            _ => vec![u32::MAX; live.len()],
        };
        self.dataplane.tend_budgets(now.as_nanos(), &super::thread_cpu_ns, &mut divide);
    }

    /// What became of all budgets, for people.
    pub(super) fn told_budgets(&self) -> Vec<status::Budget> {
        let bounded: BTreeMap<VmId, Bounded> =
            self.dataplane.budgets().into_iter().map(|one| (one.vm, one)).collect();
        let vms = self.setup.file.vms.iter();
        let wished =
            vms.filter_map(|vm| Some((self.setup.names.id(&vm.name)?, vm.budget.as_ref()?)));
        let told = |(vm, wish): (VmId, &WindowBudget)| {
            let refused = match self.budgets.asked.get(&vm) {
                Some(Err(why)) => Some(why.clone()),
                _ => bounded.get(&vm).and_then(|one| one.refused.clone()),
            };
            told(self.setup.names.name(vm), wish, bounded.get(&vm), refused)
        };
        wished.map(told).collect()
    }

    /// Says once what is refused, and when it is not any more.
    pub(super) fn tell_of_budgets(&mut self) {
        let mut refused = BTreeMap::new();
        for told in self.told_budgets() {
            let id = self.setup.names.id(&told.vm);
            let Some((vm, why)) = id.zip(told.refused) else { continue };
            if self.budgets.refused.get(&vm) != Some(&why) {
                tracing::error!("vm {} has no window budget: {why}", told.vm);
            }
            refused.insert(vm, why);
        }
        for vm in self.budgets.refused.keys().filter(|vm| !refused.contains_key(vm)) {
            tracing::info!(
                "no window budget of vm {} is refused any more",
                self.setup.names.name(*vm)
            );
        }
        self.budgets.refused = refused;
    }

    /// How many are refused.
    pub(super) fn refused_budgets(&self) -> usize {
        self.budgets.refused.len()
    }

    /// What bounds these VMs' windows, one sentence for each that has a budget.
    pub(super) fn explain_budgets(&self, vms: &[VmId]) -> Vec<String> {
        let names: Vec<String> = vms.iter().map(|vm| self.setup.names.name(*vm)).collect();
        let all = self.told_budgets();
        all.iter().filter(|one| names.contains(&one.vm)).map(sentence).collect()
    }
}

fn told(
    vm: String,
    wish: &WindowBudget,
    bounded: Option<&Bounded>,
    refused: Option<String>,
) -> status::Budget {
    let found = |n: usize| bounded.and_then(|one| one.classes.get(n)).copied().unwrap_or_default();
    let class = |(n, class): (usize, &WindowClass)| {
        let (live, share) = found(n);
        status::BudgetClass { name: class.name.clone(), weight: class.weight, live, share }
    };
    let (total, flows_most) = (wish.total.0.get(), wish.flows_most);
    let classes = wish.classes.iter().enumerate().map(class).collect();
    let c = bounded.and_then(|one| one.counters).unwrap_or_default();
    status::Budget {
        vm,
        refused,
        total,
        flows_most,
        classes,
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
        [[class]]\nname = 'urgent'\nweight = 3\nremote_ports = '5004-5005'\nremote = '10.0.0.0/8'\n";

    #[test]
    fn what_a_budget_cannot_keep_is_refused_with_what_would_do() {
        assert!(asked(&wish(PAPER)).is_ok());
        let refused = |from: &str, to: &str| {
            assert!(PAPER.contains(from), "{from}");
            asked(&wish(&PAPER.replacen(from, to, 1))).expect_err(to)
        };
        assert!(refused("90kB", "37959B").contains("take 37960 B or more"));
        assert!(refused("5001-5003", "5001-5004").contains("bulk and urgent overlap"));
        assert!(refused("weight = 1", "weight = 0").contains("weight of class bulk"));
        assert!(refused("90kB", "2GB").contains("more than TCP can say"));
        let mut many = wish(PAPER);
        many.classes = vec![many.classes[0].clone(); CLASSES_MOST + 1];
        assert!(asked(&many).expect_err("too many").contains("17 classes"));
    }

    #[test]
    fn the_kernel_is_told_the_classes_that_were_written() {
        let wish = wish(PAPER);
        let classes = classes(&wish, &asked(&wish).expect("sound"));
        let net = Some(([10, 0, 0, 0].into(), 8));
        let urgent = kernel::Class::new(net, 0..=u16::MAX, 5004..=5005);
        assert_eq!(classes[1], kernel::Class { share: 90_000, ..urgent });
        assert_eq!(classes[0].remote_first..=classes[0].remote_last, 5001..=5003);
    }

    #[test]
    fn each_outcome_of_a_wish_has_its_words() {
        let (wish, name) = (wish(PAPER), || "a".to_owned());
        let classes = vec![(3, 10_000), (2, 30_000)];
        let counters = Some(Counters { begun: 7, lowered: 31, ..Counters::default() });
        let one = Bounded { vm: VmId(1), refused: None, classes, counters };
        let on = told(name(), &wish, Some(&one), None);
        assert_eq!(
            sentence(&on),
            "The connections of a share windows of 90000 B together: 3 of bulk with 10000 B each, 2 of \
             urgent with 30000 B each."
        );
        assert_eq!((on.connections, on.lowered, on.no_place), (7, 31, 0));
        let crowded = Bounded { classes: vec![(9, 9_000), (1, 9_000)], ..one.clone() };
        let crowded = sentence(&told(name(), &wish, Some(&crowded), None));
        assert!(crowded.ends_with(", more than the 5 that it is for."), "{crowded}");
        let counters = Some(Counters { full: 12, ..Counters::default() });
        let full = sentence(&told(name(), &wish, Some(&Bounded { counters, ..one }), None));
        assert!(full.contains(". Nothing bounds 12 that found no place in its table"), "{full}");
        let refused = sentence(&told(name(), &wish, None, Some("too small".into())));
        assert_eq!(refused, "a asks for a window budget, refused: too small.");
    }
}
