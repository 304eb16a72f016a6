//! Tags of tenants, from `agent.toml` to the machine's policy.
//!
//! Promises  A tag is one of `code_points`. A tenant's version never falls while an agent runs.
//! Not here  Writing tags: see `driver::tags`.

use crate::config::Setup;
use crate::mistake::{Mistake, sound};
use std::collections::BTreeMap;
use weir_core::host::{Policy, Tag, Version};
use weir_dataplane::CodePoints;
use weir_model::agent::AgentConfig;
use weir_units::TenantId;

/// The code points that may be tags.
pub(crate) fn code_points(file: &AgentConfig) -> CodePoints {
    CodePoints::of(file.code_points.iter().copied())
}

/// Puts the tags and versions of tenants into the policy.
pub(crate) fn tag(
    policy: &mut Policy,
    file: &AgentConfig,
    ids: &BTreeMap<&str, TenantId>,
    former: Option<&Setup>,
) -> Result<(), Mistake> {
    for (i, point) in file.code_points.iter().enumerate() {
        sound((1..64).contains(point), || {
            let what = format!("{point} cannot be a tag: 1 to 63 can, 0 is the shared queue's");
            Mistake::config(format!("code_points[{i}]"), what)
        })?;
    }
    let all = code_points(file);
    for (i, tenant) in file.tenants.iter().enumerate() {
        let wrong =
            |field: &str, what: String| Mistake::config(format!("tenant[{i}].{field}"), what);
        let name = &tenant.name;
        let Some(id) = ids.get(name.as_str()).copied() else {
            let what = format!("tenant `{name}` has no VM in the directory; remove it here");
            return Err(wrong("name", what));
        };
        let twice = policy.tenants.insert(id, Version(tenant.version)).is_some();
        sound(!twice, || wrong("name", format!("tenant `{name}` is listed twice; remove one")))?;
        if tenant.code_point == 0 {
            sound(!tenant.free, || {
                let what = "a tenant in the shared queue would take the floors of others there";
                wrong("free", format!("{what}: give it a code point"))
            })?;
            continue;
        }
        policy.free.extend(tenant.free.then_some(id));
        let tag = Tag::new(tenant.code_point).filter(|tag| all.has(tag.code_point()));
        let tag = tag.ok_or_else(|| {
            let point = tenant.code_point;
            wrong("code_point", format!("{point} is none of `code_points`: add it, on all hosts"))
        })?;
        policy.tags.insert(id, tag);
    }
    // The machine forgets no version: a tenant without VMs anywhere keeps its last one.
    for (id, version) in former.iter().flat_map(|former| &former.host.tenants) {
        policy.tenants.entry(*id).or_insert(*version);
    }
    Ok(())
}

/// Refuses what is older than what is in force.
pub(crate) fn check(former: &Setup, now: &Setup) -> Result<(), Mistake> {
    for (i, tenant) in now.file.tenants.iter().enumerate() {
        let before = former.file.tenants.iter().find(|before| before.name == tenant.name);
        let was = before.map_or(0, |before| before.version);
        sound(tenant.version >= was, || {
            let (name, version) = (&tenant.name, tenant.version);
            let what =
                format!("version {version} of tenant `{name}` is older than {was}, in force");
            Mistake::config(format!("tenant[{i}].version"), what)
        })?;
    }
    for before in former.file.tenants.iter().filter(|before| before.version > 0) {
        let is_there = now.file.tenants.iter().any(|tenant| tenant.name == before.name);
        let is_known = now.directory.vms.iter().any(|vm| vm.tenant == before.name);
        sound(is_there || !is_known, || {
            let (name, version) = (&before.name, before.version);
            let what = format!(
                "tenant `{name}` is not listed any more, and version {version} is in force: list it \
                 with a newer version, without a code point"
            );
            Mistake::config("tenant", what)
        })?;
    }
    Ok(())
}
