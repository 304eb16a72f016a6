// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * astray: among the filters of an emulated switch's port, to count tagged
 * packets that go where they should not. An object of its own, for experiments
 * only: real switches count by queue.
 *
 * The filters of a port lead each code point to its queue, and what none of
 * them matched to the shared queue. Both programs match nothing:
 *
 *   lab_off_tree  before them, counts packets of tenants at a port that their
 *                 tree does not have
 *   lab_unbound   between them and the last one, counts packets that have a
 *                 code point and no filter of their own, on the tree
 *
 * The filters themselves decide, so no change of them comes between. Packets
 * are counted before the queue: also those that it drops.
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
#include "astray.h"
#include "parse.h"

/* Hardware address of a VM, in the first six octets -> its tenant. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u32);
} astray_vms SEC(".maps");

/* Size: loader, which makes all entries. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct weir_astray_at);
	__type(value, struct weir_astray);
} astray_counts SEC(".maps");

/* The counters of a packet with a tag; NULL if it has none, or is from no VM. */
static __always_inline struct weir_astray *counts_of(struct __sk_buff *skb, __u64 *octets)
{
	struct weir_astray_at at = { .interface = skb->ifindex };
	struct packet p = {};
	__u32 *tenant;
	__u64 mac = 0;

	parse(skb, &p);
	if (!p.dscp || bpf_skb_load_bytes(skb, ETH_ALEN, &mac, ETH_ALEN))
		return NULL;
	tenant = bpf_map_lookup_elem(&astray_vms, &mac);
	if (!tenant)
		return NULL;
	at.tenant = *tenant;
	*octets = p.octets;
	return bpf_map_lookup_elem(&astray_counts, &at);
}

SEC("tc")
int lab_off_tree(struct __sk_buff *skb)
{
	__u64 octets = 0;
	struct weir_astray *counts = counts_of(skb, &octets);

	if (counts && !counts->on_tree)
		__sync_fetch_and_add(&counts->off_tree, octets);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int lab_unbound(struct __sk_buff *skb)
{
	__u64 octets = 0;
	struct weir_astray *counts = counts_of(skb, &octets);

	if (counts && counts->on_tree)
		__sync_fetch_and_add(&counts->unbound, octets);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
