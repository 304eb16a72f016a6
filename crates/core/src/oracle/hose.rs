//! F: the rates that the hoses promise each pair, when all demands are known.
//!
//! A VM may have several hoses. To the oracle each is a hose of its own: a pair says which of them it
//! uses at either end.

use super::allocate::{Flow, World, allocate};
use weir_units::{PairId, Rate};

/// The floors of one hose of a VM: its dedicated link to the tenant's virtual switch (ElasticSwitch §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hose {
    /// Minimum rate to the VMs that share the hose.
    pub floor_out: Rate,
    /// Minimum rate from them.
    pub floor_in: Rate,
}

/// Demand of one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairDemand {
    /// Source and destination. A pair is named once: the demands of its flows are summed.
    pub pair: PairId,
    /// On the wire; `None` = without limit.
    pub demand: Option<Rate>,
    /// The hoses that it uses, as places in the list of all: its source's, and its destination's.
    /// `None`: its VMs share none, so its F is zero.
    pub hoses: Option<(usize, usize)>,
}

impl PairDemand {
    /// The demand of a pair where each VM has one hose, listed at its number.
    pub fn of_vms(pair: PairId, demand: Option<Rate>, shares_hose: bool) -> Self {
        let places = (pair.src.0 as usize, pair.dst.0 as usize);
        Self { pair, demand, hoses: shares_hose.then_some(places) }
    }
}

/// F: hose max-min of the demands, one per pair, in their order. This is what the floors promise,
/// and also the optimal static reservation for these demands (ElasticSwitch §7, "Oktopus-like").
///
/// Progressive filling with equal weights over the hoses: the `floor_out` of each is a link for all
/// pairs that send in it, its `floor_in` for all that receive in it. Exact to 1 bit/s, rounded down.
///
/// # Panics
/// A pair names a hose that is not in `hoses`.
pub fn hose_max_min(hoses: &[Hose], demands: &[PairDemand]) -> Vec<Rate> {
    let links = hoses.iter().flat_map(|hose| [hose.floor_out, hose.floor_in]).collect();
    let flows = demands.iter().map(|d| {
        let Some((src, dst)) = d.hoses else {
            return Flow { path: Vec::new(), demand: Some(Rate::ZERO), floor: Rate::ZERO };
        };
        assert!(src.max(dst) < hoses.len(), "{} has no hose among {}", d.pair, hoses.len());
        Flow { path: vec![2 * src, 2 * dst + 1], demand: d.demand, floor: Rate::ZERO }
    });
    let world = World { links, flows: flows.collect() };
    allocate(&world).expect("two hoses on every path, and nothing owed on them").rates
}
