//! VMs that come, go and move while the agent runs.
//!
//! Problem   The configuration is what shall be; ports die without anybody saying so; and floors of all
//!           others must not blink.
//! Approach  On SIGHUP both files are read as at the start. What they say goes to the data plane, to
//!           the machine and to the list of peers, each of which compares it with what it has. With
//!           every heartbeat the ports are looked at: a VM whose port is gone is taken down as if it
//!           had been removed, and set up again when its port is back.
//! Promises  All of a reload is applied or nothing: a new VM whose port is missing refuses it whole,
//!           because half of a list is nobody's intention, and who adds a VM has made its port before.
//!           A port that goes by itself refuses nothing and stops nobody, for then nobody is there
//!           to be told.
//! Not here  What may change at all: see `reload`.

use super::{Driver, MAX_PAIRS};
use crate::addresses::Addresses;
use crate::config::Setup;
use crate::{overbooked, reload};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weir_core::host::{HostConfig, Input, Mechanism};
use weir_dataplane::Port;
use weir_dataplane::attach::Interface;
use weir_dataplane::shaper::Kind;
use weir_model::agent::ShaperChoice;
use weir_model::status::Gone;
use weir_units::{HostId, PairId, Rate, Time, VmId};

/// What became of reloads and ports so far.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    /// Taken up.
    pub(super) taken: u64,
    /// Refused: the configuration in use stayed.
    pub(super) refused: u64,
    /// Ports that went by themselves.
    pub(super) ports_lost: u64,
    /// Why ports that went or came could not be seen to, said once.
    trouble: String,
}

/// What shall be in force.
struct Wanted {
    dataplane: weir_dataplane::Config,
    host: HostConfig,
    gone: BTreeSet<VmId>,
}

impl Wanted {
    fn of(setup: &Setup, gone: BTreeSet<VmId>) -> Self {
        Self { dataplane: dataplane_config(setup, &gone), host: host_config(setup, &gone), gone }
    }
}

impl Driver {
    /// SIGHUP: takes up what `agent.toml` and the directory say now.
    pub(super) fn reload(&mut self, now: Time) {
        self.notifier.reloading();
        let next = Setup::reload(&self.config, &self.setup);
        match next.and_then(|next| self.take_up(now, next)) {
            Ok(said) => {
                self.reloads.taken += 1;
                tracing::info!("took up the configuration: {said}");
            }
            Err(e) => {
                self.reloads.refused += 1;
                tracing::error!("the configuration in use stays: {e:#}");
            }
        }
        self.notifier.ready(&self.status());
    }

    /// All of it or nothing; says what changed.
    fn take_up(&mut self, now: Time, next: Setup) -> Result<String> {
        let gone = self.gone_of(&next)?;
        let mut strangers = reload::strangers(&self.setup, &next);
        // One that comes back is new to everything.
        strangers.extend(self.gone.difference(&gone));
        self.put_in_force(now, Wanted::of(&next, gone), &strangers)?;
        self.change_peers(&next);
        for warning in overbooked::warnings(&next) {
            tracing::warn!("{}: {warning}", self.config.display());
        }
        let (before, after) = (&self.setup.host, &next.host);
        let came = after.vms.keys().filter(|vm| !before.vms.contains_key(vm)).count();
        let went = before.vms.keys().filter(|vm| !after.vms.contains_key(vm)).count();
        let said = format!(
            "{} VMs here ({came} came, {went} went), {} in the directory",
            after.vms.len(),
            after.directory.len()
        );
        let (places, wanted) = self.dataplane.pair_room();
        if wanted > places {
            tracing::warn!(
                "the tables of pairs have {places} entries, all VMs' places would need {wanted}: \
                 restart to have larger ones"
            );
        }
        self.setup = next;
        Ok(said)
    }

