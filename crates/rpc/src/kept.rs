//! What a host keeps of what it was told: enough to start without its controller.
//!
//! Approach  The tenants that have VMs here, each with its version, as the controller sent them. A change
//!           replaces one tenant. From all of them follow a directory, this host's VMs and the keys of
//!           the pairs of hosts: the same three things that an agent without a controller reads from
//!           files.
//! Promises  Equal texts for equal states. A mistake names tenant, VM and field.

use crate::messages::{Budget, BudgetClass, HoseEnd, HoseFloors, Known, Local, Peer, Tenant, Vm};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_model::agent::{
    Directory, DirectoryHoses, DirectoryHost, DirectoryVm, HoseConfig, Mode, TenantConfig,
    VmConfig, WindowBudget, WindowClass,
};
use weir_model::net::{Mac, Prefix};
use weir_model::text::{RateText, SizeText};
use weir_units::{Bytes, Rate};

/// What a host was told and took up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Name of the host.
    pub host: String,
    /// Number of the host.
    pub number: u32,
    /// Tenants with VMs here, by name.
    pub tenants: BTreeMap<String, Tenant>,
    /// Whether the agent enforces, if the controller said so. Else its own file does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// The mode in a message.
///
/// # Errors
///
/// It is none that this version knows.
pub fn mode(text: &str) -> Result<Option<Mode>, String> {
    match text {
        "" => Ok(None),
        "enforce" => Ok(Some(Mode::Enforce)),
        "observe" => Ok(Some(Mode::Observe)),
        other => Err(format!(
            "the controller asks for the mode `{other}`, which this version does not know"
        )),
    }
}

impl Kept {
    /// The same after a tenant's state was replaced. A tenant without VMs is no longer here.
    #[must_use]
    pub fn with<'a>(&self, changes: impl IntoIterator<Item = &'a Tenant>) -> Self {
        let mut next = self.clone();
        for tenant in changes {
            match tenant.vms.is_empty() {
                true => next.tenants.remove(&tenant.name),
                false => next.tenants.insert(tenant.name.clone(), tenant.clone()),
            };
        }
        next
    }

    /// What is in force, for the first message to the controller.
    pub fn known(&self) -> Vec<Known> {
        let known = |tenant: &Tenant| Known {
            tenant: tenant.name.clone(),
            version: tenant.version,
            digest: tenant.digest(),
            queue: tenant.queue.as_ref().map_or(0, |queue| queue.version),
        };
        self.tenants.values().map(known).collect()
    }

    /// The directory of all VMs and hosts that concern this host, which listens at `control`.
    ///
    /// # Errors
    ///
    /// An address is none.
    pub fn directory(&self, control: SocketAddr) -> Result<Directory, String> {
        let mut hosts = BTreeMap::new();
        for peer in self.peers() {
            let at = peer.control.parse().map_err(|_| {
                format!("host `{}`: `{}` is no address and port", peer.name, peer.control)
            })?;
            let (name, id) = (peer.name.clone(), Some(peer.number));
            hosts.insert(peer.name.as_str(), DirectoryHost { name, control: at, id });
        }
        let own = DirectoryHost { name: self.host.clone(), control, id: Some(self.number) };
        hosts.insert(&self.host, own);
        let mut vms = Vec::new();
        for (tenant, vm) in self.vms_of_all() {
            vms.push(listed(&tenant.name, vm)?);
        }
        Ok(Directory { hosts: hosts.into_values().collect(), vms })
    }

    /// This host's VMs. The port of a VM without one is empty: it may be handed over on the host.
    ///
    /// # Errors
    ///
    /// One of them has a MAC address that is none.
    pub fn vms(&self) -> Result<Vec<VmConfig>, String> {
        let here = self.vms_of_all().filter_map(|(_, vm)| Some((vm, vm.local.as_ref()?)));
        here.map(|(vm, local)| config(vm, local)).collect()
    }

    /// Tenants' queues on switches, as sections of `agent.toml`.
    ///
    /// # Errors
    ///
    /// A code point has more than 6 bits.
    pub fn queues(&self) -> Result<Vec<TenantConfig>, String> {
        let of = |tenant: &Tenant| {
            let queue = tenant.queue.as_ref()?;
            let (name, version) = (tenant.name.clone(), queue.version);
            let wrong = || format!("tenant `{name}`: {} is no code point", queue.code_point);
            let point = u8::try_from(queue.code_point).ok().filter(|point| *point < 64);
            let section = |code_point| TenantConfig {
                name: name.clone(),
                version,
                code_point,
                free: queue.free,
                why: None,
            };
            Some(point.map(section).ok_or_else(wrong))
        };
        self.tenants.values().filter_map(of).collect()
    }

    /// The text of a key file: the keys that this host shares with each of the others.
    pub fn keys(&self) -> String {
        let mut text = format!("host {}\n", self.host);
        for peer in self.peers() {
            for line in peer.keys.lines() {
                text.push_str(&format!("{} {line}\n", peer.name));
            }
        }
        text
    }

    /// The other hosts, each as the newest state has it.
    fn peers(&self) -> impl Iterator<Item = &Peer> {
        let mut by_name: BTreeMap<&str, (u64, &Peer)> = BTreeMap::new();
        for tenant in self.tenants.values() {
            for peer in tenant.hosts.iter().filter(|peer| peer.name != self.host) {
                let newest = by_name.entry(&peer.name).or_insert((tenant.version, peer));
                if newest.0 < tenant.version {
                    *newest = (tenant.version, peer);
                }
            }
        }
        by_name.into_values().map(|(_, peer)| peer)
    }

    fn vms_of_all(&self) -> impl Iterator<Item = (&Tenant, &Vm)> {
        self.tenants.values().flat_map(|tenant| tenant.vms.iter().map(move |vm| (tenant, vm)))
    }
}

