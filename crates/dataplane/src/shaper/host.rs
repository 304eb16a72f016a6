//! The uplink's HTB: the host's own traffic beside VMs that HTB shapes on its own device.
//!
//! Problem   What the host itself sends (storage, migration) does not pass the device on which VMs'
//!           packets wait, so nothing limits it, and VMs' floors break.
//! Approach  The uplink's root is an HTB with few classes. `stamp` runs before it and names the
//!           class (`bpf/uplink.h`). VMs' device has the uplink's rate less what is the host's, so
//!           their packets find their class here idle: they wait once, before they are numbered.
//!
//! ```text
//! 3e1:    htb, what is unclassified → 3e1:20
//! 3e1:1   uplink                 rate = ceil = the uplink's
//!   3e1:10  VMs                  rate = the uplink's less the other two, ceil = the uplink's
//!   3e1:20  the host             rate = its floor, ceil = the uplink's
//!   3e1:30  the host's urgent    rate = a small part, ceil = the uplink's   (first to borrow)
//! ```
//!
//! Promises  Each of the three has its rate whatever the others send. The host may use what VMs
//!           leave. A drop in VMs' class, which would count as a loss of the network, needs a queue
//!           far beyond what their device lets go at once.
//! Not here  How the root is taken and given back: `root`.

use super::root::{self, HANDLE};
use super::{Changes, ClassId, ClassStats, Error, Fault, HOST_CLASS, ShaperConfig};
use crate::intf::{UPLINK_HOST, UPLINK_URGENT, UPLINK_VMS};
use crate::nl::htb::{self, Class, ClassEntry, octets_per_second, ticks};
use crate::nl::{Batch, Device, Handle, Socket, Verb, tc};
use std::collections::BTreeMap;
use weir_core::classes::{MIN_RATE, QUEUE_WAIT, burst};
use weir_units::{Bytes, Rate};

/// The parent of all, below the root.
const UPLINK: u32 = HANDLE | 1;
/// What to do about a root qdisc that an operator has chosen.
const ADVICE: &str = "remove it, or leave out uplink.host_floor";

/// VMs' device lets go a burst of the uplink's, and one of each pair within its floor. So many times
/// the uplink's has room for that: what exceeds it would wait behind the host's packets.
const VMS_BURSTS: u64 = 4;
/// The least bound on VMs' queue here. Less could drop what has a number.
const VMS_QUEUE: Bytes = Bytes::new(1 << 20);
/// The octets that the largest class sends in a turn; the others in proportion to their rates.
const TURN: u64 = 60_000;
/// A full frame, and so the shortest turn.
const FRAME: u64 = weir_core::classes::FRAME;
/// A rate at which nothing waits.
const NO_LIMIT: Rate = Rate::from_mbps(1_000_000);

/// One class, and the bound of its queue if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node {
    id: u32,
    parent: u32,
    class: Class,
    queue: Option<Bytes>,
}

/// What the kernel has of it.
struct Found {
    classes: Vec<ClassEntry>,
    /// The bounds of the leaves' queues in octets, by their class.
    queues: BTreeMap<u32, u32>,
}

/// The desired classes of the uplink.
pub(super) struct Host {
    uplink: Device,
    nodes: [Node; 4],
}

/// The handle of a class's queue: its minor number as a major.
const fn queue_handle(class: u32) -> u32 {
    (class & 0xffff) << 16
}

