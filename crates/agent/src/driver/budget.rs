//! Window budgets, of one VM or of several: what is asked for, who gets what of it, and what is told.
//!
//! Problem   A budget that is too small, or whose classes overlap, must be seen by whoever asked for it, and keep
//!           no floor from being.
//! Approach  The core says whether a budget can keep what it promises, and divides; the data plane counts who
//!           lives on it, port by port, and puts shares in force. Where several VMs share one, it is divided by what
//!           all their ports counted. What is refused is in the status, in the reasons of a pair, and in the log when
//!           it changes.
//! Promises  No wish is dropped without a word. A budget is looked at twenty times a second, where there is any; its
//!           connections are counted twice a second, and beyond that as often as they come and go, but for a hundredth of
//!           a CPU per VM at most.
//! Not here  The division: `weir_core::vcc`. Counting: `weir_dataplane`. Names of budgets: `shared_budget`.

use super::Driver;
use crate::config::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::vcc::{Budget, BudgetConfig, Class, Match, Prefix};
use weir_dataplane::Bounded;
use weir_dataplane::vcc::budget::{self as kernel, CLASSES_MOST, LOOK_NS, Live, Shares};
use weir_model::agent::{Ports, VmConfig, WindowBudget, WindowClass};
use weir_model::status;
use weir_units::{Bytes, Span, TenantId, Time, VmId};

/// What TCP can say in a window.
const TOTAL_MOST: Bytes = Bytes::new(1 << 30);

/// A budget that is asked for.
#[derive(Debug)]
struct Asked {
    /// Its name, or that of the one VM whose it is.
    name: String,
    wish: WindowBudget,
    /// VMs whose connections live on it, and the classes of which each may have some, by their places.
    vms: BTreeMap<VmId, Vec<usize>>,
    /// It, or why there is none.
    budget: Result<Budget, String>,
}

/// All budgets that are asked for.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    asked: Vec<Asked>,
    /// When they were last looked at.
    looked: Time,
    /// Those that are refused, as the log has them.
    refused: BTreeMap<VmId, String>,
}

/// What the data plane shall look connections up by, for the VMs that are there.
pub(super) fn of(setup: &Setup, gone: &BTreeSet<VmId>) -> BTreeMap<VmId, Vec<kernel::Class>> {
    let all = wishes(setup);
    let of_vms = all.iter().flat_map(|asked| asked.vms.keys().map(move |vm| (*vm, asked)));
    let there = of_vms.filter(|(vm, _)| !gone.contains(vm));
    there.map(|(vm, asked)| (vm, asked.classes_of(vm))).filter(|(_, all)| !all.is_empty()).collect()
}

/// What the file asks for: VMs' own budgets, and those that they share.
fn wishes(setup: &Setup) -> Vec<Asked> {
    let vms = || setup.file.vms.iter();
    let id = |vm: &VmConfig| setup.names.id(&vm.name);
    let own = vms().filter_map(|vm| Some((&vm.name, vec![id(vm)?], vm.budget.as_ref()?)));
    let shared = setup.file.budgets.iter().map(|(name, wish)| {
        let of_it = vms().filter(|vm| vm.shared_budget.as_ref() == Some(name));
        (name, of_it.filter_map(id).collect::<Vec<_>>(), wish)
    });
    let shared = shared.filter(|(_, vms, _)| !vms.is_empty());
    let tenants: BTreeMap<&str, TenantId> = (setup.directory.numbered_vms())
        .filter_map(|(id, vm)| Some((vm.tenant.as_str(), *setup.tenants.get(&id)?)))
        .collect();
    let with_tenant = |vm: VmId| Some((vm, *setup.tenants.get(&vm)?));
    let asked = |(name, vms, wish): (&String, Vec<VmId>, &WindowBudget)| {
        Asked::new(name, wish, vms.into_iter().filter_map(with_tenant), &tenants)
    };
    own.chain(shared).map(asked).collect()
}

