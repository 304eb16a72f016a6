//! What goes into and comes out of a [`Host`](super::Host).

use super::HostConfig;
use super::config::EyeQ;
use super::refusal::Refusal;
use super::shares::Part;
use crate::host::ReceiveCount;
use std::collections::{BTreeMap, BTreeSet};
use weir_units::{Bytes, HostId, PairId, Rate, Span, VmId};

/// The minimum and the maximum bandwidth of one VM in one direction (EyeQ §1, "The EyeQ model").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The minimum, and the weight. Zero: best effort, in the low-priority class.
    pub floor: Rate,
    /// The maximum. [`Rate::MAX`]: none but the link.
    pub most: Rate,
}

impl Bounds {
    /// A minimum and no maximum.
    pub const fn at_least(floor: Rate) -> Self {
        Self { floor, most: Rate::MAX }
    }

    /// Neither: whatever others leave.
    pub const BEST_EFFORT: Self = Self::at_least(Rate::ZERO);

    /// Which class the bounds put a VM in.
    pub const fn class(self) -> Class {
        if self.floor.is_zero() { Class::BestEffort } else { Class::Guaranteed }
    }
}

/// The class of a VM's packets in the network (EyeQ §3.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// It has a floor.
    Guaranteed,
    /// It has none: its packets are to be marked for the low-priority queue.
    BestEffort,
}

/// One VM of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmBounds {
    /// What it sends.
    pub out: Bounds,
    /// What it receives.
    pub in_: Bounds,
}

impl VmBounds {
    /// The same minimum in and out, no maximum.
    pub const fn both(floor: Rate) -> Self {
        let bounds = Bounds::at_least(floor);
        Self { out: bounds, in_: bounds }
    }

    fn check(&self, vm: VmId) -> Result<(), Refusal> {
        for Bounds { floor, most } in [self.out, self.in_] {
            if floor > most {
                return Err(Refusal::Crossed { vm, floor, most });
            }
        }
        Ok(())
    }
}

/// Whether the VMs of a host with a link of `line` can be promised their bounds.
///
/// # Errors
/// The first that cannot.
pub(super) fn check_vms(
    eyeq: &EyeQ,
    line: Rate,
    vms: &BTreeMap<VmId, VmBounds>,
) -> Result<(), Refusal> {
    for (vm, bounds) in vms {
        bounds.check(*vm)?;
    }
    let available = eyeq.capacity_of(line);
    let out: Rate = vms.values().map(|vm| vm.out.floor).sum();
    let in_: Rate = vms.values().map(|vm| vm.in_.floor).sum();
    for (direction, promised) in [("out", out), ("in", in_)] {
        if promised > available {
            return Err(Refusal::Overbooked { direction, promised, available, line });
        }
    }
    Ok(())
}

/// "At this rate you may send to this VM": what the paper calls a host-ACK, or HACK (§3.2). Destination
/// host → source host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feedback {
    /// Who sends to whom.
    pub pair: PairId,
    /// R, a whole number of [`EyeQ::feedback_unit`].
    pub rate: Rate,
}

/// The only things that ever happen to a host.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Counters of the data plane: of all pairs of a direction, or of none.
    Sample(&'a Sample),
    /// An authenticated message from a peer's agent.
    Feedback(HostId, Feedback),
    /// The VMs of this host, their bounds, and the directory are these from now on; the rest of the configuration
    /// is not looked at. Priorities change by this while all runs (§5.2.1). Refused in whole, and counted, if
    /// it promises too much.
    Population(&'a HostConfig),
    /// The deadline has passed.
    Tick,
}

/// Counters of pairs, cumulative since the data plane first saw the pair. Octets are those of layer 2 without
/// FCS. What passes within one host crosses no link and may be left out.
#[derive(Clone, Default, Debug)]
pub struct Sample {
    /// Pairs whose source is here.
    pub send: Vec<(PairId, Sent)>,
    /// Pairs whose destination is here.
    pub receive: Vec<(PairId, ReceiveCount)>,
}

/// What a VM sent to another.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Octets that left the host. Cumulative.
    pub octets: u64,
    /// Octets that wait on the host now, in the limiter or for the uplink.
    pub waiting: u64,
}

