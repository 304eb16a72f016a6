//! The receiving end: segments in order and out of order, and the times of ACKs.
//!
//! Approach  A sender that begins, or begins anew, has a small window and waits for every ACK. So
//!           Linux acknowledges its first segments one by one, and also those after a pause and
//!           after a duplicate segment.
//! Not here  The growth of its window while its application reads, which Linux also announces at
//!           once. The longer delay of ACKs for a receiver that answers what it receives.
//! Source    RFC 5681 §4.2 (delayed ACKs; out of order: at once), RFC 2018 §4 (the block that
//!           changed last first), RFC 2883 §4 (before it the segment that came in vain, if RACK is
//!           to know), RFC 3168 §6.1.3 (ECE until CWR), RFC 8257 §3.2 (a change of CE is
//!           acknowledged with what was pending, under the old state). Linux, net/ipv4/tcp_input.c
//!           (`tcp_event_data_recv`, `tcp_incr_quickack`), net/ipv4/tcp_output.c
//!           (`tcp_send_delayed_ack`: 40 ms, if the round trip is not longer).

use super::bits::Bits;
use super::ticks::Ticks;
use super::{BLOCKS, Block, NEVER, TcpConfig};
use crate::network::LONGEST;
use crate::packet::OF_AGAIN;
use crate::tcp::Algorithm;

/// An ACK to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ack {
    /// The segment expected next.
    pub(crate) expected: u32,
    /// ECN-Echo.
    pub(crate) echo: bool,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    /// All segments before this one have arrived.
    expected: u32,
    /// In order, and not acknowledged.
    pending: u32,
    every: u32,
    /// DCTCP's CE state, or RFC 3168's latch.
    echo: bool,
    exact: bool,
    /// When a delayed ACK is due.
    pub(crate) ack_at: u64,
    /// The last such instant that its kernel's ticks have made later.
    ticked_at: u64,
    /// When the wheel will look at `ack_at`; written by the world.
    pub(crate) looks_at: u64,
    delay: u64,
    ticks: Ticks,
    /// How many ACKs more go at once; how many, when they do; after a pause of what length; and
    /// when the last segment came.
    quick: u32,
    quick_acks: u32,
    pause: u64,
    heard_at: u64,
    window: u32,
    /// Segments there will ever be.
    end: u32,
    /// When the last of them was in order, ns.
    pub(crate) done_at: u64,
    pub(crate) route: u32,
    /// Of each ACK; written by the world.
    pub(crate) bits: u8,
    /// The same of the next one: [`OF_AGAIN`] if it echoes the timestamp of a segment sent again.
    pub(crate) stamp: u8,
    gaps: Option<Box<Gaps>>,
    /// The last segment, if it had arrived before and ACKs say so.
    vain: Option<u32>,
    tells_vain: bool,
    /// Segments that had arrived before.
    pub(crate) repeats: u64,
}

/// What has arrived out of order.
#[derive(Debug)]
struct Gaps {
    arrived: Bits,
    /// One more than the highest that has arrived.
    high: u32,
    /// Blocks as they were told, the one that changed last first.
    recent: Vec<Block>,
}

impl Receiver {
    /// Of segments 0 to `end`, the last not included. `window` in segments; ACKs take `route`.
    pub(crate) fn new(
        config: &TcpConfig,
        algorithm: Algorithm,
        end: u32,
        window: u32,
        route: u32,
    ) -> Self {
        Self {
            expected: 0,
            pending: 0,
            every: config.ack_every.max(1),
            echo: false,
            exact: algorithm == Algorithm::Dctcp,
            ack_at: NEVER,
            ticked_at: NEVER,
            looks_at: NEVER,
            delay: config.ack_delay.min(LONGEST).as_nanos(),
            ticks: Ticks::new(config.tick),
            quick: config.quick_acks,
            quick_acks: config.quick_acks,
            pause: config.min_rto.min(LONGEST).as_nanos(),
            heard_at: 0,
            window,
            end,
            done_at: NEVER,
            route,
            bits: 0,
            stamp: 0,
            gaps: None,
            vain: None,
            tells_vain: config.rack,
            repeats: 0,
        }
    }

    /// Its kernel was started so many ns before the run.
    pub(crate) fn booted(&mut self, before: u64) {
        self.ticks.booted(before);
    }

