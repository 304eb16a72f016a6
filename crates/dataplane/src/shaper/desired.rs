//! Checks of desired levels, for both backends, before the kernel sees them. Pure.

use super::levels::Levels;
use super::{Error, External, Overbooking, PairRate, ShaperConfig, VmShare};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::classes::Overbooked;
use weir_units::{PairId, Rate, VmId};

/// A pair's queue, by its number, and its levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub(super) minor: u16,
    pub(super) rate: PairRate,
}

/// Pairs with their queues.
pub(super) type Pairs = BTreeMap<PairId, Pair>;

/// Refuses VMs that are named twice, or promised more than their cap or (on request) the uplink.
pub(crate) fn check_vms(config: &ShaperConfig, vms: &[VmShare]) -> Result<(), Error> {
    let mut ids = BTreeSet::new();
    for vm in vms {
        if !ids.insert(vm.vm) {
            return Err(Error::Twice { what: vm.vm.to_string() });
        }
        let ceiling = vm.cap.unwrap_or(Rate::MAX).min(config.uplink);
        let of = || format!("{} on port `{}`", vm.vm, vm.port);
        let floor = vm.floor + vm.external.floor.unwrap_or_default();
        if ceiling < floor {
            return Err(Error::Ceiling { of: of(), floor, ceiling });
        }
        if let External { floor: Some(floor), ceiling: Some(ceiling) } = vm.external
            && ceiling < floor
        {
            let of = format!("external traffic of {}", of());
            return Err(Error::Ceiling { of, floor, ceiling });
        }
    }
    let over = Levels::new(config, vms).overbooked(vms.iter().map(|vm| vm.floor).sum());
    if config.overbooking == Overbooking::Refuse
        && let Some(Overbooked { floors, budget: limit }) = over
    {
        return Err(Error::Floors { parent: "the uplink".to_owned(), floors, limit });
    }
    Ok(())
}

/// Sum of the floors of one VM's pairs.
pub(super) fn floors_of(pairs: &Pairs, vm: VmId) -> Rate {
    let all = PairId::new(vm, VmId(0))..=PairId::new(vm, VmId(u32::MAX));
    pairs.range(all).map(|(_, pair)| pair.rate.floor).sum()
}

/// Sum of the floors of all pairs.
pub(super) fn floors(pairs: &Pairs) -> Rate {
    pairs.values().map(|pair| pair.rate.floor).sum()
}

/// Sets levels, all or none; `floor` is a VM's own. Returns the pairs that were named.
pub(super) fn set_rates(
    pairs: &mut Pairs,
    rates: &[(PairId, PairRate)],
    floor: impl Fn(VmId) -> Rate,
) -> Result<BTreeSet<PairId>, Error> {
    let mut wanted: BTreeMap<PairId, PairRate> = BTreeMap::new();
    for (id, rate) in rates {
        if !pairs.contains_key(id) {
            return Err(Error::UnknownPair(*id));
        }
        let PairRate { floor, ceiling } = *rate;
        if ceiling < floor {
            return Err(Error::Ceiling { of: format!("pair {id}"), floor, ceiling });
        }
        wanted.insert(*id, *rate);
    }
    let sources: BTreeSet<VmId> = wanted.keys().map(|id| id.src).collect();
    let before: Vec<(VmId, Rate)> =
        sources.into_iter().map(|vm| (vm, floors_of(pairs, vm))).collect();
    let mut former = Vec::with_capacity(wanted.len());
    for (id, rate) in &wanted {
        let pair = pairs.get_mut(id).expect("checked above");
        former.push((*id, std::mem::replace(&mut pair.rate, *rate)));
    }
    for (vm, before) in before {
        let (after, limit) = (floors_of(pairs, vm), floor(vm));
        // After a VM's floor was lowered, its pairs' floors may exceed it. Lowering them is
        // allowed.
        if after > limit && after > before {
            for (id, rate) in former {
                pairs.get_mut(&id).expect("checked above").rate = rate;
            }
            return Err(Error::Floors { parent: vm.to_string(), floors: after, limit });
        }
    }
    Ok(wanted.into_keys().collect())
}

/// Pairs that get a queue: those that have one, and as many others as fit. A VM gets at most its
/// quota of queues, so that one with many pairs leaves other VMs theirs.
pub(super) fn admitted(
    pairs: &Pairs,
    asked: &[PairId],
    vms: usize,
    max_pairs: usize,
) -> BTreeSet<PairId> {
    let quota = (max_pairs / vms.max(1)).max(1);
    let mut used: BTreeMap<VmId, usize> = BTreeMap::new();
    for id in pairs.keys() {
        *used.entry(id.src).or_default() += 1;
    }
    let mut all = pairs.len();
    let mut found = BTreeSet::new();
    for id in asked {
        let own = used.entry(id.src).or_default();
        if pairs.contains_key(id) || found.contains(id) {
            found.insert(*id);
        } else if *own < quota && all < max_pairs {
            (*own, all) = (*own + 1, all + 1);
            found.insert(*id);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(src: u32, n: u32) -> Vec<PairId> {
        (0..n).map(|dst| PairId::new(VmId(src), VmId(1000 + dst))).collect()
    }

    fn has(ids: &[PairId]) -> Pairs {
        let pair = Pair { minor: 0x4000, rate: PairRate::default() };
        ids.iter().map(|id| (*id, pair)).collect()
    }

    #[test]
    fn a_vm_with_many_pairs_leaves_the_others_their_part_of_the_queues() {
        let many = pairs(1, 4000);
        let found = admitted(&Pairs::new(), &many, 9, 4096);
        assert_eq!(found.len(), 455, "a ninth");
        assert!(many[..455].iter().all(|id| found.contains(id)), "the first to come");
        let mut all = has(&many[..455]);
        for vm in 2..=9 {
            let found = admitted(&all, &pairs(vm, 455), 9, 4096);
            assert_eq!(found.len(), 455, "VM {vm}");
            all.extend(has(&pairs(vm, 455)));
        }
    }

    #[test]
    fn who_has_a_queue_keeps_it_whatever_the_part_has_become() {
        let all = has(&pairs(1, 100));
        let found = admitted(&all, &pairs(1, 120), 9, 90);
        assert_eq!(found, pairs(1, 100).into_iter().collect());
        assert_eq!(
            admitted(&all, &pairs(2, 1), 9, 90),
            BTreeSet::new(),
            "and no more than there are"
        );
    }
}
