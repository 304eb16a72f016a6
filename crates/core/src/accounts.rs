//! Were the floors kept? Counted by the sender, from what its data plane saw.
//!
//! Problem   An operator has to know for each floor how often it held, and when and why it did not. A pair that sends
//!           little may want little: only a pair that wants more can show that a floor is broken.
//! Approach  Time is cut into windows of a second. A pair *wants more* in a window if octets of it waited in nine of ten
//!           looks at its queue, or if the network lost so many of its segments that they may be what holds a connection
//!           back: what a pair sends within its floor is not to be lost. In such a window, but for the first of a run,
//!           it is owed the floor that both ends agreed on, and what arrived is compared with that. A pair of which no
//!           losses are reported is not judged.
//! Promises  Pure. Memory in proportion to the pairs and VMs that it is told of, and [`LISTED`] stretches.
//! Not here  Whether the agreed floor is the promised one: see [`crate::partition`]. Which neighbour took the
//!           bandwidth: only a controller sees all hosts.

use crate::host::{Direction, SendCount};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use weir_units::{Bytes, PairId, Rate, SortedMap, Span, Time, VmId};

/// Length of a window.
pub const WINDOW: Span = Span::from_secs(1);
/// A window is kept if so much of what is owed arrived, in percent. The same bound as everywhere.
pub const HELD_PERCENT: u64 = 95;
/// Looks at a queue of which it had to be busy, in percent. Lower: pairs count that only pause. Higher: TCP does not count,
/// for its queue runs empty for moments.
const BUSY_PERCENT: u64 = 90;
/// Fewer looks in a window say nothing.
const LOOKS_LEAST: u64 = 3;
/// Segments of which one must be lost, at low rates. Larger: one lost segment of a pair that wants little counts as a
/// broken floor.
const LOST_ONE_IN: u64 = 100;
/// At higher rates fewer will do, but not fewer than this: a cable that loses a segment now and then breaks no floor.
const LOST_LEAST: u64 = 3;
/// Floors are promised for round trips up to this one (GUARANTEES.md, 1.4.1).
pub const PROMISED_WITHIN: Span = Span::from_millis(10);
/// A pair is looked at no more often than this: the looks of all pairs of a large host would take CPU.
const LOOK: Span = Span::from_millis(20);
/// What a pair had beyond its floor counts for its later windows, up to so much: the largest packet that a guest hands
/// over whole. Where it falls on the edge of two windows is chance.
pub const GRAIN: Bytes = Bytes::new(65_536);
/// Stretches of broken windows that are kept. A reader that comes every minute sees all of them, unless more than one a
/// second break.
pub const LISTED: usize = 128;

/// Why a floor was not kept, as far as the sender can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Cause {
    /// The host promises more than its uplink holds.
    Overbooked,
    /// The pair's packets are not seen or not shaped on this host.
    Unenforced,
    /// The round trip is longer than floors are promised for.
    LongPath,
    /// The network lost packets.
    Lost,
    /// Packets waited on this host, and none was lost: its uplink or its CPU did not take them.
    Waited,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overbooked => "the host promises more than its uplink holds",
            Self::Unenforced => "the VM is not enforced",
            Self::LongPath => "the path is longer than floors are promised for",
            Self::Lost => "the network lost packets",
            Self::Waited => "packets waited on the sending host",
        })
    }
}

/// What was counted for a floor since the machine began: of a VM, out or in.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// Windows in which a pair wanted more.
    pub windows: u64,
    /// Of these, those in which it had its floor.
    pub held: u64,
    /// What was owed in them.
    pub owed: Bytes,
    /// What arrived in them.
    pub got: Bytes,
    /// What arrived in all windows.
    pub all: Bytes,
    /// What arrived beyond the floors, in all windows.
    pub borrowed: Bytes,
}

/// A stretch of time in which a pair's floor was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Broken {
    /// Counts up from 1.
    pub id: u64,
    /// Which pair.
    pub pair: PairId,
    /// When the first window began.
    pub from: Time,
    /// When the last one ended.
    pub until: Time,
    /// What was owed.
    pub owed: Bytes,
    /// What arrived.
    pub got: Bytes,
    /// Segments that the network lost.
    pub lost: u64,
    /// Why, in the latest window.
    pub cause: Cause,
}

