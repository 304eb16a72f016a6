/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reports of `dctcp` (AC/DC's PACK). A guest's port tells the sender's port how
 * many octets came to the guest and how many of them were marked, in an
 * experimental option of TCP (RFC 6994):
 *
 *   SYN               253  4  id                  this port reads reports
 *   ACK without data  253 12  id  octets  marked  totals, modulo 2^32
 *
 * The option is the last one of a header without payload. So it is added and
 * removed at the end of the packet, and nothing has to be moved. No segment
 * with data has a report, and so no super-packet has one. A header without room
 * has none.
 *
 * Guests do not use this option. A port that translates drops a guest's segment
 * with it.
 */
#ifndef WEIR_VCC_REPORT_H
#define WEIR_VCC_REPORT_H

#define REPORT_KIND 253
#define REPORT_ID 0x5743 /* of experiments; ours, and registered nowhere */
#define REPORT_OF_SYN 4
#define REPORT_OF_ACK 12
#define TCP_HEADER_MOST 60

struct report {
	__u8 kind;
	__u8 length;
	__be16 id;
	__be32 octets;
	__be32 marked;
};
_Static_assert(sizeof(struct report) == REPORT_OF_ACK, "no padding");

static __always_inline __u32 report_size(const struct weir_vcc_segment *segment)
{
	return segment->flags & TCP_SYN ? REPORT_OF_SYN : REPORT_OF_ACK;
}

/*
 * The option at the end of a header without data, if it is a report: its size,
 * or 0. Options are from `at` to `end`. A function of its own: the verifier
 * visits it once, and what follows not once more for each way out of it.
 */
__attribute__((noinline)) int read_report(struct __sk_buff *skb, __u32 at, __u32 end, __u32 size,
					  struct report *report)
{
	struct options options = { .skb = skb, .at = at, .end = end };

	/* The first look is cheap, and enough for nearly all. */
	if (!report || end < at + size ||
	    bpf_skb_load_bytes(skb, end - size, report, REPORT_OF_SYN) ||
	    report->kind != REPORT_KIND || report->length != size ||
	    report->id != bpf_htons(REPORT_ID))
		return 0;
	/* It may be what another option holds. */
	bpf_loop(TCP_OPTIONS, read_option, &options, 0);
	if (options.last != end - size)
		return 0;
	if (size == REPORT_OF_ACK &&
	    bpf_skb_load_bytes(skb, end - REPORT_OF_ACK, report, REPORT_OF_ACK))
		return 0;
	return size;
}

/* Reads the report of the other end's port from a segment without data. */
static __always_inline void hear_report(struct __sk_buff *skb, __u32 at, __u32 end,
					struct weir_vcc_segment *segment)
{
	struct report report = {};

	segment->told = read_report(skb, at, end, report_size(segment), &report) > 0;
	segment->told_octets = bpf_ntohl(report.octets);
	segment->told_marked = bpf_ntohl(report.marked);
}

/* Adds `more` octets to the packet's length in its IP header, and corrects its checksum. */
static __always_inline int write_length(struct __sk_buff *skb, const struct packet *p, int is_ip4,
					__u32 more)
{
	__u32 at = p->l3 + (is_ip4 ? offsetof(struct iphdr, tot_len)
				   : offsetof(struct ipv6hdr, payload_len));
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, at, &before, sizeof(before)))
		return -1;
	after = bpf_htons(bpf_ntohs(before) + more);
	if (is_ip4)
		bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), before, after,
				    sizeof(after));
	return bpf_skb_store_bytes(skb, at, &after, sizeof(after),
				   is_ip4 ? 0 : BPF_F_RECOMPUTE_CSUM);
}

/*
 * Adds `more` octets (in two's complement) to everything that depends on the
 * header's length: TCP's own field, in which `flags` are the present ones, the
 * pseudo header, IP. `sum` is the change of TCP's checksum by the octets that
 * come or go. Where a device is to compute the checksum, it includes them by
 * itself.
 */
static __always_inline int write_header_length(struct __sk_buff *skb, const struct packet *p,
					       int is_ip4, __u32 flags, __u32 more, __u32 sum)
{
	__u32 check = p->l4 + offsetof(struct tcp_head, check), header = flags >> 12 << 2;
	__be16 before = bpf_htons(flags), after = bpf_htons(flags + (more << 10));
	int failed = 0;

	failed |= bpf_l4_csum_replace(skb, check, 0, sum, 0);
	failed |= bpf_l4_csum_replace(skb, check, bpf_htons(header), bpf_htons(header + more),
				      BPF_F_PSEUDO_HDR | sizeof(__be16));
	failed |= write_field(skb, p, offsetof(struct tcp_head, flags), before, after);
	return failed | write_length(skb, p, is_ip4, more);
}

/*
 * Adds the report that the law wants; not 0 if that failed. `flags` and length
 * are as in the header.
 */
static __always_inline int add_report(struct __sk_buff *skb, const struct packet *p, int is_ip4,
				      __u32 flags, __u32 size, const struct weir_vcc_edit *edit)
{
	__u32 header = flags >> 12 << 2, end = p->l4 + header;
	struct report report = {
		.kind = REPORT_KIND,
		.length = size,
		.id = bpf_htons(REPORT_ID),
		.octets = bpf_htonl(edit->told_octets),
		.marked = bpf_htonl(edit->told_marked),
	};
	__s64 sum;

	/* No room is no failure: ECE then reports marks. */
	if (header + size > TCP_HEADER_MOST)
		return 0;
	/* Kernels grow only what lies in one piece. */
	if (bpf_skb_pull_data(skb, skb->len) || bpf_skb_change_tail(skb, end + size, 0))
		return -1;
	if (size == REPORT_OF_SYN) {
		sum = bpf_csum_diff(0, 0, (__be32 *)&report, REPORT_OF_SYN, 0);
		if (bpf_skb_store_bytes(skb, end, &report, REPORT_OF_SYN, 0))
			return -1;
	} else {
		sum = bpf_csum_diff(0, 0, (__be32 *)&report, REPORT_OF_ACK, 0);
		if (bpf_skb_store_bytes(skb, end, &report, REPORT_OF_ACK, 0))
			return -1;
	}
	return write_header_length(skb, p, is_ip4, flags, size, sum);
}

/* Removes the option that read_report has found; not 0 if that failed. */
static __always_inline int take_report(struct __sk_buff *skb, const struct packet *p, int is_ip4,
				       __u32 flags, __u32 size)
{
	__u32 end = p->l4 + (flags >> 12 << 2) - size;
	struct report report;
	__s64 sum;

	if (size == REPORT_OF_SYN) {
		if (bpf_skb_load_bytes(skb, end, &report, REPORT_OF_SYN))
			return -1;
		sum = bpf_csum_diff((__be32 *)&report, REPORT_OF_SYN, 0, 0, 0);
	} else {
		if (bpf_skb_load_bytes(skb, end, &report, REPORT_OF_ACK))
			return -1;
		sum = bpf_csum_diff((__be32 *)&report, REPORT_OF_ACK, 0, 0, 0);
	}
	if (bpf_skb_change_tail(skb, end, 0))
		return -1;
	return write_header_length(skb, p, is_ip4, flags, -size, sum);
}

#endif
