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
//!           to be told. Nor does one that cannot be guarded keep others from being.
//! Not here  What may change at all: see `reload`. The ports themselves: see `ports`.

use super::ports::{Ports, Shown};
use super::{Driver, MAX_PAIRS, handed};
use crate::addresses::Addresses;
use crate::config::Setup;
use crate::mistake::Mistake;
use crate::{hoses, overbooked, promised, reload};
use anyhow::{Result, anyhow};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weir_core::host::{Call, Policy};
use weir_dataplane::attach::Interface;
use weir_dataplane::shaper::Kind;
use weir_dataplane::{GuestDscp, Port};
use weir_model::agent::{ShaperChoice, VXLAN_OVERHEAD, VmConfig};
use weir_model::status::Reply;
use weir_units::{HostId, Rate, Time, VmId};

/// What is said when an agent observes.
pub(super) const OBSERVING: &str = "observing: no packet is changed, delayed or dropped, and no floor is enforced. Packets carry no \
     numbers, so losses do not show: ceilings are those of pairs whose losses nobody sees";
const ENFORCING: &str = "enforcing: floors hold from now on";

/// What became of reloads and ports so far.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    /// Taken up.
    pub(super) taken: u64,
    /// Refused: the configuration in use stayed.
    pub(super) refused: u64,
    /// Ports that went by themselves.
    pub(super) ports_lost: u64,
    /// Those that cannot be guarded.
    pub(super) ports: Ports,
}

/// What shall be in force.
pub(super) struct Wanted {
    dataplane: weir_dataplane::Config,
    policy: Policy,
    gone: BTreeSet<VmId>,
    /// This host's VMs, for who is told.
    vms: BTreeMap<VmId, Shown>,
}

impl Wanted {
    pub(super) fn of(setup: &Setup, gone: BTreeSet<VmId>) -> Self {
        let shown = |vm: &VmConfig| {
            let shown = Shown { name: vm.name.clone(), port: vm.port.clone() };
            Some((setup.names.id(&vm.name)?, shown))
        };
        Self {
            dataplane: dataplane_config(setup, &gone),
            policy: policy(setup, &gone),
            vms: setup.file.vms.iter().filter_map(shown).collect(),
            gone,
        }
    }
}

impl Driver {
    /// SIGHUP: takes up what `agent.toml` and the directory say now.
    pub(super) fn reload(&mut self, now: Time) -> Reply {
        self.notifier.reloading();
        // What is in force may not be on the disk yet.
        let next = match &self.link {
            Some(link) => Setup::reload_beside(&self.config, link.kept(), &self.setup),
            None => Setup::reload(&self.config, &self.setup),
        };
        let reply = match next.and_then(|next| self.take_up(now, next)) {
            Ok(said) => {
                self.reloads.taken += 1;
                let message = format!("took up the configuration: {said}");
                tracing::info!("{message}");
                Reply::Done { message }
            }
            Err(e) => {
                self.reloads.refused += 1;
                let message = format!("the configuration in use stays: {e:#}");
                tracing::error!("{message}");
                Reply::Error { message }
            }
        };
        self.notifier.ready(&self.status());
        reply
    }

    /// All of it or nothing; says what changed.
    pub(super) fn take_up(&mut self, now: Time, next: Setup) -> Result<String> {
        // A person asks: names mean what they mean now, and what cannot be mended is tried again.
        self.dataplane.reread_names();
        self.mend_at_once();
        let gone = self.gone_of(&next)?;
        let mut strangers = reload::strangers(&self.setup, &next);
        // One that comes back is new to everything, and so is one whose port is another by now.
        strangers.extend(self.gone.difference(&gone));
        strangers.extend(self.unguarded());
        self.put_in_force(now, Wanted::of(&next, gone), &strangers)
            .map_err(|e| anyhow!("{}: {}", self.config.display(), named(&next, &e)))?;
        // Whoever reloads has seen to what was refused.
        self.reloads.ports.try_again();
        self.change_peers(&next);
        for warning in overbooked::warnings(&next).into_iter().chain(hoses::warning(&next)) {
            tracing::warn!("{}: {warning}", self.config.display());
        }
        let (before, after) = (&self.setup.host, &next.host);
        let came = after.vms().filter(|(vm, _)| !before.is_here(*vm)).count();
        let went = before.vms().filter(|(vm, _)| !after.is_here(*vm)).count();
        let mode = if next.observes() { "observing" } else { "enforcing" };
        let said = format!(
            "{mode}; {} VMs here ({came} came, {went} went), {} in the directory",
            after.vms().count(),
            after.directory.len()
        );
        let (places, wanted) = self.dataplane.pair_room();
        if wanted > places {
            tracing::warn!(
                "the tables of pairs have {places} entries, all VMs' places would need {wanted}: \
                 restart to have larger ones"
            );
        }
        let switched = next.observes() != self.setup.observes();
        handed::tell(&self.setup.handed.refused, &next.handed.refused);
        self.setup = next;
        if switched {
            tracing::warn!("{}", if self.setup.observes() { OBSERVING } else { ENFORCING });
            self.host.handle(now, Call::Rewrite);
        }
        self.take_up_budgets(now);
        // Whoever asked is told that it is in force.
        self.carry_out(now);
        Ok(said)
    }

