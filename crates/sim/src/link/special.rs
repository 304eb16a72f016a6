//! Functions of a port beyond first come, first served: one entry per port that has any.
//!
//! Problem   A port is one cache line, and nearly all ports need no more.
//! Approach  A port names its entry here by number. The cable comes first ([`Extra`]), then room in
//!           memory shared with other ports, then the discipline, and jitter at the far end last.
//! Promises  Each random process has a stream of its own, so one more draw here changes nothing
//!           elsewhere.
//! Source    Dynamic thresholds: Choudhury and Hahne 1998, eq. 1: a queue may grow while it is
//!           shorter than α·(memory − all queues).

use super::extra::Extra;
use super::queues::Queues;
use super::red::Red;
use super::{FINE, Link, Verdict};
use crate::network::{CLASSES, Discipline, Network, PoolSpec, Port};
use crate::packet::{CE, CLASS, ECT, Packet};
use crate::rng::Rng;
use weir_units::Span;

/// RED's streams of chance; those of losses are the links' numbers.
const STREAM: u64 = 1 << 42;

#[derive(Debug)]
pub(crate) struct Special {
    extra: Extra,
    red: Option<Red>,
    pub(super) queues: Option<Queues>,
    /// Octets of all queues together, if there are several.
    buffer: u64,
    pub(crate) pool: Option<u32>,
}

/// Memory that ports share.
#[derive(Debug)]
pub(crate) struct Pool {
    octets: u64,
    alpha: f64,
    /// Its ports, by their links.
    pub(crate) links: Vec<u32>,
}

/// Result of a packet at a special port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is on its way: `at` says when it arrives.
    Sent,
    /// The packet waits. If a time is named, in ns, the port is to be [served](Special::serve)
    /// then.
    Waits(Option<u64>),
    /// The packet is lost on the cable, which the entry has counted, or for lack of room, which the
    /// link has counted.
    Dropped,
}

impl Pool {
    /// All pools of a network, with their ports.
    pub(crate) fn all(network: &Network) -> Vec<Self> {
        let pool = |spec: &PoolSpec| Self {
            octets: spec.octets.get(),
            alpha: spec.alpha,
            links: Vec::new(),
        };
        let mut pools: Vec<_> = network.pools().iter().map(pool).collect();
        for (link, port) in network.ports() {
            if let Some(pool) = port.pool {
                pools[pool as usize].links.push(link);
            }
        }
        pools
    }

    /// Whether a queue of `held` octets may take `size` more when all ports together hold `used`.
    fn has_room(&self, used: u64, held: u64, size: u16) -> bool {
        let free = self.octets.saturating_sub(used);
        u64::from(size) <= free && (held as f64) < self.alpha * free as f64
    }
}

impl Special {
    /// The entry of link `number`; `None` if its port has no such function.
    pub(crate) fn new(
        network: &Network,
        number: u32,
        port: Option<&Port>,
        seed: u64,
    ) -> Option<Self> {
        let spec = &network.links()[number as usize];
        let late = network.lateness(number);
        let extra = Extra::new(spec.loss, late, seed, number);
        let mut special = Self { buffer: spec.buffer.get(), ..Self::sound(extra) };
        if let Some(port) = port {
            special.pool = port.pool;
            special.queues = Queues::new(&port.discipline, network.mtu());
            if let Discipline::Red(red) = &port.discipline {
                special.red = Some(Red::new(red, Rng::new(seed, STREAM + u64::from(number))));
            }
        }
        let plain = spec.loss == 0.0 && late == Span::ZERO;
        let fifo = special.red.is_none() && special.queues.is_none() && special.pool.is_none();
        (!plain || !fifo).then_some(special)
    }

    /// The entry of link `number`, whose port is ordinary until its cable is pulled.
    pub(crate) fn cable(seed: u64, number: u32) -> Self {
        Self::sound(Extra::new(0.0, Span::ZERO, seed, number))
    }

    /// First come, first served, and what this extra does.
    fn sound(extra: Extra) -> Self {
        Self { extra, red: None, queues: None, buffer: 0, pool: None }
    }

    /// Pulls the cable or plugs it in again. Packets that are in the queue still arrive.
    pub(crate) fn set_down(&mut self, down: bool) {
        self.extra.set_down(down);
    }

