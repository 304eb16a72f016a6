/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The rate of pairs without a class.
 *
 * A pair has no class until the agent has given it one, some milliseconds after
 * its first packet. Some pairs never get one: of a VM with more pairs than its
 * floor or its quota allows, of a host whose classes are all taken, and while
 * no agent lives. No receiver reports the losses of such a pair, and nothing
 * slows it down. In the default class, which may borrow, it would take others'
 * floors wherever the network is full.
 *
 * So after a moment all such pairs of a VM share a small rate. classify drops
 * what exceeds it, before it has a number, so it does not count as a loss of
 * the network. The agent lowers the rate while receivers report losses of them.
 *
 * Moments are bounded as well, or a VM that sends to one new peer after another
 * would always be in one: all moments of a VM share the same rate again, and may
 * be ahead of it by a few milliseconds of the uplink.
 */
#ifndef WEIR_STRAY_H
#define WEIR_STRAY_H

/* For so long a pair may wait for a class. */
#define STRAY_NS 250000000ull
/*
 * A pair that sent nothing without a class for so long waits anew: it may have
 * had one. Not sooner, or a VM with 512 places could use their moments in turn.
 */
#define STRAY_ANEW_NS 128000000000ull
/* What a VM may send ahead: for so long, or so many octets if that is more. */
#define STRAY_AHEAD_NS 250000000ull
#define STRAY_AHEAD (12 * FRAME)
/* So often two CPUs may be in each other's way before one gives up. */
#define STRAY_TRIES 4

/*
 * Whether a pair without a class has waited for one for too long. Before the
 * agent is told of it again.
 */
static __always_inline int is_stray(struct weir_tx *pair)
{
	/* Read once: another CPU may write them meanwhile, also a later time. */
	__u64 since = *(volatile __u64 *)&pair->stray_ns;
	__u64 told = *(volatile __u64 *)&pair->told_ns;
	__u64 now = bpf_ktime_get_ns();

	if (!since || (now > told && now - told >= STRAY_ANEW_NS)) {
		pair->stray_ns = now;
		return 0;
	}
	return now > since && now - since >= STRAY_NS;
}

/*
 * Whether a packet is beyond what may be sent at `bps`, of which `clock` says when
 * all before it would have left; if not, the clock moves on. So many octets may be
 * `allowed` ahead, or STRAY_AHEAD_NS if that is more. A rate of 0 bounds nothing. A
 * function of its own, so that the verifier looks at its rounds once.
 */
__noinline int is_ahead(__u64 *clock, __u32 octets, __u64 bps, __u32 allowed)
{
	__u64 span, ahead, empty, from, now;
	int n;

	if (!clock || !bps)
		return 0;
	span = time_for(octets, bps);
	ahead = later(STRAY_AHEAD_NS, time_for(allowed, bps));
	now = bpf_ktime_get_ns();
	for (n = 0; n < STRAY_TRIES; n++) {
		empty = *(volatile __u64 *)clock;
		from = later(empty, now);
		if (is_too_long(from - now, ahead, octets, bps))
			return 1;
		if (__sync_val_compare_and_swap(clock, empty, from + span) == empty)
			return 0;
	}
	return 1;
}

#endif
