//! What a VM's pairs without a class may send, by what the network loses of them.
//!
//! Problem   Such pairs share a small rate of their VM ([`crate::classes::Levels::stray_rate`]). A small rate of many
//!           hosts is a large one where they meet, and no pair's law lowers it.
//! Approach  Receivers report losses of all pairs. A report of a pair without a class halves its VM's rate, at most once
//!           in [`GAP`]. Without reports for a hold the rate doubles each [`GROW`]. The hold doubles each time when that
//!           was too early.
//! Promises  No VM's rate is below a 256th of what it was, nor below the least rate of a class. Where losses go on, a VM
//!           tries a higher rate every half a minute.
//! Not here  The rate itself, and dropping what exceeds it: data planes. With EyeQ receivers report no losses.
//! Source    None: ElasticSwitch gives every pair a queue.

use crate::classes::MIN_RATE;
use serde::{Deserialize, Serialize};
use weir_units::{Rate, SortedMap, SortedSet, Span, Time, VmId};

/// Reports within this time are of the same loss. A round trip, a sample period and a message fit into it.
const GAP: Span = Span::from_millis(100);
/// Time from a cut on until the rate grows, at first and at most.
const HOLD: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(32);
/// The rate doubles so often.
const GROW: Span = Span::from_secs(1);
/// A VM without reports for so long begins with the first hold.
const FORGOTTEN: Span = Span::from_secs(120);

/// The part of its rate that a VM's pairs without a class may have together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Brake(u16);

impl Brake {
    /// All of it.
    pub const NONE: Self = Self(256);
    const LEAST: Self = Self(1);

    /// What is left of this rate.
    pub fn of(self, rate: Rate) -> Rate {
        rate.mul_ratio(self.0.into(), Self::NONE.0.into()).max(MIN_RATE.min(rate))
    }

    /// Half of it, but not less than the least.
    pub fn harder(self) -> Self {
        Self(self.0 / 2).max(Self::LEAST)
    }

    fn softer(self) -> Self {
        Self(self.0 * 2).min(Self::NONE)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Braked {
    brake: Brake,
    cut_at: Time,
    /// It grows from then on, unless there is another report.
    grows_at: Time,
    hold: Span,
    /// It has grown since the last cut.
    grew: bool,
}

/// The VMs of a host with pairs without a class that lost something.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Strays {
    vms: SortedMap<VmId, Braked>,
    changed: SortedSet<VmId>,
}

impl Strays {
    /// The network lost something of a pair of `vm` that has no class.
    pub(super) fn congested(&mut self, now: Time, vm: VmId) {
        let known = self.vms.get(&vm).copied();
        if known.is_some_and(|known| now.since(known.cut_at) < GAP) {
            return;
        }
        let (brake, hold, grew) =
            known.map_or((Brake::NONE, HOLD, false), |k| (k.brake, k.hold, k.grew));
        let hold = if grew { (hold * 2).min(LONGEST) } else { hold };
        let brake = brake.harder();
        let braked = Braked { brake, cut_at: now, grows_at: now + hold, hold, grew: false };
        self.vms.insert(vm, braked);
        if known.is_none_or(|known| known.brake != brake) {
            self.changed.insert(vm);
        }
    }

    /// Keeps the VMs that are here still. A VM that is here anew begins anew.
    pub(super) fn retain(&mut self, is_here: impl Fn(VmId) -> bool, is_new: impl Fn(VmId) -> bool) {
        self.changed.extend(self.vms.keys().copied().filter(|vm| is_here(*vm) && is_new(*vm)));
        self.changed.retain(|vm| is_here(*vm));
        self.vms.retain(|vm, _| is_here(*vm) && !is_new(*vm));
    }

    /// All is to be written again: what is written may be lost.
    pub(super) fn write_again(&mut self) {
        self.changed.extend(self.vms.keys().copied());
    }

    /// These could not be written.
    pub(super) fn retry(&mut self, vms: impl IntoIterator<Item = VmId>) {
        self.changed.extend(vms);
    }

