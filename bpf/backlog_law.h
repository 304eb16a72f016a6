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
/* At this rate and above ten frames always find room; near zero, fifteen. */
#define FIFTEEN_FRAMES_BELOW 10000000ull
/* No clock of a queue is faster, bit/s. */
#define CLOCK_MOST (1ull << 30)
/* While data waits, acknowledgements may take this part of the floor, and all beyond it. */
#define ACKS_PART 12
#define ACKS_MOST (1ull << 33)
#define ACKS_PAUSE (1ull << 30)
#define QUEUE 131072ull /* of a pair on a short path */
/* More octets than that in one measurement of a rate would not fit it. */
#define PASSED_MOST (1u << 30)
/* A mark counts these octets, in 15 bits. */
#define UNIT 256
#define MARKS 0x7fffu
/* Nothing has seen the pair leave: it is within a host, or hidden. */
#define UNSEEN (~0u)

/* A loop that is not unrolled: unrolled, the parts would be on the stack, which is too small. */
#define EACH_PART(i) \
	_Pragma("clang loop unroll(disable) vectorize(disable)") for (int i = 0; i < WEIR_PARTS; i++)

/* Bounds of a pair's queue: `Bound`. */
struct weir_bound {
	__u64 bps;
	__u64 limit_ns;
	__u64 room;
	__u64 floor;
	__u64 ahead;
};

/* A packet that comes: `Arrival`. */
struct weir_arrival {
	__u64 now;
	__u32 octets;
	__u32 hash;
	__u64 is_ack; /* it waits with the acknowledgements */
	__u64 left;   /* marks that have left: of data, << 16 of acknowledgements; or UNSEEN */
};

/*
 * What follows has as few branches as possible: the verifier visits every way to
 * a loop. The compiler would make branches of it if it saw what it is.
 */

/* All ones if a < b, else 0. Both are below 2^63. */
static __always_inline __u64 mask_below(__u64 a, __u64 b)
{
	__u64 less = a - b;

	asm volatile("" : "+r"(less));
	return 0 - (less >> 63);
}

static __always_inline __u64 smaller(__u64 a, __u64 b)
{
	return b ^ ((a ^ b) & mask_below(a, b));
}

static __always_inline __u64 larger(__u64 a, __u64 b)
{
	return a ^ ((a ^ b) & mask_below(a, b));
}

/* Number of waiting flows. */
static __always_inline __u64 backlog_flows(const __u32 *fifo)
{
	__u64 flows = 0;

	EACH_PART(i)
		flows -= mask_below(0, fifo[i]);
	return flows;
}

/* Takes these octets from the flows in equal parts. Returns what the rounds left. */
static __always_inline __u64 backlog_take(__u32 *fifo, __u64 left)
{
	for (int round = 0; round < ROUNDS && left; round++) {
		__u64 flows = backlog_flows(fifo);
		__u64 each = left / (flows ? flows : 1);

		if (!each)
			break;
		EACH_PART(i) {
			__u64 taken = smaller(fifo[i], each);

			fifo[i] -= taken;
			left -= taken;
		}
	}
	return left;
}

/* What a packet carries that was let in as the last of so many octets. */
static __always_inline __u32 backlog_mark(__u32 octets)
{
	return octets / UNIT & MARKS;
}

/* Octets let in after those with a mark; all, if the mark is older than all that waits. */
static __always_inline __u64 backlog_behind(__u32 let_in, __u32 left)
{
	__u64 units = (backlog_mark(let_in) - left) & MARKS;

	return ((units * UNIT + let_in % UNIT) & mask_below(0, units)) |
	       (mask_below(MARKS / 2, units) >> 32);
}

/* Nothing waits any more. */
static __always_inline void backlog_clear(struct weir_backlog *backlog, __u64 now)
{
	EACH_PART(i) {
		backlog->data[i] = 0;
		backlog->acks[i] = 0;
	}
	backlog->data_owed = 0;
	backlog->acks_owed = 0;
	backlog->rate = 0;
	backlog->passed = 0;
	backlog->since_ns = now;
	backlog->seen_ns = now;
	backlog->acks_seen_ns = now;
	backlog->data_moved_ns = now;
	backlog->acks_moved_ns = now;
}

