//! What another controller committed, as readers are told of it.

use super::{Event, EventKind, Published, Stored, Token};
use crate::store::{Table, Write};
use std::sync::Arc;
use weir_model::objects::{Kind, Object};

/// The changes of one commit in the order of their versions. `known` are the objects before it.
///
/// # Errors
///
/// A record makes no sense.
pub(crate) fn published(
    commit: Vec<(Write, u64)>,
    known: &dyn Fn(Kind, &str) -> Option<Arc<Stored>>,
) -> Result<Published, String> {
    let mut published = Published::default();
    for (write, version) in commit {
        let wrong = |what: String| format!("{}/{}: {what}", write.table.name(), write.key);
        match write.table {
            Table::Objects => {
                let event = event(&write, version, known).map_err(wrong)?;
                published.events.extend(event);
            }
            Table::Tokens => {
                let token: Option<Token> = match &write.value {
                    None => None,
                    Some(value) => {
                        Some(serde_json::from_slice(value).map_err(|e| wrong(e.to_string()))?)
                    }
                };
                published.tokens.push((write.key, token.map(Arc::new)));
            }
            _ => {}
        }
    }
    published.events.sort_by_key(|event| event.revision);
    Ok(published)
}

/// None for an object that was made and removed in the same commit.
fn event(
    write: &Write,
    version: u64,
    known: &dyn Fn(Kind, &str) -> Option<Arc<Stored>>,
) -> Result<Option<Event>, String> {
    let (kind, name) = write.key.split_once('/').ok_or("it has no kind")?;
    let kind = Kind::ALL.into_iter().find(|one| one.name() == kind).ok_or("its kind is none")?;
    let before = known(kind, name);
    let Some(value) = &write.value else {
        return Ok(before.map(|before| {
            let mut object = before.object.clone();
            object.metadata.resource_version = Some(version.to_string());
            let stored = Arc::new(Stored::new(object, version));
            Event { revision: version, kind: EventKind::Deleted, stored }
        }));
    };
    let document = serde_json::from_slice(value).map_err(|e| e.to_string())?;
    let object = Object::read(document).map_err(|e| e.to_string())?;
    let revision = object.metadata.resource_version.as_deref().map(str::parse);
    let revision = revision.and_then(Result::ok).ok_or("its version is not a number")?;
    let happened = if before.is_some() { EventKind::Modified } else { EventKind::Added };
    let stored = Arc::new(Stored::new(object, revision));
    Ok(Some(Event { revision, kind: happened, stored }))
}
