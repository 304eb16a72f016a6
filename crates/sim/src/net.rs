//! The network in motion: ports, packets under way, routes, and the next event.
//!
//! Problem   Per hop there is time for one packet, one port and the wheel: three cache lines.
//! Approach  A packet carries its place in one flat table of routes; a hop reads the next link
//!           there, asks that port for the instant of arrival, and schedules the packet itself as
//!           the event.
//! Promises  A packet is delivered, dropped or in flight: the three sum up to those launched.
//! Not here  What hosts do with packets: see `world`.

use crate::fan::{FANS, Fan};
use crate::host::Letters;
use crate::link::{Fate, Link, Pool, Special, Verdict};
use crate::network::{CLASSES, LinkSpec, Network};
use crate::packet::{CE, ECT, Kind, NIL, Packet, Slab};
use crate::sockets::Sockets;
use crate::tcp::Blocks;
use crate::wheel::Wheel;
use weir_units::Span;

/// The end of a route in the table.
pub(crate) const END: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) now: u64,
    pub(crate) slab: Slab,
    pub(crate) wheel: Wheel,
    pub(crate) links: Vec<Link>,
    /// All routes, each followed by [`END`]. Number 0 is the empty route, for wake-ups.
    pub(crate) routes: Vec<u32>,
    /// Routes that are several.
    fans: Vec<Fan>,
    pub(crate) blocks: Blocks,
    /// Datagrams between agents that are under way.
    pub(crate) letters: Letters,
    /// Guests that see the packets in their hosts' shapers, if there are any.
    pub(crate) sockets: Option<Box<Sockets>>,
    specials: Vec<Special>,
    pools: Vec<Pool>,
    seed: u64,
    pub(crate) launched: u64,
    pub(crate) dropped: u64,
    /// Wake-ups that are scheduled and not yet played.
    pub(crate) asleep: u32,
}

impl Net {
    pub(crate) fn new(network: &Network, seed: u64) -> Self {
        let mut links: Vec<_> = network.links().iter().map(Link::new).collect();
        let mut specials = Vec::new();
        let mut ports = network.ports().peekable();
        for number in 0..links.len() as u32 {
            let port = ports.next_if(|(link, _)| *link == number).map(|(_, port)| port);
            if let Some(special) = Special::new(network, number, port, seed) {
                specials.push(special);
                links[number as usize].special = specials.len() as u32;
            }
        }
        Self {
            now: 0,
            slab: Slab::default(),
            wheel: Wheel::new(reach(network.links())),
            links,
            routes: vec![END],
            fans: Vec::new(),
            blocks: Blocks::default(),
            letters: Letters::default(),
            sockets: None,
            specials,
            pools: Pool::all(network),
            seed,
            launched: 0,
            dropped: 0,
            asleep: 0,
        }
    }

    /// Pulls the cable of a link, or plugs it in again.
    pub(crate) fn set_down(&mut self, link: u32, down: bool) {
        let special = &mut self.links[link as usize].special;
        if *special == 0 {
            self.specials.push(Special::cable(self.seed, link));
            *special = self.specials.len() as u32;
        }
        self.specials[*special as usize - 1].set_down(down);
    }

    /// Binds classes to the queues of a link's port.
    pub(crate) fn bind(
        &mut self,
        link: u32,
        weights: &[u32],
        bound: [Option<u8>; CLASSES as usize],
    ) {
        let number = self.links[link as usize].special;
        if let Some(special) = self.specials.get_mut((number as usize).wrapping_sub(1)) {
            special.bind(weights, bound);
        }
    }

    /// Octets that carried the code point of a queue where there is none.
    pub(crate) fn unbound(&self) -> u64 {
        self.specials.iter().map(Special::unbound).sum()
    }

    /// The longest time for which a queue of a port with several had packets, and none of them left.
    pub(crate) fn starved(&self) -> Span {
        let all = self.specials.iter().map(|special| special.starved(self.now));
        Span::from_nanos(all.max().unwrap_or(0))
    }

    /// Adds a route; returns where it begins.
    pub(crate) fn add_route(&mut self, links: &[u32]) -> u32 {
        let begin = self.routes.len() as u32;
        self.routes.extend_from_slice(links);
        self.routes.push(END);
        begin
    }

    /// Adds routes of one length, which packets take in turn; returns where they begin. `first` is
    /// the number of the first one, or so many rounds more.
    pub(crate) fn add_ways(&mut self, ways: &[&[u32]], first: u64) -> u32 {
        if let [way] = ways {
            return self.add_route(way);
        }
        self.fans.push(Fan::new(&mut self.routes, ways, END, first));
        self.routes.push(FANS + self.fans.len() as u32 - 1);
        self.routes.len() as u32 - 1
    }

    /// A packet's first link. If it has several ways this is where it takes the next.
    #[inline]
    fn first_link(&mut self, hop: &mut u32) -> u32 {
        let link = self.routes[*hop as usize];
        if link < FANS {
            return link;
        }
        *hop = self.fans[(link - FANS) as usize].next();
        self.routes[*hop as usize]
    }

    /// Sends a packet from the host at which its route begins.
    #[inline]
    pub(crate) fn launch(&mut self, mut packet: Packet) {
        self.launched += 1;
        let link = self.first_link(&mut packet.hop);
        let id = self.slab.put(packet);
        self.forward(id, link);
    }

    /// A packet has left its guest and is held. [`Net::release`] or [`Net::drop`] follows.
    pub(crate) fn hold(&mut self, packet: Packet) -> u32 {
        self.launched += 1;
        self.slab.put(packet)
    }

