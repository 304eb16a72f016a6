//! Whether floors fit the links that EyeQ relies on.
//!
//! A core without congestion is EyeQ's premise: what the VMs under a switch are promised must fit the links that
//! lead up from it, whoever they talk to (EyeQ §3.5). That is stricter than the hose cut of
//! [`crate::oracle::admission`], which looks at both sides of a link.

use super::io::VmBounds;
use crate::oracle::Headroom;
use std::collections::BTreeMap;
use std::fmt;
use weir_units::{HostId, Rate, VmId};

/// A host's access link and the VMs behind it.
#[derive(Clone, Debug)]
pub struct Link {
    /// The host.
    pub host: HostId,
    /// What its link carries each way.
    pub line: Rate,
    /// Its VMs.
    pub vms: BTreeMap<VmId, VmBounds>,
}

/// A top-of-rack switch.
#[derive(Clone, Debug)]
pub struct Rack {
    /// What all its links to the spine carry each way together.
    pub uplinks: Rate,
    /// The hosts below it.
    pub hosts: Vec<Link>,
}

/// A link that cannot keep what is promised over it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMuch {
    /// The rack, by its place in the list.
    pub rack: usize,
    /// The host whose access link it is; `None`: the rack's uplinks.
    pub host: Option<HostId>,
    /// "in" to the VMs or "out".
    pub direction: &'static str,
    /// The sum of the floors.
    pub promised: Rate,
    /// The link less headroom.
    pub available: Rate,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rack, host, direction, promised, available } = self;
        match host {
            Some(host) => write!(f, "the link of {host} in rack {rack}")?,
            None => write!(f, "the uplinks of rack {rack}")?,
        }
        write!(f, ": floors {direction} are {promised} together, {available} may be promised")
    }
}

impl std::error::Error for TooMuch {}

/// Whether every access link and every rack's uplinks can keep all floors at once. Best effort needs nothing.
///
/// # Errors
/// The first link that cannot: hosts before their rack.
pub fn admit(racks: &[Rack], headroom: Headroom) -> Result<(), TooMuch> {
    for (i, rack) in racks.iter().enumerate() {
        let mut below = [Rate::ZERO; 2];
        for link in &rack.hosts {
            let floors = [
                link.vms.values().map(|vm| vm.in_.floor).sum(),
                link.vms.values().map(|vm| vm.out.floor).sum(),
            ];
            fits(i, Some(link.host), floors, headroom.available(link.line))?;
            below[0] += floors[0];
            below[1] += floors[1];
        }
        fits(i, None, below, headroom.available(rack.uplinks))?;
    }
    Ok(())
}

fn fits(
    rack: usize,
    host: Option<HostId>,
    floors: [Rate; 2],
    available: Rate,
) -> Result<(), TooMuch> {
    for (direction, promised) in ["in", "out"].into_iter().zip(floors) {
        if promised > available {
            return Err(TooMuch { rack, host, direction, promised, available });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eyeq::Bounds;

    const GBPS: u64 = 1_000;

    fn host(id: u32, floors: &[u64]) -> Link {
        let vms = (0..).map(VmId).zip(floors.iter().map(|f| VmBounds::both(Rate::from_mbps(*f))));
        Link { host: HostId(id), line: Rate::from_mbps(10 * GBPS), vms: vms.collect() }
    }

    fn rack(uplinks: u64, hosts: Vec<Link>) -> Rack {
        Rack { uplinks: Rate::from_mbps(uplinks), hosts }
    }

    #[test]
    fn floors_that_fit_both_the_access_links_and_the_uplinks_are_admitted() {
        let racks = [rack(20 * GBPS, vec![host(0, &[4_500, 4_500]), host(1, &[9_000])])];
        assert_eq!(admit(&racks, Headroom::default()), Ok(()));
    }

    #[test]
    fn an_overbooked_access_link_is_named() {
        let racks = [rack(40 * GBPS, vec![host(0, &[1_000]), host(1, &[4_500, 4_501])])];
        let refused = admit(&racks, Headroom::default()).unwrap_err();
        assert_eq!((refused.rack, refused.host), (0, Some(HostId(1))));
        assert_eq!(
            refused.to_string(),
            "the link of host1 in rack 0: floors in are 9.001Gbit together, 9Gbit may be promised"
        );
    }

    #[test]
    fn overbooked_uplinks_are_named_though_each_access_link_has_room() {
        let hosts = |n| (0..n).map(|id| host(id, &[3_000])).collect();
        let racks = [rack(10 * GBPS, hosts(3)), rack(10 * GBPS, hosts(4))];
        let refused = admit(&racks, Headroom::default()).unwrap_err();
        assert_eq!((refused.rack, refused.host), (1, None));
        assert!(refused.to_string().starts_with("the uplinks of rack 1"));
    }

    #[test]
    fn each_direction_counts_for_itself_and_best_effort_needs_nothing() {
        let mut one = host(0, &[9_000, 0]);
        one.vms.insert(
            VmId(7),
            VmBounds { out: Bounds::at_least(Rate::from_mbps(1)), ..VmBounds::both(Rate::ZERO) },
        );
        let refused = admit(&[rack(40 * GBPS, vec![one])], Headroom::default()).unwrap_err();
        assert_eq!(refused.direction, "out");
    }
}
