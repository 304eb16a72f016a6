//! The state as records of a store, and back.

use super::{Answer, Idempotency, Request, State, Token, Undo, set};
use crate::problem::Problem;
use crate::store::{REVISION, Snapshot, StoreError, Table, Write};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Object, Phase, Spec};

/// Record of the audit log's bounds.
const AUDIT: &str = "audit";

/// An object as it is kept: with its JSON, which is written and sent as it is.
#[derive(PartialEq, Debug)]
pub struct Stored {
    /// The object.
    pub object: Object,
    /// The same as JSON.
    pub json: String,
    /// Its version.
    pub revision: u64,
}

impl Stored {
    pub(super) fn new(object: Object, revision: u64) -> Self {
        let json = serde_json::to_string(&object).expect("an object is JSON");
        Self { object, json, revision }
    }

    /// Of no store: for tests.
    #[cfg(test)]
    pub(crate) fn of(object: Object) -> Self {
        Self::new(object, 1)
    }
}

/// What happened to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is no more.
    Deleted,
}

impl EventKind {
    /// Its name in a watch.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change of an object.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Version of the change.
    pub revision: u64,
    /// What happened.
    pub kind: EventKind,
    /// The object after the change, or before its removal.
    pub stored: Arc<Stored>,
}

impl Event {
    /// A line of a watch.
    pub fn json(&self) -> String {
        format!(r#"{{"type":"{}","object":{}}}"#, self.kind.name(), self.stored.json)
    }
}

/// What a request with an idempotency key was answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerRecord {
    pub(super) at: Moment,
    fingerprint: String,
    status: u16,
    body: String,
    revision: Option<u64>,
    location: Option<String>,
}

/// One entry of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuditEntry {
    at: Moment,
    who: String,
    role: String,
    verb: String,
    kind: String,
    name: String,
    /// Version of the last change that the request made.
    revision: u64,
}

/// Key of an object's record.
pub(super) fn object_key(kind: Kind, name: &str) -> String {
    format!("{}/{name}", kind.name())
}

/// Key of an entry of the audit log: in the order of numbers.
pub(crate) fn audit_key(number: u64) -> String {
    format!("{number:020}")
}

impl State {
    /// The answer that the same request got before.
    pub(super) fn remembered(&self, request: &Request) -> Result<Option<Answer>, Problem> {
        let Some(idempotency) = &request.idempotency else { return Ok(None) };
        let Some(record) = self.answers.get(&scoped(request, idempotency)) else { return Ok(None) };
        if record.fingerprint != idempotency.fingerprint {
            let detail = format!(
                "the key `{}` was used for another request: choose a new key for each request",
                idempotency.key
            );
            return Err(Problem::new(422, "KeyReused", "Idempotency-Key", detail));
        }
        Ok(Some(Answer {
            status: record.status,
            body: record.body.as_str().into(),
            revision: record.revision,
            location: record.location.clone(),
        }))
    }

    pub(super) fn remember(&mut self, now: Moment, request: &Request, answer: &Answer) {
        let Some(idempotency) = &request.idempotency else { return };
        let record = AnswerRecord {
            at: now,
            fingerprint: idempotency.fingerprint.clone(),
            status: answer.status,
            body: answer.body.to_string(),
            revision: answer.revision,
            location: answer.location.clone(),
        };
        self.set_answer(&scoped(request, idempotency), Some(record));
        while self.answers.len() > self.limits.answers {
            let (_, oldest) = self.answers_by_age.first().cloned().expect("as many as answers");
            self.set_answer(&oldest, None);
        }
    }

    pub(super) fn set_answer(&mut self, key: &str, record: Option<AnswerRecord>) {
        let old = self.answers.get(key).cloned();
        if let Some(old) = &old {
            self.answers_by_age.remove(&(old.at, key.into()));
        }
        self.pending.writes.push(match &record {
            Some(record) => Write::put(Table::Answers, key, json(record)),
            None => Write::delete(Table::Answers, key),
        });
        if let Some(record) = &record {
            self.answers_by_age.insert((record.at, key.into()));
        }
        set(&mut self.answers, key.into(), record.map(Arc::new));
        self.pending.undo.push(Undo::Answer(key.into(), old));
    }

