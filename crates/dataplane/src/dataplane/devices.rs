//! Devices of the configured names.
//!
//! Problem   A configuration names interfaces, and names change while devices live. A port that
//!           loses its name must not lose its programs, because its VM still sends through it.
//! Approach  A name means the device that it meant when it was first found, as long as the device
//!           lives; its index identifies it. Only a name whose device is gone is looked up again.
//! Promises  A live device is never given up because of its name. A caller that has the names read
//!           again ([`Devices::reread`]) gets their present devices.
//! Not here  Whether programs are still attached to a device: see `plumbing`.

use crate::attach::{Interface, Names, is_pinned_on};
use crate::config::Config;
use crate::error::Error;
use crate::instance::{Deed, Instance, Journal};
use crate::intf;
use crate::programs::Program;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::BTreeMap;
use weir_units::VmId;

/// An interface whose name differs from the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// Its name in the configuration.
    pub configured: String,
    /// Its present name.
    pub now: String,
    /// Another device has the configured name now, and is not guarded.
    pub taken: bool,
}

/// Devices by configured name.
#[derive(Clone, Default, Debug)]
pub(super) struct Devices(BTreeMap<String, Interface>);

impl Devices {
    /// The ports that an earlier agent of this instance guarded and that still carry its program.
    pub(super) fn left(instance: &Instance, config: &Config) -> Self {
        let left = left_ports(instance);
        let device = |port: &crate::config::Port| {
            Some((port.interface.clone(), left.get(&port.vm)?.clone()))
        };
        Self(config.ports.iter().filter_map(device).collect())
    }

    /// The device that a configured name means.
    pub(super) fn find(&self, configured: &str) -> Result<Interface, Error> {
        let known = self.0.get(configured).and_then(Interface::now);
        known.map_or_else(|| Interface::find(configured), Ok)
    }

    /// `config` with the present names of its devices.
    pub(super) fn resolve(&self, mut config: Config) -> Config {
        let now = |name: &mut String| {
            if let Ok(found) = self.find(name) {
                *name = found.name;
            }
        };
        config.ports.iter_mut().for_each(|port| now(&mut port.interface));
        now(&mut config.uplink);
        config
    }

    /// Remembers what the names in `asked` mean, of which `resolved` has the devices' own names.
    pub(super) fn learn(&mut self, asked: &Config, resolved: &Config) {
        let ports = asked.ports.iter().zip(&resolved.ports);
        let names = ports.map(|(asked, now)| (&asked.interface, &now.interface));
        let names = names.chain([(&asked.uplink, &resolved.uplink)]);
        let device = |(asked, now): (&String, &String)| {
            let known = self.0.get(asked).filter(|known| known.is_there()).cloned();
            Some((asked.clone(), known.or_else(|| Interface::find(now).ok())?))
        };
        self.0 = names.filter_map(device).collect();
    }

    /// From now on a configured name that a device has means that device.
    pub(super) fn reread(&mut self) {
        let is_other =
            |name: &str, known: &Interface| Interface::find(name).is_ok_and(|now| now != *known);
        self.0.retain(|name, known| !is_other(name, known));
    }

    /// Devices whose name has changed.
    pub(super) fn renamed(&self, names: &Names) -> Vec<Renamed> {
        let now = |(configured, known): (&String, &Interface)| {
            let now = names.of(known)?.name;
            let taken = now != *configured && Interface::find(configured).is_ok();
            (now != *configured).then(|| Renamed { configured: configured.clone(), now, taken })
        };
        self.0.iter().filter_map(now).collect()
    }
}

/// Ports by VM that an earlier agent of this instance guarded and that still carry its program. A
/// port whose state cannot be read is omitted; then only names identify it.
fn left_ports(instance: &Instance) -> BTreeMap<VmId, Interface> {
    let mut left = BTreeMap::new();
    let filters = Journal::left(instance);
    let Ok(map) = MapHandle::from_pinned_path(instance.maps().join("ports")) else { return left };
    for key in map.keys() {
        let Ok(index) = <[u8; 4]>::try_from(&key[..]).map(u32::from_ne_bytes) else { continue };
        let value = map.lookup(&key, MapFlags::ANY).ok().flatten().unwrap_or_default();
        let vm = value.get(..4).and_then(|vm| <[u8; 4]>::try_from(vm).ok()).map(u32::from_ne_bytes);
        let device = Interface { name: String::new(), index }.now();
        let (Some(vm), Some(interface), true) =
            (vm, device, value.len() == size_of::<intf::Port>())
        else {
            continue;
        };
        let hook = crate::attach::Hook { interface, program: Program::Classify };
        let deed = Deed::Filter(hook.clone());
        if is_pinned_on(&hook, &instance.links()) || filters.contains(&deed) {
            left.insert(VmId(vm), hook.interface);
        }
    }
    left
}

/// Present name of each VM's port that an earlier agent of this instance guarded and that still
/// carries its program. An agent that returns goes on with that port, whatever its name is.
pub fn left_behind(
    instance: &str,
    bpffs: &std::path::Path,
    run_dir: &std::path::Path,
) -> Result<BTreeMap<VmId, String>, Error> {
    let left = left_ports(&Instance::new(instance, bpffs, run_dir)?);
    Ok(left.into_iter().map(|(vm, interface)| (vm, interface.name)).collect())
}
