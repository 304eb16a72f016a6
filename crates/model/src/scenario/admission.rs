//! Do the floors fit? The hose cut on every link and direction.
//!
//! Problem   Floors that sum above a link cannot all hold, whatever the mechanism does.
//! Approach  For a direction of a link, a hose needs at most min(sum of floors out on the sending
//!           side, sum of floors in on the receiving side). The sum over hoses must fit into the
//!           link less its headroom. With several equal paths, a VM counts on a link with the
//!           greatest part of its traffic that may cross it: equal parts if switches choose, parts
//!           in proportion to rates if hosts choose. So parallel links are one generalized link: n
//!           times the slowest, or all rates together. External floors may go anywhere, so they
//!           count on each link that the VM's packets may cross. Each further hose of a tenant has a
//!           cut of its own.
//!           The cut and the headroom are those of `weir_core::ledger`. Its trees are not: a
//!           scenario's switches spread packets, and the ledger confines a tenant to one tree.
//! Promises  What is admitted can hold for every traffic matrix that the hoses allow.
//! Source    ElasticSwitch §2 (hose model), §7 (10 % headroom), §9 (generalized links). Oktopus
//!           (SIGCOMM'11) §4.2 for the cut.

use super::error::{Error, Place};
use super::{LinkDir, Topology, Vm};
use crate::text::show_rate;
use std::collections::BTreeMap;
use weir_core::ledger::{Cut, promisable};
use weir_units::Rate;

/// Where an entry's floors are written.
pub(crate) struct Origin {
    /// The entry's name.
    pub(crate) name: String,
    /// Place and path of the floor out.
    pub(crate) out: (Place, String),
    /// Place and path of the floor in.
    pub(crate) into: (Place, String),
}

/// A direction's demand in excess of what it may promise.
struct Excess {
    direction: LinkDir,
    needed: Rate,
    available: Rate,
}

/// Checks all links; `origins[origin[v]]` is where VM `v` was written. `headroom` is a part of one.
pub(crate) fn admit(
    topology: &Topology,
    vms: &[Vm],
    origins: &[Origin],
    origin: &[usize],
    headroom: f64,
) -> Result<(), Error> {
    let sides = sides(topology, vms);
    // Each floor was rounded to a whole bit/s on its own: that is no overbooking.
    let rounding = Rate::from_bps(vms.len() as u64);
    let mut worst: Option<(f64, Excess)> = None;
    for (index, (senders, receivers)) in sides.iter().enumerate() {
        let direction = LinkDir::from_index(index);
        let within: Rate = cuts(vms, senders, receivers).values().map(Cut::need).sum();
        let external = |vm: &Vm| on(senders, vm, vm.external.floor.unwrap_or_default());
        let needed = within + vms.iter().map(external).sum();
        let available = promisable(topology.links[direction.link].rate, headroom);
        let ratio = needed.as_f64() / available.as_f64();
        if needed > available + rounding && worst.as_ref().is_none_or(|(most, _)| ratio > *most) {
            worst = Some((ratio, Excess { direction, needed, available }));
        }
    }
    let Some((_, excess)) = worst else { return Ok(()) };
    let (senders, receivers) = &sides[excess.direction.index()];
    Err(report(topology, vms, origins, origin, &excess, senders, receivers, headroom))
}

/// Hosts, each with the greatest part of its traffic to or from any other that crosses a link.
type Hosts = BTreeMap<usize, f64>;

/// For each direction of each link: the hosts whose packets cross it, and the hosts they go to.
fn sides(topology: &Topology, vms: &[Vm]) -> Vec<(Hosts, Hosts)> {
    let hosts: std::collections::BTreeSet<usize> = vms.iter().map(|vm| vm.host).collect();
    let mut sides = vec![(Hosts::new(), Hosts::new()); 2 * topology.links.len()];
    for &to in &hosts {
        let routes = topology.forwarding_to(to);
        for &from in hosts.iter().filter(|from| **from != to) {
            for (step, part) in topology.stages(&routes, from).into_iter().flatten() {
                let (senders, receivers) = &mut sides[step.index()];
                for (hosts, host) in [(senders, from), (receivers, to)] {
                    let most = hosts.entry(host).or_insert(0.0);
                    *most = most.max(part);
                }
            }
        }
    }
    sides
}