    /// Writes down who did what.
    pub(super) fn note(&mut self, now: Moment, request: &Request) {
        let (verb, kind, name) = request.action.told();
        let entry = AuditEntry {
            at: now,
            who: request.actor.name.clone(),
            role: request.actor.role.name().into(),
            verb: verb.into(),
            kind: kind.into(),
            name,
            revision: self.revision,
        };
        let (next, oldest) = &mut self.audit;
        self.pending.writes.push(Write::put(Table::Audit, audit_key(*next), json(&entry)));
        *next += 1;
        while *next - *oldest > self.limits.audit {
            self.pending.writes.push(Write::delete(Table::Audit, audit_key(*oldest)));
            *oldest += 1;
        }
        let bounds = format!("[{next},{oldest}]");
        self.pending.writes.push(Write::put(Table::Meta, AUDIT, bounds));
    }
}

impl State {
    /// Whether a store has the records of this state: the counters that every commit changes are equal.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub fn is_that_of(&self, snapshot: &dyn Snapshot) -> Result<bool, StoreError> {
        let (mut revision, mut audit) = (b"0".to_vec(), b"[0,0]".to_vec());
        snapshot.scan(Table::Meta, "", &mut |key, value| {
            match key {
                REVISION => revision = value.into(),
                AUDIT => audit = value.into(),
                _ => {}
            }
            true
        })?;
        let (next, oldest) = self.audit;
        Ok(revision == self.revision.to_string().as_bytes()
            && audit == format!("[{next},{oldest}]").as_bytes())
    }
}

/// Keys of different tokens are different keys. The name of a token has no `/`.
fn scoped(request: &Request, idempotency: &Idempotency) -> String {
    format!("{}/{}", request.actor.name, idempotency.key)
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("records are JSON")
}

/// Reads all records into an empty state. What they promise is added up afterwards.
pub(super) fn load(
    state: &mut State,
    snapshot: &dyn Snapshot,
    now: Moment,
) -> Result<(), StoreError> {
    let damaged = |what: String| StoreError::Damaged { path: "the store".into(), what };
    each(snapshot, Table::Meta, &mut |key, value| {
        let number = || String::from_utf8_lossy(value).parse::<u64>().map_err(|e| e.to_string());
        match key {
            REVISION => state.revision = number()?,
            AUDIT => state.audit = serde_json::from_slice(value).map_err(|e| e.to_string())?,
            _ => {}
        }
        Ok(())
    })
    .map_err(|e| damaged(format!("meta: {e}")))??;
    each(snapshot, Table::Objects, &mut |_, value| {
        let document = serde_json::from_slice(value).map_err(|e| e.to_string())?;
        let object = Object::read(document).map_err(|e| e.to_string())?;
        let revision = object.metadata.resource_version.as_deref().map(str::parse);
        let revision = revision.and_then(Result::ok).ok_or("the version is not a number")?;
        remember_deadline(state, &object, now);
        state.numbers.remember(&object)?;
        let (kind, name) = (object.kind(), object.name().to_owned());
        let stored = Arc::new(Stored::new(object, revision));
        state.objects[kind as usize].insert(name, stored);
        Ok(())
    })
    .map_err(|e| damaged(format!("objects: {e}")))??;
    each(snapshot, Table::Tokens, &mut |key, value| {
        let token: Token = serde_json::from_slice(value).map_err(|e| e.to_string())?;
        state.tokens.insert(key.into(), Arc::new(token));
        Ok(())
    })
    .map_err(|e| damaged(format!("tokens: {e}")))??;
    each(snapshot, Table::Answers, &mut |key, value| {
        let record: AnswerRecord = serde_json::from_slice(value).map_err(|e| e.to_string())?;
        state.answers_by_age.insert((record.at, key.into()));
        state.answers.insert(key.into(), Arc::new(record));
        Ok(())
    })
    .map_err(|e| damaged(format!("answers: {e}")))?
}

fn remember_deadline(state: &mut State, object: &Object, now: Moment) {
    if let Spec::Reservation(spec) = &object.spec
        && let Some(at) = object.status.expires_at
    {
        let at = match object.status.phase {
            Some(Phase::Held) => at.min(now.plus_millis(super::reserve::millis(spec.hold_for.0))),
            // From its end on, which `expiresAt` says, it stays visible for a while.
            _ => at.min(now).plus_millis(state.limits.keep_reservations),
        };
        state.deadlines.insert((at, object.name().into()));
    }
}

type Read<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<(), String>;

/// Calls `read` with each record. The outer error is a record's, the inner one the store's.
fn each(
    snapshot: &dyn Snapshot,
    table: Table,
    read: Read<'_>,
) -> Result<Result<(), StoreError>, String> {
    let mut mistake = Ok(());
    let scanned = snapshot.scan(table, "", &mut |key, value| {
        mistake = read(key, value).map_err(|error| format!("{key}: {error}"));
        mistake.is_ok()
    });
    mistake.map(|()| scanned)
}
