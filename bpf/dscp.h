/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The DSCP of VMs' packets, and the priority of their VLAN tags: by these a
 * switch chooses a queue.
 *
 * A tenant with a queue of its own on switches has a tag, a code point that all
 * that its VMs send to each other through the network carries. No guest may
 * choose its queue, so what it writes there itself is overwritten at its port:
 *
 *   to its tenant, through the network   the tenant's tag
 *   to all others, and without a tag     0, or what the guest wrote where the
 *                                        VM's policy keeps that and it is none
 *                                        of Weir's code points
 *   where a tunnel puts a header before  the same without a tag; the tag goes
 *                                        into the outer header (see stamp.bpf.c)
 *
 * What goes to another tenant or outside has no tag: it leaves the links where
 * the tag is its tenant's alone, and might meet another tenant's queue.
 *
 * At the receiving port Weir's code points are taken off. A guest sees 0 there,
 * or with WEIR_RESTORE_DSCP the code point of the connection's SYN: a SYN
 * travels with what its guest wrote, in the shared queue, and the receiving
 * host stores that. Nothing says what a guest wrote into other packets.
 *
 * Priorities of VLAN tags are always 0, and a tag of VLAN 0, which has nothing
 * else, is taken off. A second tag inside the first is not looked at, unless it
 * takes the first one's place. More than two such tags have no honest reason.
 */
#ifndef WEIR_DSCP_H
#define WEIR_DSCP_H

#define VLAN_PRIORITY 0xe000
#define VLAN_ID 0x0fff
#define VLAN_TAGS 2

/* Tenant -> its tag. Written by the agent only. Size: agent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} tenant_tags SEC(".maps");

/* Connections -> the DSCP of their SYNs, as the packets come in; of ends that restore it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct weir_flow);
	__type(value, __u32);
} dscps SEC(".maps");

static __always_inline struct weir_settings *all_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

/* Whether Weir may give this code point to a tenant. */
static __always_inline int is_ours(const struct weir_settings *all, __u8 dscp)
{
	return all->code_points >> (dscp & 63) & 1;
}

/* A tenant's tag; 0: the shared queue. */
static __always_inline __u8 tenant_tag(__u32 tenant)
{
	struct weir_settings *all = all_settings();
	__u32 *tag;

	if (!all || !all->code_points)
		return 0;
	tag = bpf_map_lookup_elem(&tenant_tags, &tenant);
	return tag && is_ours(all, *tag) ? *tag & 63 : 0;
}

/* The tag of a packet between two ends: 0 if they are not of one tenant, or both here. */
static __always_inline __u8 tag_between(const struct weir_endpoint *from, const struct weir_endpoint *to)
{
	if (!from || !to || from->tenant != to->tenant || to->flags & WEIR_LOCAL)
		return 0;
	return tenant_tag(from->tenant);
}

static __always_inline int is_syn(struct __sk_buff *skb, struct packet *p)
{
	return tcp_flags(skb, p) & TCP_SYN;
}

static __always_inline int has_dscp(struct packet *p)
{
	return p->version == 4 || p->version == 6;
}

static __always_inline void set_dscp(struct __sk_buff *skb, struct packet *p, __u8 dscp)
{
	if (p->dscp == dscp)
		return;
	set_tos(skb, p, p->version == 4, DSCP_MASK, dscp << 2);
	p->dscp = dscp;
}

/*
 * Writes the tag of a packet from a VM, or what the VM's policy leaves of its
 * own. A function of its own, as parse_packet.
 */
__noinline int write_tag(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	struct weir_settings *all = all_settings();
	__u8 dscp;

	if (!p || !all || !has_dscp(p))
		return 0;
	dscp = all->overhead ? 0 : p->tag;
	if (p->dscp == dscp)
		return 0;
	if (flags & (WEIR_KEEP_DSCP | WEIR_RESTORE_DSCP) && !is_ours(all, p->dscp) &&
	    (!dscp || (flags & WEIR_RESTORE_DSCP && is_syn(skb, p))))
		return 0;
	set_dscp(skb, p, dscp);
	return 0;
}

/* Takes Weir's code point off a packet to a VM. A function of its own, too. */
__noinline int take_tag_off(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	struct weir_settings *all = all_settings();
	__u32 restores = flags & WEIR_RESTORE_DSCP;
	struct weir_flow flow = {};
	__u32 dscp, *learned;

	if (!p || !all || !all->code_points || all->overhead || !has_dscp(p))
		return 0;
	if (restores && is_syn(skb, p) && !flow_of(skb, p, 0, &flow)) {
		dscp = is_ours(all, p->dscp) ? 0 : p->dscp;
		if (dscp)
			bpf_map_update_elem(&dscps, &flow, &dscp, BPF_ANY);
		else
			bpf_map_delete_elem(&dscps, &flow);
	}
	if (!is_ours(all, p->dscp))
		return 0;
	dscp = 0;
	if (restores && tcp_flags(skb, p) && !flow_of(skb, p, 0, &flow)) {
		learned = bpf_map_lookup_elem(&dscps, &flow);
		if (learned)
			dscp = *learned;
	}
	set_dscp(skb, p, dscp & 63);
	return 0;
}

/*
 * Takes the priority off a VLAN tag, and the tag if it is nothing but a priority.
 * Not 0: some priority is still there, and the packet must not leave.
 */
static __always_inline int take_priority_off(struct __sk_buff *skb)
{
#pragma unroll
	for (int i = 0; i < VLAN_TAGS; i++) {
		__u32 tag = skb->vlan_tci;
		__be16 protocol = skb->vlan_proto;

		if (!skb->vlan_present || !(tag & VLAN_PRIORITY))
			return 0;
		if (bpf_skb_vlan_pop(skb))
			return 1;
		if (tag & VLAN_ID)
			return bpf_skb_vlan_push(skb, protocol, tag & ~VLAN_PRIORITY & 0xffff) != 0;
	}
	return skb->vlan_present && (skb->vlan_tci & VLAN_PRIORITY);
}

/* Writes the tag into the outer header of a packet that a tunnel has wrapped. */
static __always_inline void tag_outer(struct __sk_buff *skb, __u8 tag)
{
	struct weir_settings *all = all_settings();
	struct packet outer = { .l3 = ETH_HLEN };
	__be16 type, first;

	if (!all || !all->code_points || bpf_skb_load_bytes(skb, ETH_HLEN - 2, &type, sizeof(type)) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &first, sizeof(first)))
		return;
	if (type == bpf_htons(ETH_P_IP)) {
		outer.version = 4;
		outer.dscp = (bpf_ntohs(first) & 0xff) >> 2;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		outer.version = 6;
		outer.dscp = (bpf_ntohs(first) >> (IP6_TOS_SHIFT + 2)) & 63;
	} else {
		return;
	}
	/* What the tunnel was configured to write stays, unless it would lead to a tenant's queue. */
	if (tag || is_ours(all, outer.dscp))
		set_dscp(skb, &outer, tag);
}

#endif
