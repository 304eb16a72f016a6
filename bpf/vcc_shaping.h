/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Window shaping: what each connection of a pair may have in flight, so that all
 * of them keep to the pair's rate without a queue. The same in Rust:
 * crates/dataplane/src/vcc/shaping.rs.
 *
 * The loader knows the rates, counts the connections and writes the windows. They
 * are leased: who raises a rate, or sees that fewer connections are left, must be
 * alive, or a small window of before would hold a guest below its floor. Once the
 * lease is over the limiter's queue shapes, as it does without.
 *
 * Needs vcc_budget.h.
 */
#ifndef WEIR_VCC_SHAPING_H
#define WEIR_VCC_SHAPING_H

/* No bound that any window reaches; but not none: the connection takes a place. */
#define WEIR_VCC_UNREACHED (WEIR_VCC_ANY_SHARE - 1)

/* The pair of a port's VM and a peer, by one of the peer's addresses. */
struct weir_vcc_peer {
	struct weir_address remote;
	__u32 slot;
};
_Static_assert(sizeof(struct weir_vcc_peer) == 20, "vcc/shaping.rs expects 20");

/* peer -> octets of window for each connection to it. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64);
	__type(key, struct weir_vcc_peer);
	__type(value, __u32);
} vcc_windows SEC(".maps");

/* slot -> until when they count, ns since boot. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} vcc_leases SEC(".maps");

/* What a connection of a port whose windows are shaped may have. A function of its own, as vcc_share. */
__attribute__((noinline)) __u32 vcc_shaped(__u32 slot, const struct weir_flow *name)
{
	struct weir_vcc_peer peer = {};
	const __u64 *until = bpf_map_lookup_elem(&vcc_leases, &slot);
	const __u32 *window;

	if (!name || !until || bpf_ktime_get_ns() > *until)
		return WEIR_VCC_UNREACHED;
	peer.remote = name->src;
	peer.slot = slot;
	window = bpf_map_lookup_elem(&vcc_windows, &peer);
	return window ? *window : WEIR_VCC_UNREACHED;
}

#endif