impl Asked {
    /// A budget of these VMs, each with its tenant. `tenants` are all that there are.
    fn new(
        name: &str,
        wish: &WindowBudget,
        vms: impl Iterator<Item = (VmId, TenantId)>,
        tenants: &BTreeMap<&str, TenantId>,
    ) -> Self {
        let is_of = |class: &WindowClass, tenant: TenantId| {
            class.tenant.as_ref().is_none_or(|name| tenants.get(name.as_str()) == Some(&tenant))
        };
        let places = |tenant: TenantId| {
            let classes = wish.classes.iter().enumerate();
            classes.filter(|(_, class)| is_of(class, tenant)).map(|(place, _)| place).collect()
        };
        Self {
            name: name.to_owned(),
            wish: wish.clone(),
            vms: vms.map(|(vm, tenant)| (vm, places(tenant))).collect(),
            budget: sound(wish, tenants),
        }
    }

    /// As the programs on a VM's port know its classes; none if it is refused.
    fn classes_of(&self, vm: VmId) -> Vec<kernel::Class> {
        let Ok(budget) = &self.budget else { return Vec::new() };
        let ports = |ports: &Option<Ports>| ports.as_ref().map_or(0..=u16::MAX, |p| p.0.clone());
        let class = |place: &usize| {
            let class = &self.wish.classes[*place];
            let remote = class.remote.map(|prefix| (prefix.first(), prefix.length()));
            let (local, distant) = (ports(&class.local_ports), ports(&class.remote_ports));
            let share = share(budget, *place);
            kernel::Class { share, ..kernel::Class::new(remote, local, distant) }
        };
        self.vms.get(&vm).into_iter().flatten().map(class).collect()
    }

    /// What is each VM's of it, by its classes, if so many connections live at their ports.
    fn divide(&mut self, live: &Live<'_>) -> Shares {
        let Ok(budget) = &mut self.budget else { return Shares::new() };
        let mut all = vec![0u32; self.wish.classes.len()];
        let there = || self.vms.iter().filter_map(|(vm, own)| Some((*vm, own, *live.get(vm)?)));
        for (_, own, live) in there() {
            own.iter()
                .zip(live)
                .for_each(|(place, n)| all[*place] = all[*place].saturating_add(*n));
        }
        budget.recount(&all);
        let shares = |own: &[usize]| own.iter().map(|place| share(budget, *place)).collect();
        there().map(|(vm, own, _)| (vm, shares(own))).collect()
    }

    /// Why a VM has no part of it, as far as the data plane does not say.
    fn refusal(&self, vm: VmId) -> Option<String> {
        let has_none = self.vms.get(&vm).is_some_and(Vec::is_empty);
        let none = || has_none.then(|| "none of its classes is of this VM's tenant".to_owned());
        self.budget.as_ref().err().cloned().or_else(none)
    }

    /// Live connections of a class at all its ports, and what each of them may have; if no port has any, what one would.
    fn found(&self, class: usize, bounded: &BTreeMap<VmId, Bounded>) -> (u32, u32) {
        let at_port = |(vm, own): (&VmId, &Vec<usize>)| {
            let place = own.iter().position(|place| *place == class)?;
            bounded.get(vm)?.classes.get(place).copied()
        };
        let would = || self.budget.as_ref().map_or(0, |budget| share(budget, class));
        let all = || self.vms.iter().filter_map(at_port);
        let live = all().fold(0u32, |live, (more, _)| live.saturating_add(more));
        (live, all().next().map_or_else(would, |(_, share)| share))
    }

    /// Whether connections of a VM live on it.
    fn bounds(&self, vm: VmId, bounded: &BTreeMap<VmId, Bounded>) -> bool {
        let is_there = |one: &Bounded| one.refused.is_none() && !one.classes.is_empty();
        self.refusal(vm).is_none() && bounded.get(&vm).is_some_and(is_there)
    }
}

