//! From floors and ceilings to the parameters of a shaper's classes: of the real shaper, and of the
//! simulated one.
//!
//! Problem   What a pair gets depends on bursts, on turns and on what is kept for traffic without a
//!           floor. A simulated host with other numbers shapes otherwise.
//! Approach  One arithmetic, in rates and octets; each shaper turns its results into its own units.
//! Promises  No class has a rate of zero or a ceiling below its rate. Inner classes sum to the
//!           uplink at most.
//! Not here  What classes do: the shapers. How many octets may wait: they say it.
//!
//! **Burst.** A bucket must hold what accrues while the kernel is late to serve it, or the rate is
//! missed; a timer is usually 50 µs late and at times, on a busy machine, 1 ms. More only makes
//! bursts that fill a buffer downstream. So: 1 ms at the rate, at least two packets (the
//! bucket of a slow class refills while its last packet is paid for), at most 256 kB. A fixed
//! 16 kB would let 0.3 Mbit/s burst for half a second.
//!
//! **Quantum.** Classes that borrow together take turns; in each, a class sends `quantum` octets.
//! A VM's turn under the uplink is the sum of its leaves' turns. So one scale for the host,
//! 60 000 octets for the largest VM floor, and at least one packet: below that the kernel sends a
//! packet all the same. Floors under 1/40 of the largest therefore weigh alike.
//!
//! **Overbooking.** VMs of one host may be promised more than its uplink where the other side of
//! their hose is the narrower (admission uses the hose cut). Then inner classes are scaled to fit:
//! HTB checks nothing, and children would drive the uplink beyond its rate.

use std::fmt;
use weir_units::{Bytes, Rate, Span};

/// The smallest rate of a class; HTB knows no zero, and at much less one packet is a debt of
/// seconds that outlives a raise of the rate (the kernel keeps debts as time). Not counted in sums.
pub const MIN_RATE: Rate = Rate::from_bps(64_000);
/// A full Ethernet frame without FCS.
pub const FRAME: u64 = 1514;
/// Bound of each queue in octets, unless another is given.
pub const QUEUE: Bytes = Bytes::new(128 * 1024);
/// How long what waits in a pair's queue may last at its ceiling, but see [`shortest_queue`]. With
/// less, one TCP connection does not fill its rate at a round trip of 10 ms; with more, requests of
/// the same pair wait longer.
pub const QUEUE_WAIT: Span = Span::from_millis(10);
/// At this rate and above, ten full frames may always wait; near zero, fifteen.
const FIFTEEN_FRAMES_BELOW: Rate = Rate::from_mbps(10);
/// A queue never holds more than so many of [`QUEUE`]: 1 GiB, of a pair of 430 Gb/s.
const MOST_QUEUES: u64 = 1 << 13;
/// A full queue that lasts no longer needs no bound in time.
const NO_TIME: Span = Span::from_millis(1);

const BURST_SPAN: Span = Span::from_millis(1);
const MIN_BURST: u64 = 2 * FRAME;
const MAX_BURST: u64 = 256 * 1024;
const MAX_QUANTUM: u64 = 60_000;
/// The part of a host's uplink that pairs without queues may use, all VMs together. No feedback
/// slows them down where they meet other traffic in the network: with a headroom of a tenth
/// (`weir-model`), and up to five hosts' uplinks into one link of that rate, they stay within what
/// no floor was promised of.
const STRAYS: u64 = 50;
/// What a VM may send ahead of the strays' rate while its pairs wait for a class: the uplink's rate for so long,
/// or so many octets if that is more. Agents give a class within a few milliseconds.
const MOMENT: Span = Span::from_millis(10);
const MOMENT_OCTETS: Bytes = Bytes::new(256 * 1024);
/// The part of a VM's floor that it may send beside it to places that no directory lists, unless
/// another is given. With floors of nine tenths of a link, that and strays and control traffic fill
/// seven of the last ten hundredths.
const EXTERNAL: u64 = 20;

/// What a VM may send to addresses that no directory lists: a hose of its own, beside that of its
/// pairs. No receiver reports what the network loses of it, so nothing lowers its rate where it
/// takes other VMs' floors. It gets no more than a rate that is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct External {
    /// What it gets in any case. Absent: a twentieth of the VM's floor, which has room in the
    /// headroom of admission, and gives way on a host whose floors leave none.
    pub floor: Option<Rate>,
    /// The most it may use while others leave it. Absent: the floor.
    pub ceiling: Option<Rate>,
}

