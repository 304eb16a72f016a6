//! Features that the simulator lacks, reported by their names in the file.
//!
//! Promises  A scenario that passes here is played as the lab plays it, except for the points that
//!           docs/simulator.md lists.

use weir_model::scenario::{
    FaultKind, IpVersion, Link, Mechanism, Scenario, Traffic, TrafficKind, Translation,
};

/// A feature that the scenario asks for and the simulator lacks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {what} is not simulated yet; {instead}")]
pub struct Unsupported {
    /// The field of the scenario's file.
    pub field: String,
    /// The setting.
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

/// Refuses a scenario that cannot be played.
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
    let ends = brief(scenario).flat_map(|traffic| [traffic.from, traffic.to]);
    if let Some(vm) = ends.map(|vm| &scenario.vms[vm]).find(|vm| vm.ecn.is_some()) {
        let field = format!("spec.tenants ({}, ecn)", vm.name);
        let what = "a guest's own ECN in connections that come and go";
        return Err(Unsupported::new(field, what, "leave it out, or play it with `weir lab`"));
    }
    let shares = |traffic: &Traffic| {
        let vm = &scenario.vms[traffic.from];
        let budget = vm.budget.as_ref()?;
        budget.classes.iter().find(|class| class.group == traffic.group).map(|class| (vm, class))
    };
    if let Some((vm, class)) = brief(scenario).find_map(shares) {
        let field = format!("spec.tenants ({}, budget, class {})", vm.name, class.group);
        let what = "a budget's class of connections that come and go";
        return Err(Unsupported::new(field, what, "leave it out, or play it with `weir lab`"));
    }
    if let Some(attack) = scenario.attacks.first() {
        let field = format!("spec.attacks ({})", attack.name);
        return Err(Unsupported::new(field, "an attack", "play it with `weir lab`"));
    }
    let breaks = |kind: &FaultKind| matches!(kind, FaultKind::BreakPort { .. });
    if let Some(fault) = scenario.faults.iter().find(|fault| breaks(&fault.kind)) {
        let field = format!("spec.faults ({} at {})", fault.kind.name(), fault.at);
        let what = "a port of real Linux";
        return Err(Unsupported::new(field, what, "play it with `weir lab`"));
    }
    Ok(())
}

/// Whether the traffic's connections come and go.
fn brief(scenario: &Scenario) -> impl Iterator<Item = &Traffic> {
    let lasts =
        |kind: &TrafficKind| matches!(kind, TrafficKind::Tcp { .. } | TrafficKind::Udp { .. });
    scenario.traffic.iter().filter(move |traffic| !lasts(&traffic.kind))
}

/// Refuses translations that the simulator lacks.
///
/// # Errors
///
/// A port is to translate connections that come and go.
pub(super) fn translation(
    scenario: &Scenario,
    mechanism: &Mechanism,
) -> Result<Option<Translation>, Unsupported> {
    let Some(translation) = mechanism.translation else { return Ok(None) };
    if let Some(traffic) = brief(scenario).next() {
        let field = format!("spec.traffic (group {})", traffic.group);
        let what = format!("`{}` for connections that come and go", translation.name());
        return Err(Unsupported::new(field, what, "leave it out, or play it with `weir lab`"));
    }
    Ok(Some(translation))
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
    if let TrafficKind::Memcached(_) = &traffic.kind {
        let instead = "write `request: {rate, size, response}` for it, or play it with `weir lab`";
        return Err(Unsupported::new(field(", memcached"), "a real memcached", instead));
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
    use weir_units::Bytes;

    #[test]
    fn connections_that_come_and_go_have_no_budget() {
        let text = include_str!("../../../../scenarios/vcc/fig12.yaml");
        let file = File::parse("fig12.yaml", text, &[]).expect("a shipped scenario");
        let mut scenario = file.points().expect("one point").remove(0);
        check(&scenario).expect("connections that last");
        scenario.traffic[1].kind =
            TrafficKind::Shuffle { octets: Bytes::new(1_000_000), congestion: "reno".into() };
        let said = check(&scenario).expect_err("it ends").to_string();
        assert!(said.contains("(source, budget, class preferred)"), "{said}");
        scenario.vms[0].budget = None;
        assert_eq!(check(&scenario), Ok(()));
    }

    #[test]
    fn connections_that_come_and_go_have_no_ecn_of_their_guests_and_no_translation() {
        let text = include_str!("../../../../scenarios/vcc/fig11.yaml");
        let file = File::parse("fig11.yaml", text, &[]).expect("a shipped scenario");
        let mut scenario = file.points().expect("one point").remove(0);
        check(&scenario).expect("connections that last");
        let translated = &scenario.mechanisms[1].clone();
        assert_eq!(translation(&scenario, translated), Ok(Some(Translation::VirtualEcn)));
        scenario.traffic[0].kind =
            TrafficKind::Shuffle { octets: Bytes::new(1_000_000), congestion: "reno".into() };
        let said = check(&scenario).expect_err("guests have ECN or not").to_string();
        assert!(said.contains("(old, ecn)") && said.contains("weir lab"), "{said}");
        let said = translation(&scenario, translated).expect_err("it ends").to_string();
        assert!(said.contains("(group old)") && said.contains("`virtual-ecn`"), "{said}");
        assert_eq!(translation(&scenario, &scenario.mechanisms[0]), Ok(None));
    }
}
