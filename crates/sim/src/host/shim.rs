//! All hosts' shims: from a guest's packet to the uplink, from the downlink to a guest, and the
//! turns of the agents.
//!
//! Problem   Everything that a real host does around its agent must happen here too, in the same
//!           order, or the algorithms meet another world than the one they are meant for.
//! Approach  One machine for all hosts, beside the network's loop: the loop calls it for each
//!           packet of a guest and for its wake-ups. Pairs are a dense table, since all traffic is
//!           known; the agents are not told of it. A host has at most one wake-up in force for its
//!           agent and one for its shaper; others are void when they come.
//! Promises  Every agent has a clock and a phase of its own, drawn from the seed. A pair that an
//!           agent has forgotten begins anew, with its numbers.
//! Not here  TCP and UDP: see `world`. Agents that die and return: see `breaks`.
//! Source    `weir-agent`'s driver for the order of calls; ElasticSwitch §6.

mod breaks;
mod look;

use super::agent::{Changes, LAST};
use super::backlog;
use super::bound::Tenants;
use super::letters::{Letter, Words, Written};
use super::pairs::{Guard, Pair, Sending};
use super::paths::Paths;
use super::peers::Verdict;
use super::queue;
use super::station::{Host, Life};
use super::translator::Paced;
use super::weather;
use crate::net::Net;
use crate::packet::{CE, CLASS, ECT, Kind, Packet};
use crate::tcp::NEVER;
use weir_core::backlog::{Arrival, UNSEEN};
use weir_core::host::{Direction, Input};
use weir_core::mechanism::Law;
use weir_core::path::MAX_PATHS;
use weir_core::trinity::Colour;
use weir_model::record::ControlRecord;
use weir_units::{Bytes, HostId, PairId, PathId, Rate, SortedMap, SortedSet, Span, Time, VmId};

/// An agent hears of a new pair so long after its first packet: a ring buffer and a wake-up.
const REACTION: u64 = 50_000;

/// All hosts' shims.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(super) hosts: Vec<Host>,
    pub(super) pairs: Vec<Pair>,
    /// Where each pair of the guard begins in `pairs`.
    first: Vec<u32>,
    /// VMs whose port is not there.
    pub(super) away: SortedSet<VmId>,
    numbers: SortedMap<PairId, u32>,
    /// If hosts have several to each other.
    pub(super) paths: Option<Box<Paths>>,
    /// Pairs of TCP flows (data, ACKs) and of UDP flows, by the packets' `flow`.
    pub(crate) tcp: Vec<(u32, u32)>,
    pub(crate) udp: Vec<u32>,
    /// The sequence number of each packet, by its place in the slab.
    stamps: Vec<u16>,
    /// Likewise its departure time, µs, if packets carry any.
    departures: Vec<Option<u16>>,
    /// At most one in so many ns does, of a pair of hosts.
    timed_every: Option<u64>,
    ways: SortedMap<(HostId, HostId), u32>,
    /// Marks are a signal: all packets of pairs are ECN-capable on the way.
    marks: bool,
    /// A pair's packets beyond its floor have the last class; so many octets may be sent at once.
    colours: Option<Bytes>,
    /// Packets of pairs that came, and those that came after a later one of theirs.
    came: u64,
    came_late: u64,
    /// How long a gap may stay open, ns.
    window: u64,
    /// What agents have written to each other.
    written: Written,
    /// What tenants use, where they are bound to queues.
    pub(super) tenants: Option<Box<Tenants>>,
}

impl Shim {
    /// `net` gets the routes of letters. Which flow has which number, the caller says in `tcp` and
    /// `udp`.
    pub(crate) fn new(guard: &mut Guard, net: &mut Net, seed: u64) -> Self {
        let hosts = (0..).zip(&mut guard.hosts);
        let mut hosts: Vec<Host> =
            hosts.map(|(number, host)| Host::new(number, host, seed)).collect();
        let law = guard.hosts.first().map(|host| &host.policy.law);
        let (mut pairs, mut first) = (Vec::new(), Vec::new());
        let several = guard.paths.values().next().map_or(1, Vec::len) as u32;
        for pair in &guard.pairs {
            let vm = hosts[pair.from as usize].place(pair.id.src);
            let vm = vm.expect("a pair's source is on its host");
            first.push(pairs.len() as u32);
            let count = if pair.from == pair.to { 1 } else { several };
            for path in 0..count {
                let number = pairs.len() as u32;
                hosts[pair.from as usize].sends.push(number);
                hosts[pair.to as usize].receives.push(number);
                pairs.push(Pair::new(pair, vm, path, count));
            }
        }
        let paths = (several > 1).then(|| {
            let routes = guard.paths.iter().map(|(ends, paths)| {
                (*ends, paths.iter().map(|links| net.add_route(links)).collect())
            });
            Box::new(Paths::new(routes.collect()))
        });
        Self {
            numbers: guard.pairs.iter().map(|pair| pair.id).zip(first.iter().copied()).collect(),
            hosts,
            pairs,
            first,
            paths,
            away: SortedSet::new(),
            tcp: Vec::new(),
            udp: Vec::new(),
            stamps: Vec::new(),
            departures: Vec::new(),
            timed_every: law.and_then(Law::timed_every).map(Span::as_nanos),
            ways: guard.ways.iter().map(|(ends, way)| (*ends, net.add_route(way))).collect(),
            marks: law.is_some_and(Law::needs_marks),
            colours: law.and_then(Law::colours),
            came: 0,
            came_late: 0,
            window: law.map_or(0, |law| law.reorder_window().as_nanos()),
            written: Written::default(),
            tenants: None,
        }
    }

