/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * classify: on a port's ingress, for packets from a VM.
 *
 * It chooses the class of a packet in the shaper, counts the packet, and drops
 * it if
 *
 * - its source is not the VM's,
 * - its pair's queue is too long (see backlog.h),
 * - it exceeds its pair's floor while no agent renews the lease (see lease.h),
 * - its pair has no class and the VM's strays exceed their rate (see stray.h).
 *
 * What passes carries its tenant's tag, and nothing by which its guest chose a
 * queue of a switch (see dscp.h).
 *
 * The class goes into skb->priority, which the shaper behind the redirect
 * reads. A VM cannot choose it: the kernel clears the priority when a packet
 * leaves the VM's namespace.
 *
 * What passes, and how:
 *   own address -> VM of the directory,  the pair's class, or until the agent
 *     or outside the cloud               has given it one, the default class
 *   own address -> an address that       external class: real traffic, which
 *     no directory lists                 has a floor and a ceiling of its own
 *   ARP, neighbour discovery             control class, if it speaks of the
 *                                        VM's own address (or none: a probe)
 *   DHCP request                         control class
 *   own address -> itself, link-local,   default class, no faster than strays
 *     multicast, broadcast               (see stray.h)
 *   IPv6 within the link (fe80:: to      the same: it cannot be routed
 *   fe80:: or ff02::; :: to ff02::)
 *   neither IP nor ARP                   the same
 *
 * Every other packet is spoofed or malformed, and is dropped and counted. The
 * same happens to a packet from another MAC address than the VM's, if that is
 * configured, to a packet to an agent (control is between hosts), and to a
 * packet that only a router or a DHCP server may send, because a VM is neither.
 *
 * Where the agent only observes, all of this is counted, and every packet
 * passes unchanged.
 *
 * A port that leads outside has no addresses of its own: any address that no VM
 * of the cloud has may send there. The sender follows from the tenant of the
 * receiver, so the endpoints of several tenants may share the port.
 */

#define TELL_AGAIN_NS 10000000ull
#define TELL_SELDOM_NS 1000000000ull
#define NO_CLASS (~0u) /* the pair's queue is too long */
#define STRAY (~1u)    /* the pair has no class, and the rate of strays is used up */
#define UNPAIRED (~2u) /* the packet has no pair and no place, and that rate is used up */

/* The VM or endpoint that sends a packet. */
struct sender {
	__u32 vm;
	__u32 tenant;
	__u32 slot;
	__u32 default_class;
};

/* Whether a packet on the port may have this source address. */
static __always_inline int owns(const struct weir_port *port, struct weir_address *address)
{
	struct weir_endpoint *e = bpf_map_lookup_elem(&endpoints, address);

	if (port->flags & WEIR_OUTWARD)
		return !e && !is_host(address);
	return e && e->vm == port->vm;
}

/* Whether the frame has this hardware address at `offset`. */
static __always_inline int has_mac(struct __sk_buff *skb, __u32 offset, const __u16 *wanted)
{
	__be16 mac[ETH_ALEN / 2];

	if (bpf_skb_load_bytes(skb, offset, mac, sizeof(mac)))
		return 0;
	return mac[0] == wanted[0] && mac[1] == wanted[1] && mac[2] == wanted[2];
}

/* Whether the frame has the configured source address, if one is configured. */
static __always_inline int is_from_mac(struct __sk_buff *skb, const struct weir_port *port)
{
	return !(port->flags & WEIR_FIXED_MAC) || has_mac(skb, ETH_ALEN, port->mac);
}

/*
 * Whether the frame goes to another VM than the packet in it. Such a packet
 * would be counted at no port as received: neither the links that it used, nor
 * its losses, would show.
 */
static __always_inline int is_misdirected(struct __sk_buff *skb, const struct weir_port *port,
					  const struct weir_endpoint *to)
{
	return to && to->flags & WEIR_AT_MAC && !(port->flags & WEIR_OUTWARD) &&
	       !has_mac(skb, 0, to->mac);
}

