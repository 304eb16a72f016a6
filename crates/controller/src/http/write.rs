//! Requests that change something: read, checked for form, and given to the engine.

use super::query::{Params, idempotency, preconditions};
use super::read::{Named, One, etag, kind_of, named, words};
use super::{BODY_MOST, BODY_TIME, Shared, json};
use crate::problem::Problem;
use crate::state::{Action, Actor, Answer, Mode, NewToken, Request, Role};
use crate::tokens;
use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Wish, read};

/// Most objects of one batch.
const BATCH_MOST: usize = 50_000;

/// What all requests that change something have.
pub(super) struct Asked {
    shared: Arc<Shared>,
    actor: Actor,
    params: Params,
    headers: HeaderMap,
    uri: Uri,
    method: Method,
}

impl FromRequestParts<Arc<Shared>> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let actor = parts.extensions.get().cloned().expect("every route here asks for a token");
        Ok(Self {
            shared: shared.clone(),
            actor,
            params: Params::from_request_parts(parts, shared).await?,
            headers: parts.headers.clone(),
            uri: parts.uri.clone(),
            method: parts.method.clone(),
        })
    }
}

impl Asked {
    async fn ask(self, body: &[u8], action: Action) -> Result<Response, Problem> {
        self.params.only(&["dryRun"])?;
        let dry_run = self.params.dry_run()?;
        let what = format!("{} {}", self.method, self.uri.path());
        // A dry run is not what a repetition stands for.
        let idempotency = match dry_run {
            true => None,
            false => idempotency(&self.headers, &what, body)?,
        };
        let request = Request { actor: self.actor, dry_run, idempotency, action };
        let answer = self.shared.engine.ask(request).await?;
        Ok(response(&answer))
    }
}

fn response(answer: &Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).expect("statuses are ours");
    let mut response = json(status, Bytes::copy_from_slice(answer.body.as_bytes()));
    let headers = response.headers_mut();
    if let Some(revision) = answer.revision {
        headers.insert(header::ETAG, etag(revision));
    }
    if let Some(path) = answer.location.as_deref().and_then(|path| path.parse().ok()) {
        headers.insert(header::LOCATION, path);
    }
    response
}

/// The octets of a body that says that it is JSON.
async fn octets(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let detail = "send JSON, with `Content-Type: application/json`";
        return Err(Problem::new(415, "NotJson", "Content-Type", detail));
    }
    let read = axum::body::to_bytes(body, BODY_MOST);
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(Ok(octets)) => Ok(octets),
        Ok(Err(_)) => {
            let detail = format!("the body is cut off, or larger than {BODY_MOST} octets");
            Err(Problem::new(413, "TooLarge", "body", detail))
        }
        Err(_) => Err(Problem::new(408, "TooSlow", "body", "the body did not come in 30 s")),
    }
}

fn parse<'a, T: Deserialize<'a>>(octets: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(octets).map_err(|error| {
        let detail = format!("this is not the JSON that is wanted: {error}");
        Problem::new(400, "NotJson", "body", detail)
    })
}

/// An object of this kind from a body.
fn wish(kind: Kind, octets: &[u8]) -> Result<Wish, Problem> {
    let wish = read(parse(octets)?)?;
    if wish.spec.kind() != kind {
        let detail = format!("a {} at the path of a {kind}", wish.spec.kind());
        return Err(Problem::new(422, "Invalid", "kind", detail));
    }
    Ok(wish)
}

/// `PUT /api/v1/{kind}/{name}`: makes or changes the object.
pub(super) async fn apply(asked: Asked, path: Named, body: Body) -> Result<Response, Problem> {
    let (kind, name) = named(path)?;
    let (seen, new) = preconditions(&asked.headers)?;
    let body = octets(&asked.headers, body).await?;
    let wish = wish(kind, &body)?;
    if wish.metadata.name != name {
        let detail = format!("`{}` at the path of `{name}`", wish.metadata.name);
        return Err(Problem::new(422, "Invalid", "metadata.name", detail));
    }
    let mode = if new { Mode::Create } else { Mode::Apply };
    let action = Action::Put { wish: Box::new(wish), mode, seen };
    asked.ask(&body, action).await
}

