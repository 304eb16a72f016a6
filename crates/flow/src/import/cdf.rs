//! Tables of flow sizes with percent, as HPCC and its relatives write them.

use super::ImportError;
use super::text::{Lines, real};
use weir_model::scenario::Cdf;

/// Reads `size percentile` lines, ascending, the last percentile 100 (or 1, as in our own tables).
/// `file` is its name in errors.
///
/// # Errors
/// The first line that is wrong.
pub fn cdf(file: &str, text: &str) -> Result<Cdf, ImportError> {
    let mut lines = Lines::new(file, text);
    let mut rows: Vec<(u32, f64, f64)> = Vec::new();
    while let Some(line) = lines.next() {
        let row = match line.words[..] {
            [size, share] => real(size, "size", 1e15)
                .and_then(|size| Ok((line.number, size, real(share, "percentile", 100.0)?))),
            _ => Err("write `size percentile`".into()),
        };
        rows.push(lines.at(line.number, row)?);
    }
    let percent = rows.last().is_some_and(|(.., last)| *last == 100.0);
    let scale = if percent { 100.0 } else { 1.0 };
    // Each row on its own line of the file, so that what is wrong with it has the file's line.
    let (mut ours, mut at) = (String::new(), 1);
    for (line, size, share) in rows {
        ours.extend(std::iter::repeat_n('\n', (line - at) as usize));
        ours += &format!("{size} {}", share / scale);
        at = line;
    }
    Cdf::parse(&ours).or_else(|(line, what, help)| lines.wrong_at(line, format!("{what}; {help}")))
}