/// One destination's limiter (EyeQ §3.3, §4.2). A level, not an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What may leave.
    pub rate: Rate,
    /// The largest super-packet it takes, UDP's included; larger ones are to be segmented first.
    pub super_packet: Bytes,
    /// Bound of its queue.
    pub queue: Bytes,
}

/// What a limiter does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Into the queue.
    Take,
    /// Too large: cut into segments first.
    Segment,
    /// No room: the sender's stack keeps it and tries again; nothing that it could hold is dropped.
    PushBack,
}

impl Limit {
    pub(super) fn new(eyeq: &EyeQ, rate: Rate) -> Self {
        let lasting = rate.bytes_in(eyeq.super_packet_span);
        let super_packet = lasting.min(eyeq.super_packet_most).max(eyeq.mtu);
        Self { rate, super_packet, queue: eyeq.queue }
    }

    /// What becomes of `packet` when `waiting` is in the queue.
    pub fn verdict(&self, waiting: Bytes, packet: Bytes) -> Verdict {
        if packet > self.super_packet {
            Verdict::Segment
        } else if waiting + packet > self.queue {
            Verdict::PushBack
        } else {
            Verdict::Take
        }
    }
}

/// One VM's part of the uplink (EyeQ §3.1, §4.2: the root limiter). A level, not an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Root {
    /// Weight in fair queueing, and what it gets in any case.
    pub floor: Rate,
    /// What may leave, all destinations together.
    pub rate: Rate,
    /// How its packets are to be marked.
    pub class: Class,
}

/// A table with a dirty set, so that nothing is lost when a write fails or comes late.
#[derive(Debug)]
pub struct Levels<K, V> {
    table: BTreeMap<K, V>,
    dirty: BTreeSet<K>,
}

impl<K, V> Default for Levels<K, V> {
    fn default() -> Self {
        Self { table: BTreeMap::new(), dirty: BTreeSet::new() }
    }
}

impl<K: Copy + Ord, V: Copy + PartialEq> Levels<K, V> {
    pub(super) fn set(&mut self, key: K, level: V) {
        if self.table.insert(key, level) != Some(level) {
            self.dirty.insert(key);
        }
    }

    pub(super) fn remove(&mut self, key: K) {
        if self.table.remove(&key).is_some() {
            self.dirty.insert(key);
        }
    }

    /// The level of one, if it has one.
    pub fn get(&self, key: K) -> Option<V> {
        self.table.get(&key).copied()
    }

    /// All levels, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.table.iter().map(|(k, v)| (*k, *v))
    }

    /// Takes what changed since the last call; `None` = it has no level any more.
    pub fn take_changed(&mut self) -> Vec<(K, Option<V>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|key| (key, self.get(key))).collect()
    }

    /// Marks some as changed again: their write failed.
    pub fn retry(&mut self, keys: impl IntoIterator<Item = K>) {
        self.dirty.extend(keys);
    }
}

/// Why the host wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// A period of the receiver module is over: rates are computed and told.
    Receive,
    /// A period of the sender module is over: the uplink is shared anew.
    Send,
}

/// What a host counts about itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Feedback that was believed.
    pub feedback: u64,
    /// Dropped: of a VM that is not on the host that it came from.
    pub strangers: u64,
    /// Dropped: for a VM that is not here.
    pub misdirected: u64,
    /// Dropped: about a pair in which nothing is sent.
    pub strayed: u64,
    /// Dropped: a rate above every link of the fleet, or none at all.
    pub impossible: u64,
    /// Sightings of peers beyond [`EyeQ::peers_most`]: they get no feedback, or no limiter.
    pub refused_peers: u64,
    /// Sightings of pairs whose VM here is nobody's, or whose peer the directory does not know.
    pub unknown_pairs: u64,
    /// Populations that promised too much and changed nothing.
    pub refused_populations: u64,
    /// Limiters halved because their receiver was silent.
    pub halved: u64,
    /// Feedback messages that this host wrote.
    pub written: u64,
}

/// One meter of an endpoint, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterView {
    /// Whose traffic it meters.
    pub part: Part,
    /// C_i.
    pub capacity: Rate,
    /// R_i.
    pub advertised: Rate,
    /// y_i over the last period.
    pub received: Rate,
    /// That period.
    pub over: Span,
}
