//! One VM's hose out, divided over the VMs it sends to.
//!
//! Problem   The sender's part and the receiver's both bind. What the sender keeps for a pair that
//!           the receiver holds lower is wasted. And the receiver may be silent.
//! Approach  The receiver's full fair share counts as the pair's demand, so that the rest goes to
//!           other pairs. The sender tells the receiver the most that this hose has for the pair,
//!           and what waits of it ([`SendHose::notes`]). Silence: see [`SendHose::floor`].
//! Promises  Σ shares ≤ hose, hence Σ floors ≤ hose, at any instant. Late, repeated and older
//!           offers change nothing.
//! Not here  The receiver's side: see `receive`.
//! Source    ElasticSwitch §4, "Weak interdependence for efficiency".

use super::estimate::{Epoch, Estimate, Small, Want};
use super::maxmin::{Claims, Split};
use super::{Borrowing, Demand, PartitionConfig, older};
use crate::message::{Backlog, Echo, Offer};
use weir_units::{PairId, Rate, SortedMap, Span, Time, VmId};

/// The sender's half of guarantee partitioning, for one VM.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct SendHose {
    config: PartitionConfig,
    hose: Rate,
    small: Small,
    pairs: SortedMap<VmId, Pair>,
    /// Serials of the last offers to pairs that were none then, or are none since, and when they
    /// came. An older one may still be under way, and its receiver has been told that it is not
    /// held.
    past: SortedMap<VmId, (u32, Time)>,
    /// The fair share of pairs without limit at the last division.
    fair: Rate,
    /// The part, from 0 to 1, of what all pairs leave of the hose that is divided among them, too.
    handed_out: f64,
    /// What the pairs left of the hose at the last division.
    left: Rate,
    /// The estimates then, whatever receivers take, and those of pairs that began since.
    claims: Claims,
    /// Something changed since the last division.
    dirty: bool,
    refused: u64,
    split: Split,
    idle: Vec<VmId>,
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Pair {
    estimate: Estimate,
    share: Rate,
    /// What of the share the pair is estimated to want.
    wanted: Rate,
    /// The smallest floor since the last step.
    in_force: Rate,
    seen_at: Time,
    word: Option<Word>,
    /// What waited in its queue since the last step.
    backlog: Backlog,
    /// The same before that step, which the receiver is told.
    waited: Backlog,
    /// It sends more than it wants a floor for.
    exceeds: bool,
    /// What this hose has for the pair if it wants all it can get, at the last step.
    most: Option<Rate>,
    told: Option<Told>,
}

/// The last [`Echo::most`] and [`Echo::backlog`] that the receiver was told.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Told {
    most: Rate,
    backlog: Backlog,
    /// It was a change, and was sent once. The next step repeats it, because one message may be
    /// lost.
    is_due_again: bool,
}

/// The receiver's last offer.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Word {
    offer: Offer,
    heard_at: Time,
    /// Not heard but found: any word of the receiver is newer.
    is_adopted: bool,
}

/// The receiver's last offer as a sender remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Heard {
    /// What it offered.
    pub offer: Offer,
    /// When.
    pub at: Time,
    /// Not heard but found in force after a restart of this host: any word is newer.
    pub is_adopted: bool,
}

/// What a pair knows of the receiver's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
enum Standing {
    Unconfirmed,
    /// Heard of lately, or held through a silence.
    Held(Offer),
    /// Silent for so long that the receiver may have given the offer to others.
    Lapsed(Offer),
}

impl Pair {
    fn standing(&self, now: Time, held_for: Span) -> Standing {
        match self.word {
            None => Standing::Unconfirmed,
            Some(w) if now.since(w.heard_at) > held_for => Standing::Lapsed(w.offer),
            Some(w) => Standing::Held(w.offer),
        }
    }

    fn heard_at(&self) -> Time {
        self.word.map_or(self.seen_at, |w| w.heard_at)
    }

    /// The echo of the offer that is held.
    fn echo(&self, held: Offer) -> Echo {
        let Offer { pair, serial, floor, .. } = held;
        Echo { pair, serial, floor, most: self.most, backlog: self.waited }
    }

