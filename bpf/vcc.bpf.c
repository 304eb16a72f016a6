// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * vCC on a VM's port: two programs, an object of their own.
 *
 *   VM -> port -> [from] -> bridge         VM <- [to] <- port <- bridge
 *
 * Each gives a TCP segment and the state of its connection to the law
 * (vcc_law.h), and writes the law's answer into the headers: the window, the
 * ECN flags, the ECN field of IP. Checksums follow, also those that a device is
 * still to compute. Sequence numbers and payload do not change.
 *
 * A connection has a place in its port's table from the first SYN on, in either
 * direction; only a SYN takes one. A connection that finds no place, or that
 * others push out, is not translated from then on. It goes on, but if its ends
 * had agreed on ECN in a guest's place, marks that come to that guest are not
 * echoed. Each port has a table of its own: a VM that opens many connections
 * pushes out its own, and no neighbour's.
 *
 * A connection that a peer begins has its place in a second, smaller table
 * until both ends have answered. So SYNs of foreign senders, under any address,
 * push out each other, and no established connection.
 *
 * Where a port asks for nothing, connections with a place keep what they began
 * with, and no others take one.
 *
 * A packet that cannot be translated passes unchanged: other protocols,
 * fragments, truncated packets. But a guest that is policed sends no fragments
 * of TCP, because their octets could not be counted. And none of its SYNs
 * changes the state of a connection: an agreed window stays agreed. Options do
 * not change, except for the reports of `dctcp` (vcc_report.h).
 *
 * A super-packet with CWR has it once: Linux leaves it on the first segment
 * only. A device that segments by itself may put it on all of them.
 *
 * They pass with TC_ACT_UNSPEC, as the programs of weir.bpf.c do.
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "forget.h"
#include "intf.h"
#include "parse.h"
#include "tcp.h"

/* A lock is held where the law is asked, and then kernels allow no calls. */
#define VCC_PART static __always_inline int
#include "vcc_law.h"
#include "vcc.h"
#include "vcc_budget.h"
#include "clock.h"
#include "vcc_floor.h"

#define LAW_FLAGS 0x1ffu /* of the two octets that hold the header's length, too */
#define ANY_SLACK (~0u)
#define LOCKS 1024

/* ifindex -> port. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_vcc_port);
} vcc_ports SEC(".maps");

/* slot -> counters. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_vcc_counters);
} vcc_counters SEC(".maps");

/*
 * connection -> state. Preallocated, 64 octets each and what the kernel adds. Size: loader.
 * By sizes, for clang does not describe types that only this names.
 */
struct vcc_table {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct weir_flow));
	__uint(value_size, sizeof(struct weir_vcc_flow));
};

/* slot -> the connections of its port. Size, and tables: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 64);
	__type(key, __u32);
	__array(values, struct vcc_table);
} vcc_flows SEC(".maps");

/* slot -> connections that a peer began, and that are not established. Size, and tables: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 64);
	__type(key, __u32);
	__array(values, struct vcc_table);
} vcc_halves SEC(".maps");

struct lock {
	struct bpf_spin_lock lock;
};

/*
 * A connection's lock is one of these, by its name. Both directions change its
 * state, on any CPU, and a lock in the state would make it larger than a cache
 * line. The table may give a place to another connection while a program uses
 * it; the kernel does not report that, and the lock does not prevent it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCKS);
	__type(key, __u32);
	__type(value, struct lock);
} vcc_locks SEC(".maps");

#include "vcc_read.h"

/* Writes two octets of TCP's header, and what they do to its checksum. */
static __always_inline int write_field(struct __sk_buff *skb, const struct packet *p, __u32 at,
				       __be16 before, __be16 after)
{
	if (bpf_l4_csum_replace(skb, p->l4 + offsetof(struct tcp_head, check), before, after,
				sizeof(after)))
		return -1;
	return bpf_skb_store_bytes(skb, p->l4 + at, &after, sizeof(after), 0);
}

/* Writes the ECN field. In IPv4 the octets up to the checksum go at once. */
static __always_inline int write_ecn(struct __sk_buff *skb, struct packet *p,
				     struct headers *headers, __u8 ecn)
{
	struct ip4_start *ip = &headers->ip;
	__be16 before = ip->tos;
	__u32 sum;