/// What is known of a pair when a window closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Which pair; it sends from here.
    pub pair: PairId,
    /// The floor that both ends agreed on.
    pub floor: Rate,
    /// Segments that the network lost so far.
    pub lost: u64,
    /// What is wrong on this host, if something is.
    pub wrong: Option<Cause>,
    /// Whether its sender would have heard of losses. If not, nothing is known of its floor.
    pub is_heard: bool,
}

/// The accounts of a host's senders.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    open: SortedMap<PairId, Open>,
    tallies: SortedMap<(VmId, Direction), Tally>,
    broken: VecDeque<Broken>,
    /// Number of stretches so far.
    count: u64,
    /// When the present window began.
    begun: Option<Time>,
    looked: Option<Time>,
}

/// A pair in the present window.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
struct Open {
    /// At the beginning of the window; `None` for a pair that was not there then.
    before: Option<Before>,
    left: u64,
    segments: u64,
    looks: u64,
    busy: u64,
    /// It wanted more in the window before: in the first one both ends learn of it.
    wanted: bool,
    /// What earlier windows had beyond what was owed, [`GRAIN`] at most.
    credit: Bytes,
    /// What arrived in the last window.
    sent: Rate,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Before {
    left: u64,
    segments: u64,
    floor: Rate,
    lost: u64,
}

/// Whether the network lost so many of a pair's segments in this time that they may be what holds it back: one in a
/// hundred, or what keeps one TCP connection at this rate over the longest path. With W segments under way that is one in
/// 2 W² / 3 (Mathis et al., 1997); over a shorter path, and with more connections, it is more.
fn holds_back(lost: u64, segments: u64, span: Span) -> bool {
    let under_way = segments.saturating_mul(PROMISED_WITHIN.as_nanos()) / span.as_nanos().max(1);
    let one_in = if lost < LOST_LEAST { 0 } else { under_way.saturating_mul(under_way) / 3 * 2 };
    lost > 0 && lost.saturating_mul(one_in.max(LOST_ONE_IN)) >= segments
}

impl Accounts {
    /// Looks at all pairs that send from here.
    pub fn look(&mut self, now: Time, send: &[(PairId, SendCount)]) {
        if self.looked.is_some_and(|at| now.since(at) < LOOK) {
            return;
        }
        self.looked = Some(now);
        for (pair, count) in send {
            let open = self.open.entry(*pair).or_default();
            open.left = count.numbered.saturating_add(count.unnumbered);
            open.segments = count.segments;
            // Where nothing waits, the kernel does not know how much does.
            open.looks += 1;
            open.busy += u64::from(count.waiting.is_some_and(|octets| octets > 0));
        }
    }

    /// Nothing is enforced now, so no floor is put to the test: the present window ends without a word, and pairs begin
    /// anew.
    pub fn rest(&mut self) {
        self.open.clear();
        self.begun = None;
    }

    /// Whether the present window is over.
    pub fn is_due(&self, now: Time) -> bool {
        self.begun.is_none_or(|begun| now.since(begun) >= WINDOW)
    }

    /// Ends the present window and begins the next. Pairs that are not among `all` are over. Returns the windows in
    /// which a floor was broken.
    pub fn close(&mut self, now: Time, all: impl IntoIterator<Item = Standing>) -> Vec<Broken> {
        let begun = self.begun.replace(now);
        let mut broken = Vec::new();
        let mut next = SortedMap::new();
        for standing in all {
            let Some(mut open) = self.open.get(&standing.pair).copied() else { continue };
            match (open.before, begun) {
                (Some(before), Some(begun)) => {
                    broken.extend(self.count_window(begun, now, &standing, &mut open, &before));
                }
                _ => open.credit = GRAIN,
            }
            let before = Before {
                left: open.left,
                segments: open.segments,
                floor: standing.floor,
                lost: standing.lost,
            };
            let open = Open { before: Some(before), looks: 0, busy: 0, ..open };
            next.insert(standing.pair, open);
        }
        self.open = next;
        broken
    }

