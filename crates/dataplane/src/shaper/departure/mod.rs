//! The shaper made of departure times: no classes, no queues of its own.
//!
//! Problem   HTB has one lock per tree, a timer per packet, and classes that are slow to make.
//! Approach  On the uplink's egress a BPF program (`bpf/depart.bpf.c`) computes when a packet may
//!           leave, and the uplink's fq qdisc holds it until then. The tree is HTB's (uplink, VMs,
//!           queues), its rates are entries of a mapped array: a change is a store, without a
//!           system call. The agent's heartbeat is in a map, too: when it is stale, the program
//!           itself limits pairs to their floors.
//! Promises  The desired levels are those in the map; a second pass finds nothing to do. Dropping
//!           the value leaves all in force; a successor adopts it without a gap. The uplink's root
//!           qdisc is taken only from the kernel's default, and given back.
//! Not here  Traffic within the host, which does not pass the uplink. Weights: the packets that
//!           come first get what is lent (see docs/decisions/0004-departure-times.md).

mod hold;
mod nodes;
mod observer;

pub use observer::Observer;

use super::desired::{self, Pair, Pairs};
use super::levels::Levels;
use super::{
    Changes, ClassId, ClassStats, Error, Fault, Kind, PairRate, Shaper, ShaperConfig, VmClasses,
    VmShare, root,
};
use crate::intf::{Level, NODES};
use crate::nl::{Device, Socket};
use crate::programs::Departures;
use crate::table::CounterArray;
use nodes::{HOST, PAIRS, Term, UNSORTED, UPLINK};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::classes::{Overbooked, floor_of};
use weir_units::{Bytes, PairId, Rate, VmId};

/// The shaper made of departure times. See [`Shaper`] for the order of calls.
pub struct DepartureTimes {
    tree: Tree,
    maps: Rest,
    uplink: Device,
    socket: Socket,
}

/// The maps beside the levels.
struct Rest {
    queues: crate::table::Table<u32, crate::intf::Queue>,
    lease: CounterArray<u64>,
}

/// Levels desired, and in the map.
struct Tree {
    config: ShaperConfig,
    map: CounterArray<Level>,
    levels: Levels,
    vms: BTreeMap<VmId, Vm>,
    /// The slots of VMs that an earlier agent had.
    remembered: BTreeMap<VmId, u16>,
    pairs: Pairs,
    /// Room of the pairs with a deep queue.
    rooms: BTreeMap<PairId, Bytes>,
    /// Pairs of the pair nodes in use.
    owners: BTreeMap<u16, PairId>,
    /// Nodes of an earlier agent's pairs that have not been claimed or given up yet.
    claimable: BTreeSet<u16>,
    /// Sum of the pairs' floors.
    floors: Rate,
    /// Whether the uplink has a level: without, packets depart at once.
    engaged: bool,
}

#[derive(Clone)]
struct Vm {
    share: VmShare,
    slot: u16,
}

/// The class of the host's own traffic.
pub(crate) const HOST_CLASS: ClassId = nodes::class_id(HOST);

impl DepartureTimes {
    /// Makes fq the root of the uplink, or takes over what an earlier agent left there and in the
    /// maps. `remembered` are classes that its VMs had, one or more of each. In this thread's
    /// network namespace, for good.
    ///
    /// # Errors
    ///
    /// [`Error::NoFq`]; [`Error::Foreign`] for a root qdisc that is not the kernel's default; maps
    /// of the wrong size; any refusal of the kernel.
    pub fn open(
        config: ShaperConfig,
        uplink: Device,
        maps: Departures,
        remembered: &[(VmId, ClassId)],
    ) -> Result<Self, Error> {
        let Departures { levels, queues, lease } = maps;
        let tree = Tree::new(config, levels, remembered)?;
        let mut socket = Socket::open()?;
        hold::hold(&mut socket, &uplink)?;
        Ok(Self { tree, maps: Rest { queues, lease }, uplink, socket })
    }
}