	if (!headers->is_ip4) {
		set_ecn(skb, p, 0, ecn);
		return 0;
	}
	ip->tos = (before & ~bpf_htons(ECN_MASK)) | bpf_htons(ecn);
	/* RFC 1624: sums of complements, whose carries come back in below. */
	sum = (__u16)~ip->check + (__u16)~before + ip->tos;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	return bpf_skb_store_bytes(skb, p->l3, ip, sizeof(*ip), 0);
}

#include "vcc_report.h"

/* What options say to the law. A function of its own, as those of vcc_read.h. */
__attribute__((noinline)) int read_told(struct __sk_buff *skb, const struct headers *headers,
					struct weir_vcc_segment *segment)
{
	__u32 at, end;

	if (!headers || !segment)
		return 0;
	at = headers->l4 + TCP_HEADER;
	end = headers->l4 + (bpf_ntohs(headers->tcp.flags) >> 12 << 2);
	if (segment->flags & TCP_SYN)
		read_options(skb, at, end, segment);
	if (!segment->octets)
		hear_report(skb, at, end, segment);
	return 0;
}

/* What the law sees of a segment; not 0 if its header is no TCP. */
static __always_inline int read_segment(struct __sk_buff *skb, const struct headers *headers,
					struct weir_vcc_segment *segment)
{
	__u32 flags = bpf_ntohs(headers->tcp.flags);
	__u32 header = flags >> 12 << 2;

	if (header < TCP_HEADER || headers->l4 + header > headers->end)
		return -1;
	segment->seq = bpf_ntohl(headers->tcp.seq);
	segment->ack = bpf_ntohl(headers->tcp.ack);
	segment->octets = headers->end - headers->l4 - header;
	segment->window = bpf_ntohs(headers->tcp.window);
	segment->flags = flags & LAW_FLAGS;
	segment->ecn = headers->ecn;
	/* Reports are where no data is, and behind other options than timestamps alone. */
	if (flags & TCP_SYN || (!segment->octets && !headers->is_bare))
		read_told(skb, headers, segment);
	return 0;
}

/* What window a connection may have. */
static __always_inline __u32 share_of(const struct weir_vcc_port *port,
				      const struct weir_flow *name)
{
	const __u32 *bounds = bpf_map_lookup_elem(&vcc_bounded, &port->slot);
	const struct weir_vcc_budget *budget;
	__u32 share = port->terms.share;

	if (!bounds || !*bounds)
		return share;
	budget = bpf_map_lookup_elem(&vcc_budgets, &port->slot);
	return budget ? vcc_share(budget, name) : share;
}

/* Whether a port asks for anything that a new connection needs a place for. */
static __always_inline int asks_for_any(const struct weir_vcc_port *port, __u32 share)
{
	return port->terms.translation != VCC_NONE || share != WEIR_VCC_ANY_SHARE ||
	       port->slack != ANY_SLACK;
}

/*
 * Gives a connection a place, among those that a peer began or among all others;
 * not 0 if that failed. A function of its own, for what it has on the stack.
 */
__attribute__((noinline)) int take_place(__u32 slot, const struct weir_flow *name, int is_asked)
{
	void *halves = bpf_map_lookup_elem(&vcc_halves, &slot);
	void *table = bpf_map_lookup_elem(&vcc_flows, &slot);
	struct weir_vcc_flow fresh = {};
	struct weir_flow key;

	if (!table || !name)
		return -1;
	/* Kernels before 6.2 take no key from a caller's stack. */
	key = *name;
	if (is_asked && halves)
		return bpf_map_update_elem(halves, &key, &fresh, BPF_NOEXIST) != 0;
	return bpf_map_update_elem(table, &key, &fresh, BPF_NOEXIST) != 0;
}

/*
 * Moves a connection that a peer began, and that is established now, to the others.
 * A segment that passes on another CPU meanwhile may count for nothing.
 */