impl External {
    /// Where there is no such traffic.
    pub const NONE: Self = Self { floor: Some(Rate::ZERO), ceiling: Some(Rate::ZERO) };
}

/// What one VM is promised and allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// What all its pairs may be promised together.
    pub floor: Rate,
    /// Its maximum; the uplink's rate if absent.
    pub cap: Option<Rate>,
    /// What of that is for places that no directory lists.
    pub external: External,
}

/// A host's link to the network, and what is kept of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// The line rate.
    pub rate: Rate,
    /// Kept for traffic without a floor; VMs get equal parts.
    pub default_rate: Rate,
    /// How far one VM's traffic without a floor may go when there is room.
    pub default_ceiling: Rate,
    /// Kept for ARP and neighbour discovery of all VMs; equal parts, and no more.
    pub control_rate: Rate,
    /// Floor of the host's own traffic; zero if it has none.
    pub host_floor: Rate,
    /// How far classes run ahead.
    pub pace: Pace,
}

/// How far a class runs ahead of its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// By a burst.
    Burst,
    /// By half of one: HTB lets a class run into debt by a burst before it waits
    /// (`htb_hysteresis`), so half goes as far, and one timer serves a burst.
    HalfBurst,
    /// By two packets, for limiters that are set anew every period. A VM's cap is kept by its own
    /// class alone then, not by those of its pairs.
    Packets,
}

/// The parameters of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class {
    /// What it gets in any case.
    pub rate: Rate,
    /// What it may borrow up to.
    pub ceil: Rate,
    /// How far it may run ahead of `rate`.
    pub burst: Bytes,
    /// How far it may run ahead of `ceil`.
    pub cburst: Bytes,
    /// Octets that it sends in a turn when it borrows with others.
    pub quantum: u32,
}

/// What the parameters of all classes depend on, beside their own floors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    uplink: Uplink,
    /// Parts of the host's rate for traffic without a floor and for control, per VM.
    default_part: Rate,
    control_part: Rate,
    /// What a VM's pairs without a queue of their own may send together.
    stray_part: Rate,
    /// What is left of the uplink for floors.
    budget: Rate,
    /// What VMs are promised, with what was set for external traffic; and the latter, scaled as
    /// all.
    vm_floors: Rate,
    externals: Rate,
    /// What external traffic without a written floor wants, and what floors leave for it.
    modest: Rate,
    spare: Rate,
    largest: Rate,
}

/// Octets that may always wait in a pair's queue, however long they last. It counts below
/// 12.1 Mbit/s. Ten full frames are a first window, and what TCP needs to find a loss by duplicate
/// ACKs after a cut. The slower a pair is, the more of its round trip is the queue of a port that
/// marks: with ten frames at 0.9 Mbit/s behind one of 90 kB, a translated guest had 0.76 of its
/// floor, and with fifteen 0.97. From 10 Mbit/s on requests shall wait no longer than 20 ms.
pub fn shortest_queue(rate: Rate) -> Bytes {
    let below = FIFTEEN_FRAMES_BELOW.as_bps();
    Bytes::new(15 * FRAME - 5 * FRAME * rate.as_bps().min(below) / below)
}

/// How long what waits in the queue of a pair may last before further packets are dropped:
/// [`QUEUE_WAIT`], or as long as the fewest octets last; if there is room for that
/// ([`most_waiting`]). `None` where a full queue of `queue` octets lasts less than a millisecond:
/// the packets of a fast pair are not to pay for a clock.
pub fn longest_wait(ceiling: Rate, queue: Bytes) -> Option<Span> {
    let is_slow = ceiling.time_for(queue) >= NO_TIME;
    is_slow.then(|| QUEUE_WAIT.max(ceiling.time_for(shortest_queue(ceiling))))
}

/// How much of `queue` octets what waits may take, at any rate: three quarters. The rest is for
/// flows with little in it, which the queue itself cannot tell from others. A deep queue ([`room`])
/// has half for them: where the queue itself is full, requests are lost.
pub fn most_waiting(queue: Bytes) -> Bytes {
    let (usual, half) = (QUEUE.get() / 4 * 3, queue.get() / 2);
    Bytes::new((queue.get() / 4 * 3).min(usual.max(half)))
}

/// What the queue of a pair with this floor may hold on a long path: what the floor sends in twice
/// [`QUEUE_WAIT`], in whole [`QUEUE`]s, so that few changes of a floor change it. With less than
/// 0.43 of its round trip in the queue, a connection falls below its floor with each loss (CUBIC).
/// On short paths [`QUEUE`] is as much, and more would only make requests wait.
pub fn room(floor: Rate) -> Bytes {
    let queues = floor.bytes_in(QUEUE_WAIT * 2).get() / QUEUE.get();
    Bytes::new(queues.clamp(1, MOST_QUEUES) * QUEUE.get())
}

