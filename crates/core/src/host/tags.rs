//! Tags of tenants' packets: which queue of a switch they wait in.
//!
//! Problem   A tenant with a queue of its own is told from others by a code point. Half a tenant in its queue and half in
//!           another would be two tenants to the switch.
//! Approach  A tag is a part of the policy, at its tenant's version, and a level of the orders: one per tenant, not per
//!           VM or pair.
//!           A tenant with queues of its own may be free: its pairs' ceilings are the line's rate, and the mechanism's
//!           own ones are in force again at once when it is not.
//! Promises  A policy that is refused changes no tag. A tenant without a VM here has none. Floors stay the mechanism's.
//! Not here  Which tenant has which tag: [`crate::binding`]. Writing tags into packets: the data plane.
//! Source    QShare §5.3.

use super::orders::{Levels, Pairs, Setting};
use super::policy::Policy;
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::{PairId, Rate, SortedMap, TenantId, VmId};

/// The code point (DSCP) of a tenant's packets, from 0 to 63. 0 is the shared queue's.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(try_from = "u8", into = "u8")]
pub struct Tag(u8);

impl Tag {
    /// The shared queue's.
    pub const SHARED: Self = Self(crate::binding::SHARED);

    /// The tag of this code point; `None` above 63.
    pub const fn new(code_point: u8) -> Option<Self> {
        if code_point < 64 { Some(Self(code_point)) } else { None }
    }

    /// Its code point.
    pub const fn code_point(self) -> u8 {
        self.0
    }

    /// Whether it leads to the shared queue.
    pub const fn is_shared(self) -> bool {
        self.0 == Self::SHARED.0
    }
}

impl TryFrom<u8> for Tag {
    type Error = String;

    fn try_from(code_point: u8) -> Result<Self, String> {
        Self::new(code_point).ok_or_else(|| format!("{code_point} is no code point: 0 to 63 are"))
    }
}

impl From<Tag> for u8 {
    fn from(tag: Tag) -> Self {
        tag.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The tags of tenants that have a VM here, but for the shared queue's.
pub(super) fn here(policy: &Policy) -> SortedMap<TenantId, Tag> {
    let tenants = policy.vms().filter_map(|(vm, _)| Some(policy.directory.get(&vm)?.tenant));
    let tagged = tenants.filter_map(|tenant| Some((tenant, *policy.tags.get(&tenant)?)));
    tagged.filter(|(_, tag)| !tag.is_shared()).collect()
}

/// Makes the levels exactly these.
pub(super) fn order(tagged: SortedMap<TenantId, Tag>, levels: &mut Levels<TenantId, Tag>) {
    let gone: Vec<TenantId> = levels.iter().map(|(tenant, _)| tenant).collect();
    gone.into_iter().filter(|tenant| !tagged.contains_key(tenant)).for_each(|t| levels.remove(t));
    tagged.into_iter().for_each(|(tenant, tag)| levels.set(tenant, tag));
}

/// VMs that may send to each other as fast as the line.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Free {
    line: Rate,
    vms: SortedMap<VmId, TenantId>,
}

impl Free {
    pub(super) fn of(policy: &Policy) -> Self {
        let all = policy.directory.iter().map(|(vm, location)| (*vm, location.tenant));
        let vms = all.filter(|(_, tenant)| policy.free.contains(tenant)).collect();
        Self { line: policy.line, vms }
    }

    fn has(&self, pair: PairId) -> bool {
        let tenant = self.vms.get(&pair.src);
        tenant.is_some() && tenant == self.vms.get(&pair.dst)
    }

    /// What is in force where the mechanism wants this.
    pub(super) fn lift(&self, pair: PairId, wanted: Setting) -> Setting {
        let ceiling = if self.has(pair) { self.line.max(wanted.floor) } else { wanted.ceiling };
        Setting { ceiling, ..wanted }
    }

    /// What an earlier life left of a pair, without what was lifted.
    pub(super) fn lower(&self, pair: PairId, found: Setting) -> Setting {
        if self.has(pair) { Setting { ceiling: found.floor, ..found } } else { found }
    }

