//! From floors and ceilings to the parameters of classes. Pure.
//!
//! **Burst.** A bucket must hold what accrues while the kernel is late to serve it, or the rate is
//! missed; a timer is usually 50 µs late and at times, on a busy machine, 1 ms. More only makes
//! bursts that fill somebody's buffer downstream. So: 1 ms at the rate, at least two packets (the
//! bucket of a slow class refills while its last packet is paid for), at most 256 kB. A fixed
//! 16 kB would let 0.3 Mbit/s burst for half a second. Where HTB lets classes run into debt by a burst
//! before they wait (`htb_hysteresis`), it is half of all that: as far ahead, and one timer for a burst.
//!
//! **Quantum.** Classes that borrow together take turns; in each, a class sends `quantum` octets.
//! A VM's turn under the uplink is the sum of its leaves' turns. So one scale for the host,
//! 60 000 octets for the largest VM floor, and at least one packet: below that the kernel sends a
//! packet all the same. Floors under 1/40 of the largest therefore weigh alike.
//!
//! **Overbooking.** VMs of one host may be promised more than its uplink where the other side of
//! their hose is the narrower (admission uses the hose cut). Then inner classes are scaled to fit:
//! HTB checks nothing, and children would drive the uplink beyond its rate.

use super::{PairRate, ShaperConfig, VmShare};
use crate::nl::htb::{Class, octets_per_second, ticks};
use weir_units::{Bytes, Rate, Span};

/// The smallest rate of a class; HTB knows no zero, and at much less one packet is a debt of
/// seconds that outlives a raise of the rate (the kernel keeps debts as time). Not counted in sums.
pub const MIN_RATE: Rate = Rate::from_bps(64_000);
/// A full Ethernet frame without FCS.
pub const FRAME: u64 = 1514;
/// Upper bound on a departure time, from the moment at which the packet comes: about as long as TCP's least
/// retransmission timer. A raised rate is felt within this time, too.
pub const LONGEST_WAIT: Span = Span::from_millis(250);
/// How long what waits in a pair's queue may last at its ceiling, but see [`SHORTEST_QUEUE`]. With less, one TCP
/// connection does not fill its rate at a round trip of 10 ms; with more, requests of the same pair wait longer.
pub const QUEUE_WAIT: Span = Span::from_millis(10);
/// So much may wait in a pair's queue however long it lasts, which counts below 12.1 Mbit/s: a first window of ten
/// segments, and what TCP needs to find a loss by duplicate ACKs after a cut.
pub const SHORTEST_QUEUE: Bytes = Bytes::new(10 * FRAME);

const BURST_SPAN: Span = Span::from_millis(1);
const MIN_BURST: u64 = 2 * FRAME;
const MAX_BURST: u64 = 256 * 1024;
const MAX_QUANTUM: u64 = 60_000;
/// The part of a host's uplink that pairs without queues may use, all VMs together. Nobody slows them down where they
/// meet others in the network: with a headroom of a tenth (`weir-model`), and up to five hosts' uplinks into one link of that
/// rate, they stay within what no floor was promised of.
const STRAYS: u64 = 50;
/// The part of a VM's floor that it may send beside it to places that no directory lists, if nobody says how much.
/// With floors of nine tenths of a link, that and strays and control traffic fill seven of the last ten hundredths.
const EXTERNAL: u64 = 20;

/// Who borrows first. Control traffic is bounded by its ceiling, so it starves nobody.
const PRIO_CONTROL: u32 = 0;
const PRIO_DATA: u32 = 1;

/// What the parameters of all classes depend on, beside their own floors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Levels {
    uplink: Rate,
    default_ceiling: Rate,
    /// Parts of the host's rate for traffic without a floor and for control, per VM.
    default_part: Rate,
    control_part: Rate,
    /// What a VM's pairs without a queue of their own may send together.
    stray_part: Rate,
    /// What is left of the uplink for floors.
    budget: Rate,
    /// What VMs are promised, with what was set for external traffic; and the latter, scaled as all.
    vm_floors: Rate,
    externals: Rate,
    /// What external traffic wants of which nobody has said how much, and what floors leave for it.
    modest: Rate,
    spare: Rate,
    largest: Rate,
    /// As [`ShaperConfig::sends_by_bursts`].
    by_bursts: bool,
    /// As [`ShaperConfig::overhead`].
    overhead: u16,
    /// As [`ShaperConfig::host_floor`].
    host: Rate,
}

/// The octets that a class of this rate may run ahead.
pub(super) fn burst(rate: Rate) -> Bytes {
    Bytes::new(rate.bytes_in(BURST_SPAN).get().clamp(MIN_BURST, MAX_BURST))
}

