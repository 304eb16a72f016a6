//! One VM's hose in, divided over the VMs that send to it.
//!
//! Problem   Senders elsewhere enforce the parts, and hear of them late or never.
//! Approach  Divide as a sender does, but keep no more for a pair than its sender's own hose has
//!           for it. Offer each pair its part, but spend on one pair only what no other sender may
//!           still hold. What is freed goes to the pairs that wait, in proportion to what they
//!           miss.
//! Promises  Σ over pairs of the largest offer a sender may hold ≤ hose, however messages are lost,
//!           late, repeated or reordered within [`PartitionConfig::silent_after`].
//! Not here  Pairs that are not known here (yet, or any more): they hold the small start at their
//!           sender.
//! Source    ElasticSwitch §4. Departs: echoes, since the paper assumes that offers arrive in time.

use super::account::Account;
use super::estimate::{Epoch, Estimate, Small, Want};
use super::maxmin::{Claims, Split};
use super::trip::RoundTrip;
use super::{Demand, PartitionConfig, older};
use crate::message::{Backlog, Echo, Offer};
use weir_units::{PairId, Rate, SortedMap, Span, Time, VmId};

/// Serials are at most so far behind the clock, in milliseconds: 12 days. Twice as much looks like the future.
const MOST_BEHIND: u32 = 1 << 30;

/// The receiver's half of guarantee partitioning, for one VM.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReceiveHose {
    config: PartitionConfig,
    vm: VmId,
    hose: Rate,
    small: Small,
    pairs: SortedMap<VmId, Pair>,
    /// The fair share of pairs without limit at the last division.
    fair: Rate,
    /// Grows whenever an offer may differ from the one before.
    serial: u32,
    /// Offers with older serials were made by an earlier incarnation of this host.
    born: u32,
    /// Σ of what senders may hold.
    spent: Rate,
    /// Σ of what pairs should have and cannot be offered yet.
    missing: Rate,
    /// The demands at the last division, and those of pairs that began since.
    claims: Claims,
    /// Something changed since the last division.
    dirty: bool,
    refused: u64,
    split: Split,
    idle: Vec<VmId>,
}

/// Part of the hose that counts as spent on one pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spent {
    /// The largest offer that the sender may still hold.
    pub most: Rate,
    /// The sender has not confirmed the present, smaller one.
    pub awaits_echo: bool,
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Pair {
    estimate: Estimate,
    account: Account,
    /// Share by the division; offered as far as it is not spent elsewhere.
    share: Rate,
    /// The share is the full fair share: the pair's demand was cut to it.
    is_cut: bool,
    /// The smallest offer since the last step.
    in_force: Rate,
    /// Idle for long: gets the small start, and is over when its sender confirms.
    retiring: bool,
    /// An offer was asked for at least once.
    announced: bool,
    /// What its sender said of it last.
    told: Option<Told>,
    /// Time of the sender's last echo, or of the pair's beginning.
    echoed_at: Time,
    trip: RoundTrip,
}

/// A sender's [`Echo::most`] and [`Echo::backlog`] as its receiver heard them.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Told {
    most: Rate,
    backlog: Backlog,
    serial: u32,
    at: Time,
}

impl ReceiveHose {
    /// The hose `hose` of `vm`, without pairs.
    pub fn new(config: PartitionConfig, vm: VmId, hose: Rate) -> Self {
        Self::starting_at(config, vm, hose, 0)
    }

    /// The same for a host that may have had an earlier incarnation: its serials go on from
    /// `serial`, above all former ones, so that senders take its first offer at once.
    pub fn starting_at(config: PartitionConfig, vm: VmId, hose: Rate, serial: u32) -> Self {
        let small = Small::of(&config, hose, 0);
        Self {
            config,
            vm,
            hose,
            small,
            pairs: SortedMap::new(),
            fair: hose,
            serial,
            born: serial,
            spent: Rate::ZERO,
            missing: Rate::ZERO,
            claims: Claims::default(),
            dirty: false,
            refused: 0,
            split: Split::default(),
            idle: Vec::new(),
        }
    }

    /// The VM's hose in.
    pub const fn hose(&self) -> Rate {
        self.hose
    }

    /// The hose is another one from now on (a new epoch of policy). A smaller one holds as soon as
    /// the senders have echoed their smaller parts.
    pub fn set_hose(&mut self, hose: Rate) {
        self.hose = hose;
        self.small = Small::of(&self.config, hose, self.pairs.len());
        self.dirty = true;
    }

