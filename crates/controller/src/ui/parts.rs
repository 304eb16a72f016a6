//! Parts of pages: numbers, cells, colours.

use crate::accounts::Sum;
use maud::{Markup, html};
use serde::Serialize;
use weir_model::objects::{Object, Truth};
use weir_units::show;

/// The part of a page that the script asks for again.
pub(super) fn live(id: &str, seconds: u32, content: &Markup) -> Markup {
    html! { section #(id) data-live=(seconds) { (content) } }
}

/// A chart of what VMs used.
pub(super) fn chart(title: &str, source: &str) -> Markup {
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

/// The part of the windows in which floors were held.
pub(super) fn held(sum: Sum) -> Markup {
    let text = match sum.share() {
        None => "not tested".into(),
        // What is not whole is not shown as whole.
        Some(share) => format!("{:.2} %", (share * 1e4).floor() / 1e2),
    };
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
