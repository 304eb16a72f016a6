//! Checks, before anything is played, whether there is enough memory.
//!
//! Promises  What surely does not fit is refused; what may not fit is warned of. Where the kernel
//!           does not say how much there is, nothing is said.

use crate::output::errln;
use anyhow::{Result, bail};
use std::path::Path;

/// Memory that a run takes, in octets.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// In any case.
    pub(super) least: u64,
    /// If everything is full.
    pub(super) most: u64,
}

/// Refuses what needs more memory than there is.
///
/// # Errors
/// It does not fit.
pub(super) fn check(file: &Path, need: Need, instead: &str) -> Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(available) = available(&text) else { return Ok(()) };
    let file = file.display();
    if need.least > available {
        let (least, available) = (amount(need.least), amount(available));
        bail!("{file}: needs at least {least} of memory, and {available} are available: {instead}");
    }
    if need.most > available {
        let (most, available) = (amount(need.most), amount(available));
        errln!(
            "{file}: may need up to {most} of memory, and {available} are available; if it does, {instead}"
        );
    }
    Ok(())
}

/// Octets that `/proc/meminfo` calls available.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// For people, to two digits or more.
fn amount(octets: u64) -> String {
    match octets as f64 / 1e6 {
        mb if mb < 1.0 => "1 MB".into(),
        mb if mb < 1000.0 => format!("{mb:.0} MB"),
        mb => format!("{:.1} GB", mb / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let text = "MemTotal:       8000000 kB\nMemAvailable:    1234567 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(1_234_567 * 1024));
        assert_eq!(available("MemTotal: 5 kB\n"), None);
        assert_eq!(available("MemAvailable: many\n"), None);
    }

    #[test]
    fn what_surely_does_not_fit_is_refused_with_numbers() {
        let need = Need { least: u64::MAX / 2, most: u64::MAX };
        let text = check(Path::new("a.yaml"), need, "lower it").expect_err("too much").to_string();
        assert!(
            text.starts_with("a.yaml: needs at least 9223372036.9 GB of memory, and "),
            "{text}"
        );
        assert!(text.ends_with("available: lower it"), "{text}");
        assert!(
            check(Path::new("a.yaml"), Need { least: 1, most: u64::MAX }, "").is_ok(),
            "it may fit"
        );
    }
}
