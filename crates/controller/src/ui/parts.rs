//! Parts of pages: what is asked for, numbers, cells, colours.

use crate::accounts::{COLUMN, Sum};
use crate::http::Params;
use crate::problem::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use maud::{Markup, html};
use serde::Serialize;
use weir_model::objects::{Object, Truth};
use weir_units::show;

/// What a request wants of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Sections with these ids and nothing else; none: the whole page.
    only: Option<Vec<String>>,
    /// Beginning of the half hour of which broken floors are asked for, ms.
    pub(super) at: Option<u64>,
}

impl<S: Send + Sync> FromRequestParts<S> for Wanted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = Params::from_request_parts(parts, state).await?;
        let only = params.get("only").map(|ids| ids.split(',').map(str::to_owned).collect());
        let at = params.number("at")?.map(|seconds| seconds.saturating_mul(1000) / COLUMN * COLUMN);
        Ok(Self { only, at })
    }
}

impl Wanted {
    /// Whether the whole page is asked for.
    pub(super) const fn whole(&self) -> bool {
        self.only.is_none()
    }

    /// A part of the page that the script asks for again. It is made only if it is asked for.
    pub(super) fn live(&self, id: &str, seconds: u32, content: impl FnOnce() -> Markup) -> Markup {
        let is_wanted = self.only.as_ref().is_none_or(|only| only.iter().any(|one| one == id));
        html! { @if is_wanted { section #(id) data-live=(seconds) { (content()) } } }
    }

    /// A chart of what VMs used. It goes on by itself.
    pub(super) fn chart(&self, title: &str, source: &str) -> Markup {
        html! { @if self.whole() { (chart(title, source)) } }
    }
}

fn chart(title: &str, source: &str) -> Markup {
    html! {
        figure.chart data-series=(source) {
            figcaption { (title) }
            div.plot role="img" aria-label=(title) {}
            noscript { p { "The chart needs scripts." } }
        }
    }
}

pub(super) fn rate(bps: u64) -> String {
    match bps {
        0 => "–".into(),
        bps => show::rate(bps as f64),
    }
}

/// The class of a colour for a part from 0 to 1: the floors that are promised are held in 0.999 of the time.
pub(super) fn colour(share: Option<f64>) -> &'static str {
    match share {
        None => "h-none",
        Some(share) if share >= 0.999 => "h-good",
        Some(share) if share >= 0.99 => "h-fair",
        Some(share) if share >= 0.9 => "h-poor",
        Some(_) => "h-bad",
    }
}

/// A part of a whole. What is not whole is not shown as whole.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", (share * 1e4).floor() / 1e2)
}

/// How many are not shown, and where they are.
pub(super) fn more(count: usize, shown: usize, command: &str) -> Markup {
    html! { @if count > shown { p { (count - shown) " more: " code { (command) } } } }
}

/// The part of the windows in which floors were held.
pub(super) fn held(sum: Sum) -> Markup {
    let text = sum.share().map_or_else(|| "not tested".into(), percent);
    html! { span class=(colour(sum.share())) title=(format!("{} of {} s", sum.held, sum.windows)) { (text) } }
}

/// Conditions of an object, the bad ones first.
pub(super) fn conditions(object: &Object) -> Markup {
    let mut all: Vec<_> = object.status.conditions.iter().collect();
    all.sort_by_key(|condition| condition.status != Truth::False);
    html! {
        table {
            caption { "Conditions" }
            thead { tr { th { "condition" } th { "holds" } th { "reason" } th { "since" } th { "says" } } }
            tbody {
                @for condition in all {
                    tr {
                        td { (condition.name) }
                        td class=(truth(condition.status)) { (word(condition.status)) }
                        td { (condition.reason) }
                        td { (condition.last_transition_time.to_string()) }
                        td { (condition.message) }
                    }
                }
            }
        }
    }
}

fn truth(status: Truth) -> &'static str {
    match status {
        Truth::True => "h-good",
        Truth::False => "h-bad",
        Truth::Unknown => "h-none",
    }
}

fn word(status: Truth) -> &'static str {
    match status {
        Truth::True => "yes",
        Truth::False => "no",
        Truth::Unknown => "unknown",
    }
}

/// The first condition that does not hold.
pub(super) fn state(object: &Object) -> Markup {
    let bad = object.status.conditions.iter().find(|condition| condition.status == Truth::False);
    html! {
        @match bad {
            None => span.h-good { "as it should be" },
            Some(bad) => span.h-bad title=(bad.message) { (bad.reason) },
        }
    }
}

/// A word of JSON, for names of lists.
pub(super) fn plain(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
