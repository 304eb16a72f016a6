/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stamp: on the uplink's egress, after the shaper. Where a tunnel begins between
 * the ports and the uplink, also on the tunnel's device: there packets have the VMs'
 * headers still, and the uplink's own stamp sees none of a VM's.
 *
 * It writes the pair's sequence, counted in segments, into the IPv4
 * identification field, where the receiving host finds what the network lost.
 * It runs after the shaper, so that our own drops do not look like losses. A
 * super-packet takes as many numbers as it has segments: the device that cuts
 * it counts on from its first.
 *
 * Where Level asks for it some packets carry the time at which they leave in
 * its place (see timed.h).
 *
 * Fragments have no number, because their identification holds them together,
 * and IPv6 has no such field. Octets with and without a number are counted: a
 * pair whose losses do not show must not borrow because none are reported.
 *
 * Where marks are a signal, all of a pair's packets leave ECN-capable, and
 * where marks are counted no packet leaves marked (see ecn.h). A packet that is not of a pair that sends from here does not change.
 *
 * What leaves a tunnel gets its tenant's tag in the outer header (see dscp.h).
 *
 * Packets of a VM of best effort leave with the DSCP of lower effort (RFC
 * 8622), whatever the guest wrote there: switches with a second queue let them
 * wait.
 *
 * Before that it gives the packet its departure time, where the agent has
 * chosen departure times, or drops it (see depart.bpf.c). A dropped packet has
 * no number.
 *
 * Where the agent only observes, packets leave unchanged, and all count as
 * without a number: losses do not show then.
 *
 * It writes down how much of the pair's queue has left (see backlog.h).
 *
 * It also removes the class from skb->priority. The uplink's own qdisc would
 * read it as a band: pfifo_fast uses its low four bits. Where that qdisc is ours
 * and divides the uplink between VMs and host, the packet gets a class there
 * (see uplink.h).
 */

/* Whether packets enter a tunnel between the ports and the uplink. */
static __always_inline int has_tunnel(void)
{
	__u32 zero = 0;
	struct weir_settings *all = bpf_map_lookup_elem(&settings, &zero);

	return all && all->overhead;
}

static __always_inline void unclass(struct __sk_buff *skb)
{
	if (skb->priority >> 16 == WEIR_MAJOR)
		skb->priority = 0;
}

SEC("tc")
int weir_stamp(struct __sk_buff *skb)
{
	__u32 class = skb->priority;
	struct packet p = {};
	struct ends ends;
	struct weir_pair pair;
	struct weir_tx *state;
	enum kind kind;
	int is_pair, observing = observes();
	__u64 now;
	__u32 number;
	__be16 id;

	unclass(skb);
	/* The outer header of what was seen where it entered the tunnel. */
	if (is_departed(class)) {
		if (!observing)
			tag_outer(skb, class & 63);
		if (is_divided(skb))
			skb->priority = WEIR_UPLINK_VMS;
		return TC_ACT_UNSPEC;
	}
	kind = parse_packet(skb, &p);
	is_pair = find_ends(&p, &ends);
	if (ends.from)
		add_outer(&p, ends.to);
	if (!observing && depart(skb, &p, &ends, class))
		return TC_ACT_SHOT;
	if (is_of_a_vm(&ends, class) && has_tunnel())
		skb->priority = DEPARTED | tag_between(ends.from, ends.to);
	if (is_divided(skb))
		skb->priority = uplink_class(skb, &p, kind, &ends, class);
	if (kind != KIND_IP4 && kind != KIND_IP6)
		return TC_ACT_UNSPEC;
	if (!observing && ends.from && ends.from->flags & WEIR_BEST_EFFORT)
		set_tos(skb, &p, kind == KIND_IP4, DSCP_MASK, DSCP_LOWER_EFFORT);
	if (!is_pair || !(ends.from->flags & WEIR_LOCAL))
		return TC_ACT_UNSPEC;
	/* Also of a pair that has no entry: its receiver counts it all the same. */
	if (!observing && marks_count())
		take_mark_off(skb, &p, kind == KIND_IP4);
	pair.src = ends.from->vm;
	pair.dst = ends.to->vm;
	state = bpf_map_lookup_elem(&tx, &pair);
	if (!state)
		return TC_ACT_UNSPEC;

	note_left(skb, state);
	if (!observing && ecn_is_signal())
		make_capable(skb, &p, kind == KIND_IP4);
	if (observing || kind != KIND_IP4 || p.fragment) {
		__sync_fetch_and_add(&state->unnumbered, p.octets);
		return TC_ACT_UNSPEC;
	}
	__sync_fetch_and_add(&state->numbered, p.octets);
	number = __sync_fetch_and_add(&state->sequence, p.segments);
	id = bpf_htons((__u16)number);
	if (number != state->untimed && is_to_be_timed(ends.to->host, &now)) {
		state->untimed = number + p.segments;
		/* It leaves later than now. Without our departure times the field may be a guest's. */
		if (has_departures() && skb->tstamp > now)
			now = skb->tstamp;
		id = bpf_htons((__u16)(now / 1000));
		set_reserved(skb, &p, 1);
	}
	if (id == p.id)
		return TC_ACT_UNSPEC;
	bpf_l3_csum_replace(skb, p.l3 + offsetof(struct iphdr, check), p.id, id, sizeof(id));
	bpf_skb_store_bytes(skb, p.l3 + offsetof(struct iphdr, id), &id, sizeof(id), 0);
	return TC_ACT_UNSPEC;
}
