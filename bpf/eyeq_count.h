/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a meter makes of a packet: `RateMeter` of
 * crates/core/src/mechanism/eyeq/rate_meter.rs, to the bit, which gives the reasons.
 * crates/dataplane/tests/eyeq_count.rs holds the two equal. A change of one needs a
 * change of the other.
 *
 * All of it runs under the meter's lock, so it calls no helper.
 */
#ifndef WEIR_EYEQ_COUNT_H
#define WEIR_EYEQ_COUNT_H

/* A part that received nothing for so many whole periods begins anew, as a new one does: with all of C. */
#define IDLE_PERIODS 64
#define COUNT_OCTETS_MOST (1ull << 40)

/* What a packet asks for. */
#define METER_TELLS 1  /* its sender is to be told */
#define METER_BEGINS 2 /* the first one after a long while: the agent is to be told */

/* What one packet, or a super-packet, is to a meter. */
struct weir_eyeq_packets {
	__u64 octets;
	__u64 segments;
	__u64 marked; /* of these */
};

/*
 * Whether R may change: most of what arrives is from sources that know it, or so little arrives that
 * a higher rate does no harm.
 */
static __always_inline int is_due(const struct weir_eyeq_sums *meter,
				  const struct weir_eyeq_settings *set, __u64 capacity)
{
	__u64 heard = at_most(meter->heard, COUNT_OCTETS_MOST) << 16;
	__u64 needed = at_most(meter->sent, COUNT_OCTETS_MOST) * at_most(set->told_part, RCP_ONE);

	return heard >= needed ||
	       meter->arrived < rcp_budget(at_most(capacity, RCP_RATE_MOST), set->period_ns) / 2;
}

static __always_inline void next_round(struct weir_eyeq_sums *meter, __u64 steps)
{
	meter->steps += steps;
	meter->segments = 0;
	meter->marked = 0;
	meter->sent = 0;
	meter->heard = 0;
}

/* One period, of which the meter has the sums. */
static __always_inline void close_period(struct weir_eyeq_sums *meter,
					 const struct weir_eyeq_settings *set, __u64 capacity,
					 __u64 floor)
{
	int due = is_due(meter, set, capacity);
	struct weir_rcp_input in = {
		.rate_bps = meter->rate_bps,
		.capacity_bps = capacity,
		.floor_bps = floor,
		.elapsed_ns = due ? set->period_ns : 0,
		.received_octets = meter->arrived,
		.segments = meter->segments,
		.marked = meter->marked,
		.alpha = set->alpha,
		.least_factor = set->least_factor,
		.queue_octets = set->queue_octets,
	};
	struct weir_rcp_output out;

	rcp_step(&in, &out);
	meter->rate_bps = out.rate_bps;
	meter->load = out.load;
	meter->arrived = 0;
	if (due)
		next_round(meter, 1);
}

/* All periods that are over by now. */
static __always_inline void close_periods(struct weir_eyeq_sums *meter,
					  const struct weir_eyeq_settings *set, __u64 capacity,
					  __u64 floor, __u64 now)
{
	__u64 period = set->period_ns, passed;

	if (!meter->since_ns) {
		meter->since_ns = now;
		meter->rate_bps = at_most(capacity, RCP_RATE_MOST);
		return;
	}
	/* Another CPU may have looked at its clock later, and been here before. */
	if (now < meter->since_ns + period)
		return;
	passed = (now - meter->since_ns) / period;
	meter->since_ns += passed * period;
	close_period(meter, set, capacity, floor);
	/* The others were empty. */
	passed--;
	if (!passed)
		return;
	meter->load = 0;
	next_round(meter, passed);
	if (passed >= IDLE_PERIODS)
		meter->rate_bps = at_most(capacity, RCP_RATE_MOST);
	else
		meter->rate_bps = rcp_idle(meter->rate_bps, capacity, period, set->alpha, passed,
					   IDLE_PERIODS);
}

/* What a source sent before the last step, and that it was told, says nothing of this one. */
static __always_inline void attend(const struct weir_eyeq_sums *meter,
				   struct weir_eyeq_heeder *source)
{
	if (source->round == meter->steps)
		return;
	source->round = meter->steps;
	source->octets = 0;
	source->is_told = 0;
}

/* Whether so many octets are full, and this source does not know the rate. It does from now on. */
static __always_inline int is_to_be_told(struct weir_eyeq_sums *meter,
					 const struct weir_eyeq_settings *set,
					 struct weir_eyeq_heeder *source)
{
	__u64 each = set->feedback_octets;

	attend(meter, source);
	if (!each || meter->untold < each)
		return 0;
	if (source->is_told) {
		/* Nothing is saved up. */
		meter->untold = each;
		return 0;
	}
	meter->untold %= each;
	source->is_told = 1;
	meter->heard += source->octets;
	return 1;
}

/* Counts packets of a source; says what they ask for. */
static __always_inline int count_packets(struct weir_eyeq_sums *meter,
					 const struct weir_eyeq_settings *set, __u64 capacity,
					 __u64 floor, struct weir_eyeq_heeder *source, __u64 now,
					 const struct weir_eyeq_packets *packets)
{
	int asked = 0;

	meter->octets += packets->octets;
	if (capacity) {
		if (!meter->since_ns || now >= meter->since_ns + IDLE_PERIODS * set->period_ns)
			asked = METER_BEGINS;
		close_periods(meter, set, capacity, floor, now);
		attend(meter, source);
		meter->arrived += packets->octets;
		meter->untold += packets->octets;
		meter->sent += packets->octets;
		meter->segments += packets->segments;
		meter->marked += packets->marked;
		source->octets += packets->octets;
		if (source->is_told)
			meter->heard += packets->octets;
	}
	if (is_to_be_told(meter, set, source))
		asked |= METER_TELLS;
	return asked;
}

#endif
