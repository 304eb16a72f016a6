//! A Linux box as a switch: HTB as weighted fair queues, written by netlink.
//!
//! Problem   A Linux switch has no fixed queues; a qdisc per port must divide the link by weights,
//!           give a lone queue all of it, and change while packets pass.
//! Approach  One HTB tree per port. All queues have the same tiny rate and the port's rate as ceiling,
//!           so that all they send is borrowed, in turns of `weight · turn` octets. u32 filters lead
//!           code points (the outermost IP header's) to queues; the last filter leads all else to the
//!           shared queue. A filter is replaced in one step.
//! Promises  Only ports with the kernel's own root qdisc, or with Weir's, are touched. A queue is
//!           removed when it is empty. Classes and filters of others in Weir's tree stay.
//! Not here  Ports that a Linux box offloads to hardware.
//! Source    `docs/switches.md`, decision 29; tc-htb(8), tc-u32(8).

use crate::{Backend, Failed, Found, Group, Limit, Owner, Step, Why};
use std::time::Duration;
use weir_core::binding::MostWeight;
use weir_core::binding::switch::{
    Abilities, Change, PortAbilities, PortName, PortQueues, Stage, SwitchConfig, What,
};
use weir_dataplane::nl::codepoint::{self, Match};
use weir_dataplane::nl::htb::{self, Class, ClassEntry};
use weir_dataplane::nl::tc::{self, Qdisc};
use weir_dataplane::nl::{Batch, Device, Error, Object, Socket, Verb, link};
use weir_units::{Bytes, Rate, SortedMap, SortedSet};

/// The handle of Weir's root qdiscs: `5745:` ("WE").
pub const HANDLE: u32 = 0x5745_0000;
/// The minor number of queue 0's class; the others follow.
const FIRST: u32 = 0x10;
/// The class of the whole port.
const PORT: u32 = HANDLE + 1;
/// The handle of queue 0's fifo; the others follow.
const FIFO: u32 = 0x5780;
/// The rate of each queue in octets per second. All else is borrowed, by weight. A larger one would
/// be shared equally first; HTB knows no zero.
const LEAST_RATE: u64 = 1_000;
/// What a class that is not as it should be is read as: no weight has this value.
const WRONG: u16 = 0;
/// What a queue that is none of Weir's is read as.
const NO_QUEUE: u8 = u8::MAX;
/// How long a queue that is to be removed may take until it is empty.
const DRAIN: Duration = Duration::from_millis(500);

/// A port, as an operator describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// What the port sends at most; no more than its link, or the queue is elsewhere.
    pub rate: Rate,
    /// Its queues, 1 to 16.
    pub queues: u8,
}

/// A Linux box, as an operator describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its ports, by the names of the devices.
    pub ports: SortedMap<PortName, PortSettings>,
    /// The largest weight, at most 100.
    pub most_weight: MostWeight,
    /// Code points of others.
    pub reserved_codepoints: SortedSet<u8>,
    /// Octets that weight 1 may send per turn: no less than the largest packet, which is a
    /// super-packet where the box forwards them. Larger: packets wait longer for their turn. Smaller:
    /// weights are missed.
    pub turn: Bytes,
    /// Octets that may wait in a queue.
    pub buffer: Bytes,
}

impl Settings {
    /// Weights up to 15, packets of one Ethernet frame, and 256 kB for each queue.
    pub fn new(ports: SortedMap<PortName, PortSettings>) -> Self {
        Self {
            ports,
            most_weight: MostWeight::PAPER,
            reserved_codepoints: SortedSet::new(),
            turn: Bytes::new(1514),
            buffer: Bytes::new(256 * 1024),
        }
    }
}

/// A port with Weir's tree, as it was last read.
struct Tree {
    device: Device,
    /// Handle of each filter of Weir's.
    filters: SortedMap<Match, u32>,
}

/// What is Weir's on a port, and what of others is in its tree.
struct Read {
    tree: Tree,
    queues: PortQueues,
    torn: Vec<u8>,
    others: Vec<String>,
}

/// Kinds of the root qdiscs before Weir, by port.
type Saved = SortedMap<String, String>;

