/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From a frame to the headers of a segment of TCP.
 *
 * What nearly all frames are is read where it lies, without a call: each call
 * costs 10 to 20 ns, and the law less than that. All others go through parse().
 */
#ifndef WEIR_VCC_READ_H
#define WEIR_VCC_READ_H

#define TCP_HEADER 20
#define TCP_OPTIONS 40 /* as many as fit into a header: fillers have an octet each */
#define OPTION_END 0
#define OPTION_NOTHING 1
#define OPTION_MSS 2
#define OPTION_SCALE 3
#define OPTION_STAMPS 8
/* Timestamps as all stacks write them (RFC 7323, appendix A): two fillers, kind, length. */
#define STAMPS_ALONE 0x0101080au
#define STAMPS_SIZE 12
#define IP4_PLAIN 0x45 /* version, and a header without options */

/* TCP's header as it is on the wire. */
struct tcp_head {
	__be16 src_port;
	__be16 dst_port;
	__be32 seq;
	__be32 ack;
	__be16 flags; /* and the header's length */
	__be16 window;
	__be16 check;
	__be16 urgent;
};
_Static_assert(sizeof(struct tcp_head) == TCP_HEADER, "no padding");

/* IPv4's header up to its checksum. */
struct ip4_start {
	__be16 tos; /* and version and length */
	__be16 length;
	__be16 id;
	__be16 fragment;
	__be16 ttl; /* and the protocol */
	__be16 check;
};
_Static_assert(sizeof(struct ip4_start) == 12, "no padding");

/* What a segment's headers say. */
struct headers {
	struct weir_flow name;
	struct ip4_start ip; /* of IPv4 */
	struct tcp_head tcp;
	__u32 l3; /* where IP's begins */
	__u32 l4; /* and TCP's */
	__u32 end; /* where the packet ends: frames may be longer, to be as long as Ethernet wants them */
	__u8 ecn;
	__u8 is_ip4;
	__u8 is_bare; /* no options, or timestamps alone */
};

/* A part of a segment. */
#define READ_FRAGMENT -2

/* A connection's name, from the addresses of a segment that goes this way. */
static __always_inline void name_ports(struct weir_flow *name, __u32 way,
				       const struct tcp_head *tcp)
{
	name->src_port = way == VCC_OUT ? tcp->dst_port : tcp->src_port;
	name->dst_port = way == VCC_OUT ? tcp->src_port : tcp->dst_port;
}

/* TCP's header at `at`, where the packet goes on to `end`; 0 if it is not there. */
static __always_inline int read_tcp(struct __sk_buff *skb, const void *data, const void *data_end,
				    __u32 at, __u32 way, struct headers *headers)
{
	const void *options = data + at + TCP_HEADER;
	__u32 size;

	if (options > data_end || headers->end < at + TCP_HEADER || headers->end > skb->len)
		return 0;
	headers->tcp = *(const struct tcp_head *)(data + at);
	name_ports(&headers->name, way, &headers->tcp);
	size = bpf_ntohs(headers->tcp.flags) >> 12 << 2;
	headers->is_bare = size == TCP_HEADER;
	if (size == TCP_HEADER + STAMPS_SIZE && options + sizeof(__be32) <= data_end)
		headers->is_bare = *(const __be32 *)options == bpf_htonl(STAMPS_ALONE);
	return 1;
}

/*
 * A whole segment directly behind Ethernet and IP: 1. Certainly not TCP: -1.
 * Otherwise 0: the full parser has to look. This and the next are functions of
 * their own, so that the verifier visits them once, and the law not once more
 * for each kind of frame.
 */
__attribute__((noinline)) int read_plain(struct __sk_buff *skb, __u32 way, struct headers *headers)
{
	const void *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
	const struct ipv6hdr *ip6 = data + ETH_HLEN;
	const struct iphdr *ip4 = data + ETH_HLEN;
	const struct ethhdr *ethernet = data;
	struct weir_address *from, *to;

	if (!headers || (const void *)(ip4 + 1) > data_end)
		return 0;
	from = way == VCC_OUT ? &headers->name.dst : &headers->name.src;
	to = way == VCC_OUT ? &headers->name.src : &headers->name.dst;
	headers->l3 = ETH_HLEN;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		if (ip4->protocol != IPPROTO_TCP)
			return -1;
		if (*(const __u8 *)ip4 != IP4_PLAIN || ip4->frag_off & bpf_htons(IP_MORE_OR_OFFSET))
			return 0;
		headers->ip = *(const struct ip4_start *)ip4;
		mapped(from, ip4->saddr);
		mapped(to, ip4->daddr);
		headers->is_ip4 = 1;
		headers->end = ETH_HLEN + bpf_ntohs(ip4->tot_len);
		headers->ecn = ip4->tos & ECN_MASK;
		headers->l4 = ETH_HLEN + sizeof(*ip4);
		return read_tcp(skb, data, data_end, ETH_HLEN + sizeof(*ip4), way, headers);
	}
	if (ethernet->h_proto != bpf_htons(ETH_P_IPV6) || (const void *)(ip6 + 1) > data_end ||
	    ip6->version != 6)
		return 0;
	if (ip6->nexthdr != IPPROTO_TCP)
		return is_extension(ip6->nexthdr) ? 0 : -1;
	__builtin_memcpy(from, &ip6->saddr, sizeof(*from));
	__builtin_memcpy(to, &ip6->daddr, sizeof(*to));
	if (is_mapped(from) || is_mapped(to))
		return 0;
	headers->is_ip4 = 0;
	headers->end = ETH_HLEN + sizeof(*ip6) + bpf_ntohs(ip6->payload_len);
	headers->ecn = (ip6->flow_lbl[0] >> 4) & ECN_MASK;
	headers->l4 = ETH_HLEN + sizeof(*ip6);
	return read_tcp(skb, data, data_end, ETH_HLEN + sizeof(*ip6), way, headers);
}

