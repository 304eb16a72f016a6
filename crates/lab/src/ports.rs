//! Ports: a rate and a bounded queue at every end of a link, and counters of what passes.
//!
//! Problem   A veth has no rate and no queue, and a VM's socket must not see the network's queues.
//! Approach  HTB with one class at the link's rate and a FIFO of the port's buffer in octets, or
//!           two that borrow of that class, one before the other; a filter on each VM's `eth0` that
//!           cuts the tie between a packet and its socket.
//! Promises  What passes and what is dropped at a port is counted by the kernel, exactly.
//! Not here  Shaping by a mechanism: that is the agent's.

use crate::Error;
use crate::netlink::{
    Batch, NEW, Netlink, RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER, Request, TC_ROOT, tc_header,
};
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

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

/// Asks for a queue with the link's rate and buffer on `interface`; for two if it is a switch's and
/// its link has `priorities`.
pub(crate) fn shape(batch: &mut Batch, interface: u32, link: &Link, is_switch: bool) {
    let name = &link.name;
    // struct tc_htb_glob: version, rate2quantum, default class, debug, packets that passed it by
    let glob: Vec<u8> = [3u32, 10, 0x10, 0, 0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    batch.push(
        Request::new(
            format!("shape a port of link {name}"),
            RTM_NEWQDISC,
            NEW,
            &tc_header(interface, HANDLE, TC_ROOT, 0),
        )
        .needs("HTB (CONFIG_NET_SCH_HTB, module sch_htb)")
        .attr_text(TCA_KIND, "htb")
        .nest(TCA_OPTIONS, |r| r.attr(2, &glob)),
    );
    let buffer = link.buffer.get();
    let all = Share { rate: link.rate, ceiling: link.rate, priority: 0 };
    if !(is_switch && link.queueing.priorities) {
        class(batch, interface, link, (HANDLE, CLASS), all);
        return leaf(batch, interface, link, (CLASS, LEAF), buffer);
    }
    // Both classes use what they borrow from the link, and HTB lends by priority.
    let own = Share { rate: link.rate.mul_ratio(1, 1000), ..all };
    class(batch, interface, link, (HANDLE, WHOLE), all);
    class(batch, interface, link, (WHOLE, CLASS), own);
    class(batch, interface, link, (WHOLE, LOW_CLASS), Share { priority: 1, ..own });
    leaf(batch, interface, link, (CLASS, LEAF), buffer);
    leaf(batch, interface, link, (LOW_CLASS, LOW_LEAF), buffer / 2);
    lower_effort(batch, interface, link);
}

/// Rate and ceiling of a class. The class with the smaller priority number borrows first.
#[derive(Clone, Copy)]
struct Share {
    rate: Rate,
    ceiling: Rate,
    priority: u32,
}

/// A class of a port, `at` (its parent, itself).
fn class(batch: &mut Batch, interface: u32, link: &Link, at: (u32, u32), share: Share) {
    let what = format!("give a port of link {} its rate", link.name);
    let header = tc_header(interface, at.1, at.0, 0);
    let request = Request::new(what, RTM_NEWTCLASS, NEW, &header).attr_text(TCA_KIND, "htb");
    batch.push(request.nest(TCA_OPTIONS, |r| class_options(r, share)));
}

/// The queue of a class, `at` (the class, itself).
fn leaf(batch: &mut Batch, interface: u32, link: &Link, at: (u32, u32), buffer: u64) {
    let what = format!("give a port of link {} its buffer", link.name);
    let limit = buffer.min(u64::from(u32::MAX)) as u32;
    batch.push(
        Request::new(what, RTM_NEWQDISC, NEW, &tc_header(interface, at.1, at.0, 0))
            .needs("bfifo (CONFIG_NET_SCH_FIFO)")
            .attr_text(TCA_KIND, "bfifo")
            .attr(TCA_OPTIONS, &limit.to_ne_bytes()),
    );
}

/// Sends what has the DSCP of lower effort (RFC 8622) to the second queue, of either version of IP.
fn lower_effort(batch: &mut Batch, interface: u32, link: &Link) {
    const CODEPOINT: u32 = 1;
    // (EtherType in network order, priority of the filter, bits from the DSCP to the end of the
    // first word)
    for (protocol, order, shift) in [(0x0008u32, 1u32, 18), (0xdd86, 2, 22)] {
        let what = format!("tell best effort apart at a port of link {}", link.name);
        let header = tc_header(interface, 0, HANDLE, order << 16 | protocol);
        let key = (0x3f << shift, CODEPOINT << shift);
        batch.push(
            Request::new(what, RTM_NEWTFILTER, NEW, &header)
                .needs("u32 filters (CONFIG_NET_CLS_U32, module cls_u32)")
                .attr_text(TCA_KIND, "u32")
                .nest(TCA_OPTIONS, |r| r.attr_u32(1, LOW_CLASS).attr(5, &selector(key))),
        );
    }
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

/// `struct tc_htb_opt`, and the 64-bit rates beside it.
fn class_options(request: Request, share: Share) -> Request {
    let per_s = |rate: Rate| (rate.as_bps() / 8).max(1);
    let short = |rate| u32::try_from(per_s(rate)).unwrap_or(u32::MAX);
    // struct tc_ratespec: the second octet says Ethernet, for which no rate table is needed.
    let spec = |rate: Rate| {
        let mut spec = [0u8; 12];
        spec[1] = 1;
        spec[8..12].copy_from_slice(&short(rate).to_ne_bytes());
        spec
    };
    // The kernel counts bursts in ticks of 64 ns of sending time.
    let ticks =
        |rate: Rate| (rate.time_for(burst(rate)).as_nanos() / 64).min(u64::from(u32::MAX)) as u32;
    let quantum = 1514u32;
    let mut parameters = [spec(share.rate), spec(share.ceiling)].concat();
    for value in [ticks(share.rate), ticks(share.ceiling), quantum, 0, share.priority] {
        parameters.extend_from_slice(&value.to_ne_bytes());
    }
    let mut request = request.attr(1, &parameters);
    for (attribute, rate) in [(6, share.rate), (7, share.ceiling)] {
        if short(rate) == u32::MAX {
            request = request.attr(attribute, &per_s(rate).to_ne_bytes());
        }
    }
    request
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
    const CLSACT: u32 = 0xffff_fff1;
    const EGRESS: u32 = 0xffff_fff3;
    const ALL_PROTOCOLS: u32 = 0x0300; // ETH_P_ALL in network order
    batch.push(
        Request::new(
            "hook into a VM's eth0",
            RTM_NEWQDISC,
            NEW,
            &tc_header(interface, 0xffff_0000, CLSACT, 0),
        )
        .needs("clsact (CONFIG_NET_SCH_INGRESS, module sch_ingress)")
        .attr_text(TCA_KIND, "clsact"),
    );
    let everything = selector((0, 0));
    let filter = |what: &str, priority: u32| {
        let header = tc_header(interface, 0, EGRESS, priority << 16 | ALL_PROTOCOLS);
        Request::new(what, RTM_NEWTFILTER, NEW, &header)
            .needs("u32 filters (CONFIG_NET_CLS_U32, module cls_u32)")
            .attr_text(TCA_KIND, "u32")
    };
    batch.push(
        filter("let a VM's clones pass", 1).nest(TCA_OPTIONS, |r| {
            r.attr_u32(1, 0x0001_0001).attr(5, &everything).attr_text(8, name)
        }),
    );
    // struct tc_mirred: index, capabilities, action (stolen), references, bindings; redirect to
    // egress; interface.
    let mirred: Vec<u8> =
        [0u32, 0, 4, 0, 0, 1, interface].iter().flat_map(|v| v.to_ne_bytes()).collect();
    let redirect = filter("detach a VM's packets from their sockets", 2)
        .needs("mirred (CONFIG_NET_ACT_MIRRED, module act_mirred)");
    batch.push(redirect.nest(TCA_OPTIONS, |r| {
        r.attr(5, &everything)
            .nest(7, |r| r.nest(1, |r| r.attr_text(1, "mirred").nest(2, |r| r.attr(2, &mirred))))
    }));
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
    nodes: impl Iterator<Item = (&'a mut Netlink, &'a PortList)>,
    passed: &mut [Passed],
) -> Result<(), Error> {
    for (netlink, ports) in nodes {
        let interfaces: Vec<u32> = ports.iter().map(|&(interface, _)| interface).collect();
        for (&(_, direction), (octets, drops)) in ports.iter().zip(netlink.queues(&interfaces)?) {
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
