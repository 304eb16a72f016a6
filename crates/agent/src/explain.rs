//! What a machine tells of a pair, as the status has it: with the names of VMs.
//!
//! Not here  The reasons themselves: each mechanism's `explain` in `weir_core`.

use crate::config::Names;
use weir_core::mechanism::PairView;
use weir_core::mechanism::explain::{self, Facts, Named, Summary};
use weir_model::status::{Explain, LongPath, Pair};
use weir_units::HoseId;

/// One row of `weir top`.
pub(crate) fn row(view: &PairView, names: &Names) -> Pair {
    let Summary { side, hose, floor, rate, measured, phase, lost, marked, long_path, .. } =
        view.summary();
    let condition = |long: explain::LongPath| LongPath {
        round_trip_us: long.round_trip.as_nanos() / 1000,
        percent_of_floor: long.percent_of_floor,
    };
    Pair {
        from: names.name(view.pair().src),
        to: names.name(view.pair().dst),
        side: side.to_string(),
        hose: hose.map(|id| hose_name(names, id)),
        floor_bps: floor.as_bps(),
        rate_bps: rate.as_bps(),
        measured_bps: measured.as_bps(),
        phase,
        lost,
        marked,
        long_path: long_path.map(condition),
    }
}

fn hose_name(names: &Names, id: HoseId) -> String {
    names.hoses().name(id).map_or_else(|| id.to_string(), str::to_owned)
}

/// Why a pair has its rate.
pub(crate) fn explain(view: &PairView, names: &Names, facts: &Facts) -> Explain {
    let (src, dst) = (names.name(view.pair().src), names.name(view.pair().dst));
    let pair = row(view, names);
    let named = Named { src: &src, dst: &dst, hose: pair.hose.as_deref() };
    let reasons = view.reasons(named, facts);
    Explain { pair, reasons }
}
