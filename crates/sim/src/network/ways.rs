//! Adds further ways to a flow. Its packets take all ways in turn.

use super::{Flaw, Network, Way};

impl Network {
    /// Packets of a flow, or its ACKs, take this way, too: its route and its further ways in turn,
    /// beginning with one drawn from the run's seed. All are of the same length. The flow's number
    /// is one that [`Network::add_flow`] returned.
    pub fn add_way(&mut self, flow: u32, way: Way, links: Vec<u32>) -> Result<(), Flaw> {
        let flows = self.flows.len();
        let spec = self.flows.get(flow as usize).ok_or(Flaw::Flow { flow, flows })?;
        let (from, to, first) = match way {
            Way::Forward => (spec.src, spec.dst, &spec.forward),
            Way::Reverse => (spec.dst, spec.src, &spec.reverse),
        };
        self.check_route(way, &links, from, to)?;
        if links.len() != first.len() {
            return Err(Flaw::Uneven { way, links: links.len(), first: first.len() });
        }
        self.ways.entry((flow, way)).or_default().push(links);
        Ok(())
    }

    /// All ways of a flow's data; none if there is no such flow.
    pub(crate) fn forward(&self, flow: usize) -> Vec<Vec<u32>> {
        let first = self.flows.get(flow).map(|spec| spec.forward.clone());
        first.into_iter().chain(self.ways(flow as u32, Way::Forward).to_vec()).collect()
    }

    /// The further ways of a flow.
    pub fn ways(&self, flow: u32, way: Way) -> &[Vec<u32>] {
        self.ways.get(&(flow, way)).map_or(&[], Vec::as_slice)
    }
}
