//! Views of a run, while it runs and at its end.

use super::{End, Flow, Sim};
use crate::host::Written;
use crate::look::{ConnectionLook, Look};
use crate::outcome::{FlowOutcome, LinkOutcome, Outcome, Packets};
use crate::tcp::{NEVER, Sender};
use weir_model::record::ControlRecord;
use weir_units::{Bytes, Rate, Span, Time};

/// What can be seen of hosts with agents.
pub(crate) struct GuardedView {
    /// Segments that agents have seen lost, if they look for them.
    pub(crate) losses: Option<u64>,
    /// Pairs that each agent knows.
    pub(crate) pairs: Vec<u64>,
    /// Packets that found no room in a shaper.
    pub(crate) shaper_drops: u64,
    /// What became of the agents' letters.
    pub(crate) control: ControlRecord,
    /// Pairs whose receiving ends agents know.
    pub(crate) receiving: u64,
}

impl Sim {
    /// The last instant that was played.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.net.now)
    }

    /// Octets in a link's port, what is on the wire included as far as it has not left; `None` if
    /// there is no such link.
    pub fn queued(&self, link: u32) -> Option<Bytes> {
        ((link as usize) < self.net.links.len()).then(|| Bytes::new(self.net.queued(link)))
    }

    /// The sender of a flow and the octets of its segments; `None` if there is no such flow, or it
    /// is not TCP.
    pub(crate) fn connection(&self, flow: u32) -> Option<(ConnectionLook, u32)> {
        match self.flows.get(flow as usize)?.end {
            End::Tcp(tcp) => {
                let segment = self.mtu - self.headers.0;
                Some((self.senders[tcp as usize].look(), segment.into()))
            }
            End::Udp(_) => None,
        }
    }

    /// What hosts and their agents say; `None` without agents.
    pub(crate) fn guarded_view(&mut self) -> Option<GuardedView> {
        let (now, shim) = (self.net.now, self.edge.shim.as_mut()?);
        Some(GuardedView {
            losses: shim.losses(now),
            pairs: shim.known(now),
            shaper_drops: shim.shaper_drops(),
            control: shim.control(),
            receiving: shim.receiving(),
        })
    }

    /// What agents have written so far; `None` without agents.
    pub(crate) fn written(&self) -> Option<Written> {
        self.edge.shim.as_ref().map(|shim| shim.written())
    }

    /// The part of pairs' packets that came after a later one of their pair, and the longest time for which a
    /// queue of a port had packets and none of them left; `None` without agents.
    pub(crate) fn disorder(&self) -> Option<(f64, Span)> {
        let (packets, late) = self.edge.shim.as_ref()?.came();
        Some((late as f64 / packets.max(1) as f64, self.net.starved()))
    }

    /// Links crossed by packets so far.
    pub fn packet_hops(&self) -> u64 {
        self.hops + self.delivered
    }

    /// What is where at this moment, and what agents hold of each other's word. Changes nothing.
    pub(crate) fn look(&self) -> Look {
        let now = self.net.now;
        let (hosts, pairs) = match &self.edge.shim {
            Some(shim) => (shim.look_at_hosts(now), shim.look_at_pairs()),
            None => (Vec::new(), Vec::new()),
        };
        Look {
            at: self.now(),
            packets: self.packets(),
            links: (0..self.net.links.len()).map(|link| self.link_outcome(link)).collect(),
            letters_lost: self.net.letters.lost().clone(),
            connections: self
                .senders
                .iter()
                .take(self.dynamic as usize)
                .map(Sender::look)
                .collect(),
            hosts,
            pairs,
        }
    }

    fn packets(&self) -> Packets {
        Packets {
            launched: self.net.launched,
            delivered: self.delivered,
            dropped: self.net.dropped,
            in_flight: u64::from(self.net.slab.live() - self.net.asleep),
        }
    }

    /// What has come out so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            now: self.now(),
            flows: self.flows.iter().map(|flow| self.flow_outcome(flow)).collect(),
            links: (0..self.net.links.len()).map(|link| self.link_outcome(link)).collect(),
            packets: self.packets(),
            packet_hops: self.packet_hops(),
            events: self.packet_hops() + self.events,
        }
    }

    fn flow_outcome(&self, flow: &Flow) -> FlowOutcome {
        let start = Time::from_nanos(flow.start);
        let mut outcome = FlowOutcome {
            start,
            completed: None,
            octets: Bytes::ZERO,
            goodput: Rate::ZERO,
            repeats: 0,
            probes: 0,
            timeouts: 0,
            recoveries: 0,
            reductions: 0,
            cwnd: 0,
            rtt: Span::ZERO,
        };
        match flow.end {
            End::Tcp(tcp) => {
                let (sender, receiver) =
                    (&self.senders[tcp as usize], &self.receivers[tcp as usize]);
                let octets = u64::from(receiver.expected()) * u64::from(self.mtu - self.headers.0);
                outcome.octets = Bytes::new(octets.min(flow.octets.unwrap_or(u64::MAX)));
                outcome.completed =
                    (receiver.done_at != NEVER).then(|| Time::from_nanos(receiver.done_at));
                outcome.repeats = sender.sent.repeats;
                outcome.probes = sender.sent.probes;
                outcome.timeouts = sender.sent.timeouts;
                outcome.recoveries = sender.sent.recoveries;
                outcome.reductions = sender.sent.reductions;
                outcome.cwnd = sender.cwnd();
                outcome.rtt = Span::from_nanos(sender.rtt());
            }
            End::Udp(udp) => {
                let source = &self.sources[udp as usize];
                outcome.octets =
                    Bytes::new(source.arrived * u64::from(source.size - self.headers.1));
            }
        }
        let span = outcome.completed.unwrap_or(self.now()).since(start);
        if span > Span::ZERO {
            outcome.goodput = Rate::of(outcome.octets, span);
        }
        outcome
    }

    fn link_outcome(&self, number: usize) -> LinkOutcome {
        let link = &self.net.links[number];
        let queued = self.net.queued(number as u32);
        LinkOutcome {
            octets: Bytes::new(link.octets.saturating_sub(queued)),
            packets: link.packets,
            drops: link.drops.into(),
            lost: self.net.lost(link),
            marks: link.marks.into(),
            queued: Bytes::new(queued),
        }
    }
}