impl Tree {
    fn new(
        config: ShaperConfig,
        map: CounterArray<Level>,
        remembered: &[(VmId, ClassId)],
    ) -> Result<Self, Error> {
        config.check()?;
        if map.len() != NODES as usize {
            return Err(Error::Config("the maps of departure times were loaded too small"));
        }
        let slot = |(vm, class): &(VmId, ClassId)| {
            let level = map.get(usize::from(nodes::node(*class)?));
            Some((*vm, nodes::slot_of(level.parent)?))
        };
        let there = |node: &u16| map.get(usize::from(*node)).ceiling != 0;
        Ok(Self {
            levels: Levels::new(&config, &[]),
            vms: BTreeMap::new(),
            remembered: remembered.iter().filter_map(slot).collect(),
            pairs: Pairs::new(),
            rooms: BTreeMap::new(),
            owners: BTreeMap::new(),
            claimable: PAIRS.filter(there).collect(),
            floors: Rate::ZERO,
            config,
            map,
            engaged: true,
        })
    }

    fn found(&self, node: u16) -> Level {
        self.map.get(usize::from(node))
    }

    /// Sets a node's level to the desired one. Returns whether it was another.
    fn write(&self, node: u16, wanted: Level) -> bool {
        let differs = self.found(node) != wanted;
        if differs {
            self.map.put(usize::from(node), wanted);
        }
        differs
    }

    fn leaf(&self, class: crate::nl::htb::Class, parent: u16, term: Term) -> Level {
        nodes::leaf(class, parent, self.config.queue, term)
    }

    /// The level of a pair that has a node.
    fn pair(&self, id: PairId, rate: PairRate) -> Level {
        let vm = &self.vms[&id.src];
        let class = self.levels.pair(&vm.share, rate, self.floors);
        let queue = self.rooms.get(&id).copied().unwrap_or(self.config.queue);
        let limit_ns = self.config.departs_within.as_nanos();
        Level { limit_ns, ..nodes::leaf(class, nodes::share(vm.slot), queue, Term::Lease) }
    }

    /// All desired nodes. A node that is not named here should not exist.
    fn wanted(&self) -> BTreeMap<u16, Level> {
        let (levels, queue) = (&self.levels, self.config.queue);
        let mut wanted = BTreeMap::new();
        if self.engaged {
            wanted.insert(UPLINK, nodes::inner(levels.uplink(), 0, queue));
        }
        wanted.insert(UNSORTED, self.leaf(levels.unclassified(), UPLINK, Term::ForGood));
        if let Some(host) = levels.host() {
            wanted.insert(HOST, self.leaf(host, UPLINK, Term::ForGood));
        }
        for vm in self.vms.values() {
            let share = nodes::share(vm.slot);
            let (default, control) = (levels.vm_default(&vm.share), levels.vm_control());
            wanted.insert(share, nodes::inner(levels.vm(&vm.share), UPLINK, queue));
            wanted.insert(nodes::default(vm.slot), self.leaf(default, share, Term::ForGood));
            wanted.insert(nodes::control(vm.slot), self.leaf(control, share, Term::ForGood));
            let external = levels.vm_external(&vm.share);
            wanted.insert(nodes::external(vm.slot), self.leaf(external, share, Term::ForGood));
        }
        wanted.extend(self.pairs.iter().map(|(id, pair)| (pair.minor, self.pair(*id, pair.rate))));
        wanted.extend(self.claimable.iter().map(|node| (*node, self.found(*node))));
        wanted
    }

