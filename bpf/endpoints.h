/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From addresses to VMs.
 *
 * The directory comes first, by the exact address. An address that it does not
 * list may be outside the cloud. Each tenant has its own endpoint for all
 * addresses outside, so the endpoint follows from the tenant of the packet's
 * other end. The trie is read for such packets only: packets between VMs do not
 * pay for it.
 */
#ifndef WEIR_ENDPOINTS_H
#define WEIR_ENDPOINTS_H

#define PREFIX_HEAD 64 /* bits of the key before the address: tenant and family */

/* The endpoint of a tenant for an address outside; none for an address within the link. */
static __always_inline struct weir_outside *outside_of(__u32 tenant,
						       const struct weir_address *address)
{
	struct weir_prefix key = {
		.bits = PREFIX_HEAD + 128,
		.tenant = tenant,
		.family = is_mapped(address) ? 4 : 6,
		.address = *address,
	};

	if (!is_routed(address))
		return 0;
	return bpf_map_lookup_elem(&outside, &key);
}

/* Both ends of a packet. */
struct ends {
	struct weir_endpoint *from;
	struct weir_endpoint *to;
	struct weir_outside *outside; /* the one of them that is outside, if any */
};

/* Whether both are known. */
static __always_inline int find_ends(struct packet *p, struct ends *ends)
{
	ends->from = bpf_map_lookup_elem(&endpoints, &p->src);
	ends->to = bpf_map_lookup_elem(&endpoints, &p->dst);
	ends->outside = 0;
	if (ends->from && !ends->to) {
		ends->outside = outside_of(ends->from->tenant, &p->dst);
		if (ends->outside)
			ends->to = &ends->outside->endpoint;
	} else if (ends->to && !ends->from) {
		ends->outside = outside_of(ends->to->tenant, &p->src);
		if (ends->outside)
			ends->from = &ends->outside->endpoint;
	}
	return ends->from && ends->to;
}

/*
 * Counts the outer headers of a packet that leaves this host, where a tunnel will put them before each of its
 * segments: what is promised of the uplink is promised of what is on it.
 */
static __always_inline void add_outer(struct packet *p, const struct weir_endpoint *to)
{
	__u32 zero = 0;
	struct weir_settings *all = bpf_map_lookup_elem(&settings, &zero);

	if (all && !(to && to->flags & WEIR_LOCAL))
		p->octets += all->overhead * p->segments;
}

/* Whether a packet to the VM behind a port is from an address that no directory lists. */
static __always_inline int is_from_nowhere(struct packet *p, const struct ends *ends,
					   const struct weir_port *port)
{
	return ends->to && !ends->from && ends->to->vm == port->vm && is_routed(&p->src);
}

/* Whether an agent listens at the address. */
static __always_inline int is_host(const struct weir_address *address)
{
	struct weir_control at = { .address = *address };

	return !!bpf_map_lookup_elem(&controls, &at);
}

/*
 * Whether a VM may take one more of its places. A quarter is kept for pairs
 * within its tenant, so that foreign senders cannot use up what its floors
 * need.
 */
static __always_inline int has_place(__u64 made, __u64 gone, __u32 most, __u32 same_tenant)
{
	return made - gone < (same_tenant ? most : most - most / 4);
}

#endif