fn listed(tenant: &str, vm: &Vm) -> Result<DirectoryVm, String> {
    let wrong = |what: &str| format!("vm `{}` of tenant `{tenant}`: {what}", vm.name);
    let address =
        |text: &String| text.parse().map_err(|_| wrong(&format!("`{text}` is no address")));
    let addresses: Result<Vec<IpAddr>, String> = vm.addresses.iter().map(address).collect();
    let prefix = |text: &String| text.parse().map_err(|error: String| wrong(&error));
    let prefixes: Result<Vec<Prefix>, String> = vm.prefixes.iter().map(prefix).collect();
    Ok(DirectoryVm {
        name: vm.name.clone(),
        tenant: tenant.to_owned(),
        hoses: hoses(vm),
        host: vm.host.clone(),
        id: Some(vm.number),
        addresses: addresses?,
        mac: mac(vm)?,
        prefixes: prefixes?,
    })
}

/// The hoses of a VM, if it has others than its tenant's.
fn hoses(vm: &Vm) -> Option<DirectoryHoses> {
    if vm.hoses.is_empty() {
        return None;
    }
    let names = |is_end: fn(&HoseEnd) -> bool| {
        let ends = vm.hoses.iter().filter(move |end| !end.name.is_empty() && is_end(end));
        ends.map(|end| end.name.clone()).collect()
    };
    let tenant = vm.hoses.iter().find(|end| end.name.is_empty());
    Some(DirectoryHoses {
        out: names(|end| end.sends),
        in_: names(|end| end.receives),
        tenant_out: tenant.is_some_and(|end| end.sends),
        tenant_in: tenant.is_some_and(|end| end.receives),
    })
}

fn mac(vm: &Vm) -> Result<Option<Mac>, String> {
    if vm.mac.is_empty() {
        return Ok(None);
    }
    vm.mac.parse().map(Some).map_err(|error| format!("vm `{}`: {error}", vm.name))
}

fn config(vm: &Vm, local: &Local) -> Result<VmConfig, String> {
    let rate = |bps: u64| RateText(Rate::from_bps(bps));
    let hose = |hose: &HoseFloors| HoseConfig {
        name: hose.name.clone(),
        floor_out: rate(hose.floor_out),
        floor_in: rate(hose.floor_in),
    };
    Ok(VmConfig {
        name: vm.name.clone(),
        port: local.port.clone(),
        mac: mac(vm)?,
        floor_out: rate(local.floor_out),
        floor_in: rate(local.floor_in),
        cap_out: local.cap_out.map(rate),
        external_floor: local.external_out.map(rate),
        external_ceiling: local.external_most.map(rate),
        translation: word(vm, "translation", &local.translation)?,
        policing: local.policing.map(|octets| SizeText(Bytes::new(octets))),
        budget: local.budget.as_ref().map(|budget| window_budget(vm, budget)).transpose()?,
        hoses: local.hoses.iter().map(hose).collect(),
        dscp: word(vm, "dscp", &local.dscp)?,
    })
}

/// One of the words that a setting may be; its default if there is none.
fn word<T: DeserializeOwned + Default>(vm: &Vm, setting: &str, text: &str) -> Result<T, String> {
    if text.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_value(text.into()).map_err(|_| {
        format!("vm `{}`: {setting} `{text}` is not known to this agent: update it", vm.name)
    })
}

