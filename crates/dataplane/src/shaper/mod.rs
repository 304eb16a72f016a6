//! Limits pairs: a real queue per pair under its VM's share of the uplink, under the uplink.
//!
//! Problem   A floor must hold and spare bandwidth must be shared in proportion to floors, for
//!           whatever a VM sends, without the agent in the packet path.
//! Approach  A [`Shaper`] holds a desired table of levels (floor and ceiling per pair); it compares
//!           it with the kernel and writes only differences. [`Htb`] does it with classes on an IFB
//!           device; [`DepartureTimes`] does it with times that a BPF program computes and the
//!           uplink's fq qdisc keeps.
//! Promises  A floor is a class's rate and stands without anybody alive; what is borrowed is its
//!           ceiling, which [`reclaim`] takes back. Floors above the parent are refused. Queues are
//!           bounded in octets, and those of pairs in time. A second pass finds nothing to do.
//! Not here  Who steers a packet to a class: the BPF programs do, by `skb->priority` = [`ClassId`].

mod bursts;
mod departure;
mod desired;
mod htb;
mod layout;
mod levels;
mod owner;
mod ports;
mod tree;
mod waits;

pub use bursts::SendsByBursts;
pub(crate) use departure::HOST_CLASS;
pub(crate) use departure::release;
pub use departure::{DepartureTimes, Observer};
pub(crate) use desired::check_vms;
pub use htb::Htb;
pub use layout::device_name;
pub use levels::{FRAME, LONGEST_WAIT, MIN_RATE, QUEUE_WAIT, SHORTEST_QUEUE};
pub(crate) use owner::exists;
pub use owner::{reclaim, remove};
pub use waits::longest_wait;

use std::collections::BTreeSet;
use weir_units::{Bytes, PairId, Rate, Span, VmId};

/// Names a queue to the classifier: the value for `skb->priority`. For HTB a tc handle
/// (major in the high 16 bits).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClassId(pub u32);

/// How pairs are limited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Classes on an IFB device: every kernel.
    Htb,
    /// Departure times and the uplink's fq qdisc.
    DepartureTime,
    /// Nothing: levels are kept, and limit nobody.
    Observer,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Htb => "htb",
            Self::DepartureTime => "departure-time",
            Self::Observer => "observer",
        })
    }
}

/// Above this line rate departure times are tried first when nobody has chosen: one HTB tree with its
/// one lock does not carry much more. Below it HTB's sharing by weight is worth more.
pub const HTB_CARRIES: Rate = Rate::from_mbps(2500);

/// What one VM of this host gets of the uplink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmShare {
    /// Which VM.
    pub vm: VmId,
    /// Its port: the host's end of its veth, or its tap. All that arrives there is shaped. Several
    /// may share one.
    pub port: String,
    /// Its floor toward the network, on layer 2 without FCS.
    pub floor: Rate,
    /// Its maximum; the uplink's rate if absent.
    pub cap: Option<Rate>,
    /// What of that is for places that no directory lists.
    pub external: External,
}

/// What a VM may send to addresses that no directory lists: a hose of its own, beside that of its
/// pairs. Nobody tells a sender what the network loses of it, so nothing lowers its rate where it
/// takes others' floors; it gets no more than a rate that is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct External {
    /// What it gets in any case. Absent: a twentieth of the VM's floor, which has room in the
    /// headroom of admission, and gives way on a host whose floors leave none.
    pub floor: Option<Rate>,
    /// The most it may use while others leave it. Absent: the floor.
    pub ceiling: Option<Rate>,
}

/// The levels of one pair, on layer 2 without FCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairRate {
    /// What the pair gets in any case.
    pub floor: Rate,
    /// What it may use while others leave it: never below the floor. Above the VM's cap means the cap.
    pub ceiling: Rate,
}

