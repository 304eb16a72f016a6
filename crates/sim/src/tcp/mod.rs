//! TCP without its octets: two pure machines that count segments.
//!
//! Problem   A TCP that is simulated a million times a second needs the parts that decide about
//!           rates, all of them, and none of the rest.
//! Approach  [`Sender`] and [`Receiver`] are state machines; time comes as an argument, packets are
//!           what they return. Sequence numbers count segments, whose borders never move. Timers
//!           are instants to look at: re-arming one is a store.
//! Promises  No clock, no chance; no allocation while nothing is lost and the window is not greater
//!           than before.
//! Not here  The handshake (long-lived flows begin established; others open with a segment of their
//!           own: see `exchange`) and the FIN (the last segment is acknowledged at once), Nagle,
//!           window updates (the application reads at once).
//! Source    RFC 9293, 5681, 6298, 6582, 6675, 3042 (by the pipe), 2883, 8985, 3168, 8257, 9438.

mod bits;
mod board;
mod control;
mod prr;
mod rack;
mod receiver;
mod rtt;
mod sender;
mod stamps;
mod ticks;

pub use control::Algorithm;
pub(crate) use receiver::{Ack, Receiver};
pub(crate) use sender::Sender;

use weir_units::{Bytes, Span};

/// An instant that does not come.
pub(crate) const NEVER: u64 = u64::MAX;

/// How TCP ends behave. One for all flows of a run, but for the algorithm.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig {
    /// Congestion control of flows that name none.
    pub algorithm: Algorithm,
    /// Segments to begin with (RFC 6928).
    pub initial_window: u32,
    /// What the receiver offers, in octets of payload; whole segments of it are used. Bounded to
    /// 65536 segments.
    pub receive_window: Bytes,
    /// An ACK for so many segments in order (RFC 5681 §4.2: two); 1 for each.
    pub ack_every: u32,
    /// A segment in order waits so long for its ACK, at most (RFC 9293 §3.8.6.3).
    pub ack_delay: Span,
    /// Segments that are acknowledged one by one: the first ones, those after a pause, and those
    /// after one that came in vain.
    pub quick_acks: u32,
    /// The retransmission timeout is at least so much more than the round trip.
    pub min_rto: Span,
    /// It is not more than this, back-off included.
    pub max_rto: Span,
    /// It is this before the first round-trip time is known.
    pub initial_rto: Span,
    /// Timers are those of a kernel with ticks of this length: they expire on a grid of its own, up
    /// to some eighth of their time late. To the nanosecond if it is zero.
    pub tick: Span,
    /// Timestamps: what was sent again measures the round-trip time, too (RFC 7323 §4.1).
    pub timestamps: bool,
    /// Reno and CUBIC negotiate ECN (RFC 3168); DCTCP always does.
    pub ecn: bool,
    /// Losses are found by time, and by a probe after a silence (RACK-TLP, RFC 8985), and ACKs tell
    /// what came in vain (RFC 2883). Else SACKed segments above a hole make it a loss, and what is
    /// lost at the end waits for the retransmission timer.
    pub rack: bool,
    /// SACKed segments above a hole that make it a loss (RFC 6675's DupThresh; at least one).
    /// With RACK they do as long as nothing has been overtaken. At least 300 for flows whose
    /// packets take several ways: Linux adapts to those, up to its `tcp_max_reordering`.
    pub dup_thresh: u32,
    /// CUBIC leaves slow start when round trips grow longer or ACKs come in long trains (HyStart,
    /// as Linux has it).
    pub hystart: bool,
}

impl Default for TcpConfig {
    /// Linux's values, but for ticks, timestamps and HyStart.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Dctcp,
            initial_window: 10,
            receive_window: Bytes::new(6 << 20),
            ack_every: 2,
            ack_delay: Span::from_millis(40),
            quick_acks: 16,
            min_rto: Span::from_millis(200),
            max_rto: Span::from_secs(120),
            initial_rto: Span::from_secs(1),
            tick: Span::ZERO,
            timestamps: false,
            ecn: true,
            rack: true,
            dup_thresh: 3,
            hystart: false,
        }
    }
}

/// Segments `.0` to `.1`, the last not included.
pub(crate) type Block = (u32, u32);

/// The SACK blocks an ACK carries: three, as with timestamps (RFC 2018 §3).
pub(crate) const BLOCKS: usize = 3;

/// SACK blocks on their way: few ACKs have any, so packets do not carry them but point here.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    table: Vec<([Block; BLOCKS], u8)>,
    free: Vec<u32>,
}

impl Blocks {
    pub(crate) fn put(&mut self, blocks: &[Block]) -> u32 {
        let count = blocks.len().min(BLOCKS);
        let mut entry = ([(0, 0); BLOCKS], count as u8);
        entry.0[..count].copy_from_slice(&blocks[..count]);
        if let Some(id) = self.free.pop() {
            self.table[id as usize] = entry;
            return id;
        }
        self.table.push(entry);
        self.table.len() as u32 - 1
    }

    pub(crate) fn take(&mut self, id: u32) -> ([Block; BLOCKS], usize) {
        self.free.push(id);
        let (blocks, count) = self.table[id as usize];
        (blocks, usize::from(count))
    }
}
