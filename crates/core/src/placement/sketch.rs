//! One tenant on one tree, VM by VM: what each link would need.
//!
//! Approach  Only the part of the tree that VMs touch is drawn, as one entry per link above a host or
//!           a switch. An entry sums the floors of the VMs below it. What a link needs is concave in
//!           the number of VMs below: each hose's is the smaller of a rising and a falling line. So the
//!           numbers that do not fit are one interval, and halving finds its lower end.
//! Promises  After every step each entry fits what its link has left, taken that all VMs which are not
//!           yet below will be outside. So when all VMs are placed, all links fit.

use super::spec::{Spec, Sums};
use crate::ledger::Cut;
use crate::ledger::book::Book;
use crate::ledger::request::Need;
use crate::ledger::topology::{Direction, LinkId};
use crate::ledger::trees::{NONE, Shape, Tree};
use weir_units::Rate;

/// A VM, or several that are alike, with a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located {
    pub(crate) class: usize,
    pub(crate) host: u32,
}

/// The link above a host or a switch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    link: u32,
    is_forward_up: bool,
    /// Entry above, or [`NONE`] below the root.
    parent: u32,
    /// Left on the link: upwards, downwards.
    room: Sums,
    is_above_gateway: bool,
    /// Whether the tenant's traffic may not pass it, however little it needs.
    is_barred: bool,
    /// Index into [`Spec::most`]; 2 where survival sets no limit.
    domain: usize,
    vms: u32,
}

/// What stopped a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The tree does not have the host, or no gateway.
    Route,
    Slots {
        host: u32,
    },
    Survival,
    /// What the link would need.
    Link {
        link: u32,
        direction: Direction,
        needed: u64,
    },
}

/// Memory that evaluations share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    entries: Vec<Entry>,
    /// Sums over the VMs below: entry × width + hose.
    below: Vec<Sums>,
    /// Entry of a node of the tree, or [`NONE`].
    of_node: Vec<u32>,
    /// Entry of a host, or [`NONE`].
    of_host: Vec<u32>,
    /// Slots taken on a host by this tenant.
    slots: Vec<u32>,
    nodes: Vec<u32>,
    hosts: Vec<u32>,
}

/// The tenant on the tree.
pub(crate) struct Sketch<'a> {
    shape: &'a Shape,
    book: &'a Book,
    tree: &'a Tree,
    spec: &'a Spec,
    scratch: &'a mut Scratch,
    is_bounded: bool,
}

impl<'a> Sketch<'a> {
    /// A sketch to which links, slots and survival are no limit.
    pub(crate) fn unbounded(
        world: (&'a Shape, &'a Book),
        tree: &'a Tree,
        spec: &'a Spec,
        scratch: &'a mut Scratch,
    ) -> Self {
        Self { is_bounded: false, ..Self::new(world, tree, spec, scratch) }
    }

    pub(crate) fn new(
        (shape, book): (&'a Shape, &'a Book),
        tree: &'a Tree,
        spec: &'a Spec,
        scratch: &'a mut Scratch,
    ) -> Self {
        scratch.clear();
        scratch.of_host.resize(shape.topology.hosts.len(), NONE);
        scratch.slots.resize(shape.topology.hosts.len(), 0);
        if scratch.of_node.len() < tree.nodes.len() {
            scratch.of_node.resize(tree.nodes.len(), NONE);
        }
        Self { shape, book, tree, spec, scratch, is_bounded: true }
    }

    /// Puts VMs where they are; they fit, or `Err` says why not.
    pub(crate) fn locate(&mut self, located: &[Located]) -> Result<(), Stop> {
        if self.spec.has_outside && !self.tree.has_gateway {
            return Err(Stop::Route);
        }
        if self.spec.has_outside {
            self.entry_of_node(self.tree.gateway, false);
        }
        for vm in located {
            self.put(vm)?;
        }
        for entry in 0..self.scratch.entries.len() {
            if let Some(stop) = self.excess(entry, None, 0) {
                return Err(stop);
            }
        }
        Ok(())
    }

    fn put(&mut self, vm: &Located) -> Result<(), Stop> {
        let first = self.entry_of(vm.host).ok_or(Stop::Route)?;
        self.add(first, vm.class, 1);
        self.occupy(vm.host, vm.class, 1)
    }

    /// Takes slots in this sketch.
    fn occupy(&mut self, host: u32, class: usize, vms: u32) -> Result<(), Stop> {
        let taken = &mut self.scratch.slots[host as usize];
        *taken += self.spec.slots[class] * vms;
        if self.is_bounded && *taken > self.book.hosts[host as usize].free() {
            return Err(Stop::Slots { host });
        }
        Ok(())
    }

