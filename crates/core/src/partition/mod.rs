//! Divides a VM's hose guarantee among the peers it talks to.
//!
//! Problem   A hose promises a VM a rate to anyone; a limiter and a link need a rate per pair.
//! Approach  Both ends estimate demands from throughput and split max-min; the receiver offers its
//!           part to the sender, and the pair gets the smaller of the two parts.
//! Promises  The parts of one VM never exceed its hose, whatever becomes of the messages: a
//!           receiver counts an older, larger offer as spent until the sender echoes the smaller
//!           one. For stationary demands the parts converge to max-min within the margin. An active
//!           pair is always estimated at something, so that it can show that it wants more.
//! Not here  How far a pair may exceed its part: see `rate`. Measuring, and the transport of
//!           messages.
//! Source    ElasticSwitch §4. Departs: see [`PartitionConfig`], field by field, and below.
//!
//! # How to drive it
//!
//! | when | sender ([`SendHose`]) | receiver ([`ReceiveHose`]) |
//! | --- | --- | --- |
//! | a pair's first packet | `see`, then `floor` | `see`, then send `offer` |
//! | a few ms after new pairs | `floor` of all | send `offer` of all whose part changed |
//! | a message | `offer` → send the echo if one is due | `echo` → true: as after new pairs |
//! | every period (60 ms) | `step`, then `floor` of all, send the `notes` | `step`, then send `offer` of all |
//!
//! # Where the paper is silent, or this departs
//!
//! - The paper calls a pair bounded if it uses less than its guarantee by a margin (here 0.9) and
//!   then estimates a little more than it used (here 1.1). With one margin a steady demand swings
//!   between its estimate and the fair share, since 1/1.1 > 0.9. A guarantee that is itself an
//!   estimate therefore counts as used up from 0.95 on ([`PartitionConfig::margin_steady`]).
//! - What a bounded pair is estimated above its use is missing to the pairs that want more: two
//!   steady pairs beside one take up to a seventh of its part. So a pair that has been steady for
//!   half a second is estimated at 1.05 of its use ([`PartitionConfig::margin_rest`]).
//! - A sender sees the pair's queue, if its data plane says what waits ([`SendHose::waited`]). A pair
//!   that is never empty wants more than it has, however little it could send; one that was not
//!   empty once is not estimated below what it had.
//! - A pair that used up less than the small start may have sent one burst: its estimate is a guess.
//!   So is that of a new pair. Where a hose has no room for all demands, all guesses together get
//!   what the sure demands leave, or one small start (docs/decisions/0042-guesses.md).
//! - A sender compares what it measures with the smaller of both parts, which is what was in force;
//!   its own part alone would call every pair bounded whose receiver doubles half a period later.
//! - What is left over when all are bounded is not given to a receiver's pairs of less than one
//!   period: the first of three hundred would get the whole hose, and have to give it back.
//! - A receiver sees what arrives, borrowed or not: a pair that borrows looks as if its demand were
//!   that large. In the paper it is given a part that its sender's hose may not cover, at the cost
//!   of other pairs' floors. So a sender says the most that its own hose has for the pair
//!   ([`Echo::most`](crate::message::Echo::most)), and the receiver keeps no more. That is the
//!   pair's share if it alone were without limit at the sender: it does not depend on what the
//!   receiver offers, so the two ends cannot hold each other down. (The advertised rate of Charny,
//!   Clark and Jain, "Congestion control with explicit rate indication", ICC 1995, between two
//!   hoses.)
//! - Not counted at the receiver: a pair that it does not know yet, or no longer, holds up to the
//!   small start at its sender. The paper's rule gives it up to the sender's share, so 300 senders
//!   of one receiver take 300 shares.

mod account;
mod estimate;
mod maxmin;
mod receive;
mod send;
mod trip;

pub use crate::message::Backlog;
pub use estimate::Want;
pub use maxmin::{Demand, hand_out, max_min};
pub use receive::{ReceiveHose, Spent};
pub use send::{Heard, SendHose};

use weir_units::{Bytes, Rate, Span};

