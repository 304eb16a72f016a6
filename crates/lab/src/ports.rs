//! Ports: a rate and a bounded queue at every end of a link, and counters of what passes.
//!
//! Problem   A veth has no rate and no queue, and a VM's socket must not see the network's queues.
//! Approach  HTB with one class at the link's rate and a FIFO of the port's buffer in octets, or
//!           two that borrow of that class, one before the other; a filter on each VM's `eth0` that
//!           cuts the tie between a packet and its socket.
//! Promises  What passes and what is dropped at a port is counted by the kernel, exactly.
//! Not here  Shaping by a mechanism: that is the agent's.

use crate::Error;
use crate::netlink::{self, Batch, Socket, Verb};
use nix::libc;
use weir_dataplane::nl::tc::{Fixed, TCA_KIND, TCA_OPTIONS};
use weir_dataplane::nl::{Body, Device, htb};
use weir_model::scenario::Link;
use weir_units::{Bytes, Rate, Span};

/// Not 1: agents write `1:x` in a packet's priority for their own shaper, and HTB obeys a priority
/// that names a class of its own.
const HANDLE: u32 = 0x0fab_0000;
const CLASS: u32 = HANDLE | 0x10;
const LEAF: u32 = 0x0fac_0000;
/// Of a port with two queues: the class that has the link, of which `CLASS` is a child then, and
/// that of lower effort.
const WHOLE: u32 = HANDLE | 0x1;
const LOW_CLASS: u32 = HANDLE | 0x11;
const LOW_LEAF: u32 = 0x0fad_0000;

/// What filters need.
const U32: Option<&str> = Some("u32 filters (CONFIG_NET_CLS_U32, module cls_u32)");
const MIRRED: Option<&str> = Some("mirred (CONFIG_NET_ACT_MIRRED, module act_mirred)");

/// Asks for a queue with the link's rate and buffer on `interface`; for two if it is a switch's and
/// its link has `priorities`.
pub(crate) fn shape(batch: &mut Batch, interface: u32, link: &Link, is_switch: bool) {
    let device = Device { name: format!("link {}", link.name).into(), index: interface };
    batch.add_htb(&device, HANDLE, 0x10);
    let mut class = |(parent, id), rate: Rate, prio| {
        batch.set_class(&device, Verb::Create, parent, id, &class_of(rate, link.rate, prio));
    };
    let has_two = is_switch && link.queueing.priorities;
    if has_two {
        // Both live on what they borrow of the link, and HTB lends by priority.
        let own = link.rate.mul_ratio(1, 1000);
        class((HANDLE, WHOLE), link.rate, 0);
        class((WHOLE, CLASS), own, 0);
        class((WHOLE, LOW_CLASS), own, 1);
    } else {
        class((HANDLE, CLASS), link.rate, 0);
    }
    batch.set_bfifo(&device, CLASS, LEAF, link.buffer);
    if has_two {
        batch.set_bfifo(&device, LOW_CLASS, LOW_LEAF, Bytes::new(link.buffer.get() / 2));
        lower_effort(batch, interface, link);
    }
}

/// Sends what has the DSCP of lower effort (RFC 8622) to the second queue, of either version of IP.
fn lower_effort(batch: &mut Batch, interface: u32, link: &Link) {
    const CODEPOINT: u32 = 1;
    // (EtherType in network order, priority of the filter, bits from the DSCP to the end of the
    // first word)
    for (protocol, order, shift) in [(0x0008u32, 1u32, 18), (0xdd86, 2, 22)] {
        let what = format!("filter of best effort at a port of link {}", link.name);
        let info = order << 16 | protocol;
        let fixed = Fixed { index: interface, parent: HANDLE, info, handle: 0 };
        filter(batch, (&what, U32), fixed, |body| {
            body.word(1, LOW_CLASS);
            body.put(5, &selector((0x3f << shift, CODEPOINT << shift)));
        });
    }
}

