//! `bpf/intf.h` in Rust: state that the datapath and the agent share. The header explains each
//! field and names its writer. Sizes are asserted on both sides.

use std::net::IpAddr;
use weir_core::backlog::Backlog;

/// Endpoint flag: the VM is on this host.
pub const LOCAL: u32 = 1;
/// Endpoint flag: the VM is on this host, and its packets wait for all others.
pub const BEST_EFFORT: u32 = 2;
/// Endpoint flag: VMs reach the VM at its hardware address and nowhere else.
pub const AT_MAC: u32 = 4;
/// The node of the uplink, whose level says whether departure times are in force.
pub const UPLINK: u32 = 1;
/// Settings flag: packets are counted, and none is changed or dropped.
pub const OBSERVE: u32 = 16;
/// Port flag: it leads out of the cloud.
pub const OUTWARD: u32 = 1;
/// Port flag: only [`Port::mac`] may send.
pub const FIXED_MAC: u32 = 2;
/// Port flag: packets may miss the shaper, so its pairs get no more than their floors.
pub const BARE: u32 = 16;
/// Port: its guest's code points stay where no tag takes their place.
pub const KEEP_DSCP: u32 = 32;
/// Port: the same, and TCP connections get theirs back at their receiver.
pub const RESTORE_DSCP: u32 = 64;
/// Bits of a [`Prefix`] before its address.
pub const PREFIX_HEAD: u32 = 64;
/// Settings flag: marks are a signal, and what leaves is ECN-capable.
pub const ECN: u32 = 1;
/// Settings: marks are counted, so VMs' own are taken off.
pub const UNMARK: u32 = 2;
/// How many segments behind the newest a missing one may still come.
pub const WINDOW: u32 = 4096;
/// Reorder windows after which a hole is a loss though no packet came since.
pub const SILENCE: u64 = 32;
/// Parts of a pair's queue, by which flows are told apart.
pub const PARTS: usize = 16;
/// Words of a row of the ring of holes, and rows: an array of more than 32 has no default.
const ROW: usize = 32;
const ROWS: usize = WINDOW as usize / 64 / ROW;
/// Event direction: a VM of this host began to send.
pub const TX: u32 = 0;
/// Event direction: a VM of this host began to receive.
pub const RX: u32 = 1;
/// Event direction: a receiver allows a pair that sends from here another rate.
pub const LIMIT: u32 = 2;

/// Class of what VMs send, in the HTB that divides the uplink.
pub const UPLINK_VMS: u32 = 0x3e1_0010;
/// The same for what the host itself sends.
pub const UPLINK_HOST: u32 = 0x3e1_0020;
/// The same for what of that must not wait: neighbour discovery, and agents' messages.
pub const UPLINK_URGENT: u32 = 0x3e1_0030;

/// Nodes of the tree of departure times; in HTB only pairs have any.
pub const NODES: u32 = 9216;
/// The first node of a pair.
pub const FIRST_PAIR: u32 = 4096;
/// The first node of a VM's external queue.
pub const FIRST_EXTERNAL: u32 = 8192;

/// A type that is nothing but octets: valid for every bit pattern, and without padding.
///
/// # Safety
///
/// The type must be `repr(C)` or a primitive, hold integers only, and have no padding.
pub unsafe trait Plain: Copy + Default {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}

macro_rules! shared {
    ($(#[$doc:meta])* $name:ident, $size:literal, { $($(#[$fdoc:meta])* $field:ident: $t:ty),* $(,)? }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t),* }
        const _: () = assert!(size_of::<$name>() == $size, "intf.h says otherwise");
        // The fields' sizes sum to the whole: no padding.
        const _: () = assert!(0 $(+ size_of::<$t>())* == $size, "padding is not octets");
        // SAFETY: repr(C), integers only, no padding (asserted above).
        unsafe impl Plain for $name {}
    };
}

/// A copy of a pair's entry, as `bpf/gather.bpf.c` tells it: `struct weir_told_tx`, `weir_told_rx`;
/// and `weir_eyeq_told_limit`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Told<V> {
    /// Zero: there is no such pair, and the rest is old.
    pub is_there: u64,
    /// Copy of the entry.
    pub entry: V,
}

