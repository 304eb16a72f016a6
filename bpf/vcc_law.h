/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * vCC's law: `Flow::handle` of crates/core/src/vcc, to the octet, which gives
 * the reasons, file by file in the order of the parts below.
 * crates/dataplane/tests/vcc_law.rs holds the two equal. A change of one needs
 * a change of the other.
 *
 * Numbers are unsigned; only differences of sequence numbers are read with a
 * sign. Products are of 64 bits and do not wrap. No division is signed or by
 * zero, no shift beyond 31 (of 64 bits: 63), and the one loop has 18 rounds.
 */
#ifndef WEIR_VCC_LAW_H
#define WEIR_VCC_LAW_H

#include "forget.h"

/* segment.rs */

#define VCC_FIN 0x001
#define VCC_SYN 0x002
#define VCC_RST 0x004
#define VCC_ACK 0x010
#define VCC_ECE 0x040
#define VCC_CWR 0x080
#define VCC_AE 0x100

#define VCC_NOT_ECT 0
#define VCC_ECT_0 2
#define VCC_CE 3

#define VCC_OCTETS_MOST (1u << 20)

/* Which way. */
#define VCC_OUT 0
#define VCC_IN 1

/* What differs. */
#define VCC_EDIT_WINDOW 1
#define VCC_EDIT_FLAGS 2
#define VCC_EDIT_ECN 4
#define VCC_EDIT_TELL 8
#define VCC_EDIT_TAKE 16

/* Input of the law: a segment, `Segment`. */
struct weir_vcc_segment {
	__u32 at; /* ticks of 2^20 ns */
	__u32 seq;
	__u32 ack;
	__u32 octets; /* payload */
	__u32 told_octets;
	__u32 told_marked;
	__u16 window; /* as in the header */
	__u16 mss;    /* 0: no option */
	__u16 flags;
	__u8 scale; /* the option plus one; 0: none */
	__u8 ecn;
	__u8 way;
	__u8 told;   /* 1: told_octets and told_marked count */
	__u8 stamps; /* 1: a SYN with the timestamps option */
	__u8 spare;
};
_Static_assert(sizeof(struct weir_vcc_segment) == 36, "segment.rs expects 36");

/* Output of the law: changes of the segment, `Edit`. */
struct weir_vcc_edit {
	__u32 told_octets;
	__u32 told_marked;
	__u16 window;
	__u16 flags;
	__u8 ecn;
	__u8 what;
	__u16 spare;
};
_Static_assert(sizeof(struct weir_vcc_edit) == 16, "segment.rs expects 16");

/* mod.rs */

#define VCC_NONE 0
#define VCC_VIRTUAL_ECN 1
#define VCC_DCTCP 2
#define VCC_CUBIC_ECN 3
#define VCC_AUTO 4

/* Terms of a flow: `Terms`. */
struct weir_vcc_terms {
	__u32 share;	/* octets; all ones: no budget */
	__u32 patience; /* ticks */
	__u8 translation;
	__u8 is_within; /* 1: the pair sends no more than its floor */
	__u8 spare[2];
};
_Static_assert(sizeof(struct weir_vcc_terms) == 12, "mod.rs expects 12");

/* flow.rs */

#define VCC_NEW 0
#define VCC_OPENING 1
#define VCC_ALONE 2
#define VCC_OPEN 3
#define VCC_REDUCE 4
#define VCC_AVOID 5
#define VCC_SLOW_START 6

#define VCC_SYN_OUT (1u << 0)
#define VCC_SYN_IN (1u << 1)
#define VCC_SCALE_OUT (1u << 2)
#define VCC_SCALE_IN (1u << 3)
#define VCC_ASKED (1u << 4)
#define VCC_PEER_ASKED (1u << 5)
#define VCC_SPEAKS (1u << 6)
#define VCC_ECN (1u << 7)
#define VCC_ECHO (1u << 8)
#define VCC_CWR_DUE (1u << 9)
#define VCC_REPORTED (1u << 10)
#define VCC_WATCHED VCC_REPORTED /* with `auto` */
#define VCC_CUT (1u << 11)
#define VCC_FIN_OUT (1u << 12)
#define VCC_FIN_IN (1u << 13)
#define VCC_STAMPS_OUT (1u << 14)
#define VCC_STAMPS_IN (1u << 15)
#define VCC_READS VCC_STAMPS_IN /* once established */
#define VCC_OVER (VCC_FIN_OUT | VCC_FIN_IN)

#define VCC_WINDOW_MOST (1u << 30)
#define VCC_MSS_LEAST 536u