    /// Gives data plane and machine what shall be. If the former refuses, nothing has changed.
    fn put_in_force(
        &mut self,
        now: Time,
        wanted: Wanted,
        strangers: &BTreeSet<VmId>,
    ) -> Result<()> {
        let Wanted { dataplane, host, gone } = wanted;
        if let Err(e) = self.dataplane.apply(dataplane, strangers) {
            // What was put back has the smallest rates until they are written again.
            let desired = self.agent.desired(now);
            let all: Vec<PairId> = desired.iter().map(|(pair, _)| pair).collect();
            desired.retry(all);
            bail!(e);
        }
        if !strangers.is_empty() {
            // The machine knows numbers only: without them once, they are other VMs the next time.
            let mut without = host.clone();
            without.vms.retain(|vm, _| !strangers.contains(vm));
            without.directory.retain(|vm, _| !strangers.contains(vm));
            self.agent.handle(now, Input::Population(&without), &mut self.outbox);
        }
        self.agent.handle(now, Input::Population(&host), &mut self.outbox);
        self.gone = gone;
        Ok(())
    }

    fn change_peers(&mut self, next: &Setup) {
        let is_same = |id: &HostId| {
            let name = |setup: &Setup| setup.hosts.get(id).map(|(name, _)| name.clone());
            name(&self.setup) == name(next)
        };
        let own = self.setup.host.host;
        let before: Vec<HostId> = self.peers.keys().copied().collect();
        for host in before.iter().filter(|id| !is_same(id)) {
            self.session.remove_peer(*host);
            self.greeted.remove(host);
        }
        self.peers = peers(next);
        let new =
            self.peers.keys().filter(|id| **id != own && !(before.contains(id) && is_same(id)));
        for host in new {
            if let Err(e) = self.session.add_peer(*host) {
                tracing::error!("{host} is not talked to: {e}");
            }
        }
    }

    /// VMs of `next` whose port is not there. An error if one of them is new, or has another port.
    fn gone_of(&self, next: &Setup) -> Result<BTreeSet<VmId>> {
        let mut gone = BTreeSet::new();
        for (i, vm) in next.file.vms.iter().enumerate() {
            if Interface::find(&vm.port).is_ok() {
                continue;
            }
            let known = self.setup.file.vms.iter();
            if !known.into_iter().any(|v| v.name == vm.name && v.port == vm.port) {
                bail!(
                    "{}: vm[{i}].port: vm `{}` has port `{}`, which is not on this host; make it \
                     before the reload",
                    self.config.display(),
                    vm.name,
                    vm.port
                );
            }
            gone.extend(next.names.id(&vm.name));
        }
        Ok(gone)
    }

    /// With every heartbeat: ports that went, or came back.
    pub(super) fn look_at_ports(&mut self, now: Time) {
        let lost: BTreeSet<VmId> = self.dataplane.lost_ports().into_iter().collect();
        let here = |vm: &VmId| self.port_of(*vm).is_some_and(|port| Interface::find(port).is_ok());
        let back: BTreeSet<VmId> = self.gone.iter().copied().filter(here).collect();
        if lost.is_empty() && back.is_empty() {
            return;
        }
        let mut gone: BTreeSet<VmId> = self.gone.difference(&back).copied().collect();
        gone.extend(lost.iter().copied().filter(|vm| !here(vm)));
        let strangers: BTreeSet<VmId> = lost.union(&back).copied().collect();
        for vm in strangers.iter().filter(|_| self.reloads.trouble.is_empty()) {
            let (name, port) = (self.setup.names.name(*vm), self.port_of(*vm).unwrap_or("?"));
            if gone.contains(vm) {
                tracing::warn!("vm {name} is gone: its port {port} is not on this host any more");
            } else {
                tracing::info!("vm {name} is back: its port {port} is another interface");
            }
        }
        match self.put_in_force(now, Wanted::of(&self.setup, gone), &strangers) {
            Ok(()) => {
                self.reloads.ports_lost += lost.len() as u64;
                self.reloads.trouble.clear();
            }
            Err(e) => {
                let said = format!("{e:#}");
                if said != self.reloads.trouble {
                    tracing::error!("ports that went or came back could not be seen to: {said}");
                    self.reloads.trouble = said;
                }
            }
        }
    }

    fn port_of(&self, vm: VmId) -> Option<&str> {
        let name = self.setup.names.name(vm);
        self.setup.file.vms.iter().find(|v| v.name == name).map(|v| v.port.as_str())
    }

