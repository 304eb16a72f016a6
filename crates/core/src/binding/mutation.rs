//! Code points that differ along a tenant's tree: DSCP mutation at ports.
//!
//! Problem   One code point for a whole tree must be free on all of its links. Tenants that meet many
//!           others need many values, and an operator may have few.
//! Approach  The port where a packet enters a switch changes its code point. So a packet has one value
//!           from the node that sends it to the next one, and a value must be free only on links that
//!           one node sends into. Each tenant in turn takes the first free value at each node.
//! Promises  On a link and direction no two tenants have the same value. A port leads each tenant's
//!           value to its next one, and all others to the shared queue's. A tenant that stays on its
//!           tree keeps its values, so no packet on its way meets another queue. A tenant has a value
//!           at all nodes, or at none.
//! Not here  Who has a queue: `Binder`, which gives a tenant one value. Neither the loop nor a driver
//!           uses this yet.
//! Source    QShare §5.4 ("dscp-to-dscp mutation map").

use super::SHARED;
use crate::ledger::{Direction, LinkId, SwitchId};
use weir_units::{SortedMap, SortedSet, TenantId};

/// A node that sends into links.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sender {
    /// The host of this link.
    Host(LinkId),
    /// A switch.
    Switch(SwitchId),
}

/// The values of all tenants with queues of their own.
///
/// Cost: [`assign`](Self::assign) takes O(tenants of a link) for each link of each tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutation {
    switches: SortedMap<(LinkId, Direction), SwitchId>,
    codepoints: Vec<u8>,
    /// By tenant: the links of its tree, and its values.
    values: SortedMap<TenantId, (Vec<LinkId>, SortedMap<Sender, u8>)>,
    /// Tenants with values, by link of their trees.
    on: SortedMap<LinkId, SortedSet<TenantId>>,
}

impl Mutation {
    /// No tenant has a value. `switches` send into these links and directions; hosts send into all
    /// others. Tenants may have the values `codepoints`, without the shared queue's.
    pub fn new(
        switches: SortedMap<(LinkId, Direction), SwitchId>,
        mut codepoints: Vec<u8>,
    ) -> Self {
        codepoints.retain(|codepoint| *codepoint != SHARED);
        Self { switches, codepoints, values: SortedMap::new(), on: SortedMap::new() }
    }

    /// Gives values to these tenants with the links of their trees, and takes those of all others.
    /// First come those that stay on their trees, then those that have values and a changed tree, then
    /// all others, each in their order. Returns who found none free somewhere: it has none anywhere.
    pub fn assign(&mut self, tenants: &[(TenantId, Vec<LinkId>)]) -> Vec<TenantId> {
        let before = std::mem::take(&mut self.values);
        self.on.clear();
        let rank = |tenant: &TenantId, links: &Vec<LinkId>| match before.get(tenant) {
            Some((had, _)) => u8::from(had != links),
            None => 2,
        };
        let mut order: Vec<_> = tenants.iter().collect();
        order.sort_by_key(|(tenant, links)| rank(tenant, links));
        let mut without = Vec::new();
        for (tenant, links) in order {
            let had = before.get(tenant).map(|(_, values)| values);
            let Some(values) = self.find(links, had) else {
                without.push(*tenant);
                continue;
            };
            self.values.insert(*tenant, (links.clone(), values));
            for link in links {
                self.on.entry(*link).or_default().insert(*tenant);
            }
        }
        without
    }

    /// Free values at all nodes of a tree. One that the tenant has stays, or there are none: it cannot
    /// change while packets are on their way.
    fn find(
        &self,
        links: &[LinkId],
        had: Option<&SortedMap<Sender, u8>>,
    ) -> Option<SortedMap<Sender, u8>> {
        let value = |(sender, into): (Sender, Vec<LinkId>)| {
            let taken = self.taken(sender, &into);
            let free = |value: &u8| self.codepoints.contains(value) && !taken.contains(value);
            let value = match had.and_then(|had| had.get(&sender)) {
                Some(value) => Some(*value).filter(free),
                None => self.codepoints.iter().copied().find(free),
            };
            value.map(|value| (sender, value))
        };
        self.senders(links).into_iter().map(value).collect()
    }

    /// What a tenant's packets carry on the links that a node sends into.
    pub fn value(&self, tenant: TenantId, sender: Sender) -> Option<u8> {
        self.values.get(&tenant)?.1.get(&sender).copied()
    }

    /// What the port does where packets of this direction of a link enter a switch: from each code
    /// point that tenants may have to the next one, [`SHARED`] if no tenant has it here. Empty where
    /// they enter a host.
    pub fn port(&self, link: LinkId, direction: Direction) -> SortedMap<u8, u8> {
        let back = match direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        let (from, to) = (self.sender(link, direction), self.sender(link, back));
        if let Sender::Host(_) = to {
            return SortedMap::new();
        }
        let mut port: SortedMap<u8, u8> =
            self.codepoints.iter().map(|codepoint| (*codepoint, SHARED)).collect();
        for tenant in self.on.get(&link).into_iter().flatten() {
            if let (Some(value), Some(next)) = (self.value(*tenant, from), self.value(*tenant, to))
            {
                port.insert(value, next);
            }
        }
        port
    }

    /// The node that sends into a link in this direction.
    pub fn sender(&self, link: LinkId, direction: Direction) -> Sender {
        let switch = self.switches.get(&(link, direction));
        switch.map_or(Sender::Host(link), |switch| Sender::Switch(*switch))
    }

    /// The nodes of a tree, each with the tree's links that it sends into.
    fn senders(&self, links: &[LinkId]) -> SortedMap<Sender, Vec<LinkId>> {
        let mut senders: SortedMap<Sender, Vec<LinkId>> = SortedMap::new();
        for link in links {
            for direction in [Direction::Forward, Direction::Backward] {
                senders.entry(self.sender(*link, direction)).or_default().push(*link);
            }
        }
        senders
    }

    /// The values that tenants have who use some of the links that a node sends into.
    fn taken(&self, sender: Sender, into: &[LinkId]) -> SortedSet<u8> {
        let others = into.iter().filter_map(|link| self.on.get(link)).flatten();
        others.filter_map(|other| self.value(*other, sender)).collect()
    }
}