impl Levels {
    pub(super) fn new(config: &ShaperConfig, vms: &[VmShare]) -> Self {
        let others = config.default_rate + config.control_rate + config.host_floor;
        let promised = |vm: &VmShare| vm.floor + vm.external.floor.unwrap_or_default();
        // What HTB does not count of super-packets in tunnels it must not be given.
        let inner = FRAME.saturating_sub(config.overhead.into()).max(1);
        let uplink = config.uplink.mul_ratio(inner, FRAME);
        let plain = Self {
            uplink,
            default_ceiling: config.default_ceiling.min(uplink),
            // One part is the host's own, for what no program has classified.
            default_part: config.default_rate.split(vms.len() + 1).max(MIN_RATE),
            control_part: config.control_rate.split(vms.len()).max(MIN_RATE),
            stray_part: uplink.mul_ratio(1, STRAYS).split(vms.len() + 1),
            budget: uplink.saturating_sub(others),
            vm_floors: vms.iter().map(promised).sum(),
            externals: Rate::ZERO,
            modest: Rate::ZERO,
            spare: Rate::ZERO,
            largest: vms.iter().map(|vm| vm.floor).max().unwrap_or(uplink),
            by_bursts: config.sends_by_bursts,
            overhead: u16::try_from(config.overhead).unwrap_or(u16::MAX),
            host: config.host_floor,
        };
        let set = vms.iter().filter_map(|vm| vm.external.floor);
        let modest = vms.iter().filter(|vm| vm.external.floor.is_none());
        Self {
            externals: set.map(|floor| fitted(floor, plain.vm_floors, plain.budget)).sum(),
            modest: modest.map(|vm| plain.nominal(vm)).sum(),
            spare: plain.budget.saturating_sub(plain.vm_floors),
            ..plain
        }
    }

    /// What the floors of this host's pairs may sum to.
    pub(super) const fn budget(&self) -> Rate {
        self.budget.saturating_sub(self.externals)
    }

    fn burst_ticks(&self, rate: Rate) -> u32 {
        let burst = if self.by_bursts { burst(rate).get() / 2 } else { burst(rate).get() };
        ticks(rate.time_for(Bytes::new(burst)))
    }

    fn class(&self, rate: Rate, ceil: Rate, weight: Rate, prio: u32) -> Class {
        let rate = rate.max(MIN_RATE);
        let ceil = ceil.max(rate);
        let scale = self.largest.as_bps().max(1);
        let quantum = u128::from(weight.as_bps()) * u128::from(MAX_QUANTUM) / u128::from(scale);
        let quantum = quantum.clamp(FRAME.into(), MAX_QUANTUM.into()) as u32;
        Class {
            rate: octets_per_second(rate),
            ceil: octets_per_second(ceil),
            burst: self.burst_ticks(rate),
            cburst: self.burst_ticks(ceil),
            quantum,
            prio,
            overhead: self.overhead,
        }
    }

    /// The uplink itself.
    pub(super) fn uplink(&self) -> Class {
        self.class(self.uplink, self.uplink, self.largest, PRIO_DATA)
    }

    /// What the host itself sends, if that has a floor: it may use what the VMs leave.
    pub(super) fn host(&self) -> Option<Class> {
        (!self.host.is_zero()).then(|| self.class(self.host, self.uplink, self.host, PRIO_DATA))
    }

    /// What no program has classified.
    pub(super) fn unclassified(&self) -> Class {
        self.class(self.default_part, self.default_ceiling, self.default_part, PRIO_DATA)
    }

    fn cap(&self, vm: &VmShare) -> Rate {
        vm.cap.unwrap_or(Rate::MAX).min(self.uplink)
    }

    /// A VM's traffic without a floor gets what the VM's cap leaves.
    fn default_rate(&self, vm: &VmShare) -> Rate {
        let left = self.cap(vm).saturating_sub(vm.floor).saturating_sub(self.control_part);
        self.default_part.min(left)
    }

    /// A VM's share of the uplink.
    pub(super) fn vm(&self, vm: &VmShare) -> Class {
        let floor = fitted(vm.floor, self.vm_floors, self.budget) + self.external_floor(vm);
        let rate = floor + self.default_rate(vm) + self.control_part;
        self.class(rate.min(self.cap(vm)), self.cap(vm), vm.floor, PRIO_DATA)
    }

    /// What a VM's pairs without a queue of their own may send together, when none is about to be theirs.
    pub(super) fn stray_rate(&self, vm: &VmShare) -> Rate {
        self.default_rate(vm).max(self.stray_part.min(self.cap(vm))).max(MIN_RATE)
    }

    /// A VM's traffic without a floor.
    pub(super) fn vm_default(&self, vm: &VmShare) -> Class {
        let rate = self.default_rate(vm);
        self.class(rate, self.default_ceiling.min(self.cap(vm)), rate, PRIO_DATA)
    }

