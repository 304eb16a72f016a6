//! The accounts on the disk.
//!
//! Approach  A file of its own, for it can be lost without a promise being lost. Three tables for each day: sums by VM and
//!           time, stretches by time, and half hours by tenant. A day that is too old is tables that are dropped.
//! Promises  A disk that is full or broken costs what it did not take, and is said once; the controller goes on.

use super::course::{Row, Tested};
use super::sum::{self, Sum};
use super::{BUCKET, Stretch};
use redb::{
    Database, DatabaseError, ReadableDatabase as _, StorageError, TableDefinition, TableError,
};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use weir_model::moment::Moment;

const FILE: &str = "accounts.redb";
/// Memory for pages of the file.
const CACHE: usize = 16 << 20;
const DAY: u64 = 86_400_000;
/// What two reports of a host may differ by in when a stretch began, ms: messages that wait, and calendars that are set.
const CLOCKS: u64 = 60_000;

/// One error for people.
type Trouble = Box<redb::Error>;

pub(super) struct Keep {
    path: PathBuf,
    days: u64,
    /// None where the file cannot be used.
    database: Option<Database>,
    /// Rows that wait for the next write, by VM and time.
    later: BTreeMap<(String, u64), [Sum; 2]>,
    /// The last write failed, and it was said.
    is_failing: bool,
    /// The last day that was cleaned up.
    cleaned: u64,
}

/// Table of a day's sums: [`key`](super::key) of a VM and a time to octets.
fn sums(name: &str) -> TableDefinition<'_, (&'static str, u64), &'static [u8]> {
    TableDefinition::new(name)
}

/// Table of a day's stretches: time of the beginning, host and number to JSON.
fn stretches(name: &str) -> TableDefinition<'_, (u64, &'static str, u64), &'static [u8]> {
    TableDefinition::new(name)
}

/// Table of a day's half hours: tenant and beginning to windows and those that held.
fn courses(name: &str) -> TableDefinition<'_, (&'static str, u64), (u64, u64)> {
    TableDefinition::new(name)
}

fn course_name(day: u64) -> String {
    format!("course-{day:06}")
}

fn names(day: u64) -> (String, String) {
    (format!("sums-{day:06}"), format!("broken-{day:06}"))
}

fn trouble(error: impl Into<redb::Error>) -> Trouble {
    Box::new(error.into())
}

/// There is no file to read from at present.
fn missing() -> Trouble {
    trouble(StorageError::DatabaseClosed)
}

fn create(path: &Path) -> Result<Database, DatabaseError> {
    Database::builder().set_cache_size(CACHE).create(path)
}