/// Whether a budget can keep what it promises.
fn sound(wish: &WindowBudget, tenants: &BTreeMap<&str, TenantId>) -> Result<Budget, String> {
    let most = wish.classes.len();
    if most > CLASSES_MOST {
        return Err(format!("it has {most} classes; {CLASSES_MOST} at most can be told apart"));
    }
    if wish.total.0 > TOTAL_MOST {
        return Err(format!("a window of {} is more than TCP can say: {TOTAL_MOST}", wish.total.0));
    }
    let class = |class: &WindowClass| {
        // Who is not listed has no VM: another number than all others', and than other such ones'.
        let nobody = |name: &str| {
            let place = wish.classes.iter().position(|one| one.tenant.as_deref() == Some(name));
            TenantId(u32::MAX - place.unwrap_or_default() as u32)
        };
        let of =
            |name: &String| tenants.get(name.as_str()).copied().unwrap_or_else(|| nobody(name));
        let flows = Match {
            tenant: class.tenant.as_ref().map(of),
            remote: class.remote.map(|prefix| Prefix::new(prefix.first(), prefix.length())),
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

fn share(budget: &Budget, class: usize) -> u32 {
    u32::try_from(budget.share(class).get()).unwrap_or(u32::MAX)
}

impl Driver {
    /// Takes up what is asked for now. Connections that live are counted anew at once.
    pub(super) fn take_up_budgets(&mut self, now: Time) {
        self.budgets.asked = wishes(&self.setup);
        let listed = |name: &String| self.setup.directory.vms.iter().any(|vm| vm.tenant == *name);
        for asked in &self.budgets.asked {
            let named =
                asked.wish.classes.iter().filter_map(|class| Some((class, class.tenant.as_ref()?)));
            for (class, tenant) in named.filter(|(_, tenant)| !listed(tenant)) {
                let (budget, class) = (&asked.name, &class.name);
                tracing::warn!(
                    "window budget {budget}: class {class} is of tenant {tenant}, of whom the directory has no VM"
                );
            }
        }
        self.tend_windows(now);
        self.tell_of_budgets();
    }

    /// When to look next at the connections of budgets, if there is a budget.
    pub(super) fn next_count(&self) -> Option<Time> {
        let next = self.budgets.looked + Span::from_nanos(LOOK_NS);
        self.dataplane.has_windows().then_some(next)
    }

    /// Divides budgets among the connections that live now.
    pub(super) fn tend_windows(&mut self, now: Time) {
        self.budgets.looked = now;
        let asked = &mut self.budgets.asked;
        let mut divide =
            |live: &Live<'_>| asked.iter_mut().flat_map(|one| one.divide(live)).collect();
        let cpu_ns = &super::thread_cpu_ns;
        self.dataplane.tend_windows(now.as_nanos(), cpu_ns, &mut divide);
    }

    /// What became of all budgets, for people: VM by VM, in the order of the file.
    pub(super) fn told_budgets(&self) -> Vec<status::Budget> {
        let bounded: BTreeMap<VmId, Bounded> =
            self.dataplane.budgets().into_iter().map(|one| (one.vm, one)).collect();
        let name = |vm: VmId| self.setup.names.name(vm);
        let vms = self.setup.file.vms.iter().filter_map(|vm| self.setup.names.id(&vm.name));
        let asked = |vm: VmId| {
            let of_it = self.budgets.asked.iter().find(|one| one.vms.contains_key(&vm))?;
            Some((vm, of_it))
        };
        vms.filter_map(asked).map(|(vm, asked)| told(vm, asked, &bounded, &name)).collect()
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
    vm: VmId,
    asked: &Asked,
    bounded: &BTreeMap<VmId, Bounded>,
    name: &dyn Fn(VmId) -> String,
) -> status::Budget {
    let class = |(n, class): (usize, &WindowClass)| {
        let (live, share) = asked.found(n, bounded);
        status::BudgetClass { name: class.name.clone(), weight: class.weight, live, share }
    };
    let own = bounded.get(&vm);
    let c = own.and_then(|one| one.counters).unwrap_or_default();
    status::Budget {
        vm: name(vm),
        with: asked
            .vms
            .keys()
            .filter(|other| **other != vm && asked.bounds(**other, bounded))
            .map(|other| name(*other))
            .collect(),
        refused: asked.refusal(vm).or_else(|| own?.refused.clone()),
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
    let vms = one.with.iter().fold(vm.clone(), |all, other| format!("{all} and {other}"));
    format!(
        "The connections of {vms} share windows of {} together: {}{crowded}{unbounded}.",
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

    /// VMs 1 and 2 of tenant 7, whose name is t, VM 3 of tenant 8, u.
    fn asked(wish: &WindowBudget) -> Asked {
        let vms = [(1, 7), (2, 7), (3, 8)].map(|(vm, tenant)| (VmId(vm), TenantId(tenant)));
        let tenants = [("t", TenantId(7)), ("u", TenantId(8))].into();
        Asked::new("gold", wish, vms.into_iter(), &tenants)
    }

    #[test]
    fn what_a_budget_cannot_keep_is_refused_with_what_would_do() {
        let checked = |wish: &WindowBudget| asked(wish).budget;
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
        let classes = asked(&wish(PAPER)).classes_of(VmId(1));
        let net = Some(([10, 0, 0, 0].into(), 8));
        let urgent = kernel::Class::new(net, 0..=u16::MAX, 5004..=5005);
        assert_eq!(classes[1], kernel::Class { share: 90_000, ..urgent });
        assert_eq!(classes[0].remote_first..=classes[0].remote_last, 5001..=5003);
    }

    /// The same ports, by tenants.
    const TENANTS: &str = "total = '90kB'\nflows_most = 5\n\
        [[class]]\nname = 'ours'\nweight = 1\ntenant = 't'\n\
        [[class]]\nname = 'theirs'\nweight = 3\ntenant = 'u'\nremote_ports = '5004-5005'\n";

    #[test]
    fn who_shares_a_budget_has_of_it_by_what_lives_at_all_ports() {
        let mut asked = asked(&wish(TENANTS));
        let [one, other] = [VmId(1), VmId(3)].map(|vm| asked.classes_of(vm));
        assert_eq!((one.len(), other.len()), (1, 1), "each has the classes of its tenant");
        assert_eq!(other[0].remote_first..=other[0].remote_last, 5004..=5005);
        let live: [&[u32]; 3] = [&[2], &[1], &[2]];
        let all = (1..).map(VmId).zip(live).collect();
        let shares = asked.divide(&all);
        let wanted = [(1, 10_000), (2, 10_000), (3, 30_000)];
        assert_eq!(shares, wanted.map(|(vm, share)| (VmId(vm), vec![share])).into());
        // What is told is of all ports; of a class that none of them has, what one would have.
        let bounded = |vm, live, share| {
            let classes = vec![(live, share)];
            (VmId(vm), Bounded { vm: VmId(vm), refused: None, classes, counters: None })
        };
        let mut bounded: BTreeMap<VmId, Bounded> =
            [bounded(1, 2, 10_000), bounded(2, 1, 10_000), bounded(3, 2, 30_000)].into();
        let told = |asked: &Asked, bounded: &BTreeMap<VmId, Bounded>| {
            told(VmId(2), asked, bounded, &|vm| format!("v{}", vm.0))
        };
        assert_eq!(
            sentence(&told(&asked, &bounded)),
            "The connections of v2 and v1 and v3 share windows of 90000 B together: 3 of ours with 10000 B \
             each, 2 of theirs with 30000 B each."
        );
        // A port that is there no more has nobody.
        let left: Live<'_> = [(VmId(1), live[0]), (VmId(2), live[1])].into();
        let wanted = [(1, 30_000), (2, 30_000)];
        assert_eq!(asked.divide(&left), wanted.map(|(vm, share)| (VmId(vm), vec![share])).into());
        bounded.remove(&VmId(3));
        let told = told(&asked, &bounded);
        assert_eq!(
            (told.with, told.classes[1].live, told.classes[1].share),
            (vec!["v1".into()], 0, 45_000)
        );
    }

    #[test]
    fn a_tenant_that_leaves_the_directory_takes_nobody_elses_bound_with_it() {
        let others =
            TENANTS.replace("'u'", "'x'") + "[[class]]\nname = 'more'\nweight = 1\ntenant = 'y'\n";
        let asked = asked(&wish(&others));
        assert!(asked.budget.is_ok(), "{:?}", asked.budget);
        assert_eq!((asked.classes_of(VmId(1)).len(), asked.classes_of(VmId(3)).len()), (1, 0));
    }

    #[test]
    fn what_the_file_asks_for_reaches_the_ports_by_tenant() {
        let config = "instance = 'h0'\nhost = 'h0'\nlisten = '10.0.0.1:7001'\nkey_file = 'key'\n\
                      directory = 'directory.yaml'\nmechanism = { name = 'elasticswitch' }\n\
                      uplink = { interface = 'up', rate = '1Gbit' }\n";
        let vm = |name: &str, more: &str| {
            format!(
                "[[vm]]\nname = '{name}'\nport = '{name}'\nfloor_in = '1Mbit'\nfloor_out = '1Mbit'\n{more}"
            )
        };
        let gold = |name| vm(name, "shared_budget = 'gold'\n");
        let own =
            vm("c", &format!("[vm.budget]\n{}", TENANTS.replace("[[class", "[[vm.budget.class")));
        let budgets =
            format!("[budgets.gold]\n{}", TENANTS.replace("[[class", "[[budgets.gold.class"));
        let directory = "hosts: [{name: h0, control: '10.0.0.1:7001'}]\nvms:\n  \
                         - {name: a, tenant: t, host: h0, addresses: [10.1.0.1]}\n  \
                         - {name: b, tenant: u, host: h0, addresses: [10.1.0.2]}\n  \
                         - {name: c, tenant: u, host: h0, addresses: [10.1.0.3]}\n  \
                         - {name: d, tenant: t, host: h0, addresses: [10.1.0.4]}\n";
        let text = format!("{config}{budgets}{}{}{own}{}", gold("a"), gold("b"), vm("d", ""));
        let setup = Setup::parse(&text, directory).expect("sound");
        let shared: Vec<(String, Vec<VmId>)> = wishes(&setup)
            .iter()
            .map(|one| (one.name.clone(), one.vms.keys().copied().collect()))
            .collect();
        let wanted = [("c", vec![VmId(2)]), ("gold", vec![VmId(0), VmId(1)])];
        assert_eq!(shared, wanted.map(|(name, vms)| (name.to_owned(), vms)));
        let ports = |gone: &[VmId]| -> Vec<(VmId, u16)> {
            let all = of(&setup, &gone.iter().copied().collect());
            all.iter().map(|(vm, classes)| (*vm, classes[0].remote_first)).collect()
        };
        assert_eq!(ports(&[]), [(VmId(0), 0), (VmId(1), 5004), (VmId(2), 5004)]);
        assert_eq!(ports(&[VmId(1)]), [(VmId(0), 0), (VmId(2), 5004)]);
    }

    #[test]
    fn a_vm_of_whose_tenant_no_class_is_has_no_budget_and_is_told_so() {
        let asked = asked(&wish(
            &TENANTS.replace("'u'", "'t'").replace("weight = 1", "weight = 1\nremote_ports = '1'"),
        ));
        assert_eq!(asked.refusal(VmId(1)), None);
        let why = asked.refusal(VmId(3)).expect("refused");
        assert_eq!(why, "none of its classes is of this VM's tenant");
        assert!(asked.classes_of(VmId(3)).is_empty());
    }

    #[test]
    fn each_outcome_of_a_wish_has_its_words() {
        let alone = [(VmId(1), TenantId(7))];
        let asked = |text: &str| Asked::new("a", &wish(text), alone.into_iter(), &BTreeMap::new());
        let name = |_| "a".to_owned();
        let told = |one: Bounded| told(VmId(1), &asked(PAPER), &[(VmId(1), one)].into(), &name);
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
