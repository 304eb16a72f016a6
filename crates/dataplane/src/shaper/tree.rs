//! The tree of classes: the kernel's state, the desired state, and the messages between the two.

use super::layout::{self, Use};
use super::levels::LONGEST_WAIT;
use super::{Changes, Error};
use crate::nl::htb::{self, Class, ClassEntry};
use crate::nl::tc::Qdisc;
use crate::nl::{Batch, Device, Handle, Socket, Verb, pair_queue, tc};
use std::collections::{BTreeMap, BTreeSet};
use weir_units::Bytes;

/// One class by its minor number: its parent's number (zero: the root) and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) parent: u16,
    pub(super) class: Class,
}

/// Classes by minor number. Numbers grow from parents to children.
pub(super) type Nodes = BTreeMap<u16, Node>;

/// State of the kernel.
#[derive(Clone, Default, Debug)]
pub(super) struct Tree {
    pub(super) nodes: Nodes,
    /// The bound of each leaf's queue in octets, where it is of the kind that we make.
    pub(super) queues: BTreeMap<u16, u32>,
    /// Leaves that have a queue of any kind, the kernel's own not counted.
    pub(super) held: BTreeSet<u16>,
    /// Whether HTB is the root qdisc, with our handle and our default class.
    pub(super) rooted: bool,
    /// Whether a foreign qdisc is the root.
    pub(super) usurped: bool,
    /// Indices of devices with clsact.
    pub(super) clsact: BTreeSet<u32>,
}

fn node(entry: &ClassEntry) -> (u16, Node) {
    let parent = layout::minor(entry.parent);
    (layout::minor(entry.id), Node { parent, class: entry.class })
}

/// Whether a device's root qdisc is the one that [`Tree::plan`] makes.
pub(super) fn is_ours(root: &Qdisc) -> bool {
    let (handle, default) = (layout::QDISC, u32::from(layout::UNCLASSIFIED));
    root.kind == "htb" && root.handle == handle && root.default == Some(default)
}

/// The difference between the kernel's classes and those that were set; `None` if there is none.
pub(super) fn difference(found: &[ClassEntry], given: &Nodes) -> Option<String> {
    let name = |minor: u16| Handle(layout::handle(minor));
    let mut left: BTreeSet<u16> = given.keys().copied().collect();
    for entry in found {
        let (minor, there) = node(entry);
        left.remove(&minor);
        let Some(ours) = given.get(&minor) else {
            return Some(format!("there is a class {} too many", name(minor)));
        };
        if ours.parent != there.parent || !same(minor, &there.class, &ours.class) {
            return Some(format!("class {} was changed", name(minor)));
        }
        if layout::is_leaf(minor) && entry.leaf != layout::queue_handle(minor) {
            return Some(format!("the queue of class {} was changed", name(minor)));
        }
    }
    left.first().map(|minor| format!("class {} was deleted", name(*minor)))
}

/// The classes that the kernel has.
pub(super) fn classes(socket: &mut Socket, device: &Device) -> Result<Nodes, Error> {
    Ok(htb::classes(socket, device, layout::QDISC)?.iter().map(node).collect())
}

impl Tree {
    pub(super) fn read(socket: &mut Socket, device: &Device) -> Result<Self, Error> {
        let mut tree = Self::default();
        let mut fifos = BTreeMap::new();
        for qdisc in tc::qdiscs(socket, None)? {
            if qdisc.kind == "clsact" {
                tree.clsact.insert(qdisc.index);
            }
            if qdisc.index != device.index {
                continue;
            }
            if qdisc.parent == tc::ROOT {
                tree.rooted = is_ours(&qdisc);
                tree.usurped = !tree.rooted && qdisc.handle != 0;
            }
            tree.see(&qdisc, &mut fifos);
        }
        // A pair's queue is right if both its fifos are there.
        for (pair, limits) in fifos {
            if let [Some(data), Some(acks)] = limits {
                tree.queues.insert(pair, data.min(acks));
            }
        }
        if tree.rooted {
            tree.nodes = classes(socket, device)?;
        }
        Ok(tree)
    }

