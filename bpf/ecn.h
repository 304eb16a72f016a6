/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ECN field, where marks are a signal of Weir's own (WEIR_ECN).
 *
 * Between the hosts every packet of a pair is ECN-capable, whatever the guest
 * made it: stamp sets the field, so that ports can mark UDP, SYNs and packets
 * of old stacks. meter counts the marks, and the agents answer them. Guests
 * must neither answer them a second time nor see a field that they did not
 * agree on, so meter restores:
 *
 *   TCP whose ends agreed on ECN   ECT(0), never CE; ECT(1) stays
 *   SYN, SYN-ACK                   Not-ECT: RFC 3168 allows no other value,
 *                                  and a server refuses ECN to a SYN with it
 *   everything else                Not-ECT
 *
 * The SYN-ACK alone shows that the ends agreed: it carries ECE without CWR only
 * in answer to a SYN that asked. It passes both hosts, at the server's on its
 * way out (stamp), at the client's on its way in (meter). AccECN (RFC 9768)
 * answers otherwise and sees Not-ECT, as behind any path that clears the field.
 *
 * The other six bits of the octet are the DSCP (see dscp.h).
 */
#ifndef WEIR_ECN_H
#define WEIR_ECN_H

static __always_inline int ecn_is_signal(void)
{
	__u32 key = 0;
	struct weir_settings *s = bpf_map_lookup_elem(&settings, &key);

	return s && (s->flags & WEIR_ECN);
}

/* Whether marks are counted, so that VMs must not set any. */
static __always_inline int marks_count(void)
{
	__u32 key = 0;
	struct weir_settings *s = bpf_map_lookup_elem(&settings, &key);

	return s && (s->flags & (WEIR_ECN | WEIR_UNMARK));
}

/* Stores a SYN-ACK's answer about ECN for its connection. */
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

/*
 * Clears a mark that a packet has as it comes from its VM. Such a mark says nothing about this
 * network, and a VM could slow other traffic down by marking its own. A VM may be a router whose own
 * network marked: RFC 3168 lets such a mark travel on, but no receiving VM here ever sees one.
 */
static __always_inline void take_mark_off(struct __sk_buff *skb, struct packet *p, int is_ip4)
{
	if (p->ecn != CE)
		return;
	set_ecn(skb, p, is_ip4, ECT_0);
	p->ecn = ECT_0;
}

/* Makes a packet of a pair ECN-capable as it leaves. */
static __always_inline void make_capable(struct __sk_buff *skb, struct packet *p, int is_ip4)
{
	learn(skb, p, tcp_flags(skb, p), 1);
	if (!p->ecn)
		set_ecn(skb, p, is_ip4, ECT_0);
}

/* Restores the ECN field of a packet of a pair that came over the network, for the guest. */
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