/// A Linux box as a switch: the network namespace of the thread that opened it.
pub struct LinuxTc {
    socket: Socket,
    settings: Settings,
    /// The devices of ports that are there.
    devices: SortedMap<PortName, Device>,
    trees: SortedMap<PortName, Tree>,
    /// Kinds of the root qdiscs of ports that are not Weir's.
    roots: SortedMap<PortName, String>,
    others: Vec<String>,
    /// Ports with a mark.
    marked: SortedSet<PortName>,
}

impl LinuxTc {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let (devices, trees, roots) = (SortedMap::new(), SortedMap::new(), SortedMap::new());
        let socket = Socket::open()?;
        let (others, marked) = (Vec::new(), SortedSet::new());
        Ok(Self { socket, settings, devices, trees, roots, others, marked })
    }

    fn class(&self, port: &PortQueues, weight: u16) -> Class {
        let ceil = htb::octets_per_second(port.rate).max(1);
        let octets = (ceil / 1000).clamp(2 * self.settings.turn.get(), 256 * 1024);
        let least = LEAST_RATE.min(ceil);
        Class {
            rate: least,
            ceil,
            // One packet at a time: a change fills the bucket, and what it holds has no weight.
            burst: htb::ticks(htb::rate(least).time_for(Bytes::new(1))),
            cburst: htb::ticks(htb::rate(ceil).time_for(Bytes::new(octets))),
            quantum: u32::from(weight) * self.settings.turn.get() as u32,
            prio: 0,
            overhead: 0,
        }
    }

    /// The class of the whole port.
    fn whole(&self, port: &PortQueues) -> Class {
        let leaf = self.class(port, 1);
        Class { rate: leaf.ceil, burst: leaf.cburst, quantum: 0, ..leaf }
    }

    fn read_port(
        &mut self,
        settings: &PortSettings,
        device: &Device,
        fifos: &SortedMap<u32, &Qdisc>,
    ) -> Result<Read, Error> {
        let classes = htb::classes(&mut self.socket, device, HANDLE)?;
        let entries = codepoint::filters(&mut self.socket, device, HANDLE)?;
        let last = FIRST + u32::from(settings.queues.max(16));
        let queue_of = |class: u32| {
            let queue = class.checked_sub(HANDLE + FIRST).filter(|_| class < HANDLE + last);
            queue.map_or(NO_QUEUE, |queue| queue as u8)
        };
        let mut queues = PortQueues {
            rate: Rate::ZERO,
            shared: NO_QUEUE,
            weights: SortedMap::new(),
            queue_of: SortedMap::new(),
        };
        let mut others = Vec::new();
        if let Some(whole) = classes.iter().find(|entry| entry.id == PORT) {
            queues.rate = htb::rate(whole.class.ceil);
            if !is_same(
                &whole.class,
                &Class { quantum: whole.class.quantum, ..self.whole(&queues) },
            ) {
                queues.rate = Rate::ZERO;
            }
        }
        for entry in classes.iter().filter(|entry| entry.id != PORT) {
            match queue_of(entry.id) {
                NO_QUEUE => others.push(format!("class {} of {device}", htb_name(entry.id))),
                queue => {
                    queues.weights.insert(queue, self.weight(&queues, queue, entry, fifos));
                }
            }
        }
        let mut filters = SortedMap::new();
        let mut parts: SortedMap<u8, [Option<u8>; 2]> = SortedMap::new();
        for entry in entries {
            let Some(matches) = entry.matches else {
                others.push(format!("filter of preference {} of {device}", entry.preference));
                continue;
            };
            filters.insert(matches, entry.handle);
            let queue = entry.class.map_or(NO_QUEUE, queue_of);
            match matches {
                Match::Rest => queues.shared = queue,
                Match::Ip4(codepoint) => parts.entry(codepoint).or_default()[0] = Some(queue),
                Match::Ip6(codepoint) => parts.entry(codepoint).or_default()[1] = Some(queue),
            }
        }
        let is_torn = |parts: &[Option<u8>; 2]| parts[0] != parts[1];
        let torn = parts.iter().filter(|(_, parts)| is_torn(parts)).map(|(at, _)| *at).collect();
        let either = |parts: &[Option<u8>; 2]| parts[0].or(parts[1]).unwrap_or(NO_QUEUE);
        queues.queue_of = parts.iter().map(|(at, parts)| (*at, either(parts))).collect();
        Ok(Read { tree: Tree { device: device.clone(), filters }, queues, torn, others })
    }

    /// A queue's weight; [`WRONG`] if its class or fifo is not as Weir makes it.
    fn weight(
        &self,
        port: &PortQueues,
        queue: u8,
        entry: &ClassEntry,
        fifos: &SortedMap<u32, &Qdisc>,
    ) -> u16 {
        let turn = self.settings.turn.get() as u32;
        let weight = u16::try_from(entry.class.quantum / turn).unwrap_or(WRONG);
        let limit = fifos.get(&entry.id).filter(|fifo| fifo.handle == fifo_of(queue));
        let limit = limit.and_then(|fifo| fifo.limit).map(u64::from);
        let is_right = entry.parent == PORT
            && is_same(&entry.class, &self.class(port, weight))
            && limit == Some(self.settings.buffer.get());
        if is_right { weight } else { WRONG }
    }

    /// Sends; an error says which port it is about.
    fn send(&mut self, batch: &Batch, step: Step) -> Result<(), Failed> {
        if batch.is_empty() {
            return Ok(());
        }
        self.socket.send(batch).map_err(|error| failed(&error, step))
    }

    /// Waits until the queues that are to be removed are empty.
    fn drain(&mut self, changes: &[Change], limit: &Limit) -> Result<(), Failed> {
        let step = Step::Make(Stage::Remove);
        let ports: SortedSet<&PortName> = changes.iter().map(|change| &change.port).collect();
        let patience = Limit::after(DRAIN);
        for name in ports {
            let Some(tree) = self.trees.get(name) else { continue };
            let is_removed = |class: u32| {
                changes.iter().any(|change| {
                    let What::Remove { queue, .. } = change.what else { return false };
                    change.port == *name && class_of(queue) == class
                })
            };
            loop {
                let classes = htb::classes(&mut self.socket, &tree.device, HANDLE);
                let classes = classes.map_err(|error| failed(&error, step))?;
                if !classes.iter().any(|c| is_removed(c.id) && c.stats.queued > 0) {
                    break;
                }
                let late = |late| Failed { port: Some(name.clone()), ..late };
                patience.left(step).and_then(|_| limit.left(step)).map_err(late)?;
                pause();
            }
        }
        Ok(())
    }

    /// Appends one change.
    fn write(&mut self, batch: &mut Batch, change: &Change, group: &Group<'_, Saved>) {
        let after = group.after;
        let name = &change.port;
        let Some(port) = after.ports.get(name) else { return };
        let Some(device) = self.devices.get(name).cloned() else { return };
        if let What::Rate { was: None, .. } = change.what {
            batch.add_htb(&device, HANDLE, 0);
            // A port that came after the others were marked.
            if self.marked.insert(name.clone()) {
                batch.add_alternative(&device, &mark_of(group.owner, &device));
            }
            let tree = Tree { device: device.clone(), filters: SortedMap::new() };
            self.trees.insert(name.clone(), tree);
        }
        let (whole, leaf) = (self.whole(port), |weight| self.class(port, weight));
        let buffer = self.settings.buffer;
        let set_queue = |batch: &mut Batch, queue: u8, weight: u16, is_new: bool| {
            let id = class_of(queue);
            batch.set_class(&device, Verb::Replace, PORT, id, &leaf(weight));
            if is_new {
                batch.set_bfifo(&device, id, fifo_of(queue), buffer);
            }
        };
        match change.what {
            What::Rate { was, .. } => {
                batch.set_class(&device, Verb::Replace, HANDLE, PORT, &whole);
                // The ceilings of queues that stay follow; new ones come by themselves.
                for (queue, weight) in port.weights.iter().filter(|_| was.is_some()) {
                    set_queue(batch, *queue, *weight, false);
                }
            }
            What::Weight { queue, weight, was } => {
                set_queue(batch, queue, weight, was.is_none_or(|was| was == WRONG));
            }
            What::Share { queue, .. } => self.set_filter(batch, name, Match::Rest, queue),
            What::Bind { codepoint, queue, .. } => {
                for matches in [Match::Ip4(codepoint), Match::Ip6(codepoint)] {
                    self.set_filter(batch, name, matches, queue);
                }
            }
            What::Unbind { codepoint, .. } => {
                let Some(tree) = self.trees.get_mut(name) else { return };
                for matches in [Match::Ip4(codepoint), Match::Ip6(codepoint)] {
                    if let Some(handle) = tree.filters.remove(&matches) {
                        batch.delete_codepoint(&device, HANDLE, matches, handle);
                    }
                }
            }
            What::Remove { queue, .. } => batch.delete_class(&device, class_of(queue)),
        }
    }

    fn set_filter(&self, batch: &mut Batch, name: &PortName, matches: Match, queue: u8) {
        let Some(tree) = self.trees.get(name) else { return };
        let found = tree.filters.get(&matches).copied();
        batch.set_codepoint(&tree.device, HANDLE, matches, found, class_of(queue));
    }

    fn marks(&self, owner: &Owner, mut each: impl FnMut(&Device, String)) {
        for device in self.devices.values() {
            each(device, mark_of(owner, device));
        }
    }
}

