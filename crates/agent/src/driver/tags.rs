//! Tags of tenants in packets, and what tenants use of the network card.
//!
//! Problem   A controller that binds tenants to queues must know what each of them uses of each card, in each
//!           direction, and must be able to ask why a tenant is where it is.
//! Approach  Tags are levels: what the loop orders is written, and what failed is ordered again.
//!           Use is what the counters of pairs grew by. Only packets between VMs of one tenant
//!           that crossed the card count, which are those that its tag is on.
//! Promises  What the use of a tenant is counted from never goes back while the agent runs.
//! Not here  Which tenant has which tag: see `weir_core::binding`.

use super::Driver;
use crate::follow::Link;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::host::{Direction, Observed, Outcome, Part, Policy, Tag, Wanted};
use weir_model::status::TenantUse;
use weir_units::{PairId, TenantId, Time, VmId};

/// What tenants sent and received by the network card, in octets on layer 2 without FCS.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pairs: BTreeMap<(PairId, Direction), u64>,
    meters: BTreeMap<VmId, u64>,
    tenants: BTreeMap<TenantId, Used>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Used {
    sent: u64,
    received: u64,
}

/// What a counter grew by; one that is smaller than before began anew.
fn growth<K: Ord + Copy>(known: &mut BTreeMap<K, u64>, key: K, now: u64) -> u64 {
    let before = known.insert(key, now).unwrap_or(0);
    if now < before { now } else { now - before }
}

impl Usage {
    /// Takes all counters as they are now.
    pub(super) fn take(&mut self, observed: &Observed, policy: &Policy) {
        let tenant = |vm| policy.directory.get(&vm).map(|location| location.tenant);
        let common = |pair: &PairId| tenant(pair.src).filter(|of| tenant(pair.dst) == Some(*of));
        let mut there = BTreeSet::new();
        for (pair, count) in &observed.send {
            let Some(of) = common(pair).filter(|_| policy.is_here(pair.src)) else { continue };
            let (key, left) = ((*pair, Direction::Send), count.numbered + count.unnumbered);
            there.insert(key);
            let grown = growth(&mut self.pairs, key, left);
            self.tenants.entry(of).or_default().sent += grown;
        }
        for (pair, count) in &observed.receive {
            let came = !policy.is_here(pair.src) && policy.is_here(pair.dst);
            let Some(of) = common(pair).filter(|_| came) else { continue };
            let key = (*pair, Direction::Receive);
            there.insert(key);
            let grown = growth(&mut self.pairs, key, count.octets);
            self.tenants.entry(of).or_default().received += grown;
        }
        for (vm, _, meter) in observed.meters.iter().filter(|(_, part, _)| *part == Part::Own) {
            let Some(of) = tenant(*vm) else { continue };
            let grown = growth(&mut self.meters, *vm, meter.octets);
            self.tenants.entry(of).or_default().received += grown;
        }
        self.pairs.retain(|key, _| there.contains(key));
    }

    fn of(&self, tenant: TenantId) -> Used {
        self.tenants.get(&tenant).copied().unwrap_or_default()
    }
}

impl Driver {
    /// Reads all counters, and what tenants used so far.
    pub(super) fn count_use(&mut self, now: Time) {
        self.read_counters(now, Wanted::ALL);
        // Half a reading would look as if pairs had ended.
        if self.failed_reads == 0 {
            self.usage.take(&self.sample, &self.setup.host);
        }
    }

    /// When the controller is to be told what tenants use.
    pub(super) fn next_report(&self) -> Option<Time> {
        self.link.as_ref().and_then(Link::report_due)
    }

    /// Tells the controller what tenants used when it was counted last, if it is time to.
    pub(super) fn tell_use(&mut self, now: Time) {
        if self.next_report().is_none_or(|at| at > now) {
            return;
        }
        let tenants = self.told_tenants();
        if let Some(link) = &mut self.link {
            link.report(now, tenants);
        }
    }

    /// Writes the tags that changed.
    pub(super) fn write_tags(
        &mut self,
        changed: &[(TenantId, Option<Tag>)],
        outcome: &mut Outcome,
    ) {
        if changed.is_empty() {
            return;
        }
        let points: Vec<_> =
            changed.iter().map(|(tenant, tag)| (*tenant, tag.map(Tag::code_point))).collect();
        if let Err((tenants, error)) = self.dataplane.set_tags(&points) {
            if !self.has_untagged {
                tracing::error!("tags of {} tenants were not written: {error}", tenants.len());
            }
            outcome.untagged = tenants;
        }
        self.has_untagged = !outcome.untagged.is_empty();
    }

    /// Takes away the tags that an earlier agent left to tenants that have none now.
    pub(super) fn adopt_tags(&mut self) {
        let left = self.dataplane.tags().unwrap_or_else(|error| {
            tracing::error!("the tags of an earlier agent could not be read: {error}");
            BTreeMap::new()
        });
        let wanted = &self.setup.host.tags;
        let gone = left.into_keys().filter(|tenant| !wanted.contains_key(tenant));
        let gone: Vec<_> = gone.map(|tenant| (tenant, None)).collect();
        if let Err((_, error)) = self.dataplane.set_tags(&gone) {
            tracing::error!("tags of an earlier agent were not removed: {error}");
        }
    }

