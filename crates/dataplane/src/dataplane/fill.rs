//! What the programs are told: settings, the directory, ports and places, and where they are attached.
//!
//! Not here  The tables themselves: see `programs`. Attaching: see `attach`.

use super::timed::Times;
use super::{eyeq, vcc};
use crate::attach::{self, Hook, Interface, Mode};
use crate::config::{Config, Port};
use crate::error::Error;
use crate::instance::{Deed, Instance, Journal, list};
use crate::intf;
use crate::outside;
use crate::places::Places;
use crate::programs::{MAX_PORTS, Program, Programs};
use crate::shaper::{Kind, Shaper, VmClasses};
use crate::tags::GuestDscp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weir_core::host::Brake;
use weir_units::{Span, VmId};

/// No moment is longer, so that the programs' arithmetic has room: the uplink's 10 ms at 800 Gb/s.
const MOST_AHEAD: u32 = 1_000_000_000;

pub(super) fn settings(config: &Config, kind: Kind, uplink: &Interface) -> intf::Settings {
    let is_divided = kind == Kind::Htb && !config.host_floor.is_zero() && !config.observe;
    intf::Settings {
        reorder_ns: config.reorder_window.as_nanos(),
        flags: if config.ecn { intf::ECN } else { 0 }
            | if config.eyeq.is_some() { intf::UNMARK } else { 0 }
            | if config.observe { intf::OBSERVE } else { 0 },
        overhead: config.tunnels.overhead,
        code_points: config.code_points.bits(),
        divided: if is_divided { uplink.index } else { 0 },
        timed_us: config.timed_every.map_or(0, timed_us),
    }
}

/// At least a microsecond, and no more than fits.
fn timed_us(every: Span) -> u32 {
    u32::try_from(every.as_nanos() / 1000).unwrap_or(u32::MAX).max(1)
}

pub(super) fn fill_endpoints(
    programs: &Programs,
    config: &Config,
    times: &Times,
) -> Result<(), Error> {
    for endpoint in &config.endpoints {
        let port = config.ports.iter().find(|p| p.vm == endpoint.vm);
        let value = intf::Endpoint {
            vm: endpoint.vm.0,
            tenant: endpoint.tenant.0,
            flags: port.map_or(0, endpoint_flags) | endpoint.mac.map_or(0, |_| intf::AT_MAC),
            mac: mac_octets(endpoint.mac),
            host: times.row(endpoint.host),
        };
        programs.endpoints.put(endpoint.address.into(), value)?;
    }
    Ok(())
}

/// As the programs compare it.
fn mac_octets(mac: Option<[u8; 6]>) -> [u8; 8] {
    mac.map_or([0; 8], |m| [m[0], m[1], m[2], m[3], m[4], m[5], 0, 0])
}

/// Of a VM of this host.
pub(crate) fn endpoint_flags(port: &Port) -> u32 {
    intf::LOCAL | if port.best_effort { intf::BEST_EFFORT } else { 0 }
}

/// Makes the map of ports exactly the configuration's. A port that stays keeps its counters.
pub(super) fn fill_ports(
    programs: &mut Programs,
    config: &Config,
    hooks: &[Hook],
    shaper: &dyn Shaper,
    bare: &BTreeSet<VmId>,
    brakes: &BTreeMap<VmId, Brake>,
) -> Result<Vec<(VmId, u32)>, Error> {
    let mut old: BTreeMap<u32, intf::Port> = programs.ports.read()?.collect();
    let mut kept = BTreeMap::new();
    for port in first_ports(config) {
        let index = index_of(hooks, &port.interface);
        if let Some(value) = old.get(&index).filter(|v| v.vm == port.vm.0) {
            kept.insert(index, value.slot);
        }
    }
    let mut used: BTreeSet<u32> = kept.values().copied().collect();
    let mut slots = Vec::new();
    for port in first_ports(config) {
        let index = index_of(hooks, &port.interface);
        let slot = kept.get(&index).copied().unwrap_or_else(|| {
            let free = (0..MAX_PORTS).find(|s| !used.contains(s));
            let free = free.expect("not more ports than slots: the configuration was checked");
            programs.port_counters.clear(free as usize);
            free
        });
        used.insert(slot);
        let classes = shaper.vm_classes(port.vm).ok_or(Error::NoPort(port.vm))?;
        let value = intf::Port {
            vm: port.vm.0,
            tenant: port.tenant.0,
            slot,
            default_class: classes.default.0,
            control_class: classes.control.0,
            external_class: classes.external.0,
            flags: flags(config, port, bare),
            max_pairs: config.pairs_per_vm,
            stray_bps: stray_bps(&classes, brake_at(config, brakes, &port.interface)),
            moment: u32::try_from(classes.moment.get()).unwrap_or(u32::MAX).min(MOST_AHEAD),
            mac: mac_octets(port.mac),
        };
        programs.ports.put(index, value)?;
        old.remove(&index);
        slots.push((port.vm, slot));
    }
    for index in old.into_keys() {
        programs.ports.delete(index)?;
    }
    Ok(slots)
}

/// What a VM's pairs without a class may send together, bit/s.
pub(super) fn stray_bps(classes: &VmClasses, brake: Brake) -> u32 {
    u32::try_from(brake.of(classes.stray_rate).as_bps()).unwrap_or(u32::MAX)
}

/// The hardest brake of the VMs that share a port.
pub(super) fn brake_at(config: &Config, brakes: &BTreeMap<VmId, Brake>, interface: &str) -> Brake {
    let shares = |vm: &VmId| config.ports.iter().any(|p| p.vm == *vm && p.interface == interface);
    let brakes = brakes.iter().filter(|(vm, _)| shares(vm));
    brakes.map(|(_, brake)| *brake).min().unwrap_or(Brake::NONE)
}

