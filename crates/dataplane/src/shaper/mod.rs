//! Limits pairs: a real queue per pair under its VM's share of the uplink, under the uplink.
//!
//! Problem   A floor must hold, and spare bandwidth must be shared in proportion to floors, for any
//!           traffic of a VM, without the agent in the packet path.
//! Approach  A [`Shaper`] holds a desired table of levels (floor and ceiling per pair), compares it
//!           with the kernel and writes only differences. [`Htb`] uses classes on an IFB device.
//!           [`DepartureTimes`] uses times that a BPF program computes and the uplink's fq qdisc
//!           keeps.
//! Promises  A floor is a class's rate and stands without an agent. A borrowed rate is part of the
//!           ceiling, which [`reclaim`] takes back. Floors above the parent are refused. Queues are
//!           bounded in octets, and those of pairs in time. A second pass finds nothing to do.
//! Not here  The choice of a packet's class: the BPF programs make it, by `skb->priority` =
//!           [`ClassId`].

mod bursts;
mod departure;
mod desired;
mod host;
mod htb;
mod layout;
mod levels;
mod owner;
mod ports;
mod root;
mod tree;
mod waits;

pub use bursts::SendsByBursts;
pub(crate) use departure::HOST_CLASS;
pub use departure::{DepartureTimes, Observer};
pub(crate) use desired::check_vms;
pub use htb::Htb;
pub use layout::device_name;
pub use levels::LONGEST_WAIT;
pub(crate) use owner::{NOTE, exists};
pub use owner::{reclaim, remove};
pub(crate) use root::{HANDLE as ROOT_HANDLE, release};
pub use weir_core::classes::{
    External, FRAME, MIN_RATE, Overbooked, QUEUE_WAIT, longest_wait, shortest_queue,
};

use std::collections::BTreeSet;
use weir_core::classes::{Pace, QUEUE, Uplink};
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
    /// No limit: levels are kept but have no effect.
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

/// Line rate above which `auto` tries departure times first. One HTB tree with its one lock does
/// not carry much more. Below it, HTB's sharing by weight is worth more.
pub const HTB_CARRIES: Rate = Rate::from_mbps(2500);

/// Share of one VM of this host in the uplink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmShare {
    /// The VM.
    pub vm: VmId,
    /// Its port: the host's end of its veth, or its tap. All packets that arrive there are shaped.
    /// Several VMs may share one.
    pub port: String,
    /// Its floor toward the network, on layer 2 without FCS.
    pub floor: Rate,
    /// Its maximum; the uplink's rate if absent.
    pub cap: Option<Rate>,
    /// Its external hose.
    pub external: External,
}

/// The levels of one pair, on layer 2 without FCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairRate {
    /// Floor of the pair.
    pub floor: Rate,
    /// Ceiling of the pair, never below the floor. A ceiling above the VM's cap means the cap.
    pub ceiling: Rate,
}

/// The queues of a VM that belong to no pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmClasses {
    /// For traffic without a floor.
    pub default: ClassId,
    /// For ARP and neighbour discovery: served first, with a small ceiling.
    pub control: ClassId,
    /// For external traffic.
    pub external: ClassId,
    /// Rate that all pairs without a queue of their own share in the first of them, unless it is lowered.
    pub stray_rate: Rate,
    /// Octets that they may send ahead of it while they wait for a queue.
    pub moment: Bytes,
    /// The levels of the last.
    pub external_rate: PairRate,
}

/// Counters of one queue since it was created (they are not reset when a class is reused).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStats {
    /// The queue.
    pub class: ClassId,
    /// The pair that uses it now; `None` for default, control and pooled queues.
    pub pair: Option<PairId>,
    /// Octets sent; with departure times, those that wait are among them.
    pub octets: u64,
    /// Packets sent, likewise (a super-packet counts as its segments).
    pub packets: u64,
    /// Packets that found the queue full or too long (for HTB a super-packet without room counts
    /// once). Packets that HTB's queues would have held for too long are dropped before them:
    /// [`Dataplane::queues`](crate::Dataplane::queues) adds them, [`Shaper::stats`] does not know
    /// them.
    pub drops: u64,
    /// Octets waiting; with departure times, when the last packet came.
    pub backlog: Bytes,
    /// Packets waiting behind those sent; with departure times always zero.
    pub queued: u32,
}

/// Writes that an application of desired levels needed.
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

impl std::ops::AddAssign for Changes {
    fn add_assign(&mut self, more: Self) {
        self.created += more.created;
        self.changed += more.changed;
        self.deleted += more.deleted;
    }
}

/// A part of a shaper that is not as it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Description, for people.
    pub what: String,
    /// The VMs that it concerns; none means all.
    pub vms: Vec<VmId>,
    /// Whether [`Shaper::apply_vms`] repairs it. Foreign objects are left alone.
    pub mendable: bool,
}

