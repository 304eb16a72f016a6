//! Answers to those who only look.

use super::query::{Continue, Params};
use super::{Ctx, json, watch};
use crate::problem::Problem;
use crate::state::{Actor, Role, Stored, audit_key};
use crate::store::{Table, backup as backups};
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use std::io;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use weir_model::objects::{API_VERSION, Kind};

/// Entries of the audit log, if the request does not say.
const AUDIT_USUAL: u64 = 100;
const AUDIT_MOST: u64 = 10_000;
/// Octets of a backup in one piece, and pieces that wait for the client.
const PIECE: usize = 64 << 10;
const PIECES: usize = 4;

pub(super) type Named = Result<Path<(String, String)>, PathRejection>;
pub(super) type One = Result<Path<String>, PathRejection>;

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the controller takes requests.
pub(super) async fn readyz(State(shared): Ctx) -> Response {
    match shared.stopping.load(Ordering::Relaxed) {
        false => "ok\n".into_response(),
        true => {
            Problem::new(503, "Stopping", "request", "the controller is ending").into_response()
        }
    }
}

pub(super) async fn metrics(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
) -> Result<Response, Problem> {
    not_for_tenants(&actor)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], shared.metrics.text(&shared.view)).into_response())
}

/// The kind that a path names.
pub(super) fn kind_of(plural: &str) -> Result<Kind, Problem> {
    Kind::ALL.into_iter().find(|kind| kind.plural() == plural).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::plural).join(", ");
        let detail = format!("there are no {plural}; there are {known}");
        Problem::new(404, "NoSuchKind", "path", detail)
    })
}

/// The words that a path has.
pub(super) fn words<T>(path: Result<Path<T>, PathRejection>) -> Result<T, Problem> {
    let read = path.map_err(|error| Problem::new(400, "BadPath", "path", error.body_text()));
    read.map(|Path(words)| words)
}

pub(super) fn named(path: Named) -> Result<(Kind, String), Problem> {
    let (plural, name) = words(path)?;
    Ok((kind_of(&plural)?, name))
}

/// One object.
pub(super) async fn one(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    path: Named,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&[])?;
    let (kind, name) = named(path)?;
    let stored = shared.view.get(kind, &name);
    let stored = stored.filter(|stored| actor.may_read(stored.object.owner()));
    let stored = stored.ok_or_else(|| {
        let detail = format!("there is no {kind} with the name `{name}`");
        Problem::new(404, "NotFound", "metadata.name", detail)
    })?;
    let mut answer = json(StatusCode::OK, stored.json.clone());
    answer.headers_mut().insert(header::ETAG, etag(stored.revision));
    Ok(answer)
}

pub(super) fn etag(revision: u64) -> axum::http::HeaderValue {
    format!("\"{revision}\"").parse().expect("digits stand in a header")
}

/// A page of a list, or a watch.
pub(super) async fn list(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    path: One,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&["limit", "continue", "watch", "resourceVersion", "tenant"])?;
    let kind = kind_of(&words(path)?)?;
    let tenant = params.get("tenant").map(str::to_owned);
    let wanted = move |stored: &Stored| {
        let owner = stored.object.owner();
        actor.may_read(owner) && tenant.as_deref().is_none_or(|tenant| owner == Some(tenant))
    };
    let from = params.number("resourceVersion")?;
    if params.flag("watch")? {
        let of_kind = move |stored: &Stored| stored.object.kind() == kind && wanted(stored);
        return watch::stream(&shared, from, of_kind, &headers);
    }
    if from.is_some() {
        let detail = "only a watch begins at a version: add watch=true, or leave it out";
        return Err(Problem::new(400, "BadParameter", "query.resourceVersion", detail));
    }
    let begun = params.get("continue").map(Continue::read).transpose()?;
    let after = begun.as_ref().map(|begun| begun.after.as_str());
    let page = shared.view.list(kind, after, params.limit()?, wanted);
    // A watch from the first page's version on sees what changed between the pages.
    let revision = begun.as_ref().map_or(page.revision, |begun| begun.revision);
    if shared.view.after(revision, |_| false).is_err() {
        let detail = "the list began too long ago: begin it again";
        return Err(Problem::new(410, "Expired", "query.continue", detail));
    }
    let next = page.next.map(|after| Continue { revision, after }.word()).unwrap_or_default();
    let head = json!({"resourceVersion": revision.to_string(), "continue": next});
    let mut body = format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{}List","metadata":{head},"items":["#,
        kind.name()
    );
    for (n, stored) in page.items.iter().enumerate() {
        if n > 0 {
            body.push(',');
        }
        body.push_str(&stored.json);
    }
    body.push_str("]}");
    Ok(json(StatusCode::OK, body))
}

