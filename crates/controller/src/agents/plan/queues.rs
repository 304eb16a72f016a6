//! Tenants' queues on switches: what hosts are to tag, and what they have in force.
//!
//! Approach  An order is part of a tenant's state, so it is written down, sent, acknowledged and repeated
//!           as all of it is. The order's own version says which one a host has.

use super::{InForce, Plan};
use std::collections::BTreeSet;
use weir_model::objects::TenantQueue;
use weir_rpc::messages::{Known, Queue};

/// What hosts are told.
pub(super) const fn order_of(queue: TenantQueue) -> Queue {
    let TenantQueue { tag, free, version, .. } = queue;
    Queue { version, code_point: tag as u32, free }
}

impl Plan {
    pub(super) fn set_queue(&mut self, revision: u64, tenant: &str, queue: Option<Queue>) {
        if queue.is_none() && !self.tenants.contains_key(tenant) {
            return;
        }
        let row = self.tenants.entry(tenant.into()).or_default();
        if row.queue != queue {
            row.queue = queue;
            self.touch(revision, tenant);
        }
    }

    /// What a host is told of a tenant's queue: nothing if its agent knows no such order.
    pub(super) fn queue_for(&self, host: &str, tenant: &str) -> Option<Queue> {
        let can = self.hosts.get(host).is_some_and(|row| !row.code_points.is_empty());
        self.tenants.get(tenant)?.queue.clone().filter(|_| can)
    }

    /// Version of the order that a host has in force once it has the tenant's state. A host that does not
    /// tag does what an order for the shared queue says.
    pub(super) fn queue_version(&self, host: &str, tenant: &str) -> u64 {
        let queue = self.tenants.get(tenant).and_then(|row| row.queue.as_ref());
        let holds =
            |queue: &&Queue| queue.code_point == 0 || self.queue_for(host, tenant).is_some();
        queue.filter(holds).map_or(0, |queue| queue.version)
    }

    /// A host has an order in force.
    pub(super) fn has_queue(&mut self, host: &str, tenant: &str, version: u64) {
        let Some(row) = self.hosts.get_mut(host).filter(|_| version > 0) else { return };
        if row.queues.insert(tenant.into(), version) != Some(version) {
            self.in_force.push((host.into(), tenant.into(), version));
        }
    }

    /// A host refuses orders that are older than what it knows.
    pub(super) fn note_ahead(&mut self, known: &[Known]) {
        for known in known.iter().filter(|known| known.queue > 0) {
            let row = self.tenants.get(&known.tenant);
            let ours = row.and_then(|row| row.queue.as_ref()).map_or(0, |queue| queue.version);
            if known.queue > ours {
                self.ahead.insert(known.tenant.clone());
            }
        }
    }

    /// Tenants that need an order of a newer version.
    pub(crate) fn take_ahead(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.ahead)
    }

    /// Whether something came into force since the last call, or has to be told again.
    pub(crate) fn has_in_force(&self) -> bool {
        !self.in_force.is_empty() || !self.ahead.is_empty()
    }

    /// What came into force since the last call.
    pub(crate) fn take_in_force(&mut self) -> Vec<InForce> {
        std::mem::take(&mut self.in_force)
    }

    /// All that is known to be in force.
    pub(crate) fn all_in_force(&mut self) -> Vec<InForce> {
        self.in_force.clear();
        let of = |(host, row): (&String, &super::HostRow)| {
            let one = |(tenant, version): (&String, &u64)| (host.clone(), tenant.clone(), *version);
            row.queues.iter().map(one).collect::<Vec<_>>()
        };
        self.hosts.iter().flat_map(of).collect()
    }

    /// Hosts of which it is known that their agents cannot tag with one of these code points: those that
    /// never joined, and those that said so.
    pub(crate) fn cannot_tag(&self, points: &BTreeSet<u8>) -> BTreeSet<String> {
        let lacks = |row: &super::HostRow| match row.was_seen {
            true => !points.is_subset(&row.code_points),
            false => row.enrolment.is_none(),
        };
        let all = self.hosts.iter().filter(|(_, row)| lacks(row));
        all.map(|(host, _)| host.clone()).collect()
    }
}