/// The queues of a VM that belong to no pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmClasses {
    /// For traffic without a floor.
    pub default: ClassId,
    /// For ARP and neighbour discovery: served first, with a small ceiling.
    pub control: ClassId,
    /// For what goes to addresses that no directory lists.
    pub external: ClassId,
    /// What pairs without a queue of their own may send by the first of them, all together.
    pub stray_rate: Rate,
    /// The levels of the last.
    pub external_rate: PairRate,
}

/// Counters of one queue since it was created (they are not reset when a class is reused).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStats {
    /// Which queue.
    pub class: ClassId,
    /// The pair that uses it now; `None` for default, control and pooled queues.
    pub pair: Option<PairId>,
    /// Octets sent; with departure times, those that wait are among them.
    pub octets: u64,
    /// Packets sent, likewise (a super-packet counts as its segments).
    pub packets: u64,
    /// Packets that found the queue full or too long (for HTB a super-packet that the queue has no room
    /// for counts once). What HTB's queues would have held for too long is dropped before them:
    /// [`Dataplane::queues`](crate::Dataplane::queues) adds it, [`Shaper::stats`] does not know it.
    pub drops: u64,
    /// Octets waiting; with departure times, when the last packet came.
    pub backlog: Bytes,
    /// Packets waiting behind those sent; with departure times always zero.
    pub queued: u32,
}

/// What an application of desired levels had to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Objects created.
    pub created: usize,
    /// Objects whose parameters were changed.
    pub changed: usize,
    /// Objects deleted.
    pub deleted: usize,
}

impl Changes {
    /// Whether the kernel already was as desired.
    pub const fn is_empty(&self) -> bool {
        self.created == 0 && self.changed == 0 && self.deleted == 0
    }
}

/// Something of a shaper that is not as it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What it is, for people.
    pub what: String,
    /// The VMs that it concerns; none means all.
    pub vms: Vec<VmId>,
    /// Whether [`Shaper::apply_vms`] mends it; somebody else's things are left alone.
    pub mendable: bool,
}

/// What happens when VMs of one host are promised more than its uplink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overbooking {
    /// Their shares are scaled to fit. Right where admission uses the hose cut: the other side of
    /// the hose may be the narrower, and the pairs' floors still fit.
    #[default]
    Scale,
    /// Refused.
    Refuse,
}

/// What a shaper needs to know of its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShaperConfig {
    /// The agent's instance on this machine; gives the device its name.
    pub instance: String,
    /// The uplink's line rate, on layer 2 without FCS.
    pub uplink: Rate,
    /// Kept free of floors for all traffic of this host that has none; VMs get equal parts.
    pub default_rate: Rate,
    /// How far one VM's traffic without a floor may go when there is room.
    pub default_ceiling: Rate,
    /// Kept free for ARP and neighbour discovery of all VMs; equal parts, and no more.
    pub control_rate: Rate,
    /// What to do when VM floors sum above the uplink.
    pub overbooking: Overbooking,
    /// Bound of each queue in octets.
    pub queue: Bytes,
    /// Bound on all pairs together; at most [`MAX_PAIRS`].
    pub max_pairs: usize,
    /// By how many classes a VM's pool grows.
    pub pool_step: usize,
    /// The floor of what the host itself sends, which VMs' floors leave free. Only departure times keep it; zero: what
    /// the host sends passes them by.
    pub host_floor: Rate,
    /// Octets that a tunnel behind the ports adds to each packet. HTB counts them once for each super-packet, however
    /// many segments it becomes, so that all of the uplink's is held back by what full frames gain.
    pub overhead: u32,
    /// The kernel's HTB lets a class run into debt by a whole burst before it waits
    /// ([`htb_sends_by_bursts`](crate::probe::htb_sends_by_bursts)): half the burst goes as far then.
    pub sends_by_bursts: bool,
    /// With departure times: how far ahead a pair's packet may be given one, which it keeps; further if fewer than
    /// [`SHORTEST_QUEUE`] would wait otherwise. At most [`LONGEST_WAIT`].
    pub departs_within: Span,
}

/// The most pairs a shaper takes: creating classes is O(n) each in the kernel.
pub const MAX_PAIRS: usize = 4096;

