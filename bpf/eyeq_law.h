/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * EyeQ's rate control law: `rcp_step` of crates/core/src/mechanism/eyeq/law.rs, to the
 * bit, which gives the reasons. crates/dataplane/tests/eyeq_law.rs holds the two
 * equal. A change of one needs a change of the other.
 *
 * Unsigned numbers of 64 bits, and no others: a product of two of them is never
 * taken before both are cut to what fits. Divisions are of 64 bits by 64, which
 * every BPF machine has.
 */
#ifndef WEIR_EYEQ_LAW_H
#define WEIR_EYEQ_LAW_H

#define RCP_ONE (1ull << 16)		/* one, in the fractions of the law */
#define RCP_RATE_MOST ((1ull << 39) - 1) /* bit/s; rates above are cut to this */
#define RCP_ELAPSED_MOST (1ull << 30)	/* ns; a longer time counts as this */
#define RCP_RATE_LEAST 1000ull		/* bit/s; no rate is below, unless C is */
#define RCP_LOAD_MOST 3ull		/* arrivals count up to this many times C */
#define RCP_ALPHA_MOST (4 * RCP_ONE)
#define RCP_SEGMENTS_MOST ((1ull << 40) - 1)
#define RCP_STEPS 125000000ull /* 8 bits x 10^9 ns, in steps of 64 ns */

/* The input of one step: `RcpInput`. */
struct weir_rcp_input {
	__u64 rate_bps;	       /* R before the step */
	__u64 capacity_bps;    /* C */
	__u64 floor_bps;       /* R is not below this, unless C is */
	__u64 elapsed_ns;      /* since the last step */
	__u64 received_octets; /* that arrived in that time */
	__u64 segments;	       /* the same in segments */
	__u64 marked;	       /* of these, marked CE */
	__u32 alpha;	       /* 1/65536 */
	__u32 least_factor;    /* 1/65536 */
	__u32 queue_octets;    /* 0: R falls by beta/2; else what a mark says is waiting */
	__u32 spare;
};
_Static_assert(sizeof(struct weir_rcp_input) == 72, "law.rs expects 72");

/* The output of one step: `RcpOutput`. */
struct weir_rcp_output {
	__u64 rate_bps; /* R after the step */
	__u64 load;	/* y / C, in 1/65536 */
};
_Static_assert(sizeof(struct weir_rcp_output) == 16, "law.rs expects 16");

static __always_inline __u64 at_most(__u64 value, __u64 bound)
{
	return value < bound ? value : bound;
}

static __always_inline __u64 at_least(__u64 value, __u64 bound)
{
	return value > bound ? value : bound;
}

/* Rounded up. No sum of these two wraps here. */
static __always_inline __u64 parts_of(__u64 value, __u64 by)
{
	return (value + by - 1) / by;
}

/* `marked` of `segments`, in 1/65536, rounded up. */
static __always_inline __u64 rcp_part(__u64 marked, __u64 segments)
{
	segments = at_most(segments, RCP_SEGMENTS_MOST);
	if (!segments)
		return 0;
	return parts_of(at_most(marked, segments) << 16, segments);
}

/* Octets that fit into `elapsed_ns` at `bps`, rounded down. 39 bits times 24. */
static __always_inline __u64 rcp_budget(__u64 bps, __u64 elapsed_ns)
{
	return bps * (at_most(elapsed_ns, RCP_ELAPSED_MOST) >> 6) / RCP_STEPS;
}

/* One step of the law. Without time or without capacity only the bounds of R apply. */
static __always_inline void rcp_step(const struct weir_rcp_input *in, struct weir_rcp_output *out)
{
	__u64 capacity = at_most(in->capacity_bps, RCP_RATE_MOST);
	__u64 floor = at_most(at_least(in->floor_bps, RCP_RATE_LEAST), capacity);
	__u64 rate = at_most(at_least(in->rate_bps, floor), capacity);
	__u64 budget = rcp_budget(capacity, in->elapsed_ns);
	__u64 beta, waiting, most, seen, load, alpha, cut, grown, factor, next;

	out->rate_bps = rate;
	out->load = 0;
	if (!budget)
		return;
	beta = rcp_part(in->marked, in->segments);
	waiting = beta ? parts_of(in->queue_octets * (RCP_ONE + beta), RCP_ONE) : 0;
	/* Below: budget < 2^37, load <= 3 x 2^16, alpha <= 2^18, rate < 2^39. */
	most = RCP_LOAD_MOST * budget;
	seen = at_most(at_most(in->received_octets, most) + waiting, most);
	load = parts_of(seen << 16, budget);

	alpha = at_most(in->alpha, RCP_ALPHA_MOST);
	cut = parts_of(alpha * load, RCP_ONE);
	grown = RCP_ONE + alpha;
	factor = at_least(grown > cut ? grown - cut : 0, at_most(in->least_factor, RCP_ONE));
	next = (rate * factor) >> 16;
	if (!in->queue_octets)
		next = (next * (2 * RCP_ONE - beta)) >> 17;
	out->rate_bps = at_most(at_least(next, floor), capacity);
	out->load = load;
}

/*
 * What so many further steps make of a rate while nothing arrives; `times` below
 * `most`, which is a constant. The smaller of two is taken without a branch: the
 * verifier looks at every round of the loop by itself, and at each way through it.
 */
static __always_inline __u64 rcp_idle(__u64 rate, __u64 capacity, __u64 elapsed_ns, __u64 alpha,
				      __u32 times, __u32 most)
{
	__u64 grown = RCP_ONE + at_most(alpha, RCP_ALPHA_MOST);

	capacity = at_most(capacity, RCP_RATE_MOST);
	if (!rcp_budget(capacity, elapsed_ns))
		return rate;
	for (__u32 i = 0; i < most; i++) {
		__s64 over = (rate * grown >> 16) - capacity;

		if (i >= times)
			break;
		rate = capacity + (over & over >> 63);
	}
	return rate;
}

#endif
