//! Whether the floors fit the links whatever the demands will be.
//!
//! A hose promises a VM its floor to anyone of its tenant. What the VMs on one side of a link can
//! ask of those on the other is at most what the one side may send and what the other may receive:
//! the smaller sum is what the link owes the tenant (Oktopus §4, with floors that differ per VM
//! and direction). Links side by side are one generalized link.

use std::collections::BTreeMap;
use std::fmt;
use weir_units::{Rate, TenantId, VmId};

/// A VM's floors and whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Only VMs of one tenant share a hose.
    pub tenant: TenantId,
    /// Minimum rate to anyone of its tenant.
    pub floor_out: Rate,
    /// Minimum rate from anyone of its tenant.
    pub floor_in: Rate,
}

/// One of the two ways through a full-duplex link between nodes a and b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From a to b.
    AToB,
    /// From b to a.
    BToA,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AToB => "a>b",
            Self::BToA => "b>a",
        })
    }
}

/// How traffic is spread over links side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Alike on all of them, as switches do it.
    Evenly,
    /// As the capacities ask, by hosts that divide their floors over paths (see [`crate::path`]).
    ByHosts,
}

/// What links side by side carry as one generalized link (ElasticSwitch §9): spread evenly, the slowest
/// as often as there are links; by hosts, all of them together. The capacity of a [`Cut`].
pub fn generalized(links: &[Rate], spread: Spread) -> Rate {
    match spread {
        Spread::Evenly => {
            let slowest = links.iter().copied().min().unwrap_or_default();
            slowest * links.len() as u64
        }
        Spread::ByHosts => links.iter().copied().sum(),
    }
}

/// One direction of a link of a tree, simple or [`generalized`], and the VMs that it separates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The caller's number of the link.
    pub link: usize,
    /// Which way.
    pub direction: Direction,
    /// What it carries this way.
    pub capacity: Rate,
    /// The VMs before the link: they send over it.
    pub senders: Vec<VmId>,
    /// The VMs behind it: they receive over it.
    pub receivers: Vec<VmId>,
}

impl Cut {
    /// Both directions of a link that carries `capacity` each way between the VMs on a's side and
    /// those on b's.
    pub fn both(link: usize, capacity: Rate, a: Vec<VmId>, b: Vec<VmId>) -> [Self; 2] {
        let (senders, receivers) = (b.clone(), a.clone());
        [
            Self { link, direction: Direction::AToB, capacity, senders: a, receivers: b },
            Self { link, direction: Direction::BToA, capacity, senders, receivers },
        ]
    }
}

/// The part of every link that is not promised to anybody (ElasticSwitch §7: 10 %). It limits
/// admission, not rates. In millionths.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Headroom(u32);

impl Headroom {
    /// Links may be promised in whole.
    pub const NONE: Self = Self(0);
    const WHOLE: u32 = 1_000_000;

    /// `part` of each link, to the nearest millionth; `None` unless 0 ≤ `part` ≤ 1.
    pub fn from_fraction(part: f64) -> Option<Self> {
        let millionths = (part * f64::from(Self::WHOLE)).round();
        (0.0..=1.0).contains(&part).then_some(Self(millionths as u32))
    }

    /// What may be promised of a link of `capacity`. Rounds up, so that a scenario whose links and
    /// floors are scaled to uneven numbers is not refused for a fraction of a bit/s.
    pub fn available(self, capacity: Rate) -> Rate {
        let kept = capacity.mul_ratio(u64::from(self.0), u64::from(Self::WHOLE));
        capacity.saturating_sub(kept)
    }
}

impl Default for Headroom {
    /// 10 %.
    fn default() -> Self {
        Self(100_000)
    }
}

/// A link that cannot keep what the floors would have it promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overbooked {
    /// The caller's number of the link.
    pub link: usize,
    /// Which way.
    pub direction: Direction,
    /// Sum of the tenants' hose cuts.
    pub needed: Rate,
    /// Capacity less headroom.
    pub available: Rate,
    /// What the link carries.
    pub capacity: Rate,
}

impl fmt::Display for Overbooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, direction, needed, available, capacity } = self;
        write!(
            f,
            "link {link} ({direction}): the floors need {needed}, of its {capacity} only \
             {available} may be promised"
        )
    }
}

impl std::error::Error for Overbooked {}

/// Whether every cut can keep the floors of `members` (indexed by [`VmId`]), whatever their demands.
///
/// If it can, [`super::allocate`] never finds floors that exceed a link of a tree.
///
/// # Errors
/// The first cut that cannot, in the order given.
///
/// # Panics
/// A cut names a VM that is not in `members`.
pub fn admission(members: &[Member], cuts: &[Cut], headroom: Headroom) -> Result<(), Overbooked> {
    for cut in cuts {
        let &Cut { link, direction, capacity, .. } = cut;
        let (needed, available) = (needed(members, cut), headroom.available(capacity));
        if needed > available {
            return Err(Overbooked { link, direction, needed, available, capacity });
        }
    }
    Ok(())
}

/// What `cut` owes: min(Σ floor_out of the senders, Σ floor_in of the receivers) per tenant, summed
/// over the tenants.
///
/// # Panics
/// The cut names a VM that is not in `members`.
pub fn needed(members: &[Member], cut: &Cut) -> Rate {
    let mut sides: BTreeMap<TenantId, (Rate, Rate)> = BTreeMap::new();
    for vm in &cut.senders {
        let member = member(members, *vm);
        sides.entry(member.tenant).or_default().0 += member.floor_out;
    }
    for vm in &cut.receivers {
        let member = member(members, *vm);
        sides.entry(member.tenant).or_default().1 += member.floor_in;
    }
    sides.into_values().map(|(out, into)| out.min(into)).sum()
}

fn member(members: &[Member], vm: VmId) -> &Member {
    let found = members.get(vm.0 as usize);
    found.unwrap_or_else(|| panic!("{vm} is not among the {} members", members.len()))
}