    /// Gives data plane and machine what shall be. If the former refuses, nothing has changed.
    pub(super) fn put_in_force(
        &mut self,
        now: Time,
        wanted: Wanted,
        strangers: &BTreeSet<VmId>,
    ) -> Result<(), weir_dataplane::Error> {
        // It may take its time, and the guardian is not to think that nobody is there.
        self.renew(super::now());
        let lost = self.unguarded();
        let Wanted { dataplane, policy, gone, vms } = wanted;
        if let Err(e) = self.dataplane.apply(dataplane, strangers) {
            if matches!(e, weir_dataplane::Error::Undone { .. }) {
                // What was put back has the smallest rates until they are written again.
                self.host.handle(now, Call::Rewrite);
            }
            return Err(e);
        }
        self.tell_of_ports(&vms, &lost, &gone);
        self.tell_of_translations(&|vm| vms.get(&vm).map(|shown| shown.name.clone()));
        let strangers = strangers.clone();
        self.host.handle(now, Call::Change { policy: &policy, strangers });
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
        }
        self.peers = peers(next);
        let new =
            self.peers.keys().filter(|id| **id != own && !(before.contains(id) && is_same(id)));
        for host in new {
            if let Err(e) = self.session.add_peer(*host) {
                tracing::error!("{host} is not talked to: {e}");
            }
        }
        self.give_all_keys();
    }

    /// VMs of `next` without a port that is there, or with one that cannot be guarded as was said already, and those that were
    /// handed over just now: the next heartbeat sets each of these up by itself, so that none keeps others
    /// from it. An error if a port is missing that a person has to make.
    fn gone_of(&self, next: &Setup) -> Result<BTreeSet<VmId>> {
        let known: BTreeSet<(&str, &str)> =
            self.setup.file.vms.iter().map(|v| (v.name.as_str(), v.port.as_str())).collect();
        let mut gone = BTreeSet::new();
        for (i, vm) in next.file.vms.iter().enumerate() {
            let id = next.names.id(&vm.name);
            let is_known = known.contains(&(vm.name.as_str(), vm.port.as_str()));
            let is_here = self.dataplane.device_name(&vm.port).is_some();
            let is_handed = next.handed.has(&vm.name);
            // What hands ports over also takes them back, and no person waits for an answer. Only the
            // controller may leave a port out: its guest may start later than this state comes.
            let is_elsewhere = vm.port.is_empty() || is_handed || self.setup.handed.has(&vm.name);
            let may_be_missing = is_known || is_elsewhere;
            if !is_here && !may_be_missing {
                let what = format!(
                    "vm `{}` has port `{}`, which is not on this host; make it before the reload",
                    vm.name, vm.port
                );
                return Err(Mistake::config(format!("vm[{i}].port"), what).tell_in(&self.config));
            }
            let is_refused = id.is_some_and(|id| self.reloads.ports.why(id).is_some());
            if !is_here || (is_refused && is_known) || (is_handed && !is_known) {
                gone.extend(id);
            }
        }
        Ok(gone)
    }
}

/// What the data plane said, with the names of whom it concerns: it knows numbers and interfaces only.
pub(super) fn named(setup: &Setup, error: &weir_dataplane::Error) -> String {
    let text = error.to_string();
    let is_in_name = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
    let words: BTreeSet<&str> =
        text.split(|c: char| !is_in_name(c)).map(|word| word.trim_end_matches('.')).collect();
    let is_meant = |vm: &&VmConfig| {
        let id = setup.names.id(&vm.name).map(|id| id.to_string());
        words.contains(vm.port.as_str()) || id.is_some_and(|id| words.contains(id.as_str()))
    };
    let meant = setup.file.vms.iter().filter(is_meant);
    let meant: Vec<String> =
        meant.map(|vm| format!("vm `{}` with port `{}`", vm.name, vm.port)).collect();
    if meant.is_empty() { text } else { format!("{text} (this is {})", meant.join(", ")) }
}

