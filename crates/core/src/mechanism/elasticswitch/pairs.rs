//! The state of one active pair, at either end.

use super::hidden::{Ledger, REPORT_AGAIN};
use super::paths::Paths;
use crate::host::{HoseKey, ReceiveCount, SendCount};
use crate::message::{Backlog, Congestion, Echo, Offer};
use crate::meter::Meter;
use crate::rate::{Feedback, PairRate, RateConfig, Signal};
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, PairId, PathId, Rate, Span, Time};

/// With losses as the signal, a pair may borrow if they show in all but one part in this many of
/// the octets it sends: a guest that could hide more of them could borrow without end.
const BLIND: u64 = 8;

/// Octets of a pair that may wait for its host's uplink before the pair counts as not leaving
/// there: its queue, a super-packet, and what waits for a class. As much must have been sent, and
/// have had the time to leave at the pair's rate: of a slow pair nothing may leave for seconds.
const UNSEEN: Bytes = Bytes::new(512 * 1024);

/// Acknowledgements serve a rate with this part of it. A receiver acknowledges every second segment
/// in 66 to 90 octets of 3028.
const ACKS_PART: u64 = 32;

/// A queue with so many octets holds more than the packet whose turn is next.
const QUEUED: u64 = 2 * 1514;

/// Why losses do not show in what a pair sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Blind {
    /// Too much of it has no number: IPv6, fragments.
    Unnumbered,
    /// It leaves the host where nothing numbers it, as in a tunnel that begins behind its port.
    Unseen,
    /// Its receiver has got next to nothing of it, and lost nothing: it went elsewhere.
    Hidden,
}

/// Octets that waited at several readings.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
struct Waited {
    /// The least; `None` before the first reading.
    least: Option<u64>,
    /// The most.
    most: u64,
    /// At one of them it was not known.
    is_unknown: bool,
}

impl Waited {
    fn read(&mut self, waiting: Option<u64>) {
        self.is_unknown |= waiting.is_none();
        let waiting = waiting.unwrap_or_default();
        self.least = Some(self.least.map_or(waiting, |least| least.min(waiting)));
        self.most = self.most.max(waiting);
    }

    fn backlog(self) -> Backlog {
        match self.least {
            Some(1..) => Backlog::Always,
            Some(0) if self.most >= QUEUED => Backlog::Sometimes,
            Some(0) if !self.is_unknown => Backlog::Free,
            _ => Backlog::Unknown,
        }
    }
}

/// What a pair used of its floor since the last partitioning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) rate: Rate,
    /// Whether packets waited.
    pub(super) backlog: Backlog,
    /// It sent more than that: acknowledgements of what the other direction borrows.
    pub(super) exceeds: bool,
}

/// A pair whose source VM is here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SendPair {
    /// The hose of its source VM that it belongs to.
    pub(super) hose: HoseKey,
    pub(super) rate: PairRate,
    /// At the last step of the law.
    pub(super) floor: Rate,
    pub(super) active_at: Time,
    /// What the reports since the last step of the law weigh.
    lost: u32,
    /// Of that, reported too soon after the last cut to be its consequence.
    late: u32,
    /// Something was lost, and not too soon after the last cut.
    has_loss: bool,
    pub(super) lost_total: u64,
    /// Reported lost while nothing numbered what the pair sends: no number of ours is missing.
    pub(super) unfounded: u64,
    pub(super) marked_total: u64,
    meter: Meter,
    numbered: Meter,
    unnumbered: Meter,
    /// What left with and without a number up to the last step of the law.
    seen_at_rate: (u64, u64),
    /// Losses do not show in enough of what it sends.
    pub(super) blind: Option<Blind>,
    /// Octets that it had sent when something of it was last seen to leave, with or without a
    /// number, and the time since.
    seen_leaving: u64,
    unseen_for: Span,
    /// Segments that left with a number.
    segments: Meter,
    /// Held against what the receiver says of them.
    pub(super) ledger: Ledger,
    /// Of what it sends, acknowledgements.
    acks: Meter,
    octets_at_partition: u64,
    acks_at_partition: u64,
    octets_at_rate: u64,
    /// What waited at the readings since the last partitioning, and what of it was data.
    waited: Waited,
    waited_data: Waited,
    /// As measured over the last partitioning period.
    pub(super) measured: Rate,
    /// If it has several: they have the rates and the losses then.
    pub(super) paths: Option<Box<Paths>>,
}

impl SendPair {
    pub(super) fn new(now: Time, hose: HoseKey, floor: Rate) -> Self {
        Self {
            hose,
            rate: PairRate::new(floor),
            floor: Rate::ZERO,
            active_at: now,
            lost: 0,
            late: 0,
            has_loss: false,
            lost_total: 0,
            unfounded: 0,
            marked_total: 0,
            meter: Meter::default(),
            numbered: Meter::default(),
            unnumbered: Meter::default(),
            seen_at_rate: (0, 0),
            blind: None,
            seen_leaving: 0,
            unseen_for: Span::ZERO,
            segments: Meter::default(),
            ledger: Ledger::default(),
            acks: Meter::default(),
            octets_at_partition: 0,
            acks_at_partition: 0,
            octets_at_rate: 0,
            waited: Waited::default(),
            waited_data: Waited::default(),
            measured: Rate::ZERO,
            paths: None,
        }
    }

