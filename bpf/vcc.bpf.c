// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * vCC on a VM's port: two programs, an object of their own.
 *
 *   VM -> port -> [from] -> bridge         VM <- [to] <- port <- bridge
 *
 * Each shows a segment of TCP to the law (vcc_law.h) together with what is known
 * of its connection, and writes into the headers what the law answers: the
 * window, the ECN flags, the ECN field of IP. Checksums follow, also those that
 * a device is still to compute. Numbers and payload stay as they are.
 *
 * A connection has a place in its port's table from the first SYN on, in either
 * direction; nothing but a SYN takes one. Who finds none, or was pushed out by
 * others, is left alone from then on. It goes on, but if its ends had agreed on
 * ECN in a guest's place, marks that come to that guest are echoed by nobody.
 * Each port has a table of its own: a VM that opens many connections pushes out
 * its own, and no neighbour's.
 *
 * Where a port asks for nothing (any more), connections that have a place keep
 * what they began with, and no others take one.
 *
 * What cannot be translated passes as it is: no TCP, fragments, and what is cut
 * short. Options stay as they are, but for the reports of `dctcp` (vcc_report.h).
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

#define TCP_HEADER 20
#define TCP_OPTIONS 40 /* as many as fit into a header: fillers have an octet each */
#define OPTION_END 0
#define OPTION_NOTHING 1
#define OPTION_MSS 2
#define OPTION_SCALE 3
#define OPTION_STAMPS 8
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

struct lock {
	struct bpf_spin_lock lock;
};

/*
 * A connection's lock is one of these, by its name: both directions change its
 * state, on any CPU, and a lock in the state would make it larger than a line
 * of the cache. A place that is given to another connection in the very moment
 * in which somebody looks at it is not kept from him: the kernel's table does
 * not say so.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCKS);
	__type(key, __u32);
	__type(value, struct lock);
} vcc_locks SEC(".maps");

/* TCP's header as it is on the wire. */
struct tcp_head {
	__be16 src_port;
	__be16 dst_port;
	__be32 seq;
	__be32 ack;
	__be16 flags; /* and the header's length */
	__be16 window;
	__be16 check;
	__be16 urgent;
};
_Static_assert(sizeof(struct tcp_head) == TCP_HEADER, "no padding");

/* Where the packet ends: frames may be longer, to be as long as Ethernet wants them. */
static __always_inline __u32 end_of(struct __sk_buff *skb, const struct packet *p, int is_ip4)
{
	__u32 at = p->l3 + (is_ip4 ? offsetof(struct iphdr, tot_len)
				   : offsetof(struct ipv6hdr, payload_len));
	__be16 length;

	/* Zero is how a super-packet beyond 64 kB says its length. */
	if (bpf_skb_load_bytes(skb, at, &length, sizeof(length)) || !length)
		return skb->len;
	return p->l3 + bpf_ntohs(length) + (is_ip4 ? 0 : sizeof(struct ipv6hdr));
}

/* The options of a header: where the next one begins, where they end, and what was found. */
struct options {
	struct __sk_buff *skb;
	__u32 at;
	__u32 end;
	__u16 mss;
	__u8 scale;
	__u8 stamps;
	__u32 last; /* where the last one began */
};

/* Reads one; not 0 if it was the last. */
static long read_option(__u32 n, void *context)
{
	struct options *options = context;
	struct __sk_buff *skb = options->skb;
	__u32 at = options->at;
	__u8 option[2] = {}; /* kind, length */
	__be16 mss;
	__u8 scale;

	(void)n;
	if (at >= options->end || bpf_skb_load_bytes(skb, at, option, 1) ||
	    option[0] == OPTION_END)
		return 1;
	if (option[0] == OPTION_NOTHING) {
		options->at = at + 1;
		return 0;
	}
	if (at + 2 > options->end || bpf_skb_load_bytes(skb, at, option, sizeof(option)) ||
	    option[1] < 2 || at + option[1] > options->end)
		return 1;
	if (option[0] == OPTION_MSS && option[1] == 4 &&
	    !bpf_skb_load_bytes(skb, at + 2, &mss, sizeof(mss)))
		options->mss = bpf_ntohs(mss);
	/* As receivers have it: more than 14 counts as 14 (RFC 7323). */
	if (option[0] == OPTION_SCALE && option[1] == 3 &&
	    !bpf_skb_load_bytes(skb, at + 2, &scale, sizeof(scale)))
		options->scale = (scale < 14 ? scale : 14) + 1;
	if (option[0] == OPTION_STAMPS && option[1] == 10)
		options->stamps = 1;
	options->last = at;
	options->at = at + option[1];
	return 0;
}