    /// An echo if the receiver does not know what this hose has for the pair, or what waits: that
    /// changed by more than a little, or was said once only.
    fn note(&mut self) -> Option<Echo> {
        let held = self.word.filter(|word| !word.is_adopted)?.offer;
        let most = self.most?;
        let has_changed = self.told.is_none_or(|told| {
            let (less, more) = (told.most.mul_ratio(1, FALL), told.most.mul_ratio(1, GROWTH));
            let has_most = most <= told.most + more && most + less >= told.most;
            !has_most || told.backlog != self.waited
        });
        if !has_changed && !self.told.is_some_and(|told| told.is_due_again) {
            return None;
        }
        self.told = Some(Told { most, backlog: self.waited, is_due_again: has_changed });
        Some(self.echo(held))
    }
}

/// A change of a pair's most is told when it grew by one part in this many. With a smaller number a
/// pair's floor may stay further below what both hoses have, until the receiver asks.
const GROWTH: u64 = 64;
/// And when it fell by one part in so many: the receiver keeps that much too much meanwhile.
const FALL: u64 = 32;

impl SendHose {
    /// A hose of `hose` without pairs.
    pub fn new(config: PartitionConfig, hose: Rate) -> Self {
        let small = Small::of(&config, hose, 0);
        Self {
            config,
            hose,
            small,
            pairs: SortedMap::new(),
            past: SortedMap::new(),
            fair: hose,
            handed_out: 1.0,
            left: hose,
            claims: Claims::default(),
            dirty: false,
            refused: 0,
            split: Split::default(),
            idle: Vec::new(),
        }
    }

    /// The VM's hose out.
    pub const fn hose(&self) -> Rate {
        self.hose
    }

    /// The hose is another one from now on (a new epoch of policy).
    pub fn set_hose(&mut self, hose: Rate) {
        self.hose = hose;
        self.small = Small::of(&self.config, hose, self.pairs.len());
        self.dirty = true;
    }

    /// A packet to `peer`. False if the pair found no room ([`PartitionConfig::max_peers`]): it has
    /// no floor. Harmless for a pair that is known.
    pub fn see(&mut self, now: Time, peer: VmId) -> bool {
        if self.pairs.contains_key(&peer) {
            return true;
        }
        if self.pairs.len() >= self.config.max_peers {
            self.refused += 1;
            return false;
        }
        let estimate = Estimate::new(now, self.small);
        self.claims.add(estimate.demand(), estimate.sure());
        let in_force = self.claims.first(self.hose, self.small.start, self.pairs.len() + 1);
        let share = Rate::ZERO;
        let pair = Pair {
            estimate,
            share,
            wanted: share,
            in_force,
            seen_at: now,
            word: None,
            backlog: Backlog::Unknown,
            waited: Backlog::Unknown,
            exceeds: false,
            most: None,
            told: None,
        };
        self.pairs.insert(peer, pair);
        self.dirty = true;
        true
    }

    /// A pair that an earlier incarnation of this host left with a floor of `floor`. It keeps the
    /// floor until the receiver speaks or the hold ends, and `floor` is taken for its demand.
    pub fn adopt(&mut self, now: Time, peer: VmId, pair: PairId, floor: Rate) -> bool {
        if !self.see(now, peer) {
            return false;
        }
        if let Some(known) = self.pairs.get_mut(&peer) {
            let offer = Offer {
                pair,
                serial: 0,
                floor,
                unbounded: false,
                confirm: false,
                round_trip: None,
            };
            known.estimate = Estimate::adopted(now, floor);
            self.claims.add(known.estimate.demand(), known.estimate.sure());
            known.in_force = floor;
            known.word = Some(Word { offer, heard_at: now, is_adopted: true });
        }
        self.dirty = true;
        true
    }

    /// The peer is no VM any more, or another one: nothing of it stays.
    pub fn forget(&mut self, peer: VmId) {
        self.dirty |= self.pairs.remove(&peer).is_some();
        self.past.remove(&peer);
    }