    /// The host's entry; draws it and those above, if they are new.
    fn entry_of(&mut self, host: u32) -> Option<u32> {
        let known = self.scratch.of_host[host as usize];
        if known != NONE {
            return Some(known);
        }
        let (port, node) = self.shape.port_in(self.tree, host)?;
        let parent = self.entry_of_node(node, true);
        let entry = self.draw(port.link, port.is_forward_up, parent, false, 0);
        self.scratch.of_host[host as usize] = entry;
        self.scratch.hosts.push(host);
        Some(entry)
    }

    fn entry_of_node(&mut self, node: u32, is_rack: bool) -> u32 {
        let at = self.tree.nodes[node as usize];
        // The root has no link above; it is drawn only to count the VMs of a rack.
        if at.parent == NONE && !(is_rack && self.spec.most[1] != u32::MAX) {
            return NONE;
        }
        let known = self.scratch.of_node[node as usize];
        if known != NONE {
            if is_rack {
                self.scratch.entries[known as usize].domain = 1;
            }
            return known;
        }
        let parent = if at.parent == NONE { NONE } else { self.entry_of_node(at.parent, false) };
        let domain = if is_rack { 1 } else { 2 };
        let entry = self.draw(at.link, at.is_forward_up, parent, at.is_above_gateway, domain);
        self.scratch.of_node[node as usize] = entry;
        self.scratch.nodes.push(node);
        entry
    }

    fn draw(
        &mut self,
        link: u32,
        is_forward_up: bool,
        parent: u32,
        gateway: bool,
        domain: usize,
    ) -> u32 {
        let [forward, backward] =
            if self.is_bounded && link != NONE { self.book.room(link) } else { [u64::MAX; 2] };
        let room = if is_forward_up { [forward, backward] } else { [backward, forward] };
        self.scratch.entries.push(Entry {
            link,
            is_forward_up,
            parent,
            room,
            is_above_gateway: gateway,
            is_barred: self.is_bounded && link != NONE && self.book.is_barred(link),
            domain,
            vms: 0,
        });
        let sums = self.scratch.entries.len() * self.spec.width;
        self.scratch.below.resize(sums, [0, 0]);
        self.scratch.entries.len() as u32 - 1
    }

    fn add(&mut self, mut entry: u32, class: usize, vms: u32) {
        let width = self.spec.width;
        while entry != NONE {
            let at = entry as usize;
            self.scratch.entries[at].vms += vms;
            for (hose, floor) in self.spec.floors_of(class).iter().enumerate() {
                let more = floor.map(|rate| rate * u64::from(vms));
                let sum = &mut self.scratch.below[at * width + hose];
                *sum = [sum[0] + more[0], sum[1] + more[1]];
            }
            entry = self.scratch.entries[at].parent;
        }
    }

    /// What the entry's link needs, upwards and downwards, with `vms` more of a class below it.
    fn need(&self, entry: usize, class: Option<usize>, vms: u32) -> Sums {
        let (width, vms) = (self.spec.width, u64::from(vms));
        self.need_of(entry, |hose| {
            class.map_or([0, 0], |c| self.spec.floors[c * width + hose].map(|f| f * vms))
        })
    }

    /// The same with `more` of each hose below it.
    fn need_of(&self, entry: usize, more: impl Fn(usize) -> Sums) -> Sums {
        let width = self.spec.width;
        let mut need = [0, 0];
        for hose in 0..width {
            let more = more(hose);
            let below = self.scratch.below[entry * width + hose];
            let inside = [below[0] + more[0], below[1] + more[1]];
            let total = self.spec.total[hose];
            let outside = [total[0] - inside[0], total[1] - inside[1]];
            if self.spec.has_outside && hose + 1 == width {
                // The other end is the gateway, which takes and sends anything.
                let below = self.scratch.entries[entry].is_above_gateway;
                need[0] += if below { outside[1] } else { inside[0] };
                need[1] += if below { outside[0] } else { inside[1] };
            } else {
                need[0] += cut(inside[0], outside[1]);
                need[1] += cut(outside[0], inside[1]);
            }
        }
        need
    }

    /// What is in the way of `vms` more of a class below the entry.
    fn excess(&self, entry: usize, class: Option<usize>, vms: u32) -> Option<Stop> {
        let at = &self.scratch.entries[entry];
        if self.is_bounded && at.domain < 2 && at.vms + vms > self.spec.most[at.domain] {
            return Some(Stop::Survival);
        }
        let need = self.need(entry, class, vms);
        let bars = self.bars(at, vms);
        let over = (0..2).find(|&d| bars || need[d] > at.room[d])?;
        let direction =
            if (over == 0) == at.is_forward_up { Direction::Forward } else { Direction::Backward };
        Some(Stop::Link { link: at.link, direction, needed: need[over] })
    }

    /// Whether an entry that is barred has traffic with `vms` more below it.
    fn bars(&self, at: &Entry, vms: u32) -> bool {
        let passes = at.is_above_gateway && self.spec.has_outside;
        at.is_barred && (at.vms + vms > 0 || passes)
    }

