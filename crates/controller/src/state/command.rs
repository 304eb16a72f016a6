//! What is asked of the state machine, by whom, and what it answers.

use super::{State, Stored};
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use weir_model::objects::{Kind, Wish};

/// What a token allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything.
    Viewer,
    /// Reads what belongs to one tenant, and writes its VMs.
    Tenant,
    /// Everything.
    Operator,
    /// Joins as one host, once, and does nothing else.
    Host,
}

impl Role {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Tenant => "tenant",
            Self::Operator => "operator",
            Self::Host => "host",
        }
    }
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// Name of the token.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// For [`Role::Tenant`]: which tenant.
    pub tenant: Option<String>,
}

impl Actor {
    /// Whether the actor may read an object of this owner.
    pub fn may_read(&self, owner: Option<&str>) -> bool {
        match self.role {
            Role::Viewer | Role::Operator => true,
            Role::Tenant => owner.is_some() && owner == self.tenant.as_deref(),
            Role::Host => false,
        }
    }

    /// Whether the actor may write an object of this kind and owner.
    ///
    /// # Errors
    ///
    /// It may not.
    pub fn may_write(&self, kind: Kind, owner: Option<&str>) -> Result<(), Problem> {
        let allowed = match self.role {
            Role::Operator => true,
            Role::Viewer | Role::Host => false,
            Role::Tenant => kind == Kind::Vm && self.may_read(owner),
        };
        if allowed {
            return Ok(());
        }
        let whose = owner.map(|owner| format!(" of tenant `{owner}`")).unwrap_or_default();
        let detail = format!(
            "the token `{}` has the role {} and may not write a {kind}{whose}: ask an operator",
            self.name,
            self.role.name()
        );
        Err(Problem::new(403, "Forbidden", "Authorization", detail))
    }
}

/// A request is done once, however often it is sent with one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idempotency {
    /// What the client chose.
    pub key: String,
    /// Hash of the request: the same key with another request is a mistake.
    pub fingerprint: String,
}

/// Whether an object must be new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Makes or changes it.
    Apply,
    /// Makes it; refuses if it exists.
    Create,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Makes or changes an object.
    Put {
        /// The object.
        wish: Box<Wish>,
        /// Whether it must be new.
        mode: Mode,
        /// Version that `If-Match` names.
        seen: Option<u64>,
    },
    /// Makes or changes objects, all or none.
    Batch(Vec<Wish>),
    /// Removes an object.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// Version that `If-Match` names.
        seen: Option<u64>,
    },
    /// Turns a reservation into VMs.
    Confirm(String),
    /// Gives the room of a reservation back.
    Release(String),
    /// Lets somebody in.
    AddToken(super::NewToken),
    /// Keeps somebody out from now on.
    RemoveToken(String),
    /// A host joins: uses its token up.
    Join {
        /// Hash of the token.
        token: String,
        /// Name of the host.
        host: String,
    },
    /// The certificates of a host are refused from now on.
    Revoke(String),
    /// What is known of hosts and VMs by their agents.
    Observe(Vec<super::Observation>),
}

impl Action {
    /// Verb, kind and name for the audit log.
    pub(super) fn told(&self) -> (&'static str, &str, String) {
        match self {
            Self::Put { wish, .. } => {
                ("apply", wish.spec.kind().name(), wish.metadata.name.clone())
            }
            Self::Batch(wishes) => {
                let names = wishes.iter().map(|wish| wish.metadata.name.as_str());
                // An entry stays short; the objects themselves say the rest.
                let mut told = names.take(20).collect::<Vec<_>>().join(",");
                if wishes.len() > 20 {
                    told.push_str(&format!(",… {} in all", wishes.len()));
                }
                ("apply", "", told)
            }
            Self::Delete { kind, name, .. } => ("delete", kind.name(), name.clone()),
            Self::Confirm(name) => ("confirm", Kind::Reservation.name(), name.clone()),
            Self::Release(name) => ("release", Kind::Reservation.name(), name.clone()),
            Self::AddToken(token) => ("create", "Token", token.name.clone()),
            Self::RemoveToken(name) => ("delete", "Token", name.clone()),
            Self::Join { host, .. } => ("join", Kind::Host.name(), host.clone()),
            Self::Revoke(host) => ("revoke", Kind::Host.name(), host.clone()),
            Self::Observe(_) => ("observe", "", String::new()),
        }
    }
}

/// One request.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Who asks.
    pub actor: Actor,
    /// Only says what would happen.
    pub dry_run: bool,
    /// For repeated requests.
    pub idempotency: Option<Idempotency>,
    /// What is to be done.
    pub action: Action,
}

/// What a request is answered.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u16,
    /// JSON.
    pub body: Arc<str>,
    /// Version of the object in the body.
    pub revision: Option<u64>,
    /// Path of what was made.
    pub location: Option<String>,
}

impl Answer {
    /// The same answer where nothing was made: the status 201 would promise that it is there.
    pub(super) fn of_dry_run(self) -> Self {
        let status = if self.status == 201 { 200 } else { self.status };
        Self { status, location: None, ..self }
    }
}

/// An answer whose objects may still change until the request is done.
pub(super) enum Draft {
    /// One object and whether it is new.
    Object(Kind, String, bool),
    /// An object that is no more.
    Gone(Arc<Stored>),
    /// Several objects, and what changed since this many events.
    Batch(Vec<(Kind, String)>, usize),
    /// Something else: its status and its body.
    Other(u16, Value),
}

impl Draft {
    pub(super) fn finish(self, state: &State) -> Answer {
        let plain = |status, body: String| Answer {
            status,
            body: body.into(),
            revision: None,
            location: None,
        };
        match self {
            Self::Object(kind, name, created) => {
                let stored = state.get(kind, &name).expect("it was put");
                let path = format!("/api/v1/{}/{name}", kind.plural());
                Answer {
                    status: if created { 201 } else { 200 },
                    body: stored.json.as_str().into(),
                    revision: Some(stored.revision),
                    location: created.then_some(path),
                }
            }
            Self::Gone(stored) => plain(200, stored.json.clone()),
            Self::Batch(names, before) => {
                let items = names.iter().filter_map(|(kind, name)| state.get(*kind, name));
                let items: Vec<&str> = items.map(|stored| stored.json.as_str()).collect();
                let events = &state.pending.events[before..];
                let changes: Vec<String> = events.iter().map(super::Event::json).collect();
                let body = format!(
                    r#"{{"items":[{}],"changes":[{}]}}"#,
                    items.join(","),
                    changes.join(",")
                );
                plain(200, body)
            }
            Self::Other(status, value) => plain(status, value.to_string()),
        }
    }

    pub(super) fn json(status: u16, value: Value) -> Self {
        Self::Other(status, value)
    }
}