    /// Segment `seq` is about to arrive, `again` or for the first time. An ACK echoes the timestamp
    /// of the first segment in order that it acknowledges (RFC 7323 §4.3).
    pub(crate) fn stamp(&mut self, seq: u32, again: bool) {
        if seq == self.expected && self.pending == 0 {
            self.stamp = if again { OF_AGAIN } else { 0 };
        }
    }

    /// A segment arrived. Returns the ACK that must go before it counts, and the one it asks for.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        now: u64,
        seq: u32,
        marked: bool,
        reduced: bool,
        last: bool,
    ) -> (Option<Ack>, Option<Ack>) {
        let mut early = None;
        if now - self.heard_at > self.pause {
            self.quick = self.quick_acks;
        }
        self.heard_at = now;
        self.vain = None;
        if self.exact {
            if marked != self.echo {
                if self.pending > 0 {
                    early = Some(self.ack());
                }
                self.echo = marked;
            }
        } else {
            self.echo = marked | (self.echo & !reduced);
        }
        if seq != self.expected || self.gaps.is_some() {
            self.out_of_order(seq);
            self.finish(now);
            return (early, Some(self.ack()));
        }
        self.expected += 1;
        self.pending += 1;
        if last {
            self.finish(now);
        }
        if (self.pending >= self.every) | last | (self.quick > 0) {
            return (early, Some(self.ack()));
        }
        self.ack_at = now + self.delay;
        (early, None)
    }

    /// The connection is no more.
    pub(crate) fn abandon(&mut self) {
        self.ack_at = NEVER;
    }

    /// The delayed ACK, if one is due.
    pub(crate) fn on_timer(&mut self, now: u64) -> Option<Ack> {
        if now < self.ack_at {
            return None;
        }
        // Only now: most are sent before, with the next segment.
        if self.ack_at != self.ticked_at {
            self.ticked_at = self.ticks.expires(self.ack_at, self.delay);
            self.ack_at = self.ticked_at;
        }
        (self.ack_at <= now).then(|| self.ack())
    }

    /// The next ACK may have blocks.
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        self.gaps.is_some() | self.vain.is_some()
    }

    /// The blocks of the next ACK, and how many: the segment that came in vain, and what is out of
    /// order.
    #[cold]
    pub(crate) fn blocks(&self) -> ([Block; BLOCKS], usize) {
        let vain = self.vain.map(|seq| (seq, seq + 1));
        let recent = self.gaps.iter().flat_map(|gaps| gaps.recent.iter().copied());
        let mut blocks = [(0, 0); BLOCKS];
        let mut count = 0;
        for (place, block) in blocks.iter_mut().zip(vain.into_iter().chain(recent)) {
            *place = block;
            count += 1;
        }
        (blocks, count)
    }

    /// All segments before this one have arrived.
    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    fn finish(&mut self, now: u64) {
        if self.expected == self.end && self.done_at == NEVER {
            self.done_at = now;
        }
    }

    #[inline]
    fn ack(&mut self) -> Ack {
        self.pending = 0;
        self.ack_at = NEVER;
        self.quick = self.quick.saturating_sub(1);
        Ack { expected: self.expected, echo: self.echo }
    }

    #[cold]
    fn out_of_order(&mut self, seq: u32) {
        if seq < self.expected || seq - self.expected >= self.window {
            self.repeats += 1;
            self.quick = self.quick_acks;
            self.vain = (self.tells_vain && seq < self.expected).then_some(seq);
            return;
        }
        let (window, expected) = (self.window, self.expected);
        let gaps = self.gaps.get_or_insert_with(|| {
            let recent = Vec::with_capacity(BLOCKS + 1);
            Box::new(Gaps { arrived: Bits::new(window), high: expected, recent })
        });
        if !gaps.arrived.insert(seq) {
            self.repeats += 1;
            self.vain = self.tells_vain.then_some(seq);
        }
        gaps.high = gaps.high.max(seq + 1);
        if seq == expected {
            self.expected = gaps.arrived.first_absent(expected, gaps.high);
            gaps.arrived.remove_range(expected, self.expected);
            if self.expected == gaps.high {
                self.gaps = None;
                return;
            }
            let expected = self.expected;
            gaps.recent.retain(|block| block.1 > expected);
        } else {
            gaps.tell(seq, expected);
        }
    }
}