    fn pair_of(&self, packet: &Packet) -> u32 {
        let number = match packet.kind {
            Kind::Data => self.tcp[packet.flow as usize].0,
            Kind::Ack => self.tcp[packet.flow as usize].1,
            _ => self.udp[packet.flow as usize],
        };
        self.first[number as usize]
    }

    /// The pair of a TCP flow's data and its rates, if it has any that an agent sees to.
    pub(crate) fn paced(&self, flow: u32) -> Option<Paced> {
        let number = self.first[self.tcp[flow as usize].0 as usize];
        let pair = &self.pairs[number as usize];
        let is_set =
            pair.sending.leaf.is_some() && self.hosts[pair.from as usize].life == Life::Runs;
        let all = &self.pairs[number as usize..(number + pair.paths) as usize];
        is_set
            .then(|| Paced { pair: number, floor: all.iter().map(|pair| pair.sending.floor).sum() })
    }

    /// The pair of a packet that is held or under way; with several paths, that on which it is.
    fn pair_at(&self, id: u32, packet: &Packet) -> u32 {
        match &self.paths {
            None => self.pair_of(packet),
            Some(paths) => paths.strand(id),
        }
    }

    /// Gives a packet a path of its pair, if that has several. Returns the pair on that path.
    fn choose(&mut self, packet: &mut Packet) -> u32 {
        let number = self.pair_of(packet);
        let Some(paths) = &mut self.paths else { return number };
        let strands = number as usize..(number + self.pairs[number as usize].paths) as usize;
        if strands.len() == 1 {
            return number;
        }
        let mut parts = [Rate::ZERO; MAX_PATHS];
        let first = &self.pairs[number as usize];
        // Where no program is on the port, nothing is divided: all paths are alike.
        if !self.hosts[first.from as usize].unguarded[first.vm as usize] {
            for (part, strand) in parts.iter_mut().zip(&self.pairs[strands.clone()]) {
                *part = strand.sending.floor;
            }
        }
        let first = &mut self.pairs[number as usize];
        let ends = (HostId(first.from), HostId(first.to));
        let PathId(path) =
            paths.choose(packet, first.id, &parts[..strands.len()], &mut first.flows);
        packet.hop = paths.routes[&ends][path as usize];
        number + path
    }

    // -- packets ------------------------------------------------------------------------------

    /// A guest sends a packet.
    pub(crate) fn send(&mut self, net: &mut Net, mut packet: Packet) {
        let number = self.choose(&mut packet);
        let pair = &mut self.pairs[number as usize];
        let from = pair.from;
        let id = net.hold(packet);
        if let Some(paths) = &mut self.paths {
            paths.mark(id, number);
        }
        if self.hosts[from as usize].unguarded[pair.vm as usize] {
            self.stamp(net, id);
            return net.release(id);
        }
        pair.sending.octets += u64::from(packet.size);
        if packet.kind == Kind::Ack {
            pair.sending.acks += u64::from(packet.size);
        }
        if pair.known && !pair.sending.seen {
            pair.sending.seen = true;
            // A dead agent finds out when it lives again, from its counters.
            let host = &mut self.hosts[from as usize];
            host.news.push((pair.id, Direction::Send));
            if let Some(level) = host.agent.at_first() {
                (pair.sending.floor, pair.sending.ceiling) = (level.floor, level.ceiling);
                host.shape(net.now, pair);
            }
            self.wake_agent(net, from, net.now + REACTION);
        }
        let pair = &mut self.pairs[number as usize];
        let host = &mut self.hosts[from as usize];
        let is_in = host.queue_of(net.now, pair, packet.size).is_some_and(|leaf| {
            let arrival = Arrival {
                now: net.now,
                octets: packet.size.into(),
                hash: backlog::hash(&packet),
                is_ack: pair.sending.leaf == Some(leaf) && queue::is_ack(&packet),
                left: if pair.from == pair.to { UNSEEN } else { host.htb.left(leaf) },
            };
            host.htb.push(leaf, id, &arrival)
        });
        if !is_in {
            return net.drop(id);
        }
        net.wait(id);
        self.serve(net, from);
    }

