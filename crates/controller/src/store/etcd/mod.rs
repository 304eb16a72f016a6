//! The store of several controllers: etcd.
//!
//! Problem   Several controllers, one of which writes; the others take over when it dies, and show the
//!           same objects meanwhile. etcd takes 128 operations and 1.5 MB at once; a batch may have more.
//! Approach  Records are keys `PREFIX/table/key`. A commit is one transaction that holds if this process
//!           still leads ([`lead`]) and nothing was committed since its last one: the record `meta/log`
//!           changes with every commit, and with every look of a leader at what is there. Operations are
//!           nested, so that 128 are no bound. What exceeds [`ONCE`] octets is laid down in pieces first;
//!           one small transaction then decides that all of it is done, and the pieces are put in their
//!           places, by the next leader if need be. A follower gets each commit by a watch of its tables,
//!           whole.
//! Promises  As [`Store`]. A transaction of a former leader, or one that comes late, changes nothing.
//!           Nobody reads half a commit.
//! Source    etcd's API, version 3, as in 3.4 and later.

mod client;
mod feed;
mod lead;
mod messages;
mod pack;
#[cfg(test)]
mod tests;

use super::{
    Changes, Leader, SCHEMA, Snapshot, Standing, Store, StoreError, Table, UPGRADES, Write,
    prepare, schema_of,
};
use client::Client;
use feed::Feed;
use lead::{Bell, Candidate, Sign};
use messages::{
    KeyValue, Piece, RangeRequest, TxnRequest, TxnResponse, after, changed, created, delete,
    exists, get, is, put,
};
use pack::{Deleted, Log, nested, pieces};
use prost::Message as _;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use weir_model::controller::EtcdAddress;

/// Octets of one transaction, with room below etcd's bound of 1.5 MiB.
const ONCE: usize = 1 << 20;
/// How long a read or a commit is tried. Larger means longer waits for clients while etcd is away.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the last words of a process may take.
const GOODBYE: Duration = Duration::from_millis(500);
/// Records of one page of a scan.
const PAGE: i64 = 1000;
/// etcd forgets its history up to what was the newest revision so long ago. A snapshot lives as long.
const HISTORY: Duration = Duration::from_secs(300);
/// Most time for which a new leader waits for what it did not see yet of its predecessor's commits.
const CATCH_UP: Duration = Duration::from_secs(2);

/// What a process needs to know to take part.
pub struct Settings {
    /// Where etcd is.
    pub address: EtcdAddress,
    /// How to speak TLS to it.
    pub tls: Option<rustls::ClientConfig>,
    /// How long a leader's lease lives without it.
    pub lease: Duration,
    /// This controller, as others name it when it leads.
    pub me: Leader,
    /// The same for all controllers of one cloud, and no secret.
    pub cluster: String,
}

/// A store in etcd.
pub struct EtcdStore {
    /// Its thread prolongs the lease and follows, whatever the caller does. None only in `drop`.
    runtime: Option<Runtime>,
    client: Arc<Client>,
    keys: Keys,
    cluster: String,
    standing: watch::Receiver<Standing>,
    /// While this process leads: until when by its own clock, if the lease is not prolonged.
    until: watch::Receiver<Instant>,
    held: watch::Receiver<i64>,
    look: Arc<Notify>,
    bell: Bell,
    feed: Option<Feed>,
    /// Revision up to which the caller knows all commits.
    seen: i64,
    /// As leader: the term, the revision of `meta/log`, and commits of this term so far.
    term: u64,
    log: i64,
    commits: u64,
    /// Whether a commit of this term failed without an answer, so that it may still come.
    unsure: bool,
}

/// Names of records that are no table's.
#[derive(Clone)]
struct Keys {
    prefix: String,
}

impl Keys {
    fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// Which cloud's the records are.
    fn cluster(&self) -> String {
        format!("{}/cluster", self.prefix)
    }

