//! Which tenants have a queue of their own on a switch's few weighted queues.
//!
//! Problem   In a queue of its own a tenant may burst in any pattern, and no other feels it. But a
//!           port has eight queues, of which others may have some.
//! Approach  QShare's Algorithm 2, at the end of each control interval. A tenant has a queue on every
//!           link of its tree, or on none. In the order of scores, tenants take spare queues, or those
//!           of tenants with lower scores. All others share one queue per port.
//! Promises  No port has more dedicated tenants than free queues. Two dedicated tenants on one link
//!           have different code points. On every port with a dedicated tenant, the weights hold what
//!           each of them has reserved, and what the others have reserved together. A tenant that is
//!           outscored on a link scores no more than any dedicated tenant there that is not pinned.
//!           Same calls, same answers.
//! Not here  What tenants use: agents tell. How switches are written to, and in which order: the
//!           controller. Who may have how much of a link: `ledger`.
//! Source    QShare §5, Algorithm 2. Departs: `docs/algorithms/qshare.md`.

mod allocate;
pub mod control;
mod score;
pub mod switch;
#[cfg(test)]
mod tests;
mod weights;

pub use score::{CardUse, score, usage_factor};
use weights::holds;
pub use weights::{MostWeight, Weights, weigh};

use crate::ledger::{Direction, LinkId, Need, SwitchId};
use weir_units::{Rate, SortedMap, TenantId};

/// The queue that tenants without one of their own share.
pub const SHARED: u8 = 0;

/// When the last queue of a port is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastQueue {
    /// Always: newcomers, packets without a code point, and control traffic need one.
    #[default]
    AlwaysShared,
    /// Only on ports with more tenants than queues, as in the paper (Fig. 7a, "RNL < 9").
    SharedIfCrowded,
}

/// The two ports of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPorts {
    /// Rate of either direction.
    pub rate: Rate,
    /// Queues that tenants may have, the shared one among them. What belongs to others (lossless
    /// traffic, control) is not counted. With 0 or 1 no tenant has a queue of its own here.
    pub queues: u8,
}

/// What tenants are bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fabric {
    /// By [`LinkId`].
    pub links: Vec<LinkPorts>,
    /// Code points (DSCP) that dedicated tenants may have. 0 is the shared queue's.
    pub codepoints: Vec<u8>,
    /// The switches' range of weights.
    pub most_weight: MostWeight,
    /// Whether a port's last queue is shared.
    pub last_queue: LastQueue,
}

impl Fabric {
    /// All code points but 0.
    pub fn all_codepoints() -> Vec<u8> {
        (1..64).collect()
    }
}

/// What an operator wants for a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wish {
    /// By its score.
    #[default]
    ByScore,
    /// Before all others, and no other tenant takes its queue.
    Pinned,
    /// Never a queue of its own.
    Excluded,
}

/// A tenant at the end of a control interval.
#[derive(Clone, PartialEq, Debug)]
pub struct Contender {
    /// The tenant.
    pub tenant: TenantId,
    /// What it has reserved on the links of its tree, ascending by link.
    pub needs: Vec<Need>,
    /// See [`score()`].
    pub score: f64,
    /// What an operator wants for it.
    pub wish: Wish,
    /// Whether it came in this interval: then it stays in the shared queue until the next.
    pub is_new: bool,
}

/// Why a tenant has no queue of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It came in this interval.
    New,
    /// An operator said so.
    Excluded,
    /// It has reserved nothing on any link: its VMs are on one host, or have no floor.
    NeedsNone,
    /// This link has no free queue, and the tenants that have one score as much or more, or are pinned.
    Outscored(LinkId),
    /// It had a queue, and this tenant took its place on this link.
    Preempted(LinkId, TenantId),
    /// It had a queue, and this link has fewer of them, or is new to its tree and has none free.
    QueuesGone(LinkId),
    /// This link has no queue that a tenant could have.
    NoQueues(LinkId),
    /// With it in a queue of its own, no weights in the switch's range hold all floors of this link.
    Weights(LinkId),
    /// All code points are in use on links that it shares with others.
    Codepoints,
    /// This switch could not be written to, or has lost the tenant's queue. The next interval tries
    /// again.
    Switch(SwitchId),
    /// It is to have a queue: switches and hosts are being told, or another tenant leaves its place.
    Moving,
}

/// A tenant's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A queue of its own on every link of its tree. Its packets carry this code point.
    Dedicated(u8),
    /// The shared queue.
    Shared(Why),
}

/// A queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlan {
    /// Its number, from 0 ([`SHARED`], unless all queues are dedicated) to the number of free ones - 1.
    pub queue: u8,
    /// Its tenant, and the code point of the packets; none for the shared one.
    pub of: Option<(TenantId, u8)>,
    /// What it has reserved.
    pub reserved: Rate,
    /// Its weight.
    pub weight: u16,
}

/// Which tenant has which queue.
///
/// Cost: memory of 8 tenants per link; [`bind`](Self::bind) takes O(tenants · links of a tree · queues).
#[derive(Clone, PartialEq, Debug)]
pub struct Binder {
    fabric: Fabric,
    provisioned: Option<Provisioned>,
    places: SortedMap<TenantId, Place>,
    ports: Vec<Ports>,
}

