//! `weir import`: objects from the files that agents read without a controller.
//!
//! Problem   Live hosts get a controller. Typing their VMs again would cost time and make mistakes.
//! Approach  Each agent.toml tells of its own host and VMs, and its directory of their tenants, numbers
//!           and addresses of agents. What the controller has already stays: of a host only its rate, its
//!           own floor and its number change. A dry run at the controller says what would be refused and
//!           which floors would fall, and the difference is shown.
//! Promises  Nothing changes without `--yes`. All objects are made, or none. Hosts and VMs have the
//!           numbers of the directory, so hosts that follow the controller and hosts that read files
//!           understand each other.

use super::show::{state_of, text_of};
use super::{connect, done};
use crate::args;
use crate::input;
use crate::output::outln;
use anyhow::{Context as _, Result, anyhow, bail};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_controller::client::Client;
use weir_model::agent::{AgentConfig, Directory, HoseConfig, VmConfig, parse_directory};
use weir_model::objects::{API_VERSION, Budget, FieldError, Kind, Network, SpecRate, read};
use weir_model::text::show_rate;

/// Objects by kind and name, in the order in which they are made.
type Objects = BTreeMap<(Kind, String), Value>;

/// `weir import`.
pub(crate) fn import(args: &args::Import) -> Result<u8> {
    let mut client = connect(&args.connection)?;
    let (mut objects, mut left) = (Objects::new(), BTreeSet::new());
    for file in &args.files {
        take(&mut client, args, file, &mut objects, &mut left)?;
    }
    left.retain(|(vm, _)| !objects.contains_key(&(Kind::Vm, vm.clone())));
    let mut before = Vec::new();
    for ((kind, name), object) in &objects {
        if let Err(FieldError { field, reason }) = read(object.clone()) {
            bail!("{kind} `{name}`: {field}: {reason}");
        }
        before.push(existing(&mut client, *kind, name)?);
    }
    let items: Vec<&Value> = objects.values().collect();
    let body = json!({"items": items});
    let told = done(&client.send(Method::POST, "/api/v1/apply?dryRun=All", &body)?)?;
    let after = told["items"].as_array().cloned().unwrap_or_default();
    let mut changes = 0;
    for (((kind, name), before), after) in objects.keys().zip(&before).zip(&after) {
        let mut lines = Vec::new();
        let old = before.as_ref().map_or(&Value::Null, |object| &object["spec"]);
        differences("spec", old, &after["spec"], &mut lines);
        if lines.is_empty() && before.is_some() {
            continue;
        }
        changes += 1;
        outln!("{} {kind} {name}", if before.is_some() { "~" } else { "+" })?;
        for line in lines {
            outln!("    {line}")?;
        }
    }
    for change in told["changes"].as_array().into_iter().flatten() {
        let object = &change["object"];
        let (good, state, why) = state_of(object);
        if !good {
            let (kind, name) = (text_of(&object["kind"]), text_of(&object["metadata"]["name"]));
            outln!("! {kind} {name}: {state}: {why}")?;
        }
    }
    for (vm, host) in left {
        if existing(&mut client, Kind::Vm, &vm)?.is_none() {
            outln!(
                "! VM {vm}: host `{host}` is not among the files: import its agent.toml, too, or pairs with \
                 this VM have no floor on hosts that follow the controller"
            )?;
        }
    }
    if changes == 0 {
        outln!("nothing would change: the controller has all of it")?;
    } else if args.yes {
        done(&client.send(Method::POST, "/api/v1/apply", &body)?)?;
        outln!("{changes} of {} objects were made or changed", objects.len())?;
    } else {
        outln!("{changes} of {} objects would be made or changed: --yes does it", objects.len())?;
    }
    Ok(0)
}

/// The objects of one agent.toml. `left` gets all VMs of their tenants with their hosts, as the directory
/// lists them.
fn take(
    client: &mut Client,
    args: &args::Import,
    file: &Path,
    objects: &mut Objects,
    left: &mut BTreeSet<(String, String)>,
) -> Result<()> {
    let config: AgentConfig =
        toml::from_str(&input::read(file)?).with_context(|| format!("{}", file.display()))?;
    if config.controller.is_some() {
        bail!("{}: this host follows a controller, which has its VMs", file.display());
    }
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let place = folder.join(&config.directory);
    let directory = parse_directory(&input::read(&place)?)
        .map_err(|error| anyhow!("{}: {error}", place.display()))?;
    let mut put = |kind: Kind, name: &str, spec: Value| {
        let object = json!({"apiVersion": API_VERSION, "kind": kind.name(),
            "metadata": {"name": name}, "spec": spec});
        objects.insert((kind, name.to_owned()), object);
    };
    let host = host(client, args, file, &config, &directory)?;
    put(Kind::Host, &config.host, host);
    for vm in &config.vms {
        let (tenant, spec) = wanted(args, &config, &directory, vm)
            .with_context(|| format!("{}: vm `{}`", file.display(), vm.name))?;
        let beside = directory.vms.iter().filter(|entry| entry.tenant == tenant);
        left.extend(beside.map(|entry| (entry.name.clone(), entry.host.clone())));
        let known = existing(client, Kind::Tenant, &tenant)?;
        put(Kind::Tenant, &tenant, known.map_or_else(|| json!({}), |known| known["spec"].clone()));
        put(Kind::Vm, &vm.name, spec);
    }
    Ok(())
}

