//! The parameters of the simulated HTB's classes: `weir_core::classes`, on nanoseconds and bit/s.
//!
//! Not here  What classes do: see `htb`. Traffic to places that no directory lists: there is none.

use super::htb::Class;
use weir_core::classes::{self, External, Pace, Uplink, longest_wait};
use weir_units::{Bytes, Rate, Span};

pub(super) use weir_core::classes::{FRAME, floor_of};

/// Bound of each queue in octets.
pub(crate) const QUEUE: u64 = classes::QUEUE.get();

/// What one VM is promised and allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// What all its pairs may be promised together.
    pub(crate) floor: Rate,
    pub(crate) cap: Option<Rate>,
}

impl Share {
    const fn whole(&self) -> classes::Share {
        classes::Share { floor: self.floor, cap: self.cap, external: External::NONE }
    }
}

/// What the parameters of all classes of a host depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Levels(classes::Levels);

/// Of a class without a bound in time.
fn class(of: classes::Class) -> Class {
    Class {
        rate: of.rate.as_bps(),
        ceil: of.ceil.as_bps(),
        burst: of.rate.time_for(of.burst).as_nanos() as i64,
        cburst: of.ceil.time_for(of.cburst).as_nanos() as i64,
        quantum: of.quantum.into(),
        wait: None,
        room: QUEUE,
    }
}

impl Levels {
    /// Of a host whose traffic without a floor gets `default_rate`; `is_paced` where limiters are set anew every period.
    pub(crate) fn new(rate: Rate, default_rate: Rate, vms: &[Share], is_paced: bool) -> Self {
        let pace = if is_paced { Pace::Packets } else { Pace::Burst };
        let uplink = Uplink { default_rate, pace, ..Uplink::new(rate) };
        let vms: Vec<_> = vms.iter().map(Share::whole).collect();
        Self(classes::Levels::new(uplink, &vms))
    }

    /// Whether each VM's leaves take turns of their own, as the kernel's do. Only EyeQ's hosts: with
    /// the other mechanisms a level has one turn, as it had when their figures were played.
    pub(crate) fn keeps_turns(&self) -> bool {
        self.0.pace() == Pace::Packets
    }

    /// Whether pairs whose floors sum to `sum` have to be scaled to fit.
    pub(crate) fn is_over(&self, sum: Rate) -> bool {
        self.0.overbooked(sum).is_some()
    }

    pub(crate) fn uplink(&self) -> Class {
        class(self.0.uplink())
    }

    /// What a VM's pairs may send ahead of that while they wait for a queue.
    pub(super) fn moment(&self, vm: &Share) -> Bytes {
        self.0.moment(&vm.whole())
    }

    /// What a VM's pairs without a queue of their own may send together.
    pub(super) fn stray_rate(&self, vm: &Share) -> Rate {
        self.0.stray_rate(&vm.whole())
    }

    /// A VM's share of the uplink.
    pub(crate) fn vm(&self, vm: &Share) -> Class {
        class(self.0.vm(&vm.whole()))
    }

    /// A VM's traffic that has no class of its own.
    pub(crate) fn vm_default(&self, vm: &Share) -> Class {
        class(self.0.vm_default(&vm.whole()))
    }

    /// A pair of `vm` with a queue of this room, when the floors of all pairs of the host sum to `sum`.
    pub(crate) fn pair(&self, vm: &Share, rates: (Rate, Rate), room: Bytes, sum: Rate) -> Class {
        let of = self.0.pair(&vm.whole(), rates, sum);
        let wait = longest_wait(of.ceil, room).map(Span::as_nanos);
        Class { wait, room: room.get(), ..class(of) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_nanoseconds_and_only_pairs_a_bound_in_time() {
        let share = Share { floor: Rate::from_mbps(90), cap: None };
        let levels = |paced| Levels::new(Rate::from_mbps(200), Rate::from_mbps(4), &[share], paced);
        let pair = {
            let rates = (Rate::ZERO, Rate::from_bps(350_000));
            levels(false).pair(&share, rates, classes::QUEUE, Rate::ZERO)
        };
        assert_eq!(pair.wait.map(|ns| ns / 1_000_000), Some(513));
        let (default, vm) = (levels(false).vm_default(&share), levels(false).vm(&share));
        assert_eq!((default.wait, vm.wait), (None, None));
        assert_eq!(levels(false).uplink().burst, 1_000_000, "a millisecond");
        assert_eq!(levels(true).uplink().burst, 121_120, "two packets");
    }
}
