//! Faults while a network is played, and hosts that stand still.
//!
//! Problem   What breaks in a datacenter breaks while the rest goes on.
//! Approach  A fault is a wake-up like others. While a host stands still everything that would
//!           happen there happens when it goes on, in the same order: packets that arrive, timers,
//!           the agent's and the shaper's turns. What comes is kept in a ring of a network card.
//! Promises  A packet that finds no room in the ring is dropped and counted. Where no host ever
//!           stands still this costs one question per arrival.
//! Not here  What a killed agent leaves: see `host`. Control messages that suffer: see `host`. VMs
//!           that lose their port: see `edge`.

use super::edge::Ends;
use super::{End, Sim};
use crate::network::Network;
use crate::packet::{Kind, Packet};
use weir_units::Time;

/// Packets that wait for a host that stands still; more are lost.
const RING: u32 = 1024;

/// Something that breaks, or is mended. Hosts are nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Link {
        link: u32,
        down: bool,
    },
    Pause {
        host: u32,
        until: u64,
    },
    Kill {
        host: u32,
        guardian: bool,
    },
    Start {
        host: u32,
    },
    Restart {
        host: u32,
    },
    Clock {
        host: u32,
        by: u64,
    },
    /// The port of a VM vanishes, or is there again, and agents are told.
    Vm {
        vm: u32,
        plugged: bool,
    },
}

/// Hosts that stand still.
#[derive(Debug)]
pub(super) struct Pauses {
    /// By node: until when, and how many packets wait.
    nodes: Vec<(u64, u32)>,
    /// Nodes of each flow.
    pub(super) ends: Ends,
}

impl Pauses {
    /// None if no host of the network will stand still.
    pub(super) fn new(network: &Network, faults: &[(Time, Fault)]) -> Option<Self> {
        if !faults.iter().any(|(_, fault)| matches!(fault, Fault::Pause { .. })) {
            return None;
        }
        let nodes = vec![(0, 0); network.nodes() as usize];
        Some(Self { nodes, ends: Ends::default() })
    }

    /// Where something happens, if it is at a host.
    fn node(&self, packet: &Packet) -> Option<u32> {
        let flow = packet.flow;
        match packet.kind {
            Kind::Data | Kind::AckDue => Some(self.ends.tcp(flow).1),
            Kind::Ack | Kind::Timeout | Kind::Resume => Some(self.ends.tcp(flow).0),
            Kind::Datagram => Some(self.ends.udp(flow).1),
            Kind::Emit => Some(self.ends.udp(flow).0),
            Kind::Agent | Kind::Shaper | Kind::Guardian | Kind::Told => Some(flow),
            Kind::Letter | Kind::Mail | Kind::Port | Kind::Bind => None,
            Kind::Start | Kind::Late | Kind::Halt | Kind::Fault | Kind::Agenda | Kind::Stop => None,
        }
    }

    /// Until when this node stands still at `now`.
    fn until(&self, node: u32, now: u64) -> Option<u64> {
        let (until, _) = self.nodes[node as usize];
        (until > now).then_some(until)
    }
}

impl Sim {
    /// Something breaks, or is mended.
    pub(super) fn strike(&mut self, number: u32) {
        let net = &mut self.net;
        let fault = self.faults[number as usize];
        if let Fault::Vm { vm, plugged } = fault {
            return self.edge.plug(net, vm, plugged);
        }
        match (fault, &mut self.edge.shim) {
            (Fault::Link { link, down }, _) => net.set_down(link, down),
            (Fault::Pause { host, until }, _) => {
                let pauses = self.pauses.as_mut().expect("a host that will stand still is known");
                let node = &mut pauses.nodes[host as usize];
                *node = (until.max(node.0), if node.0 > net.now { node.1 } else { 0 });
            }
            (Fault::Vm { .. }, _) | (_, None) => {}
            (Fault::Kill { host, guardian }, Some(shim)) => shim.kill(net, host, guardian),
            (Fault::Start { host }, Some(shim)) => shim.start(net, host),
            (Fault::Restart { host }, Some(shim)) => shim.restart(net, host),
            (Fault::Clock { host, by }, Some(shim)) => shim.step_clock(net, host, by),
        }
    }

    /// Until when the host of a flow's source stands still.
    pub(super) fn stands_still(&self, flow: u32) -> Option<u64> {
        let pauses = self.pauses.as_ref()?;
        let node = match self.flows[flow as usize].end {
            End::Tcp(tcp) => pauses.ends.tcp(tcp).0,
            End::Udp(udp) => pauses.ends.udp(udp).0,
        };
        pauses.until(node, self.net.now)
    }

    /// Whether what happens now has to wait, because it happens at a host that stands still.
    #[cold]
    pub(super) fn hold_back(&mut self, id: u32) -> bool {
        let Some(pauses) = &mut self.pauses else { return false };
        let packet = self.net.slab.cells[id as usize];
        let node = match packet.kind {
            Kind::Letter => Some(self.net.letters.to(packet.seq).0),
            Kind::Mail => Some(self.net.letters.to(packet.flow).0),
            Kind::Agenda => Some(self.exchanges.entries[packet.flow as usize].ends.0),
            _ => pauses.node(&packet),
        };
        let Some((node, until)) = node.and_then(|n| Some((n, pauses.until(n, self.net.now)?)))
        else {
            return false;
        };
        match packet.kind {
            Kind::Data | Kind::Ack | Kind::Datagram | Kind::Letter => {
                let waiting = &mut pauses.nodes[node as usize].1;
                if *waiting == RING {
                    self.net.drop(id);
                    return true;
                }
                *waiting += 1;
            }
            Kind::Timeout => {
                let sender = &mut self.senders[packet.flow as usize];
                if sender.looks_at == packet.at {
                    sender.looks_at = until;
                }
            }
            Kind::AckDue => {
                let receiver = &mut self.receivers[packet.flow as usize];
                if receiver.looks_at == packet.at {
                    receiver.looks_at = until;
                }
            }
            Kind::Agenda | Kind::Resume => {}
            _ => {
                if let Some(shim) = &mut self.edge.shim {
                    shim.hold_back(&packet, until);
                }
            }
        }
        self.net.slab.cells[id as usize].at = until;
        self.net.wheel.schedule(&mut self.net.slab.cells, id);
        true
    }
}
