//! Keeps the floors that each host may still enforce, and the changes that wait for them.
//!
//! Approach  See [`super`]. A VM's bound rises before its host is told of a larger floor. When the host
//!           answers, the bound becomes the floor that it acknowledged.

use super::super::floors::Floors;
use super::{May, Plan, VmRow};
use crate::state::Rooms;
use crate::store::{Table, Write};
use std::collections::BTreeMap;
use weir_units::Rate;

impl Plan {
    pub(super) fn most(&self, host: &str, vm: &str) -> Floors {
        self.may
            .get(host)
            .and_then(|may| may.get(vm))
            .map(|may| may.most.clone())
            .unwrap_or_default()
    }

    pub(super) fn tenant_of_may(&self, host: &str, vm: &str) -> Option<String> {
        Some(self.may.get(host)?.get(vm)?.tenant.clone())
    }

    /// A host is going to be told of these floors. The record that has to be on the disk before.
    pub(super) fn allow(
        &mut self,
        host: &str,
        vm: &str,
        tenant: &str,
        floors: &Floors,
    ) -> Option<Write> {
        let all = self.may.entry(host.into()).or_default();
        let may = all.entry(vm.into()).or_insert_with(|| May {
            tenant: tenant.into(),
            most: Floors::default(),
            acknowledged: Floors::default(),
        });
        let key = format!("{host}/{vm}");
        let most = may.most.max(floors);
        let is_recorded = !self.unrecorded.remove(&key);
        if most == may.most && may.tenant == tenant && is_recorded {
            return None;
        }
        let record = most.record(tenant);
        (may.most, may.tenant) = (most, tenant.into());
        Some(Write::put(Table::Force, key, record))
    }

    /// The store refused these records: they are made again before the host is told.
    pub(crate) fn unwritten(&mut self, writes: Vec<Write>) {
        self.unrecorded.extend(writes.into_iter().map(|write| write.key));
    }

    /// The stream of a host ends. What it was sent and has not answered may be in force: a refusal of what comes
    /// later leaves it there.
    pub(super) fn leave_unanswered(&mut self, host: &str) {
        let stream = self.hosts.get(host).and_then(|row| row.stream.as_ref());
        let sent = stream.into_iter().flat_map(|stream| stream.sent.values());
        let vms: Vec<String> = sent.flat_map(|sent| sent.vms.keys().cloned()).collect();
        let Some(all) = self.may.get_mut(host) else { return };
        for vm in vms {
            if let Some(may) = all.get_mut(&vm) {
                may.acknowledged = may.most.clone();
            }
        }
    }

    /// A host has exactly these floors for a tenant.
    pub(super) fn holds(&mut self, host: &str, tenant: &str, has: &BTreeMap<String, Floors>) {
        let all = self.may.entry(host.into()).or_default();
        let gone: Vec<String> = all
            .iter()
            .filter(|(vm, may)| may.tenant == tenant && !has.contains_key(*vm))
            .map(|(vm, _)| vm.clone())
            .collect();
        for vm in &gone {
            all.remove(vm);
            self.writes.push(Write::delete(Table::Force, format!("{host}/{vm}")));
        }
        for (vm, floors) in has {
            let now =
                May { tenant: tenant.into(), most: floors.clone(), acknowledged: floors.clone() };
            let key = format!("{host}/{vm}");
            let is_recorded = !self.unrecorded.remove(&key);
            if !is_recorded || all.get(vm).is_none_or(|before| before.most != now.most) {
                let record = floors.record(tenant);
                self.writes.push(Write::put(Table::Force, key, record));
            }
            all.insert(vm.clone(), now);
        }
        let before = self.excess.len();
        let mut less = false;
        for vm in gone.iter().chain(has.keys()) {
            less |= self.refresh_excess(host, vm);
        }
        if less || self.excess.len() < before {
            self.try_waiting();
        }
    }

    /// Something that raises may have waited for is lower.
    pub(super) fn try_waiting(&mut self) {
        for (name, row) in &mut self.hosts {
            if let Some(stream) = &mut row.stream
                && !stream.waiting.is_empty()
            {
                stream.dirty.extend(stream.waiting.iter().cloned());
                self.woken.insert(name.clone());
            }
        }
    }

