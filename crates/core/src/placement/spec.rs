//! A tenant's floors, in the form that sums are quick with.

use crate::ledger::request::{Class, Invalid, Refusal, Survival};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Rates in bit/s, out and in.
pub(crate) type Sums = [u64; 2];

/// Largest sum of floors: no sum of sums wraps below it.
const MOST: u64 = 1 << 56;

/// A tenant's floors by class and hose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec {
    /// Number of hoses; the outside, if any class has floors to it, is the last.
    pub(crate) width: usize,
    pub(crate) has_outside: bool,
    /// Floors of one VM: class × width + hose.
    pub(crate) floors: Vec<Sums>,
    /// Per class.
    pub(crate) slots: Vec<u32>,
    /// Classes, those with the largest floors first.
    pub(crate) order: Vec<usize>,
    /// Sums over all VMs, per hose.
    pub(crate) total: Vec<Sums>,
    /// VMs of each class.
    pub(crate) counts: Vec<u32>,
    /// Most VMs per host and per rack.
    pub(crate) most: [u32; 2],
}

impl Spec {
    /// Reads classes; `counts[c]` VMs are of class `c`.
    pub(crate) fn new(
        classes: &[Class],
        counts: Vec<u32>,
        survival: Survival,
    ) -> Result<Self, Refusal> {
        let mut hoses = BTreeMap::new();
        for class in classes {
            for attachment in &class.hoses {
                let next = hoses.len();
                hoses.entry(attachment.hose).or_insert(next);
            }
        }
        let external = |c: &Class| [c.external.out, c.external.into].map(|rate| rate.as_bps());
        let has_outside = classes.iter().any(|c| external(c) != [0, 0]);
        let width = hoses.len() + usize::from(has_outside);
        let mut floors = vec![[0, 0]; classes.len() * width];
        for (row, class) in classes.iter().enumerate() {
            let row = row * width;
            let mut seen = Vec::new();
            for attachment in &class.hoses {
                if seen.contains(&attachment.hose) {
                    return Err(Refusal::Invalid(Invalid::HoseTwice(attachment.hose)));
                }
                seen.push(attachment.hose);
                let of = attachment.floors;
                floors[row + hoses[&attachment.hose]] = [of.out.as_bps(), of.into.as_bps()];
            }
            if has_outside {
                floors[row + width - 1] = external(class);
            }
        }
        let slots = classes.iter().map(|c| c.slots).collect();
        let most = limits(survival, counts.iter().map(|c| u64::from(*c)).sum())?;
        let mut spec = Self {
            width,
            has_outside,
            floors,
            slots,
            total: Vec::new(),
            order: Vec::new(),
            counts,
            most,
        };
        let size = |class: &usize| -> Reverse<u128> {
            Reverse(spec.floors_of(*class).iter().flatten().map(|f| u128::from(*f)).sum())
        };
        let mut order: Vec<usize> = (0..classes.len()).collect();
        order.sort_by_key(size);
        spec.order = order;
        spec.total = spec.sum()?;
        Ok(spec)
    }

    fn sum(&self) -> Result<Vec<Sums>, Refusal> {
        let mut total = vec![[0u128; 2]; self.width];
        for (class, &count) in self.counts.iter().enumerate() {
            for (sum, floor) in total.iter_mut().zip(self.floors_of(class)) {
                (0..2).for_each(|d| sum[d] += u128::from(floor[d]) * u128::from(count));
            }
        }
        let all: u128 = total.iter().flatten().sum();
        if all > u128::from(MOST) {
            return Err(Refusal::Invalid(Invalid::TooMuch));
        }
        Ok(total.iter().map(|sum| sum.map(|part| part as u64)).collect())
    }

    /// Floors of one VM of the class, per hose.
    pub(crate) fn floors_of(&self, class: usize) -> &[Sums] {
        &self.floors[class * self.width..][..self.width]
    }

    /// Number of VMs.
    pub(crate) fn vms(&self) -> u32 {
        self.counts.iter().sum()
    }
}

/// Most VMs per host and per rack: (1 − f)·N, rounded down.
fn limits(survival: Survival, vms: u64) -> Result<[u32; 2], Refusal> {
    let limit = |permille: u16| {
        let left =
            1000u64.checked_sub(permille.into()).ok_or(Refusal::Invalid(Invalid::Survival))?;
        Ok(if permille == 0 { u32::MAX } else { (left * vms / 1000) as u32 })
    };
    Ok([limit(survival.host_permille)?, limit(survival.rack_permille)?])
}