    /// How many pairs share this hose.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether no pair is active.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The receiver's part. Returns the echo to send if one is due: it names the offer that is
    /// held, which is a later one if this one was late. Without the pair, nothing is held. The
    /// floor follows at once; the division of the rest with the next step.
    pub fn offer(&mut self, now: Time, peer: VmId, offer: Offer) -> Option<Echo> {
        let Some(pair) = self.pairs.get_mut(&peer) else {
            // No part of this hose is for the pair, so the receiver need not keep any of its own.
            let Offer { pair, serial, .. } = offer;
            self.remember(now, peer, serial);
            let (floor, most, backlog) = (Rate::ZERO, Some(Rate::ZERO), Backlog::Unknown);
            return offer.confirm.then_some(Echo { pair, serial, floor, most, backlog });
        };
        if pair.word.is_none()
            && let Some((serial, at)) = self.past.get(&peer).copied()
            && older(offer.serial, serial)
            && now.since(at) <= self.config.silent_after
        {
            let held = Offer { serial, floor: Rate::ZERO, ..offer };
            return offer.confirm.then(|| pair.echo(held));
        }
        let stale = pair.word.is_some_and(|word| is_stale(&self.config, word, offer, now));
        if !stale {
            pair.word = Some(Word { offer, heard_at: now, is_adopted: false });
            // The rest of the epoch cannot be held against more than this.
            pair.in_force = pair.in_force.min(offer.floor);
        }
        if !offer.confirm {
            return None;
        }
        let backlog = pair.waited;
        pair.told = pair.most.map(|most| Told { most, backlog, is_due_again: false });
        Some(pair.echo(pair.word.map_or(offer, |w| w.offer)))
    }

    /// The echo of the offer that `peer`'s pair holds: heard from the receiver, and not so long ago
    /// that it has lapsed.
    pub fn held(&self, now: Time, peer: VmId) -> Option<Echo> {
        let pair = self.pairs.get(&peer)?;
        let word = pair.word.filter(|word| !word.is_adopted)?;
        (now.since(word.heard_at) <= self.config.held_for()).then(|| pair.echo(word.offer))
    }

