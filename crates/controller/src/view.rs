//! What readers see: the objects that are on the disk, and the latest changes.
//!
//! Problem   Readers must not wait for writers, must not see what may still be lost, and a reader that is
//!           slow must not fill the memory.
//! Approach  One thread publishes after each commit. Objects are shared, not copied. The latest changes
//!           are in one ring for all; a watch keeps only its place in it.
//! Promises  A watch gets every change after its version in order, or learns that it is too late.

use crate::state::{Event, Published, State, Stored, Token};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;
use weir_model::objects::Kind;

/// Changes that one step of a watch takes from the ring.
const STEP: usize = 256;

struct Inner {
    objects: [BTreeMap<String, Arc<Stored>>; Kind::ALL.len()],
    tokens: BTreeMap<String, Arc<Token>>,
    history: VecDeque<Event>,
    /// Changes up to this version are no longer in `history`.
    compacted: u64,
    revision: u64,
}

/// The published state.
pub struct View {
    inner: RwLock<Inner>,
    /// Number of changes to keep.
    history: usize,
    newest: watch::Sender<u64>,
}

/// One page of a list.
pub struct Page {
    /// Objects in the order of their names.
    pub items: Vec<Arc<Stored>>,
    /// Version of the state that the page is of.
    pub revision: u64,
    /// Name after which the next page begins.
    pub next: Option<String>,
}

/// The version that a reader names is older than the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// The oldest version from which a watch may begin.
    pub oldest: u64,
}

impl View {
    /// Publishes a state. The latest `history` changes from now on are kept.
    pub fn new(state: &State, history: usize) -> Self {
        let inner = inner_of(state);
        let newest = watch::Sender::new(inner.revision);
        Self { inner: RwLock::new(inner), history, newest }
    }

    /// The state was read again: watches have to begin anew.
    pub fn reset(&self, state: &State) {
        let inner = inner_of(state);
        let revision = inner.revision;
        *self.write() = inner;
        self.newest.send_replace(revision);
    }

    /// Whether readers see the objects and tokens of this state.
    pub fn is_that_of(&self, state: &State) -> bool {
        let inner = self.read();
        let shown = inner.objects.iter().flat_map(BTreeMap::values);
        inner.revision == state.revision()
            && shown.map(|stored| &stored.json).eq(state.objects().map(|stored| &stored.json))
            && inner.tokens == *state.tokens()
    }

    /// Publishes changes that are on the disk.
    pub fn publish(&self, published: Published) {
        let mut inner = self.write();
        for (hash, token) in published.tokens {
            match token {
                Some(token) => inner.tokens.insert(hash, token),
                None => inner.tokens.remove(&hash),
            };
        }
        for event in published.events {
            let (kind, name) = (event.stored.object.kind(), event.stored.object.name());
            let objects = &mut inner.objects[kind as usize];
            match event.kind {
                crate::state::EventKind::Deleted => objects.remove(name),
                _ => objects.insert(name.into(), Arc::clone(&event.stored)),
            };
            inner.revision = event.revision;
            inner.history.push_back(event);
            if inner.history.len() > self.history {
                let oldest = inner.history.pop_front().expect("it has one more than that");
                inner.compacted = oldest.revision;
            }
        }
        let revision = inner.revision;
        drop(inner);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, revision) != revision);
    }

    /// One object.
    pub fn get(&self, kind: Kind, name: &str) -> Option<Arc<Stored>> {
        self.read().objects[kind as usize].get(name).cloned()
    }

    /// At most `limit` objects with names after `after` of which `wanted` says yes.
    pub fn list(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: usize,
        wanted: impl Fn(&Stored) -> bool,
    ) -> Page {
        let inner = self.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = inner.objects[kind as usize].range::<str, _>((from, Bound::Unbounded));
        let mut found = range.map(|(_, stored)| stored).filter(|stored| wanted(stored));
        let items: Vec<_> = found.by_ref().take(limit).cloned().collect();
        let more = found.next().is_some();
        let next = items.last().filter(|_| more).map(|last| last.object.name().to_owned());
        Page { items, revision: inner.revision, next }
    }

    /// The next changes after a version. Empty if there are none yet; `reached` is the version up to
    /// which they were looked at.
    ///
    /// # Errors
    ///
    /// They are no longer known.
    pub fn after(
        &self,
        revision: u64,
        wanted: impl Fn(&Stored) -> bool,
    ) -> Result<(Vec<Event>, u64), Compacted> {
        let inner = self.read();
        if revision < inner.compacted {
            return Err(Compacted { oldest: inner.compacted });
        }
        let begin = inner.history.partition_point(|event| event.revision <= revision);
        let step = inner.history.range(begin..).take(STEP);
        let reached = step.clone().next_back().map_or(inner.revision, |event| event.revision);
        Ok((step.filter(|event| wanted(&event.stored)).cloned().collect(), reached))
    }

    /// The version of the newest change, and how to wait for the next.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The version of the newest change.
    pub fn revision(&self) -> u64 {
        self.read().revision
    }

    /// The token with this hash.
    pub fn token(&self, hash: &str) -> Option<Arc<Token>> {
        self.read().tokens.get(hash).cloned()
    }

    /// All tokens.
    pub fn tokens(&self) -> Vec<Arc<Token>> {
        self.read().tokens.values().cloned().collect()
    }

    /// All objects of these kinds, and the version of the state that they are of.
    pub fn all(&self, kinds: &[Kind]) -> (Vec<Arc<Stored>>, u64) {
        let inner = self.read();
        let all = kinds.iter().flat_map(|kind| inner.objects[*kind as usize].values());
        (all.cloned().collect(), inner.revision)
    }

    /// Number of objects of each kind.
    pub fn counts(&self) -> [(Kind, usize); Kind::ALL.len()] {
        let inner = self.read();
        Kind::ALL.map(|kind| (kind, inner.objects[kind as usize].len()))
    }

    // The one writer panics only with the process.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inner_of(state: &State) -> Inner {
    let mut objects: [BTreeMap<String, Arc<Stored>>; Kind::ALL.len()] = Default::default();
    for stored in state.objects() {
        let kind = stored.object.kind();
        objects[kind as usize].insert(stored.object.name().into(), Arc::clone(stored));
    }
    let revision = state.revision();
    let tokens = state.tokens().clone();
    Inner { objects, tokens, history: VecDeque::new(), compacted: revision, revision }
}
