//! Sums: what each link has promised, and what each host holds.

use super::request::Need;
use super::topology::Direction;
use super::trees::Shape;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use weir_units::TenantId;

/// One link. Rates in bit/s, from `a` to `b` first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LinkAccount {
    /// What the link may promise.
    pub(crate) capacity: [u64; 2],
    pub(crate) reserved: [u64; 2],
    /// Tenants with a reservation, ascending.
    pub(crate) tenants: Vec<TenantId>,
    /// Whether it is promised to those only that have it already.
    pub(crate) is_draining: bool,
}

/// What the tenant that looks for a place may have of links that drain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Grant {
    /// What it has: link, rates from `a` to `b` first. By link; a link that is not here is none for it.
    Held(Vec<(u32, [u64; 2])>),
    /// What they have left.
    All,
}

/// One host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostAccount {
    pub(crate) slots: u32,
    pub(crate) used: u32,
    /// Whether it takes no new VM.
    pub(crate) is_closed: bool,
}

impl HostAccount {
    /// Free slots, whether or not new VMs may take them.
    pub(crate) fn free(&self) -> u32 {
        self.slots.saturating_sub(self.used)
    }

    fn open(&self) -> u32 {
        if self.is_closed { 0 } else { self.free() }
    }
}

/// Hosts of a group by free slots, the emptiest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Group {
    pub(crate) hosts: BTreeSet<(Reverse<u32>, u32)>,
    pub(crate) free: u64,
}

/// All sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Book {
    pub(crate) links: Vec<LinkAccount>,
    pub(crate) hosts: Vec<HostAccount>,
    pub(crate) groups: Vec<Group>,
    first: FirstFree,
    pub(crate) slots: u64,
    pub(crate) used: u64,
    /// Of the call that is handled; nobody holds anything between calls.
    pub(crate) grant: Grant,
}

impl Book {
    pub(crate) fn new(shape: &Shape, capacity: impl Fn(usize) -> u64) -> Self {
        let links = (0..shape.topology.links.len())
            .map(|l| LinkAccount { capacity: [capacity(l); 2], ..LinkAccount::default() })
            .collect();
        let hosts: Vec<HostAccount> = shape
            .topology
            .hosts
            .iter()
            .map(|h| h.slots)
            .map(|slots| HostAccount { slots, ..HostAccount::default() })
            .collect();
        let of = |members: &Vec<u32>| Group {
            hosts: members
                .iter()
                .map(|h| (Reverse(hosts[*h as usize].open()), *h))
                .filter(|e| e.0.0 > 0)
                .collect(),
            free: members.iter().map(|h| u64::from(hosts[*h as usize].open())).sum(),
        };
        let groups = shape.groups.iter().map(of).collect();
        let first = FirstFree::new(hosts.iter().map(HostAccount::open));
        let slots = hosts.iter().map(|h| u64::from(h.slots)).sum();
        Self { links, hosts, groups, first, slots, used: 0, grant: Grant::Held(Vec::new()) }
    }

    fn change_host(&mut self, shape: &Shape, host: u32, change: impl FnOnce(&mut HostAccount)) {
        let account = &mut self.hosts[host as usize];
        let before = account.open();
        let used = account.used;
        change(account);
        let after = account.open();
        self.used = self.used - u64::from(used) + u64::from(account.used);
        if before == after {
            return;
        }
        self.first.set(host as usize, after);
        for &group in &shape.groups_of[host as usize] {
            let group = &mut self.groups[group as usize];
            group.free = group.free - u64::from(before) + u64::from(after);
            group.hosts.remove(&(Reverse(before), host));
            if after > 0 {
                group.hosts.insert((Reverse(after), host));
            }
        }
    }

    /// Takes slots of a host, which the caller knows to be free.
    pub(crate) fn take_slots(&mut self, shape: &Shape, host: u32, slots: u32) {
        self.change_host(shape, host, |account| account.used += slots);
    }

    pub(crate) fn free_slots(&mut self, shape: &Shape, host: u32, slots: u32) {
        self.change_host(shape, host, |account| {
            account.used = account.used.checked_sub(slots).expect("slots were taken before");
        });
    }