    /// After a step: the echoes that tell receivers what this hose has for their pairs, and what
    /// waits of them, where they do not know it. A lost one costs the pair or others efficiency until the next, never a hose.
    pub fn notes(&mut self) -> impl Iterator<Item = Echo> + '_ {
        self.pairs.values_mut().filter_map(Pair::note)
    }

    /// The path's round trip, as the receiver last said it.
    pub fn round_trip(&self, peer: VmId) -> Option<Span> {
        self.pairs.get(&peer)?.word?.offer.round_trip
    }

    /// From the next division on, this part of what all pairs leave of the hose, from 0 to 1, is
    /// divided among them, too. Less than all of it on a host whose link cannot carry it: what
    /// pairs want comes first.
    pub fn hand_out(&mut self, part: f64) {
        self.handed_out = part;
    }

    /// The floors that the pairs want, and what they leave of the hose, by the last division.
    pub fn wanted_and_left(&self, now: Time) -> (Rate, Rate) {
        let wanted = |pair: &Pair| floor_within(&self.config, self.small, pair, pair.wanted, now);
        (self.pairs.values().map(wanted).sum(), self.left)
    }

    /// What waited in the pair's queue since the last step. A pair that says nothing is judged by
    /// what it used alone.
    pub fn waited(&mut self, peer: VmId, backlog: Backlog) {
        if let Some(pair) = self.pairs.get_mut(&peer) {
            pair.backlog = backlog;
        }
    }

    /// Whether the pair sends more than it wants a floor for, from the next step on. What is measured
    /// is what it wants then, and its receiver is told that.
    pub fn exceeds(&mut self, peer: VmId, exceeds: bool) {
        if let Some(pair) = self.pairs.get_mut(&peer) {
            pair.exceeds = exceeds;
        }
    }

    /// The periodic step: estimates demands from what was `measured` since the last one and divides
    /// the hose again. Returns the pairs that are over; they are forgotten here.
    ///
    /// A pair is over only some time after its receiver thought so, so that it can still answer.
    pub fn step(&mut self, now: Time, mut measured: impl FnMut(VmId) -> Rate) -> &[VmId] {
        self.divide_if_dirty(now);
        self.small = Small::of(&self.config, self.hose, self.pairs.len());
        self.idle.clear();
        let Self { config, small, fair, hose, .. } = self;
        let over = config.idle_after + config.silent_after;
        for (peer, pair) in &mut self.pairs {
            let floor = floor_of(config, *small, pair, now);
            pair.waited = std::mem::take(&mut pair.backlog);
            // It used its floor up, not its share: where the receiver has less for it, a share that
            // doubles each time would be kept for nothing from pairs that wait.
            let is_offered = matches!(pair.standing(now, config.held_for()), Standing::Held(_));
            let most = if is_offered && *fair < *hose {
                floor.scale(config.growth).max(small.start)
            } else {
                Rate::MAX
            };
            let epoch = Epoch {
                guarantee: floor.min(pair.in_force),
                is_estimate: is_estimate(config, pair, now),
                share: pair.share.min(most),
                fair: *fair,
                backlog: pair.waited,
                is_held: pair.waited == Backlog::Always,
                exceeds: pair.exceeds,
            };
            pair.estimate.step(now, measured(*peer), epoch, *small, config);
            if pair.estimate.idle_for(now) >= over {
                self.idle.push(*peer);
            }
        }
        let lives = self.config.silent_after;
        self.past.retain(|_, (_, at)| now.since(*at) <= lives);
        let idle = std::mem::take(&mut self.idle);
        for peer in &idle {
            let word = self.pairs.remove(peer).and_then(|pair| pair.word);
            if let Some(Word { offer, heard_at, is_adopted: false }) = word {
                self.remember(heard_at, *peer, offer.serial);
            }
        }
        self.idle = idle;
        self.divide_for(now, true);
        &self.idle
    }

    /// The pair's floor: the smaller of both parts. Zero for a pair that is not known.
    ///
    /// Silence: before the receiver's first word, the small start. A receiver that falls silent:
    /// its last offer stays for [`PartitionConfig::silent_hold`], then the floor falls to the small
    /// start.
    pub fn floor(&mut self, now: Time, peer: VmId) -> Rate {
        let Some(pair) = self.pairs.get(&peer) else { return Rate::ZERO };
        if self.dirty && pair.word.is_none() && pair.share.is_zero() {
            // What the division will give a new pair at least. Saves a division for each of many
            // pairs that appear at once.
            let first = self.claims.first(self.hose, self.small.start, self.pairs.len());
            return pair.estimate.demand().limit().min(first);
        }
        self.divide_if_dirty(now);
        self.pairs.get(&peer).map_or(Rate::ZERO, |p| floor_of(&self.config, self.small, p, now))
    }

    /// The pair's part of this hose at the last division, before the receiver's word. Zero for an
    /// unknown pair.
    pub fn share(&self, peer: VmId) -> Rate {
        self.pairs.get(&peer).map_or(Rate::ZERO, |p| p.share)
    }

    /// The receiver's last word, if there was one.
    pub fn offered(&self, peer: VmId) -> Option<Offer> {
        self.pairs.get(&peer)?.word.map(|w| w.offer)
    }

    /// The receiver's last word, and when it came; for people.
    pub fn heard(&self, peer: VmId) -> Option<Heard> {
        let Word { offer, heard_at, is_adopted } = self.pairs.get(&peer)?.word?;
        Some(Heard { offer, at: heard_at, is_adopted })
    }

    /// What the pair is thought to want of this end, and why.
    pub fn wants(&self, peer: VmId) -> Option<(Want, Rate)> {
        self.pairs.get(&peer).map(|p| p.estimate.view())
    }

    /// What waited in the pair's queue in the last period.
    pub fn last_waited(&self, peer: VmId) -> Backlog {
        self.pairs.get(&peer).map_or(Backlog::Unknown, |pair| pair.waited)
    }

    /// Whether the pair may exceed its floor: not while its receiver is silent.
    pub fn borrowing(&self, now: Time, peer: VmId) -> Borrowing {
        let Some(pair) = self.pairs.get(&peer) else { return Borrowing::Allowed };
        let silent_for = now.since(pair.heard_at());
        if silent_for > self.config.silent_after {
            Borrowing::Decaying { silent_for }
        } else {
            Borrowing::Allowed
        }
    }

    /// The VMs that this hose is divided over.
    pub fn peers(&self) -> impl Iterator<Item = VmId> + '_ {
        self.pairs.keys().copied()
    }

    /// Pairs that found no room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// An offer of this serial came at `at`, and its pair is none.
    fn remember(&mut self, at: Time, peer: VmId, serial: u32) {
        let is_newer = self.past.get(&peer).is_none_or(|(past, _)| older(*past, serial));
        if is_newer && (self.past.len() < self.config.max_peers || self.past.contains_key(&peer)) {
            self.past.insert(peer, (serial, at));
        }
    }

    fn divide_if_dirty(&mut self, now: Time) {
        if self.dirty {
            self.divide_for(now, false);
        }
    }

    /// `opens`: a new epoch begins, and its measurement is held against the floors of now.
    fn divide_for(&mut self, now: Time, opens: bool) {
        self.dirty = false;
        self.split.clear();
        self.claims = Claims::default();
        for pair in self.pairs.values() {
            let (demand, sure) = (pair.estimate.demand(), pair.estimate.sure());
            let most = most_of(&self.config, self.small, pair, now);
            self.split.add(demand.min(most), sure.min(most));
            self.claims.add(demand, sure);
        }
        self.split.hold_guesses(self.hose, self.small.start);
        let level = self.split.max_min(self.hose);
        for (pair, share) in self.pairs.values_mut().zip(&self.split.shares) {
            pair.wanted = *share;
        }
        self.left = Rate::ZERO;
        if level.is_none() {
            let met = self.split.shares.iter().copied().sum();
            self.left = self.hose.saturating_sub(met);
            let more =
                if self.handed_out < 1.0 { self.left.scale(self.handed_out) } else { self.left };
            self.split.hand_out(met + more.min(self.left));
        }
        self.fair = level.unwrap_or(self.hose);
        if opens {
            for (pair, most) in self.pairs.values_mut().zip(self.split.most(self.hose)) {
                let wanted = if pair.exceeds { pair.estimate.demand().limit() } else { Rate::MAX };
                pair.most = Some(most.min(wanted));
            }
        }
        for (pair, share) in self.pairs.values_mut().zip(&self.split.shares) {
            pair.share = *share;
            if opens {
                pair.in_force = floor_of(&self.config, self.small, pair, now);
            }
        }
    }
}