    /// What a VM may send in any case to places that no directory lists, if the uplink has room.
    fn nominal(&self, vm: &VmShare) -> Rate {
        let modest = vm.floor.mul_ratio(1, EXTERNAL).max(self.default_part);
        vm.external.floor.unwrap_or(modest).min(self.cap(vm))
    }

    /// The same on this uplink. What nobody has asked for gives way to all floors.
    fn external_floor(&self, vm: &VmShare) -> Rate {
        let nominal = self.nominal(vm);
        let left = self.cap(vm).saturating_sub(vm.floor + self.default_rate(vm));
        let kept = match vm.external.floor {
            Some(_) => fitted(nominal, self.vm_floors, self.budget),
            None => fitted(nominal, self.modest, self.spare),
        };
        kept.min(left.saturating_sub(self.control_part))
    }

    /// What a VM may send to places that no directory lists.
    pub(super) fn external_rate(&self, vm: &VmShare) -> PairRate {
        let nominal = self.nominal(vm);
        let ceiling = vm.external.ceiling.unwrap_or(nominal).max(nominal).min(self.cap(vm));
        PairRate { floor: self.external_floor(vm), ceiling }
    }

    /// The class of that.
    pub(super) fn vm_external(&self, vm: &VmShare) -> Class {
        let PairRate { floor, ceiling } = self.external_rate(vm);
        self.class(floor, ceiling, floor, PRIO_DATA)
    }

    /// A VM's ARP and neighbour discovery.
    pub(super) fn vm_control(&self) -> Class {
        self.class(self.control_part, self.control_part, MIN_RATE, PRIO_CONTROL)
    }

    /// A pair of `vm`, when the floors of all pairs sum to `sum`.
    pub(super) fn pair(&self, vm: &VmShare, pair: PairRate, sum: Rate) -> Class {
        let floor = fitted(pair.floor, sum, self.budget());
        self.class(floor, pair.ceiling.min(self.cap(vm)), pair.floor, PRIO_DATA)
    }

    /// A queue in the pool.
    pub(super) fn pooled(&self) -> Class {
        self.class(MIN_RATE, MIN_RATE, MIN_RATE, PRIO_DATA)
    }
}

/// A floor's part when floors that sum to `sum` compete for `room`.
fn fitted(floor: Rate, sum: Rate, room: Rate) -> Rate {
    if sum <= room { floor } else { floor.mul_ratio(room.as_bps(), sum.as_bps()) }
}

/// Takes back what a class has borrowed.
pub(super) fn reclaimed(class: Class) -> Class {
    Class { ceil: class.rate, cburst: class.burst, ..class }
}

#[cfg(test)]
mod tests {
    use super::super::External;
    use super::*;
    use crate::nl::htb::burst_octets;
    use weir_units::VmId;

    fn vm(id: u32, floor: u64) -> VmShare {
        let floor = Rate::from_mbps(floor);
        let external = External::default();
        VmShare { vm: VmId(id), port: format!("p{id}"), floor, cap: None, external }
    }

    fn levels(vms: &[VmShare]) -> Levels {
        Levels::new(&ShaperConfig::new("t", Rate::from_mbps(200)), vms)
    }

    fn both(mbps: u64) -> PairRate {
        PairRate { floor: Rate::from_mbps(mbps), ceiling: Rate::from_mbps(mbps) }
    }

    #[test]
    fn a_burst_is_a_millisecond_but_never_less_than_two_packets_nor_more_than_256_kb() {
        for (kbps, octets) in [(64, 3028), (300, 3028), (24_224, 3028), (100_000, 12_500)] {
            assert_eq!(burst(Rate::from_bps(kbps * 1000)).get(), octets, "{kbps} kbit/s");
        }
        assert_eq!(burst(Rate::from_mbps(40_000)).get(), 256 * 1024);
        let slow = levels(&[vm(1, 90)]).pooled();
        assert_eq!(burst_octets(slow.burst, slow.rate), Bytes::new(3028));
    }

    #[test]
    fn where_classes_run_into_debt_by_a_burst_it_is_half_as_long() {
        let config = ShaperConfig::new("t", Rate::from_mbps(200));
        let by_bursts =
            Levels::new(&ShaperConfig { sends_by_bursts: true, ..config }, &[vm(1, 90)]);
        let octets = |class: Class| burst_octets(class.cburst, class.ceil).get();
        assert_eq!(
            [octets(levels(&[vm(1, 90)]).uplink()), octets(by_bursts.uplink())],
            [25_000, 12_500]
        );
        assert_eq!(octets(by_bursts.pooled()), 1514, "a packet at least");
    }