    /// Marks the pairs whose ceilings are others than under `former`.
    pub(super) fn take_over(&self, former: &Self, pairs: &mut Pairs) {
        let moved = |pair: &PairId| self.has(*pair) != former.has(*pair);
        let moved: Vec<PairId> = pairs.iter().map(|(pair, _)| pair).filter(moved).collect();
        pairs.retry(moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Call, Hose, HostLoop, Location, Outcome, Version};
    use crate::mechanism::registry;
    use weir_units::{HostId, Rate, Time, VmId};

    const HERE: TenantId = TenantId(1);
    const ELSEWHERE: TenantId = TenantId(2);

    /// Two VMs of one tenant here, one of another elsewhere.
    fn policy(law: crate::mechanism::Law, version: u64, tags: &[(TenantId, u8)]) -> Policy {
        let at = |tenant, host| Location { tenant, host: HostId(host) };
        let hose = Hose::both(Rate::from_mbps(10));
        let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
            .with_vms([(VmId(0), hose), (VmId(1), hose)])
            .with_directory([
                (VmId(0), at(HERE, 0)),
                (VmId(1), at(HERE, 0)),
                (VmId(2), at(ELSEWHERE, 1)),
            ]);
        policy.tenants.insert(HERE, Version(version));
        policy.tags = tags.iter().map(|(t, point)| (*t, Tag::new(*point).unwrap())).collect();
        policy
    }

    fn change(host: &mut HostLoop, policy: &Policy) -> Vec<(TenantId, Option<Tag>)> {
        host.handle(Time::ZERO, Call::Change { policy, strangers: Default::default() });
        host.work(Time::ZERO).tags
    }

    #[test]
    fn a_tag_comes_with_its_tenants_version_and_an_older_one_changes_nothing() {
        for row in registry::ALL {
            let new = |version, tags: &[(TenantId, u8)]| policy(row.sample(), version, tags);
            let first = new(3, &[(HERE, 10), (ELSEWHERE, 12)]);
            let mut host = HostLoop::new(first.clone(), Time::ZERO).expect("sound");
            assert_eq!(host.work(Time::ZERO).tags, [(HERE, Tag::new(10))], "{}", row.name);
            assert_eq!(change(&mut host, &new(2, &[(HERE, 20)])), [], "older");
            assert_eq!(change(&mut host, &first), [], "as it was");
            assert_eq!(change(&mut host, &new(4, &[(HERE, 20)])), [(HERE, Tag::new(20))]);
            assert_eq!(change(&mut host, &first), [], "what was new is older now");
            assert_eq!(change(&mut host, &new(5, &[(HERE, 0)])), [(HERE, None)], "shared");
            assert_eq!(change(&mut host, &new(6, &[(HERE, 7)])), [(HERE, Tag::new(7))]);
            let mut without = new(6, &[(HERE, 7)]);
            without.retain_vms(|_| false);
            assert_eq!(change(&mut host, &without), [(HERE, None)], "its last VM went");
        }
    }

    #[test]
    fn a_tag_that_was_not_written_is_written_again() {
        for row in registry::ALL {
            let tagged = policy(row.sample(), 1, &[(HERE, 10)]);
            let mut host = HostLoop::new(tagged, Time::ZERO).expect("sound");
            let work = host.work(Time::ZERO);
            assert!(work.writes());
            let outcome = Outcome { untagged: vec![HERE], ..Outcome::default() };
            host.handle(Time::ZERO, Call::Written(outcome));
            assert_eq!(host.work(Time::ZERO).tags, [(HERE, Tag::new(10))]);
            assert_eq!(host.work(Time::ZERO).tags, []);
            host.handle(Time::ZERO, Call::Rewrite);
            assert_eq!(host.work(Time::ZERO).tags, [(HERE, Tag::new(10))]);
        }
    }

    #[test]
    fn a_free_tenants_pairs_have_the_line_and_what_the_mechanism_gives_at_once_when_it_is_not() {
        let pair = PairId::new(VmId(0), VmId(3));
        let stranger = PairId::new(VmId(0), VmId(2));
        for row in registry::ALL {
            let mut bound = policy(row.sample(), 1, &[(HERE, 10)]);
            let peer = Location { tenant: HERE, host: HostId(1) };
            bound.directory.insert(VmId(3), peer);
            let mut host = HostLoop::new(bound.clone(), Time::ZERO).expect("sound");
            let setting = Setting { floor: Rate::from_mbps(1), ceiling: Rate::from_mbps(2) };
            for pair in [pair, stranger] {
                host.machine.orders(Time::ZERO).pairs.set(pair, setting);
            }
            let ceilings = |host: &mut HostLoop| -> SortedMap<PairId, Rate> {
                let pairs = host.work(Time::ZERO).pairs;
                pairs.into_iter().map(|(pair, setting)| (pair, setting.ceiling)).collect()
            };
            assert_eq!(ceilings(&mut host)[&pair], setting.ceiling, "{}", row.name);
            let mut free = bound.clone();
            free.free.insert(HERE);
            change_only(&mut host, &free);
            assert_eq!(ceilings(&mut host), SortedMap::from([(pair, free.line)]), "{}", row.name);
            // What the mechanism wants meanwhile stays its own.
            let lower = Setting { ceiling: Rate::from_mbps(1), ..setting };
            host.machine.orders(Time::ZERO).pairs.set(pair, lower);
            assert_eq!(ceilings(&mut host), SortedMap::from([(pair, free.line)]));
            change_only(&mut host, &bound);
            assert_eq!(ceilings(&mut host), SortedMap::from([(pair, lower.ceiling)]), "clamped");
        }
    }

    fn change_only(host: &mut HostLoop, policy: &Policy) {
        host.handle(Time::ZERO, Call::Change { policy, strangers: Default::default() });
    }

    #[test]
    fn code_points_have_six_bits() {
        assert_eq!(Tag::new(63).map(Tag::code_point), Some(63));
        assert_eq!(Tag::new(64), None);
        assert!(Tag::try_from(200).is_err() && Tag::SHARED.is_shared());
    }
}
