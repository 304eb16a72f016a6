//! vCC's programs as a part of the datapath.
//!
//! Problem   Ports that translate or have a window budget need two programs behind the datapath's
//!           own, and tables that outlive an agent. A host that cannot translate has to guard its
//!           VMs all the same.
//! Approach  When all else is in force, the ports that should translate are compared with those
//!           that do. A connection keeps what it began with: a port that should not translate any
//!           more asks for nothing, and keeps its programs while connections need them.
//! Promises  Nothing here fails an opening or a change: a translation that the host cannot do is a
//!           refusal, with its reason. The programs come after the datapath's own on both sides, in
//!           whatever order they were attached. Where no port needs them, nothing is loaded,
//!           attached or pinned.
//! Not here  The programs: see `vcc`. The choice of ports and the division of budgets: the agent's.

use super::fill::first_ports;
use super::{Dataplane, Hook, attach_one};
use crate::attach::{self, Interface};
use crate::config::{Bounded, Config, Translated};
use crate::error::{Context, Error};
use crate::instance::{Deed, Instance, Journal, list};
use crate::programs::{MAX_PORTS, Program};
use crate::vcc::budget::{Class, Divided};
use crate::vcc::intf::{ANY_SLACK, Port};
use crate::vcc::{self, Law, Program as Own, STATE};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_units::VmId;

/// Interval at which ports that end are checked.
const LOOK_NS: u64 = 5_000_000_000;
/// Prefix of the names of all its programs.
const PREFIX: &str = "weir_vcc";

/// Ports that translate.
#[derive(Debug, Default)]
pub(super) struct Translators {
    places: BTreeMap<VmId, Place>,
    /// Where programs are attached.
    attached: Vec<Hook>,
    refused: BTreeMap<VmId, String>,
    /// Counters of connections for the window budgets in force.
    divided: BTreeMap<VmId, Divided>,
    /// What each connection may have, of each VM with a budget.
    shares: BTreeMap<VmId, Vec<u32>>,
    /// Reasons why other budgets are not in force.
    unbounded: BTreeMap<VmId, String>,
    /// Reason why shares of the budgets in force do not follow connections at the moment.
    uncounted: BTreeMap<VmId, String>,
    /// VMs whose ports have only a budget, and connections that began with a translation.
    keeping: BTreeSet<VmId>,
    /// Reason why an earlier agent's state was given up.
    replaced: Option<String>,
    looked_ns: u64,
}

/// A port that translates, or bounds windows.
#[derive(Clone, Debug)]
struct Place {
    interface: Interface,
    /// Slot of its counters and its table.
    slot: u32,
    /// Terms of new connections; `None` if it ends.
    law: Option<Law>,
    /// Of its budget; none if it has none.
    classes: Vec<Class>,
    /// Whether the port is new.
    is_new: bool,
}

impl Place {
    /// Whether it exists for older connections only.
    const fn ends(&self) -> bool {
        self.law.is_none() && !self.counts()
    }

    /// Whether its connections are counted.
    const fn counts(&self) -> bool {
        !self.classes.is_empty()
    }

    fn hooks(&self) -> [Hook; 2] {
        Own::ALL.map(|program| Hook {
            interface: self.interface.clone(),
            program: Program::Vcc(program),
        })
    }
}

/// Desired state of the ports whose VMs can have it.
struct Wishes {
    wanted: BTreeMap<VmId, Law>,
    budgets: BTreeMap<VmId, Vec<Class>>,
}

impl Wishes {
    fn are_none(&self) -> bool {
        self.wanted.is_empty() && self.budgets.is_empty()
    }

    fn vms(&self) -> Vec<VmId> {
        self.wanted.keys().chain(self.budgets.keys()).copied().collect()
    }
}

impl Translators {
    /// Whether a filter of the journal is one of theirs in use.
    pub(super) fn has(&self, hook: &Hook) -> bool {
        self.attached.contains(hook)
    }
}

/// Programs that may be on a port before the datapath's own are: those that this instance left
/// there.
pub(super) fn left_on(hook: &Hook, instance: &Instance, journal: &Journal) -> Vec<&'static str> {
    let is_ours = |program: &Own| {
        let hook = Hook { interface: hook.interface.clone(), program: Program::Vcc(*program) };
        hook.pin(&instance.links()).exists() || journal.has(&Deed::Filter(hook))
    };
    Own::ALL.iter().filter(|program| is_ours(program)).map(|program| program.name()).collect()
}

