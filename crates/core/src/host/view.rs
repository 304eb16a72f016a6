//! Why a pair has the rate it has: a picture for people, taken from the machines' own state.

use super::{HostAgent, Promise, Setting};
use crate::message::Offer;
use crate::partition::Borrowing;
use crate::rate::{Phase, Signal};
use weir_units::{PairId, Rate, Time};

/// Both ends of a pair, as far as they are on this host.
#[derive(Clone, Debug)]
pub struct PairView {
    /// Which pair.
    pub pair: PairId,
    /// The VMs share no hose: the pair lives on the small default one.
    pub is_default: bool,
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
    /// This pair's part of it, before the receiver's word.
    pub share: Rate,
    /// The receiver's last word.
    pub offer: Option<Offer>,
    /// Whether the receiver is silent.
    pub borrowing: Borrowing,
    /// Offered by the VM over the last partitioning period.
    pub measured: Rate,
    /// What the law does.
    pub phase: Phase,
    /// The rate at which congestion was last seen.
    pub goal: Option<Rate>,
    /// When that was.
    pub congested_at: Option<Time>,
    /// Segments reported lost so far.
    pub lost: u64,
    /// Segments reported marked so far.
    pub marked: u64,
    /// What counts as congestion.
    pub signal: Signal,
    /// Losses are the signal, and do not show in what the pair sends: it may not borrow.
    pub is_blind: bool,
    /// The pair has a weight and no floor (Seawall).
    pub is_weighted: bool,
    /// How often the rate was cut.
    pub cuts: u64,
}

/// What the destination's host knows.
#[derive(Clone, Debug)]
pub struct ReceiveView {
    /// The destination VM's hose.
    pub hose: Rate,
    /// The last offer that left.
    pub offered: Option<Offer>,
    /// Arrived over the last partitioning period.
    pub measured: Rate,
    /// Segments lost on the way so far.
    pub lost: u64,
    /// Segments that came marked so far.
    pub marked: u64,
}

impl HostAgent {
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
        Some(PairView { pair, is_default: self.is_default(pair).unwrap_or(true), send, receive })
    }

    fn send_view(&mut self, now: Time, pair: PairId) -> Option<SendView> {
        let p = self.send.get(&pair)?;
        let setting = self.desired.get(pair)?;
        let es = self.elastic();
        let signal = es.map_or(Signal::Loss, |es| es.rate.signal);
        let is_weighted = es.is_some_and(|es| es.promise != Promise::Hose);
        let mut view = SendView {
            setting,
            hose: setting.floor,
            share: setting.floor,
            offer: None,
            borrowing: Borrowing::Allowed,
            measured: p.measured,
            phase: p.rate.phase(),
            goal: p.rate.goal(),
            congested_at: p.rate.congested_at(),
            lost: p.lost_total,
            marked: p.marked_total,
            signal,
            is_blind: p.is_blind && !signal.needs_marks(),
            is_weighted,
            cuts: p.rate.cuts(),
        };
        if let Some(vm) = self.vms.get_mut(&pair.src) {
            let hose = &mut vm.hose(p.is_default).send;
            view.hose = hose.hose();
            view.share = hose.share(pair.dst);
            view.offer = hose.offered(pair.dst);
            view.borrowing = hose.borrowing(now, pair.dst);
        }
        Some(view)
    }

    fn receive_view(&mut self, pair: PairId) -> Option<ReceiveView> {
        let p = self.receive.get(&pair)?;
        let hose = &self.vms.get_mut(&pair.dst)?.hose(p.is_default).receive;
        Some(ReceiveView {
            hose: hose.hose(),
            offered: p.offered,
            measured: p.measured,
            lost: p.lost_total,
            marked: p.marked_total,
        })
    }
}