impl Gaps {
    /// The block around `seq` changed: it is told first.
    fn tell(&mut self, seq: u32, expected: u32) {
        let known = |block: &&Block| block.0 <= seq && seq <= block.1;
        let begin = match self.recent.iter().find(known) {
            Some(block) => block.0,
            None => self.arrived.run_before(expected, seq),
        };
        // It may also touch a block that was told and ends just before.
        let begin = self.arrived.run_before(expected, begin);
        let end = self.arrived.first_absent(seq, self.high);
        self.recent.retain(|block| block.1 < begin || block.0 > end);
        self.recent.insert(0, (begin, end));
        self.recent.truncate(BLOCKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is past its first segments.
    fn receiver(algorithm: Algorithm) -> Receiver {
        of(&TcpConfig { quick_acks: 0, rack: false, ..TcpConfig::default() }, algorithm)
    }

    fn of(config: &TcpConfig, algorithm: Algorithm) -> Receiver {
        Receiver::new(config, algorithm, u32::MAX, 1000, 0)
    }

    fn ack(expected: u32) -> Option<Ack> {
        Some(Ack { expected, echo: false })
    }

    /// The blocks of the next ACK.
    fn told(r: &Receiver) -> Vec<Block> {
        let (blocks, count) = r.blocks();
        blocks[..count].to_vec()
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_single_one_after_40_ms() {
        let mut r = receiver(Algorithm::Reno);
        assert_eq!(r.on_data(100, 0, false, false, false), (None, None));
        assert_eq!(r.ack_at, 100 + 40_000_000);
        assert_eq!(r.on_data(200, 1, false, false, false), (None, ack(2)));
        assert_eq!(r.ack_at, NEVER);
        assert_eq!(r.on_data(300, 2, false, false, false), (None, None));
        assert_eq!(r.on_timer(39_000_000), None);
        assert_eq!(r.on_timer(40_000_300), ack(3));
        assert_eq!(r.on_timer(80_000_300), None, "once");
    }

    #[test]
    fn the_first_sixteen_segments_are_acknowledged_one_by_one_and_so_after_a_pause() {
        const MS: u64 = 1_000_000;
        let mut r = of(&TcpConfig::default(), Algorithm::Reno);
        // How many of the next twenty, a millisecond apart, are acknowledged at once.
        let mut quick = |from: u64, first: u32| {
            let mut at_once =
                |n: &u32| r.on_data(from + u64::from(*n) * MS, first + n, false, false, false).1;
            (0..20).filter(|n| at_once(n).is_some()).count()
        };
        assert_eq!(quick(0, 0), 16 + 2, "then every second one");
        assert_eq!(quick(219 * MS, 20), 10, "a pause of 200 ms is none");
        assert_eq!(quick(500 * MS, 40), 16 + 2);
        assert_eq!(quick(520 * MS, 40), 20, "in vain");
        assert_eq!(quick(540 * MS, 60), 15 + 2, "the last in vain took one of sixteen");
    }

    #[test]
    fn a_delayed_ack_waits_for_its_kernels_tick() {
        const MS: u64 = 1_000_000;
        let tick = weir_units::Span::from_millis(4);
        let mut r = of(&TcpConfig { quick_acks: 0, tick, ..TcpConfig::default() }, Algorithm::Reno);
        r.booted(MS);
        // Its ticks are 3, 7, 11 ms…: from the one before ten are 40 ms, and the wheel adds one.
        assert_eq!(r.on_data(5 * MS, 0, false, false, false), (None, None));
        assert_eq!((r.ack_at, r.on_timer(45 * MS)), (45 * MS, None));
        assert_eq!(r.ack_at, 47 * MS);
        assert_eq!(r.on_timer(47 * MS), ack(1));
        assert_eq!(r.ack_at, NEVER);
    }

    #[test]
    fn an_ack_echoes_the_stamp_of_the_first_segment_in_order_since_the_last() {
        let mut r = receiver(Algorithm::Reno);
        let mut stamp = |seq, again| {
            r.stamp(seq, again);
            r.on_data(0, seq, false, false, false).1.map(|_| r.stamp)
        };
        assert_eq!([stamp(0, false), stamp(1, true)], [None, Some(0)], "one pending before it");
        assert_eq!([stamp(2, true), stamp(3, false)], [None, Some(OF_AGAIN)]);
        assert_eq!(stamp(5, true), Some(OF_AGAIN), "out of order: what was echoed last");
        assert_eq!(stamp(4, false), Some(0), "the one that was late only");
    }

    #[test]
    fn the_last_segment_is_acknowledged_at_once() {
        let mut r = receiver(Algorithm::Reno);
        assert_eq!(r.on_data(0, 0, false, false, true), (None, ack(1)));
    }

    #[test]
    fn a_gap_is_told_at_once_with_the_block_that_changed_first() {
        let mut r = receiver(Algorithm::Reno);
        let mut data = |seq| {
            let (_, ack) = r.on_data(0, seq, false, false, false);
            (ack.map(|ack| ack.expected), told(&r))
        };
        assert_eq!(data(1), (Some(0), vec![(1, 2)]));
        assert_eq!(data(3), (Some(0), vec![(3, 4), (1, 2)]));
        assert_eq!(data(5), (Some(0), vec![(5, 6), (3, 4), (1, 2)]));
        assert_eq!(data(7), (Some(0), vec![(7, 8), (5, 6), (3, 4)]), "three are told");
        assert_eq!(data(2), (Some(0), vec![(1, 4), (7, 8), (5, 6)]), "joined with one forgotten");
        assert_eq!(data(0), (Some(4), vec![(7, 8), (5, 6)]));
        assert_eq!(data(4), (Some(6), vec![(7, 8)]));
        assert_eq!(data(6), (Some(8), vec![]));
        assert_eq!(r.expected(), 8);
    }

    #[test]
    fn what_comes_twice_or_from_beyond_the_window_changes_nothing() {
        let mut r = receiver(Algorithm::Reno);
        r.on_data(0, 0, false, false, false);
        assert_eq!(r.on_data(0, 0, false, false, false), (None, ack(1)));
        assert_eq!(r.on_data(0, 1001, false, false, false), (None, ack(1)));
        assert!(told(&r).is_empty());
        assert_eq!(r.repeats, 2);
    }

    #[test]
    fn a_segment_that_came_in_vain_is_told_once_and_first() {
        let mut r = of(&TcpConfig { rack: true, ..TcpConfig::default() }, Algorithm::Reno);
        let mut data = |seq| {
            _ = r.on_data(0, seq, false, false, false);
            told(&r)
        };
        assert!(data(0).is_empty());
        assert_eq!(data(0), [(0, 1)]);
        assert_eq!(data(2), [(2, 3)]);
        assert_eq!(data(4), [(4, 5), (2, 3)]);
        assert_eq!(data(2), [(2, 3), (2, 3), (4, 5)], "below the block that contains it");
        assert_eq!(data(0), [(0, 1), (2, 3), (4, 5)]);
        assert_eq!(data(1), [(4, 5)]);
        assert!(data(3).is_empty());
    }

    #[test]
    fn an_echo_lasts_until_the_sender_says_that_it_reduced() {
        let mut r = receiver(Algorithm::Cubic);
        let mut echo = |seq, marked, reduced| {
            let (_, ack) = r.on_data(0, seq, marked, reduced, true);
            ack.is_some_and(|ack| ack.echo)
        };
        assert!(echo(0, true, false));
        assert!(echo(1, false, false));
        assert!(!echo(2, false, true));
        assert!(!echo(3, false, false));
        assert!(echo(4, true, true), "a mark on the very packet begins anew");
    }

    #[test]
    fn dctcp_acknowledges_what_is_pending_when_marks_begin_or_end() {
        let mut r = receiver(Algorithm::Dctcp);
        let with = |expected, echo| Some(Ack { expected, echo });
        assert_eq!(r.on_data(0, 0, false, false, false), (None, None));
        assert_eq!(r.on_data(0, 1, true, false, false), (with(1, false), None));
        assert_eq!(r.on_data(0, 2, true, false, false), (None, with(3, true)));
        assert_eq!(r.on_data(0, 3, false, false, false), (None, None), "nothing was pending");
        assert_eq!(r.on_data(0, 4, false, false, false), (None, with(5, false)));
    }
}