/// The index of the interface on which one of them hangs by the link that is pinned there.
pub(super) fn translator_on(pin: &Path) -> Option<u32> {
    let name = pin.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    name.rsplit('-').next()?.parse().ok()
}

/// Reason why a VM's connections can be neither translated nor bounded, whatever the kernel can do.
fn outside(config: &Config, vm: VmId) -> Option<&'static str> {
    config.is_outward(vm).then_some(
        "its port leads outside the cloud, and is no guest's: leave the translation and the budget to the VMs' ports",
    )
}

/// Reason why they cannot be translated.
fn refusal(config: &Config, vm: VmId) -> Option<&'static str> {
    if config.ecn {
        return Some(
            "marks are the mechanism's own signal here and are hidden from guests before anything could be \
             translated: choose a preset whose signal is loss, or no translation",
        );
    }
    outside(config, vm)
}

impl Dataplane {
    /// Makes ports translate, or not any more, as the configuration says. `fresh` are interfaces on
    /// which one of the datapath's own programs was just attached: it has to come first.
    pub(super) fn translate(&mut self, strangers: &BTreeSet<VmId>, fresh: &[u32]) {
        let config = &self.config;
        let mut refused = BTreeMap::new();
        let mut wanted = config.translations.clone();
        wanted.retain(|vm, _| {
            let why = refusal(config, *vm);
            refused.extend(why.map(|why| (*vm, why.to_owned())));
            why.is_none()
        });
        let mut unbounded = BTreeMap::new();
        let mut budgets = config.budgets.clone();
        budgets.retain(|vm, _| {
            let why = outside(config, *vm);
            unbounded.extend(why.map(|why| (*vm, why.to_owned())));
            why.is_none()
        });
        (self.translators.refused, self.translators.unbounded) = (refused, unbounded);
        self.translators.uncounted.clear();
        let wishes = Wishes { wanted, budgets };
        let placed = self
            .load_translators(!wishes.are_none())
            .and_then(|()| self.places_for(&wishes, strangers));
        let places = placed.unwrap_or_else(|e| {
            self.refuse(&wishes.vms(), &e);
            BTreeMap::new()
        });
        let was = std::mem::take(&mut self.translators.places);
        // Budgets go on where they are on the same port as before.
        let stays = |vm: &VmId| {
            let slot = |places: &BTreeMap<VmId, Place>| places.get(vm).map(|place| place.slot);
            slot(&was) == slot(&places) && places.get(vm).is_some_and(|place| !place.is_new)
        };
        self.translators.divided.retain(|vm, _| stays(vm));
        self.take_off(|index| {
            let stays = places.values().any(|place| place.interface.index == index);
            !stays || fresh.contains(&index)
        });
        for (vm, place) in places {
            match self.settle(vm, &place) {
                Ok(()) => drop(self.translators.places.insert(vm, place)),
                Err(e) => {
                    self.refuse(&[vm], &e);
                    self.take_down(&place);
                }
            }
        }
        // Ports that keep older connections are found with the next heartbeat.
        self.translators.looked_ns = 0;
        self.unload_translators();
    }

    /// For every heartbeat: attaches programs that another process detached, and frees ports that
    /// end once no connection needs them.
    pub fn tend_translations(&mut self, now_ns: u64) {
        let places = self.translators.places.clone();
        for (vm, place) in &places {
            let is_whole = place.hooks().iter().all(|hook| self.is_translating(hook));
            if is_whole || !place.interface.is_there() {
                continue;
            }
            match self.settle(*vm, &Place { is_new: false, ..place.clone() }) {
                Ok(()) => {
                    self.translators.refused.remove(vm);
                    self.translators.unbounded.remove(vm);
                }
                Err(e) => self.refuse(&[*vm], &e),
            }
        }
        if now_ns.saturating_sub(self.translators.looked_ns) < LOOK_NS {
            return;
        }
        self.translators.looked_ns = now_ns;
        self.translators.keeping.clear();
        for (vm, place) in places.iter().filter(|(_, place)| place.law.is_none()) {
            // A table that cannot be read may have connections.
            if self.has_live(place.slot, now_ns).unwrap_or(true) {
                self.translators.keeping.insert(*vm);
            } else if place.ends() {
                self.take_down(place);
                self.translators.places.remove(vm);
            }
        }
        self.unload_translators();
    }