/// The floor that a class of this rate stands for: the smallest rate stands for none.
pub fn floor_of(rate: Rate) -> Option<Rate> {
    (rate > MIN_RATE).then_some(rate)
}

/// A floor's part when floors that sum to `sum` compete for `room`.
fn fitted(floor: Rate, sum: Rate, room: Rate) -> Rate {
    if sum <= room { floor } else { floor.mul_ratio(room.as_bps(), sum.as_bps()) }
}

/// The octets that a class of this rate may run ahead.
pub fn burst(rate: Rate, pace: Pace) -> Bytes {
    let whole = rate.bytes_in(BURST_SPAN).get().clamp(MIN_BURST, MAX_BURST);
    Bytes::new(match pace {
        Pace::Burst => whole,
        Pace::HalfBurst => whole / 2,
        Pace::Packets => MIN_BURST,
    })
}

impl Uplink {
    /// Of a link of this rate: 2 % for traffic without a floor (up to all of it when there is
    /// room), 0.5 % for control.
    pub fn new(rate: Rate) -> Self {
        let (default_rate, control_rate) = (rate.mul_ratio(2, 100), rate.mul_ratio(5, 1000));
        Self {
            rate,
            default_rate,
            default_ceiling: rate,
            control_rate,
            host_floor: Rate::ZERO,
            pace: Pace::Burst,
        }
    }
}

/// Floors beyond the uplink: each is scaled down by the same factor, `budget / floors`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overbooked {
    /// What the floors of all pairs that send here sum to.
    pub floors: Rate,
    /// What the uplink leaves for floors, beside the small parts of default and control traffic.
    pub budget: Rate,
}

impl Overbooked {
    /// How much of each floor is kept, from 0 to 1.
    pub fn factor(&self) -> f64 {
        self.budget.as_f64() / self.floors.as_f64().max(1.0)
    }
}

impl fmt::Display for Overbooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the floors of this host's pairs sum to {}, and its uplink holds {} of floors: each is \
             scaled to {:.1} %.",
            self.floors,
            self.budget,
            self.factor() * 100.0
        )
    }
}

