//! What EyeQ knows of a pair, for people.

use super::Host;
use super::io::MeterView;
use crate::host::{Part, Setting};
use weir_units::{PairId, Rate, Time, VmId};

/// A pair as far as it is known here.
#[derive(Clone, Debug)]
pub struct PairView {
    /// Which pair.
    pub pair: PairId,
    /// The source's side, if it is here.
    pub send: Option<SendView>,
    /// The destination's meter, if it is here, and what senders from elsewhere share.
    pub receive: Option<ReceiveView>,
}

/// What the source's host knows.
#[derive(Clone, Copy, Debug)]
pub struct SendView {
    /// What the data plane should have.
    pub setting: Setting,
    /// What the VM is promised.
    pub promised: Rate,
    /// Among how many pairs that is divided.
    pub peers: usize,
    /// What the limiter allows, if there is one.
    pub limit: Option<Rate>,
    /// When the receiver last spoke.
    pub heard_at: Option<Time>,
    /// Offered by the VM at the last reading.
    pub measured: Rate,
    /// The uplink's line rate.
    pub line: Rate,
    /// The destination is on this host, too.
    pub is_local: bool,
}

/// What the destination's host knows: of the VM, not of the pair.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveView {
    /// What the VM is promised in.
    pub floor: Rate,
    /// Its part of the link by now, all senders together.
    pub capacity: Rate,
    /// What each sender is told.
    pub advertised: Rate,
    /// What came in the last period.
    pub received: Rate,
}

impl Host {
    /// All pairs that send from here.
    pub fn pairs(&mut self) -> Vec<PairView> {
        let all: Vec<PairId> = self.leaves.keys().copied().collect();
        all.into_iter().filter_map(|pair| self.pair(pair)).collect()
    }

    /// One pair, if it sends from here or its receiver is here.
    pub fn pair(&mut self, pair: PairId) -> Option<PairView> {
        let send = self.send_view(pair);
        let at = |vm: VmId| self.config.directory.get(&vm).map(|at| at.host);
        let is_from_elsewhere = at(pair.src).is_some_and(|host| host != self.config.host);
        let receive = if is_from_elsewhere { self.receiver(pair.dst) } else { None };
        (send.is_some() || receive.is_some()).then_some(PairView { pair, send, receive })
    }

    fn send_view(&mut self, pair: PairId) -> Option<SendView> {
        let leaf = self.leaves.get(&pair)?;
        let (heard_at, measured) = (leaf.heard_at, leaf.measured);
        let at = self.config.directory.get(&pair.dst).map(|at| at.host);
        Some(SendView {
            setting: self.orders().pairs.get(pair).unwrap_or_default(),
            promised: self.promised(pair.src),
            peers: self.division.pairs_of(pair.src),
            limit: self.sender.limits.get(pair),
            heard_at,
            measured,
            line: self.config.line,
            is_local: at == Some(self.config.host),
        })
    }

    /// What a VM of this host may receive, and receives.
    pub fn receiver(&self, vm: VmId) -> Option<ReceiveView> {
        let floor = self.config.vms.get(&vm)?.in_.floor;
        if let Some(kernel) = &self.kernel {
            let capacity = self.orders.meters.get((vm, Part::Own))?.capacity;
            let advertised =
                kernel.meters.get(&(vm, Part::Own)).map_or(Rate::ZERO, |meter| meter.advertised);
            let received = Part::ALL.map(|part| kernel.shares.received(vm, part)).into_iter().sum();
            return Some(ReceiveView { floor, capacity, advertised, received });
        }
        let MeterView { capacity, advertised, received, .. } = *self.meters(vm).first()?;
        Some(ReceiveView { floor, capacity, advertised, received })
    }

    /// The VMs of this host, in order.
    pub fn vms(&self) -> impl Iterator<Item = VmId> + '_ {
        self.config.vms.keys().copied()
    }
}