    fn place(&self, vms: &[VmShare]) -> Result<BTreeMap<VmId, Vm>, Error> {
        let mut taken = BTreeSet::new();
        let mut placed = BTreeMap::new();
        for share in vms {
            let own = self.vms.get(&share.vm).map(|vm| vm.slot);
            let slot = own.or_else(|| self.remembered.get(&share.vm).copied());
            if let Some(slot) = slot.filter(|slot| taken.insert(*slot)) {
                placed.insert(share.vm, Vm { share: share.clone(), slot });
            }
        }
        // A slot that was never used first: what another VM sent may still be on its way.
        let used = |slot: &u16| self.found(nodes::share(*slot)).ceiling != 0;
        let (mut free, used): (Vec<u16>, Vec<u16>) =
            (0..nodes::SLOTS).filter(|slot| !taken.contains(slot)).partition(|slot| !used(slot));
        free.extend(used);
        let mut free = free.into_iter();
        for share in vms {
            if !placed.contains_key(&share.vm) {
                let limit = usize::from(nodes::SLOTS);
                let full = Error::Full { of: "VMs", wanted: 1, used: placed.len(), limit };
                let slot = free.next().ok_or(full)?;
                placed.insert(share.vm, Vm { share: share.clone(), slot });
            }
        }
        Ok(placed)
    }

    fn apply_vms(&mut self, vms: &[VmShare]) -> Result<Changes, Error> {
        desired::check_vms(&self.config, vms)?;
        self.vms = self.place(vms)?;
        self.remembered.clear();
        self.levels = Levels::new(&self.config, vms);
        self.pairs.retain(|id, _| self.vms.contains_key(&id.src));
        self.rooms.retain(|id, _| self.pairs.contains_key(id));
        self.owners.retain(|_, id| self.vms.contains_key(&id.src));
        self.floors = desired::floors(&self.pairs);
        let shares: BTreeSet<u64> =
            self.vms.values().map(|vm| nodes::share(vm.slot).into()).collect();
        let map = &self.map;
        self.claimable.retain(|node| shares.contains(&map.get(usize::from(*node)).parent));

        let (wanted, mut changes) = (self.wanted(), Changes::default());
        for node in 0..NODES as u16 {
            let there = self.found(node).ceiling != 0;
            match wanted.get(&node) {
                Some(level) if self.write(node, *level) && there => changes.changed += 1,
                Some(_) if !there => changes.created += 1,
                Some(_) => {}
                None if self.write(node, Level::default()) => changes.deleted += 1,
                None => {}
            }
        }
        Ok(changes)
    }

    fn vm_classes(&self, vm: VmId) -> Option<VmClasses> {
        let Vm { share, slot } = self.vms.get(&vm)?;
        Some(VmClasses {
            default: nodes::class_id(nodes::default(*slot)),
            control: nodes::class_id(nodes::control(*slot)),
            external: nodes::class_id(nodes::external(*slot)),
            stray_rate: self.levels.stray_rate(share),
            moment: self.levels.moment(share),
            external_rate: self.levels.external_rate(share),
        })
    }

    fn claim(&mut self, pairs: &[(PairId, ClassId)]) -> Vec<PairId> {
        let mut refused = Vec::new();
        for (id, class) in pairs {
            let share = self.vms.get(&id.src).map(|vm| u64::from(nodes::share(vm.slot)));
            let node = nodes::node(*class)
                .filter(|node| Some(self.found(*node).parent) == share)
                .filter(|node| self.claimable.remove(node));
            let Some(node) = node else {
                refused.push(*id);
                continue;
            };
            let pair = Pair { minor: node, rate: rate_of(self.found(node)) };
            if let Some(former) = self.pairs.insert(*id, pair) {
                self.retire(&[former.minor]);
            }
            self.owners.insert(node, *id);
        }
        self.floors = desired::floors(&self.pairs);
        self.give_up_unclaimed();
        refused
    }

    fn give_up_unclaimed(&mut self) {
        let left: Vec<u16> = std::mem::take(&mut self.claimable).into_iter().collect();
        self.retire(&left);
    }

    fn retire(&mut self, nodes: &[u16]) {
        for node in nodes {
            self.owners.remove(node);
            self.write(*node, Level::default());
        }
    }

