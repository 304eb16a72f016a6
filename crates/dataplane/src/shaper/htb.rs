//! The shaper made of HTB classes on an IFB device.
//!
//! Problem   Queues must come before the uplink's sequence numbers, because our own drops are not
//!           the network's. HTB classes are slow to make but quick to change.
//! Approach  One IFB device per instance, to which the VMs' ports are redirected. Its tree:
//!
//! ```text
//! 1:   htb, what is unclassified → 1:2
//! 1:1  uplink                          rate = ceil = the uplink's
//!   1:2     unclassified               rate = a part of what is kept for default traffic
//!   1:1sss  VM in slot s               rate = floor (scaled if overbooked) + the next two, ceil = cap
//!     1:2sss  its traffic without a floor
//!     1:3sss  its ARP and neighbour discovery   (first to borrow; bounded by its own ceiling)
//!     1:esss  what it sends to places that no directory lists
//!     1:4000…  one per pair            rate = floor, ceil = lease
//! ```
//!
//! A pair's queue lets acknowledgements pass its data (`nl/pair_queue.rs`); the others are fifos.
//!
//! A class cannot change its parent, so each VM has a pool of pair classes, which grows in steps;
//! freed ones are emptied, set to the smallest rate and used again.
//!
//! Promises  Queues are bounded in octets. Dropping the value leaves all in force; a successor
//!           adopts it without a gap.
//! Not here  Numbers of classes: `layout`. Their parameters, with reasons: `levels`. Bounds in
//!           time: `waits`. The host's own traffic: `host`.

use super::desired::{self, Pair, Pairs};
use super::host::Host;
use super::layout::{self, Note, Use, class_id};
use super::levels::Levels;
use super::ports::Detour;
use super::tree::{self, Node, Nodes, Tree};
use super::waits::Waits;
use super::{
    Changes, ClassId, ClassStats, Error, Fault, Kind, PairRate, Shaper, ShaperConfig, VmClasses,
    VmShare, owner, ports,
};
use crate::intf::Level;
use crate::nl::htb::{self, Class};
use crate::nl::link::{self, Link};
use crate::nl::{Batch, Device, Socket, Verb, tc};
use crate::table::CounterArray;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::classes::{Overbooked, floor_of};
use weir_units::{Bytes, PairId, Rate, VmId};

/// Packets that may wait inside the IFB device behind the shaper; more would be a second, unbounded
/// queue.
const IFB_QUEUE: u32 = 32;

/// The shaper made of HTB classes on an IFB device. See [`Shaper`] for the order of calls.
pub struct Htb {
    config: ShaperConfig,
    socket: Socket,
    device: Device,
    adopted: bool,
    levels: Levels,
    vms: BTreeMap<VmId, Vm>,
    pairs: Pairs,
    /// Pairs of the pair classes in use; the other classes are the pool.
    owners: BTreeMap<u16, PairId>,
    /// Pair classes of a predecessor that have not been claimed or given up yet.
    claimable: BTreeSet<u16>,
    /// Sum of the pairs' floors.
    floors: Rate,
    /// State of the kernel, unless `stale`.
    tree: Tree,
    stale: bool,
    /// Levels that the classifier uses.
    waits: Waits,
    /// The heartbeat that the classifier sees, if there is one.
    lease: Option<CounterArray<u64>>,
    /// The uplink's classes, if the host's own traffic has a floor.
    host: Option<Host>,
    /// Whether ports are redirected.
    engaged: bool,
}

#[derive(Clone)]
struct Vm {
    share: VmShare,
    slot: u16,
    port: Device,
}

