//! What a machine wants of its data plane: levels, not edges.
//!
//! Promises  Nothing is lost when a write fails or comes late: each table has a dirty set, and what was not written
//!           is marked again.

use super::io::Part;
use super::policy::Class;
use super::tags::Tag;
use super::windows::WindowShares;
use super::{Direction, Event, Events};
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, PairId, Rate, SortedMap, SortedSet, TenantId, VmId};

/// All that a data plane should have.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The rates of pairs.
    pub pairs: Pairs,
    /// What each VM may receive, from its own tenant and from strangers. Empty unless the data plane meters ([`super::Capabilities::meters`]).
    pub meters: Levels<(VmId, Part), Receive>,
    /// What connections of VMs with a budget may have, by class.
    pub windows: Levels<VmId, WindowShares>,
    /// The class of each VM's packets in the network. Empty: all are alike.
    pub classes: Levels<VmId, Class>,
    /// What is offered to pairs that show marks, where guests answer marks: a guest does not see those of a pair that
    /// gets no more ([`crate::marks`]).
    pub offers: Levels<PairId, Rate>,
    /// What the queues of pairs on long paths may hold, where it is more than [`crate::classes::QUEUE`].
    pub rooms: Levels<PairId, Bytes>,
    /// The tag of each tenant with a VM here. A tenant without one is in the shared queue.
    pub tags: Levels<TenantId, Tag>,
    /// What changed in the machine: for people, not for the data plane.
    pub events: Events,
}

impl Orders {
    /// An end of a pair is over.
    pub(crate) fn forget(&mut self, pair: PairId, direction: Direction) {
        self.pairs.forget(pair, direction);
        match direction {
            Direction::Send => self.rooms.remove(pair),
            Direction::Receive => self.offers.remove(pair),
        }
        self.events.tell(Event::Ended(pair, direction));
    }

    /// Marks everything as changed: what the data plane had may be lost.
    pub fn write_again(&mut self) {
        self.pairs.dirty.extend(self.pairs.table.keys());
        self.pairs.dirty_paths.extend(self.pairs.paths.keys());
        self.meters.write_again();
        self.windows.write_again();
        self.classes.write_again();
        self.offers.write_again();
        self.rooms.write_again();
        self.tags.write_again();
    }
}

/// The rates of one pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Setting {
    /// What the pair gets whatever the others do; stands without anyone alive.
    pub floor: Rate,
    /// The most it may send, floor included; what is above the floor is a lease.
    pub ceiling: Rate,
}

impl Setting {
    /// Whether `next` only raises the ceiling, by less than 1/64: not worth a call into the kernel.
    /// Growing pairs do it every period; what is taken away is written at once.
    fn is_close_below(self, next: Self) -> bool {
        let least = self.ceiling.as_bps() / 64;
        self.floor == next.floor
            && next.ceiling >= self.ceiling
            && next.ceiling.as_bps() - self.ceiling.as_bps() < least.max(1)
    }
}

/// What one part of a VM's senders may send to it, where the data plane meters it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Receive {
    /// All senders of the part together.
    pub capacity: Rate,
    /// No sender is told less.
    pub least: Rate,
}

/// The rates of all pairs.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Pairs {
    table: SortedMap<PairId, Setting>,
    dirty: SortedSet<PairId>,
    forgotten: Vec<(PairId, Direction)>,
    /// Of pairs with several paths: the levels of these, which sum to the pair's.
    paths: SortedMap<PairId, Vec<Setting>>,
    dirty_paths: SortedSet<PairId>,
}

impl Pairs {
    /// Sets the levels of a pair.
    ///
    /// # Panics
    /// The ceiling is below the floor.
    pub fn set(&mut self, pair: PairId, setting: Setting) {
        assert!(setting.ceiling >= setting.floor, "a ceiling below its floor");
        if self.table.insert(pair, setting) != Some(setting) {
            self.dirty.insert(pair);
        }
    }

    /// What the floors of all pairs sum to.
    pub(crate) fn floors(&self) -> Rate {
        self.table.values().map(|setting| setting.floor).sum()
    }

    /// The same for a ceiling that will go on growing: small steps are left out.
    ///
    /// # Panics
    /// As [`Pairs::set`].
    pub fn grow(&mut self, pair: PairId, setting: Setting) {
        if !self.table.get(&pair).is_some_and(|now| now.is_close_below(setting)) {
            self.set(pair, setting);
        }
    }

    /// Sets the levels of a pair's paths. Small steps of growing ceilings are left out.
    pub(crate) fn set_paths(&mut self, pair: PairId, paths: Vec<Setting>, line: Rate) {
        let known = self.paths.get(&pair).filter(|known| known.len() == paths.len());
        let is_close = known.is_some_and(|known| {
            known.iter().zip(&paths).all(|(now, next)| now.is_close_below(*next))
        });
        if !is_close {
            self.set(pair, together(&paths, line));
            self.paths.insert(pair, paths);
            self.dirty_paths.insert(pair);
        }
    }

