//! Connections that come and go: see [`crate::exchange`] for what begins when.

use super::{SYN, Sim};
use crate::exchange::{Entry, Exchanges, Line, Message, State};
use crate::packet::Kind;
use crate::tcp::{Receiver, Sender};

/// There, and back.
const ASK: u32 = 0;
const ANSWER: u32 = 1;

impl Sim {
    /// Takes up what comes and goes. All long-lived flows are known by now.
    pub(super) fn exchange(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        self.dynamic = self.senders.len() as u32;
        self.exchanges = Exchanges::new(entries);
        for number in 0..self.exchanges.entries.len() as u32 {
            let entry = &mut self.exchanges.entries[number as usize];
            let (at, stop) = (entry.when(), entry.stop);
            if entry.client.is_some() && at < stop {
                self.net.wake(stop, Kind::Agenda, number);
            }
            self.net.wake(at, Kind::Agenda, number);
        }
    }

    /// Flow there, or back, of a line.
    fn flow_of(&self, line: u32, way: u32) -> u32 {
        self.dynamic + 2 * line + way
    }

    /// Line and way of a flow.
    fn line_of(&self, flow: u32) -> (u32, u32) {
        ((flow - self.dynamic) / 2, (flow - self.dynamic) % 2)
    }

    /// Whether a flow is one of a connection that is no more.
    #[cold]
    pub(super) fn is_closed(&self, flow: u32) -> bool {
        let (line, _) = self.line_of(flow);
        self.exchanges.lines[line as usize].state == State::Closed
    }

    /// Something of an entry begins, or all of it ends.
    pub(super) fn keep_agenda(&mut self, number: u32) {
        let now = self.net.now;
        let entry = &mut self.exchanges.entries[number as usize];
        if now >= entry.stop {
            entry.end();
            for line in 0..self.exchanges.lines.len() as u32 {
                let Line { entry, state, .. } = self.exchanges.lines[line as usize];
                if entry == number && state != State::Closed {
                    self.close(line);
                }
            }
            return;
        }
        while let Some((intended, size)) = self.exchanges.entries[number as usize].next(now) {
            self.ask(number, intended, size);
        }
        let entry = &mut self.exchanges.entries[number as usize];
        let at = entry.when();
        // Each flow of a client brings a wake-up of its own, and the end has had one from the start.
        if entry.client.is_none() {
            self.net.wake(at.max(now + 1), Kind::Agenda, number);
        }
    }

    /// Something is to be sent: now if there is a connection or room for one, else later.
    fn ask(&mut self, number: u32, intended: u64, size: u64) {
        let entry = &mut self.exchanges.entries[number as usize];
        entry.due(intended);
        if let Some(line) = entry.idle.pop() {
            self.begin_on(line, intended, size);
        } else if entry.open < entry.most {
            self.connect(number, intended, size);
        } else {
            entry.wait(intended, size);
        }
    }

    fn connect(&mut self, number: u32, intended: u64, size: u64) {
        let now = self.net.now;
        let entry = &mut self.exchanges.entries[number as usize];
        entry.open += 1;
        let (routes, pairs, ends, cc) = (entry.route(), entry.pairs, entry.ends, entry.algorithm);
        let (guests, sprayed) = (entry.guests, entry.sprayed);
        let line = match entry.reuse(now) {
            Some(line) => line,
            None => {
                let line = self.exchanges.lines.len() as u32;
                let state = State::Closed;
                self.exchanges.lines.push(Line { entry: number, state, intended, used_at: now });
                let turned = |(there, back): (u32, u32)| (back, there);
                let there = (pairs, ends, guests.vms, guests.own.0);
                let back = (turned(pairs), turned(ends), turned(guests.vms), guests.own.1);
                for (pairs, ends, vms, owns) in [there, back] {
                    self.tails.push(SYN);
                    if let Some(sockets) = &mut self.net.sockets {
                        sockets.add(owns);
                    }
                    self.edge.add(true, pairs, vms);
                    if let Some(pauses) = &mut self.pauses {
                        pauses.ends.add(true, ends);
                    }
                }
                line
            }
        };
        let fresh = [(0, 1, routes.0, routes.1), (1, 0, routes.1, routes.0)];
        for (way, segments, there, back) in fresh {
            let flow = self.flow_of(line, way) as usize;
            let mut sender = Sender::new(&self.tcp, cc, segments, self.window, there);
            let mut receiver = Receiver::new(&self.tcp, cc, u32::MAX, self.window, back);
            let (client, server) = guests.booted;
            sender.booted([client, server][way as usize]);
            receiver.booted([server, client][way as usize]);
            if [guests.old.0, guests.old.1][way as usize] {
                sender.forget_rack();
            }
            if [sprayed.0, sprayed.1][way as usize] {
                sender.sprayed();
            }
            if flow < self.senders.len() {
                (self.senders[flow], self.receivers[flow]) = (sender, receiver);
            } else {
                self.senders.push(sender);
                self.receivers.push(receiver);
            }
        }
        let state = State::Opening(size);
        self.exchanges.lines[line as usize] = Line { entry: number, state, intended, used_at: now };
        let flow = self.flow_of(line, ASK);
        self.tails[flow as usize] = SYN;
        self.pump(flow);
    }

