//! What an agent does when a period is over, and what follows for the rates.
//!
//! Approach  Partitioning divides every hose again and tells the senders; allocation steps the law
//!           of every pair. What either decides is written into the desired table at once.
//! Promises  A late driver skips periods, it does not catch up.
//! Source    ElasticSwitch §4, §5, §6.

use super::pairs::SendPair;
use super::{Direction, LEAST_PAIR_RATE, Machine, Outbox, Promise, Setting, Vm};
use crate::classes::{self, QUEUE};
use crate::message::Message;
use crate::partition::{Borrowing, SendHose};
use crate::rate::Feedback;
use weir_units::{HostId, PairId, Rate, SortedMap, Span, Time, VmId};

/// This much of a host's link, less what traffic without a floor gets, can be floors at once: the
/// rest is for control, and for what a pair may miss of its guarantee and still count as using it.
const FITS: f64 = 0.95;

/// A pair with a ceiling of no more than so many floors is at its floor.
const AT_FLOOR: f64 = 1.1;

impl Machine {
    // -- periods ------------------------------------------------------------------------------

    pub(super) fn tick(&mut self, now: Time, out: &mut Outbox) {
        let es = &self.es;
        let (sample, rate, partition) = (es.sample_period, es.rate.period, es.partition_period);
        if self.partition_at <= now {
            self.partition_at = next_period(self.partition_at, partition, now);
            self.partition(now, out);
        } else if self.new_pairs_at.is_some_and(|at| at <= now) {
            self.offer_changed(now, out);
        }
        if self.rate_at <= now {
            self.rate_at = next_period(self.rate_at, rate, now);
            self.allocate(now);
        }
        if self.sample_at <= now {
            self.sample_at = next_period(self.sample_at, sample, now);
        }
    }

    /// Guarantee partitioning: estimates demands, divides every hose again, tells the senders.
    fn partition(&mut self, now: Time, out: &mut Outbox) {
        let span = now.since(self.partitioned_at);
        self.partitioned_at = now;
        self.new_pairs_at = None;
        let (mut gone, mut notes) = (Vec::new(), Vec::new());
        let (over, spare) = (self.overbooked(), self.spare(now));
        for (id, vm) in &mut self.vms {
            let all = PairId::new(*id, VmId(0))..=PairId::new(*id, VmId(u32::MAX));
            let mut used = SortedMap::new();
            for (pair, p) in self.send.range_mut(all) {
                let back = self.receive.get(&pair.reversed());
                let promised = back.map(|back| vm.hose(back.hose).receive.promised(now, pair.dst));
                let of = p.used_since_partition(span, promised);
                let hose = &mut vm.hose(p.hose).send;
                hose.waited(pair.dst, of.backlog);
                hose.exceeds(pair.dst, of.exceeds);
                used.insert(pair.dst, of.rate.scale(over));
            }
            for (_, hose) in vm.hoses() {
                hose.send.hand_out(spare);
                let idle = hose.send.step(now, |peer| used.get(&peer).copied().unwrap_or_default());
                gone.extend(idle.iter().map(|p| (PairId::new(*id, *p), Direction::Send)));
                notes.extend(hose.send.notes());
                let (send, receive) = (&self.send, &mut self.receive);
                let idle = hose.receive.step(now, |peer| {
                    let pair = PairId::new(peer, *id);
                    let over = if send.contains_key(&pair) { over } else { 1.0 };
                    let pair = receive.get_mut(&pair);
                    pair.map_or(Rate::ZERO, |p| p.rate_since_partition(span).scale(over))
                });
                gone.extend(idle.iter().map(|p| (PairId::new(*p, *id), Direction::Receive)));
            }
        }
        for (pair, direction) in gone {
            self.forget(pair, direction);
        }
        self.divide_over_paths(span);
        let pairs: Vec<PairId> = self.receive.keys().copied().collect();
        for pair in pairs {
            self.offer(now, pair, out);
        }
        for echo in notes {
            self.post(now, echo.pair.dst, Message::Echo(echo), out);
        }
        self.apply_all(now);
    }

