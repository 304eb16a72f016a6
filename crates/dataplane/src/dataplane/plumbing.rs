//! Checks and repairs everything that carries VMs' packets.
//!
//! Problem   Programs, redirections and queues belong to the kernel, and any process with root's
//!           rights may change them. A floor then ends unreported.
//! Approach  One look compares the desired state (the configuration, the hooks, the shaper's
//!           levels) with the kernel's, and lists the differences as [`Fault`]s. The code that made
//!           a part also repairs it. A second look shows the faults that are left.
//! Promises  Every call checks everything, except classes, which every second call reads, and the
//!           devices around the ports, which every eighth call reads. A VM with a fault that is
//!           left is named with the reason. Its port's program, if it is still there, bounds its
//!           pairs to their floors until the fault has ended. A port that only changed its name
//!           stays enforced.
//! Not here  Ports whose device is gone: see [`Dataplane::lost_ports`]. How often to look, and
//!           where to report: the agent. vCC's programs: see `vcc`.

use super::devices::Renamed;
use super::{Dataplane, eyeq, shares};
use crate::attach::{self, Hook, Mode, Names};
use crate::error::Error;
use crate::intf;
use crate::nl;
use crate::programs::Program;
use crate::shaper::{self, Kind};
use crate::surroundings::{self, Trouble};
use std::collections::{BTreeMap, BTreeSet};
use weir_units::VmId;

/// A part of the plumbing that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Description, for people.
    pub what: String,
    /// The VMs whose packets are affected.
    pub vms: BTreeSet<VmId>,
}

/// Result of a look.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tended {
    /// Faults that were repaired.
    pub mended: Vec<String>,
    /// Faults that are left.
    pub faults: Vec<Fault>,
    /// Interfaces whose name differs from the configuration.
    pub renamed: Vec<Renamed>,
}

impl Tended {
    /// The VMs that are not enforced, with the reasons.
    pub fn unenforced(&self) -> BTreeMap<VmId, String> {
        let mut all: BTreeMap<VmId, String> = BTreeMap::new();
        for fault in &self.faults {
            for vm in &fault.vms {
                let why = all.entry(*vm).or_default();
                *why += if why.is_empty() { "" } else { "; " };
                *why += &fault.what;
            }
        }
        all
    }
}

/// A fault and its repair: a program to attach, or (without a hook) the shaper's levels.
struct Found {
    fault: Fault,
    hook: Option<Hook>,
    mendable: bool,
}

/// Every so many looks see what is around the ports: that lists all links of the namespace.
const LOOKS_AROUND: u64 = 8;

/// The programs on one side of an interface (true: ingress), in the order in which they run.
type Sides = BTreeMap<(u32, bool), Vec<u32>>;

impl Dataplane {
    /// Checks everything, and repairs what it can if `may_mend`; otherwise it only reports. For
    /// every heartbeat.
    ///
    /// # Errors
    ///
    /// The kernel does not answer. A repair that it refuses is no error but a fault that is left.
    pub fn tend(&mut self, may_mend: bool) -> Result<Tended, Error> {
        let names = Names::open();
        self.follow_names(&names)?;
        self.drain()?;
        if self.looks.is_multiple_of(LOOKS_AROUND) {
            self.look_around()?;
        }
        self.looks += 1;
        let mut found = self.look(self.looks.is_multiple_of(2))?;
        let mut mended = Vec::new();
        if may_mend && found.iter().any(|found| found.mendable) {
            let refused = self.put_right(&found);
            let before = std::mem::replace(&mut found, self.look(true)?);
            let is_left = |what: &String| found.iter().any(|left| left.fault.what == *what);
            mended.extend(before.into_iter().map(|f| f.fault.what).filter(|what| !is_left(what)));
            for Found { fault, .. } in &mut found {
                if let Some(why) = refused.get(&fault.what) {
                    fault.what += &format!(", and cannot be put back: {why}");
                }
            }
        }
        let faults: Vec<Fault> = found.into_iter().map(|found| found.fault).collect();
        self.hold_to_floors(faults.iter().flat_map(|fault| &fault.vms).copied().collect())?;
        Ok(Tended { mended, faults, renamed: self.devices.renamed(&names) })
    }

    /// From now on the names in a configuration mean the devices that have them, also where a port
    /// that lives under another name had one of them. For a change that a person asks for.
    pub fn reread_names(&mut self) {
        self.devices.reread();
    }