/// The ports, those that are shared by their first VM.
pub(super) fn first_ports(config: &Config) -> impl Iterator<Item = &Port> {
    let mut seen = BTreeSet::new();
    config.ports.iter().filter(move |port| seen.insert(&port.interface))
}

fn flags(config: &Config, port: &Port, bare: &BTreeSet<VmId>) -> u32 {
    let outward = if config.is_outward(port.vm) { intf::OUTWARD } else { 0 };
    let outward = outward | if bare.contains(&port.vm) { intf::BARE } else { 0 };
    let dscp = match port.dscp {
        GuestDscp::Clear => 0,
        GuestDscp::Keep => intf::KEEP_DSCP,
        GuestDscp::Restore => intf::RESTORE_DSCP,
    };
    outward | dscp | if port.mac.is_some() { intf::FIXED_MAC } else { 0 }
}

/// Gives every VM its places, also VMs that share a port, and writes the endpoints for the outside.
/// Adopted pairs occupy their places from the start.
pub(super) fn fill_places(
    programs: &mut Programs,
    config: &Config,
    shaper: &dyn Shaper,
    ports: &[(VmId, u32)],
) -> Result<Places, Error> {
    let mut slots: BTreeMap<VmId, u32> = ports.iter().copied().collect();
    let mut here = BTreeMap::new();
    for port in &config.ports {
        let free = || (0..MAX_PORTS).find(|free| !slots.values().any(|slot| slot == free));
        let slot = slots.get(&port.vm).copied().or_else(free);
        let slot = slot.expect("not more ports than slots: the configuration was checked");
        slots.insert(port.vm, slot);
        let classes = shaper.vm_classes(port.vm).ok_or(Error::NoPort(port.vm))?;
        here.insert(port.vm, (slot, classes.default.0));
    }
    outside::fill(programs, config, &here)?;
    let mut places = Places::new(programs.places()?, slots);
    places.begin_sending();
    programs.tx.read()?.for_each(|(pair, _)| places.sends(VmId(pair.src)));
    places.end_sending();
    places.begin_receiving();
    programs.rx.read()?.for_each(|(pair, _)| places.receives(VmId(pair.dst)));
    places.end_receiving();
    Ok(places)
}

fn index_of(hooks: &[Hook], interface: &str) -> u32 {
    let hook = hooks.iter().find(|h| h.interface.name == interface);
    hook.expect("every port has hooks").interface.index
}

pub(super) fn hooks(config: &Config) -> Result<Vec<Hook>, Error> {
    let uplink = Interface::find(&config.uplink)?;
    let mut hooks = vec![Hook { interface: uplink, program: Program::Stamp }];
    for name in &config.tunnels.interfaces {
        hooks.push(Hook { interface: Interface::find(name)?, program: Program::Stamp });
    }
    eyeq::add_hooks(&mut hooks, config)?;
    for port in first_ports(config) {
        let interface = Interface::find(&port.interface)?;
        hooks.push(Hook { interface: interface.clone(), program: Program::Classify });
        hooks.push(Hook { interface, program: eyeq::meter(config) });
    }
    hooks.iter().try_for_each(|h| h.interface.check_ethernet())?;
    Ok(hooks)
}

/// Detaches programs that an earlier agent attached where this one attaches none, or another.
pub(super) fn detach_others(
    instance: &Instance,
    journal: &Journal,
    hooks: &[Hook],
    mode: Mode,
) -> Result<(), Error> {
    // The program attached first is detached last: no meter may outlive the program that edits its
    // clones.
    for deed in journal.deeds.iter().rev() {
        match deed {
            Deed::Filter(h)
                if h.interface.is_there()
                    && (mode == Mode::Tcx
                        || !hooks.contains(h) && !matches!(h.program, Program::Vcc(_))) =>
            {
                attach::detach_clsact(h)?;
            }
            _ => {}
        }
    }
    let links = instance.links();
    let wanted: Vec<_> = match mode {
        Mode::Tcx => hooks.iter().map(|h| h.pin(&links)).collect(),
        Mode::Clsact => Vec::new(),
    };
    // Programs that translate are handled later, because connections may need them.
    let is_kept = |pin: &PathBuf| {
        wanted.contains(pin) || (mode == Mode::Tcx && vcc::translator_on(pin).is_some())
    };
    let mut pins = list(&links)?;
    // As [`Instance::remove_files`] has it: a port's programs before those that serve all ports.
    pins.sort_unstable();
    for pin in pins.into_iter().filter(|pin| !is_kept(pin)) {
        attach::detach_tcx(&pin)?;
    }
    Ok(())
}

pub(super) fn attach_one(
    hook: &Hook,
    mode: Mode,
    programs: &Programs,
    instance: &Instance,
    journal: &mut Journal,
) -> Result<(), Error> {
    let program = programs.fd(hook.program);
    if mode == Mode::Tcx {
        return attach::attach_tcx(hook, program, &instance.links());
    }
    let (clsact, filter) = (Deed::Clsact(hook.interface.clone()), Deed::Filter(hook.clone()));
    if !attach::has_clsact(&hook.interface)? {
        journal.record(clsact)?;
        attach::add_clsact(&hook.interface)?;
    }
    let ours = journal.has(&filter);
    if !ours {
        journal.record(filter)?;
    }
    attach::attach_clsact(hook, program, ours)
}
