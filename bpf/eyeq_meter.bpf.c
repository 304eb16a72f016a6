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
 * gets the rate of one step twice. The message then goes to the next sender
 * without one. If all have one, no message is sent until the next step.
 *
 * A VM's own tenant has one meter and strangers have another: a flood of
 * strangers lowers only the rate that strangers get.
 *
 * A port that leads out of the cloud has no meter.
 *
 * It replaces `weir_meter` under EyeQ, and counts for the port what that would
 * count. Losses are not detected then.
 */

/* What the meter remembers of a source, a new entry if it has none; none if there is no room. */
static __always_inline struct weir_eyeq_heeder *heeder_of(const struct weir_eyeq_source *source)
{
	struct weir_eyeq_heeder *heeder = bpf_map_lookup_elem(&eyeq_told, source);
	struct weir_eyeq_heeder fresh = {};

	if (heeder)
		return heeder;
	bpf_map_update_elem(&eyeq_told, source, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&eyeq_told, source);
}

/*
 * Counts a packet that VM `from` sent; says what it asks for. A function of its own,
 * so that the verifier looks at the steps once, and not again for every way
 * through the parser.
 */
__attribute__((noinline)) int weir_eyeq_count(__u32 at, __u32 from, __u32 octets, __u32 segments,
					      __u32 is_marked)
{
	struct weir_eyeq_settings *set = eyeq_settings_now();
	struct weir_eyeq_share *share = bpf_map_lookup_elem(&eyeq_shares, &at);
	struct weir_eyeq_meter *meter = bpf_map_lookup_elem(&eyeq_meters, &at);
	struct weir_eyeq_source source = { .from = from, .meter = at };
	struct weir_eyeq_packets packets = {
		.octets = octets,
		.segments = segments,
		.marked = is_marked ? segments : 0,
	};
	struct weir_eyeq_heeder *heeder;
	__u64 capacity, floor, now;
	int asked;

	if (!set || !set->period_ns || !share || !meter)
		return 0;
	/* Read once: the agent writes them meanwhile. */
	capacity = *(volatile __u64 *)&share->capacity_bps;
	floor = *(volatile __u64 *)&share->floor_bps;
	/* With the lock held nothing can be looked up. A source that others push out is told once more. */
	heeder = heeder_of(&source);
	if (!heeder)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&meter->lock);
	asked = count_packets(&meter->sums, set, capacity, floor, heeder, now, &packets);
	bpf_spin_unlock(&meter->lock);
	return asked;
}

/*
 * The sender of the packet, if it comes from another host to the VM behind this
 * port. A bridge that does not know an address yet gives the packet to all.
 */
static __always_inline struct weir_endpoint *metered(struct packet *p, struct weir_port *port,
						     struct weir_port_counters *counters,
						     struct ends *ends)
{
	if (port->flags & WEIR_OUTWARD)
		return 0;
	if (!find_ends(p, ends)) {
		if (counters && is_from_nowhere(p, ends, port))
			__sync_fetch_and_add(&counters->external_rx, p->octets);
		return 0;
	}
	if (ends->to->vm != port->vm || ends->from->flags & WEIR_LOCAL)
		return 0;
	return ends->from;
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
	struct ends ends;
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
	if (!observes())
		take_tag_off(skb, &p, port->flags);
	from = metered(&p, port, counters, &ends);
	if (!from)
		return TC_ACT_UNSPEC;
	asked = weir_eyeq_count(meter_of(&ends, port->slot), from->vm, p.octets, p.segments,
				p.ecn == ECN_MASK);
	if (asked & METER_BEGINS)
		ring(0, port->vm, WEIR_RX);
	if (asked & METER_TELLS && set->via)
		sample(skb, set->via);
	return TC_ACT_UNSPEC;
}
