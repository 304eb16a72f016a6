// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * vCC's law by itself, for the test that holds it equal to Rust's. An object of
 * its own, which only the test loads. A run takes the next input, changes the
 * flow it names, and writes the results. A test that repeats the run once per
 * input gets all outputs in one call.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "vcc_law.h"

/* How many inputs one call takes at most. */
#define STEPS 65536
#define FLOWS 256

struct vcc_input {
	struct weir_vcc_segment segment;
	struct weir_vcc_terms terms;
	__u32 flow;
	__u32 spare;
};
_Static_assert(sizeof(struct vcc_input) == 56, "vcc_law.rs expects 56");

struct vcc_output {
	struct weir_vcc_edit edit;
	struct weir_vcc_flow flow;
};
_Static_assert(sizeof(struct vcc_output) == 80, "vcc_law.rs expects 80");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct vcc_input);
} law_inputs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, struct vcc_output);
} law_outputs SEC(".maps");

/* All zeros when the object is loaded: nothing was seen of any. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct weir_vcc_flow);
} law_flows SEC(".maps");

/* Entry 0: the next input. Set to 0 by the test before a call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} law_next SEC(".maps");

SEC("tc")
int vcc_law(struct __sk_buff *skb)
{
	__u32 zero = 0, *next, at, which;
	struct vcc_output *output;
	struct vcc_input *input;
	struct weir_vcc_flow *flow;

	(void)skb;
	next = bpf_map_lookup_elem(&law_next, &zero);
	if (!next)
		return TC_ACT_SHOT;
	at = *next;
	input = bpf_map_lookup_elem(&law_inputs, &at);
	output = bpf_map_lookup_elem(&law_outputs, &at);
	if (!input || !output)
		return TC_ACT_SHOT;
	which = input->flow;
	flow = bpf_map_lookup_elem(&law_flows, &which);
	if (!flow)
		return TC_ACT_SHOT;
	vcc_handle(flow, &input->segment, &input->terms, &output->edit);
	output->flow = *flow;
	*next = at + 1;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
