/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What both sides of feedback share: its fields as numbers, and its tag. */
#ifndef WEIR_EYEQ_FEEDBACK_H
#define WEIR_EYEQ_FEEDBACK_H

#define FEEDBACK_PACKET (sizeof(struct iphdr) + sizeof(struct weir_feedback))
_Static_assert(ETH_HLEN + FEEDBACK_PACKET == WEIR_FEEDBACK_FRAME, "the whole frame");

static __always_inline __u32 joined(const __be16 half[2])
{
	return (__u32)bpf_ntohs(half[0]) << 16 | bpf_ntohs(half[1]);
}

static __always_inline void divide(__be16 half[2], __u32 whole)
{
	half[0] = bpf_htons(whole >> 16);
	half[1] = bpf_htons(whole & 0xffff);
}

/* The tag of what `body` says with this whole sequence. */
static __always_inline __u64 tag_of(const struct weir_feedback *body, const __u64 key[2],
				    __u64 sequence)
{
	/* Signed are octets as they travel; SipHash reads them from the other end. */
	__u64 second = (__u64)__builtin_bswap32(joined(body->src)) << 32 |
		       (__u32)__builtin_bswap16(bpf_ntohs(body->rate)) << 16 |
		       (__u32)body->key_id << 8 | body->version;

	return siphash20(key, __builtin_bswap64(sequence), second,
			 __builtin_bswap32(joined(body->dst)));
}

#endif