/// What an owner's mark begins with. It is an alternative name of each port, `weir.OWNER.PORT`.
const MARK: &str = "weir.";

fn mark_of(owner: &Owner, device: &Device) -> String {
    format!("{MARK}{owner}.{}", device.name)
}

fn owner_of(alternative: &str) -> Option<String> {
    let (owner, _) = alternative.strip_prefix(MARK)?.split_once('.')?;
    Some(owner.to_owned())
}

const fn class_of(queue: u8) -> u32 {
    HANDLE + FIRST + queue as u32
}

const fn fifo_of(queue: u8) -> u32 {
    (FIFO + queue as u32) << 16
}

fn htb_name(id: u32) -> String {
    format!("{:x}:{:x}", id >> 16, id & 0xffff)
}

/// Whether a class is as it was written. The kernel rounds bursts by a tick.
fn is_same(found: &Class, wanted: &Class) -> bool {
    let near = |a: u32, b: u32| a.abs_diff(b) <= 1;
    near(found.burst, wanted.burst)
        && near(found.cburst, wanted.cburst)
        && Class { burst: wanted.burst, cburst: wanted.cburst, ..*found } == *wanted
}

fn failed(error: &Error, step: Step) -> Failed {
    let port = match error {
        Error::Refused {
            object:
                Object::Class { device, .. }
                | Object::Classes(device)
                | Object::Filters(device)
                | Object::Qdisc { device, .. },
            ..
        } => Some(PortName(device.name.clone())),
        _ => None,
    };
    Failed { port, step, why: Why::Refused(error.to_string()) }
}

