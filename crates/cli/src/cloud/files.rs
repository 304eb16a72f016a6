//! Files with objects: one or more documents of YAML or JSON, or lists of objects.

use crate::input;
use anyhow::{Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weir_model::objects::{FieldError, read};
use weir_model::whereabouts::line_in_yaml;

/// One object and where it stands.
pub(crate) struct Found {
    pub(crate) object: Value,
    file: PathBuf,
    /// The document that it is in, and how many lines are before it.
    text: String,
    before: usize,
    /// Path of the object in the document: empty, or `items[3].`.
    prefix: String,
}

impl Found {
    /// `FILE, line N: field: reason`.
    pub(crate) fn blame(&self, field: &str, reason: &str) -> String {
        let path = format!("{}{}", self.prefix, field.trim_start_matches('.'));
        let line = self.before + line_in_yaml(&self.text, &path).unwrap_or(1);
        format!("{}, line {line}: {field}: {reason}", self.file.display())
    }
}

/// All objects of files, each checked for form.
///
/// # Errors
/// The file, the line, the field and the reason of the first mistake.
pub(crate) fn objects(files: &[PathBuf]) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for file in files {
        let text = input::read(file)?;
        for (before, document) in documents(&text) {
            take(file, before, document, &mut all)?;
        }
    }
    if all.is_empty() {
        bail!("there is no object in the files");
    }
    for found in &all {
        if let Err(FieldError { field, reason }) = read(found.object.clone()) {
            bail!("{}", found.blame(&field, &reason));
        }
    }
    Ok(all)
}

/// Documents with the number of lines before each.
fn documents(text: &str) -> Vec<(usize, String)> {
    let (mut all, mut document, mut before) = (Vec::new(), String::new(), 0);
    for (n, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            all.push((before, std::mem::take(&mut document)));
            before = n + 1;
        } else {
            document.push_str(line);
            document.push('\n');
        }
    }
    all.push((before, document));
    let says = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    all.retain(|(_, document)| document.lines().any(says));
    all
}

fn take(file: &Path, before: usize, text: String, all: &mut Vec<Found>) -> Result<()> {
    let value: Value = match serde_saphyr::from_str(&text) {
        Ok(value) => value,
        Err(error) => {
            bail!("{}, in the document that begins at line {}: {error}", file.display(), before + 1)
        }
    };
    let found = |object: Value, prefix: String| Found {
        object,
        file: file.into(),
        text: text.clone(),
        before,
        prefix,
    };
    match value.get("items").and_then(Value::as_array) {
        Some(items) => {
            let each = items.iter().cloned().enumerate();
            all.extend(each.map(|(n, item)| found(item, format!("items[{n}]."))));
        }
        None => all.push(found(value, String::new())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_know_how_many_lines_are_before_them() {
        let text = "# only words\n---\na: 1\n---\n\nb: 2\n";
        let found = documents(text);
        assert_eq!(found, [(2, "a: 1\n".into()), (4, "\nb: 2\n".into())]);
    }
}