    fn count_window(
        &mut self,
        begun: Time,
        now: Time,
        standing: &Standing,
        open: &mut Open,
        before: &Before,
    ) -> Option<Broken> {
        // A counter that is smaller than before began anew: the window says nothing.
        let grown = |now: u64, before: u64| now.checked_sub(before);
        let (Some(left), Some(segments), Some(lost)) = (
            grown(open.left, before.left),
            grown(open.segments, before.segments),
            grown(standing.lost, before.lost),
        ) else {
            return None;
        };
        // What was lost is told in segments: of the mean size.
        let missing =
            u128::from(left) * u128::from(lost.min(segments)) / u128::from(segments.max(1));
        let got = Bytes::new(left - u64::try_from(missing).unwrap_or(left));
        // A floor that rose within the window is owed from its end on.
        let owed = before.floor.min(standing.floor).bytes_in(now.since(begun));
        let was_busy = open.looks >= LOOKS_LEAST && open.busy * 100 >= open.looks * BUSY_PERCENT;
        let lost_much = holds_back(lost, segments, now.since(begun));
        let wants = was_busy || lost_much;
        let wanted = std::mem::replace(&mut open.wanted, wants);
        let counts = wants && wanted && owed > Bytes::ZERO && standing.is_heard;
        open.sent = Rate::of(got, now.since(begun));
        let had = got + open.credit;
        open.credit = had.saturating_sub(owed).min(GRAIN);
        let holds =
            u128::from(had.get()) * 100 >= u128::from(owed.get()) * u128::from(HELD_PERCENT);
        for key in [(standing.pair.src, Direction::Send), (standing.pair.dst, Direction::Receive)] {
            let tally = self.tallies.entry(key).or_default();
            tally.all += got;
            tally.borrowed += got.saturating_sub(owed);
            if counts {
                tally.windows += 1;
                tally.held += u64::from(holds);
                tally.owed += owed;
                tally.got += got;
            }
        }
        if !counts || holds {
            return None;
        }
        let cause = standing.wrong.unwrap_or(if lost > 0 { Cause::Lost } else { Cause::Waited });
        let pair = standing.pair;
        let broken = Broken { id: 0, pair, from: begun, until: now, owed, got, lost, cause };
        self.list(broken);
        Some(broken)
    }

    /// Adds a window to the stretch that it continues, or begins one.
    fn list(&mut self, window: Broken) {
        let before = self.broken.iter_mut().rev().find(|b| b.pair == window.pair);
        if let Some(before) = before.filter(|before| before.until == window.from) {
            before.until = window.until;
            before.owed += window.owed;
            before.got += window.got;
            before.lost = before.lost.saturating_add(window.lost);
            before.cause = window.cause;
            return;
        }
        self.count += 1;
        self.broken.push_back(Broken { id: self.count, ..window });
        if self.broken.len() > LISTED {
            self.broken.pop_front();
        }
    }

    /// What was counted, by VM and direction; VMs elsewhere have what was sent to them from here.
    pub fn tallies(&self) -> impl Iterator<Item = ((VmId, Direction), Tally)> + '_ {
        self.tallies.iter().map(|(key, tally)| (*key, *tally))
    }

    /// What arrived of a pair in the last window.
    pub fn sent(&self, pair: PairId) -> Rate {
        self.open.get(&pair).map_or(Rate::ZERO, |open| open.sent)
    }

    /// Whether a pair wanted more than it had in the last window.
    pub fn wants(&self, pair: PairId) -> bool {
        self.open.get(&pair).is_some_and(|open| open.wanted)
    }

    /// The latest stretches, in the order in which they began; the last may still grow.
    pub fn broken(&self) -> impl Iterator<Item = &Broken> {
        self.broken.iter()
    }

