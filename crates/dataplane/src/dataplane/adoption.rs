//! Cleans the adopted maps of an earlier agent.
//!
//! Problem   While no agent ran, VMs left and their numbers may have gone to other VMs. A class
//!           without a VM keeps its floor for good, and other VMs cannot have it.
//! Approach  The directory of the adopted state is pinned beside it. An id none of whose former
//!           addresses is its own today is another VM: its counters and classes are removed, and so
//!           is every pair that has lost an end.
//! Promises  After an opening, only pairs of known VMs have entries and classes.
//! Not here  The same while an agent runs: see `change`, whose caller names the strangers.

use crate::config::Config;
use crate::error::Error;
use crate::intf;
use crate::programs::Programs;
use crate::shaper::{ClassId, Shaper};
use std::collections::{BTreeMap, BTreeSet};
use weir_units::{PairId, VmId};

/// Ids that were other VMs when the adopted state was made, and ids without a VM. An endpoint for
/// the outside has no address that identifies it, and counts as the same.
pub(super) fn strangers(programs: &Programs, config: &Config) -> BTreeSet<VmId> {
    let octets = |address: intf::Address| address.octets;
    let now: BTreeSet<_> =
        config.endpoints.iter().map(|e| (octets(e.address.into()), e.vm.0)).collect();
    let before = || programs.before.iter().map(|(address, e)| (octets(*address), e.vm));
    let same: BTreeSet<u32> = before().filter(|e| now.contains(e)).map(|(_, vm)| vm).collect();
    before().map(|(_, vm)| vm).filter(|vm| !same.contains(vm)).map(VmId).collect()
}

/// Removes ports that would keep the counters of another VM.
pub(super) fn drop_ports(programs: &mut Programs, strangers: &BTreeSet<VmId>) -> Result<(), Error> {
    let ports: Vec<(u32, intf::Port)> = programs.ports.read()?.collect();
    for (index, _) in ports.iter().filter(|(_, port)| strangers.contains(&VmId(port.vm))) {
        programs.ports.delete(*index)?;
    }
    Ok(())
}

/// Refuses to adopt state in which ids mean other VMs than now, because the directory was
/// renumbered.
pub(super) fn same_ids(programs: &Programs, config: &Config) -> Result<(), Error> {
    let before: BTreeMap<_, _> = programs.before.iter().copied().collect();
    for endpoint in &config.endpoints {
        let old = before.get(&endpoint.address.into());
        if old.is_some_and(|old| old.vm != endpoint.vm.0) {
            let why = format!("{} is of another VM than before", endpoint.address);
            return Err(Error::Config(why));
        }
    }
    Ok(())
}

/// Whether a pair of a VM here and one elsewhere goes on: both are known, and neither is a
/// stranger.
pub(super) fn stays(config: &Config, strangers: &BTreeSet<VmId>) -> impl Fn(VmId, VmId) -> bool {
    let is_known = |vm: &VmId| !strangers.contains(vm);
    let local: BTreeSet<VmId> = config.ports.iter().map(|p| p.vm).filter(is_known).collect();
    let listed = config.endpoints.iter().map(|e| e.vm);
    let all = listed.chain(config.outside.iter().map(|o| o.vm));
    let anywhere: BTreeSet<VmId> = all.filter(is_known).collect();
    move |here, there| local.contains(&here) && anywhere.contains(&there)
}

/// Removes pairs whose VM left this host, whose peer is unknown, or with an end in `strangers`.
/// Returns them.
pub(super) fn sweep(
    programs: &mut Programs,
    config: &Config,
    strangers: &BTreeSet<VmId>,
) -> Result<BTreeSet<PairId>, Error> {
    let stays = stays(config, strangers);
    let tx = programs.tx.read()?.map(|(pair, _)| PairId::from(pair));
    let tx: BTreeSet<PairId> = tx.filter(|p| !stays(p.src, p.dst)).collect();
    let rx = programs.rx.read()?.map(|(pair, _)| PairId::from(pair));
    let rx: BTreeSet<PairId> = rx.filter(|p| !stays(p.dst, p.src)).collect();
    for pair in &tx {
        programs.tx.delete((*pair).into())?;
    }
    for pair in &rx {
        programs.rx.delete((*pair).into())?;
    }
    Ok(tx.union(&rx).copied().collect())
}

/// Tells the shaper which pairs the adopted map binds; drops bindings to queues that are gone.
pub(super) fn claim(
    programs: &mut Programs,
    shaper: &mut dyn Shaper,
) -> Result<BTreeMap<PairId, ClassId>, Error> {
    let mut bound: BTreeMap<PairId, ClassId> =
        programs.classes.read()?.map(|(p, c)| (p.into(), ClassId(c))).collect();
    let claimed: Vec<_> = bound.iter().map(|(p, c)| (*p, *c)).collect();
    for pair in shaper.claim(&claimed)? {
        programs.classes.delete(pair.into())?;
        bound.remove(&pair);
    }
    Ok(bound)
}
