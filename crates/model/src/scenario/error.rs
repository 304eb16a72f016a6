//! What is wrong with a scenario file, where, and what would be right.
//!
//! Problem   "invalid value" sends people to the source code.
//! Approach  One struct with the facts. The caller that shows it decides on colours and source
//!           lines.
//! Promises  A slip of the pen is recognised: unknown names come with the nearest known one.

use std::fmt;

/// One thing that is wrong with a scenario file.
///
/// Shown as `FILE:LINE:COLUMN: FIELD: MESSAGE`, then a line of help if there is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file as it was named by the caller.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// The field's path, as `--set` takes it after `spec.`: `spec.tenants.y.vms.y-src.floor`.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What would be right; may be empty.
    pub help: String,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file; both count from 1.
    File {
        /// Line.
        line: u32,
        /// Column, in characters.
        column: u32,
    },
    /// On the command line: `KEY=VALUE` of `--set`.
    Set(String),
    /// The file as a whole.
    Whole,
}

impl Error {
    pub(crate) fn new(
        place: &Place,
        field: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            file: String::new(),
            place: place.clone(),
            field: field.into(),
            message: message.into(),
            help: help.into(),
        }
    }

    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.file = file.into();
        self
    }

    /// The line in the file, from 1; 0 if the value came from the command line or the file is
    /// unreadable.
    pub fn line(&self) -> u32 {
        match self.place {
            Place::File { line, .. } => line,
            _ => 0,
        }
    }

    /// The column in the line, from 1; 0 where there is no line.
    pub fn column(&self) -> u32 {
        match self.place {
            Place::File { column, .. } => column,
            _ => 0,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { line, column } => write!(f, "{}:{line}:{column}: ", self.file)?,
            Place::Set(assignment) => write!(f, "{}: --set {assignment}: ", self.file)?,
            Place::Whole => write!(f, "{}: ", self.file)?,
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if !self.help.is_empty() {
            write!(f, "\n  help: {}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// "did you mean `x`?" if something known is near, and the list of what is known.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    // `left-3` is no slip for `left-0`, nor is `z` for `a`.
    let stem = |text: &'_ str| text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let same_stem = |k: &str| stem(word) < word.len() && k.get(..stem(k)) == word.get(..stem(word));
    let near = known
        .iter()
        .filter(|k| !same_stem(k))
        .map(|k| (strsim::damerau_levenshtein(word, k), *k))
        .filter(|(distance, k)| *distance <= (k.len() / 3).max(1) && *distance < k.len())
        .min();
    let list = listed(&known);
    match near {
        Some((_, k)) => format!("did you mean `{k}`? Known here: {list}"),
        None if known.is_empty() => "nothing is known here".into(),
        None => format!("known here: {list}"),
    }
}

/// At most a hundred names, so that one error stays one screen.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 100;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += &format!(", and {} more", names.len() - MOST);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_named_and_a_far_one_is_not() {
        assert_eq!(
            did_you_mean("durration", ["duration", "warmup"]),
            "did you mean `duration`? Known here: duration, warmup"
        );
        assert_eq!(did_you_mean("colour", ["duration"]), "known here: duration");
        assert_eq!(did_you_mean("left-9", ["left-0"]), "known here: left-0");
        assert_eq!(did_you_mean("z", ["x", "y"]), "known here: x, y");
    }

    #[test]
    fn an_error_is_shown_with_file_line_column_and_field() {
        let place = Place::File { line: 3, column: 7 };
        let error = Error::new(&place, "spec.scale", "is zero", "write 1").in_file("a.yaml");
        assert_eq!(error.to_string(), "a.yaml:3:7: spec.scale: is zero\n  help: write 1");
        let set = Error::new(&Place::Set("scale=0".into()), "spec.scale", "is zero", "");
        assert_eq!(set.in_file("a.yaml").to_string(), "a.yaml: --set scale=0: spec.scale: is zero");
    }
}