/// Reaction to VMs that are promised more than the uplink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overbooking {
    /// Their shares are scaled to fit. Right where admission uses the hose cut: the other side of
    /// the hose may be the narrower, and the pairs' floors still fit.
    #[default]
    Scale,
    /// Refused.
    Refuse,
}

/// Configuration of a shaper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShaperConfig {
    /// The agent's instance on this machine; gives the device its name.
    pub instance: String,
    /// The uplink's line rate, on layer 2 without FCS.
    pub uplink: Rate,
    /// Kept free of floors for all traffic of this host that has none; VMs get equal parts.
    pub default_rate: Rate,
    /// Ceiling of one VM's traffic without a floor.
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
    /// The floor of what the host itself sends, which VMs' floors leave free; zero: what the host sends has neither
    /// floor nor limit. HTB keeps it if it is told the uplink ([`Htb::beside_host`]).
    pub host_floor: Rate,
    /// Octets that a tunnel behind the ports adds to each packet. HTB counts them once for each super-packet, however
    /// many segments it becomes, so that all of the uplink's is held back by what full frames gain.
    pub overhead: u32,
    /// The kernel's HTB lets a class run into debt by a whole burst before it waits
    /// ([`htb_sends_by_bursts`](crate::probe::htb_sends_by_bursts)). Half the burst has the same
    /// effect then.
    pub sends_by_bursts: bool,
    /// Classes run ahead by two packets only: what is measured within a millisecond bears no bursts of one.
    pub is_paced: bool,
    /// With departure times: how far ahead a pair's packet may be scheduled; further if fewer than
    /// [`shortest_queue`] would wait otherwise. At most [`LONGEST_WAIT`].
    pub departs_within: Span,
}

/// The most pairs a shaper takes: creating classes is O(n) each in the kernel.
pub const MAX_PAIRS: usize = 4096;

impl ShaperConfig {
    /// How far its classes run ahead.
    pub(crate) const fn pace(&self) -> Pace {
        match (self.is_paced, self.sends_by_bursts) {
            (true, _) => Pace::Packets,
            (false, true) => Pace::HalfBurst,
            (false, false) => Pace::Burst,
        }
    }

    /// Defaults for a host: 2 % of the uplink for traffic without a floor (up to all of it when
    /// there is room), 0.5 % for control, 128 kB per queue, [`MAX_PAIRS`], pools that grow by 8.
    pub fn new(instance: &str, uplink: Rate) -> Self {
        let kept = Uplink::new(uplink);
        Self {
            instance: instance.to_owned(),
            uplink,
            default_rate: kept.default_rate,
            default_ceiling: kept.default_ceiling,
            control_rate: kept.control_rate,
            overbooking: Overbooking::default(),
            queue: QUEUE,
            max_pairs: MAX_PAIRS,
            pool_step: 8,
            host_floor: Rate::ZERO,
            overhead: 0,
            sends_by_bursts: false,
            is_paced: false,
            departs_within: QUEUE_WAIT,
        }
    }

    /// The part of the uplink that HTB gives to VMs, where the host has a floor. VMs have no use of
    /// what the host leaves: their packets have left HTB's device by then.
    fn beside_host(&self) -> Self {
        let kept = if self.host_floor.is_zero() {
            Rate::ZERO
        } else {
            self.host_floor + self.urgent_rate()
        };
        let uplink = self.uplink.saturating_sub(kept);
        Self { uplink, host_floor: Rate::ZERO, ..self.clone() }
    }

    /// What HTB keeps free for agents' messages and the host's neighbour discovery, where the host
    /// has a floor: as much as VMs have for theirs.
    fn urgent_rate(&self) -> Rate {
        Uplink::new(self.uplink).control_rate
    }

