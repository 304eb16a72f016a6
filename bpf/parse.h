/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From octets to what the programs need: the source and destination of a
 * packet, its number of segments, and their length on the wire.
 *
 * The headers of a plain IPv4 packet are read where they lie, if they are in the
 * linear part. Everything else is read with bpf_skb_load_bytes, which checks
 * bounds and also finds octets outside that part. A VLAN tag is skipped, not
 * obeyed: a tag is no way around the check of the source.
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#define ETH_ALEN 6
#define VLAN_HLEN 4
#define IP_MORE_OR_OFFSET 0x3fff
#define IP_OFFSET 0x1fff
#define IP_RESERVED 0x8000 /* the bit beside them that has no meaning (RFC 791) */
#define IP6_OFFSET 0xfff8
#define EXTENSIONS 6 /* a packet with more is malformed: no protocol needs them */
#define ECN_MASK 3
#define ND_ROUTER_SOLICITATION 133
#define ND_ROUTER_ADVERTISEMENT 134
#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136
#define ND_REDIRECT 137

enum kind {
	KIND_BAD,   /* truncated, or not what it says */
	KIND_OTHER, /* neither IP nor ARP */
	KIND_ARP,   /* `src` is the sender's protocol address */
	KIND_IP4,
	KIND_IP6,
	KIND_ND,     /* IPv6 neighbour solicitation or advertisement, or router solicitation */
	KIND_ROUTER, /* IPv6 router advertisement or redirect: what only a router says */
};

struct packet {
	struct weir_address src;
	struct weir_address dst;
	struct weir_address target; /* of a neighbour advertisement */
	__u64 octets;		    /* on the wire, layer 2 without FCS, all segments */
	__u32 segments;		    /* at least 1 */
	__u32 l3;		    /* offset of the network header */
	__u32 l4;		    /* offset of the transport header */
	__be16 id;		    /* IPv4 identification */
	__u8 protocol;		    /* transport protocol (see `later`) */
	__u8 ecn;		    /* ECN field */
	__u8 fragment;		    /* a fragment: no whole transport segment, no sequence */
	__u8 is_timed;		    /* its identification is a time (see timed.h) */
	__u8 later;		    /* not the first: no transport header; in IPv6, `protocol`
				       may be an extension header before it */
	__u8 advertises;	    /* `target` is set */
	__u8 version;		    /* 4 or 6; 0: not IP */
	__u8 dscp;		    /* DSCP */
	__u8 tag;		    /* the DSCP that its tenant's packets shall have; set by classify */
};

static __always_inline void mapped(struct weir_address *a, __be32 v4)
{
	a->words[0] = 0;
	a->words[1] = 0;
	a->words[2] = bpf_htonl(0xffff);
	a->words[3] = v4;
}

static __always_inline int is_mapped(const struct weir_address *a)
{
	return !a->words[0] && !a->words[1] && a->words[2] == bpf_htonl(0xffff);
}

static __always_inline int is_zero(const struct weir_address *a)
{
	return !(a->words[0] | a->words[1] | a->words[2] | a->words[3]);
}

