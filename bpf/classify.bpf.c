/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * classify: on a port's ingress, that is, on what a VM sends.
 *
 * Decides which class of the shaper a packet belongs to, counts it, and drops
 * it if its source is not the VM's. The class goes into skb->priority, which
 * the shaper behind the redirect reads. A VM cannot choose it: the priority is
 * scrubbed when a packet leaves the VM's namespace.
 *
 * What passes, and how:
 *   own address -> VM of the directory   the pair's class, or until the agent
 *                                        has given it one, the default class
 *   own address -> anybody else          default class
 *   ARP, neighbour discovery             control class, if it speaks of the
 *                                        VM's own address (or none: a probe)
 *   DHCP request from 0.0.0.0            default class
 *   IPv6 within the link (fe80:: to      default class: it cannot be routed
 *   fe80:: or ff02::; :: to ff02::)
 *   neither IP nor ARP                   default class
 * Everything else is spoofed or malformed: dropped and counted.
 */

#define TELL_AGAIN_NS 10000000ull

static __always_inline int owns(const struct weir_port *port, struct weir_address *address)
{
	struct weir_endpoint *e = bpf_map_lookup_elem(&endpoints, address);

	return e && e->vm == port->vm;
}

/* Without an address yet: a client asks for one. */
static __always_inline int is_dhcp_request(struct __sk_buff *skb, struct packet *p)
{
	__be16 port;

	return p->protocol == IPPROTO_UDP && !p->fragment && p->src.words[3] == 0 &&
	       !bpf_skb_load_bytes(skb, p->l4 + 2, &port, sizeof(port)) &&
	       port == bpf_htons(67);
}

static __always_inline int is_within_link(struct packet *p)
{
	if (is_link_multicast(&p->dst))
		return is_link_local(&p->src) || is_zero(&p->src);
	return is_link_local(&p->src) && is_link_local(&p->dst);
}

static __always_inline int may_discover(const struct weir_port *port, struct packet *p)
{
	if (!is_zero(&p->src) && !is_link_local(&p->src) && !owns(port, &p->src))
		return 0;
	return !p->advertises || is_link_local(&p->target) || owns(port, &p->target);
}

static __always_inline struct weir_tx *sending_pair(struct weir_pair *pair,
						    struct weir_port_counters *counters)
{
	struct weir_tx *state = bpf_map_lookup_elem(&tx, pair);
	struct weir_tx fresh = {};

	if (state)
		return state;
	/* Another CPU may be first: then the second look finds its entry. */
	bpf_map_update_elem(&tx, pair, &fresh, BPF_NOEXIST);
	state = bpf_map_lookup_elem(&tx, pair);
	if (!state)
		__sync_fetch_and_add(&counters->tx_full, 1);
	return state;
}

/*
 * Says that a pair sends and has no class. Said again after a while, so that
 * a lost event, or a pair that the agent has forgotten, costs no more than that.
 */
static __always_inline void ask_for_class(struct weir_pair *pair, struct weir_tx *state,
					  __u32 same_tenant, struct weir_port_counters *counters)
{
	__u64 told = state->told_ns;
	__u64 now = bpf_ktime_get_ns();

	if (told && now - told < TELL_AGAIN_NS)
		return;
	if (__sync_val_compare_and_swap(&state->told_ns, told, now) == told)
		tell(pair, WEIR_TX, same_tenant, counters);
}

/* The class of a packet to `p->dst`; counts it for the pair if there is one. */
static __always_inline __u32 class_of(struct packet *p, const struct weir_port *port,
				      struct weir_port_counters *counters)
{
	struct weir_endpoint *to = bpf_map_lookup_elem(&endpoints, &p->dst);
	struct weir_pair pair = { .src = port->vm };
	struct weir_tx *state;
	__u32 *class;

	if (!to || to->vm == port->vm) {
		__sync_fetch_and_add(&counters->unclassified, 1);
		return port->default_class;
	}
	pair.dst = to->vm;
	state = sending_pair(&pair, counters);
	if (!state)
		return port->default_class;
	__sync_fetch_and_add(&state->octets, p->octets);
	__sync_fetch_and_add(&state->segments, p->segments);
	class = bpf_map_lookup_elem(&classes, &pair);
	if (class)
		return *class;
	ask_for_class(&pair, state, to->tenant == port->tenant, counters);
	return port->default_class;
}

SEC("tc")
int weir_classify(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct weir_port_counters *counters;
	struct packet p = {};
	struct weir_port *port;
	enum kind kind;
	__u32 class;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_ACT_UNSPEC;
	counters = bpf_map_lookup_elem(&port_counters, &port->slot);
	if (!counters)
		return TC_ACT_UNSPEC;

	kind = parse(skb, &p);
	if (kind == KIND_BAD) {
		__sync_fetch_and_add(&counters->malformed, 1);
		return TC_ACT_SHOT;
	}
	if ((kind == KIND_ARP && (p.src.words[3] == 0 || owns(port, &p.src))) ||
	    (kind == KIND_ND && may_discover(port, &p))) {
		__sync_fetch_and_add(&counters->control, 1);
		class = port->control_class;
	} else if ((kind == KIND_IP4 || kind == KIND_IP6) && owns(port, &p.src)) {
		class = class_of(&p, port, counters);
	} else if (kind == KIND_OTHER || (kind == KIND_IP4 && is_dhcp_request(skb, &p)) ||
		   (kind == KIND_IP6 && is_within_link(&p))) {
		__sync_fetch_and_add(&counters->unclassified, 1);
		class = port->default_class;
	} else {
		__sync_fetch_and_add(&counters->spoofed, 1);
		return TC_ACT_SHOT;
	}
	__sync_fetch_and_add(&counters->tx_octets, p.octets);
	__sync_fetch_and_add(&counters->tx_segments, p.segments);
	skb->priority = class;
	return TC_ACT_UNSPEC;
}
