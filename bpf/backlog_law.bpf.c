// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * The law of a pair's queue by itself, for the test that holds it equal to
 * Rust's. An object of its own, which only the test loads. A run takes the next
 * input and writes its output. A test that repeats the run once per input gets
 * all outputs in one call.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "clock.h"
#include "backlog_law.h"

/* How many inputs one call takes at most. */
#define STEPS 65536

struct law_input {
	struct weir_backlog backlog;
	struct weir_bound bound;
	struct weir_arrival arrival;
	__u64 is_new;
};
_Static_assert(sizeof(struct law_input) == 128, "backlog_law.rs expects 128");

struct law_output {
	struct weir_backlog backlog;
	__u64 is_let_in;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct law_input);
} law_inputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct law_output);
} law_outputs SEC(".maps");

/* Entry 0: the next input. Set to 0 by the test before a call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} law_next SEC(".maps");

SEC("tc")
int backlog_law(struct __sk_buff *skb)
{
	struct law_output *output;
	struct law_input *input;
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
	output->backlog = input->backlog;
	output->is_let_in = backlog_admits(&output->backlog, &input->bound, &input->arrival,
					   input->is_new != 0);
	*next = at + 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