    /// An end of a pair is over.
    pub fn forget(&mut self, pair: PairId, direction: Direction) {
        if direction == Direction::Send {
            self.table.remove(&pair);
            self.dirty.remove(&pair);
            self.paths.remove(&pair);
            self.dirty_paths.remove(&pair);
        }
        self.forgotten.push((pair, direction));
    }

    /// The setting of a pair, if it has one.
    pub fn get(&self, pair: PairId) -> Option<Setting> {
        self.table.get(&pair).copied()
    }

    /// All settings, in the order of pairs.
    pub fn iter(&self) -> impl Iterator<Item = (PairId, Setting)> + '_ {
        self.table.iter().map(|(p, s)| (*p, *s))
    }

    /// Takes what changed since the last call.
    pub fn take_changed(&mut self) -> Vec<(PairId, Setting)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().filter_map(|p| self.table.get(&p).map(|s| (p, *s))).collect()
    }

    /// The levels of a pair's paths, if it has several.
    pub fn paths(&self, pair: PairId) -> Option<&[Setting]> {
        self.paths.get(&pair).map(Vec::as_slice)
    }

    /// Takes the pairs the levels of whose paths changed since the last call.
    pub fn take_changed_paths(&mut self) -> Vec<(PairId, Vec<Setting>)> {
        let dirty = std::mem::take(&mut self.dirty_paths);
        dirty.into_iter().filter_map(|p| self.paths.get(&p).map(|s| (p, s.clone()))).collect()
    }

    /// Marks pairs as changed again: their write failed.
    pub fn retry(&mut self, pairs: impl IntoIterator<Item = PairId>) {
        self.dirty.extend(pairs);
    }

    /// Says again that pairs are over: they could not be removed. See [`Pairs::take_forgotten`].
    pub fn retry_forgotten(&mut self, ends: Vec<(PairId, Direction)>) {
        self.forgotten.extend(ends);
    }

    /// Takes the pairs that are over since the last call.
    ///
    /// A pair that could not be removed and came back meanwhile has its class again, with its levels: it is
    /// over no longer. One whose levels are still to be written is removed before.
    pub fn take_forgotten(&mut self) -> Vec<(PairId, Direction)> {
        let mut forgotten = std::mem::take(&mut self.forgotten);
        let is_written = |pair: &PairId| {
            let is_dirty = self.dirty.contains(pair) || self.dirty_paths.contains(pair);
            self.table.contains_key(pair) && !is_dirty
        };
        forgotten.retain(|(pair, direction)| *direction != Direction::Send || !is_written(pair));
        forgotten
    }
}

/// What all paths of a pair have together; never more than the line, but for a floor.
fn together(paths: &[Setting], line: Rate) -> Setting {
    let floor = paths.iter().map(|path| path.floor).sum();
    let ceiling: Rate = paths.iter().map(|path| path.ceiling).sum();
    Setting { floor, ceiling: ceiling.min(line).max(floor) }
}

/// A table with a dirty set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Ord + Deserialize<'de>, V: Deserialize<'de>"))]
pub struct Levels<K, V> {
    table: SortedMap<K, V>,
    dirty: SortedSet<K>,
}

impl<K, V> Default for Levels<K, V> {
    fn default() -> Self {
        Self { table: SortedMap::new(), dirty: SortedSet::new() }
    }
}

impl<K: Copy + Ord, V: Clone + PartialEq> Levels<K, V> {
    pub(crate) fn set(&mut self, key: K, level: V) {
        if self.table.get(&key) != Some(&level) {
            self.table.insert(key, level);
            self.dirty.insert(key);
        }
    }

    /// The level of one, or that it has none.
    pub(crate) fn put(&mut self, key: K, level: Option<V>) {
        match level {
            Some(level) => self.set(key, level),
            None => self.remove(key),
        }
    }

    pub(crate) fn remove(&mut self, key: K) {
        if self.table.remove(&key).is_some() {
            self.dirty.insert(key);
        }
    }

    fn write_again(&mut self) {
        self.dirty.extend(self.table.keys());
    }

    /// The level of one, if it has one.
    pub fn get(&self, key: K) -> Option<V> {
        self.table.get(&key).cloned()
    }

    /// All levels, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.table.iter().map(|(k, v)| (*k, v.clone()))
    }

    /// Takes what changed since the last call; `None`: it has no level any more.
    pub fn take_changed(&mut self) -> Vec<(K, Option<V>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|key| (key, self.get(key))).collect()
    }

    /// Marks some as changed again: their write failed.
    pub fn retry(&mut self, keys: impl IntoIterator<Item = K>) {
        self.dirty.extend(keys);
    }
}