    /// By how much the floors of what this host sends exceed its link, at least 1. Pairs within the
    /// host cross no link, so admission does not count them; but they pass the same shaper, which
    /// scales all floors down to fit. A pair that gets a scaled floor wants no less than the whole:
    /// what it uses is held against its guarantee as if it had not been scaled. Else it would count
    /// as bounded, get less, be scaled again, and end with nothing.
    fn overbooked(&self) -> f64 {
        let fits = self.fits();
        if fits > 0.0 { (self.orders.pairs.floors().as_f64() / fits).max(1.0) } else { 1.0 }
    }

    /// What the floors of this host's pairs may sum to, bit/s.
    fn fits(&self) -> f64 {
        self.policy.line.saturating_sub(self.es.default_floor).as_f64() * FITS
    }

    /// The part of what pairs leave of their hoses that this host's link can carry beside what
    /// pairs want. Without it, a hose that hardly anything uses would be a large floor, all floors
    /// would be scaled down to fit, and a VM that uses its floor would pay.
    fn spare(&mut self, now: Time) -> f64 {
        if !self.es.promise.has_hoses() {
            return 1.0;
        }
        let hoses = self.vms.values_mut().flat_map(Vm::hoses);
        let used = hoses.filter(|(_, hose)| !hose.send.is_empty());
        let (wanted, left) = used
            .map(|(_, hose)| hose.send.wanted_and_left(now))
            .fold((0.0, 0.0), |(a, b), (wanted, left)| (a + wanted.as_f64(), b + left.as_f64()));
        let room = self.fits() - wanted;
        if left <= room { 1.0 } else { (room / left).max(0.0) }
    }

    /// Path partitioning: each pair that has several divides its floor over them again.
    fn divide_over_paths(&mut self, span: Span) {
        let es = &self.es;
        if es.paths.count > 1 {
            let several = self.send.values_mut().filter_map(|p| p.paths.as_mut());
            several.for_each(|paths| paths.divide(es, span));
        }
    }

    /// After new pairs: the division changed, and those whose part changed learn it before the
    /// period is over.
    fn offer_changed(&mut self, now: Time, out: &mut Outbox) {
        self.new_pairs_at = None;
        let changed: Vec<PairId> = self
            .receive
            .iter()
            // A pair that was found is offered nothing before the next partitioning.
            .filter(|(_, p)| p.offered.is_some())
            .filter(|(pair, p)| {
                let vm = self.vms.get_mut(&pair.dst);
                let offer = vm.map(|vm| vm.hose(p.hose).receive.offer(now, pair.src));
                offer.map(|o| (o.floor, o.unbounded)) != p.offered.map(|o| (o.floor, o.unbounded))
            })
            .map(|(pair, _)| *pair)
            .collect();
        for pair in changed {
            self.offer(now, pair, out);
        }
        self.apply_all(now);
    }

    /// Rate allocation: one step of the law for every pair.
    fn allocate(&mut self, now: Time) {
        let span = now.since(self.rate_stepped_at);
        self.rate_stepped_at = now;
        let lossy = self.lossy_paths();
        let es = &self.es;
        let (line, directory) = (self.policy.line, &self.policy.directory);
        for (pair, p) in &mut self.send {
            let Some(vm) = self.vms.get_mut(&pair.src) else { continue };
            let hose = &mut vm.hose(p.hose).send;
            let (floor, weight) = standing(es.promise, now, hose, pair.dst);
            let round_trip = hose.round_trip(pair.dst);
            if let Some(paths) = &mut p.paths {
                let may_borrow = hose.borrowing(now, pair.dst) == Borrowing::Allowed;
                paths.set_floor(floor);
                let mut entered = |path, phases| self.orders.events.entered(*pair, path, phases);
                let rates = (weight, line);
                paths.allocate(es, now, rates, (span, round_trip), may_borrow, &mut entered);
                self.orders.pairs.set_paths(*pair, paths.settings(), line);
                continue;
            }
            let peer = || directory.get(&pair.dst).map(|location| location.host);
            let least = p.floor.scale(0.9);
            let is_cut = |peer| lossy.iter().any(|(host, floor)| *host == peer && *floor >= least);
            let may_be = p.rate.is_long() && !lossy.is_empty();
            let path_lost = may_be && peer().is_some_and(is_cut);
            let feedback = Feedback { round_trip, path_lost, ..p.take_feedback(span) };
            p.look_for_blindness(span, self.policy.is_here(pair.dst));
            let is_blind = p.is_blind(es.rate.signal);
            let before = p.rate.phase();
            match hose.borrowing(now, pair.dst) {
                Borrowing::Allowed if !is_blind => {
                    p.rate.step_weighted(&es.rate, now, (floor, weight), line, feedback);
                }
                Borrowing::Allowed | Borrowing::Decaying { .. } => {
                    p.rate.decay(floor);
                }
            }
            self.orders.events.entered(*pair, None, (before, p.rate.phase()));
            p.floor = floor;
            // One that borrows may get less than its ceiling, and what waits is bounded by that.
            let is_deep = es.rate.is_long(round_trip) && p.rate.rate() <= floor.scale(AT_FLOOR);
            let room = is_deep.then(|| classes::room(floor));
            self.orders.rooms.put(*pair, room.filter(|room| *room > QUEUE));
        }
        if let Some(budget) = es.rate.lends_vm.map(|times| line.scale(times)) {
            self.keep_to_budgets(budget);
        }
        for (pair, p) in self.send.iter().filter(|(_, p)| p.paths.is_none()) {
            let setting = Setting { floor: p.floor, ceiling: p.rate.rate().max(p.floor) };
            if setting.ceiling < line {
                self.orders.pairs.grow(*pair, setting);
            } else {
                self.orders.pairs.set(*pair, setting);
            }
        }
    }

