//! Reservations of VMs that others place, by key.

use super::request::{Invalid, Placement, Refusal, VmRequest};
use super::trees::NONE;
use super::{Ledger, Vm};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_units::{HostId, TenantId, Time, VmId};

/// Name that a caller gives a request, so that a repetition is known as one.
pub type Key = String;

/// How far a reservation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyState {
    /// Waits for a confirmation until then, or without end.
    Held {
        /// When it ends by itself.
        until: Option<Time>,
    },
    /// Confirmed.
    Confirmed,
    /// Not confirmed in time.
    Expired {
        /// When it ended.
        at: Time,
    },
    /// Given up.
    Aborted,
}

/// What a key was used for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Reserve(Vec<VmRequest>),
    Migrate { vm: VmId, to: HostId },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) tenant: TenantId,
    pub(crate) wish: Wish,
    pub(crate) state: KeyState,
}

/// All keys that are remembered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Keys {
    pub(crate) records: BTreeMap<Key, Record>,
    /// Held keys, by tenant.
    held: BTreeSet<(TenantId, Key)>,
    /// Held keys that end by themselves, by time.
    deadlines: BTreeSet<(Time, Key)>,
    /// Keys that ended, the oldest first.
    ended: VecDeque<Key>,
    forgotten: u64,
}

impl Keys {
    fn begin(&mut self, key: &Key, record: Record) {
        self.held.insert((record.tenant, key.clone()));
        if let KeyState::Held { until: Some(until) } = record.state {
            self.deadlines.insert((until, key.clone()));
        }
        self.records.insert(key.clone(), record);
    }

    fn end(&mut self, key: &Key, state: KeyState) {
        let Some(record) = self.records.get_mut(key) else { return };
        self.held.remove(&(record.tenant, key.clone()));
        if let KeyState::Held { until: Some(until) } = record.state {
            self.deadlines.remove(&(until, key.clone()));
        }
        record.state = state;
        self.ended.push_back(key.clone());
    }

    /// Forgets the oldest of more than `most` that ended.
    pub(super) fn bound(&mut self, most: usize) {
        while self.ended.len() > most {
            let oldest = self.ended.pop_front().expect("longer than `most`");
            self.records.remove(&oldest);
            self.forgotten += 1;
        }
    }

    /// Gives up what a tenant holds.
    pub(super) fn abort_all(&mut self, tenant: TenantId, most: usize) {
        let first = (tenant, Key::new());
        let of_tenant = self.held.range(first..).take_while(|(owner, _)| *owner == tenant);
        let keys: Vec<Key> = of_tenant.map(|(_, key)| key.clone()).collect();
        keys.iter().for_each(|key| self.end(key, KeyState::Aborted));
        self.bound(most);
    }
}

impl Ledger {
    /// Holds room for VMs of a tenant on the hosts that they name, until `until`. The same key with
    /// the same VMs gives the same answer and takes nothing more.
    ///
    /// # Errors
    /// The tenant is unknown, a VM exists or does not fit, the key was used for something else, or
    /// its reservation ended.
    pub fn reserve(
        &mut self,
        key: &Key,
        tenant: TenantId,
        vms: &[VmRequest],
        until: Option<Time>,
    ) -> Result<Placement, Refusal> {
        let wish = Wish::Reserve(vms.to_vec());
        if let Some(answer) = self.repeated(key, tenant, &wish) {
            return answer;
        }
        let mut draft = self.draft(tenant)?;
        for wanted in vms {
            if usize::from(wanted.class) >= draft.classes.len() {
                return Err(Refusal::Invalid(Invalid::NoSuchClass(wanted.vm)));
            }
            let host = wanted.host.ok_or(Refusal::Invalid(Invalid::NoHost(wanted.vm)))?;
            let host = self.open_host(host)?;
            let vm = Vm { id: wanted.vm, class: wanted.class, is_held: true, host, other: NONE };
            match draft.vms.binary_search_by_key(&vm.id, |vm| vm.id) {
                Ok(_) => return Err(Refusal::VmExists(vm.id)),
                Err(at) => draft.vms.insert(at, vm),
            }
        }
        let placement = self.exchange(tenant, draft)?;
        self.remember(key, tenant, wish, until);
        Ok(placement)
    }