    /// The client of a connection has heard from the server: it is open.
    pub(super) fn opened(&mut self, flow: u32) {
        let (line, way) = self.line_of(flow);
        let State::Opening(size) = self.exchanges.lines[line as usize].state else { return };
        if way != ASK || !self.senders[flow as usize].is_idle() {
            return;
        }
        // Both ends know the time of a round trip from the handshake.
        let back = self.flow_of(line, ANSWER) as usize;
        let rtt = self.senders[flow as usize].rtt();
        self.senders[back].knows(rtt);
        self.say(line, ASK, size);
    }

    /// An idle connection gets something to do.
    fn begin_on(&mut self, line: u32, intended: u64, size: u64) {
        self.exchanges.lines[line as usize].intended = intended;
        self.say(line, ASK, size);
    }

    /// A message is sent, one way.
    fn say(&mut self, line: u32, way: u32, octets: u64) {
        let flow = self.flow_of(line, way);
        let segment = u64::from(self.mtu - self.headers.0);
        let now = self.net.now;
        let idle = now - self.exchanges.lines[line as usize].used_at;
        let sender = &mut self.senders[flow as usize];
        sender.rested(idle, self.tcp.initial_window);
        let from = sender.end;
        let to = from + octets.div_ceil(segment) as u32;
        sender.end = to;
        self.tails[flow as usize] = ((octets - 1) % segment + 1) as u16 + self.headers.0;
        let message = Message { octets, from, to };
        let line = &mut self.exchanges.lines[line as usize];
        line.used_at = now;
        line.state = match way {
            ASK => State::Asking(message),
            _ => State::Answering(message),
        };
        self.pump(flow);
    }

    /// Something new has arrived of a flow: maybe all of a message.
    pub(super) fn arrived(&mut self, flow: u32) {
        let (number, way) = self.line_of(flow);
        let expected = self.receivers[flow as usize].expected();
        let line = &mut self.exchanges.lines[number as usize];
        let (message, is_asked) = match (line.state, way) {
            (State::Asking(message), ASK) => (message, true),
            (State::Answering(message), ANSWER) => (message, false),
            _ => return,
        };
        if expected < message.to {
            return;
        }
        line.used_at = self.net.now;
        let entry = &mut self.exchanges.entries[line.entry as usize];
        entry.octets[way as usize] += message.octets;
        line.state = State::Idle;
        match (is_asked, entry.response) {
            (true, response @ 1..) => self.say(number, ANSWER, response),
            _ => self.done(number),
        }
    }

    /// What a connection had to do is done.
    fn done(&mut self, number: u32) {
        let now = self.net.now;
        let Line { entry: of, intended, .. } = self.exchanges.lines[number as usize];
        let entry = &mut self.exchanges.entries[of as usize];
        entry.done(intended, now);
        let next = entry.follows.filter(|_| !entry.over && now < entry.stop);
        let client = entry.client.filter(|_| !entry.over && now < entry.stop);
        if entry.keeps && !entry.over {
            entry.idle.push(number);
        } else {
            self.close(number);
        }
        if let Some(size) = next {
            self.ask(of, now, size);
        }
        if let Some(client) = client {
            let (entry, at) = self.exchanges.decide(client, now);
            self.net.wake(at.max(now + 1), Kind::Agenda, entry);
        }
        self.take_turns(of);
    }

    /// What waited for a connection gets one, if there is one now.
    fn take_turns(&mut self, number: u32) {
        loop {
            let entry = &mut self.exchanges.entries[number as usize];
            if entry.over || (entry.idle.is_empty() && entry.open >= entry.most) {
                return;
            }
            let Some((intended, size)) = entry.turn() else { return };
            match entry.idle.pop() {
                Some(line) => self.begin_on(line, intended, size),
                None => self.connect(number, intended, size),
            }
        }
    }

    /// Both ends forget a connection.
    fn close(&mut self, number: u32) {
        let segment = u64::from(self.mtu - self.headers.0);
        for way in [ASK, ANSWER] {
            let flow = self.flow_of(number, way) as usize;
            let so_far = self.on_the_way(number, way, segment);
            let of = self.exchanges.lines[number as usize].entry;
            self.exchanges.entries[of as usize].octets[way as usize] += so_far;
            self.senders[flow].abandon();
            self.receivers[flow].abandon();
        }
        let line = &mut self.exchanges.lines[number as usize];
        line.state = State::Closed;
        self.exchanges.entries[line.entry as usize].closed(self.net.now, number);
    }

    /// Octets that have arrived of what a line is sending this way.
    fn on_the_way(&self, number: u32, way: u32, segment: u64) -> u64 {
        let message = match (self.exchanges.lines[number as usize].state, way) {
            (State::Asking(message), ASK) | (State::Answering(message), ANSWER) => message,
            _ => return 0,
        };
        let flow = self.flow_of(number, way) as usize;
        message.arrived(self.receivers[flow].expected(), segment)
    }

    /// Octets that have arrived so far, there and back, by entry.
    pub(crate) fn exchanged(&self) -> Vec<[u64; 2]> {
        let segment = u64::from(self.mtu - self.headers.0);
        let mut all: Vec<_> = self.exchanges.entries.iter().map(|entry| entry.octets).collect();
        for (number, line) in (0..).zip(&self.exchanges.lines) {
            for way in [ASK, ANSWER] {
                let so_far = self.on_the_way(number, way, segment);
                all[line.entry as usize][way as usize] += so_far;
            }
        }
        all
    }

    /// What became of each entry's work.
    pub(crate) fn works(&self) -> impl Iterator<Item = &crate::exchange::Work> {
        self.exchanges.entries.iter().map(|entry| &entry.work)
    }
}
