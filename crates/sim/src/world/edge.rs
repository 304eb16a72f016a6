//! Passes packets between guests and the networks of their hosts, through the VMs' ports.
//!
//! Problem   When a VM leaves, its port disappears. Its sockets stay: its timers run, but its packets
//!           reach no network.
//! Approach  A packet's VM follows from its flow. Packets from a VM without a port are lost where
//!           they would enter its host, packets to it where they would leave.
//! Promises  Lost packets are dropped and counted. Where no VM ever goes, this costs one check per
//!           packet at each of its ends.
//! Not here  Reactions of agents: see `host`.

use super::faults::Fault;
use crate::host::{Shim, Speaker, Translator};
use crate::net::Net;
use crate::packet::{CE, ECE, Kind, NIL, Packet};
use crate::tcp::{Ack, Receiver};
use weir_units::Time;

/// What is at both ends of each TCP flow and of each UDP flow, data's source first.
#[derive(Debug, Default)]
pub(super) struct Ends {
    tcp: Vec<(u32, u32)>,
    udp: Vec<(u32, u32)>,
}

impl Ends {
    /// Those of the next flow of its kind.
    pub(super) fn add(&mut self, is_tcp: bool, ends: (u32, u32)) {
        if is_tcp { self.tcp.push(ends) } else { self.udp.push(ends) }
    }

    pub(super) fn tcp(&self, flow: u32) -> (u32, u32) {
        self.tcp[flow as usize]
    }

    pub(super) fn udp(&self, flow: u32) -> (u32, u32) {
        self.udp[flow as usize]
    }
}

/// Whose ports are there.
#[derive(Debug, Default)]
pub(super) struct Plugs {
    vms: Ends,
    /// By VM; those behind the end are not out.
    out: Vec<bool>,
}

impl Plugs {
    /// None if no VM will ever go.
    fn new(faults: &[(Time, Fault)]) -> Option<Self> {
        faults.iter().any(|(_, fault)| matches!(fault, Fault::Vm { .. })).then(Self::default)
    }

    /// The port of a VM is there from now on, or not.
    fn set(&mut self, vm: u32, plugged: bool) {
        let vm = vm as usize;
        if self.out.len() <= vm {
            self.out.resize(vm + 1, false);
        }
        self.out[vm] = !plugged;
    }

    fn is_out(&self, vm: u32) -> bool {
        self.out.get(vm as usize).copied().unwrap_or(false)
    }

    /// The VMs that a packet comes from and goes to; agents have no ports.
    fn of(&self, packet: &Packet) -> Option<(u32, u32)> {
        match packet.kind {
            Kind::Data => Some(self.vms.tcp(packet.flow)),
            Kind::Ack => {
                let (to, from) = self.vms.tcp(packet.flow);
                Some((from, to))
            }
            Kind::Datagram => Some(self.vms.udp(packet.flow)),
            _ => None,
        }
    }
}

/// All hosts' edges.
#[derive(Debug)]
pub(super) struct Edge {
    /// What stands between guests and their hosts' uplinks, if anything.
    pub(super) shim: Option<Box<Shim>>,
    /// VMs' ports, if any ever goes.
    plugs: Option<Box<Plugs>>,
    /// What translates at them, if anything.
    translator: Option<Box<Translator>>,
}

impl Edge {
    pub(super) fn new(
        shim: Option<Shim>,
        translator: Option<Translator>,
        faults: &[(Time, Fault)],
    ) -> Self {
        let (shim, translator) = (shim.map(Box::new), translator.map(Box::new));
        Self { shim, plugs: Plugs::new(faults).map(Box::new), translator }
    }

    /// The next TCP flow opens between two guests: whether the one that calls speaks ECN then.
    pub(super) fn open(&mut self, (from, to): (Speaker, Speaker)) -> bool {
        match &mut self.translator {
            Some(translator) => translator.open((from, to)),
            None => from.asks && to.agrees,
        }
    }

    /// A TCP flow sends its first packet.
    pub(super) fn begin(&mut self, flow: u32) {
        if let Some(translator) = &mut self.translator {
            translator.begin(flow);
        }
    }

