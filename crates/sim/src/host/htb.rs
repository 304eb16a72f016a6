//! A host's shaper: a hierarchical token bucket with three levels, and a queue per leaf.
//!
//! Problem   What a pair sends beyond its floor depends on how the kernel lends: which classes may,
//!           in which order, and how far ahead of its rate each may run.
//! Approach  The kernel's own rules on the tree uplink → VM → pair. A class that has tokens at its
//!           rate may send; one that has tokens only at its ceiling borrows from its parent. The
//!           lowest level that may send goes first, leaves of a level take turns with a deficit.
//!           Tokens are times, so that a change of rate leaves debts as long as they were. Only
//!           backlogged leaves are looked at.
//! Promises  No leaf sends more than its ceiling and its burst, none less than its rate while it is
//!           backlogged and rates sum to less than the uplink; while a leaf waits that may borrow,
//!           the uplink does not rest. Order of packets is kept within a leaf, but for
//!           acknowledgements: see `queue`.
//! Not here  Priorities (all data has one), the kernel's lateness: a packet leaves on time.
//! Source    Linux `net/sched/sch_htb.c` (`htb_dequeue`, `htb_charge_class`, `htb_class_mode`).

use super::backlog::Backlog;
use super::queue::Queue;
use weir_core::backlog::Arrival;
use weir_units::SortedSet;

/// A debt is never longer than this, in ns.
const LONGEST_DEBT: i64 = 60_000_000_000;
/// Leaves, VMs, the uplink.
const LEVELS: usize = 3;
/// After all leaves.
const LAST: (u32, u32) = (u32::MAX, u32::MAX);

/// Parameters of a class: bit/s, and how far it may run ahead of each in ns at that rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class {
    pub(crate) rate: u64,
    pub(crate) ceil: u64,
    pub(crate) burst: i64,
    pub(crate) cburst: i64,
    /// Octets of a turn.
    pub(crate) quantum: i64,
    /// What waits may last for so long at the ceiling, ns; for ever, if absent.
    pub(crate) wait: Option<u64>,
    /// Octets that may wait.
    pub(crate) room: u64,
}

/// What a class may do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Send,
    Borrow,
    Wait,
}

/// A class with its tokens, in ns at its rate and at its ceiling.
#[derive(Clone, Debug)]
struct Bucket {
    class: Class,
    tokens: i64,
    ctokens: i64,
    /// When tokens were counted last, ns.
    at: u64,
}

impl Bucket {
    fn new(class: Class, now: u64) -> Self {
        Self { class, tokens: class.burst, ctokens: class.cburst, at: now }
    }

    fn passed(&self, now: u64) -> i64 {
        (now - self.at).min(LONGEST_DEBT as u64) as i64
    }

    fn mode(&self, now: u64) -> Mode {
        let passed = self.passed(now);
        match (self.ctokens + passed < 0, self.tokens + passed < 0) {
            (true, _) => Mode::Wait,
            (false, true) => Mode::Borrow,
            (false, false) => Mode::Send,
        }
    }

    /// When there are tokens at the rate, and at the ceiling.
    fn free_at(&self) -> (u64, u64) {
        let at = |tokens: i64| self.at + tokens.min(0).unsigned_abs();
        (at(self.tokens), at(self.ctokens))
    }

    /// Sends `size` octets, on its own account or on that of a class above.
    fn charge(&mut self, now: u64, size: u64, own: bool) {
        let passed = self.passed(now);
        let pay = |tokens: i64, burst: i64, rate: u64| {
            let cost = (size * 8_000_000_000 / rate.max(1)) as i64;
            ((tokens + passed).min(burst) - cost).max(1 - LONGEST_DEBT)
        };
        self.ctokens = pay(self.ctokens, self.class.cburst, self.class.ceil);
        self.tokens = if own {
            pay(self.tokens, self.class.burst, self.class.rate)
        } else {
            // The kernel bounds these when they are next used.
            (self.tokens + passed).min(LONGEST_DEBT)
        };
        self.at = now;
    }
}

#[derive(Debug)]
struct Leaf {
    bucket: Bucket,
    vm: u32,
    queue: Queue,
    backlog: Backlog,
    deficit: [i64; LEVELS],
}

/// The tree, and what waits in it: packets by their number in the slab.
#[derive(Debug)]
pub(crate) struct Htb {
    uplink: Bucket,
    vms: Vec<Bucket>,
    leaves: Vec<Leaf>,
    free: Vec<u32>,
    /// Leaves that have something to send, by VM: the order of turns.
    backlogged: SortedSet<(u32, u32)>,
    /// Whose turn it is, at each level.
    turns: [(u32, u32); LEVELS],
    /// Where the turn of each VM's leaves is above level 0, if VMs keep it
    /// ([`Htb::keeping_turns`]).
    leaf_turns: Option<Vec<u32>>,
    /// Nothing may go before this time, ns; 0: not known. Whatever changes it says so.
    idle_until: u64,
    /// Packets that found a queue full or too long, or whose queue was removed.
    pub(crate) drops: u64,
}