    /// Sends a packet that was held. Only now it takes one of several ways, as switches choose it:
    /// a shaper that drops every second packet would otherwise empty every second way.
    pub(crate) fn release(&mut self, id: u32) {
        if self.sockets.is_some() {
            self.leave(id);
        }
        let mut hop = self.slab.cells[id as usize].hop;
        let link = self.first_link(&mut hop);
        self.slab.cells[id as usize].hop = hop;
        self.forward(id, link);
    }

    /// A packet of a TCP flow that is held waits in its host's shaper.
    pub(crate) fn wait(&mut self, id: u32) {
        let packet = &self.slab.cells[id as usize];
        if let Some(sockets) = &mut self.sockets
            && packet.kind == Kind::Data
        {
            sockets.wait(id, packet.flow);
        }
    }

    /// A packet is gone, and its flow may have waited for that.
    #[cold]
    fn leave(&mut self, id: u32) {
        if let Some(flow) = self.sockets.as_mut().and_then(|sockets| sockets.leave(id)) {
            self.wake(self.now, Kind::Resume, flow);
        }
    }

    /// Prefetches the memory of the event after this one.
    #[inline]
    pub(crate) fn look_ahead(&self) {
        if let Some(id) = self.wheel.ahead() {
            let link = self.routes[self.slab.cells[id as usize].hop as usize];
            if let Some(link) = self.links.get(link as usize) {
                std::hint::black_box(link.packets);
            }
        }
    }

    /// Schedules a wake-up, now or later.
    pub(crate) fn wake(&mut self, at: u64, kind: Kind, flow: u32) {
        assert!(at >= self.now, "time does not go back");
        let id = self.slab.put(Packet { at, ..Packet::wake(kind, flow) });
        self.asleep += 1;
        self.wheel.schedule(&mut self.slab.cells, id);
    }

    /// A packet stands before `link`, the next of its route.
    #[inline]
    pub(crate) fn forward(&mut self, id: u32, link: u32) {
        let port = &mut self.links[link as usize];
        let packet = &mut self.slab.cells[id as usize];
        packet.hop += 1;
        if port.special != 0 {
            return self.forward_special(id, link);
        }
        match port.offer(self.now, packet.size, packet.bits & ECT != 0) {
            Verdict::Sent { at, mark } => {
                packet.at = at;
                packet.bits |= if mark { CE } else { 0 };
                self.wheel.schedule(&mut self.slab.cells, id);
            }
            Verdict::Dropped => self.drop(id),
        }
    }

    /// The same for a special port.
    #[inline(never)]
    fn forward_special(&mut self, id: u32, link: u32) {
        let number = self.links[link as usize].special as usize - 1;
        let pool = self.specials[number].pool.map(|pool| &self.pools[pool as usize]);
        let pool = pool.map(|pool| (pool, pool.links.iter().map(|link| self.queued(*link)).sum()));
        let (port, special) = (&mut self.links[link as usize], &mut self.specials[number]);
        let packet = (id, &mut self.slab.cells[..]);
        match special.offer(port, self.now, packet, pool) {
            Fate::Sent => self.wheel.schedule(&mut self.slab.cells, id),
            Fate::Waits(None) => {}
            Fate::Waits(Some(at)) => self.wake(at, Kind::Port, link),
            Fate::Dropped => self.drop(id),
        }
    }

    /// The wire of a port with several queues is free.
    pub(crate) fn serve(&mut self, link: u32) {
        let port = &mut self.links[link as usize];
        let special = &mut self.specials[port.special as usize - 1];
        if let Some((id, again)) = special.serve(port, self.now, &mut self.slab.cells) {
            self.wheel.schedule(&mut self.slab.cells, id);
            if let Some(at) = again {
                self.wake(at, Kind::Port, link);
            }
        }
    }

    /// Octets in the port of a link, including the octets of the packet on the wire that have not
    /// left.
    pub(crate) fn queued(&self, link: u32) -> u64 {
        let link = &self.links[link as usize];
        match self.special(link) {
            Some(special) => special.queued(link, self.now),
            None => link.queued(self.now),
        }
    }

    /// Packets lost at random on a link, or because its cable was out.
    pub(crate) fn lost(&self, link: &Link) -> u64 {
        self.special(link).map_or(0, Special::lost)
    }

    fn special(&self, link: &Link) -> Option<&Special> {
        link.special.checked_sub(1).map(|number| &self.specials[number as usize])
    }

    /// A packet is lost.
    #[cold]
    pub(crate) fn drop(&mut self, id: u32) {
        self.dropped += 1;
        if self.sockets.is_some() {
            self.leave(id);
        }
        let packet = &self.slab.cells[id as usize];
        if packet.kind == Kind::Letter {
            self.letters.lose(packet.seq);
        } else if packet.sack != NIL {
            self.blocks.take(packet.sack);
        }
        self.slab.free(id);
    }
}

/// How far ahead most packets are scheduled, in ns: propagation, and a queue around its mark or, if
/// no port marks, a full one.
fn reach(links: &[LinkSpec]) -> u64 {
    let any_marks = links.iter().any(|link| link.mark_above.is_some());
    let ahead = links.iter().filter(|link| link.mark_above.is_some() || !any_marks).map(|link| {
        let queue =
            link.mark_above.map_or(link.buffer.get(), |k| (k.get() * 3 / 2).min(link.buffer.get()));
        (link.delay + link.rate.time_for(weir_units::Bytes::new(queue))).as_nanos()
    });
    ahead.max().unwrap_or(1)
}
