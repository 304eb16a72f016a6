//! `auto`: whether a guest that agreed on ECN by itself heeds it.
//!
//! Problem   A guest that asks for ECN is taken at its word: what it sends is marked, not dropped.
//!           One that then does nothing about it takes its neighbours' share, and no port can look
//!           into it.
//! Approach  RFC 3168 says what can be seen from outside: a sender that gets ECE sets CWR with its
//!           next new data. A round begins when ECE goes to the guest, and ends when something
//!           beyond all that it had sent by then is acknowledged. Two rounds that follow each
//!           other, ECE at the beginning and at the end of both, no CWR, nothing sent again, and no
//!           less in flight than before (an eighth is no answer): a strike. CWR, or less in flight,
//!           forgives all strikes; CWR after something was sent again may answer the loss, and
//!           forgives none. With the third strike the guest is deaf in truth: the law speaks in its
//!           place from then on.
//! Promises  A guest that answers ECE within two round trips is never touched, whatever its
//!           congestion control: CWR suffices, so DCTCP's small steps and a lie do as well. Nothing
//!           counts before ECN was agreed on by both SYNs as RFC 3168 has it (not AccECN), nor
//!           while the guest sends what no port may mark.
//! Not here  Guests that do not ask: `opening` asks for them at once.
//! Source    vCC §5, where it is future work; RFC 3168 §6.1.2. How it is done is ours.
//!
//! Words of [`Flow::law`] while it is watched, of no use to the law that may follow.

use super::Translation;
use super::flow::{Flow, past};
use super::segment::{ACK, AE, CWR, ECE, NOT_ECT, Segment, Way};

/// What the guest had sent when this round began.
const END: usize = 0;
/// What was in flight when the first of both began, octets.
const FLIGHT: usize = 1;
/// Number of the round, 1 or 2; 0: none.
const ROUND: usize = 2;
/// Strikes in a row.
const STRIKES: usize = 3;
/// 1: something was sent again, and no CWR came since.
const AGAIN: usize = 4;

/// Rounds that the guest has for its answer.
const ROUNDS: u32 = 2;
/// Strikes with which the guest counts as deaf.
const STRIKES_MOST: u32 = 3;

/// A SYN passed: whether with it the guest has agreed on ECN by itself.
pub(super) fn agreed(flow: &mut Flow, segment: &Segment) {
    let is_answer = segment.has(ACK) && segment.flags & (ECE | CWR | AE) == ECE;
    let is_asked = segment.way == Way::In || flow.is(Flow::PEER_ASKED);
    let is_own = flow.translation == Translation::Auto && flow.is(Flow::SPEAKS);
    if is_answer && is_asked && is_own {
        flow.set(Flow::WATCHED);
    }
}

/// The guest sends; before its numbers are taken up.
pub(super) fn sent(flow: &mut Flow, segment: &Segment) {
    if !flow.is_watched() || segment.octets == 0 {
        return;
    }
    let is_again = past(flow.nxt, segment.seq);
    if segment.has(CWR) {
        if flow.law[AGAIN] == 0 {
            flow.law[STRIKES] = 0;
        }
        flow.law[AGAIN] = 0;
    }
    if is_again {
        flow.law[AGAIN] = 1;
    }
    if is_again || segment.has(CWR) || segment.ecn == NOT_ECT {
        flow.law[ROUND] = 0;
    }
}

/// An acknowledgement goes to the guest; before its number is taken up. With the last strike the
/// law takes over.
pub(super) fn heard(flow: &mut Flow, segment: &Segment) {
    let counts = !past(flow.una, segment.ack) && !past(segment.ack, flow.nxt);
    if !flow.is_watched() || !segment.has(ACK) || !counts {
        return;
    }
    let flight = flow.nxt.wrapping_sub(flow.una);
    if flow.law[ROUND] == 0 {
        if segment.has(ECE) {
            flow.law[END] = flow.nxt;
            flow.law[FLIGHT] = flight;
            flow.law[ROUND] = 1;
        }
    } else if past(segment.ack, flow.law[END]) {
        round(flow, flight, segment.has(ECE));
    }
}

/// A round is over: the next one begins, or it was the last.
fn round(flow: &mut Flow, flight: u32, is_told: bool) {
    if is_told && flow.law[ROUND] < ROUNDS {
        flow.law[END] = flow.nxt;
        flow.law[ROUND] += 1;
        return;
    }
    flow.law[ROUND] = 0;
    if flight < flow.law[FLIGHT] - flow.law[FLIGHT] / 8 {
        flow.law[STRIKES] = 0;
    } else if is_told {
        flow.law[STRIKES] += 1;
    }
    if flow.law[STRIKES] >= STRIKES_MOST {
        flow.law = [0; 5];
        flow.unset(Flow::WATCHED | Flow::SPEAKS);
        flow.set(Flow::ECN);
    }
}