impl Htb {
    /// Takes the instance's device, or makes one. An existing device keeps its classes and goes on
    /// shaping. The network namespace is that of the calling thread, for good.
    pub fn open(config: ShaperConfig) -> Result<Self, Error> {
        config.check()?;
        let mut socket = Socket::open()?;
        let (device, adopted) = match owner::find(&mut socket, &config.instance)? {
            Some(Link { device, up: true, .. }) => (device, true),
            // Its maker died before it was ready: nothing can be in force on a device that is down.
            Some(link) => {
                link::delete(&mut socket, &link.device.name)?;
                (Self::make(&mut socket, &config)?, false)
            }
            None => (Self::make(&mut socket, &config)?, false),
        };
        let tree = Tree::read(&mut socket, &device)?;
        let pair = |minor: &u16| layout::usage(*minor) == Use::Pair;
        Ok(Self {
            levels: Levels::new(&config, &[]),
            waits: Waits::unbounded(config.queue),
            claimable: tree.nodes.keys().copied().filter(pair).collect(),
            config,
            socket,
            device,
            adopted,
            vms: BTreeMap::new(),
            pairs: BTreeMap::new(),
            owners: BTreeMap::new(),
            floors: Rate::ZERO,
            tree,
            stale: false,
            lease: None,
            host: None,
            engaged: true,
        })
    }

    /// Bounds pairs' queues in time, too. `levels` are those that this shaper's classifying
    /// programs use ([`Programs::levels`](crate::programs::Programs::levels)). Right after opening.
    ///
    /// # Errors
    ///
    /// Levels of the wrong number.
    pub fn bounded_in_time(self, levels: CounterArray<Level>) -> Result<Self, Error> {
        let small = Error::Config("the map of levels was loaded too small");
        let waits = Waits::new(levels, self.config.queue).ok_or(small)?;
        Ok(Self { waits, ..self })
    }

    fn make(socket: &mut Socket, config: &ShaperConfig) -> Result<Device, Error> {
        let name = layout::device_name(&config.instance);
        Ok(link::create_ifb(socket, &name, &owner::alias(&config.instance), IFB_QUEUE)?)
    }

    /// Without a heartbeat in `lease` for a second, this shaper's classifying programs hold pairs
    /// to their floors, also if no process lowers ceilings.
    pub fn leased(self, lease: CounterArray<u64>) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Gives the host's own traffic, which leaves by `uplink`, the floor of the configuration, and VMs what that leaves.
    /// Without a floor in the configuration it does nothing. Right after opening; nothing was made if it fails.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`] for a root qdisc of the uplink that is not the kernel's default; any refusal of the kernel.
    pub fn beside_host(mut self, uplink: Device) -> Result<Self, Error> {
        if self.config.host_floor.is_zero() {
            return Ok(self);
        }
        match Host::hold(&self.config, uplink, &mut self.socket) {
            Ok(host) => Ok(Self { host: Some(host), ..self }),
            Err(error) => {
                if !self.adopted {
                    owner::remove_with(&mut self.socket, &self.config.instance)?;
                }
                Err(error)
            }
        }
    }

    /// The levels on which all classes depend, with these VMs.
    fn levels_with(&self, vms: &[VmShare]) -> Levels {
        if self.host.is_some() {
            Levels::new(&self.config.beside_host(), vms)
        } else {
            Levels::new(&self.config, vms)
        }
    }

    /// Makes the device exist and be up, since another process may have deleted it or set it down.
    /// Packets that waited in a deleted device are lost.
    fn stand_up(&mut self) -> Result<(), Error> {
        match owner::find(&mut self.socket, &self.config.instance)? {
            Some(Link { device, up: true, .. }) => self.device = device,
            Some(Link { device, .. }) => {
                link::set_up(&mut self.socket, &device.name)?;
                self.device = device;
            }
            None => self.device = Self::make(&mut self.socket, &self.config)?,
        }
        Ok(())
    }

