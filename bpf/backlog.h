/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How long a pair's queue in HTB is, in time.
 *
 * The queue of a class is a bfifo, bounded in octets: seconds at 0.3 Mbit/s. A
 * shorter one would drop every super-packet. So classify knows of each pair
 * when its queue would be empty, if the class got its ceiling all the time.
 * What finds that too far away is dropped, before it has a number: it is no
 * loss of the network's. What does not is let in, whatever its size.
 *
 * HTB may run ahead of the ceiling by its burst, which no clock here knows: the
 * agent adds the burst to both bounds. As long as the class gets its ceiling,
 * that is exact: the clock is behind by what was sent ahead. If others want
 * the uplink and it gets less, the clock is too fast, and the bfifo's own bound
 * is what is left.
 *
 * A class so fast that its full queue lasts no time to speak of has no limit
 * in time (0), and its packets pay for none.
 *
 * A new pair has its small start, and its floor after the first partitioning.
 * What comes meanwhile may wait for that: no limit in time holds before.
 *
 * Octets wait, and not times: when the ceiling changes, what waits lasts longer
 * or shorter. What the bfifo has no room for does not wait.
 */
#ifndef WEIR_BACKLOG_H
#define WEIR_BACKLOG_H

/* So long after it last asked for a class a pair is new: two partitionings. */
#define YOUTH_NS 120000000ull

/* The pair has no queue of its own, or a fast one: the next one begins empty. */
static __always_inline void forget_backlog(struct weir_tx *pair)
{
	if (pair->empty_ns)
		pair->empty_ns = 0;
}

/*
 * Whether what waits of the pair would keep a packet waiting for too long. If
 * not, it waits, too.
 */
static __always_inline int is_backlogged(struct weir_tx *pair, __u32 class, __u32 octets,
					 __u32 segments)
{
	/* A class of departure times has no such node: it wraps around. */
	__u32 node = (class & 0xffff) - WEIR_HTB_PAIRS + WEIR_PAIRS;
	struct weir_level *level = bpf_map_lookup_elem(&levels, &node);
	/* Read once: the agent writes them meanwhile. */
	__u64 bps = level ? *(volatile __u64 *)&level->ceiling : 0;
	__u64 limit_ns = level ? *(volatile __u64 *)&level->limit_ns : 0;
	__u64 now, span, wait;
	int is_long;

	if (!bps || !limit_ns) {
		forget_backlog(pair);
		return 0;
	}
	span = time_for(octets, bps);
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&pair->lock);
	wait = pair->empty_ns > now ? pair->empty_ns - now : 0;
	if (pair->bps != bps) {
		wait = wait * pair->bps / bps;
		pair->empty_ns = now + wait;
		pair->bps = bps;
	}
	is_long = now - pair->told_ns >= YOUTH_NS && is_too_long(wait, limit_ns, octets, bps);
	if (is_long)
		pair->dropped += segments;
	else if ((wait + span) * bps <= level->limit * OCTET)
		pair->empty_ns = now + wait + span;
	bpf_spin_unlock(&pair->lock);
	return is_long;
}

#endif
