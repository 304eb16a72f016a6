/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * gather: a part of eyeq, attached nowhere. Limits of many pairs in one call, as
 * gather.bpf.c has it for counters, and run in the same way: the agent reads each
 * limit once a period, and a call for each of a thousand was half of what it cost.
 */

struct weir_eyeq_gathering {
	__u32 count;
	__u32 told;
};

static long gather_limit(void *map, __u32 *index, struct weir_pair *pair,
			 struct weir_eyeq_gathering *asking)
{
	struct weir_pair key = *pair;
	struct weir_eyeq_told_limit *told;
	struct weir_eyeq_limit *limit;
	__u32 at = *index;

	(void)map;
	if (at >= asking->count)
		return 1;
	told = bpf_map_lookup_elem(&eyeq_told_limits, &at);
	if (!told)
		return 1;
	asking->told++;
	limit = bpf_map_lookup_elem(&eyeq_limits, &key);
	told->is_there = !!limit;
	if (!limit)
		return 0;
	/* First, and heed writes it last: a rate that is newer than `told` is read again, an older one is not. */
	told->told = *(volatile __u64 *)&limit->told;
	told->rate_bps = *(volatile __u64 *)&limit->rate_bps;
	told->heard_ns = limit->heard_ns;
	told->sequence = limit->sequence;
	told->rung_bps = limit->rung_bps;
	told->by = limit->by;
	return 0;
}

SEC("tc")
int weir_eyeq_gather(struct __sk_buff *skb)
{
	struct weir_eyeq_gathering asking = {.count = skb->mark};

	bpf_for_each_map_elem(&eyeq_asked, gather_limit, &asking, 0);
	return asking.told;
}
