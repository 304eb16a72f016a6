//! Where the controller's records survive: one trait, and redb behind it.
//!
//! Problem   An acknowledged write has to be there after `kill -9` and after a power cut, on one machine
//!           (redb) and later on several (etcd). A store of a newer Weir must not be read by an older one.
//! Approach  Records are keys and values in six tables. [`Store::commit`] takes a batch, all or nothing,
//!           and returns when it is on the disk; who needs speed gives larger batches. The version of the
//!           schema is a record, too.
//! Promises  After `commit` returned `Ok`, the batch outlives every crash. After `Err`, either all of the
//!           batch is there or nothing of it, and the next commit may succeed.
//!           [`open`](redb::RedbStore::open) upgrades an older schema in one step, and refuses a newer one.
//! Not here  What records mean: see `state`. For several controllers, a store compares its leader's
//!           revision in each commit and fails with [`StoreError::Fenced`]; redb's lock on the file has
//!           that effect on one machine.

pub mod backup;
pub mod redb;
mod upgrades;

use std::io;

/// Version of the schema that this program writes. Whoever changes the meaning of a record adds one, and
/// a step to [`UPGRADES`].
pub const SCHEMA: u32 = 2;

/// Step `n` turns records of schema `n + 1` into those of schema `n + 2`.
pub(crate) const UPGRADES: &[Upgrade] = &[upgrades::number];

/// Turns the records of one schema into those of the next: reads the snapshot, returns what changes.
pub type Upgrade = fn(&dyn Snapshot) -> Result<Vec<Write>, StoreError>;

/// Groups of records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Table {
    /// The schema, the revision, the clock.
    Meta,
    /// `kind/name` → object.
    Objects,
    /// Hash → token.
    Tokens,
    /// Idempotency key → answer.
    Answers,
    /// Sequence number → who changed what.
    Audit,
    /// `host/vm` → the floors that the host may enforce.
    Force,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 6] =
        [Self::Meta, Self::Objects, Self::Tokens, Self::Answers, Self::Audit, Self::Force];

    /// Its name in the store and in backups.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Objects => "objects",
            Self::Tokens => "tokens",
            Self::Answers => "answers",
            Self::Audit => "audit",
            Self::Force => "force",
        }
    }
}

/// One change of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where it is.
    pub table: Table,
    /// Its key.
    pub key: String,
    /// Its value; none removes it.
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// Sets a record.
    pub fn put(table: Table, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { table, key: key.into(), value: Some(value.into()) }
    }

    /// Removes a record.
    pub fn delete(table: Table, key: impl Into<String>) -> Self {
        Self { table, key: key.into(), value: None }
    }
}

/// Why the store cannot do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No room.
    #[error("the disk of {path} is full: free some space; the controller serves reads meanwhile")]
    Full {
        /// The file.
        path: String,
    },
    /// The disk, the file system or its permissions.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Written by a newer Weir.
    #[error(
        "{path} has schema {found}, this program knows {known}: start the version of Weir that wrote \
         it, or restore a backup of this version"
    )]
    Newer {
        /// The file.
        path: String,
        /// Schema in the file.
        found: u32,
        /// The newest schema that this program reads.
        known: u32,
    },
    /// Another process has it open.
    #[error("{path} is in use by another process: is a controller running already?")]
    InUse {
        /// The file.
        path: String,
    },
    /// The content makes no sense.
    #[error("{path} is damaged: {what}; restore a backup")]
    Damaged {
        /// The file.
        path: String,
        /// What was found.
        what: String,
    },
    /// Another controller leads by now.
    #[error("another controller leads: this one has stopped writing")]
    Fenced,
}

/// What is in the store at one instant. Later commits do not change it. It ends with its store, and with
/// an error of the disk.
pub trait Snapshot: Send {
    /// Calls `each` with the records of a table in the order of their keys, from `from` on, until it says
    /// false.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn scan(
        &self,
        table: Table,
        from: &str,
        each: &mut dyn FnMut(&str, &[u8]) -> bool,
    ) -> Result<(), StoreError>;
}

/// Keeps records.
pub trait Store: Send {
    /// Writes all of the batch or nothing. Returns when the batch is on the disk.
    ///
    /// # Errors
    ///
    /// The batch may not be on the disk. The caller has to take it for not written and must not
    /// acknowledge it.
    fn commit(&mut self, batch: &[Write]) -> Result<(), StoreError>;

    /// What is in the store now.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn snapshot(&mut self) -> Result<Box<dyn Snapshot>, StoreError>;
}