    fn admitted(&self, pairs: &[PairId]) -> BTreeSet<PairId> {
        desired::admitted(&self.pairs, pairs, self.vms.len(), self.config.max_pairs)
    }

    fn add_pairs(&mut self, pairs: &[PairId]) -> Result<Vec<ClassId>, Error> {
        self.give_up_unclaimed();
        let fresh: BTreeSet<PairId> =
            pairs.iter().copied().filter(|id| !self.pairs.contains_key(id)).collect();
        if let Some(id) = fresh.iter().find(|id| !self.vms.contains_key(&id.src)) {
            return Err(Error::UnknownVm(id.src));
        }
        let (used, limit) = (self.pairs.len(), self.config.max_pairs);
        if used + fresh.len() > limit {
            return Err(Error::Full { of: "pairs", wanted: fresh.len(), used, limit });
        }
        let mut free = PAIRS;
        for id in fresh {
            let node = free.find(|node| !self.owners.contains_key(node));
            let node = node.expect("there are as many nodes as pairs at most");
            let pair = Pair { minor: node, rate: PairRate::default() };
            self.owners.insert(node, id);
            self.pairs.insert(id, pair);
            self.write(node, self.pair(id, pair.rate));
        }
        Ok(pairs.iter().map(|id| nodes::class_id(self.pairs[id].minor)).collect())
    }

    /// Writes the levels of these pairs that differ; how many.
    fn write_pairs<'a>(&self, pairs: impl Iterator<Item = &'a PairId>) -> usize {
        let differs = |id: &&PairId| {
            let pair = self.pairs[*id];
            self.write(pair.minor, self.pair(**id, pair.rate))
        };
        pairs.filter(differs).count()
    }

    /// Writes these pairs, or all if every pair's part of an overbooked uplink has changed.
    fn settle(&mut self, pairs: &BTreeSet<PairId>) -> usize {
        let before = self.overbooked();
        self.floors = desired::floors(&self.pairs);
        if before == self.overbooked() {
            self.write_pairs(pairs.iter())
        } else {
            self.write_pairs(self.pairs.keys())
        }
    }

    fn set(&mut self, rates: &[(PairId, PairRate)]) -> Result<usize, Error> {
        let Self { pairs, vms, .. } = self;
        // Only VMs that were applied have pairs.
        let named = desired::set_rates(pairs, rates, |vm| vms[&vm].share.floor)?;
        Ok(self.settle(&named))
    }

    fn set_room(&mut self, pair: PairId, room: Option<Bytes>) {
        match room.filter(|_| self.pairs.contains_key(&pair)) {
            Some(room) => self.rooms.insert(pair, room),
            None => self.rooms.remove(&pair),
        };
        self.write_pairs(self.pairs.get_key_value(&pair).map(|(id, _)| id).into_iter());
    }

    fn remove(&mut self, pairs: &[PairId]) {
        self.rooms.retain(|pair, _| !pairs.contains(pair));
        let gone: Vec<Pair> = pairs.iter().filter_map(|id| self.pairs.remove(id)).collect();
        self.retire(&gone.iter().map(|pair| pair.minor).collect::<Vec<_>>());
        self.settle(&BTreeSet::new());
    }

    fn read_back(&self) -> Vec<(PairId, PairRate)> {
        self.owners.iter().map(|(node, id)| (*id, rate_of(self.found(*node)))).collect()
    }

    fn overbooked(&self) -> Option<Overbooked> {
        self.levels.overbooked(self.floors)
    }
}

fn rate_of(level: Level) -> PairRate {
    let floor = floor_of(Rate::from_bps(level.floor)).unwrap_or_default();
    PairRate { floor, ceiling: Rate::from_bps(level.ceiling) }
}

impl Shaper for DepartureTimes {
    fn kind(&self) -> Kind {
        Kind::DepartureTime
    }