#[expect(clippy::disallowed_methods, reason = "the driver's only wait: for a queue to be empty")]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

impl Backend for LinuxTc {
    type Saved = Saved;

    const PROVES: bool = true;

    fn read(&mut self, limit: &Limit) -> Result<Found, Failed> {
        let step = Step::Read;
        limit.left(step)?;
        let told = |error: Error| failed(&error, step);
        let links = link::list(&mut self.socket).map_err(told)?;
        let qdiscs = tc::qdiscs(&mut self.socket, None).map_err(told)?;
        self.devices.clear();
        self.trees.clear();
        self.roots.clear();
        self.marked.clear();
        let mut found = Found {
            able: Abilities {
                ports: SortedMap::new(),
                classes: None,
                most_weight: self.settings.most_weight,
                reserved_codepoints: self.settings.reserved_codepoints.clone(),
            },
            config: SwitchConfig::default(),
            classes: SortedMap::new(),
            owners: SortedSet::new(),
            torn: SortedSet::new(),
            barred: SortedMap::new(),
            others: Vec::new(),
        };
        let links: SortedMap<&str, &link::Link> =
            links.iter().map(|link| (&*link.device.name, link)).collect();
        for (name, settings) in self.settings.ports.clone() {
            let Some(link) = links.get(&*name.0) else { continue };
            let device = link.device.clone();
            let owners: Vec<String> =
                link.alternatives.iter().filter_map(|name| owner_of(name)).collect();
            if !owners.is_empty() {
                self.marked.insert(name.clone());
            }
            found.owners.extend(owners);
            let able = PortAbilities {
                rate: settings.rate,
                queues: settings.queues,
                reserved: SortedSet::new(),
            };
            found.able.ports.insert(name.clone(), able);
            self.devices.insert(name.clone(), device.clone());
            let of = |qdisc: &&Qdisc| qdisc.index == device.index;
            let root = qdiscs.iter().filter(of).find(|qdisc| qdisc.parent == tc::ROOT);
            match root {
                Some(root) if root.kind == "htb" && root.handle == HANDLE => {
                    limit.left(step)?;
                    let fifos = qdiscs.iter().filter(of).map(|fifo| (fifo.parent, fifo)).collect();
                    let read = self.read_port(&settings, &device, &fifos).map_err(told)?;
                    found.torn.extend(read.torn.into_iter().map(|at| (name.clone(), at)));
                    found.others.extend(read.others);
                    found.config.ports.insert(name.clone(), read.queues);
                    self.trees.insert(name, read.tree);
                }
                // A handle of zero is that of a qdisc that the kernel chose by itself.
                Some(root) if root.handle != 0 => {
                    let what = format!("root qdisc {} {:x}:", root.kind, root.handle >> 16);
                    found.barred.insert(name.clone(), what.clone());
                    found.others.push(format!("{what} of {name}"));
                    self.roots.insert(name, root.kind.clone());
                }
                root => {
                    let kind = root.map_or("none", |root| &root.kind);
                    self.roots.insert(name, kind.to_owned());
                }
            }
        }
        self.others = found.others.clone();
        Ok(found)
    }

