//! The dashboard: pages of HTML that the controller makes itself.
//!
//! Problem   An operator wants to see which floors hold, and what is wrong, without installing anything.
//! Approach  Each page is made whole by the server. A small script asks for those parts of it that are due (`?only=`), and
//!           puts those in that changed; charts ask the API. The person is known by a cookie with a token of the API, which is read
//!           for reading only: what changes something needs the header that a foreign page cannot set.
//! Promises  Without scripts the pages show the same, as of when they were loaded. Nothing comes from other servers. A
//!           page has a bounded number of rows, whatever the cloud has: `benches/dashboard.rs` measures the largest.
//! Not here  What is counted: see [`crate::accounts`].

mod heat;
mod network;
mod pages;
mod parts;

use crate::http::{Access, Ctx, Route, actor_of_token};
use crate::problem::Problem;
use crate::state::{Actor, Role};
use axum::extract::{Form, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;

/// Name of the cookie.
const COOKIE: &str = "weir_token";
/// Pages, scripts and styles come from here alone.
const POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The page where a token is asked for.
pub(crate) const LOGIN: &str = "/ui/login";

/// All pages.
pub(crate) const PAGES: &[Route] = &[
    Route::new("/ui/login", Access::Open, || get(login).post(log_in)),
    Route::new("/ui/logout", Access::Open, || get(log_out)),
    Route::new("/ui/assets/{name}", Access::Open, || get(asset)),
    Route::new("/", Access::Open, || get(|| async { Redirect::to("/ui") })),
    Route::new("/ui", Access::Page, || get(pages::overview)),
    Route::new("/ui/tenants/{name}", Access::Page, || get(pages::tenant)),
    Route::new("/ui/vms/{name}", Access::Page, || get(pages::vm)),
    Route::new("/ui/network", Access::Page, || get(network::network)),
    Route::new("/ui/links/{name}", Access::Page, || get(network::link)),
    Route::new("/ui/queues", Access::Page, || get(network::queues)),
    Route::new("/ui/alerts", Access::Page, || get(pages::alerts)),
];

/// The files that pages name.
const ASSETS: [(&str, &str, &str); 5] = [
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("app.js", "text/javascript", include_str!("assets/app.js")),
    ("app.css", "text/css", include_str!("assets/app.css")),
    ("uplot.js", "text/javascript", include_str!("assets/uplot.js")),
    ("uplot.css", "text/css", include_str!("assets/uplot.css")),
];

async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => {
            // A newer controller may have other ones.
            let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "max-age=300")];
            (headers, *text).into_response()
        }
        None => {
            let detail = format!("there is no file {name}: load the page again");
            Problem::new(404, "NoSuchPath", "path", detail).into_response()
        }
    }
}

/// The secret of a request's cookie.
pub(crate) fn secret(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut each =
        cookies.flat_map(|line| line.split(';')).filter_map(|one| one.trim().split_once('='));
    each.find(|(name, _)| *name == COOKIE).map(|(_, secret)| secret)
}

/// An answer with a page, and what browsers may do with it.
fn page(status: StatusCode, markup: Markup) -> Response {
    let mut answer = (status, markup.into_string()).into_response();
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Weir" }
                link rel="icon" href="/ui/assets/icon.svg";
                link rel="stylesheet" href="/ui/assets/uplot.css";
                link rel="stylesheet" href="/ui/assets/app.css";
                script type="module" src="/ui/assets/app.js" {}
            }
            body { (body) }
        }
    }
}

/// A page for somebody who is logged in.
fn shell(actor: &Actor, title: &str, main: &Markup) -> Response {
    let links = [
        ("/ui", "Tenants"),
        ("/ui/network", "Network"),
        ("/ui/queues", "Queues"),
        ("/ui/alerts", "Alerts"),
    ];
    // Tenants see their own tenant.
    let shown = if actor.role == Role::Tenant { &links[..1] } else { &links[..] };
    let body = html! {
        header {
            a.skip href="#main" { "Skip to the content" }
            strong { "Weir" }
            nav aria-label="Pages" {
                @for (place, name) in shown { a href=(place) { (name) } }
            }
            span.who { (actor.name) " (" (actor.role.name()) ")" }
            a href="/ui/logout" { "Log out" }
        }
        p #lost role="status" hidden {}
        main #main {
            h1 { (title) }
            (main)
        }
    };
    page(StatusCode::OK, document(title, &body))
}

/// A page that says why there is none.
fn refused(actor: &Actor, problem: &Problem) -> Response {
    let main = html! { p { (problem.detail) } p { a href="/ui" { "To the tenants" } } };
    let mut answer = shell(actor, "Not found", &main);
    *answer.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::NOT_FOUND);
    if let Some(leader) = problem.sent_to() {
        answer.extensions_mut().insert(leader);
    }
    answer
}

async fn login() -> Response {
    login_page(StatusCode::OK, None)
}

fn login_page(status: StatusCode, wrong: Option<&str>) -> Response {
    let body = html! {
        main #main.login {
            h1 { "Weir" }
            form method="post" action=(LOGIN) {
                // Programs that keep passwords ask for a name.
                input type="text" name="username" autocomplete="username" value="token" hidden;
                label for="token" { "A token of the API" }
                input #token type="password" name="token" autocomplete="current-password" required autofocus;
                button { "Log in" }
            }
            @if let Some(wrong) = wrong { p.bad role="alert" { (wrong) } }
            p {
                "The first one is in " code { "client.toml" } ", which " code { "weir controller init" }
                " made. To look is enough: " code { "weir token create me --role viewer" } "."
            }
        }
    };
    page(status, document("Log in", &body))
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

async fn log_in(State(shared): Ctx, Form(login): Form<Login>) -> Response {
    let secret = login.token.trim();
    // What stands in a header must not end it.
    let is_word = !secret.is_empty()
        && secret.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_word || actor_of_token(&shared, secret).is_err() {
        let wrong =
            "This token is not known, or it expired. An operator makes one: weir token create.";
        return login_page(StatusCode::FORBIDDEN, Some(wrong));
    }
    let cookie =
        format!("{COOKIE}={secret}; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=604800");
    let mut answer = Redirect::to("/ui").into_response();
    answer.headers_mut().insert(header::SET_COOKIE, cookie.parse().expect("it was checked"));
    answer
}

async fn log_out() -> Response {
    let cookie = format!("{COOKIE}=; Path=/; HttpOnly; Secure; SameSite=Strict; Max-Age=0");
    let mut answer = Redirect::to(LOGIN).into_response();
    answer
        .headers_mut()
        .insert(header::SET_COOKIE, cookie.parse().expect("there is nothing odd in it"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::SentTo;

    #[test]
    fn a_page_that_only_the_leader_has_sends_the_browser_there() {
        let actor = Actor { name: "op".into(), role: Role::Operator, tenant: None };
        let sent = Problem::new(307, "NotLeader", "request", "").with("leader", "https://b:7443");
        assert!(refused(&actor, &sent).extensions().get::<SentTo>().is_some());
        let other = Problem::new(503, "NoLeader", "request", "");
        assert!(refused(&actor, &other).extensions().get::<SentTo>().is_none());
    }
}
