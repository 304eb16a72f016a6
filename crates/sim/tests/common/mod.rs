//! Networks to test with.

use weir_sim::{FlowSpec, LinkSpec, Network, Options, TcpConfig, Traffic};
use weir_units::{Bytes, Rate, Span, Time};

/// Pairs of hosts on two switches, and one link between these that is the bottleneck.
#[derive(Clone, Debug)]
pub(crate) struct Dumbbell {
    pub(crate) pairs: u32,
    pub(crate) mbps: u64,
    /// Base round-trip time, without the time packets take on the wire.
    pub(crate) rtt: Span,
    /// Packets of 1500 octets.
    pub(crate) buffer: u64,
    pub(crate) mark_above: Option<u64>,
    pub(crate) loss: f64,
    pub(crate) until: Span,
}

impl Dumbbell {
    /// With one flow of `traffic` per pair, starting a little after each other. The bottleneck is
    /// link 0, the way back link 1.
    pub(crate) fn network(&self, traffic: Traffic) -> Network {
        let (left, right) = (2 * self.pairs, 2 * self.pairs + 1);
        let until = Time::ZERO + self.until;
        let mut network = Network::new(2 * self.pairs + 2, 1500, until).expect("fits");
        let middle = LinkSpec {
            from: left,
            to: right,
            rate: Rate::from_mbps(self.mbps),
            delay: Span::from_nanos(self.rtt.as_nanos() / 2),
            buffer: Bytes::new(self.buffer * 1500),
            mark_above: self.mark_above.map(|k| Bytes::new(k * 1500)),
            loss: self.loss,
        };
        let back = LinkSpec { from: right, to: left, loss: 0.0, ..middle.clone() };
        network.add_link(middle.clone()).expect("fits");
        network.add_link(back).expect("fits");
        let access = LinkSpec {
            rate: Rate::from_mbps(4 * self.mbps),
            delay: Span::from_nanos(100),
            buffer: Bytes::new(100_000_000),
            mark_above: None,
            loss: 0.0,
            ..middle
        };
        for pair in 0..self.pairs {
            let (src, dst) = (pair, self.pairs + pair);
            let mut link = |from, to| network.add_link(LinkSpec { from, to, ..access.clone() });
            let up = link(src, left).expect("fits");
            let down = link(right, dst).expect("fits");
            let back_up = link(dst, right).expect("fits");
            let back_down = link(left, src).expect("fits");
            let flow = FlowSpec {
                src,
                dst,
                start: Time::from_nanos(u64::from(pair) * (self.rtt.as_nanos() / 7 + 977)),
                traffic,
                forward: vec![up, 0, down],
                reverse: vec![back_up, 1, back_down],
            };
            network.add_flow(flow).expect("fits");
        }
        network
    }
}

/// Endless TCP of the run's algorithm.
pub(crate) const BULK: Traffic = Traffic::Tcp { octets: None, algorithm: None };

pub(crate) fn options(tcp: TcpConfig) -> Options {
    Options { tcp, seed: 1 }
}
