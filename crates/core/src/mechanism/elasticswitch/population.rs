//! VMs come, go and move, and hoses change, while the agent runs.
//!
//! Problem   A VM that left must leave nothing behind, neither a pair nor a part of another VM's
//!           hose, and the VMs that stay must not notice.
//! Approach  Levels: what shall be is compared with what is. A VM whose tenant or host changed is
//!           another one. Whatever belongs to one that left is forgotten, at both ends.
//! Promises  A pair between VMs that stay keeps its floor, its rate and its history. The same
//!           population twice changes nothing.
//! Not here  How a person says so, and what else cannot change: see `weir-agent`.

use super::{Direction, Machine, Policy, Vm};
use std::collections::BTreeSet;
use weir_units::{PairId, Time, VmId};

impl Machine {
    pub(super) fn repopulate(&mut self, now: Time, to: &Policy) {
        let left = self.left(to);
        for (pair, direction) in self.ends_of(&left) {
            self.forget_for_good(pair, direction);
        }
        self.vms.retain(|vm, _| to.is_here(*vm));
        self.policy.directory.clone_from(&to.directory);
        let before = std::mem::replace(&mut self.policy.hoses, to.hoses.clone());

        let mut changed = Vec::new();
        for (id, hose) in to.vms() {
            let Some(vm) = self.vms.get_mut(&id) else {
                self.vms.insert(id, Vm::new(&self.es, id, *hose, now));
                continue;
            };
            if before.get(&id) != Some(hose) {
                vm.tenant.send.set_hose(hose.out.floor);
                vm.tenant.receive.set_hose(hose.in_.floor);
                changed.push(id);
            }
        }
        self.stale_hoses.extend(changed.iter().map(|vm| (*vm, false)));
        // Others' parts have grown by what was freed, or changed with their hose: they are told.
        if !changed.is_empty() || !left.is_empty() {
            self.new_pairs(now);
        }
    }

    /// VMs of which nothing may stay: of this host and not any more, gone, or replaced by another
    /// VM.
    fn left(&self, to: &Policy) -> BTreeSet<VmId> {
        let local = self.policy.vms().map(|(vm, _)| vm).filter(|vm| !to.is_here(*vm));
        let known = self.policy.directory.iter();
        let other = known.filter(|(vm, at)| to.directory.get(vm) != Some(at)).map(|(vm, _)| *vm);
        local.chain(other).collect()
    }

    fn ends_of(&self, vms: &BTreeSet<VmId>) -> Vec<(PairId, Direction)> {
        let theirs = |pair: &&PairId| vms.contains(&pair.src) || vms.contains(&pair.dst);
        let send = self.send.keys().filter(theirs).map(|pair| (*pair, Direction::Send));
        let receive = self.receive.keys().filter(theirs).map(|pair| (*pair, Direction::Receive));
        send.chain(receive).collect()
    }

    fn forget_for_good(&mut self, pair: PairId, direction: Direction) {
        match direction {
            Direction::Send => {
                let Some(p) = self.send.get(&pair) else { return };
                let is_default = p.is_default;
                if let Some(vm) = self.vms.get_mut(&pair.src) {
                    vm.hose(is_default).send.forget(pair.dst);
                    self.stale_hoses.insert((pair.src, is_default));
                }
                self.stale.remove(&pair);
            }
            Direction::Receive => {
                let Some(p) = self.receive.get(&pair) else { return };
                if let Some(vm) = self.vms.get_mut(&pair.dst) {
                    vm.hose(p.is_default).receive.forget(pair.src);
                }
            }
        }
        self.forget(pair, direction);
    }
}
