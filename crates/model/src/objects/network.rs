//! How a VM is joined to the network: what its host's agent has to know, and admission has not.
//!
//! Approach  The same words as in `agent.toml` and the directory, so that `weir import` takes all of them.

use super::{FieldError, SpecRate};
use crate::agent::{GuestDscp, POLICING_MOST, Ports, Translation, WindowBudget, WindowClass};
use crate::net::{Mac, Prefix};
use crate::text::{SizeText, show_size};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use weir_core::vcc;
use weir_units::Bytes;

/// Most addresses of a VM, and most prefixes.
const ADDRESSES_MOST: usize = 64;
/// The kernel's bound on names of network interfaces, octets.
const INTERFACE_MOST: usize = 15;
/// Most classes of a window budget. A host's program looks connections up in a table of this size.
const CLASSES_MOST: usize = 16;
/// The largest window that TCP can announce.
const WINDOW_MOST: Bytes = Bytes::new(1 << 30);

/// How a VM is joined to the network.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Network {
    /// The host's end of its network interface: a tap or a veth. Its host enforces nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 15, example = "tap7"))]
    pub port: Option<String>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, max_items = 64, example = json!(["10.1.0.7"])))]
    pub addresses: Vec<IpAddr>,
    /// Its MAC address: frames of others that its port sends are dropped. Default any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "02:57:00:01:00:07"))]
    pub mac: Option<Mac>,
    /// Only for an endpoint that stands for the outside of the cloud: the prefixes that it covers for its
    /// tenant. Its port is the interface toward the outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, max_items = 64, example = json!(["0.0.0.0/0"])))]
    pub prefixes: Vec<Prefix>,
    /// Maximum rate to the outside, for a VM with `external`. Default: `external.out`, which also counts
    /// if it is larger. More may take floors of others where the network has no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "1Gbit"))]
    pub external_cap: Option<SpecRate>,
    /// Congestion control that its connections show to the network, whatever its guest has. Default
    /// `none`.
    #[serde(default, skip_serializing_if = "Translation::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^(none|virtual-ecn|dctcp|cubic-ecn|auto)$"))]
    pub translation: Translation,
    /// How far beyond the window that it was shown its guest may send on a translated connection. What
    /// goes further is dropped. Default: any distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "15kB"))]
    pub policing: Option<SizeText>,
    /// What the windows of its connections may be together. Default: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Budget>))]
    pub budget: Option<Box<Budget>>,
    /// What becomes of the code points (DSCP) that its guest writes. Default `clear`.
    #[serde(default, skip_serializing_if = "GuestDscp::is_usual")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^(clear|keep|restore)$"))]
    pub dscp: GuestDscp,
}

/// A constant total of windows, divided among the live connections of its classes by their weights.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Budget {
    /// All windows together.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "180kB"))]
    pub total: SizeText,
    /// Connections that may share it.
    pub flows_most: u32,
    /// The largest segment of these connections. Default 1460B.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "1460B"))]
    pub segment: Option<SizeText>,
    /// Connections of no class are not bounded.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 16))]
    pub classes: Vec<BudgetClass>,
}

/// Connections of one weight: those that match all fields.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BudgetClass {
    /// What people call it.
    pub name: String,
    /// A connection's part, beside those of other weights.
    pub weight: u32,
    /// By these ports of the VM: `443`, `5001-5003`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "443"))]
    pub local_ports: Option<Ports>,
    /// By these ports of the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "5001-5003"))]
    pub remote_ports: Option<Ports>,
}

impl From<&WindowBudget> for Budget {
    fn from(budget: &WindowBudget) -> Self {
        let class = |class: &WindowClass| BudgetClass {
            name: class.name.clone(),
            weight: class.weight,
            local_ports: class.local_ports.clone(),
            remote_ports: class.remote_ports.clone(),
        };
        Self {
            total: budget.total,
            flows_most: budget.flows_most,
            segment: Some(budget.segment),
            classes: budget.classes.iter().map(class).collect(),
        }
    }
}

impl From<&Budget> for WindowBudget {
    fn from(budget: &Budget) -> Self {
        let class = |class: &BudgetClass| WindowClass {
            name: class.name.clone(),
            weight: class.weight,
            local_ports: class.local_ports.clone(),
            remote_ports: class.remote_ports.clone(),
        };
        Self {
            total: budget.total,
            flows_most: budget.flows_most,
            segment: budget.segment.unwrap_or(Self::SEGMENT),
            classes: budget.classes.iter().map(class).collect(),
        }
    }
}

impl Network {
    /// Whether it says more than port, addresses and MAC address, which all agents know.
    pub fn is_extended(&self) -> bool {
        let plain = Self {
            port: self.port.clone(),
            addresses: self.addresses.clone(),
            mac: self.mac,
            ..Self::default()
        };
        *self != plain
    }

