/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * meter: a part of eyeq, on a port's egress, for packets to a VM.
 *
 * It counts packets from other hosts, and makes the steps of the law. There is
 * no timer: the first packet after the end of a period closes it, and also
 * makes the steps of periods without any packet. So at every packet R is what a
 * clock would have made of it, and without packets R is not needed.
 *
 * For a fixed number of octets one sender gets a message: the one whose packet
 * fills them. A super-packet that fills them several times gets one. No sender
 * gets two within a period, because R changes only at its end. The message then
 * goes to the next sender without one. If all have one, no message is sent
 * until the period ends.
 *
 * A port that leads out of the cloud has no meter.
 *
 * It replaces `weir_meter` under EyeQ, and counts for the port what that would
 * count. Losses are not detected then.
 */

/* A VM that received nothing for so many whole periods begins anew, as a new one does: with all of C. */
#define IDLE_PERIODS 64

/* What a packet asks for. */
#define METER_TELLS 1  /* its sender is to be told */
#define METER_BEGINS 2 /* the first one after a long while: the agent is to be told */

/* One period, of which the meter has the sums. Caller holds the lock. */
static __always_inline void close_period(struct weir_eyeq_meter *meter,
					 const struct weir_eyeq_settings *set, __u64 capacity,
					 __u64 floor)
{
	struct weir_rcp_input in = {
		.rate_bps = meter->rate_bps,
		.capacity_bps = capacity,
		.floor_bps = floor,
		.elapsed_ns = set->period_ns,
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
	meter->segments = 0;
	meter->marked = 0;
	meter->steps++;
}

/* All periods that are over by now. Caller holds the lock. */
static __always_inline void close_periods(struct weir_eyeq_meter *meter,
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
	meter->steps += passed;
	if (passed >= IDLE_PERIODS)
		meter->rate_bps = at_most(capacity, RCP_RATE_MOST);
	else
		meter->rate_bps = rcp_idle(meter->rate_bps, capacity, period, set->alpha, passed,
					   IDLE_PERIODS);
}

/*
 * Counts a packet that VM `from` sent; says what it asks for. A function of its own,
 * so that the verifier looks at the steps once, and not again for every way
 * through the parser.
 */
__attribute__((noinline)) int weir_eyeq_count(__u32 slot, __u32 from, __u32 octets, __u32 segments,
					      __u32 is_marked)
{
	struct weir_eyeq_settings *set = eyeq_settings_now();
	struct weir_eyeq_share *share = bpf_map_lookup_elem(&eyeq_shares, &slot);
	struct weir_eyeq_meter *meter = bpf_map_lookup_elem(&eyeq_meters, &slot);
	struct weir_eyeq_source source = { .from = from, .slot = slot };
	__u64 capacity, floor, each, now, steps, *told = 0;
	int is_due, begins = 0;

	if (!set || !set->period_ns || !share || !meter)
		return 0;
	/* Read once: the agent writes them meanwhile. */
	capacity = *(volatile __u64 *)&share->capacity_bps;
	floor = *(volatile __u64 *)&share->floor_bps;
	each = set->feedback_octets;
	/* With the lock held nothing can be looked up. Who looks too early may be told once more. */
	if (each && *(volatile __u64 *)&meter->untold + octets >= each)
		told = bpf_map_lookup_elem(&eyeq_told, &source);
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&meter->lock);
	meter->octets += octets;
	if (capacity) {
		begins = !meter->since_ns ||
			 now >= meter->since_ns + IDLE_PERIODS * set->period_ns;
		close_periods(meter, set, capacity, floor, now);
		meter->arrived += octets;
		meter->segments += segments;
		if (is_marked)
			meter->marked += segments;
		meter->untold += octets;
	}
	steps = meter->steps;
	is_due = each && meter->untold >= each;
	if (is_due && told && *told == steps) {
		is_due = 0;
		meter->untold = each;
	}
	if (is_due) {
		meter->untold %= each;
		if (told)
			*told = steps;
	}
	bpf_spin_unlock(&meter->lock);
	/* Its first time, or others pushed it out. */
	if (is_due && !told)
		bpf_map_update_elem(&eyeq_told, &source, &steps, BPF_ANY);
	return (is_due ? METER_TELLS : 0) | (begins ? METER_BEGINS : 0);
}

/*
 * Who sent it, if the packet comes from another host to the VM behind this
 * port. A bridge that does not know an address yet gives the packet to all.
 */
static __always_inline struct weir_endpoint *metered(struct packet *p, struct weir_port *port,
						     struct weir_port_counters *counters)
{
	struct ends ends;

	if (port->flags & WEIR_OUTWARD)
		return 0;
	if (!find_ends(p, &ends)) {
		if (counters && is_from_nowhere(p, &ends, port))
			__sync_fetch_and_add(&counters->external_rx, p->octets);
		return 0;
	}
	if (ends.to->vm != port->vm || ends.from->flags & WEIR_LOCAL)
		return 0;
	return ends.from;
}

/* A clone goes to `tell`, which makes it a message or drops it. */
static __always_inline void sample(struct __sk_buff *skb, __u32 via)
{
	struct weir_eyeq_counters *counters = eyeq_counters_now();
	__u32 mark = skb->mark;
	long failed;

	if (!counters)
		return;
	skb->mark = CLONE_MARK;
	failed = bpf_clone_redirect(skb, via, 0);
	skb->mark = mark;
	if (failed)
		COUNT(counters, uncloned);
	else
		COUNT(counters, sampled);
}

SEC("tc")
int weir_eyeq_meter(struct __sk_buff *skb)
{
	struct weir_eyeq_settings *set = eyeq_settings_now();
	__u32 ifindex = skb->ifindex;
	struct weir_port_counters *counters;
	struct packet p = {};
	struct weir_endpoint *from;
	struct weir_port *port;
	enum kind kind;
	int asked;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port || !set || !set->period_ns)
		return TC_ACT_UNSPEC;
	kind = parse(skb, &p);
	counters = bpf_map_lookup_elem(&port_counters, &port->slot);
	if (counters) {
		__sync_fetch_and_add(&counters->rx_octets, p.octets);
		__sync_fetch_and_add(&counters->rx_segments, p.segments);
	}
	if (kind != KIND_IP4 && kind != KIND_IP6)
		return TC_ACT_UNSPEC;
	from = metered(&p, port, counters);
	if (!from)
		return TC_ACT_UNSPEC;
	asked = weir_eyeq_count(port->slot, from->vm, p.octets, p.segments, p.ecn == ECN_MASK);
	if (asked & METER_BEGINS)
		ring(0, port->vm, WEIR_RX);
	if (asked & METER_TELLS && set->via)
		sample(skb, set->via);
	return TC_ACT_UNSPEC;
}