/// Whether the file itself is what is wrong, and not the disk, a right or another process.
fn is_damage(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::UpgradeRequired(_) | DatabaseError::RepairAborted => true,
        DatabaseError::Storage(StorageError::Corrupted(_)) => true,
        DatabaseError::Storage(StorageError::Io(error)) => {
            matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

impl Keep {
    /// The file of a folder. One that is damaged is put aside.
    pub(super) fn open(folder: &Path, days: u32) -> Self {
        let path = folder.join(FILE);
        let database = create(&path).or_else(|error| {
            if !is_damage(&error) {
                return Err(error);
            }
            let aside = path.with_extension("damaged");
            tracing::error!(
                "{}: {error}: it is put aside as {}, and the accounts of floors begin anew",
                path.display(),
                aside.display()
            );
            drop(std::fs::rename(&path, &aside));
            create(&path)
        });
        let database = database.inspect_err(|error| {
            tracing::error!(
                "{}: {error}: how floors are kept is not written down, and tried again",
                path.display()
            );
        });
        let (is_failing, days) = (database.is_err(), u64::from(days.max(1)));
        let (database, later) = (database.ok(), BTreeMap::new());
        Self { path, days, database, later, is_failing, cleaned: 0 }
    }

    /// The first moment of which something may be kept, ms.
    pub(super) const fn oldest(&self, until: u64) -> u64 {
        (until / DAY).saturating_sub(self.days) * DAY
    }

    /// A row that is over, to be written with the next ones.
    pub(super) fn later(&mut self, key: &str, at: u64, sums: [Sum; 2]) {
        self.later.insert((key.into(), at), sums);
    }

    /// A VM's row, as far as it can be read.
    pub(super) fn read_one(&self, key: &str, at: u64) -> [Sum; 2] {
        if let Some(row) = self.later.get(&(key.to_owned(), at)) {
            return *row;
        }
        self.read(key, at, at).0.pop().map_or_else(Default::default, |(_, sums)| sums)
    }

    /// A VM's rows from one time to another, both included, and whether the disk gave all that it has.
    pub(super) fn read(&self, key: &str, from: u64, until: u64) -> (Vec<(u64, [Sum; 2])>, bool) {
        let from = from.max(self.oldest(until));
        let read = self.read_days(key, from, until);
        let is_whole = read.is_ok();
        let mut rows: BTreeMap<u64, [Sum; 2]> = read.unwrap_or_default().into_iter().collect();
        let range = (key.to_owned(), from)..=(key.to_owned(), until);
        rows.extend(self.later.range(range).map(|((_, at), sums)| (*at, *sums)));
        (rows.into_iter().collect(), is_whole)
    }

    fn read_days(&self, key: &str, from: u64, until: u64) -> Result<Vec<(u64, [Sum; 2])>, Trouble> {
        let Some(database) = &self.database else { return Err(missing()) };
        let transaction = database.begin_read().map_err(trouble)?;
        let mut rows = Vec::new();
        for day in from / DAY..=until / DAY {
            let table = match transaction.open_table(sums(&names(day).0)) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => continue,
                Err(error) => return Err(trouble(error)),
            };
            for row in table.range((key, from)..=(key, until)).map_err(trouble)? {
                let (key, value) = row.map_err(trouble)?;
                rows.extend(sum::read(value.value()).map(|sums| (key.value().1, sums)));
            }
        }
        Ok(rows)
    }

    /// The stretches that began in a time, those of it that are wanted, the oldest first; and whether the disk gave all
    /// that it has.
    pub(super) fn stretches(
        &self,
        from: u64,
        until: u64,
        wanted: impl Fn(&Stretch) -> bool,
    ) -> (Vec<Stretch>, bool) {
        let from = from.max(self.oldest(until));
        let (mut all, mut is_whole) = (Vec::new(), true);
        for day in from / DAY..=until / DAY {
            let read = self.stretches_of(from, until, day, None);
            is_whole &= read.is_ok();
            all.extend(read.unwrap_or_default().into_iter().filter(&wanted));
        }
        (all, is_whole)
    }

    /// Those of a day; of one host and number, if they are given.
    fn stretches_of(
        &self,
        from: u64,
        until: u64,
        day: u64,
        of: Option<(&str, u64)>,
    ) -> Result<Vec<Stretch>, Trouble> {
        let Some(database) = &self.database else { return Err(missing()) };
        let transaction = database.begin_read().map_err(trouble)?;
        let table = match transaction.open_table(stretches(&names(day).1)) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(trouble(error)),
        };
        let mut all = Vec::new();
        for row in table.range((from, "", 0)..(until + 1, "", 0)).map_err(trouble)? {
            let (key, value) = row.map_err(trouble)?;
            let (_, host, id) = key.value();
            if of.is_some_and(|of| of != (host, id)) {
                continue;
            }
            all.extend(serde_json::from_slice::<Stretch>(value.value()));
        }
        Ok(all)
    }

    /// The half hours of all tenants of about a day that begins at `from`.
    pub(super) fn read_course(&self, from: u64) -> Result<Vec<Row>, Trouble> {
        let Some(database) = &self.database else { return Err(missing()) };
        let transaction = database.begin_read().map_err(trouble)?;
        let mut rows = Vec::new();
        for day in from / DAY..=from / DAY + 1 {
            let table = match transaction.open_table(courses(&course_name(day))) {
                Ok(table) => table,
                Err(TableError::TableDoesNotExist(_)) => continue,
                Err(error) => return Err(trouble(error)),
            };
            for row in table.range::<(&str, u64)>(..).map_err(trouble)? {
                let (key, value) = row.map_err(trouble)?;
                let ((tenant, at), (windows, held)) = (key.value(), value.value());
                rows.push((tenant.to_owned(), at, Tested { windows, held }));
            }
        }
        Ok(rows)
    }

    /// The same stretch, as it was kept before. Its beginning follows from two clocks, so it may differ by moments.
    pub(super) fn stretch_like(&self, told: &Stretch) -> Option<Stretch> {
        let begin = told.begin.as_millis();
        let (from, until) = (begin.saturating_sub(CLOCKS), begin + CLOCKS);
        let of = Some((told.host.as_str(), told.id));
        let days = from / DAY..=until / DAY;
        let mut all =
            days.flat_map(|day| self.stretches_of(from, until, day, of).unwrap_or_default());
        all.find(|kept| kept.life == told.life)
    }

    /// Writes rows, stretches and half hours, and drops days that are too old. Returns whether the latter two are on the
    /// disk; rows are written with the next ones.
    pub(super) fn write<'a>(
        &mut self,
        rows: &[(String, u64, [Sum; 2])],
        broken: impl Iterator<Item = &'a Stretch>,
        course: &[Row],
        now: Moment,
    ) -> bool {
        let broken: Vec<&Stretch> = broken.collect();
        for (vm, at, sums) in rows {
            self.later.insert((vm.clone(), *at), *sums);
        }
        let today = now.as_millis() / DAY;
        let is_nothing = self.later.is_empty() && broken.is_empty() && course.is_empty();
        // A file that could not be used is opened anew by a write.
        if is_nothing && self.cleaned == today && self.database.is_some() {
            return true;
        }
        match self.write_all(&broken, course, today) {
            Ok(()) => {
                self.cleaned = today;
                self.later.clear();
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("{}: accounts are written again", self.path.display());
                }
                true
            }
            Err(error) => {
                // After an error of the disk it answers with that error for ever: it is opened anew.
                self.database = None;
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::error!(
                        "{}: {error}: how floors are kept is not written down, and tried again",
                        self.path.display()
                    );
                }
                // What cannot be written must not fill the memory: an hour of it waits.
                let oldest = now.as_millis().saturating_sub(12 * BUCKET);
                self.later.retain(|(_, at), _| *at >= oldest);
                false
            }
        }
    }

    fn write_all(
        &mut self,
        broken: &[&Stretch],
        course: &[Row],
        today: u64,
    ) -> Result<(), Trouble> {
        if self.database.is_none() {
            self.database = Some(create(&self.path).map_err(trouble)?);
        }
        let Some(database) = &self.database else { return Err(missing()) };
        let transaction = database.begin_write().map_err(trouble)?;
        let mut days: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for row in &self.later {
            days.entry(row.0.1 / DAY).or_default().push(row);
        }
        for (day, rows) in days {
            let mut table = transaction.open_table(sums(&names(day).0)).map_err(trouble)?;
            for ((vm, at), sums) in rows {
                table.insert((vm.as_str(), *at), sum::write(sums).as_slice()).map_err(trouble)?;
            }
        }
        for stretch in broken {
            let begin = stretch.begin.as_millis();
            let name = names(begin / DAY).1;
            let mut table = transaction.open_table(stretches(&name)).map_err(trouble)?;
            let json = serde_json::to_vec(stretch).expect("a stretch is JSON");
            let key = (begin, stretch.host.as_str(), stretch.id);
            table.insert(key, json.as_slice()).map_err(trouble)?;
        }
        for (tenant, at, Tested { windows, held }) in course {
            let name = course_name(at / DAY);
            let mut table = transaction.open_table(courses(&name)).map_err(trouble)?;
            table.insert((tenant.as_str(), *at), (*windows, *held)).map_err(trouble)?;
        }
        if self.cleaned != today {
            let oldest = today.saturating_sub(self.days);
            let ((oldest_sums, oldest_broken), oldest_course) =
                (names(oldest), course_name(oldest));
            let all: Vec<_> = transaction.list_tables().map_err(trouble)?.collect();
            for table in all {
                use redb::TableHandle as _;
                let name = table.name().to_owned();
                let is_old =
                    |prefix: &str, oldest: &String| name.starts_with(prefix) && name < *oldest;
                if is_old("sums-", &oldest_sums)
                    || is_old("broken-", &oldest_broken)
                    || is_old("course-", &oldest_course)
                {
                    transaction.delete_table(table).map_err(trouble)?;
                }
            }
        }
        transaction.commit().map_err(trouble)
    }
}
