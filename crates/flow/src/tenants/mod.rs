//! QShare's datacenter, tenant by tenant: which tenants have a queue, and what that is worth.
//!
//! Problem   A hundred thousand VMs have billions of pairs, but QShare decides by tenants.
//! Approach  A ledger is filled with tenants. In each control interval every tenant wants nothing, a part
//!           of its reservation, or all that it gets; the ports' weighted queues divide ([`share()`]); what
//!           was used decides which tenants have a queue in the next ([`weir_core::binding`]). A tenant's traffic is
//!           spread over its tree in proportion to what it has reserved, as in QShare §7.3.2, so that one
//!           number says its rate on every link: a multiple of its reservation, its gain.
//! Promises  No port carries more than its rate. A tenant gets what it wants up to its reservation. Same
//!           datacenter and seed, same numbers; only those that end in `_s` are the caller's clock's.
//! Not here  Pairs of VMs, packets, the time that a change of queues takes: see the packet simulator. Tenants
//!           of the shared queue have their floors and no more, as with a reservation at the hosts.
//! Source    QShare §7.3; `docs/algorithms/qshare.md`.

mod churn;
mod intervals;
mod lies;
mod share;
mod site;

pub use intervals::Play;
pub use share::{Claim, Shared, share};
pub use site::{Fill, Site, Tenant};

use std::collections::BTreeMap;
use weir_model::scenario::Datacenter;
use weir_units::Time;

/// Numbers of a run by their names, which `docs/results/README.md` explains.
pub type Numbers = BTreeMap<String, f64>;

/// Whoever plays: its clock, and whether it wants more.
pub trait Watch {
    /// The present time, for what lasts how long.
    fn now(&mut self) -> Time;
    /// Is told which part is done; `false` ends the run.
    fn goes_on(&mut self, part: f64) -> bool;
}

/// Plays a datacenter once. `None` if the watch ended it.
pub fn play(of: &Datacenter, seed: u64, watch: &mut dyn Watch) -> Option<Numbers> {
    if of.load > 0.0 {
        return churn::play(of, seed, watch);
    }
    let site = Site::filled(of, seed, watch)?;
    let mut numbers = site.numbers();
    let mut play = Play::new(of, &site, seed);
    for interval in 0..of.intervals {
        if !watch.goes_on(0.5 + 0.5 * f64::from(interval) / f64::from(of.intervals)) {
            return None;
        }
        play.interval(watch);
    }
    numbers.extend(play.numbers());
    watch.goes_on(1.0).then_some(numbers)
}

/// Part of a whole; nothing of nothing.
fn part(of: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

/// The mean; absent of nothing.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values {
        (sum, count) = (sum + value, count + 1);
    }
    (count > 0).then(|| sum / count as f64)
}

/// The value that `part` of the sorted values do not exceed (nearest rank); absent of nothing.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
