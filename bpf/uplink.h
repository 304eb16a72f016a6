/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The uplink's classes, where the host's own traffic has a floor beside HTB.
 *
 * VMs' packets come from HTB's device, where they have waited. The host's own
 * packets pass no such device. So the uplink's root qdisc is an HTB, too, with a
 * class for each of the two, and `stamp`, which runs before it, names the class.
 * Agents' messages and neighbour discovery have a third class: floors depend on
 * the former, and everything on the latter.
 */
#ifndef WEIR_UPLINK_H
#define WEIR_UPLINK_H

/* Whether HTB divides the device that a packet leaves by. */
static __always_inline int is_divided(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct weir_settings *all = bpf_map_lookup_elem(&settings, &zero);

	return all && all->divided && all->divided == skb->ifindex;
}

/*
 * Whether a VM of this host sent a packet that came with `class`. Where routing has overwritten
 * that, the source address tells.
 */
static __always_inline int is_of_a_vm(const struct ends *ends, __u32 class)
{
	return class >> 16 == WEIR_MAJOR || (ends->from && ends->from->flags & WEIR_LOCAL);
}

/* The class of a packet that came with `class`. */
static __always_inline __u32 uplink_class(struct __sk_buff *skb, struct packet *p, enum kind kind,
					  const struct ends *ends, __u32 class)
{
	if (is_of_a_vm(ends, class))
		return WEIR_UPLINK_VMS;
	if (kind == KIND_ARP || kind == KIND_ND || kind == KIND_ROUTER)
		return WEIR_UPLINK_URGENT;
	if ((kind == KIND_IP4 || kind == KIND_IP6) && is_of_an_agent(skb, p))
		return WEIR_UPLINK_URGENT;
	return WEIR_UPLINK_HOST;
}

#endif
