//! From floors and ceilings to the parameters of HTB's classes, as the real shaper has them.
//!
//! Problem   What a pair gets depends on bursts, on turns and on what is kept for traffic without a
//!           floor; a simulated host that has other numbers shapes otherwise.
//! Approach  The formulas of `weir-dataplane`'s shaper (`levels.rs`, which says why), on nanoseconds
//!           and bit/s instead of the kernel's ticks and octets per second.
//! Promises  No class has a rate of zero or a ceiling below its rate.
//! Not here  What classes do: see `htb`.

use super::htb::Class;
use weir_units::{Bytes, Rate, Span};

/// Bound of each queue in octets.
pub(crate) const QUEUE: u64 = 128 * 1024;
/// The smallest rate of a class.
pub(super) const MIN_RATE: Rate = Rate::from_bps(64_000);
/// A full Ethernet frame without FCS.
pub(super) const FRAME: u64 = 1514;
/// What waits of a pair lasts no longer, unless it is less than this.
const QUEUE_WAIT: Span = Span::from_millis(10);
const SHORTEST_QUEUE: Bytes = Bytes::new(10 * FRAME);
/// A class whose full queue lasts no longer has no bound in time.
const NO_TIME: Span = Span::from_millis(1);
const BURST_SPAN: Span = Span::from_millis(1);
const MIN_BURST: u64 = 2 * FRAME;
const MAX_BURST: u64 = 256 * 1024;
const MAX_QUANTUM: u64 = 60_000;
/// The part of the uplink that pairs without queues may use.
const STRAYS: u64 = 50;

/// What one VM is promised and allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// What all its pairs may be promised together.
    pub(crate) floor: Rate,
    pub(crate) cap: Option<Rate>,
}

/// What the parameters of all classes of a host depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Levels {
    uplink: Rate,
    default_part: Rate,
    control_part: Rate,
    stray_part: Rate,
    budget: Rate,
    vm_floors: Rate,
    largest: Rate,
    /// Nobody runs ahead by more than two packets, and a VM's cap is kept by its own class alone, not
    /// by those of its pairs: both change every period.
    is_paced: bool,
}

/// The octets that a class of this rate may run ahead: so much, and two packets at least.
fn burst(rate: Rate, span: Span) -> Bytes {
    Bytes::new(rate.bytes_in(span).get().clamp(MIN_BURST, MAX_BURST))
}

/// How long what waits of a pair may last; `None` where a full queue lasts no time to speak of.
fn longest_wait(ceiling: Rate) -> Option<Span> {
    let is_slow = ceiling.time_for(Bytes::new(QUEUE)) >= NO_TIME;
    let most = ceiling.time_for(Bytes::new(QUEUE / 4 * 3));
    is_slow.then(|| QUEUE_WAIT.max(ceiling.time_for(SHORTEST_QUEUE)).min(most))
}

impl Levels {
    /// Of a host whose traffic without a floor gets `default_rate`.
    pub(crate) fn new(uplink: Rate, default_rate: Rate, vms: &[Share]) -> Self {
        let control_rate = uplink.mul_ratio(5, 1000);
        Self {
            uplink,
            default_part: default_rate.split(vms.len() + 1).max(MIN_RATE),
            control_part: control_rate.split(vms.len().max(1)).max(MIN_RATE),
            stray_part: uplink.mul_ratio(1, STRAYS).split(vms.len() + 1),
            budget: uplink.saturating_sub(default_rate + control_rate),
            vm_floors: vms.iter().map(|vm| vm.floor).sum(),
            largest: vms.iter().map(|vm| vm.floor).max().unwrap_or(uplink),
            is_paced: false,
        }
    }

    /// The same for limiters that are set anew every period.
    pub(crate) fn paced(self) -> Self {
        Self { is_paced: true, ..self }
    }

    /// Whether each VM's leaves take turns of their own, as the kernel's do. Only EyeQ's hosts: with
    /// the other mechanisms a level has one turn, as it had when their figures were played.
    pub(crate) fn keeps_turns(&self) -> bool {
        self.is_paced
    }

    /// Whether pairs whose floors sum to `sum` have to be scaled to fit.
    pub(crate) fn is_over(&self, sum: Rate) -> bool {
        sum > self.budget
    }

    fn fitted(&self, floor: Rate, sum: Rate) -> Rate {
        if !self.is_over(sum) {
            return floor;
        }
        floor.mul_ratio(self.budget.as_bps(), sum.as_bps())
    }

    fn class(&self, rate: Rate, ceil: Rate, weight: Rate) -> Class {
        let rate = rate.max(MIN_RATE);
        let ceil = ceil.max(rate);
        let scale = self.largest.as_bps().max(1);
        let quantum = u128::from(weight.as_bps()) * u128::from(MAX_QUANTUM) / u128::from(scale);
        let span = if self.is_paced { Span::ZERO } else { BURST_SPAN };
        let lead = |rate: Rate| rate.time_for(burst(rate, span)).as_nanos() as i64;
        Class {
            rate: rate.as_bps(),
            ceil: ceil.as_bps(),
            burst: lead(rate),
            cburst: lead(ceil),
            quantum: quantum.clamp(FRAME.into(), MAX_QUANTUM.into()) as i64,
            wait: None,
        }
    }

