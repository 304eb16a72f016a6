/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Clocks of rates: the time that octets take, the order of two moments, and
 * waits that are too long.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

/* An octet in bit/s times nanoseconds. */
#define OCTET 8000000000ull
#define NEVER (~0ull)
#define FRAME 1514u /* a full Ethernet frame without FCS */
/* With departure times. With HTB, crates/core/src/classes.rs says it. */
#define SHORTEST_QUEUE (12 * FRAME)
#define LONGEST_WAIT_NS 250000000ull

static __always_inline __u64 later(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 earlier(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* Time that octets take at a rate. Rounds up: late by a nanosecond, never early. */
static __always_inline __u64 time_for(__u64 octets, __u64 bps)
{
	return bps ? (octets * OCTET + bps - 1) / bps : NEVER >> 2;
}

/*
 * Octets by which a packet is smaller than a full frame. That many more may
 * wait before it: as in a queue of octets, a small packet finds room where a
 * full one does not. Otherwise the full frames of a flood would take every
 * place, and no acknowledgement beside them would get through.
 */
static __always_inline __u64 spare(__u32 octets)
{
	return octets < FRAME ? FRAME - octets : 0;
}

/* Whether a packet would wait for too long; `wait` may be NEVER. */
static __always_inline int is_too_long(__u64 wait, __u64 limit_ns, __u32 octets, __u64 bps)
{
	if (wait <= limit_ns)
		return 0;
	return octets >= FRAME || wait - limit_ns > time_for(spare(octets), bps);
}

#endif
