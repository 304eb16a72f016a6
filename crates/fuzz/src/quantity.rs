//! Rates, sizes and spans as people write them.

use crate::{Target, by_hand};
use weir_model::text::{rate, show_rate, show_size, show_span, size, span};

/// What is read is shown and read back the same; what is not says what would be right.
pub(crate) const TARGET: Target = Target {
    name: "quantity",
    run,
    reaches: crate::not_empty,
    words: &["Mbit", "bit", "kB", "KiB", "Gi", "ms", "us", "µs", "min", ".", "Mbps", " "],
    seeds: by_hand,
};

fn run(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    let sound = |said: &str| {
        assert!(!said.is_empty() && said.len() <= 2 * text.len() + 200, "{said}");
    };
    match rate(text) {
        Ok(value) => assert_eq!(rate(&show_rate(value)), Ok(value)),
        Err(said) => sound(&said),
    }
    match size(text) {
        Ok(value) => assert_eq!(size(&show_size(value)), Ok(value)),
        Err(said) => sound(&said),
    }
    match span(text) {
        Ok(value) => assert_eq!(span(&show_span(value)), Ok(value)),
        Err(said) => sound(&said),
    }
}