/// A u32 filter.
fn filter(
    batch: &mut Batch,
    what: (&str, Option<&'static str>),
    fixed: Fixed,
    options: impl FnOnce(&mut Body<'_>),
) {
    netlink::push(batch, (libc::RTM_NEWTFILTER, Verb::Create), what, &fixed.octets(), |body| {
        body.text(TCA_KIND, "u32");
        body.nest(TCA_OPTIONS, options);
    });
}

/// `struct tc_u32_sel` with one key, (mask, value) of the network header's first word; a mask of
/// zero matches all.
fn selector((mask, value): (u32, u32)) -> [u8; 32] {
    const TC_U32_TERMINAL: u8 = 1;
    let mut selector = [0u8; 32];
    selector[0] = TC_U32_TERMINAL;
    selector[2] = 1;
    selector[16..20].copy_from_slice(&mask.to_be_bytes());
    selector[20..24].copy_from_slice(&value.to_be_bytes());
    selector
}

/// Octets that a port may send back to back after it was idle, or after its timer was late. Timers
/// here are late by up to 0.5 ms once in a thousand times. Less would lose capacity, more would
/// blur the queue behind it.
fn burst(rate: Rate) -> Bytes {
    const TWO_PACKETS: Bytes = Bytes::new(2 * 1514);
    rate.bytes_in(Span::from_micros(500)).max(TWO_PACKETS)
}

/// A class of this rate and ceiling. The class with the smaller number borrows first.
fn class_of(rate: Rate, ceiling: Rate, prio: u32) -> htb::Class {
    let ticks = |rate: Rate| htb::ticks(rate.time_for(burst(rate)));
    let per_s = |rate| htb::octets_per_second(rate).max(1);
    let (burst, cburst) = (ticks(rate), ticks(ceiling));
    htb::Class {
        rate: per_s(rate),
        ceil: per_s(ceiling),
        burst,
        cburst,
        quantum: 1514,
        prio,
        overhead: 0,
    }
}

/// Asks for a filter on a VM's `eth0` that sends a clone of each packet instead of the packet.
///
/// A packet carries a reference to its socket until it is received, across namespaces too. Without
/// this filter, TCP small queues would see the queues of switches and hold back: a flow would never
/// lose a packet there. And UDP's send buffer would make a sender wait for the network. A real VM's
/// packet leaves its socket when the host takes it. Here a redirect clones the packet, and a clone
/// belongs to no socket. The clone passes the filter a second time, where its ingress interface
/// identifies it.
pub(crate) fn detach_from_sockets(batch: &mut Batch, interface: u32, name: &str) {
    const EGRESS: u32 = 0xffff_fff3;
    const ALL_PROTOCOLS: u32 = 0x0300; // ETH_P_ALL in network order
    batch.add_clsact(&Device { name: name.into(), index: interface });
    let everything = selector((0, 0));
    let at = |priority: u32| {
        let info = priority << 16 | ALL_PROTOCOLS;
        Fixed { index: interface, parent: EGRESS, info, handle: 0 }
    };
    filter(batch, ("filter of a VM's clones", U32), at(1), |body| {
        body.word(1, 0x0001_0001);
        body.put(5, &everything);
        body.text(8, name);
    });
    // struct tc_mirred: index, capabilities, action (stolen), references, bindings; redirect to
    // egress; interface.
    let mirred: Vec<u8> =
        [0u32, 0, 4, 0, 0, 1, interface].iter().flat_map(|v| v.to_ne_bytes()).collect();
    let redirect = |body: &mut Body<'_>| {
        body.text(1, "mirred");
        body.nest(2, |body| body.put(2, &mirred));
    };
    filter(
        batch,
        ("filter that detaches a VM's packets from their sockets", MIRRED),
        at(2),
        |body| {
            body.put(5, &everything);
            body.nest(7, |body| body.nest(1, redirect));
        },
    );
}

/// What passed a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Octets sent, layer 2 without FCS.
    pub(crate) octets: u64,
    /// Packets dropped.
    pub(crate) drops: u64,
    /// Packets marked.
    pub(crate) marks: u64,
    /// Packets that a later one of their pair overtook on the link; only link boxes know.
    pub(crate) overtaken: u64,
}

/// Differences of the cumulative counters of all ports between two readings.
pub(crate) struct Counters {
    /// Last values by direction.
    last: Vec<Passed>,
}

impl Counters {
    /// For `directions` link directions (two per link).
    pub(crate) fn new(directions: usize) -> Self {
        Self { last: vec![Passed::default(); directions] }
    }

    /// How many link directions there are.
    pub(crate) fn directions(&self) -> usize {
        self.last.len()
    }

    /// What passed since the last call, by direction; `now` is what passed so far.
    pub(crate) fn step(&mut self, now: Vec<Passed>) -> Vec<Passed> {
        let delta = |(now, last): (&Passed, &Passed)| Passed {
            octets: grown(now.octets, last.octets),
            drops: grown32(now.drops, last.drops),
            marks: grown(now.marks, last.marks),
            overtaken: grown(now.overtaken, last.overtaken),
        };
        let deltas = now.iter().zip(&self.last).map(delta).collect();
        self.last = now;
        deltas
    }
}

/// The ports of one node: (interface, direction it sends in).
pub(crate) type PortList = Vec<(u32, usize)>;

/// Reads the queues of all nodes' ports into `passed`, by direction.
pub(crate) fn read_queues<'a>(
    nodes: impl Iterator<Item = (&'a mut Socket, &'a PortList)>,
    passed: &mut [Passed],
) -> Result<(), Error> {
    for (socket, ports) in nodes {
        let interfaces: Vec<u32> = ports.iter().map(|&(interface, _)| interface).collect();
        let queues = netlink::queues(socket, &interfaces)?;
        for (&(_, direction), (octets, drops)) in ports.iter().zip(queues) {
            passed[direction] = Passed { octets, drops, ..passed[direction] };
        }
    }
    Ok(())
}

/// A counter that decreased was started anew, because the queue was replaced.
fn grown(now: u64, last: u64) -> u64 {
    now.checked_sub(last).unwrap_or(now)
}

/// The kernel counts drops in 32 bits: a small step back is a wrap-around, a large one a new queue.
fn grown32(now: u64, last: u64) -> u64 {
    let wrapped = u64::from((now as u32).wrapping_sub(last as u32));
    if wrapped < 1 << 31 { wrapped } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_queue_counts_from_zero_and_a_full_counter_wraps() {
        assert_eq!(grown(150, 100), 50);
        assert_eq!(grown(10, 100), 10);
        assert_eq!(grown32(5, u64::from(u32::MAX) - 4), 10);
        assert_eq!(grown32(7, 1000), 7);
    }

    #[test]
    fn a_burst_holds_two_packets_and_half_a_millisecond() {
        assert_eq!(burst(Rate::from_mbps(1)), Bytes::new(3028));
        assert_eq!(burst(Rate::from_mbps(200)), Bytes::new(12_500));
    }
}