// SAFETY: repr(C), a word and octets; the entries that are told are whole words, so nothing is
// between.
unsafe impl<V: Plain> Plain for Told<V> {}
const _: () = assert!(size_of::<Told<Tx>>() == 312 && size_of::<Told<Rx>>() == 656);

/// Pairs that are asked for in one run.
pub const ASKED: u32 = 1024;

pub(crate) use shared;

shared!(
    /// All traffic from one VM to another.
    Pair, 8, {
        /// The sending VM.
        src: u32,
        /// The receiving VM.
        dst: u32,
    }
);
shared!(
    /// An address in network order: IPv6, or IPv4 as `::ffff:a.b.c.d`.
    Address, 16, {
        /// As on the wire.
        octets: [u8; 16],
    }
);
shared!(
    /// VM of an address.
    Endpoint, 24, {
        /// The VM.
        vm: u32,
        /// Its tenant.
        tenant: u32,
        /// [`LOCAL`], [`BEST_EFFORT`], [`AT_MAC`].
        flags: u32,
        /// Its hardware address with [`AT_MAC`]: six octets and two of padding.
        mac: [u8; 8],
        /// Index of its host's [`Timed`].
        host: u32,
    }
);
shared!(
    /// A range of addresses outside the cloud, as one tenant sees it.
    Prefix, 28, {
        /// How many bits of the rest count: [`PREFIX_HEAD`] and those of the address.
        bits: u32,
        /// Tenant that sees it.
        tenant: u32,
        /// 4 or 6.
        family: u32,
        /// The first address.
        address: Address,
    }
);
shared!(
    /// Endpoint that stands for the outside.
    Outside, 32, {
        /// The endpoint.
        endpoint: Endpoint,
        /// Index of its places; of an endpoint of this host only.
        slot: u32,
        /// `skb->priority` of packets without a class of their own; only for an endpoint of this
        /// host.
        default_class: u32,
    }
);
shared!(
    /// Address and port of an agent.
    Control, 20, {
        /// The host's address.
        address: Address,
        /// The UDP port in network order; 0 says that there is one.
        port: u32,
    }
);
shared!(
    /// Entries in the tables of pairs that belong to one VM.
    Places, 48, {
        /// Sending pairs that the kernel made.
        tx_made: u64,
        /// Receiving pairs that the kernel made.
        rx_made: u64,
        /// Sending pairs that are gone again.
        tx_gone: u64,
        /// Receiving pairs that are gone again.
        rx_gone: u64,
        /// Time at which the strays so far would have left at their rate, on the kernel's monotonic
        /// clock.
        stray_ns: u64,
        /// The same of what pairs sent while they waited for a class.
        moment_ns: u64,
    }
);
shared!(
    /// A VM's port, or one that leads outside and that the endpoints of several tenants share.
    Port, 48, {
        /// The VM.
        vm: u32,
        /// Its tenant.
        tenant: u32,
        /// Index of its counters.
        slot: u32,
        /// `skb->priority` of packets without a class of their own.
        default_class: u32,
        /// `skb->priority` of ARP, neighbour discovery and DHCP requests.
        control_class: u32,
        /// `skb->priority` of external traffic.
        external_class: u32,
        /// [`OUTWARD`], [`FIXED_MAC`], [`BARE`], [`KEEP_DSCP`], [`RESTORE_DSCP`].
        flags: u32,
        /// Places of each of its VMs in `tx`, and as many in `rx`.
        max_pairs: u32,
        /// Rate that its strays share, bit/s; 0: no bound.
        stray_bps: u32,
        /// Octets that its pairs may send ahead while they wait for a class; 0: no bound.
        moment: u32,
        /// The only source address with [`FIXED_MAC`]: six octets and two of nothing.
        mac: [u8; 8],
    }
);
shared!(
    /// Settings of all programs.
    Settings, 32, {
        /// A gap that stays open for this long is a loss.
        reorder_ns: u64,
        /// [`ECN`], [`OBSERVE`].
        flags: u32,
        /// Octets that a tunnel behind the ports adds to each packet to another host.
        overhead: u32,
        /// Bit n: a tenant may be tagged with DSCP n.
        code_points: u64,
        /// The index of the uplink that HTB divides between VMs and host; 0: none.
        divided: u32,
        /// One packet to each host in so many microseconds carries its departure time; 0: none does.
        timed_us: u32,
    }
);
shared!(
    /// A TCP connection as its packets come in whose ends agreed on ECN.
    Flow, 36, {
        /// From.
        src: Address,
        /// To.
        dst: Address,
        /// In network order.
        src_port: [u8; 2],
        /// In network order.
        dst_port: [u8; 2],
    }
);
shared!(
    /// Counters of a port.
    PortCounters, 168, {
        /// Octets from the VM, passed on.
        tx_octets: u64,
        /// The same in segments.
        tx_segments: u64,
        /// Octets to the VM, all of it.
        rx_octets: u64,
        /// The same in segments.
        rx_segments: u64,
        /// Packets dropped because the source is not the VM's.
        spoofed: u64,
        /// Packets dropped because they are truncated or not what they say.
        malformed: u64,
        /// Packets to the default class that belong to no pair and go to no place.
        unclassified: u64,
        /// Packets to the control class.
        control: u64,
        /// Packets to the VM that belong to no pair and are not from outside.
        foreign: u64,
        /// Packets that found no room for a new sending pair.
        tx_full: u64,
        /// Packets that found no room for a new receiving pair.
        rx_full: u64,
        /// Events that found the ring full.
        events_lost: u64,
        /// Packets dropped because they came from another MAC address than the VM's.
        spoofed_mac: u64,
        /// Packets dropped because they went to an agent.
        control_denied: u64,
        /// Packets dropped because their pairs have no class and the VM's rate for strays is used
        /// up.
        stray: u64,
        /// Packets of no pair and to no place that were dropped because that rate is used up.
        unpaired: u64,
        /// Packets dropped that only a router or a DHCP server may send.
        rogue: u64,
        /// Packets dropped that go to a VM's address at another VM's hardware address.
        misdirected: u64,
        /// Octets to the external class.
        external_tx: u64,
        /// Octets to the VM from addresses that no directory lists.
        external_rx: u64,
        /// Segments dropped because they exceeded their pairs' floors while no agent lived.
        unleased: u64,
    }
);
shared!(
    /// A pair whose source is here.
    Tx, 304, {
        /// Octets on the wire, before the shaper.
        octets: u64,
        /// Of these, TCP segments that only acknowledge.
        acks_octets: u64,
        /// How many segments all are.
        segments: u64,
        /// Time of the last event for the agent, on the kernel's monotonic clock.
        told_ns: u64,
        /// Segments stamped.
        sequence: u32,
        /// The kernel's; reads as zero.
        lock: u32,
        /// Octets that left with a number.
        numbered: u64,
        /// Octets that left without a number: IPv6, fragments.
        unnumbered: u64,
        /// Segments that its queue in HTB dropped.
        dropped: u64,
        /// Time since which it sends without a class, on the kernel's monotonic clock; 0 if it has
        /// one.
        stray_ns: u64,
        /// Mark of its last packet of data that left the host.
        data_left: u16,
        /// Mark of its last acknowledgement that left.
        acks_left: u16,
        /// The packet with this number carries it, and no time. Gather does not copy it.
        untimed: u32,
        /// Time up to which drained octets are subtracted from its queue, or when something last
        /// left it, on the kernel's monotonic clock.
        seen_ns: u64,
        /// When its data, and its acknowledgements, were last gone or seen to move.
        moved_ns: [u64; 2],
        /// Rate at which it drains in any case since then; 0 if nothing waits. Gather copies the
        /// fields of its queue beside it only if it is not 0.
        bps: u64,
        /// Time since which `passed` octets have left.
        since_ns: u64,
        /// Bit/s at which it drained before that; 0 if not known.
        rate: u64,
        /// Bit/s at which acknowledgements are taken from their flows while data waits.
        acks_bps: u64,
        /// Time up to which they were.
        acks_seen_ns: u64,
        /// See `since_ns`.
        passed: u32,
        /// What had left when the last packet came, or [`UNSEEN`](weir_core::backlog::UNSEEN).
        left: u32,
        /// Octets let in, of data and of acknowledgements.
        let_in: [u32; 2],
        /// Octets of data that wait in its queue, by flows.
        data: [u32; PARTS],
        /// Octets of acknowledgements that wait beside the data, by flows.
        acks: [u32; PARTS],
        /// Octets of both that wait.
        waits: [u32; 2],
        /// Octets of both that have drained and were not taken from a flow yet.
        owed: [u32; 2],
    }
);
shared!(
    /// A pair whose destination is here.
    Rx, 648, {
        /// Octets on the wire.
        octets: u64,
        /// The same in segments.
        segments: u64,
        /// Segments missing in the sequence for longer than the window.
        lost: u64,
        /// Segments with the congestion mark.
        ce: u64,
        /// Segments that came after later ones (or twice).
        reordered: u64,
        /// Jumps too far for the ring.
        resyncs: u64,
        /// Packets that no Weir host numbered: far from the sequence, which went on without them.
        strange: u64,
        /// Segments missing before and between doubtful packets.
        missed: u64,
        /// When the youngest hole appeared, on the kernel's monotonic clock.
        gap_ns: u64,
        /// All holes before `aged` had appeared by then.
        aged_ns: u64,
        /// A bit per missing segment, at its number modulo [`WINDOW`].
        holes: [[u64; ROW]; ROWS],
        /// How many bits are set.
        missing: u32,
        /// An identification.
        aged: u32,
        /// The next identification.
        expected: u32,
        /// 0: `expected` is unknown. Else 1 and how far it has moved since then, up to a bound.
        synced: u32,
        /// The kernel's; reads as zero.
        lock: u32,
        /// Segments that had a number, or seemed to; wraps around.
        numbered: u32,
        /// Packets far from the sequence since it last went on.
        doubts: u32,
        /// The identification after the last of them.
        doubt: u32,
        /// Segments of timed packets that may have overtaken numbered ones.
        ahead: u32,
        /// Holes that are no losses, because timed packets had these numbers.
        owed: u32,
        /// By when its offer would have carried what arrived. Gather does not copy it, nor the
        /// field beside it.
        spared_due_ns: u64,
        /// What had arrived at the last marked packet.
        spared_octets: u64,
    }
);
shared!(
    /// Timed packets to and from another host.
    Timed, 24, {
        /// When the last one left, on the kernel's monotonic clock.
        left_ns: u64,
        /// The least delayed of each window that came: microseconds, shifted by 16, and its time. 0: none.
        least: [u64; 2],
    }
);
shared!(
    /// Level of a node of the tree of departure times, in bit/s on layer 2 without FCS. For a pair
    /// in HTB: ceiling and both limits, with HTB's burst.
    Level, 56, {
        /// Floor.
        floor: u64,
        /// Ceiling; 0: there is no such node.
        ceiling: u64,
        /// The ceiling when the agent has not renewed its lease.
        fallback: u64,
        /// Longest wait in a leaf, or longest time ahead for which an inner node lends;
        /// nanoseconds.
        limit_ns: u64,
        /// Octets that may wait in a leaf.
        limit: u64,
        /// The node that lends.
        parent: u64,
        /// Octets that the class of a pair in HTB may send ahead of its ceiling.
        ahead: u64,
    }
);
shared!(
    /// A leaf of that tree. Times are on the kernel's monotonic clock.
    Queue, 64, {
        /// When the last packet leaves.
        departs_ns: u64,
        /// Time at which the last packet that used the floor was due by it.
        floor_ns: u64,
        /// Octets accepted.
        octets: u64,
        /// The same in segments.
        segments: u64,
        /// Segments that the full queue dropped.
        dropped: u64,
        /// When the last packet came.
        seen_ns: u64,
        /// Octets that waited then, with it.
        backlog: u32,
        /// Octets of the last packet.
        last: u32,
        /// Octets of the last one that used the floor.
        floor_last: u32,
        /// The kernel's; reads as zero.
        lock: u32,
    }
);
shared!(
    /// Event of the ring.
    Event, 16, {
        /// The pair.
        pair: Pair,
        /// [`TX`], [`RX`] or [`LIMIT`].
        direction: u32,
        /// 0: the two VMs share no hose.
        same_tenant: u32,
    }
);