/* Whether a packet is a datagram to an agent, or may be a part of one. */
static __always_inline int is_control(struct __sk_buff *skb, struct packet *p)
{
	struct weir_control at = { .address = p->dst };
	__be16 port;

	if (p->protocol != IPPROTO_UDP && !is_extension(p->protocol))
		return 0;
	if (!bpf_map_lookup_elem(&controls, &at))
		return 0;
	if (p->later)
		return 1;
	if (bpf_skb_load_bytes(skb, p->l4 + 2, &port, sizeof(port)))
		return 1;
	at.port = port;
	return port && bpf_map_lookup_elem(&controls, &at);
}

enum dhcp {
	DHCP_NONE,
	DHCP_REQUEST, /* to a server */
	DHCP_REPLY,   /* from a server to a client */
};

static __always_inline enum dhcp dhcp_of(struct __sk_buff *skb, struct packet *p, enum kind kind)
{
	__be16 server = bpf_htons(kind == KIND_IP4 ? 67 : 547);
	__be16 client = bpf_htons(kind == KIND_IP4 ? 68 : 546);
	__be16 ports[2];

	if (p->protocol != IPPROTO_UDP || p->fragment ||
	    (kind != KIND_IP4 && kind != KIND_IP6) ||
	    bpf_skb_load_bytes(skb, p->l4, ports, sizeof(ports)))
		return DHCP_NONE;
	if (ports[1] == server)
		return DHCP_REQUEST;
	return ports[0] == server && ports[1] == client ? DHCP_REPLY : DHCP_NONE;
}

static __always_inline int is_within_link(struct packet *p)
{
	if (is_link_multicast(&p->dst))
		return is_link_local(&p->src) || is_zero(&p->src);
	return is_link_local(&p->src) && is_link_local(&p->dst);
}

/* Whether a DHCP client asks that has no address yet, or only one of the link. */
static __always_inline int is_asking(struct packet *p, enum kind kind)
{
	return kind == KIND_IP4 ? p->src.words[3] == 0 : is_within_link(p);
}

static __always_inline int may_discover(const struct weir_port *port, struct packet *p)
{
	if (!is_zero(&p->src) && !is_link_local(&p->src) && !owns(port, &p->src))
		return 0;
	return !p->advertises || is_link_local(&p->target) || owns(port, &p->target);
}

/* A pair that has sent nothing: on a stack it would take half of it. */
static const struct weir_tx fresh_tx;

/* Makes an entry for a pair without one, if there is a place for it. */
static __always_inline struct weir_tx *begin_sending(struct weir_pair *pair, __u32 slot, __u32 most,
						     __u32 same_tenant)
{
	struct weir_places *taken = bpf_map_lookup_elem(&places, &slot);

	if (!taken || !has_place(taken->tx_made, taken->tx_gone, most, same_tenant))
		return 0;
	__sync_fetch_and_add(&taken->tx_made, 1);
	/* Another CPU may be first: then the second look-up finds its entry. */
	bpf_map_update_elem(&tx, pair, &fresh_tx, BPF_NOEXIST);
	return bpf_map_lookup_elem(&tx, pair);
}

/*
 * Tells the agent that a pair sends and has no class. Repeats it after a while,
 * so that a lost event, or a pair that the agent has forgotten, costs no more
 * than that. The interval grows, because the agent may have no class to give.
 * After is_stray, which stores since when the pair waits.
 */
static __always_inline void ask_for_class(struct weir_pair *pair, struct weir_tx *state,
					  __u32 same_tenant, struct weir_port_counters *counters)
{
	__u64 told = state->told_ns;
	__u64 now = bpf_ktime_get_ns();
	/* Read once: another CPU may write it meanwhile. */
	__u64 since = *(volatile __u64 *)&state->stray_ns;
	__u64 waited = now > since ? now - since : 0;

	if (told && now - told < later(TELL_AGAIN_NS, earlier(waited / 4, TELL_SELDOM_NS)))
		return;
	if (__sync_val_compare_and_swap(&state->told_ns, told, now) == told)
		tell(pair, WEIR_TX, same_tenant, counters);
}

/* Finds the sender and the receiver of a packet to `to`: 0 if they are no pair. */
static __always_inline int find_pair(struct packet *p, struct weir_endpoint *to,
				     const struct weir_port *port, struct sender *from,
				     struct weir_endpoint *dst)
{
	struct weir_outside *out;