/* How many of the acknowledgements that have drained are taken from their flows now. */
static __always_inline __u64 backlog_due_acks(struct weir_backlog *backlog, __u64 now, __u64 due)
{
	__u64 span = smaller(larger(now, backlog->acks_seen_ns) - backlog->acks_seen_ns, ACKS_PAUSE);
	__u64 bps = backlog->acks_bps, part = span * bps / OCTET;
	/* All ones if all are. */
	__u64 all = ~mask_below(0, backlog->data_waits) | mask_below(due, part + 1), at;

	/* With less, what does not divide by the number of flows would add up. */
	part &= ~mask_below(part, UNIT);
	at = larger(now, backlog->acks_seen_ns) - span + part * OCTET / larger(bps, 1);
	backlog->acks_seen_ns = (now & all) | (at & ~all);
	return (due & all) | (part & ~all);
}

/* Octets of one of the two that were seen to leave, or that the floor would have sent by now. */
static __always_inline __u64 backlog_seen(struct weir_backlog *backlog, __u64 *moved_ns,
					  __u64 waits, __u64 behind, __u64 now)
{
	__u64 gone = waits - smaller(waits, behind);
	__u64 span = smaller(larger(now, *moved_ns) - *moved_ns, PAUSE_MOST_NS);
	__u64 total = (__u64)backlog->data_waits + backlog->acks_wait;
	/* All ones: something left; nothing waits; it was dropped elsewhere. */
	__u64 moves = mask_below(0, gone), empty = ~mask_below(0, waits);
	__u64 lost = ~moves & ~empty & mask_below(total, span * backlog->bps / OCTET + 1);

	backlog->passed = smaller(backlog->passed + gone, PASSED_MOST);
	backlog->seen_ns = (now & moves) | (backlog->seen_ns & ~moves);
	*moved_ns = (now & (moves | empty)) | (*moved_ns & ~(moves | empty));
	return (waits & lost) | (gone & ~lost);
}

/* Subtracts what has left since the last packet. */
static __always_inline void backlog_drain(struct weir_backlog *backlog, __u64 now, __u32 left)
{
	__u64 span = smaller(larger(now, backlog->seen_ns) - backlog->seen_ns, PAUSE_MOST_NS);
	__u64 data = backlog->data_waits, acks = backlog->acks_wait, total = data + acks;
	__u64 bps = backlog->bps, by_clock = span * bps / OCTET;
	__u64 of_data, of_acks, is_gone, due;

	backlog->left = left;
	if (left == UNSEEN) {
		/* Half each; what one does not need is the other's. */
		of_acks = smaller(acks, larger(by_clock / 2, larger(by_clock, data) - data));
		of_data = by_clock - of_acks;
		is_gone = mask_below(total, by_clock + 1);
		backlog->seen_ns = larger(now, backlog->seen_ns) - span;
		if (bps)
			backlog->seen_ns += by_clock * OCTET / bps;
	} else {
		of_data = backlog_seen(backlog, &backlog->data_moved_ns, data,
				       backlog_behind(backlog->data_in, left & MARKS), now);
		of_acks = backlog_seen(backlog, &backlog->acks_moved_ns, acks,
				       backlog_behind(backlog->acks_in, left >> 16 & MARKS), now);
		is_gone = mask_below(total, of_data + of_acks + 1);
	}
	is_gone |= ~mask_below(0, bps);
	backlog->data_waits = (data - of_data) & ~is_gone;
	backlog->acks_wait = (acks - of_acks) & ~is_gone;
	if (is_gone) {
		backlog_clear(backlog, now);
		return;
	}
	backlog->data_owed = backlog_take(backlog->data, of_data + backlog->data_owed);
	due = of_acks + backlog->acks_owed;
	if (!due) {
		backlog->acks_seen_ns = now;
		return;
	}
	of_acks = backlog_due_acks(backlog, now, due);
	backlog->acks_owed = backlog_take(backlog->acks, of_acks) + (due - of_acks);
}

