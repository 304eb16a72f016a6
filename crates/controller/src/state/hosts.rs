//! Hosts that join, and what is known of them by their agents.

use super::command::{Actor, Draft, Role};
use super::{State, Stored, change};
use crate::problem::Problem;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use weir_core::ledger::Need;
use weir_model::moment::Moment;
use weir_model::objects::{
    AgentStatus, Condition, Kind, Object, QueueWish, Spec, Status, TenantQueue, Truth,
};
use weir_units::Rate;

/// Name of the condition that says whether a VM's host enforces what is wanted.
pub(crate) const APPLIED: &str = "Applied";
/// Name of the condition that says whether a host's agent is there.
pub(crate) const READY: &str = "Ready";
/// Name of the condition that says which queue on switches a tenant has, and why.
pub(crate) const QUEUE: &str = "Queue";

/// One fact about an object, seen by an agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Observation {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
    /// Only if the object's spec is of this generation.
    pub generation: Option<u64>,
    /// The condition's name.
    pub condition: &'static str,
    /// Whether it holds.
    pub status: Truth,
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// What the agent of a host says of itself.
    pub agent: Option<(String, Option<SocketAddr>)>,
    /// What hosts are told of a tenant's queue.
    pub queue: Option<TenantQueue>,
}

/// A tenant, as it is bound to queues of switches.
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    /// Its name.
    pub name: String,
    /// What it has reserved; links are numbers of [`Bounds::links`].
    pub needs: Vec<Need>,
    /// The sum of its floors.
    pub payment: Rate,
    /// Hosts with VMs of the tenant.
    pub hosts: BTreeSet<String>,
    /// What an operator wants for it.
    pub wish: QueueWish,
    /// What was written down of its queue.
    pub queue: Option<TenantQueue>,
}

/// All tenants, as they are bound.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bounds {
    /// Version of the state of which this is said.
    pub revision: u64,
    /// Names of links: of a host's NIC that of [`nic_of`].
    pub links: Vec<String>,
    /// By name.
    pub tenants: Vec<Bound>,
}

/// What is free on the links of tenants: the least of both directions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rooms {
    /// Version of the state of which this is said.
    pub revision: u64,
    /// Tenant → link → what is free. A tenant that is not listed may be on any link.
    pub tenants: BTreeMap<String, BTreeMap<u32, Rate>>,
}

/// Which certificates of a host are good. None if it has not joined, or was revoked: its enrolment is 0 then.
pub(crate) fn enrolment(status: &Status) -> Option<u64> {
    status.agent.as_ref().map(|agent| agent.enrolment).filter(|enrolment| *enrolment != 0)
}

impl State {
    /// A host joins with a token: the token is used up, and the host has a new enrolment.
    pub(super) fn join(&mut self, now: Moment, token: &str, host: &str) -> Result<Draft, Problem> {
        let refuse = |detail: String| Problem::new(401, "Unauthorized", "token", detail);
        let found = self.tokens.get(token).filter(|found| found.role == Role::Host).cloned();
        let found = found.ok_or_else(|| {
            refuse("this token is not known: it was used before, or is another controller's".into())
        })?;
        if let Some(at) = found.expires.filter(|at| *at <= now) {
            return Err(refuse(format!(
                "this token expired at {at}: ask an operator for a new one"
            )));
        }
        if found.host.as_deref() != Some(host) {
            let whose = found.host.as_deref().unwrap_or_default();
            return Err(refuse(format!("this token is for host `{whose}`, not for `{host}`")));
        }
        let stored = self.get(Kind::Host, host).cloned();
        let stored = stored.ok_or_else(|| change::not_found(Kind::Host, host))?;
        self.set_token(token, None);
        let mut object = stored.object.clone();
        let enrolment = self.revision + 1;
        let before = object.status.agent.take().unwrap_or_default();
        object.status.agent = Some(AgentStatus { enrolment, ..before });
        let message = "it joined; its agent has not spoken yet";
        object.status.set(fact(now, READY, Truth::Unknown, "Joined", message));
        let stored = self.put_object(object);
        Ok(Draft::json(200, json!({"enrolment": enrolment, "number": stored.object.status.number})))
    }

