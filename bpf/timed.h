/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Departure times in packets, by which Level's receivers see queues in the
 * network (docs/algorithms/level.md).
 *
 * One packet in `timed_us` to each other host carries the time at which it left
 * this host: microseconds, modulo 2^16, in the place of the IPv4 identification.
 * The reserved bit of the fragment field says so. stamp writes both, meter takes
 * the bit off, and classify takes it off what guests send: a guest's
 * identification must not pass for a time.
 *
 * A timed packet has a number like any other, only it does not say which (see
 * sequence.h). The next one of its pair does: a pair with fewer packets than one
 * in `timed_us`, or with super-packets only, would have no numbers, and its losses
 * would not show.
 *
 * meter keeps the least delayed packet of each host, in one of two windows. The
 * agent says which, and reads the other one meanwhile. Arrival and departure are
 * one word, so that no reader sees halves of two packets. Two CPUs may write at
 * once: then one of two packets is forgotten, and the next one comes soon.
 */
#ifndef WEIR_TIMED_H
#define WEIR_TIMED_H

/* Index of a host -> its times. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_timed);
} timed SEC(".maps");

/* The number of the window. Written by the agent only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} window SEC(".maps");

/* Sets or clears the bit. */
static __always_inline void set_reserved(struct __sk_buff *skb, struct packet *p, int is_set)
{
	__u32 at = p->l3 + offsetof(struct iphdr, frag_off);
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)))
		return;
	after = is_set ? before | bpf_htons(IP_RESERVED) : before & ~bpf_htons(IP_RESERVED);
	bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), before, after, sizeof(after));
	bpf_skb_store_bytes(skb, at, &after, sizeof(after), 0);
}

/* Whether a packet that leaves for a host is to carry the time, which is `now`. The clock is not read for others. */
static __always_inline int is_to_be_timed(__u32 host, __u64 *now)
{
	__u32 zero = 0;
	struct weir_settings *all = bpf_map_lookup_elem(&settings, &zero);
	struct weir_timed *row;
	__u64 last;

	/* The first row is of no host: what is outside, and hosts for which there was no row. */
	if (!all || !all->timed_us || !host)
		return 0;
	row = bpf_map_lookup_elem(&timed, &host);
	if (!row)
		return 0;
	last = row->left_ns;
	*now = bpf_ktime_get_ns();
	if (*now < last + all->timed_us * 1000ull)
		return 0;
	return __sync_val_compare_and_swap(&row->left_ns, last, *now) == last;
}

/* Of an arrival: how late it is, µs modulo 2^16 and less an unknown offset. */
static __always_inline __u16 delay_of(__u64 arrival)
{
	return (__u16)(arrival >> 16) - (__u16)arrival;
}

/* A timed packet came from a host, by this clock at `now`. */
static __always_inline void note_arrival(__u32 host, __u16 sent, __u64 now)
{
	struct weir_timed *row = bpf_map_lookup_elem(&timed, &host);
	__u64 came = now / 1000 << 16 | sent, least;
	__u32 zero = 0;
	__u64 *number = bpf_map_lookup_elem(&window, &zero);

	if (!row || !number)
		return;
	host = *(volatile __u64 *)number & 1;
	least = row->least[host];
	if (!least || (__s16)(delay_of(came) - delay_of(least)) < 0)
		row->least[host] = came;
}

#endif
