/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the network lost of one pair, told from what it only reordered, and from
 * packets without a number.
 *
 * Problem   One sequence counts all of a pair's segments, but its connections
 *           take several paths: what is missing when the next one comes may
 *           still be on its way. And some of what comes may have no number: an
 *           address that was translated after the port, a tunnel. Its
 *           identification is the guest's, and may be any.
 * Approach  A missing segment is a hole, a bit in a ring. What comes late fills
 *           its hole. A hole becomes a loss when it has been open for
 *           `reorder_ns` and ENOUGH later segments came; on a path that stands
 *           still time alone says nothing. A slow pair's hole is a loss after
 *           PATIENCE windows, and any hole once the sequence is WEIR_WINDOW
 *           segments further.
 *           Holes appear in the order of the sequence, so their age needs no
 *           list: all before `aged` had appeared by `aged_ns`.
 *           A packet farther from the sequence than the ring is long is doubtful. If
 *           the sequence goes on where it was, that packet had no number:
 *           `strange`. If DOUBTS doubtful packets come and nothing that goes on, the
 *           sequence is where they are.
 *
 *   gap 0                        as it should be
 *   0 < gap < WEIR_WINDOW        that many holes
 *   -WEIR_WINDOW <= gap < 0      late (or twice): fills holes; but what is late by more
 *                                than START and below START is doubtful, for a
 *                                sender may have begun anew
 *   everything else              doubtful, DOUBTS times; then a resync, counted: the
 *                                sender began anew, which is at 0, or all between
 *                                is lost
 *
 * A sender that begins anew is believed by its first number alone: one below
 * START. A guest that made jumps look like that, or that had its packets taken for
 * strange ones, would have to hide 65 536 segments for the few that arrive, which its
 * host finds out (crates/core/src/mechanism/elasticswitch/hidden.rs).
 *
 * Holes are looked at when a packet comes that carries the sequence on: what a
 * path held back for a while comes in its order, late ones first. If none
 * comes, the agent counts what is overdue when it reads (intf.rs). What was overtaken by the very first packet
 * to come (the first ones wait for ARP) was never missed, and is not counted
 * as reordered: `synced` tells it.
 *
 * A timed packet had a number, and does not say which (see timed.h). It is taken
 * for the next one. If it had overtaken numbered ones, the last of these finds no
 * hole, and a hole appears, or is there, where the timed one's number was: that
 * hole is `owed`, and counts as no loss. So as many losses are found as there are,
 * if not always the same ones.
 *
 * All of this runs under the pair's lock, so it calls no helper. Up to 64 places of
 * the ring cost two steps, more of them one for each of its words.
 */
#ifndef WEIR_SEQUENCE_H
#define WEIR_SEQUENCE_H

#define START 0x400u
#define DOUBTS 8u
#define ENOUGH 3u
#define PATIENCE 8u
#define WORDS (WEIR_WINDOW / 64)

/* The `n` lowest bits; fewer than 64. */
static __always_inline __u64 low_bits(__u32 n)
{
	return (1ull << n) - 1;
}

static __always_inline __u32 ones(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555ull;
	x = (x & 0x3333333333333333ull) + ((x >> 2) & 0x3333333333333333ull);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (x * 0x0101010101010101ull) >> 56;
}

/* Closes the holes of a word; says how many there were. */
static __always_inline __u32 close_in(struct weir_rx *state, __u32 word, __u64 bits)
{
	__u64 hit = state->holes[word % WORDS] & bits;

	state->holes[word % WORDS] ^= hit;
	return ones(hit);
}

/* A loop that stays one, and has no other branch: the verifier sees a single way through. */
#define EACH_WORD(i) \
	_Pragma("clang loop unroll(disable)") for (__u32 i = 0; i < WORDS; i++)

static __always_inline __u32 at_most(__u32 n, __u32 most)
{
	return n < most ? n : most;
}

/* All ones if `i` is below `n`, else 0. The compiler would make a branch of it if it saw what it is. */
static __always_inline __u64 if_below(__u32 i, __u32 n)
{
	__s64 below = (__s64)i - (__s64)n;

	asm volatile("" : "+r"(below));
	return below >> 63;
}

/* Closes the holes in `n` places from `start` on; says how many there were. */
static __always_inline __u32 close_holes(struct weir_rx *state, __u32 start, __u32 n)
{
	__u32 room = 64 - start % 64, head = n < room ? n : room, word = start / 64, closed;

	closed = close_in(state, word++, (~0ull >> (64 - head)) << start % 64);
	n -= head;
	if (n >= 64) {
		EACH_WORD(i)
			closed += close_in(state, word + i, if_below(i, n / 64));
		word += n / 64;
	}
	closed += close_in(state, word, low_bits(n % 64));
	state->missing -= closed;
	return closed;
}

/* Opens holes in `n` places from `start` on, which have none. */
static __always_inline void open_holes(struct weir_rx *state, __u32 start, __u32 n)
{
	__u32 room = 64 - start % 64, head = n < room ? n : room, word = start / 64;

	state->missing += n;
	state->holes[word++ % WORDS] |= (~0ull >> (64 - head)) << start % 64;
	n -= head;
	if (n >= 64) {
		EACH_WORD(i)
			state->holes[(word + i) % WORDS] |= if_below(i, n / 64);
		word += n / 64;
	}
	state->holes[word % WORDS] |= low_bits(n % 64);
}

/* The time may be another CPU's, read a little before it got the lock. */
static __always_inline int is_over(__u64 since, __u64 now, __u64 span)
{
	return (__s64)(now - since) >= (__s64)span;
}