    /// Notes a queue, or a fifo of a pair's queue.
    fn see(&mut self, qdisc: &Qdisc, fifos: &mut BTreeMap<u16, [Option<u32>; 2]>) {
        let fifo = qdisc.limit.filter(|_| qdisc.kind == "bfifo");
        let class = layout::minor(qdisc.parent);
        if qdisc.parent >> 16 == layout::QDISC >> 16 {
            self.held.insert(class);
            self.queues.extend(fifo.filter(|_| !is_pair(class)).map(|limit| (class, limit)));
            return;
        }
        let pair = layout::class_of_queue(qdisc.parent);
        if let (true, Some(limit)) = (is_pair(pair), fifo) {
            let place = usize::from(u32::from(class) != pair_queue::DATA);
            fifos.entry(pair).or_default()[place] = Some(limit);
        }
    }

    /// Appends what turns this tree into `wanted` with queues of `room` octets, by the class's number.
    pub(super) fn plan(
        &self,
        wanted: &Nodes,
        room: &dyn Fn(u16) -> Bytes,
        device: &Device,
        batch: &mut Batch,
    ) -> Changes {
        let mut changes = Changes::default();
        if self.usurped {
            batch.delete_qdisc(device, tc::ROOT);
            changes.deleted += 1;
        }
        if !self.rooted {
            batch.add_htb(device, layout::QDISC, layout::UNCLASSIFIED);
            changes.created += 1;
        }
        // A class cannot be moved: one with another parent is made anew.
        let kept = |minor: &u16, node: &Node| {
            wanted.get(minor).is_some_and(|want| want.parent == node.parent)
        };
        let gone: BTreeSet<u16> =
            self.nodes.iter().filter(|(m, n)| !kept(m, n)).map(|(m, _)| *m).collect();
        for minor in gone.iter().rev() {
            batch.delete_class(device, layout::handle(*minor));
            changes.deleted += 1;
        }
        for (minor, want) in wanted {
            let found = self.nodes.get(minor).filter(|_| !gone.contains(minor));
            let verb = match found {
                None => Verb::Create,
                Some(found) if same(*minor, &found.class, &want.class) => {
                    let queue = bound(*minor, &want.class, room(*minor));
                    changes.changed += usize::from(self.queue(*minor, queue, device, batch));
                    continue;
                }
                Some(_) => Verb::Change,
            };
            let (parent, id) = (layout::handle(want.parent), layout::handle(*minor));
            let queue = bound(*minor, &want.class, room(*minor));
            batch.set_class(device, verb, parent, id, &want.class);
            if verb == Verb::Create {
                changes.created += 1;
                Self::default().queue(*minor, queue, device, batch);
            } else {
                changes.changed += 1;
                self.queue(*minor, queue, device, batch);
            }
        }
        changes
    }

    /// Appends the queue of a leaf unless it is there; whether it did.
    fn queue(&self, minor: u16, queue: Bytes, device: &Device, batch: &mut Batch) -> bool {
        let there = self.queues.get(&minor).copied().map(u64::from);
        let needed = layout::is_leaf(minor) && there != Some(queue.get());
        if needed && there.is_some() && is_pair(minor) {
            set_room(batch, device, minor, queue);
        } else if needed {
            if self.held.contains(&minor) && is_pair(minor) {
                batch.delete_qdisc(device, layout::handle(minor));
            }
            set_queue(batch, device, minor, queue);
        }
        needed
    }

    /// Refuses a tree that is not as wanted, for what it names.
    pub(super) fn verify(&self, wanted: &Nodes, device: &Device) -> Result<(), Error> {
        for (minor, want) in wanted {
            let found = self.nodes.get(minor);
            if found.is_some_and(|f| f.parent == want.parent && same(*minor, &f.class, &want.class))
            {
                continue;
            }
            return Err(Error::ReadBack {
                object: format!("class {} of {device}", Handle(layout::handle(*minor))),
                wanted: format!("{want:?}"),
                found: found.map_or_else(|| "nothing".to_owned(), |f| format!("{f:?}")),
            });
        }
        Ok(())
    }
}

fn is_pair(minor: u16) -> bool {
    layout::usage(minor) == Use::Pair
}

/// Appends the queue of a leaf, in place of the kernel's own.
pub(super) fn set_queue(batch: &mut Batch, device: &Device, minor: u16, limit: Bytes) {
    let (class, queue) = (layout::handle(minor), layout::queue_handle(minor));
    if is_pair(minor) {
        batch.add_pair_queue(device, class, queue, layout::fifo_handles(minor), limit);
    } else {
        batch.set_bfifo(device, class, queue, limit);
    }
}

