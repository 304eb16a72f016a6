/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Bounds a pair's queue in HTB in time, by flows.
 *
 * A class has two bfifos that take turns, for data and for acknowledgements,
 * bounded in octets. That is seconds at 0.3 Mbit/s and 100 ms at 10 Mbit/s. So
 * classify keeps a model of both in the pair's entry. The model drains at the
 * class's ceiling. classify drops what the law (see backlog_law.h) does not let
 * in, before it has a number, so it does not count as a loss of the network.
 *
 * HTB may run ahead of the ceiling by its burst, which no clock here knows, so
 * the agent adds the burst to both bounds. While the class gets its ceiling the
 * bound is exact: the model is behind by what was sent ahead. If others want
 * the uplink and the class gets less, the model drains too fast, and the
 * bfifo's own bound remains.
 *
 * A fast class whose full queue lasts less than a millisecond has no limit in
 * time (0), and its packets pay for none.
 *
 * A new pair has its small start, and its floor after the first partitioning.
 * Its packets may wait for that: no limit in time holds before.
 */
#ifndef WEIR_BACKLOG_H
#define WEIR_BACKLOG_H

#include "backlog_law.h"

/* A pair is new for this long after it last asked for a class: two partitionings. */
#define YOUTH_NS 120000000ull
/* An acknowledgement's length, as the IP header says it, is less. */
#define ACK_MOST 128

/* The pair has no queue of its own, or a fast one: the next one begins empty. */
static __always_inline void forget_backlog(struct weir_tx *pair)
{
	if (pair->backlog.bps)
		pair->backlog.bps = 0;
}

/*
 * Whether a packet waits with the acknowledgements: TCP in less than 128 octets
 * that ends no connection, and without a VLAN tag. The queue has the same rule
 * (crates/dataplane/src/nl/pair_queue.rs).
 */
static __always_inline int is_acknowledgement(struct __sk_buff *skb, struct packet *p)
{
	__u32 header = p->version == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 before = p->version == 4 ? p->l3 : p->l4; /* IPv6's length is without its header */
	__u8 flags;

	if (skb->vlan_present || p->l3 != sizeof(struct ethhdr) || skb->len - before >= ACK_MOST ||
	    p->l4 - p->l3 != header)
		return 0;
	flags = tcp_flags(skb, p);
	return flags && !(flags & (TCP_FIN | TCP_RST));
}

/* Whether the pair's queue is too long for a packet. If not, the packet is added to it. */
static __always_inline int is_backlogged(struct __sk_buff *skb, struct packet *p,
					 struct weir_tx *pair, __u32 class)
{
	/* A class of departure times has no such node: it wraps around. */
	__u32 node = (class & 0xffff) - WEIR_HTB_PAIRS + WEIR_PAIRS;
	struct weir_level *level = bpf_map_lookup_elem(&levels, &node);
	struct weir_arrival arrival = { .octets = p->octets };
	struct weir_bound bound = {};
	int is_new, is_let_in;

	/* Read once: the agent writes them meanwhile. */
	if (level) {
		bound.bps = *(volatile __u64 *)&level->ceiling;
		bound.limit_ns = *(volatile __u64 *)&level->limit_ns;
		bound.room = *(volatile __u64 *)&level->limit;
	}
	if (!bound.bps || !bound.limit_ns) {
		forget_backlog(pair);
		return 0;
	}
	arrival.hash = bpf_get_hash_recalc(skb);
	arrival.is_ack = is_acknowledgement(skb, p);
	arrival.now = bpf_ktime_get_ns();
	is_new = arrival.now - pair->told_ns < YOUTH_NS;
	bpf_spin_lock(&pair->lock);
	is_let_in = backlog_admits(&pair->backlog, &bound, &arrival, is_new);
	if (!is_let_in)
		pair->dropped += p->segments;
	bpf_spin_unlock(&pair->lock);
	return !is_let_in;
}

#endif
