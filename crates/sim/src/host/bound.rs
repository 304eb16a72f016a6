//! Tenants that are bound to queues: what hosts do for them, and what they count.
//!
//! Promises  A packet carries its tenant's tag as it leaves for the uplink. A tenant that is free is
//!           limited by the uplink alone, on which VMs share in proportion to floors; another by what
//!           the agent's mechanism says. Orders change no queue of pairs that have none.
//! Not here  Who has which tag: see `world`'s binding.
//! Source    QShare §5.4, §6.

use super::shim::Shim;
use crate::net::Net;
use weir_core::binding::control::Order;
use weir_units::VmId;

/// What crossed hosts' uplinks.
#[derive(Debug)]
pub(super) struct Tenants {
    /// By VM.
    of: Vec<u32>,
    count: usize,
    /// Octets out and in, by host and tenant.
    used: Vec<[u64; 2]>,
}

impl Tenants {
    /// A packet of a VM left its host, or came to one.
    pub(super) fn count(&mut self, host: u32, vm: VmId, is_in: bool, size: u16) {
        let tenant = self.of[vm.0 as usize] as usize;
        let used = &mut self.used[host as usize * self.count + tenant];
        used[usize::from(is_in)] += u64::from(size);
    }
}

impl Shim {
    /// Counts by tenant from now on; `of` has each VM's tenant, of so many.
    pub(crate) fn count_tenants(&mut self, of: Vec<u32>, count: usize) {
        let used = vec![[0; 2]; count * self.hosts.len()];
        self.tenants = Some(Box::new(Tenants { of, count, used }));
    }

    /// Octets that a tenant sent from a host and received there so far, without what stayed there.
    pub(crate) fn used(&self, host: u32, tenant: u32) -> [u64; 2] {
        let Some(tenants) = &self.tenants else { return [0; 2] };
        tenants.used[host as usize * tenants.count + tenant as usize]
    }

    /// A host does what is ordered for a tenant, whose VMs here these are.
    pub(crate) fn obey(&mut self, net: &mut Net, number: u32, vms: &[VmId], order: Order) {
        let host = &mut self.hosts[number as usize];
        let places: Vec<u32> = vms.iter().filter_map(|vm| host.place(*vm)).collect();
        for (vm, place) in vms.iter().zip(&places) {
            host.tag(*vm, order.codepoint);
            host.free[*place as usize] = order.is_free;
        }
        for pair in host.sends.clone() {
            let pair = &mut self.pairs[pair as usize];
            if places.contains(&pair.vm) && pair.sending.leaf.is_some() {
                host.shape(net.now, pair);
            }
        }
        self.serve(net, number);
    }
}
