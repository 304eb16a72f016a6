/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * meter: on a port's egress, that is, on what a VM is sent.
 *
 * Counts per pair what arrived, what carries the congestion mark, and what the
 * network lost: the gaps in the sequence that stamp writes (see sequence.h).
 * Where marks are a signal, gives the guest its own ECN back (see ecn.h). Where
 * they are left to guests, takes those off that a guest need not see (see
 * marks.h). Takes Weir's code points off (see dscp.h), and its times (see timed.h).
 * Changes nothing else, and drops nothing.
 *
 * No gaps are looked for within one host (nothing is stamped there), in
 * fragments and in IPv6.
 */

/* An entry as it begins: too large for the stack. Nothing writes it. */
struct weir_rx_octets {
	__u8 octets[sizeof(struct weir_rx)];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_rx_octets);
} fresh_rx SEC(".maps");

/* An entry for a pair that has none, if the VM in `slot` has a place for it. */
static __always_inline struct weir_rx *begin_receiving(struct weir_pair *pair, __u32 slot,
						       __u32 most, __u32 same_tenant,
						       struct weir_port_counters *counters)
{
	struct weir_places *taken = bpf_map_lookup_elem(&places, &slot);
	__u32 zero = 0;
	struct weir_rx_octets *fresh = bpf_map_lookup_elem(&fresh_rx, &zero);

	if (!fresh || !taken || !has_place(taken->rx_made, taken->rx_gone, most, same_tenant))
		return 0;
	__sync_fetch_and_add(&taken->rx_made, 1);
	if (!bpf_map_update_elem(&rx, pair, fresh, BPF_NOEXIST))
		tell(pair, WEIR_RX, same_tenant, counters);
	return bpf_map_lookup_elem(&rx, pair);
}

/* Whether the packet's receiver is behind this port. */
static __always_inline int is_behind(const struct weir_port *port, const struct ends *ends)
{
	if (!(port->flags & WEIR_OUTWARD))
		return ends->to->vm == port->vm;
	return ends->outside && ends->to->vm == ends->outside->endpoint.vm &&
	       ends->to->flags & WEIR_LOCAL;
}

/*
 * Whether a pair's guest need not see the mark of a packet that was counted. A
 * function of its own, so that the verifier looks at it once, and not again for
 * every way through the parser.
 */
__attribute__((noinline)) int weir_spares(__u32 src, __u32 dst)
{
	struct weir_pair pair = { .src = src, .dst = dst };
	__u64 *offer = bpf_map_lookup_elem(&offers, &pair);
	struct weir_rx *state;
	__u64 now, bps;
	int is_off;

	if (!offer)
		return 0;
	/* Read once: the agent writes it meanwhile. */
	bps = *(volatile __u64 *)offer;
	state = bpf_map_lookup_elem(&rx, &pair);
	if (!state)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&state->lock);
	is_off = spares_mark(&state->spared, now, state->octets, bps);
	bpf_spin_unlock(&state->lock);
	return is_off;
}

/* The pair's state, or none if the packet is of no pair. */
static __always_inline struct weir_rx *receiver(struct packet *p, struct weir_port *port,
						struct weir_port_counters *counters, int *local,
						__u32 *host, struct weir_pair *pair)
{
	struct weir_rx *state;
	__u32 slot, same_tenant;
	struct ends ends;

	/* A bridge that does not know an address yet gives the packet to all. */
	if (!find_ends(p, &ends) || !is_behind(port, &ends)) {
		if (is_from_nowhere(p, &ends, port))
			__sync_fetch_and_add(&counters->external_rx, p->octets);
		else
			__sync_fetch_and_add(&counters->foreign, 1);
		return 0;
	}
	slot = port->flags & WEIR_OUTWARD && ends.outside ? ends.outside->slot : port->slot;
	same_tenant = ends.from->tenant == ends.to->tenant;
	*local = ends.from->flags & WEIR_LOCAL;
	*host = ends.from->host;
	pair->src = ends.from->vm;
	pair->dst = ends.to->vm;
	state = bpf_map_lookup_elem(&rx, pair);
	if (!state)
		state = begin_receiving(pair, slot, port->max_pairs, same_tenant, counters);
	if (!state)
		__sync_fetch_and_add(&counters->rx_full, 1);
	return state;
}

SEC("tc")
int weir_meter(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct weir_port_counters *counters;
	struct packet p = {};
	struct weir_rx *state;
	struct weir_port *port;
	enum kind kind;
	struct weir_settings *limits;
	struct weir_pair pair = {};
	__u64 now, span = 0;
	/* Neither 0 nor 1 by a branch: what follows would be looked at once for each. */
	__u32 first = 0, keeps = WEIR_OBSERVE;
	__u32 host = 0;
	int local = 0;

	unclass(skb);
	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	counters = bpf_map_lookup_elem(&port_counters, &port->slot);
	if (!counters)
		return TC_ACT_UNSPEC;

	/* Looked through once: the loops of check_sequence stand behind each way through it. */
	kind = parse_packet(skb, &p);
	__sync_fetch_and_add(&counters->rx_octets, p.octets);
	__sync_fetch_and_add(&counters->rx_segments, p.segments);
	if (kind != KIND_IP4 && kind != KIND_IP6) {
		__sync_fetch_and_add(&counters->foreign, 1);
		return TC_ACT_UNSPEC;
	}
	if (!observes()) {
		take_tag_off(skb, &p, port->flags);
		/* Also of a packet that finds no room below. */
		if (p.is_timed)
			set_reserved(skb, &p, 0);
	}
	state = receiver(&p, port, counters, &local, &host, &pair);
	if (!state)
		return TC_ACT_UNSPEC;

	limits = bpf_map_lookup_elem(&settings, &first);
	if (limits) {
		span = limits->reorder_ns;
		keeps = (limits->flags & (WEIR_ECN | WEIR_OBSERVE)) ^ WEIR_ECN;
	}
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&state->lock);
	state->octets += p.octets;
	state->segments += p.segments;
	if (p.ecn == CE)
		state->ce += p.segments;
	if (kind == KIND_IP4 && !p.fragment && !local) {
		state->numbered += p.segments;
		if (!p.is_timed || is_next(state, p.segments))
			check_sequence(state, p.is_timed ? state->expected : bpf_ntohs(p.id), p.segments,
				       now, span);
	}
	bpf_spin_unlock(&state->lock);
	if (p.is_timed && !local && !observes())
		note_arrival(host, bpf_ntohs(p.id), now);
	if (!keeps && !local)
		give_back(skb, &p, kind == KIND_IP4);
	/* Neither where marks are a signal nor where the agent only observes. */
	if (p.ecn == CE && keeps == WEIR_ECN && !local && weir_spares(pair.src, pair.dst))
		set_ecn(skb, &p, kind == KIND_IP4, ECT_0);
	return TC_ACT_UNSPEC;
}
