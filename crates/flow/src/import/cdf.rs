//! Tables of flow sizes, also with percent, as HPCC and its relatives write them.

use super::ImportError;
use weir_model::scenario::Cdf;

/// Reads `size share` lines, ascending, the last share 100 (or 1, as in our own tables). `file` is its
/// name in errors.
///
/// # Errors
/// The first line that is wrong.
pub fn cdf(file: &str, text: &str) -> Result<Cdf, ImportError> {
    Cdf::parse(text).map_err(|(line, what, help)| ImportError {
        file: file.into(),
        line,
        what: format!("{what}; {help}"),
    })
}