    /// Lets go what may go from a host's shaper.
    pub(crate) fn serve(&mut self, net: &mut Net, host: u32) {
        while let Some(id) = self.hosts[host as usize].htb.pop(net.now) {
            self.stamp(net, id);
            net.release(id);
        }
        let host_state = &mut self.hosts[host as usize];
        if let Some(at) = host_state.htb.next_at() {
            let at = at.max(net.now + 1);
            if at < host_state.serves_at {
                host_state.serves_at = at;
                net.wake(at, Kind::Shaper, host);
            }
        }
    }

    fn stamp(&mut self, net: &mut Net, id: u32) {
        let packet = &mut net.slab.cells[id as usize];
        let number = self.pair_at(id, packet);
        let Pair { id: pair, from, to, vm, sending, .. } = &mut self.pairs[number as usize];
        if self.stamps.len() <= id as usize {
            self.stamps.resize(id as usize + 1, 0);
        }
        self.stamps[id as usize] = sending.sequence;
        sending.sequence = sending.sequence.wrapping_add(1);
        sending.numbered += u64::from(packet.size);
        let mut class = self.hosts[*from as usize].classes[*vm as usize];
        if let Some(burst) = self.colours {
            let (now, size) = (Time::from_nanos(net.now), Bytes::new(packet.size.into()));
            if sending.colours.of(now, size, sending.floor, burst) == Colour::Borrowed {
                class = LAST;
            }
        }
        packet.bits |= class << CLASS;
        if self.marks {
            packet.bits |= ECT;
        }
        if let Some(tenants) = self.tenants.as_mut().filter(|_| from != to) {
            tenants.count(*from, pair.src, false, packet.size);
        }
        if let Some(every) = self.timed_every.filter(|_| from != to) {
            if self.departures.len() <= id as usize {
                self.departures.resize(id as usize + 1, None);
            }
            self.departures[id as usize] =
                self.hosts[*from as usize].times.leave(net.now, *to, every);
        }
    }

    /// A packet for a guest arrives; the guest sees what is left in `packet`. Returns whether it need not see the mark.
    pub(crate) fn arrive(&mut self, net: &mut Net, id: u32, packet: &mut Packet) -> bool {
        let number = self.pair_at(id, packet);
        let pair = &mut self.pairs[number as usize];
        let marked = packet.bits & CE != 0;
        if self.marks {
            packet.bits &= !CE;
        }
        if let Some(tenants) = self.tenants.as_mut().filter(|_| pair.from != pair.to) {
            tenants.count(pair.to, pair.id.dst, true, packet.size);
        }
        if !pair.met {
            return false;
        }
        let stamp = self.stamps[id as usize];
        let is_late = pair.meter.arrive(net.now, stamp, packet.size, marked, self.window);
        self.came += 1;
        self.came_late += u64::from(is_late);
        if let Some(sent) = self.departures.get(id as usize).copied().flatten()
            && pair.from != pair.to
        {
            self.hosts[pair.to as usize].times.come(net.now, HostId(pair.from), sent);
        }
        if !pair.receives {
            pair.receives = true;
            let (to, news) = (pair.to, (pair.id, Direction::Receive));
            self.hosts[to as usize].news.push(news);
            self.wake_agent(net, to, net.now + REACTION);
        }
        let pair = &mut self.pairs[number as usize];
        marked && pair.spared.takes_off(net.now, pair.meter.octets, pair.offer)
    }

    // -- agents -------------------------------------------------------------------------------

    fn wake_agent(&mut self, net: &mut Net, host: u32, at: u64) {
        let state = &mut self.hosts[host as usize];
        if state.life == Life::Dead {
            return;
        }
        if at < state.wakes_at {
            state.wakes_at = at;
            net.wake(at, Kind::Agent, host);
        }
    }

