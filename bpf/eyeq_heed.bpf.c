/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * heed: a part of eyeq, on the uplink's ingress. Takes every packet of
 * feedback's protocol that is addressed to this host, believes it or not, and
 * drops it. All else passes.
 *
 * What is believed becomes a limit; if it is another than when the agent was last
 * woken for it, by more than a little, the agent is woken again. There is none before the first feedback. Departure times go by it at
 * once; HTB when the agent has set the class.
 *
 * crates/wire/src/feedback/inbox.rs says the same, up to what a limit is.
 */

/* The sequence with these low bits that is nearest to the newest one. */
static __always_inline __u64 widened(__u64 newest, __u32 low)
{
	return newest + (__s64)(__s32)(low - (__u32)newest);
}

/* Whether it was not heard before; it was from now on. As crates/wire/src/window.rs. */
static __always_inline int is_first(struct weir_eyeq_ear *ear, __u64 sequence)
{
	__u64 way;
	int first = 1;

	bpf_spin_lock(&ear->lock);
	if (sequence > ear->newest) {
		way = sequence - ear->newest;
		ear->seen = way < 64 ? ear->seen << way | 1 : 1;
		ear->newest = sequence;
	} else {
		way = ear->newest - sequence;
		first = way < 64 && !(ear->seen >> (way & 63) & 1);
		if (first)
			ear->seen |= 1ull << (way & 63);
	}
	bpf_spin_unlock(&ear->lock);
	return first;
}

/* The limit of a pair, a new one if it has none; none if there is no room. */
static __always_inline struct weir_eyeq_limit *limit_of(const struct weir_pair *pair)
{
	struct weir_eyeq_limit *limit = bpf_map_lookup_elem(&eyeq_limits, pair);
	struct weir_eyeq_limit fresh = {};

	if (limit)
		return limit;
	bpf_map_update_elem(&eyeq_limits, pair, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&eyeq_limits, pair);
}

/*
 * Whether a rate differs from another by more than 1/64. R is never quite still, for one packet
 * more or less in a period moves it, and the agent reads all limits once a period anyway.
 */
static __always_inline int is_other(__u64 rate_bps, __u64 than)
{
	__u64 way = rate_bps > than ? rate_bps - than : than - rate_bps;

	return way > than / 64;
}

/* Writes it down, unless what is there is newer; says whether the agent is to be woken. */
static __always_inline int allow(struct weir_eyeq_limit *limit, __u64 rate_bps, __u64 sequence,
				 __u32 by, int *wakes)
{
	__u64 now = bpf_ktime_get_ns();
	int is_new;

	bpf_spin_lock(&limit->lock);
	is_new = limit->by != by || sequence > limit->sequence;
	if (is_new) {
		*wakes = is_other(rate_bps, limit->rung_bps);
		if (*wakes)
			limit->rung_bps = rate_bps;
		*(volatile __u64 *)&limit->rate_bps = rate_bps;
		limit->heard_ns = now;
		limit->sequence = sequence;
		limit->by = by;
		/* Last: gather reads without the lock. */
		*(volatile __u64 *)&limit->told += 1;
	}
	bpf_spin_unlock(&limit->lock);
	return is_new;
}

/*
 * The ceiling of the pair's node, where departure times are computed by it: the
 * uplink has a level there and nowhere else. One store of a word, as the agent's
 * own are. Without a class, or a node, the next word finds them.
 */
static __always_inline void enforce(const struct weir_pair *pair, __u64 rate_bps)
{
	__u32 node = UPLINK;
	struct weir_level *level = bpf_map_lookup_elem(&levels, &node);
	__u32 *class;

	if (!level || !level->ceiling)
		return;
	class = bpf_map_lookup_elem(&classes, pair);
	if (!class)
		return;
	node = *class & 0xffff;
	level = bpf_map_lookup_elem(&levels, &node);
	if (level && level->ceiling)
		*(volatile __u64 *)&level->ceiling = rate_bps;
}

/* What an authentic message asks for; says which counter it ends in. */
static __always_inline __u64 *obey(const struct weir_eyeq_settings *set,
				   struct weir_eyeq_counters *counters,
				   const struct weir_feedback *body, __be32 teller, __u64 sequence,
				   __u32 by)
{
	struct weir_pair pair = { .src = joined(body->src), .dst = joined(body->dst) };
	__u64 units = bpf_ntohs(body->rate);
	struct weir_eyeq_limit *limit;
	struct weir_eyeq_vm *vm;
	int wakes = 0;

	if (!units || units > set->most_units)
		return &counters->impossible;
	vm = bpf_map_lookup_elem(&eyeq_vms, &pair.dst);
	if (!vm || vm->host != teller)
		return &counters->strangers;
	/* Classify made it, of a packet that a VM of this host sent. */
	if (!bpf_map_lookup_elem(&tx, &pair))
		return &counters->strayed;
	limit = limit_of(&pair);
	if (!limit)
		return &counters->full;
	if (!allow(limit, units * set->unit_bps, sequence, by, &wakes))
		return &counters->late;
	/* Also if it is the same: the agent halves the ceiling while a receiver is silent. */
	enforce(&pair, units * set->unit_bps);
	if (wakes)
		ring(pair.src, pair.dst, WEIR_LIMIT);
	return &counters->heard;
}

/* One message to this host; says which counter it ends in. */
static __always_inline __u64 *judge(struct __sk_buff *skb, const struct weir_eyeq_settings *set,
				    struct weir_eyeq_counters *counters, const struct iphdr *ip)
{
	struct weir_feedback body;
	struct weir_eyeq_voice voice = { .address = ip->saddr };
	struct weir_eyeq_ear *ear;
	__u64 sequence, tag;

	if (ip->version != 4 || ip->ihl != 5 || ip->tot_len != bpf_htons(FEEDBACK_PACKET) ||
	    ip->frag_off & bpf_htons(IP_MORE_OR_OFFSET) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(*ip), &body, sizeof(body)) ||
	    body.version != WEIR_FEEDBACK_VERSION)
		return &counters->malformed;
	voice.key_id = body.key_id;
	ear = bpf_map_lookup_elem(&eyeq_ears, &voice);
	if (!ear)
		return &counters->strangers;
	sequence = widened(*(volatile __u64 *)&ear->newest,
			   (__u32)bpf_ntohs(body.sequence) << 16 | bpf_ntohs(ip->id));
	tag = (__u64)joined(&body.tag[0]) << 32 | joined(&body.tag[2]);
	/* One comparison of two words: it takes the same time wherever they differ. */
	if (tag_of(&body, ear->key, sequence) != tag)
		return &counters->forged;
	if (!is_first(ear, sequence))
		return &counters->replayed;
	return obey(set, counters, &body, ip->saddr, sequence, (__u32)ear->key[0]);
}

SEC("tc")
int weir_eyeq_heed(struct __sk_buff *skb)
{
	struct weir_eyeq_settings *set = eyeq_settings_now();
	struct weir_eyeq_counters *counters;
	struct iphdr ip;

	if (skb->protocol != bpf_htons(ETH_P_IP) || !set ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) ||
	    ip.protocol != WEIR_FEEDBACK_PROTOCOL || ip.daddr != set->address)
		return TC_ACT_UNSPEC;
	counters = eyeq_counters_now();
	if (counters)
		__sync_fetch_and_add(judge(skb, set, counters, &ip), 1);
	return TC_ACT_SHOT;
}
