//! Which tenant a host of an imported topology belongs to, and what it is promised.

use super::import::Import;
use crate::input;
use anyhow::{Result, anyhow, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use weir_flow::Floor;
use weir_flow::import::Node;
use weir_model::text::RateText;
use weir_units::Rate;

/// Hosts with a tenant.
pub(super) struct Tenants {
    /// Tenant and floor by host.
    hosts: BTreeMap<u32, (usize, Rate)>,
    /// How many nodes there are.
    nodes: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    tenants: Vec<Tenant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant {
    name: String,
    hosts: Vec<Hosts>,
    floor: RateText,
}

/// One host, or all from the first to the last: `8-15`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Hosts {
    One(u32),
    Text(String),
}

impl Hosts {
    fn range(&self) -> Option<RangeInclusive<u32>> {
        match self {
            Self::One(host) => Some(*host..=*host),
            Self::Text(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
                (first <= last).then_some(first..=last)
            }
        }
    }
}

impl Tenants {
    /// Reads the file; its hosts are those of `import`.
    ///
    /// # Errors
    /// What is wrong in it: with the line if it is no such file, with the tenant or the host otherwise.
    pub(super) fn read(file: &Path, import: &Import) -> Result<Self> {
        let name = file.display();
        let text = input::read(file)?;
        let nodes = &import.topology.nodes;
        let tenants = Self::parse(&text, nodes).map_err(|error| anyhow!("{name}: {error}"))?;
        for (host, (_, floor)) in &tenants.hosts {
            let least = import.topology.links.iter().filter(|link| link.from == *host);
            let Some(link) = least.map(|link| link.rate).min() else { continue };
            if *floor > link {
                bail!(
                    "{name}: host {host} is promised more than its link carries: lower its tenant's floor"
                );
            }
        }
        Ok(tenants)
    }

    fn parse(text: &str, nodes: &[Node]) -> Result<Self> {
        let budget = Some(weir_model::yaml::budget(text));
        let options =
            serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: budget };
        let file: File = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| anyhow!("{}", error.to_string().lines().next().unwrap_or_default()))?;
        if (file.api_version.as_str(), file.kind.as_str()) != ("weir/v1alpha1", "Tenants") {
            bail!("has to begin with `apiVersion: weir/v1alpha1` and `kind: Tenants`");
        }
        let mut hosts = BTreeMap::new();
        for tenant in &file.spec.tenants {
            let who = &tenant.name;
            // Entries of one name are one tenant, whose hosts have several floors.
            let number = file.spec.tenants.iter().position(|other| other.name == *who).unwrap_or(0);
            for some in &tenant.hosts {
                let Some(range) = some.range() else {
                    bail!("tenant {who}: write hosts as numbers or as ranges: [0, 3, 8-15]");
                };
                for host in range {
                    if nodes.get(host as usize) != Some(&Node::Host) {
                        bail!("tenant {who}: the topology has no host {host}");
                    }
                    if hosts.insert(host, (number, tenant.floor.0)).is_some() {
                        bail!("tenant {who}: host {host} has a tenant already");
                    }
                }
            }
        }
        Ok(Self { hosts, nodes: nodes.len() as u32 })
    }

    /// Two for each node: what it is promised out, and in.
    pub(super) fn hoses(&self) -> Vec<Rate> {
        let floor = |node| self.hosts.get(&node).map_or(Rate::ZERO, |(_, floor)| *floor);
        (0..self.nodes).flat_map(|node| [floor(node); 2]).collect()
    }

    /// What a flow between two hosts is promised: nothing if they are not of one tenant.
    pub(super) fn floor(&self, from: u32, to: u32) -> Floor {
        match (self.hosts.get(&from), self.hosts.get(&to)) {
            (Some((one, _)), Some((other, _))) if one == other => {
                Floor::Hose { out: 2 * from, into: 2 * to + 1 }
            }
            _ => Floor::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "apiVersion: weir/v1alpha1\nkind: Tenants\nspec:\n  tenants:\n    \
        - {name: a, hosts: [0, 2-3], floor: 1Gbit}\n    - {name: b, hosts: [1], floor: 500Mbit}\n";

    const NODES: [Node; 5] = [Node::Host, Node::Host, Node::Host, Node::Host, Node::Switch];

    #[test]
    fn a_flow_has_the_hoses_of_its_ends_if_they_are_of_one_tenant() {
        let tenants = Tenants::parse(SOUND, &NODES).expect("sound");
        assert_eq!(tenants.floor(0, 3), Floor::Hose { out: 0, into: 7 });
        assert_eq!(tenants.floor(0, 1), Floor::NONE);
        let one = Tenants::parse(&SOUND.replace("name: b", "name: a"), &NODES).expect("sound");
        assert_eq!(one.floor(0, 1), Floor::Hose { out: 0, into: 3 });
        let hoses = tenants.hoses();
        assert_eq!(hoses.len(), 10);
        assert_eq!(
            (hoses[7], hoses[2], hoses[8]),
            (Rate::from_mbps(1000), Rate::from_mbps(500), Rate::ZERO)
        );
    }

    #[test]
    fn what_is_wrong_names_the_tenant_or_the_line() {
        let error = |from: &str, to: &str| {
            let text = SOUND.replace(from, to);
            assert_ne!(text, SOUND, "{from}");
            Tenants::parse(&text, &NODES).err().expect("wrong").to_string()
        };
        assert!(error("[1]", "[4]").contains("tenant b: the topology has no host 4"));
        assert!(error("[1]", "[2]").contains("tenant b: host 2 has a tenant already"));
        assert!(error("2-3", "3-2").contains("tenant a: write hosts as"));
        assert!(error("1Gbit", "1Gbps").contains("line 5"));
        assert!(error("floor: 500Mbit", "flor: 500Mbit").contains("line 6"));
        assert!(error("Tenants", "Tenant").contains("kind: Tenants"));
    }
}