    /// A controller binds classes to queues, if there are several: see [`Queues::bind`].
    pub(crate) fn bind(&mut self, weights: &[u32], bound: [Option<u8>; CLASSES as usize]) {
        if let Some(queues) = &mut self.queues {
            queues.bind(weights, bound);
        }
    }

    /// Octets of bound classes that found no queue of their own here.
    pub(crate) fn unbound(&self) -> u64 {
        self.queues.as_ref().map_or(0, |queues| queues.unbound)
    }

    /// The longest time, ns, for which one of several queues had packets and none of them left.
    pub(crate) fn starved(&self, now: u64) -> u64 {
        self.queues.as_ref().map_or(0, |queues| queues.starved(now))
    }

    /// Packets lost on the cable.
    pub(crate) fn lost(&self) -> u64 {
        self.extra.lost
    }

    /// Octets in the port of `link`, what is on the wire included as far as it has not left.
    pub(crate) fn queued(&self, link: &Link, now: u64) -> u64 {
        link.queued(now) + self.queues.as_ref().map_or(0, |queues| queues.waiting)
    }

    /// Packet `id` comes to `link`'s port, which is this one; `pool` is the memory it shares, with
    /// the octets of all ports there. The packet is marked if it is to be.
    pub(crate) fn offer(
        &mut self,
        link: &mut Link,
        now: u64,
        (id, cells): (u32, &mut [Packet]),
        pool: Option<(&Pool, u64)>,
    ) -> Fate {
        let Packet { size, bits, .. } = cells[id as usize];
        let capable = bits & ECT != 0;
        if !self.extra.passes() {
            return Fate::Dropped;
        }
        let wire = link.queued(now);
        // RED sees every packet, also those that find no room.
        let struck = match &mut self.red {
            Some(red) => red.strikes(wire, link.idle(now)),
            None => false,
        };
        let queue = self.queues.as_mut().map_or(0, |queues| queues.of(class(bits), size));
        let held = self.queues.as_ref().map_or(wire, |queues| queues.held(queue, wire));
        if struck && !capable || pool.is_some_and(|(pool, used)| !pool.has_room(used, held, size)) {
            link.drops += 1;
            return Fate::Dropped;
        }
        let Some(queues) = &mut self.queues else {
            let Verdict::Sent { at, mark } = link.offer(now, size, capable) else {
                return Fate::Dropped;
            };
            link.marks += u32::from(struck & !mark);
            cells[id as usize].at = self.extra.arrives(at);
            cells[id as usize].bits |= if struck | mark { CE } else { 0 };
            return Fate::Sent;
        };
        let fits = wire + queues.waiting + u64::from(size) <= self.buffer;
        let Some(above) = queues.admits(queue, held, size).filter(|_| fits) else {
            link.drops += 1;
            return Fate::Dropped;
        };
        cells[id as usize].bits |= if above & capable { CE } else { 0 };
        link.marks += u32::from(above & capable);
        link.octets += u64::from(size);
        link.packets += 1;
        if queues.waiting > 0 || link.busy > now << FINE {
            let is_first = queues.waiting == 0;
            queues.push(now, queue, id, cells);
            return Fate::Waits(is_first.then(|| link.free_at()));
        }
        queues.pass(queue, size);
        cells[id as usize].at = self.extra.arrives(link.transmit(now << FINE, size));
        Fate::Sent
    }

    /// The wire is free and a packet waits. Returns the packet that goes, with `at` set, and the
    /// time of the next call, in ns, if more packets wait.
    pub(crate) fn serve(
        &mut self,
        link: &mut Link,
        now: u64,
        cells: &mut [Packet],
    ) -> Option<(u32, Option<u64>)> {
        let queues = self.queues.as_mut()?;
        let id = queues.pop(now, cells)?;
        let packet = &mut cells[id as usize];
        // The wire was free less than 1 ns ago: it loses nothing by counting in these.
        packet.at = self.extra.arrives(link.transmit(link.busy, packet.size).max(now));
        Some((id, (queues.waiting > 0).then(|| link.free_at())))
    }
}

/// The class of a packet, by its bits.
fn class(bits: u8) -> u8 {
    bits >> CLASS
}

#[cfg(test)]
mod tests;