/// `POST /api/v1/{kind}`: makes an object.
pub(super) async fn create(asked: Asked, path: One, body: Body) -> Result<Response, Problem> {
    let kind = kind_of(&words(path)?)?;
    let body = octets(&asked.headers, body).await?;
    let wish = Box::new(wish(kind, &body)?);
    let action = Action::Put { wish, mode: Mode::Create, seen: None };
    asked.ask(&body, action).await
}

/// `DELETE /api/v1/{kind}/{name}`.
pub(super) async fn remove(asked: Asked, path: Named) -> Result<Response, Problem> {
    let (kind, name) = named(path)?;
    let (seen, _) = preconditions(&asked.headers)?;
    let action = Action::Delete { kind, name, seen };
    asked.ask(&[], action).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    items: Vec<Value>,
}

/// `POST /api/v1/apply`: makes or changes objects, all or none.
pub(super) async fn batch(asked: Asked, body: Body) -> Result<Response, Problem> {
    let body = octets(&asked.headers, body).await?;
    let batch: Batch = parse(&body)?;
    if batch.items.len() > BATCH_MOST {
        let detail = format!("{} objects: at most {BATCH_MOST}", batch.items.len());
        return Err(Problem::new(422, "TooMany", "items", detail));
    }
    let mut wishes = Vec::with_capacity(batch.items.len());
    for (n, item) in batch.items.into_iter().enumerate() {
        let wish = read(item).map_err(|error| {
            // A point alone is the whole item.
            let field = format!("items[{n}].{}", error.field);
            let field = field.trim_end_matches('.').to_owned();
            Problem::new(422, "Invalid", field, error.reason).with("item", n)
        })?;
        wishes.push(wish);
    }
    let action = Action::Batch(wishes);
    asked.ask(&body, action).await
}

/// `POST /api/v1/reservations/{name}/confirm`.
pub(super) async fn confirm(asked: Asked, path: One) -> Result<Response, Problem> {
    asked.ask(&[], Action::Confirm(words(path)?)).await
}

/// `POST /api/v1/reservations/{name}/release`.
pub(super) async fn release(asked: Asked, path: One) -> Result<Response, Problem> {
    asked.ask(&[], Action::Release(words(path)?)).await
}

/// `POST /api/v1/hosts/{name}/revoke`.
pub(super) async fn revoke(asked: Asked, path: One) -> Result<Response, Problem> {
    asked.ask(&[], Action::Revoke(words(path)?)).await
}

/// A token that is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedToken {
    name: String,
    role: Role,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    expires: Option<Moment>,
}

/// `POST /api/v1/tokens`: the answer has the secret, once.
pub(super) async fn add_token(asked: Asked, body: Body) -> Result<Response, Problem> {
    asked.params.only(&["dryRun"])?;
    let body = octets(&asked.headers, body).await?;
    let wanted: WantedToken = parse(&body)?;
    let secret = tokens::draw();
    let new = NewToken {
        hash: tokens::hash(&secret),
        name: wanted.name,
        role: wanted.role,
        tenant: wanted.tenant,
        host: wanted.host,
        expires: wanted.expires,
    };
    let dry_run = asked.params.dry_run()?;
    // A secret must not be remembered for a repetition, so there is none.
    let request =
        Request { actor: asked.actor, dry_run, idempotency: None, action: Action::AddToken(new) };
    let answer = asked.shared.engine.ask(request).await?;
    let mut told: Value = parse(answer.body.as_bytes())?;
    if !dry_run {
        told["token"] = secret.into();
    }
    let status = StatusCode::from_u16(answer.status).expect("statuses are ours");
    Ok(json(status, told.to_string()))
}

/// `DELETE /api/v1/tokens/{name}`.
pub(super) async fn remove_token(asked: Asked, path: One) -> Result<Response, Problem> {
    asked.ask(&[], Action::RemoveToken(words(path)?)).await
}