__attribute__((noinline)) int keep_place(__u32 slot, const struct weir_flow *name)
{
	void *halves = bpf_map_lookup_elem(&vcc_halves, &slot);
	void *table = bpf_map_lookup_elem(&vcc_flows, &slot);
	struct weir_vcc_flow *half, state;
	struct weir_flow key;

	if (!halves || !table || !name)
		return -1;
	key = *name;
	half = bpf_map_lookup_elem(halves, &key);
	if (!half)
		return -1;
	state = *half;
	if (bpf_map_update_elem(table, &key, &state, BPF_NOEXIST))
		return -1;
	return bpf_map_delete_elem(halves, &key) != 0;
}

/* The state of a connection that a peer began, until it is established. */
static __always_inline struct weir_vcc_flow *half_of(__u32 slot, const struct weir_flow *name)
{
	void *halves = bpf_map_lookup_elem(&vcc_halves, &slot);

	return halves ? bpf_map_lookup_elem(halves, name) : 0;
}

/* The state of a connection; none if it has none and this is not its beginning. */
static __always_inline struct weir_vcc_flow *flow_at(const struct weir_vcc_port *port, __u32 share,
						     const struct weir_flow *name,
						     const struct weir_vcc_segment *segment,
						     struct weir_vcc_counters *counters)
{
	void *table = bpf_map_lookup_elem(&vcc_flows, &port->slot);
	int is_asked = segment->way == VCC_IN;
	struct weir_vcc_flow *flow;

	if (!table)
		return 0;
	flow = bpf_map_lookup_elem(table, name);
	if (flow)
		return flow;
	flow = half_of(port->slot, name);
	if (flow && !vcc_is_established(flow))
		return flow;
	if (flow) {
		/* Another CPU may be first: then its entry is found. */
		keep_place(port->slot, name);
		return bpf_map_lookup_elem(table, name);
	}
	if ((segment->flags & (VCC_SYN | VCC_ACK | VCC_RST)) != VCC_SYN ||
	    !asks_for_any(port, share)) {
		__sync_fetch_and_add(&counters->unknown, 1);
		return 0;
	}
	/* The same here. */
	if (!take_place(port->slot, name, is_asked)) {
		__sync_fetch_and_add(&counters->begun, 1);
		if (is_asked)
			__sync_fetch_and_add(&counters->asked, 1);
	}
	flow = is_asked ? half_of(port->slot, name) : 0;
	if (!flow)
		flow = bpf_map_lookup_elem(table, name);
	if (!flow)
		__sync_fetch_and_add(&counters->full, 1);
	return flow;
}

/* Counts what has become of a connection with this segment: it opened, or is left alone. */
static __always_inline void count_phase(__u8 before, __u8 after, __u32 flags,
					struct weir_vcc_counters *counters)
{
	if (before != VCC_ALONE && after == VCC_ALONE)
		__sync_fetch_and_add(&counters->alone, 1);
	if (before >= VCC_OPEN || after < VCC_OPEN)
		return;
	if (flags & VCC_ECN)
		__sync_fetch_and_add(&counters->agreed, 1);
	else if (flags & VCC_SPEAKS)
		__sync_fetch_and_add(&counters->speaking, 1);
	else
		__sync_fetch_and_add(&counters->deaf, 1);
}

/* Its index among the locks: any mixture of what differs between connections will do. */
static __always_inline __u32 lock_of(const struct weir_flow *name)
{
	__u32 mixed = name->src.words[2] ^ name->src.words[3] ^ name->dst.words[3] ^
		      ((__u32)name->src_port << 16 | name->dst_port);

	mixed *= 0x9e3779b1u;
	return mixed >> 22;
}

/*
 * Whether a guest sends what no window that it was shown allows, nor the slack.
 * One octet may always pass: so guests ask whether a closed window has opened. So do SYNs,
 * which may begin another connection, and a FIN that follows the last octet.
 */
static __always_inline int is_beyond_window(const struct weir_vcc_flow *flow,
					    const struct weir_vcc_segment *segment, __u32 slack)
{
	if (slack == ANY_SLACK || segment->way != VCC_OUT || segment->octets <= 1 ||
	    vcc_has(segment, VCC_SYN) || !vcc_is_established(flow))
		return 0;
	return vcc_past(segment->seq + vcc_payload(segment), flow->edge + slack);
}

