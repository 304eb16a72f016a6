/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * depart: a part of stamp, on the uplink's egress. It limits without classes:
 * it computes when a packet may leave and writes that into skb->tstamp. The fq
 * qdisc behind it holds the packet until then. It acts only where the agent has
 * chosen departure times. Otherwise the uplink has no level, and every packet
 * passes unchanged (backlog.h has the use of levels then).
 *
 * The rule is HTB's, in times. There is a tree: uplink, VMs, queues. Each node
 * has two clocks that show when it is free again: one runs at its floor, one at
 * its ceiling. A packet may leave
 *
 *   when its own ceiling allows, and
 *   when its floor allows, or, if that is earlier, when its parent lends.
 *
 * A clock that lags behind is set to now: an idle node saves nothing.
 *
 * The rule does not say which of several nodes gets what is lent. Here the
 * first packet to come gets it; HTB shares by weights.
 *
 * A packet that finds its queue full is dropped before it gets a number,
 * because our own drops are not the network's losses. fq's bounds are so far
 * above ours that it never drops. A queue is full if it holds its bound of
 * octets, or if the wait is too long.
 *
 * A departure time that was given cannot be taken back. That is why waits are
 * short, and why a queue stores the last packet's size and not the moment at
 * which it is free: when the rate is raised, the next packet uses the new rate.
 *
 * What the host itself sends (storage, migration) has a queue beneath the
 * uplink if it has a floor. Agents' messages wait in no queue.
 *
 * When the agent has not renewed its lease for LEASE_NS, ceilings fall back:
 * for pairs, to the floor. No process needs to be alive for that.
 */

#define FEEDBACK 253  /* the protocol of EyeQ's feedback */
#define WEIR_MAJOR 1u /* the high half of a class */
#define UNSORTED 2u  /* the queue of our packets without a class */
#define HOST 3u	     /* the queue of the host's own packets */
#define DEBT_NS 1000000000ull /* an inner node's clock runs ahead by no more */
#define TRIES 8
/*
 * The class of a packet that has departed into a tunnel, with its tag in the
 * low six bits: no node is named so.
 */
#define DEPARTED (WEIR_MAJOR << 16 | 64u)

static __always_inline int is_departed(__u32 class)
{
	return (class & ~63u) == DEPARTED;
}

/* node -> its queue, for leaves. Written by the kernel side. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES);
	__type(key, __u32);
	__type(value, struct weir_queue);
} queues SEC(".maps");

/* When an inner node is free again. The kernel's own, moved by compare-and-swap. */
struct clocks {
	__u64 ceiling_ns;
	__u64 floor_ns;
};

/* node -> its clocks, for the uplink and VMs. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES);
	__type(key, __u32);
	__type(value, struct clocks);
} clocks SEC(".maps");

/* Books `span` on an inner node's clock. */
static __always_inline void book(__u64 *clock, __u64 now, __u64 span)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 before = *(volatile __u64 *)clock;
		__u64 from = earlier(later(before, now), now + DEBT_NS);

		if (__sync_val_compare_and_swap(clock, before, from + span) == before)
			return;
	}
	/* Too many CPUs at once. The clock is not behind, since one of them has just set it. */
	__sync_fetch_and_add(clock, span);
}

static __always_inline int is_lease_over(__u64 now)
{
	return now > last_beat() + LEASE_NS;
}

/*
 * Whether an agent sent the packet: what keeps floors does not wait. Datagrams
 * are told by their port, EyeQ's feedback by its protocol.
 */
static __always_inline int is_of_an_agent(struct __sk_buff *skb, struct packet *p)
{
	struct weir_control at = { .address = p->src };
	__be16 port;

	if (p->protocol == FEEDBACK)
		return is_host(&p->src);
	if (p->protocol != IPPROTO_UDP || p->fragment ||
	    bpf_skb_load_bytes(skb, p->l4, &port, sizeof(port)))
		return 0;
	at.port = port;
	return port && bpf_map_lookup_elem(&controls, &at);
}

/* The queue of a packet that comes from no VM: the host's own, if that has a floor. */
static __always_inline __u32 host_queue(struct __sk_buff *skb, struct packet *p)
{
	__u32 node = HOST;
	struct weir_level *level = bpf_map_lookup_elem(&levels, &node);

	return level && level->ceiling && !is_of_an_agent(skb, p) ? HOST : 0;
}

/*
 * The queue of a packet: the class that classify chose, or, where routing has
 * overwritten that, the one that its addresses give. 0: the packet waits in no
 * queue.
 */
static __always_inline __u32 queue_of(struct __sk_buff *skb, struct packet *p, struct ends *ends,
				      __u32 priority)
{
	struct weir_pair pair;
	__u32 *class;

	if (priority >> 16 == WEIR_MAJOR)
		return priority & 0xffff;
	if (!ends->from)
		return host_queue(skb, p);
	if (!(ends->from->flags & WEIR_LOCAL))
		return 0;
	if (!ends->to)
		return UNSORTED;
	pair.src = ends->from->vm;
	pair.dst = ends->to->vm;
	class = bpf_map_lookup_elem(&classes, &pair);
	return class ? *class & 0xffff : UNSORTED;
}

/* A loan of an inner node, and the node that gets it. */
struct loan {
	__u64 from_ns;	 /* from when on; NEVER: not now */
	__u32 own_floor; /* on the VM's own floor, not what the uplink lends */
};

static __always_inline __u64 bounded(__u64 at, __u64 now, struct weir_level *level)
{
	return at - now > level->limit_ns ? NEVER : at;
}