/* Where the packet ends. */
static __always_inline __u32 end_of(struct __sk_buff *skb, const struct packet *p, int is_ip4)
{
	__u32 at = p->l3 + (is_ip4 ? offsetof(struct iphdr, tot_len)
				   : offsetof(struct ipv6hdr, payload_len));
	__be16 length;

	/* Zero is how a super-packet beyond 64 kB says its length. */
	if (bpf_skb_load_bytes(skb, at, &length, sizeof(length)) || !length)
		return skb->len;
	return p->l3 + bpf_ntohs(length) + (is_ip4 ? 0 : sizeof(struct ipv6hdr));
}

/* Any frame: 1 if it is a segment, -1 or READ_FRAGMENT if it is not, 0 if it cannot be parsed. */
__attribute__((noinline)) int read_any(struct __sk_buff *skb, __u32 way, struct headers *headers)
{
	struct packet p = {};
	enum kind kind = parse(skb, &p);

	if (!headers || (kind != KIND_IP4 && kind != KIND_IP6) || p.protocol != IPPROTO_TCP)
		return -1;
	if (p.fragment)
		return READ_FRAGMENT;
	headers->l3 = p.l3;
	headers->l4 = p.l4;
	headers->ecn = p.ecn;
	headers->is_ip4 = kind == KIND_IP4;
	headers->is_bare = 0;
	headers->end = end_of(skb, &p, headers->is_ip4);
	headers->name.src = way == VCC_OUT ? p.dst : p.src;
	headers->name.dst = way == VCC_OUT ? p.src : p.dst;
	if (bpf_skb_load_bytes(skb, p.l3, &headers->ip, sizeof(headers->ip)) ||
	    bpf_skb_load_bytes(skb, p.l4, &headers->tcp, sizeof(headers->tcp)))
		return 0;
	name_ports(&headers->name, way, &headers->tcp);
	return 1;
}

/* The options of a header: where the next one begins, where they end, and what was found. */
struct options {
	struct __sk_buff *skb;
	__u32 at;
	__u32 end;
	__u16 mss;
	__u8 scale;
	__u8 stamps;
	__u32 last; /* where the last one began */
};

/* Reads one; not 0 if it was the last. */
static long read_option(__u32 n, void *context)
{
	struct options *options = context;
	struct __sk_buff *skb = options->skb;
	__u32 at = options->at;
	__u8 option[2] = {}; /* kind, length */
	__be16 mss;
	__u8 scale;

	(void)n;
	if (at >= options->end || bpf_skb_load_bytes(skb, at, option, 1) ||
	    option[0] == OPTION_END)
		return 1;
	if (option[0] == OPTION_NOTHING) {
		options->at = at + 1;
		return 0;
	}
	if (at + 2 > options->end || bpf_skb_load_bytes(skb, at, option, sizeof(option)) ||
	    option[1] < 2 || at + option[1] > options->end)
		return 1;
	if (option[0] == OPTION_MSS && option[1] == 4 &&
	    !bpf_skb_load_bytes(skb, at + 2, &mss, sizeof(mss)))
		options->mss = bpf_ntohs(mss);
	/* As receivers have it: more than 14 counts as 14 (RFC 7323). */
	if (option[0] == OPTION_SCALE && option[1] == 3 &&
	    !bpf_skb_load_bytes(skb, at + 2, &scale, sizeof(scale)))
		options->scale = (scale < 14 ? scale : 14) + 1;
	if (option[0] == OPTION_STAMPS && option[1] == 10)
		options->stamps = 1;
	options->last = at;
	options->at = at + option[1];
	return 0;
}

/* What a SYN offers. In a loop the verifier would look at each way through all options. */
static __always_inline void read_options(struct __sk_buff *skb, __u32 at, __u32 end,
					 struct weir_vcc_segment *segment)
{
	struct options options = { .skb = skb, .at = at, .end = end };

	bpf_loop(TCP_OPTIONS, read_option, &options, 0);
	segment->mss = options.mss;
	segment->scale = options.scale;
	segment->stamps = options.stamps;
}

#endif