/// The classes for this configuration.
fn nodes(config: &ShaperConfig) -> [Node; 4] {
    let pace = config.pace();
    let (line, own, urgent) = (config.uplink, config.host_floor, config.urgent_rate());
    let vms = config.beside_host().uplink;
    let largest = vms.max(own).as_bps().max(1);
    let class = |rate: Rate, bursts: u64, prio| {
        let rate = rate.max(MIN_RATE);
        let turn = u128::from(rate.as_bps()) * u128::from(TURN) / u128::from(largest);
        let ahead = Bytes::new(burst(rate, pace).get() * bursts);
        Class {
            rate: octets_per_second(rate),
            ceil: octets_per_second(line),
            burst: ticks(rate.time_for(ahead)),
            cburst: ticks(line.time_for(burst(line, pace))),
            quantum: turn.clamp(FRAME.into(), TURN.into()) as u32,
            prio,
            overhead: 0,
        }
    };
    // As long as pairs' packets wait, so that the host's small packets do not wait for longer.
    let long = |rate: Rate, least| Some(rate.bytes_in(QUEUE_WAIT).max(least));
    let leaf = |id, class, queue| Node { id, parent: UPLINK, class, queue };
    [
        Node { id: UPLINK, parent: tc::ROOT, class: class(line, 1, 1), queue: None },
        leaf(UPLINK_VMS, class(vms, VMS_BURSTS, 1), long(line, VMS_QUEUE)),
        leaf(UPLINK_HOST, class(own, 1, 1), long(own, config.queue)),
        leaf(UPLINK_URGENT, class(urgent, 1, 0), Some(config.queue)),
    ]
}

/// Whether a root qdisc is the one that is made here.
fn is_ours(root: &tc::Qdisc) -> bool {
    let default = Some(UPLINK_HOST & 0xffff);
    root.kind == "htb" && root.handle == HANDLE && root.default == default
}

impl Node {
    /// Whether the kernel's class has our parameters. It ignores an inner class's quantum and
    /// priority once the class has children.
    fn is(&self, found: &Class) -> bool {
        let inner = |class: &Class| Class { quantum: 0, prio: 0, ..*class };
        if self.queue.is_some() { *found == self.class } else { inner(found) == inner(&self.class) }
    }

    fn write(&self, device: &Device, verb: Verb, batch: &mut Batch) {
        batch.set_class(device, verb, self.parent, self.id, &self.class);
        if let Some(bound) = self.queue {
            batch.set_bfifo(device, self.id, queue_handle(self.id), bound);
        }
    }
}

impl Found {
    fn class(&self, node: &Node) -> Option<&ClassEntry> {
        self.classes.iter().find(|entry| entry.id == node.id && entry.parent == node.parent)
    }

    /// Whether changing classes makes it right, and nothing has to be removed or made.
    fn has_all(&self, nodes: &[Node]) -> bool {
        self.classes.len() == nodes.len() && nodes.iter().all(|node| self.class(node).is_some())
    }

    /// What differs from the desired classes; `None` if nothing does.
    fn difference(&self, nodes: &[Node]) -> Option<String> {
        if let Some(more) = self.classes.iter().find(|e| !nodes.iter().any(|n| n.id == e.id)) {
            return Some(format!("there is a class {} too many", Handle(more.id)));
        }
        nodes.iter().find_map(|node| {
            let name = Handle(node.id);
            let Some(entry) = self.class(node) else {
                return Some(format!("class {name} was deleted"));
            };
            if !node.is(&entry.class) {
                return Some(format!("class {name} was changed"));
            }
            let bound = node.queue.map(|queue| u32::try_from(queue.get()).unwrap_or(u32::MAX));
            let is_there = bound.is_none() || self.queues.get(&node.id).copied() == bound;
            (!is_there).then(|| format!("the queue of class {name} was changed"))
        })
    }
}

impl Host {
    /// Divides the uplink, or takes over what an earlier agent left there.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`] for a root qdisc that is not the kernel's default; any refusal of the
    /// kernel.
    pub(super) fn hold(
        config: &ShaperConfig,
        uplink: Device,
        socket: &mut Socket,
    ) -> Result<Self, Error> {
        let host = Self { nodes: nodes(config), uplink };
        host.mend(socket)?;
        Ok(host)
    }

    fn find(&self, socket: &mut Socket) -> Result<Option<Found>, Error> {
        if !tc::root(socket, &self.uplink)?.as_ref().is_some_and(is_ours) {
            return Ok(None);
        }
        let classes = htb::classes(socket, &self.uplink, HANDLE)?;
        let all = tc::qdiscs(socket, Some(&self.uplink))?;
        let bounds = all.iter().filter(|q| q.kind == "bfifo");
        let queues = bounds.filter_map(|q| Some((q.parent, q.limit?))).collect();
        Ok(Some(Found { classes, queues }))
    }

