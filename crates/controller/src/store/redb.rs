//! The store on one machine: a single file of redb.
//!
//! Approach  One table of redb per [`Table`], text to octets. A commit is one transaction that is synced.
//!           After an error of the disk redb refuses all further work, so the file is closed and opened
//!           again before the next commit.
//! Promises  As [`Store`]. A batch of which it is unknown whether it reached the disk is looked up by the
//!           number of the commit when the file is opened again.

use super::{SCHEMA, Snapshot, Store, StoreError, Table, UPGRADES, Upgrade, Write, prepare};
use redb::{
    CommitError, Database, DatabaseError, ReadableDatabase as _, StorageBackend, StorageError,
    TableDefinition, TableError, TransactionError,
};
use std::io;
use std::path::{Path, PathBuf};

/// Memory for pages of the file. Larger means fewer reads at a start; a running controller reads nothing.
const CACHE: usize = 32 << 20;

/// How the file is opened: again after an error.
type Opener = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// A store in one file.
pub struct RedbStore {
    path: String,
    open: Opener,
    /// None after an error, until the file was opened again.
    database: Option<Database>,
}

impl RedbStore {
    /// Opens the file, makes it if it is not there, and brings it to the schema of this program.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, is in use, is damaged, or is of a newer schema.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let name: PathBuf = path.into();
        let open = move || builder().create(&name);
        Self::with(path.display().to_string(), Box::new(open), SCHEMA, UPGRADES)
    }

    /// The same with another thing than a file below redb: for tests of crashes.
    ///
    /// # Errors
    ///
    /// As [`RedbStore::open`].
    pub fn open_on<B: StorageBackend>(
        mut backend: impl FnMut() -> B + Send + 'static,
    ) -> Result<Self, StoreError> {
        let open = move || builder().create_with_backend(backend());
        Self::with("the store".into(), Box::new(open), SCHEMA, UPGRADES)
    }

    fn with(
        path: String,
        open: Opener,
        known: u32,
        upgrades: &[Upgrade],
    ) -> Result<Self, StoreError> {
        let mut store = Self { path: path.clone(), open, database: None };
        prepare(&mut store, &path, known, upgrades)?;
        Ok(store)
    }

    fn database(&mut self) -> Result<&Database, StoreError> {
        if self.database.is_none() {
            let opened = (self.open)();
            self.database = Some(opened.map_err(|error| from_open(&self.path, error))?);
        }
        Ok(self.database.as_ref().expect("it was opened"))
    }

    fn write(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        let path = self.path.clone();
        let fail = |error: Trouble| error.into_error(&path);
        let transaction = self.database()?.begin_write().map_err(|e| fail(e.into()))?;
        // The usual durability is immediate: `commit` returns when the disk has it.
        for table in Table::ALL {
            let mut writes = batch.iter().filter(|write| write.table == table).peekable();
            if writes.peek().is_none() {
                continue;
            }
            let mut open = transaction.open_table(definition(table)).map_err(|e| fail(e.into()))?;
            for write in writes {
                let done = match &write.value {
                    Some(value) => open.insert(write.key.as_str(), value.as_slice()).map(drop),
                    None => open.remove(write.key.as_str()).map(drop),
                };
                done.map_err(|e| fail(e.into()))?;
            }
        }
        transaction.commit().map_err(|e| fail(e.into()))
    }
}

impl Store for RedbStore {
    fn commit(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        let written = self.write(batch);
        if written.is_err() {
            // redb does nothing more after an error of the disk.
            self.database = None;
        }
        written
    }

    fn snapshot(&mut self) -> Result<Box<dyn Snapshot>, StoreError> {
        let path = self.path.clone();
        let begun = self.database()?.begin_read();
        let transaction = begun.map_err(|e| Trouble::from(e).into_error(&path))?;
        Ok(Box::new(RedbSnapshot { path, transaction }))
    }
}

struct RedbSnapshot {
    path: String,
    transaction: redb::ReadTransaction,
}

