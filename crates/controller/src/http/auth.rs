//! From a request's token to who asks.

use super::Shared;
use crate::problem::Problem;
use crate::state::Actor;
use crate::tokens::hash;
use crate::ui;
use axum::http::{HeaderMap, Method, header};

fn refuse(detail: &str) -> Problem {
    Problem::new(401, "Unauthorized", "Authorization", detail)
}

/// Who asks. A cookie, which browsers send by themselves, is enough for reading only.
pub(crate) fn actor(
    shared: &Shared,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Actor, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let secret =
            ui::secret(headers).filter(|_| method == Method::GET || method == Method::HEAD);
        let secret = secret.ok_or_else(|| {
            refuse("no token: send `Authorization: Bearer TOKEN`; an operator makes one with `weir token create`")
        })?;
        return actor_of_token(shared, secret);
    };
    let bearer = value.to_str().ok().and_then(|text| {
        let (scheme, secret) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    let secret = bearer.ok_or_else(|| refuse("write `Authorization: Bearer TOKEN`"))?;
    actor_of_token(shared, secret)
}

/// Whose token it is.
pub(crate) fn actor_of_token(shared: &Shared, secret: &str) -> Result<Actor, Problem> {
    let token = shared.view.token(&hash(secret)).ok_or_else(|| {
        refuse("this token is not known: it was deleted, or belongs to another controller")
    })?;
    match token.expires {
        Some(at) if at <= shared.clock.now() => {
            Err(refuse(&format!("this token expired at {at}: ask an operator for a new one")))
        }
        _ => Ok(token.actor()),
    }
}
