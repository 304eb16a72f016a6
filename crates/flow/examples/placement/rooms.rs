//! Schedulers that can only add: what they are told, and what they count.

use std::collections::BTreeMap;
use weir_core::ledger::{
    AdditiveRoom, Domain, Ledger, Placement, TenantPlace, TenantRequest, TenantRoom,
};
use weir_units::{HostId, VmId};

/// VMs per host.
type Counts = BTreeMap<HostId, u64>;

/// What the scheduler knows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `Ledger::additive`, at the places that the policy chose.
    Additive,
    /// The same; each VM goes to the host with the most room.
    AdditivePlaces,
    /// `Ledger::tenant_room` with the root as the centre, at the policy's places.
    Root,
    /// The same with the smallest place as the centre that has more than half of the tenant.
    Centre,
    /// The same; the scheduler chooses the smallest place that has room for all.
    CentrePlaces,
}

impl Kind {
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "yes" => Self::Additive,
            "place" => Self::AdditivePlaces,
            "root" => Self::Root,
            "centre" => Self::Centre,
            "centre-place" => Self::CentrePlaces,
            other => panic!("additive={other}: write yes, place, root, centre or centre-place"),
        }
    }

    pub(crate) fn chooses(self) -> bool {
        matches!(self, Self::AdditivePlaces | Self::CentrePlaces)
    }
}

/// A room as it was read, and what was added since: bit/s and VMs per place.
pub(crate) struct Scheduler {
    kind: Kind,
    told: Told,
    taken: Vec<(u64, u64)>,
}

enum Told {
    Additive(Vec<(AdditiveRoom, Vec<HostId>)>),
    Tenants(TenantRoom),
}

impl Scheduler {
    pub(crate) fn read(ledger: &Ledger, kind: Kind) -> Self {
        let told = match kind {
            Kind::Additive | Kind::AdditivePlaces => {
                let rooms = ledger.additive().expect("a fat tree has layers").into_iter();
                Told::Additive(rooms.map(|room| (room, ledger.hosts_in(room.domain))).collect())
            }
            _ => Told::Tenants(ledger.tenant_room(None).expect("a fat tree has trees")),
        };
        let places = match &told {
            Told::Additive(rooms) => rooms.len(),
            Told::Tenants(room) => room.places.len(),
        };
        Self { kind, told, taken: vec![(0, 0); places] }
    }

    /// Bit/s and VMs that are left in a place.
    fn left(&self, place: usize) -> (u64, u64) {
        let room = match &self.told {
            Told::Additive(rooms) => rooms[place].0,
            Told::Tenants(room) => room.places[place].room,
        };
        let (floors, vms) = self.taken[place];
        (room.floors.out.as_bps() - floors, room.slots - vms)
    }

    /// Counts a tenant at these places if it keeps to the room. All VMs have one floor.
    pub(crate) fn take(&mut self, request: &TenantRequest, placement: &[(VmId, HostId)]) -> bool {
        let mut counts = Counts::new();
        placement.iter().for_each(|(_, host)| *counts.entry(*host).or_default() += 1);
        let floor = floor(request);
        let all = placement.len() as u64;
        let within = |hosts: &[HostId]| {
            let inside = counts.iter().filter(|(host, _)| hosts.binary_search(host).is_ok());
            inside.map(|(_, vms)| *vms).sum::<u64>()
        };
        let mut takes = Vec::new();
        match &self.told {
            Told::Additive(rooms) => {
                for (room, hosts) in rooms {
                    let vms = match room.domain {
                        Domain::Host(host) => counts.get(&host).copied().unwrap_or(0),
                        Domain::Switch(_) | Domain::Network => within(hosts),
                    };
                    takes.push((vms * floor, vms));
                }
            }
            Told::Tenants(room) => {
                let centre = match self.kind {
                    Kind::Root => Domain::Switch(room.root),
                    _ => centre(room, within, all),
                };
                for place in &room.places {
                    let vms = within(&place.hosts);
                    let crossing = if place.contains(centre) { all - vms } else { vms };
                    takes.push((crossing * floor, vms));
                }
            }
        }
        let fits = (0..takes.len()).all(|at| {
            let (floors, vms) = self.left(at);
            takes[at].0 <= floors && takes[at].1 <= vms
        });
        if fits {
            for (taken, more) in self.taken.iter_mut().zip(takes) {
                *taken = (taken.0 + more.0, taken.1 + more.1);
            }
        }
        fits
    }

    /// The hosts of the tenant's VMs, with no more than `most` on one; none if there is no room.
    pub(crate) fn choose(&self, request: &TenantRequest, most: u64) -> Option<Vec<HostId>> {
        match &self.told {
            Told::Additive(rooms) => self.choose_one_by_one(rooms, request, most),
            Told::Tenants(room) => self.choose_smallest(room, request, most),
        }
    }

