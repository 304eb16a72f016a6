//! F: the rates that the hoses promise each pair, when all demands are known.

use super::allocate::{Flow, World, allocate};
use weir_units::{PairId, Rate};

/// The floors of one VM: its dedicated link to the tenant's virtual switch (ElasticSwitch §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hose {
    /// Minimum rate to anyone of its tenant.
    pub floor_out: Rate,
    /// Minimum rate from anyone of its tenant.
    pub floor_in: Rate,
}

/// Demand of one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairDemand {
    /// Source and destination. A pair is named once: the demands of its flows are summed.
    pub pair: PairId,
    /// On the wire; `None` = without limit.
    pub demand: Option<Rate>,
    /// Whether both are VMs of one tenant. Others have no floor: their F is zero.
    pub shares_hose: bool,
}

/// F: hose max-min of the demands, one per pair, in their order. This is what the floors promise,
/// and also the optimal static reservation for these demands (ElasticSwitch §7, "Oktopus-like").
///
/// Progressive filling with equal weights over the hoses: each VM's `floor_out` is a link for all
/// pairs it sends to, its `floor_in` for all it receives from. Exact to 1 bit/s, rounded down.
///
/// # Panics
/// A pair names a VM that is not in `hoses` (indexed by [`weir_units::VmId`]).
pub fn hose_max_min(hoses: &[Hose], demands: &[PairDemand]) -> Vec<Rate> {
    let links = hoses.iter().flat_map(|hose| [hose.floor_out, hose.floor_in]).collect();
    let flows = demands.iter().map(|d| {
        let (src, dst) = (d.pair.src.0 as usize, d.pair.dst.0 as usize);
        assert!(src.max(dst) < hoses.len(), "{} has no hose among {}", d.pair, hoses.len());
        let demand = if d.shares_hose { d.demand } else { Some(Rate::ZERO) };
        Flow { path: vec![2 * src, 2 * dst + 1], demand, floor: Rate::ZERO }
    });
    let world = World { links, flows: flows.collect() };
    allocate(&world).expect("two hoses on every path, and nothing owed on them").rates
}
