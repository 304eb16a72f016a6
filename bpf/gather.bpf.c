// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * gather: counters of many pairs in one call. The agent reads the pairs it knows
 * some 200 times a second, and a call for each of 300 would be half of all that
 * it costs; to read a table whole, the kernel passes over all of its buckets.
 *
 * Attached nowhere: the agent puts the pairs into `asked`, runs the program as a
 * test on a frame of nothing whose mark is their number, and reads the answers
 * from memory that it shares with the kernel. The result is how many were answered.
 * Values are copied as a plain look-up would, without their lock.
 */

/* Of which pairs gather is to tell. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ASKED);
	__type(key, __u32);
	__type(value, struct weir_pair);
} asked SEC(".maps");

/* Position in `asked` -> what gather says of that pair. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ASKED);
	__type(key, __u32);
	__type(value, struct weir_told_tx);
} told_tx SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_ASKED);
	__type(key, __u32);
	__type(value, struct weir_told_rx);
} told_rx SEC(".maps");

struct gathering {
	__u32 count;
	__u32 told;
};

/* Nothing waits of nearly every pair, or it has no bound in time; then the rest is old. */
static __always_inline void copy_backlog(struct weir_told_tx *told, const struct weir_tx *entry)
{
	told->backlog.bps = entry->backlog.bps;
	if (!told->backlog.bps)
		return;
	told->backlog.seen_ns = entry->backlog.seen_ns;
	told->backlog.data_moved_ns = entry->backlog.data_moved_ns;
	told->backlog.acks_moved_ns = entry->backlog.acks_moved_ns;
	told->backlog.since_ns = entry->backlog.since_ns;
	told->backlog.rate = entry->backlog.rate;
	told->backlog.acks_bps = entry->backlog.acks_bps;
	told->backlog.acks_seen_ns = entry->backlog.acks_seen_ns;
	told->backlog.passed = entry->backlog.passed;
	told->backlog.left = entry->backlog.left;
	told->backlog.data_in = entry->backlog.data_in;
	told->backlog.acks_in = entry->backlog.acks_in;
	told->backlog.data_waits = entry->backlog.data_waits;
	told->backlog.acks_wait = entry->backlog.acks_wait;
	told->backlog.data_owed = entry->backlog.data_owed;
	told->backlog.acks_owed = entry->backlog.acks_owed;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < WEIR_PARTS; i++) {
		told->backlog.data[i] = entry->backlog.data[i];
		told->backlog.acks[i] = entry->backlog.acks[i];
	}
}

static long gather_tx(void *map, __u32 *index, struct weir_pair *pair,
		      struct gathering *asking)
{
	struct weir_pair key = *pair;
	struct weir_told_tx *told;
	struct weir_tx *entry;
	__u32 at = *index;

	(void)map;
	if (at >= asking->count)
		return 1;
	told = bpf_map_lookup_elem(&told_tx, &at);
	if (!told)
		return 1;
	asking->told++;
	entry = bpf_map_lookup_elem(&tx, &key);
	told->is_there = !!entry;
	if (!entry)
		return 0;
	told->octets = entry->octets;
	told->acks = entry->acks;
	told->segments = entry->segments;
	told->told_ns = entry->told_ns;
	told->sequence = entry->sequence;
	told->numbered = entry->numbered;
	told->unnumbered = entry->unnumbered;
	told->dropped = entry->dropped;
	told->stray_ns = entry->stray_ns;
	told->data_left = entry->data_left;
	told->acks_left = entry->acks_left;
	copy_backlog(told, entry);
	return 0;
}

/* A pair that misses nothing has none, which is nearly every one. */
static __always_inline void copy_holes(struct weir_told_rx *told, const struct weir_rx *entry)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < WEIR_WINDOW / 64; i++)
		told->holes[i] = entry->holes[i];
}

static long gather_rx(void *map, __u32 *index, struct weir_pair *pair,
		      struct gathering *asking)
{
	struct weir_pair key = *pair;
	struct weir_told_rx *told;
	struct weir_rx *entry;
	__u32 at = *index;

	(void)map;
	if (at >= asking->count)
		return 1;
	told = bpf_map_lookup_elem(&told_rx, &at);
	if (!told)
		return 1;
	asking->told++;
	entry = bpf_map_lookup_elem(&rx, &key);
	told->is_there = !!entry;
	if (!entry)
		return 0;
	told->octets = entry->octets;
	told->segments = entry->segments;
	told->lost = entry->lost;
	told->ce = entry->ce;
	told->reordered = entry->reordered;
	told->resyncs = entry->resyncs;
	told->strange = entry->strange;
	told->missed = entry->missed;
	told->gap_ns = entry->gap_ns;
	told->aged_ns = entry->aged_ns;
	told->missing = entry->missing;
	if (told->missing)
		copy_holes(told, entry);
	told->aged = entry->aged;
	told->expected = entry->expected;
	told->synced = entry->synced;
	told->numbered = entry->numbered;
	told->doubts = entry->doubts;
	told->doubt = entry->doubt;
	told->ahead = entry->ahead;
	told->owed = entry->owed;
	return 0;
}

SEC("tc")
int weir_gather_tx(struct __sk_buff *skb)
{
	struct gathering asking = {.count = skb->mark};

	bpf_for_each_map_elem(&asked, gather_tx, &asking, 0);
	return asking.told;
}

SEC("tc")
int weir_gather_rx(struct __sk_buff *skb)
{
	struct gathering asking = {.count = skb->mark};

	bpf_for_each_map_elem(&asked, gather_rx, &asking, 0);
	return asking.told;
}