    fn save(&mut self, limit: &Limit) -> Result<Self::Saved, Failed> {
        self.read(limit)?;
        Ok(self.roots.iter().map(|(name, kind)| (name.to_string(), kind.clone())).collect())
    }

    fn covers(saved: &Self::Saved, port: &PortName) -> bool {
        saved.contains_key(&*port.0)
    }

    fn extend(saved: &mut Self::Saved, now: Self::Saved) {
        for (port, kind) in now {
            saved.entry(port).or_insert(kind);
        }
    }

    fn mark(&mut self, owner: &Owner, _: &Limit) -> Result<(), Failed> {
        self.unmark(owner, &Limit::after(Duration::from_secs(1)))?;
        let mut batch = Batch::new();
        self.marks(owner, |device, name| batch.add_alternative(device, &name));
        self.send(&batch, Step::Claim)
    }

    fn unmark(&mut self, owner: &Owner, _: &Limit) -> Result<(), Failed> {
        let links = link::list(&mut self.socket).map_err(|error| failed(&error, Step::Claim))?;
        let mut batch = Batch::new();
        self.marks(owner, |device, name| {
            let is_its = |link: &&link::Link| link.device.index == device.index;
            let link = links.iter().find(is_its);
            if link.is_some_and(|link| link.alternatives.contains(&name)) {
                batch.delete_alternative(device, &name);
            }
        });
        self.send(&batch, Step::Claim)
    }

    fn make(&mut self, group: &Group<'_, Self::Saved>, limit: &Limit) -> Result<(), Failed> {
        if group.stage == Stage::Remove {
            self.drain(group.changes, limit)?;
        }
        let mut batch = Batch::new();
        for change in group.changes {
            self.write(&mut batch, change, group);
        }
        self.send(&batch, Step::Make(group.stage))
    }

    fn restore(&mut self, _: &Self::Saved, _: &Limit) -> Result<(), Failed> {
        let is_in_tree = |what: &&String| what.starts_with("class ") || what.starts_with("filter ");
        if let Some(other) = self.others.iter().find(is_in_tree) {
            let what = format!("{other} is in Weir's tree: remove it first. Nothing was changed");
            return Err(Failed::new(Step::Restore, Why::NotRestored(what)));
        }
        let mut batch = Batch::new();
        for tree in self.trees.values() {
            batch.delete_qdisc(&tree.device, tc::ROOT);
        }
        self.send(&batch, Step::Restore)
    }
}

/// What a port's queues have sent, for people and tests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// By queue.
    pub queues: SortedMap<u8, tc::Stats>,
    /// Packets that met no queue and passed without a limit.
    pub unclassified: u32,
}

impl LinuxTc {
    /// Counters of a port, since its tree was made; `None` if it has none.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn counters(&mut self, port: &PortName) -> Result<Option<PortCounters>, Error> {
        let Some(link) = link::get(&mut self.socket, &port.0)? else { return Ok(None) };
        let root = tc::root(&mut self.socket, &link.device)?;
        let Some(root) = root.filter(|root| root.handle == HANDLE) else { return Ok(None) };
        let classes = htb::classes(&mut self.socket, &link.device, HANDLE)?;
        let queues = classes.iter().filter(|entry| entry.id >= class_of(0));
        let queues = queues.map(|entry| ((entry.id - class_of(0)) as u8, entry.stats)).collect();
        Ok(Some(PortCounters { queues, unclassified: root.direct }))
    }
}