/* What a SYN offers. In a loop the verifier would look at each way through all options. */
static __always_inline void read_options(struct __sk_buff *skb, __u32 at, __u32 end,
					 struct weir_vcc_segment *segment)
{
	struct options options = { .skb = skb, .at = at, .end = end };

	bpf_loop(TCP_OPTIONS, read_option, &options, 0);
	segment->mss = options.mss;
	segment->scale = options.scale;
	segment->stamps = options.stamps;
}

/* Writes two octets of TCP's header, and what they do to its checksum. */
static __always_inline int write_field(struct __sk_buff *skb, const struct packet *p, __u32 at,
				       __be16 before, __be16 after)
{
	if (bpf_l4_csum_replace(skb, p->l4 + offsetof(struct tcp_head, check), before, after,
				sizeof(after)))
		return -1;
	return bpf_skb_store_bytes(skb, p->l4 + at, &after, sizeof(after), 0);
}

#include "vcc_report.h"

/* What the law sees of a segment; not 0 if its header is no TCP. */
static __always_inline int read_segment(struct __sk_buff *skb, const struct packet *p, int is_ip4,
					const struct tcp_head *head,
					struct weir_vcc_segment *segment)
{
	__u32 flags = bpf_ntohs(head->flags);
	__u32 header = flags >> 12 << 2;
	__u32 end = end_of(skb, p, is_ip4);

	if (header < TCP_HEADER || p->l4 + header > end)
		return -1;
	segment->at = bpf_ktime_get_ns() >> 20;
	segment->seq = bpf_ntohl(head->seq);
	segment->ack = bpf_ntohl(head->ack);
	segment->octets = end - p->l4 - header;
	segment->window = bpf_ntohs(head->window);
	segment->flags = flags & LAW_FLAGS;
	segment->ecn = p->ecn;
	if (flags & TCP_SYN)
		read_options(skb, p->l4 + TCP_HEADER, p->l4 + header, segment);
	if (!segment->octets)
		hear_report(skb, p->l4 + TCP_HEADER, p->l4 + header, segment);
	return 0;
}

/* Whether a port asks for anything that a new connection needs a place for. */
static __always_inline int asks_for_any(const struct weir_vcc_port *port, __u32 share)
{
	return port->terms.translation != VCC_NONE || share != WEIR_VCC_ANY_SHARE ||
	       port->slack != ANY_SLACK;
}

/* The state of a connection; none if it has none and this is not its beginning. */
static __always_inline struct weir_vcc_flow *flow_at(const struct weir_vcc_port *port, __u32 share,
						     const struct weir_flow *name,
						     const struct weir_vcc_segment *segment,
						     struct weir_vcc_counters *counters)
{
	void *table = bpf_map_lookup_elem(&vcc_flows, &port->slot);
	struct weir_vcc_flow fresh = {};
	struct weir_vcc_flow *flow;