    pub(super) fn count(&mut self, now: Time, count: SendCount) {
        if self.meter.read(count.octets) > 0 {
            self.active_at = now;
        }
        self.acks.read(count.acks);
        self.waited.read(count.waiting);
        self.waited_data.read(count.waiting.map(|all| all.saturating_sub(count.waiting_acks)));
        self.numbered.read(count.numbered);
        self.unnumbered.read(count.unnumbered);
        self.segments.read(count.segments);
        self.ledger.sent(now, self.segments.total);
    }

    pub(super) fn congested(&mut self, now: Time, config: &RateConfig, congestion: Congestion) {
        let Congestion { lost, marked, received, .. } = congestion;
        self.ledger.reported(now, self.segments.total, lost, received);
        // The receiver takes identifications for numbers, and cannot know which host wrote them.
        let founded = if self.blind == Some(Blind::Unseen) { 0 } else { lost };
        self.unfounded = self.unfounded.saturating_add((lost - founded).into());
        let congestion = Congestion { lost: founded, ..congestion };
        let weight = config.signal.weigh(founded, marked);
        self.lost = self.lost.saturating_add(weight);
        if self.rate.congested_at().is_some_and(|at| now.since(at) < config.settle) {
            self.late = self.late.saturating_add(weight);
        } else {
            self.has_loss |= congestion.lost > 0;
        }
        self.lost_total = self.lost_total.saturating_add(congestion.lost.into());
        self.marked_total = self.marked_total.saturating_add(congestion.marked.into());
    }

    /// Whether, since the last call, losses would have shown in too little of what was sent. While
    /// nothing leaves, what was found last stands; a pair within a host has no network to lose in.
    pub(super) fn look_for_blindness(&mut self, span: Span, is_within_host: bool) {
        let seen = (self.numbered.total, self.unnumbered.total);
        let before = std::mem::replace(&mut self.seen_at_rate, seen);
        let (numbered, unnumbered) = (seen.0.wrapping_sub(before.0), seen.1.wrapping_sub(before.1));
        let both = numbered.saturating_add(unnumbered);
        if both > 0 {
            self.seen_leaving = self.meter.total;
            self.unseen_for = Span::ZERO;
            self.blind = (unnumbered > both / BLIND).then_some(Blind::Unnumbered);
        } else if !is_within_host {
            self.unseen_for = self.unseen_for + span;
            let sent = self.meter.total.wrapping_sub(self.seen_leaving);
            if sent > UNSEEN.get() && self.unseen_for > self.rate.rate().time_for(UNSEEN) {
                self.blind = Some(Blind::Unseen);
                if self.numbered.total == 0 {
                    let lost = std::mem::take(&mut self.lost_total);
                    self.unfounded = self.unfounded.saturating_add(lost);
                }
            }
        }
        if self.ledger.hides {
            self.blind = Some(Blind::Hidden);
        }
    }

    /// Whether the absence of losses says nothing.
    pub(super) fn is_blind(&self, signal: Signal) -> bool {
        self.blind.is_some() && !signal.needs_marks()
    }

    /// What the pair wanted since the last call. Acknowledgements count as far as they serve what
    /// the other direction is `promised`; `None`: nothing came from there.
    pub(super) fn used_since_partition(&mut self, span: Span, promised: Option<Rate>) -> Used {
        let octets = self.meter.total.wrapping_sub(self.octets_at_partition);
        self.octets_at_partition = self.meter.total;
        let acks = self.acks.total.wrapping_sub(self.acks_at_partition).min(octets);
        self.acks_at_partition = self.acks.total;
        let (waited, data) =
            (std::mem::take(&mut self.waited), std::mem::take(&mut self.waited_data));
        self.measured = Rate::of(Bytes::new(octets), span);
        let serve = promised.map_or(Rate::MAX, |rate| rate.mul_ratio(1, ACKS_PART));
        let beyond = Rate::of(Bytes::new(acks), span).saturating_sub(serve);
        let exceeds = !beyond.is_zero();
        let waited = if exceeds { data } else { waited };
        Used { rate: self.measured.saturating_sub(beyond), backlog: waited.backlog(), exceeds }
    }

    /// Whether the next step of the law finds congestion.
    pub(super) const fn is_congested(&self) -> bool {
        self.lost > self.late
    }

    pub(super) fn take_feedback(&mut self, span: Span) -> Feedback {
        let octets = self.meter.total.wrapping_sub(self.octets_at_rate);
        self.octets_at_rate = self.meter.total;
        let used = Some(Rate::of(Bytes::new(octets), span));
        let (lost, late) = (std::mem::take(&mut self.lost), std::mem::take(&mut self.late));
        let only_marks = !std::mem::take(&mut self.has_loss);
        Feedback { lost, late, only_marks, used, ..Feedback::default() }
    }
}

