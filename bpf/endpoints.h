/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From addresses to VMs: whose is it?
 *
 * The directory is asked first, by the exact address. An address that it does
 * not have may be outside the cloud; who stands for it then depends on the
 * tenant, for each has its own endpoint for all that is outside, and the
 * tenant is that of the packet's other end. The trie is asked for such packets
 * alone: packets between VMs pay nothing for it.
 */
#ifndef WEIR_ENDPOINTS_H
#define WEIR_ENDPOINTS_H

#define PREFIX_HEAD 64 /* bits of the key before the address: tenant and family */

/* Who stands for an address outside, for one tenant; none for what stays on the link. */
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

/* Whether the address is one that an agent listens at. */
static __always_inline int is_host(const struct weir_address *address)
{
	struct weir_control at = { .address = *address };

	return !!bpf_map_lookup_elem(&controls, &at);
}

/*
 * Whether a VM may take one more of its places. A quarter is kept for pairs
 * within its tenant: strangers cannot use up what its floors need.
 */
static __always_inline int has_place(__u64 made, __u64 gone, __u32 most, __u32 same_tenant)
{
	return made - gone < (same_tenant ? most : most - most / 4);
}

#endif