    /// Serials go on above those of all hoses of this life: a pair is about to come here from another
    /// hose of the VM, and its sender holds an offer of that one.
    pub(crate) fn catch_up(&mut self, now: Time) {
        let clock = (now.as_nanos() / 1_000_000) as u32;
        if older(self.serial, clock) {
            self.serial = clock;
        }
        self.born = self.serial;
    }

    /// A packet from `peer`. False if the pair found no room ([`PartitionConfig::max_peers`]): it
    /// has no floor. Harmless for a pair that is known.
    ///
    /// A new pair is offered something at once, out of what is free; never all of it, so that each
    /// of many that appear together gets a part. Its fair share follows with the next division.
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
        let start = self.claims.first(self.hose, self.small.start, self.pairs.len() + 1);
        let free = self.hose.saturating_sub(self.spent);
        let first = start.min(free.mul_ratio(1, self.config.small_start_divisor));
        self.advance(now);
        let mut account = Account::default();
        account.set(now, self.serial, first);
        self.spent += first;
        let pair = Pair {
            estimate,
            account,
            share: first,
            is_cut: false,
            in_force: first,
            retiring: false,
            announced: false,
            told: None,
            echoed_at: now,
            trip: RoundTrip::default(),
        };
        self.pairs.insert(peer, pair);
        self.dirty = true;
        true
    }

    /// The offer for the sender `peer` now. Sending it repeatedly does no harm. An unknown pair is
    /// offered nothing.
    ///
    /// If pairs came or an echo freed something, the hose is divided first; but not for the very
    /// first offer of a pair, so that many that appear together do not cost one division each.
    pub fn offer(&mut self, now: Time, peer: VmId) -> Offer {
        let known = |p: &Pair| p.announced || !p.estimate.is_new();
        if self.dirty && self.pairs.get(&peer).is_some_and(known) {
            self.divide(now);
        }
        let (vm, serial, config) = (self.vm, self.serial, &self.config);
        match self.pairs.get_mut(&peer) {
            Some(pair) => pair.announce(now, PairId::new(peer, vm), serial, config),
            None => Offer {
                pair: PairId::new(peer, vm),
                serial,
                floor: Rate::ZERO,
                unbounded: false,
                confirm: false,
                round_trip: None,
            },
        }
    }

    /// [`ReceiveHose::offer`] for all pairs, in the order of their peers.
    pub fn offers(&mut self, now: Time) -> impl Iterator<Item = Offer> + '_ {
        if self.dirty {
            self.divide(now);
        }
        let (vm, serial, config) = (self.vm, self.serial, &self.config);
        self.pairs
            .iter_mut()
            .map(move |(peer, pair)| pair.announce(now, PairId::new(*peer, vm), serial, config))
    }

    /// Handles an echo: the sender holds an offer. True if that freed what other pairs wait for:
    /// their offers have changed and are worth sending before the period is over.
    pub fn echo(&mut self, now: Time, peer: VmId, echo: Echo) -> bool {
        let Some(pair) = self.pairs.get_mut(&peer) else { return false };
        let before = pair.account.spent();
        // The echo is of another incarnation of this hose, or forged: no such offer was made.
        if older(self.serial, echo.serial) || echo.floor > before {
            return false;
        }
        pair.hear(now, echo);
        pair.trip.echoed(now, echo.serial);
        pair.account.echoed(echo.serial);
        let freed = before - pair.account.spent();
        self.spent = self.spent - freed;
        let worth = self.hose.mul_ratio(1, self.config.small_start_divisor);
        let wanted = !freed.is_zero() && !self.missing.is_zero() && self.missing >= worth;
        self.dirty |= wanted;
        wanted
    }

    /// The sender holds an offer of an earlier incarnation of this host. It counts as made by this
    /// one, as far as the hose has room. False if it is none of those, or if the pair was offered
    /// something since: then [`ReceiveHose::echo`] judges it.
    pub fn learn(&mut self, now: Time, peer: VmId, echo: Echo) -> bool {
        let Some(pair) = self.pairs.get_mut(&peer) else { return false };
        if pair.announced || !older(echo.serial, self.born) {
            return false;
        }
        let others = self.spent - pair.account.spent();
        let held = echo.floor.min(self.hose.saturating_sub(others));
        pair.account = Account::default();
        pair.account.set(now, self.serial, held);
        pair.estimate = Estimate::adopted(now, held);
        (pair.share, pair.in_force) = (held, held);
        pair.hear(now, echo);
        self.spent = others + held;
        self.dirty = true;
        true
    }

    /// The periodic step: estimates demands from what was `measured` since the last one and divides
    /// the hose again. Returns the pairs that are over; they are forgotten here.
    ///
    /// A pair without octets for [`PartitionConfig::idle_after`] is first offered the small start,
    /// and is over when its sender has echoed that or must have let go of its older offer.
    pub fn step(&mut self, now: Time, mut measured: impl FnMut(VmId) -> Rate) -> &[VmId] {
        self.idle.clear();
        self.small = Small::of(&self.config, self.hose, self.pairs.len());
        let Self { config, small, fair, .. } = self;
        for (peer, pair) in &mut self.pairs {
            let epoch = Epoch {
                guarantee: pair.in_force.min(pair.account.offer()),
                is_estimate: pair.estimate.is_bounded() && !pair.is_cut,
                share: pair.share,
                fair: *fair,
                // What its sender says waits only confirms a guess: docs/decisions/0031-what-waits.md.
                backlog: Backlog::Unknown,
                is_held: pair
                    .told(now, config.most_lives)
                    .is_some_and(|t| t.backlog == Backlog::Always),
                exceeds: false,
            };
            pair.estimate.step(now, measured(*peer), epoch, *small, config);
            let was_retiring = pair.retiring;
            pair.retiring = pair.estimate.idle_for(now) >= config.idle_after;
            let small_is_left = pair.account.spent() <= small.start && !pair.account.awaits_echo();
            if was_retiring && pair.retiring && small_is_left {
                self.idle.push(*peer);
            }
        }
        for peer in &self.idle {
            self.pairs.remove(peer);
        }
        self.divide_for(now, true);
        &self.idle
    }

    /// The peer is no VM any more, or another one. Nothing of it stays, and what it held is free at
    /// once, because no sender is left to confirm it.
    pub fn forget(&mut self, peer: VmId) {
        if let Some(pair) = self.pairs.remove(&peer) {
            self.spent = self.spent - pair.account.spent();
            self.dirty = true;
        }
    }

    /// The last offer's floor. Zero for an unknown pair.
    pub fn offered(&self, peer: VmId) -> Rate {
        self.pairs.get(&peer).map_or(Rate::ZERO, |p| p.account.offer())
    }

    /// What both ends' hoses have for the pair, as far as its sender has told. Zero for an unknown
    /// pair.
    pub fn promised(&self, now: Time, peer: VmId) -> Rate {
        let lives = self.config.most_lives;
        let promised = |p: &Pair| p.account.offer().min(p.most(now, lives).limit());
        self.pairs.get(&peer).map_or(Rate::ZERO, promised)
    }

    /// Demand of the pair at this end as estimated, with the reason.
    pub fn wants(&self, peer: VmId) -> Option<(Want, Rate)> {
        self.pairs.get(&peer).map(|p| p.estimate.view())
    }

    /// What counts as spent on one pair.
    pub fn spent_on(&self, peer: VmId) -> Option<Spent> {
        self.pairs
            .get(&peer)
            .map(|p| Spent { most: p.account.spent(), awaits_echo: p.account.awaits_echo() })
    }

    /// Σ over pairs of the largest offer that their senders may hold.
    pub const fn spent(&self) -> Rate {
        self.spent
    }

    /// Σ of what pairs should have and wait for until others have echoed their smaller parts.
    pub const fn missing(&self) -> Rate {
        self.missing
    }

    /// The VMs that this hose is divided over.
    pub fn peers(&self) -> impl Iterator<Item = VmId> + '_ {
        self.pairs.keys().copied()
    }

    /// Pairs that found no room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// The next serial. A life begins with the clock's milliseconds as a serial, and counts divisions from there: after
    /// weeks the clock would be so far ahead that what the next life begins with looked older. Before that the serial
    /// catches up with the clock.
    fn advance(&mut self, now: Time) {
        self.serial = self.serial.wrapping_add(1);
        let clock = (now.as_nanos() / 1_000_000) as u32;
        let behind = clock.wrapping_sub(self.serial);
        if (MOST_BEHIND..MOST_BEHIND * 2).contains(&behind) {
            self.serial = clock;
            self.born = clock.wrapping_sub(MOST_BEHIND);
        }
    }

    /// Divides in the middle of a period.
    fn divide(&mut self, now: Time) {
        self.divide_for(now, false);
    }

    /// `opens`: a new epoch begins, and its measurement is held against the offers of now.
    fn divide_for(&mut self, now: Time, opens: bool) {
        self.dirty = false;
        self.advance(now);
        self.split(now);
        let before = self.spent;
        let needed = self.lower(now, opens);
        let given = self.raise(now, opens, needed);
        self.missing = needed.saturating_sub(given);
        assert!(self.spent <= self.hose.max(before), "promised more than the hose");
    }

    /// Share of each active pair, in order, whatever is spent now.
    fn split(&mut self, now: Time) {
        let lives = self.config.most_lives;
        let active = || self.pairs.values().filter(|p| !p.retiring);
        let (mut any_old, mut claims) = (false, Claims::default());
        self.split.clear();
        for pair in active() {
            any_old |= !pair.estimate.is_new();
            let most = pair.most(now, lives);
            let (demand, sure) = (pair.estimate.demand().min(most), pair.estimate.sure().min(most));
            self.split.add(demand, sure);
            claims.add(demand, sure);
        }
        self.claims = claims;
        self.split.hold_guesses(self.hose, self.small.start);
        let level = self.split.max_min(self.hose);
        self.fair = level.unwrap_or(self.hose);
        if level.is_none() && any_old {
            // New pairs get no more than the small start: see the module's departures.
            for (demand, pair) in self.split.demands.iter_mut().zip(active()) {
                if pair.estimate.is_new() {
                    *demand = Demand::Bounded(Rate::ZERO);
                }
            }
            self.split.hand_out(self.hose);
        }
    }

    /// Takes the new shares over, lowers what is above them, and raises what costs nothing. Counts
    /// again what is spent, and returns what is needed beyond.
    fn lower(&mut self, now: Time, opens: bool) -> Rate {
        let held_for = self.config.held_for() + self.config.silent_after;
        let lives = self.config.most_lives;
        let mut shares = self.split.shares.iter();
        let (mut spent, mut needed) = (Rate::ZERO, Rate::ZERO);
        for pair in self.pairs.values_mut() {
            let share = if pair.retiring { None } else { shares.next() };
            pair.share = share.copied().unwrap_or(pair.account.offer().min(self.small.start));
            let demand = pair.estimate.demand().min(pair.most(now, lives));
            pair.is_cut = share.is_some() && demand.limit() > pair.share;
            pair.account.expire(now, held_for);
            pair.offer(now, self.serial, pair.share.min(pair.account.spent()), opens);
            spent += pair.account.spent();
            needed += pair.share - pair.account.offer();
        }
        self.spent = spent;
        needed
    }

    /// Gives free bandwidth to the pairs that need more, in proportion. Returns what was given.
    fn raise(&mut self, now: Time, opens: bool, needed: Rate) -> Rate {
        let free = self.hose.saturating_sub(self.spent);
        if needed.is_zero() || free.is_zero() {
            return Rate::ZERO;
        }
        let mut given = Rate::ZERO;
        for pair in self.pairs.values_mut() {
            let need = pair.share - pair.account.offer();
            if need.is_zero() {
                continue;
            }
            let part =
                if needed <= free { need } else { need.mul_ratio(free.as_bps(), needed.as_bps()) };
            pair.offer(now, self.serial, pair.account.offer() + part, opens);
            given += part;
        }
        self.spent += given;
        given
    }
}

