//! The guest as receiver: marks are answered in its place.
//!
//! Problem   A guest that did not ask for ECN ignores marks, and the sender would never hear of them.
//! Approach  A mark on data is remembered, and all acknowledgements carry ECE until the sender says CWR. Marks, ECE
//!           and CWR are taken out before the guest. For `dctcp` octets and marked octets are counted besides, and
//!           told with each acknowledgement without data, where the peer's port reads that: totals, so that a lost one loses nothing.
//! Source    RFC 3168 §6.1.3; AC/DC (PACK). Departs: AC/DC resets its counts with each report, and also sends
//!           acknowledgements of its own where a report does not fit; here ECE says the rest.

use super::Translation;
use super::flow::Flow;
use super::segment::{ACK, CE, CWR, ECE, ECT_0, Edit, FIN, NOT_ECT, Segment};

/// Words of [`Flow::law`] in which `dctcp` counts what came, and what of it was marked.
const CAME: usize = 3;
const MARKED: usize = 4;

/// A segment comes to the guest.
pub(super) fn came(flow: &mut Flow, segment: &Segment, edit: &mut Edit) {
    if !flow.is(Flow::ECN) {
        return;
    }
    if segment.has(CWR) {
        flow.unset(Flow::ECHO);
    }
    let octets = segment.payload();
    let is_marked = segment.ecn == CE && octets > 0;
    if is_marked {
        flow.set(Flow::ECHO);
    }
    if flow.translation == Translation::Dctcp {
        let marked = if is_marked { octets } else { 0 };
        flow.law[CAME] = flow.law[CAME].wrapping_add(octets);
        flow.law[MARKED] = flow.law[MARKED].wrapping_add(marked);
    }
    edit.ecn = NOT_ECT;
    edit.flags &= !(ECE | CWR);
    if segment.told != 0 {
        edit.what |= Edit::TAKE;
    }
}

/// A segment of the guest leaves; `is_fresh`: with new data, within the window.
pub(super) fn answer(flow: &mut Flow, segment: &Segment, is_fresh: bool, edit: &mut Edit) {
    if !flow.is(Flow::ECN) {
        return;
    }
    // RFC 3168 §6.1.5: neither what is sent again, nor probes of a window, nor what has no data; AC/DC: all.
    if segment.ecn == NOT_ECT && (is_fresh || flow.translation.control().marks_all()) {
        edit.ecn = ECT_0;
    }
    edit.flags &= !(ECE | CWR);
    if is_fresh && flow.is(Flow::CWR_DUE) {
        edit.flags |= CWR;
        flow.unset(Flow::CWR_DUE);
    }
    if segment.has(ACK) && flow.is(Flow::ECHO) {
        edit.flags |= ECE;
    }
    let is_pure = segment.has(ACK) && !segment.has(FIN) && segment.octets == 0;
    if is_pure && flow.translation == Translation::Dctcp && flow.is(Flow::READS) {
        (edit.told_octets, edit.told_marked) = (flow.law[CAME], flow.law[MARKED]);
        edit.what |= Edit::TELL;
    }
}
