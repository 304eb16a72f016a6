// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The law by itself, for the test that holds it equal to Rust's. An object of
 * its own, which only the test loads. A run takes the next input and writes its
 * output. A test that repeats the run once per input gets all outputs in one
 * call.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "eyeq_law.h"

/* How many inputs one call takes at most. */
#define STEPS 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct weir_rcp_input);
} law_inputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct weir_rcp_output);
} law_outputs SEC(".maps");

/* Entry 0: the next input. Set to 0 by the test before a call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} law_next SEC(".maps");

SEC("tc")
int eyeq_law(struct __sk_buff *skb)
{
	struct weir_rcp_output *output;
	struct weir_rcp_input *input;
	__u32 zero = 0, *next, at;

	(void)skb;
	next = bpf_map_lookup_elem(&law_next, &zero);
	if (!next)
		return TC_ACT_SHOT;
	at = *next;
	input = bpf_map_lookup_elem(&law_inputs, &at);
	output = bpf_map_lookup_elem(&law_outputs, &at);
	if (!input || !output)
		return TC_ACT_SHOT;
	rcp_step(input, output);
	*next = at + 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
