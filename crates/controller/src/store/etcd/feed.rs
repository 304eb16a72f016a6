//! What others commit, in order and whole.

use super::client::Client;
use super::lead::Bell;
use super::messages::{Event, WatchCreate, WatchResponse, after};
use super::pack::Log;
use crate::store::{Changes, Table, Write};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Commits that wait to be taken. More wait in etcd.
const WAITING: usize = 256;
/// Wait before a watch that ended is begun again.
const AGAIN: Duration = Duration::from_millis(100);
/// Tables of which followers hear.
const TABLES: [Table; 3] = [Table::Meta, Table::Objects, Table::Tokens];

type Item = (i64, Changes);

/// A watch from one revision on.
pub(super) struct Feed {
    items: mpsc::Receiver<Item>,
    /// Taken from `items` to look whether there is one.
    next: Option<Item>,
    task: JoinHandle<()>,
}

impl Feed {
    pub(super) fn begin(
        handle: &Handle,
        client: Arc<Client>,
        prefix: &str,
        from: i64,
        bell: Bell,
    ) -> Self {
        let (say, items) = mpsc::channel(WAITING);
        let gatherer = Gatherer { prefix: format!("{prefix}/"), from, found: Vec::new() };
        let task = handle.spawn(follow(client, gatherer, say, bell));
        Self { items, next: None, task }
    }

    /// The next commit and its revision, if there is one.
    pub(super) fn take(&mut self) -> Option<Item> {
        self.next.take().or_else(|| self.items.try_recv().ok())
    }

    /// Waits until there is a commit to take. False if there will be none.
    pub(super) async fn ready(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.items.recv().await;
        }
        self.next.is_some()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Arc<Client>, mut gatherer: Gatherer, say: mpsc::Sender<Item>, bell: Bell) {
    loop {
        if let Ok(mut told) = client.watch(gatherer.wanted()).await {
            while let Ok(Some(message)) = told.message().await {
                let (items, goes_on) = gatherer.take(message);
                for item in items {
                    let is_end = matches!(item.1, Changes::Lost);
                    if say.send(item).await.is_err() {
                        return;
                    }
                    if let Some(bell) = bell.get() {
                        bell();
                    }
                    if is_end {
                        return;
                    }
                }
                if !goes_on {
                    break;
                }
            }
        }
        gatherer.found.clear();
        tokio::time::sleep(AGAIN).await;
    }
}

/// Puts changes of records together to commits.
struct Gatherer {
    /// With its slash.
    prefix: String,
    /// The revision after the last whole commit.
    from: i64,
    /// Changes of a commit whose end is not there yet.
    found: Vec<(Write, u64)>,
}

impl Gatherer {
    /// The three tables stand side by side, and nothing between them.
    fn wanted(&self) -> WatchCreate {
        let [first, .., last] = TABLES.map(|table| format!("{}{}/", self.prefix, table.name()));
        WatchCreate { key: first.into_bytes(), range_end: after(&last), start_revision: self.from }
    }

    /// The commits that end in a message, and whether the watch goes on.
    fn take(&mut self, message: WatchResponse) -> (Vec<Item>, bool) {
        if message.compact_revision > 0 {
            return (vec![(self.from, Changes::Lost)], false);
        }
        if message.canceled {
            tracing::debug!("etcd ended a watch: {}", message.cancel_reason);
            return (Vec::new(), false);
        }
        let mut items = Vec::new();
        let mut events = message.events.into_iter().peekable();
        while let Some(first) = events.peek().map(revision) {
            let mut log = None;
            while let Some(event) = events.next_if(|event| revision(event) == first) {
                match self.read(event) {
                    Found::Record(write) => self.found.push((write, 0)),
                    Found::Log(read) => log = Some(read),
                    Found::Nothing => {}
                }
            }
            let Some(log) = log else { continue };
            let deleted: BTreeMap<&str, u64> =
                log.deleted.iter().map(|(name, version)| (name.as_str(), *version)).collect();
            for (write, version) in &mut self.found {
                if write.table == Table::Objects && write.value.is_none() {
                    *version = deleted.get(write.key.as_str()).copied().unwrap_or(*version);
                }
            }
            if !log.more {
                let writes = std::mem::take(&mut self.found);
                self.from = first + 1;
                items.push((first, Changes::Commit(writes)));
            }
        }
        (items, true)
    }

    fn read(&self, event: Event) -> Found {
        let Some(kv) = event.kv else { return Found::Nothing };
        let name = std::str::from_utf8(&kv.key).ok().and_then(|k| k.strip_prefix(&self.prefix));
        let Some((table, key)) = name.and_then(|name| name.split_once('/')) else {
            return Found::Nothing;
        };
        let Some(table) = TABLES.into_iter().find(|one| one.name() == table) else {
            return Found::Nothing;
        };
        match (table, key) {
            (Table::Meta, "log") => Log::read(&kv.value).map_or(Found::Nothing, Found::Log),
            (Table::Meta, "pending") => Found::Nothing,
            _ if event.kind == 0 => Found::Record(Write::put(table, key, kv.value)),
            _ => Found::Record(Write::delete(table, key)),
        }
    }
}

enum Found {
    Record(Write),
    Log(Log),
    Nothing,
}

fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}
