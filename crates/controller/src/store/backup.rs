//! Backups: all records of one instant as lines of JSON, whatever the store.
//!
//! Approach  A first line with the schema, a line per record, a last line with their number and the
//!           SHA-256 of all lines before it. Text, so that it can be searched and compared.
//! Promises  A backup that was cut off or changed is refused before anything is written. A restore makes
//!           a new store, and never writes into one that exists.
//! Not here  Keys: a backup has the hashes of tokens, not tokens, and no certificate.

use super::redb::RedbStore;
use super::{SCHEMA, Snapshot, Store, StoreError, Table, Write};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};
use std::path::Path;

/// Records that a restore writes at once.
const BATCH: usize = 1000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    weir_backup: u32,
    schema: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    table: &'a str,
    key: String,
    value: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    records: u64,
    sha256: String,
}

/// Why a backup cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It cannot be read.
    #[error("the backup cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is not what [`write`] writes.
    #[error("line {line} of the backup: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Its end is missing, or something was changed.
    #[error("the backup is incomplete or was changed: {0}; take another one")]
    Incomplete(String),
    /// It is of a newer Weir.
    #[error(
        "the backup has schema {found}, this program knows {SCHEMA}: use the version that wrote it"
    )]
    Newer {
        /// Its schema.
        found: u32,
    },
    /// There is a store.
    #[error("{0} exists: move it away first; a restore never writes into a store that exists")]
    Exists(String),
    /// It cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes all records of a snapshot.
///
/// # Errors
///
/// The store cannot be read, or `out` cannot be written.
pub fn write(snapshot: &dyn Snapshot, out: &mut dyn io::Write) -> io::Result<()> {
    let mut hash = Context::new(&SHA256);
    let mut line = |out: &mut dyn io::Write, text: String| {
        hash.update(text.as_bytes());
        hash.update(b"\n");
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")
    };
    line(out, serde_json::to_string(&Head { weir_backup: 1, schema: SCHEMA })?)?;
    let mut records = 0;
    for table in Table::ALL {
        let mut failed: io::Result<()> = Ok(());
        let mut each = |key: &str, value: &[u8]| {
            let text = serde_json::from_slice(value).and_then(|value| {
                serde_json::to_string(&Line { table: table.name(), key: key.into(), value })
            });
            records += 1;
            failed = text.map_err(io::Error::from).and_then(|text| line(out, text));
            failed.is_ok()
        };
        snapshot.scan(table, "", &mut each).map_err(io::Error::other)?;
        failed?;
    }
    let tail = Tail { records, sha256: hex(hash.finish().as_ref()) };
    out.write_all(serde_json::to_string(&tail)?.as_bytes())?;
    out.write_all(b"\n")
}

