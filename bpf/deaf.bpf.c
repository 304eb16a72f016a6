// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * deaf: on a guest's own interface, before its TCP. An object of its own, for
 * tests only. It makes a Linux guest ignore signals of one port of its peers:
 * its TCP does not see what the program removes.
 *
 * DEAF_TO_WINDOWS: every window that comes is the largest one.
 * DEAF_TO_MARKS: acknowledgements come without ECE.
 *
 * SYNs do not change, so what the ends agree on there stands.
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "parse.h"
#include "tcp.h"

#define DEAF_TO_WINDOWS 1
#define DEAF_TO_MARKS 2

/* The peers' port, and the signals to remove. Written by the test. */
struct deaf {
	__be16 port;
	__u16 what;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct deaf);
} deaf_to SEC(".maps");

/* Writes two octets of TCP's header, and what they do to its checksum. */
static __always_inline void put(struct __sk_buff *skb, __u32 l4, __u32 at, __be16 value)
{
	__be16 before;

	if (bpf_skb_load_bytes(skb, l4 + at, &before, sizeof(before)))
		return;
	bpf_l4_csum_replace(skb, l4 + offsetof(struct tcphdr, check), before, value, sizeof(value));
	bpf_skb_store_bytes(skb, l4 + at, &value, sizeof(value), 0);
}

SEC("tc")
int weir_deaf(struct __sk_buff *skb)
{
	struct packet p = {};
	struct deaf *deaf;
	__be16 port, flags;
	__u32 zero = 0;

	deaf = bpf_map_lookup_elem(&deaf_to, &zero);
	if (!deaf || parse(skb, &p) != KIND_IP4 || p.protocol != IPPROTO_TCP || p.fragment ||
	    bpf_skb_load_bytes(skb, p.l4, &port, sizeof(port)) || port != deaf->port ||
	    bpf_skb_load_bytes(skb, p.l4 + TCP_FLAGS - 1, &flags, sizeof(flags)) ||
	    flags & bpf_htons(TCP_SYN))
		return TC_ACT_UNSPEC;
	if (deaf->what & DEAF_TO_WINDOWS)
		put(skb, p.l4, offsetof(struct tcphdr, window), bpf_htons(0xffff));
	if (deaf->what & DEAF_TO_MARKS)
		put(skb, p.l4, TCP_FLAGS - 1, flags & ~bpf_htons(TCP_ECE));
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