    /// Fault of the device, its root qdisc or its classes.
    fn device_fault(&mut self, whole: bool) -> Result<Option<Fault>, Error> {
        let device = self.device.clone();
        let fault = |what| Some(Fault { what, vms: Vec::new(), mendable: true });
        let link = match owner::find(&mut self.socket, &self.config.instance) {
            Ok(link) => link,
            Err(Error::Foreign { what, advice }) => {
                let what = format!("{what} does not belong to this agent: {advice}");
                return Ok(Some(Fault { what, vms: Vec::new(), mendable: false }));
            }
            Err(error) => return Err(error),
        };
        let Some(link) = link.filter(|link| link.device.index == device.index) else {
            return Ok(fault(format!("the shaper's device {device} was deleted")));
        };
        if !link.up {
            return Ok(fault(format!("the shaper's device {device} was set down")));
        }
        if !tc::root(&mut self.socket, &device)?.is_some_and(|root| tree::is_ours(&root)) {
            return Ok(fault(format!(
                "the root qdisc of the shaper's device {device} was changed"
            )));
        }
        if !whole || self.stale {
            return Ok(None);
        }
        let classes = htb::classes(&mut self.socket, &device, layout::QDISC)?;
        let what = tree::difference(&classes, &self.tree.nodes);
        Ok(what.and_then(|what| fault(format!("in the shaper's device {device}, {what}"))))
    }

    /// Name of the device that shapes.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Whether an earlier agent of this instance had left its device.
    pub const fn adopted(&self) -> bool {
        self.adopted
    }

    /// Messages written to the kernel so far; questions do not count.
    pub const fn written(&self) -> u64 {
        self.socket.written()
    }

    /// Class of packets that no program has classified.
    pub const fn unclassified(&self) -> ClassId {
        class_id(layout::UNCLASSIFIED)
    }

    /// Gives each VM the slot it has, else the one that its port remembers, else a fresh one. A
    /// port that VMs share remembers the first one's, and the others' usually follow it. A VM that
    /// gets another VM's slot that way claims nothing there.
    fn slots(
        &self,
        vms: &[(VmShare, Device)],
        hooks: &BTreeMap<u32, (Device, ports::Hook)>,
    ) -> Result<BTreeMap<VmId, Vm>, Error> {
        let hash = layout::hash(&self.config.instance);
        let mut taken = BTreeSet::new();
        let mut found = BTreeMap::new();
        for (i, (share, port)) in vms.iter().enumerate() {
            let sharers = vms[..i].iter().filter(|(_, other)| other.index == port.index).count();
            let remembered = || {
                let note = hooks.get(&port.index)?.1.note()?;
                let slot = note.slot.saturating_add(sharers as u16);
                let free = !self.vms.values().any(|vm| vm.slot == slot);
                (note.instance == hash && slot < layout::SLOTS && free).then_some(slot)
            };
            let slot = self.vms.get(&share.vm).map(|vm| vm.slot).or_else(remembered);
            if let Some(slot) = slot.filter(|slot| taken.insert(*slot)) {
                found.insert(share.vm, Vm { share: share.clone(), slot, port: port.clone() });
            }
        }
        // A fresh slot has no classes yet: another VM's queues may still hold its packets.
        let used = |slot: &u16| self.tree.nodes.contains_key(&layout::share(*slot));
        let mut fresh = (0..layout::SLOTS).filter(|slot| !taken.contains(slot) && !used(slot));
        for (share, port) in vms {
            if !found.contains_key(&share.vm) {
                let limit = usize::from(layout::SLOTS);
                let full = Error::Full { of: "VMs", wanted: 1, used: found.len(), limit };
                let slot = fresh.next().ok_or(full)?;
                found.insert(share.vm, Vm { share: share.clone(), slot, port: port.clone() });
            }
        }
        Ok(found)
    }

