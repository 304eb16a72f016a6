//! How much memory a scenario takes, before anything is built of it.
//!
//! Problem   A few words in a file ask for a hundred million connections.
//! Approach  Connections, links and samples are counted, with the sizes that `memory` knows.
//! Not here  What agents know of pairs; short flows, which come and go.

use super::SAMPLE;
use crate::memory::{Memory, full, of_flow, of_link};
use crate::network::LinkSpec;
use crate::packet::Packet;
use weir_model::scenario::{LinkDir, Scenario, TrafficKind};
use weir_units::Bytes;

/// A route has two links at least, and so has its way back.
const HOPS: usize = 4;
const FRAME: u16 = 1514;

/// What a run takes while it is played, and what stays of it until all are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// While it is played.
    pub run: Memory,
    /// Its record.
    pub record: Bytes,
}

/// What a run of this scenario takes.
pub fn size(scenario: &Scenario) -> Size {
    let topology = &scenario.topology;
    let connections = |kind: &TrafficKind| match kind {
        TrafficKind::Tcp { connections, .. } => u64::from(*connections),
        _ => 1,
    };
    let flows: u64 = scenario.traffic.iter().map(|entry| connections(&entry.kind)).sum();
    let links = 2 * topology.links.len() as u64;
    let least = flows * of_flow(HOPS) as u64 + links * of_link() as u64;
    let port = |number: usize| {
        let direction = LinkDir::from_index(number);
        let link = &topology.links[direction.link];
        full(
            &LinkSpec {
                from: 0,
                to: 0,
                rate: link.rate,
                delay: link.delay,
                buffer: link.buffer,
                mark_above: None,
                loss: 0.0,
            },
            FRAME,
        )
    };
    let packets: u64 = (0..links as usize).map(port).fold(0, u64::saturating_add);
    let flight = packets.saturating_mul(2 * size_of::<Packet>() as u64);
    let samples = scenario.duration.div_span(SAMPLE).max(1);
    let series = scenario.traffic.len() as u64 + 3 * links + 1;
    Size {
        run: Memory {
            least: Bytes::new(least),
            most: Bytes::new((2 * least).saturating_add(flight)),
        },
        record: Bytes::new(8 * (samples * series + flows)),
    }
}