    /// Whether a tenant has a raise on this host while another host has an excess.
    pub(super) fn may_wait(&self, host: &str, tenant: &str) -> bool {
        let elsewhere = self
            .excess
            .keys()
            .any(|(at, vm)| at != host || self.tenant_of_may(at, vm).as_deref() != Some(tenant));
        let raised = |(vm, row): &(String, VmRow)| row.wanted.exceeds(&self.most(host, vm));
        elsewhere && self.local_vms(host, tenant).iter().any(raised)
    }

    /// Why a raise has to wait, if it has to.
    pub(super) fn waits(&self, host: &str, row: &VmRow, rooms: Option<&Rooms>) -> Option<String> {
        // Lowers of the same tenant on the same host are in the same message, which is applied whole.
        let others: Vec<(&(String, String), Rate)> = self
            .excess
            .iter()
            .filter(|((at, vm), _)| {
                at != host || self.tenant_of_may(at, vm).as_deref() != Some(&row.tenant)
            })
            .map(|(key, rate)| (key, *rate))
            .collect();
        if others.is_empty() {
            return None;
        }
        let links = rooms.and_then(|rooms| rooms.tenants.get(&row.tenant));
        let Some(links) = links else { return Some(self.told(others.into_iter())) };
        for (link, free) in links {
            let crosses = |at: &str, vm: &str| {
                let stays = self.vms.get(vm).is_some_and(|row| row.host == at);
                let tenant = self.tenant_of_may(at, vm).filter(|_| stays);
                let known = tenant.and_then(|tenant| rooms?.tenants.get(&tenant));
                known.is_none_or(|links| links.contains_key(link))
            };
            let there: Vec<_> = others.iter().filter(|((at, vm), _)| crosses(at, vm)).collect();
            let all: Rate = there.iter().fold(Rate::ZERO, |sum, (_, rate)| sum + *rate);
            if all > *free {
                return Some(self.told(there.into_iter().copied()));
            }
        }
        None
    }

    pub(super) fn told<'a>(
        &'a self,
        those: impl Iterator<Item = (&'a (String, String), Rate)>,
    ) -> String {
        let mut by_host: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for ((host, vm), _) in those {
            by_host.entry(host).or_default().push(vm);
        }
        let more = by_host.len().saturating_sub(3);
        let one = |(host, vms): (&&str, &Vec<&str>)| {
            let silent = self.hosts.get(*host).filter(|row| row.stream.is_none());
            let silent =
                silent.map_or(String::new(), |row| format!(" (silent since {})", row.silent_since));
            format!("host `{host}`{silent} to lower `{}`", vms[0])
        };
        let told: Vec<String> = by_host.iter().take(3).map(one).collect();
        let more = if more > 0 { format!(" and {more} more hosts") } else { String::new() };
        format!("waits for {}{more}", told.join(", "))
    }

    /// Computes an excess anew. Whether it is less than it was.
    pub(super) fn refresh_excess(&mut self, host: &str, vm: &str) -> bool {
        let key = (host.to_owned(), vm.to_owned());
        let dead = self.hosts.get(host).is_none_or(|row| row.dead);
        let most = if dead { Floors::default() } else { self.most(host, vm) };
        let wanted = self.vms.get(vm).filter(|row| row.host == host).map(|row| row.wanted.clone());
        let now = most.beyond(&wanted.unwrap_or_default());
        let before = match now.is_zero() {
            true => self.excess.remove(&key),
            false => self.excess.insert(key, now),
        };
        now < before.unwrap_or(Rate::ZERO)
    }

    pub(super) fn refresh_excess_of(&mut self, host: &str) {
        let vms: Vec<String> =
            self.may.get(host).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        let mut less = false;
        for vm in vms {
            less |= self.refresh_excess(host, &vm);
        }
        if less {
            self.try_waiting();
        }
    }

    pub(super) fn refresh_all_excess(&mut self) {
        for host in self.may.keys().cloned().collect::<Vec<_>>() {
            self.refresh_excess_of(&host);
        }
    }
}
