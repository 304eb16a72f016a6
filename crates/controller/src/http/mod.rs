//! The API: HTTP/1.1 over TLS, JSON, under `/api/v1`.
//!
//! Approach  Routes are one table ([`ROUTES`]), from which the router and the OpenAPI document are made.
//!           Reads are answered from the [`View`], writes go to the [`Engine`].
//! Promises  Every refusal is a [`Problem`] with a field and a reason. Bodies, headers, connections and
//!           waits are bounded.

mod accounts;
mod auth;
mod openapi;
mod query;
mod read;
mod serve;
mod unread;
mod watch;
mod write;

pub(crate) use accounts::{ANOTHERS, seen_pairs};
pub(crate) use auth::actor_of_token;
pub use openapi::document;
pub(crate) use query::Params;
pub(crate) use serve::CONNECTIONS;
pub use serve::{Server, bind};

use crate::accounts::Books;
use crate::agents::Slot;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::metrics::{Asked, Metrics};
use crate::problem::Problem;
use crate::tls::Authority;
use crate::ui::{LOGIN, PAGES};
use crate::view::View;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Most octets of a request's body.
pub(crate) const BODY_MOST: usize = 16 << 20;
/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What all handlers share.
pub(crate) struct Shared {
    pub(crate) view: Arc<View>,
    pub(crate) engine: Engine,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) fleet: Arc<Slot>,
    pub(crate) books: Arc<Books>,
    pub(crate) authority: Authority,
    /// No new work: the controller is ending.
    pub(crate) stopping: AtomicBool,
}

pub(crate) type Ctx = State<Arc<Shared>>;

/// Who may ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Anybody.
    Open,
    /// Anybody with a token.
    Token,
    /// A page for people: anybody with a token, of which a cookie has the secret.
    Page,
}

/// One route.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    handlers: fn() -> MethodRouter<Arc<Shared>>,
}

impl Route {
    pub(crate) const fn new(
        path: &'static str,
        access: Access,
        handlers: fn() -> MethodRouter<Arc<Shared>>,
    ) -> Self {
        Self { path, access, handlers }
    }
}

/// All routes of the API. `openapi` describes each, and a test holds both together.
pub(crate) const ROUTES: &[Route] = &[
    open("/healthz", || get(read::healthz)),
    open("/readyz", || get(read::readyz)),
    open("/openapi.json", || get(openapi::serve)),
    token("/metrics", || get(read::metrics)),
    token("/api/v1/alerts", || get(accounts::alerts)),
    token("/api/v1/apply", || post(write::batch)),
    token("/api/v1/audit", || get(read::audit)),
    token("/api/v1/backup", || get(read::backup)),
    token("/api/v1/pairs", || get(accounts::pairs)),
    token("/api/v1/room", || get(read::room)),
    token("/api/v1/slo", || get(accounts::report)),
    token("/api/v1/tokens", || get(read::tokens).post(write::add_token)),
    token("/api/v1/tokens/{name}", || delete(write::remove_token)),
    token("/api/v1/use", || get(accounts::usage)),
    token("/api/v1/reservations/{name}/confirm", || post(write::confirm)),
    token("/api/v1/reservations/{name}/release", || post(write::release)),
    token("/api/v1/hosts/{name}/revoke", || post(write::revoke)),
    token("/api/v1/{kind}", || get(read::list).post(write::create)),
    token("/api/v1/{kind}/{name}", || {
        get(read::one).merge(put(write::apply)).merge(delete(write::remove))
    }),
];

const fn open(path: &'static str, handlers: fn() -> MethodRouter<Arc<Shared>>) -> Route {
    Route::new(path, Access::Open, handlers)
}

const fn token(path: &'static str, handlers: fn() -> MethodRouter<Arc<Shared>>) -> Route {
    Route::new(path, Access::Token, handlers)
}

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for route in ROUTES.iter().chain(PAGES) {
        router = router.route(route.path, (route.handlers)());
    }
    router
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&shared), around))
        .with_state(shared)
}

/// Around every request: finds the person who asks, and counts the result.
async fn around(State(shared): Ctx, request: Request, next: Next) -> Response {
    let mut request = unread::read_to_end(request);
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let mut routes = ROUTES.iter().chain(PAGES);
    let access = routes.find(|one| Some(one.path) == route.as_deref()).map(|one| one.access);
    let method = known_method(request.method()).to_owned();
    let uri = request.uri().clone();
    // Paths that do not exist are told apart only to those who may see.
    let mut answer = match (access, auth::actor(&shared, request.method(), request.headers())) {
        (Some(Access::Open), _) => next.run(request).await,
        (_, Ok(actor)) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        (Some(Access::Page), Err(_)) => Redirect::to(LOGIN).into_response(),
        (_, Err(problem)) => problem.into_response(),
    };
    if let Some(leader) = answer.extensions_mut().remove() {
        point_to(&leader, &uri, &mut answer);
    }
    let code = answer.status().as_u16();
    let route = route.unwrap_or_else(|| "none".into());
    shared.metrics.requests.get_or_create(&Asked { method, route, code }).inc();
    answer
}

/// A method as it is counted: a client may write any word.
fn known_method(method: &Method) -> &str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    if known.contains(method) { method.as_str() } else { "other" }
}

/// Of an answer that sends the client away: the address of the leader that it names.
#[derive(Clone)]
pub(crate) struct SentTo(String);

impl Problem {
    /// The leader that it names.
    pub(crate) fn sent_to(&self) -> Option<SentTo> {
        let leader = self.more.get("leader").filter(|_| self.status == 307)?;
        Some(SentTo(leader.as_str()?.into()))
    }
}

/// Where the same request is done. The answer alone says which leader: another one may lead by now.
fn point_to(leader: &SentTo, uri: &Uri, answer: &mut Response) {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if let Ok(place) = format!("{}{path}", leader.0).parse() {
        answer.headers_mut().insert(header::LOCATION, place);
    }
}

async fn no_such_path(request: Request) -> Problem {
    let detail = format!("there is nothing at {}: see /openapi.json", request.uri().path());
    Problem::new(404, "NoSuchPath", "path", detail)
}

async fn no_such_method(request: Request) -> Problem {
    let path = request.uri().path();
    let detail = format!("{} is not for {path}: see /openapi.json", request.method());
    Problem::new(405, "NoSuchMethod", "method", detail)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).expect("statuses are ours");
        let mut answer = json(status, self.body().to_string());
        if let Some(leader) = self.sent_to() {
            answer.extensions_mut().insert(leader);
        }
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status {
            401 => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            429 | 503 | 507 => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        answer
    }
}

/// An answer of JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, kind, body.into()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_sent_to_the_leader_that_the_refusal_names() {
        let sent = Problem::new(307, "NotLeader", "request", "").with("leader", "https://b:7443");
        let mut answer = sent.into_response();
        let leader = answer.extensions_mut().remove().expect("it names one");
        point_to(&leader, &Uri::from_static("/api/v1/vms?dryRun=true"), &mut answer);
        assert_eq!(answer.headers()[header::LOCATION], "https://b:7443/api/v1/vms?dryRun=true");
    }
}