    /// The desired tree.
    fn wanted(&self) -> Nodes {
        let levels = &self.levels;
        let mut nodes = Nodes::new();
        let mut put = |minor, parent, class| nodes.insert(minor, Node { parent, class });
        put(layout::UPLINK, 0, levels.uplink());
        put(layout::UNCLASSIFIED, layout::UPLINK, levels.unclassified());
        let mut shares = BTreeMap::new();
        for vm in self.vms.values() {
            let share = layout::share(vm.slot);
            put(share, layout::UPLINK, levels.vm(&vm.share));
            put(layout::default(vm.slot), share, levels.vm_default(&vm.share));
            put(layout::control(vm.slot), share, levels.vm_control());
            put(layout::external(vm.slot), share, levels.vm_external(&vm.share));
            shares.insert(share, vm.share.vm);
        }
        // The pool: whatever pair classes of our VMs the kernel has.
        for (minor, node) in &self.tree.nodes {
            if layout::usage(*minor) == Use::Pair && shares.contains_key(&node.parent) {
                let unclaimed = self.claimable.contains(minor);
                let class = if unclaimed { node.class } else { levels.pooled() };
                put(*minor, node.parent, class);
            }
        }
        for (id, pair) in &self.pairs {
            let vm = &self.vms[&id.src];
            let class = levels.pair(&vm.share, pair.rate, self.floors);
            put(pair.minor, layout::share(vm.slot), class);
        }
        nodes
    }

    /// Makes the bounds in time those of the classes that the kernel has. Classes that may still be
    /// claimed have a pair, too.
    fn follow(&self) {
        let is_used = |minor| self.owners.contains_key(&minor) || self.claimable.contains(&minor);
        self.waits.follow(&self.tree.nodes, is_used);
    }

    /// Corrects the cached state of the kernel after a failure.
    fn fresh(&mut self) -> Result<(), Error> {
        if self.stale { self.refresh() } else { Ok(()) }
    }