impl Levels {
    /// Of a host with these VMs.
    pub fn new(uplink: Uplink, vms: &[Share]) -> Self {
        let others = uplink.default_rate + uplink.control_rate + uplink.host_floor;
        let promised = |vm: &Share| vm.floor + vm.external.floor.unwrap_or_default();
        let plain = Self {
            uplink,
            // One part is the host's own, for what no program has classified.
            default_part: uplink.default_rate.split(vms.len() + 1).max(MIN_RATE),
            control_part: uplink.control_rate.split(vms.len().max(1)).max(MIN_RATE),
            stray_part: uplink.rate.mul_ratio(1, STRAYS).split(vms.len() + 1),
            budget: uplink.rate.saturating_sub(others),
            vm_floors: vms.iter().map(promised).sum(),
            externals: Rate::ZERO,
            modest: Rate::ZERO,
            spare: Rate::ZERO,
            largest: vms.iter().map(|vm| vm.floor).max().unwrap_or(uplink.rate),
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

    /// The only place where overbooking is decided: whether floors of pairs that sum to `floors` have to be
    /// scaled down, which [`Levels::pair`] then does.
    pub fn overbooked(&self, floors: Rate) -> Option<Overbooked> {
        let budget = self.budget();
        (floors > budget).then_some(Overbooked { floors, budget })
    }

    /// How limiters let packets go.
    pub const fn pace(&self) -> Pace {
        self.uplink.pace
    }

    /// What the floors of this host's pairs may sum to.
    pub const fn budget(&self) -> Rate {
        self.budget.saturating_sub(self.externals)
    }

    /// A class of this rate; its turn is as long as that of a floor of `weight`.
    fn class(&self, rate: Rate, ceil: Rate, weight: Rate) -> Class {
        let rate = rate.max(MIN_RATE);
        let ceil = ceil.max(rate);
        let scale = self.largest.as_bps().max(1);
        let quantum = u128::from(weight.as_bps()) * u128::from(MAX_QUANTUM) / u128::from(scale);
        let quantum = quantum.clamp(FRAME.into(), MAX_QUANTUM.into()) as u32;
        let [burst, cburst] = [rate, ceil].map(|rate| burst(rate, self.uplink.pace));
        Class { rate, ceil, burst, cburst, quantum }
    }

    /// The uplink itself.
    pub fn uplink(&self) -> Class {
        self.class(self.uplink.rate, self.uplink.rate, self.largest)
    }

    /// The host's own traffic, if it has a floor. It may use what the VMs leave.
    pub fn host(&self) -> Option<Class> {
        let floor = self.uplink.host_floor;
        (!floor.is_zero()).then(|| self.class(floor, self.uplink.rate, floor))
    }

    /// What no program has classified.
    pub fn unclassified(&self) -> Class {
        self.class(self.default_part, self.default_ceiling(), self.default_part)
    }

    fn default_ceiling(&self) -> Rate {
        self.uplink.default_ceiling.min(self.uplink.rate)
    }

    fn cap(&self, vm: &Share) -> Rate {
        vm.cap.unwrap_or(Rate::MAX).min(self.uplink.rate)
    }

    /// A VM's traffic without a floor gets what the VM's cap leaves.
    fn default_rate(&self, vm: &Share) -> Rate {
        let left = self.cap(vm).saturating_sub(vm.floor).saturating_sub(self.control_part);
        self.default_part.min(left)
    }

    /// A VM's share of the uplink.
    pub fn vm(&self, vm: &Share) -> Class {
        let floor = fitted(vm.floor, self.vm_floors, self.budget) + self.external_floor(vm);
        let rate = floor + self.default_rate(vm) + self.control_part;
        self.class(rate.min(self.cap(vm)), self.cap(vm), vm.floor)
    }

    /// What a VM's pairs without a queue of their own may send together, when none is about to be
    /// theirs.
    pub fn stray_rate(&self, vm: &Share) -> Rate {
        self.default_rate(vm).max(self.stray_part.min(self.cap(vm))).max(MIN_RATE)
    }

    /// Octets that a VM's pairs may send ahead of [`Levels::stray_rate`] while they wait for a queue.
    pub fn moment(&self, vm: &Share) -> Bytes {
        self.cap(vm).bytes_in(MOMENT).max(MOMENT_OCTETS)
    }

    /// A VM's traffic without a floor.
    pub fn vm_default(&self, vm: &Share) -> Class {
        let rate = self.default_rate(vm);
        self.class(rate, self.default_ceiling().min(self.cap(vm)), rate)
    }

    /// What a VM may send in any case to places that no directory lists, if the uplink has room.
    fn nominal(&self, vm: &Share) -> Rate {
        let modest = vm.floor.mul_ratio(1, EXTERNAL).max(self.default_part);
        vm.external.floor.unwrap_or(modest).min(self.cap(vm))
    }

    /// The same on this uplink. What no operator wrote gives way to all floors.
    fn external_floor(&self, vm: &Share) -> Rate {
        let nominal = self.nominal(vm);
        let left = self.cap(vm).saturating_sub(vm.floor + self.default_rate(vm));
        let kept = match vm.external.floor {
            Some(_) => fitted(nominal, self.vm_floors, self.budget),
            None => fitted(nominal, self.modest, self.spare),
        };
        kept.min(left.saturating_sub(self.control_part))
    }

    /// What a VM may send to places that no directory lists: in any case, and at most.
    pub fn external_rate(&self, vm: &Share) -> (Rate, Rate) {
        let nominal = self.nominal(vm);
        let ceiling = vm.external.ceiling.unwrap_or(nominal).max(nominal).min(self.cap(vm));
        (self.external_floor(vm), ceiling)
    }

    /// The class of that.
    pub fn vm_external(&self, vm: &Share) -> Class {
        let (floor, ceiling) = self.external_rate(vm);
        self.class(floor, ceiling, floor)
    }

    /// A VM's ARP and neighbour discovery.
    pub fn vm_control(&self) -> Class {
        self.class(self.control_part, self.control_part, MIN_RATE)
    }

    /// A pair of `vm` with this floor and ceiling, when the floors of all pairs sum to `sum`.
    pub fn pair(&self, vm: &Share, (floor, ceiling): (Rate, Rate), sum: Rate) -> Class {
        let is_paced = self.uplink.pace == Pace::Packets;
        let cap = if is_paced { self.uplink.rate } else { self.cap(vm) };
        self.class(fitted(floor, sum, self.budget()), ceiling.min(cap), floor)
    }

    /// A queue in a pool.
    pub fn pooled(&self) -> Class {
        self.class(MIN_RATE, MIN_RATE, MIN_RATE)
    }
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
