/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What programs read and change of TCP, and of the ECN field of IP. Checksums
 * follow, also those that a device is still to compute.
 */
#ifndef WEIR_TCP_H
#define WEIR_TCP_H

#define ECT_0 2u
#define CE 3u
#define DSCP_MASK 0xfc
#define DSCP_LOWER_EFFORT 0x04 /* codepoint 1 (RFC 8622) */
#define IP6_TOS_SHIFT 4 /* within the second octet of the header */
#define TCP_FLAGS 13	/* their offset */
#define TCP_HEADER_MOST 60
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_ECE 0x40
#define TCP_CWR 0x80

/*
 * Writes the bits of `mask` in the octet that holds DSCP and ECN field (IPv6:
 * the traffic class), and what depends on them.
 */
static __always_inline void set_tos(struct __sk_buff *skb, struct packet *p, int is_ip4, __u8 mask,
				    __u8 bits)
{
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, p->l3, &before, sizeof(before)))
		return;
	if (is_ip4) {
		after = (before & ~bpf_htons(mask)) | bpf_htons(bits);
		bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), before, after,
				    sizeof(after));
		bpf_skb_store_bytes(skb, p->l3, &after, sizeof(after), 0);
	} else {
		/* No checksum of its own: what the device summed up must follow. */
		after = (before & ~bpf_htons((__u16)mask << IP6_TOS_SHIFT)) |
			bpf_htons((__u16)bits << IP6_TOS_SHIFT);
		bpf_skb_store_bytes(skb, p->l3, &after, sizeof(after), BPF_F_RECOMPUTE_CSUM);
	}
}

/* Writes the ECN field. */
static __always_inline void set_ecn(struct __sk_buff *skb, struct packet *p, int is_ip4, __u8 ecn)
{
	if (p->ecn == ecn)
		return;
	set_tos(skb, p, is_ip4, ECN_MASK, ecn);
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

/* Whether a segment acknowledges, and carries nothing else. */
static __always_inline int only_acknowledges(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = p->version == 4 ? offsetof(struct iphdr, tot_len) :
				     offsetof(struct ipv6hdr, payload_len);
	__u32 before = p->version == 4 ? 0 : sizeof(struct ipv6hdr);
	__be16 length;
	__u8 tcp[2]; /* the header's length in the high half of an octet, and the flags */

	/* Nearly all segments with data are told by their length; the frame may be padded. */
	if (p->protocol != IPPROTO_TCP || p->fragment || skb->len - p->l4 > TCP_HEADER_MOST ||
	    bpf_skb_load_bytes(skb, p->l3 + at, &length, sizeof(length)) ||
	    bpf_skb_load_bytes(skb, p->l4 + TCP_FLAGS - 1, tcp, sizeof(tcp)))
		return 0;
	return (tcp[1] & (TCP_ACK | TCP_SYN | TCP_FIN | TCP_RST)) == TCP_ACK &&
	       p->l3 + before + bpf_ntohs(length) == p->l4 + (tcp[0] >> 4) * 4;
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

#endif