/// Where all agents listen.
pub(super) fn peers(setup: &Setup) -> BTreeMap<HostId, SocketAddr> {
    setup.hosts.iter().map(|(id, (_, control))| (*id, *control)).collect()
}

/// VMs without their ports when the agent starts. After a boot most VMs are not there yet, and
/// floors of the others must not wait for them.
pub(super) fn gone_at_start(setup: &Setup) -> Result<BTreeSet<VmId>> {
    let file = &setup.file;
    // A port that was renamed still carries the program of an earlier agent.
    let left = if weir_dataplane::has_traces(&file.instance, &file.bpffs, &file.run_dir)? {
        weir_dataplane::left_behind(&file.instance, &file.bpffs, &file.run_dir)?
    } else {
        BTreeMap::new()
    };
    let is_left = |vm: &VmConfig| setup.names.id(&vm.name).is_some_and(|id| left.contains_key(&id));
    let is_missing =
        |vm: &&VmConfig| vm.port.is_empty() || (Interface::find(&vm.port).is_err() && !is_left(vm));
    let gone = file.vms.iter().filter(is_missing).filter_map(|vm| {
        match vm.port.as_str() {
            "" => tracing::warn!("vm {} is gone: its port was not handed over", vm.name),
            port => tracing::warn!("vm {} is gone: its port {port} is not on this host", vm.name),
        }
        setup.names.id(&vm.name)
    });
    Ok(gone.collect())
}

/// What the machine is told: the VMs that are there.
pub(super) fn policy(setup: &Setup, gone: &BTreeSet<VmId>) -> Policy {
    let mut policy = setup.host.clone();
    policy.retain_vms(|vm| !gone.contains(&vm));
    policy
}

/// Nothing where the agent only observes.
fn unless<T: Default>(setup: &Setup, wanted: T) -> T {
    if setup.observes() { T::default() } else { wanted }
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
            floor_out: setup.host.promised(id),
            cap_out: vm.cap_out.map(|c| c.0),
            external: promised::external(vm),
            best_effort: setup.is_best_effort(id),
            dscp: guest_dscp(vm.dscp),
        })
        .collect();
    weir_dataplane::Config {
        instance: file.instance.clone(),
        bpffs: file.bpffs.clone(),
        run_dir: file.run_dir.clone(),
        uplink: file.uplink.interface.clone(),
        uplink_rate: file.uplink.rate.0,
        host_floor: file.uplink.host_floor.map_or(Rate::ZERO, |floor| floor.0),
        tunnels: tunnels(&file.uplink),
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
        timed_every: setup.host.law.timed_every(),
        eyeq: super::eyeq::of(setup),
        // These change packets.
        translations: unless(setup, super::translation::of(setup, gone)),
        policing: unless(setup, super::translation::policing(setup)),
        budgets: unless(setup, super::budget::of(setup, gone)),
        observe: setup.observes(),
        flows_per_vm: file.flows_per_vm,
        code_points: crate::queues::code_points(file),
        shaper: match file.shaper {
            // Its shares of an uplink go by floors; departure times lend to the first to come.
            ShaperChoice::Auto if setup.eyeq().is_some() => Some(Kind::Htb),
            ShaperChoice::Auto => None,
            ShaperChoice::Htb => Some(Kind::Htb),
            ShaperChoice::DepartureTime => Some(Kind::DepartureTime),
        },
    }
}

const fn guest_dscp(policy: weir_model::agent::GuestDscp) -> GuestDscp {
    match policy {
        weir_model::agent::GuestDscp::Clear => GuestDscp::Clear,
        weir_model::agent::GuestDscp::Keep => GuestDscp::Keep,
        weir_model::agent::GuestDscp::Restore => GuestDscp::Restore,
    }
}

/// What carries VMs' packets to other hosts, if not the uplink as they are.
fn tunnels(uplink: &weir_model::agent::Uplink) -> weir_dataplane::Tunnels {
    let interfaces = uplink.tunnels.clone();
    let overhead = if interfaces.is_empty() { 0 } else { VXLAN_OVERHEAD };
    weir_dataplane::Tunnels { interfaces, overhead: uplink.tunnel_overhead.unwrap_or(overhead) }
}