    #[test]
    fn quanta_are_proportional_to_floors_and_never_less_than_a_packet() {
        let vms = [vm(1, 80), vm(2, 20)];
        let levels = levels(&vms);
        let quantum = |mbps| levels.pair(&vms[0], both(mbps), Rate::ZERO).quantum;
        assert_eq!([quantum(80), quantum(40), quantum(20)], [60_000, 30_000, 15_000]);
        assert_eq!([quantum(1), quantum(0)], [1514, 1514]);
    }

    #[test]
    fn a_ceiling_is_at_least_the_rate_and_at_most_the_cap() {
        let capped = VmShare { cap: Some(Rate::from_mbps(100)), ..vm(1, 90) };
        let levels = levels(std::slice::from_ref(&capped));
        let rate = PairRate { floor: Rate::from_mbps(5), ceiling: Rate::MAX };
        let class = levels.pair(&capped, rate, Rate::from_mbps(5));
        assert_eq!((class.rate, class.ceil), (625_000, 12_500_000));
        let class = levels.pair(&capped, PairRate::default(), Rate::ZERO);
        assert_eq!((class.rate, class.ceil), (8_000, 8_000));
    }

    #[test]
    fn promises_beyond_the_uplink_are_scaled_to_fit_it() {
        let vms: Vec<_> = (0..10).map(|i| vm(i, 90)).collect();
        let levels = levels(&vms);
        let inner: u64 = vms.iter().map(|v| levels.vm(v).rate).sum();
        assert!(inner <= 25_000_000, "{inner} octets/s of inner classes on 200 Mbit/s");
        let sum = Rate::from_mbps(900);
        let pairs: u64 = vms.iter().map(|v| levels.pair(v, both(90), sum).rate).sum();
        assert!(pairs <= octets_per_second(levels.budget()));
        assert!(pairs > octets_per_second(levels.budget()) - 10);
    }

    fn external(floor: u64, ceiling: u64) -> External {
        External { floor: Some(Rate::from_mbps(floor)), ceiling: Some(Rate::from_mbps(ceiling)) }
    }

    fn rates(class: Class) -> (u64, u64) {
        (class.rate, class.ceil)
    }

    #[test]
    fn external_traffic_has_a_twentieth_of_the_floor_and_gives_way_to_floors() {
        let one = levels(&[vm(1, 80)]);
        assert_eq!(rates(one.vm_external(&vm(1, 80))), (500_000, 500_000), "4 Mbit/s");
        // 195 Mbit/s for floors.
        let full = [vm(1, 95), vm(2, 96)];
        let levels = levels(&full);
        let kept: u64 = full.iter().map(|vm| levels.vm_external(vm).rate).sum();
        assert!((499_000..=500_000).contains(&kept), "what floors leave: 4 Mbit/s, not {kept}");
        assert_eq!(levels.vm_external(&full[0]).ceil, 593_750, "borrowed where it is idle");
        assert_eq!(levels.budget(), Rate::from_mbps(195), "pairs pay nothing");
        let without = vm(3, 0);
        let part = rates(levels.vm_external(&without));
        assert_eq!(part.1, octets_per_second(Rate::from_mbps(4).split(3)), "as traffic of none");
    }

    #[test]
    fn external_floors_that_were_set_are_promises_like_others() {
        let set = VmShare { external: external(20, 60), ..vm(1, 90) };
        let one = levels(std::slice::from_ref(&set));
        assert_eq!(rates(one.vm_external(&set)), (2_500_000, 7_500_000));
        assert_eq!(one.budget(), Rate::from_mbps(175));
        let capped = VmShare { cap: Some(Rate::from_mbps(120)), ..set.clone() };
        let one = levels(std::slice::from_ref(&capped));
        assert_eq!(one.vm_external(&capped).ceil, 7_500_000);
        let both = [1, 2].map(|id| VmShare { external: external(20, 20), ..vm(id, 175) });
        let two = levels(&both);
        let inner: u64 = both.iter().map(|vm| two.vm(vm).rate).sum();
        assert!(inner <= 25_000_000, "{inner} octets/s of inner classes on 200 Mbit/s");
        assert_eq!(rates(two.vm_external(&both[1])), (1_250_000, 2_500_000), "half of all");
        assert_eq!(two.budget(), Rate::from_mbps(175));
    }

    #[test]
    fn a_cap_leaves_default_traffic_what_the_floor_does_not_take() {
        let tight = VmShare { cap: Some(Rate::from_mbps(90)), ..vm(1, 90) };
        let levels = levels(std::slice::from_ref(&tight));
        assert_eq!(levels.vm(&tight).rate, levels.vm(&tight).ceil);
        assert_eq!(levels.vm_default(&tight).rate, octets_per_second(MIN_RATE));
    }
}