    /// The queue and the use of each tenant with VMs here.
    pub(super) fn told_tenants(&self) -> Vec<TenantUse> {
        let policy = &self.setup.host;
        let mut here = BTreeMap::new();
        for vm in &self.setup.directory.vms {
            let id = self.setup.names.id(&vm.name).filter(|id| policy.is_here(*id));
            here.extend(id.and_then(|id| Some((self.setup.tenants.get(&id)?, &vm.tenant))));
        }
        let told = |(id, name): (&TenantId, &String)| {
            let Used { sent, received } = self.usage.of(*id);
            let said = self.setup.file.tenants.iter().find(|tenant| tenant.name == *name);
            let tag = policy.tags.get(id).copied().unwrap_or(Tag::SHARED);
            TenantUse {
                tenant: name.clone(),
                code_point: tag.code_point(),
                why: said.and_then(|tenant| tenant.why.clone()),
                sent,
                received,
            }
        };
        here.into_iter().map(told).collect()
    }

    /// Which queue a packet from one VM to the other waits in, and why; nothing where no code point
    /// may be a tag.
    pub(super) fn explain_queue(&self, src: VmId, dst: VmId) -> Option<String> {
        if self.setup.file.code_points.is_empty() {
            return None;
        }
        let policy = &self.setup.host;
        let tenant = |vm| self.setup.tenants.get(&vm);
        let name = |vm: VmId| {
            let name = self.setup.names.name(vm);
            let listed = self.setup.directory.vms.iter().find(|listed| listed.name == name);
            listed.map_or_else(String::new, |listed| listed.tenant.clone())
        };
        if tenant(src) != tenant(dst) {
            let (from, to) = (name(src), name(dst));
            return Some(format!(
                "Queue on switches: the shared one, because the VMs are of two tenants, {from} and {to}."
            ));
        }
        if policy.is_here(src) && policy.is_here(dst) {
            return Some("Queue on switches: none, because both VMs are on this host.".into());
        }
        let all = self.told_tenants();
        let of = all.into_iter().find(|told| told.tenant == name(src))?;
        let queue = match of.code_point {
            0 => "the shared one".to_owned(),
            point => format!("tenant {}'s own, by code point {point}", of.tenant),
        };
        let is_free = tenant(src).is_some_and(|tenant| policy.free.contains(tenant));
        let free = if is_free { "; this host's uplink alone limits it" } else { "" };
        let why = of.why.map_or_else(String::new, |why| format!(" ({why})"));
        Some(format!("Queue on switches: {queue}{free}{why}."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::host::{Hose, Location, Metered, ReceiveCount, SendCount};
    use weir_core::mechanism::registry;
    use weir_units::{HostId, Rate};

    const RED: TenantId = TenantId(1);
    const BLUE: TenantId = TenantId(2);

    /// VMs 0 and 1 of red and 2 of blue here, 3 of red and 4 of blue elsewhere.
    fn policy() -> Policy {
        let law = registry::ALL[0].sample();
        let at = |vm: u32, tenant, host| (VmId(vm), Location { tenant, host: HostId(host) });
        let hose = Hose::both(Rate::from_mbps(10));
        Policy::new(HostId(0), Rate::from_mbps(1_000), law)
            .with_vms([0, 1, 2].map(|vm| (VmId(vm), hose)))
            .with_directory([
                at(0, RED, 0),
                at(1, RED, 0),
                at(2, BLUE, 0),
                at(3, RED, 1),
                at(4, BLUE, 1),
            ])
    }

    fn pair(src: u32, dst: u32) -> PairId {
        PairId::new(VmId(src), VmId(dst))
    }

    fn sent(src: u32, dst: u32, numbered: u64, unnumbered: u64) -> (PairId, SendCount) {
        let octets = numbered + unnumbered + 999;
        (pair(src, dst), SendCount { octets, numbered, unnumbered, ..SendCount::default() })
    }

    fn got(src: u32, dst: u32, octets: u64) -> (PairId, ReceiveCount) {
        (pair(src, dst), ReceiveCount { octets, ..ReceiveCount::default() })
    }

    #[test]
    fn what_crosses_the_card_within_a_tenant_is_its_use() {
        let mut usage = Usage::default();
        let mut seen = Observed {
            // Within the host nothing leaves; what goes to another tenant is not in its queue.
            send: vec![sent(0, 3, 100, 20), sent(1, 3, 5, 0), sent(0, 1, 0, 0), sent(0, 4, 70, 0)],
            receive: vec![got(3, 0, 300), got(1, 0, 400), got(3, 2, 500), got(4, 2, 7)],
            ..Observed::default()
        };
        usage.take(&seen, &policy());
        assert_eq!(usage.of(RED), Used { sent: 125, received: 300 });
        assert_eq!(usage.of(BLUE), Used { sent: 0, received: 7 });
        usage.take(&seen, &policy());
        assert_eq!(usage.of(RED), Used { sent: 125, received: 300 }, "nothing came");
        // One began anew, one is gone, and one grew.
        seen.send = vec![sent(0, 3, 30, 0)];
        seen.receive = vec![got(3, 0, 310)];
        usage.take(&seen, &policy());
        assert_eq!(usage.of(RED), Used { sent: 155, received: 310 });
        assert_eq!(usage.pairs.len(), 2);
    }

    #[test]
    fn where_the_kernel_meters_its_meter_says_what_came() {
        let mut usage = Usage::default();
        let meter = |part, octets| (VmId(0), part, Metered { octets, ..Metered::default() });
        let meters = vec![meter(Part::Own, 40), meter(Part::Strangers, 9)];
        let mut seen = Observed { meters, ..Observed::default() };
        usage.take(&seen, &policy());
        seen.meters[0].2.octets = 45;
        usage.take(&seen, &policy());
        assert_eq!(usage.of(RED), Used { sent: 0, received: 45 });
    }
}
