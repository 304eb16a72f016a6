/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the network lost of one pair, told from what it only reordered.
 *
 * Problem   One sequence counts all of a pair's segments, but its connections
 *           take several paths: what is missing when the next one comes may
 *           still be on its way.
 * Approach  A missing segment is a hole, a bit in a ring. What comes late fills
 *           its hole. A hole becomes a loss when it has been open for
 *           `reorder_ns` and ENOUGH later segments came; on a path that stands
 *           still time alone says nothing. A slow pair's hole is a loss after
 *           PATIENCE windows, and any hole once the sequence is WEIR_WINDOW
 *           segments further.
 *           Holes appear in the order of the sequence, so their age needs no
 *           list: all before `aged` had appeared by `aged_ns`.
 *
 *   gap 0                        as it should be
 *   0 < gap < FAR                that many holes
 *   -NEAR <= gap < 0             late (or twice): fills holes
 *   everything else              resync, counted: the sender began anew, which is
 *                                at 0, or all between is lost
 *
 * A sender that begins anew is believed by its number alone: one below NEAR. A
 * guest that made jumps look like that would have to hide 65 536 segments for
 * each that arrives, which its host finds out (crates/core/src/host/hidden.rs).
 *
 * Holes are looked at when a packet comes that carries the sequence on: what a
 * path held back for a while comes in its order, late ones first. If none
 * comes, the agent counts what is overdue when it reads (intf.rs). What was overtaken by the very first packet
 * to come (the first ones wait for ARP) was never missed, and is not counted
 * as reordered: `synced` tells it.
 *
 * All of this runs under the pair's lock, so it calls no helper.
 */
#ifndef WEIR_SEQUENCE_H
#define WEIR_SEQUENCE_H

#define FAR 0x4000
#define NEAR 0x400
#define ENOUGH 3u
#define PATIENCE 8u
#define WORDS (WEIR_WINDOW / 64)

static __always_inline __u64 low_bits(__u32 n)
{
	return n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* The bits of word `i` that lie in `n` places of the ring from `start` on; n <= WEIR_WINDOW. */
static __always_inline __u64 within(__u32 i, __u32 start, __u32 n)
{
	__u32 skip = (i * 64 - start) & (WEIR_WINDOW - 1);
	__u32 wrap = WEIR_WINDOW - skip;
	__u64 bits = n > skip ? low_bits(n - skip) : 0;

	if (wrap < 64)
		bits |= low_bits(wrap + n) & ~low_bits(wrap);
	return bits;
}

static __always_inline __u32 ones(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555ull;
	x = (x & 0x3333333333333333ull) + ((x >> 2) & 0x3333333333333333ull);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (x * 0x0101010101010101ull) >> 56;
}

/* Closes the holes in `n` places from `start` on; says how many there were. */
static __always_inline __u32 close_holes(struct weir_rx *state, __u32 start, __u32 n)
{
	__u32 closed = 0;

#pragma unroll
	for (__u32 i = 0; i < WORDS; i++) {
		__u64 hit = state->holes[i] & within(i, start, n);

		state->holes[i] &= ~hit;
		closed += ones(hit);
	}
	state->missing -= closed;
	return closed;
}

static __always_inline void open_holes(struct weir_rx *state, __u32 start, __u32 n)
{
#pragma unroll
	for (__u32 i = 0; i < WORDS; i++)
		state->holes[i] |= within(i, start, n);
	state->missing += n;
}

/* The time may be another CPU's, read a little before it got the lock. */
static __always_inline int is_over(__u64 since, __u64 now, __u64 span)
{
	return (__s64)(now - since) >= (__s64)span;
}

/* Holes that were open for too long are losses. */
static __always_inline void age(struct weir_rx *state, __u64 now, __u64 span)
{
	__u16 past = state->expected - state->aged;
	__u32 n = WEIR_WINDOW;

	if (!is_over(state->gap_ns, now, PATIENCE * span)) {
		if (!is_over(state->aged_ns, now, past >= ENOUGH ? span : PATIENCE * span))
			return;
		n = past < WEIR_WINDOW ? WEIR_WINDOW - past : 0;
	}
	/* The oldest place is that of the next segment. */
	state->lost += close_holes(state, state->expected, n);
	state->aged = state->expected;
	state->aged_ns = state->gap_ns;
}

/* A segment that comes `late` places behind the expected one. */
static __always_inline void come_late(struct weir_rx *state, __u16 id, __u16 late, __u32 segments)
{
	__u32 skip = late > WEIR_WINDOW ? late - WEIR_WINDOW : 0;
	__u32 n = segments < late ? segments : late;

	if (late < state->synced)
		state->reordered += segments;
	if (state->missing && n > skip)
		close_holes(state, id + skip, n - skip);
}

/* The sequence goes on to the end of these segments; `gap` of them are missing. */
static __always_inline void go_on(struct weir_rx *state, __u16 gap, __u32 segments, __u64 now)
{
	__u32 way = gap + segments;
	__u32 over = way > WEIR_WINDOW ? way - WEIR_WINDOW : 0;

	/* Holes whose places are taken again have been open for a whole window. */
	if (state->missing)
		state->lost += close_holes(state, state->expected, way - over);
	if (gap) {
		if (over > gap)
			over = gap;
		state->lost += over;
		if (!state->missing) {
			state->aged = (__u16)(state->expected + way);
			state->aged_ns = now;
		}
		state->gap_ns = now;
		open_holes(state, state->expected + over, gap - over);
	}
	state->expected = (__u16)(state->expected + way);
}

static __always_inline void begin_anew(struct weir_rx *state, __u16 id, __u16 gap)
{
	if (state->synced) {
		state->resyncs++;
		if (id >= NEAR)
			state->lost += gap + state->missing;
	}
#pragma unroll
	for (__u32 i = 0; i < WORDS; i++)
		state->holes[i] = 0;
	state->missing = 0;
	state->expected = id;
	state->synced = 1;
}

/* Caller holds the lock. */
static __always_inline void check_sequence(struct weir_rx *state, __u16 id, __u32 segments,
					   __u64 now, __u64 span)
{
	__u16 gap = id - (__u16)state->expected;
	__u16 late = -gap;

	if (state->synced && late && late <= NEAR) {
		come_late(state, id, late, segments);
		return;
	}
	if (state->missing)
		age(state, now, span);
	if (!state->synced || gap >= FAR) {
		begin_anew(state, id, gap);
		gap = 0;
	}
	state->synced += gap + segments;
	if (state->synced > NEAR + 1)
		state->synced = NEAR + 1;
	go_on(state, gap, segments, now);
}

#endif
