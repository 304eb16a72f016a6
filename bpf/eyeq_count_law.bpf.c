// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The meter by itself, for the test that holds it equal to Rust's. As eyeq_law.bpf.c: a run takes the
 * next input, whole with the meter's state, and writes what became of it.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "eyeq_law.h"
#include "eyeq.h"
#include "eyeq_count.h"

/* How many inputs one call takes at most. */
#define STEPS 65536

struct count_input {
	struct weir_eyeq_settings set;
	struct weir_eyeq_share share;
	struct weir_eyeq_sums meter;
	struct weir_eyeq_heeder source;
	struct weir_eyeq_packets packets;
	__u64 now_ns;
};
_Static_assert(sizeof(struct count_input) == 216, "eyeq_count.rs expects 216");

struct count_output {
	struct weir_eyeq_sums meter;
	struct weir_eyeq_heeder source;
	__u64 asked;
};
_Static_assert(sizeof(struct count_output) == 120, "eyeq_count.rs expects 120");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct count_input);
} law_inputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct count_output);
} law_outputs SEC(".maps");

/* Entry 0: the next input. Set to 0 by the test before a call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} law_next SEC(".maps");

SEC("tc")
int eyeq_count(struct __sk_buff *skb)
{
	struct count_output *output;
	struct count_input *input;
	__u32 zero = 0, *next, at;

	(void)skb;
	next = bpf_map_lookup_elem(&law_next, &zero);
	if (!next)
		return TC_ACT_SHOT;
	at = *next;
	input = bpf_map_lookup_elem(&law_inputs, &at);
	output = bpf_map_lookup_elem(&law_outputs, &at);
	/* The program does not run without a period. */
	if (!input || !output || !input->set.period_ns)
		return TC_ACT_SHOT;
	output->meter = input->meter;
	output->source = input->source;
	output->asked = count_packets(&output->meter, &input->set, input->share.capacity_bps,
				      input->share.floor_bps, &output->source, input->now_ns,
				      &input->packets);
	*next = at + 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
