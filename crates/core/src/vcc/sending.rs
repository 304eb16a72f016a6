//! The guest as sender: a window of the law beside the receiver's.
//!
//! Problem   The guest's own window does not heed marks, and cannot be read from outside.
//! Approach  What is in flight is known from both directions. The first mark makes it W; from there
//!           W is the law's: what is shown falls to the congestion control's target over a window
//!           of acknowledgements, then grows as that has it. Losses and time-outs are the guest's
//!           to find: what it sends again tells which it was, by the duplicate acknowledgements or
//!           the silence before. What was shown cannot be taken back, and receivers offer
//!           megabytes; so before the first mark no more is shown than a guest that doubles could
//!           use.
//! Promises  Until something was marked, a guest is shown twice what it ever had in flight, 64 kB
//!           at least, or what is offered; without ECN, nothing is lowered but by a budget. One cut
//!           until all that was in flight is acknowledged; W does not grow meanwhile, except after
//!           a time-out. W grows only while at least half of it is used. Duplicates of an
//!           acknowledgement show one window. Acknowledgements of the past, or of what was never
//!           sent, are not edited but for ECE and CWR. No mark cuts W while the pair sends no more
//!           than its floor.
//! Not here  Dropping what is beyond the window.
//! Source    vCC §3.2, the patch's three modes; RFC 5681 §3.1, §3.2; RFC 6937 §3.1 as Linux has it
//!           (`tcp_cwnd_reduction`), for guests with ECN fall so; RFC 7661 in its simplest form.
//!           Departs: the patch reads the guest's cwnd at the first mark, the flight size stands
//!           for it; it falls by one for every two acknowledged, whatever the target; it shows W
//!           itself, here min(advertised, W).

use super::Terms;
use super::flow::{Flow, Phase, WINDOW_MOST, past};
use super::segment::{ACK, ECE, Edit, FIN, Segment};

/// Duplicates of an acknowledgement that mean a loss (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;

/// Least window that a guest is shown before the first mark, octets: all that the window of a SYN
/// can say.
const AHEAD_LEAST: u32 = 65_535;

/// Why W is cut.
#[derive(Clone, Copy)]
enum Cause {
    Mark,
    Loss,
}

/// The guest sends. Returns whether it is new data, within the window.
pub(super) fn sent(flow: &mut Flow, segment: &Segment, terms: &Terms) -> bool {
    let end = segment.end();
    let is_again = past(flow.nxt, segment.seq);
    let has_data = segment.octets > 0;
    let last = segment.seq.wrapping_add(segment.payload());
    let is_fresh = has_data && !is_again && !past(last, flow.edge);
    if flow.reaches(end) {
        if flow.una == flow.nxt {
            flow.progress = segment.at;
        }
        flow.nxt = end;
    }
    if has_data && is_again && !past(flow.una, segment.seq) {
        let waited = segment.at.wrapping_sub(flow.progress);
        if segment.seq == flow.una && waited >= terms.patience {
            time_out(flow, segment.at);
        } else if flow.dups >= DUPLICATES && flow.is_throttled() && !flow.is(Flow::CUT) {
            cut(flow, flow.window, Cause::Loss);
        }
    }
    is_fresh
}

/// Something is acknowledged to the guest.
pub(super) fn acknowledged(flow: &mut Flow, segment: &Segment, terms: &Terms, edit: &mut Edit) {
    if !segment.has(ACK) || past(flow.una, segment.ack) || past(segment.ack, flow.nxt) {
        return;
    }
    let flight = flow.nxt.wrapping_sub(flow.una);
    let acked = segment.ack.wrapping_sub(flow.una);
    if flow.phase == Phase::Open {
        flow.window = flow.window.max(flight);
    }
    if acked > 0 {
        flow.una = segment.ack;
        flow.dups = 0;
        if flow.is(Flow::CUT) && past(segment.ack, flow.recover) {
            flow.unset(Flow::CUT);
            if flow.phase == Phase::Reduce {
                reach(flow);
            }
        }
        if flow.is(Flow::ECN) {
            flow.translation.control().observe(flow, segment, acked);
        }
    } else if is_duplicate(flow, segment) {
        flow.dups += 1;
    }
    // A receiver that is full answers probes; none is due to be acknowledged.
    if acked > 0 || segment.window == 0 {
        flow.progress = segment.at;
    }
    if flow.is(Flow::ECN) && segment.has(ECE) && !flow.is(Flow::CUT) {
        if terms.is_within != 0 {
            // The echo ends all the same: the next one tells of a later mark.
            flow.set(Flow::CWR_DUE);
        } else {
            let before = if flow.is_throttled() { flow.window } else { flight };
            cut(flow, before, Cause::Mark);
        }
    }
    if acked > 0 {
        follow(flow, acked, flight, segment.at);
    }
    edit.window = shown(flow, segment, terms);
}

