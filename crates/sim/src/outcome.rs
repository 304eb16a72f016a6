//! Results of a run: per flow, per link, in all.

use crate::digest::Digest;
use weir_units::{Bytes, Rate, Span, Time};

/// Result of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowOutcome {
    /// Intended start.
    pub start: Time,
    /// Time at which its last octet had arrived, if it has an end and has reached it.
    pub completed: Option<Time>,
    /// Octets of payload that the receiver's application got, in order and without duplicates.
    pub octets: Bytes,
    /// `octets` over the time from start to completion or, if it is not completed, to the end of
    /// the run.
    pub goodput: Rate,
    /// TCP: segments sent again. UDP: 0.
    pub repeats: u64,
    /// TCP: tail loss probes.
    pub probes: u32,
    /// TCP: expired retransmission timers.
    pub timeouts: u32,
    /// TCP: fast recoveries, and losses that a probe has repaired.
    pub recoveries: u32,
    /// TCP: reductions because of marks.
    pub reductions: u32,
    /// TCP: congestion window at the end, in segments.
    pub cwnd: u32,
    /// TCP: smoothed round-trip time at the end; zero before the first sample.
    pub rtt: Span,
}

/// Counters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOutcome {
    /// Octets that have left the port.
    pub octets: Bytes,
    /// Packets that found room in the port.
    pub packets: u64,
    /// Packets that found none.
    pub drops: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets marked.
    pub marks: u64,
    /// Octets in the port at the end.
    pub queued: Bytes,
}

/// Places of all packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packets {
    /// Sent by hosts: segments, ACKs, datagrams.
    pub launched: u64,
    /// Arrived at the end of their route.
    pub delivered: u64,
    /// Dropped by full ports, or lost by chance.
    pub dropped: u64,
    /// In ports and on links.
    pub in_flight: u64,
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The last instant that was played.
    pub now: Time,
    /// By number.
    pub flows: Vec<FlowOutcome>,
    /// By number.
    pub links: Vec<LinkOutcome>,
    /// Packets.
    pub packets: Packets,
    /// Links crossed by packets: each link by each data packet, ACK and datagram.
    pub packet_hops: u64,
    /// Events played: packet-hops and wake-ups.
    pub events: u64,
}

impl Outcome {
    /// Digest of the run: equal digests mean equal runs.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::new();
        let packets = &self.packets;
        for word in [
            self.now.as_nanos(),
            packets.launched,
            packets.delivered,
            packets.dropped,
            packets.in_flight,
            self.packet_hops,
            self.events,
        ] {
            digest.add(word);
        }
        for flow in &self.flows {
            // Probes are among the packets.
            let counts = [flow.timeouts, flow.recoveries, flow.reductions, flow.cwnd];
            digest.add(flow.start.as_nanos());
            digest.add(flow.completed.map_or(u64::MAX, Time::as_nanos));
            digest.add(flow.octets.get());
            digest.add(flow.repeats);
            counts.into_iter().for_each(|count| digest.add(count.into()));
            digest.add(flow.rtt.as_nanos());
        }
        for link in &self.links {
            let sizes = [link.octets.get(), link.queued.get()];
            let counts = [link.packets, link.drops, link.lost, link.marks];
            sizes.into_iter().chain(counts).for_each(|word| digest.add(word));
        }
        digest.value()
    }
}