/* fe80::/10 */
static __always_inline int is_link_local(const struct weir_address *a)
{
	return (a->words[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* ff02::/16: does not leave the link. */
static __always_inline int is_link_multicast(const struct weir_address *a)
{
	return (a->words[0] & bpf_htonl(0xffff0000)) == bpf_htonl(0xff020000);
}

/* A host's address that a router would pass on. */
static __always_inline int is_routed(const struct weir_address *a)
{
	__u32 v4 = bpf_ntohl(a->words[3]);

	if (is_mapped(a))
		return v4 >> 24 != 0 && v4 >> 24 != 127 && v4 >> 16 != 0xa9fe && v4 >> 28 < 14;
	return !is_zero(a) && !is_link_local(a) && bpf_ntohl(a->words[0]) >> 24 != 0xff;
}

/*
 * Headers between IPv6 and the transport. Other headers (security, mobility)
 * cannot be read without a key or a module, and pass as a transport.
 */
static __always_inline int is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_DSTOPTS;
}

/*
 * Segments and octets. A super-packet from a guest's driver says only how
 * large its segments are, not how many; then they are counted here. What a
 * guest tunnels is measured by its outer header alone.
 */
static __always_inline void measure(struct __sk_buff *skb, struct packet *p)
{
	__u32 tag = skb->vlan_present ? VLAN_HLEN : 0;
	__u32 headers = p->l4;
	__u32 segments = skb->gso_segs;
	__u8 offset;

	if (!skb->gso_size)
		return;
	if (p->protocol == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, p->l4 + 12, &offset, 1))
			return;
		headers += (offset >> 4) * 4;
	} else {
		headers += sizeof(struct udphdr);
	}
	if (headers >= skb->len)
		return;
	if (!segments)
		segments = (skb->len - headers + skb->gso_size - 1) / skb->gso_size;
	if (segments > 1) {
		p->segments = segments;
		p->octets += (__u64)(segments - 1) * (headers + tag);
	}
}

static __always_inline enum kind parse_arp(struct __sk_buff *skb, struct packet *p)
{
	struct {
		__be16 hardware, protocol;
		__u8 hardware_len, protocol_len;
		__be16 operation;
		__u8 sender[ETH_ALEN];
		__u8 address[4];
		__u8 rest[10];
	} __attribute__((packed)) arp;
	__be32 sender;

	if (bpf_skb_load_bytes(skb, p->l3, &arp, sizeof(arp)))
		return KIND_BAD;
	if (arp.protocol != bpf_htons(ETH_P_IP) || arp.protocol_len != 4 ||
	    arp.hardware_len != ETH_ALEN)
		return KIND_BAD;
	__builtin_memcpy(&sender, arp.address, sizeof(sender));
	mapped(&p->src, sender);
	return KIND_ARP;
}

/* An Ethernet header without tags, and IPv4's behind it. */
struct plain_headers {
	__u16 mac[ETH_ALEN];
	__be16 type;
	struct iphdr ip;
} __attribute__((packed, aligned(2)));

/* A packet's first headers, if they are in its linear part; else 0. */
static __always_inline struct plain_headers *plain_headers(struct __sk_buff *skb)
{
	struct plain_headers *headers = (void *)(long)skb->data;

	return (void *)(headers + 1) <= (void *)(long)skb->data_end ? headers : 0;
}

static __always_inline enum kind parse_ip4(struct __sk_buff *skb, struct packet *p)
{
	struct plain_headers *headers = plain_headers(skb);
	struct iphdr ip;
	__u32 header, total;

	if (headers && p->l3 == ETH_HLEN)
		ip = headers->ip;
	else if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)))
		return KIND_BAD;
	header = ip.ihl * 4;
	total = bpf_ntohs(ip.tot_len);
	if (ip.version != 4 || header < sizeof(ip) || p->l3 + header > skb->len)
		return KIND_BAD;
	/* Zero is how a super-packet beyond 64 kB says its length. */
	if (!(total == 0 && skb->gso_size) && (total < header || p->l3 + total > skb->len))
		return KIND_BAD;
	mapped(&p->src, ip.saddr);
	mapped(&p->dst, ip.daddr);
	p->id = ip.id;
	p->version = 4;
	p->ecn = ip.tos & ECN_MASK;
	p->dscp = ip.tos >> 2;
	p->fragment = !!(ip.frag_off & bpf_htons(IP_MORE_OR_OFFSET));
	p->later = !!(ip.frag_off & bpf_htons(IP_OFFSET));
	p->is_timed = !!(ip.frag_off & bpf_htons(IP_RESERVED));
	p->protocol = ip.protocol;
	p->l4 = p->l3 + header;
	return KIND_IP4;
}