    fn check(&self) -> Result<(), Error> {
        let others = self.default_rate + self.control_rate;
        let wrong = if self.uplink < MIN_RATE * 10 {
            "the uplink's rate is below 640 kbit/s"
        } else if others >= self.uplink {
            "default and control traffic leave nothing of the uplink"
        } else if others >= self.beside_host().uplink {
            "the host's own floor leaves VMs nothing of the uplink: lower uplink.host_floor"
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
/// [`claim`](Self::claim) what an earlier agent left, then [`add_pairs`](Self::add_pairs),
/// [`set`](Self::set), [`remove`](Self::remove) as pairs come and go. Dropping a shaper leaves
/// everything in the kernel in force; only [`close`](Self::close) removes it.
pub trait Shaper {
    /// The kind of shaper.
    fn kind(&self) -> Kind;

    /// Makes exactly these VMs exist, redirects their ports here, and repairs every difference
    /// between the kernel and the desired levels (pairs included). Refuses floors that sum above
    /// the uplink.
    fn apply_vms(&mut self, vms: &[VmShare]) -> Result<Changes, Error>;

    /// Finds a part of this shaper in the kernel that is not as it was set, without changing
    /// anything. For every heartbeat. `whole` checks each class, too.
    /// [`apply_vms`](Self::apply_vms) repairs what it can.
    fn faults(&mut self, whole: bool) -> Result<Vec<Fault>, Error>;

    /// Lets the ports' packets bypass the shaper until [`engage`](Self::engage), whatever is
    /// applied meanwhile. For a missing device, or when nothing is to be limited.
    fn let_pass(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// From the next [`apply_vms`](Self::apply_vms) on packets do not bypass the shaper any more.
    fn engage(&mut self) {}

    /// Whether no packet waits.
    fn is_idle(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Queues of a VM's traffic that belongs to no pair; `None` for a VM that was not applied.
    fn vm_classes(&self, vm: VmId) -> Option<VmClasses>;

    /// Assigns queues found at opening to their pairs (the BPF map outlived the agent). Returns the
    /// pairs whose queue is gone: add them anew. Levels stay as found until set.
    fn claim(&mut self, pairs: &[(PairId, ClassId)]) -> Result<Vec<PairId>, Error>;

    /// Pairs of these that have a queue or get one: not those beyond their VM's quota of queues.
    fn admitted(&self, pairs: &[PairId]) -> BTreeSet<PairId>;

    /// Gives each pair a queue, in the given order, at the smallest floor and ceiling until
    /// [`set`](Self::set). A pair that has one keeps it. All or none: an error when the pool is
    /// empty.
    fn add_pairs(&mut self, pairs: &[PairId]) -> Result<Vec<ClassId>, Error>;

    /// Sets levels; writes only differences, in one batch. Returns how many were written. Refuses
    /// the whole batch if a ceiling is below its floor or a VM's floors would sum above its own.
    fn set(&mut self, rates: &[(PairId, PairRate)]) -> Result<usize, Error>;

    /// What a pair's queue may hold; `None`: [`ShaperConfig::queue`]. A pair without a queue is ignored.
    fn set_room(&mut self, pair: PairId, room: Option<Bytes>) -> Result<(), Error>;

    /// Returns the pairs' queues to their VM's pool, emptied. Unknown pairs are ignored.
    fn remove(&mut self, pairs: &[PairId]) -> Result<(), Error>;

    /// The levels as the kernel has them, of all pairs.
    fn read_back(&mut self) -> Result<Vec<(PairId, PairRate)>, Error>;

    /// Forgets the cached state of the kernel and reads it again. The caller does so whenever
    /// another process may have written (the guardian, after a pause longer than the lease), before
    /// the next [`set`](Self::set), which would otherwise find "no difference".
    fn refresh(&mut self) -> Result<(), Error>;

    /// Octets by which a pair's queue may have sent ahead of its ceiling. `None` where the
    /// classifier does not count what waits: the pair has no queue here, or another shaper.
    fn sends_ahead(&self, _pair: PairId) -> Option<Bytes> {
        None
    }

    /// Renews the lease at `now_ns` on the kernel's monotonic clock. Without a further call within
    /// one second, borrowed rates are taken back: by the programs in the kernel, and from HTB's
    /// classes by the guardian.
    fn renew(&mut self, now_ns: u64);

    /// The pairs' floors, if they exceed what the uplink can hold: the kernel's levels are scaled down
    /// then. `None` on a host whose admission and partitioning work.
    fn overbooked(&self) -> Option<Overbooked>;

    /// Counters of all queues.
    fn stats(&mut self) -> Result<Vec<ClassStats>, Error>;

    /// Packets dropped after they got a sequence number, which a receiver counts as losses of the
    /// network. A value above 0 means that a bound is wrong: alarm on it.
    fn late_drops(&mut self) -> Result<u64, Error> {
        Ok(0)
    }

    /// Removes all that this instance has set in the kernel, and nothing else.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

/// Reason why a shaper did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] crate::nl::Error),
    /// A BPF map could not be read.
    #[error("{0}")]
    Map(String),
    /// Departure times were requested on a kernel without fq.
    #[error(
        "this kernel has no fq qdisc, which departure times need: load the module sch_fq, or set the shaper to htb"
    )]
    NoFq,
    /// The configuration contradicts itself.
    #[error("shaper: {0}")]
    Config(&'static str),
    /// Floors sum above their parent.
    #[error("floors under {parent} sum to {floors}, above its {limit}: lower some of them")]
    Floors {
        /// The VM or the uplink.
        parent: String,
        /// Their sum.
        floors: Rate,
        /// The parent's rate.
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
        /// The VM.
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
    /// An object of this name exists, and is not ours.
    #[error("{what} exists already and does not belong to this agent: {advice}")]
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