/// All tokens, without their secrets, which nobody knows.
pub(super) async fn tokens(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&[])?;
    operators_only(&actor)?;
    let mut tokens = shared.view.tokens();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    let items: Vec<_> = tokens.iter().map(|token| &**token).collect();
    Ok(json(StatusCode::OK, json!({"items": items}).to_string()))
}

/// What schedulers of others may add per host and per switch.
pub(super) async fn room(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&["tenant"])?;
    not_for_tenants(&actor)?;
    let told = match params.get("tenant").map(str::to_owned) {
        None => shared.engine.look(|state| state.room()).await??,
        Some(tenant) => shared.engine.look(move |state| state.tenant_room(&tenant)).await??,
    };
    Ok(json(StatusCode::OK, told.to_string()))
}

/// The latest entries of the audit log, the newest last.
pub(super) async fn audit(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&["limit"])?;
    operators_only(&actor)?;
    let limit = match params.number("limit")? {
        Some(0) => {
            return Err(Problem::new(400, "BadParameter", "query.limit", "0: write 1 to 10000"));
        }
        limit => limit.unwrap_or(AUDIT_USUAL).min(AUDIT_MOST),
    };
    let snapshot = shared.engine.snapshot().await?;
    let read = move || {
        let mut next = 0;
        snapshot.scan(Table::Meta, "audit", &mut |key, value| {
            if key == "audit" {
                let bounds: Result<(u64, u64), _> = serde_json::from_slice(value);
                next = bounds.map_or(0, |(next, _)| next);
            }
            false
        })?;
        let mut items = Vec::new();
        let from = audit_key(next.saturating_sub(limit));
        snapshot.scan(Table::Audit, &from, &mut |_, value| {
            items.push(String::from_utf8_lossy(value).into_owned());
            true
        })?;
        Ok(items)
    };
    let items: Vec<String> = apart(read).await?;
    Ok(json(StatusCode::OK, format!(r#"{{"items":[{}]}}"#, items.join(","))))
}

/// All records, as lines.
pub(super) async fn backup(
    State(shared): Ctx,
    Extension(actor): Extension<Actor>,
    params: Params,
) -> Result<Response, Problem> {
    params.only(&[])?;
    operators_only(&actor)?;
    let snapshot = shared.engine.snapshot().await?;
    let (pieces, rest) = mpsc::channel::<Bytes>(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(PIECE, Pieces(pieces));
        let written =
            backups::write(&*snapshot, &mut out).and_then(|()| io::Write::flush(&mut out));
        // The client sees it, too: the last line is missing.
        if let Err(error) = written {
            tracing::warn!("a backup was cut off: {error}");
        }
    });
    let stream = futures_util::stream::unfold(rest, |mut rest| async move {
        let piece = rest.recv().await?;
        Some((Ok::<_, io::Error>(piece), rest))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// Writes into a channel.
struct Pieces(mpsc::Sender<Bytes>);

impl io::Write for Pieces {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Bytes::copy_from_slice(octets)).map_err(gone)?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the disk where nobody waits for it.
async fn apart<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, crate::store::StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(read).await;
    let done = done.map_err(|error| Problem::new(500, "Internal", "request", error.to_string()))?;
    done.map_err(|error| crate::engine::of_store(&error))
}

pub(super) fn operators_only(actor: &Actor) -> Result<(), Problem> {
    match actor.role {
        Role::Operator => Ok(()),
        role => {
            let detail = format!("the role {} may not see this: ask an operator", role.name());
            Err(Problem::new(403, "Forbidden", "Authorization", detail))
        }
    }
}

pub(super) fn not_for_tenants(actor: &Actor) -> Result<(), Problem> {
    match actor.role {
        Role::Tenant | Role::Host => operators_only(actor),
        Role::Viewer | Role::Operator => Ok(()),
    }
}
