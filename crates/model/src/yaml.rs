//! How much a YAML text may make of itself.
//!
//! Problem   A parser's usual bound of 250,000 nodes is for configurations. A soak of 8 h and the directory of
//!           a datacenter have more.
//! Approach  What is written out may be as long as the text. What aliases repeat stays bounded as usual.

use serde_saphyr::Budget;

/// The bounds for `text`: at least the usual ones.
pub fn budget(text: &str) -> Budget {
    let mut budget = Budget::default();
    // Each node takes an octet or more, and begins and ends at most once.
    budget.max_nodes = budget.max_nodes.max(text.len());
    budget.max_events = budget.max_events.max(2 * text.len());
    budget.max_total_scalar_bytes = budget.max_total_scalar_bytes.max(text.len());
    budget
}

#[cfg(test)]
mod tests {
    use crate::agent::parse_directory;
    use std::fmt::Write;

    #[test]
    fn the_directory_of_a_datacenter_is_read() {
        let mut text = "hosts:\n  - {name: a, control: '10.1.0.1:7001'}\nvms:\n".to_owned();
        for n in 0..60_000 {
            let (high, low) = (n / 250, n % 250 + 1);
            let place = format!("10.{}.{}.{low}", 2 + high / 250, high % 250);
            writeln!(text, "  - {{name: v{n}, tenant: t, host: a, addresses: [{place}]}}")
                .expect("text");
        }
        assert_eq!(parse_directory(&text).expect("it is long").vms.len(), 60_000);
    }

    #[test]
    fn what_aliases_repeat_stays_bounded() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..9 {
            let list = vec![format!("*a{}", n - 1); 10].join(", ");
            writeln!(text, "a{n}: &a{n} [{list}]").expect("text");
        }
        let options = serde_saphyr::options! { budget: Some(super::budget(&text)) };
        let read = serde_saphyr::from_str_with_options::<serde_json::Value>(&text, options);
        assert!(read.is_err(), "ten to the ninth");
    }
}
