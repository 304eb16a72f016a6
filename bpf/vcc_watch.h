/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * `auto` of vCC's law: whether a guest that agreed on ECN by itself answers
 * marks. A part of vcc_law.h, which includes it. crates/core/src/vcc/watch.rs
 * gives the reasons and is equal to the octet.
 */
#ifndef WEIR_VCC_WATCH_H
#define WEIR_VCC_WATCH_H

/* Words of `law`. */
#define VCC_ROUND_END 0
#define VCC_ROUND_FLIGHT 1
#define VCC_ROUND 2
#define VCC_STRIKES 3
#define VCC_AGAIN 4

#define VCC_ROUNDS 2u
#define VCC_STRIKES_MOST 3u

static __always_inline int vcc_is_watched(const struct weir_vcc_flow *flow)
{
	return flow->translation == VCC_AUTO && vcc_is(flow, VCC_WATCHED);
}

/* A SYN passed: whether with it the guest has agreed on ECN by itself. */
static __always_inline void vcc_own_agreed(struct weir_vcc_flow *flow,
					   const struct weir_vcc_segment *segment)
{
	int is_answer = vcc_has(segment, VCC_ACK) &&
			(segment->flags & (VCC_ECE | VCC_CWR | VCC_AE)) == VCC_ECE;
	int is_asked = segment->way == VCC_IN || vcc_is(flow, VCC_PEER_ASKED);

	if (is_answer && is_asked && flow->translation == VCC_AUTO && vcc_is(flow, VCC_SPEAKS))
		vcc_set(flow, VCC_WATCHED);
}

/* The guest sends; before its numbers are taken up. */
static __always_inline void vcc_watch_sent(struct weir_vcc_flow *flow,
					   const struct weir_vcc_segment *segment)
{
	int is_again = vcc_past(flow->nxt, segment->seq);

	if (!vcc_is_watched(flow) || !segment->octets)
		return;
	if (vcc_has(segment, VCC_CWR)) {
		if (!flow->law[VCC_AGAIN])
			flow->law[VCC_STRIKES] = 0;
		flow->law[VCC_AGAIN] = 0;
	}
	if (is_again)
		flow->law[VCC_AGAIN] = 1;
	if (is_again || vcc_has(segment, VCC_CWR) || segment->ecn == VCC_NOT_ECT)
		flow->law[VCC_ROUND] = 0;
}

/* A round is over: the next one begins, or it was the last. */
static __always_inline void vcc_watch_round(struct weir_vcc_flow *flow, __u32 flight, int is_told)
{
	__u32 before = flow->law[VCC_ROUND_FLIGHT];

	if (is_told && flow->law[VCC_ROUND] < VCC_ROUNDS) {
		flow->law[VCC_ROUND_END] = flow->nxt;
		flow->law[VCC_ROUND]++;
		return;
	}
	flow->law[VCC_ROUND] = 0;
	if (flight < before - before / 8)
		flow->law[VCC_STRIKES] = 0;
	else if (is_told)
		flow->law[VCC_STRIKES]++;
	if (flow->law[VCC_STRIKES] >= VCC_STRIKES_MOST) {
		__builtin_memset(flow->law, 0, sizeof(flow->law));
		vcc_unset(flow, VCC_WATCHED | VCC_SPEAKS);
		vcc_set(flow, VCC_ECN);
	}
}

/* An acknowledgement goes to the guest; before its number is taken up. */
static __always_inline void vcc_watch_heard(struct weir_vcc_flow *flow,
					    const struct weir_vcc_segment *segment)
{
	__u32 flight = flow->nxt - flow->una;
	int is_told = vcc_has(segment, VCC_ECE);

	if (!vcc_is_watched(flow) || !vcc_has(segment, VCC_ACK) ||
	    vcc_past(flow->una, segment->ack) || vcc_past(segment->ack, flow->nxt))
		return;
	if (!flow->law[VCC_ROUND]) {
		if (is_told) {
			flow->law[VCC_ROUND_END] = flow->nxt;
			flow->law[VCC_ROUND_FLIGHT] = flight;
			flow->law[VCC_ROUND] = 1;
		}
	} else if (vcc_past(segment->ack, flow->law[VCC_ROUND_END])) {
		vcc_watch_round(flow, flight, is_told);
	}
}

#endif