/// Whether an offer is to be ignored for the one that is held. An older one is, but for two cases. The first
/// word after our own restart is newer than what was found. After a silence the receiver may have started
/// anew, with any serial; but one that is older by no more than the receiver counts on in the hold may also be
/// a late letter. Silence is no proof of the contrary: this host may have stood still meanwhile, or its clock
/// may have jumped, so what is held is held for as long as its receiver takes it to be.
fn is_stale(config: &PartitionConfig, word: Word, offer: Offer, now: Time) -> bool {
    if word.is_adopted || !older(offer.serial, word.offer.serial) {
        return false;
    }
    // A hose is divided less than a thousand times a second.
    let lately = config.held_for().as_nanos() / 1_000_000;
    let may_be_late = u64::from(word.offer.serial.wrapping_sub(offer.serial)) < lately;
    let silent_after = if may_be_late { config.held_for() } else { config.silent_after };
    now.since(word.heard_at) <= silent_after
}

/// The smaller of both parts, under the rules of silence.
fn floor_of(config: &PartitionConfig, small: Small, pair: &Pair, now: Time) -> Rate {
    floor_within(config, small, pair, pair.share, now)
}

/// The same with `share` as this end's part.
fn floor_within(
    config: &PartitionConfig,
    small: Small,
    pair: &Pair,
    share: Rate,
    now: Time,
) -> Rate {
    match pair.standing(now, config.held_for()) {
        Standing::Held(offer) => share.min(offer.floor),
        Standing::Lapsed(offer) => share.min(offer.floor).min(small.start),
        Standing::Unconfirmed => share.min(small.start),
    }
}

/// The pair's largest demand for the next epoch. What the receiver cannot take is not kept for it:
/// its full fair share there is the demand here; in a long silence, the small start.
fn most_of(config: &PartitionConfig, small: Small, pair: &Pair, now: Time) -> Demand {
    match pair.standing(now, config.held_for()) {
        Standing::Held(offer) if offer.unbounded => Demand::Bounded(offer.floor),
        Standing::Held(_) => Demand::Unbounded,
        Standing::Lapsed(_) | Standing::Unconfirmed => Demand::Bounded(small.start),
    }
}

/// Whether the smaller of both parts is an estimate, not a fair share.
fn is_estimate(config: &PartitionConfig, pair: &Pair, now: Time) -> bool {
    match pair.standing(now, config.held_for()) {
        Standing::Held(offer) if offer.floor < pair.share => !offer.unbounded,
        _ => pair.estimate.is_bounded(),
    }
}
