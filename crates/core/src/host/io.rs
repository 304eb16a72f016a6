//! What goes into and comes out of a [`HostAgent`](super::HostAgent).

use super::HostConfig;
use super::paths::together;
use crate::message::Message;
use std::collections::{BTreeMap, BTreeSet};
use weir_units::{HostId, PairId, PathId, Rate};

/// The only things that ever happen to a host's agent.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The first packet of a pair passed this host.
    Seen(PairId, Direction),
    /// A pair that an earlier life of this agent left with these levels, still in force.
    Adopt(PairId, Setting),
    /// A pair that an earlier life of this agent received on. Its sender holds an offer of that life
    /// and is given until the next partitioning to tell ([`Input::PeerRestarted`] at its host).
    Found(PairId),
    /// A peer's agent has a new life, and is believed: it does not know what its senders here hold.
    PeerRestarted(HostId),
    /// Counters of the data plane: of all pairs of a direction, or of none. Also shows pairs that were
    /// never `Seen`, for instance after a restart.
    Sample(&'a Sample),
    /// Counters of single paths, of the pairs that have several. Losses and marks of these are here, and
    /// not in the [`Input::Sample`] that comes first, which has the rest of all their paths together.
    PathSample(&'a PathSample),
    /// An authenticated message from a peer's agent.
    Message(HostId, Message),
    /// The VMs of this host, their hoses, and the directory are these from now on; the rest of the
    /// configuration is not looked at. An id that became another VM's is to be left out once first.
    Population(&'a HostConfig),
    /// The deadline has passed.
    Tick,
}

/// Which end of a pair this host is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// The source VM lives here: this host limits.
    Send,
    /// The destination VM lives here: this host offers and reports.
    Receive,
}

/// Counters of all pairs, cumulative since the data plane first saw the pair.
#[derive(Clone, Default, Debug)]
pub struct Sample {
    /// Pairs whose source is here.
    pub send: Vec<(PairId, SendCount)>,
    /// Pairs whose destination is here.
    pub receive: Vec<(PairId, ReceiveCount)>,
}

/// The same of single paths of pairs that have several.
#[derive(Clone, Default, Debug)]
pub struct PathSample {
    /// Paths of pairs whose source is here.
    pub send: Vec<(PairId, PathId, SendCount)>,
    /// Paths of pairs whose destination is here.
    pub receive: Vec<(PairId, PathId, ReceiveCount)>,
}

/// What left a VM toward another, before shaping.
#[derive(Clone, Copy, Default, Debug)]
pub struct SendCount {
    /// Octets on layer 2 without FCS.
    pub octets: u64,
    /// Octets that left with a number: the receiver sees when some are lost.
    pub numbered: u64,
    /// Octets that left without: IPv6 and fragments, in which only marks show congestion.
    pub unnumbered: u64,
    /// Segments that left with a number.
    pub segments: u64,
}

/// What arrived.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReceiveCount {
    /// Octets on layer 2 without FCS.
    pub octets: u64,
    /// Segments of at most one MTU.
    pub segments: u64,
    /// Of these, with a number; absent where the data plane does not count them.
    pub numbered: Option<u64>,
    /// Segments missing in the sequence.
    pub lost: u64,
    /// Segments marked CE.
    pub marked: u64,
}

/// The rates of one pair: a level, not an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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

/// Rates that the data plane should have: a table with a dirty set, so that nothing is lost when a
/// write fails or comes late.
#[derive(Default, Debug)]
pub struct Desired {
    table: BTreeMap<PairId, Setting>,
    dirty: BTreeSet<PairId>,
    forgotten: Vec<(PairId, Direction)>,
    /// Of pairs with several paths: the levels of these, which sum to the pair's.
    paths: BTreeMap<PairId, Vec<Setting>>,
    dirty_paths: BTreeSet<PairId>,
}

impl Desired {
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
    pub(super) fn floors(&self) -> Rate {
        self.table.values().map(|setting| setting.floor).sum()
    }

    /// The same for a ceiling that will go on growing: small steps are left out.
    ///
    /// # Panics
    /// As [`Desired::set`].
    pub fn grow(&mut self, pair: PairId, setting: Setting) {
        if !self.table.get(&pair).is_some_and(|now| now.is_close_below(setting)) {
            self.set(pair, setting);
        }
    }

    /// Sets the levels of a pair's paths. Small steps of growing ceilings are left out.
    pub(super) fn set_paths(&mut self, pair: PairId, paths: Vec<Setting>, line: Rate) {
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

    /// Says again that pairs are over: they could not be removed.
    pub fn retry_forgotten(&mut self, ends: Vec<(PairId, Direction)>) {
        self.forgotten.extend(ends);
    }

    /// Takes the pairs that are over since the last call.
    pub fn take_forgotten(&mut self) -> Vec<(PairId, Direction)> {
        std::mem::take(&mut self.forgotten)
    }
}

/// The directions whose counters are to be read before a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Of pairs that send from here.
    pub send: bool,
    /// Of pairs that receive here.
    pub receive: bool,
}

/// Why the agent wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// Receivers look for losses.
    Sample,
    /// The rate allocation period is over.
    Rate,
    /// The guarantee partitioning period is over.
    Partition,
    /// New pairs appeared: their hoses are divided again, and the new parts are offered.
    NewPairs,
}