    /// Holds room for a VM on its host and on the one that it moves to, until it is confirmed or
    /// aborted. Meanwhile it counts wherever it may be.
    ///
    /// # Errors
    /// The VM is unknown or busy, or does not fit there.
    pub fn migrate(
        &mut self,
        key: &Key,
        tenant: TenantId,
        vm: VmId,
        to: HostId,
    ) -> Result<Placement, Refusal> {
        let wish = Wish::Migrate { vm, to };
        if let Some(answer) = self.repeated(key, tenant, &wish) {
            return answer;
        }
        let mut draft = self.draft(tenant)?;
        let host = self.open_host(to)?;
        let at = draft.vms.binary_search_by_key(&vm, |vm| vm.id);
        let moved = &mut draft.vms[at.map_err(|_| Refusal::NoSuchVm(vm))?];
        if moved.is_held || moved.other != NONE || moved.host == host {
            return Err(Refusal::Busy(vm));
        }
        moved.other = host;
        let placement = self.exchange(tenant, draft)?;
        self.remember(key, tenant, wish, None);
        Ok(placement)
    }

    /// Makes a reservation or a migration permanent. A repetition changes nothing.
    ///
    /// # Errors
    /// The key is unknown, or ended before `now`.
    pub fn confirm(&mut self, key: &Key, now: Time) -> Result<Placement, Refusal> {
        let record = self.keys.records.get(key).cloned().ok_or(Refusal::NoSuchKey)?;
        match record.state {
            KeyState::Held { until: Some(until) } if until <= now => {
                self.give_up(key, &record, KeyState::Expired { at: until });
                Err(Refusal::Expired { at: until })
            }
            KeyState::Held { .. } => {
                let mut draft = self.draft(record.tenant)?;
                record.change(&mut draft.vms, true);
                self.shrink(record.tenant, draft);
                self.keys.end(key, KeyState::Confirmed);
                self.keys.bound(self.config.ended_keys);
                self.draft(record.tenant).map(|tenant| tenant.placement())
            }
            _ => self.repeated(key, record.tenant, &record.wish).unwrap_or(Err(Refusal::NoSuchKey)),
        }
    }

    /// Gives up a reservation or a migration. A repetition changes nothing.
    ///
    /// # Errors
    /// The key is unknown or was confirmed.
    pub fn abort(&mut self, key: &Key) -> Result<(), Refusal> {
        let record = self.keys.records.get(key).cloned().ok_or(Refusal::NoSuchKey)?;
        match record.state {
            KeyState::Held { .. } => self.give_up(key, &record, KeyState::Aborted),
            KeyState::Confirmed => return Err(Refusal::Confirmed),
            KeyState::Expired { .. } | KeyState::Aborted => {}
        }
        Ok(())
    }

    /// Ends all reservations that were to be confirmed by `now`: their keys.
    pub fn expire(&mut self, now: Time) -> Vec<Key> {
        let due = self.keys.deadlines.iter().take_while(|(until, _)| *until <= now);
        let due: Vec<(Time, Key)> = due.cloned().collect();
        for (at, key) in &due {
            let record = self.keys.records[key].clone();
            self.give_up(key, &record, KeyState::Expired { at: *at });
        }
        due.into_iter().map(|(_, key)| key).collect()
    }

    /// When the next reservation ends by itself.
    pub fn next_expiry(&self) -> Option<Time> {
        self.keys.deadlines.first().map(|(until, _)| *until)
    }

    /// Ends the keys that a host's death has decided: those keys. A reservation that lost a VM is
    /// given up whole. A migration is confirmed if its VM is now where it was going.
    pub(super) fn end_lost(&mut self) -> Vec<Key> {
        let mut decided = Vec::new();
        for (tenant, key) in &self.keys.held {
            let record = &self.keys.records[key];
            let vms = self.tenants.get(tenant).map_or(&[][..], |tenant| &tenant.vms);
            if !record.is_pending(vms) {
                decided.push((key.clone(), record.clone(), record.has_arrived(vms)));
            }
        }
        for (key, record, has_arrived) in &decided {
            let state = if *has_arrived { KeyState::Confirmed } else { KeyState::Aborted };
            self.give_up(key, record, state);
        }
        decided.into_iter().map(|(key, _, _)| key).collect()
    }