    fn choose_one_by_one(
        &self,
        rooms: &[(AdditiveRoom, Vec<HostId>)],
        request: &TenantRequest,
        most: u64,
    ) -> Option<Vec<HostId>> {
        let floor = floor(request);
        let mut left: Vec<(u64, u64)> = (0..rooms.len()).map(|at| self.left(at)).collect();
        let mut around: BTreeMap<HostId, Vec<usize>> = BTreeMap::new();
        let mut own = BTreeMap::new();
        for (at, (room, within)) in rooms.iter().enumerate() {
            within.iter().for_each(|host| around.entry(*host).or_default().push(at));
            if let Domain::Host(host) = room.domain {
                own.insert(host, at);
            }
        }
        let (mut taken, mut chosen) = (Counts::new(), Vec::new());
        for _ in &request.vms {
            let fits = |host: &&HostId| {
                let has = |at: &usize| left[*at].0 >= floor && left[*at].1 > 0;
                taken.get(host).is_none_or(|n| *n < most) && around[host].iter().all(has)
            };
            let host = *own.keys().filter(fits).max_by_key(|host| left[own[host]])?;
            *taken.entry(host).or_default() += 1;
            for at in &around[&host] {
                left[*at] = (left[*at].0 - floor, left[*at].1 - 1);
            }
            chosen.push(host);
        }
        Some(chosen)
    }

    /// The smallest place that has room for all VMs, its top as the centre; then the whole tree.
    fn choose_smallest(
        &self,
        room: &TenantRoom,
        request: &TenantRequest,
        most: u64,
    ) -> Option<Vec<HostId>> {
        let everywhere: Vec<HostId> = room
            .places
            .iter()
            .filter_map(|place| match place.room.domain {
                Domain::Host(host) => Some(host),
                _ => None,
            })
            .collect();
        let mut tops: Vec<&TenantPlace> = room.places.iter().collect();
        tops.sort_by_key(|place| place.hosts.len());
        let all = request.vms.len() as u64;
        let inside = tops.iter().filter_map(|top| self.fill(room, &top.hosts, request, most));
        let mut full = inside.filter(|hosts| hosts.len() as u64 == all);
        full.next()
            .or_else(|| self.fill(room, &everywhere, request, most))
            .filter(|hosts| hosts.len() as u64 == all)
    }

    /// As many VMs as have room on `hosts`, if each counts on the places that have not all of these.
    fn fill(
        &self,
        room: &TenantRoom,
        hosts: &[HostId],
        request: &TenantRequest,
        most: u64,
    ) -> Option<Vec<HostId>> {
        let (floor, all) = (floor(request), request.vms.len() as u64);
        let is_below = |place: &TenantPlace| {
            // One host needs nothing of its link if it has all VMs.
            let is_part = place.hosts.len() < hosts.len();
            is_part && place.hosts.first().is_some_and(|host| hosts.binary_search(host).is_ok())
        };
        let below: Vec<usize> =
            (0..room.places.len()).filter(|at| is_below(&room.places[*at])).collect();
        let mut left: BTreeMap<usize, u64> =
            below.iter().map(|at| (*at, self.left(*at).0 / floor)).collect();
        let slots_of = |host: &HostId| {
            let own = |place: &TenantPlace| place.room.domain == Domain::Host(*host);
            room.places.iter().position(own).map_or(0, |at| self.left(at).1)
        };
        let mut around: BTreeMap<HostId, Vec<usize>> = BTreeMap::new();
        for at in &below {
            room.places[*at]
                .hosts
                .iter()
                .for_each(|host| around.entry(*host).or_default().push(*at));
        }
        let mut chosen = Vec::new();
        for host in hosts {
            let above = around.get(host).map_or(&[][..], Vec::as_slice);
            let bound = above.iter().map(|at| left[at]).min().unwrap_or(u64::MAX);
            let vms = slots_of(host).min(bound).min(most).min(all - chosen.len() as u64);
            above.iter().for_each(|at| *left.get_mut(at).expect("it is below") -= vms);
            chosen.extend(std::iter::repeat_n(*host, vms as usize));
        }
        Some(chosen)
    }
}

/// The smallest place that has more than half of the tenant, else the root.
fn centre(room: &TenantRoom, within: impl Fn(&[HostId]) -> u64, all: u64) -> Domain {
    let holds = |place: &&TenantPlace| 2 * within(&place.hosts) > all;
    let smallest = room.places.iter().filter(holds).min_by_key(|place| place.hosts.len());
    smallest.map_or(Domain::Switch(room.root), |place| place.room.domain)
}

fn floor(request: &TenantRequest) -> u64 {
    request.classes[0].hoses[0].floors.out.as_bps()
}

/// The VMs of a placement.
pub(crate) fn vms(placement: &Placement) -> &[(VmId, HostId)] {
    &placement.vms
}