/// One more of the same acknowledgement. Whether the window is the same is not known; so a loss is
/// one only when the guest sends again.
fn is_duplicate(flow: &Flow, segment: &Segment) -> bool {
    let is_pure = segment.octets == 0 && !segment.has(FIN) && segment.window > 0;
    is_pure && flow.una != flow.nxt && flow.dups < DUPLICATES
}

/// W is `before`, and what is shown begins to fall from it.
fn cut(flow: &mut Flow, before: u32, cause: Cause) {
    let control = flow.translation.control();
    let floor = flow.floor();
    flow.window = before.max(floor);
    let target = match cause {
        Cause::Mark => control.after_mark(flow),
        Cause::Loss => control.after_loss(flow),
    };
    flow.target = target.max(floor);
    flow.acked = 0;
    close(flow);
    flow.enter(Phase::Reduce);
}

/// The guest's timer expired: so has W, down to its floor.
fn time_out(flow: &mut Flow, at: u32) {
    flow.progress = at;
    flow.dups = 0;
    if !flow.is_throttled() {
        return;
    }
    if !flow.is(Flow::CUT) {
        flow.target = flow.translation.control().after_loss(flow).max(flow.floor());
    }
    flow.window = flow.floor();
    flow.acked = 0;
    close(flow);
    flow.enter(Phase::SlowStart);
}

/// No further cut for what is in flight now.
fn close(flow: &mut Flow) {
    flow.recover = flow.nxt;
    flow.set(Flow::CUT);
    if flow.is(Flow::ECN) {
        flow.set(Flow::CWR_DUE);
    }
}

/// W is what the cut asked for.
fn reach(flow: &mut Flow) {
    flow.window = flow.target;
    flow.acked = 0;
    flow.enter(Phase::Avoid);
}

/// W after `acked` octets of the `flight` were acknowledged.
fn follow(flow: &mut Flow, acked: u32, flight: u32, at: u32) {
    let is_used = flight >= flow.window / 2;
    match flow.phase {
        Phase::Reduce => {
            flow.acked = flow.acked.saturating_add(acked);
            if flow.una == flow.nxt {
                reach(flow);
            }
        }
        Phase::SlowStart => {
            if is_used {
                flow.window = flow.window.saturating_add(acked);
            }
            if flow.window >= flow.target {
                flow.window = flow.target;
                flow.enter(Phase::Avoid);
            }
        }
        Phase::Avoid if is_used && !flow.is(Flow::CUT) => {
            flow.translation.control().grow(flow, acked, at);
            flow.window = flow.window.min(WINDOW_MOST);
        }
        _ => {}
    }
}

/// What may be in flight on the way from W to its target, as Linux's own cwnd has it: for what was
/// acknowledged since the cut, target / W of it may go, in whole segments and rounded up. Nothing
/// more goes once no more than the target is in flight, but the one segment that answers the mark.
fn falling(flow: &Flow) -> u32 {
    let (segment, flight) = (flow.segment(), flow.nxt.wrapping_sub(flow.una));
    let is_answered = flow.acked == 0 || flow.nxt != flow.recover;
    let most = if flight > flow.target {
        let part = u64::from(flow.window.saturating_sub(flow.target));
        let less = u64::from(flow.acked) * part / u64::from(flow.window.max(1));
        flow.window.saturating_sub(less as u32).next_multiple_of(segment)
    } else if is_answered {
        flow.target
    } else {
        flight + segment
    };
    most.max(flow.target)
}

/// The window that the guest is shown. No less than what it was shown before, unless the receiver
/// takes it back.
fn shown(flow: &mut Flow, segment: &Segment, terms: &Terms) -> u16 {
    let shift = u32::from(flow.scale & 15);
    let advertised = u32::from(segment.window) << shift;
    let window = if flow.phase == Phase::Reduce {
        falling(flow)
    } else if flow.is_throttled() {
        flow.window
    } else if flow.is(Flow::ECN) {
        (2 * flow.window).max(AHEAD_LEAST)
    } else {
        u32::MAX
    };
    let most = window.min(terms.share).max(flow.floor());
    let ahead = flow.edge.wrapping_sub(segment.ack);
    let promised = if past(flow.edge, segment.ack) { ahead } else { 0 };
    let want = most.max(promised);
    let mut field = segment.window;
    if want < advertised {
        // Rounded up; below what is advertised all the same, for that is whole.
        field = ((want + (1 << shift) - 1) >> shift) as u16;
    }
    let edge = segment.ack.wrapping_add(u32::from(field) << shift);
    if past(edge, flow.edge) {
        flow.edge = edge;
    }
    field
}
