//! Tables of flow sizes that scenarios name.

use crate::{Target, by_hand};
use std::sync::Arc;
use weir_model::scenario::{Cdf, Sizes};

/// A table gives sizes that grow with the share, or an error with the line and what would be right.
pub(crate) const TARGET: Target = Target {
    name: "cdf",
    run,
    reaches: crate::not_empty,
    words: &["0", "1", "0.5", "1e15", "1e-300", "inf", "NaN", "-0", "#", "\n", "\n1e15 1\n", " "],
    seeds: by_hand,
};

/// The largest flow that a table may name.
const MOST: u64 = 1_000_000_000_000_000;

fn run(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match Cdf::parse(text) {
        Ok(table) => {
            let sizes = Sizes::Table(Arc::new(table), 1.0);
            let mut last = 0;
            for share in 0..=64 {
                let size = sizes.at(f64::from(share) / 64.0).get();
                assert!((1..=MOST).contains(&size), "a flow of {size} octets");
                assert!(size >= last, "{size} after {last}");
                last = size;
            }
            let mean = sizes.mean().get();
            // A sum of thousands of products is off by a little.
            let most = last + last / 1_000_000_000 + 1;
            assert!((1..=most).contains(&mean), "{mean} is no mean of sizes up to {last}");
        }
        Err((line, what, help)) => {
            assert!(line as usize <= text.lines().count(), "line {line} of a shorter text");
            assert!(!what.is_empty() && !help.is_empty());
            assert!(what.len() <= text.len() + 2000, "{what}");
        }
    }
}