    pub(super) fn revoke(
        &mut self,
        now: Moment,
        actor: &Actor,
        host: &str,
    ) -> Result<Draft, Problem> {
        actor.may_write(Kind::Host, None)?;
        let stored = self.get(Kind::Host, host).cloned();
        let mut object = stored.ok_or_else(|| change::not_found(Kind::Host, host))?.object.clone();
        if enrolment(&object.status).is_none() {
            let detail = format!("host `{host}` has not joined, so there is nothing to revoke");
            return Err(Problem::new(409, "NotJoined", "metadata.name", detail));
        }
        // Other hosts go on speaking to it: floors stay.
        object.status.agent.iter_mut().for_each(|agent| agent.enrolment = 0);
        let message = "its certificates are refused; `weir host token` lets it join again";
        object.status.set(fact(now, READY, Truth::Unknown, "Revoked", message));
        self.put_object(object);
        Ok(Draft::Object(Kind::Host, host.into(), false))
    }

    /// Writes down what agents saw, as far as it is news.
    pub(super) fn observe(&mut self, now: Moment, observations: &[Observation]) -> Draft {
        let mut changed = 0;
        for seen in observations {
            let Some(stored) = self.get(seen.kind, &seen.name) else { continue };
            let generation = stored.object.metadata.generation;
            if seen.generation.is_some_and(|meant| meant != generation) {
                continue;
            }
            let mut object = stored.object.clone();
            if let (Some((program, control)), Some(agent)) = (&seen.agent, &mut object.status.agent)
            {
                agent.program.clone_from(program);
                agent.control = *control;
            }
            if seen.queue.is_some() {
                object.status.queue = seen.queue;
            }
            object.status.set(fact(now, seen.condition, seen.status, &seen.reason, &seen.message));
            if object.status != stored.object.status {
                self.put_object(object);
                changed += 1;
            }
        }
        Draft::json(200, json!({"changed": changed}))
    }

    /// A VM's spec changed: whether its host enforces it is unknown until its agent says so.
    pub(super) fn await_agent(&self, now: Moment, object: &mut Object) {
        let host = object.status.host.as_deref().and_then(|host| self.get(Kind::Host, host));
        if host.is_some_and(|host| host.object.status.agent.is_some()) {
            object.status.set(fact(now, APPLIED, Truth::Unknown, "Sending", ""));
        } else {
            object.status.conditions.retain(|condition| condition.name != APPLIED);
        }
    }

    /// What is free on the links of these tenants.
    pub fn rooms<'a>(&self, tenants: impl IntoIterator<Item = &'a str>) -> Rooms {
        let room = |tenant: &'a str| Some((tenant.to_owned(), self.book.free_on_links(tenant)?));
        Rooms { revision: self.revision, tenants: tenants.into_iter().filter_map(room).collect() }
    }

    /// What tenants have reserved on which links, and where their VMs are.
    pub fn bounds(&self) -> Bounds {
        let bound = |stored: &Arc<Stored>| {
            let Spec::Tenant(spec) = &stored.object.spec else { return None };
            let name = stored.object.name();
            let (needs, payment, hosts) = self.book.reserved(name);
            Some(Bound {
                name: name.to_owned(),
                needs,
                payment,
                hosts,
                wish: spec.queue,
                queue: stored.object.status.queue,
            })
        };
        let tenants = self.objects[Kind::Tenant as usize].values();
        Bounds {
            revision: self.revision,
            links: self.book.link_names(),
            tenants: tenants.filter_map(bound).collect(),
        }
    }
}

fn fact(now: Moment, name: &str, status: Truth, reason: &str, message: &str) -> Condition {
    Condition {
        name: name.into(),
        status,
        reason: reason.into(),
        message: message.into(),
        last_transition_time: now,
    }
}