    fn apply_vms(&mut self, vms: &[VmShare]) -> Result<Changes, Error> {
        self.refresh()?;
        self.tree.apply_vms(vms)
    }

    fn faults(&mut self, _whole: bool) -> Result<Vec<Fault>, Error> {
        Ok(hold::fault(&mut self.socket, &self.uplink)?.into_iter().collect())
    }

    fn let_pass(&mut self) -> Result<(), Error> {
        self.tree.engaged = false;
        self.tree.map.clear(usize::from(UPLINK));
        Ok(())
    }

    fn engage(&mut self) {
        self.tree.engaged = true;
    }

    fn is_idle(&mut self) -> Result<bool, Error> {
        Ok(hold::ours(&mut self.socket, &self.uplink)?.is_none_or(|entry| entry.stats.queued == 0))
    }

    fn vm_classes(&self, vm: VmId) -> Option<VmClasses> {
        self.tree.vm_classes(vm)
    }

    fn claim(&mut self, pairs: &[(PairId, ClassId)]) -> Result<Vec<PairId>, Error> {
        Ok(self.tree.claim(pairs))
    }

    fn admitted(&self, pairs: &[PairId]) -> BTreeSet<PairId> {
        self.tree.admitted(pairs)
    }

    fn add_pairs(&mut self, pairs: &[PairId]) -> Result<Vec<ClassId>, Error> {
        self.tree.add_pairs(pairs)
    }

    fn set(&mut self, rates: &[(PairId, PairRate)]) -> Result<usize, Error> {
        self.tree.set(rates)
    }

    fn set_room(&mut self, pair: PairId, room: Option<Bytes>) -> Result<(), Error> {
        self.tree.set_room(pair, room);
        Ok(())
    }

    fn remove(&mut self, pairs: &[PairId]) -> Result<(), Error> {
        self.tree.remove(pairs);
        Ok(())
    }

    fn read_back(&mut self) -> Result<Vec<(PairId, PairRate)>, Error> {
        Ok(self.tree.read_back())
    }

    /// The map is read whenever something is compared; what can have gone is the qdisc.
    fn refresh(&mut self) -> Result<(), Error> {
        hold::hold(&mut self.socket, &self.uplink).map(drop)
    }

    fn renew(&mut self, now_ns: u64) {
        self.maps.lease.put(0, now_ns);
    }

    fn overbooked(&self) -> Option<Overbooked> {
        self.tree.overbooked()
    }

    fn stats(&mut self) -> Result<Vec<ClassStats>, Error> {
        let now_ns = self.maps.lease.get(0);
        let mut all = Vec::new();
        for node in (0..NODES as u16).filter(|node| nodes::is_leaf(*node)) {
            if self.tree.found(node).ceiling == 0 {
                continue;
            }
            let queue = self.maps.queues.get(node.into()).map_err(|e| Error::Map(e.to_string()))?;
            let queue = queue.unwrap_or_default();
            // What had left by the last heartbeat does not wait; the rest is known as of its last
            // packet.
            let backlog = if queue.departs_ns > now_ns { queue.backlog } else { 0 };
            all.push(ClassStats {
                class: nodes::class_id(node),
                pair: self.tree.owners.get(&node).copied(),
                octets: queue.octets,
                packets: queue.segments,
                drops: queue.dropped,
                backlog: Bytes::new(backlog.into()),
                queued: 0,
            });
        }
        Ok(all)
    }

    fn late_drops(&mut self) -> Result<u64, Error> {
        Ok(hold::ours(&mut self.socket, &self.uplink)?.map_or(0, |entry| entry.stats.drops))
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        // First the levels: what no qdisc holds is not to be dropped either.
        self.tree.map.clear(usize::from(UPLINK));
        root::release_with(&mut self.socket, &self.uplink).map(drop)
    }
}

#[cfg(test)]
mod tests;
