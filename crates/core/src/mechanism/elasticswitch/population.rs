//! VMs come, go and move, and hoses change, while the agent runs.
//!
//! Problem   A VM that left must leave nothing behind, neither a pair nor a part of another VM's
//!           hose, and the VMs that stay must not notice.
//! Approach  Levels: what shall be is compared with what is. A VM whose tenant or host changed is
//!           another one. Whatever belongs to one that left is forgotten, at both ends.
//! Promises  A pair between VMs that stay keeps its floor, its rate and its history, also if it
//!           belongs to another of their hoses from now on. The same population twice changes nothing.
//! Not here  How a person says so, and what else cannot change: see `weir-agent`.

use super::{Direction, HoseKey, HosePair, Machine, Policy, Vm, has_room};
use weir_units::{PairId, SortedSet, Time, VmId};

impl Machine {
    pub(super) fn repopulate(&mut self, now: Time, to: &Policy) {
        let left = self.left(to);
        for (pair, direction) in self.ends_of(&left) {
            self.forget_for_good(pair, direction);
        }
        self.vms.retain(|vm, _| to.is_here(*vm));
        self.policy.directory.clone_from(&to.directory);
        let before = std::mem::replace(&mut self.policy.hoses, to.hoses.clone());
        let has_hoses = self.es.promise.has_hoses();
        let is_tied_anew = has_hoses && self.policy.ties != to.ties;
        if has_hoses {
            self.policy.further.clone_from(&to.further);
            self.policy.ties.clone_from(&to.ties);
        }

        let mut changed = Vec::new();
        for (id, hose) in to.vms() {
            let Some(vm) = self.vms.get_mut(&id) else {
                self.vms.insert(id, Vm::new(&self.es, id, &self.policy, *hose, now));
                continue;
            };
            if before.get(&id) != Some(hose) {
                vm.tenant.set(*hose);
                changed.push((id, HoseKey::Tenant));
            }
            for (number, hose) in self.policy.further_of(id) {
                let has = vm.further.entry(number);
                let has = has.or_insert_with(|| HosePair::new(&self.es, id, hose, now));
                if (has.send.hose(), has.receive.hose()) != (hose.out.floor, hose.in_.floor) {
                    has.set(hose);
                    changed.push((id, HoseKey::Further(number)));
                }
            }
        }
        let has_moved = is_tied_anew && self.move_pairs(now);
        for (id, vm) in &mut self.vms {
            if !vm.further.is_empty() {
                let stays = self.policy.further_of(*id);
                vm.further.retain(|number, _| stays.contains_key(number));
            }
        }
        // Others' parts have grown by what was freed, or changed with their hose: they are told.
        if !changed.is_empty() || !left.is_empty() || has_moved {
            self.new_pairs(now);
        }
        self.stale_hoses.extend(changed);
    }

    /// Moves pairs whose VMs share another hose now. Says whether there were any.
    ///
    /// A sender keeps its floor as far as the new hose has room, until the receiver speaks. What the
    /// former hose had for the pair is free at once: a receiver's may be promised twice until its
    /// next offer arrives, as that of a VM that moves.
    fn move_pairs(&mut self, now: Time) -> bool {
        let to = |pair: &PairId| self.policy.hose_of(*pair).unwrap_or(HoseKey::Default);
        let send = self.send.iter().map(|(pair, p)| (*pair, p.hose, to(pair)));
        let send: Vec<_> = send.filter(|(_, from, to)| from != to).collect();
        let receive = self.receive.iter().map(|(pair, p)| (*pair, p.hose, to(pair)));
        let receive: Vec<_> = receive.filter(|(_, from, to)| from != to).collect();
        for (pair, from, to) in &send {
            self.move_sending(now, *pair, *from, *to);
        }
        for (pair, from, to) in &receive {
            self.move_receiving(now, *pair, *from, *to);
        }
        !send.is_empty() || !receive.is_empty()
    }

    fn move_sending(&mut self, now: Time, pair: PairId, from: HoseKey, to: HoseKey) {
        let (Some(p), Some(vm)) = (self.send.get_mut(&pair), self.vms.get_mut(&pair.src)) else {
            return;
        };
        p.hose = to;
        let floor = vm.hose(from).send.floor(now, pair.dst);
        vm.hose(from).send.forget(pair.dst);
        self.stale_hoses.insert((pair.src, from));
        let hose = &mut vm.hose(to).send;
        if has_room(hose) && hose.adopt(now, pair.dst, pair, floor) {
            self.stale_hoses.insert((pair.src, to));
        } else {
            self.counters.refused_pairs += 1;
            self.stale.remove(&pair);
            self.forget(pair, Direction::Send);
        }
    }

    fn move_receiving(&mut self, now: Time, pair: PairId, from: HoseKey, to: HoseKey) {
        let (Some(p), Some(vm)) = (self.receive.get_mut(&pair), self.vms.get_mut(&pair.dst)) else {
            return;
        };
        p.hose = to;
        vm.hose(from).receive.forget(pair.src);
        let hose = &mut vm.hose(to).receive;
        hose.catch_up(now);
        if !hose.see(now, pair.src) {
            self.counters.refused_pairs += 1;
            self.forget(pair, Direction::Receive);
        }
    }

    /// VMs of which nothing may stay: of this host and not any more, gone, or replaced by another
    /// VM.
    fn left(&self, to: &Policy) -> SortedSet<VmId> {
        let local = self.policy.vms().map(|(vm, _)| vm).filter(|vm| !to.is_here(*vm));
        let known = self.policy.directory.iter();
        let other = known.filter(|(vm, at)| to.directory.get(vm) != Some(at)).map(|(vm, _)| *vm);
        local.chain(other).collect()
    }

    fn ends_of(&self, vms: &SortedSet<VmId>) -> Vec<(PairId, Direction)> {
        let theirs = |pair: &&PairId| vms.contains(&pair.src) || vms.contains(&pair.dst);
        let send = self.send.keys().filter(theirs).map(|pair| (*pair, Direction::Send));
        let receive = self.receive.keys().filter(theirs).map(|pair| (*pair, Direction::Receive));
        send.chain(receive).collect()
    }

    fn forget_for_good(&mut self, pair: PairId, direction: Direction) {
        match direction {
            Direction::Send => {
                let Some(p) = self.send.get(&pair) else { return };
                let key = p.hose;
                if let Some(vm) = self.vms.get_mut(&pair.src) {
                    vm.hose(key).send.forget(pair.dst);
                    self.stale_hoses.insert((pair.src, key));
                }
                self.stale.remove(&pair);
            }
            Direction::Receive => {
                let Some(p) = self.receive.get(&pair) else { return };
                if let Some(vm) = self.vms.get_mut(&pair.dst) {
                    vm.hose(p.hose).receive.forget(pair.src);
                }
            }
        }
        self.forget(pair, direction);
    }
}