    pub(crate) fn uplink(&self) -> Class {
        self.class(self.uplink, self.uplink, self.largest)
    }

    fn cap(&self, vm: &Share) -> Rate {
        vm.cap.unwrap_or(Rate::MAX).min(self.uplink)
    }

    fn default_rate(&self, vm: &Share) -> Rate {
        let left = self.cap(vm).saturating_sub(vm.floor).saturating_sub(self.control_part);
        self.default_part.min(left)
    }

    /// What a VM's pairs without a queue of their own may send together.
    pub(super) fn stray_rate(&self, vm: &Share) -> Rate {
        self.default_rate(vm).max(self.stray_part.min(self.cap(vm))).max(MIN_RATE)
    }

    /// A VM's share of the uplink.
    pub(crate) fn vm(&self, vm: &Share) -> Class {
        let floor = self.fitted(vm.floor, self.vm_floors);
        let rate = floor + self.default_rate(vm) + self.control_part;
        self.class(rate.min(self.cap(vm)), self.cap(vm), vm.floor)
    }

    /// A VM's traffic that has no class of its own.
    pub(crate) fn vm_default(&self, vm: &Share) -> Class {
        let rate = self.default_rate(vm);
        self.class(rate, self.cap(vm), rate)
    }

    /// A pair of `vm`, when the floors of all pairs of the host sum to `sum`.
    pub(crate) fn pair(&self, vm: &Share, (floor, ceiling): (Rate, Rate), sum: Rate) -> Class {
        let cap = if self.is_paced { self.uplink } else { self.cap(vm) };
        let class = self.class(self.fitted(floor, sum), ceiling.min(cap), floor);
        Class { wait: longest_wait(Rate::from_bps(class.ceil)).map(Span::as_nanos), ..class }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(n: u64) -> Rate {
        Rate::from_mbps(n)
    }

    #[test]
    fn a_burst_is_a_millisecond_but_never_less_than_two_packets_nor_more_than_256_kb() {
        for (kbps, octets) in [(64, 3028), (300, 3028), (24_224, 3028), (100_000, 12_500)] {
            assert_eq!(
                burst(Rate::from_bps(kbps * 1000), BURST_SPAN).get(),
                octets,
                "{kbps} kbit/s"
            );
        }
        assert_eq!(burst(mbps(40_000), BURST_SPAN).get(), 256 * 1024);
    }

    #[test]
    fn queues_and_smallest_rates_are_the_real_shapers() {
        use weir_dataplane::shaper;
        assert_eq!(QUEUE, shaper::ShaperConfig::new("t", mbps(200)).queue.get());
        assert_eq!((MIN_RATE, FRAME), (shaper::MIN_RATE, shaper::FRAME));
        for kbps in [64, 350, 10_000, 14_533, 78_643, 200_000, 1_048_576, 1_048_577, 10_000_000] {
            let rate = Rate::from_bps(kbps * 1000);
            assert_eq!(
                longest_wait(rate),
                shaper::longest_wait(rate, Bytes::new(QUEUE)),
                "{kbps} kbit/s"
            );
        }
        let share = Share { floor: mbps(90), cap: None };
        let levels = Levels::new(mbps(200), mbps(4), &[share]);
        let pair = levels.pair(&share, (Rate::ZERO, Rate::from_bps(350_000)), Rate::ZERO);
        assert_eq!(pair.wait.map(|ns| ns / 1_000_000), Some(346));
        assert_eq!((levels.vm_default(&share).wait, levels.vm(&share).wait), (None, None));
    }

    #[test]
    fn a_ceiling_is_at_least_the_rate_and_at_most_the_cap() {
        let capped = Share { floor: mbps(90), cap: Some(mbps(100)) };
        let levels = Levels::new(mbps(200), mbps(4), &[capped]);
        let class = levels.pair(&capped, (mbps(5), Rate::MAX), mbps(5));
        assert_eq!((class.rate, class.ceil), (5_000_000, 100_000_000));
        let class = levels.pair(&capped, (Rate::ZERO, Rate::ZERO), Rate::ZERO);
        assert_eq!((class.rate, class.ceil), (64_000, 64_000));
    }

    #[test]
    fn promises_beyond_the_uplink_are_scaled_to_fit_it() {
        let vms = [Share { floor: mbps(90), cap: None }; 10];
        let levels = Levels::new(mbps(200), mbps(4), &vms);
        let inner: u64 = vms.iter().map(|vm| levels.vm(vm).rate).sum();
        assert!(inner <= 200_000_000, "{inner} bit/s of inner classes on 200 Mbit/s");
        let pair = levels.pair(&vms[0], (mbps(90), mbps(90)), mbps(900));
        assert!(pair.rate * 10 <= 195_000_000 && pair.rate * 10 > 194_900_000, "{}", pair.rate);
    }
}