	from->vm = port->vm;
	from->tenant = port->tenant;
	from->slot = port->slot;
	from->default_class = port->default_class;
	if (port->flags & WEIR_OUTWARD) {
		out = to ? outside_of(to->tenant, &p->src) : 0;
		if (!out || !(out->endpoint.flags & WEIR_LOCAL))
			return 0;
		from->vm = out->endpoint.vm;
		from->tenant = out->endpoint.tenant;
		from->slot = out->slot;
		from->default_class = out->default_class;
	} else if (!to) {
		out = outside_of(port->tenant, &p->dst);
		if (!out)
			return 0;
		to = &out->endpoint;
	}
	dst->vm = to->vm;
	dst->tenant = to->tenant;
	dst->flags = to->flags;
	return dst->vm != from->vm;
}

/* Whether a packet of no pair goes to an address that a router would forward to. */
static __always_inline int is_external(struct packet *p, struct weir_endpoint *to,
				       const struct weir_port *port)
{
	if (to)
		return to->vm != port->vm;
	return is_routed(&p->dst);
}

/* The class of a packet of no pair and to no known place. */
static __always_inline __u32 unpaired_class(const struct weir_port *port, __u32 octets,
					    struct weir_port_counters *counters)
{
	struct weir_places *vm = bpf_map_lookup_elem(&places, &port->slot);

	if (!vm || is_ahead(&vm->stray_ns, octets, port->stray_bps, STRAY_AHEAD))
		return UNPAIRED;
	__sync_fetch_and_add(&counters->unclassified, 1);
	return port->default_class;
}

/* The class of a packet whose pair has waited too long for a class. */
static __always_inline __u32 stray_class(const struct sender *from, const struct weir_port *port,
					 __u32 octets)
{
	struct weir_places *vm = bpf_map_lookup_elem(&places, &from->slot);

	if (vm && is_ahead(&vm->stray_ns, octets, port->stray_bps, STRAY_AHEAD))
		return STRAY;
	return from->default_class;
}

/* The class of a packet whose pair may get a class any moment. */
static __always_inline __u32 moment_class(const struct sender *from, const struct weir_port *port,
					  __u32 octets)
{
	struct weir_places *vm = bpf_map_lookup_elem(&places, &from->slot);

	if (vm && port->moment && is_ahead(&vm->moment_ns, octets, port->stray_bps, port->moment))
		return STRAY;
	return from->default_class;
}

/*
 * The class of a packet to `to`, or NO_CLASS or STRAY if it is to be dropped.
 * Counts every packet of a pair, dropped ones included, because they are the
 * pair's demand.
 */
static __always_inline __u32 class_of(struct __sk_buff *skb, struct packet *p,
				      struct weir_endpoint *to,
				      const struct weir_port *port,
				      struct weir_port_counters *counters)
{
	struct weir_endpoint dst;
	struct weir_pair pair;
	struct weir_tx *state;
	struct sender from;
	__u32 same_tenant;
	__u32 *class;
	__u32 own;
	int stray;

	if (!find_pair(p, to, port, &from, &dst)) {
		if (!is_external(p, to, port))
			return unpaired_class(port, p->octets, counters);
		__sync_fetch_and_add(&counters->external_tx, p->octets);
		return port->external_class;
	}
	pair.src = from.vm;
	pair.dst = dst.vm;
	same_tenant = from.tenant == dst.tenant;
	if (same_tenant && !(dst.flags & WEIR_LOCAL))
		p->tag = tenant_tag(from.tenant);
	state = bpf_map_lookup_elem(&tx, &pair);
	if (!state)
		state = begin_sending(&pair, from.slot, port->max_pairs, same_tenant);
	if (!state) {
		__sync_fetch_and_add(&counters->tx_full, 1);
		return stray_class(&from, port, p->octets);
	}
	__sync_fetch_and_add(&state->octets, p->octets);
	__sync_fetch_and_add(&state->segments, p->segments);
	if (only_acknowledges(skb, p))
		__sync_fetch_and_add(&state->acks, p->octets);
	class = bpf_map_lookup_elem(&classes, &pair);
	if (class) {
		own = *class;
		if (state->stray_ns)
			state->stray_ns = 0;
		if (is_unleased(port, own, p->octets)) {
			__sync_fetch_and_add(&counters->unleased, p->segments);
			return NO_CLASS;
		}
		return is_backlogged(skb, p, state, own, dst.flags & WEIR_LOCAL) ? NO_CLASS : own;
	}
	forget_backlog(state);
	stray = is_stray(state);
	ask_for_class(&pair, state, same_tenant, counters);
	return stray ? stray_class(&from, port, p->octets) : moment_class(&from, port, p->octets);
}