/* `vm` may be missing: then the uplink is the parent. */
static __always_inline void ask(struct loan *loan, __u64 now, struct weir_level *uplink,
				struct clocks *uplink_clocks, struct weir_level *vm,
				struct clocks *vm_clocks)
{
	__u64 uplink_lends = bounded(later(now, uplink_clocks->ceiling_ns), now, uplink);
	__u64 floor;

	loan->from_ns = uplink_lends;
	loan->own_floor = 0;
	if (!vm || !vm_clocks)
		return;
	floor = later(now, vm_clocks->floor_ns);
	loan->own_floor = floor <= uplink_lends;
	loan->from_ns = later(earlier(floor, uplink_lends), vm_clocks->ceiling_ns);
	if (loan->from_ns != NEVER)
		loan->from_ns = bounded(loan->from_ns, now, vm);
}

/*
 * Octets that still wait. They leave one after the other until departs_ns; a
 * uniform rate is assumed, which is exact while the rate stays. The caller
 * holds the lock.
 */
static __always_inline __u64 waiting(struct weir_queue *queue, __u64 now)
{
	if (queue->departs_ns <= now)
		return 0;
	return queue->backlog * (queue->departs_ns - now) / (queue->departs_ns - queue->seen_ns);
}

/*
 * Whether a packet would wait for too long. However short the bound is, twelve
 * full frames may wait behind the one that leaves, as in HTB: TCP finds a loss
 * by duplicates only if some can be on their way. But no packet waits longer
 * than 250 ms.
 */
static __always_inline int waits_too_long(const struct weir_queue *queue,
					  const struct weir_level *level, __u64 wait,
					  __u32 octets, __u64 bps)
{
	__u64 limit = level->limit_ns;

	if (wait > limit)
		limit = later(limit, earlier(time_for(SHORTEST_QUEUE + queue->last, bps),
					     LONGEST_WAIT_NS));
	return is_too_long(wait, limit, octets, bps);
}

/*
 * Puts a packet into its queue. Returns its departure, or NEVER if the queue is
 * full; `*own` says whether it leaves on the queue's own floor.
 */
static __always_inline __u64 enqueue(struct weir_queue *queue, struct weir_level *level,
				     __u32 octets, __u32 segments, __u64 now, __u64 lent,
				     __u32 *own)
{
	__u64 bps = is_lease_over(now) ? level->fallback : level->ceiling;
	__u64 ceiling, floor, at, backlog;

	bpf_spin_lock(&queue->lock);
	ceiling = later(now, queue->departs_ns + time_for(queue->last, bps));
	floor = later(now, queue->floor_ns + time_for(queue->floor_last, level->floor));
	*own = floor <= lent;
	at = later(ceiling, *own ? floor : lent);
	backlog = waiting(queue, now);
	if (waits_too_long(queue, level, at - now, octets, bps) ||
	    backlog > level->limit + spare(octets)) {
		queue->dropped += segments;
		at = NEVER;
	} else {
		queue->departs_ns = at;
		queue->last = octets;
		if (*own) {
			queue->floor_ns = floor;
			queue->floor_last = octets;
		}
		queue->octets += octets;
		queue->segments += segments;
		queue->seen_ns = now;
		queue->backlog = backlog + octets;
	}
	bpf_spin_unlock(&queue->lock);
	return at;
}

/*
 * Whether a packet of this queue is to be dropped. Sets its departure if not.
 * A function of its own, so that the verifier looks at it once, and not again
 * for every way through the parser.
 */
__attribute__((noinline)) int weir_depart(struct __sk_buff *skb, __u32 node, __u32 octets,
					  __u32 segments)
{
	__u32 root = UPLINK, parent, own;
	struct weir_level *uplink, *level, *vm = 0;
	struct clocks *uplink_clocks, *vm_clocks = 0;
	struct weir_queue *queue;
	struct loan loan;
	__u64 now, at;

	uplink = bpf_map_lookup_elem(&levels, &root);
	if (!uplink)
		return 0;
	level = bpf_map_lookup_elem(&levels, &node);
	if (!level || !level->ceiling) {
		/* Its pair was forgotten while the packet was on its way from the port. */
		node = UNSORTED;
		level = bpf_map_lookup_elem(&levels, &node);
	}
	queue = bpf_map_lookup_elem(&queues, &node);
	uplink_clocks = bpf_map_lookup_elem(&clocks, &root);
	if (!level || !queue || !uplink_clocks)
		return 0;
	parent = level->parent;
	if (parent != UPLINK) {
		vm = bpf_map_lookup_elem(&levels, &parent);
		vm_clocks = bpf_map_lookup_elem(&clocks, &parent);
	}

	now = bpf_ktime_get_ns();
	ask(&loan, now, uplink, uplink_clocks, vm, vm_clocks);
	at = enqueue(queue, level, octets, segments, now, loan.from_ns, &own);
	if (at == NEVER)
		return 1;
	book(&uplink_clocks->ceiling_ns, now, time_for(octets, uplink->ceiling));
	if (vm && vm_clocks) {
		book(&vm_clocks->ceiling_ns, now, time_for(octets, vm->ceiling));
		if (own || loan.own_floor)
			book(&vm_clocks->floor_ns, now, time_for(octets, vm->floor));
	}
	skb->tstamp = at;
	return 0;
}

/* Whether the agent has chosen departure times. */
static __always_inline int has_departures(void)
{
	__u32 root = UPLINK;
	struct weir_level *uplink = bpf_map_lookup_elem(&levels, &root);

	return uplink && uplink->ceiling;
}

/* Whether the packet is to be dropped. Sets its departure if not. */
static __always_inline int depart(struct __sk_buff *skb, struct packet *p, struct ends *ends,
				  __u32 priority)
{
	__u32 node;

	if (!has_departures())
		return 0;
	node = queue_of(skb, p, ends, priority);
	return node && weir_depart(skb, node, p->octets, p->segments);
}