/* State of one flow: `Flow`. Octets, but for `progress` (ticks) and `seen` (1024 ticks). */
struct weir_vcc_flow {
	__u32 una;
	__u32 nxt;
	__u32 edge;
	__u32 recover;
	__u32 window;
	__u32 target;
	__u32 acked;
	__u32 progress;
	__u32 law[5]; /* the congestion control's own */
	__u16 alpha;  /* 1/32768 */
	__u16 mss;
	__u16 seen;
	__u16 flags;
	__u8 phase;
	__u8 dups;
	__u8 scale;
	__u8 translation;
};
_Static_assert(sizeof(struct weir_vcc_flow) == 64, "flow.rs expects 64");

/*
 * A part of the law: a function of its own, which the verifier visits once, and
 * not once for every way to it. The verifier knows nothing of the callers
 * there, so each function checks its pointers, and returns a number.
 *
 * With a lock held kernels allow no calls. A user that needs the law there
 * first defines its parts as `static __always_inline int`.
 */
#ifndef VCC_PART
#define VCC_PART __attribute__((noinline)) int
#endif

static __always_inline __u32 vcc_least(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

static __always_inline __u32 vcc_most(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

static __always_inline __u32 vcc_plus(__u32 a, __u32 b)
{
	__u32 sum = a + b;

	return sum < a ? ~0u : sum;
}

/* Whether `a` is later in the sequence than `b`. */
static __always_inline int vcc_past(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static __always_inline int vcc_is(const struct weir_vcc_flow *flow, __u32 flag)
{
	return (flow->flags & flag) != 0;
}

static __always_inline int vcc_has(const struct weir_vcc_segment *segment, __u32 flags)
{
	return (segment->flags & flags) != 0;
}

static __always_inline __u32 vcc_payload(const struct weir_vcc_segment *segment)
{
	return vcc_least(segment->octets, VCC_OCTETS_MOST);
}

static __always_inline __u32 vcc_end(const struct weir_vcc_segment *segment)
{
	return segment->seq + vcc_payload(segment) + (vcc_has(segment, VCC_FIN) ? 1 : 0);
}

static __always_inline void vcc_set(struct weir_vcc_flow *flow, __u32 flags)
{
	flow->flags |= flags;
}

static __always_inline void vcc_unset(struct weir_vcc_flow *flow, __u32 flags)
{
	flow->flags &= ~flags;
}

static __always_inline void vcc_enter(struct weir_vcc_flow *flow, __u8 phase)
{
	flow->phase = phase;
}

static __always_inline int vcc_is_over(const struct weir_vcc_flow *flow)
{
	return (flow->flags & VCC_OVER) == VCC_OVER;
}

static __always_inline int vcc_is_established(const struct weir_vcc_flow *flow)
{
	return flow->phase >= VCC_OPEN;
}

static __always_inline int vcc_is_throttled(const struct weir_vcc_flow *flow)
{
	return flow->phase >= VCC_REDUCE;
}

static __always_inline __u32 vcc_segment_most(const struct weir_vcc_flow *flow)
{
	return vcc_most(flow->mss, VCC_MSS_LEAST);
}

/* What of these octets is in whole segments. */
static __always_inline __u32 vcc_whole(const struct weir_vcc_flow *flow, __u32 octets)
{
	return octets - octets % vcc_segment_most(flow);
}

static __always_inline __u32 vcc_floor(const struct weir_vcc_flow *flow)
{
	return 2 * vcc_segment_most(flow);
}

static __always_inline int vcc_reaches(const struct weir_vcc_flow *flow, __u32 end)
{
	return vcc_past(end, flow->nxt) && end - flow->una <= VCC_WINDOW_MOST;
}

static __always_inline void vcc_begin(struct weir_vcc_flow *flow,
				      const struct weir_vcc_terms *terms)
{
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->translation = terms->translation;
	vcc_enter(flow, VCC_OPENING);
}

/* control/mod.rs */

static __always_inline int vcc_has_grown(struct weir_vcc_flow *flow, __u32 acked)
{
	__u32 sum = vcc_plus(flow->acked, acked);
	int is_whole = sum >= flow->window;

	if (is_whole)
		sum = vcc_least(sum - flow->window, flow->window);
	flow->acked = sum;
	return is_whole;
}

static __always_inline void vcc_linear(struct weir_vcc_flow *flow, __u32 acked)
{
	if (vcc_has_grown(flow, acked))
		flow->window = vcc_plus(flow->window, vcc_segment_most(flow));
}

/* control/dctcp.rs */

#define VCC_OBSERVED 0
#define VCC_OBSERVED_MARKED 1
#define VCC_OBSERVED_END 2
#define VCC_ALPHA_ONE (1u << 15)

/* `acked` octets were acknowledged, and no report tells how many of them were marked. */
static __always_inline void vcc_dctcp_untold(struct weir_vcc_flow *flow, __u32 acked, __u32 flight,
					     int is_echo)
{
	__u64 all = (__u64)flight * 16;
	__u32 alpha = flow->alpha;

	if (is_echo)
		alpha += (__u64)(VCC_ALPHA_ONE - alpha) * acked / all;
	else
		alpha -= ((__u64)alpha * acked + all - 1) / all;
	flow->alpha = alpha;
}

static __always_inline void vcc_dctcp_observe(struct weir_vcc_flow *flow,
					      const struct weir_vcc_segment *segment, __u32 acked)
{
	__u32 octets, marked, part = 0, alpha = flow->alpha;
	__u32 flight = flow->nxt - flow->una + acked;
	int comes = segment->told && vcc_is(flow, VCC_READS), is_told;

	if (comes && !vcc_is(flow, VCC_REPORTED)) {
		vcc_set(flow, VCC_REPORTED);
		flow->law[VCC_OBSERVED] = 0;
		flow->law[VCC_OBSERVED_MARKED] = 0;
	}
	is_told = vcc_is(flow, VCC_REPORTED);
	if (is_told) {
		octets = segment->told_octets - flow->law[VCC_OBSERVED];
		marked = segment->told_marked - flow->law[VCC_OBSERVED_MARKED];
		if (!comes || octets >> 31) {
			if (vcc_past(segment->ack, flow->law[VCC_OBSERVED_END] + flight)) {
				vcc_dctcp_untold(flow, acked, flight, vcc_has(segment, VCC_ECE));
				flow->law[VCC_OBSERVED_END] = flow->una - VCC_WINDOW_MOST;
			}
			return;
		}
	} else {
		octets = vcc_plus(flow->law[VCC_OBSERVED], acked);
		marked = vcc_plus(flow->law[VCC_OBSERVED_MARKED],
				  vcc_has(segment, VCC_ECE) ? acked : 0);
		flow->law[VCC_OBSERVED] = octets;
		flow->law[VCC_OBSERVED_MARKED] = marked;
	}
	if (!vcc_past(segment->ack, flow->law[VCC_OBSERVED_END]))
		return;
	if (octets)
		part = ((__u64)vcc_least(marked, octets) << 15) / octets;
	flow->alpha = alpha - ((alpha + 15) >> 4) + (part >> 4);
	flow->law[VCC_OBSERVED] = is_told ? segment->told_octets : 0;
	flow->law[VCC_OBSERVED_MARKED] = is_told ? segment->told_marked : 0;
	flow->law[VCC_OBSERVED_END] = flow->nxt;
}

/* control/cubic_ecn.rs */

#define VCC_CUBIC_ORIGIN 0
#define VCC_CUBIC_K 1
#define VCC_CUBIC_EPOCH 2
#define VCC_CUBIC_RENO 3
#define VCC_CUBIC_BEGAN 4
#define VCC_TIME_MOST (1u << 17)
#define VCC_CUBIC_C 1014ull /* 0.4 segments/s^3 in segments per tick^3, times 2^41 */
#define VCC_ROOT_BITS 18

static __always_inline __u32 vcc_cubic_fall(struct weir_vcc_flow *flow)
{
	__u64 window = flow->window;
	int fell_twice = flow->window < flow->law[VCC_CUBIC_ORIGIN];

	flow->law[VCC_CUBIC_ORIGIN] = fell_twice ? window * 17 / 20 : window;
	flow->law[VCC_CUBIC_BEGAN] = 0;
	return vcc_whole(flow, window * 7 / 10);
}

/*
 * Without a branch: each would double the ways that the verifier visits, and 18
 * are a quarter of a million. The empty instruction keeps the compiler from
 * making a branch of the sign.
 */
static __always_inline __u32 vcc_root(__u64 x)
{
	__u64 most = (1ull << (3 * (VCC_ROOT_BITS - 1) + 2)) - 1;
	__u64 root = 0, bit = 1ull << (VCC_ROOT_BITS - 1);

	if (x > most)
		x = most;
#pragma unroll
	for (__u32 i = 0; i < VCC_ROOT_BITS; i++) {
		__u64 next = root | bit;
		__s64 left = (__s64)x - (__s64)(next * next * next);

		asm volatile("" : "+r"(left));
		root |= bit & ~(__u64)(left >> 63);
		bit >>= 1;
	}
	return root;
}

static __always_inline __u64 vcc_cube(__u32 ticks, __u32 segment)
{
	__u64 t = vcc_least(ticks, VCC_TIME_MOST);

	return (((t * t * t * VCC_CUBIC_C) >> 20) * segment) >> 21;
}

static __always_inline void vcc_cubic_begin(struct weir_vcc_flow *flow, __u32 segment, __u32 at)
{
	__u32 origin = flow->law[VCC_CUBIC_ORIGIN], window = flow->window;
	__u64 missing = origin > window ? origin - window : 0;

	flow->law[VCC_CUBIC_ORIGIN] = vcc_most(origin, window);
	flow->law[VCC_CUBIC_K] = vcc_root((missing << 31) / segment * 1024 / VCC_CUBIC_C);
	flow->law[VCC_CUBIC_EPOCH] = at;
	flow->law[VCC_CUBIC_RENO] = window;
	flow->law[VCC_CUBIC_BEGAN] = 1;
	flow->acked = 0;
}

VCC_PART vcc_cubic_grow(struct weir_vcc_flow *flow, __u32 acked, __u32 at)
{
	if (!flow)
		return 0;

	__u32 segment = vcc_segment_most(flow), time, k, cubic, reno, missing;
	__u64 origin, way, wide, more;

	if (!flow->law[VCC_CUBIC_BEGAN])
		vcc_cubic_begin(flow, segment, at);
	time = vcc_least(at - flow->law[VCC_CUBIC_EPOCH], VCC_TIME_MOST);
	k = flow->law[VCC_CUBIC_K];
	origin = flow->law[VCC_CUBIC_ORIGIN];
	way = vcc_cube(time < k ? k - time : time - k, segment);
	if (time < k)
		wide = origin > way ? origin - way : 0;
	else
		wide = origin + way;
	cubic = wide > VCC_WINDOW_MOST ? VCC_WINDOW_MOST : wide;
	reno = flow->law[VCC_CUBIC_RENO];
	if (vcc_has_grown(flow, acked)) {
		reno += reno < flow->law[VCC_CUBIC_ORIGIN] ? segment * 9 / 17 : segment;
		reno = vcc_least(reno, VCC_WINDOW_MOST);
		flow->law[VCC_CUBIC_RENO] = reno;
	}
	if (reno > cubic) {
		flow->window = vcc_most(flow->window, reno);
	} else if (cubic > flow->window) {
		missing = vcc_least(cubic - flow->window, flow->window / 2);
		more = (__u64)missing * acked / vcc_most(flow->window, 1);
		flow->window += more > missing ? missing : more;
	}
	return 0;
}

/* The laws behind one name, as `Control`. */

static __always_inline void vcc_law_begin(struct weir_vcc_flow *flow)
{
	if (flow->translation != VCC_DCTCP)
		return;
	flow->alpha = VCC_ALPHA_ONE;
	flow->law[VCC_OBSERVED_END] = flow->nxt;
}

static __always_inline __u32 vcc_after_loss(struct weir_vcc_flow *flow)
{
	if (flow->translation == VCC_CUBIC_ECN)
		return vcc_cubic_fall(flow);
	return vcc_whole(flow, flow->window / 2);
}

static __always_inline __u32 vcc_after_mark(struct weir_vcc_flow *flow)
{
	__u64 less = ((__u64)flow->window * flow->alpha) >> 16;

	if (flow->translation == VCC_DCTCP)
		return vcc_whole(flow, flow->window) - vcc_whole(flow, less);
	return vcc_after_loss(flow);
}

static __always_inline void vcc_grow(struct weir_vcc_flow *flow, __u32 acked, __u32 at)
{
	if (flow->translation == VCC_CUBIC_ECN)
		vcc_cubic_grow(flow, acked, at);
	else
		vcc_linear(flow, acked);
}

/* watch.rs */

#include "vcc_watch.h"

/* opening.rs */

#define VCC_ASKING 2u
#define VCC_SCALE_MOST 14u
#define VCC_STAMPS 12u

static __always_inline void vcc_take_mss(struct weir_vcc_flow *flow,
					 const struct weir_vcc_segment *segment)
{
	__u32 mss = vcc_most(segment->mss, VCC_MSS_LEAST);

	flow->mss = flow->mss ? vcc_least(flow->mss, mss) : mss;
}

/* Whether the peer's port reads reports. While opening, `alpha` holds it. */
static __always_inline int vcc_is_reading(const struct weir_vcc_flow *flow)
{
	if (vcc_is_established(flow))
		return vcc_is(flow, VCC_READS);
	return flow->translation == VCC_DCTCP && flow->alpha;
}

static __always_inline void vcc_establish(struct weir_vcc_flow *flow,
					  const struct weir_vcc_segment *segment)
{
	if (!vcc_is(flow, VCC_SCALE_OUT) || !vcc_is(flow, VCC_SCALE_IN))
		flow->scale = 0;
	if (vcc_is(flow, VCC_STAMPS_OUT) && vcc_is(flow, VCC_STAMPS_IN))
		flow->mss = vcc_segment_most(flow) - VCC_STAMPS;
	flow->edge += flow->una;
	flow->recover = 0;
	flow->dups = 0;
	flow->progress = segment->at;
	vcc_unset(flow, VCC_READS);
	vcc_set(flow, vcc_is_reading(flow) ? VCC_READS : 0);
	vcc_law_begin(flow);
	vcc_enter(flow, VCC_OPEN);
}

static __always_inline void vcc_ask(struct weir_vcc_flow *flow,
				    const struct weir_vcc_segment *segment,
				    struct weir_vcc_edit *edit)
{
	if (flow->translation == VCC_NONE || vcc_is(flow, VCC_SPEAKS))
		return;
	if (vcc_has(segment, VCC_ECE | VCC_CWR | VCC_AE)) {
		vcc_set(flow, VCC_SPEAKS);
		vcc_unset(flow, VCC_ASKED | VCC_ECN);
	} else if (vcc_has(segment, VCC_ACK)) {
		if (vcc_is(flow, VCC_PEER_ASKED)) {
			edit->flags |= VCC_ECE;
			vcc_set(flow, VCC_ECN);
			if (vcc_is_reading(flow))
				edit->what |= VCC_EDIT_TELL;
		}
	} else if (flow->phase == VCC_OPENING && flow->dups < VCC_ASKING) {
		flow->dups++;
		edit->flags |= VCC_ECE | VCC_CWR;
		vcc_set(flow, VCC_ASKED);
		if (flow->translation == VCC_DCTCP)
			edit->what |= VCC_EDIT_TELL;
	} else {
		vcc_unset(flow, VCC_ASKED);
	}
}

/* Handles a SYN of the guest. */
VCC_PART vcc_asked(struct weir_vcc_flow *flow, const struct weir_vcc_segment *segment,
		   const struct weir_vcc_terms *terms, struct weir_vcc_edit *edit)
{
	if (!flow || !segment || !terms || !edit)
		return 0;

	__u32 first = segment->seq + 1, end;
	int is_known = flow->phase != VCC_ALONE && !vcc_is_over(flow);
	int has_scale = segment->scale > 0;

	if (is_known && vcc_is(flow, VCC_SYN_OUT) && first == flow->una) {
		if (has_scale != vcc_is(flow, VCC_SCALE_OUT)) {
			vcc_enter(flow, VCC_ALONE);
			return 0;
		}
	} else {
		if (!is_known || !vcc_is(flow, VCC_SYN_IN) || vcc_is(flow, VCC_SYN_OUT)) {
			vcc_begin(flow, terms);
			if (vcc_has(segment, VCC_ACK)) {
				vcc_enter(flow, VCC_ALONE);
				return 0;
			}
		}
		vcc_set(flow, VCC_SYN_OUT | (has_scale ? VCC_SCALE_OUT : 0));
		vcc_set(flow, segment->stamps ? VCC_STAMPS_OUT : 0);
		flow->una = first;
		flow->nxt = first;
		flow->progress = segment->at;
	}
	end = first + vcc_payload(segment);
	if (vcc_past(end, flow->nxt))
		flow->nxt = end;
	vcc_take_mss(flow, segment);
	vcc_ask(flow, segment, edit);
	vcc_own_agreed(flow, segment);
	return 0;
}

static __always_inline void vcc_record(struct weir_vcc_flow *flow,
				       const struct weir_vcc_segment *segment)
{
	__u32 ahead = vcc_has(segment, VCC_ACK) ? segment->ack - flow->una : 0;

	flow->recover = segment->seq;
	if (segment->scale) {
		vcc_set(flow, VCC_SCALE_IN);
		flow->scale = vcc_least(segment->scale - 1u, VCC_SCALE_MOST);
	} else {
		vcc_unset(flow, VCC_SCALE_IN);
		flow->scale = 0;
	}
	vcc_unset(flow, VCC_STAMPS_IN);
	vcc_set(flow, segment->stamps ? VCC_STAMPS_IN : 0);
	if (flow->translation == VCC_DCTCP)
		flow->alpha = segment->told ? 1 : 0;
	flow->edge = vcc_most(flow->edge, ahead + segment->window);
	vcc_take_mss(flow, segment);
}

static __always_inline void vcc_agree(struct weir_vcc_flow *flow,
				      const struct weir_vcc_segment *segment)
{
	__u32 ecn = segment->flags & (VCC_ECE | VCC_CWR);
	int is_first = !vcc_is(flow, VCC_SYN_IN);

	vcc_set(flow, VCC_SYN_IN);
	if (vcc_has(segment, VCC_ACK)) {
		if (ecn == VCC_ECE && vcc_is(flow, VCC_ASKED))
			vcc_set(flow, VCC_ECN);
		else
			vcc_unset(flow, VCC_ECN);
	} else if (ecn != (VCC_ECE | VCC_CWR)) {
		vcc_unset(flow, VCC_PEER_ASKED | VCC_ECN);
	} else if (is_first) {
		vcc_set(flow, VCC_PEER_ASKED);
	}
}

static __always_inline void vcc_hide(const struct weir_vcc_flow *flow,
				     const struct weir_vcc_segment *segment,
				     struct weir_vcc_edit *edit)
{
	int is_ours = flow->translation != VCC_NONE && !vcc_is(flow, VCC_SPEAKS);

	if (is_ours && vcc_has(segment, VCC_ACK) && vcc_is(flow, VCC_SYN_OUT))
		edit->flags &= ~(VCC_ECE | VCC_CWR);
	if (flow->translation != VCC_NONE && segment->told)
		edit->what |= VCC_EDIT_TAKE;
}

/* The peer sends a SYN. */
VCC_PART vcc_answered(struct weir_vcc_flow *flow, const struct weir_vcc_segment *segment,
		      const struct weir_vcc_terms *terms, struct weir_vcc_edit *edit)
{
	if (!flow || !segment || !terms || !edit)
		return 0;

	int is_answer = vcc_has(segment, VCC_ACK);
	int is_over = vcc_is_over(flow);
	int is_begun, is_same, is_repeated;

	if (vcc_is_established(flow) && !is_over) {
		vcc_hide(flow, segment, edit);
		return 0;
	}
	is_begun = flow->phase == VCC_OPENING && !is_over;
	if (is_answer) {
		if (!is_begun || !vcc_is(flow, VCC_SYN_OUT)) {
			vcc_enter(flow, VCC_ALONE);
			return 0;
		}
		if (vcc_past(flow->una, segment->ack) || vcc_past(segment->ack, flow->nxt))
			return 0;
	} else if (!is_begun) {
		vcc_begin(flow, terms);
	} else if (vcc_is(flow, VCC_SYN_IN)) {
		is_same = segment->seq == flow->recover;
		is_repeated = is_same && (segment->scale > 0) == vcc_is(flow, VCC_SCALE_IN);
		if (!is_repeated && (is_same || vcc_is(flow, VCC_SYN_OUT))) {
			vcc_enter(flow, VCC_ALONE);
			return 0;
		}
		if (!is_repeated)
			vcc_begin(flow, terms);
	}
	vcc_record(flow, segment);
	vcc_agree(flow, segment);
	vcc_own_agreed(flow, segment);
	vcc_hide(flow, segment, edit);
	if (is_answer) {
		vcc_establish(flow, segment);
		flow->una = segment->ack;
	}
	return 0;
}

/* Handles a segment other than a SYN while the flow opens. */
static __always_inline void vcc_finished(struct weir_vcc_flow *flow,
					 const struct weir_vcc_segment *segment)
{
	int has_both = vcc_is(flow, VCC_SYN_OUT) && vcc_is(flow, VCC_SYN_IN);

	if (segment->way == VCC_OUT) {
		if (!has_both)
			vcc_enter(flow, VCC_ALONE);
		else if (vcc_reaches(flow, vcc_end(segment)))
			flow->nxt = vcc_end(segment);
	} else if (has_both && vcc_has(segment, VCC_ACK) && !vcc_past(flow->una, segment->ack) &&
		   !vcc_past(segment->ack, flow->nxt)) {
		vcc_establish(flow, segment);
	}
}

/* receiving.rs */

#define VCC_CAME 3
#define VCC_MARKED 4

static __always_inline void vcc_came(struct weir_vcc_flow *flow,
				     const struct weir_vcc_segment *segment,
				     struct weir_vcc_edit *edit)
{
	__u32 octets = vcc_payload(segment);
	int is_marked = segment->ecn == VCC_CE && octets;

	if (!vcc_is(flow, VCC_ECN))
		return;
	if (vcc_has(segment, VCC_CWR))
		vcc_unset(flow, VCC_ECHO);
	if (is_marked)
		vcc_set(flow, VCC_ECHO);
	if (flow->translation == VCC_DCTCP) {
		flow->law[VCC_CAME] += octets;
		flow->law[VCC_MARKED] += is_marked ? octets : 0;
	}
	edit->ecn = VCC_NOT_ECT;
	edit->flags &= ~(VCC_ECE | VCC_CWR);
	if (segment->told)
		edit->what |= VCC_EDIT_TAKE;
}

static __always_inline void vcc_answer(struct weir_vcc_flow *flow,
				       const struct weir_vcc_segment *segment, int is_fresh,
				       struct weir_vcc_edit *edit)
{
	int is_dctcp = flow->translation == VCC_DCTCP;

	if (!vcc_is(flow, VCC_ECN))
		return;
	if (segment->ecn == VCC_NOT_ECT && (is_fresh || is_dctcp))
		edit->ecn = VCC_ECT_0;
	edit->flags &= ~(VCC_ECE | VCC_CWR);
	if (is_fresh && vcc_is(flow, VCC_CWR_DUE)) {
		edit->flags |= VCC_CWR;
		vcc_unset(flow, VCC_CWR_DUE);
	}
	if (vcc_has(segment, VCC_ACK) && vcc_is(flow, VCC_ECHO))
		edit->flags |= VCC_ECE;
	if (is_dctcp && vcc_is(flow, VCC_READS) && vcc_has(segment, VCC_ACK) && !vcc_has(segment, VCC_FIN) &&
	    !segment->octets) {
		edit->told_octets = flow->law[VCC_CAME];
		edit->told_marked = flow->law[VCC_MARKED];
		edit->what |= VCC_EDIT_TELL;
	}
}

/* sending.rs */

#define VCC_DUPLICATES 3u
#define VCC_AHEAD_LEAST 65535u

static __always_inline void vcc_close(struct weir_vcc_flow *flow)
{
	flow->recover = flow->nxt;
	vcc_set(flow, VCC_CUT);
	if (vcc_is(flow, VCC_ECN))
		vcc_set(flow, VCC_CWR_DUE);
}

static __always_inline void vcc_cut(struct weir_vcc_flow *flow, __u32 before, int is_mark)
{
	__u32 target;

	flow->window = vcc_most(before, vcc_floor(flow));
	target = is_mark ? vcc_after_mark(flow) : vcc_after_loss(flow);
	flow->target = vcc_most(target, vcc_floor(flow));
	flow->acked = 0;
	vcc_close(flow);
	vcc_enter(flow, VCC_REDUCE);
}

static __always_inline void vcc_time_out(struct weir_vcc_flow *flow, __u32 at)
{
	flow->progress = at;
	flow->dups = 0;
	if (!vcc_is_throttled(flow))
		return;
	if (!vcc_is(flow, VCC_CUT))
		flow->target = vcc_most(vcc_after_loss(flow), vcc_floor(flow));
	flow->window = vcc_floor(flow);
	flow->acked = 0;
	vcc_close(flow);
	vcc_enter(flow, VCC_SLOW_START);
}

/* Handles a segment from the guest. Returns whether it has new data within the window. */
VCC_PART vcc_sent(struct weir_vcc_flow *flow, const struct weir_vcc_segment *segment,
		  const struct weir_vcc_terms *terms)
{
	if (!flow || !segment || !terms)
		return 0;

	__u32 end = vcc_end(segment), last = segment->seq + vcc_payload(segment);
	int is_again = vcc_past(flow->nxt, segment->seq);
	int has_data = segment->octets > 0;
	int is_fresh = has_data && !is_again && !vcc_past(last, flow->edge);

	if (vcc_reaches(flow, end)) {
		if (flow->una == flow->nxt)
			flow->progress = segment->at;
		flow->nxt = end;
	}
	if (has_data && is_again && !vcc_past(flow->una, segment->seq)) {
		if (segment->seq == flow->una && segment->at - flow->progress >= terms->patience)
			vcc_time_out(flow, segment->at);
		else if (flow->dups >= VCC_DUPLICATES && vcc_is_throttled(flow) &&
			 !vcc_is(flow, VCC_CUT))
			vcc_cut(flow, flow->window, 0);
	}
	return is_fresh;
}

static __always_inline void vcc_reach(struct weir_vcc_flow *flow)
{
	flow->window = flow->target;
	flow->acked = 0;
	vcc_enter(flow, VCC_AVOID);
}

static __always_inline void vcc_follow(struct weir_vcc_flow *flow, __u32 acked, __u32 flight,
				       __u32 at)
{
	int is_used = flight >= flow->window / 2;

	if (flow->phase == VCC_REDUCE) {
		flow->acked = vcc_plus(flow->acked, acked);
		if (flow->una == flow->nxt)
			vcc_reach(flow);
	} else if (flow->phase == VCC_SLOW_START) {
		if (is_used)
			flow->window = vcc_plus(flow->window, acked);
		if (flow->window >= flow->target) {
			flow->window = flow->target;
			vcc_enter(flow, VCC_AVOID);
		}
	} else if (flow->phase == VCC_AVOID && is_used && !vcc_is(flow, VCC_CUT)) {
		vcc_grow(flow, acked, at);
		flow->window = vcc_least(flow->window, VCC_WINDOW_MOST);
	}
}

static __always_inline __u32 vcc_falling(const struct weir_vcc_flow *flow)
{
	__u32 window = flow->window, target = flow->target, most = target, less;
	__u32 segment = vcc_segment_most(flow), flight = flow->nxt - flow->una;

	if (flight > target) {
		less = window > target ? window - target : 0;
		less = (__u64)flow->acked * less / vcc_most(window, 1);
		window = window > less ? window - less : 0;
		most = vcc_whole(flow, window + segment - 1);
	} else if (flow->acked && flow->nxt == flow->recover) {
		most = flight + segment;
	}
	return vcc_most(most, target);
}

static __always_inline __u16 vcc_shown(struct weir_vcc_flow *flow,
				       const struct weir_vcc_segment *segment,
				       const struct weir_vcc_terms *terms)
{
	__u32 shift = flow->scale & 15, field = segment->window;
	__u32 advertised = field << shift;
	__u32 promised = vcc_past(flow->edge, segment->ack) ? flow->edge - segment->ack : 0;
	__u32 window = ~0u, most, want, edge;

	if (flow->phase == VCC_REDUCE)
		window = vcc_falling(flow);
	else if (vcc_is_throttled(flow))
		window = flow->window;
	else if (vcc_is(flow, VCC_ECN))
		window = vcc_most(2 * flow->window, VCC_AHEAD_LEAST);
	most = vcc_most(vcc_least(window, terms->share), vcc_floor(flow));
	want = vcc_most(most, promised);
	if (want < advertised)
		field = (want + (1u << shift) - 1) >> shift;
	edge = segment->ack + (field << shift);
	if (vcc_past(edge, flow->edge))
		flow->edge = edge;
	return field;
}

/* Handles an acknowledgement to the guest. */
VCC_PART vcc_acknowledged(struct weir_vcc_flow *flow, const struct weir_vcc_segment *segment,
			  const struct weir_vcc_terms *terms, struct weir_vcc_edit *edit)
{
	if (!flow || !segment || !terms || !edit)
		return 0;

	__u32 flight = flow->nxt - flow->una, acked = segment->ack - flow->una;

	if (!vcc_has(segment, VCC_ACK) || vcc_past(flow->una, segment->ack) ||
	    vcc_past(segment->ack, flow->nxt))
		return 0;
	if (flow->phase == VCC_OPEN)
		flow->window = vcc_most(flow->window, flight);
	if (acked) {
		flow->una = segment->ack;
		flow->dups = 0;
		if (vcc_is(flow, VCC_CUT) && vcc_past(segment->ack, flow->recover)) {
			vcc_unset(flow, VCC_CUT);
			if (flow->phase == VCC_REDUCE)
				vcc_reach(flow);
		}
		if (vcc_is(flow, VCC_ECN) && flow->translation == VCC_DCTCP)
			vcc_dctcp_observe(flow, segment, acked);
	} else if (!segment->octets && !vcc_has(segment, VCC_FIN) && segment->window &&
		   flow->una != flow->nxt && flow->dups < VCC_DUPLICATES) {
		flow->dups++;
	}
	if (acked || !segment->window)
		flow->progress = segment->at;
	forget();
	if (vcc_is(flow, VCC_ECN) && vcc_has(segment, VCC_ECE) && !vcc_is(flow, VCC_CUT)) {
		if (terms->is_within)
			vcc_set(flow, VCC_CWR_DUE);
		else
			vcc_cut(flow, vcc_is_throttled(flow) ? flow->window : flight, 1);
	}
	if (acked)
		vcc_follow(flow, acked, flight, segment->at);
	forget();
	edit->window = vcc_shown(flow, segment, terms);
	return 0;
}

/* flow.rs */

static __always_inline void vcc_carry_on(struct weir_vcc_flow *flow,
					 const struct weir_vcc_segment *segment,
					 const struct weir_vcc_terms *terms,
					 struct weir_vcc_edit *edit)
{
	if (flow->phase == VCC_NEW)
		vcc_enter(flow, VCC_ALONE);
	else if (flow->phase == VCC_OPENING)
		vcc_finished(flow, segment);
	if (vcc_is_established(flow)) {
		if (segment->way == VCC_OUT) {
			int is_fresh;

			vcc_watch_sent(flow, segment);
			forget();
			is_fresh = vcc_sent(flow, segment, terms);
			vcc_answer(flow, segment, is_fresh, edit);
		} else {
			vcc_watch_heard(flow, segment);
			forget();
			vcc_came(flow, segment, edit);
			forget();
			vcc_acknowledged(flow, segment, terms, edit);
		}
	}
	if (vcc_has(segment, VCC_FIN))
		vcc_set(flow, segment->way == VCC_OUT ? VCC_FIN_OUT : VCC_FIN_IN);
}

/* Decides the changes of a segment. This is the only way in. */
VCC_PART vcc_handle(struct weir_vcc_flow *flow, const struct weir_vcc_segment *segment,
		    const struct weir_vcc_terms *terms, struct weir_vcc_edit *edit)
{
	if (!flow || !segment || !terms || !edit)
		return 0;

	__builtin_memset(edit, 0, sizeof(*edit));
	edit->window = segment->window;
	edit->flags = segment->flags;
	edit->ecn = segment->ecn;
	if (vcc_has(segment, VCC_RST))
		vcc_set(flow, VCC_OVER);
	else if (!vcc_has(segment, VCC_SYN))
		vcc_carry_on(flow, segment, terms, edit);
	else if (segment->way == VCC_OUT)
		vcc_asked(flow, segment, terms, edit);
	else
		vcc_answered(flow, segment, terms, edit);
	flow->seen = segment->at >> 10;
	if (edit->window != segment->window)
		edit->what |= VCC_EDIT_WINDOW;
	if (edit->flags != segment->flags)
		edit->what |= VCC_EDIT_FLAGS;
	if (edit->ecn != segment->ecn)
		edit->what |= VCC_EDIT_ECN;
	return 0;
}

#endif
