//! Memory of a run, computed before the run.
//!
//! Problem   A network that does not fit into memory is killed in the middle of its run, or takes
//!           the machine with it.
//! Approach  State that exists from the start is counted by the sizes of its parts. The number of
//!           packets in flight is not known: at most every port that a flow uses is full, or every
//!           window is.
//! Promises  A run takes at least `least`, and exceeds `most` only by the allocator's overhead.
//! Not here  The machine's memory: drivers know it.

use crate::link::Link;
use crate::network::{FlowSpec, LinkSpec, Network, Traffic};
use crate::outcome::{FlowOutcome, LinkOutcome};
use crate::packet::Packet;
use crate::tcp::{Receiver, Sender, TcpConfig};
use crate::world::Flow;
use weir_units::{Bytes, SortedSet};

/// Overhead of an allocation.
const ALLOCATION: usize = 16;
/// With RACK or HyStart, for each segment of a window: the time at which it was sent, and its
/// number in the queue of retransmitted segments. Both grow by doubling.
const STAMPS: u64 = 2 * (8 + 4);
/// Outcomes that are kept at a time: the last one, the one before, and the one at the warmup.
const OUTCOMES: usize = 3;

/// Octets of memory that a run takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// With nothing in flight.
    pub least: Bytes,
    /// With all ports or all windows full.
    pub most: Bytes,
}

/// A flow over `hops` links in both directions together, with its specification.
pub(crate) const fn of_flow(hops: usize) -> usize {
    let spec = size_of::<FlowSpec>() + 2 * ALLOCATION + 4 * hops;
    let ends = size_of::<Sender>() + size_of::<Receiver>() + size_of::<Flow>() + 2 + 4;
    spec + ends + 4 * (hops + 2) + OUTCOMES * size_of::<FlowOutcome>()
}

/// One direction of a link, with its specification.
pub(crate) const fn of_link() -> usize {
    size_of::<LinkSpec>() + size_of::<Link>() + OUTCOMES * size_of::<LinkOutcome>()
}

/// Full packets that the port and the wire of a link hold at most.
pub(crate) fn full(link: &LinkSpec, mtu: u16) -> u64 {
    (link.buffer + link.rate.bytes_in(link.delay)).get() / u64::from(mtu.max(1)) + 2
}

impl Network {
    /// Memory for playing this network, the network included.
    pub fn memory(&self, tcp: &TcpConfig) -> Memory {
        let flow = |flow: &FlowSpec| of_flow(flow.forward.len() + flow.reverse.len());
        let flows: usize = self.flows().iter().map(flow).sum();
        let least = (flows + self.links().len() * of_link()) as u64;
        let used: SortedSet<u32> = self
            .flows()
            .iter()
            .flat_map(|flow| flow.forward.iter().chain(&flow.reverse))
            .copied()
            .collect();
        let ports = used.iter().map(|link| full(&self.links()[*link as usize], self.mtu()));
        let ports: u64 = ports.fold(0, u64::saturating_add);
        let windows = self.flows().iter().map(|flow| self.window(flow, tcp));
        let windows = windows.fold(0, u64::saturating_add);
        let stamps = if tcp.rack | tcp.hystart { STAMPS } else { 0 };
        // A bit for each segment of a window in each of three boards; the slab grows by doubling.
        let boards = if windows == u64::MAX { 0 } else { windows * 3 / 8 + windows * stamps };
        let packets = ports.min(windows.saturating_mul(3) / 2);
        let flight = packets.saturating_mul(2 * size_of::<Packet>() as u64).saturating_add(boards);
        Memory { least: Bytes::new(least), most: Bytes::new((2 * least).saturating_add(flight)) }
    }

    /// Segments that a flow has in flight at most.
    fn window(&self, flow: &FlowSpec, tcp: &TcpConfig) -> u64 {
        match flow.traffic {
            Traffic::Udp { .. } => u64::MAX,
            Traffic::Tcp { octets, .. } => {
                let segment = u64::from(self.segment());
                let window = (tcp.receive_window.get() / segment).clamp(1, 1 << 16);
                octets.map_or(window, |octets| window.min(octets.get().div_ceil(segment)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZero;
    use weir_units::{Rate, Span, Time};

    fn two_nodes(octets: Option<u64>, buffer: u64) -> Network {
        let mut network = Network::new(2, 1500, Time::from_nanos(1_000_000)).expect("fits");
        for (from, to) in [(0, 1), (1, 0)] {
            let (rate, delay) = (Rate::from_mbps(1000), Span::from_micros(120));
            let buffer = Bytes::new(buffer);
            let spec = LinkSpec { from, to, rate, delay, buffer, mark_above: None, loss: 0.0 };
            network.add_link(spec).expect("fits");
        }
        let octets = octets.and_then(NonZero::new);
        let traffic = Traffic::Tcp { octets, algorithm: None };
        let (forward, reverse, start) = (vec![0], vec![1], Time::ZERO);
        network
            .add_flow(FlowSpec { src: 0, dst: 1, start, traffic, forward, reverse })
            .expect("fits");
        network
    }

    #[test]
    fn packets_fill_the_ports_or_the_windows_whatever_is_less() {
        let tcp = TcpConfig { rack: false, ..TcpConfig::default() };
        let packets = |network: &Network| {
            let memory = network.memory(&tcp);
            (memory.most.get() - 2 * memory.least.get()) / 64
        };
        // A buffer of 100 packets and a wire of 10, twice, and two for rounding; three boards of
        // 4309 bits.
        assert_eq!(packets(&two_nodes(None, 150_000)), 2 * 112 + 4309 * 3 / 8 / 64);
        assert_eq!(packets(&two_nodes(Some(30 * 1460), 150_000)), 45);
        let few = two_nodes(Some(30 * 1460), 150_000);
        let with = few.memory(&TcpConfig::default()).most;
        assert_eq!(with.get() - few.memory(&tcp).most.get(), 30 * 24, "stamps");
        let mut udp = two_nodes(Some(1460), 150_000);
        let traffic = Traffic::Udp { rate: Rate::from_mbps(9), size: 100, bursts: None };
        let flow = FlowSpec { traffic, ..udp.flows()[0].clone() };
        udp.add_flow(flow).expect("fits");
        assert_eq!(packets(&udp), 2 * 112, "a source without a window");
    }
}
