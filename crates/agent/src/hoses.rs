//! The further hoses of VMs, from the files to what the machine is told.
//!
//! Problem   `agent.toml` has the floors of this host's VMs, and the directory says in which hoses each VM
//!           of the fleet sends and receives. Both ends of a pair have to find the same hose.
//! Approach  A hose is a name within a tenant. Its number is this agent's own and stays with the name.
//!           All agents look at hoses in the order of their names, so they need not agree on numbers.
//! Promises  A hose in which a VM has a floor is one that the directory says it sends or receives in.
//! Not here  Which hose a pair belongs to: see [`weir_core::host::shared`].

use crate::config::Setup;
use crate::mistake::{Mistake, sound};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::host::{Hose, Ties};
use weir_model::agent::{AgentConfig, Directory, DirectoryHoses, DirectoryVm, VmConfig};
use weir_units::{HoseId, SortedMap, VmId};

/// Further hoses of one VM at most.
const MOST: usize = 16;

/// Hoses by tenant and name, with their numbers.
#[derive(Debug, Default)]
pub(crate) struct Hoses(BTreeMap<(String, String), HoseId>);

impl Hoses {
    /// Those of a directory. A hose that was there before keeps its number.
    pub(crate) fn of(directory: &Directory, former: Option<&Self>) -> Self {
        let nothing = Self::default();
        let before = &former.unwrap_or(&nothing).0;
        let named = directory.vms.iter().flat_map(|vm| {
            let names = vm.hoses.iter().flat_map(|hoses| hoses.out.iter().chain(&hoses.in_));
            names.map(|name| (vm.tenant.clone(), name.clone()))
        });
        let named: BTreeSet<(String, String)> = named.collect();
        // Also not one that was just given up: pairs may still have it.
        let taken: BTreeSet<HoseId> = before.values().copied().collect();
        let mut free = (0..).map(HoseId).filter(|id| !taken.contains(id));
        let number = |key: (String, String)| {
            let id = before.get(&key).copied().or_else(|| free.next());
            id.map(|id| (key, id))
        };
        Self(named.into_iter().filter_map(number).collect())
    }

    fn id(&self, tenant: &str, name: &str) -> Option<HoseId> {
        self.0.get(&(tenant.to_owned(), name.to_owned())).copied()
    }

    /// The name of a hose.
    pub(crate) fn name(&self, id: HoseId) -> Option<&str> {
        self.0.iter().find(|(_, known)| **known == id).map(|((_, name), _)| name.as_str())
    }

    /// The hoses of the directory's VMs.
    pub(crate) fn ties(&self, directory: &Directory) -> Result<SortedMap<VmId, Ties>, Mistake> {
        let mut all = SortedMap::new();
        for (i, (id, vm)) in directory.numbered_vms().enumerate() {
            let Some(hoses) = &vm.hoses else { continue };
            check(i, hoses)?;
            let ids = |names: &[String]| {
                let names: BTreeSet<&String> = names.iter().collect();
                names.into_iter().filter_map(|name| self.id(&vm.tenant, name)).collect()
            };
            let (out, in_) = (ids(&hoses.out), ids(&hoses.in_));
            let DirectoryHoses { tenant_out, tenant_in, .. } = *hoses;
            all.insert(id, Ties { out, in_, tenant_out, tenant_in });
        }
        Ok(all)
    }

    /// The floors of one of this host's VMs in its further hoses. `i` is its place in `agent.toml`.
    pub(crate) fn floors(
        &self,
        i: usize,
        vm: &VmConfig,
        entry: &DirectoryVm,
    ) -> Result<SortedMap<HoseId, Hose>, Mistake> {
        let mut all = SortedMap::new();
        for (n, hose) in vm.hoses.iter().enumerate() {
            let name = &hose.name;
            let wrong = |what: String| Mistake::config(format!("vm[{i}].hose[{n}].name"), what);
            let listed = |direction: &str| {
                let hoses = entry.hoses.iter();
                let mut names =
                    hoses.flat_map(|h| if direction == "out" { &h.out } else { &h.in_ });
                names.any(|listed| listed == name)
            };
            for (direction, floor) in [("out", hose.floor_out.0), ("in", hose.floor_in.0)] {
                sound(floor.is_zero() || listed(direction), || {
                    let vm = &vm.name;
                    wrong(format!(
                        "vm `{vm}` has a floor {direction} in the hose `{name}`, which is not in \
                         `hoses.{direction}` of its entry in the directory: add it there, or correct the \
                         name"
                    ))
                })?;
            }
            // Listed nowhere and without a floor, it is nothing.
            let Some(id) = self.id(&entry.tenant, name) else { continue };
            let twice = all.insert(id, Hose::of(hose.floor_out.0, hose.floor_in.0)).is_some();
            sound(!twice, || wrong(format!("the hose `{name}` is listed twice; remove one")))?;
        }
        Ok(all)
    }
}

fn check(i: usize, hoses: &DirectoryHoses) -> Result<(), Mistake> {
    for (field, names) in [("out", &hoses.out), ("in", &hoses.in_)] {
        sound(names.len() <= MOST, || {
            let what = format!("{} hoses of one VM; at most {MOST}", names.len());
            Mistake::directory(format!("vms[{i}].hoses.{field}"), what)
        })?;
    }
    Ok(())
}

