/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Bounds a pair's queue in HTB in time, by flows.
 *
 * A class has two bfifos that take turns, for data and for acknowledgements,
 * bounded in octets. That is seconds at 0.3 Mbit/s and 100 ms at 10 Mbit/s. So
 * classify keeps a model of both in the pair's entry. What is let in carries a mark in
 * skb->tc_index, which survives the shaper; stamp, behind it, writes the mark
 * into the pair's entry, and all that was let in before has left the queue, or
 * was dropped on its way. classify drops what the law (see backlog_law.h) does
 * not let in, before it has a number, so it does not count as a loss of the
 * network.
 *
 * No stamp sees what stays within the host, or what a tunnel without a name or a
 * translation after the port hides from it. There the model drains at the class's
 * ceiling. HTB may run ahead of that by its burst (`ahead`), and so much more is
 * let in. If others want the uplink and the class gets less, the model
 * drains too fast, and the bfifo's own bound remains.
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
/* In skb->tc_index, beside the mark. */
#define MARK_OF_ACK 0x8000u

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

/* Not before its first packet; never, where a tunnel or a translation hides the pair from stamp. */
static __always_inline int was_stamped(const struct weir_tx *pair)
{
	return *(volatile __u64 *)&pair->numbered || *(volatile __u64 *)&pair->unnumbered;
}

/* The marks of a pair's packets that left the shaper last. stamp writes them meanwhile. */
static __always_inline __u32 pair_left(const struct weir_tx *pair)
{
	return (__u32)*(volatile __u16 *)&pair->acks_left << 16 |
	       *(volatile __u16 *)&pair->data_left;
}

/* A packet of a pair has left the shaper. One in 32768 has the mark 0, and the next one says it. */
static __always_inline void note_left(struct __sk_buff *skb, struct weir_tx *pair)
{
	__u32 mark = skb->tc_index;

	if (!mark)
		return;
	skb->tc_index = 0;
	if (mark & MARK_OF_ACK)
		*(volatile __u16 *)&pair->acks_left = mark & MARKS;
	else
		*(volatile __u16 *)&pair->data_left = mark;
}

/* Whether the pair's queue is too long for a packet. If not, the packet is added to it. */
static __always_inline int is_backlogged(struct __sk_buff *skb, struct packet *p,
					 struct weir_tx *pair, __u32 class, int is_within)
{
	/* A class of departure times has no such node: it wraps around. */
	__u32 node = (class & 0xffff) - WEIR_HTB_PAIRS + WEIR_PAIRS;
	struct weir_level *level = bpf_map_lookup_elem(&levels, &node);
	struct weir_arrival arrival = { .octets = p->octets, .left = UNSEEN };
	struct weir_bound bound = {};
	int is_new, is_let_in;
	__u32 mark;

	/* Read once: the agent writes them meanwhile. */
	if (level) {
		bound.bps = *(volatile __u64 *)&level->ceiling;
		bound.limit_ns = *(volatile __u64 *)&level->limit_ns;
		bound.room = *(volatile __u64 *)&level->limit;
		bound.floor = *(volatile __u64 *)&level->floor;
		bound.ahead = *(volatile __u64 *)&level->ahead;
	}
	if (!bound.bps || !bound.limit_ns) {
		forget_backlog(pair);
		return 0;
	}
	arrival.hash = bpf_get_hash_recalc(skb);
	arrival.is_ack = is_acknowledgement(skb, p);
	arrival.now = bpf_ktime_get_ns();
	/* Where the agent only observes there is no queue, and what one would drop is counted. */
	if (!is_within && !observes() && was_stamped(pair))
		arrival.left = pair_left(pair);
	is_new = arrival.now - pair->told_ns < YOUTH_NS;
	bpf_spin_lock(&pair->lock);
	is_let_in = backlog_admits(&pair->backlog, &bound, &arrival, is_new);
	mark = backlog_mark(arrival.is_ack ? pair->backlog.acks_in : pair->backlog.data_in);
	if (!is_let_in)
		pair->dropped += p->segments;
	bpf_spin_unlock(&pair->lock);
	skb->tc_index = mark | (arrival.is_ack ? MARK_OF_ACK : 0);
	return !is_let_in;
}

#endif
