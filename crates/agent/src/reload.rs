//! Decides what may differ between the configuration in force and its replacement.
//!
//! Problem   VMs come, go and move while an agent runs, but an uplink or a mechanism that changed
//!           under it would leave half of the old in force.
//! Approach  This host's VMs (`[[vm]]`), tenants' queues (`[[tenant]]`), what they share, the mode,
//!           and the directory may change.
//!           Everything else of `agent.toml` is compared as text would be, field by field, so that
//!           a field added later is fixed until this code says otherwise. Agents name VMs and hosts
//!           to each other by number, so numbers stay with their names; one that is free again may
//!           go to another.
//! Promises  One error, with file, line and field; nothing is applied then.
//! Not here  Applying it: see `driver::population`.

use crate::config::Setup;
use crate::mistake::{Mistake, sound};
use std::collections::{BTreeMap, BTreeSet};
use toml::Value;
use weir_model::agent::{AgentConfig, Directory, Mode};
use weir_units::{TenantId, VmId};

/// Refuses what cannot change without a restart in `agent.toml`.
pub(crate) fn check_file(former: &AgentConfig, now: &AgentConfig) -> Result<(), Mistake> {
    let fixed = |file: &AgentConfig| {
        let (vms, tenants, mode) = (Vec::new(), Vec::new(), Mode::default());
        let file = AgentConfig { vms, tenants, mode, ..file.clone() };
        Value::try_from(file).map_err(|e| Mistake::config("", e.to_string()))
    };
    let Some((field, former, now)) = difference(&fixed(former)?, &fixed(now)?) else {
        return Ok(());
    };
    let what = format!("is {now} now, and was {former} when the agent started: restart to change");
    Err(Mistake::config(field, what))
}

/// The first field that differs: its path, and both values.
fn difference(former: &Value, now: &Value) -> Option<(String, String, String)> {
    let shown = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
    let (Value::Table(former), Value::Table(now)) = (former, now) else {
        return (former != now).then(|| (String::new(), former.to_string(), now.to_string()));
    };
    let keys: BTreeSet<&String> = former.keys().chain(now.keys()).collect();
    keys.into_iter().find_map(|key| match (former.get(key), now.get(key)) {
        (Some(former), Some(now)) => difference(former, now).map(|(path, former, now)| {
            let dot = if path.is_empty() { "" } else { "." };
            (format!("{key}{dot}{path}"), former, now)
        }),
        (former, now) => Some((key.clone(), shown(former), shown(now))),
    })
}

/// Refuses numbers that went to others while their owners are still there.
pub(crate) fn check(former: &Setup, now: &Setup) -> Result<(), Mistake> {
    let moved = |what: &str, name: &str, was: u32, is: u32| {
        format!(
            "{what} `{name}` is number {is} now and was {was}, by which running agents know it: write \
             `id: {was}` (or restart all agents)"
        )
    };
    let before: BTreeMap<&str, _> =
        former.directory.numbered_hosts().map(|(id, host)| (host.name.as_str(), id)).collect();
    for (i, (id, host)) in now.directory.numbered_hosts().enumerate() {
        let was = before.get(host.name.as_str()).copied().unwrap_or(id);
        sound(was == id, || {
            Mistake::directory(format!("hosts[{i}]"), moved("host", &host.name, was.0, id.0))
        })?;
    }
    for (i, (id, vm)) in now.directory.numbered_vms().enumerate() {
        let was = former.names.id(&vm.name).unwrap_or(id);
        sound(was == id, || {
            Mistake::directory(format!("vms[{i}]"), moved("vm", &vm.name, was.0, id.0))
        })?;
    }
    Ok(())
}

/// Numbers for all tenants, those of before where there were any. Only this agent uses them.
pub(crate) fn tenants<'a>(
    directory: &'a Directory,
    former: Option<&Setup>,
) -> BTreeMap<&'a str, TenantId> {
    let mut before = BTreeMap::new();
    for (id, vm) in former.iter().flat_map(|former| former.directory.numbered_vms()) {
        before.extend(former.and_then(|f| f.tenants.get(&id)).map(|t| (vm.tenant.as_str(), *t)));
    }
    let named: Vec<&str> = directory.vms.iter().map(|vm| vm.tenant.as_str()).collect();
    let mut all: BTreeMap<&str, TenantId> =
        named.iter().filter_map(|name| Some((*name, *before.get(name)?))).collect();
    let mut taken: BTreeSet<TenantId> = all.values().copied().collect();
    // Also not one that was just given up: its endpoints are still in the kernel's maps.
    taken.extend(before.values());
    // Nor one that has a version: it would begin with an older one.
    taken.extend(former.iter().flat_map(|former| former.host.tenants.keys()));
    let mut free = (0..).map(TenantId).filter(|id| !taken.contains(id));
    for name in named {
        if !all.contains_key(name) {
            all.extend(free.next().map(|id| (name, id)));
        }
    }
    all
}

/// Numbers that are other VMs than before: of another name, tenant or host.
pub(crate) fn strangers(former: &Setup, now: &Setup) -> BTreeSet<VmId> {
    let before: BTreeMap<VmId, _> = former.directory.numbered_vms().collect();
    let other = now.directory.numbered_vms().filter(|(id, vm)| {
        before.get(id).is_some_and(|was| {
            (&was.name, &was.tenant, &was.host) != (&vm.name, &vm.tenant, &vm.host)
        })
    });
    other.map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests;
