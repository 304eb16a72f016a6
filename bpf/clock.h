/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Clocks of rates: how long octets take, and which of two moments comes first.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

/* An octet in bit/s times nanoseconds. */
#define OCTET 8000000000ull
#define NEVER (~0ull)

static __always_inline __u64 later(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 earlier(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* How long so many octets take. Rounds up: late by a nanosecond, never early. */
static __always_inline __u64 time_for(__u64 octets, __u64 bps)
{
	return bps ? (octets * OCTET + bps - 1) / bps : NEVER >> 2;
}

#endif