    /// VMs with a lowered rate.
    pub(super) fn braked(&self) -> usize {
        self.vms.values().filter(|braked| braked.brake < Brake::NONE).count()
    }

    /// Takes what changed, after what has grown until now.
    pub(super) fn take_changed(&mut self, now: Time) -> Vec<(VmId, Brake)> {
        for (vm, braked) in &mut self.vms {
            while braked.grows_at <= now && braked.brake < Brake::NONE {
                braked.brake = braked.brake.softer();
                braked.grows_at += GROW;
                braked.grew = true;
                self.changed.insert(*vm);
            }
        }
        self.vms.retain(|_, b| b.brake < Brake::NONE || now.since(b.cut_at) < FORGOTTEN);
        let brake = |vm: VmId| self.vms.get(&vm).map_or(Brake::NONE, |braked| braked.brake);
        std::mem::take(&mut self.changed).into_iter().map(|vm| (vm, brake(vm))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: VmId = VmId(3);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// The parts, in 256ths, that were ordered up to each of these times.
    fn parts(strays: &mut Strays, times: impl IntoIterator<Item = u64>) -> Vec<u16> {
        times.into_iter().flat_map(|ms| strays.take_changed(at(ms))).map(|(_, b)| b.0).collect()
    }

    #[test]
    fn each_loss_halves_the_rate_once_in_a_tenth_of_a_second_down_to_the_least() {
        let mut strays = Strays::default();
        for ms in (0..2000).step_by(5) {
            strays.congested(at(ms), VM);
            if ms < 300 {
                let parts = parts(&mut strays, [ms]);
                assert_eq!(parts.is_empty(), ms % 100 != 0, "at {ms} ms: {parts:?}");
            }
        }
        assert_eq!(parts(&mut strays, [2000]), [1]);
        assert_eq!(Brake(1).of(Rate::from_mbps(256)), Rate::from_mbps(1));
        assert_eq!(
            Brake(1).of(Rate::from_bps(100_000)),
            MIN_RATE,
            "not below a class's least rate"
        );
        assert_eq!(Brake::NONE.of(Rate::from_bps(100_000)), Rate::from_bps(100_000));
    }

    #[test]
    fn without_losses_it_is_whole_again_after_seconds() {
        let mut strays = Strays::default();
        for ms in [0, 100, 200] {
            strays.congested(at(ms), VM);
        }
        assert_eq!(parts(&mut strays, [200, 1199]), [32]);
        assert_eq!(parts(&mut strays, (1200..6000).step_by(100)), [64, 128, 256]);
        assert!(!strays.vms.is_empty(), "the hold is remembered");
        assert_eq!(parts(&mut strays, [121_000]), [0; 0]);
        assert!(strays.vms.is_empty());
    }

    #[test]
    fn where_losses_go_on_it_tries_ever_more_seldom() {
        let (mut strays, mut tries) = (Strays::default(), Vec::new());
        let mut part = 256;
        for ms in (0..200_000).step_by(50) {
            // The network carries no more than the least.
            if part > 1 {
                strays.congested(at(ms), VM);
            }
            for now in parts(&mut strays, [ms]) {
                if now > part {
                    tries.push(ms / 1000);
                }
                part = now;
            }
        }
        let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[..5], [2, 4, 8, 16, 32], "{tries:?}");
        assert!(gaps.len() > 6 && gaps[5..].iter().all(|gap| (32..=33).contains(gap)), "{tries:?}");
    }

    #[test]
    fn who_went_is_forgotten_and_another_vm_of_its_number_begins_anew() {
        let mut strays = Strays::default();
        let (gone, other) = (VmId(4), VmId(5));
        [VM, gone, other].into_iter().for_each(|vm| strays.congested(at(0), vm));
        strays.take_changed(at(0));
        strays.retain(|vm| vm != gone, |vm| vm == other);
        assert_eq!(strays.take_changed(at(10)), [(other, Brake::NONE)]);
        strays.write_again();
        assert_eq!(strays.take_changed(at(20)), [(VM, Brake(128))]);
        strays.retry([VM]);
        assert_eq!(strays.take_changed(at(30)), [(VM, Brake(128))]);
    }
}