    /// Sends. After a failure the kernel has to be read again, because a part of the batch may be
    /// done.
    fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        self.socket.send(batch).map_err(|error| {
            self.stale = true;
            error.into()
        })
    }

    fn vm_of(&self, pair: PairId) -> Result<&Vm, Error> {
        self.vms.get(&pair.src).ok_or(Error::UnknownVm(pair.src))
    }

    /// Writes the classes of these pairs that differ; how many.
    fn write(&mut self, pairs: impl Iterator<Item = PairId>) -> Result<usize, Error> {
        let mut batch = Batch::new();
        let mut wanted: Vec<(u16, Node)> = Vec::new();
        for id in pairs {
            let (pair, vm) = (self.pairs[&id], &self.vms[&id.src]);
            let class = self.levels.pair(&vm.share, pair.rate, self.floors);
            let node = Node { parent: layout::share(vm.slot), class };
            if self.tree.nodes.get(&pair.minor) != Some(&node) {
                self.waits.before(pair.minor, &class);
                self.change(&mut batch, pair.minor, node.parent, &class);
            }
            wanted.push((pair.minor, node));
        }
        self.send(&batch)?;
        // Also levels of unchanged classes, since a new pair's level was not written yet.
        wanted.iter().for_each(|(minor, node)| self.waits.after(*minor, &node.class));
        self.tree.nodes.extend(wanted);
        Ok(batch.len())
    }

    fn change(&self, batch: &mut Batch, minor: u16, parent: u16, class: &Class) {
        let (parent, id) = (layout::handle(parent), layout::handle(minor));
        batch.set_class(&self.device, Verb::Change, parent, id, class);
    }

    /// Sets classes to the smallest rate and empties their queues, for the pool.
    fn retire(&mut self, minors: &[u16]) -> Result<(), Error> {
        let mut batch = Batch::new();
        let class = self.levels.pooled();
        for minor in minors {
            self.waits.retire(*minor);
            let Some(node) = self.tree.nodes.get(minor).copied() else { continue };
            let id = layout::handle(*minor);
            self.change(&mut batch, *minor, node.parent, &class);
            // Waiting packets would be sent under the next pair's name, after minutes.
            batch.delete_qdisc(&self.device, id);
            tree::set_queue(&mut batch, &self.device, *minor, self.config.queue);
        }
        self.send(&batch)?;
        for minor in minors {
            if let Some(node) = self.tree.nodes.get_mut(minor) {
                node.class = class;
            }
        }
        Ok(())
    }

    /// Returns classes that no pair of ours has claimed to the pool.
    fn give_up_unclaimed(&mut self) -> Result<(), Error> {
        let left: Vec<u16> = std::mem::take(&mut self.claimable).into_iter().collect();
        if left.is_empty() { Ok(()) } else { self.retire(&left) }
    }

    /// The unused pair classes by VM share.
    fn pool(&self) -> BTreeMap<u16, Vec<u16>> {
        let mut pool: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for (minor, node) in self.tree.nodes.range(layout::pairs()) {
            if !self.owners.contains_key(minor) {
                pool.entry(node.parent).or_default().push(*minor);
            }
        }
        pool
    }

    /// Makes each VM's pool hold what it needs (by share), within the bound on all classes; takes
    /// unused classes from other VMs if it must.
    fn grow(&mut self, needs: &BTreeMap<u16, usize>) -> Result<BTreeMap<u16, Vec<u16>>, Error> {
        let mut pool = self.pool();
        let missing = |pool: &BTreeMap<u16, Vec<u16>>, share: &u16, need: usize| {
            need.saturating_sub(pool.get(share).map_or(0, Vec::len))
        };
        let shortage: usize = needs.iter().map(|(share, n)| missing(&pool, share, *n)).sum();
        if shortage == 0 {
            return Ok(pool);
        }
        let classes = self.tree.nodes.range(layout::pairs()).count();
        let room = self.config.max_pairs.saturating_sub(classes);
        let stepped = |n: usize| n.next_multiple_of(self.config.pool_step);
        let grown: usize = needs.iter().map(|(s, n)| stepped(missing(&pool, s, *n))).sum();
        let mut batch = Batch::new();
        let mut gone = Vec::new();
        let spare = pool.iter().flat_map(|(share, minors)| {
            let kept = needs.get(share).copied().unwrap_or(0);
            minors.iter().skip(kept).copied()
        });
        gone.extend(spare.take(shortage.saturating_sub(room)));
        for minor in &gone {
            batch.delete_class(&self.device, layout::handle(*minor));
        }
        let mut free = layout::pairs().filter(|m| !self.tree.nodes.contains_key(m));
        let class = self.levels.pooled();
        let mut made = Nodes::new();
        for (share, need) in needs {
            let exact = missing(&pool, share, *need);
            let count = if grown <= room { stepped(exact) } else { exact };
            for minor in free.by_ref().take(count) {
                let (parent, id) = (layout::handle(*share), layout::handle(minor));
                batch.set_class(&self.device, Verb::Create, parent, id, &class);
                tree::set_queue(&mut batch, &self.device, minor, self.config.queue);
                made.insert(minor, Node { parent: *share, class });
            }
        }
        self.send(&batch)?;
        // Classes are made rarely, so they are read back at once: the kernel takes an unknown
        // parent for the root without an error.
        self.stale = true;
        let nodes = tree::classes(&mut self.socket, &self.device)?;
        self.tree.nodes = nodes;
        self.tree.verify(&made, &self.device)?;
        self.stale = false;
        pool = self.pool();
        Ok(pool)
    }
}

/// What a pair's class gives it.
fn rate_of(class: &htb::Class) -> PairRate {
    let floor = floor_of(htb::rate(class.rate)).unwrap_or_default();
    PairRate { floor, ceiling: htb::rate(class.ceil) }
}

impl Shaper for Htb {
    fn kind(&self) -> Kind {
        Kind::Htb
    }

