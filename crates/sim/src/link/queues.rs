//! A port with several queues: which packet is next is known only when the wire is free.
//!
//! Problem   With weights or priorities a waiting packet may be overtaken, so its departure cannot
//!           be computed when it comes.
//! Approach  Waiting packets are a list per queue, linked through the packets themselves. A packet
//!           that finds the port idle leaves as from a FIFO. Only while packets wait, an event at
//!           the end of each packet on the wire chooses the next one. There are at most eight
//!           queues, and the choice looks at all of them.
//! Promises  Order is kept within a queue, and the wire is never idle while a packet waits. DRR: of
//!           two backlogged queues, each gets its weight's share within a quantum and a packet.
//!           WFQ: no packet leaves later than one full packet after it would with all queues served
//!           at once. Other weights are in force from the next packet on; what waits keeps its queue.
//! Not here  The wire: see `link`. Shared memory, and the tests: see `special`.
//! Source    DRR: Shreedhar and Varghese 1996. WF²Q+: Bennett and Zhang 1997, eq. 27 to 29; virtual
//!           time advances when a packet begins, by its whole length.

use crate::network::{CLASSES, Discipline, QueueSpec};
use crate::packet::{NIL, Packet};

/// Units of virtual time per octet, as a shift.
const FINE: u32 = 16;

#[derive(Debug)]
pub(super) struct Queues {
    order: Order,
    queues: Vec<Queue>,
    /// Octets that wait in all queues, not on the wire.
    pub(super) waiting: u64,
    /// The queue of what is on the wire.
    serving: usize,
    /// WFQ's virtual time.
    virtual_now: u64,
    /// DRR: the queue whose turn it is, and whether it has had its quantum.
    turn: usize,
    paid: bool,
    /// The queue of each class, where a controller binds classes; the class's own number otherwise.
    bound: Option<[Option<u8>; CLASSES as usize]>,
    /// The largest packet.
    mtu: u64,
    /// Octets of bound classes that found no queue of their own.
    pub(super) unbound: u64,
    /// The longest time, ns, for which a queue had packets and none of them left.
    starved: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Priority,
    Drr,
    Wfq,
}

/// One queue.
#[derive(Debug)]
struct Queue {
    head: u32,
    tail: u32,
    octets: u64,
    buffer: u64,
    knee: u64,
    /// DRR: octets of a turn, and what is left of them.
    quantum: u64,
    deficit: u64,
    /// WFQ: virtual time of an octet, and when the first that waits (or went last) begins and ends.
    pace: u64,
    start: u64,
    finish: u64,
    /// Since when its first packet is the first, ns.
    first_since: u64,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

impl Queues {
    /// `None` if the discipline knows one queue only. Packets are up to `mtu` octets.
    pub(super) fn new(discipline: &Discipline, mtu: u16) -> Option<Self> {
        let order = match discipline {
            Discipline::Fifo | Discipline::Red(_) => return None,
            Discipline::Priority(_) => Order::Priority,
            Discipline::Drr(_) => Order::Drr,
            Discipline::Wfq(_) => Order::Wfq,
        };
        let specs = discipline.queues();
        let queue = |spec: &QueueSpec| Queue {
            head: NIL,
            tail: NIL,
            octets: 0,
            buffer: spec.buffer.get(),
            knee: spec.mark_above.map_or(u64::MAX, |k| k.get()),
            quantum: 0,
            deficit: 0,
            pace: 0,
            start: 0,
            finish: 0,
            first_since: 0,
        };
        let mut queues = Self {
            order,
            queues: specs.iter().map(queue).collect(),
            waiting: 0,
            serving: 0,
            virtual_now: 0,
            turn: 0,
            paid: false,
            bound: None,
            mtu: mtu.into(),
            unbound: 0,
            starved: 0,
        };
        queues.weigh(specs.iter().map(|spec| spec.weight));
        Some(queues)
    }

    /// Gives all queues other weights.
    fn weigh(&mut self, weights: impl Iterator<Item = u32> + Clone) {
        let weights = weights.map(|weight| u64::from(weight.max(1)));
        let sum: u64 = weights.clone().sum();
        let least = weights.clone().min().unwrap_or(1);
        for (queue, weight) in self.queues.iter_mut().zip(weights) {
            queue.quantum = (self.mtu * weight).div_ceil(least);
            queue.pace = (sum << FINE) / weight;
        }
    }

    /// A controller binds classes to queues. A class without a queue uses the first.
    pub(super) fn bind(&mut self, weights: &[u32], bound: [Option<u8>; CLASSES as usize]) {
        debug_assert_eq!(weights.len(), self.queues.len(), "a weight for each queue");
        self.weigh(weights.iter().copied());
        self.bound = Some(bound);
    }

    /// The queue of a packet of `size` octets of a class.
    pub(super) fn of(&mut self, class: u8, size: u16) -> usize {
        let Some(bound) = &self.bound else {
            return usize::from(class).min(self.queues.len() - 1);
        };
        if let Some(queue) = bound[usize::from(class)] {
            return usize::from(queue).min(self.queues.len() - 1);
        }
        self.unbound += if class == 0 { 0 } else { u64::from(size) };
        0
    }