    /// How far a reservation is, if its key is remembered.
    pub fn key(&self, key: &Key) -> Option<KeyState> {
        self.keys.records.get(key).map(|record| record.state)
    }

    /// Ended keys that were forgotten to keep the bound. Not zero means that late repetitions may be
    /// taken for new requests.
    pub fn forgotten_keys(&self) -> u64 {
        self.keys.forgotten
    }

    /// The answer to a key that is known.
    fn repeated(
        &self,
        key: &Key,
        tenant: TenantId,
        wish: &Wish,
    ) -> Option<Result<Placement, Refusal>> {
        let record = self.keys.records.get(key)?;
        if record.tenant != tenant || record.wish != *wish {
            return Some(Err(Refusal::KeyReused));
        }
        Some(match record.state {
            KeyState::Expired { at } => Err(Refusal::Expired { at }),
            KeyState::Aborted => Err(Refusal::Aborted),
            KeyState::Held { .. } | KeyState::Confirmed => match self.tenants.get(&tenant) {
                Some(there) if record.is_there(&there.vms) => Ok(there.placement()),
                _ => Err(Refusal::Aborted),
            },
        })
    }

    fn remember(&mut self, key: &Key, tenant: TenantId, wish: Wish, until: Option<Time>) {
        let state = KeyState::Held { until };
        self.keys.begin(key, Record { tenant, wish, state });
    }

    fn give_up(&mut self, key: &Key, record: &Record, state: KeyState) {
        if let Ok(mut draft) = self.draft(record.tenant) {
            record.change(&mut draft.vms, false);
            self.shrink(record.tenant, draft);
        }
        self.keys.end(key, state);
        self.keys.bound(self.config.ended_keys);
    }
}

impl Record {
    /// Does what was wished, or undoes it.
    fn change(&self, vms: &mut Vec<Vm>, is_confirmed: bool) {
        match &self.wish {
            Wish::Reserve(wanted) if is_confirmed => {
                let is_ours = |vm: &&mut Vm| wanted.iter().any(|w| w.vm == vm.id);
                vms.iter_mut().filter(is_ours).for_each(|vm| vm.is_held = false);
            }
            Wish::Reserve(wanted) => vms.retain(|vm| !wanted.iter().any(|w| w.vm == vm.id)),
            Wish::Migrate { vm, .. } => {
                for moved in vms.iter_mut().filter(|moved| moved.id == *vm) {
                    if is_confirmed {
                        moved.host = moved.other;
                    }
                    moved.other = NONE;
                }
            }
        }
    }

    /// Whether all of it still waits.
    fn is_pending(&self, vms: &[Vm]) -> bool {
        let find = |id: VmId| vms.binary_search_by_key(&id, |vm| vm.id).ok().map(|i| vms[i]);
        match &self.wish {
            Wish::Reserve(wanted) => wanted.iter().all(|w| find(w.vm).is_some_and(|vm| vm.is_held)),
            Wish::Migrate { vm, .. } => find(*vm).is_some_and(|vm| vm.other != NONE),
        }
    }

    /// Whether a migration's VM is where it was going.
    fn has_arrived(&self, vms: &[Vm]) -> bool {
        let Wish::Migrate { vm, to } = &self.wish else { return false };
        vms.iter().any(|moved| moved.id == *vm && moved.host == to.0)
    }

    fn is_there(&self, vms: &[Vm]) -> bool {
        let there = |id: VmId| vms.binary_search_by_key(&id, |vm| vm.id).is_ok();
        match &self.wish {
            Wish::Reserve(wanted) => wanted.iter().all(|w| there(w.vm)),
            Wish::Migrate { vm, .. } => there(*vm),
        }
    }
}