    /// A wake-up of an agent, a guardian or a shaper, or for a letter that is late.
    pub(crate) fn on_wake(&mut self, net: &mut Net, wake: &Packet) {
        if wake.kind == Kind::Mail {
            return self.read(net, wake.flow);
        }
        if wake.kind == Kind::Told {
            return self.told(net, wake.flow);
        }
        let host = &mut self.hosts[wake.flow as usize];
        if wake.kind == Kind::Guardian {
            if host.reclaims_at == wake.at {
                host.reclaims_at = NEVER;
                self.reclaim(net, wake.flow);
            }
        } else if wake.kind == Kind::Shaper {
            if host.serves_at == wake.at {
                host.serves_at = NEVER;
                self.serve(net, wake.flow);
            }
        } else if host.wakes_at == wake.at {
            host.wakes_at = NEVER;
            self.turn(net, wake.flow);
        }
    }

    /// A letter arrives at its host.
    pub(crate) fn receive(&mut self, net: &mut Net, id: u32) {
        let to = net.letters.to(id).0;
        match self.hosts[to as usize].weather.late(net.now) {
            None => drop(net.letters.take(id)),
            Some(0) => self.read(net, id),
            Some(late) => net.wake(net.now + late, Kind::Mail, id),
        }
    }

    fn read(&mut self, net: &mut Net, id: u32) {
        let letter = net.letters.take(id);
        let host = &mut self.hosts[letter.to.0 as usize];
        if host.life == Life::Dead {
            return;
        }
        let now = host.clock(net.now);
        host.heard.hear(letter.from, letter.number);
        let verdict = match &letter.words {
            // Its key is that of both lives.
            Words::Single(_) => Verdict::Believe,
            Words::Records(_) => host.peers.judge(&letter),
        };
        match verdict {
            Verdict::Refuse => return,
            Verdict::Greet => host.agent.doubt(now, letter.from),
            Verdict::Confirm => {
                host.agent.handle(now, Input::PeerRestarted(letter.from));
                host.agent.hear(now, letter.from, &letter.words);
            }
            Verdict::Believe => host.agent.hear(now, letter.from, &letter.words),
        }
        self.carry_out(net, letter.to.0);
    }

    /// A letter without words: its reader learns of this life, and that it has heard of the reader's.
    fn greet(&mut self, net: &mut Net, number: u32, to: HostId) {
        let from = HostId(number);
        let Some(&hop) = self.ways.get(&(from, to)) else { return };
        let host = &mut self.hosts[number as usize];
        let echo = host.peers.echo_of_greeting(to);
        let words = Words::Records(Vec::new());
        let letter = Letter { from, to, life: host.lives, echo, number: host.post(to), words };
        self.written.add(&letter);
        mail(net, hop, letter);
    }

    /// An agent looks at what is new and, if it is time, at its counters.
    fn turn(&mut self, net: &mut Net, number: u32) {
        let host = &mut self.hosts[number as usize];
        let now = host.clock(net.now);
        for (pair, direction) in std::mem::take(&mut host.news) {
            host.agent.handle(now, Input::Seen(pair, direction));
        }
        if host.agent.step_at().is_some_and(|at| at <= now) {
            host.count(&mut self.pairs, net.now, self.window);
            host.agent.handle(now, Input::Tick);
        }
        self.carry_out(net, number);
    }

    /// Follows the agent's levels and sends what it has to say.
    pub(super) fn carry_out(&mut self, net: &mut Net, number: u32) {
        let host = &mut self.hosts[number as usize];
        let now = host.clock(net.now);
        let changes = host.agent.changes(now);
        let Changes { forgotten, settings, classes, offers, rooms, brakes } = changes;
        for peer in host.agent.greetings() {
            self.greet(net, number, peer);
        }
        let host = &mut self.hosts[number as usize];
        let over = host.levels.is_over(host.floors);
        for (id, direction) in forgotten {
            let Some(&first) = self.numbers.get(&id) else { continue };
            let count = self.pairs[first as usize].paths;
            for pair in &mut self.pairs[first as usize..(first + count) as usize] {
                match direction {
                    Direction::Send => close(net, host, pair),
                    Direction::Receive => pair.forget(),
                }
            }
        }
        for (vm, class) in classes {
            host.tag(vm, class);
        }
        for (vm, brake) in brakes {
            host.brake(vm, brake);
        }
        for (id, offer) in offers {
            // A pair with several paths has no clock for all of them.
            let first = self.numbers.get(&id).map(|first| &mut self.pairs[*first as usize]);
            if let Some(pair) = first.filter(|pair| !pair.has_several()) {
                pair.offer = offer.unwrap_or_default();
            }
        }
        let mut touched: Vec<u32> = Vec::new();
        for (id, room) in rooms {
            let first =
                self.numbers.get(&id).map(|first| (*first, &mut self.pairs[*first as usize]));
            if let Some((number, pair)) = first.filter(|(_, pair)| !pair.has_several()) {
                pair.sending.room = room;
                touched.extend(pair.sending.leaf.map(|_| number));
            }
        }
        for (id, settings) in settings {
            let Some(&first) = self.numbers.get(&id) else { continue };
            if settings.len() != self.pairs[first as usize].paths as usize {
                continue;
            }
            for (pair, setting) in (first..).zip(settings) {
                touched.push(pair);
                let sending = &mut self.pairs[pair as usize].sending;
                host.floors = host.floors.saturating_sub(sending.floor) + setting.floor;
                (sending.floor, sending.ceiling) = (setting.floor, setting.ceiling);
            }
        }
        if over || host.levels.is_over(host.floors) {
            // The parts of an overbooked uplink may have changed for all pairs.
            touched.extend(
                host.sends.iter().filter(|p| self.pairs[**p as usize].sending.leaf.is_some()),
            );
        }
        let is_idle = touched.is_empty();
        for pair in touched {
            host.shape(net.now, &mut self.pairs[pair as usize]);
        }
        self.post(net, number);
        if !is_idle {
            self.serve(net, number);
        }
        let host = &self.hosts[number as usize];
        if let Some(at) = host.agent.deadline() {
            let at = at.as_nanos().saturating_sub(host.origin).max(net.now + 1);
            self.wake_agent(net, number, at);
        }
    }