    fn apply_vms(&mut self, vms: &[VmShare]) -> Result<Changes, Error> {
        desired::check_vms(&self.config, vms)?;
        self.stand_up()?;
        self.refresh()?;
        let links = link::list(&mut self.socket)?;
        let port = |vm: &VmShare| {
            let found = links.iter().find(|l| *l.device.name == *vm.port);
            let missing = || Error::NoPort { vm: vm.vm, port: vm.port.clone() };
            found.map(|l| (vm.clone(), l.device.clone())).ok_or_else(missing)
        };
        let vms: Vec<(VmShare, Device)> = vms.iter().map(port).collect::<Result<_, _>>()?;
        let hooks = ports::scan(&mut self.socket)?;
        let instance = layout::hash(&self.config.instance);

        let placed = self.slots(&vms, &hooks)?;
        let shares: Vec<VmShare> = vms.iter().map(|(share, _)| share.clone()).collect();
        self.levels = self.levels_with(&shares);
        self.vms = placed;
        self.pairs.retain(|id, _| self.vms.contains_key(&id.src));
        self.owners.retain(|_, id| self.vms.contains_key(&id.src));
        self.floors = desired::floors(&self.pairs);

        // Ports that are no longer ours go first: their classes are about to go.
        let mut changes = Changes::default();
        for (port, hook) in hooks.values() {
            let kept = vms.iter().any(|(_, device)| device.index == port.index);
            if let Some(note) = hook.note().filter(|note| note.instance == instance && !kept) {
                ports::undo(&mut self.socket, port, note)?;
                changes.deleted += 1;
            }
        }

        let wanted = self.wanted();
        for pair in self.pairs.values() {
            self.waits.before(pair.minor, &wanted[&pair.minor].class);
        }
        let mut batch = Batch::new();
        let room = |minor| self.waits.room(minor);
        let tree = self.tree.plan(&wanted, &room, &self.device, &mut batch);
        self.send(&batch)?;
        if !tree.is_empty() {
            self.refresh()?;
            self.tree.verify(&wanted, &self.device)?;
        }
        self.claimable.retain(|minor| self.tree.nodes.contains_key(minor));
        self.follow();

        let mut batch = Batch::new();
        let mut redirected = BTreeSet::new();
        let engaged = self.engaged;
        for (share, port) in vms.iter().filter(|(_, p)| engaged && redirected.insert(p.index)) {
            let note = Note { instance, slot: self.vms[&share.vm].slot, made_clsact: false };
            let found = hooks.get(&port.index).map(|(_, hook)| *hook);
            let clsact = self.tree.clsact.contains(&port.index);
            let before = batch.len();
            ports::plan(port, &self.device, note, found, clsact, &mut batch)?;
            changes.created += usize::from(batch.len() > before);
        }
        self.send(&batch)?;
        changes += tree;
        if let Some(host) = self.host.as_ref().filter(|_| engaged) {
            // VMs' floors on this host do not depend on it. What it cannot mend stays a fault.
            changes += host.mend(&mut self.socket).unwrap_or_default();
        }
        Ok(changes)
    }

    fn faults(&mut self, whole: bool) -> Result<Vec<Fault>, Error> {
        let mut faults: Vec<Fault> = self.device_fault(whole)?.into_iter().collect();
        if let Some(host) = &self.host {
            faults.extend(host.fault(&mut self.socket, whole)?);
        }
        let instance = layout::hash(&self.config.instance);
        let mut seen: BTreeMap<u32, Option<Detour>> = BTreeMap::new();
        for (id, Vm { port, .. }) in &self.vms {
            let found = match seen.get(&port.index) {
                Some(found) => found.clone(),
                None => ports::detour(&mut self.socket, port, &self.device, instance)?,
            };
            seen.insert(port.index, found.clone());
            faults.extend(found.map(|detour| match detour {
                Detour::Mendable(what) => {
                    let what = format!("{what} on port {port}");
                    Fault { what, vms: vec![*id], mendable: true }
                }
                Detour::Foreign(what) => Fault { what, vms: vec![*id], mendable: false },
            }));
        }
        Ok(faults)
    }

    fn engage(&mut self) {
        self.engaged = true;
    }