impl Tx {
    /// Octets that certainly wait in its class of HTB at `now_ns`, if the class may have sent
    /// `ahead` of its ceiling, and how many of them are acknowledgements. `None`: nothing may wait,
    /// or it is not known what does.
    pub fn waiting(&self, now_ns: u64, ahead: u64) -> Option<(u64, u64)> {
        if self.bps == 0 {
            return None;
        }
        let backlog = Backlog {
            seen: self.seen_ns,
            moved: self.moved_ns,
            bps: self.bps,
            since: self.since_ns,
            rate: self.rate,
            acks_bps: self.acks_bps,
            acks_seen: self.acks_seen_ns,
            passed: self.passed,
            left: self.left,
            let_in: self.let_in,
            data: self.data,
            acks: self.acks,
            waits: self.waits,
            owed: self.owed,
        };
        let ahead = if backlog.is_seen() { 0 } else { ahead };
        let left = u32::from(self.acks_left) << 16 | u32::from(self.data_left);
        let [data, acks] = backlog.waiting(now_ns, left);
        let octets = (data + acks).checked_sub(ahead).filter(|octets| *octets > 0)?;
        Some((octets, acks.min(octets)))
    }
}

impl Rx {
    /// A word of the ring of holes.
    pub fn word(&self, word: usize) -> u64 {
        self.holes[word / ROW][word % ROW]
    }