    /// States of all requested translations, and of former ones that connections still need.
    pub fn translations(&self) -> Vec<Translated> {
        let of = &self.translators;
        let mut vms: BTreeSet<VmId> = self.config.translations.keys().copied().collect();
        // A port with only a budget translates nothing, except for older connections.
        let is_told = |vm: &VmId, place: &Place| {
            place.law.is_some() || place.ends() || of.keeping.contains(vm)
        };
        let has_programs = of.places.iter().filter(|(vm, place)| is_told(vm, place));
        vms.extend(has_programs.map(|(vm, _)| vm).chain(of.refused.keys()));
        let told = |vm: VmId| {
            let place = of.places.get(&vm);
            let own = self.programs.vcc.as_ref().zip(place);
            Translated {
                vm,
                asked: self.config.translations.get(&vm).copied(),
                refused: of.refused.get(&vm).cloned(),
                counters: own.map(|(own, place)| own.counters(place.slot)),
            }
        };
        vms.into_iter().map(told).collect()
    }

    /// Counts the connections of window budgets when it is time. Returns the live connections of all
    /// VMs with a budget, by class; nothing if none were counted. The caller calls it every
    /// [`LOOK_NS`](crate::vcc::budget::LOOK_NS), and then [`share_windows`](Self::share_windows).
    /// `cpu_ns` is the CPU time that the caller has used.
    pub fn count_connections(
        &mut self,
        now_ns: u64,
        cpu_ns: &dyn Fn() -> u64,
    ) -> Vec<(VmId, Vec<u32>)> {
        let Some(own) = &self.programs.vcc else { return Vec::new() };
        let of = &mut self.translators;
        let mut is_counted = false;
        for (vm, divided) in &mut of.divided {
            match divided.count_if_due(own, now_ns, cpu_ns) {
                Ok(false) => {}
                Ok(true) => {
                    is_counted = true;
                    of.uncounted.remove(vm);
                }
                Err(e) => drop(of.uncounted.insert(*vm, e.to_string())),
            }
        }
        let live = |(vm, divided): (&VmId, &Divided)| (*vm, divided.live().to_vec());
        of.divided.iter().filter(|_| is_counted).map(live).collect()
    }

    /// Puts in force what each connection of a VM may have, by its classes, and again what was not
    /// in force before. `None`, and a VM that was never named: any window.
    pub fn share_windows(&mut self, changed: Vec<(VmId, Option<Vec<u32>>)>) {
        let of = &mut self.translators;
        for (vm, shares) in changed {
            match shares {
                Some(shares) => drop(of.shares.insert(vm, shares)),
                None => drop(of.shares.remove(&vm)),
            }
        }
        let Some(own) = &self.programs.vcc else { return };
        for (vm, divided) in &mut of.divided {
            let classes = divided.live().len();
            let known = of.shares.get(vm).filter(|shares| shares.len() == classes);
            let shares = known.cloned().unwrap_or_else(|| vec![u32::MAX; classes]);
            if let Err(e) = divided.share_out(own, &shares) {
                of.uncounted.insert(*vm, e.to_string());
            }
        }
    }

    /// Whether any connections are counted.
    pub fn has_windows(&self) -> bool {
        !self.translators.divided.is_empty()
    }

    /// States of all window budgets.
    pub fn budgets(&self) -> Vec<Bounded> {
        let of = &self.translators;
        let told = |&vm: &VmId| {
            let divided = of.divided.get(&vm);
            let classes = divided.map_or_else(Vec::new, |divided| {
                let shares = divided.classes().iter().map(|class| class.share);
                divided.live().iter().copied().zip(shares).collect()
            });
            let refused = of.unbounded.get(&vm).or(of.uncounted.get(&vm)).cloned();
            let own = self.programs.vcc.as_ref().zip(divided);
            let counters = own.map(|(own, divided)| own.counters(divided.slot()));
            Bounded { vm, refused, classes, counters }
        };
        self.config.budgets.keys().map(told).collect()
    }

