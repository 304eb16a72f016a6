//! Tenants that come and go (QShare §7.3.1): Poisson arrivals, each for one lifetime.
//!
//! Approach  Time counts in lifetimes. After the first one there are as many tenants as the load says; those
//!           that arrive in the next ones are watched until they leave. A tenant is permanently dedicated if
//!           no port of its tree ever had more tenants than queues.

use super::site::{Fill, Site, Tenant, most_dedicated, slots};
use super::{Numbers, Watch, part};
use std::collections::{BTreeSet, VecDeque};
use weir_model::scenario::Datacenter;
use weir_units::{SplitMix64, TenantId};

/// A tenant that is there.
struct Guest {
    tenant: Tenant,
    leaves: f64,
    is_watched: bool,
}

/// What was seen of those that are watched.
#[derive(Default)]
struct Seen {
    arrived: usize,
    refused: usize,
    crowded: usize,
    most: usize,
    /// Slots × time, within the time of the watched arrivals.
    slots: f64,
}

pub(super) fn play(of: &Datacenter, seed: u64, watch: &mut dyn Watch) -> Option<Numbers> {
    let mut ledger = Site::ledger(of);
    let mut fill = Fill::new(of, seed);
    let mut random = SplitMix64::new(SplitMix64::mix(seed ^ 0xc0a1));
    let between = of.vms / (of.load * slots(of) as f64);
    let (from, until) = (1.0, 1.0 + of.lifetimes);
    let most = most_dedicated(of);
    let mut guests: VecDeque<Guest> = VecDeque::new();
    let mut crowded: BTreeSet<TenantId> = BTreeSet::new();
    let mut seen = Seen::default();
    let (mut now, mut taken) = (0.0f64, 0u64);
    let mut next = -between * random.unit().ln();
    loop {
        let leaves = guests.front().map_or(f64::INFINITY, |guest| guest.leaves);
        let is_arrival = next < until && next <= leaves;
        if !is_arrival && leaves == f64::INFINITY {
            break;
        }
        let then = if is_arrival { next } else { leaves };
        seen.slots += taken as f64 * (then.min(until) - now.clamp(from, until)).max(0.0);
        now = then;
        if !watch.goes_on(now / (until + 1.0)) {
            return None;
        }
        if !is_arrival {
            let guest = guests.pop_front().expect("it leaves");
            taken -= u64::from(guest.tenant.vms);
            ledger.remove(guest.tenant.id);
            let was_crowded = crowded.remove(&guest.tenant.id);
            seen.crowded += usize::from(was_crowded && guest.is_watched);
            continue;
        }
        next += -between * random.unit().ln();
        let is_watched = now >= from;
        seen.arrived += usize::from(is_watched);
        let (request, asks) = fill.arrive();
        let Ok(placement) = ledger.place(&request) else {
            seen.refused += usize::from(is_watched);
            continue;
        };
        for need in &placement.links {
            let there = ledger.tenants_on(need.link);
            seen.most = seen.most.max(there.len());
            if there.len() > most {
                crowded.extend(there);
            }
        }
        let tenant = Tenant::new(&request, asks, placement.links);
        taken += u64::from(tenant.vms);
        guests.push_back(Guest { tenant, leaves: now + 1.0, is_watched });
    }
    let accepted = seen.arrived - seen.refused;
    let numbers = [
        ("tenants", accepted as f64),
        ("tenants_refused", part(seen.refused, seen.arrived)),
        ("tenants_permanent", 1.0 - part(seen.crowded, accepted)),
        ("port_tenants_max", seen.most as f64),
        ("slots_used", seen.slots / (of.lifetimes * slots(of) as f64)),
    ];
    Some(numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
