//! One agent's files and socket, for a controller that binds its tenants to queues.
//!
//! Approach  As an operator does it: tenants' sections of `agent.toml`, then a reload, whose answer
//!           says that they are in force.

use super::population::replace;
use super::usage::{ask, put};
use super::{Agent, Agents};
use std::path::PathBuf;
use weir_model::agent::{AgentConfig, TenantConfig};
use weir_model::status::{Reply, Request, TenantUse};

/// What a host does for a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantOrder {
    /// Tag of its packets.
    pub(crate) code_point: u8,
    /// Whether its VMs may use all of the uplink.
    pub(crate) is_free: bool,
}

/// An agent's files and socket.
#[derive(Clone)]
pub(crate) struct Desk {
    host: String,
    config: PathBuf,
    socket: PathBuf,
    setup: AgentConfig,
}

impl Agents {
    /// One for each host, in the order of the hosts.
    pub(crate) fn desks(&self) -> Vec<Desk> {
        let desk = |agent: &Agent| Desk {
            host: agent.host.clone(),
            config: agent.config.clone(),
            socket: agent.socket.clone(),
            setup: agent.setup.clone(),
        };
        self.agents.iter().map(desk).collect()
    }
}

impl Desk {
    /// Puts orders in force, each with its tenant's version. A tenant that is named twice has what
    /// is said last.
    ///
    /// Error: the agent refused, or did not answer.
    pub(crate) fn order<'a>(
        &mut self,
        orders: impl Iterator<Item = (&'a str, u64, TenantOrder)>,
    ) -> Result<(), String> {
        for (name, version, order) in orders {
            let tenants = &mut self.setup.tenants;
            tenants.retain(|tenant| tenant.name != name);
            tenants.push(TenantConfig {
                name: name.to_owned(),
                version,
                code_point: order.code_point,
                free: order.is_free,
                why: None,
            });
        }
        let text = toml::to_string(&self.setup).expect("a configuration is plain data");
        replace(&self.config, &text).map_err(|error| error.to_string())?;
        match put(&self.socket, &Request::Reload) {
            Some(Reply::Done { .. }) => Ok(()),
            Some(Reply::Error { message }) => Err(format!("agent of {}: {message}", self.host)),
            _ => Err(format!("the agent of {} did not answer", self.host)),
        }
    }

    /// What its tenants used; `None` if it does not answer.
    pub(crate) fn used(&self) -> Option<Vec<TenantUse>> {
        Some(ask(&self.socket)?.tenants)
    }
}