fn window_budget(vm: &Vm, budget: &Budget) -> Result<WindowBudget, String> {
    let ports = |text: &str| {
        let ports = (!text.is_empty()).then(|| text.parse());
        ports.transpose().map_err(|error: String| format!("vm `{}`: budget: {error}", vm.name))
    };
    let class = |class: &BudgetClass| {
        Ok(WindowClass {
            name: class.name.clone(),
            weight: class.weight,
            local_ports: ports(&class.local_ports)?,
            remote_ports: ports(&class.remote_ports)?,
        })
    };
    Ok(WindowBudget {
        total: SizeText(Bytes::new(budget.total)),
        flows_most: budget.flows_most,
        segment: SizeText(Bytes::new(budget.segment)),
        classes: budget.classes.iter().map(class).collect::<Result<_, String>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Queue;
    use serde_json::json;

    fn vm(name: &str, number: u32, host: &str) -> Vm {
        let local = (host == "h0").then(|| Local {
            port: format!("p{number}"),
            floor_out: 1_000_000,
            floor_in: 2_000_000,
            external_out: Some(0),
            ..Local::default()
        });
        let addresses = vec![format!("10.0.0.{number}")];
        let (name, host) = (name.into(), host.into());
        Vm { name, number, host, addresses, local, ..Vm::default() }
    }

    fn peer(name: &str, number: u32, control: &str) -> Peer {
        let keys = "1 000102030405060708090a0b0c0d0e0f\n".into();
        Peer { name: name.into(), number, control: control.into(), keys }
    }

    fn tenant(name: &str, version: u64, vms: Vec<Vm>, hosts: Vec<Peer>) -> Tenant {
        Tenant { name: name.into(), version, vms, hosts, queue: None }
    }

    fn kept() -> Kept {
        let kept = Kept { host: "h0".into(), number: 4, tenants: BTreeMap::new(), mode: None };
        let red = vec![vm("a", 1, "h0"), vm("b", 2, "h1")];
        let blue = vec![vm("c", 3, "h0"), vm("d", 4, "h1")];
        kept.with(&[
            tenant("red", 5, red, vec![peer("h1", 9, "192.0.2.1:7001")]),
            tenant("blue", 6, blue, vec![peer("h1", 9, "192.0.2.2:7001")]),
        ])
    }

    #[test]
    fn a_directory_vms_and_keys_follow_from_what_is_kept() {
        let kept = kept();
        let directory = kept.directory("192.0.2.9:7001".parse().unwrap()).expect("sound");
        let hosts: Vec<_> = directory
            .numbered_hosts()
            .map(|(id, h)| (h.name.as_str(), id.0, h.control.to_string()))
            .collect();
        let newest = "192.0.2.2:7001".to_owned();
        assert_eq!(hosts, [("h0", 4, "192.0.2.9:7001".to_owned()), ("h1", 9, newest)]);
        let vms: Vec<_> =
            directory.numbered_vms().map(|(id, vm)| (vm.name.clone(), id.0)).collect();
        assert_eq!(vms, [("c".into(), 3), ("d".into(), 4), ("a".into(), 1), ("b".into(), 2)]);
        let here: Vec<_> = kept.vms().expect("sound").into_iter().map(|vm| vm.port).collect();
        assert_eq!(here, ["p3", "p1"]);
        assert_eq!(kept.keys(), "host h0\nh1 1 000102030405060708090a0b0c0d0e0f\n");
    }

    #[test]
    fn a_change_replaces_one_tenant_and_one_without_vms_goes() {
        let before = kept();
        let red = tenant("red", 7, Vec::new(), Vec::new());
        let after = before.with([&red]);
        assert_eq!(after.tenants.keys().collect::<Vec<_>>(), ["blue"]);
        assert_eq!(after.tenants["blue"], before.tenants["blue"]);
        assert_eq!(after.known()[0].version, 6);
    }

    #[test]
    fn hoses_are_those_of_the_state() {
        let end = |name: &str, sends, receives| HoseEnd { name: name.into(), sends, receives };
        let mut web = vm("a", 1, "h0");
        web.hoses = vec![end("", true, false), end("web-db", true, false)];
        let floors = HoseFloors { name: "web-db".into(), floor_out: 5_000_000, floor_in: 0 };
        web.local.as_mut().expect("it is here").hoses.push(floors);
        let state = tenant("red", 8, vec![web, vm("b", 2, "h1")], Vec::new());
        let kept = kept().with(&[tenant("blue", 7, Vec::new(), Vec::new()), state]);
        let directory = kept.directory("192.0.2.9:7001".parse().unwrap()).expect("sound");
        let of = |name: &str| {
            let entry = directory.vms.iter().find(|vm| vm.name == name);
            entry.expect("it is listed").hoses.clone()
        };
        let wanted = DirectoryHoses {
            out: vec!["web-db".into()],
            in_: Vec::new(),
            tenant_out: true,
            tenant_in: false,
        };
        assert_eq!((of("a"), of("b")), (Some(wanted), None));
        let here = &kept.vms().expect("sound")[0];
        assert_eq!(here.hoses[0].name, "web-db");
        assert_eq!(here.hoses[0].floor_out.0, Rate::from_bps(5_000_000));
    }

    #[test]
    fn what_a_file_may_say_of_a_vm_a_state_may_say_too() {
        let mut wan = vm("a", 1, "h0");
        wan.prefixes = vec!["0.0.0.0/0".into()];
        let local = wan.local.as_mut().expect("it is here");
        (local.external_out, local.external_most) = (Some(5_000_000), Some(9_000_000));
        (local.translation, local.policing) = ("dctcp".into(), Some(15_000));
        local.dscp = "keep".into();
        let class = BudgetClass { name: "x".into(), weight: 2, ..BudgetClass::default() };
        let classes = vec![BudgetClass { remote_ports: "5001-5003".into(), ..class }];
        let budget = Budget { total: 180_000, flows_most: 5, segment: 1460, classes };
        local.budget = Some(budget);
        let state = tenant("red", 8, vec![wan, vm("b", 2, "h1")], Vec::new());
        let kept = kept().with(&[tenant("blue", 7, Vec::new(), Vec::new()), state]);
        // As it is read again from the disk.
        let text = serde_json::to_string(&kept).expect("JSON");
        let kept: Kept = serde_json::from_str(&text).expect("whole");
        let directory = kept.directory("192.0.2.9:7001".parse().unwrap()).expect("sound");
        assert_eq!(directory.vms[0].prefixes, ["0.0.0.0/0".parse().unwrap()]);
        let here = serde_json::to_value(&kept.vms().expect("sound")[0]).expect("JSON");
        let class = json!({"name": "x", "weight": 2, "remote_ports": "5001-5003"});
        let wanted = json!({
            "name": "a", "port": "p1", "floor_out": "1000000bit", "floor_in": "2000000bit",
            "external_floor": "5000000bit", "external_ceiling": "9000000bit",
            "translation": "dctcp", "policing": "15000B", "dscp": "keep",
            "budget": {"total": "180000B", "flows_most": 5, "class": [class]},
        });
        assert_eq!(here, wanted);
    }

    #[test]
    fn a_setting_of_a_later_version_is_refused_by_name() {
        let mut later = vm("a", 1, "h0");
        later.local.as_mut().expect("it is here").translation = "swift".into();
        let kept = kept().with(&[tenant("red", 8, vec![later], Vec::new())]);
        let error = kept.vms().expect_err("not known");
        assert_eq!(error, "vm `a`: translation `swift` is not known to this agent: update it");
    }

    #[test]
    fn queues_are_those_of_the_state_and_survive_the_disk() {
        let mut state = tenant("red", 8, vec![vm("a", 1, "h0")], Vec::new());
        state.queue = Some(Queue { version: 3, code_point: 10, free: true });
        let kept = kept().with(&[state.clone()]);
        let text = serde_json::to_string(&kept).expect("plain data");
        let kept: Kept = serde_json::from_str(&text).expect("the same");
        let queues = kept.queues().expect("sound");
        let [red] = &queues[..] else { panic!("blue has none: {queues:?}") };
        assert_eq!(
            (red.name.as_str(), red.version, red.code_point, red.free),
            ("red", 3, 10, true)
        );
        state.queue = Some(Queue { version: 4, code_point: 64, free: false });
        let error = kept.with(&[state]).queues().expect_err("7 bits");
        assert_eq!(error, "tenant `red`: 64 is no code point");
    }

    #[test]
    fn mistakes_name_the_vm() {
        let mut bad = vm("a", 1, "h0");
        bad.addresses = vec!["nowhere".into()];
        let control = "192.0.2.9:7001".parse().unwrap();
        let kept = kept().with(&[tenant("red", 8, vec![bad], Vec::new())]);
        let error = kept.directory(control).expect_err("no address");
        assert_eq!(error, "vm `a` of tenant `red`: `nowhere` is no address");
        let mut bad = vm("a", 1, "h0");
        bad.mac = "x".into();
        let kept = kept.with(&[tenant("red", 9, vec![bad], Vec::new())]);
        let error = kept.vms().expect_err("no MAC address");
        assert!(error.starts_with("vm `a`: "), "{error}");
    }
}