impl Pair {
    /// What its sender's hose has for the pair: its demand in the split is no more.
    fn most(&self, now: Time, lives: Span) -> Demand {
        self.told(now, lives).map_or(Demand::Unbounded, |told| Demand::Bounded(told.most))
    }

    /// What its sender said of it, if that is not too long ago.
    fn told(&self, now: Time, lives: Span) -> Option<Told> {
        self.told.filter(|told| now.since(told.at) <= lives)
    }

    /// Stores what the sender says of its end, unless the echo is older than the last one.
    fn hear(&mut self, now: Time, echo: Echo) {
        self.echoed_at = now;
        if let Some(most) = echo.most
            && self.told.is_none_or(|told| !older(echo.serial, told.serial))
        {
            let Echo { serial, backlog, .. } = echo;
            self.told = Some(Told { most, backlog, serial, at: now });
        }
    }

    fn offer(&mut self, now: Time, serial: u32, offer: Rate, opens: bool) {
        self.account.set(now, serial, offer);
        self.in_force = if opens { offer } else { self.in_force.min(offer) };
    }

    fn announce(
        &mut self,
        now: Time,
        pair: PairId,
        serial: u32,
        config: &PartitionConfig,
    ) -> Offer {
        self.announced = true;
        let floor = self.account.offer();
        let is_long_ago = now.since(self.echoed_at) >= config.ask_every;
        let confirm = self.account.awaits_echo() || is_long_ago;
        if confirm {
            self.trip.ask(now, serial, config.silent_after);
        }
        Offer {
            pair,
            serial,
            floor,
            unbounded: self.is_cut && floor == self.share,
            confirm,
            round_trip: self.trip.get(),
        }
    }
}
