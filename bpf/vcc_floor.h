/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whether a pair sends no more than its floor. If so, marks do not lower its
 * connections' windows. The same as `Credit` of crates/core/src/vcc/credit.rs,
 * which gives the reason; a change of one needs a change of the other.
 *
 * classify finds the pair of a packet from the guest, and the addresses show
 * the pair of a packet to it. Where no agent shapes, the maps are empty and no
 * packet has a pair. A pair whose other end is outside the cloud has no credit.
 *
 * Needs clock.h.
 */
#ifndef WEIR_VCC_FLOOR_H
#define WEIR_VCC_FLOOR_H

#define CREDIT_SAVED_NS 250000000ull
#define CREDIT_DEBT_NS 10000000ull

/* The maps of weir.bpf.c, where it is there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, struct weir_address);
	__type(value, struct weir_endpoint);
} endpoints SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, struct weir_pair);
	__type(value, __u32);
} classes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_level);
} levels SEC(".maps");

/*
 * node -> time by which its pair's floor would have carried what was sent, ns
 * since boot. Size: loader, as that of levels.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} vcc_credits SEC(".maps");

/* The node of a class, in either shaper; no pair's node is 0. */
static __always_inline __u32 node_of(__u32 class)
{
	__u32 low = class & 0xffff;

	if (class >> 16 != 1 || low < WEIR_PAIRS)
		return 0;
	return low < WEIR_HTB_PAIRS ? low : low - WEIR_HTB_PAIRS + WEIR_PAIRS;
}

/* Floor of a pair, bit/s; 0: none. */
static __always_inline __u64 floor_of(__u32 node)
{
	struct weir_level *level = node ? bpf_map_lookup_elem(&levels, &node) : 0;

	/* Read once: the agent writes it meanwhile. */
	return level ? *(volatile __u64 *)&level->floor : 0;
}

/* Books octets that a pair sends. A function of its own, because of the caller's stack. */
__attribute__((noinline)) int vcc_spend(__u32 class, __u32 octets)
{
	__u32 node = node_of(class);
	__u64 floor = floor_of(node), now, due, from;
	__u64 *credit = bpf_map_lookup_elem(&vcc_credits, &node);

	if (!floor || !credit)
		return 0;
	now = bpf_ktime_get_ns();
	due = *(volatile __u64 *)credit;
	from = later(due, now > CREDIT_SAVED_NS ? now - CREDIT_SAVED_NS : 0);
	/* If another CPU sends of the pair at this moment, one of both is not counted. */
	__sync_val_compare_and_swap(credit, due,
				    earlier(from + time_for(octets, floor), now + CREDIT_DEBT_NS));
	return 0;
}

/* Whether the pair from `vm` to a connection's peer has sent no more than its floor. */
__attribute__((noinline)) int vcc_is_within(__u32 vm, const struct weir_flow *name)
{
	struct weir_pair pair = { .src = vm };
	struct weir_endpoint *peer;
	struct weir_address remote;
	__u64 *credit;
	__u32 *class, node;

	if (!name)
		return 0;
	/* Kernels before 6.2 take no key from a caller's stack. */
	remote = name->src;
	peer = bpf_map_lookup_elem(&endpoints, &remote);
	if (!peer)
		return 0;
	pair.dst = peer->vm;
	class = bpf_map_lookup_elem(&classes, &pair);
	if (!class)
		return 0;
	node = node_of(*class);
	credit = bpf_map_lookup_elem(&vcc_credits, &node);
	return credit && floor_of(node) && *(volatile __u64 *)credit <= bpf_ktime_get_ns();
}

#endif