/// The host as the controller has it, with the rates of the file. Where the directory lists it, it has the
/// number and, unless the controller knows another one, the address by which other agents know it.
fn host(
    client: &mut Client,
    args: &args::Import,
    file: &Path,
    config: &AgentConfig,
    directory: &Directory,
) -> Result<Value> {
    let known = existing(client, Kind::Host, &config.host)?;
    let mut spec = match (known, &args.switch) {
        (Some(known), None) => known["spec"].clone(),
        (Some(known), Some(switch)) => {
            let mut spec = known["spec"].clone();
            spec["switch"] = switch.as_str().into();
            spec
        }
        (None, Some(switch)) => json!({"switch": switch, "slots": args.slots.unwrap_or(100)}),
        (None, None) => bail!(
            "{}: the controller has no Host `{}`, and the file does not say where its cable leads\n  \
             help: name its switch with --switch NAME",
            file.display(),
            config.host
        ),
    };
    if let Some(slots) = args.slots {
        spec["slots"] = slots.into();
    }
    spec["rate"] = show_rate(config.uplink.rate.0).into();
    if let Some(own) = config.uplink.host_floor {
        spec["own"] =
            json!({"out": show_rate(own.0), "in": spec["own"]["in"].as_str().unwrap_or("0bit")});
    }
    let entry = directory.numbered_hosts().find(|(_, entry)| entry.name == config.host);
    if let Some((id, entry)) = entry {
        if spec["control"].is_null() {
            spec["control"] = entry.control.to_string().into();
        }
        if !args.renumber {
            spec["number"] = id.0.into();
        }
    }
    Ok(spec)
}

/// A VM's tenant and spec.
fn wanted(
    args: &args::Import,
    config: &AgentConfig,
    directory: &Directory,
    vm: &VmConfig,
) -> Result<(String, Value)> {
    let entry = directory.numbered_vms().find(|(_, entry)| entry.name == vm.name);
    let (id, entry) = entry.ok_or_else(|| anyhow!("the directory does not list it"))?;
    if entry.host != config.host {
        bail!("the directory says that it is on host `{}`, not `{}`", entry.host, config.host);
    }
    let mut spec = json!({
        "tenant": entry.tenant,
        "host": config.host,
        "floor": {"out": show_rate(vm.floor_out.0), "in": show_rate(vm.floor_in.0)},
    });
    if !vm.hoses.is_empty() {
        let floor = |hose: &HoseConfig| {
            let (out, into) = (show_rate(hose.floor_out.0), show_rate(hose.floor_in.0));
            json!({"name": hose.name, "floor": {"out": out, "in": into}})
        };
        spec["hoses"] = vm.hoses.iter().map(floor).collect();
    }
    if let Some(external) = vm.external_floor {
        spec["external"] = json!({"out": show_rate(external.0)});
    }
    if let Some(cap) = vm.cap_out {
        spec["cap"] = show_rate(cap.0).into();
    }
    let network = Network {
        port: Some(vm.port.clone()),
        addresses: entry.addresses.clone(),
        mac: vm.mac.or(entry.mac),
        prefixes: entry.prefixes.clone(),
        external_cap: vm.external_ceiling.map(|rate| SpecRate(rate.0)),
        translation: vm.translation,
        policing: vm.policing,
        budget: vm.budget.as_ref().map(|budget| Box::new(Budget::from(budget))),
        dscp: vm.dscp,
    };
    spec["network"] = serde_json::to_value(network)?;
    if !args.renumber {
        spec["number"] = id.0.into();
    }
    Ok((entry.tenant.clone(), spec))
}

/// An object that the controller has.
fn existing(client: &mut Client, kind: Kind, name: &str) -> Result<Option<Value>> {
    let reply = client.get(&format!("/api/v1/{}/{name}", kind.plural()))?;
    match reply.status {
        404 => Ok(None),
        _ => done(&reply).map(Some),
    }
}

/// Lines for what differs, at `path`.
fn differences(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    let (Some(old), Some(new)) = (fields(before), fields(after)) else {
        if before != after {
            let shown = |value: &Value| if value.is_null() { "-".into() } else { text_of(value) };
            lines.push(format!("{path}: {} -> {}", shown(before), shown(after)));
        }
        return;
    };
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        let of = |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
        differences(&format!("{path}.{name}"), &of(old), &of(new), lines);
    }
}

/// The fields of an object; none of what is not there.
fn fields(value: &Value) -> Option<&Map<String, Value>> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    match value {
        Value::Null => Some(&NONE),
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_field_and_both_values() {
        let before = json!({"rate": "1Gbit", "own": {"out": "0bit"}, "slots": 4});
        let after = json!({"rate": "10Gbit", "own": {"out": "0bit"}, "state": "active"});
        let mut lines = Vec::new();
        differences("spec", &before, &after, &mut lines);
        let wanted =
            ["spec.rate: 1Gbit -> 10Gbit", "spec.slots: 4 -> -", "spec.state: - -> active"];
        assert_eq!(lines, wanted);
        lines.clear();
        differences("spec", &Value::Null, &json!({"floor": {"out": "1Mbit"}}), &mut lines);
        assert_eq!(lines, ["spec.floor.out: - -> 1Mbit"]);
    }
}
