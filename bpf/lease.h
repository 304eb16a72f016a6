/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The agent's heartbeat, and what pairs may send without it.
 *
 * An agent that watches for congestion lent each pair what exceeds its floor.
 * When the agent has not renewed its lease for LEASE_NS, nothing watches, and
 * every pair goes back to its floor. Departure times have a fallback for that
 * (see depart.bpf.c). HTB has none: a class keeps its ceiling until a process
 * lowers it, and that process may be dead, too. So classify drops what exceeds
 * the floor of a pair in HTB, before it has a number. It does not count as a
 * loss of the network.
 *
 * The same holds on a port whose packets may miss the shaper (WEIR_BARE),
 * because another process changed the plumbing and the agent cannot restore it.
 *
 * A heartbeat of 0 has not begun: no agent has lent anything yet.
 */
#ifndef WEIR_LEASE_H
#define WEIR_LEASE_H

#define LEASE_NS 1000000000ull

/*
 * When the agent was last known to live, on the kernel's monotonic clock.
 * Written by the agent only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

/*
 * node -> when what its pair sent would have left at the pair's floor. The
 * kernel's own, moved by compare-and-swap; used without a lease only. Size: agent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NODES);
	__type(key, __u32);
	__type(value, __u64);
} unleased SEC(".maps");

/* The last heartbeat. */
static __always_inline __u64 last_beat(void)
{
	__u32 zero = 0;
	__u64 *beat = bpf_map_lookup_elem(&lease, &zero);
	/* Read once: the agent writes it meanwhile. */
	return beat ? *(volatile __u64 *)beat : 0;
}

/* Whether a pair in HTB is held to its floor, and this packet is beyond it. */
static __always_inline int is_unleased(const struct weir_port *port, __u32 class, __u32 octets)
{
	/* A class of departure times has no such node: it wraps around. */
	__u32 node = (class & 0xffff) - WEIR_HTB_PAIRS + WEIR_PAIRS;
	struct weir_level *level;
	__u64 beat, bps, *clock;

	if (!(port->flags & WEIR_BARE)) {
		beat = last_beat();
		/* The coarse clock is late by a few milliseconds, and costs next to nothing. */
		if (!beat || bpf_ktime_get_coarse_ns() <= beat + LEASE_NS)
			return 0;
	}
	level = bpf_map_lookup_elem(&levels, &node);
	clock = bpf_map_lookup_elem(&unleased, &node);
	bps = level ? *(volatile __u64 *)&level->floor : 0;
	return clock && is_ahead(clock, octets, bps, STRAY_AHEAD);
}

#endif
