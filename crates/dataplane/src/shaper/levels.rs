//! The parameters of HTB's classes. The arithmetic is `weir_core::classes`; here are the kernel's
//! units, and which classes borrow first.

use super::{PairRate, ShaperConfig, VmShare};
use crate::nl::htb::{Class, octets_per_second, ticks};
use weir_core::classes::{self, FRAME, Share, Uplink};
use weir_units::{Bytes, Rate, Span};

/// Upper bound on a departure time, from the moment at which the packet comes: about as long as
/// TCP's least retransmission timer. A raised rate is felt within this time, too.
pub const LONGEST_WAIT: Span = Span::from_millis(250);

/// Priorities for borrowing. Control traffic comes first, and its ceiling keeps it from starving
/// others.
const PRIO_CONTROL: u32 = 0;
const PRIO_DATA: u32 = 1;

/// Parameters on which all classes depend, beside their own floors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Levels {
    rates: classes::Levels,
    /// As [`ShaperConfig::overhead`].
    overhead: u16,
}

impl VmShare {
    const fn share(&self) -> Share {
        Share { floor: self.floor, cap: self.cap, external: self.external }
    }
}

impl Levels {
    pub(super) fn new(config: &ShaperConfig, vms: &[VmShare]) -> Self {
        let &ShaperConfig { default_rate, default_ceiling, control_rate, host_floor, .. } = config;
        // HTB counts the overhead once per super-packet. The uplink's rate is lower by what HTB
        // does not count.
        let inner = FRAME.saturating_sub(config.overhead.into()).max(1);
        let rate = config.uplink.mul_ratio(inner, FRAME);
        let pace = config.pace();
        let uplink = Uplink { rate, default_rate, default_ceiling, control_rate, host_floor, pace };
        let vms: Vec<Share> = vms.iter().map(VmShare::share).collect();
        let overhead = u16::try_from(config.overhead).unwrap_or(u16::MAX);
        Self { rates: classes::Levels::new(uplink, &vms), overhead }
    }

    /// A class as the kernel has it.
    fn class(&self, of: classes::Class) -> Class {
        Class {
            rate: octets_per_second(of.rate),
            ceil: octets_per_second(of.ceil),
            burst: ticks(of.rate.time_for(of.burst)),
            cburst: ticks(of.ceil.time_for(of.cburst)),
            quantum: of.quantum,
            prio: PRIO_DATA,
            overhead: self.overhead,
        }
    }

    pub(super) fn overbooked(&self, floors: Rate) -> Option<classes::Overbooked> {
        self.rates.overbooked(floors)
    }

    pub(super) fn uplink(&self) -> Class {
        self.class(self.rates.uplink())
    }

    pub(super) fn host(&self) -> Option<Class> {
        self.rates.host().map(|host| self.class(host))
    }

    pub(super) fn unclassified(&self) -> Class {
        self.class(self.rates.unclassified())
    }

    pub(super) fn vm(&self, vm: &VmShare) -> Class {
        self.class(self.rates.vm(&vm.share()))
    }

    pub(super) fn moment(&self, vm: &VmShare) -> Bytes {
        self.rates.moment(&vm.share())
    }

    pub(super) fn stray_rate(&self, vm: &VmShare) -> Rate {
        self.rates.stray_rate(&vm.share())
    }

    pub(super) fn vm_default(&self, vm: &VmShare) -> Class {
        self.class(self.rates.vm_default(&vm.share()))
    }

    pub(super) fn external_rate(&self, vm: &VmShare) -> PairRate {
        let (floor, ceiling) = self.rates.external_rate(&vm.share());
        PairRate { floor, ceiling }
    }

    pub(super) fn vm_external(&self, vm: &VmShare) -> Class {
        self.class(self.rates.vm_external(&vm.share()))
    }

    pub(super) fn vm_control(&self) -> Class {
        Class { prio: PRIO_CONTROL, ..self.class(self.rates.vm_control()) }
    }

    pub(super) fn pair(&self, vm: &VmShare, pair: PairRate, sum: Rate) -> Class {
        self.class(self.rates.pair(&vm.share(), (pair.floor, pair.ceiling), sum))
    }

    pub(super) fn pooled(&self) -> Class {
        self.class(self.rates.pooled())
    }
}

/// Takes back what a class has borrowed.
pub(super) fn reclaimed(class: Class) -> Class {
    Class { ceil: class.rate, cburst: class.burst, ..class }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nl::htb::burst_octets;
    use weir_units::Bytes;

    #[test]
    fn classes_have_octets_per_second_and_ticks_and_control_traffic_goes_first() {
        let levels = Levels::new(&ShaperConfig::new("t", Rate::from_mbps(200)), &[]);
        let (uplink, pooled) = (levels.uplink(), levels.pooled());
        assert_eq!((uplink.rate, uplink.prio, levels.vm_control().prio), (25_000_000, 1, 0));
        assert_eq!(burst_octets(uplink.cburst, uplink.ceil), Bytes::new(25_000));
        assert_eq!(burst_octets(pooled.burst, pooled.rate), Bytes::new(3028));
        assert_eq!(reclaimed(uplink), Class { cburst: uplink.burst, ..uplink });
    }
}