/// All constants of guarantee partitioning. The default holds the decided values.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PartitionConfig {
    /// Part of its guarantee below which a pair counts as bounded. Larger: a pair that has just
    /// reached its guarantee may be cut; smaller: unused guarantees return later. Paper: "by a
    /// significant error margin".
    pub margin_bounded: f64,
    /// The same for a guarantee that is itself an estimate of the pair's demand. Above
    /// 1/`margin_estimate`, or a steady demand never rests. Not in the paper.
    pub margin_steady: f64,
    /// A bounded pair's next estimate, in units of what it used. Paper: "plus an error margin".
    pub margin_estimate: f64,
    /// The same for a pair that was steady for half a second, in units of the most that it used
    /// since. Larger: other pairs of a full hose have less; smaller: a shaper that is not exact
    /// hides that the pair wants more. Not in the paper.
    pub margin_rest: f64,
    /// No pair is bounded before its guarantee was worth so many octets: one that sends a packet or
    /// two in a period is counted over several. Not in the paper, whose pairs send eight and more.
    pub least_judged: Bytes,
    /// But before this time is over.
    pub judged_within: Span,
    /// The least small start: demand estimate of a new pair. Goes with the link's rate. Paper: "a
    /// small value".
    pub small_start: Rate,
    /// The small start is this part of the hose, if that is more.
    pub small_start_divisor: u64,
    /// No active pair is estimated below this part of the small start, so that it can show that it
    /// wants more; with more pairs than this, below an equal part of the small start. Not in the
    /// paper, where a pair that paused would be left with nothing.
    pub trickle_divisor: u64,
    /// A pair that used its guarantee up is estimated at this many times of it. Paper:
    /// "exponentially".
    pub growth: f64,
    /// Time without octets after which a pair is over. Paper: silent.
    pub idle_after: Span,
    /// Time without an offer after which a receiver counts as silent. No message lives longer.
    pub silent_after: Span,
    /// Time for which a silent receiver's last offer stays in force. Then the small start follows.
    pub silent_hold: Span,
    /// Time without an echo after which a receiver asks for one, for the round trip and for the
    /// most of the sender's hose.
    pub ask_every: Span,
    /// Time for which a receiver believes the most of a sender's hose. Not shorter than three times
    /// `ask_every`, since two messages in a row may be lost.
    pub most_lives: Span,
    /// Most peers of one hose. Further ones are refused and counted: they have no floor.
    pub max_peers: usize,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            margin_bounded: 0.9,
            margin_steady: 0.95,
            margin_estimate: 1.1,
            margin_rest: 1.05,
            least_judged: Bytes::new(8 * 1514),
            judged_within: Span::from_millis(500),
            small_start: Rate::from_mbps(1),
            small_start_divisor: 64,
            trickle_divisor: 16,
            growth: 2.0,
            idle_after: Span::from_secs(1),
            silent_after: Span::from_millis(600),
            silent_hold: Span::from_secs(5),
            ask_every: Span::from_millis(300),
            most_lives: Span::from_millis(1200),
            max_peers: 4096,
        }
    }
}

impl PartitionConfig {
    /// The demand estimate of a new pair on a hose of `hose`, before it is cut to the fair share.
    pub fn small_start_of(&self, hose: Rate) -> Rate {
        self.small_start.max(hose.mul_ratio(1, self.small_start_divisor)).min(hose)
    }

    /// The smallest demand estimate of an active pair on a hose of `hose` that `pairs` share. All
    /// of them together have no more than one small start.
    fn trickle_of(&self, hose: Rate, pairs: usize) -> Rate {
        let divisor = usize::try_from(self.trickle_divisor).unwrap_or(usize::MAX);
        self.small_start_of(hose).split(divisor.max(pairs))
    }

    /// How long after the last offer a sender still holds it.
    pub(crate) fn held_for(&self) -> Span {
        self.silent_after + self.silent_hold
    }
}

/// Whether a pair may exceed its floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Borrowing {
    /// As rate allocation decides.
    Allowed,
    /// The receiver is silent and would report no congestion, so what is borrowed decays.
    Decaying {
        /// Since the last offer, or since the pair began.
        silent_for: Span,
    },
}

/// Whether serial `a` is older than `b`, modulo 2³².
const fn older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