    /// Reason why the translations of an earlier agent of this name were given up, if they were.
    /// Their connections are no longer translated.
    pub fn replaced_translations(&self) -> Option<&str> {
        self.translators.replaced.as_deref()
    }

    /// Takes the programs off ports that none of these hooks is on any more.
    pub(super) fn leave_translated(&mut self, wanted: &[Hook]) {
        self.take_off(|index| !wanted.iter().any(|hook| hook.interface.index == index));
    }

    /// Loads the programs if a port asks for them or connections of an earlier agent need them.
    fn load_translators(&mut self, is_wanted: bool) -> Result<(), Error> {
        if self.programs.vcc.is_some() {
            return Ok(());
        }
        let pins = self.instance.maps();
        let left = STATE.iter().filter(|name| pins.join(name).exists()).count();
        if left < STATE.len() {
            // An agent died while it pinned them, or had fewer: the pins are not complete.
            self.forget_translators()?;
            if left > 0 {
                self.translators.replaced = Some("some of its maps are missing".into());
            }
            if !is_wanted {
                return Ok(());
            }
        }
        let loaded = match vcc::Programs::load_pinned(&pins, &self.programs) {
            Err(why) if left == STATE.len() => {
                self.forget_translators()?;
                self.translators.replaced = Some(why.to_string());
                vcc::Programs::load_pinned(&pins, &self.programs)
            }
            other => other,
        };
        self.programs.vcc = Some(loaded?);
        Ok(())
    }

    /// Ports that should have programs: those of `wanted`, and those that had.
    fn places_for(
        &mut self,
        wishes: &Wishes,
        strangers: &BTreeSet<VmId>,
    ) -> Result<BTreeMap<VmId, Place>, Error> {
        let Some(own) = &mut self.programs.vcc else { return Ok(BTreeMap::new()) };
        let mut known: BTreeMap<u32, Port> = own.ports.read()?.collect();
        let mut places = BTreeMap::new();
        for port in first_ports(&self.config) {
            let law = wishes.wanted.get(&port.vm).copied();
            let classes = wishes.budgets.get(&port.vm).cloned().unwrap_or_default();
            let interface = match Interface::find(&port.interface) {
                Ok(interface) => interface,
                // The interface vanished at this moment.
                Err(e) => {
                    let refused = law.map(|_| (port.vm, e.to_string()));
                    self.translators.refused.extend(refused);
                    let unbounded = (!classes.is_empty()).then(|| (port.vm, e.to_string()));
                    self.translators.unbounded.extend(unbounded);
                    continue;
                }
            };
            let is_same = |old: &Port| old.vm == port.vm.0 && !strangers.contains(&port.vm);
            let old = known.get(&interface.index).copied().filter(is_same);
            if law.is_none() && classes.is_empty() && old.is_none() {
                continue;
            }
            if old.is_some() {
                known.remove(&interface.index);
            }
            let (slot, is_new) = (old.map_or(MAX_PORTS, |old| old.slot), old.is_none());
            places.insert(port.vm, Place { interface, slot, law, classes, is_new });
        }
        for (interface, port) in known {
            own.remove(interface, port.slot)?;
        }
        let mut used: BTreeSet<u32> = places.values().map(|place| place.slot).collect();
        for place in places.values_mut().filter(|place| place.is_new) {
            let free = (0..MAX_PORTS).find(|slot| !used.contains(slot));
            place.slot = free.expect("not more ports than slots: the configuration was checked");
            used.insert(place.slot);
        }
        Ok(places)
    }

    /// Makes a port translate, or go on with what it has.
    fn settle(&mut self, vm: VmId, place: &Place) -> Result<(), Error> {
        let own = self.programs.vcc.as_ref().expect("places come with their programs");
        if place.is_new {
            own.clear_counters(place.slot);
            own.make_table(place.slot, self.config.flows_per_vm)?;
        } else {
            own.complete_table(place.slot, self.config.flows_per_vm)?;
        }
        self.bound(vm, place)?;
        let own = self.programs.vcc.as_ref().expect("places come with their programs");
        let slack = self.config.policing.get(&vm).copied().unwrap_or(ANY_SLACK);
        let translated = |law| Port::new(law, place.slot).policed(slack);
        let port = place.law.map_or(Port::idle(place.slot), translated);
        own.ports.put(place.interface.index, Port { vm: vm.0, ..port })?;
        for hook in place.hooks() {
            if !self.is_translating(&hook) {
                let (mode, instance) = (self.mode, &self.instance);
                attach_one(&hook, mode, &self.programs, instance, &mut self.journal)?;
                self.translators.attached.retain(|attached| *attached != hook);
                self.translators.attached.push(hook);
            }
        }
        Ok(())
    }