impl Htb {
    pub(crate) fn new(uplink: Class, vms: &[Class], now: u64) -> Self {
        Self {
            uplink: Bucket::new(uplink, now),
            vms: vms.iter().map(|class| Bucket::new(*class, now)).collect(),
            leaves: Vec::new(),
            free: Vec::new(),
            backlogged: SortedSet::new(),
            turns: [(0, 0); LEVELS],
            leaf_turns: None,
            idle_until: 0,
            drops: 0,
        }
    }

    /// The same where each VM remembers which of its leaves is next, as the kernel's classes do
    /// (`clprio.ptr`): a VM that may borrow seldom, and only for moments, serves its leaves in
    /// turn. With one turn per level it would serve its first leaf each time, and starve the
    /// others.
    pub(crate) fn keeping_turns(self) -> Self {
        Self { leaf_turns: Some(vec![0; self.vms.len()]), ..self }
    }

    /// A queue of a VM.
    pub(crate) fn add(&mut self, now: u64, vm: u32, class: Class) -> u32 {
        let leaf = Leaf {
            bucket: Bucket::new(class, now),
            vm,
            queue: Queue::default(),
            backlog: Backlog::default(),
            deficit: [0; LEVELS],
        };
        if let Some(id) = self.free.pop() {
            self.leaves[id as usize] = leaf;
            return id;
        }
        self.leaves.push(leaf);
        self.leaves.len() as u32 - 1
    }

    /// Other parameters for a queue; what it owes stays.
    pub(crate) fn set(&mut self, leaf: u32, class: Class) {
        self.idle_until = 0;
        self.leaves[leaf as usize].bucket.class = class;
    }

    /// Removes a queue; the packets in it are lost.
    pub(crate) fn remove(&mut self, leaf: u32) -> impl Iterator<Item = u32> + use<> {
        self.idle_until = 0;
        let gone = &mut self.leaves[leaf as usize];
        self.backlogged.remove(&(gone.vm, leaf));
        self.free.push(leaf);
        let packets: Vec<u32> = gone.queue.drain().collect();
        self.drops += packets.len() as u64;
        packets.into_iter()
    }

    /// How many queues there are.
    pub(crate) fn queues(&self) -> usize {
        self.leaves.len() - self.free.len()
    }

    /// The parameters of a queue.
    pub(crate) fn class(&self, leaf: u32) -> Class {
        self.leaves[leaf as usize].bucket.class
    }

    /// Octets that wait in a queue.
    pub(crate) fn waiting(&self, leaf: u32) -> u64 {
        self.leaves[leaf as usize].queue.octets()
    }

    /// The same of acknowledgements.
    pub(crate) fn waiting_acks(&self, leaf: u32) -> u64 {
        self.leaves[leaf as usize].queue.octets_of_acks()
    }

    /// What passes beside the queues is part of what the uplink carries.
    pub(crate) fn charge(&mut self, now: u64, size: u16) {
        self.idle_until = 0;
        self.uplink.charge(now, size.into(), true);
    }

    /// Other parameters for a VM; what it owes stays.
    pub(crate) fn set_vm(&mut self, vm: u32, class: Class) {
        self.idle_until = 0;
        self.vms[vm as usize].class = class;
    }

    /// Takes out all that waits; it is lost.
    pub(crate) fn clear(&mut self) -> Vec<u32> {
        (0..self.vms.len() as u32).flat_map(|vm| self.empty(vm)).collect()
    }

