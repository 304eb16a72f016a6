/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ECN field, where marks are a signal of Weir's own (WEIR_ECN).
 *
 * Between the hosts every packet of a pair is ECN-capable, whatever the guest
 * made it: stamp sees to that, so that ports can mark UDP, SYNs and what old
 * stacks send. Marks are counted by meter and answered by the agents. Guests
 * must neither answer them a second time nor see a field that they did not
 * agree on, so meter gives back:
 *
 *   TCP whose ends agreed on ECN   ECT(0), never CE; what came as ECT(1) stays
 *   SYN, SYN-ACK                   Not-ECT: RFC 3168 lets nobody send another,
 *                                  and a server refuses ECN to a SYN with it
 *   everything else                Not-ECT
 *
 * That the ends agreed is learned from the SYN-ACK alone: it carries ECE
 * without CWR only in answer to a SYN that asked, and it passes both hosts, at
 * the server's on its way out (stamp), at the client's on its way in (meter).
 * AccECN (RFC 9768) answers otherwise and sees Not-ECT, as behind any path that
 * clears the field.
 *
 * The other six bits of the octet, the DSCP, are the guest's and stay so.
 */
#ifndef WEIR_ECN_H
#define WEIR_ECN_H

#define ECT_0 2u
#define CE 3u
#define IP6_ECN_SHIFT 4 /* within the second octet of the header */
#define TCP_FLAGS 13	/* their offset */
#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define TCP_ECE 0x40
#define TCP_CWR 0x80

static __always_inline int ecn_is_signal(void)
{
	__u32 key = 0;
	struct weir_settings *s = bpf_map_lookup_elem(&settings, &key);

	return s && (s->flags & WEIR_ECN);
}

/* Writes the ECN field of an IPv4 or IPv6 packet, and what depends on it. */
static __always_inline void set_ecn(struct __sk_buff *skb, struct packet *p, int is_ip4, __u8 ecn)
{
	__be16 before, after;

	if (p->ecn == ecn || bpf_skb_load_bytes(skb, p->l3, &before, sizeof(before)))
		return;
	if (is_ip4) {
		after = (before & ~bpf_htons(ECN_MASK)) | bpf_htons(ecn);
		bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), before, after,
				    sizeof(after));
		bpf_skb_store_bytes(skb, p->l3, &after, sizeof(after), 0);
	} else {
		/* No checksum of its own: what the device summed up must follow. */
		after = (before & ~bpf_htons(ECN_MASK << IP6_ECN_SHIFT)) |
			bpf_htons((__u16)ecn << IP6_ECN_SHIFT);
		bpf_skb_store_bytes(skb, p->l3, &after, sizeof(after), BPF_F_RECOMPUTE_CSUM);
	}
	p->ecn = ecn;
}

/* The TCP flags, 0 if it is not TCP or they are not there (TCP has none without). */
static __always_inline __u8 tcp_flags(struct __sk_buff *skb, struct packet *p)
{
	__u8 flags;

	if (p->protocol != IPPROTO_TCP || p->fragment ||
	    bpf_skb_load_bytes(skb, p->l4 + TCP_FLAGS, &flags, sizeof(flags)))
		return 0;
	return flags;
}

/* The key of the connection as its packets come in: `out` says that this one leaves. */
static __always_inline int flow_of(struct __sk_buff *skb, struct packet *p, int out,
				   struct weir_flow *flow)
{
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, p->l4, ports, sizeof(ports)))
		return -1;
	flow->src = out ? p->dst : p->src;
	flow->dst = out ? p->src : p->dst;
	flow->src_port = ports[out ? 1 : 0];
	flow->dst_port = ports[out ? 0 : 1];
	return 0;
}

/* Remembers what a SYN-ACK says of its connection. */
static __always_inline void learn(struct __sk_buff *skb, struct packet *p, __u8 flags, int out)
{
	struct weir_flow flow = {};
	__u32 yes = 1;

	if ((flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK) || flow_of(skb, p, out, &flow))
		return;
	if ((flags & (TCP_ECE | TCP_CWR)) == TCP_ECE)
		bpf_map_update_elem(&flows, &flow, &yes, BPF_ANY);
	else
		bpf_map_delete_elem(&flows, &flow);
}

/* What a packet of a pair leaves as. */
static __always_inline void make_capable(struct __sk_buff *skb, struct packet *p, int is_ip4)
{
	learn(skb, p, tcp_flags(skb, p), 1);
	if (!p->ecn)
		set_ecn(skb, p, is_ip4, ECT_0);
}

/* What the guest sees of a packet of a pair that came over the network. */
static __always_inline void give_back(struct __sk_buff *skb, struct packet *p, int is_ip4)
{
	__u8 flags = tcp_flags(skb, p);
	struct weir_flow flow = {};
	__u8 ecn = 0;

	learn(skb, p, flags, 0);
	if (!p->ecn)
		return;
	if (flags && !(flags & TCP_SYN) && !flow_of(skb, p, 0, &flow) &&
	    bpf_map_lookup_elem(&flows, &flow))
		ecn = p->ecn == CE ? ECT_0 : p->ecn;
	set_ecn(skb, p, is_ip4, ecn);
}

#endif
