//! What the simulator lacks, said by its name in the file.
//!
//! Promises  What passes here is played as the lab plays it, in every point that docs/simulator.md
//!           does not except.

use weir_model::scenario::{IpVersion, Link, Mechanism, Scenario, Traffic, TrafficKind};

/// Something that the scenario asks for and the simulator lacks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {what} is not simulated yet; {instead}")]
pub struct Unsupported {
    /// The field of the scenario's file.
    pub field: String,
    /// What it asks for.
    pub what: String,
    /// What to do.
    pub instead: String,
}

impl Unsupported {
    pub(super) fn new(
        field: impl Into<String>,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), what: what.into(), instead: instead.into() }
    }
}

/// Refuses what cannot be played.
///
/// # Errors
///
/// The first thing that the simulator lacks.
pub fn check(scenario: &Scenario) -> Result<(), Unsupported> {
    scenario.topology.links.iter().try_for_each(link)?;
    scenario.traffic.iter().try_for_each(traffic)?;
    if let Some(vm) = scenario.vms.iter().find(|vm| !vm.outside.is_empty()) {
        let field = format!("spec.tenants ({})", vm.name);
        return Err(Unsupported::new(field, "the outside of the cloud", "play it with `weir lab`"));
    }
    if let Some(vm) = scenario.vms.iter().find(|vm| vm.ecn.is_some()) {
        let field = format!("spec.tenants ({}, ecn)", vm.name);
        let what = "a guest that has ECN or not, whatever its congestion control";
        return Err(Unsupported::new(field, what, "leave it out, or play it with `weir lab`"));
    }
    if let Some(attack) = scenario.attacks.first() {
        let field = format!("spec.attacks ({})", attack.name);
        return Err(Unsupported::new(field, "an attack", "play it with `weir lab`"));
    }
    Ok(())
}

/// Refuses a mechanism that cannot be played.
///
/// # Errors
///
/// Its ports are to translate.
pub(super) fn translation(mechanism: &Mechanism) -> Result<(), Unsupported> {
    let Some(translation) = mechanism.translation else { return Ok(()) };
    let what = format!("the translation `{}`", translation.name());
    Err(Unsupported::new("spec.mechanisms", what, "leave it out, or play it with `weir lab`"))
}

fn link(link: &Link) -> Result<(), Unsupported> {
    let field = |of: &str| format!("spec.topology (link {}, {of})", link.name);
    if link.queueing.paths.is_some() {
        let instead = "leave it out, or play it with `weir lab`";
        return Err(Unsupported::new(field("paths"), "a bundle of paths", instead));
    }
    Ok(())
}

fn traffic(traffic: &Traffic) -> Result<(), Unsupported> {
    let field = |of: &str| format!("spec.traffic (group {}{of})", traffic.group);
    if traffic.ip != IpVersion::V4 {
        return Err(Unsupported::new(field(", ip"), "IPv6", "play it with `weir lab`"));
    }
    if let TrafficKind::Exec(_) = &traffic.kind {
        let instead = "use another kind, or play it with `weir lab`";
        return Err(Unsupported::new(field(""), "a real program", instead));
    }
    if let Some(congestion) = traffic.kind.congestion()
        && super::build::algorithm(congestion).is_none()
    {
        let what = format!("the congestion control `{congestion}`");
        let instead = "use cubic, reno or dctcp";
        return Err(Unsupported::new(field(", congestion"), what, instead));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    #[test]
    fn translations_and_guests_of_another_mind_are_refused_by_name() {
        let text = include_str!("../../../../scenarios/vcc/fig11.yaml");
        let file = File::parse("fig11.yaml", text, &[]).expect("a shipped scenario");
        let scenario = &file.points().expect("one point")[0];
        let said = check(scenario).expect_err("guests have ECN or not").to_string();
        assert!(said.contains("(sink, ecn)") && said.contains("weir lab"), "{said}");
        let refused: Vec<_> =
            scenario.mechanisms.iter().filter_map(|m| translation(m).err()).collect();
        assert_eq!(refused.len(), 3, "all but `none`");
        assert!(refused[0].to_string().contains("`virtual-ecn`"), "{}", refused[0]);
    }
}
