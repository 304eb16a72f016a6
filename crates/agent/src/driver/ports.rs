//! Ports that go, come back, or cannot be guarded.
//!
//! Problem   Ports die without anybody saying so, and one that is made again may be another device of
//!           the same name and number. One that somebody else holds must not keep others unguarded.
//! Approach  With every heartbeat the data plane is asked whom it guards. What went and what came is seen
//!           to at once; if that fails, what went is taken down, and each of the others tried alone.
//!           One that fails alone stays gone, and is tried again after pauses that grow.
//! Promises  Every VM of this host is guarded or told as gone. A port that stays bad is said once, and
//!           costs a try in sixteen seconds.
//! Not here  What taking down and setting up is: see `population`.

use super::population::{Wanted, named};
use super::{Driver, handed};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::status::Gone;
use weir_units::{Span, Time, VmId};

/// After a first failure; each further one doubles it.
const FIRST_PAUSE: Span = Span::from_millis(500);
const LONGEST_PAUSE: Span = Span::from_secs(16);

/// What failed, and when it is tried again.
#[derive(Debug)]
pub(super) struct Refusal {
    why: String,
    pause: Span,
    again: Time,
}

impl Refusal {
    pub(super) fn new(now: Time, why: String, former: Option<&Self>) -> Self {
        let pause = former.map_or(FIRST_PAUSE, |f| LONGEST_PAUSE.min(f.pause * 2));
        Self { why, pause, again: now + pause }
    }

    /// Why it failed.
    pub(super) fn why(&self) -> &str {
        &self.why
    }

    /// Whether it is tried again by now.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.again <= now
    }
}

/// Ports that are there and cannot be guarded.
#[derive(Debug, Default)]
pub(super) struct Ports {
    refused: BTreeMap<VmId, Refusal>,
    /// Why not even those that went could be taken down.
    trouble: Option<Refusal>,
}

impl Ports {
    /// Why this VM's port cannot be guarded.
    pub(super) fn why(&self, vm: VmId) -> Option<&str> {
        self.refused.get(&vm).map(|refusal| refusal.why.as_str())
    }

    /// Without a pause.
    pub(super) fn try_again(&mut self) {
        let all = self.refused.values_mut().chain(&mut self.trouble);
        all.for_each(|refusal| refusal.again = Time::ZERO);
    }

    fn is_due(&self, vm: VmId, now: Time) -> bool {
        self.refused.get(&vm).is_none_or(|refusal| refusal.is_due(now))
    }

    /// Whether that is news.
    fn refuse(&mut self, now: Time, vm: VmId, why: String) -> bool {
        let former = self.refused.remove(&vm);
        let is_news = former.as_ref().is_none_or(|former| former.why != why);
        self.refused.insert(vm, Refusal::new(now, why, former.as_ref()));
        is_news
    }
}

/// A VM as people know it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) port: String,
}

impl Driver {
    /// With every heartbeat: ports that went, or came back.
    pub(super) fn look_at_ports(&mut self, now: Time) {
        let lost = self.unguarded();
        let here: BTreeSet<VmId> =
            self.gone.union(&lost).copied().filter(|vm| self.is_here(*vm)).collect();
        // What comes back after it went is another port.
        self.reloads.ports.refused.retain(|vm, _| here.contains(vm));
        let mut taken = here;
        taken.retain(|vm| self.reloads.ports.is_due(*vm, now));
        let is_paused = self.reloads.ports.trouble.as_ref().is_some_and(|t| t.again > now);
        if is_paused || (lost.is_empty() && taken.is_empty()) {
            return;
        }
        let all: BTreeSet<VmId> = self.gone.union(&lost).copied().collect();
        let gone = all.difference(&taken).copied().collect();
        let Err(e) = self.change_ports(now, gone, &lost.union(&taken).copied().collect()) else {
            self.reloads.ports.trouble = None;
            self.reloads.ports.refused.retain(|vm, _| !taken.contains(vm));
            return;
        };
        if lost.is_empty() && taken.len() == 1 {
            taken.into_iter().for_each(|vm| self.refuse(now, vm, e.clone()));
            return;
        }
        if !lost.is_empty()
            && let Err(why) = self.change_ports(now, all, &lost)
        {
            let former = self.reloads.ports.trouble.take();
            if former.as_ref().is_none_or(|former| former.why != why) {
                tracing::error!("ports that went could not be seen to: {why}");
            }
            self.reloads.ports.trouble = Some(Refusal::new(now, why, former.as_ref()));
            return;
        }
        self.reloads.ports.trouble = None;
        for vm in taken {
            let mut gone = self.gone.clone();
            gone.remove(&vm);
            match self.change_ports(now, gone, &BTreeSet::from([vm])) {
                Ok(()) => drop(self.reloads.ports.refused.remove(&vm)),
                Err(why) => self.refuse(now, vm, why),
            }
        }
    }