    /// Holes that have been open for [`SILENCE`] times `reorder_ns` by `now_ns` while no packet
    /// came that would have counted them as lost. The time is long, because a path that stands
    /// still loses nothing.
    pub fn overdue(&self, now_ns: u64, reorder_ns: u64) -> u64 {
        let reorder_ns = reorder_ns.saturating_mul(SILENCE);
        // A packet may have come after the reader looked at its clock.
        let is_over = |since| now_ns.checked_sub(since).is_some_and(|age| age >= reorder_ns);
        if self.missing == 0 || !is_over(self.aged_ns) {
            return 0;
        }
        let owed = u64::from(self.owed);
        if is_over(self.gap_ns) {
            return u64::from(self.missing).saturating_sub(owed);
        }
        // The places of the ring from `expected` on hold the oldest segments; those from `aged` on
        // are too young.
        let young = (self.expected as u16).wrapping_sub(self.aged as u16);
        let old = WINDOW.saturating_sub(young.into());
        let is_hole = |place: u32| {
            let place = (self.expected + place) % WINDOW;
            self.word(place as usize / 64) >> (place % 64) & 1
        };
        (0..old).map(is_hole).sum::<u64>().saturating_sub(owed)
    }
}

impl Event {
    /// Reads one event of the ring; `None` if it has another length.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        if octets.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: as long as an `Event` (checked), which is valid for every bit pattern.
        Some(unsafe { octets.as_ptr().cast::<Self>().read_unaligned() })
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        let octets = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self { octets }
    }
}

impl From<weir_units::PairId> for Pair {
    fn from(pair: weir_units::PairId) -> Self {
        Self { src: pair.src.0, dst: pair.dst.0 }
    }
}

impl From<Pair> for weir_units::PairId {
    fn from(pair: Pair) -> Self {
        Self::new(weir_units::VmId(pair.src), weir_units::VmId(pair.dst))
    }
}
