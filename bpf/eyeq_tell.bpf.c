/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tell: a part of eyeq, on the egress of the host's own interface. It makes a
 * message of each clone that `meter` sends there, and leaves all other packets
 * alone. A clone leaves as a message or not at all: it is a VM's packet, which
 * would otherwise arrive twice.
 *
 * The message uses the host's own routes and neighbours, which the kernel knows
 * (bpf_redirect_neigh).
 *
 * The clone's checksum remains, if it is still to be computed: merged packets
 * (GRO), and those of a VM on the same machine, come so. No helper removes that
 * request. But the place where it will be written is known, and a message has
 * no field there: 6 octets behind the beginning of a UDP header or 16 behind
 * that of TCP, if that begins where a message's body does. So everything
 * between link and transport is cut down to 20 octets.
 */

#define DSCP_CONTROL (48u << 2) /* CS6 */
#define HOPS 64
#define IP6_MORE 20 /* octets that an IPv6 header is longer */

/* Nothing but the frame's length, and where its transport begins. Not 0: it cannot be done. */
static __always_inline int cut(struct __sk_buff *skb, const struct packet *p, enum kind kind)
{
	__u32 header = kind == KIND_IP6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	/* Options, or extension headers. */
	__u32 more = p->l4 - ETH_HLEN - header;

	if (p->l3 != ETH_HLEN)
		return -1;
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return -1;
	if (bpf_skb_change_tail(skb, ETH_HLEN + header + more + sizeof(struct weir_feedback), 0))
		return -1;
	if (more && bpf_skb_adjust_room(skb, -(int)more, BPF_ADJ_ROOM_MAC, 0))
		return -1;
	return kind == KIND_IP6 && bpf_skb_change_proto(skb, bpf_htons(ETH_P_IP), 0);
}

/* Writes the three headers. */
static __always_inline int write(struct __sk_buff *skb, __be32 from, __be32 to, __u64 sequence,
				 const struct weir_feedback *body)
{
	struct ethhdr link = { .h_proto = bpf_htons(ETH_P_IP) };
	struct iphdr ip = {
		.ihl = 5,
		.version = 4,
		.tos = DSCP_CONTROL,
		.tot_len = bpf_htons(FEEDBACK_PACKET),
		.id = bpf_htons(sequence & 0xffff),
		.frag_off = bpf_htons(0x4000),
		.ttl = HOPS,
		.protocol = WEIR_FEEDBACK_PROTOCOL,
		.saddr = from,
		.daddr = to,
	};
	__s64 sum = bpf_csum_diff(0, 0, (void *)&ip, sizeof(ip), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip.check = ~sum;
	/* The link's addresses are the neighbour's business: see bpf_redirect_neigh. */
	return bpf_skb_store_bytes(skb, 0, &link, sizeof(link), 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + sizeof(ip), body, sizeof(*body), 0);
}

/* What the VM in `slot` tells: whole units, rounded down, and at least one. */
static __always_inline __u16 told_units(const struct weir_eyeq_settings *set, __u32 slot)
{
	struct weir_eyeq_share *share = bpf_map_lookup_elem(&eyeq_shares, &slot);
	struct weir_eyeq_meter *meter = bpf_map_lookup_elem(&eyeq_meters, &slot);
	__u64 rate;

	if (!share || !meter || !set->unit_bps)
		return 0;
	/* What the VM may receive may have become less since the last step. */
	rate = at_most(*(volatile __u64 *)&meter->rate_bps,
		       *(volatile __u64 *)&share->capacity_bps);
	return at_least(at_most(rate / set->unit_bps, 0xffff), 1);
}

SEC("tc")
int weir_eyeq_tell(struct __sk_buff *skb)
{
	struct weir_feedback body = { .version = WEIR_FEEDBACK_VERSION };
	struct weir_eyeq_settings *set;
	struct weir_eyeq_counters *counters;
	struct weir_eyeq_mouth *mouth = 0;
	struct weir_eyeq_vm *from, *to;
	struct packet p = {};
	struct ends ends;
	__u64 sequence, tag;
	enum kind kind;
	__u16 units;

	if (skb->mark != CLONE_MARK)
		return TC_ACT_UNSPEC;
	skb->mark = 0;
	counters = eyeq_counters_now();
	set = eyeq_settings_now();
	if (!counters || !set)
		return TC_ACT_SHOT;
	kind = parse(skb, &p);
	if ((kind != KIND_IP4 && kind != KIND_IP6) || !find_ends(&p, &ends))
		goto unfit;
	from = bpf_map_lookup_elem(&eyeq_vms, &ends.from->vm);
	to = bpf_map_lookup_elem(&eyeq_vms, &ends.to->vm);
	if (from && to)
		mouth = bpf_map_lookup_elem(&eyeq_mouths, &from->host);
	if (!mouth) {
		COUNT(counters, unknown);
		return TC_ACT_SHOT;
	}
	units = told_units(set, to->slot);
	if (!units)
		goto unfit;
	sequence = __sync_fetch_and_add(&mouth->sequence, 1) + 1;
	body.key_id = mouth->key_id;
	body.rate = bpf_htons(units);
	body.sequence = bpf_htons(sequence >> 16 & 0xffff);
	divide(body.src, ends.from->vm);
	divide(body.dst, ends.to->vm);
	tag = tag_of(&body, mouth->key, sequence);
	divide(&body.tag[0], tag >> 32);
	divide(&body.tag[2], tag);
	if (cut(skb, &p, kind) || write(skb, set->address, from->host, sequence, &body))
		goto unfit;
	COUNT(counters, told);
	return bpf_redirect_neigh(skb->ifindex, 0, 0, 0);
unfit:
	COUNT(counters, unfit);
	return TC_ACT_SHOT;
}