    fn is_idle(&mut self) -> Result<bool, Error> {
        if let Some(host) = &self.host
            && !host.is_idle(&mut self.socket)?
        {
            return Ok(false);
        }
        let root = tc::root(&mut self.socket, &self.device)?;
        Ok(root.is_none_or(|root| root.stats.queued == 0))
    }

    fn let_pass(&mut self) -> Result<(), Error> {
        self.engaged = false;
        let instance = layout::hash(&self.config.instance);
        for (port, hook) in ports::scan(&mut self.socket)?.into_values() {
            if let Some(note) = hook.note().filter(|note| note.instance == instance) {
                ports::undo(&mut self.socket, &port, note)?;
            }
        }
        self.host.as_ref().map_or(Ok(()), |host| host.open_up(&mut self.socket))
    }

    fn vm_classes(&self, vm: VmId) -> Option<VmClasses> {
        let Vm { share, slot, .. } = self.vms.get(&vm)?;
        Some(VmClasses {
            default: class_id(layout::default(*slot)),
            control: class_id(layout::control(*slot)),
            external: class_id(layout::external(*slot)),
            stray_rate: self.levels.stray_rate(share),
            moment: self.levels.moment(share),
            external_rate: self.levels.external_rate(share),
        })
    }

    fn claim(&mut self, pairs: &[(PairId, ClassId)]) -> Result<Vec<PairId>, Error> {
        self.fresh()?;
        let mut refused = Vec::new();
        for (id, class) in pairs {
            let minor = layout::minor(class.0);
            let share = self.vms.get(&id.src).map(|vm| layout::share(vm.slot));
            let node = self.tree.nodes.get(&minor);
            let node =
                node.filter(|node| Some(node.parent) == share && layout::handle(minor) == class.0);
            let (Some(node), true) = (node, self.claimable.remove(&minor)) else {
                refused.push(*id);
                continue;
            };
            let rate = rate_of(&node.class);
            if let Some(former) = self.pairs.insert(*id, Pair { minor, rate }) {
                self.owners.remove(&former.minor);
            }
            self.owners.insert(minor, *id);
        }
        self.floors = desired::floors(&self.pairs);
        self.give_up_unclaimed()?;
        Ok(refused)
    }

    fn admitted(&self, pairs: &[PairId]) -> BTreeSet<PairId> {
        desired::admitted(&self.pairs, pairs, self.vms.len(), self.config.max_pairs)
    }

    fn add_pairs(&mut self, pairs: &[PairId]) -> Result<Vec<ClassId>, Error> {
        self.fresh()?;
        self.give_up_unclaimed()?;
        let fresh: BTreeSet<PairId> =
            pairs.iter().copied().filter(|id| !self.pairs.contains_key(id)).collect();
        let (used, limit) = (self.pairs.len(), self.config.max_pairs);
        if used + fresh.len() > limit {
            return Err(Error::Full { of: "pairs", wanted: fresh.len(), used, limit });
        }
        let mut needs: BTreeMap<u16, usize> = BTreeMap::new();
        for id in &fresh {
            *needs.entry(layout::share(self.vm_of(*id)?.slot)).or_default() += 1;
        }
        let mut pool = self.grow(&needs)?;
        for id in &fresh {
            let share = layout::share(self.vms[&id.src].slot);
            let minor = pool.get_mut(&share).and_then(Vec::pop).expect("the pool was grown");
            self.pairs.insert(*id, Pair { minor, rate: PairRate::default() });
            self.owners.insert(minor, *id);
        }
        Ok(pairs.iter().map(|id| class_id(self.pairs[id].minor)).collect())
    }

