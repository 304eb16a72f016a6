//! Why a pair has the rate it has: a picture for people, taken from the machines' own state.

use super::pairs::Blind;
use super::periods::standing;
use super::{Machine, Promise, Setting};
use crate::host::HoseKey;
use crate::message::{Backlog, Offer};
use crate::partition::{Borrowing, Heard, SendHose, Spent, Want};
use crate::rate::{RateView, Signal};
use weir_units::{PairId, Rate, Span, Time};

/// Both ends of a pair, as far as they are on this host.
#[derive(Clone, Debug)]
pub struct PairView {
    /// Which pair.
    pub pair: PairId,
    /// The hose that it belongs to at both ends.
    pub hose: HoseKey,
    /// The source's side, if it is here.
    pub send: Option<SendView>,
    /// The destination's side, if it is here.
    pub receive: Option<ReceiveView>,
}

/// What the source's host knows.
#[derive(Clone, Debug)]
pub struct SendView {
    /// What the data plane should have.
    pub setting: Setting,
    /// The source VM's hose.
    pub hose: Rate,
    /// How many pairs share it.
    pub peers: usize,
    /// What the pair is thought to want of it, and why.
    pub wants: Option<(Want, Rate)>,
    /// Whether packets of it waited here in the last partitioning period.
    pub waited: Backlog,
    /// This pair's part of it, before the receiver's word.
    pub share: Rate,
    /// The receiver's last word.
    pub heard: Option<Heard>,
    /// The receiver's word is held through a silence for this long.
    pub held_for: Span,
    /// Whether the receiver is silent.
    pub borrowing: Borrowing,
    /// The uplink's line rate: no pair's rate is ever above it.
    pub line: Rate,
    /// Offered by the VM over the last partitioning period.
    pub measured: Rate,
    /// What the law thinks.
    pub law: RateView,
    /// Segments reported lost so far.
    pub lost: u64,
    /// Reported lost, but of packets that nothing here numbered.
    pub unfounded: u64,
    /// Segments reported marked so far.
    pub marked: u64,
    /// What counts as congestion.
    pub signal: Signal,
    /// Losses are the signal, and do not show in what the pair sends: it may not borrow.
    pub blind: Option<Blind>,
    /// Segments that were sent and are neither reported to have arrived nor to be lost.
    pub hidden: u64,
    /// The pair has a weight and no floor (Seawall).
    pub is_weighted: bool,
}

/// What the destination's host knows.
#[derive(Clone, Debug)]
pub struct ReceiveView {
    /// The destination VM's hose.
    pub hose: Rate,
    /// Of it, what senders may hold, all together.
    pub spent: Rate,
    /// How many pairs share it.
    pub peers: usize,
    /// What the pair is thought to want of it, and why.
    pub wants: Option<(Want, Rate)>,
    /// The last offer that left.
    pub offered: Option<Offer>,
    /// What counts as spent on this pair.
    pub held: Option<Spent>,
    /// Arrived over the last partitioning period.
    pub measured: Rate,
    /// Segments lost on the way so far.
    pub lost: u64,
    /// Segments that seemed to be lost, by numbers that no Weir host wrote: the source's host knows
    /// of no such pair.
    pub unfounded: u64,
    /// Segments that came marked so far.
    pub marked: u64,
}

/// What the ends of a pair hold of each other's word, as far as they are on this host.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// The source is here and knows the pair: the receiver's last word, if there was one.
    pub send: Option<Option<Heard>>,
    /// What the source's hose has for the pair: the estimate of its demand, and its share.
    pub share: Option<((Want, Rate), Rate)>,
    /// The destination's side, if it is here.
    pub receive: Option<ReceiveView>,
}

impl Machine {
    /// What both ends of a pair hold. Unlike [`Machine::pair`] it divides nothing: a world that
    /// looks goes on as one that does not.
    pub fn ends(&self, pair: PairId) -> Ends {
        let hose = self.send.get(&pair).map(|p| {
            let vm = self.vms.get(&pair.src)?;
            Some(&vm.divided(p.hose).send)
        });
        let share = |hose: &SendHose| Some((hose.wants(pair.dst)?, hose.share(pair.dst)));
        Ends {
            send: hose.map(|hose| hose?.heard(pair.dst)),
            share: hose.flatten().and_then(share),
            receive: self.receive_view(pair),
        }
    }

    /// How many pairs it knows: of those whose source is here, and of those whose destination is.
    pub fn known(&self) -> (usize, usize) {
        (self.send.len(), self.receive.len())
    }

    /// All pairs of this host, in the order of their ids.
    pub fn pairs(&mut self, now: Time) -> Vec<PairView> {
        let mut ids: Vec<PairId> = self.send.keys().chain(self.receive.keys()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter_map(|pair| self.pair(now, pair)).collect()
    }

    /// One pair, if it is active here.
    pub fn pair(&mut self, now: Time, pair: PairId) -> Option<PairView> {
        let send = self.send_view(now, pair);
        let receive = self.receive_view(pair);
        if send.is_none() && receive.is_none() {
            return None;
        }
        Some(PairView {
            pair,
            hose: self.policy.hose_of(pair).unwrap_or(HoseKey::Default),
            send,
            receive,
        })
    }

    fn send_view(&mut self, now: Time, pair: PairId) -> Option<SendView> {
        let p = self.send.get(&pair)?;
        let setting = self.orders.pairs.get(pair)?;
        let (es, config, promise) = (&self.es, &self.es.rate, self.es.promise);
        let law = p.rate.view(config, now, (setting.floor, setting.floor));
        let held_for = es.partition.held_for();
        let signal = es.rate.signal;
        let is_weighted = promise != Promise::Hose;
        let mut view = SendView {
            setting,
            hose: setting.floor,
            peers: 1,
            wants: None,
            waited: Backlog::Unknown,
            share: setting.floor,
            heard: None,
            held_for,
            borrowing: Borrowing::Allowed,
            line: self.policy.line,
            measured: p.measured,
            law,
            lost: p.lost_total,
            unfounded: p.unfounded,
            marked: p.marked_total,
            signal,
            blind: p.blind.filter(|_| p.is_blind(signal)),
            hidden: p.ledger.hidden,
            is_weighted,
        };
        if let Some(vm) = self.vms.get_mut(&pair.src) {
            let hose = &mut vm.hose(p.hose).send;
            view.hose = hose.hose();
            view.peers = hose.len();
            view.wants = hose.wants(pair.dst);
            view.waited = hose.last_waited(pair.dst);
            view.share = hose.share(pair.dst);
            view.heard = hose.heard(pair.dst);
            view.borrowing = hose.borrowing(now, pair.dst);
            view.law = p.rate.view(config, now, standing(promise, now, hose, pair.dst));
        }
        Some(view)
    }

    fn receive_view(&self, pair: PairId) -> Option<ReceiveView> {
        let p = self.receive.get(&pair)?;
        let hose = &self.vms.get(&pair.dst)?.divided(p.hose).receive;
        Some(ReceiveView {
            hose: hose.hose(),
            spent: hose.spent(),
            peers: hose.peers().count(),
            wants: hose.wants(pair.src),
            offered: p.offered,
            held: hose.spent_on(pair.src),
            measured: p.measured,
            lost: p.lost_total,
            unfounded: p.unfounded,
            marked: p.marked_total,
        })
    }
}
