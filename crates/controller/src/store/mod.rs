//! Where the controller's records survive: one trait, and redb or etcd behind it.
//!
//! Problem   An acknowledged write has to be there after `kill -9` and after a power cut, on one machine
//!           (redb) and later on several (etcd). A store of a newer Weir must not be read by an older one.
//! Approach  Records are keys and values in six tables. [`Store::commit`] takes a batch, all or nothing,
//!           and returns when it is on the disk; larger batches are faster. The version of the
//!           schema is a record, too.
//! Promises  After `commit` returned `Ok`, the batch outlives every crash. After `Err`, either all of the
//!           batch is there or nothing of it, and the next commit may succeed.
//!           [`open`](redb::RedbStore::open) upgrades an older schema in one step, and refuses a newer one.
//!           Of several controllers with one store, one writes: [`Store::standing`] says which. The
//!           others get its commits by [`Store::changes`], in order and whole.
//! Not here  What records mean: see `state`.

pub mod backup;
pub mod etcd;
pub mod redb;
mod upgrades;

use serde::{Deserialize, Serialize};
use std::io;

/// Version of the schema that this program writes. Whoever changes the meaning of a record adds one, and
/// a step to [`UPGRADES`].
pub const SCHEMA: u32 = 3;

/// Step `n` turns records of schema `n + 1` into those of schema `n + 2`.
pub(crate) const UPGRADES: &[Upgrade] = &[upgrades::number, upgrades::nothing];

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

impl Write {
    /// The version that a record of the newest version says. In a batch, the change of an object is
    /// followed by its version.
    pub(crate) fn version(&self) -> Option<u64> {
        if self.table != Table::Meta || self.key != REVISION {
            return None;
        }
        std::str::from_utf8(self.value.as_deref()?).ok()?.parse().ok()
    }

    /// The schema that a record of the schema says.
    pub(crate) fn schema(&self) -> Option<u32> {
        if self.table != Table::Meta || self.key != SCHEMA_KEY {
            return None;
        }
        std::str::from_utf8(self.value.as_deref()?).ok()?.parse().ok()
    }
}

/// A controller, as the others name it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Leader {
    /// Its first name.
    pub name: String,
    /// Where its API is: `https://NAME:PORT`.
    pub url: String,
}

/// Whether this process may write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It may. Another term means that another controller may have written meanwhile.
    Leads {
        /// Grows with each change of leaders.
        term: u64,
    },
    /// It may not.
    Follows {
        /// Who may, if that is known.
        leader: Option<Leader>,
        /// Why it may not.
        why: String,
    },
}

/// What another controller committed.
#[derive(Debug)]
pub enum Changes {
    /// All of one commit. With the removal of an object, its version; else 0.
    Commit(Vec<(Write, u64)>),
    /// Some are no longer known: read everything again.
    Lost,
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
    /// etcd gives no answer.
    #[error(
        "{path} cannot be reached ({what}); the controller serves reads meanwhile; see whether etcd \
         runs, and whether `store` in controller.toml is right"
    )]
    Unreachable {
        /// Its endpoints.
        path: String,
        /// What happened at the last one.
        what: String,
    },
    /// etcd refuses.
    #[error("{path} refuses: {what}")]
    Refused {
        /// Its endpoints.
        path: String,
        /// What it said.
        what: String,
    },
    /// etcd's database is full.
    #[error(
        "{path} is full: compact it and defragment it, or give it a larger --quota-backend-bytes, and \
         then `etcdctl alarm disarm`; the controller serves reads meanwhile"
    )]
    Quota {
        /// Its endpoints.
        path: String,
    },
    /// Nobody made a store there.
    #[error(
        "{path} has no records of Weir below `{prefix}/`: run `weir controller init` or `weir restore` \
         on one machine first"
    )]
    Empty {
        /// Its endpoints.
        path: String,
        /// Where the records should be.
        prefix: String,
    },
    /// The records are of a cloud whose keys this controller does not have.
    #[error(
        "{path} has the records of another cloud below `{prefix}/`: copy ca.crt, ca.key and pairs.keys \
         from the data folder of one of its controllers, or name another store"
    )]
    OtherCloud {
        /// Its endpoints.
        path: String,
        /// Where the records are.
        prefix: String,
    },
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

    /// Whether this process may write. Where there is one controller, it may.
    fn standing(&mut self) -> Standing {
        Standing::Leads { term: 0 }
    }

    /// Has `bell` called, by any thread, when [`Store::standing`] or [`Store::changes`] have news.
    fn on_change(&mut self, _bell: Box<dyn Fn() + Send + Sync>) {}

    /// This process leads by now: ends what the former leader had begun, and brings older records to the
    /// schema of this program.
    ///
    /// # Errors
    ///
    /// The store cannot be read or written: try again.
    fn begin(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What is in the store now. [`Store::changes`] tells what follows.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn follow(&mut self) -> Result<Box<dyn Snapshot>, StoreError> {
        self.snapshot()
    }

    /// The next commit of another controller, if there is one.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    fn changes(&mut self) -> Result<Option<Changes>, StoreError> {
        Ok(None)
    }

    /// Waits, for a bounded time, for commits of former leaders that were not taken yet. False if there
    /// is none.
    fn await_changes(&mut self) -> bool {
        false
    }
}

/// Record of the newest version of an object.
pub(crate) const REVISION: &str = "revision";
/// Record of the schema.
const SCHEMA_KEY: &str = "schema";

/// The record by which a store is of this program's schema.
pub(crate) fn newest_schema() -> Write {
    Write::put(Table::Meta, SCHEMA_KEY, SCHEMA.to_string())
}

/// Brings a store to schema `known`.
fn prepare(
    store: &mut dyn Store,
    path: &str,
    known: u32,
    upgrades: &[Upgrade],
) -> Result<(), StoreError> {
    let found = schema_of(&*store.snapshot()?, path)?;
    if found > known {
        return Err(StoreError::Newer { path: path.into(), found, known });
    }
    for step in found..known {
        let mut batch = match step {
            // An empty store is of no schema: nothing is turned into the newest one.
            0 => Vec::new(),
            _ => upgrades[step as usize - 1](&*store.snapshot()?)?,
        };
        let reached = if step == 0 { known } else { step + 1 };
        batch.push(Write::put(Table::Meta, SCHEMA_KEY, reached.to_string()));
        store.commit(&batch)?;
        if step == 0 {
            break;
        }
    }
    Ok(())
}

/// The schema of a store; 0 if it is empty.
fn schema_of(snapshot: &dyn Snapshot, path: &str) -> Result<u32, StoreError> {
    let mut found: Option<Result<u32, StoreError>> = None;
    snapshot.scan(Table::Meta, SCHEMA_KEY, &mut |key, value| {
        if key == SCHEMA_KEY {
            let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            let what = "the record of its schema is not a number";
            let error = || StoreError::Damaged { path: path.into(), what: what.into() };
            found = Some(number.ok_or_else(error));
        }
        false
    })?;
    found.unwrap_or(Ok(0))
}
