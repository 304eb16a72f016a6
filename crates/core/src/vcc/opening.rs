//! How connections begin: ECN in the guest's place, and what windows mean.
//!
//! Problem   A window means nothing without the shift that both SYNs agreed on, and ECN is agreed
//!           on in SYNs alone; they cross, are lost and repeated, carry data (TFO), and may come
//!           from any sender.
//! Approach  A guest that does not ask for ECN is asked for: its SYN leaves as one that does, the
//!           answer's ECE is taken out. A guest that does not answer a SYN that asks is answered
//!           for. The third SYN asks no more: there are paths that drop those that ask (RFC 3168
//!           §6.1.1.1). With `dctcp` a SYN also says that its port reads reports, and the answer to
//!           such a one says the same.
//! Promises  A guest that speaks ECN by itself keeps what it says (with `auto` as long as it heeds
//!           it: `watch`). A flow that was not seen from both SYNs on, or of which SYNs contradict
//!           each other, is left alone. SYNs change in ECE and CWR, and in that option, only. The
//!           window of a SYN is not scaled, and the guest's right edge begins with it.
//! Source    RFC 3168 §6.1.1, RFC 7323 §2.2, RFC 9293 §3.5, RFC 7413; the paper is silent.

use super::flow::{Flow, MSS_LEAST, Phase, past};
use super::segment::{ACK, AE, CWR, ECE, Edit, Segment, Way};
use super::{Terms, Translation, watch};

/// SYNs of a guest that ask for ECN.
const ASKING: u8 = 2;
/// The largest shift (RFC 7323 §2.3).
const SCALE_MOST: u8 = 14;
/// What timestamps take of each segment, aligned (RFC 7323 appendix A).
const STAMPS: u16 = 12;

/// The guest sends a SYN, with or without an ACK.
pub(super) fn asked(flow: &mut Flow, segment: &Segment, terms: &Terms, edit: &mut Edit) {
    let first = segment.seq.wrapping_add(1);
    let is_known = flow.phase != Phase::Alone && !flow.is_over();
    if is_known && flow.is(Flow::SYN_OUT) && first == flow.una {
        if (segment.scale > 0) != flow.is(Flow::SCALE_OUT) {
            flow.enter(Phase::Alone);
            return;
        }
    } else {
        let is_reply = is_known && flow.is(Flow::SYN_IN) && !flow.is(Flow::SYN_OUT);
        if !is_reply {
            flow.begin(terms);
            // It answers something that was not seen.
            if segment.has(ACK) {
                flow.enter(Phase::Alone);
                return;
            }
        }
        flow.set(Flow::SYN_OUT | if segment.scale > 0 { Flow::SCALE_OUT } else { 0 });
        flow.set(if segment.stamps > 0 { Flow::STAMPS_OUT } else { 0 });
        flow.una = first;
        flow.nxt = first;
        flow.progress = segment.at;
    }
    let end = first.wrapping_add(segment.payload());
    if past(end, flow.nxt) {
        flow.nxt = end;
    }
    take_mss(flow, segment);
    ask(flow, segment, edit);
    watch::agreed(flow, segment);
}

/// ECN, in a SYN of the guest.
fn ask(flow: &mut Flow, segment: &Segment, edit: &mut Edit) {
    if flow.translation == Translation::None || flow.is(Flow::SPEAKS) {
        return;
    }
    if segment.has(ECE | CWR | AE) {
        flow.set(Flow::SPEAKS);
        flow.unset(Flow::ASKED | Flow::ECN);
    } else if segment.has(ACK) {
        if flow.is(Flow::PEER_ASKED) {
            edit.flags |= ECE;
            flow.set(Flow::ECN);
            if flow.is_reading() {
                edit.what |= Edit::TELL;
            }
        }
    } else if flow.phase == Phase::Opening && flow.dups < ASKING {
        flow.dups += 1;
        edit.flags |= ECE | CWR;
        flow.set(Flow::ASKED);
        if flow.translation == Translation::Dctcp {
            edit.what |= Edit::TELL;
        }
    } else {
        // A sender of one SYN that does not ask must not mark (RFC 3168 §6.1.1).
        flow.unset(Flow::ASKED);
    }
}

