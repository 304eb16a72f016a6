// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * mark: on the egress of an emulated switch's port, before its queue. An object
 * of its own, for experiments only: real switches mark by themselves.
 *
 * A virtual queue receives the same packets as the port and drains at a little
 * less than the port's rate. A packet that finds more than a threshold in it
 * gets the congestion mark if it is ECN-capable. So senders that answer marks
 * leave the port's real queue empty.
 *
 * Packets that are not ECN-capable pass unmarked, whatever the virtual queue
 * holds. SYNs are such packets, and a flow whose SYN is dropped because of
 * others would never start. If the real queue is full, it drops them.
 *
 * The backlog is capped at half a threshold above the threshold. Senders that
 * ignore marks could pile up seconds, and later senders would be marked for as
 * long.
 *
 * The backlog is stored as the time at which it will have drained, so that
 * draining needs no timer.
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "mark.h"
#include "parse.h"

/* ifindex -> port. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_mark_port);
} mark_ports SEC(".maps");

/* slot -> queue. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct weir_mark_queue);
} mark_queues SEC(".maps");

/* Puts a packet into the virtual queue; whether it found too much there. */
static __always_inline int found_too_much(struct weir_mark_queue *queue,
					  const struct weir_mark_port *port,
					  const struct packet *p, __u64 now)
{
	__u64 cost = (p->octets * port->octet_ns) >> 16;
	__u64 backlog;
	int above;

	bpf_spin_lock(&queue->lock);
	backlog = queue->empty_ns > now ? queue->empty_ns - now : 0;
	above = backlog > port->threshold_ns;
	backlog += cost;
	if (backlog > port->most_ns)
		backlog = port->most_ns;
	queue->empty_ns = now + backlog;
	queue->segments += p->segments;
	if (above && !p->ecn)
		queue->spared += p->segments;
	bpf_spin_unlock(&queue->lock);
	return above;
}

SEC("tc")
int lab_mark(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 ifindex = skb->ifindex;
	struct weir_mark_queue *queue;
	struct weir_mark_port *port;
	struct packet p = {};
	enum kind kind;

	port = bpf_map_lookup_elem(&mark_ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	queue = bpf_map_lookup_elem(&mark_queues, &port->slot);
	if (!queue)
		return TC_ACT_UNSPEC;
	kind = parse(skb, &p);
	if (!found_too_much(queue, port, &p, now))
		return TC_ACT_UNSPEC;
	if ((kind != KIND_IP4 && kind != KIND_IP6) || !p.ecn || p.ecn == ECN_MASK)
		return TC_ACT_UNSPEC;
	if (!bpf_skb_ecn_set_ce(skb))
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&queue->lock);
	queue->marked += p.segments;
	bpf_spin_unlock(&queue->lock);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
