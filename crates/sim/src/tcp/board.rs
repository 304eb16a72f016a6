//! A sender's scoreboard: segments that SACK reported, segments that are lost, and retransmissions.
//!
//! Problem   With cumulative ACKs alone a window with several losses takes a round-trip time for
//!           each, or a timeout.
//! Approach  Two bits per segment of the window: SACKed, and retransmitted. A segment below the
//!           edge that is not SACKed is lost. The edge is the third-highest SACKed segment, or
//!           later by time (RACK). Counters are kept beside the bits, so the pipe is a subtraction.
//! Promises  Bounded by the receive window. A segment is retransmitted once per edge. It is
//!           retransmitted again only when three segments that were sent after it are SACKed, by
//!           time, or at a timeout.
//! Not here  Losses by time: see `rack`. Rule 4, the rescue retransmission.
//! Source    RFC 6675 §§4-5: IsLost (DupThresh = 3), SetPipe, NextSeg rules 1 to 3. Departs: RFC
//!           6675 leaves a lost retransmission to the timeout. Linux finds it by later SACKs, and
//!           so do we, once no retransmission in flight can have been sent later than what arrived.

use super::bits::{Bits, count_neither, first_neither};

#[derive(Clone, Debug)]
pub(super) struct Board {
    sacked: Bits,
    resent: Bits,
    /// Segments that are SACKed.
    sacked_count: u32,
    /// Segments that are lost and not sent again: not in the network.
    lost_count: u32,
    /// Segments below are SACKed or lost.
    edge: u32,
    /// One more than the highest that is SACKed.
    high: u32,
    /// Whatever is lost below was sent again.
    scanned: u32,
    /// When a segment was sent again last, this one was the next new one.
    resent_before: u32,
}

impl Board {
    /// With nothing SACKed from `una` on.
    pub(super) fn new(window: u32, una: u32) -> Self {
        Self {
            sacked: Bits::new(window),
            resent: Bits::new(window),
            sacked_count: 0,
            lost_count: 0,
            edge: una,
            high: una,
            scanned: una,
            resent_before: una,
        }
    }

    /// Segments of `una..next` that are not in the network: the pipe is the rest.
    #[inline]
    pub(super) fn absent(&self) -> u32 {
        self.sacked_count + self.lost_count
    }

    /// Lost, and not sent again.
    pub(super) fn lost(&self) -> u32 {
        self.lost_count
    }

