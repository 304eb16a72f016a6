//! Memory of a scenario, computed before anything is built.
//!
//! Problem   A few words in a file can ask for a hundred million connections.
//! Approach  Connections, links and samples are counted, with the sizes that `memory` knows. For
//!           traffic that comes and goes it takes the most that may exist at once: no more
//!           connections than are due, or than are opened while former ones are not forgotten.
//! Not here  Agents' state of pairs. The number of rounds of a closed loop.

use crate::exchange::QUARANTINE;
use crate::memory::{Memory, full, of_flow, of_link};
use crate::network::LinkSpec;
use crate::packet::Packet;
use weir_model::record::Windows;
use weir_model::scenario::{
    Connections, LinkDir, Load, OPEN_LOOP, Request, Scenario, Traffic, TrafficKind,
};
use weir_units::Bytes;

/// A route has two links at least, and so has its way back.
const HOPS: usize = 4;
const FRAME: u16 = 1514;

/// Memory of a run while it is played, and of its record until all are judged.
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
    let coming: Vec<_> =
        scenario.traffic.iter().filter_map(|entry| comes(scenario, entry)).collect();
    let lines: u64 = coming.iter().map(|coming| coming.lines).fold(0, u64::saturating_add);
    let times: u64 = coming.iter().map(|coming| coming.due).fold(0, u64::saturating_add);
    // A line is two flows; what was done leaves its time.
    let dynamic =
        lines.saturating_mul(2 * of_flow(HOPS) as u64).saturating_add(times.saturating_mul(8));
    let packets: u64 = (0..links as usize).map(port).fold(0, u64::saturating_add);
    let flight = packets.saturating_mul(2 * size_of::<Packet>() as u64);
    let samples = scenario.duration.div_span(scenario.sample).max(1);
    let series = scenario.traffic.len() as u64 + 3 * links + 1;
    Size {
        run: Memory {
            least: Bytes::new(least),
            most: Bytes::new(
                (2 * least).saturating_add(flight).saturating_add(dynamic.saturating_mul(2)),
            ),
        },
        record: Bytes::new(8 * (samples * series + flows) + looks(scenario)),
    }
}

/// Octets of the samples of traced connections, as record and as result.
fn looks(scenario: &Scenario) -> u64 {
    let of = |entry: &Traffic| {
        let TrafficKind::Tcp { connections, .. } = &entry.kind else { return 0 };
        let looks = entry.trace.map_or(0, |every| (entry.stop - entry.start).div_span(every));
        looks * u64::from(*connections)
    };
    scenario.traffic.iter().map(of).sum::<u64>() * 2 * size_of::<Windows>() as u64
}

/// What an entry that comes and goes takes at most.
struct Coming {
    /// What is due until the end.
    due: u64,
    /// Places of connections.
    lines: u64,
}

/// `None` of an entry whose connections last.
fn comes(scenario: &Scenario, entry: &Traffic) -> Option<Coming> {
    let lasts =
        (entry.stop.min(scenario.duration).as_secs_f64() - entry.start.as_secs_f64()).max(0.0);
    // A line that is closed is not used again for that long.
    let kept = lasts.min(QUARANTINE as f64 / 1e9);
    let open = |per_second: f64| Coming {
        due: (per_second * lasts) as u64,
        lines: (per_second * kept) as u64 + OPEN_LOOP as u64,
    };
    match &entry.kind {
        // Each flow is followed by the next, so their number is not known before.
        TrafficKind::Flows(flows) if flows.closed.is_some() => Some(Coming { due: 0, lines: 1 }),
        TrafficKind::Flows(flows) => {
            Some(open(flows.arrivals.per_second / f64::from(flows.of.max(1))))
        }
        TrafficKind::Request(Request { load: Load::Open(arrivals), connections, .. }) => {
            let coming = open(arrivals.per_second);
            let lines =
                if *connections == Connections::Kept { OPEN_LOOP as u64 } else { coming.lines };
            Some(Coming { lines, ..coming })
        }
        // Each answer is followed by the next request, so their number is not known before.
        TrafficKind::Request(Request { load: Load::Closed { outstanding }, .. }) => {
            Some(Coming { due: 0, lines: (*outstanding).into() })
        }
        TrafficKind::Shuffle { .. } => Some(Coming { due: 1, lines: 1 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    fn most(traffic: &str) -> u64 {
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 60s, \
             topology: {{dumbbell: {{left: 1, right: 1, edge: 1Gbit, core: 1Gbit}}}}, tenants: [{{name: a, vms: [\
             {{name: v, host: left-0}}, {{name: w, host: right-0}}]}}], mechanisms: none, \
             traffic: [{{group: g, from: v, to: w, {traffic}}}]}}}}"
        );
        let file = File::parse("t.yaml", &text, &[]).expect("sound");
        size(&file.points().expect("sound")[0]).run.most.get()
    }

    #[test]
    fn what_comes_and_goes_is_counted_for_as_long_as_its_connections_are_not_forgotten() {
        let request = |rest: &str| most(&format!("request: {{size: 1kB, response: 1kB, {rest}}}"));
        let line = 4 * of_flow(HOPS) as u64;
        let slow = request("rate: 1, connections: new");
        let fast = request("rate: 1001, connections: new");
        assert_eq!(fast - slow, 30_000 * line + 2 * 8 * 60_000, "30 s of lines, 60 s of times");
        let kept = request("rate: 1001, connections: kept");
        assert_eq!(fast - kept, 30_030 * line);
    }
}