/* Octets that may wait, at the rate at which the queue drained of late. Divides that, too. */
static __always_inline __u64 backlog_limit(struct weir_backlog *backlog,
					   const struct weir_bound *bound, __u64 now)
{
	__u64 span = now > backlog->since_ns ? now - backlog->since_ns : 0;
	__u64 usual = bound->limit_ns * bound->bps / OCTET, rate = bound->bps;
	/* `most_waiting` and `shortest_queue` of crates/core/src/classes.rs. */
	__u64 least, settled, most = smaller(bound->room / 4 * 3, larger(QUEUE / 4 * 3, bound->room / 2));

	/* From one that leaves to one that leaves: in between, a large one is underway. */
	if (span && backlog->passed && backlog->seen_ns == now && span >= bound->limit_ns) {
		backlog->rate = (__u64)backlog->passed * OCTET / span;
		backlog->since_ns = now;
		backlog->passed = 0;
	}
	if (backlog->rate)
		rate = smaller(larger(backlog->rate, bound->floor), rate);
	/* A measured rate is too high by a packet now and then. */
	settled = bound->floor + bound->floor / 16;
	backlog->acks_bps = smaller(bound->floor / ACKS_PART + larger(rate, settled) - settled, ACKS_MOST);
	least = 15 * FRAME - 5 * FRAME * smaller(rate, FIFTEEN_FRAMES_BELOW) / FIFTEEN_FRAMES_BELOW;
	return smaller(larger(bound->limit_ns * rate / OCTET, smaller(least, usual)), most);
}

/* Whether a packet is let in. If so, it is added, unless its FIFO has no room for it. */
static __always_inline int backlog_admits(struct weir_backlog *backlog,
					  const struct weir_bound *bound,
					  const struct weir_arrival *arrival, int is_new)
{
	__u32 *fifo = arrival->is_ack ? backlog->acks : backlog->data;
	__u64 ahead = arrival->left == UNSEEN ? bound->ahead : 0;
	__u64 under_way = arrival->left == UNSEEN ? 0 : FRAME;
	__u64 octets = arrival->octets, limit, extra, before, after, own, total, other;
	__u32 part = arrival->hash % WEIR_PARTS;
	int fits;

	backlog_drain(backlog, arrival->now, arrival->left);
	backlog->bps = smaller(arrival->left == UNSEEN ? bound->bps : larger(bound->floor, 1), CLOCK_MOST);
	total = arrival->is_ack ? backlog->acks_wait + (__u64)backlog->acks_owed
				: backlog->data_waits + (__u64)backlog->data_owed;
	other = arrival->is_ack ? backlog->data_waits : backlog->acks_wait;
	limit = backlog_limit(backlog, bound, arrival->now) + ahead;
	/* What is seen to leave has done so when its time begins, and the next waits for that. */
	limit = larger(limit, under_way) - under_way;
	/* A small packet finds room where a full frame does not; a super-packet finds less. */
	before = total + smaller(larger(octets, FRAME) - FRAME, limit / 2);
	after = before + smaller(before, other);
	extra = 2 * (__u64)spare(octets);
	limit += extra;
	own = fifo[part];
	fits = after <= limit || (after <= limit + limit / RESERVE &&
				  (!own || (larger(own, extra) - extra) * backlog_flows(fifo) <
						   larger(total, extra) - extra));
	if (!is_new && !fits)
		return 0;
	if (total + octets > bound->room + ahead)
		return 1;
	fifo[part] += octets;
	if (arrival->is_ack) {
		backlog->acks_wait += octets;
		backlog->acks_in += octets;
	} else {
		backlog->data_waits += octets;
		backlog->data_in += octets;
	}
	return 1;
}

#endif