    /// Takes out all that waits of a VM; it is lost.
    pub(crate) fn empty(&mut self, vm: u32) -> Vec<u32> {
        self.idle_until = 0;
        self.backlogged.retain(|(of, _)| *of != vm);
        let mut gone = Vec::new();
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.vm == vm) {
            gone.extend(leaf.queue.drain());
        }
        self.drops += gone.len() as u64;
        gone
    }

    /// Marks of the packets that left a queue last.
    pub(crate) fn left(&self, leaf: u32) -> u32 {
        self.leaves[leaf as usize].queue.left()
    }

    /// Queues packet `id` of a class; whether it was let in and there was room.
    pub(crate) fn push(&mut self, number: u32, id: u32, packet: &Arrival) -> bool {
        let leaf = &mut self.leaves[number as usize];
        let room = leaf.bucket.class.room;
        let is_in = leaf.backlog.admits(packet, &leaf.bucket.class).is_some_and(|mark| {
            leaf.queue.push((id, packet.octets as u16, mark), packet.is_ack, room)
        });
        if is_in {
            if self.backlogged.insert((leaf.vm, number)) {
                self.idle_until = 0;
            }
        } else {
            self.drops += 1;
        }
        is_in
    }

    /// The next packet that may go at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<u32> {
        if now < self.idle_until {
            return None;
        }
        self.idle_until = 0;
        let uplink = self.uplink.mode(now);
        let next = match &self.leaf_turns {
            None => self.next_by_level(now, uplink),
            Some(turns) => self.next_at_level(now, uplink, 0).map(|key| (0, key)).or_else(|| {
                (1..LEVELS).find_map(|level| {
                    self.next_by_vm(now, uplink, level, turns).map(|key| (level, key))
                })
            }),
        };
        let Some((level, key)) = next else {
            self.idle_until = self.next_at().unwrap_or(u64::MAX);
            return None;
        };
        let leaf = &mut self.leaves[key.1 as usize];
        let (id, size, _) = leaf.queue.pop().expect("backlogged leaves hold packets");
        leaf.deficit[level] -= i64::from(size);
        self.turns[level] = key;
        let is_over = leaf.deficit[level] < 0;
        if is_over {
            leaf.deficit[level] += leaf.bucket.class.quantum;
            self.turns[level] = (key.0, key.1 + 1);
        }
        if let Some(turns) = self.leaf_turns.as_mut().filter(|_| level > 0) {
            turns[key.0 as usize] = key.1 + u32::from(is_over);
        }
        if leaf.queue.is_empty() {
            self.backlogged.remove(&key);
        }
        leaf.bucket.charge(now, size.into(), level == 0);
        self.vms[key.0 as usize].charge(now, size.into(), level <= 1);
        self.uplink.charge(now, size.into(), true);
        Some(id)
    }

    /// The lowest level at which a leaf may send, and the leaf that has its turn there.
    fn next_by_level(&self, now: u64, uplink: Mode) -> Option<(usize, (u32, u32))> {
        // For each level the first leaf from its turn on, and the first of all.
        let (mut after, mut first) = ([LAST; LEVELS], [LAST; LEVELS]);
        let turn = self.turns[0];
        for &key in self.backlogged.range(turn..).chain(self.backlogged.range(..turn)) {
            match self.lends(now, uplink, key) {
                Some(0) => return Some((0, key)),
                Some(level) if key >= self.turns[level] => after[level] = after[level].min(key),
                Some(level) => first[level] = first[level].min(key),
                None => {}
            }
        }
        let next = |level: usize| if after[level] == LAST { first[level] } else { after[level] };
        (1..LEVELS).map(|level| (level, next(level))).find(|(_, key)| *key != LAST)
    }

    /// Whose turn it is among all leaves that may send at a level.
    fn next_at_level(&self, now: u64, uplink: Mode, level: usize) -> Option<(u32, u32)> {
        let turn = self.turns[level];
        let mut ring = self.backlogged.range(turn..).chain(self.backlogged.range(..turn));
        ring.find(|&&key| self.lends(now, uplink, key) == Some(level)).copied()
    }

    /// Whose turn it is where VMs take turns, and in each its leaves: a VM's turn ends with its
    /// last leaf's.
    fn next_by_vm(
        &self,
        now: u64,
        uplink: Mode,
        level: usize,
        turns: &[u32],
    ) -> Option<(u32, u32)> {
        let (first, may) =
            (self.turns[level].0, |key: &(u32, u32)| self.lends(now, uplink, *key) == Some(level));
        let after = |vm: u32| self.backlogged.range((vm, turns[vm as usize])..=(vm, u32::MAX));
        let before = |vm: u32| self.backlogged.range((vm, 0)..(vm, turns[vm as usize]));
        // The VM whose turn it is goes on with what is left of its round.
        if let Some(key) = after(first).find(|key| may(key)) {
            return Some(*key);
        }
        let mut vms: Vec<u32> = Vec::new();
        let rest = self.backlogged.range((first + 1, 0)..);
        for (vm, _) in rest.chain(self.backlogged.range(..(first + 1, 0))) {
            if vms.last() != Some(vm) {
                vms.push(*vm);
            }
        }
        vms.into_iter().find_map(|vm| after(vm).chain(before(vm)).find(|key| may(key)).copied())
    }

    /// The level on whose account a leaf may send at `now`, if it may.
    fn lends(&self, now: u64, uplink: Mode, (vm, leaf): (u32, u32)) -> Option<usize> {
        match self.leaves[leaf as usize].bucket.mode(now) {
            Mode::Send => return Some(0),
            Mode::Wait => return None,
            Mode::Borrow => {}
        }
        match self.vms[vm as usize].mode(now) {
            Mode::Send => Some(1),
            Mode::Borrow if uplink == Mode::Send => Some(2),
            Mode::Borrow | Mode::Wait => None,
        }
    }

    /// When something may go next, if something waits.
    pub(crate) fn next_at(&self) -> Option<u64> {
        if self.idle_until > 0 {
            return (self.idle_until < u64::MAX).then_some(self.idle_until);
        }
        let uplink = self.uplink.free_at();
        let uplink = uplink.0.max(uplink.1);
        let when = |&(vm, leaf): &(u32, u32)| {
            let (rate, ceil) = self.vms[vm as usize].free_at();
            let lent = ceil.max(rate.min(uplink));
            let (rate, ceil) = self.leaves[leaf as usize].bucket.free_at();
            ceil.max(rate.min(lent))
        };
        self.backlogged.iter().map(when).min()
    }
}

#[cfg(test)]
mod tests;