/// A tenant, and one of its further hoses; without that, the hose of all its VMs.
type HoseOf = (usize, Option<usize>);

/// The hoses of a VM with its floors out and in.
fn hoses(vm: &Vm) -> impl Iterator<Item = (HoseOf, Rate, Rate)> + '_ {
    let own = ((vm.tenant, None), vm.floor_out, vm.floor_in);
    let further = vm.hoses.iter();
    let further = further.map(|h| ((vm.tenant, Some(h.hose)), h.floor_out, h.floor_in));
    std::iter::once(own).chain(further)
}

/// Per hose: what its VMs may send from one side, and receive on the other.
fn cuts(vms: &[Vm], senders: &Hosts, receivers: &Hosts) -> BTreeMap<HoseOf, Cut> {
    let mut sums: BTreeMap<HoseOf, Cut> = BTreeMap::new();
    for vm in vms {
        for (hose, out, into) in hoses(vm) {
            let sum = sums.entry(hose).or_default();
            sum.senders += on(senders, vm, out);
            sum.receivers += on(receivers, vm, into);
        }
    }
    sums
}

/// What a VM's floor may need of a link.
fn on(hosts: &Hosts, vm: &Vm, floor: Rate) -> Rate {
    hosts.get(&vm.host).map_or(Rate::ZERO, |part| floor.scale(*part))
}

/// The entry whose VMs add most to the excess, on the side of its tenant that counts.
#[expect(clippy::too_many_arguments, reason = "all that the message tells")]
fn report(
    topology: &Topology,
    vms: &[Vm],
    origins: &[Origin],
    origin: &[usize],
    excess: &Excess,
    senders: &Hosts,
    receivers: &Hosts,
    headroom: f64,
) -> Error {
    let sums = cuts(vms, senders, receivers);
    let is_senders = |hose: HoseOf| sums[&hose].senders <= sums[&hose].receivers;
    let sender_side = |vm: &Vm| is_senders((vm.tenant, None));
    let mut shares = vec![Rate::ZERO; origins.len()];
    for (vm, &entry) in vms.iter().zip(origin) {
        for (hose, out, into) in hoses(vm) {
            shares[entry] +=
                if is_senders(hose) { on(senders, vm, out) } else { on(receivers, vm, into) };
        }
    }
    let most = shares.iter().copied().max().unwrap_or_default();
    let entry = shares.iter().position(|s| *s == most).unwrap_or(0);
    let outward = origin.iter().position(|o| *o == entry).is_none_or(|vm| sender_side(&vms[vm]));
    let (place, path) = if outward { &origins[entry].out } else { &origins[entry].into };
    let Excess { direction, needed, available } = *excess;
    let rate = topology.links[direction.link].rate;
    let percent = (headroom * 100.0 * 1000.0).round() / 1000.0;
    let link = direction.name(topology);
    let message = format!(
        "the floors need {needed} of link {link}, which can promise {available} \
         ({rate} less {percent}% headroom); `{}` adds most: {most}",
        origins[entry].name
    );
    let help = format!(
        "lower the floors, or give link `{}` at least {}",
        topology.links[direction.link].name,
        show_rate(enough(needed, headroom))
    );
    Error::new(place, path.clone(), message, help)
}

/// A link that can promise `needed`, rounded up to a number that is easy to type.
fn enough(needed: Rate, headroom: f64) -> Rate {
    let exact = needed.scale(1.0 / (1.0 - headroom)).as_bps();
    let step = 10_u64.pow(exact.max(1).ilog10().saturating_sub(3));
    Rate::from_bps(exact.div_ceil(step).saturating_mul(step))
}