/// A pair whose destination VM is here.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReceivePair {
    /// The hose of its destination VM that it belongs to.
    pub(super) hose: HoseKey,
    /// The last offer that left.
    pub(super) offered: Option<Offer>,
    octets: Meter,
    segments: Meter,
    lost: Meter,
    marked: Meter,
    /// The data plane counts segments with a number: reports say how many arrived.
    says_arrived: bool,
    /// The source's host holds nothing for the pair: it knows of none, and numbers nothing of it.
    disowned: bool,
    /// Segments that seemed to be lost while it was.
    pub(super) unfounded: u64,
    /// Not yet reported.
    pending: Congestion,
    reported_at: Option<Time>,
    octets_at_partition: u64,
    pub(super) measured: Rate,
    pub(super) lost_total: u64,
    pub(super) marked_total: u64,
    /// What came over each path, if the pair has several.
    paths: Vec<ReceivePair>,
}

impl ReceivePair {
    pub(super) fn new(hose: HoseKey) -> Self {
        let nothing = PairId::default();
        Self {
            hose,
            offered: None,
            octets: Meter::default(),
            segments: Meter::default(),
            lost: Meter::default(),
            marked: Meter::default(),
            says_arrived: false,
            disowned: false,
            unfounded: 0,
            pending: Congestion { pair: nothing, lost: 0, marked: 0, received: 0 },
            reported_at: None,
            octets_at_partition: 0,
            measured: Rate::ZERO,
            lost_total: 0,
            marked_total: 0,
            paths: Vec::new(),
        }
    }

    /// Takes what came over one path; the report about it that is due.
    pub(super) fn count_on(
        &mut self,
        path: PathId,
        count: ReceiveCount,
        now: Time,
        gap: Span,
    ) -> Option<Congestion> {
        let path = path.0 as usize;
        while self.paths.len() <= path {
            self.paths.push(Self::new(self.hose));
        }
        let path = &mut self.paths[path];
        let before = (path.lost_total, path.marked_total);
        path.count(count);
        self.lost_total = self.lost_total.saturating_add(path.lost_total - before.0);
        self.marked_total = self.marked_total.saturating_add(path.marked_total - before.1);
        path.report(now, gap)
    }

    pub(super) fn count(&mut self, count: ReceiveCount) {
        let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        self.octets.read(count.octets);
        let lost = self.lost.read(count.lost);
        let total = if self.disowned { &mut self.unfounded } else { &mut self.lost_total };
        *total = total.saturating_add(lost);
        self.pending.lost = self.pending.lost.saturating_add(clamp(lost));
        let marked = self.marked.read(count.marked);
        self.marked_total = self.marked_total.saturating_add(marked);
        self.pending.marked = self.pending.marked.saturating_add(clamp(marked));
        // A sender compares what arrived with what it numbered, so that is what counts.
        self.says_arrived = count.numbered.is_some();
        let arrived = self.segments.read(count.numbered.unwrap_or(count.segments));
        self.pending.received = self.pending.received.saturating_add(clamp(arrived));
    }

    /// The source's host has answered an offer. One that holds nothing of what it was offered knows
    /// of no such pair: its address was translated after its VM's port, for instance.
    pub(super) fn echoed(&mut self, echo: Echo) {
        let same = self.offered.filter(|o| o.serial == echo.serial && !o.floor.is_zero());
        if !echo.most.unwrap_or_default().is_zero() || !echo.floor.is_zero() {
            self.disowned = false;
        } else if same.is_some() {
            self.disowned = true;
            self.unfounded = self.unfounded.saturating_add(std::mem::take(&mut self.lost_total));
        }
    }

    /// The report that is due: if there was congestion and the last report is long enough ago; or
    /// if something arrived, and the last one is longer ago.
    pub(super) fn report(&mut self, now: Time, gap: Span) -> Option<Congestion> {
        let Congestion { lost, marked, received, .. } = self.pending;
        let is_quiet = lost == 0 && marked == 0;
        let gap = if is_quiet { gap.max(REPORT_AGAIN) } else { gap };
        let nothing = is_quiet && (received == 0 || !self.says_arrived);
        if nothing || self.reported_at.is_some_and(|at| now.since(at) < gap) {
            return None;
        }
        self.reported_at = Some(now);
        let report = self.pending;
        self.pending = Congestion { lost: 0, marked: 0, received: 0, ..report };
        Some(report)
    }

    pub(super) fn rate_since_partition(&mut self, span: Span) -> Rate {
        let octets = self.octets.total.wrapping_sub(self.octets_at_partition);
        self.octets_at_partition = self.octets.total;
        self.measured = Rate::of(Bytes::new(octets), span);
        self.measured
    }
}
