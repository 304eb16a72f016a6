//! What both backends ask of desired levels before the kernel hears of them. Pure.

use super::levels::Levels;
use super::{Error, Overbooking, PairRate, ShaperConfig, VmShare};
use std::collections::{BTreeMap, BTreeSet};
use weir_units::{PairId, Rate, VmId};

/// A pair's queue, by its number, and its levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    pub(super) minor: u16,
    pub(super) rate: PairRate,
}

/// Pairs with their queues.
pub(super) type Pairs = BTreeMap<PairId, Pair>;

/// Refuses VMs that are named twice, or promised more than their cap or (if told so) the uplink.
pub(crate) fn check_vms(config: &ShaperConfig, vms: &[VmShare]) -> Result<(), Error> {
    let mut ids = BTreeSet::new();
    for vm in vms {
        if !ids.insert(vm.vm) {
            return Err(Error::Twice { what: vm.vm.to_string() });
        }
        let ceiling = vm.cap.unwrap_or(Rate::MAX).min(config.uplink);
        if ceiling < vm.floor {
            let of = format!("{} on port `{}`", vm.vm, vm.port);
            return Err(Error::Ceiling { of, floor: vm.floor, ceiling });
        }
    }
    let limit = Levels::new(config, vms).budget();
    let floors: Rate = vms.iter().map(|vm| vm.floor).sum();
    if config.overbooking == Overbooking::Refuse && floors > limit {
        return Err(Error::Floors { parent: "the uplink".to_owned(), floors, limit });
    }
    Ok(())
}

/// What the floors of one VM's pairs sum to.
pub(super) fn floors_of(pairs: &Pairs, vm: VmId) -> Rate {
    let all = PairId::new(vm, VmId(0))..=PairId::new(vm, VmId(u32::MAX));
    pairs.range(all).map(|(_, pair)| pair.rate.floor).sum()
}

/// What the floors of all pairs sum to.
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
        // After a VM's floor was lowered its pairs may be above it: lowering them is allowed.
        if after > limit && after > before {
            for (id, rate) in former {
                pairs.get_mut(&id).expect("checked above").rate = rate;
            }
            return Err(Error::Floors { parent: vm.to_string(), floors: after, limit });
        }
    }
    Ok(wanted.into_keys().collect())
}