/// The floors of all of this host's VMs in their further hoses.
pub(crate) fn further(
    file: &AgentConfig,
    directory: &Directory,
    hoses: &Hoses,
) -> Result<SortedMap<VmId, SortedMap<HoseId, Hose>>, Mistake> {
    let mut all = SortedMap::new();
    for (i, vm) in file.vms.iter().enumerate().filter(|(_, vm)| !vm.hoses.is_empty()) {
        let mut entries = directory.numbered_vms();
        if let Some((id, entry)) = entries.find(|(_, entry)| entry.name == vm.name) {
            all.insert(id, hoses.floors(i, vm, entry)?);
        }
    }
    Ok(all)
}

/// A sentence if VMs have floors that the mechanism does not keep.
pub(crate) fn warning(setup: &Setup) -> Option<String> {
    let of: Vec<&str> = setup
        .file
        .vms
        .iter()
        .filter(|vm| !vm.hoses.is_empty())
        .map(|vm| vm.name.as_str())
        .collect();
    (!setup.host.law.has_hoses() && !of.is_empty()).then(|| {
        format!(
            "the mechanism `{}` keeps no hoses: the floors of {} toward some VMs of their tenants are \
             not enforced; choose elasticswitch",
            setup.file.mechanism.name,
            of.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::host::HoseKey;
    use weir_units::{PairId, Rate};

    const DIRECTORY: &str = "
hosts:
  - {name: h0, control: 10.0.0.1:7001}
  - {name: h1, control: 10.0.0.2:7001}
vms:
  - {name: web, tenant: shop, host: h0, addresses: [10.1.0.1], hoses: {out: [web-db, cache]}}
  - {name: db, tenant: shop, host: h1, addresses: [10.1.0.2], hoses: {in: [web-db], tenant_in: false}}
  - {name: other, tenant: shop, host: h1, addresses: [10.1.0.3]}
";

    fn config(mechanism: &str, hoses: &str) -> String {
        format!(
            "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = \"k\"\n\
             directory = \"d\"\n[uplink]\ninterface = \"up0\"\nrate = \"1Gbit\"\n[mechanism]\n\
             name = \"{mechanism}\"\n[[vm]]\nname = \"web\"\nport = \"p\"\nfloor_in = \"50Mbit\"\n\
             floor_out = \"100Mbit\"\n{hoses}"
        )
    }

    const HOSE: &str = "[[vm.hose]]\nname = \"web-db\"\nfloor_out = \"40Mbit\"\n";

    #[test]
    fn a_pair_has_the_hose_that_the_directory_ties_its_vms_with() {
        let setup = Setup::parse(&config("elasticswitch", HOSE), DIRECTORY).expect("sound");
        let of = |dst| setup.host.hose_of(PairId::new(VmId(0), VmId(dst))).expect("known");
        let HoseKey::Further(id) = of(1) else { panic!("{:?}", of(1)) };
        assert_eq!(setup.names.hoses().name(id), Some("web-db"));
        assert_eq!(of(2), HoseKey::Tenant);
        let floor = setup.host.further_of(VmId(0))[&id].out.floor;
        assert_eq!(floor, Rate::from_mbps(40));
        assert_eq!(setup.host.floors_out(VmId(0)), Rate::from_mbps(140));
        assert_eq!(warning(&setup), None);
    }

    #[test]
    fn a_number_stays_with_its_name() {
        let of = |names: &str| {
            let text = DIRECTORY.replace("web-db, cache", names);
            weir_model::agent::parse_directory(&text).expect("sound")
        };
        let before = Hoses::of(&of("web-db, cache"), None);
        let after = Hoses::of(&of("web-db, almanac"), Some(&before));
        assert_eq!(after.id("shop", "web-db"), before.id("shop", "web-db"));
        let new = after.id("shop", "almanac").expect("it is listed");
        assert_eq!(before.name(new), None, "a number that was just given up is not reused");
        assert_eq!(after.id("shop", "cache"), None);
    }

    #[test]
    fn a_floor_in_a_hose_that_the_directory_does_not_list_is_a_mistake() {
        let error = |hoses: &str| {
            let setup = Setup::parse(&config("elasticswitch", hoses), DIRECTORY);
            format!("{:#}", setup.expect_err("a mistake"))
        };
        let text = error(&HOSE.replace("web-db", "web-bd"));
        assert!(text.contains("vm[0].hose[0].name") && text.contains("`hoses.out`"), "{text}");
        let text = error(&HOSE.replace("floor_out", "floor_in"));
        assert!(text.contains("`hoses.in`"), "{text}");
        let text = error(&format!("{HOSE}{HOSE}"));
        assert!(text.contains("listed twice"), "{text}");
    }

    #[test]
    fn mechanisms_that_keep_no_hoses_say_so() {
        let setup = Setup::parse(&config("seawall", HOSE), DIRECTORY).expect("sound");
        let text = warning(&setup).expect("it has no floors");
        assert!(text.contains("`seawall`") && text.contains("web"), "{text}");
        let refused = Setup::parse(&config("eyeq", HOSE), DIRECTORY).expect_err("it has one hose");
        assert!(format!("{refused:#}").contains("EyeQ keeps one per VM"), "{refused:#}");
    }
}
