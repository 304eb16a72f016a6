//! Virtual ECN: half for marks, a segment more per window. The paper's.
//!
//! What W falls to is a number of whole segments, as in Linux, and it grows by whole ones: guests send no others, and
//! of W in octets half of one would be wasted on average, which of a share of six is much.
//!
//! Source    vCC §3.2 and the authors' patch; RFC 3168 §6.1.2, RFC 5681 §3.1.

use super::{Control, linear};
use crate::vcc::flow::Flow;

pub(super) struct VirtualEcn;

impl Control for VirtualEcn {
    fn after_mark(&self, flow: &mut Flow) -> u32 {
        flow.whole(flow.window / 2)
    }

    fn after_loss(&self, flow: &mut Flow) -> u32 {
        flow.whole(flow.window / 2)
    }

    fn grow(&self, flow: &mut Flow, acked: u32, _at: u32) {
        linear(flow, acked);
    }
}