/// Appends: what the queue of a pair's class may hold. What waits stays.
pub(super) fn set_room(batch: &mut Batch, device: &Device, minor: u16, room: Bytes) {
    let (queue, fifos) = (layout::queue_handle(minor), layout::fifo_handles(minor));
    batch.set_pair_queue(device, queue, fifos, room);
}

/// A super-packet, for which a queue has room.
const SUPER_PACKET: Bytes = Bytes::new(64 * 1024);

/// Octets that may wait in a class. No program bounds the wait of external traffic, so its queue
/// holds what lasts [`LONGEST_WAIT`] at its ceiling.
fn bound(minor: u16, class: &Class, queue: Bytes) -> Bytes {
    match layout::usage(minor) {
        Use::External(_) => {
            htb::rate(class.ceil).bytes_in(LONGEST_WAIT).max(SUPER_PACKET).min(queue)
        }
        _ => queue,
    }
}

/// Whether the kernel's parameters are the wanted ones. It ignores an inner class's quantum and
/// priority once the class has children.
pub(super) fn same(minor: u16, found: &Class, wanted: &Class) -> bool {
    if layout::is_leaf(minor) {
        return found == wanted;
    }
    Class { quantum: 0, prio: 0, ..*found } == Class { quantum: 0, prio: 0, ..*wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(list: &[(u16, u16, u64)]) -> Nodes {
        let class = |rate| Class { rate, ceil: rate, ..Class::default() };
        list.iter().map(|&(m, parent, rate)| (m, Node { parent, class: class(rate) })).collect()
    }

    fn plan(tree: &Tree, wanted: &Nodes) -> (Changes, usize) {
        let device = Device { name: "weir-t".into(), index: 1 };
        let mut batch = Batch::new();
        let changes = tree.plan(wanted, &|_| Bytes::new(4096), &device, &mut batch);
        (changes, batch.len())
    }

    #[test]
    fn an_empty_device_gets_everything_and_a_second_pass_finds_nothing_to_do() {
        let wanted = nodes(&[(1, 0, 100), (2, 1, 10), (0x1000, 1, 50), (0x4000, 0x1000, 5)]);
        let (changes, messages) = plan(&Tree::default(), &wanted);
        assert_eq!((changes.created, messages), (5, 13), "a pair's queue takes seven");
        let queues = [(2, 4096), (0x4000, 4096)].into();
        let tree = Tree { nodes: wanted.clone(), queues, rooted: true, ..Tree::default() };
        assert_eq!(plan(&tree, &wanted), (Changes::default(), 0));
    }

    #[test]
    fn only_what_differs_is_written_and_children_go_before_parents() {
        let there =
            nodes(&[(1, 0, 100), (0x1000, 1, 50), (0x4000, 0x1000, 5), (0x4001, 0x1000, 5)]);
        let queues = [(0x4000, 4096), (0x4001, 4096)].into();
        let tree = Tree { nodes: there, queues, rooted: true, ..Tree::default() };
        let (changes, _) = plan(&tree, &nodes(&[(1, 0, 90)]));
        assert_eq!(changes, Changes { created: 0, changed: 1, deleted: 3 });
        let wanted = nodes(&[(1, 0, 100), (0x1000, 1, 50), (0x4000, 0x1000, 6), (0x4001, 1, 5)]);
        let (changes, messages) = plan(&tree, &wanted);
        assert_eq!((changes, messages), (Changes { created: 1, changed: 1, deleted: 1 }, 10));
    }

    #[test]
    fn external_traffic_waits_a_quarter_of_a_second_but_a_super_packet_finds_room() {
        let room = |minor, kbit: u64| {
            let class = Class { ceil: kbit * 125, ..Class::default() };
            bound(minor, &class, Bytes::new(128 * 1024)).get()
        };
        let external = layout::external(0);
        let wanted = [(64, 64 * 1024), (3000, 93_750), (100_000, 128 * 1024)];
        for (kbit, octets) in wanted {
            assert_eq!(room(external, kbit), octets, "{kbit} kbit/s");
        }
        assert_eq!(room(0x4000, 64), 128 * 1024, "a pair's is bounded before it");
    }

    #[test]
    fn a_queue_of_another_size_is_mended() {
        let wanted = nodes(&[(2, 1, 10)]);
        let queues = [(2, 9999)].into();
        let tree = Tree { nodes: wanted.clone(), queues, rooted: true, ..Tree::default() };
        assert_eq!(plan(&tree, &wanted).0, Changes { changed: 1, ..Changes::default() });
    }
}
