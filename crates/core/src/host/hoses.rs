//! Which hose a pair belongs to.
//!
//! Problem   A VM may have several hoses: one toward all VMs of its tenant, and further ones toward
//!           some of them (floors between components). What one pair takes is taken from one hose.
//! Approach  Every host knows in which hoses each VM sends and receives ([`Ties`]). A pair belongs
//!           to the first hose in which its source sends and its destination receives; the hose of
//!           the tenant comes last. A pair that no hose of a tenant covers has the small default one.
//! Promises  Hosts that have the same ties name the same hose for a pair. Where no VM has further
//!           hoses, a pair has its tenant's hose, or the default one between tenants.
//! Not here  How a hose is divided over its pairs: see [`crate::partition`].
//! Source    Lee et al., *Application-Driven Bandwidth Guarantees in Datacenters*, SIGCOMM 2014
//!           (tenant application graphs). Departs: a hose has a name, and any VMs of a tenant may
//!           share it, with floors of their own.

use super::policy::{Hose, Policy};
use serde::{Deserialize, Serialize};
use weir_units::{HoseId, PairId, Rate, SortedMap, VmId};

/// One of the hoses of a VM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum HoseKey {
    /// Toward all VMs of its tenant.
    Tenant,
    /// The small one for pairs that no hose of a tenant covers.
    Default,
    /// Toward the VMs of its tenant that share this hose.
    Further(HoseId),
}

/// The hoses in which a VM sends and receives, if it has others than its tenant's.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Ties {
    /// Further hoses in which it sends. All hosts list hoses in the same order.
    pub out: Vec<HoseId>,
    /// Further hoses in which it receives, likewise.
    pub in_: Vec<HoseId>,
    /// Whether it sends in its tenant's hose.
    pub tenant_out: bool,
    /// Whether it receives in its tenant's hose.
    pub tenant_in: bool,
}

impl Ties {
    /// The further hoses, some of them twice.
    fn all(&self) -> impl Iterator<Item = HoseId> + '_ {
        self.out.iter().chain(&self.in_).copied()
    }
}

/// The hose of a pair of one tenant's VMs. A VM without ties has its tenant's hose alone.
pub fn shared(src: Option<&Ties>, dst: Option<&Ties>) -> HoseKey {
    if let (Some(src), Some(dst)) = (src, dst)
        && let Some(hose) = src.out.iter().find(|hose| dst.in_.contains(hose))
    {
        return HoseKey::Further(*hose);
    }
    let is_tenants =
        src.is_none_or(|ties| ties.tenant_out) && dst.is_none_or(|ties| ties.tenant_in);
    if is_tenants { HoseKey::Tenant } else { HoseKey::Default }
}

impl Policy {
    /// The hose that a pair belongs to at both of its ends; `None` if one of its VMs is unknown.
    pub fn hose_of(&self, pair: PairId) -> Option<HoseKey> {
        let src = self.directory.get(&pair.src)?;
        let dst = self.directory.get(&pair.dst)?;
        if src.tenant != dst.tenant {
            return Some(HoseKey::Default);
        }
        if self.ties.is_empty() {
            return Some(HoseKey::Tenant);
        }
        Some(shared(self.ties.get(&pair.src), self.ties.get(&pair.dst)))
    }

    /// The further hoses of a VM of this host: those with floors, and those that only tie it.
    pub fn further_of(&self, vm: VmId) -> SortedMap<HoseId, Hose> {
        let ties = self.ties.get(&vm).into_iter().flat_map(Ties::all);
        let mut all: SortedMap<HoseId, Hose> =
            ties.map(|id| (id, Hose::both(Rate::ZERO))).collect();
        all.extend(self.further.get(&vm).into_iter().flatten().map(|(id, hose)| (*id, *hose)));
        all
    }

    /// The sum of a VM's floors out, over its tenant's hose and all further ones.
    pub fn floors_out(&self, vm: VmId) -> Rate {
        let further = self.further.get(&vm).into_iter().flat_map(SortedMap::values);
        self.hoses.get(&vm).into_iter().chain(further).map(|hose| hose.out.floor).sum()
    }

    /// What a VM of this host is promised out in all ([`crate::mechanism::Law::promised`]).
    pub fn promised(&self, vm: VmId) -> Rate {
        self.law.promised(vm, self.floors_out(vm))
    }

    /// Whether a VM elsewhere is at the other end of a further hose of a VM here.
    pub(crate) fn reaches(&self, vm: VmId, hose: HoseId, out: bool) -> bool {
        let tenant = self.directory.get(&vm).map(|at| at.tenant);
        self.ties.iter().any(|(other, ties)| {
            let ends = if out { &ties.in_ } else { &ties.out };
            let at = self.directory.get(other);
            let is_theirs = at.is_some_and(|at| at.host != self.host && Some(at.tenant) == tenant);
            is_theirs && ends.contains(&hose)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Location;
    use crate::mechanism::registry;
    use weir_units::{HostId, TenantId};

    fn ties(out: &[u32], in_: &[u32], tenant: bool) -> Ties {
        let ids = |all: &[u32]| all.iter().copied().map(HoseId).collect();
        Ties { out: ids(out), in_: ids(in_), tenant_out: tenant, tenant_in: tenant }
    }

    #[test]
    fn a_pair_has_the_first_hose_in_which_its_source_sends_and_its_destination_receives() {
        let (web, db) = (ties(&[2, 1], &[], true), ties(&[], &[1, 2], true));
        assert_eq!(shared(Some(&web), Some(&db)), HoseKey::Further(HoseId(2)));
        assert_eq!(shared(Some(&db), Some(&web)), HoseKey::Tenant, "nobody receives there");
        assert_eq!(shared(Some(&web), Some(&web)), HoseKey::Tenant);
        assert_eq!(shared(Some(&web), None), HoseKey::Tenant);
        assert_eq!(shared(None, None), HoseKey::Tenant);
    }

    #[test]
    fn a_pair_that_no_hose_covers_has_the_default_one() {
        let (web, db) = (ties(&[1], &[], false), ties(&[], &[1], false));
        assert_eq!(shared(Some(&web), Some(&db)), HoseKey::Further(HoseId(1)));
        assert_eq!(shared(Some(&db), Some(&web)), HoseKey::Default);
        assert_eq!(shared(Some(&web), None), HoseKey::Default);
        assert_eq!(shared(None, Some(&db)), HoseKey::Default);
    }

    #[test]
    fn hoses_are_of_one_tenant() {
        let law = registry::row("elasticswitch").expect("known").sample();
        let at = |tenant| Location { tenant: TenantId(tenant), host: HostId(0) };
        let mut policy = Policy::new(HostId(0), Rate::from_mbps(100), law).with_directory([
            (VmId(0), at(0)),
            (VmId(1), at(1)),
            (VmId(2), at(0)),
        ]);
        for vm in 0..3 {
            policy.ties.insert(VmId(vm), ties(&[1], &[1], true));
        }
        let of = |dst| policy.hose_of(PairId::new(VmId(0), VmId(dst)));
        assert_eq!(of(1), Some(HoseKey::Default));
        assert_eq!(of(2), Some(HoseKey::Further(HoseId(1))));
        assert_eq!(of(3), None);
    }
}
