//! The parameters of a request, each with its bounds.

use crate::problem::Problem;
use crate::state::Idempotency;
use crate::tokens::hash;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

/// Items of a page, if the request does not say.
const LIMIT_USUAL: usize = 1000;
const LIMIT_MOST: usize = 10_000;

/// Parameters after `?`. A name that the route does not know is a mistake.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read: Result<Query<Vec<(String, String)>>, QueryRejection> =
            Query::from_request_parts(parts, state).await;
        let Query(params) = read.map_err(|error| bad("query", error.body_text()))?;
        for (n, (name, _)) in params.iter().enumerate() {
            if params[..n].iter().any(|(other, _)| other == name) {
                return Err(bad(format!("query.{name}"), "it is given twice"));
            }
        }
        Ok(Self(params))
    }
}

fn bad(field: impl Into<String>, detail: impl Into<String>) -> Problem {
    Problem::new(400, "BadParameter", field, detail)
}

impl Params {
    /// Refuses all other names.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let list = if known.is_empty() { "none".into() } else { known.join(", ") };
                Err(bad(format!("query.{name}"), format!("not known here; known: {list}")))
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let number = |text: &str| {
            text.parse().map_err(|_| {
                bad(format!("query.{name}"), format!("`{text}` is not a whole number"))
            })
        };
        self.get(name).map(number).transpose()
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some(other) => {
                Err(bad(format!("query.{name}"), format!("`{other}`: write true or false")))
            }
        }
    }

    /// `limit`.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        match self.number("limit")? {
            None => Ok(LIMIT_USUAL),
            Some(0) => Err(bad("query.limit", "0: write 1 to 10000")),
            Some(limit) => Ok(usize::try_from(limit).unwrap_or(LIMIT_MOST).min(LIMIT_MOST)),
        }
    }

    /// `dryRun=All`.
    pub(crate) fn dry_run(&self) -> Result<bool, Problem> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                Err(bad("query.dryRun", format!("`{other}`: write All, or leave it out")))
            }
        }
    }
}

/// Place in a list after which the next page begins: the version of the first page and the last name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Continue {
    pub(crate) revision: u64,
    pub(crate) after: String,
}

impl Continue {
    /// As a word for URLs.
    pub(crate) fn word(&self) -> String {
        format!("{}.{}", self.revision, self.after)
    }

    pub(crate) fn read(word: &str) -> Result<Self, Problem> {
        let parts = word.split_once('.').filter(|(_, after)| !after.is_empty());
        let read = parts.and_then(|(revision, after)| {
            Some(Self { revision: revision.parse().ok()?, after: after.into() })
        });
        read.ok_or_else(|| {
            bad(
                "query.continue",
                "not a word of ours: send what the page before had in metadata.continue",
            )
        })
    }
}

/// The version that `If-Match` names, and whether `If-None-Match: *` asks for a new object.
pub(crate) fn preconditions(headers: &HeaderMap) -> Result<(Option<u64>, bool), Problem> {
    let wrong = |field: &str, detail: &str| Problem::new(400, "BadHeader", field, detail);
    let seen = match headers.get(header::IF_MATCH) {
        None => None,
        Some(value) => {
            let text = value.to_str().unwrap_or_default().trim();
            let number = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let number = number.and_then(|text| text.parse().ok());
            Some(number.ok_or_else(|| {
                wrong("If-Match", "write one version as the ETag of an answer has it: \"17\"")
            })?)
        }
    };
    let new = match headers.get(header::IF_NONE_MATCH).map(|value| value.as_bytes()) {
        None => false,
        Some(b"*") => true,
        Some(_) => return Err(wrong("If-None-Match", "only `*` is known: the object must be new")),
    };
    Ok((seen, new))
}

/// The key under which a request is done once.
pub(crate) fn idempotency(
    headers: &HeaderMap,
    request: &str,
    body: &[u8],
) -> Result<Option<Idempotency>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().unwrap_or_default().trim();
    if key.is_empty() || key.len() > 255 {
        let detail = "write 1 to 255 visible characters, a new key for each request";
        return Err(Problem::new(400, "BadHeader", "Idempotency-Key", detail));
    }
    let whole = format!("{request}\n{}", String::from_utf8_lossy(body));
    Ok(Some(Idempotency { key: key.into(), fingerprint: hash(&whole) }))
}