impl ShaperConfig {
    /// Defaults for a host: 2 % of the uplink for traffic without a floor (up to all of it when
    /// there is room), 0.5 % for control, 128 kB per queue, [`MAX_PAIRS`], pools that grow by 8.
    pub fn new(instance: &str, uplink: Rate) -> Self {
        Self {
            instance: instance.to_owned(),
            uplink,
            default_rate: uplink.mul_ratio(2, 100),
            default_ceiling: uplink,
            control_rate: uplink.mul_ratio(5, 1000),
            overbooking: Overbooking::default(),
            queue: Bytes::new(128 * 1024),
            max_pairs: MAX_PAIRS,
            pool_step: 8,
            host_floor: Rate::ZERO,
            overhead: 0,
            sends_by_bursts: false,
            departs_within: QUEUE_WAIT,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let others = self.default_rate + self.control_rate;
        let wrong = if self.uplink < MIN_RATE * 10 {
            "the uplink's rate is below 640 kbit/s"
        } else if others >= self.uplink {
            "default and control traffic leave nothing of the uplink"
        } else if self.queue.get() < 2 * FRAME || self.queue.get() > u64::from(u32::MAX) {
            "a queue needs at least 3028 octets, and less than 4 GiB"
        } else if self.max_pairs == 0 || self.max_pairs > MAX_PAIRS {
            "the bound on pairs must be between 1 and 4096"
        } else if self.pool_step == 0 {
            "a pool cannot grow by nothing"
        } else {
            return Ok(());
        };
        Err(Error::Config(wrong))
    }
}

/// A table of desired levels and the kernel's queues that follow it.
///
/// Order of calls: open the backend, then [`apply_vms`](Self::apply_vms), then
/// [`claim`](Self::claim) what an earlier agent left, then
/// [`add_pairs`](Self::add_pairs), [`set`](Self::set), [`remove`](Self::remove) as pairs come and go.
/// Dropping a shaper leaves everything in the kernel in force; only [`close`](Self::close) removes it.
pub trait Shaper {
    /// Which one it is.
    fn kind(&self) -> Kind;

    /// Makes exactly these VMs exist, redirects their ports here, and mends whatever in the kernel
    /// differs from the desired levels (pairs included). Refuses floors that sum above the uplink.
    fn apply_vms(&mut self, vms: &[VmShare]) -> Result<Changes, Error>;

    /// What of this shaper in the kernel is not as it was set, without changing anything: for every
    /// heartbeat. `whole` looks at each class, too. [`apply_vms`](Self::apply_vms) mends what can be.
    fn faults(&mut self, whole: bool) -> Result<Vec<Fault>, Error>;