/// Weights of queues that others provisioned, the same on all ports. A queue in which no tenant is
/// bound is empty, and takes nothing of its link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Provisioned {
    /// The shared queue's.
    pub shared: u16,
    /// By code point: those of all other queues.
    pub own: SortedMap<u8, u16>,
}

impl Provisioned {
    /// The sum of all weights.
    fn all(&self) -> u32 {
        u32::from(self.shared) + self.own.values().map(|weight| u32::from(*weight)).sum::<u32>()
    }

    /// The weight of a code point's queue.
    fn of(&self, codepoint: u8) -> u16 {
        self.own.get(&codepoint).copied().unwrap_or(0)
    }
}

/// What the two ports of a link serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ports {
    /// Dedicated queues by place: the tenant, and what it has reserved from `a` to `b` and back. The
    /// place is the queue's number - 1.
    slots: Vec<Option<(TenantId, [Rate; 2])>>,
    /// What all tenants have reserved.
    reserved: [Rate; 2],
    /// Tenants that have reserved something.
    tenants: usize,
}

impl Ports {
    fn dedicated(&self) -> impl Iterator<Item = (TenantId, [Rate; 2])> + '_ {
        self.slots.iter().flatten().copied()
    }

    /// What the tenants of the shared queue have reserved.
    fn shared(&self, way: usize) -> Rate {
        let dedicated: Rate = self.dedicated().map(|(_, rates)| rates[way]).sum();
        self.reserved[way].saturating_sub(dedicated)
    }
}

impl Binder {
    /// No tenant has a queue.
    pub fn new(fabric: Fabric) -> Self {
        let ports = vec![Ports::default(); fabric.links.len()];
        Self { fabric, provisioned: None, places: SortedMap::new(), ports }
    }

    /// The same on queues whose weights stay as they are. The fabric's code points are those that
    /// lead to a queue of their own.
    pub fn provisioned(fabric: Fabric, provisioned: Provisioned) -> Self {
        Self { provisioned: Some(provisioned), ..Self::new(fabric) }
    }

    /// Ends a control interval: decides which tenants have a queue until the next. `contenders` are all
    /// tenants, ascending. `seed` breaks ties; a new one for each interval is fair to all.
    ///
    /// Tenants that are not named have left. Links that are no part of the fabric have no queues.
    pub fn bind(&mut self, contenders: &[Contender], seed: u64) {
        allocate::run(self, contenders, seed);
    }

    /// Takes up a tenant that has queues already, by an earlier binder: the next [`bind`](Self::bind)
    /// takes it as one that keeps them.
    pub fn adopt(&mut self, tenant: TenantId, codepoint: u8) {
        self.places.insert(tenant, Place::Dedicated(codepoint));
    }

    /// Replaces the fabric: other numbers of queues, rates, code points. Takes effect with the next
    /// [`bind`](Self::bind).
    pub fn set_fabric(&mut self, fabric: Fabric) {
        self.ports.resize(fabric.links.len(), Ports::default());
        self.fabric = fabric;
    }

    /// Where a tenant is; `None` if the last interval did not know it.
    pub fn place(&self, tenant: TenantId) -> Option<Place> {
        self.places.get(&tenant).copied()
    }

    /// All tenants' places, ascending.
    pub fn places(&self) -> impl Iterator<Item = (TenantId, Place)> + '_ {
        self.places.iter().map(|(tenant, place)| (*tenant, *place))
    }

    /// The queues of a link's port, the shared one first. What they have reserved together is what
    /// the tenants of the last interval have.
    pub fn port(&self, link: LinkId, direction: Direction) -> Vec<QueuePlan> {
        let (at, way) = (link.0 as usize, direction as usize);
        let ports = &self.ports[at];
        let all = usize::from(self.fabric.links[at].queues).max(1);
        let mut queues = Vec::with_capacity(ports.slots.len() + 1);
        if ports.dedicated().count() < all {
            queues.push(QueuePlan {
                queue: SHARED,
                of: None,
                reserved: ports.shared(way),
                weight: 1,
            });
        }
        for (place, slot) in ports.slots.iter().enumerate() {
            let Some((tenant, rates)) = slot else { continue };
            let Some(Place::Dedicated(codepoint)) = self.place(*tenant) else { continue };
            // On a port without a shared queue, the last tenant has the shared one's number.
            let queue = ((place + 1) % all) as u8;
            let of = Some((*tenant, codepoint));
            queues.push(QueuePlan { queue, of, reserved: rates[way], weight: 1 });
        }
        let floors: Vec<Rate> = queues.iter().map(|queue| queue.reserved).collect();
        let found = weigh(&floors, self.fabric.links[at].rate, self.fabric.most_weight);
        queues.iter_mut().zip(found.weights).for_each(|(queue, weight)| queue.weight = weight);
        queues
    }

    /// How many queues of this link dedicated tenants may have.
    fn most_dedicated(&self, link: usize) -> usize {
        let Some(ports) = self.fabric.links.get(link) else { return 0 };
        let queues = usize::from(ports.queues);
        match self.fabric.last_queue {
            LastQueue::SharedIfCrowded if self.ports[link].tenants <= queues => queues,
            _ => queues.saturating_sub(1),
        }
    }
}
