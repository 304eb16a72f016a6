//! Why a request is refused: one type, for people and programs (RFC 9457).

use serde_json::{Map, Value, json};
use weir_model::objects::FieldError;

/// A refusal. Every one names a field of the request and a reason.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// Status of HTTP.
    pub status: u16,
    /// One word for programs: `LinkFull`.
    pub reason: &'static str,
    /// The part of the request that is to blame: `spec.floor.out`, `If-Match`, `query.limit`.
    pub field: String,
    /// A sentence for people: what is wrong and what to do.
    pub detail: String,
    /// Facts for programs, beside these.
    pub more: Map<String, Value>,
}

impl Problem {
    /// A problem without further facts.
    pub fn new(
        status: u16,
        reason: &'static str,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { status, reason, field: field.into(), detail: detail.into(), more: Map::new() }
    }

    /// The same problem with one more fact.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.into(), value.into());
        self
    }

    /// The body of the answer, `application/problem+json`.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "type": format!("urn:weir:problem:{}", self.reason),
            "title": title(self.status),
            "status": self.status,
            "detail": self.detail,
            "reason": self.reason,
            "field": self.field,
        });
        for (key, value) in &self.more {
            body[key] = value.clone();
        }
        body
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::new(422, "Invalid", error.field, error.reason)
    }
}

/// What a status means, in words of HTTP.
pub(crate) const fn title(status: u16) -> &'static str {
    match status {
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        _ => "Error",
    }
}