    /// Lets the ports' packets pass by until [`engage`](Self::engage), whatever is applied meanwhile:
    /// for when there is no device to send them through, or nothing is to be limited.
    fn let_pass(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// From the next [`apply_vms`](Self::apply_vms) on packets do not pass by any more.
    fn engage(&mut self) {}

    /// Whether nothing waits.
    fn is_idle(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Where a VM's traffic goes that belongs to no pair; `None` for a VM not applied.
    fn vm_classes(&self, vm: VmId) -> Option<VmClasses>;

    /// Says which queues found at opening belong to which pairs (their BPF map outlived the agent).
    /// Those whose queue is not there are returned: add them anew. Levels stay as found until set.
    fn claim(&mut self, pairs: &[(PairId, ClassId)]) -> Result<Vec<PairId>, Error>;

    /// Which of these pairs have a queue or find one: not those beyond their VM's part of all queues.
    fn admitted(&self, pairs: &[PairId]) -> BTreeSet<PairId>;

    /// A queue for each pair, in the order given, at the smallest floor and ceiling until
    /// [`set`](Self::set). A pair that has one keeps it. All or none: an error when the pool is full.
    fn add_pairs(&mut self, pairs: &[PairId]) -> Result<Vec<ClassId>, Error>;

    /// Sets levels; writes only differences, in one batch. Returns how many were written. Refuses
    /// the whole batch if a ceiling is below its floor or a VM's floors would sum above its own.
    fn set(&mut self, rates: &[(PairId, PairRate)]) -> Result<usize, Error>;

    /// Returns the pairs' queues to their VM's pool, emptied. Unknown pairs are ignored.
    fn remove(&mut self, pairs: &[PairId]) -> Result<(), Error>;

    /// The levels as the kernel has them, of all pairs.
    fn read_back(&mut self) -> Result<Vec<(PairId, PairRate)>, Error>;

    /// Forgets what the kernel was believed to hold, and reads it again: call it whenever somebody
    /// else may have written (the guardian, after a pause longer than the lease), before the next
    /// [`set`](Self::set), which else finds "no difference".
    fn refresh(&mut self) -> Result<(), Error>;

    /// The agent lives at `now_ns` on the kernel's monotonic clock. Without a further call within one
    /// second what was lent is taken back: by the programs in the kernel, and from HTB's classes by the
    /// guardian.
    fn renew(&mut self, now_ns: u64);

    /// By how much the pairs' floors exceed what the uplink can hold; they are scaled down by the
    /// kernel's levels then. Zero on a host whose admission and partitioning work.
    fn shortfall(&self) -> Rate;

    /// What the uplink leaves for pairs' floors, beside the small parts of default and control traffic.
    fn budget(&self) -> Rate;

    /// Counters of all queues.
    fn stats(&mut self) -> Result<Vec<ClassStats>, Error>;

    /// Packets dropped behind the sequence stamp, which a receiver takes for the network's losses.
    /// Not zero means that a bound is wrong: alarm on it.
    fn late_drops(&mut self) -> Result<u64, Error> {
        Ok(0)
    }

    /// Removes all that this instance has set in the kernel, and nothing else.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

/// Why a shaper did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] crate::nl::Error),
    /// A BPF map could not be read.
    #[error("{0}")]
    Map(String),
    /// Departure times were asked for on a kernel without fq.
    #[error(
        "this kernel has no fq qdisc, which departure times need: load the module sch_fq, or set the shaper to htb"
    )]
    NoFq,
    /// The configuration contradicts itself.
    #[error("shaper: {0}")]
    Config(&'static str),
    /// Floors sum above what holds them.
    #[error("floors under {parent} sum to {floors}, above its {limit}: lower some of them")]
    Floors {
        /// The VM or the uplink.
        parent: String,
        /// What they sum to.
        floors: Rate,
        /// What there is.
        limit: Rate,
    },
    /// A maximum below its minimum.
    #[error("{of}: ceiling {ceiling} is below floor {floor}")]
    Ceiling {
        /// The VM or the pair.
        of: String,
        /// Its minimum.
        floor: Rate,
        /// Its maximum.
        ceiling: Rate,
    },
    /// A VM's port is not on this host.
    #[error("{vm}: there is no port `{port}`")]
    NoPort {
        /// Whose.
        vm: VmId,
        /// Its name.
        port: String,
    },
    /// Two VMs of one name.
    #[error("{what} is given twice")]
    Twice {
        /// The VM.
        what: String,
    },
    /// A VM that was not applied.
    #[error("{0} is not a VM of this host")]
    UnknownVm(VmId),
    /// A pair without a queue.
    #[error("pair {0} has no queue: add it first")]
    UnknownPair(PairId),
    /// No room.
    #[error("no queue left for {wanted} more {of}: {used} of {limit} are in use")]
    Full {
        /// Pairs or VMs.
        of: &'static str,
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        used: usize,
        /// The bound.
        limit: usize,
    },
    /// Something of this name is there, and not ours.
    #[error("{what} is there already and belongs to somebody else: {advice}")]
    Foreign {
        /// The object.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The kernel took a value and holds another.
    #[error("{object} was set but reads back differently: wanted {wanted}, found {found}")]
    ReadBack {
        /// The object.
        object: String,
        /// What was written.
        wanted: String,
        /// What is there.
        found: String,
    },
}
