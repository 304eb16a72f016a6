//! The hosts with agents, and the pairs that may come to life.

use super::classes::Share;
use super::meter::Meter;
use super::weather::Trouble;
use weir_core::host::Policy;
use weir_core::marks::Spared;
use weir_core::trinity::Colours;
use weir_journal::Log;
use weir_units::{Bytes, HostId, PairId, PathId, Rate, SortedMap};

/// The links of each path from one host to another: as many paths between any two.
pub(crate) type PathLinks = SortedMap<(HostId, HostId), Vec<Vec<u32>>>;

/// What is to be guarded, and how.
pub(crate) struct Guard {
    pub(crate) hosts: Vec<GuardedHost>,
    pub(crate) pairs: Vec<GuardedPair>,
    /// For each flow of the network: the pair of its data, and that of its ACKs.
    pub(crate) flows: Vec<(u32, u32)>,
    /// For each entry of traffic that comes and goes: the pair of what goes there, and the one
    /// back.
    pub(crate) exchanges: Vec<(u32, u32)>,
    /// The links from one host to another, for those whose agents talk.
    pub(crate) ways: SortedMap<(HostId, HostId), Vec<u32>>,
    /// If hosts choose among several.
    pub(crate) paths: PathLinks,
}

/// A host with an agent.
pub(crate) struct GuardedHost {
    pub(crate) policy: Policy,
    /// Where its agent's calls are recorded.
    pub(crate) log: Option<Log>,
    /// One per VM in the order of the lists.
    pub(crate) shares: Vec<Share>,
    /// In the order of time.
    pub(crate) troubles: Vec<Trouble>,
    /// The clock that stamps packets gains or loses at most so many millionths.
    pub(crate) drift: u32,
}

/// A pair that may come to life.
pub(crate) struct GuardedPair {
    pub(crate) id: PairId,
    /// The hosts of its ends.
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// A pair of VMs, dead or alive. One with several paths is so many of these in a row.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) id: PairId,
    /// Which of its paths this is, and how many there are.
    pub(super) path: PathId,
    pub(super) paths: u32,
    /// Flows that were given a path; counted at the first.
    pub(super) flows: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    /// The source's place among its host's VMs.
    pub(super) vm: u32,
    pub(super) sending: Sending,
    /// Its source's host has both of its ends in its lists.
    pub(super) known: bool,
    pub(super) receives: bool,
    pub(super) meter: Meter,
    /// What its receiver offers it, if it shows marks that guests answer; and which of them it need
    /// not.
    pub(super) offer: Rate,
    pub(super) spared: Spared,
    /// The same of its destination's host, and that guards its port.
    pub(super) met: bool,
}

impl Pair {
    /// The path of this number of a pair that has so many.
    pub(super) fn new(pair: &GuardedPair, vm: u32, path: u32, paths: u32) -> Self {
        Self {
            id: pair.id,
            path: PathId(path),
            paths,
            flows: 0,
            from: pair.from,
            to: pair.to,
            vm,
            sending: Sending::default(),
            known: true,
            receives: false,
            meter: Meter::default(),
            offer: Rate::ZERO,
            spared: Spared::default(),
            met: true,
        }
    }

    /// Nothing has come of it.
    pub(super) fn forget(&mut self) {
        (self.receives, self.meter) = (false, Meter::default());
        (self.offer, self.spared) = (Rate::ZERO, Spared::default());
    }

    /// Whether counters and levels of single paths are told.
    pub(super) fn has_several(&self) -> bool {
        self.paths > 1
    }
}

/// The sending end of a pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sending {
    pub(super) seen: bool,
    pub(super) octets: u64,
    /// Of these, acknowledgements.
    pub(super) acks: u64,
    pub(super) numbered: u64,
    pub(super) sequence: u16,
    /// Since when it sends without a queue of its own, ns.
    pub(super) stray_since: Option<u64>,
    /// Its own queue, and its floor and ceiling; until it has one it uses its VM's.
    pub(super) leaf: Option<u32>,
    pub(super) floor: Rate,
    pub(super) ceiling: Rate,
    /// What its queue may hold, if that was ordered.
    pub(super) room: Option<Bytes>,
    /// Where switches serve what is within the floor first.
    pub(super) colours: Colours,
}