    fn set(&mut self, rates: &[(PairId, PairRate)]) -> Result<usize, Error> {
        self.fresh()?;
        let Self { pairs, vms, .. } = self;
        // Only VMs that were applied have pairs.
        let named = desired::set_rates(pairs, rates, |vm| vms[&vm].share.floor)?;
        let before = self.overbooked();
        self.floors = desired::floors(&self.pairs);
        if before == self.overbooked() {
            self.write(named.into_iter())
        } else {
            // Every pair's part of an overbooked uplink has changed.
            let all: Vec<PairId> = self.pairs.keys().copied().collect();
            self.write(all.into_iter())
        }
    }

    fn set_room(&mut self, pair: PairId, room: Option<Bytes>) -> Result<(), Error> {
        self.fresh()?;
        let Some(Pair { minor, .. }) = self.pairs.get(&pair).copied() else { return Ok(()) };
        let before = self.waits.room(minor);
        self.waits.set_room(minor, room);
        let now = self.waits.room(minor);
        if now != before {
            let mut batch = Batch::new();
            tree::set_room(&mut batch, &self.device, minor, now);
            self.send(&batch)?;
            if let Some(node) = self.tree.nodes.get(&minor) {
                self.waits.after(minor, &node.class);
            }
        }
        Ok(())
    }

    fn remove(&mut self, pairs: &[PairId]) -> Result<(), Error> {
        self.fresh()?;
        let gone: Vec<Pair> = pairs.iter().filter_map(|id| self.pairs.remove(id)).collect();
        let minors: Vec<u16> = gone.iter().map(|pair| pair.minor).collect();
        for minor in &minors {
            self.owners.remove(minor);
        }
        let before = self.overbooked();
        self.floors = desired::floors(&self.pairs);
        self.retire(&minors)?;
        if before != self.overbooked() {
            let all: Vec<PairId> = self.pairs.keys().copied().collect();
            self.write(all.into_iter())?;
        }
        Ok(())
    }

    fn read_back(&mut self) -> Result<Vec<(PairId, PairRate)>, Error> {
        let entries = htb::classes(&mut self.socket, &self.device, layout::QDISC)?;
        let level = |entry: &htb::ClassEntry| {
            let id = self.owners.get(&layout::minor(entry.id))?;
            Some((*id, rate_of(&entry.class)))
        };
        Ok(entries.iter().filter_map(level).collect())
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.tree = Tree::read(&mut self.socket, &self.device)?;
        self.stale = false;
        self.follow();
        Ok(())
    }

    fn sends_ahead(&self, pair: PairId) -> Option<Bytes> {
        self.waits.ahead(self.pairs.get(&pair)?.minor)
    }

    fn renew(&mut self, now_ns: u64) {
        if let Some(lease) = &self.lease {
            lease.put(0, now_ns);
        }
    }

    fn overbooked(&self) -> Option<Overbooked> {
        self.levels.overbooked(self.floors)
    }

    fn stats(&mut self) -> Result<Vec<ClassStats>, Error> {
        let entries = htb::classes(&mut self.socket, &self.device, layout::QDISC)?;
        let leaves = entries.iter().filter(|e| layout::is_leaf(layout::minor(e.id)));
        let counters = |entry: &htb::ClassEntry| ClassStats {
            class: ClassId(entry.id),
            pair: self.owners.get(&layout::minor(entry.id)).copied(),
            octets: entry.stats.octets,
            packets: entry.stats.packets,
            drops: entry.stats.drops,
            backlog: Bytes::new(entry.stats.backlog.into()),
            queued: entry.stats.queued,
        };
        let mut all: Vec<ClassStats> = leaves.map(counters).collect();
        if let Some(host) = &self.host {
            all.extend(host.stats(&mut self.socket)?);
        }
        Ok(all)
    }

    fn late_drops(&mut self) -> Result<u64, Error> {
        self.host.as_ref().map_or(Ok(0), |host| host.late_drops(&mut self.socket))
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        let removed = owner::remove_with(&mut self.socket, &self.config.instance).map(|_| ());
        let released = self.host.as_ref().map_or(Ok(()), |host| host.release(&mut self.socket));
        removed.and(released)
    }
}