    /// Makes the uplink's classes the desired ones, with as little as is needed.
    pub(super) fn mend(&self, socket: &mut Socket) -> Result<Changes, Error> {
        let (device, mut batch, mut changes) = (&self.uplink, Batch::new(), Changes::default());
        match self.find(socket)? {
            Some(found) if found.difference(&self.nodes).is_none() => return Ok(changes),
            Some(found) if found.has_all(&self.nodes) => {
                self.nodes.iter().for_each(|node| node.write(device, Verb::Change, &mut batch));
                changes.changed = self.nodes.len();
            }
            found => {
                if found.is_some() {
                    batch.delete_qdisc(device, tc::ROOT);
                    changes.deleted = 1;
                } else {
                    root::refuse_foreign(socket, device, ADVICE)?;
                }
                batch.add_htb(device, HANDLE, (UPLINK_HOST & 0xffff) as u16);
                self.nodes.iter().for_each(|node| node.write(device, Verb::Create, &mut batch));
                changes.created = 1 + self.nodes.len();
            }
        }
        socket.send(&batch)?;
        match self.find(socket)?.map(|found| found.difference(&self.nodes)) {
            Some(None) => Ok(changes),
            there => Err(Error::ReadBack {
                object: format!("root qdisc of {device}"),
                wanted: "the classes of VMs and host".into(),
                found: there.flatten().unwrap_or_else(|| "another qdisc".into()),
            }),
        }
    }

    /// Lets all pass without waiting, until [`Self::mend`].
    pub(super) fn open_up(&self, socket: &mut Socket) -> Result<(), Error> {
        if !self.find(socket)?.is_some_and(|found| found.has_all(&self.nodes)) {
            return Ok(());
        }
        let mut batch = Batch::new();
        let rate = octets_per_second(NO_LIMIT);
        for Node { id, parent, class, .. } in &self.nodes {
            let class = Class { rate, ceil: rate, ..*class };
            batch.set_class(&self.uplink, Verb::Change, *parent, *id, &class);
        }
        Ok(socket.send(&batch)?)
    }

    /// The fault of the uplink's root qdisc, or (`whole`) of its classes.
    pub(super) fn fault(&self, socket: &mut Socket, whole: bool) -> Result<Option<Fault>, Error> {
        let (device, vms) = (&self.uplink, Vec::new());
        let root = tc::root(socket, device)?;
        if root.as_ref().is_some_and(is_ours) {
            let found = if whole { self.find(socket)? } else { None };
            let what = found.and_then(|found| found.difference(&self.nodes));
            let what = what.map(|what| format!("on the uplink {device}, {what}"));
            return Ok(what.map(|what| Fault { what, vms, mendable: true }));
        }
        let what = match root.filter(|root| root.handle != 0) {
            Some(root) => {
                let handle = Handle(root.handle);
                format!("qdisc {} {handle} has replaced the host's htb on {device}", root.kind)
            }
            None => format!("the htb qdisc of {device} is gone: nothing limits the host itself"),
        };
        // A foreign root qdisc is refused and never replaced.
        let mendable = root::refuse_foreign(socket, device, ADVICE).is_ok();
        Ok(Some(Fault { what, vms, mendable }))
    }

    /// Whether no packet waits.
    pub(super) fn is_idle(&self, socket: &mut Socket) -> Result<bool, Error> {
        let root = tc::root(socket, &self.uplink)?.filter(is_ours);
        Ok(root.is_none_or(|root| root.stats.queued == 0))
    }

    /// What the host itself sent, as a queue without a pair.
    pub(super) fn stats(&self, socket: &mut Socket) -> Result<Option<ClassStats>, Error> {
        Ok(self.counters(socket, UPLINK_HOST)?.map(|stats| ClassStats {
            class: HOST_CLASS,
            pair: None,
            octets: stats.octets,
            packets: stats.packets,
            drops: stats.drops,
            backlog: Bytes::new(stats.backlog.into()),
            queued: stats.queued,
        }))
    }

