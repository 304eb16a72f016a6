//! CONFIG_DB as tables of rows, and the difference of two of them.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields of a row. All values are text.
pub type Row = BTreeMap<String, String>;

/// Tables by name, rows by key. A key of several parts has `|` between them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tables(pub BTreeMap<String, BTreeMap<String, Row>>);

/// One change of a row. A row without fields is removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The table.
    pub table: &'static str,
    /// The row's key.
    pub key: String,
    /// Fields that are set.
    pub set: Row,
    /// Fields that are removed.
    pub clear: BTreeSet<String>,
    /// Whether the whole row is removed.
    pub removes_row: bool,
}

impl Tables {
    /// A field of a row.
    pub fn get(&self, table: &str, key: &str, field: &str) -> Option<&str> {
        self.row(table, key)?.get(field).map(String::as_str)
    }

    /// A row.
    pub fn row(&self, table: &str, key: &str) -> Option<&Row> {
        self.0.get(table)?.get(key)
    }

    /// The rows of a table.
    pub fn rows<'a>(&'a self, table: &str) -> impl Iterator<Item = (&'a str, &'a Row)> + use<'a> {
        self.0.get(table).into_iter().flatten().map(|(key, row)| (key.as_str(), row))
    }

    /// Sets a field; makes table and row.
    pub fn set(&mut self, table: &str, key: &str, field: &str, value: impl Into<String>) {
        let rows = self.0.entry(table.to_owned()).or_default();
        rows.entry(key.to_owned()).or_default().insert(field.to_owned(), value.into());
    }

    /// Removes a field, the row without fields, and the table without rows.
    pub fn clear(&mut self, table: &str, key: &str, field: &str) {
        if let Some(row) = self.0.get_mut(table).and_then(|rows| rows.get_mut(key)) {
            row.remove(field);
            if row.is_empty() {
                self.remove(table, key);
            }
        }
    }

    /// Removes a row, and the table without rows.
    pub fn remove(&mut self, table: &str, key: &str) {
        if let Some(rows) = self.0.get_mut(table) {
            rows.remove(key);
            if rows.is_empty() {
                self.0.remove(table);
            }
        }
    }

    /// Replaces a row.
    pub fn put(&mut self, table: &str, key: &str, row: Row) {
        self.0.entry(table.to_owned()).or_default().insert(key.to_owned(), row);
    }

    /// As `config_db.json` has them.
    pub fn to_json(&self) -> Value {
        json!(self.0)
    }

    /// From `config_db.json`. Lists of values, which only other tables have, are joined by `,`.
    ///
    /// Error: what is no table of rows.
    pub fn from_json(value: &Value) -> Result<Self, String> {
        let object = |value: &Value, what: &str| -> Result<Map<String, Value>, String> {
            value.as_object().cloned().ok_or_else(|| format!("{what} is no object"))
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Array(all) => {
                let all = all.iter().map(|v| v.as_str().unwrap_or_default().to_owned());
                all.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        let mut tables = Self::default();
        for (table, rows) in object(value, "the file")? {
            for (key, row) in object(&rows, &table)? {
                let row = object(&row, &key)?.iter().map(|(f, v)| (f.clone(), text(v))).collect();
                tables.put(&table, &key, row);
            }
        }
        Ok(tables)
    }
}

/// The writes of one table that make `before` into `after`: rows that are set first, or rows that are
/// removed first.
pub(super) fn writes(
    before: &Tables,
    after: &Tables,
    table: &'static str,
    removes: bool,
) -> Vec<Write> {
    let empty = Row::new();
    let mut keys: BTreeSet<&str> = before.rows(table).map(|(key, _)| key).collect();
    keys.extend(after.rows(table).map(|(key, _)| key));
    let write = |key: &str| {
        let is_gone = after.row(table, key).is_none();
        let old = before.row(table, key).unwrap_or(&empty);
        let new = after.row(table, key).unwrap_or(&empty);
        let set = new.iter().filter(|(field, value)| old.get(*field) != Some(value));
        let set = set.map(|(field, value)| (field.clone(), value.clone())).collect();
        let clear = old.keys().filter(|field| !new.contains_key(*field)).cloned().collect();
        Write { table, key: key.to_owned(), set, clear, removes_row: is_gone }
    };
    let is_change = |write: &Write| !write.set.is_empty() || !write.clear.is_empty();
    let all = keys.into_iter().map(write).filter(is_change);
    all.filter(|write| write.removes_row == removes).collect()
}

/// Fields that SONiC's YANG models call create-only: they change only with their whole row.
const CREATE_ONLY: [(&str, &[&str]); 1] =
    [("SCHEDULER", &["type", "weight", "meter_type", "cir", "pir", "cbs", "pbs"])];

/// Writes as a JSON patch (RFC 6902) for `config apply-patch`, from `before` on. Tables do not become
/// empty: the last row is removed with its table.
pub(super) fn patch(before: &Tables, all: &[Write]) -> Vec<Value> {
    let mut now = before.clone();
    let mut patch = Vec::new();
    for write in all {
        let Write { table, key, .. } = write;
        let (at_table, at_row) = (path(&[table]), path(&[table, key]));
        let had_row = now.row(table, key).cloned();
        apply(&mut now, write);
        let row = now.row(table, key);
        let Some(row) = row else {
            let is_table = !now.0.contains_key(*table);
            patch.push(json!({"op": "remove", "path": if is_table { at_table } else { at_row }}));
            continue;
        };
        let Some(had) = had_row else {
            let is_table = now.rows(table).count() == 1;
            patch.push(if is_table {
                json!({"op": "add", "path": at_table, "value": {key: row}})
            } else {
                json!({"op": "add", "path": at_row, "value": row})
            });
            continue;
        };
        let fixed = CREATE_ONLY.iter().find(|(name, _)| name == table).map_or(&[][..], |(_, f)| f);
        let is_fixed = |field: &String| fixed.contains(&field.as_str());
        if write.set.keys().chain(&write.clear).any(is_fixed) {
            patch.push(json!({"op": "remove", "path": at_row}));
            patch.push(json!({"op": "add", "path": at_row, "value": row}));
            continue;
        }
        for (field, value) in &write.set {
            let op = if had.contains_key(field) { "replace" } else { "add" };
            patch.push(json!({"op": op, "path": path(&[table, key, field]), "value": value}));
        }
        for field in &write.clear {
            patch.push(json!({"op": "remove", "path": path(&[table, key, field])}));
        }
    }
    patch
}

/// Makes one write.
pub(super) fn apply(tables: &mut Tables, write: &Write) {
    if write.removes_row {
        tables.remove(write.table, &write.key);
        return;
    }
    for (field, value) in &write.set {
        tables.set(write.table, &write.key, field, value.clone());
    }
    for field in &write.clear {
        tables.clear(write.table, &write.key, field);
    }
}

/// A JSON pointer (RFC 6901).
fn path(parts: &[&str]) -> String {
    let escaped = parts.iter().map(|part| part.replace('~', "~0").replace('/', "~1"));
    escaped.fold(String::new(), |path, part| path + "/" + &part)
}