    /// Forgets VMs that are no longer in the directory.
    pub fn retain(&mut self, known: impl Fn(VmId) -> bool) {
        self.tallies.retain(|(vm, _), _| known(*vm));
        self.open.retain(|pair, _| known(pair.src) && known(pair.dst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: PairId = PairId::new(VmId(1), VmId(2));

    /// A pair with a floor of 8 Mb/s, which is 1 MB in a window.
    #[derive(Default)]
    struct World {
        accounts: Accounts,
        at: Time,
        count: SendCount,
        lost: u64,
        wrong: Option<Cause>,
        is_deaf: bool,
    }

    impl World {
        /// A window in which it sends `kb` in segments of 1 kB, with octets waiting in `busy` of 50 looks.
        fn window(&mut self, kb: u64, busy: u64, lost: u64) {
            for look in 0..50 {
                self.at += Span::from_millis(20);
                self.count.numbered += kb * 20;
                // Without octets the kernel says nothing.
                self.count.waiting = (look < busy).then_some(5000);
                self.count.segments = self.count.numbered / 1000;
                self.accounts.look(self.at, &[(PAIR, self.count)]);
            }
            self.lost += lost;
            let (floor, lost, wrong) = (Rate::from_mbps(8), self.lost, self.wrong);
            assert!(self.accounts.is_due(self.at));
            let is_heard = !self.is_deaf;
            self.accounts.close(self.at, [Standing { pair: PAIR, floor, lost, wrong, is_heard }]);
        }

        fn out(&self) -> Tally {
            let all: Vec<_> = self.accounts.tallies().collect();
            assert_eq!(all[0].0, (VmId(1), Direction::Send));
            assert_eq!(all[1].0, (VmId(2), Direction::Receive));
            assert_eq!(all[0].1, all[1].1, "both ends have the same");
            all[0].1
        }

        fn broken(&self) -> Vec<(u64, u64, u64, Cause)> {
            let at = |time: Time| time.as_nanos() / 1_000_000_000;
            self.accounts.broken().map(|b| (b.id, at(b.from), at(b.until), b.cause)).collect()
        }
    }

    #[test]
    fn a_pair_that_wants_little_says_nothing_and_one_that_waits_must_have_its_floor() {
        let mut world = World::default();
        world.window(1000, 50, 0);
        assert_eq!(world.accounts.tallies().count(), 0, "its first window is not whole");
        world.window(100, 5, 0);
        assert_eq!((world.out().windows, world.out().all), (0, Bytes::new(100_000)));
        world.window(500, 45, 0);
        assert_eq!(world.out().windows, 0, "both ends learn that it wants more");
        world.window(950, 45, 0);
        world.window(1500, 50, 0);
        let Tally { windows, held, owed, got, borrowed, .. } = world.out();
        assert_eq!((windows, held), (2, 2));
        assert_eq!((owed.get(), got.get(), borrowed.get()), (2_000_000, 2_450_000, 500_000));
        assert!(world.broken().is_empty());
        world.window(890, 50, 0);
        assert_eq!(
            (world.out().windows, world.out().held),
            (3, 3),
            "a large packet was early by a moment"
        );
        assert_eq!(world.accounts.sent(PAIR), Rate::from_bps(7_120_000));
        world.window(940, 50, 0);
        assert_eq!((world.out().windows, world.out().held), (4, 3), "it is so for the second time");
        assert_eq!(world.broken(), [(1, 6, 7, Cause::Waited)]);
    }

    #[test]
    fn windows_that_follow_each_other_are_one_stretch_with_what_is_wrong_last() {
        let mut world = World::default();
        world.window(1000, 50, 0);
        for (kb, busy, lost) in
            [(1000, 50, 0), (500, 50, 0), (400, 50, 9), (1000, 50, 0), (300, 50, 0)]
        {
            world.window(kb, busy, lost);
        }
        assert_eq!(world.broken(), [(1, 2, 4, Cause::Lost), (2, 5, 6, Cause::Waited)]);
        world.wrong = Some(Cause::Overbooked);
        world.window(300, 50, 7);
        assert_eq!(world.broken()[1], (2, 5, 7, Cause::Overbooked));
    }

    #[test]
    fn tcp_that_is_starved_by_losses_wants_more_though_its_queue_is_empty() {
        let mut world = World::default();
        world.window(1000, 50, 0);
        world.window(100, 0, 1);
        world.window(100, 0, 1);
        assert_eq!(world.broken(), [(1, 2, 3, Cause::Lost)], "one in a hundred");
        let first = *world.accounts.broken().next().expect("it is broken");
        assert_eq!(first.got, Bytes::new(99_000), "what was lost did not arrive");
        world.window(200, 0, 1);
        assert_eq!(world.out().windows, 1, "one in two hundred: it may want no more");
    }

    #[test]
    fn the_faster_a_pair_the_fewer_losses_hold_a_connection_back() {
        let second = |lost, segments| holds_back(lost, segments, WINDOW);
        assert!(!second(0, 0) && !second(0, 100_000));
        assert!(second(8, 800) && !second(7, 800), "one in a hundred");
        // 50 are under way in 10 ms: one in 1666.
        assert!(second(4, 5000) && !second(3, 5000));
        assert!(
            second(3, 100_000) && !second(2, 100_000),
            "a cable may lose a segment now and then"
        );
        assert!(second(u64::MAX, u64::MAX) && !holds_back(0, 10, Span::ZERO));
    }

    #[test]
    fn a_pair_whose_losses_nobody_would_report_says_nothing() {
        let mut world = World { is_deaf: true, ..World::default() };
        for _ in 0..4 {
            world.window(1000, 50, 0);
        }
        assert_eq!((world.out().windows, world.out().all), (0, Bytes::new(3_000_000)));
        world.is_deaf = false;
        world.window(1000, 50, 0);
        assert_eq!((world.out().windows, world.out().held), (1, 1));
    }

    #[test]
    fn a_burst_once_a_second_wants_no_more_than_it_had() {
        let mut world = World::default();
        for _ in 0..5 {
            world.window(200, 8, 0);
        }
        assert_eq!(world.out().windows, 0, "its queue is empty most of the time");
    }

    #[test]
    fn counters_that_begin_anew_and_pairs_without_a_floor_say_nothing() {
        let mut world = World::default();
        world.window(1000, 50, 0);
        world.count = SendCount::default();
        world.window(10, 50, 0);
        assert_eq!(world.accounts.tallies().count(), 0);
        let none = Standing { pair: PAIR, floor: Rate::ZERO, lost: 0, wrong: None, is_heard: true };
        world.accounts.close(world.at + WINDOW, [none]);
        world.accounts.close(world.at + WINDOW * 2, [none]);
        assert!(world.broken().is_empty());
    }

    #[test]
    fn while_nothing_is_enforced_no_floor_is_tested_and_what_was_lost_then_is_forgotten() {
        let mut world = World::default();
        world.window(1000, 50, 0);
        for _ in 0..3 {
            world.window(10, 50, 900);
            world.accounts.rest();
        }
        world.window(1000, 50, 500);
        world.window(1000, 50, 0);
        assert_eq!(world.out().windows, 0, "the first whole window is where both ends learn");
        world.window(1000, 50, 0);
        assert_eq!((world.out().windows, world.out().held), (1, 1));
        assert!(world.broken().is_empty());
    }

    #[test]
    fn stretches_are_bounded_and_vms_that_are_gone_are_forgotten() {
        let mut world = World::default();
        world.window(1000, 50, 0);
        for n in 0..3 * LISTED as u64 {
            world.window(if n % 2 == 0 { 1000 } else { 10 }, 50, 0);
        }
        let broken = world.broken();
        assert_eq!(broken.len(), LISTED);
        assert_eq!(broken.last().map(|b| b.0), Some(3 * LISTED as u64 / 2));
        world.accounts.retain(|vm| vm != VmId(2));
        let left: Vec<_> = world.accounts.tallies().map(|(key, _)| key).collect();
        assert_eq!(left, [(VmId(1), Direction::Send)]);
    }
}
