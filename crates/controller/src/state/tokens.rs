//! Tokens: who may ask. Only their hashes are kept.

use super::command::{Actor, Draft, Role};
use super::{State, Undo, records, set};
use crate::problem::Problem;
use crate::store::{Table, Write};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::Kind;

/// A token as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Token {
    /// Unique; the audit log has it.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// For [`Role::Tenant`]: which tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// For [`Role::Host`]: which host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it was made.
    pub created: Moment,
    /// From when on it is worthless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
}

impl Token {
    /// Who comes with it.
    pub fn actor(&self) -> Actor {
        Actor { name: self.name.clone(), role: self.role, tenant: self.tenant.clone() }
    }
}

/// A token to be made. The secret was drawn and hashed outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// Hash of the secret.
    pub hash: String,
    /// Unique name.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// For [`Role::Tenant`]: which tenant.
    pub tenant: Option<String>,
    /// For [`Role::Host`]: which host.
    pub host: Option<String>,
    /// From when on it is worthless.
    pub expires: Option<Moment>,
}

impl State {
    pub(super) fn add_token(
        &mut self,
        now: Moment,
        actor: &Actor,
        new: &NewToken,
    ) -> Result<Draft, Problem> {
        operator_only(actor)?;
        let invalid = |field: &str, detail: String| Problem::new(422, "Invalid", field, detail);
        if new.role == Role::Host {
            self.replace_token_of_host(now, &new.name);
        }
        if self.tokens.values().any(|token| token.name == new.name) {
            let detail = format!("a token with the name `{}` exists: delete it first", new.name);
            return Err(Problem::new(409, "AlreadyExists", "name", detail));
        }
        let harmless = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if new.name.is_empty() || new.name.len() > 100 || !new.name.chars().all(harmless) {
            let detail = "write 1 to 100 letters, digits, `-`, `_`, `.` and `@`".into();
            return Err(invalid("name", detail));
        }
        match (&new.tenant, new.role) {
            (None, Role::Tenant) => {
                return Err(invalid("tenant", "a token of this role names its tenant".into()));
            }
            (Some(_), Role::Viewer | Role::Operator | Role::Host) => {
                let detail = format!("the role {} is for all tenants", new.role.name());
                return Err(invalid("tenant", detail));
            }
            _ => {}
        }
        match (&new.host, new.role) {
            (None, Role::Host) => {
                return Err(invalid("host", "a token of this role names its host".into()));
            }
            (Some(host), Role::Host) if self.get(Kind::Host, host).is_none() => {
                let detail = format!("there is no Host with the name `{host}`: apply it first");
                return Err(Problem::new(422, "NoSuchHost", "host", detail));
            }
            (Some(_), role) if role != Role::Host => {
                return Err(invalid("host", "only a token of the role host has one".into()));
            }
            _ => {}
        }
        if new.role == Role::Host && new.expires.is_none() {
            return Err(invalid("expires", "a token of the role host expires: write when".into()));
        }
        if new.expires.is_some_and(|at| at <= now) {
            return Err(invalid("expires", "this moment has passed".into()));
        }
        let token = Token {
            name: new.name.clone(),
            role: new.role,
            tenant: new.tenant.clone(),
            host: new.host.clone(),
            created: now,
            expires: new.expires,
        };
        let told = serde_json::to_value(&token).expect("a token is JSON");
        self.set_token(&new.hash, Some(token));
        Ok(Draft::json(201, told))
    }

    pub(super) fn remove_token(&mut self, actor: &Actor, name: &str) -> Result<Draft, Problem> {
        operator_only(actor)?;
        let found = self.tokens.iter().find(|(_, token)| token.name == name);
        let Some((hash, _)) = found.map(|(hash, token)| (hash.clone(), token)) else {
            let detail = format!("there is no token with the name `{name}`");
            return Err(Problem::new(404, "NotFound", "name", detail));
        };
        if actor.name == name {
            let detail = "a token cannot delete itself: use another operator's";
            return Err(Problem::new(409, "OwnToken", "name", detail));
        }
        self.set_token(&hash, None);
        Ok(Draft::json(200, json!({"status": "deleted", "name": name})))
    }

    /// A host has one token at most: the former one becomes worthless, whether it was used or not.
    fn replace_token_of_host(&mut self, now: Moment, name: &str) {
        let former = self.tokens.iter().find(|(_, token)| {
            token.name == name
                && (token.role == Role::Host || token.expires.is_some_and(|at| at <= now))
        });
        if let Some(hash) = former.map(|(hash, _)| hash.clone()) {
            self.set_token(&hash, None);
        }
    }

    pub(super) fn set_token(&mut self, hash: &str, token: Option<Token>) {
        let old = self.tokens.get(hash).cloned();
        let token = token.map(Arc::new);
        self.pending.writes.push(match &token {
            Some(token) => Write::put(Table::Tokens, hash, records::json(&**token)),
            None => Write::delete(Table::Tokens, hash),
        });
        set(&mut self.tokens, hash.into(), token.clone());
        self.pending.tokens.push((hash.into(), token));
        self.pending.undo.push(Undo::Token(hash.into(), old));
    }
}

fn operator_only(actor: &Actor) -> Result<(), Problem> {
    match actor.role {
        Role::Operator => Ok(()),
        _ => {
            let detail = "only an operator makes and deletes tokens";
            Err(Problem::new(403, "Forbidden", "Authorization", detail))
        }
    }
}