/*
 * Whether a guest's SYN would make the law forget a window that it agreed on: one
 * within an established connection, or one that says again, but without a scale,
 * what a SYN before it said with one. The answer of the peer tells which it heard.
 */
static __always_inline int is_void(const struct weir_vcc_flow *flow,
				   const struct weir_vcc_segment *segment, __u32 slack)
{
	if (slack == ANY_SLACK || segment->way != VCC_OUT || !vcc_has(segment, VCC_SYN) ||
	    vcc_is_over(flow))
		return 0;
	if (vcc_is_established(flow))
		return 1;
	return flow->phase == VCC_OPENING && vcc_is(flow, VCC_SYN_OUT) &&
	       segment->seq + 1 == flow->una &&
	       (segment->scale > 0) != vcc_is(flow, VCC_SCALE_OUT);
}

/* Flags and window lie beside each other: one write, whichever of them changes. */
static __always_inline int write_flags(struct __sk_buff *skb, const struct packet *p,
				       const struct tcp_head *tcp, __be16 flags, __be16 window)
{
	struct {
		__be16 flags;
		__be16 window;
	} before = { tcp->flags, tcp->window }, after = { flags, window };
	__u32 from, to;

	__builtin_memcpy(&from, &before, sizeof(from));
	__builtin_memcpy(&to, &after, sizeof(to));
	if (bpf_l4_csum_replace(skb, p->l4 + offsetof(struct tcp_head, check), from, to,
				sizeof(to)))
		return -1;
	return bpf_skb_store_bytes(skb, p->l4 + offsetof(struct tcp_head, flags), &after,
				   sizeof(after), 0);
}

/* Makes the segment what the law wants it to be; not 0 if that failed. */
static __always_inline int write_segment(struct __sk_buff *skb, struct packet *p,
					 struct headers *headers,
					 const struct weir_vcc_segment *segment,
					 const struct weir_vcc_edit *edit)
{
	const struct tcp_head *tcp = &headers->tcp;
	__be16 flags = (tcp->flags & ~bpf_htons(LAW_FLAGS)) | bpf_htons(edit->flags);
	__u32 size = report_size(segment);
	int failed = 0;

	if (edit->what & (VCC_EDIT_WINDOW | VCC_EDIT_FLAGS))
		failed |= write_flags(skb, p, tcp, flags, bpf_htons(edit->window));
	if (edit->what & VCC_EDIT_ECN)
		failed |= write_ecn(skb, p, headers, edit->ecn);
	if (segment->way == VCC_OUT && edit->what & VCC_EDIT_TELL && !segment->octets)
		failed |= add_report(skb, p, headers->is_ip4, bpf_ntohs(flags), size, edit);
	if (segment->way == VCC_IN && edit->what & VCC_EDIT_TAKE)
		failed |= take_report(skb, p, headers->is_ip4, bpf_ntohs(flags), size);
	return failed;
}

/* Read anew each time: kept, it would take some of the stack. */
static __always_inline __u32 length_of(struct __sk_buff *skb)
{
	return *(volatile __u32 *)&skb->len;
}

/*
 * What the law wants is forgotten: headers are written in one way, and not in
 * one for each way through it.
 */
static __always_inline void forget_edit(struct __sk_buff *skb, struct weir_vcc_edit *edit)
{
	__u32 any = length_of(skb);

	edit->window = forgotten(edit->window, any);
	edit->flags = forgotten(edit->flags, any) & LAW_FLAGS;
	edit->ecn = forgotten(edit->ecn, any) & ECN_MASK;
	edit->what = forgotten(edit->what, any);
}

