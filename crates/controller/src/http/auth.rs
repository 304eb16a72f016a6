//! From a request's token to who asks.

use super::Shared;
use crate::problem::Problem;
use crate::state::Actor;
use crate::tokens::hash;
use axum::http::{HeaderMap, header};

/// Who asks.
pub(crate) fn actor(shared: &Shared, headers: &HeaderMap) -> Result<Actor, Problem> {
    let refuse = |detail: &str| Problem::new(401, "Unauthorized", "Authorization", detail);
    let value = headers.get(header::AUTHORIZATION).ok_or_else(|| {
        refuse("no token: send `Authorization: Bearer TOKEN`; an operator makes one with `weir token create`")
    })?;
    let bearer = value.to_str().ok().and_then(|text| {
        let (scheme, secret) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    let secret = bearer.ok_or_else(|| refuse("write `Authorization: Bearer TOKEN`"))?;
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