/* A function of its own, so that the verifier visits it once and not once for each way to it. */
__noinline int parse_packet(struct __sk_buff *skb, struct packet *p)
{
	return p ? parse(skb, p) : KIND_BAD;
}

static __always_inline int classify(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct weir_port_counters *counters;
	struct weir_endpoint *to = 0;
	struct packet p = {};
	struct weir_port *port;
	enum kind kind;
	enum dhcp dhcp;
	__u32 class;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	counters = bpf_map_lookup_elem(&port_counters, &port->slot);
	if (!counters)
		return TC_ACT_UNSPEC;

	if (skb->vlan_present && !observes() && take_priority_off(skb)) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_SHOT;
	}
	/* A guest in a container can set it. */
	skb->tc_index = 0;
	kind = parse_packet(skb, &p);
	if (kind == KIND_BAD) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_SHOT;
	}
	if (!is_from_mac(skb, port)) {
		__sync_fetch_and_add(&counters->spoofed_mac, 1);
		return TC_ACT_SHOT;
	}
	if (kind == KIND_IP4 || kind == KIND_IP6) {
		to = bpf_map_lookup_elem(&endpoints, &p.dst);
		if (!to && is_control(skb, &p)) {
			__sync_fetch_and_add(&counters->control_denied, 1);
			return TC_ACT_SHOT;
		}
	}
	add_outer(&p, to);
	dhcp = dhcp_of(skb, &p, kind);
	if ((kind == KIND_ROUTER || dhcp == DHCP_REPLY) && !(port->flags & WEIR_OUTWARD)) {
		__sync_fetch_and_add(&counters->rogue, 1);
		return TC_ACT_SHOT;
	}
	if ((kind == KIND_ARP && (p.src.words[3] == 0 || owns(port, &p.src))) ||
	    (kind == KIND_ND && may_discover(port, &p)) ||
	    (dhcp == DHCP_REQUEST && is_asking(&p, kind))) {
		__sync_fetch_and_add(&counters->control, 1);
		class = port->control_class;
	} else if ((kind == KIND_IP4 || kind == KIND_IP6) && owns(port, &p.src)) {
		if (is_misdirected(skb, port, to)) {
			__sync_fetch_and_add(&counters->misdirected, 1);
			return TC_ACT_SHOT;
		}
		class = class_of(skb, &p, to, port, counters);
	} else if (kind == KIND_OTHER || ((kind == KIND_IP6 || kind == KIND_ROUTER) && is_within_link(&p))) {
		class = unpaired_class(port, p.octets, counters);
	} else {
		__sync_fetch_and_add(&counters->spoofed, 1);
		return TC_ACT_SHOT;
	}
	if (class == STRAY) {
		__sync_fetch_and_add(&counters->stray, 1);
		return TC_ACT_SHOT;
	}
	if (class == UNPAIRED) {
		__sync_fetch_and_add(&counters->unpaired, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&counters->tx_octets, p.octets);
	__sync_fetch_and_add(&counters->tx_segments, p.segments);
	if (class == NO_CLASS)
		return TC_ACT_SHOT;
	skb->priority = class;
	if (!observes()) {
		write_tag(skb, &p, port->flags);
		if (p.is_timed)
			set_reserved(skb, &p, 0);
	}
	return TC_ACT_UNSPEC;
}

SEC("tc")
int weir_classify(struct __sk_buff *skb)
{
	__u32 priority = skb->priority;
	int verdict = classify(skb);

	if (!observes())
		return verdict;
	/* The counters show what enforcing would have done. */
	skb->priority = priority;
	return TC_ACT_UNSPEC;
}