    /// The hosts and the floors of pairs over long paths that have lost. Other pairs of these hosts
    /// take the same way.
    fn lossy_paths(&self) -> Vec<(HostId, Rate)> {
        let lossy = self.send.iter().filter(|(_, p)| p.rate.is_long() && p.is_congested());
        let path = |pair: &PairId| self.policy.directory.get(&pair.dst).map(|at| at.host);
        lossy.filter_map(|(pair, p)| Some((path(pair)?, p.floor))).collect()
    }

    /// No VM's pairs borrow more than `budget` together: what is beyond it, each gives back in
    /// proportion.
    fn keep_to_budgets(&mut self, budget: Rate) {
        let mut of_vms: SortedMap<VmId, Rate> = SortedMap::new();
        let lent = |p: &SendPair| p.rate.rate().saturating_sub(p.floor);
        for (pair, p) in self.send.iter().filter(|(_, p)| p.paths.is_none()) {
            *of_vms.entry(pair.src).or_default() += lent(p);
        }
        of_vms.retain(|_, lent| *lent > budget);
        for (vm, lent) in of_vms {
            let all = PairId::new(vm, VmId(0))..=PairId::new(vm, VmId(u32::MAX));
            for (_, p) in self.send.range_mut(all) {
                p.rate.keep_part(p.floor, budget.as_f64() / lent.as_f64());
            }
        }
    }

    // -- rates --------------------------------------------------------------------------------

    /// Writes what is known of a pair into the desired table: applied rate = max(floor, proposal).
    pub(super) fn apply(&mut self, now: Time, pair: PairId) {
        let es = &self.es;
        let Some(p) = self.send.get_mut(&pair) else { return };
        let Some(vm) = self.vms.get_mut(&pair.src) else { return };
        let (floor, _) = standing(es.promise, now, &mut vm.hose(p.hose).send, pair.dst);
        if let Some(paths) = &mut p.paths {
            paths.set_floor(floor);
            return self.orders.pairs.set_paths(pair, paths.settings(), self.policy.line);
        }
        let ceiling = p.rate.rate().max(floor);
        self.orders.pairs.set(pair, Setting { floor, ceiling });
    }

    fn apply_all(&mut self, now: Time) {
        let pairs: Vec<PairId> = self.send.keys().copied().collect();
        for pair in pairs {
            self.apply(now, pair);
        }
    }
}

/// A pair's floor, and the rate that stands for its weight.
pub(super) fn standing(
    promise: Promise,
    now: Time,
    hose: &mut SendHose,
    peer: VmId,
) -> (Rate, Rate) {
    match promise {
        Promise::Hose => {
            let floor = hose.floor(now, peer);
            (floor, floor)
        }
        Promise::Weight(weight) => (LEAST_PAIR_RATE, weight.split(hose.len().max(1))),
    }
}

/// The next multiple of the period that is still ahead: a late driver skips, it does not catch up.
pub(super) fn next_period(due: Time, period: Span, now: Time) -> Time {
    let missed = now.since(due).div_span(period);
    due + period * (missed + 1)
}