    /// SACKed.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked_count
    }

    /// Segments below are SACKed or lost.
    pub(super) fn edge(&self) -> u32 {
        self.edge
    }

    /// One more than the highest that is SACKed.
    pub(super) fn high(&self) -> u32 {
        self.high
    }

    /// It has arrived.
    pub(super) fn is_sacked(&self, seq: u32) -> bool {
        self.sacked.get(seq)
    }

    /// The first of `from..to` that is not SACKed; `to` if all are.
    pub(super) fn missing(&self, from: u32, to: u32) -> u32 {
        self.sacked.first_absent(from, to)
    }

    /// The first segment before `next` that is neither SACKed nor lost, nor was sent again.
    pub(super) fn hole(&self, next: u32) -> Option<u32> {
        first_neither(&self.sacked, &self.resent, self.edge, next)
    }

    /// It was lost and sent again, and that is not known to be lost.
    pub(super) fn is_resent(&self, seq: u32) -> bool {
        self.resent.get(seq)
    }

    /// The same, and it is not SACKed.
    pub(super) fn is_awaited(&self, seq: u32) -> bool {
        self.resent.get(seq) && !self.sacked.get(seq)
    }

    /// Segments from `una` to `to` are acknowledged, and forgotten. Returns how many were not
    /// SACKed.
    pub(super) fn advance(&mut self, una: u32, to: u32) -> u32 {
        if una < self.edge {
            let until = to.min(self.edge);
            self.lost_count -= count_neither(&self.sacked, &self.resent, una, until);
        }
        let known = self.sacked.remove_range(una, to);
        self.sacked_count -= known;
        self.resent.remove_range(una, to);
        self.edge = self.edge.max(to);
        self.high = self.high.max(to);
        self.scanned = self.scanned.max(to);
        to - una - known
    }

    /// Segments `from..to` are SACKed; they lie between the window's ends. Returns how many were
    /// not.
    pub(super) fn sack(&mut self, from: u32, to: u32) -> u32 {
        if from < self.edge {
            let until = to.min(self.edge);
            self.lost_count -= count_neither(&self.sacked, &self.resent, from, until);
        }
        let fresh = self.sacked.insert_range(from, to);
        self.sacked_count += fresh;
        self.high = self.high.max(to);
        fresh
    }

    /// Finds what is lost by what is SACKed from `una` on: what has `thresh` SACKed segments above
    /// it (RFC 6675's DupThresh, three). True if that is more than was known.
    pub(super) fn judge(&mut self, una: u32, thresh: u32) -> bool {
        let before = self.lost_count;
        let Some(third) = self.sacked.nth_last(una, self.high, thresh) else { return false };
        if third >= self.resent_before && self.resent_before > una {
            // What arrived was sent after all that was sent again: what is missing is lost again.
            let still = self.resent.remove_range(una, self.edge);
            if still > 0 {
                self.lost_count = count_neither(&self.sacked, &self.resent, una, self.edge);
                self.scanned = una;
            }
            self.resent_before = una;
        }
        self.lose_below(third);
        self.lost_count > before
    }

    /// What lies below `edge` and is not SACKed is lost.
    pub(super) fn lose_below(&mut self, edge: u32) {
        if edge > self.edge {
            self.lost_count += count_neither(&self.sacked, &self.resent, self.edge, edge);
            self.edge = edge;
        }
    }

    /// A segment that is awaited is lost again.
    pub(super) fn lose_again(&mut self, seq: u32) {
        self.resent.remove_range(seq, seq + 1);
        self.lost_count += 1;
        self.scanned = self.scanned.min(seq);
    }

    /// The next segment to send again, `next` being the next new one.
    pub(super) fn resend(&mut self, next: u32) -> Option<u32> {
        if self.lost_count == 0 {
            return None;
        }
        let seq = first_neither(&self.sacked, &self.resent, self.scanned, self.edge)?;
        self.resent.insert(seq);
        self.lost_count -= 1;
        self.scanned = seq + 1;
        self.resent_before = next;
        Some(seq)
    }

    /// NextSeg rule 3: a segment below a SACKed one, of which it is not known that it is lost.
    pub(super) fn suspect(&mut self, next: u32) -> Option<u32> {
        let from = self.edge.max(self.scanned);
        let seq = first_neither(&self.sacked, &self.resent, from, self.high)?;
        self.edge = seq + 1;
        self.resent.insert(seq);
        self.scanned = seq + 1;
        self.resent_before = next;
        Some(seq)
    }

    /// A timeout: all of `una..next` that is not SACKed is lost.
    pub(super) fn give_up(&mut self, una: u32, next: u32) {
        self.resent.remove_range(una, next);
        self.edge = next;
        self.scanned = una;
        self.resent_before = una;
        self.lost_count = count_neither(&self.sacked, &self.resent, una, next);
    }

    /// True if it says nothing.
    pub(super) fn is_blank(&self) -> bool {
        self.sacked_count == 0 && self.lost_count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resend_all(board: &mut Board, next: u32) -> Vec<u32> {
        std::iter::from_fn(|| board.resend(next)).collect()
    }

    #[test]
    fn holes_below_the_third_sacked_segment_are_lost() {
        let mut board = Board::new(100, 10);
        board.sack(12, 14);
        board.judge(10, 3);
        assert_eq!(board.lost(), 0, "two are reordering");
        assert!(!board.judge(10, 300) && board.judge(10, 2), "or what else is said");
        let mut board = Board::new(100, 10);
        board.sack(12, 14);
        board.sack(15, 17);
        board.judge(10, 3);
        assert_eq!((board.lost(), board.absent()), (2, 4 + 2));
        assert_eq!(resend_all(&mut board, 20), [10, 11], "14 has only two above");
        assert_eq!(board.absent(), 4);
        assert_eq!(board.suspect(20), Some(14), "rule 3");
        board.advance(10, 17);
        assert!(board.is_blank());
    }

    #[test]
    fn what_is_sent_again_and_lost_again_is_found_by_later_sacks() {
        let mut board = Board::new(100, 0);
        board.sack(1, 4);
        board.judge(0, 3);
        assert_eq!(resend_all(&mut board, 8), [0]);
        board.sack(4, 8);
        board.judge(0, 3);
        assert_eq!(board.lost(), 0, "7 and below were sent before");
        board.sack(8, 11);
        board.judge(0, 3);
        assert_eq!(resend_all(&mut board, 14), [0]);
    }

    #[test]
    fn a_timeout_spares_what_is_sacked() {
        let mut board = Board::new(100, 0);
        board.sack(2, 3);
        board.give_up(0, 5);
        assert_eq!(board.lost(), 4);
        assert_eq!(resend_all(&mut board, 5), [0, 1, 3, 4]);
        board.advance(0, 3);
        board.give_up(3, 5);
        assert_eq!(resend_all(&mut board, 5), [3, 4]);
    }

    proptest::proptest! {
        /// The counters say what the bits say, whatever happens.
        #[test]
        fn the_counters_agree_with_the_bits(steps in proptest::collection::vec((0u8..7, 0u32..40, 1u32..9), 1..80)) {
            let (mut una, mut next) = (0u32, 60u32);
            let mut board = Board::new(120, 0);
            for (what, at, len) in steps {
                match what {
                    0 => {
                        let to = (una + len).min(next);
                        _ = board.advance(una, to);
                        una = to;
                    }
                    1 | 2 => {
                        let from = (una + at).min(next);
                        board.sack(from, (from + len).min(next));
                        board.judge(una, 3);
                    }
                    3 => _ = board.resend(next),
                    4 => next = (next + len).min(una + 120),
                    5 => {
                        board.lose_below((una + at).min(next));
                        if (una..next).contains(&(una + at)) && board.is_awaited(una + at) {
                            board.lose_again(una + at);
                        }
                    }
                    _ if at < 4 => board.give_up(una, next),
                    _ => _ = board.suspect(next),
                }
                let sacked = (una..next).filter(|seq| board.sacked.get(*seq)).count() as u32;
                let lost = count_neither(&board.sacked, &board.resent, una, board.edge.max(una));
                proptest::prop_assert_eq!((board.sacked_count, board.lost_count), (sacked, lost));
                proptest::prop_assert!(board.edge <= next && board.absent() <= next - una);
            }
        }
    }
}