    /// Packets of VMs that were dropped here, after they got a number.
    pub(super) fn late_drops(&self, socket: &mut Socket) -> Result<u64, Error> {
        Ok(self.counters(socket, UPLINK_VMS)?.map_or(0, |stats| stats.drops))
    }

    fn counters(&self, socket: &mut Socket, class: u32) -> Result<Option<tc::Stats>, Error> {
        let found = self.find(socket)?;
        let entry = |found: Found| found.classes.into_iter().find(|entry| entry.id == class);
        Ok(found.and_then(entry).map(|entry| entry.stats))
    }

    /// Gives the uplink its default qdisc back.
    pub(super) fn release(&self, socket: &mut Socket) -> Result<(), Error> {
        root::release_with(socket, &self.uplink).map(drop)
    }
}

const _: () = assert!(HOST_CLASS.0 != UPLINK_HOST && ClassId(UPLINK_VMS).0 >> 16 == HANDLE >> 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nl::htb::burst_octets;

    fn config(host: u64) -> ShaperConfig {
        let host_floor = Rate::from_mbps(host);
        ShaperConfig { host_floor, ..ShaperConfig::new("t", Rate::from_mbps(1000)) }
    }

    #[test]
    fn the_classes_rates_are_the_uplinks_and_turns_are_as_rates() {
        let [uplink, vms, host, urgent] = nodes(&config(200));
        assert_eq!(uplink.class.rate, vms.class.rate + host.class.rate + urgent.class.rate);
        assert_eq!((host.class.rate, urgent.class.rate), (25_000_000, 625_000));
        assert!([vms, host, urgent].iter().all(|node| node.class.ceil == uplink.class.rate));
        assert_eq!((vms.class.quantum, host.class.quantum), (60_000, 15_094));
        assert_eq!((vms.class.prio, host.class.prio, urgent.class.prio), (1, 1, 0));
        // What VMs' device lets go at once: 1 ms of its rate, and as much of its classes'.
        let ahead = burst_octets(vms.class.burst, vms.class.rate);
        assert!(ahead.get() >= 3 * 99_375, "{ahead}");
    }

    #[test]
    fn vms_have_what_the_host_leaves_and_all_where_it_has_no_floor() {
        assert_eq!(config(0).beside_host().uplink, Rate::from_mbps(1000));
        assert_eq!(config(200).beside_host().uplink, Rate::from_mbps(795));
        assert!(config(970).check().is_err(), "nothing is left");
    }

    #[test]
    fn what_differs_is_named() {
        let nodes = nodes(&config(200));
        let entry = |node: &Node| ClassEntry {
            id: node.id,
            parent: node.parent,
            leaf: 0,
            class: node.class,
            level: 0,
            stats: tc::Stats::default(),
        };
        let found = || Found {
            classes: nodes.iter().map(entry).collect(),
            queues: nodes.iter().filter_map(|n| Some((n.id, n.queue?.get() as u32))).collect(),
        };
        assert_eq!(found().difference(&nodes), None);
        let named = |edit: &dyn Fn(&mut Found)| {
            let mut found = found();
            edit(&mut found);
            (found.difference(&nodes).expect("it differs"), found.has_all(&nodes))
        };
        let text = |text: &str, all| (text.to_owned(), all);
        let changed = text("class 3e1:20 was changed", true);
        assert_eq!(named(&|f| f.classes[2].class.rate += 1), changed);
        let deleted = text("class 3e1:10 was deleted", false);
        assert_eq!(named(&|f| _ = f.classes.remove(1)), deleted);
        assert_eq!(named(&|f| f.classes[1].parent = tc::ROOT), deleted);
        let more = text("there is a class 3e1:40 too many", false);
        let fourth = Node { id: HANDLE | 0x40, ..nodes[1] };
        assert_eq!(named(&|f| f.classes.push(entry(&fourth))), more);
        let queue = text("the queue of class 3e1:30 was changed", true);
        assert_eq!(named(&|f| f.queues.retain(|id, _| *id != UPLINK_URGENT)), queue);
    }
}