static __always_inline int translate(struct __sk_buff *skb, __u8 way)
{
	struct weir_vcc_segment segment = {};
	struct weir_vcc_counters *counters;
	__u32 key = skb->ifindex, flags, was, lived, lives;
	__u8 before, after;
	struct weir_vcc_terms terms;
	struct weir_vcc_flow *flow;
	struct weir_vcc_port *port;
	struct weir_vcc_edit edit = {};
	struct headers headers = {};
	const struct weir_flow *name = &headers.name;
	struct packet p = {};
	struct lock *lock;
	int beyond, is_nothing, read;
	__u32 slack;

	port = bpf_map_lookup_elem(&vcc_ports, &key);
	if (!port)
		return TC_ACT_UNSPEC;
	counters = bpf_map_lookup_elem(&vcc_counters, &port->slot);
	if (!counters)
		return TC_ACT_UNSPEC;
	read = read_plain(skb, way, &headers);
	if (!read)
		read = read_any(skb, way, &headers);
	if (read == READ_FRAGMENT && way == VCC_OUT && port->slack != ANY_SLACK) {
		__sync_fetch_and_add(&counters->fragments, 1);
		return TC_ACT_SHOT;
	}
	if (read < 0)
		return TC_ACT_UNSPEC;
	if (!read || read_segment(skb, &headers, &segment)) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_UNSPEC;
	}
	segment.way = way;
	p.l3 = headers.l3;
	p.l4 = headers.l4;
	p.ecn = headers.ecn;
	terms = port->terms;
	/* It bounds what a guest is shown; and a SYN takes a place where there is one. */
	if (way == VCC_IN || segment.flags & VCC_SYN)
		terms.share = share_of(port, name);
	if (way == VCC_IN && segment.flags & VCC_ECE)
		terms.is_within = vcc_is_within(port->vm, name);
	flow = flow_at(port, terms.share, name, &segment, counters);
	key = lock_of(name);
	lock = bpf_map_lookup_elem(&vcc_locks, &key);
	if (!flow || !lock)
		return TC_ACT_UNSPEC;
	if (way == VCC_OUT && segment.octets)
		vcc_spend(skb->priority, skb->len);
	segment.at = bpf_ktime_get_ns() >> 20;
	/* Removed, so that no port believes a report that a guest made. */
	if (way == VCC_OUT && segment.told && flow->phase != VCC_ALONE &&
	    (terms.translation != VCC_NONE || flow->translation != VCC_NONE)) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_SHOT;
	}
	slack = port->slack;
	bpf_spin_lock(&lock->lock);
	beyond = is_beyond_window(flow, &segment, slack);
	is_nothing = is_void(flow, &segment, slack);
	before = flow->phase;
	was = flow->flags;
	lived = vcc_lives(flow, segment.at);
	if (!beyond && !is_nothing)
		vcc_handle(flow, &segment, &terms, &edit);
	after = flow->phase;
	flags = flow->flags;
	lives = vcc_lives(flow, segment.at);
	bpf_spin_unlock(&lock->lock);
	if (lives != lived)
		vcc_turn(port->slot);
	if (beyond) {
		__sync_fetch_and_add(&counters->policed, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&counters->segments, 1);
	if (is_nothing) {
		__sync_fetch_and_add(&counters->repeated, 1);
		return TC_ACT_UNSPEC;
	}
	forget_edit(skb, &edit);
	count_phase(before, after, flags, counters);
	if (was & VCC_SPEAKS && flags & VCC_ECN)
		__sync_fetch_and_add(&counters->found, 1);
	if (!edit.what)
		return TC_ACT_UNSPEC;
	if (write_segment(skb, &p, &headers, &segment, &edit)) {
		__sync_fetch_and_add(&counters->unedited, 1);
		return TC_ACT_UNSPEC;
	}
	__sync_fetch_and_add(&counters->edited, 1);
	if (edit.what & VCC_EDIT_WINDOW)
		__sync_fetch_and_add(&counters->lowered, 1);
	if (edit.what & VCC_EDIT_TAKE && !(segment.flags & VCC_SYN))
		__sync_fetch_and_add(&counters->reports, 1);
	if (edit.what & VCC_EDIT_ECN && segment.ecn == VCC_CE)
		__sync_fetch_and_add(&counters->hidden, 1);
	return TC_ACT_UNSPEC;
}

/* On a port's ingress: what a guest sends. */
SEC("tc")
int weir_vcc_from(struct __sk_buff *skb)
{
	return translate(skb, VCC_OUT);
}

/* On a port's egress: what a guest is sent. */
SEC("tc")
int weir_vcc_to(struct __sk_buff *skb)
{
	return translate(skb, VCC_IN);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
