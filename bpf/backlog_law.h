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
	__u64 is_ack; /* it waits with the acknowledgements */
};

/*
 * Number of waiting flows. Without a branch, so that the verifier visits one
 * way and not one per number; the compiler would make a branch of it if it saw
 * what it is.
 */
static __always_inline __u64 backlog_flows(const __u32 *fifo)
{
	__u64 flows = 0;

	EACH_PART(i) {
		__u64 below = 0 - (__u64)fifo[i];

		asm volatile("" : "+r"(below));
		flows += below >> 63;
	}
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
			__u64 taken = earlier(fifo[i], each);

			fifo[i] -= taken;
			left -= taken;
		}
	}
	return left;
}

/* Subtracts what has drained since the last packet. */
static __always_inline void backlog_drain(struct weir_backlog *backlog, __u64 now)
{
	__u64 span = now > backlog->seen_ns ? earlier(now - backlog->seen_ns, PAUSE_MOST_NS) : 0;
	__u64 data = backlog->data_waits, acks = backlog->acks_wait, bps = backlog->bps;
	__u64 drained = bps ? span * bps / OCTET : data + acks;
	__u64 of_acks, of_data;

	if (drained >= data + acks) {
		if (data + acks) {
			EACH_PART(i) {
				backlog->data[i] = 0;
				backlog->acks[i] = 0;
			}
		}
		backlog->data_waits = 0;
		backlog->acks_wait = 0;
		backlog->data_owed = 0;
		backlog->acks_owed = 0;
		backlog->seen_ns = now;
		return;
	}
	/* Half each; what one does not need is the other's. */
	of_acks = earlier(acks, later(drained / 2, drained > data ? drained - data : 0));
	of_data = drained - of_acks;
	backlog->data_waits = data - of_data;
	backlog->acks_wait = acks - of_acks;
	backlog->data_owed = backlog_take(backlog->data, of_data + backlog->data_owed);
	backlog->acks_owed = backlog_take(backlog->acks, of_acks + backlog->acks_owed);
	backlog->seen_ns = later(now, backlog->seen_ns) - span;
	if (bps)
		backlog->seen_ns += drained * OCTET / bps;
}

/* Whether a packet is let in. If so, it is added, unless its FIFO has no room for it. */
static __always_inline int backlog_admits(struct weir_backlog *backlog,
					  const struct weir_bound *bound,
					  const struct weir_arrival *arrival, int is_new)
{
	__u32 *fifo = arrival->is_ack ? backlog->acks : backlog->data;
	__u64 octets = arrival->octets, limit, extra, before, after, own, total, other;
	__u32 part = arrival->hash % WEIR_PARTS;
	int fits;

	backlog_drain(backlog, arrival->now);
	backlog->bps = bound->bps;
	total = arrival->is_ack ? backlog->acks_wait : backlog->data_waits;
	other = arrival->is_ack ? backlog->data_waits : backlog->acks_wait;
	limit = bound->limit_ns * bound->bps / OCTET;
	/* A small packet finds room where a full frame does not; a super-packet finds less. */
	before = total + (octets > FRAME ? earlier(octets - FRAME, limit / 2) : 0);
	after = before + earlier(before, other);
	extra = 2 * (__u64)spare(octets);
	limit += extra;
	own = fifo[part];
	fits = after <= limit || (after <= limit + limit / RESERVE &&
				  (!own || (later(own, extra) - extra) * backlog_flows(fifo) <
						   later(total, extra) - extra));
	if (!is_new && !fits)
		return 0;
	if (total + octets > bound->room)
		return 1;
	fifo[part] += octets;
	if (arrival->is_ack)
		backlog->acks_wait += octets;
	else
		backlog->data_waits += octets;
	return 1;
}

#endif