/// The peer sends a SYN, with or without an ACK.
pub(super) fn answered(flow: &mut Flow, segment: &Segment, terms: &Terms, edit: &mut Edit) {
    let is_answer = segment.has(ACK);
    if flow.is_established() && !flow.is_over() {
        // A repeated answer; or a SYN that the guest will challenge (RFC 5961 §4).
        hide(flow, segment, edit);
        return;
    }
    let is_begun = flow.phase == Phase::Opening && !flow.is_over();
    if is_answer {
        if !is_begun || !flow.is(Flow::SYN_OUT) {
            flow.enter(Phase::Alone);
            return;
        }
        // Not for this SYN: the guest will refuse it.
        if past(flow.una, segment.ack) || past(segment.ack, flow.nxt) {
            return;
        }
    } else if !is_begun {
        flow.begin(terms);
    } else if flow.is(Flow::SYN_IN) {
        let is_same = segment.seq == flow.recover;
        let is_repeated = is_same && (segment.scale > 0) == flow.is(Flow::SCALE_IN);
        if !is_repeated && (is_same || flow.is(Flow::SYN_OUT)) {
            flow.enter(Phase::Alone);
            return;
        }
        if !is_repeated {
            flow.begin(terms);
        }
    }
    record(flow, segment);
    agree(flow, segment);
    watch::agreed(flow, segment);
    hide(flow, segment, edit);
    if is_answer {
        establish(flow, segment);
        flow.una = segment.ack;
    }
}

/// What the peer's SYN says of windows.
fn record(flow: &mut Flow, segment: &Segment) {
    flow.recover = segment.seq;
    if segment.scale > 0 {
        flow.set(Flow::SCALE_IN);
        flow.scale = (segment.scale - 1).min(SCALE_MOST);
    } else {
        flow.unset(Flow::SCALE_IN);
        flow.scale = 0;
    }
    flow.unset(Flow::STAMPS_IN);
    flow.set(if segment.stamps > 0 { Flow::STAMPS_IN } else { 0 });
    if flow.translation == Translation::Dctcp {
        flow.alpha = u16::from(segment.told != 0);
    }
    let ahead = if segment.has(ACK) { segment.ack.wrapping_sub(flow.una) } else { 0 };
    flow.edge = flow.edge.max(ahead + u32::from(segment.window));
    take_mss(flow, segment);
}

/// What the peer's SYN says of ECN.
fn agree(flow: &mut Flow, segment: &Segment) {
    let ecn = segment.flags & (ECE | CWR);
    let is_first = !flow.is(Flow::SYN_IN);
    flow.set(Flow::SYN_IN);
    if segment.has(ACK) {
        if ecn == ECE && flow.is(Flow::ASKED) {
            flow.set(Flow::ECN);
        } else {
            flow.unset(Flow::ECN);
        }
    } else if ecn != (ECE | CWR) {
        flow.unset(Flow::PEER_ASKED | Flow::ECN);
    } else if is_first {
        flow.set(Flow::PEER_ASKED);
    }
}

/// The answer's ECN is not for a guest that did not ask. A SYN's is: how it answers tells whether
/// it speaks ECN.
fn hide(flow: &Flow, segment: &Segment, edit: &mut Edit) {
    let is_ours = flow.translation != Translation::None && !flow.is(Flow::SPEAKS);
    if is_ours && segment.has(ACK) && flow.is(Flow::SYN_OUT) {
        edit.flags &= !(ECE | CWR);
    }
    if flow.translation != Translation::None && segment.told != 0 {
        edit.what |= Edit::TAKE;
    }
}

/// Something that is not a SYN passes while the flow opens.
pub(super) fn finished(flow: &mut Flow, segment: &Segment) {
    let has_both = flow.is(Flow::SYN_OUT) && flow.is(Flow::SYN_IN);
    match segment.way {
        Way::Out if !has_both => flow.enter(Phase::Alone),
        // Data of a server that need not wait (TFO).
        Way::Out => {
            if flow.reaches(segment.end()) {
                flow.nxt = segment.end();
            }
        }
        Way::In => {
            let covers = !past(flow.una, segment.ack) && !past(segment.ack, flow.nxt);
            if has_both && segment.has(ACK) && covers {
                establish(flow, segment);
            }
        }
    }
}

/// Both ends know of each other.
fn establish(flow: &mut Flow, segment: &Segment) {
    if !(flow.is(Flow::SCALE_OUT) && flow.is(Flow::SCALE_IN)) {
        flow.scale = 0;
    }
    if flow.is(Flow::STAMPS_OUT) && flow.is(Flow::STAMPS_IN) {
        flow.mss = flow.mss.max(MSS_LEAST) - STAMPS;
    }
    flow.edge = flow.edge.wrapping_add(flow.una);
    flow.recover = 0;
    flow.dups = 0;
    flow.progress = segment.at;
    flow.unset(Flow::READS);
    flow.set(if flow.is_reading() { Flow::READS } else { 0 });
    flow.translation.control().begin(flow);
    flow.enter(Phase::Open);
}

fn take_mss(flow: &mut Flow, segment: &Segment) {
    let mss = segment.mss.max(MSS_LEAST);
    flow.mss = if flow.mss == 0 { mss } else { flow.mss.min(mss) };
}