    /// The application of a TCP flow has nothing more to send.
    pub(super) fn end(&mut self, flow: u32) {
        if let Some(translator) = &mut self.translator {
            translator.end(flow);
        }
    }

    /// One more than the last segment that a guest may send, if its port has a say in it.
    #[inline]
    pub(super) fn bound(&self, flow: u32) -> Option<u32> {
        self.translator.as_ref().map(|translator| translator.edge(flow))
    }

    /// The next flow of its kind: the pairs of its data and of its ACKs, and its VMs.
    pub(super) fn add(&mut self, is_tcp: bool, pairs: (u32, u32), vms: (u32, u32)) {
        match &mut self.shim {
            Some(shim) if is_tcp => shim.tcp.push(pairs),
            Some(shim) => shim.udp.push(pairs.0),
            None => {}
        }
        if let Some(plugs) = &mut self.plugs {
            plugs.vms.add(is_tcp, vms);
        }
    }

    /// The port of a VM vanishes, or is there again.
    pub(super) fn plug(&mut self, net: &mut Net, vm: u32, plugged: bool) {
        if let Some(plugs) = &mut self.plugs {
            plugs.set(vm, plugged);
        }
        if let Some(shim) = &mut self.shim {
            shim.plug(net, vm, plugged);
        }
    }

    /// A guest sends a packet.
    #[inline]
    pub(super) fn send(&mut self, net: &mut Net, mut packet: Packet) {
        if let Some(plugs) = &self.plugs
            && plugs.of(&packet).is_some_and(|(from, _)| plugs.is_out(from))
        {
            let id = net.hold(packet);
            return net.drop(id);
        }
        if let Some(translator) = &mut self.translator {
            let is_data = packet.kind == Kind::Data;
            let shim = self.shim.as_ref().filter(|_| is_data);
            let paced = shim.and_then(|shim| shim.paced(packet.flow));
            translator.leave(net.now, &mut packet, paced);
        }
        match &mut self.shim {
            None => net.launch(packet),
            Some(shim) => shim.send(net, packet),
        }
    }

    /// A packet has come to the end of its route. Returns what its guest gets, if it gets anything.
    #[inline]
    pub(super) fn arrive(&mut self, net: &mut Net, id: u32) -> Option<Packet> {
        let mut packet = net.slab.cells[id as usize];
        if let Some(plugs) = &self.plugs
            && plugs.of(&packet).is_some_and(|(_, to)| plugs.is_out(to))
        {
            net.drop(id);
            return None;
        }
        if let Some(shim) = &mut self.shim
            && matches!(packet.kind, Kind::Data | Kind::Ack | Kind::Datagram)
            && shim.arrive(net, id, &mut packet)
        {
            packet.bits &= !CE;
        }
        if let Some(translator) = &mut self.translator {
            let is_ack = packet.kind == Kind::Ack;
            let shim = self.shim.as_ref().filter(|_| is_ack);
            let paced = shim.and_then(|shim| shim.paced(packet.flow));
            translator.come(net.now, &mut packet, paced);
        }
        net.slab.free(id);
        Some(packet)
    }

    /// Sends an ACK: `size` octets of headers, and 2 + 8·n of options, padded to words, if it has n
    /// blocks.
    #[inline]
    pub(super) fn answer(
        &mut self,
        net: &mut Net,
        mut size: u16,
        receiver: &Receiver,
        flow: u32,
        ack: Ack,
    ) {
        let mut sack = NIL;
        if receiver.has_blocks()
            && let (blocks, count @ 1..) = receiver.blocks()
        {
            size += 4 + 8 * count as u16;
            sack = net.blocks.put(&blocks[..count]);
        }
        let packet = Packet {
            at: net.now,
            next: NIL,
            hop: receiver.route,
            flow,
            seq: ack.expected,
            sack,
            size,
            kind: Kind::Ack,
            bits: receiver.bits | receiver.stamp | if ack.echo { ECE } else { 0 },
        };
        self.send(net, packet);
    }
}