    /// Puts in force what bounds a port's windows, or goes on with it.
    fn bound(&mut self, vm: VmId, place: &Place) -> Result<(), Error> {
        let own = self.programs.vcc.as_ref().expect("places come with their programs");
        let of = &mut self.translators;
        if !place.counts() {
            of.divided.remove(&vm);
        } else if !of.divided.get(&vm).is_some_and(|divided| divided.is_of(&place.classes)) {
            of.divided.insert(vm, Divided::begin(own, place.slot, &place.classes)?);
        }
        if place.classes.is_empty() {
            own.set_budget(place.slot, None)?;
        }
        Ok(())
    }

    fn is_translating(&self, hook: &Hook) -> bool {
        self.translators.attached.contains(hook)
            && attach::is_held(hook, self.mode, self.programs.fd(hook.program))
    }

    /// Removes everything that these VMs asked for.
    fn refuse(&mut self, vms: &[VmId], why: &Error) {
        let (config, of) = (&self.config, &mut self.translators);
        for vm in vms {
            if config.translations.contains_key(vm) {
                of.refused.insert(*vm, why.to_string());
            }
            if config.budgets.contains_key(vm) {
                of.unbounded.insert(*vm, why.to_string());
            }
        }
    }

    /// Removes everything of a port's translation. What cannot be removed is tried again with the
    /// next change.
    fn take_down(&mut self, place: &Place) {
        self.translators.divided.retain(|_, divided| divided.slot() != place.slot);
        self.take_off(|index| index == place.interface.index);
        if let Some(own) = &self.programs.vcc {
            let _ = own.remove(place.interface.index, place.slot);
        }
    }

    /// Detaches the programs on these interfaces (by index), also those that an earlier agent
    /// attached. What the kernel refuses to detach finds no port in the maps, and does nothing.
    fn take_off(&mut self, is_over: impl Fn(u32) -> bool) {
        let is_ours =
            |hook: &Hook| matches!(hook.program, Program::Vcc(_)) && is_over(hook.interface.index);
        for deed in &self.journal.deeds {
            if let Deed::Filter(hook) = deed
                && is_ours(hook)
                && hook.interface.is_there()
            {
                let _ = attach::detach_clsact(hook);
            }
        }
        let _ = self.journal.strike(|deed| matches!(deed, Deed::Filter(hook) if is_ours(hook)));
        let pins = list(&self.instance.links()).unwrap_or_default();
        for pin in pins.iter().filter(|pin| translator_on(pin).is_some_and(&is_over)) {
            let _ = attach::detach_tcx(pin);
        }
        self.translators.attached.retain(|hook| !is_over(hook.interface.index));
    }

    fn has_live(&self, slot: u32, now_ns: u64) -> Result<bool, Error> {
        let own = self.programs.vcc.as_ref().expect("places come with their programs");
        let Some(mut flows) = own.flows(slot)? else { return Ok(false) };
        let now = (now_ns >> 20) as u32;
        Ok(flows.read()?.any(|(_, state)| state.is_live(now)))
    }

    /// Removes the programs where no port needs them.
    fn unload_translators(&mut self) {
        if self.translators.places.is_empty() {
            self.translators.divided.clear();
            self.programs.vcc = None;
            let _ = self.forget_translators();
        }
    }

    /// Detaches all that is pinned of them, and removes their maps' pins.
    fn forget_translators(&mut self) -> Result<(), Error> {
        self.take_off(|_| true);
        for pin in STATE.map(|name| self.instance.maps().join(name)) {
            if pin.exists() {
                std::fs::remove_file(&pin).during(|| format!("removing {}", pin.display()))?;
            }
        }
        Ok(())
    }
}