/// Makes a store at `path` from a backup. Returns the number of records.
///
/// # Errors
///
/// As [`RestoreError`] says. Nothing stays at `path`.
pub fn restore(backup: impl BufRead, path: &Path) -> Result<u64, RestoreError> {
    let writes = read(backup)?;
    if path.exists() {
        return Err(RestoreError::Exists(path.display().to_string()));
    }
    // The store appears at its place when it is whole.
    let half = path.with_extension("restoring");
    match std::fs::remove_file(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut store = RedbStore::open(&half)?;
    let records = restore_into(writes, &mut store)?;
    drop(store);
    std::fs::rename(&half, path)?;
    sync_folder_of(path)?;
    Ok(records)
}

/// Writes records into a store that has none. What makes a store of them, their schema, comes last.
/// Returns their number.
///
/// # Errors
///
/// The store cannot be written.
pub(crate) fn restore_into(
    mut records: Vec<Write>,
    store: &mut dyn Store,
) -> Result<u64, StoreError> {
    records.sort_by_key(|record| record.schema().is_some());
    for batch in records.chunks(BATCH) {
        store.commit(batch)?;
    }
    Ok(records.len() as u64)
}

/// Makes sure that a new name in a folder outlives a power cut.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => std::fs::File::open(".")?.sync_all(),
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// The records of a backup.
pub(crate) fn read(backup: impl BufRead) -> Result<Vec<Write>, RestoreError> {
    let mut hash = Context::new(&SHA256);
    let (mut writes, mut tail) = (Vec::new(), None);
    for (n, text) in backup.lines().enumerate() {
        let text = text?;
        let wrong = |what: String| RestoreError::Line { line: n + 1, what };
        if tail.is_some() {
            return Err(wrong("something follows the last line".into()));
        }
        if n == 0 {
            let head: Head = serde_json::from_str(&text)
                .map_err(|error| wrong(format!("this is no backup of a controller: {error}")))?;
            if head.schema > SCHEMA {
                return Err(RestoreError::Newer { found: head.schema });
            }
        } else if let Ok(end) = serde_json::from_str::<Tail>(&text) {
            tail = Some(end);
            continue;
        } else {
            let line: Line<'_> =
                serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            let table = Table::ALL.into_iter().find(|table| table.name() == line.table);
            let table = table.ok_or_else(|| wrong(format!("`{}` is no table", line.table)))?;
            let value = serde_json::to_vec(&line.value).expect("JSON is JSON");
            writes.push(Write::put(table, line.key, value));
        }
        hash.update(text.as_bytes());
        hash.update(b"\n");
    }
    let incomplete = |what: String| RestoreError::Incomplete(what);
    let tail = tail.ok_or_else(|| incomplete("the last line is missing".into()))?;
    if tail.records != writes.len() as u64 {
        let what = format!("{} records instead of {}", writes.len(), tail.records);
        return Err(incomplete(what));
    }
    if tail.sha256 != hex(hash.finish().as_ref()) {
        return Err(incomplete("its SHA-256 is another one".into()));
    }
    Ok(writes)
}

/// Octets as hexadecimal digits.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    fn backup() -> Vec<u8> {
        let mut store = RedbStore::open_on(InMemoryBackend::new).expect("an empty store");
        let batch = [
            Write::put(Table::Objects, "VM/a", r#"{"x":1}"#),
            Write::put(Table::Tokens, "00", "[]"),
        ];
        store.commit(&batch).expect("written");
        let mut out = Vec::new();
        write(&*store.snapshot().expect("open"), &mut out).expect("written");
        out
    }

    #[test]
    fn a_restored_store_gives_the_same_backup() {
        let folder = std::env::temp_dir().join(format!("weir-restore-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("store.redb");
        assert_eq!(restore(backup().as_slice(), &path).expect("restored"), 3);
        let mut again = Vec::new();
        let mut store = RedbStore::open(&path).expect("open");
        write(&*store.snapshot().expect("open"), &mut again).expect("written");
        assert_eq!(String::from_utf8(again), String::from_utf8(backup()));
        let error = restore(backup().as_slice(), &path).expect_err("there is one").to_string();
        assert!(error.contains("exists: move it away first"), "{error}");
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_backup_that_was_cut_off_or_changed_is_refused_before_anything_is_written() {
        let path = std::env::temp_dir().join(format!("weir-no-restore-{}", std::process::id()));
        let text = String::from_utf8(backup()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let newer = text.replace(&format!("\"schema\":{SCHEMA}"), "\"schema\":99");
        for (bad, reason) in [
            (lines[..lines.len() - 1].join("\n"), "the last line is missing"),
            (text.replace("\"x\":1", "\"x\":2"), "SHA-256"),
            ([lines[0], lines[1], lines[lines.len() - 1]].join("\n"), "1 records instead of 3"),
            (format!("{text}{}", lines[1]), "something follows"),
            (newer, "has schema 99"),
            ("hello".into(), "no backup of a controller"),
            (String::new(), "the last line is missing"),
        ] {
            let error = restore(bad.as_bytes(), &path).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!path.exists());
        }
    }
}