    /// The configuration in use, without those that are `gone`.
    fn change_ports(
        &mut self,
        now: Time,
        gone: BTreeSet<VmId>,
        strangers: &BTreeSet<VmId>,
    ) -> Result<(), String> {
        let wanted = Wanted::of(&self.setup, gone);
        self.put_in_force(now, wanted, strangers).map_err(|e| named(&self.setup, &e))
    }

    fn refuse(&mut self, now: Time, vm: VmId, why: String) {
        if self.reloads.ports.refuse(now, vm, why.clone()) {
            let (name, port) = (self.setup.names.name(vm), self.port_of(vm).unwrap_or("?"));
            tracing::error!("vm {name} is not guarded: its port {port} is refused: {why}");
        }
    }

    /// VMs that should be guarded and are not: their port went, or is another one by now.
    pub(super) fn unguarded(&self) -> BTreeSet<VmId> {
        let guarded = self.dataplane.guarded();
        let ids = self.setup.file.vms.iter().filter_map(|vm| self.setup.names.id(&vm.name));
        ids.filter(|vm| !self.gone.contains(vm) && !guarded.contains(vm)).collect()
    }

    /// Says and counts what went and came back, as it is taken up: by itself, or with a reload. `lost`
    /// were not guarded any more; `gone` will not be.
    pub(super) fn tell_of_ports(
        &mut self,
        vms: &BTreeMap<VmId, Shown>,
        lost: &BTreeSet<VmId>,
        gone: &BTreeSet<VmId>,
    ) {
        for (vm, Shown { name, port }) in vms {
            self.reloads.ports_lost += u64::from(lost.contains(vm));
            let was_gone = self.gone.contains(vm);
            if gone.contains(vm) && !was_gone && port.is_empty() {
                tracing::warn!("vm {name} is gone: its port was taken back");
            } else if gone.contains(vm) && !was_gone && self.dataplane.device_name(port).is_none() {
                tracing::warn!("vm {name} is gone: its port {port} is not on this host any more");
            } else if !gone.contains(vm) && was_gone {
                tracing::info!("vm {name} is guarded: its port {port} is there");
            } else if !gone.contains(vm) && lost.contains(vm) {
                tracing::info!("vm {name} is back: its port {port} is another interface");
            }
        }
    }

    fn is_here(&self, vm: VmId) -> bool {
        self.port_of(vm).is_some_and(|port| self.dataplane.device_name(port).is_some())
    }

    fn port_of(&self, vm: VmId) -> Option<&str> {
        let name = self.setup.names.name(vm);
        self.setup.file.vms.iter().find(|v| v.name == name).map(|v| v.port.as_str())
    }

    /// VMs of this host that are not guarded, for people, each once. With them those that were handed over and
    /// are left out, unless a VM of that name is guarded.
    pub(super) fn told_gone(&self) -> Vec<Gone> {
        let refused = &self.setup.handed.refused;
        let told = |vm: &VmId| {
            let (name, why) = (self.setup.names.name(*vm), self.reloads.ports.why(*vm));
            let left_out = || handed::told(refused.iter().find(|one| one.vm == name)?).why;
            let port = self.port_of(*vm).unwrap_or_default().to_owned();
            Gone { why: why.map(str::to_owned).or_else(left_out), port, vm: name }
        };
        let mut all: Vec<Gone> = self.gone.iter().map(told).collect();
        let mut named: BTreeSet<&str> =
            self.setup.file.vms.iter().map(|vm| vm.name.as_str()).collect();
        all.extend(refused.iter().filter(|one| named.insert(&one.vm)).map(handed::told));
        all
    }

    /// Why a pair of these has no floor, if one of them is gone.
    pub(super) fn why_unguarded(&self, vms: &[VmId]) -> Option<String> {
        let vm = vms.iter().find(|vm| self.gone.contains(vm))?;
        let (name, port) = (self.setup.names.name(*vm), self.port_of(*vm).unwrap_or_default());
        Some(match self.reloads.ports.why(*vm) {
            Some(why) => {
                format!("Unenforced: {name} is not guarded, its port {port} is refused: {why}")
            }
            None if port.is_empty() => {
                format!("Unenforced: {name} is gone, its port was not handed over")
            }
            None => format!("Unenforced: {name} is gone, its port {port} is not on this host"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_stays_bad_is_said_once_and_tried_more_and_more_seldom() {
        let (vm, mut now, mut ports) = (VmId(3), Time::from_nanos(1), Ports::default());
        assert!(ports.is_due(vm, now) && ports.why(vm).is_none());
        let mut pauses = Vec::new();
        for round in 0..8 {
            assert_eq!(ports.refuse(now, vm, "somebody else's".into()), round == 0);
            assert!(!ports.is_due(vm, now));
            let again = ports.refused[&vm].again;
            pauses.push(again.since(now).as_nanos() / 1_000_000);
            now = again;
            assert!(ports.is_due(vm, now));
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 16_000, 16_000]);
        assert!(ports.refuse(now, vm, "no Ethernet device".into()), "that is news");
        ports.try_again();
        assert!(ports.is_due(vm, now));
        assert_eq!(ports.why(vm), Some("no Ethernet device"));
    }
}
