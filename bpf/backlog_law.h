/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The packets that may wait in a pair's queue, by flows: `Backlog::admits` of
 * crates/core/src/backlog.rs, to the octet, which gives the reasons.
 * crates/dataplane/tests/backlog_law.rs holds the two equal. A change of one
 * needs a change of the other.
 *
 * Needs clock.h and intf.h.
 */
#ifndef WEIR_BACKLOG_LAW_H
#define WEIR_BACKLOG_LAW_H

/* A longer pause empties every queue: 128 kB at 64 kbit/s last as long. */
#define PAUSE_MOST_NS 16000000000ull
/* Rounds in which the drained octets are subtracted from the flows. */
#define ROUNDS 3
/* Flows with little in the queue may exceed the limit by its RESERVE-th part. */
#define RESERVE 2

/* A loop that is not unrolled: unrolled, the parts would be on the stack, which is too small. */
#define EACH_PART(i) \
	_Pragma("clang loop unroll(disable) vectorize(disable)") for (int i = 0; i < WEIR_PARTS; i++)

/* Bounds of a pair's queue: `Bound`. */
struct weir_bound {
	__u64 bps;
	__u64 limit_ns;
	__u64 room;
};

/* A packet that comes: `Arrival`. */
struct weir_arrival {
	__u64 now;
	__u32 octets;
	__u32 hash;
};

static __always_inline __u64 backlog_octets(const struct weir_backlog *backlog)
{
	__u64 sum = 0;

	EACH_PART(i)
		sum += backlog->parts[i];
	return sum;
}

/*
 * Number of waiting flows. Without a branch, so that the verifier visits one
 * way and not one per number; the compiler would make a branch of it if it saw
 * what it is.
 */
static __always_inline __u64 backlog_flows(const struct weir_backlog *backlog)
{
	__u64 flows = 0;

	EACH_PART(i) {
		__u64 below = 0 - (__u64)backlog->parts[i];

		asm volatile("" : "+r"(below));
		flows += below >> 63;
	}
	return flows;
}

/* Takes these octets from the flows in equal parts. Returns what the rounds left. */
static __always_inline __u64 backlog_take(struct weir_backlog *backlog, __u64 left)
{
	for (int round = 0; round < ROUNDS; round++) {
		__u64 flows = backlog_flows(backlog);
		__u64 each = left / (flows ? flows : 1);

		if (!each)
			break;
		EACH_PART(i) {
			__u64 taken = earlier(backlog->parts[i], each);

			backlog->parts[i] -= taken;
			left -= taken;
		}
	}
	return left;
}

/* Subtracts what has drained since the last packet. */
static __always_inline void backlog_drain(struct weir_backlog *backlog, __u64 now)
{
	__u64 span = now > backlog->seen_ns ? earlier(now - backlog->seen_ns, PAUSE_MOST_NS) : 0;
	__u64 total = backlog_octets(backlog), bps = backlog->bps;
	__u64 drained = bps ? span * bps / OCTET : total;
	__u64 left;

	if (drained >= total) {
#pragma unroll
		for (int i = 0; i < WEIR_PARTS; i++)
			backlog->parts[i] = 0;
		backlog->seen_ns = now;
		return;
	}
	left = backlog_take(backlog, drained);
	backlog->seen_ns = later(now, backlog->seen_ns) - span;
	if (bps)
		backlog->seen_ns += (drained - left) * OCTET / bps;
}

/* Whether a packet is let in. If so, it is added, unless the queue itself has no room for it. */
static __always_inline int backlog_admits(struct weir_backlog *backlog,
					  const struct weir_bound *bound,
					  const struct weir_arrival *arrival, int is_new)
{
	__u64 octets = arrival->octets, limit, larger, total, after, own;
	__u32 part = arrival->hash % WEIR_PARTS;
	int fits;

	backlog_drain(backlog, arrival->now);
	backlog->bps = bound->bps;
	total = backlog_octets(backlog);
	own = backlog->parts[part];
	limit = bound->limit_ns * bound->bps / OCTET;
	/* A small packet finds room where a full frame does not; a super-packet finds less. */
	larger = octets > FRAME ? earlier(octets - FRAME, limit / 2) : 0;
	after = total + larger;
	limit += 2 * (__u64)spare(octets);
	fits = after <= limit || (after <= limit + limit / RESERVE &&
				  (!own || own * backlog_flows(backlog) < total));
	if (!is_new && !fits)
		return 0;
	if (total + octets <= bound->room)
		backlog->parts[part] += octets;
	return 1;
}

#endif
