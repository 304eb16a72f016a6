//! Maps addresses to VMs, from the directory to what the data plane asks.
//!
//! Problem   A packet names addresses; floors are per VM. What is outside the cloud has addresses,
//!           too, but no VM, and what goes to an agent is for no VM to send.
//! Approach  A VM has addresses. The endpoint that stands for the outside has prefixes; should it
//!           have addresses as well, they are prefixes of one address each.
//! Promises  A port leads outside only on a host whose own configuration says so: a slip in the
//!           directory does not open a VM's port to forged sources.
//! Not here  How a packet is looked up: see `bpf/`.
//! Source    ElasticSwitch §3 (external traffic).

use crate::config::Setup;
use crate::mistake::{Mistake, sound};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_dataplane::{Endpoint, Outside};
use weir_model::agent::{AgentConfig, Directory, DirectoryVm, Role};
use weir_model::net::Prefix;

/// Everything that has a meaning by its address.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) outside: Vec<Outside>,
    /// Where agents listen.
    pub(crate) controls: Vec<SocketAddr>,
}

impl Addresses {
    /// Those of a configuration that was checked.
    pub(crate) fn of(setup: &Setup) -> Self {
        let controls = setup.directory.hosts.iter().map(|host| host.control);
        // Its own also as it is bound: the directory may have another one of its addresses.
        let controls = controls.chain([setup.file.listen]).collect();
        let mut all = Self { controls, ..Self::default() };
        for (id, vm) in setup.directory.numbered_vms() {
            let (tenant, host) = (setup.tenants[&id], setup.host.directory[&id].host);
            if vm.prefixes.is_empty() {
                let mac = vm.mac.map(|mac| mac.0);
                let endpoint =
                    |address: &IpAddr| Endpoint { address: *address, vm: id, tenant, host, mac };
                all.endpoints.extend(vm.addresses.iter().map(endpoint));
                continue;
            }
            let outside = |(address, length)| Outside { address, length, vm: id, tenant };
            all.outside.extend(ranges(vm).map(outside));
        }
        all
    }
}

/// What an endpoint stands for: first address and length.
fn ranges(vm: &DirectoryVm) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
    let whole = |a: &IpAddr| (*a, if a.is_ipv4() { 32 } else { 128 });
    let range = |p: &Prefix| (p.first(), p.length());
    vm.prefixes.iter().map(range).chain(vm.addresses.iter().map(whole))
}

/// Refuses what cannot be meant.
pub(crate) fn check(file: &AgentConfig, directory: &Directory) -> Result<(), Mistake> {
    sound(!file.listen.ip().is_unspecified(), || {
        let what = "is all addresses of the host; write the one that the directory has, which is \
                    closed to VMs";
        Mistake::config("listen", format!("{} {what}", file.listen))
    })?;
    sound((1..=1 << 16).contains(&file.pairs_per_vm), || {
        let what = format!("{} should lie between 1 and 65536", file.pairs_per_vm);
        Mistake::config("pairs_per_vm", what)
    })?;
    let owners = owners(directory)?;
    for (i, host) in directory.hosts.iter().enumerate() {
        let address = host.control.ip();
        if let Some(vm) = owners.get(&address) {
            let what = format!(
                "{address} belongs to vm `{vm}` and to host `{}`; give the agent an address that no \
                 VM has",
                host.name
            );
            return Err(Mistake::directory(format!("hosts[{i}].control"), what));
        }
    }
    for (i, vm) in file.vms.iter().enumerate() {
        let stands_outside = |v: &DirectoryVm| v.name == vm.name && !v.prefixes.is_empty();
        sound(file.role == Role::Gateway || !directory.vms.iter().any(stands_outside), || {
            let what = format!(
                "vm `{}` has prefixes according to the directory, so its port leads outside; write \
                 role = \"gateway\" if that is so",
                vm.name
            );
            Mistake::config(format!("vm[{i}].name"), what)
        })?;
    }
    Ok(())
}

/// The VM of each address and of each prefix: one VM per address, and one per prefix of a tenant.
fn owners(directory: &Directory) -> Result<BTreeMap<IpAddr, &str>, Mistake> {
    let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
    let mut outside: BTreeMap<(&str, IpAddr, u8), &str> = BTreeMap::new();
    for (i, vm) in directory.vms.iter().enumerate() {
        sound(!vm.addresses.is_empty() || !vm.prefixes.is_empty(), || {
            let name = &vm.name;
            let what = format!("vm `{name}` has neither addresses nor prefixes; give it one");
            Mistake::directory(format!("vms[{i}]"), what)
        })?;
        for (at, address) in vm.addresses.iter().enumerate() {
            if let Some(other) = owners.insert(*address, &vm.name) {
                let name = &vm.name;
                let what = format!("{address} belongs to `{other}` and to `{name}`; remove one");
                return Err(Mistake::directory(format!("vms[{i}].addresses[{at}]"), what));
            }
        }
        let stands_outside = !vm.prefixes.is_empty();
        for (first, length) in ranges(vm).filter(|_| stands_outside) {
            if let Some(other) = outside.insert((&vm.tenant, first, length), &vm.name) {
                let (tenant, name) = (&vm.tenant, &vm.name);
                let what = format!(
                    "`{other}` and `{name}` stand for {first}/{length} of `{tenant}`; remove one"
                );
                return Err(Mistake::directory(format!("vms[{i}].prefixes"), what));
            }
        }
    }
    Ok(owners)
}