    /// Octets of a queue when `wire` octets of the packet on the wire have not left.
    pub(super) fn held(&self, queue: usize, wire: u64) -> u64 {
        self.queues[queue].octets + if self.serving == queue { wire } else { 0 }
    }

    /// Whether a packet fits that finds `held` octets in its queue; if so, whether it is marked if
    /// it may be.
    pub(super) fn admits(&self, queue: usize, held: u64, size: u16) -> Option<bool> {
        let queue = &self.queues[queue];
        (held + u64::from(size) <= queue.buffer).then_some(held > queue.knee)
    }

    /// A packet leaves at once: the port was idle.
    pub(super) fn pass(&mut self, queue: usize, size: u16) {
        debug_assert_eq!(self.waiting, 0, "no waiting packet is overtaken");
        self.serving = queue;
        if self.order == Order::Wfq {
            // A queue that was ahead before the idle time owes nothing.
            self.queues.iter_mut().for_each(|queue| queue.finish = 0);
            let queue = &mut self.queues[queue];
            queue.finish = u64::from(size) * queue.pace;
            self.virtual_now = u64::from(size) << FINE;
        }
    }

    /// A packet waits from `at` on, ns.
    pub(super) fn push(&mut self, at: u64, queue: usize, id: u32, cells: &mut [Packet]) {
        let size = cells[id as usize].size;
        cells[id as usize].next = NIL;
        let (now, queue) = (self.virtual_now, &mut self.queues[queue]);
        if queue.is_empty() {
            queue.head = id;
            queue.first_since = at;
            queue.begin(now, size);
        } else {
            cells[queue.tail as usize].next = id;
        }
        queue.tail = id;
        queue.octets += u64::from(size);
        self.waiting += u64::from(size);
    }

    /// The longest time, ns, for which a queue had packets and none of them left, up to `at`.
    pub(super) fn starved(&self, at: u64) -> u64 {
        let waits = self.queues.iter().filter(|queue| !queue.is_empty());
        let waits = waits.map(|queue| at.saturating_sub(queue.first_since));
        waits.fold(self.starved, u64::max)
    }

    /// The wire is free: the packet that goes at `at`, ns, if any waits.
    pub(super) fn pop(&mut self, at: u64, cells: &[Packet]) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        let chosen = match self.order {
            Order::Priority => self.queues.iter().position(|queue| !queue.is_empty())?,
            Order::Drr => self.next_turn(cells),
            Order::Wfq => self.first_to_finish()?,
        };
        let queue = &mut self.queues[chosen];
        let id = queue.head;
        let Packet { next, size, .. } = cells[id as usize];
        queue.head = next;
        self.starved = self.starved.max(at.saturating_sub(queue.first_since));
        queue.first_since = at;
        queue.octets -= u64::from(size);
        self.waiting -= u64::from(size);
        self.serving = chosen;
        match self.order {
            Order::Priority => {}
            Order::Drr => {
                queue.deficit -= u64::from(size);
                if queue.is_empty() {
                    self.pass_on(chosen);
                }
            }
            Order::Wfq => {
                self.virtual_now += u64::from(size) << FINE;
                if next != NIL {
                    queue.begin(0, cells[next as usize].size);
                }
            }
        }
        Some(id)
    }

    /// DRR: the queue whose first packet is covered by its deficit. Something waits.
    fn next_turn(&mut self, cells: &[Packet]) -> usize {
        loop {
            let turn = self.turn;
            let queue = &mut self.queues[turn];
            if !queue.is_empty() {
                if !std::mem::replace(&mut self.paid, true) {
                    queue.deficit += queue.quantum;
                }
                // A quantum is a full packet at least: no round without one that goes.
                if u64::from(cells[queue.head as usize].size) <= queue.deficit {
                    return turn;
                }
            }
            self.turn = (turn + 1) % self.queues.len();
            self.paid = false;
        }
    }

    /// DRR: a queue that is empty keeps nothing.
    fn pass_on(&mut self, queue: usize) {
        self.queues[queue].deficit = 0;
        self.turn = (queue + 1) % self.queues.len();
        self.paid = false;
    }

    /// WFQ: of those whose packet should have begun, the one that should end first.
    fn first_to_finish(&mut self) -> Option<usize> {
        let waits = || self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        let earliest = waits().map(|(_, queue)| queue.start).min()?;
        let now = self.virtual_now.max(earliest);
        let eligible = waits().filter(|(_, queue)| queue.start <= now);
        let chosen = eligible.min_by_key(|(_, queue)| queue.finish).map(|(number, _)| number);
        self.virtual_now = now;
        chosen
    }
}

impl Queue {
    /// WFQ: its first packet may begin at `from`, and not before the last one ended.
    fn begin(&mut self, from: u64, size: u16) {
        self.start = self.finish.max(from);
        self.finish = self.start + u64::from(size) * self.pace;
    }
}