    /// Sends what the agent has to say.
    fn post(&mut self, net: &mut Net, number: u32) {
        let from = HostId(number);
        for (to, words) in self.hosts[number as usize].agent.say() {
            let Some(&hop) = self.ways.get(&(from, to)) else { continue };
            let host = &mut self.hosts[number as usize];
            let echo = host.peers.echo(to);
            let letter = Letter { from, to, life: host.lives, echo, number: host.post(to), words };
            if matches!(letter.words, Words::Single(_)) || host.policy.law.is_paced() {
                // There are so many that the uplink has to account for them; and where delays are measured, a
                // queue at the host's own port would be taken for one in the network.
                host.htb.charge(net.now, letter.size());
            }
            self.written.add(&letter);
            mail(net, hop, letter);
        }
    }

    // -- what can be seen in the end ------------------------------------------------------------

    /// Segments that the agents have seen lost, of the pairs that they know at this moment; `None`
    /// if they do not look for them.
    pub(crate) fn losses(&mut self, now: u64) -> Option<u64> {
        let lost = |host: &mut Host| match host.life {
            Life::Dead => Some(0),
            Life::Runs => host.agent.losses(host.clock(now)),
        };
        self.hosts.iter_mut().map(lost).sum()
    }

    /// Pairs that each agent knows at this moment.
    pub(crate) fn known(&mut self, now: u64) -> Vec<u64> {
        let known = |host: &mut Host| match host.life {
            Life::Dead => 0,
            Life::Runs => host.agent.listed(host.clock(now)),
        };
        self.hosts.iter_mut().map(known).collect()
    }

    /// Pairs whose receiving ends living agents know.
    pub(crate) fn receiving(&self) -> u64 {
        let living = self.hosts.iter().filter(|host| host.life == Life::Runs);
        living.map(|host| host.agent.known().1 as u64).sum()
    }

    /// What agents have written so far.
    pub(crate) fn written(&self) -> Written {
        self.written
    }

    /// What became of letters so far.
    pub(crate) fn control(&self) -> ControlRecord {
        weather::record(self.hosts.iter().map(|host| (&host.heard, &host.weather)))
    }

    /// Packets of pairs that came, and those that came after a later one of their pair.
    pub(crate) fn came(&self) -> (u64, u64) {
        (self.came, self.came_late)
    }

    /// Packets that found no room in a shaper.
    pub(crate) fn shaper_drops(&self) -> u64 {
        self.hosts.iter().map(|host| host.htb.drops).sum()
    }
}

/// A pair has no queue any more, and what it sends begins anew.
pub(super) fn close(net: &mut Net, host: &mut Host, pair: &mut Pair) {
    host.floors = host.floors.saturating_sub(pair.sending.floor);
    if let Some(leaf) = pair.sending.leaf {
        host.htb.remove(leaf).for_each(|id| net.drop(id));
    }
    pair.sending = Sending::default();
}

/// Sends a datagram of an agent.
fn mail(net: &mut Net, hop: u32, letter: Letter) {
    let (at, size) = (net.now, letter.size());
    let seq = net.letters.put(letter);
    let packet = Packet::wake(Kind::Letter, 0);
    net.launch(Packet { at, hop, seq, size, ..packet });
}