    pub(crate) fn close(&mut self, shape: &Shape, host: u32, is_closed: bool) {
        self.change_host(shape, host, |account| account.is_closed = is_closed);
    }

    /// The lowest host with that many free slots.
    pub(crate) fn first_with(&self, slots: u32) -> Option<u32> {
        self.first.at_least(slots)
    }

    pub(crate) fn reserve(&mut self, tenant: TenantId, needs: &[Need]) {
        for need in needs {
            let link = &mut self.links[need.link.0 as usize];
            link.reserved[0] += need.forward.as_bps();
            link.reserved[1] += need.backward.as_bps();
            if let Err(at) = link.tenants.binary_search(&tenant) {
                link.tenants.insert(at, tenant);
            }
        }
    }

    pub(crate) fn release(&mut self, tenant: TenantId, needs: &[Need]) {
        for need in needs {
            let link = &mut self.links[need.link.0 as usize];
            let less = |sum: u64, part: u64| sum.checked_sub(part).expect("was reserved before");
            link.reserved[0] = less(link.reserved[0], need.forward.as_bps());
            link.reserved[1] = less(link.reserved[1], need.backward.as_bps());
            if let Ok(at) = link.tenants.binary_search(&tenant) {
                link.tenants.remove(at);
            }
        }
    }

    /// What is left to promise, from `a` to `b` first.
    pub(crate) fn room(&self, link: u32) -> [u64; 2] {
        let account = &self.links[link as usize];
        let left = [0, 1].map(|d: usize| account.capacity[d].saturating_sub(account.reserved[d]));
        match self.held(link) {
            Some(held) => [0, 1].map(|d: usize| left[d].min(held[d])),
            None => left,
        }
    }

    /// Whether a link drains and the tenant that looks for a place has nothing of it: then it may not
    /// even be part of the tenant's tree.
    pub(crate) fn is_barred(&self, link: u32) -> bool {
        let Grant::Held(held) = &self.grant else { return false };
        self.links[link as usize].is_draining && held.iter().all(|(of, _)| *of != link)
    }

    /// Whether no other tenant is in the way: the link is down, or drains.
    pub(crate) fn is_useless(&self, link: u32) -> bool {
        let account = &self.links[link as usize];
        account.capacity == [0, 0] || account.is_draining
    }

    /// The bound on a link that drains.
    fn held(&self, link: u32) -> Option<[u64; 2]> {
        let Grant::Held(held) = &self.grant else { return None };
        let found = || held.iter().find(|(of, _)| *of == link).map(|(_, held)| *held);
        self.links[link as usize].is_draining.then(|| found().unwrap_or_default())
    }

    /// Whether the link's promises exceed what it may promise.
    pub(crate) fn is_over(&self, link: usize) -> bool {
        let link = &self.links[link];
        (0..2).any(|d| link.reserved[d] > link.capacity[d])
    }
}

/// Position of a direction in pairs of sums.
pub(crate) fn side(direction: Direction) -> usize {
    match direction {
        Direction::Forward => 0,
        Direction::Backward => 1,
    }
}

/// Finds the first host with enough free slots: a complete binary tree of maxima.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FirstFree {
    leaves: usize,
    most: Vec<u32>,
}

impl FirstFree {
    fn new(free: impl ExactSizeIterator<Item = u32>) -> Self {
        let leaves = free.len().next_power_of_two();
        let mut most = vec![0; 2 * leaves];
        for (i, free) in free.enumerate() {
            most[leaves + i] = free;
        }
        for i in (1..leaves).rev() {
            most[i] = most[2 * i].max(most[2 * i + 1]);
        }
        Self { leaves, most }
    }

    fn set(&mut self, index: usize, free: u32) {
        let mut i = self.leaves + index;
        self.most[i] = free;
        while i > 1 {
            i /= 2;
            self.most[i] = self.most[2 * i].max(self.most[2 * i + 1]);
        }
    }

    fn at_least(&self, wanted: u32) -> Option<u32> {
        if wanted == 0 || self.most[1] < wanted {
            return None;
        }
        let mut i = 1;
        while i < self.leaves {
            i = if self.most[2 * i] >= wanted { 2 * i } else { 2 * i + 1 };
        }
        Some((i - self.leaves) as u32)
    }
}
