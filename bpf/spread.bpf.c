// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * spread: where packets enter an emulated switch, before its bridge. An object
 * of its own, for experiments only: real switches have equal paths (ECMP).
 *
 * A bridge has one port per destination. Where several ports lead to one, this
 * program takes the packet to one of them: by a hash of addresses, protocol and
 * ports, so that a flow stays on one path, or packet by packet. The port's
 * queue is the same as for what the bridge sends there.
 *
 * The hash that the kernel keeps with a packet will not do: a guest's TCP
 * changes it after a timeout, and real switches do not see it.
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
#include "parse.h"
#include "spread.h"

/* Hardware address of a destination, in the first six octets -> its ports. Size: loader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, struct weir_spread);
} spread_ports SEC(".maps");

/* Packets that were sent one by one so far. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} spread_turn SEC(".maps");

/* One round of MurmurHash3. */
static __always_inline __u32 mix(__u32 hash, __u32 word)
{
	word *= 0xcc9e2d51;
	word = word << 15 | word >> 17;
	hash ^= word * 0x1b873593;
	hash = hash << 13 | hash >> 19;
	return hash * 5 + 0xe6546b64;
}

/* Its end: each bit of the input changes half of the output. */
static __always_inline __u32 finish(__u32 hash)
{
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	return hash ^ hash >> 16;
}

static __always_inline __u32 hash_of(struct __sk_buff *skb, __u32 salt)
{
	struct packet p = {};
	__u32 hash = salt, ends = 0;

	parse(skb, &p);
	for (int i = 0; i < 4; i++) {
		hash = mix(hash, p.src.words[i]);
		hash = mix(hash, p.dst.words[i]);
	}
	/* Fragments have no ports, but for the first one: all of them go one way. */
	if (!p.fragment && !p.later && (p.protocol == IPPROTO_TCP || p.protocol == IPPROTO_UDP))
		bpf_skb_load_bytes(skb, p.l4, &ends, sizeof(ends));
	return finish(mix(mix(hash, ends), p.protocol));
}

SEC("tc")
int lab_spread(struct __sk_buff *skb)
{
	struct weir_spread *to;
	__u32 zero = 0, number, *turn;
	__u64 mac = 0;

	if (bpf_skb_load_bytes(skb, 0, &mac, ETH_ALEN))
		return TC_ACT_UNSPEC;
	to = bpf_map_lookup_elem(&spread_ports, &mac);
	if (!to || !to->count)
		return TC_ACT_UNSPEC;
	turn = bpf_map_lookup_elem(&spread_turn, &zero);
	if (to->by_packet && turn)
		number = __sync_fetch_and_add(turn, 1);
	else
		number = hash_of(skb, to->salt);
	number %= to->count;
	if (number >= WEIR_SPREAD_PORTS)
		return TC_ACT_UNSPEC;
	return bpf_redirect(to->ports[number], 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
