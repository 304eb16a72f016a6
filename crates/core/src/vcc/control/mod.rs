//! How W grows, and what it falls to: the part in which translations differ.
//!
//! Problem   A fabric has one congestion control, its guests have many: each law shall be exchangeable, and run in BPF.
//! Approach  One trait with few edges, a file for each law. Whole numbers; a law's own state is [`Flow::law`], five
//!           words whose meaning each file says.
//! Promises  What a law answers is not above W, and whole segments. No division by zero, no loop without a bound.
//! Not here  When to cut, and that W has a floor: see `sending`.

mod cubic_ecn;
mod dctcp;
mod virtual_ecn;

use super::Translation;
use super::flow::Flow;
use super::segment::Segment;

/// A congestion control, for a flow in which W counts.
pub(super) trait Control {
    /// The flow is established.
    fn begin(&self, _flow: &mut Flow) {}

    /// `acked` octets of the flow were acknowledged by `segment`, in whatever phase.
    fn observe(&self, _flow: &mut Flow, _segment: &Segment, _acked: u32) {}

    /// What W shall fall to, octets: marks were reported.
    fn after_mark(&self, flow: &mut Flow) -> u32;

    /// What W shall fall to, octets: something was lost.
    fn after_loss(&self, flow: &mut Flow) -> u32;

    /// W grows, since `acked` octets were acknowledged.
    fn grow(&self, flow: &mut Flow, acked: u32, at: u32);

    /// Whether everything is sent such that ports may mark it.
    fn marks_all(&self) -> bool {
        false
    }
}

impl Translation {
    /// The law. Without a translation nothing asks it: such a flow has no ECN, so no W.
    pub(super) fn control(self) -> &'static dyn Control {
        match self {
            Self::None | Self::VirtualEcn | Self::Auto => &virtual_ecn::VirtualEcn,
            Self::Dctcp => &dctcp::Dctcp,
            Self::CubicEcn => &cubic_ecn::CubicEcn,
        }
    }
}

/// Counts what is acknowledged; whether it comes to another whole W. At most once per acknowledgement.
fn has_grown(flow: &mut Flow, acked: u32) -> bool {
    flow.acked = flow.acked.saturating_add(acked);
    let is_whole = flow.acked >= flow.window;
    if is_whole {
        flow.acked = (flow.acked - flow.window).min(flow.window);
    }
    is_whole
}

/// A segment for each W acknowledged (RFC 5681 §3.1, counted in octets).
fn linear(flow: &mut Flow, acked: u32) {
    if has_grown(flow, acked) {
        flow.window = flow.window.saturating_add(flow.segment());
    }
}