/* In how many places from the expected one on holes were open for too long; the oldest place is that one. */
static __always_inline __u32 aged_places(struct weir_rx *state, __u64 now, __u64 span)
{
	__u16 past = state->expected - state->aged;
	__u32 n = WEIR_WINDOW;

	if (!is_over(state->gap_ns, now, PATIENCE * span)) {
		if (!is_over(state->aged_ns, now, past >= ENOUGH ? span : PATIENCE * span))
			return 0;
		n = past < WEIR_WINDOW ? WEIR_WINDOW - past : 0;
	}
	state->aged = state->expected;
	state->aged_ns = state->gap_ns;
	return n;
}

/* The sequence goes on by `way`; the first `gap` of that are missing. Their places are free. */
static __always_inline void go_on(struct weir_rx *state, __u32 gap, __u32 way, __u64 now)
{
	__u32 over = way > WEIR_WINDOW ? way - WEIR_WINDOW : 0;

	if (gap) {
		if (over > gap)
			over = gap;
		state->lost += over;
		if (!state->missing) {
			state->aged = (__u16)(state->expected + way);
			state->aged_ns = now;
		}
		state->gap_ns = now;
		if (gap > over)
			open_holes(state, state->expected + over, gap - over);
	}
	state->synced += way;
	if (state->synced > WEIR_WINDOW + 1)
		state->synced = WEIR_WINDOW + 1;
	state->expected = (__u16)(state->expected + way);
}

/* The sequence is at `id`, where the doubtful packets are, if it was anywhere. What is missing is no more. */
static __always_inline void begin_anew(struct weir_rx *state, __u16 id)
{
	if (state->synced) {
		state->resyncs++;
		state->lost += state->missed;
		/* A sender that began anew missed less. */
		if (state->missed >= WEIR_WINDOW)
			state->lost += state->missing;
	}
	state->expected = id;
	state->synced = 1;
	state->doubts = 0;
}

/* Whether a packet is passed over: it is far from the sequence, and too few such have come. */
static __always_inline int is_doubtful(struct weir_rx *state, __u16 id, __u32 segments)
{
	__u16 gap = id - (__u16)(state->doubts ? state->doubt : state->expected);
	__u64 before = state->doubts ? state->missed : 0;

	if (gap >= 0x10000 - WEIR_WINDOW && state->doubts) {
		/* Another doubtful packet overtook it, and was thought to have missed it. */
		state->missed = before > segments ? before - segments : 0;
	} else {
		/* A sender that begins anew has missed nothing. */
		state->missed = before + (!state->doubts && id < START ? 0 : gap);
		state->doubt = (__u16)(id + segments);
	}
	return ++state->doubts < DOUBTS;
}

/*
 * A timed packet came: whether the sequence goes on by it. Caller holds the lock.
 * Next to a doubtful sequence it may belong to either.
 */
static __always_inline int is_next(struct weir_rx *state, __u32 segments)
{
	if (!state->synced)
		return 0;
	if (state->doubts) {
		state->doubt = (__u16)(state->doubt + segments);
		state->owed = at_most(state->owed + segments, WEIR_WINDOW);
		return 0;
	}
	state->ahead = at_most(state->ahead + segments, WEIR_WINDOW);
	return 1;
}

/* Holes became losses, but for those that timed packets left. */
static __always_inline void lose(struct weir_rx *state, __u32 holes)
{
	__u32 owed = at_most(state->owed, holes);

	state->owed -= owed;
	state->lost += holes - owed;
}

/* Late segments found no hole: timed packets have their places. */
static __always_inline void owe(struct weir_rx *state, __u32 segments)
{
	__u32 owed = at_most(state->ahead, segments);

	state->ahead -= owed;
	state->owed = at_most(state->owed + owed, WEIR_WINDOW);
}

/* Caller holds the lock. */
static __always_inline void check_sequence(struct weir_rx *state, __u16 id, __u32 segments,
					   __u64 now, __u64 span)
{
	__u16 gap = id - (__u16)state->expected;
	__u16 late = -gap;
	int is_far = gap >= WEIR_WINDOW && (late > WEIR_WINDOW || (late > START && id < START));
	int is_late = gap >= WEIR_WINDOW && !is_far, is_lost = 1;
	__u32 start = state->expected, n = 0, way = gap + segments, closed = 0;

	/* All that is closed is closed in one place, so that the verifier sees it once. */
	if (!state->synced || is_far) {
		if (state->synced && is_doubtful(state, id, segments))
			return;
		begin_anew(state, state->synced ? (__u16)(state->doubt - segments) : id);
		/* Before the first packet `expected` means nothing. */
		is_late = 0;
		is_lost = 0;
		n = WEIR_WINDOW;
		gap = 0;
		way = segments;
	} else {
		state->strange += state->doubts;
		state->doubts = 0;
		if (is_late) {
			if (late < state->synced)
				state->reordered += segments;
			is_lost = 0;
			start = id;
			n = segments < late ? segments : late;
		} else if (state->missing) {
			n = aged_places(state, now, span);
			/* Holes whose places are taken again have been open for a whole window. */
			if (n < way)
				n = way < WEIR_WINDOW ? way : WEIR_WINDOW;
		}
	}
	if (state->missing && n) {
		closed = close_holes(state, start, n);
		lose(state, is_lost ? closed : 0);
	}
	if (is_late && late < state->synced)
		owe(state, n - closed);
	if (!is_late)
		go_on(state, gap, way, now);
}

#endif
