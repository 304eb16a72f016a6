//! The flows on each link: one flat list, cut by link (compressed sparse rows).

use crate::fill::Graph;
use crate::world::Flows;

/// The flows of one filling, and the links of each.
pub(crate) struct Csr<'a> {
    flows: &'a Flows,
    /// Where in `members` each link's part starts; one more than there are links.
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl<'a> Csr<'a> {
    pub(crate) fn new(links: usize, flows: &'a Flows) -> Self {
        let mut starts = vec![0u32; links + 1];
        for &link in &flows.paths {
            starts[link as usize + 1] += 1;
        }
        for link in 0..links {
            starts[link + 1] += starts[link];
        }
        let mut next = starts.clone();
        let mut members = vec![0u32; flows.paths.len()];
        let mut begin = 0;
        for (flow, &end) in (0u32..).zip(&flows.ends) {
            for &link in &flows.paths[begin as usize..end as usize] {
                let place = &mut next[link as usize];
                members[*place as usize] = flow;
                *place += 1;
            }
            begin = end;
        }
        Self { flows, starts, members }
    }

    /// These flows with weights (per flow; 0 = takes no part) and demands (per flow, in bit/s).
    pub(crate) fn with<'b>(&'b self, weights: &'b [f64], demands: &'b [f64]) -> Weighted<'b> {
        Weighted { csr: self, weights, demands }
    }
}

/// What one filling sees of them.
pub(crate) struct Weighted<'a> {
    csr: &'a Csr<'a>,
    weights: &'a [f64],
    demands: &'a [f64],
}

impl Graph for Weighted<'_> {
    fn flows(&self) -> u32 {
        self.weights.len() as u32
    }

    #[inline]
    fn path(&self, flow: u32) -> &[u32] {
        self.csr.flows.path(flow)
    }

    fn members(&self, link: u32) -> impl Iterator<Item = u32> {
        let starts = &self.csr.starts[link as usize..];
        self.csr.members[starts[0] as usize..starts[1] as usize].iter().copied()
    }

    #[inline]
    fn weight(&self, flow: u32) -> f64 {
        self.weights[flow as usize]
    }

    fn cap(&self, flow: u32) -> f64 {
        self.demands[flow as usize] / self.weights[flow as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::{BY_DEMAND, fill};
    use crate::world::Flow;

    #[test]
    fn each_link_lists_its_flows_in_order_once_per_crossing() {
        let paths = [vec![2, 0], vec![], vec![2, 2]];
        let flows: Flows = paths.map(Flow::greedy).iter().collect();
        let csr = Csr::new(3, &flows);
        let graph = csr.with(&[1.0; 3], &[1.0; 3]);
        let members = |link| graph.members(link).collect::<Vec<_>>();
        assert_eq!([members(0), members(1), members(2)], [vec![0], vec![], vec![0, 2, 2]]);
    }

    #[test]
    fn a_demand_met_just_when_the_link_fills_counts_as_a_demand() {
        let flows: Flows = [vec![0], vec![0]].map(Flow::greedy).iter().collect();
        let csr = Csr::new(1, &flows);
        let filled = fill(&csr.with(&[1.0; 2], &[f64::INFINITY, 5.0]), [10.0].into_iter());
        assert_eq!(filled.levels, [5.0, 5.0]);
        assert_eq!(filled.stops, [0, BY_DEMAND]);
        assert_eq!(filled.links, [5.0]);
    }

    #[test]
    fn a_stale_level_is_raised_before_it_stops_anybody() {
        // Link 0 looks full at 5 until link 1 stops flow 0 at 2.
        let flows: Flows = [vec![0, 1], vec![0], vec![1]].map(Flow::greedy).iter().collect();
        let csr = Csr::new(2, &flows);
        let caps = [f64::INFINITY; 3];
        let filled = fill(&csr.with(&[1.0; 3], &caps), [10.0, 4.0].into_iter());
        assert_eq!(filled.levels, [2.0, 8.0, 2.0]);
        assert_eq!(filled.links, [8.0, 2.0]);
    }
}