/* From `p->protocol` at `p->l4` to the transport; not 0 if there is none. */
static __always_inline int skip_extensions(struct __sk_buff *skb, struct packet *p)
{
	struct {
		__u8 next, length; /* in units of 8 octets, without the first */
		__be16 offset;	   /* of a fragment */
	} header;

#pragma unroll
	for (int i = 0; i < EXTENSIONS; i++) {
		if (p->later || !is_extension(p->protocol))
			return 0;
		if (bpf_skb_load_bytes(skb, p->l4, &header, sizeof(header)))
			return -1;
		if (p->protocol == IPPROTO_FRAGMENT) {
			p->fragment = 1;
			p->later = !!(header.offset & bpf_htons(IP6_OFFSET));
			header.length = 0;
		}
		p->l4 += (header.length + 1) * 8;
		if (p->l4 > skb->len)
			return -1;
		p->protocol = header.next;
	}
	return !p->later && is_extension(p->protocol);
}

static __always_inline enum kind parse_ip6(struct __sk_buff *skb, struct packet *p)
{
	struct ipv6hdr ip;
	__u8 type;

	if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)))
		return KIND_BAD;
	if (ip.version != 6 || p->l3 + sizeof(ip) + bpf_ntohs(ip.payload_len) > skb->len)
		return KIND_BAD;
	__builtin_memcpy(&p->src, &ip.saddr, sizeof(p->src));
	__builtin_memcpy(&p->dst, &ip.daddr, sizeof(p->dst));
	/* An IPv4 address in an IPv6 header would pass for the IPv4 endpoint. */
	if (is_mapped(&p->src) || is_mapped(&p->dst))
		return KIND_BAD;
	p->version = 6;
	p->ecn = (ip.flow_lbl[0] >> 4) & ECN_MASK;
	p->dscp = (__u8)(ip.priority << 2 | ip.flow_lbl[0] >> 6);
	p->protocol = ip.nexthdr;
	p->l4 = p->l3 + sizeof(ip);
	if (skip_extensions(skb, p))
		return KIND_BAD;
	/* A hop limit below 255 came through a router: no neighbour heeds it. */
	if (p->protocol != IPPROTO_ICMPV6 || p->later || ip.hop_limit != 255)
		return KIND_IP6;
	if (bpf_skb_load_bytes(skb, p->l4, &type, 1))
		return KIND_BAD;
	if (type < ND_ROUTER_SOLICITATION || type > ND_REDIRECT)
		return KIND_IP6;
	/* Nor should one heed it in fragments (RFC 6980), whose rest cannot be checked. */
	if (p->fragment)
		return KIND_BAD;
	if (type == ND_ROUTER_ADVERTISEMENT || type == ND_REDIRECT)
		return KIND_ROUTER;
	if (type != ND_ADVERTISEMENT)
		return KIND_ND;
	if (bpf_skb_load_bytes(skb, p->l4 + 8, &p->target, sizeof(p->target)))
		return KIND_BAD;
	p->advertises = 1;
	return KIND_ND;
}

static __always_inline enum kind parse(struct __sk_buff *skb, struct packet *p)
{
	struct plain_headers *headers = plain_headers(skb);
	enum kind kind = KIND_OTHER;
	__be16 type;

	p->octets = skb->len + (skb->vlan_present ? VLAN_HLEN : 0);
	p->segments = 1;
	p->l3 = ETH_HLEN;
	if (headers)
		type = headers->type;
	else if (bpf_skb_load_bytes(skb, ETH_HLEN - 2, &type, sizeof(type)))
		return KIND_BAD;
	/* The outer tag is usually in skb->vlan_tci; two may be in the octets. */
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if (bpf_skb_load_bytes(skb, p->l3 + 2, &type, sizeof(type)))
			return KIND_BAD;
		p->l3 += VLAN_HLEN;
	}
	/* Receivers take off tags without end: what is behind them must not pass unseen. */
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD))
		return KIND_BAD;
	p->l4 = p->l3;
	if (type == bpf_htons(ETH_P_IP))
		kind = parse_ip4(skb, p);
	else if (type == bpf_htons(ETH_P_IPV6))
		kind = parse_ip6(skb, p);
	else if (type == bpf_htons(ETH_P_ARP))
		kind = parse_arp(skb, p);
	measure(skb, p);
	return kind;
}

#endif