	if (!table)
		return 0;
	flow = bpf_map_lookup_elem(table, name);
	if (flow)
		return flow;
	if ((segment->flags & (VCC_SYN | VCC_ACK | VCC_RST)) != VCC_SYN ||
	    !asks_for_any(port, share)) {
		__sync_fetch_and_add(&counters->unknown, 1);
		return 0;
	}
	/* Another CPU may be first: then the second look finds its entry. */
	if (!bpf_map_update_elem(table, name, &fresh, BPF_NOEXIST))
		__sync_fetch_and_add(&counters->begun, 1);
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

/* Makes the segment what the law wants it to be; not 0 if that failed. */
static __always_inline int write_segment(struct __sk_buff *skb, struct packet *p, int is_ip4,
					 const struct tcp_head *head,
					 const struct weir_vcc_segment *segment,
					 const struct weir_vcc_edit *edit)
{
	__u32 size = report_size(segment);
	__be16 flags = (head->flags & ~bpf_htons(LAW_FLAGS)) | bpf_htons(edit->flags);
	int failed = 0;

	if (edit->what & VCC_EDIT_WINDOW)
		failed |= write_field(skb, p, offsetof(struct tcp_head, window), head->window,
				      bpf_htons(edit->window));
	if (edit->what & VCC_EDIT_FLAGS)
		failed |= write_field(skb, p, offsetof(struct tcp_head, flags), head->flags, flags);
	if (edit->what & VCC_EDIT_ECN)
		set_ecn(skb, p, is_ip4, edit->ecn);
	if (segment->way == VCC_OUT && edit->what & VCC_EDIT_TELL && !segment->octets)
		failed |= add_report(skb, p, is_ip4, bpf_ntohs(flags), size, edit);
	if (segment->way == VCC_IN && edit->what & VCC_EDIT_TAKE)
		failed |= take_report(skb, p, is_ip4, bpf_ntohs(flags), size);
	return failed;
}

/* Read anew each time: kept, it would take some of the stack. */
static __always_inline __u32 length_of(struct __sk_buff *skb)
{
	return *(volatile __u32 *)&skb->len;
}

/* Where headers are, is one way to all that follows, and not one for each kind of packet. */
static __always_inline void forget_ways(struct __sk_buff *skb, struct packet *p)
{
	__u32 any = length_of(skb);

	p->l3 = forgotten(p->l3, any);
	p->l4 = forgotten(p->l4, any);
	p->ecn = forgotten(p->ecn, any) & ECN_MASK;
}

/*
 * Likewise what was found out of a segment: the law is looked at once for SYNs, for
 * data and for all others. Not every field: each takes some of the stack, of which
 * kernels allow 512 octets to a program with all that it calls, in pieces of 32.
 */
static __always_inline void forget_segment(struct __sk_buff *skb, struct weir_vcc_segment *segment)
{
	__u32 any = length_of(skb);

	segment->octets = forgotten(segment->octets, any);
	segment->flags = forgotten(segment->flags, any) & LAW_FLAGS;
}

/* And what the law wants: headers are written in one way, and not in one for each way through it. */
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
	struct weir_vcc_segment segment = { .way = way };
	struct weir_vcc_counters *counters;
	__u32 ifindex = skb->ifindex, which, flags, was, lived, lives;
	__u8 before, after;
	struct weir_vcc_budget *budget;
	struct weir_vcc_terms terms;
	struct weir_vcc_flow *flow;
	struct weir_vcc_port *port;
	struct weir_vcc_edit edit;
	struct weir_flow name = {};
	struct packet p = {};
	struct tcp_head head;
	struct lock *lock;
	enum kind kind;
	int is_ip4, beyond;
	__u32 slack;

	port = bpf_map_lookup_elem(&vcc_ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	counters = bpf_map_lookup_elem(&vcc_counters, &port->slot);
	if (!counters)
		return TC_ACT_UNSPEC;
	kind = parse(skb, &p);
	if ((kind != KIND_IP4 && kind != KIND_IP6) || p.protocol != IPPROTO_TCP || p.fragment)
		return TC_ACT_UNSPEC;
	forget_ways(skb, &p);
	if (bpf_skb_load_bytes(skb, p.l4, &head, sizeof(head)) ||
	    flow_of(skb, &p, way == VCC_OUT, &name) ||
	    read_segment(skb, &p, kind == KIND_IP4, &head, &segment)) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_UNSPEC;
	}
	is_ip4 = forgotten(kind == KIND_IP4, length_of(skb)) & 1;
	forget_segment(skb, &segment);
	terms = port->terms;
	budget = bpf_map_lookup_elem(&vcc_budgets, &port->slot);
	if (budget)
		terms.share = vcc_share(budget, &name);
	flow = flow_at(port, terms.share, &name, &segment, counters);
	which = lock_of(&name);
	lock = bpf_map_lookup_elem(&vcc_locks, &which);
	if (!flow || !lock)
		return TC_ACT_UNSPEC;
	/* No guest's, where somebody would believe it. */
	if (way == VCC_OUT && segment.told && flow->phase != VCC_ALONE &&
	    (terms.translation != VCC_NONE || flow->translation != VCC_NONE)) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_SHOT;
	}
	slack = port->slack;
	bpf_spin_lock(&lock->lock);
	beyond = is_beyond_window(flow, &segment, slack);
	before = flow->phase;
	was = flow->flags;
	lived = vcc_lives(flow, segment.at);
	if (!beyond)
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
	forget_edit(skb, &edit);
	__sync_fetch_and_add(&counters->segments, 1);
	count_phase(before, after, flags, counters);
	if (was & VCC_SPEAKS && flags & VCC_ECN)
		__sync_fetch_and_add(&counters->found, 1);
	if (!edit.what)
		return TC_ACT_UNSPEC;
	if (write_segment(skb, &p, is_ip4, &head, &segment, &edit)) {
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
