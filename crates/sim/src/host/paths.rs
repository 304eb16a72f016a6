//! Which path each flow of a pair takes, where hosts have several paths to each other.
//!
//! Problem   A guest's packets name no path. The host has to choose, flow by flow, and to
//!           remember.
//! Approach  A table of flows, as a data plane would have. A flow's point is its place in the order
//!           in which the pair's flows came; its path follows from that and from the parts that the
//!           agent gives the pair's paths now ([`weir_core::path::place`]).
//! Promises  The choice depends on what the sending host knows: the number of paths, its own flows,
//!           and its agent's levels. Paths that hosts have in excess of the network's ways are ways
//!           again. Of a pair that its host has no more in its lists no flow stays.

use crate::packet::{Kind, Packet};
use weir_core::host::Setting;
use weir_core::path::{place, point};
use weir_units::{HostId, PairId, PathId, Rate, SortedMap, SortedSet};

/// The paths of all hosts, and the flows on them.
#[derive(Debug)]
pub(super) struct Paths {
    /// Where the routes of the paths begin.
    pub(super) routes: SortedMap<(HostId, HostId), Vec<u32>>,
    flows: SortedMap<(u8, u32), Flow>,
    /// The pair and path of each packet, by its place in the slab.
    strands: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    pair: PairId,
    point: u32,
    path: Option<PathId>,
}

impl Paths {
    pub(super) fn new(routes: SortedMap<(HostId, HostId), Vec<u32>>) -> Self {
        Self { routes, flows: SortedMap::new(), strands: Vec::new() }
    }

    /// The path of a packet of `pair`, whose paths have these parts of its floor. `flows` counts
    /// the pair's flows.
    pub(super) fn choose(
        &mut self,
        packet: &Packet,
        pair: PairId,
        parts: &[Rate],
        flows: &mut u32,
    ) -> PathId {
        let kind = match packet.kind {
            Kind::Data => 0,
            Kind::Ack => 1,
            _ => 2,
        };
        let flow = self.flows.entry((kind, packet.flow)).or_insert_with(|| {
            let number = *flows;
            *flows = flows.wrapping_add(1);
            Flow { pair, point: point(pair, number), path: None }
        });
        let path = place(parts, flow.point, flow.path);
        flow.path = Some(path);
        path
    }

    /// Forgets the flows of these pairs.
    pub(super) fn forget(&mut self, pairs: &SortedSet<PairId>) {
        self.flows.retain(|_, flow| !pairs.contains(&flow.pair));
    }

    /// Remembers of which pair and path a packet in the slab is.
    pub(super) fn mark(&mut self, id: u32, strand: u32) {
        if self.strands.len() <= id as usize {
            self.strands.resize(id as usize + 1, 0);
        }
        self.strands[id as usize] = strand;
    }

    pub(super) fn strand(&self, id: u32) -> u32 {
        self.strands[id as usize]
    }
}

/// What a pair's paths have together, if any has something.
pub(super) fn together(levels: impl Iterator<Item = Setting>) -> Option<Setting> {
    levels.reduce(|a, b| Setting { floor: a.floor + b.floor, ceiling: a.ceiling + b.ceiling })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::VmId;

    #[test]
    fn flows_of_a_forgotten_pair_are_gone_and_others_stay() {
        let mut paths = Paths::new(SortedMap::new());
        let pairs = [0, 1].map(|vm| PairId::new(VmId(vm), VmId(2)));
        for (flow, pair) in (0..).zip(pairs) {
            let packet = Packet::wake(Kind::Datagram, flow);
            paths.choose(&packet, pair, &[Rate::ZERO; 2], &mut 0);
        }
        paths.forget(&SortedSet::from([pairs[0]]));
        let known: Vec<PairId> = paths.flows.values().map(|flow| flow.pair).collect();
        assert_eq!(known, [pairs[1]]);
    }
}