    /// Flags of a VM's port as the programs see them; `None` without a port.
    pub fn port_flags(&mut self, vm: VmId) -> Option<u32> {
        let mut ports = self.programs.ports.read().ok()?;
        ports.find(|(_, port)| port.vm == vm.0).map(|(_, port)| port.flags)
    }

    /// Present name of the device of a configured name, if the device is there.
    pub fn device_name(&self, configured: &str) -> Option<String> {
        self.devices.find(configured).ok().map(|device| device.name)
    }

    /// Adopts the present names of interfaces.
    pub(super) fn follow_names(&mut self, present: &Names) -> Result<(), Error> {
        let mut names: BTreeMap<u32, (String, String)> = BTreeMap::new();
        for Hook { interface, .. } in self.attached.iter().filter(|hook| is_first(hook)) {
            if let Some(now) = present.of(interface).filter(|now| now.name != interface.name) {
                names.insert(interface.index, (interface.name.clone(), now.name));
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        for Hook { interface, .. } in &mut self.attached {
            if let Some((_, now)) = names.get(&interface.index) {
                interface.name.clone_from(now);
            }
        }
        let follow = |name: &mut String| {
            if let Some((_, now)) = names.values().find(|(former, _)| former == name) {
                name.clone_from(now);
            }
        };
        follow(&mut self.config.uplink);
        self.config.tunnels.interfaces.iter_mut().for_each(follow);
        self.config.ports.iter_mut().for_each(|port| follow(&mut port.interface));
        self.shaper.apply_vms(&shares(&self.config))?;
        Ok(())
    }

    /// Looks for devices around the ports that carry packets past our programs.
    fn look_around(&mut self) -> Result<(), Error> {
        let links = nl::link::list(&mut nl::Socket::open()?)?;
        let ports: Vec<&str> = self.config.ports.iter().map(|p| p.interface.as_str()).collect();
        self.around = surroundings::judge(&links, &ports, &self.config.tunnels.interfaces);
        Ok(())
    }

    /// All differences from the desired state.
    fn look(&mut self, whole: bool) -> Result<Vec<Found>, Error> {
        let sides = self.sides();
        let ours = self.own_ids();
        let mut found = Vec::new();
        for hook in &self.attached {
            if let Some((what, mendable)) = self.program_fault(hook, &sides, &ours) {
                let fault = Fault { what, vms: self.vms_behind(hook) };
                found.push(Found { fault, hook: Some(hook.clone()), mendable });
            }
        }
        let all: BTreeSet<VmId> = self.config.ports.iter().map(|port| port.vm).collect();
        let mut unredirected = BTreeSet::new();
        for shaper::Fault { what, vms, mendable } in self.shaper.faults(whole)? {
            unredirected.extend(vms.iter().copied().filter(|_| mendable));
            let vms = if vms.is_empty() { all.clone() } else { vms.into_iter().collect() };
            found.push(Found { fault: Fault { what, vms }, hook: None, mendable });
        }
        for Trouble { port, found: what, remedy } in &self.around {
            let behind = self.config.ports.iter().filter(|one| one.interface == *port);
            let vms = behind.map(|port| port.vm).collect();
            let what = format!("port {port}: {what}; {remedy}");
            found.push(Found { fault: Fault { what, vms }, hook: None, mendable: false });
        }
        // A device without any of our programs was replaced, or is gone: see `lost_ports`.
        let is_lost = |vm: &VmId| {
            let without =
                |f: &&Found| f.hook.as_ref().is_some_and(|h| !eyeq::is_for_all(h.program));
            let programs = found.iter().filter(without).filter(|f| f.fault.vms.contains(vm));
            let redirects = self.shaper.kind() == Kind::Htb;
            programs.count() == 2 && (!redirects || unredirected.contains(vm))
        };
        let lost: BTreeSet<VmId> = all.iter().copied().filter(is_lost).collect();
        found.iter_mut().for_each(|f| f.fault.vms.retain(|vm| !lost.contains(vm)));
        found.retain(|f| !f.fault.vms.is_empty());
        Ok(found)
    }

    /// The programs on the interfaces that have ours; none where the kernel has no TCX.
    fn sides(&self) -> Sides {
        let mut sides = Sides::new();
        for hook in &self.attached {
            let ingress = hook.program.is_on_ingress();
            let kind = hook.tcx();
            let programs = || attach::tcx_programs(hook.interface.index, kind).unwrap_or_default();
            sides.entry((hook.interface.index, ingress)).or_insert_with(programs);
        }
        sides
    }

    /// The kernel's numbers of all programs that are loaded here.
    fn own_ids(&self) -> BTreeMap<Program, u32> {
        let loaded = self.programs.loaded().into_iter();
        let id = |program| Some((program, attach::program_id(self.programs.fd(program)).ok()?));
        loaded.filter_map(id).collect()
    }

    /// The fault of a program's place, and whether attaching it again helps.
    fn program_fault(
        &self,
        hook: &Hook,
        sides: &Sides,
        ours: &BTreeMap<Program, u32>,
    ) -> Option<(String, bool)> {
        let (name, on) = (hook.program.name(), &hook.interface.name);
        let there = &sides[&(hook.interface.index, hook.program.is_on_ingress())];
        let foreign = |id: &&u32| !ours.values().any(|own| own == *id) && !is_weirs(**id);
        if self.mode == Mode::Clsact {
            if !self.is_on(hook) {
                return Some((format!("another process detached {name} from {on}"), true));
            }
            let id = there.iter().find(foreign)?;
            let by = described(*id);
            return Some((format!("{by} on {on} runs before {name} and decides for it"), false));
        }
        let Some(at) = there.iter().position(|id| ours.get(&hook.program) == Some(id)) else {
            return Some((format!("another process detached {name} from {on}"), true));
        };
        if hook.program.is_second() {
            return None;
        }
        if let Some(id) = there[..at].iter().find(foreign) {
            return Some((format!("{} was put before {name} on {on}", described(*id)), true));
        }
        let behind = there[at..].iter().find(foreign);
        if let (Some(id), Program::Stamp) = (behind, hook.program) {
            let what = format!(
                "{} on {on} runs after {name} and may change or redirect what has a number: remove it",
                described(*id)
            );
            return Some((what, false));
        }
        let is_port = hook.program == Program::Classify && self.shaper.kind() == Kind::Htb;
        let id = behind.filter(|_| is_port)?;
        let what = format!(
            "{} on {on} runs before the redirection to the shaper, and what it lets pass is not \
             shaped: remove it, or set the shaper to departure-time",
            described(*id)
        );
        Some((what, false))
    }

    /// The VMs whose packets pass a program.
    fn vms_behind(&self, hook: &Hook) -> BTreeSet<VmId> {
        let is_for_all = eyeq::is_for_all(hook.program);
        let behind =
            self.config.ports.iter().filter(|p| is_for_all || p.interface == hook.interface.name);
        behind.map(|port| port.vm).collect()
    }

    /// Repairs the faults; returns the reasons of those that it cannot repair.
    fn put_right(&mut self, found: &[Found]) -> BTreeMap<String, String> {
        let mut refused = BTreeMap::new();
        let mendable = || found.iter().filter(|found| found.mendable);
        for Found { fault, hook, .. } in mendable() {
            let Some(hook) = hook else { continue };
            if let Err(why) = self.put_back_on(hook) {
                refused.insert(fault.what.clone(), why.to_string());
            }
        }
        self.shaper.engage();
        if mendable().any(|found| found.hook.is_none())
            && let Err(why) = self.shaper.apply_vms(&shares(&self.config))
        {
            let shaper = mendable().filter(|found| found.hook.is_none());
            refused.extend(shaper.map(|f| (f.fault.what.clone(), why.to_string())));
            // Unshaped and bounded at the port is better than a black hole.
            let _ = self.shaper.let_pass();
        }
        refused
    }

    /// VMs whose packets may miss the shaper. The programs on their ports give their pairs no more
    /// than their floors.
    fn hold_to_floors(&mut self, bare: BTreeSet<VmId>) -> Result<(), Error> {
        if bare == self.bare {
            return Ok(());
        }
        self.bare = bare;
        let ports: Vec<(u32, intf::Port)> = self.programs.ports.read()?.collect();
        for (index, port) in ports {
            let kept = port.flags & !intf::BARE;
            let flags = if self.bare.contains(&VmId(port.vm)) { kept | intf::BARE } else { kept };
            if flags != port.flags {
                self.programs.ports.put(index, intf::Port { flags, ..port })?;
            }
        }
        Ok(())
    }
}

/// One program of each interface, by which its name is followed.
const fn is_first(hook: &Hook) -> bool {
    matches!(hook.program, Program::Classify | Program::Stamp)
}

/// Whether a program is one of Weir's, of any agent.
fn is_weirs(id: u32) -> bool {
    attach::program_name(id).is_some_and(|name| name.starts_with("weir_"))
}

/// Description of a foreign program.
fn described(id: u32) -> String {
    let name = attach::program_name(id).unwrap_or_default();
    format!("the foreign program {name:?} (id {id})")
}