    /// VMs of this host that nobody guards, for people.
    pub(super) fn told_gone(&self) -> Vec<Gone> {
        let told = |vm: &VmId| Gone {
            vm: self.setup.names.name(*vm),
            port: self.port_of(*vm).unwrap_or_default().to_owned(),
        };
        self.gone.iter().map(told).collect()
    }

    /// Why a pair of these has no floor, if one of them is gone.
    pub(super) fn why_unguarded(&self, vms: &[VmId]) -> Option<String> {
        let vm = vms.iter().find(|vm| self.gone.contains(vm))?;
        let (name, port) = (self.setup.names.name(*vm), self.port_of(*vm).unwrap_or_default());
        Some(format!("Unenforced: {name} is gone, its port {port} is not on this host"))
    }
}

/// Where all agents listen.
pub(super) fn peers(setup: &Setup) -> BTreeMap<HostId, SocketAddr> {
    setup.hosts.iter().map(|(id, (_, control))| (*id, *control)).collect()
}

/// Ports that are missing when the agent starts. At a first start that is a slip, which the data plane
/// refuses; where an earlier agent is followed the VM may have died with it, and the others' floors
/// must not wait for somebody to notice.
pub(super) fn gone_at_start(setup: &Setup) -> Result<BTreeSet<VmId>> {
    let file = &setup.file;
    if !weir_dataplane::has_traces(&file.instance, &file.bpffs, &file.run_dir)? {
        return Ok(BTreeSet::new());
    }
    let missing = file.vms.iter().filter(|vm| Interface::find(&vm.port).is_err());
    let gone = missing.filter_map(|vm| {
        tracing::warn!("vm {} is gone: its port {} is not on this host", vm.name, vm.port);
        setup.names.id(&vm.name)
    });
    Ok(gone.collect())
}

/// What the machine is told: the VMs that are there.
pub(super) fn host_config(setup: &Setup, gone: &BTreeSet<VmId>) -> HostConfig {
    let mut host = setup.host.clone();
    host.vms.retain(|vm, _| !gone.contains(vm));
    host
}

/// What all pairs of a VM may be promised together: the tenant's hose, and beside it the small one for
/// everybody else; with reservations, all of them (acknowledgements come on top of the hose).
fn guaranteed(setup: &Setup, vm: VmId, floor_out: Rate) -> Rate {
    let own = match &setup.host.mechanism {
        Mechanism::ElasticSwitch(_) => floor_out,
        Mechanism::Reservation { rates, .. } => {
            floor_out.max(rates.iter().filter(|(p, _)| p.src == vm).map(|(_, r)| *r).sum())
        }
    };
    own + setup.default_rate()
}

/// What the data plane shall do for the VMs that are there.
pub(super) fn dataplane_config(setup: &Setup, gone: &BTreeSet<VmId>) -> weir_dataplane::Config {
    let file = &setup.file;
    let addresses = Addresses::of(setup);
    let ports = file
        .vms
        .iter()
        .filter_map(|vm| Some((vm, setup.names.id(&vm.name)?)))
        .filter(|(_, id)| !gone.contains(id))
        .map(|(vm, id)| Port {
            vm: id,
            tenant: setup.tenants[&id],
            interface: vm.port.clone(),
            mac: vm.mac.map(|mac| mac.0),
            floor_out: guaranteed(setup, id, vm.floor_out.0),
            cap_out: vm.cap_out.map(|c| c.0),
        })
        .collect();
    weir_dataplane::Config {
        instance: file.instance.clone(),
        bpffs: file.bpffs.clone(),
        run_dir: file.run_dir.clone(),
        uplink: file.uplink.interface.clone(),
        uplink_rate: file.uplink.rate.0,
        ports,
        endpoints: addresses.endpoints,
        outside: addresses.outside,
        controls: addresses.controls,
        default_rate: setup.default_rate(),
        max_pairs: MAX_PAIRS,
        pairs_per_vm: file.pairs_per_vm,
        attach: None,
        ecn: setup.needs_marks(),
        reorder_window: setup.reorder_window(),
        shaper: match file.shaper {
            ShaperChoice::Auto => None,
            ShaperChoice::Htb => Some(Kind::Htb),
            ShaperChoice::DepartureTime => Some(Kind::DepartureTime),
        },
    }
}