    /// The most VMs of a class, at most `wanted`, that fit on a host beside those that are placed; and
    /// what stops more.
    pub(crate) fn usable(&mut self, host: u32, class: usize, wanted: u32) -> (u32, Option<Stop>) {
        let slots = self.spec.slots[class];
        let left =
            self.book.hosts[host as usize].free().saturating_sub(self.scratch.slots[host as usize]);
        let fit = left.checked_div(slots).unwrap_or(u32::MAX);
        let mut most = wanted.min(fit);
        let mut stop = (most < wanted).then_some(Stop::Slots { host });
        let Some(first) = self.entry_of(host) else { return (0, Some(Stop::Route)) };
        // A link above may forbid what fits below, and then fewer may not fit below: until all agree.
        let mut entry = first;
        while entry != NONE && most > 0 {
            match self.excess(entry as usize, Some(class), most) {
                None => entry = self.scratch.entries[entry as usize].parent,
                Some(why) => {
                    stop = Some(why);
                    most = self.below(entry as usize, class, most);
                    entry = first;
                }
            }
        }
        (most, stop)
    }

    /// The most VMs below `excess` that fit the entry alone, where none fits.
    fn below(&self, entry: usize, class: usize, excess: u32) -> u32 {
        let (mut fits, mut exceeds) = (0, excess);
        while exceeds - fits > 1 {
            let middle = fits + (exceeds - fits) / 2;
            let is_over = self.excess(entry, Some(class), middle).is_some();
            *(if is_over { &mut exceeds } else { &mut fits }) = middle;
        }
        fits
    }

    /// Places what [`usable`](Self::usable) said would fit.
    pub(crate) fn place(&mut self, host: u32, class: usize, vms: u32) {
        let entry = self.entry_of(host).expect("usable was asked before");
        self.add(entry, class, vms);
        self.occupy(host, class, vms).expect("usable was asked before");
    }

    /// Draws a host's entry; `None` if the tree does not have the host.
    pub(crate) fn draw_host(&mut self, host: u32) -> Option<usize> {
        self.entry_of(host).map(|entry| entry as usize)
    }

    /// Number of entries. Each comes after the one above it.
    pub(crate) fn entries(&self) -> usize {
        self.scratch.entries.len()
    }

    /// The entry above; `None` below the root.
    pub(crate) fn parent(&self, entry: usize) -> Option<usize> {
        let parent = self.scratch.entries[entry].parent;
        (parent != NONE).then_some(parent as usize)
    }

    /// Whether a host has slots for so many more of each class.
    pub(crate) fn has_slots(&self, host: u32, counts: &[u32]) -> bool {
        let wanted: u64 =
            self.spec.slots.iter().zip(counts).map(|(s, n)| u64::from(*s) * u64::from(*n)).sum();
        let taken = self.scratch.slots[host as usize];
        wanted <= u64::from(self.book.hosts[host as usize].free().saturating_sub(taken))
    }

    /// Whether the entry's link fits with so many more of each class below it.
    pub(crate) fn fits(&self, entry: usize, counts: &[u32]) -> bool {
        let at = &self.scratch.entries[entry];
        if at.domain < 2 && at.vms + counts.iter().sum::<u32>() > self.spec.most[at.domain] {
            return false;
        }
        if self.bars(at, counts.iter().sum()) {
            return false;
        }
        let need = self.need_of(entry, |hose| {
            let mut more = [0, 0];
            for (class, vms) in counts.iter().enumerate() {
                let floor = self.spec.floors[class * self.spec.width + hose];
                (0..2).for_each(|d| more[d] += floor[d] * u64::from(*vms));
            }
            more
        });
        need[0] <= at.room[0] && need[1] <= at.room[1]
    }

    /// What every link needs, by link.
    ///
    /// # Panics
    /// A link would have to promise more than it has left.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::with_capacity(self.scratch.entries.len());
        for (i, entry) in self.scratch.entries.iter().enumerate() {
            let [up, down] = self.need(i, None, 0);
            assert!(up <= entry.room[0] && down <= entry.room[1], "more than the link has left");
            if entry.link == NONE || (up == 0 && down == 0) {
                continue;
            }
            let [forward, backward] = if entry.is_forward_up { [up, down] } else { [down, up] };
            needs.push(Need {
                link: LinkId(entry.link),
                forward: Rate::from_bps(forward),
                backward: Rate::from_bps(backward),
            });
        }
        needs.sort_unstable_by_key(|need| need.link);
        needs
    }
}

/// The need of one hose in one direction.
fn cut(senders: u64, receivers: u64) -> u64 {
    Cut { senders: Rate::from_bps(senders), receivers: Rate::from_bps(receivers) }.need().as_bps()
}

impl Scratch {
    fn clear(&mut self) {
        self.entries.clear();
        self.below.clear();
        for node in self.nodes.drain(..) {
            self.of_node[node as usize] = NONE;
        }
        for host in self.hosts.drain(..) {
            self.of_host[host as usize] = NONE;
            self.slots[host as usize] = 0;
        }
    }
}