    /// Refuses what no host could do.
    pub(super) fn check(&self, field: &str) -> Result<(), FieldError> {
        let wrong =
            |name: &str, reason: String| Err(FieldError::new(format!("{field}.{name}"), reason));
        for (name, count) in
            [("addresses", self.addresses.len()), ("prefixes", self.prefixes.len())]
        {
            if count > ADDRESSES_MOST {
                return wrong(name, format!("{count} {name}: at most {ADDRESSES_MOST}"));
            }
        }
        if !self.prefixes.is_empty() && self.mac.is_some() {
            let reason = "the port of an endpoint with prefixes leads to the outside, which has any MAC \
                          address: leave it out";
            return wrong("mac", reason.into());
        }
        if let Some(slack) = self.policing {
            if self.translation.is_none() {
                let reason = "without a translation no window is kept that the guest could be held to: \
                              write spec.network.translation, or leave policing out";
                return wrong("policing", reason.into());
            }
            if slack.0 > Bytes::new(POLICING_MOST.into()) {
                let slack = show_size(slack.0);
                let reason =
                    format!("{slack} is more than any window: write some segments, such as 15kB");
                return wrong("policing", reason);
            }
        }
        if let Some(Err(reason)) = self.budget.as_deref().map(Budget::check) {
            return wrong("budget", reason);
        }
        let Some(port) = &self.port else { return Ok(()) };
        // As the kernel has it (`dev_valid_name`).
        let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
        let fits = (1..=INTERFACE_MOST).contains(&port.len());
        if fits && !port.contains(bad) && !port.starts_with('.') {
            return Ok(());
        }
        let shown: String = port.chars().take(40).collect();
        let reason = format!(
            "`{shown}` is no name of a network interface: write 1 to {INTERFACE_MOST} octets without \
             spaces, `/` and `:`"
        );
        wrong("port", reason)
    }
}

impl Budget {
    /// Refuses a budget that could not keep what it promises.
    fn check(&self) -> Result<(), String> {
        let classes = self.classes.len();
        if classes > CLASSES_MOST {
            return Err(format!("{classes} classes: at most {CLASSES_MOST}"));
        }
        if self.total.0 > WINDOW_MOST {
            let (total, most) = (show_size(self.total.0), show_size(WINDOW_MOST));
            return Err(format!("{total} is more than TCP can say in a window: at most {most}"));
        }
        let class = |class: &BudgetClass| vcc::Class {
            name: class.name.clone(),
            flows: vcc::Match {
                local_ports: class.local_ports.clone().map(|ports| ports.0),
                remote_ports: class.remote_ports.clone().map(|ports| ports.0),
            },
            weight: class.weight,
        };
        let config = vcc::BudgetConfig {
            total: self.total.0,
            flows_most: self.flows_most,
            segment: self.segment.unwrap_or(WindowBudget::SEGMENT).0,
            classes: self.classes.iter().map(class).collect(),
        };
        vcc::Budget::new(config).map(drop).map_err(|refusal| refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::objects::{FieldError, Spec, read};
    use serde_json::{Value, json};

    fn of(network: Value) -> Result<Value, FieldError> {
        let wish = read(json!({"apiVersion": "weir/v1", "kind": "VM", "metadata": {"name": "a"},
            "spec": {"tenant": "t", "network": network}}))?;
        let Spec::Vm(spec) = wish.spec else { panic!("it is a VM") };
        Ok(serde_json::to_value(spec.network).expect("JSON"))
    }

    #[test]
    fn what_an_agents_file_may_say_is_read_and_written_alike() {
        let network = json!({
            "port": "wan0", "addresses": ["192.0.2.1"], "prefixes": ["0.0.0.0/0", "2001:db8::/32"],
            "externalCap": "20Mbit", "translation": "dctcp", "policing": "15000B", "dscp": "keep",
            "budget": {"total": "180000B", "flowsMost": 5, "classes": [
                {"name": "bulk", "weight": 1, "remotePorts": "5001-5003"},
                {"name": "urgent", "weight": 3, "remotePorts": "443-443"},
            ]},
        });
        assert_eq!(of(network.clone()), Ok(network));
    }

    #[test]
    fn what_no_host_could_do_is_refused_with_field_and_reason() {
        let class = json!({"name": "x", "weight": 1});
        let budget = |total: &str, classes: Vec<Value>| json!({"budget": {"total": total, "flowsMost": 5, "classes": classes}});
        let cases = [
            (
                json!({"prefixes": ["10.0.0.1/8"]}),
                "spec.network.prefixes[0]",
                "bits behind its length",
            ),
            (json!({"prefixes": vec!["10.0.0.0/8"; 65]}), "spec.network.prefixes", "at most 64"),
            (
                json!({"prefixes": ["0.0.0.0/0"], "mac": "02:57:00:01:00:07"}),
                "spec.network.mac",
                "leads to the outside",
            ),
            (json!({"policing": "15kB"}), "spec.network.policing", "translation"),
            (
                json!({"policing": "2GB", "translation": "dctcp"}),
                "spec.network.policing",
                "more than any window",
            ),
            (json!({"translation": "reno"}), "spec.network.translation", "unknown variant"),
            (json!({"dscp": "all"}), "spec.network.dscp", "unknown variant"),
            (budget("180kB", vec![]), "spec.network.budget", "class"),
            (budget("180kB", vec![class.clone(); 17]), "spec.network.budget", "at most 16"),
            (budget("2GB", vec![class.clone()]), "spec.network.budget", "more than TCP can say"),
            (budget("4kB", vec![class]), "spec.network.budget", "segment"),
            (
                json!({"externalCap": "900Tbit"}),
                "spec.network.externalCap",
                "more than any link has",
            ),
        ];
        for (network, field, reason) in cases {
            let error = of(network).expect_err(field);
            assert_eq!(error.field, field, "{}", error.reason);
            assert!(error.reason.contains(reason), "{}: {}", error.field, error.reason);
        }
    }
}