    /// Changes with every commit, and says what was deleted.
    fn log(&self) -> String {
        format!("{}/meta/log", self.prefix)
    }

    /// Is there while a large batch is decided and not yet in place.
    fn pending(&self) -> String {
        format!("{}/meta/pending", self.prefix)
    }

    /// Pieces of large batches.
    fn pieces(&self) -> String {
        format!("{}/pieces/", self.prefix)
    }

    fn table(&self, table: Table) -> String {
        format!("{}/{}/", self.prefix, table.name())
    }
}

impl EtcdStore {
    /// Joins the controllers of a store, and stands for leader from now on.
    ///
    /// # Errors
    ///
    /// etcd is not reached, or has the records of another cloud or of a newer schema.
    pub fn open(settings: Settings) -> Result<Self, StoreError> {
        let Settings { address, tls, lease, me, cluster } = settings;
        let client =
            Arc::new(Client::new(address.endpoints, tls.map(|c| TlsConnector::from(Arc::new(c)))));
        let keys = Keys { prefix: address.prefix };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|source| StoreError::Io { path: "a thread".into(), source })?;
        let follows = Standing::Follows { leader: None, why: "no leader is known yet".into() };
        let (standing, seen_standing) = watch::channel(follows);
        let (until, seen_until) = watch::channel(Instant::now());
        let (held, seen_held) = watch::channel(0);
        let (bell, look): (Bell, _) = (Arc::new(OnceLock::new()), Arc::new(Notify::new()));
        let mut store = Self {
            runtime: Some(runtime),
            client: Arc::clone(&client),
            keys: keys.clone(),
            cluster,
            standing: seen_standing,
            until: seen_until,
            held: seen_held,
            look: Arc::clone(&look),
            bell: Arc::clone(&bell),
            feed: None,
            seen: 0,
            term: 0,
            log: 0,
            commits: 0,
            unsure: false,
        };
        store.check_cluster()?;
        store.schema()?;
        let sign = Sign { id: draw()?, leader: me };
        let candidate = Candidate {
            client,
            key: keys.leader(),
            sign,
            lease,
            standing,
            until,
            bell,
            look,
            held,
        };
        store.handle().spawn(candidate.run());
        Ok(store)
    }

    fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("it is there until the end").handle()
    }

    fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is there until the end").block_on(what)
    }

    fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, StoreError> {
        self.wait(self.client.txn(txn, PATIENCE))
    }

    fn damaged(&self, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.client.shown().into(), what: what.into() }
    }

    /// The value of a key.
    fn read(&self, key: String) -> Result<Option<KeyValue>, StoreError> {
        let found = self.txn(TxnRequest { success: vec![get(key)], ..TxnRequest::default() })?;
        Ok(found.read(0).cloned())
    }

    /// The records have to be those of this cloud.
    fn check_cluster(&self) -> Result<(), StoreError> {
        match self.read(self.keys.cluster())? {
            Some(kv) if kv.value != self.cluster.as_bytes() => Err(StoreError::OtherCloud {
                path: self.client.shown().into(),
                prefix: self.keys.prefix.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The schema of the records; 0 if there are none.
    ///
    /// # Errors
    ///
    /// It is a newer one.
    pub fn schema(&mut self) -> Result<u32, StoreError> {
        let path = self.client.shown().to_owned();
        let snapshot = self.at_newest()?;
        let found = schema_of(&snapshot, &path)?;
        match found > SCHEMA {
            true => Err(StoreError::Newer { path, found, known: SCHEMA }),
            false => Ok(found),
        }
    }

    /// Waits until this process leads.
    ///
    /// # Errors
    ///
    /// Another controller leads, or nobody can.
    pub fn lead(&mut self, patience: Duration) -> Result<(), StoreError> {
        let mut standing = self.standing.clone();
        let leads = async {
            let leads = |s: &Standing| matches!(s, Standing::Leads { .. });
            tokio::time::timeout(patience, standing.wait_for(leads)).await.is_ok()
        };
        match self.wait(leads) {
            true => self.take_up(),
            false => Err(StoreError::Fenced),
        }
    }

    /// Whether there is no record of any table.
    ///
    /// # Errors
    ///
    /// etcd is not reached.
    pub fn is_empty(&mut self) -> Result<bool, StoreError> {
        for table in Table::ALL {
            let mut any = false;
            self.at_newest()?.scan(table, "", &mut |_, _| {
                any = true;
                false
            })?;
            if any {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is there now, also in the middle of a large batch.
    fn at_newest(&mut self) -> Result<EtcdSnapshot, StoreError> {
        let key = self.keys.leader().into_bytes();
        let found =
            self.wait(self.client.range(RangeRequest { key, ..Default::default() }, PATIENCE))?;
        let revision = found.header.map_or(0, |header| header.revision);
        let (client, handle) = (Arc::clone(&self.client), self.handle().clone());
        Ok(EtcdSnapshot { client, handle, keys: self.keys.clone(), revision })
    }

    /// What is there, whole: after the batch that is being put in place.
    fn whole(&mut self) -> Result<EtcdSnapshot, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let snapshot = self.at_newest()?;
            let key = self.keys.pending().into_bytes();
            let revision = snapshot.revision;
            let asked = RangeRequest { key, revision, ..RangeRequest::default() };
            if self.wait(self.client.range(asked, PATIENCE))?.kvs.is_empty() {
                return Ok(snapshot);
            }
            if Instant::now() > deadline {
                let what = "a large change is half in place, and no controller leads that ends it";
                return Err(StoreError::Refused {
                    path: self.client.shown().into(),
                    what: what.into(),
                });
            }
            self.wait(async { tokio::time::sleep(Duration::from_millis(100)).await });
        }
    }

    // -- the leader's part --------------------------------------------------------------------

    /// Name of the latest commit of this term, which no other commit has.
    fn commit_id(&self) -> String {
        format!("{}-{}", self.term, self.commits)
    }

    /// What every transaction of this leader asks first.
    fn leads(&self) -> messages::Compare {
        created(self.keys.leader(), i64::try_from(self.term).unwrap_or(-1))
    }

    /// Takes up the present term.
    fn take_up(&mut self) -> Result<(), StoreError> {
        let Standing::Leads { term } = self.standing() else { return Err(StoreError::Fenced) };
        if self.term != term {
            // What an earlier leader sent changes nothing any more.
            (self.term, self.commits, self.unsure) = (term, 0, false);
        }
        self.settle()
    }

    /// The same if it is taken up already, or if there was none: what the caller knows is not of another
    /// term.
    fn settle_if_leading(&mut self) -> Result<(), StoreError> {
        // Whether its lease has run out is etcd's word here, not the clock's.
        let standing = self.standing.borrow().clone();
        match standing {
            Standing::Leads { .. } if self.term == 0 => self.take_up(),
            Standing::Leads { term } if self.term == term => self.settle(),
            _ => Ok(()),
        }
    }

    /// As the leader: ends what was decided, removes what was not. A commit of before that may still be on
    /// its way changes nothing any more, because the log changes here. Without such a commit nothing is written:
    /// a full etcd refuses it.
    fn settle(&mut self) -> Result<(), StoreError> {
        if let Some(kv) = self.read(self.keys.pending())? {
            self.put_in_place(&kv.value)?;
        }
        let was_unsure = self.unsure;
        self.commits += 1;
        let nothing = Log { id: self.commit_id(), more: false, deleted: Vec::new() };
        let log = match was_unsure {
            true => put(self.keys.log(), nothing.text(), 0),
            false => get(self.keys.log()),
        };
        let wipe = TxnRequest {
            compare: vec![self.leads(), created(self.keys.pending(), 0)],
            success: vec![delete(self.keys.pieces(), after(&self.keys.pieces())), log],
            failure: Vec::new(),
        };
        let wiped = self.txn(wipe)?;
        if !wiped.succeeded {
            self.look.notify_one();
            return Err(StoreError::Fenced);
        }
        self.log = match was_unsure {
            true => wiped.revision(),
            false => wiped.read(1).map_or(0, |kv| kv.mod_revision),
        };
        self.unsure = false;
        Ok(())
    }

    /// Puts the pieces of a batch that is decided in their places.
    fn put_in_place(&mut self, pending: &[u8]) -> Result<i64, StoreError> {
        let text = String::from_utf8_lossy(pending).into_owned();
        let (id, count) = text.rsplit_once(' ').ok_or_else(|| self.damaged("meta/pending"))?;
        let count: usize = count.parse().map_err(|_| self.damaged("meta/pending"))?;
        let mut revision = 0;
        for n in 0..count {
            let name = pack::piece_name(&self.keys.pieces(), id, n);
            let found = self.read(name.clone())?.ok_or_else(|| self.damaged(name.clone()))?;
            let piece = Piece::decode(found.value.as_slice()).map_err(|_| self.damaged(name))?;
            let last = n + 1 == count;
            let mut log = Log { id: id.into(), more: !last, deleted: Vec::new() };
            let mut operations = pack::operations(&self.keys.prefix, piece.records, &mut log);
            operations.push(put(self.keys.log(), log.text(), 0));
            if last {
                operations.push(delete(self.keys.pending(), Vec::new()));
                operations.push(delete(self.keys.pieces(), after(&self.keys.pieces())));
            }
            let txn = TxnRequest {
                compare: vec![self.leads(), is(self.keys.pending(), pending)],
                success: nested(operations),
                failure: vec![get(self.keys.log())],
            };
            let done = self.txn(txn)?;
            // The answer to an earlier attempt may have been lost.
            let was_done = last && done.read(0).is_some_and(|kv| is_of(kv, id));
            if !done.succeeded && !was_done {
                self.look.notify_one();
                return Err(StoreError::Fenced);
            }
            revision = match done.succeeded {
                true => done.revision(),
                false => done.read(0).map_or(0, |kv| kv.mod_revision),
            };
        }
        Ok(revision)
    }

    /// A batch that fits into one transaction. Returns the revision.
    fn at_once(&mut self, piece: Piece, id: &str) -> Result<i64, StoreError> {
        let mut log = Log { id: id.into(), more: false, deleted: Vec::<Deleted>::new() };
        let mut operations = pack::operations(&self.keys.prefix, piece.records, &mut log);
        operations.push(put(self.keys.log(), log.text(), 0));
        self.decide(nested(operations), Vec::new(), id)
    }

    /// Lays down the pieces of a batch that does not. Returns what decides that it is done.
    fn lay(&mut self, all: Vec<Piece>, id: &str) -> Result<String, StoreError> {
        let count = all.len();
        for (n, piece) in all.into_iter().enumerate() {
            let name = pack::piece_name(&self.keys.pieces(), id, n);
            let lay = TxnRequest {
                compare: vec![self.leads()],
                success: vec![put(name, piece.encode_to_vec(), 0)],
                failure: Vec::new(),
            };
            if !self.txn(lay)?.succeeded {
                self.look.notify_one();
                return Err(StoreError::Fenced);
            }
        }
        Ok(format!("{id} {count}"))
    }

    /// From here on a batch in pieces is done, whoever puts it in its place.
    fn decide_pending(&mut self, pending: &str, id: &str) -> Result<(), StoreError> {
        // Pieces that were removed meanwhile are not decided about.
        let there = vec![exists(pack::piece_name(&self.keys.pieces(), id, 0))];
        let log = Log { id: id.into(), more: true, deleted: Vec::new() };
        let decision =
            vec![put(self.keys.pending(), pending, 0), put(self.keys.log(), log.text(), 0)];
        self.log = self.decide(decision, there, id)?;
        Ok(())
    }

    /// The transaction that makes a batch so, or not. Returns its revision.
    fn decide(
        &mut self,
        success: Vec<messages::RequestOp>,
        also: Vec<messages::Compare>,
        id: &str,
    ) -> Result<i64, StoreError> {
        let mut compare =
            vec![self.leads(), changed(self.keys.log(), self.log), created(self.keys.pending(), 0)];
        compare.extend(also);
        let failure = vec![get(self.keys.log()), get(self.keys.leader())];
        let done = self.txn(TxnRequest { compare, success, failure })?;
        if done.succeeded {
            return Ok(done.revision());
        }
        match done.read(0) {
            // The answer to an earlier attempt was lost.
            Some(kv) if is_of(kv, id) => return Ok(kv.mod_revision),
            _ => self.look.notify_one(),
        }
        let leader = done.read(1).map(|kv| u64::try_from(kv.create_revision).unwrap_or(0));
        match leader == Some(self.term) {
            true => Err(StoreError::Refused {
                path: self.client.shown().into(),
                what: "an earlier change came late".into(),
            }),
            false => Err(StoreError::Fenced),
        }
    }
}

/// Whether a log is that of this batch.
fn is_of(log: &KeyValue, id: &str) -> bool {
    Log::read(&log.value).is_some_and(|log| log.id == id)
}

/// Sixteen random digits.
fn draw() -> Result<String, StoreError> {
    let mut octets = [0; 8];
    SystemRandom::new().fill(&mut octets).map_err(|_| StoreError::Io {
        path: "random numbers".into(),
        source: std::io::Error::other("there are none"),
    })?;
    Ok(super::backup::hex(&octets))
}

impl Store for EtcdStore {
    fn commit(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        self.commits += 1;
        let id = self.commit_id();
        let mut all = pieces(batch, ONCE);
        // Until its answer is there.
        self.unsure |= !all.is_empty();
        let revision = match all.len() {
            0 => return Ok(()),
            1 => self.at_once(all.remove(0), &id)?,
            _ => {
                let pending = self.lay(all, &id)?;
                self.decide_pending(&pending, &id)?;
                self.put_in_place(pending.as_bytes())?
            }
        };
        (self.log, self.seen, self.unsure) = (revision, revision, false);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Box<dyn Snapshot>, StoreError> {
        self.settle_if_leading()?;
        Ok(Box::new(self.whole()?))
    }

    fn standing(&mut self) -> Standing {
        let standing = self.standing.borrow().clone();
        // After a pause, the caller may ask before the candidate sees what time it is.
        if matches!(standing, Standing::Leads { .. }) && Instant::now() >= *self.until.borrow() {
            return Standing::Follows { leader: None, why: "its lease has run out".into() };
        }
        standing
    }

    fn on_change(&mut self, bell: Box<dyn Fn() + Send + Sync>) {
        // One caller.
        drop(self.bell.set(bell));
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.take_up()?;
        self.check_cluster()?;
        let path = self.client.shown().to_owned();
        if self.schema()? == 0 {
            return Err(StoreError::Empty { path, prefix: self.keys.prefix.clone() });
        }
        prepare(self, &path, SCHEMA, UPGRADES)?;
        let sign = TxnRequest {
            compare: vec![self.leads(), created(self.keys.cluster(), 0)],
            success: vec![put(self.keys.cluster(), self.cluster.as_bytes(), 0)],
            failure: Vec::new(),
        };
        self.txn(sign)?;
        let (client, keys, term) = (Arc::clone(&self.client), self.keys.clone(), self.term);
        self.handle().spawn(forget(client, keys, self.standing.clone(), term));
        Ok(())
    }

    fn follow(&mut self) -> Result<Box<dyn Snapshot>, StoreError> {
        let path = self.client.shown().to_owned();
        self.settle_if_leading()?;
        let snapshot = self.whole()?;
        let found = schema_of(&snapshot, &path)?;
        match found {
            0 => return Err(StoreError::Empty { path, prefix: self.keys.prefix.clone() }),
            newer if newer > SCHEMA => {
                return Err(StoreError::Newer { path, found, known: SCHEMA });
            }
            _ => {}
        }
        self.seen = snapshot.revision;
        let (client, bell) = (Arc::clone(&self.client), Arc::clone(&self.bell));
        self.feed =
            Some(Feed::begin(self.handle(), client, &self.keys.prefix, self.seen + 1, bell));
        Ok(Box::new(snapshot))
    }

    fn changes(&mut self) -> Result<Option<Changes>, StoreError> {
        let Some(feed) = &mut self.feed else { return Ok(None) };
        while let Some((revision, changes)) = feed.take() {
            if revision <= self.seen {
                continue;
            }
            self.seen = revision;
            // A leader that settles changes the log alone.
            if !matches!(&changes, Changes::Commit(writes) if writes.is_empty()) {
                return Ok(Some(changes));
            }
        }
        Ok(None)
    }

    fn await_changes(&mut self) -> bool {
        let log = self.log;
        let Some(feed) = &mut self.feed else { return false };
        if self.seen >= log {
            return false;
        }
        let runtime = self.runtime.as_ref().expect("it is there until the end");
        let ready = async { tokio::time::timeout(CATCH_UP, feed.ready()).await };
        runtime.block_on(ready).unwrap_or(false)
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        let lease = *self.held.borrow();
        if let Some(runtime) = self.runtime.take() {
            if lease != 0 {
                // Another one leads at once. If it fails, the lease ends by itself.
                drop(runtime.block_on(self.client.revoke(lease, GOODBYE)));
            }
            runtime.shutdown_background();
        }
    }
}

/// Lets etcd forget old revisions, as long as this process leads.
async fn forget(
    client: Arc<Client>,
    keys: Keys,
    mut standing: watch::Receiver<Standing>,
    term: u64,
) {
    let mut former = 0;
    loop {
        let others = |s: &Standing| *s != Standing::Leads { term };
        if tokio::time::timeout(HISTORY, standing.wait_for(others)).await.is_ok() {
            return;
        }
        if former > 0
            && let Err(error) = client.compact(former).await
        {
            tracing::debug!("etcd's history stays: {error}");
        }
        let key = keys.leader().into_bytes();
        let found = client.range(RangeRequest { key, ..Default::default() }, PATIENCE).await;
        former = found.ok().and_then(|found| found.header).map_or(0, |header| header.revision);
    }
}

struct EtcdSnapshot {
    client: Arc<Client>,
    handle: Handle,
    keys: Keys,
    revision: i64,
}

impl Snapshot for EtcdSnapshot {
    fn scan(
        &self,
        table: Table,
        from: &str,
        each: &mut dyn FnMut(&str, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let prefix = self.keys.table(table);
        let mut key = format!("{prefix}{from}").into_bytes();
        loop {
            let page = RangeRequest {
                key,
                range_end: after(&prefix),
                limit: PAGE,
                revision: self.revision,
                keys_only: false,
            };
            let page = self.handle.block_on(self.client.range(page, PATIENCE))?;
            for kv in &page.kvs {
                let name = std::str::from_utf8(&kv.key).ok().and_then(|k| k.strip_prefix(&prefix));
                let Some(name) = name else {
                    let path = self.client.shown().into();
                    let what = format!("a key in {prefix} is no text");
                    return Err(StoreError::Damaged { path, what });
                };
                // What this store keeps for itself is no record of its callers.
                let ours = table == Table::Meta && (name == "log" || name == "pending");
                if !ours && !each(name, &kv.value) {
                    return Ok(());
                }
            }
            match page.kvs.last() {
                Some(last) if page.more => key = [&last.key[..], &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }
}