impl Snapshot for RedbSnapshot {
    fn scan(
        &self,
        table: Table,
        from: &str,
        each: &mut dyn FnMut(&str, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let fail = |error: Trouble| error.into_error(&self.path);
        let open = match self.transaction.open_table(definition(table)) {
            // Nothing was ever written to it.
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            opened => opened.map_err(|e| fail(e.into()))?,
        };
        for record in open.range(from..).map_err(|e| fail(e.into()))? {
            let (key, value) = record.map_err(|e| fail(e.into()))?;
            if !each(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder
}

const fn definition(table: Table) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(table.name())
}

/// What redb says, by what can be done about it.
enum Trouble {
    Io(io::Error),
    Other(String),
}

impl Trouble {
    fn into_error(self, path: &str) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Io(error) if is_full(&error) => StoreError::Full { path },
            Self::Io(source) => StoreError::Io { path, source },
            Self::Other(what) => StoreError::Damaged { path, what },
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) => Self::Io(error),
            // Of a snapshot whose file was closed after an error.
            StorageError::PreviousIo | StorageError::DatabaseClosed => {
                Self::Io(io::Error::other("an earlier error of the disk"))
            }
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<TransactionError> for Trouble {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Storage(error) => error.into(),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<TableError> for Trouble {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(error) => error.into(),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<CommitError> for Trouble {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Storage(error) => error.into(),
            other => Self::Other(other.to_string()),
        }
    }
}

fn from_open(path: &str, error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.into() },
        DatabaseError::Storage(error) => Trouble::from(error).into_error(path),
        other => StoreError::Damaged { path: path.into(), what: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema_of;
    use super::*;
    use redb::backends::InMemoryBackend;
    use std::sync::{Arc, Mutex};

    /// Records of a table.
    fn all(store: &mut dyn Store, table: Table, from: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let snapshot = store.snapshot().expect("it is open");
        let mut take = |key: &str, value: &[u8]| {
            found.push((key.into(), String::from_utf8_lossy(value).into()));
            true
        };
        snapshot.scan(table, from, &mut take).expect("it can be read");
        found
    }

    fn opener(folder: &Path) -> Opener {
        let file = folder.join("store.redb");
        Box::new(move || builder().create(&file))
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    #[test]
    fn a_commit_is_read_back_in_the_order_of_keys_and_an_older_snapshot_stays() {
        let mut store = RedbStore::open_on(InMemoryBackend::new).expect("an empty store");
        let batch = [
            Write::put(Table::Objects, "b", "2"),
            Write::put(Table::Objects, "a", "1"),
            Write::put(Table::Audit, "a", "other table"),
        ];
        store.commit(&batch).expect("written");
        let before = store.snapshot().expect("open");
        store.commit(&[Write::delete(Table::Objects, "a")]).expect("written");
        let mut seen = 0;
        before
            .scan(Table::Objects, "", &mut |_, _| {
                seen += 1;
                true
            })
            .expect("read");
        assert_eq!(seen, 2, "what is deleted later is in the snapshot");
        assert_eq!(all(&mut store, Table::Objects, ""), [("b".into(), "2".into())]);
        assert_eq!(all(&mut store, Table::Audit, "b"), [], "from there on there is nothing");
    }

    #[test]
    fn a_store_of_a_newer_version_is_refused_and_says_what_to_do() {
        let folder = folder("newer");
        drop(RedbStore::with("f".into(), opener(&folder), 7, &[]).expect("of version 7"));
        let error = RedbStore::open(&folder.join("store.redb")).err().expect("refused").to_string();
        let what = format!("has schema 7, this program knows {SCHEMA}");
        assert!(error.contains(&what), "{error}");
        assert!(error.contains("restore a backup"), "{error}");
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn an_older_store_is_upgraded_step_by_step_and_once() {
        fn second(old: &dyn Snapshot) -> Result<Vec<Write>, StoreError> {
            let mut batch = Vec::new();
            old.scan(Table::Objects, "", &mut |key, value| {
                batch.push(Write::put(Table::Objects, key, [value, b"+2"].concat()));
                true
            })?;
            Ok(batch)
        }
        fn third(_: &dyn Snapshot) -> Result<Vec<Write>, StoreError> {
            Ok(vec![Write::put(Table::Tokens, "new", "table")])
        }
        let folder = folder("older");
        let mut store = RedbStore::with("f".into(), opener(&folder), 1, &[]).expect("version 1");
        store.commit(&[Write::put(Table::Objects, "a", "1")]).expect("written");
        drop(store);
        for _ in 0..2 {
            let upgrades: &[Upgrade] = &[second, third];
            let mut store = RedbStore::with("f".into(), opener(&folder), 3, upgrades).expect("v3");
            assert_eq!(all(&mut store, Table::Objects, ""), [("a".into(), "1+2".into())]);
            assert_eq!(all(&mut store, Table::Tokens, ""), [("new".into(), "table".into())]);
            let snapshot = store.snapshot().expect("open");
            assert_eq!(schema_of(&*snapshot, "f").expect("a number"), 3);
        }
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_store_of_schema_1_gets_numbers_of_hosts_and_vms_once() {
        let folder = folder("numbers");
        let objects = [
            ("Host/h1", r#"{"spec":{"slots":3}}"#),
            ("Host/h0", r#"{"spec":{},"status":{"vms":2}}"#),
            ("Tenant/gold", r#"{"spec":{}}"#),
            ("VM/a", r#"{"spec":{"tenant":"gold"},"status":{"host":"h0"}}"#),
        ];
        let mut store = RedbStore::with("f".into(), opener(&folder), 1, &[]).expect("version 1");
        let writes = objects.map(|(key, value)| Write::put(Table::Objects, key, value));
        store.commit(&writes).expect("written");
        drop(store);
        let wanted = [
            ("Host/h0", r#"{"spec":{},"status":{"number":0,"vms":2}}"#),
            ("Host/h1", r#"{"spec":{"slots":3},"status":{"number":1}}"#),
            ("Tenant/gold", r#"{"spec":{}}"#),
            ("VM/a", r#"{"spec":{"tenant":"gold"},"status":{"host":"h0","number":0}}"#),
        ];
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        let wanted = wanted.map(|(key, text)| (key.to_owned(), json(text)));
        for _ in 0..2 {
            let mut store = RedbStore::open(&folder.join("store.redb")).expect("it is upgraded");
            let found = all(&mut store, Table::Objects, "").into_iter();
            assert_eq!(found.map(|(key, text)| (key, json(&text))).collect::<Vec<_>>(), wanted);
            let snapshot = store.snapshot().expect("open");
            assert_eq!(schema_of(&*snapshot, "f").expect("a number"), SCHEMA);
        }
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn an_object_of_an_older_store_that_is_damaged_is_named_and_nothing_is_upgraded() {
        let folder = folder("damaged");
        let mut store = RedbStore::with("f".into(), opener(&folder), 1, &[]).expect("version 1");
        let writes = [("Host/h0", "{}"), ("VM/a", "{")];
        store.commit(&writes.map(|(k, v)| Write::put(Table::Objects, k, v))).expect("written");
        drop(store);
        let error = RedbStore::open(&folder.join("store.redb")).err().expect("refused");
        assert!(
            matches!(&error, StoreError::Damaged { what, .. } if what.starts_with("VM/a: ")),
            "{error}"
        );
        let mut store = RedbStore::with("f".into(), opener(&folder), 1, &[]).expect("version 1");
        assert_eq!(all(&mut store, Table::Objects, "")[0], ("Host/h0".into(), "{}".into()));
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_second_controller_cannot_open_the_store() {
        let folder = folder("twice");
        let _first = RedbStore::open(&folder.join("store.redb")).expect("the first");
        let error = RedbStore::open(&folder.join("store.redb")).err().expect("in use");
        assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        std::fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn after_an_error_of_the_disk_the_next_commit_opens_the_file_again() {
        /// A disk that can be full.
        #[derive(Debug, Clone)]
        struct Disk(Arc<InMemoryBackend>, Arc<Mutex<bool>>);
        impl StorageBackend for Disk {
            fn len(&self) -> io::Result<u64> {
                self.0.len()
            }
            fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
                self.0.read(offset, out)
            }
            fn set_len(&self, len: u64) -> io::Result<()> {
                self.0.set_len(len)
            }
            fn sync_data(&self) -> io::Result<()> {
                self.0.sync_data()
            }
            fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
                match *self.1.lock().expect("no panic") {
                    true => Err(io::ErrorKind::StorageFull.into()),
                    false => self.0.write(offset, data),
                }
            }
        }
        let full = Arc::new(Mutex::new(false));
        let disk = Disk(Arc::new(InMemoryBackend::new()), Arc::clone(&full));
        let mut store = RedbStore::open_on(move || disk.clone()).expect("an empty store");
        store.commit(&[Write::put(Table::Objects, "a", "1")]).expect("written");
        *full.lock().expect("no panic") = true;
        let error = store.commit(&[Write::put(Table::Objects, "b", "2")]).expect_err("full");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        store.commit(&[Write::put(Table::Objects, "b", "2")]).expect_err("still full");
        *full.lock().expect("no panic") = false;
        store.commit(&[Write::put(Table::Objects, "c", "3")]).expect("there is room again");
        let found: Vec<_> = all(&mut store, Table::Objects, "");
        assert_eq!(found, [("a".into(), "1".into()), ("c".into(), "3".into())]);
    }
}
